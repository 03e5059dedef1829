/*
 * What time alone does: leases end, delays end, keys are forgotten, messages and dead letters outstay their retention, and
 * idle topics are forgotten.
 */
#include "services/mailbox/core/shard_internal.h"

static void timer_due(void *ctx, uint32_t i)
{
    struct mailbox_shard *s = ctx;
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_topic *t = mailbox_shard__topic(s, e);

    if (e->state == MAILBOX_DELAYED) {
        if (e->flags & MAILBOX_F_AFTER_FAIL)
            mailbox_entry_set_due(e, mailbox_shard__ready_since_us(s, e));
        mailbox_shard__set_state(s, i, MAILBOX_READY);
        mailbox_shard__heap_push(s, t, i);
        mailbox_shard__mark_dirty(s, t);
        return;
    }
    CHECK(e->state == MAILBOX_LEASED);
    mailbox_shard__credit_back(s, i);
    mailbox_shard__stats(s, t)->lease_expired++;
    mailbox_shard__event(s, MAILBOX_EV_LEASE_EXPIRED, t, i, MAILBOX_CAUSE_LEASE_EXPIRED);
    bool dead = e->tries >= mailbox_shard_policy(s, t)->max_attempts;
    mailbox_shard__fail(s, i, MAILBOX_CAUSE_LEASE_EXPIRED, STR(""),
                        dead ? MAILBOX_TO_DLQ : MAILBOX_TO_READY, 0);
}

static void window_over(void *ctx, uint32_t i)
{
    mailbox_shard__free(ctx, i);
}

bool mailbox_shard_tick(struct mailbox_shard *s, struct mailbox_now now)
{
    s->now = now;
    bool more = mailbox_wheel_advance(&s->timers, now.mono_us, MAILBOX_TICK_BUDGET, timer_due, s);
    return mailbox_wheel_advance(&s->forget, now.mono_us, MAILBOX_TICK_BUDGET, window_over, s) || more;
}

int64_t mailbox_shard_next_due(const struct mailbox_shard *s)
{
    return mailbox_wheel_next_due(&s->timers);
}

static void retire_ready(struct mailbox_shard *s, struct mailbox_topic *t)
{
    for (int k = 0; k < 64; k++) {
        uint32_t i = mailbox_shard__ready_head(s, t);
        if (!i)
            return;
        if (!mailbox_shard__outstayed(s, ENTRY(s, i)))
            return;
        mailbox_shard__ready_pop(s, t, i);
        mailbox_shard__fail(s, i, MAILBOX_CAUSE_RETENTION, STR(""), MAILBOX_TO_DLQ, 0);
    }
}

static void retire_dead(struct mailbox_shard *s, struct mailbox_topic *t)
{
    for (int k = 0; k < 64 && t->dlq_head; k++) {
        uint32_t i = t->dlq_head;
        struct mailbox_entry *e = ENTRY(s, i);
        if ((int64_t)s->now.wall_ms - mailbox_entry_due(e) <= (int64_t)s->rules->retention_dlq_ms)
            return;
        mailbox_shard__dlq_remove(s, t, i);
        s->stats.purged[MAILBOX_CAUSE_RETENTION]++;
        s->stats.retired++;
        mailbox_shard__wrote(
            s, mailbox_rec_put_settle(&s->group, t->id, &e->msg_id, MAILBOX_SETTLE_RETENTION), false);
        mailbox_shard__to_done(s, i, false, false);
    }
}

static bool idle(const struct mailbox_shard *s, const struct mailbox_topic *t)
{
    for (int st = MAILBOX_READY; st < MAILBOX_STATES; st++)
        if (t->count[st])
            return false;
    if (t->waiters || t->dirty)
        return false;
    return t->id == 0 || (s->rules->topic_idle_ms != 0 &&
                          s->now.mono_us - t->idle_since_us > (int64_t)s->rules->topic_idle_ms * 1000);
}

/* At the end of a round what it found is what is known; the next one begins with nothing. */
static void round_ended(struct mailbox_shard *s)
{
    for (int c = 0; c < MAILBOX_CLASSES_MAX; c++) {
        s->oldest_ready_us[c] = s->oldest_so_far_us[c];
        s->oldest_so_far_us[c] = INT64_MAX;
    }
}

static void note_oldest(struct mailbox_shard *s, struct mailbox_topic *t)
{
    uint32_t head = mailbox_shard__ready_head(s, t);
    if (head && mailbox_entry_due(ENTRY(s, head)) < s->oldest_so_far_us[t->policy])
        s->oldest_so_far_us[t->policy] = mailbox_entry_due(ENTRY(s, head));
}

void mailbox_shard_retention(struct mailbox_shard *s, struct mailbox_now now, uint32_t n)
{
    s->now = now;
    for (; n > 0 && s->topics.slots > 1 && !s->readonly; n--) {
        if (mailbox_shard_group_full(s))
            return;
        if (++s->retention_at >= s->topics.slots) {
            s->retention_at = 1;
            round_ended(s);
        }
        struct mailbox_topic *t = s->topics.slot[s->retention_at];
        if (!t)
            continue;
        retire_ready(s, t);
        retire_dead(s, t);
        note_oldest(s, t);
        if (idle(s, t)) {
            if (t->id) {
                mailbox_shard__wrote(s, mailbox_rec_put_forget(&s->group, t->id), false);
                mailbox_shard__event(s, MAILBOX_EV_TOPIC_FORGOTTEN, t, 0, 0);
            }
            mailbox_topics_remove(&s->topics, t);
        }
    }
}
