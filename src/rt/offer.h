/*
 * Offering the core: whoever else can run on it does so first. For who has time until others, on the same core perhaps, bring more.
 *
 * The offer is for those with something short to do. Somebody who keeps the core for longer than RT_OFFER_TAKEN_NS is another program
 * with work of its own, and each offer would cost a whole slice of the scheduler: then none is made for RT_OFFER_PAUSE_NS. Where
 * nobody else can run, or a core is free for those who can, an offer is one call that does nothing.
 *
 * A value: one thread's at a time, zero to begin with. The clock is the caller's. Not with a lock held: those who get the core may want it.
 */
#ifndef RON_RT_OFFER_H
#define RON_RT_OFFER_H

#include "base/clock.h"
#include "rt/os.h"

enum { RT_OFFER_TAKEN_NS = 2000000, RT_OFFER_PAUSE_NS = 100000000 };

struct rt_offer {
    int64_t not_before_ns;
};

static inline bool rt_offer_allowed(const struct rt_offer *o, int64_t now_ns)
{
    return now_ns >= o->not_before_ns;
}

/* Returns what the clock says afterwards; *now_ns when no offer was allowed. */
static inline int64_t rt_offer_core(struct rt_offer *o, const struct clock *clock, int64_t now_ns)
{
    if (!rt_offer_allowed(o, now_ns))
        return now_ns;
    os_yield();
    int64_t then_ns = clock_mono_ns(clock);
    if (then_ns - now_ns > RT_OFFER_TAKEN_NS)
        o->not_before_ns = then_ns + RT_OFFER_PAUSE_NS;
    return then_ns;
}

#endif
