#include "rt/breaker.h"

#include <string.h>

#include "base/check.h"

void rt_breaker_init(struct rt_breaker *b, const struct rt_breaker_spec *spec)
{
    memset(b, 0, sizeof *b);
    os_mutex_init(&b->m);
    rng_seed(&b->rng, spec->seed);
    rt_breaker_configure(b, spec);
}

void rt_breaker_fini(struct rt_breaker *b)
{
    os_mutex_fini(&b->m);
}

void rt_breaker_configure(struct rt_breaker *b, const struct rt_breaker_spec *spec)
{
    bool rolling = spec->in_window || spec->rate_calls;
    CHECK(spec->open_ms > 0 && spec->jitter_ms >= 0);
    CHECK(!rolling || spec->window_ms >= RT_BREAKER_BUCKETS);
    CHECK(spec->rate_percent <= 100 && (spec->rate_calls == 0) == (spec->rate_percent == 0));
    os_mutex_lock(&b->m);
    if (b->spec.window_ms != spec->window_ms) {
        memset(b->buckets, 0, sizeof b->buckets);
        b->bucket_at = 0; /* a number of tenths of the old one, which in a longer one lies in the future */
    }
    b->spec = *spec;
    if (b->spec.probes == 0)
        b->spec.probes = 1;
    if (b->spec.successes == 0)
        b->spec.successes = 1;
    os_mutex_unlock(&b->m);
}

/* The functions below run under b->m. */

/* Moves the ring of buckets to now; those that fell out of the window are emptied. */
static void window_move(struct rt_breaker *b, int64_t now_ns)
{
    if (b->spec.window_ms == 0)
        return;
    int64_t at = now_ns / (b->spec.window_ms * 1000000 / RT_BREAKER_BUCKETS);
    int64_t steps = at - b->bucket_at;
    if (steps <= 0)
        return;
    for (int64_t i = 1; i <= steps && i <= RT_BREAKER_BUCKETS; i++)
        memset(&b->buckets[(b->bucket_at + i) % RT_BREAKER_BUCKETS], 0, sizeof b->buckets[0]);
    if (steps > RT_BREAKER_BUCKETS)
        memset(b->buckets, 0, sizeof b->buckets);
    b->bucket_at = at;
}

static void window_note(struct rt_breaker *b, int64_t now_ns, bool failed)
{
    window_move(b, now_ns);
    b->buckets[b->bucket_at % RT_BREAKER_BUCKETS].calls++;
    b->buckets[b->bucket_at % RT_BREAKER_BUCKETS].failures += failed;
}

static bool too_many(const struct rt_breaker *b)
{
    unsigned calls = 0, failures = 0;
    for (int i = 0; i < RT_BREAKER_BUCKETS; i++) {
        calls += b->buckets[i].calls;
        failures += b->buckets[i].failures;
    }
    const struct rt_breaker_spec *s = &b->spec;
    return (s->in_a_row && b->row >= s->in_a_row) || (s->in_window && failures >= s->in_window) ||
           (s->rate_calls && calls >= s->rate_calls &&
            (uint64_t)failures * 100 >= (uint64_t)calls * s->rate_percent);
}

static void breaker_open(struct rt_breaker *b, int64_t now_ns)
{
    int64_t open_ms = b->spec.open_ms;
    for (unsigned i = 0; i < b->reopened && open_ms < b->spec.open_max_ms; i++)
        open_ms = open_ms * 2 < b->spec.open_max_ms ? open_ms * 2 : b->spec.open_max_ms;
    b->reopened++;
    b->state = RT_BREAKER_OPEN;
    b->open_until_ns = now_ns + (open_ms + rng_between(&b->rng, 0, b->spec.jitter_ms)) * 1000000;
    os_count_add(&b->opened, 1);
}

static void breaker_close(struct rt_breaker *b)
{
    b->state = RT_BREAKER_CLOSED;
    b->row = b->reopened = 0;
    memset(b->buckets, 0, sizeof b->buckets);
}

static void breaker_tick(struct rt_breaker *b, int64_t now_ns)
{
    if (b->state == RT_BREAKER_OPEN && now_ns >= b->open_until_ns) {
        b->state = RT_BREAKER_HALF_OPEN;
        b->probing = b->succeeded = 0;
    }
}

/* A probe came back. Answers of calls from before it opened may come late: probing is then 0 already. */
static void probe_back(struct rt_breaker *b)
{
    if (b->probing > 0)
        b->probing--;
}

bool rt_breaker_allow(struct rt_breaker *b, int64_t now_ns)
{
    os_mutex_lock(&b->m);
    breaker_tick(b, now_ns);
    bool allow = b->state == RT_BREAKER_CLOSED;
    if (b->state == RT_BREAKER_HALF_OPEN && b->probing < b->spec.probes) {
        b->probing++;
        allow = true;
    }
    os_mutex_unlock(&b->m);
    return allow;
}

void rt_breaker_success(struct rt_breaker *b, int64_t now_ns)
{
    os_mutex_lock(&b->m);
    b->row = 0;
    if (b->state == RT_BREAKER_CLOSED)
        window_note(b, now_ns, false);
    if (b->state == RT_BREAKER_HALF_OPEN) {
        probe_back(b);
        if (++b->succeeded >= b->spec.successes)
            breaker_close(b);
    }
    os_mutex_unlock(&b->m);
}

void rt_breaker_failure(struct rt_breaker *b, int64_t now_ns)
{
    os_mutex_lock(&b->m);
    if (b->state == RT_BREAKER_CLOSED) {
        b->row++;
        window_note(b, now_ns, true);
        if (too_many(b))
            breaker_open(b, now_ns);
    } else if (b->state == RT_BREAKER_HALF_OPEN) {
        breaker_open(b, now_ns);
    }
    os_mutex_unlock(&b->m);
}

void rt_breaker_neither(struct rt_breaker *b, int64_t now_ns)
{
    (void)now_ns;
    os_mutex_lock(&b->m);
    if (b->state == RT_BREAKER_HALF_OPEN)
        probe_back(b);
    os_mutex_unlock(&b->m);
}

enum rt_breaker_state rt_breaker_state(struct rt_breaker *b, int64_t now_ns)
{
    os_mutex_lock(&b->m);
    breaker_tick(b, now_ns);
    enum rt_breaker_state state = b->state;
    os_mutex_unlock(&b->m);
    return state;
}

int64_t rt_breaker_retry_ms(struct rt_breaker *b, int64_t now_ns)
{
    os_mutex_lock(&b->m);
    int64_t left_ns = b->state == RT_BREAKER_OPEN ? b->open_until_ns - now_ns : 0;
    os_mutex_unlock(&b->m);
    return left_ns <= 0 ? 0 : (left_ns - 1) / 1000000 + 1;
}

uint64_t rt_breaker_opened(const struct rt_breaker *b)
{
    return os_count_get(&b->opened);
}
