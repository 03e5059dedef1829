/*
 * Handing out: receives, parked receives and streams. Leases are taken in the core, bodies read and verified from the log; what
 * does not verify is withheld and counts as a failed delivery. The answers are held until the group with the leases is durable.
 */
#include <stdlib.h>

#include "services/mailbox/tasks/worker_internal.h"

/*
 * Leases for up to `want` of the `ready` messages, of those that all shards together may have out. They are this lane's before they are
 * given, so that two shards never give the same one; what was not used goes back at once (mailbox_lane_count_leases).
 */
static uint32_t take_leases(struct mailbox_lane *l, uint32_t want, uint32_t ready)
{
    struct mailbox *mb = l->mb;
    uint64_t most = mailbox_config(mb)->global_inflight, n;
    want = want < ready ? want : ready;
    mailbox_lane_count_leases(l);
    uint64_t used = atomic_load(&mb->leases);
    do {
        n = used >= most ? 0 : most - used < want ? most - used : want;
    } while (n > 0 && !atomic_compare_exchange_weak(&mb->leases, &used, used + n));
    l->leases_taken += n;
    return (uint32_t)n;
}

/* One more of what all shards together may have `most` of. */
static bool take_one(atomic_uint *of_all, uint64_t most)
{
    if (atomic_fetch_add(of_all, 1) < most)
        return true;
    atomic_fetch_sub(of_all, 1);
    return false;
}

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
    bool taken = take_one(&l->mb->parked, mailbox_config(l->mb)->max_waiters);
    enum err e = taken ? mailbox_shard_topic_to_wait(&l->shard, &rv->topic_hash, rv->topic, &t) : ERR_BUSY;
    if (e == ERR_OK) {
        rv->deadline_us = now.mono_us + rv->wait_ms * 1000;
        e = heap_push(&l->parked, &rv->deadline_node);
    }
    if (e != ERR_OK) {
        if (taken)
            atomic_fetch_sub(&l->mb->parked, 1);
        mailbox_worker__refuse(j, ERR_BUSY, taken ? MAILBOX_WHY_TOPICS : MAILBOX_WHY_WAITERS);
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
    atomic_fetch_sub(&l->mb->parked, 1);
    rv->parked = false;
}

static struct mailbox_job *job_of_recv(struct mailbox_recv *rv)
{
    return rv->waiter_owner;
}

void mailbox_worker__recv(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_job *j) RT_BLOCKS
{
    struct mailbox_recv *rv = j->recv;
    struct mailbox_topic *t = mailbox_topics_find(&l->shard.topics, &rv->topic_hash, rv->topic);
    uint32_t got[256], n = 0, left = t ? take_leases(l, rv->max, t->count[MAILBOX_READY]) : 0;
    rv->waiter_owner = j;
    if (rv->left) {
        mailbox_lane_count_leases(l);
        mailbox_worker__hold(l, j);
        return;
    }
    if (t && rv->visibility_us == 0)
        rv->visibility_us = (int64_t)mailbox_shard_policy(&l->shard, t)->default_visibility_ms * 1000;
    else if (rv->visibility_us == 0)
        rv->visibility_us = mailbox_config(l->mb)->default_visibility * 1000;
    if (t && left == 0 && mailbox_shard_has_ready(&l->shard, t)) {
        mailbox_worker__refuse(j, ERR_BUSY, MAILBOX_WHY_INFLIGHT);
        return;
    }
    if (t && left > 0) {
        struct mailbox_want w = {t, rv->visibility_us, left, rv->max_bytes, 0, false};
        n = mailbox_shard_lease(&l->shard, now, &w, got);
        mailbox_lane_count_leases(l);
        deliver(l, now, rv, got, n);
        rv->more = mailbox_shard_has_ready(&l->shard, t);
    }
    if (rv->n == 0 && rv->more && !rv->withheld && mailbox_shard_group_full(&l->shard)) {
        /* The group is full of dead letters, and behind them something may be ready: it stands in line for the next one. */
        if (mailbox_fair_add(&l->fair, &j->fair, UINT32_MAX) != ERR_OK)
            UNREACHABLE();
        return;
    }
    if (rv->n == 0 && rv->wait_ms > 0 && !rv->withheld && !atomic_load(&l->mb->draining))
        park(l, now, j);
    else
        mailbox_worker__hold(l, j);
}

