/*
 * The shard: one message's life is a walk through the states of entry.h, and this file owns the moves.
 *
 *   send ──► READY/DELAYED ──lease──► LEASED ──ack──► DONE ──window over──► forgotten
 *                 ▲                      │
 *                 └── due, expiry, nack ─┴── too many tries ──► DLQ ──purge──► DONE
 *                 ▲                                              │
 *                 └─────────────────── reprocess ────────────────┘
 *
 * set_state() is the only writer of a state and keeps the counts of shard, topic and segment in step, so that
 * mailbox_shard_check() can recount everything and compare. Settling is in settle.c, time in expire.c, waiting in park.c,
 * recovery in replay.c.
 */
#include <stdlib.h>

#include "services/mailbox/core/shard_internal.h"

enum err mailbox_shard_init(struct mailbox_shard *s, uint16_t no, const struct mailbox_rules *rules,
                            uint64_t seed, struct mailbox_now now, void *group_memory)
{
    memset(s, 0, offsetof(struct mailbox_shard, events));
    s->no = no;
    s->rules = rules;
    s->now = now;
    s->lazy_since_us = INT64_MAX;
    for (int c = 0; c < MAILBOX_CLASSES_MAX; c++)
        s->oldest_ready_us[c] = s->oldest_so_far_us[c] = INT64_MAX;
    rng_seed(&s->rng, seed);
    mailbox_slabs_init(&s->slabs);
    mailbox_index_init(&s->by_id, &s->slabs, offsetof(struct mailbox_entry, msg_id), rng_u64(&s->rng));
    mailbox_index_init(&s->by_key, &s->slabs, offsetof(struct mailbox_entry, digest), rng_u64(&s->rng));
    for (uint32_t i = 0; i < MAILBOX_IDS_AHEAD; i++)
        s->ids_ahead[i] = rng_u64(&s->rng);
    mailbox_wheel_init(&s->timers, &s->slabs, now.mono_us);
    mailbox_wheel_init(&s->forget, &s->slabs, now.mono_us);
    mailbox_rec_w_init(&s->group, group_memory, MAILBOX_GROUP_MEMORY);
    enum err e = mailbox_topics_init(&s->topics);
    if (e == ERR_OK)
        e = mailbox_history_init(&s->history);
    return e;
}

void mailbox_shard_fini(struct mailbox_shard *s)
{
    mailbox_history_fini(&s->history);
    mailbox_topics_fini(&s->topics);
    mailbox_index_fini(&s->by_id);
    mailbox_index_fini(&s->by_key);
    mailbox_slabs_fini(&s->slabs);
    free(s->pending);
    free(s->streams);
    free(s->segment_use);
}

void mailbox_shard_set_rules(struct mailbox_shard *s, const struct mailbox_rules *rules)
{
    s->rules = rules;
    for (uint32_t i = 1; i < s->topics.slots; i++)
        if (s->topics.slot[i])
            s->topics.slot[i]->policy =
                mailbox_policy_match(&rules->policies, mailbox_topic_name(s->topics.slot[i]));
}

struct mailbox_topic *mailbox_shard__topic(const struct mailbox_shard *s, const struct mailbox_entry *e)
{
    struct mailbox_topic *t = s->topics.slot[e->topic];
    CHECK(t != NULL);
    return t;
}

const struct mailbox_policy *mailbox_shard_policy(const struct mailbox_shard *s,
                                                  const struct mailbox_topic *t)
{
    return &s->rules->policies.p[t->policy];
}

const struct mailbox_policy *mailbox_shard__policy(const struct mailbox_shard *s,
                                                   const struct mailbox_entry *e)
{
    return mailbox_shard_policy(s, mailbox_shard__topic(s, e));
}

struct mailbox_class_stats *mailbox_shard__stats(struct mailbox_shard *s, const struct mailbox_topic *t)
{
    return &s->stats.of[t->policy];
}

uint32_t mailbox_shard_find(const struct mailbox_shard *s, const struct uuid *id)
{
    return mailbox_index_find(&s->by_id, id->b);
}

struct mailbox_topic *mailbox_shard_topic_of(const struct mailbox_shard *s, uint32_t entry)
{
    return mailbox_shard__topic(s, ENTRY(s, entry));
}

/* ---- segments: what still lives where ---- */

