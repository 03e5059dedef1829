/*
 * A lane: one shard with its log, its queues, and what its worker and the rebalancer keep between two turns.
 *
 * Ownership   The supervisor's threads come and go; the lane stays. Open and close: the service's.
 * Threads     The upper part is the worker's, `keeping` the rebalancer's; the atomics are for anybody.
 */
#ifndef RON_MAILBOX_LANE_H
#define RON_MAILBOX_LANE_H

#include "rt/breaker.h"
#include "rt/offer.h"
#include "services/mailbox/core/gather.h"
#include "services/mailbox/job.h"
#include "services/mailbox/log.h"
#include "services/mailbox/presence.h"

struct net_outbox;
struct rt_chan;
struct mailbox;

/* The worker's own: segments being emptied, and how far. */
struct mailbox_reclaim {
    uint32_t moving;       /* segment whose waiting messages, or keys, are being re-appended */
    uint32_t entry, topic; /* where the walks over entries and topics stand */
    uint32_t topics_of;    /* segment whose topics have all been named again */
    int64_t looked_at_us;
    bool busy; /* there is more to move now */
};

/* The rebalancer's own: index files, and the scrub. */
struct mailbox_keeping {
    uint32_t indexed_to; /* last segment with an index file */
    uint32_t oldest_idx; /* oldest index file there is; 0 = none */
    uint32_t scrubbed;   /* last segment the scrub read */
    uint32_t segment_seen;
    int64_t segment_since_ms, scrub_at_ns;
    int64_t scrub_ended_ns; /* the last round; 0 = there was none, or one is under way */
    bool looked;            /* at the files there are, when the shard came for the incarnation-th time */
    unsigned incarnation;
    bool spareless; /* no spare segment and none to be had: said once, not every time it is tried */
};

/* The shard keeper's own: the lease. */
struct mailbox_tenure {
    uint64_t epoch;        /* 0: we do not hold it */
    uint64_t trimmed;      /* rows up to this group were taken away */
    int64_t renewed_ns;    /* before the renewal was sent */
    int64_t free_since_ns; /* nobody has had it since, as far as we looked; 0: somebody has */
    int64_t not_before_ns; /* not taken again earlier, unless by command */
    bool pinned;           /* taken by command: kept whatever our share is */
};

struct mailbox_lane {
    struct mailbox *mb;
    uint16_t no;
    char label[4];
    struct mailbox_shard shard;
    void *group_memory;
    struct mailbox_log log;
    char dir[STORE_PATH_MAX];
    struct rt_chan *work, *requeue;
    struct net_outbox *doors;   /* from the event loops to work: one wake-up an iteration */
    struct rt_breaker breaker;  /* at the door: sends that time out; any thread */
    struct mailbox_rules rules; /* this lane's copy of the limits */
    uint64_t rules_seen;

    /* Worker's own; outlives its thread. */
    struct mailbox_fair fair;
    struct mailbox_job *held; /* answered when the group is durable, in order */
    struct mailbox_job **held_end;
    uint32_t held_n;
    struct mailbox_gather gather; /* until when they wait for others */
    struct rt_offer core;         /* those may be on this core */
    bool wrote;                   /* the last turn did: who was answered is about to ask again */
    struct mailbox_job *operators, **operators_end;
    struct heap parked;           /* by deadline */
    struct mailbox_recv **served; /* parked receives that got something in this group */
    size_t served_n, served_cap;
    struct mailbox_job *unfinished;
    struct mailbox_stream *streams;
    uint64_t leases_taken; /* of mb->leases; what is out, and what was taken for this group */
    struct mailbox_reclaim reclaim;
    bool more_ticks;
    bool worked; /* the last turn found jobs */
    bool roomy;  /* it found room for the largest group */
    int64_t counted_at_us;
    uint32_t retention_credit;
    int64_t retention_at_us;
    struct mailbox_stats published; /* what metrics have seen of shard.stats */
    unsigned quota_lines_seen;      /* how many there were when the tenants' counts were last told */
    uint8_t *read_buffer;

    struct mailbox_keeping keeping; /* the rebalancer's own */
    struct mailbox_tenure tenure;   /* the shard keeper's own */
    bool loaded;                    /* worker's: shard and log are there */

