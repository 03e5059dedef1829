/* The rewarder end to end in this process, over real sockets and files, paying into a ledger that can be made to fail. */
#include "fixture.h"

/* ---- tests ---- */

static void an_epoch_is_computed_sealed_paid_and_explained(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    settle(f, "e1", 1300, "floored");
    json_t *o = await_state(f, "e1", "settled");
    const json_t *s = json_object_get(o, "settlement");
    assert_int_equal(json_integer_value(json_object_get(s, "chunks")),
                     json_integer_value(json_object_get(s, "done")));
    uint64_t leaves = (uint64_t)json_integer_value(
        json_object_get(json_object_get(json_object_get(o, "manifest"), "commitment"), "count"));
    json_decref(o);
    assert_int_equal(paid_in(f->ledger), leaves);
    struct rewarder *r = svc_state(f->svc);
    assert_int_equal(obs_counter_value(OBS_COUNTER_OF(r->metrics[REWARDER_M_transfers], "committed")),
                     leaves);
    assert_int_equal(obs_counter_value(OBS_COUNTER_OF(r->metrics[REWARDER_M_units], "committed")),
                     (leaves + REWARDER_CHUNK - 1) / REWARDER_CHUNK);
    assert_true(f->ledger->available.units == 1000000 - 1000);
    o = get(f, "/rewarder/epochs/e1/payouts?account=pool:dust", 200);
    assert_string_equal(text(json_object_get(o, "explain"), "why"), "dust");
    assert_true(json_integer_value(json_object_get(o, "ledger_seq")) > 0);
    json_decref(o);
    json_decref(get(f, "/rewarder/epochs/e1/payouts?account=nobody", 404));
    json_decref(get(f, "/rewarder/epochs/other/payouts?account=nobody", 404));
}

static void equal_requests_join_and_different_ones_conflict(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], other[80];
    settle(f, "e1", 20, "weekly");
    put_inputs(f, "e1", 20, cid);
    json_decref(compute(f, "e1", cid, "weekly", 200));
    json_t *o = compute(f, "e1", cid, "floored", 409);
    assert_string_equal(text(o, "code"), "epoch_conflict");
    json_decref(o);
    put_inputs(f, "e1", 21, other);
    o = compute(f, "e1", other, "weekly", 409);
    assert_string_equal(text(o, "code"), "epoch_conflict");
    json_decref(o);
    assert_int_equal(paid_in(f->ledger), 20);
}

static void bad_requests_are_refused_with_their_code_and_pay_nothing(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80];
    struct answer a;
    put_inputs(f, "e1", 5, cid);
    struct {
        const char *epoch, *cid, *policy, *code;
        int status;
    } cases[] = {
        {"e2", cid, "weekly", "epoch_mismatch", 422},
        {"e1", cid, "nothing", "policy_not_found", 422},
        {"e1", "sha256:0000000000000000000000000000000000000000000000000000000000000000", "weekly",
         "inputs_not_found", 422},
        {"e1", "sha256:00", "weekly", "bad_request", 400},
        {"%2e%2e", cid, "weekly", "bad_request", 400},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *o = compute(f, cases[i].epoch, cases[i].cid, cases[i].policy, cases[i].status);
        assert_string_equal(text(o, "code"), cases[i].code);
        json_decref(o);
    }
    json_t *o = compute(f, "e1", cid, "huge", 422); /* known before anything is admitted */
    assert_string_equal(text(o, "code"), "dimension_missing");
    assert_string_equal(text(json_object_get(o, "details"), "dim"), "more");
    json_decref(o);
    json_decref(get(f, "/rewarder/epochs/e1", 404));
    call(f, "PUT", "/rewarder/inputs", "{\"snapshot\":1}\n", "application/x-ndjson", NULL, &a);
    assert_int_equal(a.status, 422);
    o = json_of(&a);
    assert_string_equal(text(o, "code"), "bad_snapshot");
    json_decref(o);
    call(f, "PUT", "/rewarder/inputs", "x", "text/plain", NULL, &a);
    assert_int_equal(a.status, 415);
    buf_fini(&a.body);
    assert_int_equal(paid_in(f->ledger), 0);
    /* a failed run may be posted again at once */
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "settled"));
}