static struct mailbox_segment_use *use_of(struct mailbox_shard *s, uint32_t segment)
{
    if (segment == MAILBOX_SEGMENT_PENDING)
        return NULL;
    if (s->segment_n == 0)
        s->segment_first = segment;
    if (segment < s->segment_first || segment >= s->segment_first + s->segment_n) {
        uint32_t first = segment < s->segment_first ? segment : s->segment_first;
        uint32_t end =
            s->segment_first + s->segment_n > segment + 1 ? s->segment_first + s->segment_n : segment + 1;
        struct mailbox_segment_use *wider = calloc(end - first, sizeof *wider);
        CHECK(wider != NULL); /* 16 bytes per segment of at least 4 MiB */
        if (s->segment_n)
            memcpy(wider + (s->segment_first - first), s->segment_use, s->segment_n * sizeof *wider);
        free(s->segment_use);
        s->segment_use = wider;
        s->segment_first = first;
        s->segment_n = end - first;
    }
    return &s->segment_use[segment - s->segment_first];
}

const struct mailbox_segment_use *mailbox_shard_segment_use(const struct mailbox_shard *s, uint32_t segment)
{
    static const struct mailbox_segment_use none;
    if (segment < s->segment_first || segment >= s->segment_first + s->segment_n)
        return &none;
    return &s->segment_use[segment - s->segment_first];
}

static void account(struct mailbox_shard *s, const struct mailbox_entry *e, int sign)
{
    struct mailbox_segment_use *u = use_of(s, e->segment);
    if (!u || e->state == MAILBOX_FREE)
        return;
    uint32_t one = (uint32_t)sign;
    if (e->state == MAILBOX_DONE) {
        u->keys += one;
    } else {
        u->waiting += one;
        u->waiting_bytes += (uint64_t)((int64_t)sign * e->length64 * 64);
    }
}

static bool blocks(const struct mailbox_entry *e)
{
    return e->state == MAILBOX_LEASED || (e->state == MAILBOX_DELAYED && (e->flags & MAILBOX_F_AFTER_FAIL));
}

void mailbox_shard__set_state(struct mailbox_shard *s, uint32_t i, enum mailbox_state to)
{
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_topic *t = mailbox_shard__topic(s, e);

    account(s, e, -1);
    if (e->state != MAILBOX_FREE) {
        CHECK(s->count[e->state] > 0 && t->count[e->state] > 0);
        s->count[e->state]--;
        t->count[e->state]--;
        t->blocking -= blocks(e);
    }
    e->state = to & 7;
    if (to != MAILBOX_DELAYED)
        e->flags &= (uint8_t)~MAILBOX_F_AFTER_FAIL & 31;
    if (to != MAILBOX_FREE) {
        s->count[to]++;
        t->count[to]++;
        t->blocking += blocks(e);
    }
    account(s, e, 1);
}

void mailbox_shard__set_place(struct mailbox_shard *s, uint32_t i, uint32_t segment, uint32_t offset8)
{
    struct mailbox_entry *e = ENTRY(s, i);
    account(s, e, -1);
    e->segment = segment;
    e->offset8 = offset8;
    account(s, e, 1);
}

/* ---- queues ---- */

void mailbox_shard__fifo_push(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    e->left = e->right = 0;
    if (t->fifo_tail)
        ENTRY(s, t->fifo_tail)->right = i;
    else
        t->fifo_head = i;
    t->fifo_tail = i;
}

/* Top-down skew heap: no balance is stored, and merging is a loop, so depth costs no stack. */
static uint32_t heap_merge(struct mailbox_shard *s, uint32_t a, uint32_t b)
{
    uint32_t root = 0, *link = &root;
    while (a && b) {
        if (ENTRY(s, b)->topic_seq < ENTRY(s, a)->topic_seq) {
            uint32_t swap = a;
            a = b;
            b = swap;
        }
        struct mailbox_entry *e = ENTRY(s, a);
        uint32_t rest = e->right;
        *link = a;
        e->right = e->left;
        link = &e->left;
        a = rest;
    }
    *link = a ? a : b;
    return root;
}

void mailbox_shard__heap_push(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    e->left = e->right = 0;
    t->heap = heap_merge(s, t->heap, i);
}

static uint32_t heap_pop(struct mailbox_shard *s, struct mailbox_topic *t)
{
    uint32_t i = t->heap;
    struct mailbox_entry *e = ENTRY(s, i);
    t->heap = heap_merge(s, e->left, e->right);
    e->left = e->right = 0;
    return i;
}

