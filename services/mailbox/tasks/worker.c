/*
 * The worker: the only writer of its shard's state and files. One turn of its loop:
 *
 *   1. take the ticks and up to 512 jobs, waiting no longer than the next thing due
 *   2. let time pass in the core: expire leases, wake delayed messages
 *   3. settlements: apply and answer at once; their records wait for the next group (at most lazy_flush)
 *   4. sends and receives, by fair share over topics, until the group is full
 *   5. parked receives and streams: messages of this very group may go out with it
 *   6. one operator job
 *   7. write the group if something in it must be durable, or has waited long enough
 *   8. answer what the group made durable
 *
 * Everything between two turns lies in the lane, so a worker that is restarted goes on where the last one stopped, and a job
 * that was taken is answered by its successor.
 */
#include <stdlib.h>

#include "base/check.h"
#include "services/mailbox/mailbox.h"

enum { IDLE_WAIT_MS = 250, SHARED_WAIT_MS = 2, RETENTION_TOPICS_PER_S = 1000 };

static void hold(struct mailbox_lane *l, struct mailbox_job *j)
{
    j->next = NULL;
    *l->held_end = j;
    l->held_end = &j->next;
}

static void refuse(struct mailbox_job *j, enum err e, enum mailbox_why why)
{
    j->err = e;
    j->why = why;
    mailbox_job_done(j);
}

static uint32_t leases_left(struct mailbox_lane *l)
{
    struct mailbox *mb = l->mb;
    uint64_t used = l->shard.count[MAILBOX_LEASED], most = mailbox_config(mb)->global_inflight;
    for (uint16_t i = 0; i < mb->shards; i++)
        if (i != l->no)
            used += atomic_load_explicit(&mb->lanes[i].count[MAILBOX_LEASED], memory_order_relaxed);
    return used >= most ? 0 : (uint32_t)(most - used);
}

/* ---- sends ---- */

/* The original's body decides: the same payload is a duplicate, another is a conflict. */
static void check_duplicate(struct mailbox_lane *l, struct mailbox_send_item *it) RT_BLOCKS
{
    const struct mailbox_entry *e = mailbox_shard_entry(&l->shard, it->sent.entry);
    struct mailbox_rec r;
    enum err err = mailbox_log_read(&l->log, e->segment, e->offset8, e->length64, l->read_buffer, &r);
    if (err != ERR_OK)
        return; /* the original's bytes are gone or bad: its id is still the right answer */
    bool dedup = r.type == MAILBOX_REC_DEDUP;
    it->sent.chain = dedup ? r.dedup.chain : r.enq.chain;
    it->has_chain = true;
    if (!sha256_eq(dedup ? &r.dedup.payload_hash : &r.enq.payload_hash, &it->in.payload_hash))
        it->err = ERR_IDEM_CONFLICT;
}

static void send_one(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_send_item *it) RT_BLOCKS
{
    it->err = mailbox_shard_send(&l->shard, now, &it->in, &it->sent);
    if (it->err == ERR_OK && it->sent.duplicate)
        check_duplicate(l, it);
    else if (it->err == ERR_OK)
        it->has_chain = true;
    else if (it->err == ERR_BUSY)
        it->why = it->sent.refusal == MAILBOX_REFUSED_TOPICS ? MAILBOX_WHY_TOPICS : MAILBOX_WHY_MESSAGES;
}

/* ---- receives ---- */

static bool push_body(struct mailbox_recv *rv, uint8_t *body)
{
    if (rv->bodies_n == rv->bodies_cap) {
        uint32_t cap = rv->bodies_cap ? rv->bodies_cap * 2 : 4;
        uint8_t **wider = realloc(rv->bodies, cap * sizeof *wider);
        if (!wider)
            return false;
        rv->bodies = wider;
        rv->bodies_cap = cap;
    }
    rv->bodies[rv->bodies_n++] = body;
    return true;
}

static bool push_delivery(struct mailbox_recv *rv, const struct mailbox_delivery *d)
{
    if (rv->n == rv->cap) {
        uint32_t cap = rv->cap ? rv->cap * 2 : 4;
        struct mailbox_delivery *wider = realloc(rv->got, cap * sizeof *wider);
        if (!wider)
            return false;
        rv->got = wider;
        rv->cap = cap;
    }
    rv->got[rv->n++] = *d;
    return true;
}

/* Reads one leased body; false when it was withheld or given back. */
static bool read_leased(struct mailbox_lane *l, struct mailbox_now now, uint32_t entry,
                        int64_t visibility_us, uint8_t *into, struct mailbox_delivery *out,
                        bool *withheld) RT_BLOCKS
{
    const struct mailbox_entry *e = mailbox_shard_entry(&l->shard, entry);
    struct mailbox_rec r;
    enum err err = mailbox_log_read(&l->log, e->segment, e->offset8, e->length64, into, &r);
    if (err == ERR_OK && (r.type == MAILBOX_REC_DEDUP || !mailbox_id_eq(&r.enq.msg_id, &e->msg_id)))
        err = ERR_INTEGRITY;
    if (err == ERR_OK) {
        *out = (struct mailbox_delivery){r.enq, e->attempt, (uint32_t)(visibility_us / 1000)};
        return true;
    }
    obs_log(svc_log(l->mb->svc), OBS_ERROR, "integrity.fail", OBS_U64("shard", l->no),
            OBS_U64("segment", e->segment), OBS_U64("byte", (uint64_t)e->offset8 * 8), OBS_ERR(err),
            OBS_END);
    *withheld = true;
    mailbox_shard_integrity(&l->shard, now, entry);
    return false;
}

