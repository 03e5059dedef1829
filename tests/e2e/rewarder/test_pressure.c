/* The rewarder's queues filled to their policies, its deadlines, rates and retention, and half of its workers failing. */
#include <dirent.h>
#include <sched.h>
#include <zlib.h>

#include "held.h"
#include "raw_http.h"

/* ---- queues ---- */

static void work_full_twice_is_503_and_counted_and_readiness_toggles(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct rewarder *r = state_of(f);
    char cid[80];
    settle(f, "e0", 3, "weekly");
    put_inputs(f, "e1", 3, cid);
    await_ready(f, true);
    hold_workers(f, "e0");
    enum err e = ERR_OK;
    size_t sent = 0;
    while (e == ERR_OK) {
        struct rewarder_item *it = dud();
        e = rt_chan_try_send(r->work, it);
        sent += e == ERR_OK;
        if (e != ERR_OK)
            rewarder_item_destroy(r, it);
    }
    assert_int_equal(e, ERR_BUSY);
    assert_int_equal(sent, 512);
    uint64_t dropped = counted(f, REWARDER_M_queue_dropped, "work");
    json_t *o = compute(f, "e1", cid, "weekly", 503);
    assert_string_equal(text(o, "code"), "unavailable");
    json_decref(o);
    assert_int_equal(counted(f, REWARDER_M_queue_dropped, "work"), dropped + 1);
    assert_int_equal(counted(f, REWARDER_M_retries, "work"), 1);
    await_ready(f, false);
    await_published(f, "queue_depth", "queue=\"work\"", 512);
    await_published(f, "readyz_degraded", "cause=\"work_queue\"", 1);
    release_workers();
    await_ready(f, true);
    await_published(f, "queue_depth", "queue=\"work\"", 0);
    await_published(f, "readyz_degraded", "", 0);
    /* the failed run claims nothing */
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "settled"));
}

static void *make_room(void *arg)
{
    struct fixture *f = arg;
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    uint64_t before = counted(f, REWARDER_M_retries, "work");
    while (counted(f, REWARDER_M_retries, "work") == before && !deadline_passed(by))
        sched_yield();
    release_workers();
    return NULL;
}

/* One attempt: `work` is full when the job comes, and has room soon after. The status, which on a busy machine may be 503 after all. */
static int ask_while_room_comes(struct fixture *f, const char *epoch) RT_BLOCKS
{
    struct rewarder *r = state_of(f);
    char cid[80], path[96], body[256];
    pthread_t maker;
    struct answer a;
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    while (rt_chan_depth(r->work) > 0) { /* what the last attempt filled it with */
        assert_false(deadline_passed(by));
        sched_yield();
    }
    put_inputs(f, epoch, 3, cid);
    hold_workers(f, "e0");
    struct rewarder_item *it = dud();
    while (rt_chan_try_send(r->work, it) == ERR_OK)
        it = dud();
    rewarder_item_destroy(r, it);
    assert_int_equal(pthread_create(&maker, NULL, make_room, f), 0);
    snprintf(path, sizeof path, "/rewarder/epochs/%s/compute", epoch);
    snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"weekly\"}", cid);
    call(f, "POST", path, body, NULL, NULL, &a);
    buf_fini(&a.body);
    pthread_join(maker, NULL);
    return a.status;
}

/* What found no room is tried once more after 50 to 150 ms: room that comes in between is used. */
static void work_that_has_room_again_soon_is_not_refused(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char epoch[16];
    int status = 503;
    settle(f, "e0", 3, "weekly");
    for (unsigned i = 1; status == 503 && i <= 20; i++) {
        snprintf(epoch, sizeof epoch, "soon%u", i);
        status = ask_while_room_comes(f, epoch);
    }
    assert_int_equal(status, 202);
    json_decref(await_state(f, epoch, "settled"));
}

