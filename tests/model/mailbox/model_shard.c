/*
 * Producer -> bounded queue -> worker, with the real channel and the real shard core: shutdown racing with sends, receives and
 * acks; an ack racing with the end of its lease. No deadlock, no missed shutdown, no job answered twice or never, no double ack,
 * and a message whose lease ended is ready again.
 */
#include <stdlib.h>

#include "base/check.h"
#include "model.h"
#include "rt/chan.h"
#include "rt/os.h"
#include "services/mailbox/core/shard.h"

enum kind { JOB_SEND, JOB_RECV, JOB_ACK, JOB_TICK };

struct job {
    enum kind kind;
    struct os_a32 answers;
    enum err err;
    uint32_t got;
    uint16_t attempt;
};

struct box {
    struct rt_chan *work;
    struct mailbox_shard *shard;
    struct mailbox_rules rules;
    struct mailbox_now now;
    struct uuid id;
    struct sha256 hash;
    struct job jobs[4];
};

static uint8_t group[MAILBOX_GROUP_MEMORY];

static struct box *box_open(size_t capacity)
{
    struct box *b = calloc(1, sizeof *b);
    CHECK(b != NULL);
    b->work = rt_chan_create(
        &(struct rt_chan_spec){.name = "work_tx", .capacity = capacity, .policy = RT_REJECT});
    b->shard = calloc(1, sizeof *b->shard);
    CHECK(b->work && b->shard);
    b->now = (struct mailbox_now){1000000, 1000};
    b->rules = (struct mailbox_rules){
        .index_max = 100, .max_topics = 10, .retention_ready_ms = 1000000, .retention_dlq_ms = 1000000};
    b->rules.policies.n = 1;
    b->rules.policies.p[0] =
        (struct mailbox_policy){.class_name = "d", .t_replay_ms = 100000, .max_attempts = 3};
    CHECK(mailbox_shard_init(b->shard, 0, &b->rules, 1, b->now, group) == ERR_OK);
    mailbox_topic_hash(STR("t"), &b->hash);
    return b;
}

static void box_close(struct box *b)
{
    rt_chan_destroy(b->work, NULL, NULL);
    mailbox_shard_check(b->shard);
    mailbox_shard_fini(b->shard);
    free(b->shard);
    free(b);
}

static void do_send(struct box *b, struct job *j)
{
    static const uint8_t attrs[4];
    struct mailbox_sent out = {0};
    struct mailbox_send in = {.topic = STR("t"),
                              .idem_key = STR("k"),
                              .topic_hash = &b->hash,
                              .attrs = bytes_of(attrs, 4),
                              .payload = bytes_of("x", 1)};
    mailbox_dedup_digest(in.topic, in.idem_key, &in.digest);
    j->err = mailbox_shard_send(b->shard, b->now, &in, &out);
    b->id = out.msg_id;
}

static void do_recv(struct box *b, struct job *j)
{
    struct mailbox_topic *t = mailbox_topics_find(&b->shard->topics, &b->hash, STR("t"));
    struct mailbox_want w = {t, 500000, 1, INT64_MAX, 0};
    uint32_t entry;
    j->got = t ? mailbox_shard_lease(b->shard, b->now, &w, &entry) : 0;
    j->attempt = j->got ? mailbox_shard_entry(b->shard, entry)->attempt : 0;
}

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
    case JOB_TICK:
        b->now.mono_us += 600000; /* past the lease */
        while (mailbox_shard_tick(b->shard, b->now))
            ;
        break;
    }
    mailbox_shard_committed(b->shard, 1, 4096);
    CHECK(os_a32_add(&j->answers, 1, memory_order_relaxed) == 0); /* each job is answered once */
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

static void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
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
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
