/* The way into the shards and back: places, bytes, and the post to the event loop. */
#include "base/check.h"
#include "services/mailbox/mailbox.h"

static const char *const why_names[] = {"",           "work",     "topic_share", "bytes",     "messages",
                                        "topics",     "inflight", "waiters",     "streams",   "reproc",
                                        "disk_quota", "draining", "rebalancing", "disk_full", "breaker",
                                        "stalled",    "quota"};

const char *mailbox_why_name(enum mailbox_why w)
{
    return why_names[w];
}

/* The last sixteenth of a shard's places is for settling, so that a full shard can still be emptied. */
enum err mailbox_submit(struct mailbox_job *j, bool settling, enum mailbox_why *out_why)
{
    struct mailbox_lane *l = j->lane;
    const struct mailbox_config *cfg = mailbox_config(l->mb);
    unsigned most =
        (unsigned)(settling ? cfg->shard_capacity : cfg->shard_capacity - cfg->shard_capacity / 16);
    CHECK(j->magic == MAILBOX_JOB_MAGIC);
    *out_why = MAILBOX_WHY_WORK;
    if (atomic_fetch_add(&l->jobs, 1) >= most) {
        atomic_fetch_sub(&l->jobs, 1);
        return ERR_BUSY;
    }
    if (j->bytes && atomic_fetch_add(&l->bytes, j->bytes) + j->bytes > cfg->shard_bytes) {
        atomic_fetch_sub(&l->bytes, j->bytes);
        atomic_fetch_sub(&l->jobs, 1);
        *out_why = MAILBOX_WHY_BYTES;
        return ERR_BUSY;
    }
    j->counted = true;
    enum err e = rt_chan_try_send(l->work, j);
    if (e == ERR_OK)
        return ERR_OK;
    j->counted = false;
    atomic_fetch_sub(&l->jobs, 1);
    if (j->bytes)
        atomic_fetch_sub(&l->bytes, j->bytes);
    if (e == ERR_CLOSED)
        *out_why = MAILBOX_WHY_DRAINING;
    return ERR_BUSY;
}

void mailbox_job_done(struct mailbox_job *j)
{
    if (j->counted) {
        j->counted = false;
        atomic_fetch_sub(&j->lane->jobs, 1);
        if (j->bytes)
            atomic_fetch_sub(&j->lane->bytes, j->bytes);
    }
    j->done(j);
}

static void finish(struct net_msg *m)
{
    struct mailbox_call *c = (struct mailbox_call *)((char *)m - offsetof(struct mailbox_call, msg));
    CHECK_MAGIC(c, MAILBOX_CALL_MAGIC);
    c->finish(c);
}

void mailbox_call_job_done(struct mailbox_job *j)
{
    struct mailbox_call *c = j->arg;
    CHECK_MAGIC(c, MAILBOX_CALL_MAGIC);
    /* acq_rel: the loop that finishes the call sees what every worker wrote into it */
    if (atomic_fetch_sub_explicit(&c->jobs_left, 1, memory_order_acq_rel) != 1)
        return;
    c->msg.fn = finish;
    net_loop_post(c->loop, &c->msg);
}
