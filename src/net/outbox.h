/*
 * From handlers to a channel, one wake-up per loop iteration instead of one per request.
 *
 * A handler that sends straight into a channel wakes the task behind it every time, and on a busy core the two threads then
 * take turns request by request. An outbox keeps what the handlers of one iteration put into it and sends it all at the
 * iteration's end. For the way back see net_loop_cork.
 *
 * Ownership   Items put belong to the outbox, then to the channel. What the channel does not take, or pushes out
 *             (drop-oldest), goes to `refused`, which answers it.
 * Threads     net_outbox_put on the loop's own thread. refused runs there too.
 * Memory      Everything is allocated by create.
 * Order       FIFO per loop.
 */
#ifndef RON_NET_OUTBOX_H
#define RON_NET_OUTBOX_H

#include "base/err.h"
#include "rt/chan.h"

struct net_outbox;
struct net_server;

/* why: ERR_BUSY (full, or pushed out by a newer item), ERR_CLOSED. */
typedef void net_outbox_refused(void *item, enum err why, void *ctx);

/* policy: the channel's. Before the server runs; destroyed when the loops no longer run, before the server and the channel. */
NODISCARD enum err net_outbox_create(struct net_server *s, struct rt_chan *to, enum rt_policy policy,
                                     net_outbox_refused *refused, void *ctx,
                                     struct net_outbox **out_outbox);
/* NULL is fine. What the last iteration left in it is sent or refused. */
void net_outbox_destroy(struct net_outbox *o);
void net_outbox_put(struct net_outbox *o, unsigned loop_index, void *item);

#endif