static void a_dead_ledger_holds_runs_until_it_is_back(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80];
    fake_ledger_set_down(f->ledger, true);
    put_inputs(f, "e1", 600, cid);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_t *o = await_state(f, "e1", "held");
    assert_string_equal(text(json_object_get(o, "held"), "cause"), "ledger");
    json_decref(o);
    /* computing goes on meanwhile */
    put_inputs(f, "e2", 10, cid);
    json_decref(compute(f, "e2", cid, "weekly", 202));
    json_decref(await_state(f, "e2", "held"));
    assert_int_equal(paid_in(f->ledger), 0);
    struct rewarder *r = svc_state(f->svc);
    assert_true(obs_counter_value(OBS_COUNTER_OF(r->metrics[REWARDER_M_retries], "read")) > 0);
    fake_ledger_set_down(f->ledger, false);
    json_decref(await_state(f, "e1", "settled"));
    json_decref(await_state(f, "e2", "settled"));
    assert_true(f->ledger->available.units == 1000000 - 2000);
}

static void a_restart_remembers_everything_and_pays_nothing_twice(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80];
    settle(f, "e1", 700, "weekly");
    fake_ledger_set_down(f->ledger, true);
    put_inputs(f, "e2", 700, cid);
    json_decref(compute(f, "e2", cid, "weekly", 202));
    json_decref(await_state(f, "e2", "held"));
    assert_int_equal(stop(f), 0);
    fake_ledger_set_down(f->ledger, false);
    start(f);
    json_decref(await_state(f, "e2", "settled"));
    json_t *o = get(f, "/rewarder/epochs/e1/payouts?account=acct:00003", 200);
    assert_non_null(json_object_get(o, "proof"));
    assert_true(json_integer_value(json_object_get(o, "ledger_seq")) > 0);
    json_decref(o);
    json_decref(compute(f, "e2", cid, "weekly", 200));
    assert_true(f->ledger->available.units == 1000000 - 2000);
    uint64_t paid = paid_in(f->ledger);
    o = post(f, "/rewarder/epochs/e1/emit", "{\"recheck\":true}", 202);
    json_decref(o);
    json_decref(await_state(f, "e1", "settled"));
    assert_int_equal(paid_in(f->ledger), paid);
}

static void a_lost_registry_line_is_found_again_in_the_run_directory(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char log[160];
    settle(f, "e1", 30, "weekly");
    assert_int_equal(stop(f), 0);
    snprintf(log, sizeof log, "%s/rewarder/registry.log", f->root);
    assert_int_equal(truncate(log, 0), 0);
    start(f);
    json_decref(await_state(f, "e1", "settled"));
    assert_int_equal(paid_in(f->ledger), 30);
}

/* What is adopted is paid: a directory that no line vouches for must carry our signature. */
static void a_run_that_nobody_here_signed_is_not_adopted(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], path[200];
    fake_ledger_set_down(f->ledger, true);
    put_inputs(f, "e1", 40, cid);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_t *o = await_state(f, "e1", "held");
    snprintf(path, sizeof path, "%s/rewarder/runs/default/e1/sigs/%s.sig", f->root,
             text(json_array_get(json_object_get(o, "signatures"), 0), "kid"));
    json_decref(o);
    assert_int_equal(stop(f), 0);
    FILE *sig = fopen(path, "r+b");
    assert_non_null(sig);
    assert_int_equal(fseek(sig, 20, SEEK_SET), 0);
    int was = fgetc(sig);
    assert_int_equal(fseek(sig, 20, SEEK_SET), 0);
    fputc(was ^ 1, sig);
    assert_int_equal(fclose(sig), 0);
    snprintf(path, sizeof path, "%s/rewarder/registry.log", f->root);
    assert_int_equal(truncate(path, 0), 0);
    fake_ledger_set_down(f->ledger, false);
    start(f);
    struct rewarder *r = svc_state(f->svc);
    json_decref(get(f, "/rewarder/epochs/e1", 404));
    assert_int_equal(obs_counter_value(OBS_COUNTER_OF(r->metrics[REWARDER_M_corrupt], "signature")), 1);
    assert_int_equal(paid_in(f->ledger), 0);
    json_decref(compute(f, "e1", cid, "floored", 202)); /* the epoch is free */
    json_decref(await_state(f, "e1", "settled"));
}

