/*
 * What other threads have for an object that lives on a loop: they put items in, the loop is kicked
 * once, however many they are, and the object takes them all.
 *
 * Ownership   Items are embedded in the caller's structs; one that was added belongs to the inbox until
 *             it is taken.
 * Threads     net_inbox_add and net_inbox_close from any thread; the rest on the loop's thread, or when
 *             the loop does not run.
 * Order       First in, first out.
 */
#ifndef RON_NET_INBOX_H
#define RON_NET_INBOX_H

#include <stdbool.h>

#include "base/err.h"
#include "net/loop.h"

struct net_inbox;

struct net_inbox_item {
    struct net_inbox_item *next;
    bool inside; /* private, like next */
};

/* fn runs on the loop's thread when there is something to take, or after net_inbox_close. */
NODISCARD enum err net_inbox_create(struct net_loop *loop, void (*fn)(void *ctx), void *ctx,
                                    struct net_inbox **out);
/* Nothing may be inside. fn is not called any more. */
void net_inbox_destroy(struct net_inbox *ib);

/* ERR_CLOSED, or ERR_EXISTS when it is inside already: either way it was not added. */
NODISCARD enum err net_inbox_add(struct net_inbox *ib, struct net_inbox_item *item);
/* The same for one that must get in also after the close (to end something). */
NODISCARD enum err net_inbox_add_late(struct net_inbox *ib, struct net_inbox_item *item);
/* Begins a round: what is inside now, and nothing that is added meanwhile, comes out of net_inbox_next,
 * oldest first, then NULL. True: the inbox is closed. An item may be added again as soon as it came out. */
bool net_inbox_begin(struct net_inbox *ib);
struct net_inbox_item *net_inbox_next(struct net_inbox *ib);
void net_inbox_close(struct net_inbox *ib);
/* The same without calling fn: for who is about to take the rest and destroy it. */
void net_inbox_close_quietly(struct net_inbox *ib);

#endif
