/*
 * Who waits, with the real core: a receive that waits is met by a message, by its end, and by its leaving, at once; a stream is closed while
 * it is given something and while credit comes back. Every call is finished once, nobody is left in the shard, and no message is lost or
 * held by somebody who is not there.
 */
#include "box.h"

/*
 * The call around a receive, as api/recv.c has it: finished when all of its jobs are done; leaving is a second job, unless the first is
 * on its way back already.
 */
struct call {
    struct box *b;
    struct os_a32 jobs_left, finished;
    struct job *wait, *leave;
    struct mailbox_waiter waiter;
    bool parked, left;
    uint32_t got; /* an entry that is this call's */
};

static struct call call; /* set anew by each run */

static void job_done(struct call *c)
{
    if (os_a32_add(&c->jobs_left, UINT32_MAX, memory_order_acq_rel) == 1)
        CHECK(os_a32_add(&c->finished, 1, memory_order_relaxed) == 0);
}

static void unpark(struct call *c)
{
    mailbox_shard_leave(c->b->shard, &c->waiter);
    c->parked = false;
}

static void given(void *ctx, struct mailbox_waiter *w, uint32_t entry)
{
    struct call *c = ctx;
    CHECK(w == &c->waiter && c->parked && c->got == 0);
    c->got = entry;
}

static void serve(struct call *c)
{
    mailbox_shard_serve(c->b->shard, c->b->now, 10, given, c);
    if (!c->got || !c->parked)
        return;
    unpark(c);
    commit(c->b);
    job_done(c);
}

static void begin_waiting(struct call *c)
{
    struct mailbox_topic *t;
    if (c->left) { /* it left before it was taken */
        model_cover(3);
        job_done(c);
        return;
    }
    CHECK(mailbox_shard_topic_to_wait(c->b->shard, &c->b->hash, STR("t"), &t) == ERR_OK);
    c->waiter = (struct mailbox_waiter){.room = 1, .room_bytes = 1 << 20, .visibility_us = 500000};
    c->parked = true;
    mailbox_shard_wait(c->b->shard, t, &c->waiter);
}

/* As tasks/worker.c and deliver.c. */
static void work(struct box *b, struct job *j)
{
    struct call *c = &call;
    switch (j->kind) {
    case JOB_SEND:
        do_send(b, j);
        break;
    case JOB_WAIT:
        begin_waiting(c);
        break;
    case JOB_LEAVE:
        c->left = true;
        if (c->parked) {
            model_cover(2);
            unpark(c);
            job_done(c);
        }
        job_done(c);
        break;
    case JOB_TIMEOUT:
        if (c->parked) {
            model_cover(1);
            unpark(c);
            job_done(c);
        }
        break;
    case JOB_RECV:
    case JOB_ACK:
    case JOB_EXTEND:
    case JOB_RELEASE:
    case JOB_TICK:
    case JOB_TICK_AGAIN:
        UNREACHABLE();
    }
    serve(c);
    commit(b);
    answer(j);
}

static bool first_in_turn(const struct job *j)
{
    return j->kind == JOB_LEAVE || j->kind == JOB_TIMEOUT;
}

/* Sends and receives stand in the fair queue and are worked on after the rest of what was taken together. */
RT_BLOCKS
static void worker(void *arg)
{
    struct box *b = arg;
    void *items[4];
    size_t n;
    while (rt_chan_recv_batch(b->work, items, 4, deadline_never(), &n) == ERR_OK)
        for (int pass = 0; pass < 2; pass++)
            for (size_t i = 0; i < n; i++)
                if (first_in_turn(items[i]) == (pass == 0))
                    work(b, items[i]);
}

static void submit(void *arg)
{
    struct job *j = arg;
    CHECK(rt_chan_try_send(call.b->work, j) == ERR_OK);
}

/* As mailbox_recv_left. */
static void leave(void *arg)
{
    struct call *c = arg;
    uint32_t left = os_a32_load(&c->jobs_left, memory_order_relaxed);
    do {
        if (left == 0)
            return;
    } while (!os_a32_cas(&c->jobs_left, &left, left + 1, memory_order_acq_rel));
    submit(c->leave);
}

RT_BLOCKS
static void a_receive_that_waits_is_answered_once_whatever_ends_it(void)
{
    struct box *b = box_open(4);
    struct os_thread w, d[3];
    call = (struct call){.b = b, .wait = &b->jobs[0], .leave = &b->jobs[1]};
    os_a32_store(&call.jobs_left, 1, memory_order_relaxed);
    b->jobs[0].kind = JOB_WAIT;
    b->jobs[1].kind = JOB_LEAVE;
    b->jobs[2].kind = JOB_SEND;
    b->jobs[3].kind = JOB_TIMEOUT;
    CHECK(rt_chan_try_send(b->work, call.wait) == ERR_OK);
    start(&w, "worker", worker, b);
    start(&d[0], "sender", submit, &b->jobs[2]);
    start(&d[1], "client", leave, &call);
    start(&d[2], "clock", submit, &b->jobs[3]);
    for (int i = 0; i < 3; i++)
        os_thread_join(&d[i]);
    rt_chan_close(b->work);
    os_thread_join(&w);
    if (call.parked) { /* the clock looked too early, and nobody left: at the end of the service it is answered */
        unpark(&call);
        job_done(&call);
    }
    CHECK(os_a32_load(&call.finished, memory_order_relaxed) == 1);
    CHECK(b->shard->waiters == 0);
    CHECK(b->shard->count[MAILBOX_LEASED] == (call.got != 0) &&
          b->shard->count[MAILBOX_READY] == (call.got == 0));
    if (call.got)
        model_cover(0);
    box_close(b);
}

