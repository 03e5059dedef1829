/*
 * A 64-bit word that can be waited on: the one place where a thread of rt sleeps (internal).
 *
 * Channels, watches, broadcasts, one-shots and the supervisor are protocols over such words: their state is
 * *in* the word, so one atomic operation both changes the state and learns whether anybody sleeps.
 *
 *   waiter   WAITED |= 1 (one RMW returns the state as of that moment); same state as seen before? sleep.
 *   changer  changes the state (one RMW returns the old bits); WAITED was set? wake.
 *
 * Both are RMWs on one location, so they are totally ordered: either the changer sees WAITED, or the waiter
 * sees the change. No fence, no second variable, no lost wake-up; tests/model/rt/model_word.c tries all orders.
 *
 * Bit 0 is WAITED and belongs to this file. The other 63 bits belong to the caller.
 *
 * Ends        rt_word_wait() takes a deadline and ends when the calling task is told to stop. There is no
 *             other wait. A waiter that was picked by rt_word_wake() always returns ERR_OK, even if its time
 *             came or it was cancelled meanwhile: it must look again, so that a wake-up is never lost.
 */
#ifndef RON_RT_WORD_H
#define RON_RT_WORD_H

#include "base/err.h"
#include "rt/deadline.h"
#include "rt/lock.h"
#include "rt/os.h"

#define RT_WORD_WAITED 1u

struct rt_waiter;

struct rt_word {
    struct os_a64 v;
    struct os_mutex
        m; /* guards the list; WAITED is set and cleared under it, so it is true exactly while */
    struct rt_waiter *first, *last; /* ... the list has somebody. Oldest first. */
};

void rt_word_init(struct rt_word *w, uint64_t value);
void rt_word_fini(struct rt_word *w); /* nobody waits */

/* acquire: pairs with the release of rt_word_add() and rt_word_cas() */
static inline uint64_t rt_word_load(const struct rt_word *w)
{
    return os_a64_load(&w->v, memory_order_acquire);
}

/* Wakes the `n` oldest waiters. For who saw WAITED in the value that an RMW on the word returned. */
void rt_word_wake(struct rt_word *w, uint64_t n);

/*
 * Sleeps while ((word ^ seen) & mask) == 0. ERR_OK: it changed, or look again; ERR_TIMEOUT; ERR_CANCELED: one of
 * `stops` (RT_STOP_* of stop.h) was asked of the calling task.
 */
NODISCARD enum err rt_word_wait(struct rt_word *w, uint64_t seen, uint64_t mask, struct deadline by,
                                uint32_t stops) RT_BLOCKS;

/*
 * For words that the waiter may free once it has seen the change: adds `change` and wakes everybody, holding the
 * word's mutex from before the change is visible until it no longer touches the word. The waiter calls
 * rt_word_settle() after it saw the change; then the word is its own.
 */
void rt_word_publish(struct rt_word *w, uint64_t change);
void rt_word_settle(struct rt_word *w);

#endif