static void deliver(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_recv *rv,
                    const uint32_t *entries, uint32_t n) RT_BLOCKS
{
    size_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += (size_t)mailbox_shard_entry(&l->shard, entries[i])->length64 * 64;
    uint8_t *body = n ? malloc(total) : NULL;
    if (n && (!body || !push_body(rv, body))) {
        free(body);
        body = NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct mailbox_entry *e = mailbox_shard_entry(&l->shard, entries[i]);
        size_t bytes = (size_t)e->length64 * 64;
        struct mailbox_delivery d;
        struct uuid id = e->msg_id;
        uint16_t attempt = e->attempt;
        bool ok = body && read_leased(l, now, entries[i], rv->visibility_us, body, &d, &rv->withheld);
        if (body && !ok) {
            body += bytes;
            continue;
        }
        if (!ok || !push_delivery(rv, &d)) {
            if (mailbox_shard_release(&l->shard, now, &id, attempt) !=
                ERR_OK) /* no memory: back to the others */
                UNREACHABLE();
            continue;
        }
        body += bytes;
    }
}

static void uncount(struct mailbox_job *j)
{
    if (j->counted) {
        j->counted = false;
        atomic_fetch_sub(&j->lane->jobs, 1);
    }
}

static void park(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_job *j)
{
    struct mailbox_recv *rv = j->recv;
    struct mailbox_topic *t;
    enum err e =
        l->shard.waiters - l->shard.open_streams >= mailbox_config(l->mb)->max_waiters ? ERR_BUSY : ERR_OK;
    if (e == ERR_OK)
        e = mailbox_shard_topic_to_wait(&l->shard, &rv->topic_hash, rv->topic, &t);
    if (e == ERR_OK) {
        rv->deadline_us = now.mono_us + rv->wait_ms * 1000;
        e = heap_push(&l->parked, &rv->deadline_node);
    }
    if (e != ERR_OK) {
        refuse(j, ERR_BUSY, MAILBOX_WHY_WAITERS);
        return;
    }
    uncount(j); /* parked, it holds no place */
    rv->parked = true;
    rv->waiter.room = rv->max;
    rv->waiter.room_bytes = rv->max_bytes;
    rv->waiter.visibility_us = rv->visibility_us;
    mailbox_shard_wait(&l->shard, t, &rv->waiter);
}

static void unpark(struct mailbox_lane *l, struct mailbox_recv *rv)
{
    mailbox_shard_leave(&l->shard, &rv->waiter);
    heap_remove(&l->parked, &rv->deadline_node);
    rv->parked = false;
}

static struct mailbox_job *job_of_recv(struct mailbox_recv *rv)
{
    return rv->waiter_owner;
}

static void recv_one(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_job *j) RT_BLOCKS
{
    struct mailbox_recv *rv = j->recv;
    struct mailbox_topic *t = mailbox_topics_find(&l->shard.topics, &rv->topic_hash, rv->topic);
    uint32_t got[256], n = 0, left = leases_left(l);
    rv->waiter_owner = j;
    if (t && rv->visibility_us == 0)
        rv->visibility_us = (int64_t)mailbox_shard_policy(&l->shard, t)->default_visibility_ms * 1000;
    else if (rv->visibility_us == 0)
        rv->visibility_us = mailbox_config(l->mb)->default_visibility * 1000;
    if (t && left == 0 && mailbox_shard_has_ready(&l->shard, t)) {
        refuse(j, ERR_BUSY, MAILBOX_WHY_INFLIGHT);
        return;
    }
    if (t && left > 0) {
        struct mailbox_want w = {t, rv->visibility_us, rv->max < left ? rv->max : left, rv->max_bytes, 0};
        n = mailbox_shard_lease(&l->shard, now, &w, got);
        deliver(l, now, rv, got, n);
        rv->more = mailbox_shard_has_ready(&l->shard, t);
    }
    if (rv->n == 0 && rv->wait_ms > 0 && !rv->withheld && !atomic_load(&l->mb->draining))
        park(l, now, j);
    else
        hold(l, j);
}

static void serve_recv(struct mailbox_lane *l, struct mailbox_recv *rv, uint32_t entry) RT_BLOCKS
{
    if (rv->waiter.given == 1) {
        if (l->served_n == l->served_cap) {
            size_t cap = l->served_cap ? l->served_cap * 2 : 64;
            struct mailbox_recv **wider = realloc(l->served, cap * sizeof *wider);
            CHECK(wider != NULL); /* eight bytes per parked receive */
            l->served = wider;
            l->served_cap = cap;
        }
        l->served[l->served_n++] = rv;
    }
    deliver(l, l->shard.now, rv, &entry, 1);
}

