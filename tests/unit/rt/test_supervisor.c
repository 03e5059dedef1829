#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/chan.h"
#include "rt/interval.h"
#include "rt/supervisor.h"

/* Events of the supervisor travel through a channel, so that tests wait for what happens instead of sleeping. */
static struct rt_chan *events;
static struct os_count last_delay_ms;

static void on_event(void *ctx, const struct rt_event *ev)
{
    (void)ctx;
    if (ev->kind == RT_EVENT_RESTARTING)
        os_count_set(&last_delay_ms, (uint64_t)ev->delay_ms);
    if (rt_chan_try_send(events, (void *)(uintptr_t)(ev->kind + 1)) != ERR_OK)
        fail_msg("too many events");
}

RT_BLOCKS
static void await_event(enum rt_event_kind want)
{
    void *got = NULL;
    do {
        assert_int_equal(rt_chan_recv(events, deadline_in_ms(20000), &got), ERR_OK);
    } while ((uintptr_t)got != (uintptr_t)want + 1);
}

static struct rt_supervisor *make(struct rt_supervisor_spec spec)
{
    events = rt_chan_create(&(struct rt_chan_spec){.name = "events", .capacity = 1024});
    spec.name = "test";
    spec.on_event = on_event;
    if (spec.backoff.cap_ms == 0)
        spec.backoff = (struct rt_backoff_spec){.first_min_ms = 1, .first_max_ms = 2, .cap_ms = 5};
    struct rt_supervisor *sup = rt_supervisor_create(&spec);
    assert_non_null(sup);
    return sup;
}

static void ignore(void *item, void *arg)
{
    (void)item;
    (void)arg;
}

RT_BLOCKS
static struct rt_drain_report finish(struct rt_supervisor *sup)
{
    struct rt_drain_report report;
    assert_int_equal(rt_supervisor_join(sup, deadline_in_ms(20000), &report), ERR_OK);
    rt_supervisor_destroy(sup);
    rt_chan_destroy(events, ignore, NULL);
    return report;
}

static void sum_info(void *ctx, const struct rt_task_info *info)
{
    struct rt_task_info *sum = ctx;
    sum->spawned += info->spawned;
    sum->canceled += info->canceled;
    sum->aborted += info->aborted;
    sum->leaked += info->leaked;
    sum->restarts += info->restarts;
}

/* Tasks. */

RT_BLOCKS
static enum err run_consumer(struct rt_task *self, void *arg)
{
    (void)self;
    void *item;
    enum err e;
    while ((e = rt_chan_recv(arg, deadline_never(), &item)) == ERR_OK)
        continue;
    return e;
}

RT_BLOCKS
static enum err run_sleeper(struct rt_task *self, void *arg)
{
    (void)arg;
    struct rt_interval tick;
    rt_interval_init(&tick, 3600000, os_now_ns());
    while (rt_interval_wait(&tick, self) == ERR_OK)
        continue;
    assert_true(rt_task_stopping(self));
    return ERR_OK;
}

static enum err run_failing(struct rt_task *self, void *arg)
{
    (void)self;
    (void)arg;
    return ERR_IO;
}

RT_BLOCKS
static enum err run_stubborn(struct rt_task *self, void *arg)
{
    (void)arg;
    void *item;
    struct rt_chan *never = rt_chan_create(&(struct rt_chan_spec){.name = "never", .capacity = 1});
    enum err e = rt_chan_recv(never, deadline_never(), &item); /* does not care for a soft stop */
    assert_true(rt_task_canceled(self));
    rt_chan_destroy(never, NULL, NULL);
    return e;
}

static struct os_count release;

static enum err run_busy(struct rt_task *self, void *arg)
{
    (void)self;
    (void)arg;
    while (!os_count_get(&release)) /* neither waits nor beats nor looks */
        os_pause();
    return ERR_OK;
}

static void close_chan(void *ctx)
{
    rt_chan_close(ctx);
}