static uint64_t looks(struct fake_ledger *l)
{
    pthread_mutex_lock(&l->mutex);
    uint64_t n = l->looks;
    pthread_mutex_unlock(&l->mutex);
    return n;
}

static void a_run_whose_lanes_somebody_else_writes_waits_until_they_are_still(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct rewarder *r = svc_state(f->svc);
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    char cid[80];
    atomic_store(&r->lane_still_ms, 500);
    pthread_mutex_lock(&f->ledger->mutex);
    f->ledger->meddled = true;
    pthread_mutex_unlock(&f->ledger->mutex);
    put_inputs(f, "e1", 40, cid);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_t *o = await_state(f, "e1", "held");
    assert_string_equal(text(json_object_get(o, "held"), "cause"), "lane");
    json_decref(o);
    /* each look finds them moved: whatever the clock says, nothing is sent */
    uint64_t seen = looks(f->ledger), sent = f->ledger->calls;
    while (looks(f->ledger) < seen + 3)
        assert_false(deadline_passed(by));
    json_decref(await_state(f, "e1", "held"));
    pthread_mutex_lock(&f->ledger->mutex);
    assert_int_equal(f->ledger->calls, sent);
    f->ledger->meddled = false;
    pthread_mutex_unlock(&f->ledger->mutex);
    json_decref(await_state(f, "e1", "settled"));
    assert_int_equal(paid_in(f->ledger), 40);
}

static void quarantine_stops_a_run_and_release_resumes_or_discards_it(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80];
    fake_ledger_set_down(f->ledger, true);
    put_inputs(f, "e1", 40, cid);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "held"));
    json_t *o = post(f, "/rewarder/epochs/e1/quarantine", "{\"reason\":\"wrong week\"}", 200);
    assert_string_equal(text(o, "state"), "quarantined");
    json_decref(o);
    fake_ledger_set_down(f->ledger, false);
    o = compute(f, "e1", cid, "weekly", 409);
    assert_string_equal(text(o, "code"), "quarantined");
    json_decref(o);
    json_decref(get(f, "/rewarder/epochs/e1/payouts?account=acct:00001", 409));
    assert_int_equal(paid_in(f->ledger), 0);
    /* it survives a restart */
    assert_int_equal(stop(f), 0);
    start(f);
    json_decref(await_state(f, "e1", "quarantined"));
    json_decref(
        post(f, "/rewarder/epochs/e1/release", "{\"action\":\"discard\",\"reason\":\"redo\"}", 200));
    json_decref(get(f, "/rewarder/epochs/e1", 404));
    json_decref(compute(f, "e1", cid, "floored", 202));
    json_decref(await_state(f, "e1", "settled"));
}