static void forget_later(struct mailbox_shard *s, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    if (e->due <= s->now.mono_us)
        mailbox_shard__free(s, i);
    else if (e->due != INT64_MAX)
        mailbox_wheel_add(&s->forget, i);
}

uint32_t mailbox_shard__ready_head(struct mailbox_shard *s, struct mailbox_topic *t)
{
    while (t->heap && (ENTRY(s, t->heap)->flags & MAILBOX_F_GHOST)) {
        uint32_t i = heap_pop(s, t);
        ENTRY(s, i)->flags &= (uint8_t)~MAILBOX_F_GHOST & 31;
        forget_later(s, i);
    }
    if (!t->heap)
        return t->fifo_head;
    if (!t->fifo_head)
        return t->heap;
    return ENTRY(s, t->heap)->topic_seq < ENTRY(s, t->fifo_head)->topic_seq ? t->heap : t->fifo_head;
}

void mailbox_shard__ready_pop(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i)
{
    if (i == t->heap) {
        heap_pop(s, t);
        return;
    }
    CHECK(i == t->fifo_head);
    struct mailbox_entry *e = ENTRY(s, i);
    t->fifo_head = e->right;
    if (!t->fifo_head)
        t->fifo_tail = 0;
    e->right = 0;
}

void mailbox_shard__dlq_push(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    e->left = t->dlq_tail;
    e->right = 0;
    if (t->dlq_tail)
        ENTRY(s, t->dlq_tail)->right = i;
    else
        t->dlq_head = i;
    t->dlq_tail = i;
}

void mailbox_shard__dlq_remove(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    *(e->left ? &ENTRY(s, e->left)->right : &t->dlq_head) = e->right;
    *(e->right ? &ENTRY(s, e->right)->left : &t->dlq_tail) = e->left;
    e->left = e->right = 0;
}

/* ---- windows ---- */

/*
 * accept_ms32 holds the monotonic accept time modulo 2^32 ms; the id's wall time says which of the turns it was. Wall steps
 * below 24 days cannot confuse the two.
 */
int64_t mailbox_shard__accept_us(const struct mailbox_shard *s, const struct mailbox_entry *e)
{
    int64_t now_ms = s->now.mono_us / 1000;
    int64_t about = now_ms - ((int64_t)s->now.wall_ms - (int64_t)mailbox_id_ts_ms(&e->msg_id));
    if (about > now_ms)
        about = now_ms;
    int32_t off = (int32_t)(e->accept_ms32 - (uint32_t)(uint64_t)about);
    int64_t at = about + off;
    return (at > now_ms ? now_ms : at) * 1000;
}

int64_t mailbox_shard__window_end_us(const struct mailbox_shard *s, const struct mailbox_entry *e)
{
    uint64_t replay = mailbox_shard__policy(s, e)->t_replay_ms;
    if (replay == MAILBOX_UNLIMITED)
        return INT64_MAX;
    return mailbox_shard__accept_us(s, e) + (int64_t)replay * 1000;
}

void mailbox_shard__free(struct mailbox_shard *s, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_topic *t = mailbox_shard__topic(s, e);
    mailbox_index_remove(&s->by_id, i);
    if (!(e->flags & MAILBOX_F_KEYLESS))
        mailbox_index_remove(&s->by_key, i);
    if (e->flags & MAILBOX_F_HISTORY)
        mailbox_history_drop(&s->history, i);
    account(s, e, -1);
    s->count[e->state]--;
    t->count[e->state]--;
    mailbox_slabs_free(&s->slabs, i);
    mailbox_shard__topic_unused(s, t);
}

void mailbox_shard__topic_unused(struct mailbox_shard *s, struct mailbox_topic *t)
{
    if (t->count[MAILBOX_READY] + t->count[MAILBOX_DELAYED] + t->count[MAILBOX_LEASED] +
            t->count[MAILBOX_DLQ] + t->count[MAILBOX_DONE] ==
        0)
        t->idle_since_us = s->now.mono_us;
}

void mailbox_shard__to_done(struct mailbox_shard *s, uint32_t i, bool acked, bool in_heap)
{
    struct mailbox_entry *e = ENTRY(s, i);
    mailbox_shard__set_state(s, i, MAILBOX_DONE);
    e->due = mailbox_shard__window_end_us(s, e);
    if (acked)
        e->flags = (e->flags | MAILBOX_F_ACKED) & 31;
    if (e->flags & MAILBOX_F_HISTORY) {
        mailbox_history_drop(&s->history, i);
        e->flags &= (uint8_t)~MAILBOX_F_HISTORY & 31;
    }
    if (in_heap)
        e->flags = (e->flags | MAILBOX_F_GHOST) & 31;
    else
        forget_later(s, i);
}

