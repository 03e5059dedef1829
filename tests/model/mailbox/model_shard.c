/*
 * Producer -> bounded queue -> worker, with the real channel and the real shard core: shutdown racing with sends, receives and
 * acks; an ack racing with the end of its lease. No deadlock, no missed shutdown, no job answered twice or never, no double ack,
 * and a message whose lease ended is ready again.
 */
#include "box.h"

static void work(struct box *b, struct job *j)
{
    struct mailbox_settled out = {0};
    struct mailbox_fence f = {.msg_id = b->id, .attempt = 1};
    switch (j->kind) {
    case JOB_SEND:
        do_send(b, j);
        break;
    case JOB_RECV:
        do_recv(b, j);
        break;
    case JOB_ACK:
        j->err = mailbox_shard_ack(b->shard, b->now, &f, &out);
        if (out.already)
            j->err = ERR_EXISTS;
        break;
    case JOB_EXTEND:
        j->err = mailbox_shard_extend(b->shard, b->now, &f, 500000, &out);
        break;
    case JOB_RELEASE:
        j->err = mailbox_shard_release(b->shard, b->now, &b->id, 1);
        break;
    case JOB_TICK:
        b->now.mono_us += 600000; /* past the lease */
        __attribute__((fallthrough));
    case JOB_TICK_AGAIN:
        while (mailbox_shard_tick(b->shard, b->now))
            ;
        break;
    case JOB_WAIT:
    case JOB_LEAVE:
    case JOB_TIMEOUT:
        UNREACHABLE();
    }
    commit(b);
    answer(j);
}

RT_BLOCKS
static void worker(void *arg)
{
    struct box *b = arg;
    void *items[4];
    size_t n;
    for (;;) {
        enum err e = rt_chan_recv_batch(b->work, items, 4, deadline_never(), &n);
        if (e == ERR_CLOSED)
            return; /* shutdown is never missed: what was queued came first */
        CHECK(e == ERR_OK);
        for (size_t i = 0; i < n; i++)
            work(b, items[i]);
    }
}

struct door {
    struct box *b;
    unsigned first, n;
};

/* A job that is refused is answered by the door (429); one that is taken by the worker. */
static void submit(void *arg)
{
    const struct door *d = arg;
    for (unsigned i = 0; i < d->n; i++) {
        struct job *j = &d->b->jobs[d->first + i];
        enum err e = rt_chan_try_send(d->b->work, j);
        if (e == ERR_OK)
            continue;
        CHECK(e == ERR_BUSY || e == ERR_CLOSED);
        model_cover(e == ERR_BUSY ? 0 : 1);
        CHECK(os_a32_add(&j->answers, 1, memory_order_relaxed) == 0);
    }
}

RT_BLOCKS
static void shutdown_races_with_the_door_and_every_job_is_answered_once(void)
{
    struct box *b = box_open(1);
    struct os_thread w, d;
    struct door door = {b, 0, 3};
    b->jobs[0].kind = JOB_SEND;
    b->jobs[1].kind = JOB_RECV;
    b->jobs[2].kind = JOB_ACK;
    start(&w, "worker", worker, b);
    start(&d, "listener", submit, &door);
    rt_chan_close(b->work);
    os_thread_join(&d);
    os_thread_join(&w);
    for (int i = 0; i < 3; i++)
        CHECK(os_a32_load(&b->jobs[i].answers, memory_order_relaxed) == 1);
    box_close(b);
}

RT_BLOCKS
static void an_ack_and_the_end_of_its_lease_settle_once(void)
{
    struct box *b = box_open(4);
    struct os_thread w, d[2];
    struct door ack = {b, 2, 1}, tick = {b, 3, 1};
    b->jobs[0].kind = JOB_SEND;
    b->jobs[1].kind = JOB_RECV;
    b->jobs[2].kind = JOB_ACK;
    b->jobs[3].kind = JOB_TICK;
    work(b, &b->jobs[0]);
    work(b, &b->jobs[1]);
    CHECK(b->jobs[1].got == 1 && b->jobs[1].attempt == 1);
    start(&w, "worker", worker, b);
    start(&d[0], "consumer", submit, &ack);
    start(&d[1], "scanner", submit, &tick);
    os_thread_join(&d[0]);
    os_thread_join(&d[1]);
    rt_chan_close(b->work);
    os_thread_join(&w);
    /* late work counts: nobody was given a newer token, so the ack holds whichever came first */
    CHECK(b->jobs[2].err == ERR_OK);
    CHECK(b->shard->count[MAILBOX_DONE] == 1 && b->shard->count[MAILBOX_READY] == 0);
    model_cover(b->shard->stats.of[0].lease_expired ? 1 : 0);
    box_close(b);
}

RT_BLOCKS
static void of_an_ack_and_a_redelivery_the_fence_lets_one_win(void)
{
    struct box *b = box_open(4);
    struct os_thread w, d[2];
    struct door ack = {b, 2, 1}, other = {b, 3, 1};
    struct job first = {.kind = JOB_SEND}, second = {.kind = JOB_RECV}, tick = {.kind = JOB_TICK};
    work(b, &first);
    work(b, &second);
    work(b, &tick); /* the first lease has ended */
    b->jobs[2].kind = JOB_ACK;
    b->jobs[3].kind = JOB_RECV;
    start(&w, "worker", worker, b);
    start(&d[0], "slow consumer", submit, &ack);
    start(&d[1], "next consumer", submit, &other);
    os_thread_join(&d[0]);
    os_thread_join(&d[1]);
    rt_chan_close(b->work);
    os_thread_join(&w);
    if (b->jobs[3].got) { /* the next consumer has it: the slow one is refused and changes nothing */
        CHECK(b->jobs[3].attempt == 2 && b->jobs[2].err == ERR_STALE_ATTEMPT &&
              b->shard->count[MAILBOX_LEASED] == 1);
        model_cover(0);
    } else {
        CHECK(b->jobs[2].err == ERR_OK && b->shard->count[MAILBOX_DONE] == 1);
        model_cover(1);
    }
    box_close(b);
}

