/*
 * The rules of one shard: events in, state and records out.
 *
 * An event is a call with the time it happens at. What must survive a crash is appended to the group as records; the caller
 * writes the group to the journal and says where it landed (mailbox_shard_committed). Answers to events marked FLUSHED may
 * leave only after that; answers to LAZY ones at once. The shard never reads a clock, a file or randomness: all of it is
 * given. Two shards fed the same events with the same times and seed make the same bytes.
 *
 * Ownership   Waiters belong to the caller and must leave (mailbox_shard_leave) before they are freed. Everything else is
 *             the shard's.
 * Threads     One at a time.
 * Memory      72 bytes per message and two table slots; group memory is given at init. ERR_NO_MEMORY leaves the state as
 *             it was.
 * Order       First deliveries of a topic follow topic_seq; returned messages go before fresh ones with higher numbers.
 */
#ifndef RON_MAILBOX_CORE_SHARD_H
#define RON_MAILBOX_CORE_SHARD_H

#include "base/rng.h"
#include "services/mailbox/core/history.h"
#include "services/mailbox/core/index.h"
#include "services/mailbox/core/policy.h"
#include "services/mailbox/core/record.h"
#include "services/mailbox/core/tenant.h"
#include "services/mailbox/core/topic.h"
#include "services/mailbox/core/wheel.h"

enum {
    MAILBOX_GROUP_BYTES = 1 << 20,   /* a group this full is written before it takes more */
    MAILBOX_GROUP_SLACK = 512 << 10, /* for what one more event may add besides a message */
    MAILBOX_GROUP_MEMORY = MAILBOX_GROUP_BYTES + MAILBOX_REC_BYTES_MAX + MAILBOX_GROUP_SLACK,
    MAILBOX_GROUP_MESSAGES = 1024,
    MAILBOX_LAZY_BYTES = 64 << 10,
    MAILBOX_TICK_BUDGET = 1024,
    MAILBOX_EVENTS = 256, /* telemetry kept until the caller takes it; more are counted, not kept */
};

struct mailbox_now {
    int64_t mono_us;
    uint64_t wall_ms;
};

struct mailbox_rules {
    struct mailbox_policies policies;
    uint64_t index_max;
    uint32_t max_topics;
    uint64_t backoff_base_ms, backoff_max_ms;
    uint64_t retention_ready_ms, retention_dlq_ms, topic_idle_ms; /* topic_idle_ms 0 = never */
};

enum mailbox_event_kind {
    MAILBOX_EV_TOPIC_CREATED,
    MAILBOX_EV_TOPIC_FORGOTTEN,
    MAILBOX_EV_DLQ_MOVED,
    MAILBOX_EV_LEASE_EXPIRED,
    MAILBOX_EV_INTEGRITY_FAIL,
    /* The service's own; the core never makes them. */
    MAILBOX_EV_SHARD_READONLY,
    MAILBOX_EV_REPROCESS_DONE, /* msg_id is the job's */
};
struct mailbox_event {
    enum mailbox_event_kind kind;
    uint8_t cause;
    uint16_t attempt, topic_len;
    struct uuid msg_id;
    char topic[MAILBOX_TOPIC_MAX];
};

/* Counters only rise; the caller publishes differences. */
struct mailbox_class_stats {
    uint64_t enqueued, duplicates, delivered, redelivered, acked, nacked, lease_expired,
        dlq[MAILBOX_CAUSE_COUNT];
    uint64_t attempts_at_ack[17]; /* [16] = 16 or more */
};
struct mailbox_stats {
    struct mailbox_class_stats of[MAILBOX_CLASSES_MAX];
    uint64_t reprocessed[MAILBOX_CAUSE_COUNT], purged[MAILBOX_CAUSE_COUNT], stale_ack, stale_nack,
        stale_extend;
    uint64_t retired; /* of those purged: dead letters that outstayed their retention */
};

/* Who waits for messages of a topic: a parked RECV (stream 0) or a stream with credit. */
struct mailbox_waiter {
    struct mailbox_waiter *prev, *next;
    uint32_t topic; /* slot, 0 = not waiting */
    uint16_t stream;
    uint32_t room; /* messages it may still be given */
    int64_t room_bytes;
    int64_t visibility_us;
    uint32_t given; /* since it waits */
};

