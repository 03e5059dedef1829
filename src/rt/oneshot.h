/*
 * One-shot: a slot for exactly one answer, owned by who waits for it.
 *
 * Ownership   The waiter owns the slot and may free it as soon as rt_oneshot_recv() returned ERR_OK or
 *             rt_oneshot_abandon() returned. A value sent belongs to the waiter; when rt_oneshot_send() fails the
 *             sender still owns it.
 * Threads     One waiter; any number of senders, of whom the first wins. A sender that lost, or came after the
 *             slot was abandoned, must not use it again: somebody else's reference must keep the slot's memory
 *             alive for late senders (in practice it lies in the request, which its job refers to).
 */
#ifndef RON_RT_ONESHOT_H
#define RON_RT_ONESHOT_H

#include "base/err.h"
#include "rt/deadline.h"
#include "rt/lock.h"
#include "rt/word.h"

struct rt_oneshot {
    struct rt_word state;
    void *value;
};

void rt_oneshot_init(struct rt_oneshot *o);
void rt_oneshot_fini(struct rt_oneshot *o);

/* ERR_EXISTS: answered before. ERR_CLOSED: nobody waits any more. */
NODISCARD enum err rt_oneshot_send(struct rt_oneshot *o, void *value);

/* ERR_TIMEOUT and ERR_CANCELED leave the slot open: wait again, or abandon it. */
NODISCARD enum err rt_oneshot_recv(struct rt_oneshot *o, struct deadline by, void **out_value) RT_BLOCKS;

/* Gives up. True: an answer had come already, it is in *out_value and belongs to the caller. */
NODISCARD bool rt_oneshot_abandon(struct rt_oneshot *o, void **out_value);

#endif
