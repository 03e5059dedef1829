/*
 * How many calls workers may have outstanding: tokens in a queue. Who calls out takes one and gives it back; when there is none it
 * waits for a call to end. A reload may change how many there are: more are put in at once, too many go when they come back.
 *
 * Threads     Any thread.
 * Memory      The queue has room for as many tokens as a configuration may ask for.
 */
#ifndef RON_REWARDER_PERMITS_H
#define RON_REWARDER_PERMITS_H

#include <stdatomic.h>

#include "rt/chan.h"

struct rewarder_permits {
    struct rt_chan *free; /* tokens nobody has */
    atomic_uint wanted,
        made; /* how many there should be; how many there are, taken ones too. Relaxed: only counts */
    atomic_uint taken, most;         /* now; at once, ever. Relaxed: only counts */
    atomic_ullong takes, waits_over; /* that were had; that ended without one */
};

/* Before the first take and at each reload. */
void rewarder_permits_set(struct rewarder_permits *p, unsigned wanted);
/* ERR_TIMEOUT, ERR_CANCELED (also when the queue was closed). */
NODISCARD enum err rewarder_permits_take(struct rewarder_permits *p, struct deadline by) RT_BLOCKS;
void rewarder_permits_give(struct rewarder_permits *p);
/* As a queue: as deep as many are taken, of as many as there are. `p` is a struct rewarder_permits. */
struct rt_chan_stats rewarder_permits_stats(void *p);

#endif
