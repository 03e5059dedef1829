/*
 * Each cause is one word (missing or not); the answer with its moment is another. A setter changes its
 * cause, then brings the answer up to date: compute it from all causes, compare-and-swap it in when it
 * differs, and look again, so that of two setters the later one always sees both causes. Readers take no
 * lock.
 */
#include "obs/health.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/time_fmt.h"

enum { HEALTH_MAGIC = 0x484c5448 };
enum answer { FINE, DEGRADED, NOT_READY };

struct obs_cause {
    const char *name;
    enum obs_weight weight;
    _Atomic int missing; /* release in set, acquire in answer_of and read */
};

struct obs_health {
    unsigned magic;
    const struct clock *clock;
    size_t n;
    struct obs_cause cause[OBS_CAUSES_MAX];
    _Atomic uint64_t answer;  /* wall ms << 2 | enum answer; acq_rel, partner: obs_health_read */
    _Atomic uint64_t version; /* relaxed */
};

enum err obs_health_create(const struct clock *clock, struct obs_health **out_h)
{
    struct obs_health *h = calloc(1, sizeof *h);
    if (!h)
        return ERR_NO_MEMORY;
    h->magic = HEALTH_MAGIC;
    h->clock = clock;
    atomic_store(&h->answer, (uint64_t)clock_wall_ms(clock) << 2 | FINE);
    *out_h = h;
    return ERR_OK;
}

void obs_health_destroy(struct obs_health *h)
{
    if (!h)
        return;
    CHECK_MAGIC(h, HEALTH_MAGIC);
    h->magic = 0;
    free(h);
}

static enum answer answer_of(const struct obs_health *h)
{
    enum answer a = FINE;
    for (size_t i = 0; i < h->n; i++)
        if (atomic_load_explicit(&h->cause[i].missing, memory_order_seq_cst)) {
            if (h->cause[i].weight == OBS_HARD)
                return NOT_READY;
            a = DEGRADED;
        }
    return a;
}

static void refresh(struct obs_health *h)
{
    for (;;) {
        uint64_t seen = atomic_load_explicit(&h->answer, memory_order_seq_cst);
        enum answer now = answer_of(h);
        if ((seen & 3) == (uint64_t)now)
            return;
        uint64_t next = (uint64_t)clock_wall_ms(h->clock) << 2 | (uint64_t)now;
        atomic_compare_exchange_strong(&h->answer, &seen, next);
    }
}

size_t obs_health_add(struct obs_health *h, const char *name, enum obs_weight weight)
{
    CHECK_MAGIC(h, HEALTH_MAGIC);
    size_t ignored;
    CHECK(h->n < OBS_CAUSES_MAX && !obs_health_find(h, name, &ignored));
    struct obs_cause *c = &h->cause[h->n++];
    c->name = name;
    c->weight = weight;
    atomic_store(&c->missing, 1);
    refresh(h);
    return h->n - 1;
}

bool obs_health_find(const struct obs_health *h, const char *name, size_t *out_index)
{
    for (size_t i = 0; i < h->n; i++)
        if (strcmp(h->cause[i].name, name) == 0) {
            *out_index = i;
            return true;
        }
    return false;
}

bool obs_health_set(struct obs_health *h, size_t cause, bool ok)
{
    CHECK_MAGIC(h, HEALTH_MAGIC);
    CHECK(cause < h->n);
    bool changed = atomic_exchange(&h->cause[cause].missing, !ok) != !ok;
    if (changed) {
        refresh(h);
        atomic_fetch_add_explicit(&h->version, 1, memory_order_relaxed);
    }
    return changed;
}

bool obs_health_ok(const struct obs_health *h, size_t cause)
{
    CHECK(cause < h->n);
    return !atomic_load_explicit(&h->cause[cause].missing, memory_order_acquire);
}

void obs_health_read(const struct obs_health *h, struct obs_health_view *out)
{
    CHECK_MAGIC(h, HEALTH_MAGIC);
    memset(out, 0, sizeof *out);
    out->ready = true;
    for (size_t i = 0; i < h->n; i++)
        if (atomic_load_explicit(&h->cause[i].missing, memory_order_acquire)) {
            out->missing[out->n_missing++] = h->cause[i].name;
            out->degraded = true;
            if (h->cause[i].weight == OBS_HARD)
                out->ready = false;
        }
    out->since_ms = (int64_t)(atomic_load_explicit(&h->answer, memory_order_acquire) >> 2);
    out->version = atomic_load_explicit(&h->version, memory_order_relaxed);
}

void obs_health_render(const struct obs_health *h, obs_health_extra_fn *extra, void *ctx, struct buf *out)
{
    struct obs_health_view v;
    obs_health_read(h, &v);
    buf_printf(out, "{\"ready\":%s,\"degraded\":%s,\"missing\":[", v.ready ? "true" : "false",
               v.degraded ? "true" : "false");
    for (size_t i = 0; i < v.n_missing; i++)
        buf_printf(out, "%s\"%s\"", i ? "," : "", v.missing[i]); /* names are our own literals */
    char since[TIME_FMT_CHARS];
    time_format_ms(v.since_ms, since);
    buf_printf(out, "],\"since\":\"%s\"", since);
    if (extra)
        extra(ctx, out);
    buf_putc(out, '}');
}
