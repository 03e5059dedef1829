/*
 * Replay: the journal's records, oldest first, make the state again.
 *
 * While replaying, entries sit in no queue: READY and DELAYED keep their due as wall ms, DONE entries as well, DLQ entries
 * are listed at the end in the order they were moved. mailbox_replay_end() walks the slabs once and builds the queues.
 * Freed entries keep their place until then, so slab order is journal order and the FIFOs come out sorted.
 *
 * What is checked: topic_seq without gaps, chain_prev equal to the topic's chain, and with `verify` the payload hash and the
 * link itself. Records may name ids that are gone (settled, then stripped): that is not corruption.
 */
#include <stdlib.h>

#include "services/mailbox/core/shard_internal.h"

void mailbox_replay_begin(struct mailbox_shard *s)
{
    s->replaying = true;
    s->slabs.hold_free = true;
}

static bool foreign(const struct mailbox_shard *s, const uint16_t *routing, uint16_t bucket)
{
    return routing && routing[bucket] != s->no;
}

/* ---- topics ---- */

static void free_entry(struct mailbox_shard *s, uint32_t i)
{
    mailbox_shard__free(s, i);
}

static void drop_topic(struct mailbox_shard *s, struct mailbox_topic *t)
{
    uint32_t left = 0;
    for (int st = MAILBOX_READY; st < MAILBOX_STATES; st++)
        left += t->count[st];
    for (uint32_t i = 1; left && i < s->slabs.used; i++) {
        struct mailbox_entry *e = ENTRY(s, i);
        if (e->state != MAILBOX_FREE && e->topic == t->slot)
            free_entry(s, i);
    }
    mailbox_topics_remove(&s->topics, t);
}

static enum err replay_topic(struct mailbox_shard *s, const struct mailbox_rec *r,
                             const struct mailbox_replay_at *at, const uint16_t *routing)
{
    struct sha256 hash;
    mailbox_topic_hash(r->topic.name, &hash);
    struct mailbox_topic *t = mailbox_topics_by_id(&s->topics, r->topic_id);
    if (r->topic_id == 0 || r->topic.last_seq >= MAILBOX_SEQ_MAX)
        return ERR_CORRUPT;
    if (r->topic_id >= s->topics.next_id)
        s->topics.next_id = r->topic_id + 1;
    if (foreign(s, routing, mailbox_bucket(&hash)))
        return ERR_OK;
    if (t && !str_eq(mailbox_topic_name(t), r->topic.name))
        return ERR_CORRUPT;
    if (!t) {
        struct mailbox_topic *namesake = mailbox_topics_find(&s->topics, &hash, r->topic.name);
        if (namesake && s->salvaging)
            drop_topic(s, namesake); /* that it was forgotten is among what is lost */
        else if (namesake)
            return ERR_CORRUPT; /* two ids for one living name */
        enum err e = mailbox_topics_add(&s->topics, &hash, r->topic.name, r->topic_id, &t);
        if (e != ERR_OK)
            return e;
        t->policy = mailbox_policy_match(&s->rules->policies, r->topic.name);
        if (!(t->tenant = mailbox_tenants_get(&s->tenants, r->topic.tenant)))
            return ERR_NO_MEMORY;
    } else if (t->topic_seq != r->topic.last_seq ||
               (at->verify && !sha256_eq(&t->chain, &r->topic.chain))) {
        if (!s->salvaging || r->topic.last_seq < t->topic_seq)
            return ERR_CORRUPT; /* it repeats what is known, or something in between is missing */
        t->harm |= MAILBOX_HARM_SURE;
    }
    t->harm &= MAILBOX_HARM_SURE;
    t->scope = (uint64_t)at->segment << 32;
    t->chain_id = r->topic.chain_id;
    t->created_ms = r->topic.created_ms;
    t->topic_seq = r->topic.last_seq;
    t->chain = r->topic.chain;
    t->first_max = 0;
    return ERR_OK;
}

/* ---- messages ---- */