struct mailbox_stream_slot {
    struct mailbox_waiter *waiter; /* NULL once closed */
    uint32_t outstanding;          /* leases that name this slot; it is reused only at zero */
};

/* What a segment of the journal still holds, so that it can be stripped, dropped or compacted. */
struct mailbox_segment_use {
    uint32_t waiting; /* messages not DONE */
    uint32_t keys;    /* DONE messages whose window is open */
    uint64_t waiting_bytes;
};

struct mailbox_pending {
    uint32_t entry, at;
    struct mailbox_digest digest; /* the whole of it, which the entry does not keep */
};

enum { MAILBOX_IDS_AHEAD = 16 };

struct mailbox_shard {
    uint16_t no;
    bool readonly; /* records are no longer kept: only settling goes on */
    bool no_room; /* the journal is nearly as large as it may be: what is left is for leases and settling */
    bool replaying;
    bool salvaging; /* replaying what is left of a damaged journal: gaps are noted, not refused */
    const struct mailbox_rules *rules;
    uint64_t scope;
    struct rng rng;
    struct mailbox_now now;
    struct mailbox_slabs slabs;
    struct mailbox_index by_id, by_key;
    uint64_t ids_ahead[MAILBOX_IDS_AHEAD];
    uint32_t ids_at;
    struct mailbox_wheel timers, forget;
    struct mailbox_topics topics;
    struct mailbox_tenants tenants;
    struct mailbox_history history;
    struct mailbox_rec_w group;
    bool must_flush;
    int64_t lazy_since_us; /* when the oldest unwritten record was made; INT64_MAX = none */
    struct mailbox_pending *pending;
    uint32_t pending_n, pending_cap;
    uint64_t last_ts_ms;
    uint32_t count[MAILBOX_STATES];
    uint64_t reorder_depth_max;
    uint32_t dirty_head, dirty_tail;
    uint32_t waiters, open_streams;
    struct mailbox_stream_slot *streams;
    uint16_t streams_cap;
    uint32_t retention_at; /* topic slot where the slow check goes on */
    /* Since when the longest-waiting ready message of each class waits, by the last whole round of that check and by the one under
     * way; INT64_MAX = none. */
    int64_t oldest_ready_us[MAILBOX_CLASSES_MAX], oldest_so_far_us[MAILBOX_CLASSES_MAX];
    struct mailbox_segment_use *segment_use;
    uint32_t segment_first, segment_n;
    uint32_t events_n;
    uint64_t events_lost;
    struct mailbox_stats stats;
    struct mailbox_event events[MAILBOX_EVENTS]; /* last: init does not touch it */
};

NODISCARD enum err mailbox_shard_init(struct mailbox_shard *s, uint16_t no,
                                      const struct mailbox_rules *rules, uint64_t seed,
                                      struct mailbox_now now, void *group_memory);
void mailbox_shard_fini(struct mailbox_shard *s);
void mailbox_shard_set_rules(struct mailbox_shard *s, const struct mailbox_rules *rules);

