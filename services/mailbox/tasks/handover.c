/*
 * A shard that is not here, comes, or goes (replica.h): the worker's part. While it is not here, whatever reaches the queue is
 * refused with the place where it should go; nothing waits.
 */
#include <stdlib.h>

#include "services/mailbox/replica.h"
#include "services/mailbox/tasks/worker_internal.h"

enum { AWAY_WAIT_MS = 20 };

static void refuse(struct mailbox_job *j)
{
    if (j->kind == MAILBOX_JOB_STREAM_CLOSE || j->kind == MAILBOX_JOB_RELEASE)
        mailbox_job_done(j); /* its stream was let go of, its leases ended with the state */
    else
        mailbox_worker__refuse(j, ERR_NOT_OWNER, MAILBOX_WHY_ELSEWHERE);
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

static void arrive(struct mailbox_lane *l) RT_BLOCKS
{
    enum err e = mailbox_replica_load(l);
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
    if (l->unfinished) { /* what of it was sent is found again by its keys */
        struct mailbox_job *j = l->unfinished;
        l->unfinished = NULL;
        j->send_rest = NULL;
        refuse(j);
    }
    mailbox_worker__commit(l, mailbox_now(l->mb), true);
    mailbox_worker__refuse_waiting(l, ERR_NOT_OWNER, MAILBOX_WHY_ELSEWHERE);
    mailbox_worker__end_parked(l, INT64_MAX);
    while (l->streams) {
        struct mailbox_stream *st = l->streams;
        mailbox_worker__post_batch(st);
        mailbox_worker__unlink_stream(l, st); /* its loop sees the stage and closes it */
    }
}

static void depart(struct mailbox_lane *l) RT_BLOCKS
{
    let_go(l);
    if (!mailbox_presence_unread(&l->presence))
        return; /* somebody reads from its journal; soon */
    mailbox_worker__tell_events(l);
    mailbox_worker__count_up(l);
    mailbox_lane_unload(l);
    mailbox_presence_left(&l->presence);
}

enum err mailbox_worker__elsewhere(struct mailbox_lane *l, int64_t wait_most_us)
{
    int64_t wait = AWAY_WAIT_MS * 1000 < wait_most_us ? AWAY_WAIT_MS * 1000 : wait_most_us;
    enum mailbox_stage stage = mailbox_presence_stage(&l->presence);
    if (stage == MAILBOX_COMING)
        arrive(l);
    else if (stage == MAILBOX_GOING)
        depart(l);
    enum err e = refuse_all(l, stage == MAILBOX_AWAY ? wait : 1000);
    return e == ERR_CLOSED && mailbox_presence_stage(&l->presence) != MAILBOX_AWAY ? ERR_OK : e;
}