static enum err new_entry(struct mailbox_shard *s, struct mailbox_topic *t, const struct uuid *id,
                          const struct mailbox_digest *digest, uint32_t *out_i)
{
    uint32_t i, old = mailbox_index_find(&s->by_key, digest->b);
    if (old) { /* its window was over when the new one was accepted, so it was settled */
        if (ENTRY(s, old)->state != MAILBOX_DONE && !s->salvaging)
            return ERR_CORRUPT;
        free_entry(s, old);
    }
    if (mailbox_index_find(&s->by_id, id->b))
        return ERR_CORRUPT;
    enum err err = mailbox_slabs_alloc(&s->slabs, &i);
    if (err != ERR_OK)
        return err;
    struct mailbox_entry *e = ENTRY(s, i);
    e->msg_id = *id;
    memcpy(e->digest, digest->b, sizeof e->digest);
    e->topic = t->slot;
    if ((err = mailbox_index_add(&s->by_id, i)) != ERR_OK ||
        (err = mailbox_index_add(&s->by_key, i)) != ERR_OK)
        return err; /* out of memory while starting: the start fails */
    *out_i = i;
    return ERR_OK;
}

static void place(struct mailbox_shard *s, uint32_t i, const struct mailbox_replay_at *at, uint32_t length)
{
    mailbox_shard__set_place(s, i, at->segment, (uint32_t)(at->offset / 8), (length + 63) / 64);
}

/* No id is given a time before that of one that was given out. */
static void note_ts(struct mailbox_shard *s, const struct uuid *id)
{
    if (mailbox_id_ts_ms(id) > s->last_ts_ms)
        s->last_ts_ms = mailbox_id_ts_ms(id);
}

enum err mailbox_replay_enq(struct mailbox_shard *s, const struct mailbox_replay_enq *q,
                            const struct mailbox_replay_at *at)
{
    struct mailbox_topic *t = mailbox_topics_by_id(&s->topics, q->topic_id);
    uint32_t i;
    if (!t)
        return q->topic_id < s->topics.next_id && q->topic_id
                   ? ERR_OK
                   : ERR_CORRUPT; /* another shard's, or forgotten */
    if (q->topic_seq >= MAILBOX_SEQ_MAX)
        return ERR_CORRUPT;
    if (q->topic_seq != t->topic_seq + 1 && (!s->salvaging || q->topic_seq <= t->topic_seq))
        return ERR_CORRUPT;
    enum err err = new_entry(s, t, &q->msg_id, &q->digest, &i);
    if (err != ERR_OK)
        return err;
    t->harm = q->topic_seq == t->topic_seq + 1 ? t->harm & MAILBOX_HARM_SURE : MAILBOX_HARM_SURE;
    struct mailbox_entry *e = ENTRY(s, i);
    e->topic_seq = q->topic_seq & MAILBOX_SEQ_MAX;
    mailbox_entry_set_due(e, (int64_t)q->not_before_ms);
    t->topic_seq = q->topic_seq;
    t->enqueued++;
    t->last_send_ms = mailbox_id_ts_ms(&q->msg_id);
    note_ts(s, &q->msg_id);
    if (q->chain)
        t->chain = *q->chain;
    if (q->not_before_ms)
        e->flags = MAILBOX_F_LATE;
    mailbox_shard__set_state(s, i, q->not_before_ms ? MAILBOX_DELAYED : MAILBOX_READY);
    place(s, i, at, q->length);
    return ERR_OK;
}

