/*
 * Every number that the wallet exports moves when, and only when, what it tells of happens. On a clock that stands still
 * unless moved: what is stuck stays where it is until it has been counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "metric_sum.h"
#include "wallet_rig.h"

static struct wallet_rig rig;
static struct rig_answer a, b;
static char m1[256];

/* Which numbers were seen at something else than nothing. */
static const char *seen[256];
static size_t n_seen;

static void saw(const char *name, double value)
{
    for (size_t i = 0; i < n_seen; i++)
        if (strcmp(seen[i], name) == 0)
            return;
    if (value > 0) {
        assert_true(n_seen < sizeof seen / sizeof seen[0]);
        seen[n_seen++] = name;
    }
}

/* Counters are exact; whatever is sampled once per metrics_tick is waited for. */
#define SAYS(name, labels, value)                                                                          \
    do {                                                                                                   \
        assert_true(rig_metric(&rig, name, labels) == (value));                                            \
        saw(name, value);                                                                                  \
    } while (0)
#define AWAIT(name, labels, at_least)                                                                      \
    do {                                                                                                   \
        rig_await_metric(&rig, name, labels, at_least);                                                    \
        saw(name, at_least);                                                                               \
    } while (0)

RT_BLOCKS
static void await_exactly(const char *name, const char *labels, double value)
{
    saw(name, value);
    struct deadline by = deadline_in_ms(30000);
    double last;
    while ((last = rig_metric(&rig, name, labels)) < value || last > value)
        if (deadline_passed(by))
            fail_msg("%s{%s} is %g, not %g", name, labels, last, value);
}

RT_BLOCKS
static void issue(const char *key, const char *to, int amount, struct rig_answer *out)
{
    rig_post(&rig, "/v1/issue", key, out, "{\"to\":\"%s\",\"asset\":\"ron\",\"amount\":\"%d\"}", to,
             amount);
}

RT_BLOCKS
static void pay(const char *key, int amount, int nonce, struct rig_answer *out)
{
    rig_post(
        &rig, "/v1/transfer", key, out,
        "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"%d\",\"nonce\":%d}",
        amount, nonce);
}

/* ---- how operations end ---- */

RT_UNCHECKED static void operations_are_counted_by_how_they_ended(void **state)
{
    (void)state;
    issue("fund", "acct:alice", 100, &a);
    assert_int_equal(a.status, 200);
    pay("k1", 10, 1, &a);
    assert_int_equal(a.status, 200);
    SAYS("wallet_ops_total", "op=\"issue\",outcome=\"committed\"", 1);
    SAYS("wallet_ops_total", "op=\"transfer\",outcome=\"committed\"", 1);
    SAYS("upstream_calls_total", "op=\"ingest\",outcome=\"answered\"", 2);
    SAYS("upstream_latency_seconds_count", "op=\"ingest\"", 2);
    SAYS("wallet_batch_units_count", "", 2);
    SAYS("wallet_batch_units_sum", "", 2);
    SAYS("http_requests_total", "route=\"/v1/transfer\",method=\"POST\",status=\"200\"", 1);
    SAYS("request_latency_seconds_count", "route=\"/v1/transfer\",method=\"POST\"", 1);
    AWAIT("wallet_idem_entries", "", 2);

    pay("k1", 10, 1, &b);
    assert_string_equal(a.body, b.body);
    SAYS("wallet_idem_replays_total", "source=\"ram\"", 1);
    SAYS("wallet_ops_total", "op=\"transfer\",outcome=\"replayed\"", 1);

    pay("k2", 10, 7, &a);
    assert_int_equal(a.status, 409);
    SAYS("wallet_nonce_conflicts_total", "", 1);
    SAYS("rejected_total", "reason=\"nonce_conflict\"", 1);
    pay("k3", 1000, 2, &a);
    assert_int_equal(a.status, 409);
    SAYS("wallet_nonce_conflicts_total", "", 1);
    SAYS("rejected_total", "reason=\"insufficient_funds\"", 1);
    SAYS("wallet_ops_total", "op=\"transfer\",outcome=\"refused\"", 2);

    rig_call(&rig, "POST", "/v1/burn", "k4", "not-a-token", "{}", &a);
    assert_int_equal(a.status, 401);
    SAYS("auth_failures_total", "reason=\"unauthenticated\"", 1);
    char token[4096];
    const char *caveat = "op in read";
    rig_narrow(&rig, &caveat, 1, token);
    rig_call(&rig, "POST", "/v1/burn", "k5", token,
             "{\"from\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"1\",\"nonce\":2}", &a);
    assert_int_equal(a.status, 403);
    SAYS("auth_failures_total", "reason=\"forbidden\"", 1);

    mem_ledger_ingest_fault(rig.ledger, MEM_BAD_REQUEST, 1); /* our fault, never the client's */
    pay("k6", 1, 2, &a);
    assert_int_equal(a.status, 503);
    SAYS("wallet_contract_breaches_total", "", 1);
}

