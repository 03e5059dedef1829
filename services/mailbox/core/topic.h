/*
 * Topics of one shard: found by hash, walked in name order, each with its queues.
 *
 * A topic's slot (u32) is stable while it lives. topic_id is the journal's name for it: from 1, never reused in a shard.
 * The name order is a treap whose priorities are bits of the name's hash, so its shape does not depend on arrival order.
 *
 * Threads     One writer.
 * Memory      One allocation per topic (at most 400 bytes with its name up to 64), tables doubled.
 */
#ifndef RON_MAILBOX_CORE_TOPIC_H
#define RON_MAILBOX_CORE_TOPIC_H

#include "base/map.h"
#include "services/mailbox/core/entry.h"

struct mailbox_waiter;
struct mailbox_tenant;

enum {
    MAILBOX_HARM_DOUBT =
        1, /* bytes were lost since its last record: nothing has shown yet that none were its own */
    MAILBOX_HARM_SURE = 2, /* a record of it is missing */
};

struct mailbox_topic {
    uint32_t id, slot;
    uint64_t hash64; /* of the name: table key, treap priority */
    uint16_t bucket;
    uint8_t policy;
    bool dirty;   /* queued for matching with waiters */
    uint8_t harm; /* MAILBOX_HARM_*, only while a damaged journal is salvaged */
    uint8_t name_len_less_1;
    struct mailbox_tenant *tenant; /* whose send made it; NULL while nobody has sent to it */
    struct uuid chain_id;
    struct sha256 chain; /* of topic_seq */
    uint64_t topic_seq, created_ms, last_send_ms;
    uint64_t scope; /* where its last TOPIC record is: see mailbox_shard_scope */
    int64_t idle_since_us;
    uint32_t fifo_head, fifo_tail, heap, dlq_head, dlq_tail;
    uint32_t count[MAILBOX_STATES];
    uint32_t blocking; /* entries an ordered topic waits for: LEASED, or DELAYED after a failure */
    uint64_t enqueued, acked, redelivered, first_max; /* first_max: highest seq first-delivered */
    struct mailbox_waiter *waiters;                   /* ring, head is served next */
    uint32_t waiting, streams;
    uint32_t dirty_next;
    uint32_t above, below[2]; /* treap */
    char name[];
};

struct mailbox_topics {
    struct mailbox_topic **slot; /* [0] unused */
    uint32_t slots, count, next_id;
    uint32_t *free_slots, free_n, free_cap;
    uint32_t root;
    struct map64 by_id;
    uint32_t *table; /* open addressing by hash64 */
    uint32_t table_cap;
};

NODISCARD enum err mailbox_topics_init(struct mailbox_topics *ts);
void mailbox_topics_fini(struct mailbox_topics *ts);
struct mailbox_topic *mailbox_topics_find(const struct mailbox_topics *ts, const struct sha256 *hash,
                                          struct str name);
struct mailbox_topic *mailbox_topics_by_id(const struct mailbox_topics *ts, uint32_t id);
/*
 * id 0: the next free one. MAILBOX_TOPIC_UNBORN: somebody waits on a name nobody has sent to; it has no id and no journal
 * record until mailbox_topics_born().
 */
#define MAILBOX_TOPIC_UNBORN UINT32_MAX
NODISCARD enum err mailbox_topics_add(struct mailbox_topics *ts, const struct sha256 *hash, struct str name,
                                      uint32_t id, struct mailbox_topic **out_topic);
NODISCARD enum err mailbox_topics_born(struct mailbox_topics *ts, struct mailbox_topic *t);
void mailbox_topics_remove(struct mailbox_topics *ts, struct mailbox_topic *t);
/* The first topic whose name is after `name` (or equal, with inclusive); NULL at the end. */
struct mailbox_topic *mailbox_topics_after(const struct mailbox_topics *ts, struct str name,
                                           bool inclusive);

static inline struct str mailbox_topic_name(const struct mailbox_topic *t)
{
    return str_of(t->name, t->name_len_less_1 + 1u);
}

#endif