enum err mailbox_replay_move(struct mailbox_shard *s, const struct mailbox_replay_enq *q,
                             const struct mailbox_rec_move *m, const struct mailbox_replay_at *at)
{
    struct mailbox_topic *t = mailbox_topics_by_id(&s->topics, q->topic_id);
    if (!t)
        return q->topic_id < s->topics.next_id && q->topic_id ? ERR_OK : ERR_CORRUPT;
    if (m->state < MAILBOX_READY || m->state > MAILBOX_DLQ || q->topic_seq >= MAILBOX_SEQ_MAX)
        return ERR_CORRUPT;
    uint32_t i = mailbox_index_find(&s->by_id, q->msg_id.b);
    if (!i) {
        enum err err = new_entry(s, t, &q->msg_id, &q->digest, &i);
        if (err != ERR_OK)
            return err;
    } else if (ENTRY(s, i)->topic != t->slot || ENTRY(s, i)->topic_seq != q->topic_seq) {
        return ERR_CORRUPT;
    }
    struct mailbox_entry *e = ENTRY(s, i);
    if (e->flags & MAILBOX_F_HISTORY) { /* its FAILs follow the copy */
        mailbox_history_drop(&s->history, i);
        e->flags &= (uint8_t)~MAILBOX_F_HISTORY & 31;
    }
    if (m->cut && mailbox_history_begin_cut(&s->history, i))
        e->flags = (e->flags | MAILBOX_F_HISTORY) & 31;
    e->topic_seq = q->topic_seq & MAILBOX_SEQ_MAX;
    e->attempt = m->attempt;
    e->tries = m->tries;
    if (q->not_before_ms || m->late || m->attempt > m->tries) /* the last: reprocessed */
        e->flags = (e->flags | MAILBOX_F_LATE) & 31;
    mailbox_entry_set_due(e, m->state == MAILBOX_READY ? 0 : (int64_t)m->due_ms);
    mailbox_shard__set_state(s, i,
                             m->state == MAILBOX_LEASED ? MAILBOX_READY : (enum mailbox_state)m->state);
    place(s, i, at, q->length);
    note_ts(s, &q->msg_id);
    return ERR_OK;
}

static enum err replay_body(struct mailbox_shard *s, const struct mailbox_rec *r,
                            const struct mailbox_replay_at *at)
{
    const struct mailbox_rec_enq *q = &r->enq;
    struct mailbox_topic *t = mailbox_topics_by_id(&s->topics, r->topic_id);
    struct mailbox_replay_enq c = {.msg_id = q->msg_id,
                                   .topic_seq = q->topic_seq,
                                   .not_before_ms = q->not_before_ms,
                                   .topic_id = r->topic_id,
                                   .length = (uint32_t)r->whole.n,
                                   .chain = &q->chain};
    if (t) {
        mailbox_dedup_digest(mailbox_topic_name(t), q->idem_key, &c.digest);
        if (mailbox_id_ts_ms(&q->msg_id) != q->ts_ms || mailbox_id_bucket(&q->msg_id) != t->bucket)
            return ERR_CORRUPT;
        if (r->type == MAILBOX_REC_ENQ && !sha256_eq(&q->chain_prev, &t->chain)) {
            if (!s->salvaging)
                return ERR_CORRUPT;
            t->harm |= MAILBOX_HARM_SURE;
        }
    }
    if (t && at->verify) {
        struct sha256 payload, chain;
        struct mailbox_link link = {q->chain_prev,         q->payload_hash, {{0}},
                                    mailbox_topic_name(t), q->idem_key,     q->msg_id,
                                    q->topic_seq,          q->ts_ms,        q->not_before_ms};
        sha256_of(q->payload.p, q->payload.n, &payload);
        sha256_of(q->attrs.p, q->attrs.n, &link.attrs_hash);
        mailbox_chain_next(&link, &chain);
        if (!sha256_eq(&payload, &q->payload_hash) || !sha256_eq(&chain, &q->chain))
            return ERR_CORRUPT;
    }
    return r->type == MAILBOX_REC_ENQ ? mailbox_replay_enq(s, &c, at)
                                      : mailbox_replay_move(s, &c, &r->move, at);
}

enum err mailbox_replay_dedup(struct mailbox_shard *s, const struct mailbox_replay_enq *q,
                              const struct mailbox_replay_at *at)
{
    struct mailbox_topic *t = mailbox_topics_by_id(&s->topics, q->topic_id);
    if (!t)
        return q->topic_id < s->topics.next_id && q->topic_id ? ERR_OK : ERR_CORRUPT;
    if (q->topic_seq >= MAILBOX_SEQ_MAX)
        return ERR_CORRUPT;
    uint32_t i = mailbox_index_find(&s->by_id, q->msg_id.b);
    if (!i) {
        enum err err = new_entry(s, t, &q->msg_id, &q->digest, &i);
        if (err != ERR_OK)
            return err;
        ENTRY(s, i)->topic_seq = q->topic_seq & MAILBOX_SEQ_MAX;
        ENTRY(s, i)->flags = MAILBOX_F_ACKED;
        mailbox_shard__set_state(s, i, MAILBOX_DONE);
    }
    place(s, i, at, q->length);
    note_ts(s, &q->msg_id);
    return ERR_OK;
}