RT_UNCHECKED static void a_receipt_that_another_process_got_is_found_with_the_ledger(void **state)
{
    (void)state;
    issue("fund", "acct:alice", 100, &a);
    assert_int_equal(a.status, 200);
    rig_move_to(&rig, rig_now_ns(&rig), 1000); /* at the same millisecond it would freeze the same bytes */
    wallet_rig_restart(&rig, (const char *const[]){"http.threads=1", "metrics_tick=100ms"}, 2);
    issue("fund", "acct:alice", 100, &b);
    assert_string_equal(a.body, b.body);
    SAYS("wallet_idem_replays_total", "source=\"ledger\"", 1);
    SAYS("wallet_ops_total", "op=\"issue\",outcome=\"replayed\"", 1);
    SAYS("wallet_ops_total", "op=\"issue\",outcome=\"committed\"", 0);
}

RT_UNCHECKED static void who_waited_for_somebody_elses_key_is_counted_as_a_waiter(void **state)
{
    static const char body[] = "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"5\"}";
    struct raw_conn first, second;
    (void)state;
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, 1);
    int64_t since = rig_now_ns(&rig);
    rig_ask(&rig, &first, "POST", "/v1/issue", "one", body);
    await_exactly("worker_inflight", "", 1);
    rig_ask(&rig, &second, "POST", "/v1/issue", "one", body);
    await_exactly("inflight_requests", "route=\"/v1/issue\"", 2);
    rig_settle(&rig);
    rig_move_to(&rig, since, 1100); /* nobody knows; then once more */
    AWAIT("backoff_retries_total", "svc=\"ledger\",op=\"ingest\"", 1);
    rig_move_to(&rig, since, 1200);
    rig_answered(&first, 200, "");
    rig_answered(&second, 200, "");
    SAYS("wallet_idem_replays_total", "source=\"waiter\"", 1);
    await_exactly("inflight_requests", "route=\"/v1/issue\"", 0);
    await_exactly("worker_inflight", "", 0);
}

/* ---- full ---- */

/* One with the ledger, one parked, four in the queue: each is seen where it is, and the seventh is told. */
RT_UNCHECKED static void a_full_work_queue_is_as_deep_as_it_says_and_refuses_exactly_the_rest(void **state)
{
    enum { IN = 6, OUT = 3 };
    struct raw_conn in[IN];
    char key[16], body[128];
    (void)state;
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, 1);
    int64_t since = rig_now_ns(&rig);
    for (int i = 0; i < IN; i++) {
        snprintf(key, sizeof key, "in-%d", i);
        snprintf(body, sizeof body, "{\"to\":\"acct:%d\",\"asset\":\"ron\",\"amount\":\"1\"}", i);
        rig_ask(&rig, &in[i], "POST", "/v1/issue", key, body);
        if (i == 0)
            await_exactly("worker_inflight", "", 1);
        if (i == 1)
            await_exactly("wallet_parked", "", 1);
    }
    await_exactly("queue_depth", "queue=\"work\"", 4);
    await_exactly("wallet_unsettled", "", IN);
    SAYS("inflight_requests", "route=\"/v1/issue\"", IN);
    SAYS("busy_rejections_total", "", 0);
    for (int i = 0; i < OUT; i++) {
        snprintf(key, sizeof key, "out-%d", i);
        issue(key, "acct:late", 1, &a);
        assert_int_equal(a.status, 429);
        assert_string_equal(rig_member(&a, "reason", m1), "queue");
        assert_true(atoi(a.retry_after) >= 1);
    }
    SAYS("busy_rejections_total", "endpoint=\"issue\"", OUT);
    SAYS("queue_dropped_total", "queue=\"work\"", OUT);
    SAYS("rejected_total", "reason=\"busy\"", OUT);
    await_exactly("wallet_refusal_seconds_count", "", OUT);
    SAYS("wallet_ops_total", "op=\"issue\",outcome=\"refused\"", OUT);
    await_exactly("queue_depth", "queue=\"work\"", 4);
    await_exactly("inflight_requests", "route=\"/v1/issue\"", IN);
    rig_move_to(&rig, since, 1100);
    AWAIT("backoff_retries_total", "op=\"ingest\"", 1);
    rig_move_to(&rig, since, 1200);
    for (int i = 0; i < IN; i++)
        rig_answered(&in[i], 200, "");
    await_exactly("queue_depth", "queue=\"work\"", 0);
    await_exactly("wallet_parked", "", 0);
    await_exactly("wallet_unsettled", "", 0);
    assert_int_equal(mem_ledger_units(rig.ledger), IN);
}