/* Half the workers at a time, and a round is over before the next begins: a job that loses two workers may fail. */
static void a_failed_worker_is_replaced_and_its_jobs_are_done(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], epoch[16];
    for (unsigned round = 0; round < 6; round++) {
        for (unsigned i = 0; i < 4; i++) {
            snprintf(epoch, sizeof epoch, "w%u-%u", round, i);
            put_inputs(f, epoch, 2000, cid);
            json_decref(compute(f, epoch, cid, "floored", 202));
            if (i == 1)
                (void)!rt_supervisor_fail(svc_supervisor(f->svc), round % 2 ? "worker-1" : "worker-0");
            if (i == 3)
                (void)!rt_supervisor_fail(svc_supervisor(f->svc), "emitter");
        }
        for (unsigned i = 0; i < 4; i++) {
            snprintf(epoch, sizeof epoch, "w%u-%u", round, i);
            json_decref(await_state(f, epoch, "settled"));
        }
    }
    assert_true(f->ledger->available.units == 1000000 - 24 * 1000);
}

static void a_pool_of_balance_pays_out_what_the_account_has(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    settle(f, "e1", 100, "all");
    assert_true(f->ledger->available.units == 0);
    json_t *o = get(f, "/rewarder/epochs/e1", 200);
    const json_t *pool = json_object_get(json_object_get(o, "manifest"), "pool");
    assert_string_equal(text(pool, "amount"), "1000000");
    assert_string_equal(text(pool, "source"), "balance");
    json_decref(o);
}

static void a_shadow_run_compares_policies_and_pays_nothing(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], path[128], body[1024];
    put_inputs(f, "e1", 50, cid);
    snprintf(body, sizeof body,
             "{\"inputs_cid\":\"%s\",\"against\":\"weekly\",\"policy\":{\"v\":1,\"id\":\"cand\",\"asset\":"
             "\"ron\","
             "\"funding_account\":\"pool:rewards\",\"dust_account\":\"pool:dust\",\"pool\":\"2000\","
             "\"rounding\":\"floor\","
             "\"weights\":[{\"dim\":\"points\",\"num\":1,\"den\":1}]}}",
             cid);
    json_t *o = post(f, "/rewarder/shadow", body, 202);
    snprintf(path, sizeof path, "/rewarder/shadow/%s", text(o, "shadow_id"));
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    while (strcmp(text(o, "state"), "done") && !deadline_passed(by)) {
        json_decref(o);
        o = get(f, path, 200);
    }
    const json_t *diff = json_object_get(o, "diff");
    assert_int_equal(json_integer_value(json_object_get(diff, "gained")), 50);
    assert_int_equal(json_array_size(json_object_get(diff, "top")), 50);
    json_decref(o);
    json_decref(post(f, "/rewarder/shadow", body, 200));
    assert_int_equal(paid_in(f->ledger), 0);
    /* a body without the result never says that it is done, however late it is written */
    struct rewarder *r = svc_state(f->svc);
    struct buf early;
    buf_init(&early, 1 << 16);
    rewarder_shadow_write(r->shadows[0], false, &early);
    assert_non_null(strstr(buf_cstr(&early), "\"state\":\"computing\""));
    buf_fini(&early);
}

static void r12_another_tenant_sees_nothing(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char other[8192];
    struct answer a;
    settle(f, "e1", 10, "weekly");
    mint(f, (const char *const[]){"tenant = other", "op in read,inputs,compute,payout", NULL}, other);
    static const char *const paths[] = {
        "/rewarder/epochs/e1", "/rewarder/epochs/e1/payouts?account=acct:00001",
        "/rewarder/epochs/e1/artifacts/run.json", "/rewarder/epochs/e1/payouts.csv"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        call(f, "GET", paths[i], NULL, NULL, other, &a);
        assert_int_equal(a.status, 404);
        buf_fini(&a.body);
        call(f, "GET", paths[i], NULL, NULL, "nonsense", &a);
        assert_int_equal(a.status, 401);
        buf_fini(&a.body);
    }
    struct buf b;
    snapshot("default", "e9", 3, &b);
    call(f, "PUT", "/rewarder/inputs", buf_cstr(&b), "application/x-ndjson", other, &a);
    assert_int_equal(a.status, 403);
    buf_fini(&a.body);
    buf_fini(&b);
    call(f, "POST", "/rewarder/epochs/e1/quarantine", "{\"reason\":\"x\"}", NULL, other, &a);
    assert_int_equal(a.status, 403);
    buf_fini(&a.body);
}