/* The emitter hangs in a call to the ledger: handles fill `intents`, the next worker waits its time, then gives up. */
static void a_run_the_emitter_does_not_take_is_quarantined_and_pays_nothing(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct rewarder *r = state_of(f);
    char cid[80];
    put_inputs(f, "e0", 3, cid);
    pthread_mutex_lock(&f->ledger->mutex);
    json_decref(compute(f, "e0", cid, "weekly", 202));
    json_decref(await_state(f, "e0", "emitting"));
    struct rewarder_run *run = rewarder_registry_find(&r->registry, STR("default"), STR("e0"), false);
    enum err e = ERR_OK;
    while (e == ERR_OK) {
        e = rt_chan_try_send(r->intents, rewarder_run_ref(run));
        if (e != ERR_OK)
            rewarder_run_unref(run);
    }
    rewarder_run_unref(run);
    assert_int_equal(e, ERR_BUSY);
    assert_true(rt_chan_stats(r->intents).capacity == 512);
    put_inputs(f, "e1", 3, cid);
    r->send_ms = 100;
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_t *o = await_state(f, "e1", "quarantined");
    assert_string_equal(text(json_object_get(o, "quarantine"), "kind"), "emit_unavailable");
    json_decref(o);
    r->send_ms = REWARDER_SEND_MS;
    pthread_mutex_unlock(&f->ledger->mutex);
    json_decref(await_state(f, "e0", "settled"));
    assert_int_equal(paid_in(f->ledger), 3);
    /* it survives a restart, and a release pays it */
    assert_int_equal(stop(f), 0);
    start(f);
    json_decref(await_state(f, "e1", "quarantined"));
    json_decref(
        post(f, "/rewarder/epochs/e1/release", "{\"action\":\"resume\",\"reason\":\"looked\"}", 202));
    json_decref(await_state(f, "e1", "settled"));
    assert_int_equal(paid_in(f->ledger), 6);
}

/* `results` is full for longer than a worker waits: the run fails, the loss is counted, nothing is emitted. */
/* However many wait for money, the next one that needs none does not wait behind them. */
static void runs_that_are_held_stand_in_nobodys_way(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    enum { HELD = 70 };
    char epoch[16], cid[80];
    f->ledger->available = MONEY_ZERO; /* nobody asks it yet */
    for (unsigned i = 0; i < HELD; i++) {
        snprintf(epoch, sizeof epoch, "poor-%u", i);
        put_inputs(f, epoch, 3, cid);
        json_decref(compute(f, epoch, cid, "weekly", 202));
    }
    for (unsigned i = 0; i < HELD; i++) {
        snprintf(epoch, sizeof epoch, "poor-%u", i);
        json_t *o = await_state(f, epoch, "held");
        assert_string_equal(text(json_object_get(o, "held"), "cause"), "funds");
        json_decref(o);
    }
    put_inputs(f, "empty", 0, cid);
    json_decref(compute(f, "empty", cid, "weekly", 202));
    json_decref(await_state(f, "empty", "settled"));
    assert_int_equal(f->ledger->n_units, 0);
}

static void a_result_nobody_writes_is_counted_and_its_run_fails(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct rewarder *r = state_of(f);
    char cid[80], epoch[16];
    uint64_t before = counted(f, REWARDER_M_dropped_results, NULL);
    r->send_ms = 10;
    for (unsigned tries = 0; tries < 8 && counted(f, REWARDER_M_dropped_results, NULL) == before; tries++) {
        snprintf(epoch, sizeof epoch, "e%u", tries);
        put_inputs(f, epoch, 3, cid);
        take_down(f, "artifact");
        enum err e = ERR_OK;
        while (e == ERR_OK) {
            struct rewarder_item *it = dud(); /* of which only the run is used */
            struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_UNANNOUNCED, it->run);
            rewarder_item_destroy(r, it);
            e = rt_chan_try_send(r->results, o);
            if (e != ERR_OK)
                rewarder_outcome_destroy(r, o);
        }
        json_decref(compute(f, epoch, cid, "weekly", 202));
        char path[64];
        snprintf(path, sizeof path, "/rewarder/epochs/%s", epoch);
        for (;;) { /* settled: the writer was back too soon, try again */
            json_t *o = get(f, path, 200);
            bool over = !strcmp(text(o, "state"), "settled") || !strcmp(text(o, "state"), "failed");
            json_decref(o);
            if (over)
                break;
        }
    }
    r->send_ms = REWARDER_SEND_MS;
    assert_true(counted(f, REWARDER_M_dropped_results, NULL) > before);
    json_t *o = await_state(f, epoch, "failed");
    assert_string_equal(text(json_object_get(o, "failure"), "code"), "unavailable");
    json_decref(o);
    json_decref(compute(f, epoch, cid, "weekly", 202));
    json_decref(await_state(f, epoch, "settled"));
}

