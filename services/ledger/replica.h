/*
 * The ledger as one of several copies: who writes, how a copy follows, how it takes over.
 *
 * Every copy has its own journal, tree and state. One holds the lease and writes; its groups go to its own disk and, as rows, to
 * PostgreSQL (store/sink_replica.h). The others read those rows and put each through the same core that serves requests, so a row
 * that is not what the rules allow is found, not copied.
 *
 *   open      connect, compare identities, set aside a last frame that PostgreSQL does not have, replay. Phase: following.
 *   follow    rows behind our head, into our journal and through the core. Writes are refused, naming the writer.
 *   take over raise the epoch (that fences the old writer), read what is left, compare the heads: equal, and we write.
 *   write     renew the lease. Finding another epoch there ends in safe mode `fenced`; opening again makes it a standby.
 *
 * Acknowledged groups are never set aside: a writer has at most one group under way, so only the last frame of a journal can be
 * unknown to PostgreSQL. If more is missing there, or the roots differ before the last frame, PostgreSQL has lost a quorum's word
 * (or this is another history): safe mode with both roots named.
 *
 * Threads     open by whoever opens the ledger; step by the replica task alone; the rest by anybody.
 */
#ifndef RON_LEDGER_REPLICA_H
#define RON_LEDGER_REPLICA_H

#include "services/ledger/ledger.h"
#include "services/ledger/replay.h"
#include "store/sink_replica.h"

enum { REPLICA_WHY_MAX = 400 };

struct ledger_replica {
    struct store_pg *db; /* the replica task's; the sink has one of its own */
    struct ledger_replay replay;
    struct store_lease lease; /* as last read */
    int64_t renewed_ns, looked_ns, told_ns;
    bool founded;      /* the stream had no history when we opened: ours goes there first */
    bool more;         /* the last look left rows behind */
    bool barrier_done; /* on this connection */
    char identity[STORE_LEASE_IDENTITY_MAX + 1];
    char last_why[REPLICA_WHY_MAX];

    _Atomic uint64_t epoch;      /* ours; 0: not the writer */
    _Atomic uint64_t seen_epoch; /* the lease's */
    _Atomic uint64_t seen_group; /* PostgreSQL's last group, as far as we know */
    _Atomic int64_t in_step_ns;  /* when we last had all of it (standby) or renewed (writer) */
    _Atomic bool connected, want_take_over;
    _Atomic uint64_t take_overs;

    struct rt_lock lock; /* guards writer and why */
    char writer[STORE_LEASE_URL_MAX + 1], why[REPLICA_WHY_MAX];
};

/* Before the superblock: connects and reads the stream's lease. Refusals are logged as `replica_refused` with one sentence. */
NODISCARD enum err ledger_replica_connect(struct ledger *l) RT_BLOCKS;
/* A new directory takes over the stream's ledger_id and origin. False: the stream has none. */
bool ledger_replica_identity(const struct ledger *l, uint8_t ledger_id[16], char *origin,
                             size_t origin_max);
/* After the key: same ledger, same key? Founds the stream when there is none. */
NODISCARD enum err ledger_replica_found(struct ledger *l) RT_BLOCKS;
/*
 * With the journal open: compares its end with PostgreSQL. ERR_OK: fine (or safe mode was entered). ERR_TORN: the last frame was
 * set aside, open the journal again.
 */
struct ledger_replica_tail {
    struct store_pos at; /* segment 0: no frame since the checkpoint */
    uint64_t group_no;
    struct sha256 prev_root, new_root;
};
NODISCARD enum err ledger_replica_reconcile(struct ledger *l, const struct ledger_replica_tail *tail,
                                            bool closed_clean) RT_BLOCKS;
/* Wraps l->sink. */
NODISCARD enum err ledger_replica_tee(struct ledger *l) RT_BLOCKS;
void ledger_replica_free(struct ledger *l) RT_BLOCKS;

/* One turn of the replica task: follows, takes over or renews, whatever is due. Returns how long it may rest. */
int64_t ledger_replica_step(struct ledger *l) RT_BLOCKS;
/* The writer stops in order: the lease is free for the next one. */
void ledger_replica_release(struct ledger *l) RT_BLOCKS;

enum ledger_role { ROLE_ALONE, ROLE_STANDBY, ROLE_WRITER, ROLE_FENCED };
enum ledger_role ledger_replica_role(const struct ledger *l);
const char *ledger_role_name(enum ledger_role r);
/* Standby: has all that PostgreSQL had, recently; writer: the lease is ours, and no row is stuck. */
bool ledger_replica_ready(const struct ledger *l);
/* Where the writer is, "" when not known. */
void ledger_replica_writer(struct ledger *l, char out[STORE_LEASE_URL_MAX + 1]);
void ledger_replica_why(struct ledger *l, char out[REPLICA_WHY_MAX]);
int64_t ledger_replica_lag_ms(const struct ledger *l);

#endif
