/*
 * Bounded channel: many senders, many receivers, one fixed capacity, one answer to "full".
 *
 * Ownership   A pointer sent belongs to the channel until it is received. When a send fails the caller still
 *             owns it. What drop-oldest pushes out belongs to the pusher, so that its owner can be answered.
 * Threads     Every function may be called from any thread, but none while a lock is held. Only those marked
 *             RT_BLOCKS wait; they end on the deadline (ERR_TIMEOUT), on close (ERR_CLOSED) and when the
 *             calling task is cancelled (ERR_CANCELED).
 * Items       Any pointer but NULL (bit 63 must be clear, as it is in every address of a process).
 * Memory      All slots are allocated by rt_chan_create(); nothing after that allocates.
 * Order       FIFO. Closing keeps what is queued: receivers drain it, then see ERR_CLOSED.
 */
#ifndef RON_RT_CHAN_H
#define RON_RT_CHAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "rt/deadline.h"
#include "rt/lock.h"

/* What happens to a sender when the channel is full. */
enum rt_policy {
    RT_REJECT,      /* ERR_BUSY at once: the caller answers 429 */
    RT_DROP_OLDEST, /* the oldest item makes room and is handed to the pusher */
    RT_WAIT,        /* the sender waits for room, up to its deadline */
    RT_RETRY_ONCE,  /* the sender waits one jittered back-off for room, then ERR_BUSY */
    RT_LAST_WINS,   /* watches: the new value replaces the old (topology only) */
    RT_LAG,         /* broadcasts: slow readers lose the oldest and learn how many (topology only) */
};

struct rt_chan_spec {
    const char *name;  /* as in topology.def; must outlive the channel */
    const char *label; /* which of several of that name, or NULL */
    size_t capacity;   /* 1 .. RT_CHAN_CAPACITY_MAX */
    enum rt_policy policy;
    int64_t retry_min_ms,
        retry_max_ms; /* RT_RETRY_ONCE: the back-off is drawn from here; 0, 0 is 50 .. 150 */
    uint64_t seed;    /* ... with this seed */

    /*
     * For a consumer that sleeps elsewhere (an event loop): called by the sender whose item ends an emptiness
     * that a receive has seen (ERR_EMPTY), and by close. Runs on the sender's thread; must not wait or send.
     */
    void (*on_ready)(void *arg);
    void *on_ready_arg;
};

enum { RT_CHAN_CAPACITY_MAX = 1 << 24 };

/* Every number since creation; each is exact by itself, together they are a moving picture. */
struct rt_chan_stats {
    size_t depth, capacity, high_water;
    uint64_t sent, received;
    uint64_t rejected; /* sends that ended in ERR_BUSY */
    uint64_t dropped;  /* pushed out by drop-oldest */
};

struct rt_chan;

struct rt_chan *rt_chan_create(const struct rt_chan_spec *spec); /* NULL: no memory */

/* Nobody uses the channel any more. Items left go to `give_back` (may be NULL when it is empty). */
void rt_chan_destroy(struct rt_chan *ch, void (*give_back)(void *item, void *arg), void *arg);

/* ERR_BUSY when full, ERR_CLOSED after close. Not for RT_DROP_OLDEST. */
NODISCARD enum err rt_chan_try_send(struct rt_chan *ch, void *item);

/* Sends the first *out_n of n items; ERR_BUSY when not even one fits. */
NODISCARD enum err rt_chan_try_send_batch(struct rt_chan *ch, void *const *items, size_t n, size_t *out_n);

/* Sends as the policy says; ERR_BUSY (reject, retry once), ERR_TIMEOUT (wait), ERR_CLOSED, ERR_CANCELED. */
NODISCARD enum err rt_chan_send(struct rt_chan *ch, void *item, struct deadline by) RT_BLOCKS;

/* RT_WAIT only: sends all n, waiting for room as needed. *out_n went, whatever is returned: the rest is the caller's. */
NODISCARD enum err rt_chan_send_batch(struct rt_chan *ch, void *const *items, size_t n, struct deadline by,
                                      size_t *out_n) RT_BLOCKS;

/* RT_DROP_OLDEST only. *out_dropped is the item that had to go, or NULL. Fails only with ERR_CLOSED. */
NODISCARD enum err rt_chan_push_drop_oldest(struct rt_chan *ch, void *item, void **out_dropped);

/* The same for all of n items with one wake-up; `dropped` has room for n. ERR_CLOSED: none of them went. */
NODISCARD enum err rt_chan_push_drop_oldest_batch(struct rt_chan *ch, void *const *items, size_t n,
                                                  void **dropped, size_t *out_dropped);

/* ERR_EMPTY when there is nothing yet, ERR_CLOSED when there will be nothing any more. */
NODISCARD enum err rt_chan_try_recv(struct rt_chan *ch, void **out_item);
/* Up to `max` items; what lies behind *out_n in `items` is undefined, also on failure. */
NODISCARD enum err rt_chan_try_recv_batch(struct rt_chan *ch, void **items, size_t max, size_t *out_n);

NODISCARD enum err rt_chan_recv(struct rt_chan *ch, struct deadline by, void **out_item) RT_BLOCKS;

/* Waits for the first item, then takes what is there, up to `max`. */
NODISCARD enum err rt_chan_recv_batch(struct rt_chan *ch, void **items, size_t max, struct deadline by,
                                      size_t *out_n) RT_BLOCKS;

void rt_chan_close(struct rt_chan *ch); /* idempotent; wakes everybody */
bool rt_chan_is_closed(const struct rt_chan *ch);
size_t rt_chan_depth(const struct rt_chan *ch);
const char *rt_chan_name(const struct rt_chan *ch);
const char *rt_chan_label(const struct rt_chan *ch); /* NULL: none */
struct rt_chan_stats rt_chan_stats(const struct rt_chan *ch);

#endif
