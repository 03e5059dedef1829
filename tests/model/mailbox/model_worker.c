/*
 * The tasks of a shard as they run: the real worker and scanner under the real supervisor, with the real door, lane and core, over a
 * journal of bytes.
 *
 * A worker that is killed in any step is followed by one that goes on: every job is answered once, what waited is served, what was
 * acknowledged is in the journal, and a key has one message. A drain that meets an ack either refuses it or has written it. A worker
 * that publishes an earlier due is heard by a scanner that is about to sleep past it. Damage that is found, or a
 * stream that ends, while a group waits for others to join it makes no answer untrue.
 */
#include "base/check.h"
#include "model.h"
#include "outside.h"
#include "services/mailbox/tasks/worker_internal.h"

static void drain_step_2(void *ctx)
{
    (void)ctx;
    rt_chan_close(shop->lane.work);
}

static void drain_step_1(void *ctx)
{
    (void)ctx;
    atomic_store(&shop->mb.draining, true);
}

static const struct rt_drain_step steps[] = {{.step = 1, .name = "doors", .begin = drain_step_1},
                                             {.step = 2, .name = "work", .begin = drain_step_2}};

static struct rt_supervisor *supervise(const char *name, enum err (*run)(struct rt_task *self, void *arg))
{
    struct rt_supervisor *sup = rt_supervisor_create(
        &(struct rt_supervisor_spec){.name = "model", .steps = steps, .steps_n = 2, .seed = 1});
    CHECK(sup != NULL);
    CHECK(rt_supervisor_add(sup, &(struct rt_task_spec){.name = name,
                                                        .run = run,
                                                        .arg = &shop->mb,
                                                        .on_fail = RT_RESTART,
                                                        .drain_step = 2}) == ERR_OK);
    CHECK(rt_supervisor_start(sup) == ERR_OK);
    return sup;
}

static void count_spawned(void *ctx, const struct rt_task_info *info)
{
    *(uint64_t *)ctx += info->spawned;
}

RT_BLOCKS
static void end(struct rt_supervisor *sup)
{
    struct rt_drain_report report;
    CHECK(rt_supervisor_join(sup, deadline_never(), &report) == ERR_OK);
    CHECK(report.aborted == 0 && report.leaked == 0);
    rt_supervisor_destroy(sup);
}

static void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
}

/* ---- killed ---- */

static void kill_the_worker(void *arg)
{
    if (shop->writing)
        model_cover(1);
    if (heap_top(&shop->lane.parked))
        model_cover(2);
    if (shop->lane.shard.group.n > 0 && !shop->writing)
        model_cover(3);
    CHECK(rt_supervisor_fail(arg, "worker") == ERR_OK);
}

RT_BLOCKS
static void a_worker_killed_in_any_step_is_followed_by_one_that_goes_on(void)
{
    struct os_thread killer;
    uint64_t spawned = 0;
    shop_open();
    struct rt_supervisor *sup = supervise("worker", mailbox_worker_run);
    struct shop_job *recv = shop_recv(20000), *sent = shop_send("k"), *again = shop_send("k");
    start(&killer, "killer", kill_the_worker, sup);
    CHECK(shop_submit(recv) == ERR_OK && shop_submit(sent) == ERR_OK && shop_submit(again) == ERR_OK);
    shop_wait(3);
    CHECK(sent->job.err == ERR_OK && sent->send.err == ERR_OK && !sent->send.sent.duplicate);
    CHECK(again->job.err == ERR_OK && again->send.err == ERR_OK && again->send.sent.duplicate);
    CHECK(recv->job.err == ERR_OK && recv->recv.n == 1 && recv->recv.got[0].attempt == 1);
    CHECK(mailbox_id_eq(&recv->recv.got[0].enq.msg_id, &sent->send.sent.msg_id) &&
          mailbox_id_eq(&again->send.sent.msg_id, &sent->send.sent.msg_id));
    struct shop_job *ack = shop_ack(&sent->send.sent.msg_id, 1);
    CHECK(shop_submit(ack) == ERR_OK);
    shop_wait(1);
    CHECK(ack->job.err == ERR_OK && ack->settle.err == ERR_OK && !ack->settle.out.already);
    os_thread_join(&killer);
    rt_supervisor_drain(sup); /* also when the next worker has not begun yet */
    rt_supervisor_each(sup, count_spawned, &spawned);
    model_cover(spawned > 1 ? 0 : 4);
    end(sup);
    CHECK(atomic_load(&shop->lane.jobs) == 0 && atomic_load(&shop->mb.parked) == 0);
    CHECK(shop->lane.shard.group.n == 0);
    shop_restart();
    CHECK(shop->lane.shard.count[MAILBOX_DONE] == 1 && shop->lane.shard.count[MAILBOX_READY] == 0);
    shop_close();
}

