/*
 * What travels: a request as a call, its work as one job per shard, and what streams are given.
 *
 *   listener ──job──► work_tx[shard] ──► worker ──group──► journal
 *       ▲                                   │
 *       └────────── call posted ◄───────────┘   (after the group is durable, or at once for lazy settlements)
 *
 * Ownership   A call belongs to its loop until it is submitted, to the workers until its last job is done, then to its loop.
 *             Calls and jobs lie in the request's arena; deliveries and bodies are freed by the loop that writes them.
 */
#ifndef RON_MAILBOX_JOB_H
#define RON_MAILBOX_JOB_H

#include <stdatomic.h>

#include "auth/cap.h"
#include "base/heap.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/oap_server.h"
#include "obs/span.h"
#include "rt/lock.h"
#include "services/mailbox/core/fair.h"
#include "services/mailbox/core/shard.h"
#include "services/mailbox/routing.h"

enum {
    MAILBOX_CALL_MAGIC = 0x4c4c4143,
    MAILBOX_JOB_MAGIC = 0x424f4a4d,
    MAILBOX_BATCH_JOBS = 512,
    MAILBOX_WAITERS_MAX = 65536, /* max_waiters is less */
    MAILBOX_STALL_MS = 2000,     /* inside one write for so long: the shard is stalled */
    MAILBOX_CROWDED_MS = 5000,   /* a queue nearly full for so long: degraded */
    MAILBOX_SEND_MS = 2000,      /* a send answered later than this counts against its shard */
    MAILBOX_RECV_MS = 23000,     /* the longest wait_ms, and some */
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
    MAILBOX_WHY_ELSEWHERE,
    MAILBOX_WHY_LEASE,
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
    bool has_chain, has_payload_hash;
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
    bool left;                 /* worker's: nobody is there any more */
    struct mailbox_job *leave; /* says so */
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
    uint8_t cause;                   /* 0 = any */
    char reason[MAILBOX_REASON_MAX]; /* substring; empty = any */
    size_t reason_len;
    uint64_t before_ms; /* 0 = any */
    struct mailbox_dead *got;
    uint32_t n;
    uint64_t count;
    bool found, more;
    struct uuid last; /* of those looked at: where to go on when there is more */
    /* reprocess and purge: ids in, results out; a page: those of them that match */
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
    unsigned incarnation; /* of the shard: the topic's id is good for this one */
    struct {              /* of the rules in force when the worker looked: those are its own */
        char class_name[MAILBOX_CLASS_NAME_MAX];
        uint64_t t_replay_ms;
        uint32_t default_visibility_ms;
        uint8_t max_attempts;
        bool ordered;
    } policy;
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
    MAILBOX_JOB_RECV_LEAVE, /* whoever asked has gone: it waits no longer, and is given nothing */
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
    int64_t submitted_ns;                /* the breaker waits for its outcome; 0 = it does not */
    int64_t taken_ns;                    /* by a worker; 0 = not yet */
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
    const char *auth_op;       /* what the token was found to allow */
    struct mailbox_lane *lane; /* whose shard it is about, to say who has it; NULL: several */
    struct net_msg msg;
    atomic_int jobs_left;
    int64_t started_ns, submitted_ns;
    struct obs_trace trace; /* api/span.h */
    uint8_t trace_parent[8];
    bool batch; /* answer with a list */
    struct str
        allowed_topic; /* the last one the token was found to cover, for payloads up to allowed_bytes */
    uint64_t allowed_bytes;
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

struct mailbox_stream_line {
    struct uuid id;
    size_t end; /* of its bytes, of all that the stream was given */
    uint16_t attempt;
};

/*
 * A stream. The worker owns waiter, batch and the list links; the loop owns the rest. It is freed by the loop when the
 * worker has let go of it (close job done) and the request is ended.
 */
struct mailbox_stream {
    struct mailbox_call *call;
    const struct mailbox_stream_wire *wire;
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
    /* Over HTTP: the line being written, as far as it fitted; and the last lines, for those which never leave the stream's buffer. */
    struct buf line;
    size_t line_at, put, buffer;
    struct mailbox_stream_line *lines; /* `credit` of them, the k-th at k % credit */
    uint32_t lines_first, lines_end;
    void (*batch_fn)(struct net_msg *m);
    enum err end_err;
    const char *end_code;
};

/* submit.c: the way into the shards */
/* ERR_BUSY, or ERR_UNAVAILABLE (stalled, breaker), with *out_why; the job still belongs to the caller then. `settling` may use the reserved places. */
NODISCARD enum err mailbox_submit(struct mailbox_job *j, bool settling, enum mailbox_why *out_why);
void mailbox_job_done(struct mailbox_job *j); /* by the worker */
void mailbox_call_job_done(
    struct mailbox_job *j); /* job->done of a call's jobs: posts the call when it was the last */

#endif