/* Receipts beyond idempotency_bytes leave, the least recently used first. */
RT_UNCHECKED static void receipts_that_do_not_fit_are_counted_when_they_leave(void **state)
{
    struct raw_conn c;
    char text[8192], memo[161];
    (void)state;
    memset(memo, 'm', 160);
    memo[160] = 0;
    raw_connect(&c, (uint16_t)svc_port(rig.svc));
    double out = 0;
    for (int i = 0; i < 20000 && out == 0; i++) {
        struct raw_response r;
        char body[300];
        snprintf(body, sizeof body,
                 "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"1\",\"memo\":\"%s\"}", memo);
        int n = snprintf(text, sizeof text,
                         "POST /v1/issue HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                         "Idempotency-Key: bytes-%d-%.100s\r\nContent-Type: application/json\r\n"
                         "Content-Length: %zu\r\n\r\n%s",
                         rig.token, i, memo, strlen(body), body);
        raw_send(&c, text, (size_t)n);
        raw_read(&c, false, &r);
        assert_int_equal(r.status, 200);
        raw_free(&r);
        if (i % 250 == 249)
            out = rig_metric(&rig, "wallet_idem_evictions_total", "cause=\"bytes\"");
    }
    assert_true(out > 0);
    saw("wallet_idem_evictions_total", out);
    SAYS("wallet_idem_evictions_total", "cause=\"ttl\"", 0);
    raw_close(&c);
}

/* ---- outcomes nobody knows ---- */

RT_UNCHECKED static void what_is_in_doubt_is_counted_until_it_is_not(void **state)
{
    struct raw_conn c;
    (void)state;
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, -1);
    mem_ledger_unit_fault(rig.ledger, MEM_LOSE_BEFORE, -1);
    int64_t since = rig_now_ns(&rig);
    rig_ask(&rig, &c, "POST", "/v1/issue", "doubt",
            "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"5\"}");
    await_exactly("worker_inflight", "", 1);
    rig_move_to(&rig, since, 5500);
    rig_answered(&c, 503, "");
    SAYS("wallet_ops_total", "op=\"issue\",outcome=\"pending\"", 1);
    await_exactly("wallet_in_doubt", "", 1);
    SAYS("wallet_doubt_seconds_count", "", 0);
    AWAIT("upstream_calls_total", "op=\"unit\",outcome=\"unknown\"", 1);
    mem_ledger_unit_fault(rig.ledger, MEM_OK, 0);
    rig_move_to(&rig, since, 8000); /* past the next look, and past its not_after: surely not committed */
    await_exactly("wallet_in_doubt", "", 0);
    SAYS("wallet_doubt_seconds_count", "", 1);
    SAYS("wallet_ops_total", "op=\"issue\",outcome=\"not_committed\"", 1);
    assert_true(rig_metric(&rig, "wallet_doubt_seconds_sum", "") > 0.5);
    assert_int_equal(mem_ledger_units(rig.ledger), 0);
}

RT_UNCHECKED static void answers_that_are_owed_show(void **state)
{
    (void)state;
    SAYS("wallet_owing_connections", "", 0);
    mem_ledger_owe(rig.ledger, 3);
    await_exactly("wallet_owing_connections", "", 3);
    mem_ledger_owe(rig.ledger, 0);
    await_exactly("wallet_owing_connections", "", 0);
}

/* ---- the ledger is not there ---- */