/* ---- drained ---- */

static void submit_ack(void *arg)
{
    struct shop_job *ack = arg;
    enum err e = shop_submit(ack);
    CHECK(e == ERR_OK || e == ERR_BUSY);
    if (e == ERR_BUSY)
        CHECK(os_a32_add(&ack->answers, 1, memory_order_acq_rel) == 0); /* 429 draining, by the door */
    ack->job.err = e == ERR_OK ? ack->job.err : e;
}

RT_BLOCKS
static void a_drain_that_meets_an_ack_has_written_it_or_refused_it(void)
{
    struct os_thread consumer;
    shop_open();
    struct rt_supervisor *sup = supervise("worker", mailbox_worker_run);
    struct shop_job *sent = shop_send("k"), *recv = shop_recv(0);
    CHECK(shop_submit(sent) == ERR_OK && shop_submit(recv) == ERR_OK);
    shop_wait(2);
    CHECK(recv->recv.n == 1);
    struct shop_job *ack = shop_ack(&sent->send.sent.msg_id, 1);
    start(&consumer, "consumer", submit_ack, ack);
    rt_supervisor_drain(sup);
    os_thread_join(&consumer);
    end(sup);
    CHECK(os_a32_load(&ack->answers, memory_order_acquire) == 1);
    bool acked = ack->job.err == ERR_OK;
    CHECK(!acked || ack->settle.err == ERR_OK);
    CHECK(shop->lane.shard.group.n == 0); /* CLEAN may be written */
    shop_restart();
    CHECK(shop->lane.shard.count[MAILBOX_DONE] == (acked ? 1 : 0) &&
          shop->lane.shard.count[MAILBOX_READY] == (acked ? 0 : 1));
    model_cover(acked);
    shop_close();
}

/* ---- a group that waits for others ---- */

/* As behind a write that answered two. */
static void expect_another(void)
{
    int64_t now_us = os_now_ns() / 1000;
    shop->lane.gather = (struct mailbox_gather){
        .expected = 2, .answered = 2, .since_us = now_us, .until_us = now_us + MAILBOX_GATHER_MS * 1000};
}

static void find_damage(void *arg)
{
    (void)arg;
    atomic_store(&shop->lane.damaged, true);
}

RT_BLOCKS
static void what_waits_for_others_when_damage_is_found_is_written_or_refused(void)
{
    struct os_thread scrub;
    shop_open();
    struct rt_supervisor *sup = supervise("worker", mailbox_worker_run);
    struct shop_job *sent = shop_send("k");
    expect_another();
    start(&scrub, "scrub", find_damage, NULL);
    CHECK(shop_submit(sent) == ERR_OK);
    shop_wait(1);
    os_thread_join(&scrub);
    rt_supervisor_drain(sup);
    end(sup);
    bool accepted = sent->job.err == ERR_OK && sent->send.err == ERR_OK;
    shop_restart();
    CHECK(shop->lane.shard.count[MAILBOX_READY] == accepted);
    model_cover(accepted);
    shop_close();
}

static void submit_close(void *arg)
{
    CHECK(shop_submit(arg) == ERR_OK);
}