    /* The shard on several nodes. */
    atomic_bool given_up; /* it was read-only here, others may have it: somebody has to look at our disk */
    struct mailbox_presence presence;
    atomic_uint incarnation; /* how often it came */
    struct mailbox_lease_held
        *leases_held; /* when it last went, to be put back; the worker's, then the rebalancer's */
    uint32_t leases_held_n;
    atomic_int refused;             /* it could not be loaded: enum err; 0 = it could */
    _Atomic uint64_t epoch;         /* of the lease, for the worker; written before the stage */
    _Atomic uint64_t trim_to;       /* the rebalancer's wish: no group up to this one is needed */
    _Atomic int64_t lease_until_ns; /* by our clock, from before the renewal was sent */

    /* Read by anybody. */
    atomic_uint jobs; /* taken in and not answered */
    atomic_size_t bytes;
    _Atomic int64_t
        next_due_us; /* scan_next: stored by the worker after each loop, read by the scanner (mb->scan) */
    _Atomic int64_t busy_since_ns; /* inside a write since; 0 = not */
    atomic_bool readonly, disk_full, over_quota;
    atomic_bool no_space; /* by the rebalancer: there is no spare, and no room to make one */
    atomic_bool
        awaits_segment;  /* by the worker: the group may not fit, and the next segment is being made */
    atomic_bool damaged; /* the rebalancer found bytes that are wrong: the worker goes read-only */
    atomic_uint count[MAILBOX_STATES];
    atomic_uint topics, waiters, open_streams;
    _Atomic uint64_t reorder_depth, entries, live_bytes;
    _Atomic uint64_t idx_bytes;                           /* of index files, by the rebalancer */
    _Atomic int64_t oldest_ready_us[MAILBOX_CLASSES_MAX]; /* since when; INT64_MAX = none waits */
    _Atomic uint32_t active_segment;
    _Atomic int64_t sealed_every_ms; /* how long the last segment lasted */
    /* The rebalancer wishes, the worker agrees; segment numbers, 0 = none. Each pairs with the other side's acquire. */
    atomic_uint strip_wish; /* its audit time is over: the file may go when nothing in it waits */
    atomic_uint strip_ok;
    atomic_uint drop_wish; /* it is stripped: its index may go when no key in it is remembered */
    atomic_uint drop_ok;
};

/* Queues and memory; the shard is not loaded. The lane comes zeroed, and what nobody needs yet stays untouched. */
NODISCARD enum err mailbox_lane_init(struct mailbox *mb, struct mailbox_lane *l, uint16_t no);
/* Shard and journal. `share`: what is different when several nodes have it (epoch to catch_up_ctx); NULL: alone. */
NODISCARD enum err mailbox_lane_load(struct mailbox_lane *l,
                                     const struct mailbox_log_config *share) RT_BLOCKS;
void mailbox_lane_unload(
    struct mailbox_lane *l) RT_BLOCKS; /* nobody has it pinned; also after a failed load */
/* Both, for a mailbox that is alone. */
NODISCARD enum err mailbox_lane_open(struct mailbox *mb, struct mailbox_lane *l, uint16_t no) RT_BLOCKS;
void mailbox_lane_close(struct mailbox_lane *l) RT_BLOCKS;
/* The doors, when the server is there and before its loops run. */
NODISCARD enum err mailbox_lane_doors(struct mailbox_lane *l);
/* What the shard has out is what it has taken of mb->leases; by the worker, or when no worker has it. */
void mailbox_lane_count_leases(struct mailbox_lane *l);
/* Writes the group; ERR_OK, ERR_NO_SPACE (nothing happened), ERR_FENCED (it is another node's and goes), or the lane is read-only from now on. */
NODISCARD enum err mailbox_lane_commit(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS;
/* Bytes that are wrong were found: said and counted, and the worker makes it read-only. Any thread. */
enum { MAILBOX_INTEGRITY_IDX = 3, MAILBOX_INTEGRITY_SCRUB }; /* reasons of integrity_fail_total */
void mailbox_lane_found_damage(struct mailbox_lane *l, size_t reason, const struct store_journal_report *r);
/* What the files of all shards may use together, and whether this one has come so near its part that sends must end. Any thread. */
uint64_t mailbox_lane_bytes_max(const struct mailbox *mb);
bool mailbox_lane_over_quota(const struct mailbox_lane *l);

#endif