/* Two jobs after a send and a receive, in whatever order they come. */
RT_BLOCKS
static struct box *two_race(enum kind one, enum kind other)
{
    struct box *b = box_open(4);
    struct os_thread w, d[2];
    struct door doors[2] = {{b, 2, 1}, {b, 3, 1}};
    b->jobs[0].kind = JOB_SEND;
    b->jobs[1].kind = JOB_RECV;
    b->jobs[2].kind = one;
    b->jobs[3].kind = other;
    work(b, &b->jobs[0]);
    work(b, &b->jobs[1]);
    start(&w, "worker", worker, b);
    start(&d[0], "one", submit, &doors[0]);
    start(&d[1], "other", submit, &doors[1]);
    os_thread_join(&d[0]);
    os_thread_join(&d[1]);
    rt_chan_close(b->work);
    os_thread_join(&w);
    return b;
}

RT_BLOCKS
static void of_an_extension_and_the_end_of_the_lease_one_wins(void)
{
    struct box *b = two_race(JOB_EXTEND, JOB_TICK);
    bool extended = b->jobs[2].err == ERR_OK;
    /* extended before the time passed, the lease has ended all the same; after it, there was nothing to extend */
    CHECK(extended || b->jobs[2].err == ERR_NOT_LEASED);
    CHECK(b->shard->count[MAILBOX_READY] == 1 && b->shard->stats.of[0].lease_expired == 1);
    model_cover(extended);
    box_close(b);
}

RT_BLOCKS
static void a_release_and_the_end_of_the_lease_give_back_once(void)
{
    struct box *b = two_race(JOB_RELEASE, JOB_TICK);
    bool released = b->jobs[2].err == ERR_OK;
    CHECK(released || b->jobs[2].err == ERR_NOT_LEASED);
    CHECK(b->shard->count[MAILBOX_READY] == 1 && b->shard->stats.of[0].lease_expired == (released ? 0 : 1));
    model_cover(released);
    box_close(b);
}

RT_BLOCKS
static void of_a_release_and_an_ack_the_ack_holds(void)
{
    struct box *b = two_race(JOB_RELEASE, JOB_ACK);
    CHECK(b->jobs[3].err == ERR_OK); /* late work counts: nobody has a newer token */
    CHECK(b->shard->count[MAILBOX_DONE] == 1);
    model_cover(b->jobs[2].err == ERR_OK);
    box_close(b);
}

/* The scanner names a slot; by the time the tick is taken the message may be out again, under a lease that has not ended. */
RT_BLOCKS
static void a_tick_does_not_end_the_lease_that_came_after_it(void)
{
    struct box *b = box_open(4);
    struct os_thread w, d[2];
    struct door ticks = {b, 2, 2}, next = {b, 4, 1};
    b->jobs[0].kind = JOB_SEND;
    b->jobs[1].kind = JOB_RECV;
    b->jobs[2].kind = JOB_TICK;
    b->jobs[3].kind = JOB_TICK_AGAIN;
    b->jobs[4].kind = JOB_RECV;
    work(b, &b->jobs[0]);
    work(b, &b->jobs[1]);
    start(&w, "worker", worker, b);
    start(&d[0], "scanner", submit, &ticks);
    start(&d[1], "consumer", submit, &next);
    os_thread_join(&d[0]);
    os_thread_join(&d[1]);
    rt_chan_close(b->work);
    os_thread_join(&w);
    if (b->jobs[4].got)
        CHECK(b->jobs[4].attempt == 2 && b->shard->count[MAILBOX_LEASED] == 1);
    else
        CHECK(b->shard->count[MAILBOX_READY] == 1);
    CHECK(b->shard->stats.of[0].lease_expired == 1);
    model_cover(b->jobs[4].got);
    box_close(b);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "shutdown_races_with_the_door_and_every_job_is_answered_once",
         .body = shutdown_races_with_the_door_and_every_job_is_answered_once,
         .preemptions = 2,
         .covers = 2},
        {.name = "an_ack_and_the_end_of_its_lease_settle_once",
         .body = an_ack_and_the_end_of_its_lease_settle_once,
         .preemptions = 2,
         .covers = 2},
        {.name = "of_an_ack_and_a_redelivery_the_fence_lets_one_win",
         .body = of_an_ack_and_a_redelivery_the_fence_lets_one_win,
         .preemptions = 2,
         .covers = 2},
        {.name = "of_an_extension_and_the_end_of_the_lease_one_wins",
         .body = of_an_extension_and_the_end_of_the_lease_one_wins,
         .preemptions = 1,
         .covers = 2},
        {.name = "a_release_and_the_end_of_the_lease_give_back_once",
         .body = a_release_and_the_end_of_the_lease_give_back_once,
         .preemptions = 1,
         .covers = 2},
        {.name = "of_a_release_and_an_ack_the_ack_holds",
         .body = of_a_release_and_an_ack_the_ack_holds,
         .preemptions = 1,
         .covers = 2},
        {.name = "a_tick_does_not_end_the_lease_that_came_after_it",
         .body = a_tick_does_not_end_the_lease_that_came_after_it,
         .preemptions = 1,
         .covers = 2},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
