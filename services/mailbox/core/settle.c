/*
 * Settling: ack, nack, extend, release, and the dead-letter queue's own moves.
 *
 * The fence decides first: a given attempt that is not the current one changes nothing, so a consumer that lost its lease
 * can neither finish nor fail the work of its successor.
 */
#include "services/mailbox/core/shard_internal.h"

static uint32_t covered(const struct mailbox_shard *s, const struct mailbox_fence *f)
{
    uint32_t i = mailbox_shard_find(s, &f->msg_id);
    if (i && f->covers && !f->covers(f->ctx, mailbox_topic_name(mailbox_shard_topic_of(s, i))))
        return 0; /* an id of a topic the token does not cover looks unknown */
    return i;
}

/* A settled message whose body is gone (DEDUP) no longer knows its attempt: then any token is as good as another. */
static bool stale(const struct mailbox_fence *f, const struct mailbox_entry *e, struct mailbox_settled *out)
{
    out->attempt = e->attempt;
    if (e->state == MAILBOX_DONE && e->attempt == 0)
        return false;
    return f->attempt != 0 && f->attempt != e->attempt;
}

void mailbox_shard__credit_back(struct mailbox_shard *s, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    if (!e->stream)
        return;
    struct mailbox_stream_slot *slot = &s->streams[e->stream];
    CHECK(slot->outstanding > 0);
    slot->outstanding--;
    if (slot->waiter) {
        slot->waiter->room++;
        slot->waiter->room_bytes += (int64_t)e->length64 * 64;
        if (slot->waiter->topic)
            mailbox_shard__mark_dirty(s, s->topics.slot[slot->waiter->topic]);
    }
    e->stream = 0;
}

/* Out of the wheel and, if it was leased, out of the stream's account. */
static void unlease(struct mailbox_shard *s, uint32_t i)
{
    mailbox_wheel_remove(&s->timers, i);
    mailbox_shard__credit_back(s, i);
}

enum err mailbox_shard_ack(struct mailbox_shard *s, struct mailbox_now now, const struct mailbox_fence *f,
                           struct mailbox_settled *out)
{
    s->now = now;
    uint32_t i = covered(s, f);
    if (!i)
        return ERR_NOT_FOUND;
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_topic *t = mailbox_shard__topic(s, e);
    if (e->state == MAILBOX_DONE && mailbox_entry_due(e) <= now.mono_us)
        return ERR_NOT_FOUND;
    if (stale(f, e, out)) {
        s->stats.stale_ack++;
        return ERR_STALE_ATTEMPT;
    }
    if (e->state == MAILBOX_DONE) {
        out->already = true;
        return e->flags & MAILBOX_F_ACKED ? ERR_OK : ERR_NOT_FOUND;
    }
    if (e->state == MAILBOX_DLQ)
        return ERR_DEAD_LETTERED;
    if (e->attempt == 0)
        return ERR_NOT_LEASED;
    bool in_heap = e->state == MAILBOX_READY;
    if (!in_heap)
        unlease(s, i);
    mailbox_shard__wrote(s, mailbox_rec_put_settle(&s->group, t->id, &e->msg_id, MAILBOX_SETTLE_ACK),
                         false);
    struct mailbox_class_stats *st = mailbox_shard__stats(s, t);
    st->acked++;
    st->attempts_at_ack[e->attempt < 16 ? e->attempt : 16]++;
    t->acked++;
    mailbox_shard__to_done(s, i, true, in_heap); /* may free the entry */
    mailbox_shard__mark_dirty(s, t);
    return ERR_OK;
}

static uint64_t backoff_ms(struct mailbox_shard *s, uint8_t tries)
{
    uint64_t most = s->rules->backoff_base_ms;
    for (uint8_t k = 1; k < tries && most < s->rules->backoff_max_ms; k++)
        most *= 2;
    if (most > s->rules->backoff_max_ms)
        most = s->rules->backoff_max_ms;
    return rng_below(&s->rng, most + 1);
}