/* ---- SEND: FLUSHED ---- */
struct mailbox_send {
    struct str topic, idem_key, corr_id;
    const struct sha256 *topic_hash;
    struct mailbox_digest digest;
    struct sha256 payload_hash, attrs_hash;
    struct bytes attrs, payload;
    uint64_t delay_ms, deliver_at_ms; /* one of them, or neither */
    struct str tenant;                /* of the sender; a topic that it makes is this tenant's */
    bool over_quota; /* the tenant of the topic may have no further message: a new key is refused */
};
enum mailbox_refusal {
    MAILBOX_REFUSED_NOT,
    MAILBOX_REFUSED_MESSAGES,
    MAILBOX_REFUSED_TOPICS,
    MAILBOX_REFUSED_DISK,
    MAILBOX_REFUSED_QUOTA
};
struct mailbox_sent {
    bool duplicate; /* then entry is the original: its body decides whether the payload is the same */
    uint32_t entry;
    struct uuid msg_id;
    uint64_t topic_seq, ts_ms;
    struct sha256 chain; /* of a new message */
    enum mailbox_refusal refusal;
};
/* Fetch what a send under this key, or settling this message, will look at: hints, some sixteen and eight of them ahead. */
static inline void mailbox_shard_send_later(const struct mailbox_shard *s, const struct mailbox_digest *d)
{
    mailbox_index_prefetch_place(&s->by_key, d->b);
}
static inline void mailbox_shard_send_soon(const struct mailbox_shard *s, const struct mailbox_digest *d)
{
    mailbox_index_prefetch(&s->by_key, d->b);
}
static inline void mailbox_shard_settle_later(const struct mailbox_shard *s, const struct uuid *id)
{
    mailbox_index_prefetch_place(&s->by_id, id->b);
}
static inline void mailbox_shard_settle_soon(const struct mailbox_shard *s, const struct uuid *id)
{
    mailbox_index_prefetch(&s->by_id, id->b);
}
/* ERR_BUSY with a refusal; nothing changed then. */
NODISCARD enum err mailbox_shard_send(struct mailbox_shard *s, struct mailbox_now now,
                                      const struct mailbox_send *in, struct mailbox_sent *out_sent);
/* Whether a message with this key was accepted and is durable: for when nothing new can be. */
bool mailbox_shard_sent(struct mailbox_shard *s, struct mailbox_now now, const struct mailbox_digest *d,
                        struct mailbox_sent *out_sent);

/* ---- RECV: FLUSHED ---- */
struct mailbox_want {
    struct mailbox_topic *topic;
    int64_t visibility_us;
    uint32_t max;
    int64_t max_bytes; /* of their records; the first message always fits */
    uint16_t stream;
    bool all_fit; /* the first one only if it does */
};
uint32_t mailbox_shard_lease(struct mailbox_shard *s, struct mailbox_now now, const struct mailbox_want *w,
                             uint32_t *out_entries);
bool mailbox_shard_has_ready(struct mailbox_shard *s,
                             struct mailbox_topic *t); /* something could be leased now */
uint32_t
mailbox_shard_first_ready(struct mailbox_shard *s,
                          struct mailbox_topic *t); /* next in order, whether or not it could; 0 = none */
/* The body of a leased message did not verify: the delivery counts, the message is withheld. LAZY. */
void mailbox_shard_integrity(struct mailbox_shard *s, struct mailbox_now now, uint32_t entry);

/* ---- settling: LAZY ---- */
struct mailbox_fence {
    struct uuid msg_id;
    uint16_t attempt; /* 0 = the current one */
    bool (*covers)(const void *ctx, struct str topic);
    const void *ctx;
};
struct mailbox_settled {
    bool already, dead;
    uint16_t attempt; /* the current one, for stale_attempt */
    uint64_t delay_ms;
};
NODISCARD enum err mailbox_shard_ack(struct mailbox_shard *s, struct mailbox_now now,
                                     const struct mailbox_fence *f, struct mailbox_settled *out);
struct mailbox_nack {
    struct str reason;
    bool use_delay, dead;
    uint64_t delay_ms;
};
NODISCARD enum err mailbox_shard_nack(struct mailbox_shard *s, struct mailbox_now now,
                                      const struct mailbox_fence *f, const struct mailbox_nack *n,
                                      struct mailbox_settled *out);
NODISCARD enum err mailbox_shard_extend(struct mailbox_shard *s, struct mailbox_now now,
                                        const struct mailbox_fence *f, int64_t visibility_us,
                                        struct mailbox_settled *out);
/* The peer went away before it had the message: back at once. */
NODISCARD enum err mailbox_shard_release(struct mailbox_shard *s, struct mailbox_now now,
                                         const struct uuid *id, uint16_t attempt);

/* ---- time ---- */
/* Expires leases, wakes delayed messages, forgets keys; true when there is more to do at this time. LAZY. */
bool mailbox_shard_tick(struct mailbox_shard *s, struct mailbox_now now);
/* Looks at the heads of up to n topics for what has outstayed its retention. LAZY. */
void mailbox_shard_retention(struct mailbox_shard *s, struct mailbox_now now, uint32_t n);
int64_t mailbox_shard_next_due(const struct mailbox_shard *s);