/* ---- streams ---- */

static void serve_stream(struct mailbox_lane *l, struct mailbox_stream *st, uint32_t entry) RT_BLOCKS
{
    struct mailbox_batch *b = st->batch;
    const struct mailbox_entry *e = mailbox_shard_entry(&l->shard, entry);
    struct uuid id = e->msg_id;
    uint16_t attempt = e->attempt;
    bool withheld = false;
    if (!b && (b = calloc(1, sizeof *b)) != NULL) {
        b->stream = st;
        b->msg.fn = st->batch_fn;
        b->got = calloc(st->credit, sizeof *b->got);
        b->bodies = calloc(st->credit, sizeof *b->bodies);
        st->batch = b;
    }
    uint8_t *body = b && b->got && b->bodies && b->n < st->credit ? malloc((size_t)e->length64 * 64) : NULL;
    if (!body) {
        if (mailbox_shard_release(&l->shard, l->shard.now, &id, attempt) != ERR_OK)
            UNREACHABLE();
        return;
    }
    if (!read_leased(l, l->shard.now, entry, st->visibility_us, body, &b->got[b->n], &withheld)) {
        free(body);
        return;
    }
    b->bodies[b->n++] = body;
}

static void give(void *ctx, struct mailbox_waiter *w, uint32_t entry) RT_BLOCKS
{
    struct mailbox_lane *l = ctx;
    if (w->stream)
        serve_stream(l, (struct mailbox_stream *)((char *)w - offsetof(struct mailbox_stream, waiter)),
                     entry);
    else
        serve_recv(l, (struct mailbox_recv *)((char *)w - offsetof(struct mailbox_recv, waiter)), entry);
}

static void open_stream(struct mailbox_lane *l, struct mailbox_job *j)
{
    struct mailbox_stream *st = j->stream;
    struct mailbox_topic *t;
    enum err e =
        l->shard.open_streams >= mailbox_config(l->mb)->max_streams || atomic_load(&l->mb->draining)
            ? ERR_BUSY
            : ERR_OK;
    if (e == ERR_OK)
        e = mailbox_shard_topic_to_wait(&l->shard, &st->topic_hash, st->topic, &t);
    if (e == ERR_OK)
        e = mailbox_shard_stream_open(&l->shard, &st->waiter);
    if (e != ERR_OK) {
        refuse(j, ERR_BUSY, MAILBOX_WHY_STREAMS);
        return;
    }
    if (st->visibility_us == 0)
        st->visibility_us = (int64_t)mailbox_shard_policy(&l->shard, t)->default_visibility_ms * 1000;
    st->waiter.room = st->credit;
    st->waiter.room_bytes = st->max_bytes;
    st->waiter.visibility_us = st->visibility_us;
    mailbox_shard_wait(&l->shard, t, &st->waiter);
    st->prev = NULL;
    st->next = l->streams;
    if (l->streams)
        l->streams->prev = st;
    l->streams = st;
    atomic_store(&st->opened, true);
    mailbox_job_done(j);
}

static void unlink_stream(struct mailbox_lane *l, struct mailbox_stream *st)
{
    if (!atomic_load(&st->opened))
        return;
    mailbox_shard_leave(&l->shard, &st->waiter);
    if (st->prev)
        st->prev->next = st->next;
    else
        l->streams = st->next;
    if (st->next)
        st->next->prev = st->prev;
    atomic_store(&st->opened, false);
}

static void post_batch(struct mailbox_stream *st)
{
    struct mailbox_batch *b = st->batch;
    st->batch = NULL;
    if (b)
        net_loop_post(st->call->loop, &b->msg);
}

/* ---- settling ---- */

static void settle_one(struct mailbox_lane *l, struct mailbox_now now, enum mailbox_job_kind kind,
                       struct mailbox_settle_item *it)
{
    if (kind == MAILBOX_JOB_ACK)
        it->err = mailbox_shard_ack(&l->shard, now, &it->fence, &it->out);
    else if (kind == MAILBOX_JOB_NACK)
        it->err = mailbox_shard_nack(&l->shard, now, &it->fence, &it->nack, &it->out);
    else
        it->err = mailbox_shard_extend(&l->shard, now, &it->fence, it->visibility_us, &it->out);
}

static void release(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_job *j)
{
    for (uint32_t i = 0; i < j->release.n; i++)
        if (mailbox_shard_release(&l->shard, now, &j->release.ids[i], j->release.attempts[i]) != ERR_OK)
            continue; /* it expired or was settled meanwhile */
    mailbox_job_done(j);
}

/* ---- operator jobs ---- */