/* It may still stand in line (then it is given nothing), wait, or have been answered. */
void mailbox_worker__recv_left(struct mailbox_lane *l, struct mailbox_recv *rv)
{
    rv->left = true;
    if (!rv->parked)
        return;
    unpark(l, rv);
    mailbox_job_done(job_of_recv(rv));
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

void mailbox_worker__open_stream(struct mailbox_lane *l, struct mailbox_job *j)
{
    struct mailbox_stream *st = j->stream;
    struct mailbox_topic *t;
    bool taken =
        !atomic_load(&l->mb->draining) && take_one(&l->mb->streams, mailbox_config(l->mb)->max_streams);
    enum err e = taken ? mailbox_shard_topic_to_wait(&l->shard, &st->topic_hash, st->topic, &t) : ERR_BUSY;
    enum mailbox_why why = taken && e != ERR_OK ? MAILBOX_WHY_TOPICS : MAILBOX_WHY_STREAMS;
    if (e == ERR_OK)
        e = mailbox_shard_stream_open(&l->shard, &st->waiter);
    if (e != ERR_OK) {
        if (taken)
            atomic_fetch_sub(&l->mb->streams, 1);
        mailbox_worker__refuse(j, ERR_BUSY, why);
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

void mailbox_worker__unlink_stream(struct mailbox_lane *l, struct mailbox_stream *st)
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
    atomic_fetch_sub(&l->mb->streams, 1);
    atomic_store(&st->opened, false);
}

void mailbox_worker__post_batch(struct mailbox_stream *st)
{
    struct mailbox_batch *b = st->batch;
    st->batch = NULL;
    if (b)
        net_loop_post(st->call->loop, &b->msg);
}

void mailbox_worker__settle_batch(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_stream *st)
{
    if (st->batch)
        mailbox_worker__commit(l, now, true); /* posts it, or drops it */
    for (uint32_t i = 0; st->batch && i < st->batch->n; i++) {
        const struct mailbox_delivery *d = &st->batch->got[i];
        if (mailbox_shard_release(&l->shard, now, &d->enq.msg_id, d->attempt) != ERR_OK)
            continue; /* its lease has ended meanwhile */
    }
    mailbox_worker__drop_batch(st);
}

void mailbox_worker__drop_batch(struct mailbox_stream *st)
{
    struct mailbox_batch *b = st->batch;
    st->batch = NULL;
    for (uint32_t i = 0; b && i < b->n; i++)
        free(b->bodies[i]);
    if (b) {
        free(b->bodies);
        free(b->got);
        free(b);
    }
}

void mailbox_worker__end_parked(struct mailbox_lane *l, int64_t until_us)
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

void mailbox_worker__serve_waiters(struct mailbox_lane *l, struct mailbox_now now)
{
    if (l->shard.dirty_head) {
        uint32_t ready = l->shard.count[MAILBOX_READY],
                 most = ready ? take_leases(l, MAILBOX_GROUP_MESSAGES, ready) : 1; /* none will be given */
        if (most)
            mailbox_shard_serve(&l->shard, now, most, give, l);
        mailbox_lane_count_leases(l);
    }
    for (size_t i = 0; i < l->served_n; i++) {
        struct mailbox_recv *rv = l->served[i];
        rv->more = mailbox_shard_has_ready(&l->shard, l->shard.topics.slot[rv->waiter.topic]);
        unpark(l, rv);
        mailbox_worker__hold(l, job_of_recv(rv));
    }
    l->served_n = 0;
}