RT_BLOCKS
static void drain_runs_the_hooks_and_joins_everything(void **state)
{
    (void)state;
    struct rt_chan *work = rt_chan_create(&(struct rt_chan_spec){.name = "work", .capacity = 4});
    struct rt_drain_step steps[] = {{.step = 2, .name = "work", .begin = close_chan, .ctx = work}};
    struct rt_supervisor *sup = make((struct rt_supervisor_spec){.steps = steps, .steps_n = 1});
    assert_int_equal(rt_supervisor_add(sup, &(struct rt_task_spec){.name = "worker",
                                                                   .count = 3,
                                                                   .run = run_consumer,
                                                                   .arg = work,
                                                                   .drain_step = 2}),
                     ERR_OK);
    assert_int_equal(
        rt_supervisor_add(sup,
                          &(struct rt_task_spec){.name = "ticker", .run = run_sleeper, .drain_step = 1}),
        ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
    assert_int_equal(rt_supervisor_state(sup), RT_DRAIN_RUNNING);
    rt_supervisor_drain(sup);
    await_event(RT_EVENT_DRAIN);
    struct rt_task_info sum = {0};
    struct rt_drain_report report;
    assert_int_equal(rt_supervisor_join(sup, deadline_in_ms(20000), &report), ERR_OK);
    rt_supervisor_each(sup, sum_info, &sum);
    assert_int_equal(report.aborted + report.leaked, 0);
    assert_false(report.fatal);
    assert_int_equal(sum.spawned, 4);
    assert_int_equal(sum.leaked + sum.aborted + sum.restarts, 0);
    assert_int_equal(rt_supervisor_state(sup), RT_DRAIN_STOPPED);
    rt_supervisor_destroy(sup);
    rt_chan_destroy(events, ignore, NULL);
    rt_chan_destroy(work, NULL, NULL);
}

RT_BLOCKS
static void failing_task_is_restarted_then_escalated(void **state)
{
    (void)state;
    struct rt_supervisor *sup = make((struct rt_supervisor_spec){0});
    assert_int_equal(rt_supervisor_add(sup, &(struct rt_task_spec){.name = "bad", .run = run_failing}),
                     ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
    await_event(RT_EVENT_ESCALATED);
    assert_true(rt_supervisor_escalated(sup));
    await_event(RT_EVENT_STARTED); /* it goes on trying, at the cap */
    assert_int_equal(os_count_get(&last_delay_ms), 5);
    struct rt_task_info sum = {0};
    rt_supervisor_each(sup, sum_info, &sum);
    assert_true(sum.restarts >= 6);
    rt_supervisor_drain(sup);
    struct rt_drain_report report = finish(sup);
    assert_int_equal(report.aborted + report.leaked, 0);
}

RT_BLOCKS
static void escalated_task_that_holds_is_healed(void **state)
{
    (void)state;
    struct rt_supervisor *sup =
        make((struct rt_supervisor_spec){.restarts_max = 1, .restarts_window_ms = 100});
    assert_int_equal(rt_supervisor_add(sup, &(struct rt_task_spec){.name = "t", .run = run_sleeper}),
                     ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
    while (!rt_supervisor_escalated(
        sup)) { /* two failures within the window; a slow machine needs more tries */
        await_event(RT_EVENT_STARTED);
        assert_int_equal(rt_supervisor_fail(sup, "t"), ERR_OK);
        await_event(RT_EVENT_RESTARTING);
    }
    await_event(RT_EVENT_HEALED);
    assert_false(rt_supervisor_escalated(sup));
    rt_supervisor_drain(sup);
    finish(sup);
}

RT_BLOCKS
static void drill_fails_one_instance_which_comes_back(void **state)
{
    (void)state;
    struct rt_supervisor *sup = make((struct rt_supervisor_spec){0});
    assert_int_equal(
        rt_supervisor_add(
            sup, &(struct rt_task_spec){.name = "t", .count = 2, .run = run_sleeper, .kind = "worker"}),
        ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
    await_event(RT_EVENT_STARTED);
    await_event(RT_EVENT_STARTED);
    assert_int_equal(rt_supervisor_fail(sup, "nobody"), ERR_NOT_FOUND);
    assert_int_equal(rt_supervisor_fail(sup, "t-1"), ERR_OK);
    await_event(RT_EVENT_FAILED);
    await_event(RT_EVENT_STARTED);
    struct rt_task_info sum = {0};
    rt_supervisor_each(sup, sum_info, &sum);
    assert_int_equal(sum.spawned, 3);
    rt_supervisor_drain(sup);
    finish(sup);
}

RT_BLOCKS
static void task_that_must_not_fail_drains_the_service(void **state)
{
    (void)state;
    struct rt_supervisor *sup = make((struct rt_supervisor_spec){0});
    assert_int_equal(rt_supervisor_add(sup, &(struct rt_task_spec){.name = "other", .run = run_sleeper}),
                     ERR_OK);
    assert_int_equal(
        rt_supervisor_add(sup,
                          &(struct rt_task_spec){.name = "vital", .run = run_failing, .on_fail = RT_ABORT}),
        ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
    assert_true(finish(sup).fatal);
}

RT_BLOCKS
static void straggler_is_cancelled_at_the_deadline(void **state)
{
    (void)state;
    struct rt_supervisor *sup = make((struct rt_supervisor_spec){.drain_deadline_ms = 5});
    assert_int_equal(
        rt_supervisor_add(sup, &(struct rt_task_spec){.name = "stubborn", .run = run_stubborn}), ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
    rt_supervisor_drain(sup);
    struct rt_drain_report report = finish(sup);
    assert_int_equal(report.aborted, 1);
    assert_int_equal(report.leaked, 0);
}

RT_BLOCKS
static void the_deadline_is_what_was_said_last_before_the_drain(void **state)
{
    (void)state;
    struct rt_supervisor *sup = make((struct rt_supervisor_spec){.drain_deadline_ms = 3600000});
    assert_int_equal(
        rt_supervisor_add(sup, &(struct rt_task_spec){.name = "stubborn", .run = run_stubborn}), ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
    rt_supervisor_drain_within(sup, 5);
    rt_supervisor_drain(sup);
    assert_int_equal(finish(sup).aborted, 1);
}

RT_BLOCKS
static void second_signal_does_not_wait_for_the_deadline(void **state)
{
    (void)state;
    struct rt_supervisor *sup = make((struct rt_supervisor_spec){.drain_deadline_ms = 3600000});
    assert_int_equal(
        rt_supervisor_add(sup, &(struct rt_task_spec){.name = "stubborn", .run = run_stubborn}), ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
    rt_supervisor_drain(sup);
    rt_supervisor_drain(sup);
    assert_int_equal(finish(sup).aborted, 1);
}

RT_BLOCKS
static void silent_task_is_noticed_and_one_that_never_returns_is_leaked(void **state)
{
    (void)state;
    os_count_set(&release, 0);
    struct rt_supervisor *sup =
        make((struct rt_supervisor_spec){.drain_deadline_ms = 2, .abort_grace_ms = 2});
    assert_int_equal(
        rt_supervisor_add(sup, &(struct rt_task_spec){.name = "busy", .run = run_busy, .heartbeat_ms = 5}),
        ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
    await_event(RT_EVENT_SILENT);
    rt_supervisor_drain(sup);
    struct rt_drain_report report = finish(sup);
    assert_int_equal(report.leaked, 1);
    os_count_set(&release, 1); /* the thread may go now; nobody joins it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drain_runs_the_hooks_and_joins_everything),
        cmocka_unit_test(failing_task_is_restarted_then_escalated),
        cmocka_unit_test(escalated_task_that_holds_is_healed),
        cmocka_unit_test(drill_fails_one_instance_which_comes_back),
        cmocka_unit_test(task_that_must_not_fail_drains_the_service),
        cmocka_unit_test(straggler_is_cancelled_at_the_deadline),
        cmocka_unit_test(the_deadline_is_what_was_said_last_before_the_drain),
        cmocka_unit_test(second_signal_does_not_wait_for_the_deadline),
        cmocka_unit_test(silent_task_is_noticed_and_one_that_never_returns_is_leaked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