/* Its loop writes whatever is posted until the worker has let go of it: a token that ends, a drain. */
RT_BLOCKS
static void a_stream_that_ends_while_its_message_waits_to_be_written_gets_it_afterwards(void)
{
    struct os_thread loop;
    shop_open();
    struct rt_supervisor *sup = supervise("worker", mailbox_worker_run);
    struct shop_job *stream = shop_stream(), *sent = shop_send("k"), *close = shop_stream_close(stream);
    CHECK(shop_submit(stream) == ERR_OK);
    shop_wait(1);
    CHECK(stream->job.err == ERR_OK);
    expect_another();
    start(&loop, "loop", submit_close, close);
    CHECK(shop_submit(sent) == ERR_OK);
    shop_wait(2);
    os_thread_join(&loop);
    rt_supervisor_drain(sup);
    end(sup);
    CHECK(sent->job.err == ERR_OK && sent->send.err == ERR_OK && close->job.err == ERR_OK);
    CHECK(!shop->posted || (shop->posted->n == 1 && shop->posted->got[0].attempt == 1));
    uint16_t given = shop->posted ? 1 : 0;
    shop_restart();
    uint32_t i = mailbox_shard_find(&shop->lane.shard, &sent->send.sent.msg_id);
    CHECK(i && mailbox_shard_entry(&shop->lane.shard, i)->attempt == given);
    model_cover(given);
    shop_close();
}

/* ---- scan_next ---- */

enum { DUE_US = 120000, LATE_US = 50000 };

/* As a worker's turn ends that has leased a message; the scanner knew of nothing due. */
static void publish(void *arg)
{
    struct mailbox_lane *l = arg;
    struct mailbox_topic *t =
        mailbox_topics_find(&l->shard.topics, &shop->jobs[0].hash, shop->jobs[0].send.in.topic);
    struct mailbox_want w = {t, DUE_US, 1, INT64_MAX, 0, false};
    uint32_t entry;
    CHECK(mailbox_shard_lease(&l->shard, mailbox_now(&shop->mb), &w, &entry) == 1);
    mailbox_worker__publish(l);
}

RT_BLOCKS
static void an_earlier_due_is_heard_by_a_scanner_about_to_sleep(void)
{
    struct os_thread worker;
    void *tick;
    int64_t due_ns = os_now_ns() + (int64_t)DUE_US * 1000; /* time stands still until everybody sleeps */
    shop_open();
    struct mailbox_lane *l = &shop->lane;
    struct shop_job *sent = shop_send("k");
    CHECK(mailbox_shard_send(&l->shard, mailbox_now(&shop->mb), &sent->send.in, &sent->send.sent) ==
          ERR_OK);
    mailbox_shard_committed(&l->shard, 1, 4096);
    mailbox_worker__publish(l);
    struct rt_supervisor *sup = supervise("scanner", mailbox_scanner_run);
    start(&worker, "worker", publish, l);
    CHECK(rt_chan_recv(l->requeue, deadline_at_ns(due_ns + (int64_t)LATE_US * 1000), &tick) == ERR_OK);
    CHECK(tick == l && os_now_ns() >= due_ns);
    os_thread_join(&worker);
    rt_supervisor_drain(sup);
    end(sup);
    shop_close();
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "an_earlier_due_is_heard_by_a_scanner_about_to_sleep",
         .body = an_earlier_due_is_heard_by_a_scanner_about_to_sleep,
         .preemptions = 1},
        {.name = "a_drain_that_meets_an_ack_has_written_it_or_refused_it",
         .body = a_drain_that_meets_an_ack_has_written_it_or_refused_it,
         .preemptions = 1,
         .covers = 2},
        {.name = "a_stream_that_ends_while_its_message_waits_to_be_written_gets_it_afterwards",
         .body = a_stream_that_ends_while_its_message_waits_to_be_written_gets_it_afterwards,
         .preemptions = 1,
         .covers = 2},
        {.name = "what_waits_for_others_when_damage_is_found_is_written_or_refused",
         .body = what_waits_for_others_when_damage_is_found_is_written_or_refused,
         .preemptions = 1,
         .covers = 2},
        {.name = "a_worker_killed_in_any_step_is_followed_by_one_that_goes_on",
         .body = a_worker_killed_in_any_step_is_followed_by_one_that_goes_on,
         .preemptions = 1,
         .covers = 4},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
