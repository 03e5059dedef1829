/*
 * A fixed cadence without drift: ticks lie at start + k * period. Ticks that passed while the task was busy are
 * skipped and counted, never caught up in a burst.
 *
 * Ownership   The caller's storage; nothing to free.
 * Threads     One at a time: it belongs to the task that ticks.
 */
#ifndef RON_RT_INTERVAL_H
#define RON_RT_INTERVAL_H

#include <stdint.h>

#include "base/err.h"
#include "rt/lock.h"

struct rt_task;

struct rt_interval {
    int64_t period_ns, next_ns;
    uint64_t missed;
};

void rt_interval_init(struct rt_interval *i, int64_t period_ms, int64_t now_ns);

/* Moves past `now`; true when at least one tick had come. Pure. */
bool rt_interval_due(struct rt_interval *i, int64_t now_ns);

/* Sleeps until the next tick. ERR_CANCELED when the task is to stop, even softly. */
NODISCARD enum err rt_interval_wait(struct rt_interval *i, struct rt_task *self) RT_BLOCKS;

#endif