static enum err replay_dedup(struct mailbox_shard *s, const struct mailbox_rec *r,
                             const struct mailbox_replay_at *at)
{
    return mailbox_replay_dedup(s,
                                &(struct mailbox_replay_enq){.msg_id = r->dedup.msg_id,
                                                             .digest = r->dedup.digest,
                                                             .topic_seq = r->dedup.topic_seq,
                                                             .topic_id = r->topic_id,
                                                             .length = (uint32_t)r->whole.n},
                                at);
}

enum err mailbox_replay_chain(struct mailbox_shard *s, uint32_t topic_id, uint64_t topic_seq,
                              const struct sha256 *chain)
{
    struct mailbox_topic *t = mailbox_topics_by_id(&s->topics, topic_id);
    if (!t)
        return ERR_OK;
    if (t->topic_seq != topic_seq) {
        if (!s->salvaging)
            return ERR_CORRUPT;
        t->harm |= MAILBOX_HARM_SURE;
        return ERR_OK;
    }
    t->chain = *chain;
    return ERR_OK;
}

enum err mailbox_replay_expect(struct mailbox_shard *s, uint64_t messages)
{
    enum err e = mailbox_index_reserve(&s->by_id, messages);
    return e == ERR_OK ? mailbox_index_reserve(&s->by_key, messages) : e;
}

static void replay_settle(struct mailbox_shard *s, const struct uuid *id, enum mailbox_settle_kind kind)
{
    uint32_t i = mailbox_index_find(&s->by_id, id->b);
    if (!i || ENTRY(s, i)->state == MAILBOX_DONE)
        return;
    struct mailbox_entry *e = ENTRY(s, i);
    if (e->flags & MAILBOX_F_HISTORY)
        mailbox_history_drop(&s->history, i);
    mailbox_shard__set_state(s, i, MAILBOX_DONE);
    e->flags = kind == MAILBOX_SETTLE_ACK ? MAILBOX_F_ACKED : 0;
    if (kind == MAILBOX_SETTLE_ACK)
        mailbox_shard__topic(s, e)->acked++;
}

static void replay_fail(struct mailbox_shard *s, const struct mailbox_rec_fail *f)
{
    uint32_t i = mailbox_index_find(&s->by_id, f->msg_id.b);
    if (!i || ENTRY(s, i)->state == MAILBOX_DONE)
        return;
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_failure h = {.at_ms = f->at_ms, .attempt = f->attempt, .cause = f->cause};
    mailbox_failure_reason(&h, f->reason);
    if (mailbox_history_add(&s->history, i, &h))
        e->flags = (e->flags | MAILBOX_F_HISTORY) & 31;
    if (f->attempt > e->attempt)
        e->attempt = f->attempt;
    /* History only: an older failure that follows a copy; and one that led back to the queue, since its lease, or the copy, has said
     * already where the message is. A copy that was reprocessed with a delay waits on. */
    if (f->attempt < e->attempt || f->to == MAILBOX_TO_READY)
        return;
    if (f->to == MAILBOX_TO_DELAYED) {
        mailbox_shard__set_state(s, i, MAILBOX_READY); /* the flag must not change under a counted state */
        e->flags = (e->flags | MAILBOX_F_AFTER_FAIL) & 31;
        mailbox_entry_set_due(e, (int64_t)f->not_before_ms);
        mailbox_shard__set_state(s, i, MAILBOX_DELAYED);
    } else {
        mailbox_entry_set_due(e, (int64_t)f->at_ms);
        mailbox_shard__set_state(s, i, MAILBOX_DLQ);
    }
}

static void replay_reproc(struct mailbox_shard *s, const struct uuid *id, uint64_t not_before_ms)
{
    uint32_t i = mailbox_index_find(&s->by_id, id->b);
    if (!i || ENTRY(s, i)->state != MAILBOX_DLQ)
        return;
    ENTRY(s, i)->tries = 0;
    ENTRY(s, i)->flags = (ENTRY(s, i)->flags | MAILBOX_F_LATE) & 31;
    mailbox_entry_set_due(ENTRY(s, i), (int64_t)not_before_ms);
    mailbox_shard__set_state(s, i, not_before_ms ? MAILBOX_DELAYED : MAILBOX_READY);
}

