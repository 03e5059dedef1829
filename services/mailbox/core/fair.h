/*
 * Fair share: jobs are kept per topic and taken by deficit round robin, so that a job waits for at most one round of active
 * topics whatever a hot topic queues.
 *
 * Ownership   Jobs are the caller's; the node is inside them. A job is in at most one queue.
 * Threads     One at a time.
 * Memory      Lanes are allocated at init, one per job that may wait; nothing grows.
 */
#ifndef RON_MAILBOX_CORE_FAIR_H
#define RON_MAILBOX_CORE_FAIR_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct mailbox_fair_node {
    struct mailbox_fair_node *next;
    uint64_t key; /* 64 bits of the topic's hash */
    uint32_t cost;
};

struct mailbox_fair_lane {
    struct mailbox_fair_node *head, *tail;
    uint64_t key;
    int64_t deficit;
    uint32_t jobs;
    uint32_t next_active; /* ring of lanes with jobs; also the free list */
    uint32_t next_same;   /* hash chain */
};

struct mailbox_fair {
    struct mailbox_fair_lane *lane; /* [0] unused */
    uint32_t *bucket;
    uint32_t lanes, buckets, free_head, active_tail, jobs, quantum;
};

NODISCARD enum err mailbox_fair_init(struct mailbox_fair *f, uint32_t jobs_max, uint32_t quantum);
void mailbox_fair_fini(struct mailbox_fair *f);
/* ERR_BUSY when this topic already holds share_max jobs. */
NODISCARD enum err mailbox_fair_add(struct mailbox_fair *f, struct mailbox_fair_node *n,
                                    uint32_t share_max);
struct mailbox_fair_node *mailbox_fair_take(struct mailbox_fair *f); /* NULL when empty */

#endif
