/* Operator jobs inside a shard: pages of dead letters and topics, reprocessing and purging by id. */
#include <stdlib.h>

#include "services/mailbox/tasks/worker_internal.h"

static bool dead_matches(const struct mailbox_shard *s, uint32_t i, const struct mailbox_dlq *q)
{
    const struct mailbox_entry *e = mailbox_shard_entry(s, i);
    const struct mailbox_failures *h = mailbox_history_get(&s->history, i);
    const struct mailbox_failure *last = h && h->n ? &h->f[h->n - 1] : NULL;
    if (q->before_ms && (uint64_t)mailbox_entry_due(e) >= q->before_ms)
        return false;
    if (q->cause && (!last || last->cause != q->cause))
        return false;
    if (q->reason_len)
        return last && memmem(last->reason, last->reason_len, q->reason, q->reason_len);
    return true;
}

static struct mailbox_failures *copy_history(const struct mailbox_failures *h)
{
    size_t n = h ? sizeof *h + h->n * sizeof h->f[0] : 0;
    struct mailbox_failures *c = h ? malloc(n) : NULL;
    if (c)
        memcpy(c, h, n);
    return c;
}

static void list_dead(const struct mailbox_shard *s, uint32_t i, struct mailbox_dlq *q)
{
    const struct mailbox_entry *e = mailbox_shard_entry(s, i);
    q->got[q->n++] = (struct mailbox_dead){.id = e->msg_id,
                                           .topic_seq = e->topic_seq,
                                           .moved_ms = (uint64_t)mailbox_entry_due(e),
                                           .segment = e->segment,
                                           .offset8 = e->offset8,
                                           .length64 = e->length64,
                                           .attempt = e->attempt,
                                           .history = copy_history(mailbox_history_get(&s->history, i))};
}

/* A dead letter of this topic, or 0: an id says which shard, a capability which topic, and what is another topic's is as good as not there. */
static uint32_t find_dead(const struct mailbox_shard *s, const struct mailbox_topic *t,
                          const struct uuid *id)
{
    uint32_t i = mailbox_shard_find(s, id);
    return i && mailbox_shard_entry(s, i)->state == MAILBOX_DLQ && mailbox_shard_topic_of(s, i) == t ? i
                                                                                                     : 0;
}

/* How many dead letters one job looks at: what does not fit a selection costs time, too, and others wait meanwhile. */
enum { LOOK_AT_DEAD = 8192 };

static void dlq_page(struct mailbox_lane *l, struct mailbox_dlq *q)
{
    struct mailbox_shard *s = &l->shard;
    struct mailbox_topic *t = mailbox_topics_find(&s->topics, &q->topic_hash, q->topic);
    if (!t || !t->id)
        return;
    q->found = true;
    q->count = t->count[MAILBOX_DLQ];
    for (uint32_t k = 0; k < q->ids_n && q->n < q->limit; k++) {
        uint32_t i = find_dead(s, t, &q->ids[k]);
        if (i && dead_matches(s, i, q))
            list_dead(s, i, q);
    }
    if (q->ids_n)
        return;
    uint32_t after = q->has_after ? find_dead(s, t, &q->after) : 0, looks = 0;
    for (uint32_t i = after ? mailbox_shard_entry(s, after)->right : t->dlq_head; i;
         i = mailbox_shard_entry(s, i)->right) {
        bool matches = dead_matches(s, i, q);
        q->more = looks++ == LOOK_AT_DEAD || (matches && q->n == q->limit);
        if (q->more)
            return;
        if (matches)
            list_dead(s, i, q);
        q->last = mailbox_shard_entry(s, i)->msg_id;
    }
}

static void move_dead(struct mailbox_lane *l, struct mailbox_now now, enum mailbox_job_kind kind,
                      struct mailbox_dlq *q)
{
    struct mailbox_shard *s = &l->shard;
    const struct mailbox_topic *t = mailbox_topics_find(&s->topics, &q->topic_hash, q->topic);
    for (uint32_t k = 0; k < q->ids_n; k++) {
        if (!find_dead(s, t, &q->ids[k]))
            continue;
        enum err e = kind == MAILBOX_JOB_PURGE ? mailbox_shard_purge(s, now, &q->ids[k])
                                               : mailbox_shard_reprocess(s, now, &q->ids[k], q->delay_ms);
        q->moved += e == ERR_OK;
    }
}

/* Whether something of the topic is due soon is worth so many looks; in a list there are many topics to look for. */
enum { LOOK_FOR_ONE = 65536, LOOK_IN_LIST = 256 };

