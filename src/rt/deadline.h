/*
 * A deadline is a point on the monotonic clock. It is passed down unchanged, so that a chain of calls shares
 * one budget instead of adding time-outs up. A value: any thread, nothing to own.
 */
#ifndef RON_RT_DEADLINE_H
#define RON_RT_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "rt/os.h"

struct deadline {
    int64_t at_ns;
};

static inline struct deadline deadline_at_ns(int64_t at_ns)
{
    return (struct deadline){at_ns};
}

/* Waits with this one still end: on close, on shutdown, on cancel. */
static inline struct deadline deadline_never(void)
{
    return (struct deadline){OS_NEVER};
}

/* `ms` from now; what is too far away is never, what is not positive has passed. */
static inline struct deadline deadline_in_ms(int64_t ms)
{
    int64_t now = os_now_ns();
    if (ms >= (OS_NEVER - now) / 1000000)
        return deadline_never();
    return (struct deadline){ms <= 0 ? now : now + ms * 1000000};
}

static inline struct deadline deadline_min(struct deadline a, struct deadline b)
{
    return a.at_ns < b.at_ns ? a : b;
}

static inline bool deadline_is_never(struct deadline d)
{
    return d.at_ns == OS_NEVER;
}

static inline bool deadline_passed(struct deadline d)
{
    return !deadline_is_never(d) && os_now_ns() >= d.at_ns;
}

/* Whole milliseconds left, rounded up; 0 when passed; INT64_MAX for never. */
static inline int64_t deadline_left_ms(struct deadline d)
{
    if (deadline_is_never(d))
        return INT64_MAX;
    int64_t left_ns = d.at_ns - os_now_ns();
    return left_ns <= 0 ? 0 : (left_ns - 1) / 1000000 + 1;
}

#endif
