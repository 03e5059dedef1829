/* The supervisor and the drain: everything started is joined, whatever fails and whenever the signal comes. */
#include <string.h>

#include "base/check.h"
#include "model.h"
#include "rt/chan.h"
#include "rt/os.h"
#include "rt/supervisor.h"

struct shop {
    struct rt_chan *work;
    struct os_a32 done;
    bool failed_once;
};

RT_BLOCKS
static enum err run_worker(struct rt_task *self, void *arg)
{
    (void)self;
    struct shop *s = arg;
    void *item;
    enum err e;
    while ((e = rt_chan_recv(s->work, deadline_never(), &item)) == ERR_OK)
        os_a32_add(&s->done, 1, memory_order_relaxed);
    return e;
}

RT_BLOCKS
static enum err run_sleeper(struct rt_task *self, void *arg)
{
    (void)arg;
    enum err e = rt_task_sleep(self, deadline_never());
    CHECK(e == ERR_CANCELED && rt_task_stopping(self));
    return ERR_OK;
}

static void close_work(void *ctx)
{
    rt_chan_close(ctx);
}

static struct rt_supervisor *make(struct shop *s, const struct rt_drain_step *step)
{
    s->work = rt_chan_create(&(struct rt_chan_spec){.name = "work", .capacity = 2});
    struct rt_supervisor *sup = rt_supervisor_create(
        &(struct rt_supervisor_spec){.name = "model", .steps = step, .steps_n = step ? 1 : 0});
    CHECK(s->work != NULL && sup != NULL);
    return sup;
}

RT_BLOCKS
static struct rt_drain_report finish(struct shop *s, struct rt_supervisor *sup)
{
    struct rt_drain_report report;
    CHECK(rt_supervisor_join(sup, deadline_never(), &report) == ERR_OK);
    rt_supervisor_destroy(sup);
    rt_chan_destroy(s->work, NULL, NULL);
    return report;
}

/* What was queued when the drain began is done; the worker ends by the close, not by force. */
RT_BLOCKS
static void drain_empties_the_queue_and_joins(void)
{
    struct shop s = {0};
    struct rt_drain_step step = {.step = 1, .name = "work", .begin = close_work};
    s.work = rt_chan_create(&(struct rt_chan_spec){.name = "work", .capacity = 2});
    step.ctx = s.work;
    struct rt_supervisor *sup =
        rt_supervisor_create(&(struct rt_supervisor_spec){.name = "model", .steps = &step, .steps_n = 1});
    CHECK(rt_supervisor_add(
              sup, &(struct rt_task_spec){
                       .name = "worker", .run = run_worker, .arg = &s, .drain_step = 1}) == ERR_OK);
    CHECK(rt_supervisor_start(sup) == ERR_OK);
    CHECK(rt_chan_try_send(s.work, &s) == ERR_OK);
    rt_supervisor_drain(sup);
    struct rt_drain_report report = finish(&s, sup);
    CHECK(report.aborted == 0 && report.leaked == 0 && !report.fatal);
    CHECK(report.took_ms == 0); /* nobody had to wait for a deadline: time stood still */
    CHECK(os_a32_load(&s.done, memory_order_relaxed) == 1);
}

RT_BLOCKS
static void soft_stop_ends_a_sleep(void)
{
    struct shop s = {0};
    struct rt_supervisor *sup = make(&s, NULL);
    CHECK(rt_supervisor_add(sup, &(struct rt_task_spec){.name = "sleeper", .run = run_sleeper}) == ERR_OK);
    CHECK(rt_supervisor_start(sup) == ERR_OK);
    rt_supervisor_drain(sup);
    CHECK(finish(&s, sup).aborted == 0);
}

/* Nobody closes the queue: the second signal must get the worker out of its wait. */
RT_BLOCKS
static void second_signal_cancels_a_wait(void)
{
    struct shop s = {0};
    struct rt_supervisor *sup = make(&s, NULL);
    CHECK(rt_supervisor_add(sup, &(struct rt_task_spec){.name = "worker", .run = run_worker, .arg = &s}) ==
          ERR_OK);
    CHECK(rt_supervisor_start(sup) == ERR_OK);
    rt_supervisor_drain(sup);
    rt_supervisor_drain(sup);
    struct rt_drain_report report = finish(&s, sup);
    CHECK(report.aborted == 1 && report.leaked == 0);
}