/* Events come faster than the stream is written: the oldest are gone, counted, and the listener is told. */
static void a_listener_that_cannot_follow_is_told_and_counted(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct rewarder *r = state_of(f);
    struct raw_conn c;
    char request[8600];
    struct raw_response head;
    raw_connect(&c, (uint16_t)svc_port(f->svc));
    snprintf(request, sizeof request,
             "GET /admin/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", f->token);
    raw_puts(&c, request);
    raw_head(&c, &head);
    assert_int_equal(head.status, 200);
    raw_free(&head);
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    while (counted(f, REWARDER_M_bus_lagged, "events") == 0 && !deadline_passed(by))
        for (unsigned i = 0; i < 2000; i++) /* the queue holds 1024 */
            svc_feed_tell(r->events, "noise", "{}");
    assert_true(counted(f, REWARDER_M_bus_lagged, "events") > 0);
    while (!(c.buf && memmem(c.buf, c.n, "rewarder.lagged", 15)))
        assert_true(raw_more(&c));
    raw_close(&c);
}

/* ---- deadlines ---- */

static void a_job_past_its_callers_deadline_fails_and_pays_nothing(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], body[256];
    struct answer a;
    settle(f, "e0", 3, "weekly");
    put_inputs(f, "e1", 3, cid);
    hold_workers(f, "e0");
    snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"weekly\"}", cid);
    call_with(f, "POST", "/rewarder/epochs/e1/compute", "Request-Timeout: 2500ms",
              bytes_of(body, strlen(body)), &a);
    assert_int_equal(a.status, 202);
    buf_fini(&a.body);
    struct rewarder_run *run =
        rewarder_registry_find(&state_of(f)->registry, STR("default"), STR("e1"), false);
    while (!deadline_passed(
        deadline_at_ns(run->deadline_ns))) /* counted from when the service had the request */
        json_decref(get(f, "/rewarder/epochs/e1", 200));
    rewarder_run_unref(run);
    release_workers();
    json_t *o = await_state(f, "e1", "failed");
    assert_string_equal(text(json_object_get(o, "failure"), "code"), "timeout");
    json_decref(o);
    assert_int_equal(paid_in(f->ledger), 3);
    /* without a deadline of the caller's the same job is done */
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "settled"));
}

/* Asks while the scheduler is away; the status. On a machine so busy that it was back in time, that is 202. */
static int ask_without_scheduler(struct fixture *f, const char *epoch) RT_BLOCKS
{
    char cid[80], body[256], path[64];
    struct answer a;
    put_inputs(f, epoch, 3, cid);
    snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"weekly\"}", cid);
    snprintf(path, sizeof path, "/rewarder/epochs/%s/compute", epoch);
    take_down(f, "scheduler");
    call_with(f, "POST", path, "Request-Timeout: 40ms", bytes_of(body, strlen(body)), &a);
    buf_fini(&a.body);
    return a.status;
}

/* The scheduler is away for at least 100 ms; the caller has 40. What it finds later has nobody waiting: withdrawn. */
static void no_verdict_in_time_is_503_and_nothing_is_admitted(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct answer a;
    char epoch[16], path[64];
    unsigned tries = 0;
    int status;
    do {
        snprintf(epoch, sizeof epoch, "n%u", tries++);
        status = ask_without_scheduler(f, epoch);
        if (status != 503)
            json_decref(await_state(f, epoch, "settled"));
    } while (status != 503 && tries < 4); /* five failures a minute would escalate */
    assert_int_equal(status, 503);
    settle(f, "later", 3, "weekly"); /* it came after that request in the queue */
    snprintf(path, sizeof path, "/rewarder/epochs/%s", epoch);
    call(f, "GET", path, NULL, NULL, NULL, &a);
    assert_int_equal(a.status, 404);
    buf_fini(&a.body);
    assert_int_equal(paid_in(f->ledger), 3 * tries); /* all but that one */
}