/* ---- a stream with a window of one, and three messages ---- */

static struct stream {
    struct box *b;
    struct mailbox_waiter waiter;
    struct uuid ids[3], batch[3];
    unsigned given, read; /* by the worker, and of these by the client */
    bool closed;
} stream;

static void streamed(void *ctx, struct mailbox_waiter *w, uint32_t entry)
{
    struct stream *st = ctx;
    CHECK(w == &st->waiter && !st->closed && st->given < 3);  /* nothing comes after the close */
    CHECK(st->b->shard->streams[w->stream].outstanding == 1); /* never more than the window */
    st->batch[st->given++] = mailbox_shard_entry(st->b->shard, entry)->msg_id;
}

/* What was given and not read goes back when the worker has let go, as closed() in api/stream.c does. */
static void close_stream(struct stream *st)
{
    mailbox_shard_leave(st->b->shard, &st->waiter);
    st->closed = true;
    for (unsigned i = st->read; i < st->given; i++)
        CHECK(mailbox_shard_release(st->b->shard, st->b->now, &st->batch[i], 1) == ERR_OK);
    model_cover(st->given > st->read ? 1 : 0);
}

static void stream_work(struct job *j)
{
    struct stream *st = &stream;
    struct mailbox_settled out = {0};
    struct mailbox_fence f = {.msg_id = st->ids[0], .attempt = 1};
    if (j->kind == JOB_ACK)
        j->err = mailbox_shard_ack(st->b->shard, st->b->now, &f, &out);
    else if (j->kind == JOB_LEAVE)
        close_stream(st);
    else
        j->err = mailbox_shard_extend(st->b->shard, st->b->now, &f, 500000, &out);
    mailbox_shard_serve(st->b->shard, st->b->now, 10, streamed, st);
    commit(st->b);
    answer(j);
}

RT_BLOCKS
static void stream_worker(void *arg)
{
    const struct box *b = arg;
    void *items[4];
    size_t n;
    while (rt_chan_recv_batch(b->work, items, 4, deadline_never(), &n) == ERR_OK)
        for (size_t i = 0; i < n; i++)
            stream_work(items[i]);
}

static void stream_submit(void *arg)
{
    CHECK(rt_chan_try_send(stream.b->work, arg) == ERR_OK);
}

RT_BLOCKS
static void a_stream_that_is_closed_keeps_nothing_that_was_not_read(void)
{
    struct box *b = box_open(4);
    struct os_thread w, d[3];
    struct mailbox_topic *t;
    stream = (struct stream){.b = b};
    for (int i = 0; i < 3; i++) {
        static const char *const keys[] = {"first", "second", "third"};
        struct job send = {.kind = JOB_SEND, .key = keys[i]};
        do_send(b, &send);
        stream.ids[i] = b->id;
        commit(b);
    }
    CHECK(mailbox_shard_topic_to_wait(b->shard, &b->hash, STR("t"), &t) == ERR_OK);
    stream.waiter = (struct mailbox_waiter){.room = 1, .room_bytes = 1 << 20, .visibility_us = 500000};
    CHECK(mailbox_shard_stream_open(b->shard, &stream.waiter) == ERR_OK);
    mailbox_shard_wait(b->shard, t, &stream.waiter);
    mailbox_shard_serve(b->shard, b->now, 10, streamed, &stream);
    commit(b);
    CHECK(stream.given == 1); /* the window is full, and the client has read it */
    stream.read = 1;
    b->jobs[0].kind = JOB_ACK;
    b->jobs[1].kind = JOB_LEAVE;
    b->jobs[2].kind = JOB_EXTEND;
    start(&w, "worker", stream_worker, b);
    start(&d[0], "consumer", stream_submit, &b->jobs[0]);
    start(&d[1], "client", stream_submit, &b->jobs[1]);
    start(&d[2], "slow consumer", stream_submit, &b->jobs[2]);
    for (int i = 0; i < 3; i++)
        os_thread_join(&d[i]);
    rt_chan_close(b->work);
    os_thread_join(&w);
    CHECK(b->jobs[0].err == ERR_OK && (b->jobs[2].err == ERR_OK || b->jobs[2].err == ERR_NOT_LEASED));
    CHECK(b->shard->count[MAILBOX_DONE] == 1 && b->shard->count[MAILBOX_READY] == 2 &&
          b->shard->count[MAILBOX_LEASED] == 0);
    CHECK(b->shard->waiters == 0 && b->shard->open_streams == 0);
    for (uint16_t k = 1; k < b->shard->streams_cap; k++)
        CHECK(!b->shard->streams[k].waiter && b->shard->streams[k].outstanding == 0);
    box_close(b);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "a_receive_that_waits_is_answered_once_whatever_ends_it",
         .body = a_receive_that_waits_is_answered_once_whatever_ends_it,
         .preemptions = 1,
         .covers = 4},
        {.name = "a_stream_that_is_closed_keeps_nothing_that_was_not_read",
         .body = a_stream_that_is_closed_keeps_nothing_that_was_not_read,
         .preemptions = 1,
         .covers = 2},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