/* ---- records ---- */

void mailbox_shard__wrote(struct mailbox_shard *s, enum err e, bool flush)
{
    CHECK(e == ERR_OK); /* MAILBOX_GROUP_SLACK is what one event may add */
    if (s->readonly) {
        mailbox_rec_w_reset(&s->group);
        return;
    }
    s->must_flush |= flush;
    if (s->lazy_since_us == INT64_MAX)
        s->lazy_since_us = s->now.mono_us;
}

void mailbox_shard_committed(struct mailbox_shard *s, uint32_t segment, uint64_t payload_offset)
{
    for (uint32_t k = 0; k < s->pending_n; k++) {
        struct mailbox_pending p = s->pending[k];
        mailbox_shard__set_place(s, p.entry, segment, (uint32_t)((payload_offset + p.at) / 8));
    }
    s->pending_n = 0;
    mailbox_rec_w_reset(&s->group);
    s->must_flush = false;
    s->lazy_since_us = INT64_MAX;
}

void mailbox_shard_failed(struct mailbox_shard *s)
{
    s->readonly = true;
    s->pending_n = 0;
    mailbox_rec_w_reset(&s->group);
    s->must_flush = false;
    s->lazy_since_us = INT64_MAX;
}

void mailbox_shard__event(struct mailbox_shard *s, enum mailbox_event_kind kind,
                          const struct mailbox_topic *t, uint32_t i, uint8_t cause)
{
    if (s->events_n == MAILBOX_EVENTS) {
        s->events_lost++;
        return;
    }
    struct mailbox_event *ev = &s->events[s->events_n++];
    struct str name = mailbox_topic_name(t);
    ev->kind = kind;
    ev->cause = cause;
    ev->topic_len = (uint8_t)(name.n > 255 ? 255 : name.n);
    memcpy(ev->topic, name.p, ev->topic_len);
    ev->msg_id = i ? ENTRY(s, i)->msg_id : (struct uuid){{0}};
    ev->attempt = i ? ENTRY(s, i)->attempt : 0;
}

/* ---- send ---- */

enum err mailbox_shard__pending_reserve(struct mailbox_shard *s)
{
    if (s->pending_n < s->pending_cap)
        return ERR_OK;
    uint32_t cap = s->pending_cap ? s->pending_cap * 2 : 256;
    struct mailbox_pending *wider = realloc(s->pending, cap * sizeof *wider);
    if (!wider)
        return ERR_NO_MEMORY;
    s->pending = wider;
    s->pending_cap = cap;
    return ERR_OK;
}

/* The live entry of this key, or 0; an entry whose window has just ended gives the key up. */
static uint32_t find_key(struct mailbox_shard *s, const struct mailbox_digest *d)
{
    uint32_t i = mailbox_index_find(&s->by_key, d->b);
    if (!i)
        return 0;
    struct mailbox_entry *e = ENTRY(s, i);
    if (e->state != MAILBOX_DONE || e->due > s->now.mono_us)
        return i;
    if (e->flags & MAILBOX_F_GHOST) {
        mailbox_index_remove(&s->by_key, i);
        e->flags = (e->flags | MAILBOX_F_KEYLESS) & 31;
    } else {
        mailbox_wheel_remove(&s->forget, i);
        mailbox_shard__free(s, i);
    }
    return 0;
}

void mailbox_shard__name_topic(struct mailbox_shard *s, struct mailbox_topic *t)
{
    struct mailbox_rec_topic r = {t->chain_id, t->created_ms, t->topic_seq, t->chain,
                                  mailbox_topic_name(t)};
    if (t->scope == s->scope)
        return;
    mailbox_shard__wrote(s, mailbox_rec_put_topic(&s->group, t->id, &r), true);
    t->scope = s->scope;
}