static bool dead_matches(const struct mailbox_shard *s, uint32_t i, const struct mailbox_dlq *q)
{
    const struct mailbox_entry *e = mailbox_shard_entry(s, i);
    const struct mailbox_failures *h = mailbox_history_get(&s->history, i);
    const struct mailbox_failure *last = h && h->n ? &h->f[h->n - 1] : NULL;
    if (q->before_ms && (uint64_t)e->due >= q->before_ms)
        return false;
    if (q->cause && (!last || last->cause != q->cause))
        return false;
    if (q->reason.n)
        return last && last->reason_len >= q->reason.n &&
               memmem(last->reason, last->reason_len, q->reason.p, q->reason.n);
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

static void dlq_page(struct mailbox_lane *l, struct mailbox_dlq *q)
{
    struct mailbox_shard *s = &l->shard;
    struct mailbox_topic *t = mailbox_topics_find(&s->topics, &q->topic_hash, q->topic);
    if (!t || !t->id)
        return;
    q->found = true;
    q->count = t->count[MAILBOX_DLQ];
    uint32_t i = t->dlq_head, after = q->has_after ? mailbox_shard_find(s, &q->after) : 0;
    if (after && mailbox_shard_entry(s, after)->state == MAILBOX_DLQ &&
        mailbox_shard_topic_of(s, after) == t)
        i = mailbox_shard_entry(s, after)->right;
    for (; i; i = mailbox_shard_entry(s, i)->right) {
        const struct mailbox_entry *e = mailbox_shard_entry(s, i);
        if (!dead_matches(s, i, q))
            continue;
        if (q->n == q->limit) {
            q->more = true;
            return;
        }
        q->got[q->n++] =
            (struct mailbox_dead){.id = e->msg_id,
                                  .topic_seq = e->topic_seq,
                                  .moved_ms = (uint64_t)e->due,
                                  .segment = e->segment,
                                  .offset8 = e->offset8,
                                  .length64 = e->length64,
                                  .attempt = e->attempt,
                                  .history = copy_history(mailbox_history_get(&s->history, i))};
    }
}

static void fill_topic(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_topic *t,
                       struct mailbox_topic_info *o)
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
    uint32_t head = o->ready && mailbox_shard_has_ready(s, t) ? (t->fifo_head ? t->fifo_head : t->heap) : 0;
    if (head) {
        uint64_t ts = mailbox_id_ts_ms(&mailbox_shard_entry(s, head)->msg_id);
        o->has_ready = true;
        o->oldest_ready_s = now.wall_ms > ts ? (now.wall_ms - ts) / 1000 : 0;
    }
    o->enqueued = t->enqueued;
    o->acked = t->acked;
    o->redelivered = t->redelivered;
    o->last_send_ms = t->last_send_ms;
    o->topic_seq = t->topic_seq;
    o->chain_id = t->chain_id;
    o->chain = t->chain;
    o->topic_id = t->id;
    o->policy = t->policy;
}

static void list_topics(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_topics_query *q)
{
    struct mailbox_topics *ts = &l->shard.topics;
    if (q->exact.n) {
        struct mailbox_topic *t = mailbox_topics_find(ts, &q->exact_hash, q->exact);
        if (t && t->id)
            fill_topic(l, now, t, &q->got[q->n++]);
        return;
    }
    bool from_prefix = str_cmp(q->prefix, q->after) > 0;
    struct mailbox_topic *t = mailbox_topics_after(ts, from_prefix ? q->prefix : q->after, from_prefix);
    for (; t && q->n < q->limit && str_starts(mailbox_topic_name(t), q->prefix);
         t = mailbox_topics_after(ts, mailbox_topic_name(t), false))
        if (t->id && auth_covers(q->cap, AUTH_CV_TOPIC, mailbox_topic_name(t)))
            fill_topic(l, now, t, &q->got[q->n++]);
}

/*
 * Reclaiming the oldest segment: what still lives in it is re-appended (MOVE, DEDUP, TOPIC), a bounded piece per turn; when that is
 * durable the rebalancer may drop the file. Only worth it when little lives there.
 */
static bool worth_reclaiming(const struct mailbox_lane *l, uint32_t segment)
{
    const struct mailbox_segment_use *u = mailbox_shard_segment_use(&l->shard, segment);
    uint64_t live = u->waiting_bytes + (uint64_t)u->keys * 128;
    return live * 10 < mailbox_config(l->mb)->segment_bytes * 3;
}

static bool evacuate_entries(struct mailbox_lane *l, struct mailbox_now now, uint32_t segment) RT_BLOCKS
{
    struct mailbox_shard *s = &l->shard;
    size_t moved = 0;
    bool all = mailbox_shard_segment_use(s, segment)->waiting == 0 &&
               mailbox_shard_segment_use(s, segment)->keys == 0;
    for (uint32_t looked = 0; !all && looked < 4096 && moved < (64 << 10); looked++) {
        if (++l->reclaim_entry >= s->slabs.used) {
            all = true;
            break;
        }
        struct mailbox_entry *e = mailbox_shard_entry(s, l->reclaim_entry);
        struct mailbox_rec r;
        if (e->state == MAILBOX_FREE || e->segment != segment)
            continue;
        if (mailbox_log_read(&l->log, e->segment, e->offset8, e->length64, l->read_buffer, &r) != ERR_OK ||
            mailbox_shard_reappend(s, now, l->reclaim_entry, &r) != ERR_OK) {
            l->reclaim_entry--; /* no room in this group, or unreadable: the segment stays and is tried again */
            break;
        }
        moved += r.whole.n;
    }
    obs_counter_add(obs_counter(l->mb->m[MAILBOX_M_moved_bytes]), moved);
    return all;
}

