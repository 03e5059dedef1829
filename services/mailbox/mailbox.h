/*
 * The mailbox service: what its tasks and its API share.
 *
 * A request becomes a struct mailbox_call in the request's arena and one job per shard it touches. Jobs travel
 * listener -> work_tx -> worker; the last job that is done posts the call back to its event loop, which writes the answer.
 *
 *   listener ──job──► work_tx[shard] ──► worker ──group──► journal
 *       ▲                                   │
 *       └────────── call posted ◄───────────┘   (after the group is durable, or at once for lazy settlements)
 *
 * Ownership   A call belongs to its loop until it is submitted, to the workers until its last job is done, then to its loop.
 *             A lane (shard and its journal) belongs to its worker's thread; others read the atomics and nothing else.
 * Threads     See above. struct mailbox is written by open and then only through atomics and the declared locks.
 */
#ifndef RON_MAILBOX_MAILBOX_H
#define RON_MAILBOX_MAILBOX_H

#include <stdatomic.h>

#include "base/heap.h"
#include "net/loop.h"
#include "rt/bcast.h"
#include "rt/lock.h"
#include "services/mailbox/core/fair.h"
#include "services/mailbox/log.h"
#include "svc/svc.h"

struct mailbox_config {
#define CONF CONF_AS_MEMBER
#include "services/mailbox/config.def"
#undef CONF
};
SVC_CONFIG_IS_PREFIX(struct mailbox_config);

enum mailbox_metric {
#define OBS_DEF(id) MAILBOX_M_##id,
#include "obs/metrics_ids.h"
#include "services/mailbox/metrics.def"
#include "obs/metrics_end.h"
    MAILBOX_M_COUNT
};

#define MAILBOX_REQUEUE_CAPACITY(capacity)                                                                 \
    ((capacity) / 4 < 1 ? 1 : (capacity) / 4 > 512 ? 512 : (capacity) / 4)

enum {
    MAILBOX_CALL_MAGIC = 0x4c4c4143,
    MAILBOX_JOB_MAGIC = 0x424f4a4d,
    MAILBOX_SHARDS_MAX = 64,
    MAILBOX_BATCH_JOBS = 512,
    MAILBOX_JOBS_KEPT = 256, /* reprocess jobs remembered */
};

/* Operations, in the order of the `op` and `endpoint` labels. */
enum mailbox_op {
    MAILBOX_OP_SEND,
    MAILBOX_OP_RECV,
    MAILBOX_OP_STREAM,
    MAILBOX_OP_ACK,
    MAILBOX_OP_NACK,
    MAILBOX_OP_EXTEND,
    MAILBOX_OP_DLQ,
    MAILBOX_OP_TOPICS,
    MAILBOX_OP_CHAIN,
    MAILBOX_OP_COUNT
};

/* Why a request is refused: `details.reason` of busy and unavailable. */
enum mailbox_why {
    MAILBOX_WHY_NONE,
    MAILBOX_WHY_WORK,
    MAILBOX_WHY_TOPIC_SHARE,
    MAILBOX_WHY_BYTES,
    MAILBOX_WHY_MESSAGES,
    MAILBOX_WHY_TOPICS,
    MAILBOX_WHY_INFLIGHT,
    MAILBOX_WHY_WAITERS,
    MAILBOX_WHY_STREAMS,
    MAILBOX_WHY_REPROC,
    MAILBOX_WHY_DISK_QUOTA,
    MAILBOX_WHY_DRAINING,
    MAILBOX_WHY_REBALANCING,
    MAILBOX_WHY_DISK_FULL,
    MAILBOX_WHY_BREAKER,
    MAILBOX_WHY_STALLED,
    MAILBOX_WHY_QUOTA,
};
const char *mailbox_why_name(enum mailbox_why w);

struct mailbox;
struct mailbox_lane;
struct mailbox_call;
struct mailbox_stream;

struct mailbox_send_item {
    struct mailbox_send in;
    struct sha256 topic_hash;
    uint16_t shard;
    enum err err;
    enum mailbox_why why;
    struct mailbox_sent sent;
    bool has_chain;
    const char *detail;             /* of a refusal at the door */
    struct mailbox_send_item *next; /* of the same job */
};

