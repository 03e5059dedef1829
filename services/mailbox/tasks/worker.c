/*
 * The worker: the only writer of its shard's state and files. One turn of its loop:
 *
 *   1. take the ticks and up to 512 jobs, waiting no longer than the next thing due
 *   2. let time pass in the core: expire leases, wake delayed messages
 *   3. settlements: apply and answer at once; their records wait for the next group (at most lazy_flush)
 *   4. sends and receives, by fair share over topics, until the group is full
 *   5. parked receives and streams: messages of this very group may go out with it
 *   6. one operator job
 *   7. write the group if something in it must be durable, or has waited long enough; unless others are about to join it
 *   8. answer what the group made durable
 *
 * Everything between two turns lies in the lane, so a worker that is restarted goes on where the last one stopped, and a job
 * that was taken is answered by its successor.
 */
#include <stdlib.h>

#include "services/mailbox/tasks/worker_internal.h"
#include "services/mailbox/tenancy.h"

enum {
    IDLE_WAIT_MS = 250,
    SHARED_WAIT_MS = 2,
    SPARE_WAIT_MS = 250,
    RETENTION_TOPICS_PER_S = 1000,
    SEND_AHEAD = 8,
    SLOT_LOOK_US = 1000,
    SEGMENT_LOOK_US = 2000,
};

/* ---- sends ---- */

/* The original's body decides: the same payload is a duplicate, another is a conflict. Its index knows half of the hash. */
static void check_duplicate(struct mailbox_lane *l, struct mailbox_send_item *it) RT_BLOCKS
{
    static const struct sha256 unknown;
    const struct mailbox_entry *e = mailbox_shard_entry(&l->shard, it->sent.entry);
    struct mailbox_rec r;
    struct sha256 payload_hash;
    bool half = false;
    enum err err = mailbox_log_read(&l->log, e->segment, e->offset8, e->length64, l->read_buffer, &r);
    if (err == ERR_OK) {
        bool dedup = r.type == MAILBOX_REC_DEDUP;
        payload_hash = dedup ? r.dedup.payload_hash : r.enq.payload_hash;
        it->sent.chain = dedup ? r.dedup.chain : r.enq.chain;
        half =
            dedup && sha256_eq(&r.dedup.chain, &unknown); /* re-appended after its segment was stripped */
        it->has_chain = !half;
    } else if (err == ERR_NOT_FOUND) {
        half = true;
        if ((err = mailbox_log_read_key(&l->log, e, &r)) == ERR_OK)
            payload_hash = r.dedup.payload_hash;
    }
    if (err != ERR_OK)
        return; /* the original's bytes are bad: its id is still the right answer */
    if (memcmp(payload_hash.b, it->in.payload_hash.b, half ? 16 : 32) != 0)
        it->err = ERR_IDEM_CONFLICT;
}