static enum err topic_for_send(struct mailbox_shard *s, const struct mailbox_send *in,
                               struct mailbox_sent *out, struct mailbox_topic **out_topic)
{
    struct mailbox_topic *t = mailbox_topics_find(&s->topics, in->topic_hash, in->topic);
    if (t && t->id) {
        *out_topic = t;
        return ERR_OK;
    }
    if (!t) {
        if (s->topics.count >= s->rules->max_topics) {
            out->refusal = MAILBOX_REFUSED_TOPICS;
            return ERR_BUSY;
        }
        enum err e = mailbox_topics_add(&s->topics, in->topic_hash, in->topic, 0, &t);
        if (e != ERR_OK)
            return e;
    } else {
        enum err e = mailbox_topics_born(&s->topics, t);
        if (e != ERR_OK)
            return e;
    }
    uint8_t random[10];
    rng_bytes(&s->rng, random, sizeof random);
    t->policy = mailbox_policy_match(&s->rules->policies, in->topic);
    t->created_ms = s->now.wall_ms;
    t->chain_id = uuid_v7((int64_t)s->now.wall_ms, random);
    mailbox_chain_genesis(in->topic, &t->chain_id, &t->chain);
    t->scope = UINT64_MAX;
    mailbox_shard__name_topic(s, t);
    mailbox_shard__event(s, MAILBOX_EV_TOPIC_CREATED, t, 0, 0);
    *out_topic = t;
    return ERR_OK;
}

/* The random part of ids is drawn a few sends ahead, so that the place in the index is in the cache when the id is used. */
static uint64_t random_for_id(struct mailbox_shard *s)
{
    uint32_t at = s->ids_at++, half = (at + MAILBOX_IDS_AHEAD / 2) % MAILBOX_IDS_AHEAD;
    uint64_t *next = &s->ids_ahead[at % MAILBOX_IDS_AHEAD], random = *next;
    *next = rng_u64(&s->rng);
    mailbox_index_prefetch_place(&s->by_id,
                                 mailbox_id_make(0, 0, *next).b); /* its last eight bytes decide */
    mailbox_index_prefetch(&s->by_id, mailbox_id_make(0, 0, s->ids_ahead[half]).b);
    return random;
}

static struct uuid fresh_id(struct mailbox_shard *s, uint64_t ts_ms, uint16_t bucket)
{
    struct uuid id;
    do
        id = mailbox_id_make(ts_ms, bucket, random_for_id(s));
    while (mailbox_index_find(&s->by_id, id.b));
    return id;
}

static void append_enq(struct mailbox_shard *s, struct mailbox_topic *t, const struct mailbox_send *in,
                       uint32_t i, uint64_t not_before_ms, struct mailbox_sent *out)
{
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_link link = {.prev = t->chain,
                                .payload_hash = in->payload_hash,
                                .attrs_hash = in->attrs_hash,
                                .topic = in->topic,
                                .idem_key = in->idem_key,
                                .msg_id = e->msg_id,
                                .topic_seq = e->topic_seq,
                                .ts_ms = out->ts_ms,
                                .not_before_ms = not_before_ms};
    mailbox_chain_next(&link, &out->chain);
    struct mailbox_rec_enq r = {.msg_id = e->msg_id,
                                .topic_seq = e->topic_seq,
                                .ts_ms = out->ts_ms,
                                .not_before_ms = not_before_ms,
                                .payload_hash = in->payload_hash,
                                .chain_prev = t->chain,
                                .chain = out->chain,
                                .idem_key = in->idem_key,
                                .corr_id = in->corr_id,
                                .attrs = in->attrs,
                                .payload = in->payload};
    size_t at = s->group.n;
    mailbox_shard__wrote(s, mailbox_rec_put_enq(&s->group, t->id, &r), true);
    e->offset8 = (uint32_t)(at / 8);
    e->length64 = (uint16_t)((mailbox_rec_enq_bytes(&r) + 63) / 64);
    s->pending[s->pending_n++] = (struct mailbox_pending){i, (uint32_t)at};
    t->chain = out->chain;
}

enum err mailbox_shard_send(struct mailbox_shard *s, struct mailbox_now now, const struct mailbox_send *in,
                            struct mailbox_sent *out_sent)
{
    struct mailbox_sent out = {0};
    struct mailbox_topic *t;
    uint32_t i;