/* ---- breaches ---- */

static void an_overflowing_epoch_is_quarantined_without_a_call_to_the_ledger(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct buf b;
    struct answer a;
    char cid[80];
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"snapshot\":1,\"tenant\":\"default\",\"epoch\":\"e1\",\"dims\":[\"points\",\"more\"],"
                 "\"count\":64}\n");
    for (unsigned i = 0; i < 64; i++)
        buf_printf(&b, "[\"acct:%u\",9223372036854775807,1]\n", i);
    call(f, "PUT", "/rewarder/inputs", buf_cstr(&b), "application/x-ndjson", NULL, &a);
    assert_int_equal(a.status, 201);
    buf_fini(&b);
    json_t *o = json_of(&a);
    snprintf(cid, sizeof cid, "%s", text(o, "cid"));
    json_decref(o);
    uint64_t calls = f->ledger->calls;
    json_decref(compute(f, "e1", cid, "huge", 202));
    o = await_state(f, "e1", "quarantined");
    assert_string_equal(text(json_object_get(o, "quarantine"), "kind"), "overflow");
    json_decref(o);
    await_published(f, "quarantine_total", "epoch=\"e1\"", 1);
    await_counted(f, REWARDER_M_invariant, "overflow", 1);
    json_decref(post(f, "/rewarder/epochs/e1/emit", "{}", 409));
    o = post(f, "/rewarder/epochs/e1/release", "{\"action\":\"resume\",\"reason\":\"please\"}", 409);
    json_decref(o);
    assert_int_equal(stop(f), 0);
    start(f);
    json_decref(await_state(f, "e1", "quarantined"));
    assert_int_equal(f->ledger->calls, calls);
    assert_int_equal(paid_in(f->ledger), 0);
}

/* ---- workers ---- */

