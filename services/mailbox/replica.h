/*
 * Several mailbox nodes that share the shards through PostgreSQL (docs/design/0010).
 *
 * Every shard is a stream (store/pg_stream.h): one row per commit group, and a lease that says which node may write, under which
 * epoch. A node has the shards whose leases it holds; for the others it says who has them. PostgreSQL is the truth; the journal on
 * a node's disk is a copy, so that bodies are read from there and a shard that comes back only needs the rows it missed.
 *
 * The shard keeper takes and gives back leases, the shard's worker makes the copy equal and builds the state, or drops it; presence.h
 * says how they meet. Everybody else pins a shard while it reads from its journal.
 *
 * Threads     open, close: the service's. load: the lane's worker. owner and list: anybody. The rest is the shard keeper's.
 */
#ifndef RON_MAILBOX_REPLICA_H
#define RON_MAILBOX_REPLICA_H

#include "rt/lock.h"
#include "services/mailbox/mailbox.h"
#include "store/pg_stream.h"

enum { MAILBOX_STREAM_MAX = 40, MAILBOX_SHARD_STREAM = MAILBOX_STREAM_MAX + 8, MAILBOX_REPLICA_WHY = 300 };

/* Who has a shard, as last seen in PostgreSQL. */
struct mailbox_owner {
    char node[STORE_LEASE_NAME_MAX + 1];
    char url[STORE_LEASE_URL_MAX + 1]; /* "" : nobody, or nobody knows */
    char oap[STORE_LEASE_URL_MAX + 1]; /* where it speaks OAP; "" : it does not */
    uint64_t epoch;
    int64_t left_ms;
};

struct mailbox_replica {
    struct store_pg *db; /* the shard keeper's; every lane here has one of its own */
    char stream[MAILBOX_STREAM_MAX + 1], node[STORE_LEASE_NAME_MAX + 1];
    char place[STORE_LEASE_URL_MAX + 1]; /* in the lease: URL, a space, the OAP address */
    int64_t lease_ms, timeout_ms;
    uint64_t node_epoch; /* of this node's own row */
    int64_t node_renewed_ns, live_since_ns, told_ns;
    uint64_t live_print; /* of the live nodes' names: has the set changed? */

    _Atomic int64_t in_touch_ns;               /* when PostgreSQL last answered everything */
    _Atomic uint64_t want_claim, want_release; /* by command: a bit per shard */
    _Atomic uint32_t live, share, here;

    struct rt_lock lock; /* "shard_owners", rank 42: guards what follows */
    struct mailbox_owner owner[MAILBOX_SHARDS_MAX];
    char why[MAILBOX_REPLICA_WHY];
};

/* Before META is read: who we are, and what the shared mailbox is. Makes mb->replica; does nothing without replica.dsn. */
NODISCARD enum err mailbox_replica_open(struct mailbox *mb) RT_BLOCKS;
/* With META: the leases of all shards exist, and they are of this mailbox. */
NODISCARD enum err mailbox_replica_found(struct mailbox *mb) RT_BLOCKS;
void mailbox_replica_close(struct mailbox *mb) RT_BLOCKS;

void mailbox_replica_stream(const struct mailbox_replica *x, uint16_t shard,
                            char out[MAILBOX_SHARD_STREAM]);
/* A shard that we hold the lease of: its copy made equal to its stream, its state built. Logs why not. */
NODISCARD enum err mailbox_replica_load(struct mailbox_lane *l) RT_BLOCKS;
/* False: not known, or nobody; the url is then "". */
bool mailbox_replica_owner(struct mailbox *mb, uint16_t shard, struct mailbox_owner *out);
void mailbox_replica_why(struct mailbox *mb, char out[MAILBOX_REPLICA_WHY]);
/* PostgreSQL was heard of within a lease. */
bool mailbox_replica_in_touch(const struct mailbox *mb);

#endif
