/* What the files of the worker share. Everything here runs on the worker's thread, between two groups. */
#ifndef RON_MAILBOX_WORKER_INTERNAL_H
#define RON_MAILBOX_WORKER_INTERNAL_H

#include "base/check.h"
#include "services/mailbox/mailbox.h"

/* The answer leaves when the group is durable. */
static inline void mailbox_worker__hold(struct mailbox_lane *l, struct mailbox_job *j)
{
    j->next = NULL;
    *l->held_end = j;
    l->held_end = &j->next;
    l->held_n++;
}

static inline void mailbox_worker__refuse(struct mailbox_job *j, enum err e, enum mailbox_why why)
{
    j->err = e;
    j->why = why;
    mailbox_job_done(j);
}

/* worker.c, for handover.c and deliver.c */
void mailbox_worker__commit(struct mailbox_lane *l, struct mailbox_now now, bool last) RT_BLOCKS;
void mailbox_worker__refuse_waiting(struct mailbox_lane *l, enum err e, enum mailbox_why why);

/* handover.c: a turn of a lane whose shard is not here; ERR_CLOSED when there will be no more jobs */
enum err mailbox_worker__elsewhere(struct mailbox_lane *l, int64_t wait_most_us) RT_BLOCKS;

/* deliver.c: receives, parked receives, streams */
void mailbox_worker__recv(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_job *j) RT_BLOCKS;
void mailbox_worker__recv_left(struct mailbox_lane *l, struct mailbox_recv *rv);
void mailbox_worker__serve_waiters(struct mailbox_lane *l, struct mailbox_now now);
void mailbox_worker__end_parked(struct mailbox_lane *l, int64_t until_us);
void mailbox_worker__open_stream(struct mailbox_lane *l, struct mailbox_job *j);
void mailbox_worker__unlink_stream(struct mailbox_lane *l, struct mailbox_stream *st);
void mailbox_worker__post_batch(struct mailbox_stream *st);
void mailbox_worker__drop_batch(struct mailbox_stream *st); /* its leases were never durable */
/* A stream that ends while its batch waits to be written: it is written and posted now; where there is no room, its messages go back. */
void mailbox_worker__settle_batch(struct mailbox_lane *l, struct mailbox_now now,
                                  struct mailbox_stream *st) RT_BLOCKS;

/* operate.c: one operator job */
void mailbox_worker__operate(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_job *j);

/* reclaim.c: emptying old segments; the second is called when a group was written, or there was none to write */
void mailbox_worker__reclaim(struct mailbox_lane *l, struct mailbox_now now) RT_BLOCKS;
void mailbox_worker__reclaimed(struct mailbox_lane *l);

/* tally.c: what others see of the lane */
void mailbox_worker__publish(struct mailbox_lane *l);
void mailbox_worker__count_up(struct mailbox_lane *l);
void mailbox_worker__tell_events(struct mailbox_lane *l);

#endif