static bool evacuate_topics(struct mailbox_lane *l, uint32_t segment)
{
    struct mailbox_topics *ts = &l->shard.topics;
    for (uint32_t looked = 0; looked < 1024; looked++) {
        if (++l->reclaim_topic >= ts->slots)
            return true;
        if (ts->slot[l->reclaim_topic])
            mailbox_shard_reappend_topic(&l->shard, ts->slot[l->reclaim_topic], segment);
    }
    return false;
}

static void reclaim(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS
{
    uint32_t segment = atomic_load(&l->oldest_sealed);
    if (!segment || segment == atomic_load(&l->evacuated) || mailbox_shard_group_full(&l->shard))
        return;
    if (l->reclaiming != segment) {
        if (!worth_reclaiming(l, segment))
            return;
        l->reclaiming = segment;
        l->reclaim_entry = l->reclaim_topic = 0;
        l->reclaim_done = false;
    }
    if (!l->reclaim_done && evacuate_entries(l, now, segment) && evacuate_topics(l, segment)) {
        const struct mailbox_segment_use *u = mailbox_shard_segment_use(&l->shard, segment);
        l->reclaim_done = u->waiting == 0 && u->keys == 0;
        l->reclaim_entry = l->reclaim_topic = 0; /* what was freed and taken again meanwhile: once more */
    }
}

/* After a group was written: what it moved is durable. */
static void reclaimed(struct mailbox_lane *l)
{
    if (l->reclaiming && l->reclaim_done && l->shard.group.n == 0) {
        atomic_store(&l->evacuated, l->reclaiming);
        l->reclaiming = 0;
    }
}

static void operate(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_job *j)
{
    switch (j->kind) {
    case MAILBOX_JOB_DLQ_PAGE:
        dlq_page(l, j->dlq);
        break;
    case MAILBOX_JOB_REPROCESS:
        for (uint32_t i = 0; i < j->dlq->ids_n; i++)
            j->dlq->moved +=
                mailbox_shard_reprocess(&l->shard, now, &j->dlq->ids[i], j->dlq->delay_ms) == ERR_OK;
        break;
    case MAILBOX_JOB_PURGE:
        for (uint32_t i = 0; i < j->dlq->ids_n; i++)
            j->dlq->moved += mailbox_shard_purge(&l->shard, now, &j->dlq->ids[i]) == ERR_OK;
        break;
    case MAILBOX_JOB_TOPICS:
        list_topics(l, now, j->topics);
        break;
    case MAILBOX_JOB_SEND:
    case MAILBOX_JOB_RECV:
    case MAILBOX_JOB_STREAM:
    case MAILBOX_JOB_STREAM_CLOSE:
    case MAILBOX_JOB_ACK:
    case MAILBOX_JOB_NACK:
    case MAILBOX_JOB_EXTEND:
    case MAILBOX_JOB_RELEASE:
        UNREACHABLE();
    }
    hold(l, j);
}

/* ---- the turn ---- */

static bool writable(struct mailbox_lane *l)
{
    bool fits = mailbox_log_has_room(&l->log);
    atomic_store(&l->disk_full, !fits);
    return fits;
}

static void take_job(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_job *j)
{
    uint32_t share =
        (uint32_t)(mailbox_config(l->mb)->shard_capacity * mailbox_config(l->mb)->topic_share / 100);
    CHECK(j->magic == MAILBOX_JOB_MAGIC && j->lane == l);
    switch (j->kind) {
    case MAILBOX_JOB_ACK:
    case MAILBOX_JOB_NACK:
    case MAILBOX_JOB_EXTEND:
        if (l->shard.group.n > MAILBOX_GROUP_BYTES) {
            refuse(j, ERR_UNAVAILABLE,
                   MAILBOX_WHY_DISK_FULL); /* only a full disk lets the group grow this far */
            return;
        }
        for (struct mailbox_settle_item *it = j->settle; it; it = it->next)
            settle_one(l, now, j->kind, it);
        mailbox_job_done(j);
        return;
    case MAILBOX_JOB_RELEASE:
        release(l, now, j);
        return;
    case MAILBOX_JOB_STREAM:
        if (l->shard.readonly)
            refuse(j, ERR_SAFE_MODE, MAILBOX_WHY_NONE);
        else
            open_stream(l, j);
        return;
    case MAILBOX_JOB_STREAM_CLOSE:
        unlink_stream(l, j->stream);
        post_batch(j->stream);
        mailbox_job_done(j);
        return;
    case MAILBOX_JOB_SEND:
    case MAILBOX_JOB_RECV:
        if (l->shard.readonly)
            refuse(j, ERR_SAFE_MODE, MAILBOX_WHY_NONE);
        else if (mailbox_fair_add(&l->fair, &j->fair, share ? share : 1) != ERR_OK)
            refuse(j, ERR_BUSY, MAILBOX_WHY_TOPIC_SHARE);
        return;
    case MAILBOX_JOB_DLQ_PAGE:
    case MAILBOX_JOB_REPROCESS:
    case MAILBOX_JOB_PURGE:
    case MAILBOX_JOB_TOPICS:
        if (l->shard.readonly) {
            refuse(j, ERR_SAFE_MODE, MAILBOX_WHY_NONE);
            return;
        }
        j->next = NULL;
        *l->operators_end = j;
        l->operators_end = &j->next;
        return;
    }
}

static void work_through(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS
{
    while (!mailbox_shard_group_full(&l->shard)) {
        struct mailbox_fair_node *n = mailbox_fair_take(&l->fair);
        if (!n)
            return;
        struct mailbox_job *j = (struct mailbox_job *)((char *)n - offsetof(struct mailbox_job, fair));
        if (j->kind == MAILBOX_JOB_RECV) {
            recv_one(l, now, j);
            continue;
        }
        for (struct mailbox_send_item *it = j->send; it; it = it->next) {
            if (mailbox_shard_group_full(
                    &l->shard)) { /* the rest of a large batch waits for the next group */
                j->send_rest = it;
                break;
            }
            send_one(l, now, it);
        }
        if (j->send_rest) {
            l->unfinished = j;
            return;
        }
        hold(l, j);
    }
}

static void resume_unfinished(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS
{
    struct mailbox_job *j = l->unfinished;
    if (!j)
        return;
    struct mailbox_send_item *it = j->send_rest;
    l->unfinished = NULL;
    j->send_rest = NULL;
    for (; it; it = it->next) {
        if (mailbox_shard_group_full(&l->shard)) {
            j->send_rest = it;
            l->unfinished = j;
            return;
        }
        send_one(l, now, it);
    }
    hold(l, j);
}

static void refuse_waiting(struct mailbox_lane *l, enum err e, enum mailbox_why why)
{
    struct mailbox_fair_node *n;
    while ((n = mailbox_fair_take(&l->fair)) != NULL)
        refuse((struct mailbox_job *)((char *)n - offsetof(struct mailbox_job, fair)), e, why);
}

static void end_parked(struct mailbox_lane *l, int64_t until_us)
{
    struct heap_node *top;
    while ((top = heap_top(&l->parked)) != NULL) {
        struct mailbox_recv *rv = heap_entry(top, struct mailbox_recv, deadline_node);
        if (rv->deadline_us > until_us)
            return;
        unpark(l, rv);
        mailbox_job_done(job_of_recv(rv));
    }
}

static void serve_waiters(struct mailbox_lane *l, struct mailbox_now now)
{
    uint32_t left = leases_left(l);
    if (l->shard.dirty_head && left)
        mailbox_shard_serve(&l->shard, now, left, give, l);
    for (size_t i = 0; i < l->served_n; i++) {
        struct mailbox_recv *rv = l->served[i];
        unpark(l, rv);
        hold(l, job_of_recv(rv));
    }
    l->served_n = 0;
}

static void answer_held(struct mailbox_lane *l, enum err e)
{
    struct mailbox_job *j = l->held;
    l->held = NULL;
    l->held_end = &l->held;
    while (j) {
        struct mailbox_job *next = j->next;
        if (e != ERR_OK)
            j->err = e;
        mailbox_job_done(j);
        j = next;
    }
    for (struct mailbox_stream *st = l->streams; st; st = st->next)
        post_batch(st);
}

static bool must_write(const struct mailbox_lane *l, struct mailbox_now now, bool last)
{
    const struct mailbox_shard *s = &l->shard;
    if (s->group.n == 0)
        return false;
    return last || s->must_flush || s->group.n >= MAILBOX_LAZY_BYTES ||
           now.mono_us - s->lazy_since_us >= mailbox_config(l->mb)->lazy_flush * 1000;
}

static void commit(struct mailbox_lane *l, struct mailbox_now now, bool last) RT_BLOCKS
{
    enum err e = ERR_OK;
    if (must_write(l, now, last)) {
        e = mailbox_lane_commit(l, now);
        if (e == ERR_NO_SPACE) {
            atomic_store(&l->disk_full, true);
            if (!l->held)
                return; /* settlements wait in memory for a spare segment */
            /* Room for the largest group was there when it was begun; only another writer's fault can take it away. */
            mailbox_shard_failed(&l->shard);
            atomic_store(&l->readonly, true);
            e = ERR_SAFE_MODE;
        }
    }
    answer_held(l, e);
    if (l->shard.readonly) {
        refuse_waiting(l, ERR_SAFE_MODE, MAILBOX_WHY_NONE);
        end_parked(l, INT64_MAX);
    }
}

static void publish(struct mailbox_lane *l)
{
    const struct mailbox_shard *s = &l->shard;
    for (int st = 0; st < MAILBOX_STATES; st++)
        atomic_store_explicit(&l->count[st], s->count[st], memory_order_relaxed);
    atomic_store_explicit(&l->topics, s->topics.count, memory_order_relaxed);
    atomic_store_explicit(&l->waiters, s->waiters, memory_order_relaxed);
    atomic_store_explicit(&l->open_streams, s->open_streams, memory_order_relaxed);
    atomic_store_explicit(&l->entries, s->slabs.live, memory_order_relaxed);
    atomic_store_explicit(&l->reorder_depth, s->reorder_depth_max, memory_order_relaxed);
    atomic_store_explicit(&l->next_due_us, mailbox_shard_next_due(s),
                          memory_order_release); /* the scanner's acquire */
}

static void grow(struct obs_family *f, const char *class_name, uint64_t now, uint64_t *seen)
{
    if (now == *seen)
        return;
    obs_counter_add(OBS_COUNTER_OF(f, class_name), now - *seen);
    *seen = now;
}

static void count_up(struct mailbox_lane *l)
{
    struct obs_family **m = l->mb->m;
    for (uint8_t c = 0; c < l->rules.policies.n; c++) {
        const struct mailbox_class_stats *s = &l->shard.stats.of[c];
        struct mailbox_class_stats *p = &l->published.of[c];
        const char *name = l->rules.policies.p[c].class_name;
        grow(m[MAILBOX_M_enqueued], name, s->enqueued, &p->enqueued);
        grow(m[MAILBOX_M_duplicates], name, s->duplicates, &p->duplicates);
        grow(m[MAILBOX_M_delivered], name, s->delivered, &p->delivered);
        grow(m[MAILBOX_M_redelivered], name, s->redelivered, &p->redelivered);
        grow(m[MAILBOX_M_acked], name, s->acked, &p->acked);
        grow(m[MAILBOX_M_nacked], name, s->nacked, &p->nacked);
        grow(m[MAILBOX_M_lease_expired], name, s->lease_expired, &p->lease_expired);
        for (int cause = 1; cause < MAILBOX_CAUSE_COUNT; cause++) {
            if (s->dlq[cause] == p->dlq[cause])
                continue;
            obs_counter_add(
                OBS_COUNTER_OF(m[MAILBOX_M_dlq], name, mailbox_cause_name((enum mailbox_cause)cause)),
                s->dlq[cause] - p->dlq[cause]);
            p->dlq[cause] = s->dlq[cause];
        }
    }
    const struct mailbox_stats *s = &l->shard.stats;
    struct mailbox_stats *p = &l->published;
    for (int cause = 1; cause < MAILBOX_CAUSE_COUNT; cause++) {
        const char *name = mailbox_cause_name((enum mailbox_cause)cause);
        grow(m[MAILBOX_M_dlq_reprocessed], name, s->reprocessed[cause], &p->reprocessed[cause]);
        grow(m[MAILBOX_M_dlq_purged], name, s->purged[cause], &p->purged[cause]);
    }
    grow(m[MAILBOX_M_fence], "ack", s->stale_ack, &p->stale_ack);
    grow(m[MAILBOX_M_fence], "nack", s->stale_nack, &p->stale_nack);
    grow(m[MAILBOX_M_fence], "extend", s->stale_extend, &p->stale_extend);
}

static void tell_events(struct mailbox_lane *l)
{
    for (uint32_t i = 0; i < l->shard.events_n; i++) {
        struct mailbox_event *ev = &l->shard.events[i];
        if (ev->kind == MAILBOX_EV_DLQ_MOVED) {
            char id[UUID_CHARS];
            uuid_format(&ev->msg_id, id);
            obs_log(svc_log(l->mb->svc), OBS_INFO, "dlq.move", OBS_STR("msg_id", id),
                    OBS_STR("cause", mailbox_cause_name((enum mailbox_cause)ev->cause)),
                    OBS_U64("attempt", ev->attempt), OBS_END);
        }
        struct mailbox_note *note = mailbox_note_create(l->no, ev);
        if (note)
            rt_bcast_publish(l->mb->events, note);
    }
    l->shard.events_n = 0;
}

static void adopt_rules(struct mailbox_lane *l)
{
    uint64_t version = atomic_load(&l->mb->rules_version);
    char why[200];
    if (version == l->rules_seen)
        return;
    l->rules_seen = version;
    struct mailbox_rules *r = malloc(sizeof *r);
    if (r && mailbox_rules_make(mailbox_config(l->mb), l->mb->shards, r, why) == ERR_OK) {
        l->rules = *r;
        mailbox_shard_set_rules(&l->shard, &l->rules);
    }
    free(r);
}

static void housekeeping(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS
{
    if (l->shard.readonly)
        return;
    int64_t passed = now.mono_us - l->retention_at_us;
    if (passed >= 50000) {
        uint32_t n = (uint32_t)(passed > 1000000 ? RETENTION_TOPICS_PER_S
                                                 : passed * RETENTION_TOPICS_PER_S / 1000000);
        l->retention_at_us = now.mono_us;
        mailbox_shard_retention(&l->shard, now, n);
    }
    reclaim(l, now);
}

static int64_t wait_us(const struct mailbox_lane *l, struct mailbox_now now)
{
    const struct mailbox_shard *s = &l->shard;
    int64_t until = now.mono_us + IDLE_WAIT_MS * 1000, due = mailbox_shard_next_due(s);
    if (l->fair.jobs || l->operators || l->unfinished || l->more_ticks ||
        (l->reclaiming && !l->reclaim_done))
        return 0;
    if (due < until)
        until = due;
    if (s->group.n && s->lazy_since_us + mailbox_config(l->mb)->lazy_flush * 1000 < until)
        until = s->lazy_since_us + mailbox_config(l->mb)->lazy_flush * 1000;
    const struct heap_node *top = heap_top(&l->parked);
    if (top && heap_entry(top, struct mailbox_recv, deadline_node)->deadline_us < until)
        until = heap_entry(top, struct mailbox_recv, deadline_node)->deadline_us;
    return until > now.mono_us ? until - now.mono_us : 0;
}

/* One turn; ERR_CLOSED when there will be no more jobs and everything is answered and written. */
static enum err turn(struct mailbox_lane *l, int64_t wait_most_us) RT_BLOCKS
{
    void *jobs[MAILBOX_BATCH_JOBS], *ticks[64];
    size_t n = 0, ticks_n = 0;
    struct mailbox_now now = mailbox_now(l->mb);
    int64_t wait = wait_us(l, now);
    enum err closed = ERR_OK, e;
    if (wait > wait_most_us)
        wait = wait_most_us;
    if (wait > 0)
        e = rt_chan_recv_batch(l->work, jobs, MAILBOX_BATCH_JOBS, deadline_at_ns(os_now_ns() + wait * 1000),
                               &n);
    else
        e = rt_chan_try_recv_batch(l->work, jobs, MAILBOX_BATCH_JOBS, &n);
    if (e == ERR_CLOSED)
        closed = ERR_CLOSED;
    else if (e == ERR_CANCELED)
        return e;
    if (e != ERR_OK)
        n = 0;
    if (rt_chan_try_recv_batch(l->requeue, ticks, 64, &ticks_n) != ERR_OK)
        ticks_n = 0; /* ticks only wake: the wheel knows what is due */

    now = mailbox_now(l->mb);
    adopt_rules(l);
    if (!mailbox_shard_group_full(&l->shard))
        l->more_ticks = mailbox_shard_tick(&l->shard, now);
    for (size_t i = 0; i < n; i++)
        take_job(l, now, jobs[i]);
    if (l->shard.readonly) {
        refuse_waiting(l, ERR_SAFE_MODE, MAILBOX_WHY_NONE);
    } else if (writable(l)) {
        resume_unfinished(l, now);
        work_through(l, now);
        serve_waiters(l, now);
        if (l->operators && !mailbox_shard_group_full(&l->shard)) {
            struct mailbox_job *j = l->operators;
            l->operators = j->next;
            if (!l->operators)
                l->operators_end = &l->operators;
            operate(l, now, j);
        }
        housekeeping(l, now);
    } else {
        refuse_waiting(l, ERR_UNAVAILABLE, MAILBOX_WHY_DISK_FULL);
    }
    end_parked(l, atomic_load(&l->mb->draining) ? INT64_MAX : now.mono_us);
    bool idle = closed == ERR_CLOSED && !l->fair.jobs && !l->operators && !l->unfinished;
    commit(l, now, idle);
    reclaimed(l);
    publish(l);
    tell_events(l);
    if (now.mono_us - l->counted_at_us > 100000 || idle) {
        l->counted_at_us = now.mono_us;
        count_up(l);
    }
    return idle ? ERR_CLOSED : ERR_OK;
}

enum err mailbox_worker_run(struct rt_task *self, void *arg)
{
    struct mailbox *mb = arg;
    unsigned workers = (unsigned)mailbox_config(mb)->ready_shards, index = rt_task_index(self);
    bool shared = mb->shards > workers; /* made with more shards than workers now: each serves several */
    bool open = true;
    while (index >= mb->shards) /* made with fewer shards than there are workers now: nothing to do */
        if (rt_task_sleep(self, deadline_in_ms(1000)) != ERR_OK || rt_task_stopping(self))
            return ERR_OK;
    while (open) {
        open = false;
        for (unsigned i = index; i < mb->shards; i += workers) {
            enum err e = turn(&mb->lanes[i], shared ? SHARED_WAIT_MS * 1000 : INT64_MAX);
            rt_task_beat(self);
            if (e == ERR_CANCELED)
                return e; /* what was taken lies in the lane; the next worker goes on */
            open = open || e == ERR_OK;
        }
    }
    return ERR_OK;
}