static void fill_topic(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_topic *t,
                       uint32_t look, struct mailbox_topic_info *o)
{
    struct mailbox_shard *s = &l->shard;
    struct str name = mailbox_topic_name(t);
    memset(o, 0, sizeof *o);
    memcpy(o->name, name.p, name.n);
    o->name_len = (uint16_t)name.n;
    o->shard = l->no;
    o->ready = t->count[MAILBOX_READY];
    o->delayed = t->count[MAILBOX_DELAYED];
    o->leased = t->count[MAILBOX_LEASED];
    o->dlq = t->count[MAILBOX_DLQ];
    o->waiters = t->waiting - t->streams;
    o->streams = t->streams;
    uint32_t head = mailbox_shard_first_ready(s, t);
    if (head) {
        int64_t waits_us = now.mono_us - mailbox_entry_due(mailbox_shard_entry(s, head));
        o->has_ready = true;
        o->oldest_ready_s = waits_us > 0 ? (uint64_t)waits_us / 1000000 : 0;
    }
    int64_t due = o->delayed + o->leased ? mailbox_wheel_next_due_of(&s->timers, t->slot, look) : INT64_MAX;
    if (due != INT64_MAX) {
        o->has_due = true;
        o->next_due_ms = due > now.mono_us ? (uint64_t)(due - now.mono_us + 999) / 1000 : 0;
    }
    o->enqueued = t->enqueued;
    o->acked = t->acked;
    o->redelivered = t->redelivered;
    o->last_send_ms = t->last_send_ms;
    o->topic_seq = t->topic_seq;
    o->chain_id = t->chain_id;
    o->chain = t->chain;
    o->topic_id = t->id;
    o->incarnation = atomic_load(&l->incarnation);
    const struct mailbox_policy *p = mailbox_shard_policy(s, t);
    memcpy(o->policy.class_name, p->class_name, sizeof o->policy.class_name);
    o->policy.t_replay_ms = p->t_replay_ms;
    o->policy.default_visibility_ms = p->default_visibility_ms;
    o->policy.max_attempts = p->max_attempts;
    o->policy.ordered = p->ordered;
}

static void list_topics(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_topics_query *q)
{
    struct mailbox_topics *ts = &l->shard.topics;
    if (q->exact.n) {
        struct mailbox_topic *t = mailbox_topics_find(ts, &q->exact_hash, q->exact);
        if (t && t->id)
            fill_topic(l, now, t, LOOK_FOR_ONE, &q->got[q->n++]);
        return;
    }
    bool inclusive = str_cmp(q->prefix, q->after) > 0;
    struct str from = inclusive ? q->prefix : q->after;
    struct mailbox_topic *t;
    while (q->n < q->limit && (t = mailbox_topics_after(ts, from, inclusive)) &&
           str_starts(mailbox_topic_name(t), q->prefix)) {
        struct str name = mailbox_topic_name(t);
        if (!auth_covers_next(q->cap, AUTH_CV_TOPIC, name, &from))
            break;
        inclusive =
            !str_eq(from, name); /* what is not covered is left out at once: others wait meanwhile */
        if (!inclusive && t->id)
            fill_topic(l, now, t, LOOK_IN_LIST, &q->got[q->n++]);
    }
}

void mailbox_worker__operate(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_job *j)
{
    switch (j->kind) {
    case MAILBOX_JOB_DLQ_PAGE:
        dlq_page(l, j->dlq);
        break;
    case MAILBOX_JOB_REPROCESS:
    case MAILBOX_JOB_PURGE:
        if (!l->roomy) {
            mailbox_worker__refuse(j, ERR_UNAVAILABLE, MAILBOX_WHY_DISK_FULL);
            return;
        }
        move_dead(l, now, j->kind, j->dlq);
        break;
    case MAILBOX_JOB_TOPICS:
        list_topics(l, now, j->topics);
        break;
    case MAILBOX_JOB_SEND:
    case MAILBOX_JOB_RECV:
    case MAILBOX_JOB_RECV_LEAVE:
    case MAILBOX_JOB_STREAM:
    case MAILBOX_JOB_STREAM_CLOSE:
    case MAILBOX_JOB_ACK:
    case MAILBOX_JOB_NACK:
    case MAILBOX_JOB_EXTEND:
    case MAILBOX_JOB_RELEASE:
        UNREACHABLE();
    }
    if (l->roomy)
        mailbox_worker__hold(l, j);
    else
        mailbox_job_done(j); /* who only looks does not wait for a disk that is full */
}
