/*
 * Jittered exponential back-off. Pure: the caller sleeps, and owns the randomness.
 *
 *     attempt n waits  U[min(cap, first_min * 2^n), min(cap, first_max * 2^n)] + U[0, extra]
 *
 * first_min == first_max with extra is "exponential plus jitter"; first_min == 0 is "full jitter"; no growth is
 * cap == first_max.
 *
 * Threads     One at a time.
 */
#ifndef RON_RT_BACKOFF_H
#define RON_RT_BACKOFF_H

#include <stdint.h>

#include "base/rng.h"

struct rt_backoff_spec {
    int64_t first_min_ms, first_max_ms, cap_ms,
        extra_ms; /* 0 <= first_min <= first_max <= cap, 0 <= extra */
};

int64_t rt_backoff_delay_ms(const struct rt_backoff_spec *spec, unsigned attempt, struct rng *rng);

struct rt_backoff {
    struct rt_backoff_spec spec;
    unsigned attempt;
    struct rng rng;
};

void rt_backoff_init(struct rt_backoff *b, const struct rt_backoff_spec *spec, uint64_t seed);
int64_t rt_backoff_next_ms(struct rt_backoff *b);
void rt_backoff_reset(struct rt_backoff *b); /* it worked: the next failure starts small again */

#endif
