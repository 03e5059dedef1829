/*
 * A worker that fails while it has a job gives it back, once. There is one worker, and the job waits inside it for a permit that
 * the test holds, so that each failure is known to hit a worker that has the job.
 */
#include "fixture.h"

struct look {
    uint64_t spawned;
    enum rt_task_state state;
};

static void note_worker(void *ctx, const struct rt_task_info *info)
{
    if (!strncmp(info->name, "worker", 6))
        *(struct look *)ctx = (struct look){info->spawned, info->state};
}

static struct look look_at_worker(struct fixture *f)
{
    struct look l = {.spawned = 0};
    rt_supervisor_each(svc_supervisor(f->svc), note_worker, &l);
    return l;
}

/* The n-th worker has the job: nothing is queued any more. */
static void await_worker_with_job(struct fixture *f, uint64_t nth)
{
    struct rewarder *r = svc_state(f->svc);
    struct deadline by = deadline_in_ms(2 * PATIENCE_MS);
    struct look l;
    do
        l = look_at_worker(f);
    while (!(l.spawned == nth && l.state == RT_TASK_RUNNING && rt_chan_depth(r->work) == 0) &&
           !deadline_passed(by));
    assert_int_equal(l.spawned, nth);
    assert_int_equal(rt_chan_depth(r->work), 0);
}

static void fail_worker(struct fixture *f)
{
    assert_int_equal(rt_supervisor_fail(svc_supervisor(f->svc), "worker"), ERR_OK);
}

/* With one worker, and without permits: a job whose pool is a balance stays in its worker. */
static void hold_permits(struct fixture *f, void **permits, size_t n) RT_BLOCKS
{
    assert_int_equal(stop(f), 0);
    for (size_t i = 0; i < f->flag_n; i++)
        if (!strncmp(f->flags[i], "concurrency.compute_workers", 27))
            f->flags[i] = "concurrency.compute_workers=1";
    f->flags[f->flag_n++] = "concurrency.io_inflight=2";
    start(f);
    struct rewarder *r = svc_state(f->svc);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(rt_chan_try_recv(r->io_permits.free, &permits[i]), ERR_OK);
}

static void return_permits(struct fixture *f, void **permits, size_t n)
{
    struct rewarder *r = svc_state(f->svc);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(rt_chan_try_send(r->io_permits.free, permits[i]), ERR_OK);
}

static void begin_job(struct fixture *f, char cid[80]) RT_BLOCKS
{
    put_inputs(f, "e1", 10, cid);
    json_decref(compute(f, "e1", cid, "all", 202));
    json_decref(await_state(f, "e1", "computing"));
    await_worker_with_job(f, 1);
}

static void a_job_that_loses_one_worker_is_done_by_the_next(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    void *permits[2];
    char cid[80];
    hold_permits(f, permits, 2);
    begin_job(f, cid);
    fail_worker(f);
    await_worker_with_job(f, 2);
    json_decref(await_state(f, "e1", "computing"));
    return_permits(f, permits, 2);
    json_decref(await_state(f, "e1", "settled"));
    assert_true(f->ledger->available.units == 0); /* the whole balance, once */
    assert_int_equal(paid_in(f->ledger), 10);
}

static void a_job_that_loses_two_workers_fails_with_a_reason_and_pays_nothing(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    void *permits[2];
    char cid[80];
    hold_permits(f, permits, 2);
    begin_job(f, cid);
    fail_worker(f);
    await_worker_with_job(f, 2);
    fail_worker(f);
    json_t *o = await_state(f, "e1", "failed");
    const json_t *why = json_object_get(o, "failure");
    assert_string_equal(text(why, "code"), "canceled");
    assert_string_equal(text(why, "detail"), "two workers failed while they had it");
    json_decref(o);
    assert_int_equal(paid_in(f->ledger), 0);
    /* It may be asked for again at once. */
    return_permits(f, permits, 2);
    json_decref(compute(f, "e1", cid, "all", 202));
    json_decref(await_state(f, "e1", "settled"));
    assert_int_equal(paid_in(f->ledger), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_that_loses_one_worker_is_done_by_the_next),
        TEST(a_job_that_loses_two_workers_fails_with_a_reason_and_pays_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
