/*
 * The contract, checked from outside: follows every message of a recorded history from send to settlement.
 *
 * Fed with what producers and consumers saw, in time order, it knows nothing of how the mailbox works inside. It refuses the
 * first event that breaks the contract and says why:
 *
 *   one message per key within the window; topic_seq unique per topic; nothing delivered that was not sent, or before its
 *   delay, or while another lease runs; attempts strictly rising; no delivery after an ack (except after a crash within the
 *   lazy window); at most max_attempts deliveries per life; settles by a stale attempt refused; first deliveries of undelayed
 *   messages in order of topic_seq; and at the end nothing missing: every accepted message acked, dead-lettered or purged.
 *
 * Used by the property test, the simulation, the kill -9 loop and `ron mailbox check-trace`.
 *
 * Threads     One at a time.
 * Memory      One record per message, freed by fini.
 */
#ifndef RON_MAILBOX_CORE_TRACE_H
#define RON_MAILBOX_CORE_TRACE_H

#include "base/map.h"
#include "services/mailbox/core/ids.h"

enum mailbox_trace_kind {
    MAILBOX_TRACE_SENT,      /* id, topic, key, seq, until_ms = not before (0 = none) */
    MAILBOX_TRACE_DUPLICATE, /* id (the original's), topic, key */
    MAILBOX_TRACE_DELIVERED, /* id, attempt, until_ms = earliest end of the lease */
    MAILBOX_TRACE_ACKED,     /* id, attempt: asked for at at_ms, answered 200 at until_ms (0 = the same) */
    MAILBOX_TRACE_NACKED,    /* id, attempt */
    MAILBOX_TRACE_EXTENDED,  /* id, attempt, until_ms */
    MAILBOX_TRACE_RELEASED,  /* id, attempt: the lease was given back */
    MAILBOX_TRACE_DEAD,      /* id: seen in the dead-letter queue */
    MAILBOX_TRACE_REPROCESSED,
    MAILBOX_TRACE_PURGED,
    MAILBOX_TRACE_UNSURE,  /* id, attempt: an ack whose answer was lost; it may have happened or not */
    MAILBOX_TRACE_CRASH,   /* the server went away without warning */
    MAILBOX_TRACE_RESTART, /* orderly: leases are void, acks are not */
    MAILBOX_TRACE_KINDS,
};

struct mailbox_trace_event {
    enum mailbox_trace_kind kind;
    struct uuid id;
    struct str topic, key;
    uint64_t seq;
    uint16_t attempt;
    int64_t at_ms, until_ms;
};

struct mailbox_trace_rules {
    unsigned max_attempts;
    int64_t t_replay_ms; /* INT64_MAX = unlimited */
    int64_t lazy_ms;     /* an ack this close to a crash may be forgotten */
    int64_t slack_ms;    /* how far the observer's clock readings may be off */
    bool ordered_first;  /* check the order of first deliveries (one observer sees all of them) */
};

struct mailbox_trace {
    struct mailbox_trace_rules rules;
    struct map messages, keys, topics;
    int64_t last_start_ms;
    int64_t *crashes; /* when, rising */
    size_t crashes_n, crashes_cap;
    size_t sent, delivered, acked, dead, duplicates;
    char why[256]; /* of the last refusal */
};

NODISCARD enum err mailbox_trace_init(struct mailbox_trace *t, const struct mailbox_trace_rules *rules);
void mailbox_trace_fini(struct mailbox_trace *t);
NODISCARD enum err mailbox_trace_feed(struct mailbox_trace *t,
                                      const struct mailbox_trace_event *ev); /* ERR_CONFLICT + why */
NODISCARD enum err
mailbox_trace_end(struct mailbox_trace *t); /* everything was drained: nothing may be missing */
const char *mailbox_trace_kind_name(enum mailbox_trace_kind k);
enum err mailbox_trace_kind_parse(struct str s, enum mailbox_trace_kind *out_kind);

#endif
