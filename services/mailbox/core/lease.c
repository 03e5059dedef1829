/* Receive: the next messages of a topic are put under a lease, with their record in the group. */
#include "services/mailbox/core/shard_internal.h"

bool mailbox_shard__outstayed(const struct mailbox_shard *s, const struct mailbox_entry *e)
{
    return s->now.mono_us - mailbox_entry_due(e) > (int64_t)s->rules->retention_ready_ms * 1000;
}

/*
 * The next message of the topic that may be delivered, taken out of its queue; what may not be goes to the DLQ. After a long stop, or
 * with another max_attempts, that is any number of them: a full group ends it, and has_ready says that there is more to look at.
 */
static uint32_t take_next(struct mailbox_shard *s, struct mailbox_topic *t, int64_t *room_bytes, bool first,
                          bool *fresh)
{
    for (;;) {
        uint32_t i = mailbox_shard__ready_head(s, t);
        if (!i)
            return 0;
        struct mailbox_entry *e = ENTRY(s, i);
        bool old = mailbox_shard__outstayed(s, e);
        if (old || e->tries >= mailbox_shard_policy(s, t)->max_attempts || e->attempt == UINT16_MAX) {
            if (mailbox_shard_group_full(s))
                return 0;
            mailbox_shard__ready_pop(s, t, i);
            mailbox_shard__fail(s, i, old ? MAILBOX_CAUSE_RETENTION : MAILBOX_CAUSE_LEASE_EXPIRED, STR(""),
                                MAILBOX_TO_DLQ, 0);
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
        uint32_t i = take_next(s, t, &room, n == 0 && !w->all_fit, &fresh);
        if (!i)
            break;
        struct mailbox_entry *e = ENTRY(s, i);
        e->attempt++;
        e->tries++;
        note_delivery(s, t, e, fresh);
        mailbox_entry_set_due(e, now.mono_us + w->visibility_us);
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

uint32_t mailbox_shard_first_ready(struct mailbox_shard *s, struct mailbox_topic *t)
{
    return mailbox_shard__ready_head(s, t);
}
