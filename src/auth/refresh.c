/* Upkeep of the capability cache: what is old goes, and a burst of refused tokens makes it start afresh. */
#include <string.h>

#include "auth/cap.h"
#include "auth/cap_internal.h"
#include "base/check.h"

#define SECOND_NS INT64_C(1000000000)

enum { SPIKE_WINDOW_S = 30, SPIKE_PER_S = 5 };

void auth_empty_cache(struct auth *a)
{
    CHECK_MAGIC(a, AUTH_MAGIC);
    /* Pairs with the acquire loads in cap.c. */
    uint64_t generation = atomic_fetch_add_explicit(&a->generation, 1, memory_order_release) + 1;
    auth_cap_cache_trim(a->cache, generation, clock_mono_ns(a->cfg.clock));
    atomic_fetch_add_explicit(&a->emptied, 1, memory_order_relaxed);
}

/* The smallest total seen within the window. */
static uint64_t oldest_total(const struct auth *a, int64_t now_ns, uint64_t total)
{
    for (size_t i = 0; i < a->nsamples; i++) {
        const struct auth_fail_sample *s = &a->samples[i];
        if (now_ns - s->at_ns <= SPIKE_WINDOW_S * SECOND_NS && s->total < total)
            total = s->total;
    }
    return total;
}

static bool failures_spike(struct auth *a, int64_t now_ns) RT_REQUIRES(&a->upkeep_lock)
{
    uint64_t total = atomic_load_explicit(&a->failures, memory_order_relaxed);
    bool spike = total - oldest_total(a, now_ns, total) > SPIKE_WINDOW_S * SPIKE_PER_S;
    if (spike)
        a->nsamples = a->next_sample = 0;
    const struct auth_fail_sample *last =
        a->nsamples > 0 ? &a->samples[(a->next_sample + AUTH_FAIL_SAMPLES - 1) % AUTH_FAIL_SAMPLES] : NULL;
    if (last == NULL || now_ns - last->at_ns >= SECOND_NS) {
        a->samples[a->next_sample] = (struct auth_fail_sample){now_ns, total};
        a->next_sample = (a->next_sample + 1) % AUTH_FAIL_SAMPLES;
        if (a->nsamples < AUTH_FAIL_SAMPLES)
            a->nsamples++;
    }
    return spike;
}

void auth_refresh(struct auth *a)
{
    CHECK_MAGIC(a, AUTH_MAGIC);
    int64_t now_ns = clock_mono_ns(a->cfg.clock);
    int64_t ttl_ns = atomic_load_explicit(&a->ttl_ns, memory_order_relaxed);
    rt_lock_take(&a->upkeep_lock);
    bool spike = failures_spike(a, now_ns);
    bool trim = now_ns - a->trimmed_ns >= ttl_ns / 2;
    if (trim)
        a->trimmed_ns = now_ns;
    rt_lock_release(&a->upkeep_lock);
    if (spike)
        auth_empty_cache(a);
    else if (trim)
        auth_cap_cache_trim(a->cache, atomic_load_explicit(&a->generation, memory_order_acquire), now_ns);
}

void auth_stats(struct auth *a, struct auth_stats *out)
{
    CHECK_MAGIC(a, AUTH_MAGIC);
    struct auth_cap_cache_stats c;
    auth_cap_cache_stats(a->cache, &c);
    *out = (struct auth_stats){
        .hits = c.hits,
        .misses = c.misses,
        .evicted = c.evicted,
        .expired = c.expired,
        .entries = c.entries,
        .failures = atomic_load_explicit(&a->failures, memory_order_relaxed),
        .emptied = atomic_load_explicit(&a->emptied, memory_order_relaxed),
        .rate_limited = atomic_load_explicit(&a->rate_limited, memory_order_relaxed),
    };
}