static unsigned threads(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

struct load {
    struct fixture *f;
    unsigned first;
};

enum { LOAD_EPOCHS = 10 };

static void *send_load(void *arg) RT_BLOCKS
{
    struct load *l = arg;
    char cid[80], epoch[16];
    for (unsigned i = 0; i < LOAD_EPOCHS; i++) {
        snprintf(epoch, sizeof epoch, "k%u", l->first + i);
        put_inputs(l->f, epoch, 2500, cid);
        json_decref(compute(l->f, epoch, cid, "floored", 202));
    }
    return NULL;
}

static uint64_t restarts(struct fixture *f)
{
    struct buf b;
    uint64_t n = 0;
    buf_init(&b, 16 << 20);
    obs_metrics_render(svc_metrics(f->svc), &b);
    for (const char *p = buf_cstr(&b); (p = strstr(p, "\nservice_restarts_total{")); p++) {
        const char *end = strchr(p + 1, '\n'), *kind = strstr(p, "task=\"worker");
        if (kind && kind < end)
            n += strtoull(strchr(p, '}') + 2, NULL, 10);
    }
    buf_fini(&b);
    return n;
}

/* Half of the workers fail under load, again and again, at least 100 ms apart: jobs are done all the same, nothing leaks. */
static void half_of_the_workers_fail_under_load_and_every_job_is_done(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    assert_int_equal(stop(f), 0);
    unsigned without = threads();
    f->flags[3] = "concurrency.compute_workers=4";
    start(f);
    enum { SENDERS = 3 };
    struct load loads[SENDERS];
    pthread_t senders[SENDERS];
    for (unsigned i = 0; i < SENDERS; i++) {
        loads[i] = (struct load){f, i * 100};
        assert_int_equal(pthread_create(&senders[i], NULL, send_load, &loads[i]), 0);
    }
    uint64_t wanted = 6;
    struct deadline by = deadline_in_ms(4 * PATIENCE_MS);
    while (restarts(f) < wanted && !deadline_passed(by)) {
        (void)!rt_supervisor_fail(svc_supervisor(f->svc), "worker-0");
        (void)!rt_supervisor_fail(svc_supervisor(f->svc), "worker-1");
        json_decref(get(f, "/rewarder/epochs", 200));
    }
    assert_true(restarts(f) >= wanted);
    for (unsigned i = 0; i < SENDERS; i++)
        pthread_join(senders[i], NULL);
    for (unsigned i = 0; i < SENDERS; i++) {
        for (unsigned k = 0; k < LOAD_EPOCHS; k++) {
            char epoch[16], path[64];
            snprintf(epoch, sizeof epoch, "k%u", i * 100 + k);
            snprintf(path, sizeof path, "/rewarder/epochs/%s", epoch);
            for (;;) {
                json_t *o = get(f, path, 200);
                bool failed = !strcmp(text(o, "state"), "failed"),
                     done = !strcmp(text(o, "state"), "settled");
                if (failed) /* its second worker failed too: said so, and it may be asked for again */
                    assert_string_equal(text(json_object_get(o, "failure"), "code"), "canceled");
                char cid[80];
                snprintf(cid, sizeof cid, "%s", text(o, "inputs_cid"));
                json_decref(o);
                if (failed)
                    json_decref(compute(f, epoch, cid, "floored", 202));
                if (done)
                    break;
            }
        }
    }
    assert_true(f->ledger->available.units == 1000000 - SENDERS * LOAD_EPOCHS * 1000);
    assert_int_equal(stop(f), 0);
    assert_int_equal(threads(), without);
    start(f);
}

/* ---- rates ---- */

static void tenants_over_their_rate_wait_with_retry_after(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct answer a;
    unsigned ok = 0, limited = 0;
    assert_int_equal(stop(f), 0);
    f->flags[f->flag_n++] = "limits.tenant_rps=5";
    start(f);
    for (unsigned i = 0; i < 60; i++) {
        call(f, "GET", "/rewarder/epochs", NULL, NULL, NULL, &a);
        ok += a.status == 200;
        limited += a.status == 429 && a.retry_after[0] >= '1';
        buf_fini(&a.body);
    }
    assert_int_equal(ok + limited, 60);
    assert_true(ok >= 5 && limited > 0);
    assert_int_equal(counted(f, REWARDER_M_rate, "tenant"), limited);
    f->flags[f->flag_n - 1] = "limits.rps=5";
    f->flags[f->flag_n++] = "limits.burst=2";
    assert_int_equal(stop(f), 0);
    start(f);
    for (unsigned i = 0; i < 60; i++) {
        call(f, "GET", "/rewarder/epochs", NULL, NULL, "nonsense",
             &a); /* counted before anybody is known */
        limited += a.status == 429;
        assert_true(a.status == 429 || a.status == 401);
        buf_fini(&a.body);
    }
    assert_true(counted(f, REWARDER_M_rate, "all") > 0);
    f->flag_n -= 2;
}

/* ---- uploads ---- */

static void a_gzip_upload_is_stored_decoded_under_the_id_of_its_text(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct buf b;
    struct answer a;
    struct sha256 want;
    char cid[SHA256_TEXT_CHARS], path[128], bearer[8300], url[128];
    static uint8_t packed[1 << 20];
    snapshot("default", "e1", 9000, &b);
    sha256_of(b.p, b.n, &want);
    sha256_format(&want, cid);
    z_stream z = {.next_in = b.p, .avail_in = (uInt)b.n, .next_out = packed, .avail_out = sizeof packed};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", f->token);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/rewarder/inputs", svc_port(f->svc));
    const char *headers[] = {bearer, "Content-Type: application/x-ndjson", "Content-Encoding: gzip", NULL};
    memset(&a, 0, sizeof a);
    buf_init(&a.body, 1 << 20);
    struct net_http_request rq = {.method = "PUT",
                                  .url = url,
                                  .headers = headers,
                                  .body = bytes_of(packed, z.total_out),
                                  .by = deadline_in_ms(PATIENCE_MS),
                                  .response_max = 1 << 20};
    assert_int_equal(net_http_once(&rq, NULL, keep, &a), ERR_OK);
    assert_int_equal(a.status, 201);
    json_t *o = json_of(&a);
    assert_string_equal(text(o, "cid"), cid);
    json_decref(o);
    snprintf(path, sizeof path, "/rewarder/inputs/%s", cid);
    call(f, "GET", path, NULL, NULL, NULL, &a);
    assert_true(bytes_eq(buf_bytes(&a.body), buf_bytes(&b)));
    buf_fini(&a.body);
    buf_fini(&b);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "settled"));
}