void mailbox_shard__fail(struct mailbox_shard *s, uint32_t i, enum mailbox_cause cause, struct str reason,
                         enum mailbox_fail_to to, uint64_t delay_ms)
{
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_topic *t = mailbox_shard__topic(s, e);
    struct mailbox_rec_fail r = {
        .msg_id = e->msg_id,
        .at_ms = s->now.wall_ms,
        .not_before_ms = to == MAILBOX_TO_DELAYED ? s->now.wall_ms + delay_ms : 0,
        .attempt = e->attempt,
        .cause = (uint8_t)cause,
        .to = (uint8_t)to,
        .reason = str_of(reason.p, reason.n > MAILBOX_REASON_MAX ? MAILBOX_REASON_MAX : reason.n)};
    mailbox_shard__wrote(s, mailbox_rec_put_fail(&s->group, t->id, &r), false);
    struct mailbox_failure f = {.at_ms = s->now.wall_ms, .attempt = e->attempt, .cause = (uint8_t)cause};
    mailbox_failure_reason(&f, reason);
    if (mailbox_history_add(&s->history, i, &f))
        e->flags = (e->flags | MAILBOX_F_HISTORY) & 31;
    switch (to) {
    case MAILBOX_TO_READY:
        mailbox_entry_set_due(e, mailbox_shard__ready_since_us(s, e));
        mailbox_shard__set_state(s, i, MAILBOX_READY);
        mailbox_shard__heap_push(s, t, i);
        break;
    case MAILBOX_TO_DELAYED:
        e->flags = (e->flags | MAILBOX_F_AFTER_FAIL) & 31;
        mailbox_entry_set_due(e, s->now.mono_us + (int64_t)delay_ms * 1000);
        mailbox_shard__set_state(s, i, MAILBOX_DELAYED);
        mailbox_wheel_add(&s->timers, i);
        break;
    case MAILBOX_TO_DLQ:
        mailbox_entry_set_due(e, (int64_t)s->now.wall_ms);
        mailbox_shard__set_state(s, i, MAILBOX_DLQ);
        mailbox_shard__dlq_push(s, t, i);
        mailbox_shard__stats(s, t)->dlq[cause]++;
        mailbox_shard__event(s, MAILBOX_EV_DLQ_MOVED, t, i, (uint8_t)cause);
        break;
    }
    mailbox_shard__mark_dirty(s, t);
}

enum err mailbox_shard_nack(struct mailbox_shard *s, struct mailbox_now now, const struct mailbox_fence *f,
                            const struct mailbox_nack *n, struct mailbox_settled *out)
{
    s->now = now;
    uint32_t i = covered(s, f);
    if (!i)
        return ERR_NOT_FOUND;
    struct mailbox_entry *e = ENTRY(s, i);
    if (stale(f, e, out)) {
        s->stats.stale_nack++;
        return ERR_STALE_ATTEMPT;
    }
    if (e->state == MAILBOX_DLQ)
        return ERR_DEAD_LETTERED;
    if (e->state != MAILBOX_LEASED)
        return ERR_NOT_LEASED;
    struct mailbox_topic *t = mailbox_shard__topic(s, e);
    unlease(s, i);
    mailbox_shard__stats(s, t)->nacked++;
    out->dead = n->dead || e->tries >= mailbox_shard_policy(s, t)->max_attempts;
    out->delay_ms = out->dead ? 0 : n->use_delay ? n->delay_ms : backoff_ms(s, e->tries);
    mailbox_shard__fail(s, i, n->dead ? MAILBOX_CAUSE_DEAD : MAILBOX_CAUSE_NACK, n->reason,
                        out->dead ? MAILBOX_TO_DLQ : MAILBOX_TO_DELAYED, out->delay_ms);
    return ERR_OK;
}

enum err mailbox_shard_extend(struct mailbox_shard *s, struct mailbox_now now,
                              const struct mailbox_fence *f, int64_t visibility_us,
                              struct mailbox_settled *out)
{
    s->now = now;
    uint32_t i = covered(s, f);
    if (!i)
        return ERR_NOT_FOUND;
    struct mailbox_entry *e = ENTRY(s, i);
    if (stale(f, e, out)) {
        s->stats.stale_extend++;
        return ERR_STALE_ATTEMPT;
    }
    if (e->state == MAILBOX_DLQ)
        return ERR_DEAD_LETTERED;
    if (e->state != MAILBOX_LEASED)
        return ERR_NOT_LEASED;
    mailbox_wheel_remove(&s->timers, i);
    mailbox_entry_set_due(e, now.mono_us + visibility_us);
    mailbox_wheel_add(&s->timers, i);
    return ERR_OK;
}