    CHECK(!s->readonly && !mailbox_shard_group_full(s));
    s->now = now;
    if ((i = find_key(s, &in->digest)) != 0) {
        struct mailbox_entry *e = ENTRY(s, i);
        out = (struct mailbox_sent){.duplicate = true,
                                    .entry = i,
                                    .msg_id = e->msg_id,
                                    .topic_seq = e->topic_seq,
                                    .ts_ms = mailbox_id_ts_ms(&e->msg_id)};
        mailbox_shard__stats(s, mailbox_shard__topic(s, e))->duplicates++;
        *out_sent = out;
        return ERR_OK;
    }
    if (s->no_room || s->slabs.live >= s->rules->index_max) {
        out_sent->refusal = s->no_room ? MAILBOX_REFUSED_DISK : MAILBOX_REFUSED_MESSAGES;
        return ERR_BUSY;
    }
    enum err err = mailbox_shard__pending_reserve(s);
    if (err == ERR_OK)
        err = topic_for_send(s, in, out_sent, &t);
    if (err == ERR_OK)
        err = mailbox_slabs_alloc(&s->slabs, &i);
    if (err != ERR_OK)
        return err;

    struct mailbox_entry *e = ENTRY(s, i);
    out.ts_ms = now.wall_ms > s->last_ts_ms ? now.wall_ms : s->last_ts_ms;
    e->msg_id = fresh_id(s, out.ts_ms, t->bucket);
    e->digest = in->digest;
    e->topic = t->slot;
    e->topic_seq = t->topic_seq + 1;
    e->accept_ms32 = (uint32_t)(uint64_t)(now.mono_us / 1000);
    e->segment = MAILBOX_SEGMENT_PENDING;
    if ((err = mailbox_index_add(&s->by_id, i)) == ERR_OK &&
        (err = mailbox_index_add(&s->by_key, i)) != ERR_OK)
        mailbox_index_remove(&s->by_id, i);
    if (err != ERR_OK) {
        e->state = MAILBOX_READY; /* only so that the slab takes it back */
        mailbox_slabs_free(&s->slabs, i);
        return err;
    }
    mailbox_shard__name_topic(s, t);
    s->last_ts_ms = out.ts_ms;
    t->topic_seq++;
    t->enqueued++;
    t->last_send_ms = out.ts_ms;
    uint64_t delay_ms = in->delay_ms, not_before_ms = 0;
    if (in->deliver_at_ms > now.wall_ms)
        delay_ms = in->deliver_at_ms - now.wall_ms;
    if (delay_ms)
        not_before_ms = now.wall_ms + delay_ms;
    append_enq(s, t, in, i, not_before_ms, &out);
    if (delay_ms) {
        e->due = now.mono_us + (int64_t)delay_ms * 1000;
        mailbox_shard__set_state(s, i, MAILBOX_DELAYED);
        mailbox_wheel_add(&s->timers, i);
    } else {
        e->due = now.mono_us;
        mailbox_shard__set_state(s, i, MAILBOX_READY);
        mailbox_shard__fifo_push(s, t, i);
        mailbox_shard__mark_dirty(s, t);
    }
    mailbox_shard__stats(s, t)->enqueued++;
    out.entry = i;
    out.msg_id = e->msg_id;
    out.topic_seq = e->topic_seq;
    *out_sent = out;
    return ERR_OK;
}

/* ---- receive ---- */

bool mailbox_shard__outstayed(const struct mailbox_shard *s, const struct mailbox_entry *e)
{
    return s->now.mono_us - e->due > (int64_t)s->rules->retention_ready_ms * 1000;
}

/* The next message of the topic that may be delivered, taken out of its queue; what may not be goes to the DLQ. */
static uint32_t take_next(struct mailbox_shard *s, struct mailbox_topic *t, int64_t *room_bytes, bool first,
                          bool *fresh)
{
    for (;;) {
        uint32_t i = mailbox_shard__ready_head(s, t);
        if (!i)
            return 0;
        struct mailbox_entry *e = ENTRY(s, i);
        if (mailbox_shard__outstayed(s, e)) {
            mailbox_shard__ready_pop(s, t, i);
            mailbox_shard__fail(s, i, MAILBOX_CAUSE_RETENTION, STR(""), MAILBOX_TO_DLQ, 0);
            continue;
        }
        if (e->tries >= mailbox_shard_policy(s, t)->max_attempts || e->attempt == UINT16_MAX) {
            mailbox_shard__ready_pop(s, t, i);
            mailbox_shard__fail(s, i, MAILBOX_CAUSE_LEASE_EXPIRED, STR(""), MAILBOX_TO_DLQ, 0);
            continue;
        }
        if (!first && *room_bytes < (int64_t)e->length64 * 64)
            return 0;
        *room_bytes -= (int64_t)e->length64 * 64;
        *fresh = i == t->fifo_head;
        mailbox_shard__ready_pop(s, t, i);
        return i;
    }
}