/* ---- dead letters: FLUSHED ---- */
NODISCARD enum err mailbox_shard_reprocess(struct mailbox_shard *s, struct mailbox_now now,
                                           const struct uuid *id, uint64_t delay_ms);
NODISCARD enum err mailbox_shard_purge(struct mailbox_shard *s, struct mailbox_now now,
                                       const struct uuid *id);

/* ---- waiting ---- */
/* Finds or makes the (perhaps unborn) topic to wait on. */
NODISCARD enum err mailbox_shard_topic_to_wait(struct mailbox_shard *s, const struct sha256 *hash,
                                               struct str name, struct mailbox_topic **out_topic);
void mailbox_shard_wait(struct mailbox_shard *s, struct mailbox_topic *t, struct mailbox_waiter *w);
void mailbox_shard_leave(struct mailbox_shard *s, struct mailbox_waiter *w);
NODISCARD enum err mailbox_shard_stream_open(struct mailbox_shard *s,
                                             struct mailbox_waiter *w); /* ERR_BUSY: no slot */
/* Gives ready messages to waiters, one each in turn; returns how many were given (at most max_leases). FLUSHED. */
uint32_t mailbox_shard_serve(struct mailbox_shard *s, struct mailbox_now now, uint32_t max_leases,
                             void (*give)(void *ctx, struct mailbox_waiter *w, uint32_t entry), void *ctx);

/* ---- the group ---- */
static inline bool mailbox_shard_group_full(const struct mailbox_shard *s)
{
    return s->group.n >= MAILBOX_GROUP_BYTES || s->pending_n >= MAILBOX_GROUP_MESSAGES;
}
/*
 * Every segment must tell by itself which topics its messages belong to, so that older ones can be dropped: the first message of
 * a topic in a scope is preceded by the topic's record. The caller sets a new scope before a group that may begin a segment; the
 * upper 32 bits are the segment the group lands in at the earliest.
 */
static inline void mailbox_shard_scope(struct mailbox_shard *s, uint32_t segment, uint32_t within)
{
    s->scope = (uint64_t)segment << 32 | within;
}

/* The group was written: its payload begins at payload_offset of segment. Empties the group. */
void mailbox_shard_committed(struct mailbox_shard *s, uint32_t segment, uint64_t payload_offset);
void mailbox_shard_failed(struct mailbox_shard *s); /* it was not: read-only from here on */

/* ---- looking ---- */
static inline struct mailbox_entry *mailbox_shard_entry(const struct mailbox_shard *s, uint32_t entry)
{
    return mailbox_entry_at(&s->slabs, entry);
}
uint32_t mailbox_shard_find(const struct mailbox_shard *s, const struct uuid *id); /* 0 = unknown */
struct mailbox_topic *mailbox_shard_topic_of(const struct mailbox_shard *s, uint32_t entry);
const struct mailbox_policy *mailbox_shard_policy(const struct mailbox_shard *s,
                                                  const struct mailbox_topic *t);
uint64_t mailbox_shard_due_wall_ms(const struct mailbox_shard *s,
                                   uint32_t entry); /* a DELAYED entry's due, as written down */
const struct mailbox_segment_use *mailbox_shard_segment_use(const struct mailbox_shard *s,
                                                            uint32_t segment);
void mailbox_shard_check(
    const struct mailbox_shard *s); /* aborts when the counts and the structures disagree */

/* ---- compaction and moving ---- */
/* Re-appends one entry's record, read by the caller, at the end of the journal (MOVE with its FAILs, or DEDUP). FLUSHED. */
NODISCARD enum err mailbox_shard_reappend(struct mailbox_shard *s, struct mailbox_now now, uint32_t entry,
                                          const struct mailbox_rec *body);
/* The topic's record again, unless it has one in a segment after `segment`. FLUSHED. */
void mailbox_shard_reappend_topic(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t segment);