RT_UNCHECKED static void a_ledger_that_is_gone_opens_the_breaker_and_is_told_as_such(void **state)
{
    (void)state;
    await_exactly("ready", "", 1);
    issue("known", "acct:a", 1, &b);
    assert_int_equal(b.status, 200);
    mem_ledger_ingest_fault(rig.ledger, MEM_DOWN, -1);
    SAYS("breaker_state", "svc=\"ledger\"", 0);
    SAYS("upstream_fail_total", "svc=\"ledger\"", 0);
    struct raw_conn c[4];
    for (int i = 0; i < 4; i++) { /* three failures open it, and the fourth is not sent any more */
        char key[16];
        snprintf(key, sizeof key, "down-%d", i);
        rig_ask(&rig, &c[i], "POST", "/v1/issue", key,
                "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"1\"}");
        if (i < 3)
            AWAIT("upstream_calls_total", "op=\"ingest\",outcome=\"refused\"", i + 1);
    }
    rig_answered(&c[3], 503, "");
    SAYS("circuit_open_total", "svc=\"ledger\"", 1);
    await_exactly("breaker_state", "svc=\"ledger\"", 2);
    SAYS("upstream_fail_total", "svc=\"ledger\"", 4);
    rig_get(&rig, "/readyz", &a);
    assert_non_null(strstr(a.body, "\"shed_writes\":true"));
    rig_post(&rig, "/v1/issue", "known", &a, /* what is known is told, however it is spelt */
             "{ \"amount\":\"1\", \"asset\":\"ron\", \"to\":\"acct:a\" }");
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, b.body);
    mem_ledger_ingest_fault(rig.ledger, MEM_OK, 0);
    int64_t since = rig_now_ns(&rig);
    rig_move_to(&rig, since, 4500); /* open for five seconds; then the probes decide */
    issue("shed", "acct:a", 1, &a);
    assert_int_equal(a.status, 503);
    assert_string_equal(rig_member(&a, "reason", m1), "breaker");
    rig_move_to(&rig, since, 5500);
    await_exactly("breaker_state", "svc=\"ledger\"", 0);
    for (int i = 0; i < 3; i++)
        raw_close(&c[i]);
}

/* ---- reads ---- */

RT_UNCHECKED static void balances_are_counted_by_where_they_came_from_and_how_old_they_were(void **state)
{
    static const char path[] = "/v1/balance?account=acct:alice&asset=ron";
    (void)state;
    issue("fund", "acct:alice", 100, &a);
    assert_int_equal(a.status, 200);
    static const char hit[] = "result=\"hit\"", refresh[] = "result=\"refresh\"",
                      degraded[] = "result=\"degraded\"";
    SAYS("wallet_cache_total", "", 0);
    rig_get(&rig, path, &a); /* never read before */
    assert_int_equal(a.status, 200);
    SAYS("wallet_cache_total", refresh, 1);
    rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron&min_seq=999", &a);
    assert_int_equal(a.status, 503); /* nothing that could be shown */
    SAYS("wallet_cache_total", "result=\"miss\"", 1);
    struct deadline by = deadline_in_ms(30000);
    do { /* the clock stands: it comes from memory, once the feed that has just begun is heard */
        assert_false(deadline_passed(by));
        rig_get(&rig, path, &a);
    } while (rig_metric(&rig, "wallet_cache_total", hit) == 0);
    SAYS("wallet_cache_total", hit, 1);
    double refreshed = rig_metric(&rig, "wallet_cache_total", refresh);
    mem_ledger_feed(rig.ledger, false); /* nobody vouches for it */
    rig_await_readyz(&rig, "\"feed\":false");
    rig_move_to(&rig, rig_now_ns(&rig), 300);
    rig_get(&rig, path, &a);
    assert_int_equal(a.status, 200);
    SAYS("wallet_cache_total", refresh, refreshed + 1);
    SAYS("wallet_cache_total", hit, 1);
    SAYS("wallet_cache_total", degraded, 0);
    int64_t since = rig_now_ns(&rig);
    mem_ledger_account_fault(rig.ledger, MEM_STALL, -1);
    rig_move_to(&rig, since, 10000);
    AWAIT("wallet_feed_age_seconds", "", 10);
    struct raw_conn c;
    rig_ask(&rig, &c, "GET", path, NULL, "");
    rig_settle(&rig);
    rig_move_to(&rig, since, 10300);
    rig_answered(&c, 200, "");
    SAYS("wallet_cache_total", degraded, 1);
    AWAIT("wallet_cache_age_seconds_count", "", 4);
    assert_true(rig_metric(&rig, "wallet_cache_age_seconds_sum", "") >= 10);
}