/* ---- retention ---- */

static void expect_status(struct fixture *f, const char *path, int status) RT_BLOCKS
{
    struct answer a;
    call(f, "GET", path, NULL, NULL, NULL, &a);
    if (a.status != status)
        fail_msg("GET %s: %d, not %d", path, a.status, status);
    buf_fini(&a.body);
}

static void swept_runs_stay_claimed_and_unsettled_ones_keep_their_inputs(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    const int64_t hour = 3600000;
    char cid[80], held_cid[80], other[80], path[128], body[256];
    struct answer a;
    assert_int_equal(stop(f), 0);
    f->flags[f->flag_n++] = "retain_runs=1h";
    f->flags[f->flag_n++] = "retain_inputs=1h";
    start(f);
    settle(f, "e1", 20, "weekly");
    put_inputs(f, "e1", 20, cid);
    snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"weekly\",\"dry_run\":true}", cid);
    json_decref(post(f, "/rewarder/epochs/e1/compute", body, 202));
    json_t *o;
    do {
        o = get(f, "/rewarder/epochs/e1?dry_run=true", 200);
        a.status = strcmp(text(o, "state"), "sealed");
        json_decref(o);
    } while (a.status);
    fake_ledger_set_down(f->ledger, true);
    put_inputs(f, "e2", 20, held_cid);
    json_decref(compute(f, "e2", held_cid, "weekly", 202));
    json_decref(await_state(f, "e2", "held"));
    struct rewarder *r = state_of(f);
    int64_t now = rewarder_now_ms(r);
    rewarder_sweep(r, now + hour / 2); /* too early */
    expect_status(f, "/rewarder/epochs/e1/artifacts/run.json", 200);
    rewarder_sweep(r, now + 2 * hour);
    expect_status(f, "/rewarder/epochs/e1/artifacts/run.json", 404);
    expect_status(f, "/rewarder/epochs/e1/payouts?account=acct:00001", 404);
    expect_status(f, "/rewarder/epochs/e1?dry_run=true", 200); /* a day, not an hour */
    snprintf(path, sizeof path, "/rewarder/inputs/%s", cid);
    expect_status(f, path, 404);
    snprintf(path, sizeof path, "/rewarder/inputs/%s", held_cid);
    expect_status(f, path, 200);
    rewarder_sweep(r, now + 25 * hour);
    expect_status(f, "/rewarder/epochs/e1?dry_run=true", 404);
    /* after a restart as before: settled, claimed, paid once */
    for (unsigned i = 0; i < 2; i++) {
        o = await_state(f, "e1", "settled");
        assert_true(json_is_true(json_object_get(o, "swept")));
        json_decref(o);
        put_inputs(f, "e1", 21, other);
        json_decref(compute(f, "e1", other, "weekly", 409));
        if (i == 0) {
            assert_int_equal(stop(f), 0);
            fake_ledger_set_down(f->ledger, false);
            start(f);
        }
    }
    json_decref(await_state(f, "e2", "settled"));
    assert_int_equal(paid_in(f->ledger), 40);
}