/* ---- overload, failing tasks, drain ---- */

static bool ready(struct fixture *f) RT_BLOCKS
{
    struct answer a;
    call(f, "GET", "/readyz", NULL, NULL, NULL, &a);
    buf_fini(&a.body);
    return a.status == 200;
}

static void await_ready(struct fixture *f, bool wanted) RT_BLOCKS
{
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    while (ready(f) != wanted)
        if (deadline_passed(by))
            fail_msg("readiness did not become %d", wanted);
}

struct flood {
    struct fixture *f;
    const char *cid;
    unsigned first;
    unsigned accepted, busy, other;
};

static void *send_flood(void *arg) RT_BLOCKS
{
    struct flood *fl = arg;
    for (unsigned i = 0; i < 24; i++) {
        char path[96], body[256];
        struct answer a;
        snprintf(path, sizeof path, "/rewarder/epochs/flood-%u/compute", fl->first + i);
        snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"weekly\"}", fl->cid);
        call(fl->f, "POST", path, body, NULL, NULL, &a);
        fl->accepted += a.status == 422; /* judged by the scheduler: the snapshot is of another epoch */
        fl->busy += a.status == 429 && a.retry_after[0];
        fl->other += a.status != 422 && a.status != 429 && a.status != 503;
        buf_fini(&a.body);
    }
    return NULL;
}

/* The scheduler fails again and again under load: what it does not take is refused, and every caller is answered. */
static void every_request_is_answered_while_the_scheduler_keeps_failing(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    enum { THREADS = 8 };
    struct flood floods[THREADS];
    pthread_t threads[THREADS];
    char cid[80];
    unsigned answered = 0;
    put_inputs(f, "e1", 3, cid);
    for (unsigned i = 0; i < THREADS; i++) {
        floods[i] = (struct flood){f, cid, i * 100, 0, 0, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, send_flood, &floods[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++)
        (void)!rt_supervisor_fail(svc_supervisor(f->svc), "scheduler");
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(floods[i].other, 0);
        answered += floods[i].accepted;
    }
    assert_true(answered > 0);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "settled"));
}

/* Five restarts in a minute are back-off; the sixth failure is a matter for people: readiness falls. */
static void a_worker_that_keeps_failing_makes_the_service_not_ready(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct deadline by = deadline_in_ms(4 * PATIENCE_MS);
    await_ready(f, true);
    while (ready(f) && !deadline_passed(by))
        (void)!rt_supervisor_fail(svc_supervisor(f->svc), "worker-0");
    assert_false(ready(f));
    /* the others go on */
    settle(f, "e1", 50, "weekly");
}

static void a_drain_keeps_what_was_answered_and_ends_clean(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], epoch[16];
    for (unsigned i = 0; i < 6; i++) {
        snprintf(epoch, sizeof epoch, "d%u", i);
        put_inputs(f, epoch, 3000, cid);
        json_decref(compute(f, epoch, cid, "weekly", 202));
    }
    assert_int_equal(stop(f), 0);
    start(f);
    uint64_t pools = 0;
    for (unsigned i = 0; i < 6; i++) {
        char path[64];
        struct answer a;
        snprintf(epoch, sizeof epoch, "d%u", i);
        snprintf(path, sizeof path, "/rewarder/epochs/%s", epoch);
        call(f, "GET", path, NULL, NULL, NULL, &a);
        buf_fini(&a.body);
        if (a.status == 404) { /* canceled by the drain: nothing of it is left, it may be asked for again */
            put_inputs(f, epoch, 3000, cid);
            json_decref(compute(f, epoch, cid, "weekly", 202));
        }
        json_decref(await_state(f, epoch, "settled"));
        pools += 1000;
    }
    assert_true(f->ledger->available.units == 1000000 - pools);
}

