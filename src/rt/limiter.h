/*
 * Admission limits, lock-free. Both only say yes or no: nobody waits here.
 *
 * rt_bucket     token bucket: `per_second` on average, `burst` at once. Kept as one number, the time at which the
 *               bucket will be full again (GCRA): a take moves it forward, and is refused when it would lie more
 *               than a burst ahead of now.
 * rt_inflight   at most `max` at once.
 *
 * Threads     Every function from any thread. Time is passed in and may be slightly out of order.
 */
#ifndef RON_RT_LIMITER_H
#define RON_RT_LIMITER_H

#include <stdbool.h>
#include <stdint.h>

#include "rt/os.h"

struct rt_bucket {
    struct os_a64 full_at_ns;        /* relaxed: it orders nothing but itself */
    struct os_a64 per_second, burst; /* relaxed; both may change while running */
};

void rt_bucket_init(struct rt_bucket *b, uint64_t per_second, uint64_t burst); /* per_second 0: no limit */
void rt_bucket_configure(struct rt_bucket *b, uint64_t per_second, uint64_t burst);
bool rt_bucket_take(struct rt_bucket *b, uint64_t n, int64_t now_ns); /* n > burst never succeeds */
int64_t rt_bucket_wait_ms(const struct rt_bucket *b, uint64_t n,
                          int64_t now_ns); /* until n could be taken */

struct rt_inflight {
    struct os_a64
        now; /* acq_rel in take and release: what happened before a release is seen by the next take */
    struct os_a64 max;
};

void rt_inflight_init(struct rt_inflight *f, uint64_t max);
void rt_inflight_configure(struct rt_inflight *f, uint64_t max);
bool rt_inflight_take(struct rt_inflight *f);
void rt_inflight_release(struct rt_inflight *f);
uint64_t rt_inflight_now(const struct rt_inflight *f);

#endif