static void note_delivery(struct mailbox_shard *s, struct mailbox_topic *t, const struct mailbox_entry *e,
                          bool fresh)
{
    struct mailbox_class_stats *st = mailbox_shard__stats(s, t);
    st->delivered++;
    if (e->attempt > 1) {
        st->redelivered++;
        t->redelivered++;
    } else if (e->topic_seq > t->first_max) {
        t->first_max = e->topic_seq;
    } else if (fresh && t->first_max - e->topic_seq > s->reorder_depth_max) {
        s->reorder_depth_max = t->first_max - e->topic_seq;
    }
}

uint32_t mailbox_shard_lease(struct mailbox_shard *s, struct mailbox_now now, const struct mailbox_want *w,
                             uint32_t *out_entries)
{
    struct mailbox_topic *t = w->topic;
    int64_t room = w->max_bytes;
    uint32_t n = 0;

    CHECK(!s->readonly);
    s->now = now;
    if (mailbox_shard_policy(s, t)->ordered && t->blocking)
        return 0;
    while (n < w->max) {
        bool fresh;
        uint32_t i = take_next(s, t, &room, n == 0, &fresh);
        if (!i)
            break;
        struct mailbox_entry *e = ENTRY(s, i);
        e->attempt++;
        e->tries++;
        note_delivery(s, t, e, fresh);
        e->due = now.mono_us + w->visibility_us;
        e->stream = w->stream;
        if (w->stream)
            s->streams[w->stream].outstanding++;
        mailbox_shard__set_state(s, i, MAILBOX_LEASED);
        mailbox_wheel_add(&s->timers, i);
        mailbox_shard__wrote(s, mailbox_rec_put_lease(&s->group, t->id, &e->msg_id, e->attempt, e->tries),
                             true);
        out_entries[n++] = i;
    }
    return n;
}

bool mailbox_shard_has_ready(struct mailbox_shard *s, struct mailbox_topic *t)
{
    if (mailbox_shard_policy(s, t)->ordered && t->blocking)
        return false;
    return mailbox_shard__ready_head(s, t) != 0;
}

/* ---- checking ---- */

void mailbox_shard_check(const struct mailbox_shard *s)
{
    uint32_t count[MAILBOX_STATES] = {0}, live = 0, keyless = 0;
    uint64_t waiting = 0, keys = 0, seg_waiting = 0, seg_keys = 0;

    for (uint32_t i = 1; i < s->slabs.used; i++) {
        const struct mailbox_entry *e = ENTRY(s, i);
        if (e->state == MAILBOX_FREE)
            continue;
        live++;
        count[e->state]++;
        keyless += (e->flags & MAILBOX_F_KEYLESS) != 0;
        CHECK(mailbox_index_find(&s->by_id, e->msg_id.b) == i);
        CHECK((e->flags & MAILBOX_F_KEYLESS) || mailbox_index_find(&s->by_key, e->digest.b) == i);
        CHECK(e->state != MAILBOX_LEASED || e->attempt > 0);
        if (e->segment != MAILBOX_SEGMENT_PENDING) {
            waiting += e->state != MAILBOX_DONE;
            keys += e->state == MAILBOX_DONE;
        }
    }
    for (uint32_t k = 0; k < s->segment_n; k++) {
        seg_waiting += s->segment_use[k].waiting;
        seg_keys += s->segment_use[k].keys;
    }
    CHECK(live == s->slabs.live && live == s->by_id.n && live - keyless == s->by_key.n);
    CHECK(waiting == seg_waiting && keys == seg_keys);
    for (int st = MAILBOX_READY; st < MAILBOX_STATES; st++)
        CHECK(count[st] == s->count[st]);
    CHECK(s->timers.count == (uint64_t)count[MAILBOX_LEASED] + count[MAILBOX_DELAYED]);
    uint32_t by_topic[MAILBOX_STATES] = {0};
    for (uint32_t k = 1; k < s->topics.slots; k++) {
        const struct mailbox_topic *t = s->topics.slot[k];
        for (int st = 0; t && st < MAILBOX_STATES; st++)
            by_topic[st] += t->count[st];
    }
    for (int st = MAILBOX_READY; st < MAILBOX_STATES; st++)
        CHECK(by_topic[st] == s->count[st]);
}
