#include "services/rewarder/permits.h"

#include "base/check.h"

static char token; /* all are alike */

/* One step of `made` towards `wanted`; false: there is none to be made. */
static bool step(struct rewarder_permits *p, int by)
{
    unsigned made = atomic_load_explicit(&p->made, memory_order_relaxed);
    do {
        unsigned wanted = atomic_load_explicit(&p->wanted, memory_order_relaxed);
        if (by > 0 ? made >= wanted : made <= wanted)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&p->made, &made, made + (unsigned)by,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void put(struct rewarder_permits *p)
{
    enum err e = rt_chan_try_send(p->free, &token);
    CHECK(e == ERR_OK || e == ERR_CLOSED); /* there is room for all that may be wanted */
}

void rewarder_permits_set(struct rewarder_permits *p, unsigned wanted)
{
    void *one;
    atomic_store_explicit(&p->wanted, wanted, memory_order_relaxed);
    while (step(p, 1))
        put(p);
    while (rt_chan_try_recv(p->free, &one) == ERR_OK)
        if (!step(p, -1)) {
            put(p);
            break;
        }
}

enum err rewarder_permits_take(struct rewarder_permits *p, struct deadline by)
{
    void *one;
    enum err e = rt_chan_recv(p->free, by, &one);
    if (e != ERR_OK) {
        atomic_fetch_add_explicit(&p->waits_over, 1, memory_order_relaxed);
        return e == ERR_CLOSED ? ERR_CANCELED : e;
    }
    unsigned taken = atomic_fetch_add_explicit(&p->taken, 1, memory_order_relaxed) + 1,
             most = atomic_load_explicit(&p->most, memory_order_relaxed);
    while (most < taken && !atomic_compare_exchange_weak_explicit(
                               &p->most, &most, taken, memory_order_relaxed, memory_order_relaxed))
        continue;
    atomic_fetch_add_explicit(&p->takes, 1, memory_order_relaxed);
    return ERR_OK;
}

void rewarder_permits_give(struct rewarder_permits *p)
{
    atomic_fetch_sub_explicit(&p->taken, 1, memory_order_relaxed);
    if (!step(p, -1))
        put(p);
}

struct rt_chan_stats rewarder_permits_stats(void *permits)
{
    struct rewarder_permits *p = permits;
    unsigned taken = atomic_load_explicit(&p->taken, memory_order_relaxed);
    uint64_t takes = atomic_load_explicit(&p->takes, memory_order_relaxed);
    return (struct rt_chan_stats){.depth = taken,
                                  .capacity = atomic_load_explicit(&p->wanted, memory_order_relaxed),
                                  .high_water = atomic_load_explicit(&p->most, memory_order_relaxed),
                                  .sent = takes,
                                  .received = takes > taken ? takes - taken : 0,
                                  .rejected = atomic_load_explicit(&p->waits_over, memory_order_relaxed)};
}
