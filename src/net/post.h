/*
 * What other threads have posted to a loop, and whether it sleeps.
 *
 * Senders push onto a lock-free stack; the loop takes the whole stack at once and turns it round. A sender wakes the loop only when
 * it finds it asleep, and takes the mark away doing so: a burst of messages costs one wake-up. Stack and mark are a
 * store-then-load pair on both sides, hence sequentially consistent:
 *
 *     loop     asleep = 1; look at the stack; sleep
 *     sender   push; asleep = 0, and when it was 1: wake
 *
 * At least one side sees the other, so nothing is slept on. tests/model/net walks the orders in which this can happen.
 *
 * Ownership   A message posted belongs to the post until it is taken.
 * Threads     push and rouse by any thread, the rest by the loop's.
 * Order       Messages of one sender come out in the order in which they were pushed.
 */
#ifndef RON_NET_POST_H
#define RON_NET_POST_H

#include "net/loop.h"
#include "rt/os.h"

struct net_post {
    struct os_a64 newest; /* struct net_msg *; the older ones hang on its next */
    struct os_a32 asleep;
};

/* True: the loop sleeps, or is about to, and it is the caller's to wake it. */
static inline bool net_post_rouse(struct net_post *p)
{
    return os_a32_swap(&p->asleep, 0, memory_order_seq_cst) == 1;
}

/* Adds a chain, newest first. True: as for rouse. */
static inline bool net_post_push(struct net_post *p, struct net_msg *newest, struct net_msg *oldest)
{
    uint64_t head = os_a64_load(&p->newest, memory_order_relaxed);
    do
        oldest->next = (struct net_msg *)(uintptr_t)head;
    while (!os_a64_cas(&p->newest, &head, (uint64_t)(uintptr_t)newest, memory_order_seq_cst));
    return net_post_rouse(p);
}

/* Before the loop sleeps. False: it must not, there is something to take. Either way net_post_awake follows. */
static inline bool net_post_asleep(struct net_post *p)
{
    os_a32_store(&p->asleep, 1, memory_order_seq_cst);
    return os_a64_load(&p->newest, memory_order_seq_cst) == 0;
}

static inline void net_post_awake(struct net_post *p)
{
    os_a32_store(&p->asleep, 0, memory_order_relaxed); /* who still finds the 1 wakes for nothing */
}

static inline bool net_post_has_some(const struct net_post *p)
{
    return os_a64_load(&p->newest, memory_order_acquire) != 0;
}

/* Everything that was posted, oldest first; what comes later is for the next time. */
static inline struct net_msg *net_post_take(struct net_post *p)
{
    /* acquire: pairs with the push; what the sender wrote before is seen */
    uint64_t head = os_a64_load(&p->newest, memory_order_acquire);
    while (head && !os_a64_cas(&p->newest, &head, 0, memory_order_acquire))
        continue;
    struct net_msg *m = (struct net_msg *)(uintptr_t)head, *in_order = NULL;
    while (m) {
        struct net_msg *next = m->next;
        m->next = in_order;
        in_order = m;
        m = next;
    }
    return in_order;
}

#endif