struct mailbox_settle_item {
    struct mailbox_fence fence;
    struct mailbox_nack nack;
    int64_t visibility_us;
    enum err err;
    struct mailbox_settled out;
    struct mailbox_settle_item *next;
};

/* A leased message, read and verified; record points into the call's bodies. */
struct mailbox_delivery {
    struct mailbox_rec_enq enq; /* its views point into the bodies */
    uint16_t attempt;
    uint32_t lease_ms;
};

struct mailbox_recv {
    struct str topic;
    struct sha256 topic_hash;
    int64_t visibility_us;
    uint32_t max;
    int64_t max_bytes, wait_ms;
    struct mailbox_delivery *got;
    uint32_t n, cap;
    bool more, withheld; /* withheld: something was ready but did not verify */
    uint8_t **bodies;    /* one allocation per batch of reads, freed with the call */
    uint32_t bodies_n, bodies_cap;
    /* parked */
    struct mailbox_waiter waiter;
    struct mailbox_job *waiter_owner;
    struct heap_node deadline_node;
    int64_t deadline_us;
    bool parked;
};

/* A dead letter as the worker saw it; the body is read by whoever asked. */
struct mailbox_dead {
    struct uuid id;
    uint64_t topic_seq, moved_ms;
    uint32_t segment, offset8, length64;
    uint16_t attempt;
    struct mailbox_failures *history; /* copied, freed by the reader; NULL = none */
};

struct mailbox_dlq {
    struct str topic;
    struct sha256 topic_hash;
    struct uuid after;
    bool has_after;
    uint32_t limit;
    uint8_t cause;      /* 0 = any */
    struct str reason;  /* substring; empty = any */
    uint64_t before_ms; /* 0 = any */
    struct mailbox_dead *got;
    uint32_t n;
    uint64_t count;
    bool found, more;
    /* reprocess and purge: ids in, results out */
    const struct uuid *ids;
    uint32_t ids_n, moved;
    uint64_t delay_ms;
};

struct mailbox_topic_info {
    char name[MAILBOX_TOPIC_MAX];
    uint16_t name_len, shard;
    uint32_t ready, delayed, leased, dlq, waiters, streams;
    uint64_t oldest_ready_s, next_due_ms, enqueued, acked, redelivered, last_send_ms, topic_seq;
    bool has_ready, has_due;
    struct uuid chain_id;
    struct sha256 chain;
    uint32_t topic_id;
    uint8_t policy;
};

struct mailbox_topics_query {
    struct str prefix, after, exact;
    struct sha256 exact_hash;
    uint32_t limit;
    struct mailbox_topic_info *got;
    uint32_t n;
    const struct auth_cap *cap;
};

enum mailbox_job_kind {
    MAILBOX_JOB_SEND,
    MAILBOX_JOB_RECV,
    MAILBOX_JOB_STREAM,
    MAILBOX_JOB_STREAM_CLOSE,
    MAILBOX_JOB_ACK,
    MAILBOX_JOB_NACK,
    MAILBOX_JOB_EXTEND,
    MAILBOX_JOB_RELEASE,
    MAILBOX_JOB_DLQ_PAGE,
    MAILBOX_JOB_REPROCESS,
    MAILBOX_JOB_PURGE,
    MAILBOX_JOB_TOPICS,
};

struct mailbox_job {
    uint32_t magic;
    enum mailbox_job_kind kind;
    struct mailbox_fair_node fair;
    struct mailbox_lane *lane;
    struct mailbox_job *next;            /* done list, operator list */
    size_t bytes;                        /* counted against shard_bytes */
    bool counted;                        /* holds a place of shard_capacity */
    struct mailbox_send_item *send_rest; /* of a batch larger than its group */
    enum err err;                        /* of the whole job: lane read-only, disk full, ... */
    enum mailbox_why why;
    /* Called on the worker's thread when the job is done (durable where it must be). */
    void (*done)(struct mailbox_job *j);
    void *arg;
    union {
        struct mailbox_send_item *send;
        struct mailbox_recv *recv;
        struct mailbox_stream *stream;
        struct mailbox_settle_item *settle;
        struct mailbox_dlq *dlq;
        struct mailbox_topics_query *topics;
        struct {
            struct uuid *ids;
            uint16_t *attempts;
            uint32_t n;
        } release;
    };
};