/* ---- who does not keep up ---- */

RT_UNCHECKED static void events_that_nobody_read_in_time_are_counted_on_both_buses(void **state)
{
    struct raw_conn listener;
    struct raw_response head;
    struct deadline by = deadline_in_ms(30000);
    (void)state;
    rig_ask(&rig, &listener, "GET", "/admin/audit", NULL, "");
    raw_head(&listener, &head);
    assert_int_equal(head.status, 200);
    raw_free(&head);
    for (int round = 0; rig_metric(&rig, "bus_lagged_total", "bus=\"audit\"") == 0 ||
                        rig_metric(&rig, "bus_lagged_total", "bus=\"ledger\"") == 0;
         round++) { /* many in one batch, through buses of two */
        struct raw_conn c[40];
        assert_false(deadline_passed(by));
        for (int i = 0; i < 40; i++) {
            char key[32];
            snprintf(key, sizeof key, "lag-%d-%d", round, i);
            rig_ask(&rig, &c[i], "POST", "/v1/issue", key,
                    "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"1\"}");
        }
        for (int i = 0; i < 40; i++)
            rig_answered(&c[i], 200, "");
    }
    AWAIT("bus_lagged_total", "bus=\"audit\"", 1);
    AWAIT("queue_dropped_total", "queue=\"events\"", 1);
    AWAIT("queue_dropped_total", "queue=\"ledger_bus\"", 1);
    rig_get(&rig, "/v1/balance?account=acct:a&asset=ron", &a); /* none the worse for it */
    char want[32];
    snprintf(want, sizeof want, "%d", (int)mem_ledger_units(rig.ledger));
    assert_string_equal(rig_member(&a, "available", m1), want);
    raw_close(&listener);
}

/* ---- tasks ---- */

static double left_behind(const char *name, const char *labels)
{
    struct buf page;
    buf_init(&page, 4 << 20);
    obs_metrics_render(svc_metrics(rig.svc), &page);
    assert_int_equal(page.err, ERR_OK);
    double v = metric_sum(buf_cstr(&page), name, labels);
    buf_fini(&page);
    return v;
}

/* A worker that cannot end because the ledger never answers: given up at drain_deadline, and everybody was told. */
RT_UNCHECKED static void a_worker_that_outlives_the_drain_is_aborted_and_counted(void **state)
{
    struct raw_conn c;
    (void)state;
    SAYS("tasks_spawned_total", "kind=\"worker\"", 1);
    SAYS("tasks_spawned_total", "kind=\"prober\"", 1);
    SAYS("tasks_aborted_total", "", 0);
    SAYS("tasks_canceled_total", "", 0);
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, -1);
    rig_ask(&rig, &c, "POST", "/v1/issue", "stuck",
            "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"1\"}");
    await_exactly("worker_inflight", "", 1);
    assert_int_equal(svc_drain(rig.svc), 1);
    rig_answered(&c, 503, ""); /* outcome_pending */
    assert_true(left_behind("tasks_aborted_total", "kind=\"worker\"") == 1);
    assert_true(left_behind("tasks_canceled_total", "kind=\"worker\"") == 1);
    assert_true(left_behind("tasks_leaked_total", "") == 0);
}

/* Told to end in the middle of its work: that is one cancelled, one restart, and the same operations go on. */
RT_UNCHECKED static void
a_worker_that_is_made_to_fail_is_counted_as_canceled_and_takes_up_its_work(void **state)
{
    struct raw_conn c;
    (void)state;
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, 1);
    int64_t since = rig_now_ns(&rig);
    rig_ask(&rig, &c, "POST", "/v1/issue", "held",
            "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"1\"}");
    await_exactly("worker_inflight", "", 1);
    SAYS("tasks_canceled_total", "", 0);
    SAYS("service_restarts_total", "", 0);
    assert_int_equal(rt_supervisor_fail(svc_supervisor(rig.svc), "worker"), ERR_OK);
    AWAIT("tasks_canceled_total", "kind=\"worker\"", 1);
    AWAIT("service_restarts_total", "task=\"worker\"", 1);
    AWAIT("tasks_spawned_total", "kind=\"worker\"", 2);
    SAYS("tasks_canceled_total", "", 1);
    rig_move_to(&rig, since, 1100);
    AWAIT("backoff_retries_total", "op=\"ingest\"", 1);
    rig_move_to(&rig, since, 1200);
    rig_answered(&c, 200, "\"idem\":\"held\"");
    SAYS("tasks_aborted_total", "", 0);
    assert_int_equal(mem_ledger_units(rig.ledger), 1);
}

