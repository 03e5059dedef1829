/*
 * Broadcast: a bounded ring with one cursor per subscriber. Publishers never wait; who reads too slowly loses the
 * oldest items and learns how many.
 *
 * Ownership   Items are immutable and shared. rt_bcast_publish() takes over the caller's reference; a subscriber
 *             gets one of its own (spec.ref) and drops it (spec.unref). Without these hooks items are plain words,
 *             or objects that outlive the broadcast.
 * Threads     Publishing and subscribing from any thread; a subscription belongs to one thread at a time.
 *             `ref` and on_ready run under the broadcast's mutex: they must not wait, nor call back in.
 * Memory      The ring is allocated by rt_bcast_create(), a cursor by rt_bcast_subscribe(); nothing else.
 * Order       Every subscriber sees the same order, with gaps only where ERR_LAGGED said so.
 */
#ifndef RON_RT_BCAST_H
#define RON_RT_BCAST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "rt/deadline.h"
#include "rt/lock.h"

struct rt_bcast_spec {
    const char *name; /* as in topology.def */
    size_t capacity;  /* 1 .. RT_BCAST_CAPACITY_MAX */
    void (*ref)(void *item);
    void (*unref)(void *item);
};

enum { RT_BCAST_CAPACITY_MAX = 1 << 20 };

struct rt_bcast_stats {
    size_t capacity, subscribers;
    uint64_t published;
    uint64_t lagged; /* items lost, summed over subscribers */
};

struct rt_bcast;
struct rt_bcast_sub;

struct rt_bcast *rt_bcast_create(const struct rt_bcast_spec *spec); /* NULL: no memory */
void rt_bcast_destroy(struct rt_bcast *b);                          /* all subscriptions are gone */

/* After close the item is dropped. Nobody listening is no error. */
void rt_bcast_publish(struct rt_bcast *b, void *item);
void rt_bcast_close(struct rt_bcast *b); /* subscribers read what is left, then see ERR_CLOSED */

/* Sees what is published from now on. on_ready (may be NULL): called once after each ERR_EMPTY, when there is more. */
struct rt_bcast_sub *rt_bcast_subscribe(struct rt_bcast *b, void (*on_ready)(void *arg), void *arg);
void rt_bcast_unsubscribe(struct rt_bcast_sub *s);

/* ERR_EMPTY; ERR_LAGGED: see rt_bcast_take_lost(), the next call yields the oldest item left; ERR_CLOSED. */
NODISCARD enum err rt_bcast_try_recv(struct rt_bcast_sub *s, void **out_item);
/* The same, waiting: ERR_TIMEOUT; ERR_CANCELED when nothing is there and the task is to stop, even softly. */
NODISCARD enum err rt_bcast_recv(struct rt_bcast_sub *s, struct deadline by, void **out_item) RT_BLOCKS;

/* Counts what has passed by, as ERR_LAGGED would, for a subscriber that can take nothing now. */
void rt_bcast_note_lost(struct rt_bcast_sub *s);
uint64_t rt_bcast_take_lost(struct rt_bcast_sub *s); /* items lost since the last call */
struct rt_bcast_stats rt_bcast_stats(struct rt_bcast *b);

#endif