/*
 * A bucket that comes from another shard, into the group, as whoever replays this journal will find it: what was said about it before
 * is void, then its topics, each under an id of this journal (0: it gets one), and their entries. A topic's record must stand before
 * its entries in every group. The state does not change.
 */
void mailbox_shard_adopt_bucket(struct mailbox_shard *s, uint16_t bucket);
void mailbox_shard_adopt_topic(struct mailbox_shard *s, const struct mailbox_topic *t, uint32_t *id);
void mailbox_shard_adopt(struct mailbox_shard *s, uint32_t topic_id, const struct mailbox_shard *from,
                         uint32_t entry, const struct mailbox_rec *body);

/* ---- replay ---- */
struct mailbox_replay_at {
    uint32_t segment;
    uint64_t offset; /* of the record */
    bool verify;     /* a record straight from a segment: recompute payload hash and link */
    uint64_t wall_ms;
};
void mailbox_replay_begin(struct mailbox_shard *s);
/* ERR_CORRUPT: the record contradicts what came before it. Buckets that are not `mine` are skipped. */
NODISCARD enum err mailbox_replay_record(struct mailbox_shard *s, const struct mailbox_rec *r,
                                         const struct mailbox_replay_at *at, const uint16_t *routing);
struct mailbox_replay_enq { /* the compact form kept beside sealed segments */
    struct uuid msg_id;
    struct mailbox_digest digest;
    uint64_t topic_seq, not_before_ms;
    uint32_t topic_id;
    uint32_t length;
    const struct sha256 *chain; /* NULL: the topic's chain is set later, at the end of the index */
};
NODISCARD enum err mailbox_replay_enq(struct mailbox_shard *s, const struct mailbox_replay_enq *q,
                                      const struct mailbox_replay_at *at);
NODISCARD enum err mailbox_replay_move(struct mailbox_shard *s, const struct mailbox_replay_enq *q,
                                       const struct mailbox_rec_move *m,
                                       const struct mailbox_replay_at *at);
NODISCARD enum err mailbox_replay_dedup(struct mailbox_shard *s, const struct mailbox_replay_enq *q,
                                        const struct mailbox_replay_at *at);
/* The link of the topic's message topic_seq, which must be its newest. A topic that is not ours, or forgotten, is skipped. */
NODISCARD enum err mailbox_replay_chain(struct mailbox_shard *s, uint32_t topic_id, uint64_t topic_seq,
                                        const struct sha256 *chain);
/* About so many messages will come: makes room for them at once. */
NODISCARD enum err mailbox_replay_expect(struct mailbox_shard *s, uint64_t messages);
/* The process that read this journal before had leased a message and lives on: if it is still so, the lease goes on. */
struct mailbox_lease_held {
    struct uuid msg_id;
    int64_t due_us;
    uint16_t attempt;
};
void mailbox_replay_lease_held(struct mailbox_shard *s, const struct mailbox_lease_held *h);
/* Puts every entry into its queue; LEASED became READY unless it is held, delays and windows run from now. */
NODISCARD enum err mailbox_replay_end(struct mailbox_shard *s, struct mailbox_now now);
/*
 * Salvage: replay that goes on over what is missing. A gap in a topic's numbers or links marks the topic harmed instead of ending the
 * replay; lost() says that bytes could not be read here, so that every topic is in doubt until its next record fits. At the end of
 * the journal, before mailbox_replay_end(), harmed() makes the histories of harmed topics begin anew, visibly, and tells their number; attempts of what waits rise by
 * `groups`, so that no fencing token handed out by a lost group comes again.
 */
void mailbox_salvage_begin(struct mailbox_shard *s);
void mailbox_salvage_lost(struct mailbox_shard *s);
/* A witness of how far every topic got: each it knows is compared, and then nobody is in doubt any more. */
void mailbox_salvage_witness(struct mailbox_shard *s, uint32_t topic_id, uint64_t topic_seq,
                             const struct sha256 *chain);
void mailbox_salvage_believe(struct mailbox_shard *s);
uint32_t mailbox_salvage_harmed(struct mailbox_shard *s, uint32_t groups,
                                void (*tell)(void *ctx, struct str topic), void *ctx);

#endif
