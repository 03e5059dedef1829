/* The way into the shards and back: places, bytes, and the post to the event loop. */
#include "base/check.h"
#include "net/outbox.h"
#include "services/mailbox/mailbox.h"

static const char *const why_names[] = {"",           "work",     "topic_share", "bytes",     "messages",
                                        "topics",     "inflight", "waiters",     "streams",   "reproc",
                                        "disk_quota", "draining", "rebalancing", "disk_full", "breaker",
                                        "stalled",    "quota",    "elsewhere",   "lease"};

const char *mailbox_why_name(enum mailbox_why w)
{
    return why_names[w];
}

/* A shard whose worker hangs in a write takes no new work: it would only wait, and be answered as unknown. */
static bool stalled(const struct mailbox_lane *l, int64_t now_ns)
{
    int64_t since = atomic_load(&l->busy_since_ns);
    return since && now_ns - since > (int64_t)MAILBOX_STALL_MS * 1000000;
}

/*
 * The breaker judges sends: one that was answered later than its caller waits for is a failure, whatever the answer. Open, it
 * refuses at the door; half open, it lets a few through.
 */
static enum err ask_breaker(struct mailbox_job *j, int64_t now_ns, enum mailbox_why *out_why)
{
    if (stalled(j->lane, now_ns)) {
        *out_why = MAILBOX_WHY_STALLED;
        return ERR_UNAVAILABLE;
    }
    if (j->kind != MAILBOX_JOB_SEND)
        return ERR_OK;
    if (!rt_breaker_allow(&j->lane->breaker, now_ns)) {
        *out_why = MAILBOX_WHY_BREAKER;
        return ERR_UNAVAILABLE;
    }
    j->submitted_ns = now_ns;
    return ERR_OK;
}

static void tell_breaker(struct mailbox_job *j, bool taken)
{
    int64_t now_ns = clock_mono_ns(j->lane->mb->clock), took_ns = now_ns - j->submitted_ns;
    if (!j->submitted_ns)
        return;
    j->submitted_ns = 0;
    if (taken && took_ns > (int64_t)MAILBOX_SEND_MS * 1000000)
        rt_breaker_failure(&j->lane->breaker, now_ns);
    else if (taken && j->err == ERR_OK)
        rt_breaker_success(&j->lane->breaker, now_ns);
    else
        rt_breaker_neither(&j->lane->breaker, now_ns);
}

/*
 * What an event loop submits leaves together at the end of its iteration, so that the worker is woken once and finds it all. The
 * queue has a slot for every place, so only its end can refuse a job then.
 */
static bool through_the_door(struct mailbox_job *j)
{
    const struct net_loop *here = net_loop_current();
    struct net_server *server = svc_server(j->lane->mb->svc);
    if (!here || !j->lane->doors || rt_chan_is_closed(j->lane->work))
        return false;
    for (unsigned i = 0; i < net_server_threads(server); i++)
        if (net_server_loop(server, i) == here) {
            net_outbox_put(j->lane->doors, i, j);
            return true;
        }
    return false;
}

/* The last sixteenth of a shard's places is for settling, so that a full shard can still be emptied. */
static enum err enter(struct mailbox_job *j, bool settling, enum mailbox_why *out_why)
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
    if (through_the_door(j))
        return ERR_OK;
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

/*
 * A shard of another node is refused at the door; what only lets go of something passes. A lease that has run out by our clock, too:
 * another node may be about to take it, and what is in our memory may be old.
 */
static enum err ask_stage(const struct mailbox_job *j, enum mailbox_why *out_why)
{
    struct mailbox_lane *l = j->lane;
    if (j->kind == MAILBOX_JOB_RELEASE || j->kind == MAILBOX_JOB_STREAM_CLOSE ||
        j->kind == MAILBOX_JOB_RECV_LEAVE)
        return ERR_OK;
    if (atomic_load_explicit(&l->mb->rebalancing,
                             memory_order_relaxed)) { /* a late one is met by the worker */
        *out_why = MAILBOX_WHY_REBALANCING;
        return ERR_BUSY;
    }
    if (!l->mb->replica)
        return ERR_OK;
    if (!mailbox_presence_is_here(&l->presence)) {
        *out_why = MAILBOX_WHY_ELSEWHERE;
        return ERR_NOT_OWNER;
    }
    if (clock_mono_ns(l->mb->clock) < atomic_load(&l->lease_until_ns))
        return ERR_OK;
    *out_why = MAILBOX_WHY_LEASE;
    return ERR_UNAVAILABLE;
}

enum err mailbox_submit(struct mailbox_job *j, bool settling, enum mailbox_why *out_why)
{
    enum err away = ask_stage(j, out_why);
    if (away != ERR_OK)
        return away;
    bool asks = !settling || j->kind == MAILBOX_JOB_TOPICS; /* who only looks need not wait for a disk */
    enum err e = asks ? ask_breaker(j, clock_mono_ns(j->lane->mb->clock), out_why) : ERR_OK;
    if (e != ERR_OK)
        return e;
    e = enter(j, settling, out_why);
    if (e != ERR_OK)
        tell_breaker(j, false);
    return e;
}

void mailbox_job_done(struct mailbox_job *j)
{
    tell_breaker(j, true);
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