static void failures_are_forgotten_after_a_day(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80];
    struct answer a;
    call(f, "PUT", "/rewarder/inputs",
         "{\"snapshot\":1,\"tenant\":\"default\",\"epoch\":\"e1\",\"dims\":[\"points\"],\"count\":1,"
         "\"rows\":[[\"pool:dust\",1]]}",
         NULL, NULL, &a);
    assert_int_equal(a.status, 201);
    json_t *o = json_of(&a);
    snprintf(cid, sizeof cid, "%s", text(o, "cid"));
    json_decref(o);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    o = await_state(f, "e1", "failed");
    const json_t *why = json_object_get(o, "failure");
    assert_string_equal(text(why, "code"), "reserved_account");
    assert_string_equal(text(json_object_get(why, "details"), "role"), "dust");
    json_decref(o);
    rewarder_sweep(state_of(f), rewarder_now_ms(state_of(f)) + 23 * INT64_C(3600000));
    json_decref(get(f, "/rewarder/epochs/e1", 200));
    rewarder_sweep(state_of(f), rewarder_now_ms(state_of(f)) + 25 * INT64_C(3600000));
    expect_status(f, "/rewarder/epochs/e1", 404);
}

static void a_finished_shadow_run_survives_a_restart_and_goes_after_a_day(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], path[128], csv[140], body[1024];
    struct answer before, after;
    put_inputs(f, "e1", 50, cid);
    snprintf(body, sizeof body,
             "{\"inputs_cid\":\"%s\",\"against\":\"weekly\",\"policy\":{\"v\":1,\"id\":\"cand\",\"asset\":"
             "\"ron\","
             "\"funding_account\":\"pool:rewards\",\"dust_account\":\"pool:dust\",\"pool\":\"2000\","
             "\"rounding\":\"floor\",\"weights\":[{\"dim\":\"points\",\"num\":1,\"den\":1}]}}",
             cid);
    json_t *o = post(f, "/rewarder/shadow", body, 202);
    snprintf(path, sizeof path, "/rewarder/shadow/%s", text(o, "shadow_id"));
    snprintf(csv, sizeof csv, "%s/diff.csv", path);
    while (strcmp(text(o, "state"), "done")) {
        json_decref(o);
        o = get(f, path, 200);
    }
    json_decref(o);
    call(f, "GET", csv, NULL, NULL, NULL, &before);
    assert_int_equal(stop(f), 0);
    start(f);
    o = get(f, path, 200);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "diff"), "gained")), 50);
    json_decref(o);
    call(f, "GET", csv, NULL, NULL, NULL, &after);
    assert_true(before.body.n > 50 && bytes_eq(buf_bytes(&before.body), buf_bytes(&after.body)));
    buf_fini(&before.body);
    buf_fini(&after.body);
    json_decref(post(f, "/rewarder/shadow", body, 200));
    rewarder_sweep(state_of(f), rewarder_now_ms(state_of(f)) + 25 * INT64_C(3600000));
    expect_status(f, path, 404);
    expect_status(f, csv, 404);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(work_full_twice_is_503_and_counted_and_readiness_toggles),
        TEST(work_that_has_room_again_soon_is_not_refused),
        TEST(a_run_the_emitter_does_not_take_is_quarantined_and_pays_nothing),
        TEST(runs_that_are_held_stand_in_nobodys_way),
        TEST(a_result_nobody_writes_is_counted_and_its_run_fails),
        TEST(a_listener_that_cannot_follow_is_told_and_counted),
        TEST(a_job_past_its_callers_deadline_fails_and_pays_nothing),
        TEST(no_verdict_in_time_is_503_and_nothing_is_admitted),
        TEST(an_overflowing_epoch_is_quarantined_without_a_call_to_the_ledger),
        TEST(half_of_the_workers_fail_under_load_and_every_job_is_done),
        TEST(tenants_over_their_rate_wait_with_retry_after),
        TEST(a_gzip_upload_is_stored_decoded_under_the_id_of_its_text),
        TEST(swept_runs_stay_claimed_and_unsettled_ones_keep_their_inputs),
        TEST(failures_are_forgotten_after_a_day),
        TEST(a_finished_shadow_run_survives_a_restart_and_goes_after_a_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