/* One request, HTTP or OAP, from its handler to its answer. */
struct mailbox_call {
    uint32_t magic;
    enum mailbox_op op;
    struct mailbox *mb;
    struct net_req *http;
    struct net_oap_req *oap;
    struct net_loop *loop;
    struct auth_cap *cap;
    struct net_msg msg;
    atomic_int jobs_left;
    int64_t started_ns;
    bool batch; /* answer with a list */
    struct mailbox_job *jobs;
    size_t jobs_n;
    void (*finish)(struct mailbox_call *c); /* on the loop's thread */
    union {
        struct {
            struct mailbox_send_item *items;
            size_t n;
        } send;
        struct {
            struct mailbox_settle_item *items;
            size_t n;
        } settle;
        struct mailbox_recv *recv;
        struct mailbox_dlq *dlq;
        struct mailbox_topics_query *topics;
        void *more;
    };
};

/* Deliveries of one group to one stream, on their way to its event loop. */
struct mailbox_batch {
    struct net_msg msg;
    struct mailbox_stream *stream;
    struct mailbox_batch *next;
    uint32_t n, written;
    struct mailbox_delivery *got;
    uint8_t **bodies;
};

/*
 * A stream. The worker owns waiter, batch and the list links; the loop owns the rest. It is freed by the loop when the
 * worker has let go of it (close job done) and the request is ended.
 */
struct mailbox_stream {
    struct mailbox_call *call;
    struct mailbox_job open_job, close_job;
    struct str topic;
    struct sha256 topic_hash;
    int64_t visibility_us;
    uint32_t credit;
    int64_t max_bytes;
    struct mailbox_waiter waiter;
    struct mailbox_stream *prev, *next;
    struct mailbox_batch *batch; /* of the group being built */
    uint32_t batch_cap;
    atomic_bool opened;
    /* loop's */
    struct mailbox_batch *queue, **queue_end;
    struct net_timer timer;
    int64_t beat_at_ns, judge_at_ns;
    bool begun, closing, gone, close_sent, open_answered;
    void (*batch_fn)(struct net_msg *m);
    enum err end_err;
    const char *end_code;
    struct str token;
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
    struct mailbox_rules rules; /* this lane's copy of the limits */
    uint64_t rules_seen;

    /* Worker's own; outlives its thread. */
    struct mailbox_fair fair;
    struct mailbox_job *held; /* answered when the group is durable, in order */
    struct mailbox_job **held_end;
    struct mailbox_job *operators, **operators_end;
    struct heap parked;           /* by deadline */
    struct mailbox_recv **served; /* parked receives that got something in this group */
    size_t served_n, served_cap;
    struct mailbox_job *unfinished;
    struct mailbox_stream *streams;
    uint32_t reclaiming, reclaim_entry, reclaim_topic; /* segment being emptied, and how far */
    bool reclaim_done;
    bool more_ticks;
    int64_t counted_at_us;
    uint32_t retention_credit;
    int64_t retention_at_us;
    struct mailbox_stats published; /* what metrics have seen of shard.stats */
    uint8_t *read_buffer;

    /* Read by anybody. */
    atomic_uint jobs; /* taken in and not answered */
    atomic_size_t bytes;
    _Atomic int64_t next_due_us; /* scan_next: stored by the worker after each loop, read by the scanner */
    _Atomic int64_t busy_since_ns; /* inside a write since; 0 = not */
    atomic_bool readonly, disk_full, broken;
    atomic_uint count[MAILBOX_STATES];
    atomic_uint topics, waiters, open_streams;
    _Atomic uint64_t reorder_depth, entries;
    _Atomic uint32_t active_segment;
    atomic_uint
        oldest_sealed;     /* the rebalancer's wish: this segment may go if little lives in it; 0 = none */
    atomic_uint evacuated; /* the worker's answer: nothing of it is needed any more */
};

struct mailbox_operator;

/* Reprocess runs, newest first, the last 256. */
struct mailbox_jobs {
    struct rt_lock lock; /* "jobs", rank 41: guards the list and the numbers of its runs */
    struct mailbox_operator *list;
    size_t n;
};

