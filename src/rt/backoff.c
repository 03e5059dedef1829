#include "rt/backoff.h"

#include "base/check.h"

/* min(cap, ms * 2^attempt) without overflow. */
static int64_t grown(int64_t ms, unsigned attempt, int64_t cap_ms)
{
    for (; attempt > 0 && ms < cap_ms && ms > 0; attempt--)
        ms = ms > cap_ms / 2 ? cap_ms : ms * 2;
    return ms < cap_ms ? ms : cap_ms;
}

int64_t rt_backoff_delay_ms(const struct rt_backoff_spec *spec, unsigned attempt, struct rng *rng)
{
    CHECK(0 <= spec->first_min_ms && spec->first_min_ms <= spec->first_max_ms &&
          spec->first_max_ms <= spec->cap_ms && spec->extra_ms >= 0);
    int64_t low = grown(spec->first_min_ms, attempt, spec->cap_ms);
    int64_t high = grown(spec->first_max_ms, attempt, spec->cap_ms);
    return rng_between(rng, low, high) + rng_between(rng, 0, spec->extra_ms);
}

void rt_backoff_init(struct rt_backoff *b, const struct rt_backoff_spec *spec, uint64_t seed)
{
    b->spec = *spec;
    b->attempt = 0;
    rng_seed(&b->rng, seed);
}

int64_t rt_backoff_next_ms(struct rt_backoff *b)
{
    int64_t delay_ms = rt_backoff_delay_ms(&b->spec, b->attempt, &b->rng);
    b->attempt++;
    return delay_ms;
}

void rt_backoff_reset(struct rt_backoff *b)
{
    b->attempt = 0;
}