static void replay_lease(struct mailbox_shard *s, const struct mailbox_rec_lease_item *l)
{
    uint32_t i = mailbox_index_find(&s->by_id, l->id.b);
    if (!i || ENTRY(s, i)->state == MAILBOX_DONE)
        return;
    struct mailbox_entry *e = ENTRY(s, i);
    if (e->attempt < l->attempt)
        e->attempt = l->attempt;
    e->tries = l->tries;
    mailbox_entry_set_due(e, 0);
    mailbox_shard__set_state(s, i, MAILBOX_READY);
}

void mailbox_replay_lease_held(struct mailbox_shard *s, const struct mailbox_lease_held *h)
{
    uint32_t i = mailbox_index_find(&s->by_id, h->msg_id.b);
    CHECK(s->replaying);
    if (!i || ENTRY(s, i)->state != MAILBOX_READY || ENTRY(s, i)->attempt != h->attempt)
        return;
    mailbox_entry_set_due(ENTRY(s, i), h->due_us);
    mailbox_shard__set_state(s, i, MAILBOX_LEASED);
}

static void replay_adopt(struct mailbox_shard *s, const struct mailbox_rec *r)
{
    uint8_t void_of[MAILBOX_BUCKETS / 8] = {0};
    for (uint16_t k = 0; k < r->n; k++) {
        uint16_t b = mailbox_rec_adopt_at(r, k);
        void_of[b / 8] |= (uint8_t)(1u << (b % 8));
    }
    for (uint32_t i = 1; i < s->slabs.used; i++) {
        struct mailbox_entry *e = ENTRY(s, i);
        uint16_t b = mailbox_id_bucket(&e->msg_id);
        if (e->state != MAILBOX_FREE && (void_of[b / 8] & (1u << (b % 8))))
            free_entry(s, i);
    }
    for (uint32_t k = 1; k < s->topics.slots; k++) {
        struct mailbox_topic *t = s->topics.slot[k];
        if (t && (void_of[t->bucket / 8] & (1u << (t->bucket % 8))))
            mailbox_topics_remove(&s->topics, t);
    }
}

enum err mailbox_replay_record(struct mailbox_shard *s, const struct mailbox_rec *r,
                               const struct mailbox_replay_at *at, const uint16_t *routing)
{
    struct mailbox_topic *t;
    CHECK(s->replaying);
    switch (r->type) {
    case MAILBOX_REC_TOPIC:
        return replay_topic(s, r, at, routing);
    case MAILBOX_REC_ENQ:
    case MAILBOX_REC_MOVE:
        return replay_body(s, r, at);
    case MAILBOX_REC_DEDUP:
        return replay_dedup(s, r, at);
    case MAILBOX_REC_LEASE:
        for (uint16_t k = 0; k < r->n; k++) {
            struct mailbox_rec_lease_item l = mailbox_rec_lease_at(r, k);
            replay_lease(s, &l);
        }
        return ERR_OK;
    case MAILBOX_REC_SETTLE:
        for (uint16_t k = 0; k < r->n; k++) {
            enum mailbox_settle_kind kind;
            struct uuid id = mailbox_rec_settle_at(r, k, &kind);
            replay_settle(s, &id, kind);
        }
        return ERR_OK;
    case MAILBOX_REC_REPROC:
        for (uint16_t k = 0; k < r->n; k++) {
            uint64_t nb;
            struct uuid id = mailbox_rec_reproc_at(r, k, &nb);
            replay_reproc(s, &id, nb);
        }
        return ERR_OK;
    case MAILBOX_REC_FAIL:
        replay_fail(s, &r->fail);
        return ERR_OK;
    case MAILBOX_REC_FORGET:
        if ((t = mailbox_topics_by_id(&s->topics, r->topic_id)) != NULL)
            drop_topic(s, t);
        return ERR_OK;
    case MAILBOX_REC_ADOPT:
        replay_adopt(s, r);
        return ERR_OK;
    default:
        return ERR_CORRUPT;
    }
}

/* ---- the end: wall times become monotonic, entries find their queues ---- */

static int64_t mono_of_wall(const struct mailbox_now *now, uint64_t wall_ms)
{
    if (wall_ms >= MAILBOX_DUE_MAX)
        return INT64_MAX;
    return now->mono_us + ((int64_t)wall_ms - (int64_t)now->wall_ms) * 1000;
}