/* The same by the deadline. */
RT_BLOCKS
static void deadline_cancels_a_wait(void)
{
    struct shop s = {0};
    struct rt_supervisor *sup = make(&s, NULL);
    CHECK(rt_supervisor_add(sup, &(struct rt_task_spec){.name = "worker", .run = run_worker, .arg = &s}) ==
          ERR_OK);
    CHECK(rt_supervisor_start(sup) == ERR_OK);
    rt_supervisor_drain(sup);
    struct rt_drain_report report = finish(&s, sup);
    CHECK(report.aborted == 1 && report.leaked == 0 && report.took_ms >= 5000);
}

RT_BLOCKS
static enum err run_fails_once(struct rt_task *self, void *arg)
{
    struct shop *s = arg;
    if (!s->failed_once) {
        s->failed_once = true;
        return ERR_IO;
    }
    model_cover(0);
    return run_sleeper(self, arg);
}

/* A failure and a drain at any distance: restarted or not, everything is joined. */
RT_BLOCKS
static void failure_races_with_the_drain(void)
{
    struct shop s = {0};
    struct rt_supervisor *sup = make(&s, NULL);
    CHECK(rt_supervisor_add(
              sup, &(struct rt_task_spec){.name = "shaky", .run = run_fails_once, .arg = &s}) == ERR_OK);
    CHECK(rt_supervisor_start(sup) == ERR_OK);
    rt_supervisor_drain(sup);
    struct rt_drain_report report = finish(&s, sup);
    CHECK(report.leaked == 0);
}

/* The drill fails a sleeping task; it comes back after its back-off and ends with the drain. */
RT_BLOCKS
static void drilled_task_comes_back(void)
{
    struct shop s = {0};
    struct rt_supervisor *sup = make(&s, NULL);
    CHECK(rt_supervisor_add(sup, &(struct rt_task_spec){.name = "sleeper", .run = run_sleeper}) == ERR_OK);
    CHECK(rt_supervisor_start(sup) == ERR_OK);
    CHECK(rt_supervisor_fail(sup, "sleeper") == ERR_OK);
    rt_supervisor_drain(sup);
    CHECK(finish(&s, sup).leaked == 0);
}

/* Time passes while both sleep; the one with a heartbeat of a millisecond is not taken for dead. */
RT_BLOCKS
static enum err run_naps(struct rt_task *self, void *arg)
{
    (void)arg;
    enum err e = rt_task_sleep(self, deadline_in_ms(20));
    CHECK(e == ERR_OK);
    return ERR_OK;
}

static void no_silence(void *ctx, const struct rt_event *ev)
{
    (void)ctx;
    CHECK(ev->kind != RT_EVENT_SILENT && ev->kind != RT_EVENT_FAILED);
}

RT_BLOCKS
static void sleeping_task_needs_no_heartbeat(void)
{
    struct rt_supervisor *sup = rt_supervisor_create(&(struct rt_supervisor_spec){
        .name = "model", .on_event = no_silence, .drain_deadline_ms = 7200000});
    CHECK(rt_supervisor_add(
              sup, &(struct rt_task_spec){
                       .name = "idle", .run = run_sleeper, .heartbeat_ms = 1, .drain_step = 2}) == ERR_OK);
    CHECK(rt_supervisor_add(
              sup, &(struct rt_task_spec){.name = "naps", .run = run_naps, .on_fail = RT_ABORT}) == ERR_OK);
    CHECK(rt_supervisor_start(sup) == ERR_OK);
    struct rt_drain_report report;
    enum err e = rt_supervisor_join(sup, deadline_in_ms(10), &report);
    CHECK(e == ERR_TIMEOUT);
    e = rt_supervisor_join(sup, deadline_in_ms(20), &report);
    CHECK(e == ERR_TIMEOUT);
    rt_supervisor_drain(sup);
    CHECK(rt_supervisor_join(sup, deadline_never(), &report) == ERR_OK);
    CHECK(report.aborted == 0);
    rt_supervisor_destroy(sup);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "drain_empties_the_queue_and_joins",
         .body = drain_empties_the_queue_and_joins,
         .preemptions = 2},
        {.name = "soft_stop_ends_a_sleep", .body = soft_stop_ends_a_sleep},
        {.name = "second_signal_cancels_a_wait", .body = second_signal_cancels_a_wait, .preemptions = 2},
        {.name = "deadline_cancels_a_wait", .body = deadline_cancels_a_wait},
        {.name = "failure_races_with_the_drain",
         .body = failure_races_with_the_drain,
         .preemptions = 2,
         .covers = 1},
        {.name = "sleeping_task_needs_no_heartbeat", .body = sleeping_task_needs_no_heartbeat},
        {.name = "drilled_task_comes_back", .body = drilled_task_comes_back, .preemptions = 2},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