static void without_a_ledger_a_pool_of_balance_fails_the_run(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char body[256], cid[80];
    struct answer a;
    put_inputs(f, "e1", 10, cid);
    fake_ledger_set_down(f->ledger, true);
    snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"all\"}", cid);
    call(f, "POST", "/rewarder/epochs/e1/compute", body, NULL, NULL, &a);
    assert_int_equal(a.status, 202);
    buf_fini(&a.body);
    json_t *o = await_state(f, "e1", "failed");
    assert_string_equal(text(json_object_get(o, "failure"), "code"), "ledger_unavailable");
    json_decref(o);
    fake_ledger_set_down(f->ledger, false);
    assert_int_equal(paid_in(f->ledger), 0);
}

/*
 * 512 items fill work_req to the brim while the scheduler is down. Each try has an epoch of its own, because one that a
 * restarted scheduler took after all is known from then on and is answered without the queue.
 */
static void a_full_request_queue_is_429_with_retry_after(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct rewarder *r = svc_state(f->svc);
    char body[256], cid[80], epoch[16], path[64];
    struct answer a = {.status = 0};
    for (unsigned tries = 0; tries < 5 && a.status != 429; tries++) {
        snprintf(epoch, sizeof epoch, "q%u", tries);
        snprintf(path, sizeof path, "/rewarder/epochs/%s/compute", epoch);
        put_inputs(f, epoch, 3, cid);
        snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"weekly\"}", cid);
        take_down(f, "scheduler");
        enum err e = ERR_OK;
        while (e == ERR_OK) {
            struct rewarder_item *it = rewarder_item_create(REWARDER_COMPUTE, NULL);
            e = rt_chan_try_send(r->work_req, it);
            if (e != ERR_OK)
                rewarder_item_destroy(r, it);
        }
        assert_int_equal(e, ERR_BUSY);
        assert_true(rt_chan_stats(r->work_req).capacity == 512);
        call(f, "POST", path, body, NULL, NULL, &a);
        buf_fini(&a.body);
    }
    assert_int_equal(a.status, 429);
    assert_true(a.retry_after[0] >= '1');
    assert_true(obs_counter_value(OBS_COUNTER_OF(r->metrics[REWARDER_M_busy], "compute")) > 0);
    /* and it recovers by itself */
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    while (a.status == 429 && !deadline_passed(by)) {
        call(f, "POST", path, body, NULL, NULL, &a);
        buf_fini(&a.body);
    }
    assert_in_range(a.status, 200, 202);
    json_decref(await_state(f, epoch, "settled"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_epoch_is_computed_sealed_paid_and_explained),
        TEST(equal_requests_join_and_different_ones_conflict),
        TEST(bad_requests_are_refused_with_their_code_and_pay_nothing),
        TEST(a_dead_ledger_holds_runs_until_it_is_back),
        TEST(a_restart_remembers_everything_and_pays_nothing_twice),
        TEST(a_lost_registry_line_is_found_again_in_the_run_directory),
        TEST(a_run_that_nobody_here_signed_is_not_adopted),
        TEST(a_run_whose_lanes_somebody_else_writes_waits_until_they_are_still),
        TEST(quarantine_stops_a_run_and_release_resumes_or_discards_it),
        TEST(a_failed_worker_is_replaced_and_its_jobs_are_done),
        TEST(a_pool_of_balance_pays_out_what_the_account_has),
        TEST(a_shadow_run_compares_policies_and_pays_nothing),
        TEST(r12_another_tenant_sees_nothing),
        TEST(every_request_is_answered_while_the_scheduler_keeps_failing),
        TEST(a_worker_that_keeps_failing_makes_the_service_not_ready),
        TEST(a_full_request_queue_is_429_with_retry_after),
        TEST(a_drain_keeps_what_was_answered_and_ends_clean),
        TEST(without_a_ledger_a_pool_of_balance_fails_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