static void send_one(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_send_item *it) RT_BLOCKS
{
    struct mailbox_quota *taken = mailbox_tenancy_take(l, it);
    it->err = mailbox_shard_send(&l->shard, now, &it->in, &it->sent);
    mailbox_tenancy_sent(l, it, taken);
    if (it->err == ERR_OK && it->sent.duplicate)
        check_duplicate(l, it);
    else if (it->err == ERR_OK)
        it->has_chain = true;
    else if (it->err == ERR_BUSY && it->sent.refusal == MAILBOX_REFUSED_QUOTA) {
        it->err = ERR_RATE_LIMITED;
        it->why = MAILBOX_WHY_QUOTA;
    } else if (it->err == ERR_BUSY)
        it->why = it->sent.refusal == MAILBOX_REFUSED_TOPICS ? MAILBOX_WHY_TOPICS
                  : it->sent.refusal == MAILBOX_REFUSED_DISK ? MAILBOX_WHY_DISK_QUOTA
                                                             : MAILBOX_WHY_MESSAGES;
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

/* ---- the turn ---- */

/*
 * Whether the largest group fits. When it does not, the rebalancer either makes the next segment, and what waits goes on waiting, or
 * has found that there is no room for one.
 */
static bool writable(struct mailbox_lane *l)
{
    bool fits = mailbox_log_has_room(&l->log), full = !fits && atomic_load(&l->no_space);
    atomic_store(&l->disk_full, full);
    atomic_store(&l->awaits_segment, !fits && !full);
    return fits;
}

/* A job that was on its way while the number of shards changed may have come to the wrong one. */
static bool owned(const struct mailbox_lane *l, const struct mailbox_job *j)
{
    const uint16_t *of = l->mb->routing.of;
    switch (j->kind) {
    case MAILBOX_JOB_SEND:
        for (const struct mailbox_send_item *it = j->send; it; it = it->next)
            if (of[mailbox_bucket(&it->topic_hash)] != l->no)
                return false;
        return true;
    case MAILBOX_JOB_ACK:
    case MAILBOX_JOB_NACK:
    case MAILBOX_JOB_EXTEND:
        for (const struct mailbox_settle_item *it = j->settle; it; it = it->next)
            if (of[mailbox_id_bucket(&it->fence.msg_id)] != l->no)
                return false;
        return true;
    case MAILBOX_JOB_RECV:
        return of[mailbox_bucket(&j->recv->topic_hash)] == l->no;
    case MAILBOX_JOB_STREAM:
        return of[mailbox_bucket(&j->stream->topic_hash)] == l->no;
    case MAILBOX_JOB_DLQ_PAGE:
    case MAILBOX_JOB_REPROCESS:
    case MAILBOX_JOB_PURGE:
        return of[mailbox_bucket(&j->dlq->topic_hash)] == l->no;
    case MAILBOX_JOB_TOPICS:
        return j->topics->exact.n == 0 || of[mailbox_bucket(&j->topics->exact_hash)] == l->no;
    case MAILBOX_JOB_RELEASE: /* what is not here is not found */
    case MAILBOX_JOB_STREAM_CLOSE:
    case MAILBOX_JOB_RECV_LEAVE:
        return true;
    }
    return true;
}

/* Whether the group takes the records of one more job that settles: a thousand items with reasons, several times, are more than it holds. */
static bool room_to_settle(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS
{
    if (l->shard.group.n > MAILBOX_GROUP_BYTES && mailbox_log_has_room(&l->log))
        mailbox_worker__commit(l, now, true);
    return l->shard.group.n <= MAILBOX_GROUP_BYTES;
}

static void take_job(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_job *j) RT_BLOCKS
{
    uint32_t share =
        (uint32_t)(mailbox_config(l->mb)->shard_capacity * mailbox_config(l->mb)->topic_share / 100);
    CHECK(j->magic == MAILBOX_JOB_MAGIC && j->lane == l);
    j->taken_ns = now.mono_us * 1000;
    if (!owned(l, j)) {
        mailbox_worker__refuse(j, ERR_BUSY, MAILBOX_WHY_REBALANCING);
        return;
    }
    switch (j->kind) {
    case MAILBOX_JOB_ACK:
    case MAILBOX_JOB_NACK:
    case MAILBOX_JOB_EXTEND:
        if (!room_to_settle(l, now)) {
            mailbox_worker__refuse(j, ERR_UNAVAILABLE, MAILBOX_WHY_DISK_FULL);
            return;
        }
        if (l->mb->settles_flushed &&
            l->shard.readonly) { /* another node goes on with it, and would not know */
            mailbox_worker__refuse(j, ERR_SAFE_MODE, MAILBOX_WHY_NONE);
            return;
        }
        for (struct mailbox_settle_item *it = j->settle; it; it = it->next)
            settle_one(l, now, j->kind, it);
        if (l->mb->settles_flushed) {
            l->shard.must_flush = l->shard.must_flush || l->shard.group.n > 0;
            mailbox_worker__hold(l, j);
        } else {
            mailbox_job_done(j);
        }
        return;
    case MAILBOX_JOB_RELEASE:
        if (room_to_settle(l, now))
            release(l, now, j);
        else
            mailbox_job_done(j); /* its leases end by their time */
        return;
    case MAILBOX_JOB_RECV_LEAVE:
        mailbox_worker__recv_left(l, j->recv);
        mailbox_job_done(j);
        return;
    case MAILBOX_JOB_STREAM:
        if (l->shard.readonly)
            mailbox_worker__refuse(j, ERR_SAFE_MODE, MAILBOX_WHY_NONE);
        else
            mailbox_worker__open_stream(l, j);
        return;
    case MAILBOX_JOB_STREAM_CLOSE:
        mailbox_worker__settle_batch(l, now, j->stream);
        mailbox_worker__unlink_stream(l, j->stream);
        mailbox_job_done(j);
        return;
    case MAILBOX_JOB_SEND:
    case MAILBOX_JOB_RECV:
        if (l->shard.readonly)
            mailbox_worker__refuse(j, ERR_SAFE_MODE, MAILBOX_WHY_NONE);
        else if (mailbox_fair_add(&l->fair, &j->fair, share ? share : 1) != ERR_OK)
            mailbox_worker__refuse(j, ERR_BUSY, MAILBOX_WHY_TOPIC_SHARE);
        return;
    case MAILBOX_JOB_DLQ_PAGE:
    case MAILBOX_JOB_REPROCESS:
    case MAILBOX_JOB_PURGE:
    case MAILBOX_JOB_TOPICS:
        if (l->shard.readonly) {
            mailbox_worker__refuse(j, ERR_SAFE_MODE, MAILBOX_WHY_NONE);
            return;
        }
        j->next = NULL;
        *l->operators_end = j;
        l->operators_end = &j->next;
        return;
    }
}

/* What the first item of each job will look up is asked for before any is worked on, so that the cache misses of all overlap. */
static void look_ahead(const struct mailbox_lane *l, void *const *jobs, size_t n)
{
    for (int step = 0; step < 2; step++)
        for (size_t i = 0; i < n; i++) {
            const struct mailbox_job *j = jobs[i];
            if (j->kind == MAILBOX_JOB_SEND && step == 0)
                mailbox_shard_send_later(&l->shard, &j->send->in.digest);
            else if (j->kind == MAILBOX_JOB_SEND)
                mailbox_shard_send_soon(&l->shard, &j->send->in.digest);
            else if (j->kind == MAILBOX_JOB_ACK && step == 0)
                mailbox_shard_settle_later(&l->shard, &j->settle->fence.msg_id);
            else if (j->kind == MAILBOX_JOB_ACK)
                mailbox_shard_settle_soon(&l->shard, &j->settle->fence.msg_id);
        }
}

static struct mailbox_job *job_of(struct mailbox_fair_node *n)
{
    return (struct mailbox_job *)((char *)n - offsetof(struct mailbox_job, fair));
}

static void work_through(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS
{
    while (!mailbox_shard_group_full(&l->shard)) {
        struct mailbox_fair_node *n = mailbox_fair_take(&l->fair);
        if (!n)
            return;
        struct mailbox_job *j = job_of(n);
        if (j->kind == MAILBOX_JOB_RECV) {
            mailbox_worker__recv(l, now, j);
            continue;
        }
        struct mailbox_send_item *soon = j->send,
                                 *later; /* a few items before the one being sent, and a few more */
        for (int i = 0; soon && i < SEND_AHEAD; i++, soon = soon->next)
            mailbox_shard_send_soon(&l->shard, &soon->in.digest);
        later = soon;
        for (int i = 0; later && i < SEND_AHEAD; i++, later = later->next)
            mailbox_shard_send_later(&l->shard, &later->in.digest);
        for (struct mailbox_send_item *it = j->send; it; it = it->next) {
            if (soon) {
                mailbox_shard_send_soon(&l->shard, &soon->in.digest);
                soon = soon->next;
            }
            if (later) {
                mailbox_shard_send_later(&l->shard, &later->in.digest);
                later = later->next;
            }
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
        mailbox_worker__hold(l, j);
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
    mailbox_worker__hold(l, j);
}

/* A batch whose rest waited for the next group is refused as a whole: the group it was in may be the one that failed. */
void mailbox_worker__refuse_waiting(struct mailbox_lane *l, enum err e, enum mailbox_why why)
{
    struct mailbox_fair_node *n;
    struct mailbox_job *j = l->unfinished;
    l->unfinished = NULL;
    if (j) {
        j->send_rest = NULL;
        mailbox_worker__refuse(j, e, why);
    }
    while ((n = mailbox_fair_take(&l->fair)) != NULL)
        mailbox_worker__refuse(job_of(n), e, why);
}

static void refuse_items(struct mailbox_lane *l, struct mailbox_now now,
                         struct mailbox_send_item *it) RT_BLOCKS
{
    for (; it; it = it->next) {
        if (mailbox_shard_sent(&l->shard, now, &it->in.digest, &it->sent)) {
            check_duplicate(l, it);
            continue;
        }
        it->err = ERR_UNAVAILABLE;
        it->why = MAILBOX_WHY_DISK_FULL;
    }
}

/* The disk is full. What was accepted before is known; of a batch that was cut in two the first part is written. */
static void refuse_full(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS
{
    struct mailbox_fair_node *n;
    struct mailbox_job *j = l->unfinished;
    l->unfinished = NULL;
    if (j) {
        refuse_items(l, now, j->send_rest);
        j->send_rest = NULL;
        mailbox_job_done(j);
    }
    while ((n = mailbox_fair_take(&l->fair)) != NULL) {
        j = job_of(n);
        if (j->kind != MAILBOX_JOB_SEND) {
            mailbox_worker__refuse(j, ERR_UNAVAILABLE, MAILBOX_WHY_DISK_FULL);
            continue;
        }
        refuse_items(l, now, j->send);
        mailbox_job_done(j);
    }
}

/* A shard that was found to be another node's: whatever became of it, the same key tells there. */
static void answer_held(struct mailbox_lane *l, enum err e, enum mailbox_why why)
{
    struct mailbox_job *j = l->held;
    l->held = NULL;
    l->held_end = &l->held;
    l->held_n = 0;
    net_loop_cork(); /* one wake-up per event loop for all answers of the group */
    while (j) {
        struct mailbox_job *next = j->next;
        if (e != ERR_OK) {
            j->err = e == ERR_FENCED ? ERR_NOT_OWNER : e;
            j->why = e == ERR_FENCED ? MAILBOX_WHY_ELSEWHERE : why;
        }
        mailbox_job_done(j);
        j = next;
    }
    for (struct mailbox_stream *st = l->streams; st; st = st->next) {
        if (e == ERR_OK)
            mailbox_worker__post_batch(st);
        else
            mailbox_worker__drop_batch(st);
    }
    net_loop_uncork();
}

static bool must_write(const struct mailbox_lane *l, struct mailbox_now now, bool last)
{
    const struct mailbox_shard *s = &l->shard;
    if (s->group.n == 0)
        return false;
    return last || s->must_flush || s->group.n >= MAILBOX_LAZY_BYTES ||
           now.mono_us - s->lazy_since_us >= mailbox_config(l->mb)->lazy_flush * 1000;
}

/* Whoever the last write answered may be about to ask again. What is only settled has been answered: nobody waits for it. */
static bool others_come(struct mailbox_lane *l, struct mailbox_now now)
{
    return l->held && !mailbox_shard_group_full(&l->shard) &&
           mailbox_gather_waits(&l->gather, now.mono_us, l->held_n);
}

static enum err write_group(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS
{
    int64_t began_ns = clock_mono_ns(l->mb->clock);
    enum err e = mailbox_lane_commit(l, now);
    l->wrote = true;
    int64_t ended_ns = clock_mono_ns(l->mb->clock);
    if (l->held)
        mailbox_gather_wrote(&l->gather, ended_ns / 1000, (ended_ns - began_ns) / 1000, l->held_n,
                             (uint32_t)rt_chan_depth(l->work) + l->fair.jobs);
    return e;
}

void mailbox_worker__commit(struct mailbox_lane *l, struct mailbox_now now, bool last)
{
    enum err e = mailbox_presence_is_lost(&l->presence) ? ERR_FENCED : ERR_OK;
    enum mailbox_why why = MAILBOX_WHY_NONE;
    if (e == ERR_OK && must_write(l, now, last)) {
        if (!last && others_come(l, now))
            return;
        e = write_group(l, now);
        if (e == ERR_NO_SPACE) {
            atomic_store(&l->disk_full, atomic_load(&l->no_space));
            if (!l->held || (!l->roomy && !last))
                return; /* settlements alone: they wait for a spare segment, in memory; and who must know that they are written */
            if (!l->roomy) { /* there will be no other turn: it is in memory, and its outcome unknown */
                e = ERR_UNAVAILABLE;
                why = MAILBOX_WHY_DISK_FULL;
            } else {
                /* Room for the largest group was there when it was begun; only another writer's fault can take it away. */
                mailbox_shard_failed(&l->shard);
                atomic_store(&l->readonly, true);
                e = ERR_SAFE_MODE;
            }
        }
    }
    answer_held(l, e, why);
    if (l->shard.readonly && e != ERR_FENCED) {
        mailbox_worker__refuse_waiting(l, ERR_SAFE_MODE, MAILBOX_WHY_NONE);
        mailbox_worker__end_parked(l, INT64_MAX);
    }
}

static void adopt_rules(struct mailbox_lane *l)
{
    uint64_t version = atomic_load(&l->mb->rules_version);
    char why[200];
    if (version == l->rules_seen)
        return;
    l->rules_seen = version;
    l->fair.quantum = (uint32_t)mailbox_config(l->mb)->fair_quantum;
    if (mailbox_tail_resize(&l->log.tail, mailbox_config(l->mb)->tail_cache) != ERR_OK)
        obs_log(svc_log(l->mb->svc), OBS_WARN, "tail_cache.no_memory", OBS_U64("shard", l->no), OBS_END);
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
    mailbox_worker__reclaim(l, now);
}

static int64_t wait_us(const struct mailbox_lane *l, struct mailbox_now now)
{
    const struct mailbox_shard *s = &l->shard;
    int64_t until = now.mono_us + (int64_t)IDLE_WAIT_MS * 1000, due = mailbox_shard_next_due(s);
    if (l->fair.jobs || l->operators || l->unfinished || l->more_ticks || l->reclaim.busy)
        return atomic_load(&l->awaits_segment) ? SEGMENT_LOOK_US : 0;
    if (due <= now.mono_us) /* its slot has begun, and what is in it may be due in any of its 10 ms */
        due = now.mono_us + SLOT_LOOK_US;
    if (due < until)
        until = due;
    if (s->group.n && s->lazy_since_us + mailbox_config(l->mb)->lazy_flush * 1000 < until)
        until = s->lazy_since_us + mailbox_config(l->mb)->lazy_flush * 1000;
    if (s->group.n && !l->roomy && until < now.mono_us + SEGMENT_LOOK_US)
        until = now.mono_us + SEGMENT_LOOK_US; /* it may not be there yet */
    if (l->held && l->gather.expected && l->gather.until_us < until)
        until = l->gather.until_us;
    const struct heap_node *top = heap_top(&l->parked);
    if (top && heap_entry(top, struct mailbox_recv, deadline_node)->deadline_us < until)
        until = heap_entry(top, struct mailbox_recv, deadline_node)->deadline_us;
    return until > now.mono_us ? until - now.mono_us : 0;
}

static struct mailbox_job *next_operator(struct mailbox_lane *l)
{
    struct mailbox_job *j = l->operators;
    l->operators = j->next;
    if (!l->operators)
        l->operators_end = &l->operators;
    return j;
}

/*
 * Bytes of its files were found to be wrong. What was taken before is written and answered: a group may be waiting for others to join
 * it. From then on settling goes on in memory; a start will judge the files.
 */
static void stop_writing(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS
{
    mailbox_worker__commit(l, now, true);
    if (l->shard.readonly)
        return; /* that failed, too, and was told */
    mailbox_shard_failed(&l->shard);
    atomic_store(&l->readonly, true);
    mailbox_tell(l->mb, l->no, &(struct mailbox_event){.kind = MAILBOX_EV_SHARD_READONLY});
}

/*
 * After a write its answers are with the event loops, and what they lead to will be there in no time. Where a loop has to share this
 * core, it brings that only when it may run: so the next group is as large as it can be, and writes are fewer.
 */
static void offer_core(struct mailbox_lane *l)
{
    if (l->wrote)
        rt_offer_core(&l->core, l->mb->clock, clock_mono_ns(l->mb->clock));
    l->wrote = false;
}

/* One turn; ERR_CLOSED when there will be no more jobs and everything is answered and written. */
static enum err turn(struct mailbox_lane *l, int64_t wait_most_us) RT_BLOCKS
{
    void *jobs[MAILBOX_BATCH_JOBS], *ticks[64];
    size_t n = 0, ticks_n = 0;
    if (!mailbox_presence_is_here(&l->presence))
        return mailbox_worker__elsewhere(l, wait_most_us);
    offer_core(l);
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
    l->worked = n > 0;
    if (rt_chan_try_recv_batch(l->requeue, ticks, 64, &ticks_n) != ERR_OK)
        ticks_n = 0; /* ticks only wake: the wheel knows what is due */

    now = mailbox_now(l->mb);
    adopt_rules(l);
    l->shard.no_room = atomic_load(&l->over_quota) ||
                       mailbox_lane_over_quota(l); /* the rebalancer may look when it is too late */
    if (atomic_load(&l->damaged) && !l->shard.readonly)
        stop_writing(l, now);
    if (!mailbox_shard_group_full(&l->shard))
        l->more_ticks = mailbox_shard_tick(&l->shard, now);
    net_loop_cork();
    look_ahead(l, jobs, n);
    for (size_t i = 0; i < n; i++)
        take_job(l, now, jobs[i]);
    if (l->shard.readonly) {
        mailbox_worker__refuse_waiting(l, ERR_SAFE_MODE, MAILBOX_WHY_NONE);
        while (l->operators)
            mailbox_worker__refuse(next_operator(l), ERR_SAFE_MODE, MAILBOX_WHY_NONE);
    } else if ((l->roomy = writable(l))) {
        resume_unfinished(l, now);
        work_through(l, now);
        mailbox_worker__serve_waiters(l, now);
        if (l->operators && !mailbox_shard_group_full(&l->shard))
            mailbox_worker__operate(l, now, next_operator(l));
        housekeeping(l, now);
    } else if (atomic_load(&l->disk_full)) {
        refuse_full(l, now);
        while (l->operators)
            mailbox_worker__operate(l, now, next_operator(l));
    }
    mailbox_worker__end_parked(l, atomic_load(&l->mb->draining) ? INT64_MAX : now.mono_us);
    net_loop_uncork(); /* settlements and refusals do not wait for the write */
    bool idle = closed == ERR_CLOSED && !l->fair.jobs && !l->operators && !l->unfinished;
    mailbox_worker__commit(l, now, idle);
    mailbox_worker__reclaimed(l);
    mailbox_worker__publish(l);
    mailbox_worker__tell_events(l);
    if (now.mono_us - l->counted_at_us > 100000 || idle) {
        l->counted_at_us = now.mono_us;
        mailbox_worker__count_up(l);
    }
    return idle ? ERR_CLOSED : ERR_OK;
}

enum err mailbox_worker_run(struct rt_task *self, void *arg)
{
    struct mailbox *mb = arg;
    unsigned index = rt_task_index(self);
    bool open = true, busy = false;
    while (index >= mb->lanes_made) /* fewer shards than workers: nothing to do, for now */
        if (rt_task_sleep(self, deadline_in_ms(SPARE_WAIT_MS)) != ERR_OK || rt_task_stopping(self))
            return ERR_OK;
    while (open) {
        bool shared = mb->lanes_made > mb->workers; /* more shards than workers: each serves several */
        int64_t wait_us = !shared ? INT64_MAX : busy ? 0 : SHARED_WAIT_MS * 1000;
        open = busy = false;
        for (unsigned i = index; i < mb->lanes_made; i += mb->workers) {
            mb->lanes[i].worked = false;
            enum err e = turn(&mb->lanes[i], wait_us);
            rt_task_beat(self);
            if (e == ERR_CANCELED)
                return e; /* what was taken lies in the lane; the next worker goes on */
            open = open || e == ERR_OK;
            busy = busy || mb->lanes[i].worked;
        }
    }
    return ERR_OK;
}