struct mailbox {
    struct svc *svc;
    const struct clock *clock;
    struct obs_family *m[MAILBOX_M_COUNT];
    uint16_t shards;
    struct mailbox_lane *lanes;
    uint16_t routing[MAILBOX_BUCKETS];
    uint8_t instance[16];
    uint64_t epoch;
    struct rt_chan *reproc;
    struct rt_bcast *events;
    atomic_uint leases; /* of all lanes */
    atomic_bool draining;
    atomic_uint worker_index;
    _Atomic int64_t scanner_woke_ns;
    size_t cause_shards, cause_scanner, cause_storage, cause_saturated;
    struct mailbox_jobs jobs;
    struct mailbox_operator *runs; /* the reprocessor's own: runs not finished */
    _Atomic uint64_t rules_version;
};

static inline const struct mailbox_config *mailbox_config(const struct mailbox *mb)
{
    return svc_config(mb->svc);
}

static inline struct mailbox_now mailbox_now(const struct mailbox *mb)
{
    return (struct mailbox_now){clock_mono_ns(mb->clock) / 1000, (uint64_t)clock_wall_ms(mb->clock)};
}

static inline struct mailbox_lane *mailbox_lane_of(struct mailbox *mb, uint16_t bucket)
{
    return &mb->lanes[mb->routing[bucket]];
}

/* note.c: what goes over events_tx; reference-counted, so that every listener may keep it. */
struct mailbox_note {
    atomic_uint refs;
    uint16_t shard;
    struct mailbox_event ev;
};
struct mailbox_note *mailbox_note_create(uint16_t shard,
                                         const struct mailbox_event *ev); /* NULL: no memory */
void mailbox_note_ref(void *note);
void mailbox_note_unref(void *note);

/* rules.c: configuration as the core wants it; ERR_BAD_REQUEST with a sentence. */
NODISCARD enum err mailbox_rules_make(const struct mailbox_config *cfg, uint16_t shards,
                                      struct mailbox_rules *out, char why[200]);
uint64_t mailbox_index_max(const struct mailbox_config *cfg);

/* lane.c */
NODISCARD enum err mailbox_lane_open(struct mailbox *mb, struct mailbox_lane *l, uint16_t no) RT_BLOCKS;
void mailbox_lane_close(struct mailbox_lane *l) RT_BLOCKS;
/* Writes the group; ERR_OK, ERR_NO_SPACE (nothing happened), or the lane is read-only from now on. */
NODISCARD enum err mailbox_lane_commit(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS;

/* files.c: META, routing, CLEAN */
NODISCARD enum err mailbox_files_open(struct mailbox *mb, const char *dir, uint16_t want_shards) RT_BLOCKS;
/* Compares the journals with CLEAN (a shorter one makes its shard read-only), then removes it. */
NODISCARD enum err mailbox_files_check_clean(struct mailbox *mb, const char *dir) RT_BLOCKS;
NODISCARD enum err mailbox_files_clean(struct mailbox *mb, const char *dir) RT_BLOCKS;

/* submit.c: the way into the shards */
/* ERR_BUSY with *out_why; the job still belongs to the caller then. `settling` may use the reserved places. */
NODISCARD enum err mailbox_submit(struct mailbox_job *j, bool settling, enum mailbox_why *out_why);
void mailbox_job_done(struct mailbox_job *j); /* by the worker */
void mailbox_call_job_done(
    struct mailbox_job *j); /* job->done of a call's jobs: posts the call when it was the last */

/* Task bodies; arg is the struct mailbox. */
enum err mailbox_worker_run(struct rt_task *self, void *arg) RT_BLOCKS;
enum err mailbox_scanner_run(struct rt_task *self, void *arg) RT_BLOCKS;
enum err mailbox_reprocessor_run(struct rt_task *self, void *arg) RT_BLOCKS;
enum err mailbox_rebalancer_run(struct rt_task *self, void *arg) RT_BLOCKS;
enum err mailbox_exporter_run(struct rt_task *self, void *arg) RT_BLOCKS;

void mailbox_operators_free(struct mailbox *mb); /* after every task ended */
void mailbox_topology(const struct mailbox_config *cfg, struct rt_topology *topology);
extern const struct conf_table mailbox_conf;
extern const struct svc_def mailbox_svc;
extern const struct net_route mailbox_routes[];
void mailbox_oap(struct net_oap_req *rq, void *state);

#endif
