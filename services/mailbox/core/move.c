/*
 * Moving: a live message is written again at the end of the journal so that the segment it came from can go, or at the end
 * of another shard's journal so that its bucket can (the state there does not change: whoever opens that journal next has it).
 */
#include "services/mailbox/core/shard_internal.h"

uint64_t mailbox_shard_due_wall_ms(const struct mailbox_shard *s, uint32_t i)
{
    const struct mailbox_entry *e = ENTRY(s, i);
    if (e->state == MAILBOX_DLQ)
        return (uint64_t)mailbox_entry_due(e);
    if (e->state != MAILBOX_DELAYED)
        return 0;
    int64_t ahead_ms = (mailbox_entry_due(e) - s->now.mono_us) / 1000;
    return (uint64_t)((int64_t)s->now.wall_ms + (ahead_ms > 0 ? ahead_ms : 0));
}

/* The whole digest of a key: a copy of a settled message carries it, any other record has what it is made from. */
static struct mailbox_digest digest_of(const struct mailbox_topic *t, const struct mailbox_rec *body)
{
    struct mailbox_digest d;
    if (body->type == MAILBOX_REC_DEDUP)
        return body->dedup.digest;
    mailbox_dedup_digest(mailbox_topic_name(t), body->enq.idem_key, &d);
    return d;
}

static void note_pending(struct mailbox_shard *s, uint32_t i, size_t at, size_t length,
                         const struct mailbox_digest *d)
{
    mailbox_shard__set_place(s, i, MAILBOX_SEGMENT_PENDING, (uint32_t)(at / 8),
                             (uint32_t)((length + 63) / 64));
    s->pending[s->pending_n++] = (struct mailbox_pending){i, (uint32_t)at, *d};
}

static void put_history(struct mailbox_shard *to, uint32_t topic_id, const struct mailbox_shard *s,
                        uint32_t i)
{
    const struct mailbox_entry *e = ENTRY(s, i);
    const struct mailbox_failures *h = mailbox_history_get(&s->history, i);
    for (uint8_t k = 0; h && k < h->n; k++) {
        bool current = k + 1 == h->n;
        struct mailbox_rec_fail r = {.msg_id = e->msg_id,
                                     .at_ms = h->f[k].at_ms,
                                     .attempt = h->f[k].attempt,
                                     .cause = h->f[k].cause,
                                     .reason = str_of(h->f[k].reason, h->f[k].reason_len)};
        r.to = current && e->state == MAILBOX_DLQ ? MAILBOX_TO_DLQ : MAILBOX_TO_READY;
        if (current && e->state == MAILBOX_DELAYED && (e->flags & MAILBOX_F_AFTER_FAIL)) {
            r.to = MAILBOX_TO_DELAYED;
            r.not_before_ms = mailbox_shard_due_wall_ms(s, i);
        }
        if (!current && r.attempt == e->attempt)
            continue; /* two causes of one attempt: the last one says where it went */
        mailbox_shard__wrote(to, mailbox_rec_put_fail(&to->group, topic_id, &r), true);
    }
}

/* The record of entry i of `s`, MOVE or DEDUP, at the end of the group of `to`; its history is put after it. */
static void put_copy(struct mailbox_shard *to, uint32_t topic_id, const struct mailbox_shard *s, uint32_t i,
                     const struct mailbox_rec *body, const struct mailbox_digest *digest)
{
    const struct mailbox_entry *e = ENTRY(s, i);
    if (e->state != MAILBOX_DONE) {
        bool told = body->enq.not_before_ms || e->attempt > e->tries;
        const struct mailbox_failures *h = mailbox_history_get(&s->history, i);
        struct mailbox_rec_move m = {.attempt = e->attempt,
                                     .tries = e->tries,
                                     .state = (uint8_t)e->state,
                                     .late = (e->flags & MAILBOX_F_LATE) && !told,
                                     .due_ms = mailbox_shard_due_wall_ms(s, i),
                                     .cut = h && h->truncated};
        mailbox_shard__wrote(to, mailbox_rec_put_move(&to->group, topic_id, &m, &body->enq), true);
        return;
    }
    bool dedup = body->type == MAILBOX_REC_DEDUP;
    struct mailbox_rec_dedup d = {.digest = *digest,
                                  .msg_id = e->msg_id,
                                  .topic_seq = e->topic_seq,
                                  .ts_ms = mailbox_id_ts_ms(&e->msg_id),
                                  .payload_hash = dedup ? body->dedup.payload_hash : body->enq.payload_hash,
                                  .chain = dedup ? body->dedup.chain : body->enq.chain};
    mailbox_shard__wrote(to, mailbox_rec_put_dedup(&to->group, topic_id, &d), true);
}

enum err mailbox_shard_reappend(struct mailbox_shard *s, struct mailbox_now now, uint32_t i,
                                const struct mailbox_rec *body)
{
    const struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_topic *t = mailbox_shard__topic(s, e);
    CHECK(!s->readonly && !mailbox_shard_group_full(s));
    s->now = now;
    if (e->state == MAILBOX_DONE && mailbox_entry_due(e) <= now.mono_us) {
        /* A ghost: its window is over, its key may be another message's by now. Nothing of it has to be kept. */
        mailbox_shard__set_place(s, i, MAILBOX_SEGMENT_PENDING, 0, 0);
        return ERR_OK;
    }
    enum err room = mailbox_shard__pending_reserve(s);
    if (room != ERR_OK)
        return room;
    mailbox_shard__name_topic(s, t);
    size_t at = s->group.n;
    struct mailbox_digest digest = digest_of(t, body);
    put_copy(s, t->id, s, i, body, &digest);
    note_pending(s, i, at, s->group.n - at, &digest);
    if (e->state != MAILBOX_DONE)
        put_history(s, t->id, s, i);
    return ERR_OK;
}

void mailbox_shard_reappend_topic(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t segment)
{
    CHECK(!s->readonly);
    if (t->id && t->scope >> 32 <= segment)
        mailbox_shard__name_topic(s, t);
}

void mailbox_shard_adopt_bucket(struct mailbox_shard *s, uint16_t bucket)
{
    mailbox_shard__wrote(s, mailbox_rec_put_adopt(&s->group, bucket), true);
}

void mailbox_shard_adopt_topic(struct mailbox_shard *s, const struct mailbox_topic *t, uint32_t *id)
{
    if (*id == 0)
        *id = s->topics.next_id++;
    mailbox_shard__put_topic(s, *id, t);
}

void mailbox_shard_adopt(struct mailbox_shard *s, uint32_t topic_id, const struct mailbox_shard *from,
                         uint32_t i, const struct mailbox_rec *body)
{
    CHECK(!s->readonly && !mailbox_shard_group_full(s));
    struct mailbox_digest digest = digest_of(mailbox_shard__topic(from, ENTRY(from, i)), body);
    put_copy(s, topic_id, from, i, body, &digest);
    if (ENTRY(from, i)->state != MAILBOX_DONE)
        put_history(s, topic_id, from, i);
}
