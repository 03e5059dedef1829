/* Send: one message per key, its number and link, its record in the group. */
#include "services/mailbox/core/shard_internal.h"

/* The live entry of this key, or 0; an entry whose window has just ended gives the key up. */
static uint32_t find_key(struct mailbox_shard *s, const struct mailbox_digest *d)
{
    uint32_t i = mailbox_index_find(&s->by_key, d->b);
    if (!i)
        return 0;
    struct mailbox_entry *e = ENTRY(s, i);
    if (e->state != MAILBOX_DONE || mailbox_entry_due(e) > s->now.mono_us)
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

static enum err topic_for_send(struct mailbox_shard *s, const struct mailbox_send *in,
                               struct mailbox_sent *out, struct mailbox_topic **out_topic)
{
    struct mailbox_topic *t = mailbox_topics_find(&s->topics, in->topic_hash, in->topic);
    if (t && t->id) {
        *out_topic = t;
        return ERR_OK;
    }
    struct mailbox_tenant *tenant = mailbox_tenants_get(&s->tenants, in->tenant);
    if (!tenant)
        return ERR_NO_MEMORY;
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
    t->tenant = tenant;
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
    s->pending[s->pending_n++] = (struct mailbox_pending){i, (uint32_t)at, in->digest};
    t->chain = out->chain;
}

/* An entry with its id, in both indexes. On failure nothing is left of it. */
static enum err new_entry(struct mailbox_shard *s, const struct mailbox_topic *t,
                          const struct mailbox_digest *d, uint64_t ts_ms, uint32_t *out_entry)
{
    uint32_t i;
    enum err err = mailbox_slabs_alloc(&s->slabs, &i);
    if (err != ERR_OK)
        return err;
    struct mailbox_entry *e = ENTRY(s, i);
    e->msg_id = fresh_id(s, ts_ms, t->bucket);
    memcpy(e->digest, d->b, sizeof e->digest);
    e->topic = t->slot;
    e->topic_seq = (t->topic_seq + 1) & MAILBOX_SEQ_MAX;
    e->accept_ms32 = (uint32_t)(uint64_t)(s->now.mono_us / 1000);
    e->segment = MAILBOX_SEGMENT_PENDING;
    if ((err = mailbox_index_add(&s->by_id, i)) == ERR_OK &&
        (err = mailbox_index_add(&s->by_key, i)) != ERR_OK)
        mailbox_index_remove(&s->by_id, i);
    if (err != ERR_OK) {
        e->state = MAILBOX_READY; /* only so that the slab takes it back */
        mailbox_slabs_free(&s->slabs, i);
        return err;
    }
    *out_entry = i;
    return ERR_OK;
}

static void make_available(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i, uint64_t delay_ms)
{
    struct mailbox_entry *e = ENTRY(s, i);
    mailbox_entry_set_due(e, s->now.mono_us + (int64_t)delay_ms * 1000);
    if (delay_ms) {
        e->flags = MAILBOX_F_LATE;
        mailbox_shard__set_state(s, i, MAILBOX_DELAYED);
        mailbox_wheel_add(&s->timers, i);
        return;
    }
    mailbox_shard__set_state(s, i, MAILBOX_READY);
    mailbox_shard__fifo_push(s, t, i);
    mailbox_shard__mark_dirty(s, t);
}

static struct mailbox_sent sent_before(struct mailbox_shard *s, uint32_t i)
{
    const struct mailbox_entry *e = ENTRY(s, i);
    mailbox_shard__stats(s, mailbox_shard__topic(s, e))->duplicates++;
    return (struct mailbox_sent){.duplicate = true,
                                 .entry = i,
                                 .msg_id = e->msg_id,
                                 .topic_seq = e->topic_seq,
                                 .ts_ms = mailbox_id_ts_ms(&e->msg_id)};
}

bool mailbox_shard_sent(struct mailbox_shard *s, struct mailbox_now now, const struct mailbox_digest *d,
                        struct mailbox_sent *out_sent)
{
    s->now = now;
    uint32_t i = find_key(s, d);
    if (!i || ENTRY(s, i)->segment == MAILBOX_SEGMENT_PENDING)
        return false;
    *out_sent = sent_before(s, i);
    return true;
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
        *out_sent = sent_before(s, i);
        return ERR_OK;
    }
    if (in->over_quota || s->no_room || s->slabs.live >= s->rules->index_max) {
        out_sent->refusal = in->over_quota ? MAILBOX_REFUSED_QUOTA
                            : s->no_room   ? MAILBOX_REFUSED_DISK
                                           : MAILBOX_REFUSED_MESSAGES;
        return ERR_BUSY;
    }
    out.ts_ms = now.wall_ms > s->last_ts_ms ? now.wall_ms : s->last_ts_ms;
    enum err err = mailbox_shard__pending_reserve(s);
    if (err == ERR_OK)
        err = topic_for_send(s, in, out_sent, &t);
    if (err == ERR_OK)
        err = new_entry(s, t, &in->digest, out.ts_ms, &i);
    if (err != ERR_OK)
        return err;

    mailbox_shard__name_topic(s, t);
    s->last_ts_ms = out.ts_ms;
    t->topic_seq++;
    t->enqueued++;
    t->last_send_ms = out.ts_ms;
    uint64_t delay_ms = in->deliver_at_ms > now.wall_ms ? in->deliver_at_ms - now.wall_ms : in->delay_ms;
    append_enq(s, t, in, i, delay_ms ? now.wall_ms + delay_ms : 0, &out);
    make_available(s, t, i, delay_ms);
    mailbox_shard__stats(s, t)->enqueued++;
    out.entry = i;
    out.msg_id = ENTRY(s, i)->msg_id;
    out.topic_seq = ENTRY(s, i)->topic_seq;
    *out_sent = out;
    return ERR_OK;
}