enum err mailbox_shard_release(struct mailbox_shard *s, struct mailbox_now now, const struct uuid *id,
                               uint16_t attempt)
{
    s->now = now;
    uint32_t i = mailbox_shard_find(s, id);
    if (!i)
        return ERR_NOT_FOUND;
    struct mailbox_entry *e = ENTRY(s, i);
    if (e->state != MAILBOX_LEASED || e->attempt != attempt)
        return ERR_NOT_LEASED;
    struct mailbox_topic *t = mailbox_shard__topic(s, e);
    unlease(s, i);
    if (e->tries >= mailbox_shard_policy(s, t)->max_attempts) {
        mailbox_shard__fail(s, i, MAILBOX_CAUSE_LEASE_EXPIRED, STR("released"), MAILBOX_TO_DLQ, 0);
        return ERR_OK;
    }
    mailbox_entry_set_due(e, mailbox_shard__ready_since_us(s, e));
    mailbox_shard__set_state(s, i, MAILBOX_READY);
    mailbox_shard__heap_push(s, t, i);
    mailbox_shard__mark_dirty(s, t);
    return ERR_OK;
}

void mailbox_shard_integrity(struct mailbox_shard *s, struct mailbox_now now, uint32_t i)
{
    s->now = now;
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_topic *t = mailbox_shard__topic(s, e);
    CHECK(e->state == MAILBOX_LEASED);
    unlease(s, i);
    mailbox_shard__event(s, MAILBOX_EV_INTEGRITY_FAIL, t, i, MAILBOX_CAUSE_INTEGRITY);
    bool dead = e->tries >= mailbox_shard_policy(s, t)->max_attempts;
    mailbox_shard__fail(s, i, MAILBOX_CAUSE_INTEGRITY, STR(""), dead ? MAILBOX_TO_DLQ : MAILBOX_TO_DELAYED,
                        dead ? 0 : backoff_ms(s, e->tries));
}

static uint8_t last_cause(const struct mailbox_shard *s, uint32_t i)
{
    const struct mailbox_failures *h = mailbox_history_get(&s->history, i);
    return h && h->n ? h->f[h->n - 1].cause : MAILBOX_CAUSE_NACK;
}

enum err mailbox_shard_reprocess(struct mailbox_shard *s, struct mailbox_now now, const struct uuid *id,
                                 uint64_t delay_ms)
{
    s->now = now;
    uint32_t i = mailbox_shard_find(s, id);
    if (!i || ENTRY(s, i)->state != MAILBOX_DLQ)
        return ERR_NOT_FOUND;
    CHECK(!s->readonly);
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_topic *t = mailbox_shard__topic(s, e);
    mailbox_shard__dlq_remove(s, t, i);
    e->tries = 0;
    e->flags = (e->flags | MAILBOX_F_LATE) & 31;
    s->stats.reprocessed[last_cause(s, i)]++;
    mailbox_shard__wrote(
        s, mailbox_rec_put_reproc(&s->group, t->id, &e->msg_id, delay_ms ? now.wall_ms + delay_ms : 0),
        true);
    mailbox_entry_set_due(e, now.mono_us + (int64_t)delay_ms * 1000);
    if (delay_ms) {
        mailbox_shard__set_state(s, i, MAILBOX_DELAYED);
        mailbox_wheel_add(&s->timers, i);
    } else {
        mailbox_shard__set_state(s, i, MAILBOX_READY);
        mailbox_shard__heap_push(s, t, i);
        mailbox_shard__mark_dirty(s, t);
    }
    return ERR_OK;
}

enum err mailbox_shard_purge(struct mailbox_shard *s, struct mailbox_now now, const struct uuid *id)
{
    s->now = now;
    uint32_t i = mailbox_shard_find(s, id);
    if (!i || ENTRY(s, i)->state != MAILBOX_DLQ)
        return ERR_NOT_FOUND;
    CHECK(!s->readonly);
    struct mailbox_topic *t = mailbox_shard_topic_of(s, i);
    mailbox_shard__dlq_remove(s, t, i);
    s->stats.purged[last_cause(s, i)]++;
    mailbox_shard__wrote(s, mailbox_rec_put_settle(&s->group, t->id, id, MAILBOX_SETTLE_PURGE), true);
    mailbox_shard__to_done(s, i, false, false);
    return ERR_OK;
}