/* An age from the wall clock is clamped to [0, t_replay]: a clock set back neither shortens nor stretches the window. */
static void set_accept(struct mailbox_shard *s, struct mailbox_entry *e)
{
    int64_t age = (int64_t)s->now.wall_ms - (int64_t)mailbox_id_ts_ms(&e->msg_id);
    e->accept_ms32 = (uint32_t)(uint64_t)(s->now.mono_us / 1000 - (age < 0 ? 0 : age));
}

static void queue_up(struct mailbox_shard *s, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_topic *t = mailbox_shard__topic(s, e);
    set_accept(s, e);
    switch ((enum mailbox_state)e->state) {
    case MAILBOX_DELAYED:
        mailbox_entry_set_due(e, mono_of_wall(&s->now, (uint64_t)mailbox_entry_due(e)));
        mailbox_wheel_add(&s->timers, i); /* what is due already comes with the first tick */
        break;
    case MAILBOX_READY:
        mailbox_entry_set_due(e, mailbox_entry_due(e)
                                     ? mono_of_wall(&s->now, (uint64_t)mailbox_entry_due(e))
                                     : mailbox_shard__ready_since_us(s, e));
        if (e->attempt == 0 && (!t->fifo_tail || ENTRY(s, t->fifo_tail)->topic_seq < e->topic_seq))
            mailbox_shard__fifo_push(s, t, i);
        else
            mailbox_shard__heap_push(s, t, i);
        break;
    case MAILBOX_DLQ: /* listed afterwards, in the order of moving */
        break;
    case MAILBOX_DONE:
        mailbox_entry_set_due(e, mailbox_shard__window_end_us(s, e));
        if (mailbox_entry_due(e) <= s->now.mono_us)
            mailbox_shard__free(s, i);
        else if (mailbox_entry_due(e) != INT64_MAX)
            mailbox_wheel_add(&s->forget, i);
        break;
    case MAILBOX_LEASED: /* held: its due is monotonic already */
        mailbox_wheel_add(&s->timers, i);
        break;
    case MAILBOX_FREE:
    case MAILBOX_STATES:
        UNREACHABLE();
    }
}

struct dead {
    int64_t moved_ms;
    uint32_t entry;
};

static int dead_cmp(const void *a, const void *b)
{
    const struct dead *x = a, *y = b;
    if (x->moved_ms != y->moved_ms)
        return x->moved_ms < y->moved_ms ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static enum err list_dead(struct mailbox_shard *s)
{
    uint32_t n = 0, want = s->count[MAILBOX_DLQ];
    struct dead *dead = want ? malloc(want * sizeof *dead) : NULL;
    if (want == 0)
        return ERR_OK;
    if (!dead)
        return ERR_NO_MEMORY;
    for (uint32_t i = 1; i < s->slabs.used; i++)
        if (ENTRY(s, i)->state == MAILBOX_DLQ)
            dead[n++] = (struct dead){mailbox_entry_due(ENTRY(s, i)), i};
    CHECK(n == want);
    qsort(dead, n, sizeof *dead, dead_cmp);
    for (uint32_t k = 0; k < n; k++)
        mailbox_shard__dlq_push(s, mailbox_shard_topic_of(s, dead[k].entry), dead[k].entry);
    free(dead);
    return ERR_OK;
}

enum err mailbox_replay_end(struct mailbox_shard *s, struct mailbox_now now)
{
    CHECK(s->replaying);
    s->now = now;
    for (uint32_t i = 1; i < s->slabs.used; i++)
        if (ENTRY(s, i)->state != MAILBOX_FREE)
            queue_up(s, i);
    enum err err = list_dead(s);
    if (err != ERR_OK)
        return err;
    for (uint32_t k = 1; k < s->topics.slots; k++) {
        struct mailbox_topic *t = s->topics.slot[k];
        if (t) {
            t->first_max = 0; /* nothing has been first-delivered by this process */
            mailbox_shard__topic_unused(s, t);
        }
    }
    mailbox_slabs_release_held(&s->slabs);
    s->replaying = false;
    s->events_n = 0;
    return ERR_OK;
}
