/*
 * A shard that is not here, comes, or goes: the worker's part. Either several nodes share the shards (replica.h): while it is not
 * here, whatever reaches the queue is refused with the place where it should go. Or their number changes (change.c): then it is
 * refused for a while, and the leases that are out are remembered and put back. Nothing waits.
 */
#include <stdlib.h>

#include "services/mailbox/replica.h"
#include "services/mailbox/tasks/worker_internal.h"

enum { AWAY_WAIT_MS = 20 };

static void refuse(struct mailbox_job *j)
{
    if (j->kind == MAILBOX_JOB_STREAM_CLOSE || j->kind == MAILBOX_JOB_RELEASE ||
        j->kind == MAILBOX_JOB_RECV_LEAVE)
        mailbox_job_done(j); /* its stream or receive was let go of, its leases ended with the state */
    else if (j->lane->mb->replica)
        mailbox_worker__refuse(j, ERR_NOT_OWNER, MAILBOX_WHY_ELSEWHERE);
    else
        mailbox_worker__refuse(j, ERR_BUSY, MAILBOX_WHY_REBALANCING);
}

/* ERR_CLOSED: there will be no more. */
static enum err refuse_all(struct mailbox_lane *l, int64_t wait_us) RT_BLOCKS
{
    void *jobs[MAILBOX_BATCH_JOBS], *ticks[64];
    size_t n = 0, ticks_n = 0;
    enum err e = rt_chan_recv_batch(l->work, jobs, MAILBOX_BATCH_JOBS,
                                    deadline_at_ns(os_now_ns() + wait_us * 1000), &n);
    for (size_t i = 0; e == ERR_OK && i < n; i++)
        refuse(jobs[i]);
    if (rt_chan_try_recv_batch(l->requeue, ticks, 64, &ticks_n) != ERR_OK)
        ticks_n = 0;
    return e == ERR_CLOSED || e == ERR_CANCELED ? e : ERR_OK;
}

/* ---- leases, over a change of the number of shards ---- */

static bool remember_leases(struct mailbox_lane *l)
{
    const struct mailbox_shard *s = &l->shard;
    uint32_t n = 0, want = s->count[MAILBOX_LEASED];
    struct mailbox_lease_held *held = malloc((want + 1) * sizeof *held);
    if (!held)
        return false;
    for (uint32_t i = 1; n < want && i < s->slabs.used; i++) {
        const struct mailbox_entry *e = mailbox_shard_entry(s, i);
        if (e->state == MAILBOX_LEASED)
            held[n++] = (struct mailbox_lease_held){e->msg_id, mailbox_entry_due(e), e->attempt};
    }
    free(l->leases_held);
    l->leases_held = held;
    l->leases_held_n = n;
    return true;
}

/* Each may have been any shard's before. */
static enum err put_leases_back(void *ctx, struct mailbox_log *g)
{
    struct mailbox *mb = ctx;
    for (uint16_t k = 0; k < mb->lanes_made; k++)
        for (uint32_t i = 0; i < mb->lanes[k].leases_held_n; i++)
            mailbox_replay_lease_held(g->shard, &mb->lanes[k].leases_held[i]);
    return ERR_OK;
}

/* ---- coming and going ---- */

static void arrive(struct mailbox_lane *l) RT_BLOCKS
{
    struct mailbox_log_config alone = {.catch_up = put_leases_back, .catch_up_ctx = l->mb};
    enum err e = l->mb->replica ? mailbox_replica_load(l) : mailbox_lane_load(l, &alone);
    if (e == ERR_OK && !mailbox_presence_is_lost(&l->presence)) {
        atomic_fetch_add(&l->incarnation, 1);
        mailbox_worker__publish(l);
        mailbox_presence_arrived(&l->presence);
        return;
    }
    mailbox_lane_unload(l);
    atomic_store(&l->refused, (int)e);
    mailbox_presence_left(&l->presence);
}

/* Everything that waits for this shard is told to go elsewhere, and what was done for it is written, unless it is another's already. */
static void let_go(struct mailbox_lane *l) RT_BLOCKS
{
    while (l->operators) {
        struct mailbox_job *j = l->operators;
        l->operators = j->next;
        refuse(j);
    }
    l->operators_end = &l->operators;
    mailbox_worker__commit(l, mailbox_now(l->mb), true);
    if (l->mb->replica)
        mailbox_worker__refuse_waiting(l, ERR_NOT_OWNER, MAILBOX_WHY_ELSEWHERE);
    else
        mailbox_worker__refuse_waiting(l, ERR_BUSY, MAILBOX_WHY_REBALANCING);
    mailbox_worker__end_parked(l, INT64_MAX);
    while (l->streams) {
        struct mailbox_stream *st = l->streams;
        mailbox_worker__settle_batch(l, mailbox_now(l->mb), st);
        mailbox_worker__unlink_stream(l, st); /* its loop sees the stage and closes it */
    }
}

/* Settlements that were answered must not go with the memory: what found no room is written to a segment made for it. */
static bool written(struct mailbox_lane *l) RT_BLOCKS
{
    struct store_journal *j = l->log.journal;
    if (l->shard.group.n == 0 || l->shard.readonly)
        return true;
    if (store_journal_adopt_spares(j) != ERR_OK ||
        (store_journal_wants_spare(j) && store_journal_prepare_spare(j) != ERR_OK))
        return false;
    mailbox_worker__commit(l, mailbox_now(l->mb), true);
    return l->shard.group.n == 0 || l->shard.readonly;
}

static void depart(struct mailbox_lane *l) RT_BLOCKS
{
    let_go(l);
    if (!l->mb->replica && (!written(l) || !remember_leases(l)))
        return; /* once more, then */
    if (!mailbox_presence_unread(&l->presence))
        return; /* somebody reads from its journal; soon */
    mailbox_worker__tell_events(l);
    mailbox_worker__count_up(l);
    mailbox_lane_unload(l);
    mailbox_presence_left(&l->presence);
}

enum err mailbox_worker__elsewhere(struct mailbox_lane *l, int64_t wait_most_us)
{
    int64_t wait = (int64_t)AWAY_WAIT_MS * 1000;
    if (wait > wait_most_us)
        wait = wait_most_us;
    enum mailbox_stage stage = mailbox_presence_stage(&l->presence);
    if (stage == MAILBOX_COMING)
        arrive(l);
    else if (stage == MAILBOX_GOING)
        depart(l);
    enum err e = refuse_all(l, stage == MAILBOX_AWAY ? wait : 1000);
    return e == ERR_CLOSED && mailbox_presence_stage(&l->presence) != MAILBOX_AWAY ? ERR_OK : e;
}