/* ---- all of them ---- */

static bool is_of(const char *series, const char *family)
{
    size_t n = strlen(family);
    return strncmp(series, family, n) == 0 &&
           (!series[n] || strcmp(series + n, "_count") == 0 || strcmp(series + n, "_sum") == 0);
}

/* The last test: each number of metrics.def was seen to move by those before it, or is by the one named here. */
static void no_number_is_forgotten(void **state)
{
    static const char *const families[] = {
#define COUNTER(id, name, ...)   name,
#define GAUGE(id, name, ...)     name,
#define HISTOGRAM(id, name, ...) name,
#include "services/wallet/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
    };
    static const char *const elsewhere[] = {"io_timeouts_total" /* deadlines */,
                                            "policy_version" /* limits */,
                                            "wallet_fork_detected_total" /* service */};
    (void)state;
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        bool moved = false;
        for (size_t i = 0; i < n_seen && !moved; i++)
            moved = is_of(seen[i], families[f]);
        for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0] && !moved; i++)
            moved = strcmp(elsewhere[i], families[f]) == 0;
        if (!moved)
            fail_msg("no test sees %s move", families[f]);
    }
}

RT_UNCHECKED static int open_small(void **state)
{
    (void)state;
    wallet_rig_open_driven(&rig,
                           (const char *const[]){"metrics_tick=100ms", "workers=1", "queues.work=4",
                                                 "batch_units=1", "inflight_requests=1"},
                           5);
    return 0;
}

RT_UNCHECKED static int open_plain(void **state)
{
    (void)state;
    wallet_rig_open_driven(
        &rig, (const char *const[]){"metrics_tick=100ms", "workers=1", "drain_deadline=1s"}, 3);
    return 0;
}

RT_UNCHECKED static int open_brittle(void **state)
{
    (void)state;
    wallet_rig_open_driven(
        &rig, (const char *const[]){"metrics_tick=100ms", "circuit_breaker.failure_threshold=3"}, 2);
    return 0;
}

RT_UNCHECKED static int open_forgetful(void **state)
{
    (void)state;
    wallet_rig_open_driven(&rig, (const char *const[]){"idempotency_bytes=1MiB", "shards=1"}, 2);
    return 0;
}

RT_UNCHECKED static int open_narrow(void **state)
{
    (void)state;
    wallet_rig_open_driven(&rig, (const char *const[]){"queues.events=2", "queues.ledger_bus=2"}, 2);
    return 0;
}

#define T(fn, open) RIG_TEST_OPENED(fn, open, &rig)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(operations_are_counted_by_how_they_ended, open_plain),
        T(a_receipt_that_another_process_got_is_found_with_the_ledger, open_plain),
        T(who_waited_for_somebody_elses_key_is_counted_as_a_waiter, open_plain),
        T(a_full_work_queue_is_as_deep_as_it_says_and_refuses_exactly_the_rest, open_small),
        T(receipts_that_do_not_fit_are_counted_when_they_leave, open_forgetful),
        T(what_is_in_doubt_is_counted_until_it_is_not, open_plain),
        T(answers_that_are_owed_show, open_plain),
        T(a_ledger_that_is_gone_opens_the_breaker_and_is_told_as_such, open_brittle),
        T(balances_are_counted_by_where_they_came_from_and_how_old_they_were, open_plain),
        T(events_that_nobody_read_in_time_are_counted_on_both_buses, open_narrow),
        T(a_worker_that_is_made_to_fail_is_counted_as_canceled_and_takes_up_its_work, open_plain),
        T(a_worker_that_outlives_the_drain_is_aborted_and_counted, open_plain),
        cmocka_unit_test(no_number_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
