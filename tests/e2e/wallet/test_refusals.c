/*
 * Each way to be refused that takes some doing: the code, the status and the reason it is told with. On a clock that stands
 * still unless moved, so that what is in the way stays there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wallet_rig.h"

static struct wallet_rig rig;
static struct rig_answer a;
static char m1[256], m2[256];

static const char issue[] = "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"1\"}";

static void assert_refused(int status, const char *code, const char *reason)
{
    if (a.status != status)
        print_error("%d %s\n", a.status, a.body);
    assert_int_equal(a.status, status);
    assert_string_equal(rig_member(&a, "code", m1), code);
    assert_string_equal(rig_member(&a, "reason", m2), reason);
}

RT_UNCHECKED static void fund(void)
{
    rig_post(&rig, "/v1/issue", "fund", &a,
             "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"1000\"}");
    assert_int_equal(a.status, 200);
}

/* The ledger does not answer: whoever comes meanwhile meets what is on its way. Nothing moves until the clock does. */
RT_UNCHECKED static void hang(void)
{
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, -1);
}

RT_UNCHECKED static void one_more_than_may_wait_for_a_key_is_told_in_flight(void **state)
{
    struct raw_conn owner, waiter;
    (void)state;
    hang();
    rig_ask(&rig, &owner, "POST", "/v1/issue", "one", issue);
    rig_await_metric(&rig, "worker_inflight", "", 1);
    rig_ask(&rig, &waiter, "POST", "/v1/issue", "one", issue);
    rig_await_metric(&rig, "inflight_requests", "route=\"/v1/issue\"", 2);
    rig_settle(&rig);
    rig_call(&rig, "POST", "/v1/issue", "one", NULL, issue, &a);
    assert_refused(409, "in_flight", "");
    char path[300], token[4096];
    snprintf(path, sizeof path, "/v1/tx/%s", rig_member(&a, "txid", m1));
    assert_memory_equal(path, "/v1/tx/tx_", 10);
    assert_string_equal(rig_member(&a, "retryable", m1), "true");
    rig_get(&rig, path, &a); /* it is on its way, for whom it concerns; for others it is not there */
    assert_int_equal(a.status, 202);
    assert_string_equal(rig_member(&a, "status", m1), "pending");
    rig_narrow(&rig, (const char *const[]){"account in acct:a"}, 1, token);
    rig_call(&rig, "GET", path, NULL, token, NULL, &a);
    assert_int_equal(a.status, 202);
    rig_narrow(&rig, (const char *const[]){"account in acct:b"}, 1, token);
    rig_call(&rig, "GET", path, NULL, token, NULL, &a);
    assert_refused(404, "not_found", "");
    rig_call(&rig, "POST", "/v1/issue", "one", NULL,
             "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"2\"}", &a);
    assert_refused(422, "idempotency_mismatch",
                   ""); /* another request under that key, whatever becomes of it */
    raw_close(&owner);
    raw_close(&waiter);
}

RT_UNCHECKED static void an_operation_behind_one_that_is_open_is_told_so(void **state)
{
    struct raw_conn first, second;
    static const char pay[] =
        "{\"from\":\"acct:alice\",\"to\":\"acct:b\",\"asset\":\"ron\",\"amount\":\"1\",\"nonce\":%d}";
    char body[160];
    (void)state;
    fund();
    hang();
    mem_ledger_unit_fault(rig.ledger, MEM_LOSE_BEFORE, -1);
    int64_t since = rig_now_ns(&rig);
    snprintf(body, sizeof body, pay, 1);
    rig_ask(&rig, &first, "POST", "/v1/transfer", "first", body);
    rig_await_metric(&rig, "worker_inflight", "", 1);
    snprintf(body, sizeof body, pay, 2);
    rig_ask(&rig, &second, "POST", "/v1/transfer", "second", body);
    rig_await_metric(&rig, "wallet_parked", "", 1);
    rig_move_to(&rig, since, 5500);
    rig_answered(&first, 503, "outcome_pending");
    rig_answered(&second, 503, "\"reason\":\"behind_pending\"");
    rig_await_metric(&rig, "wallet_in_doubt", "", 1);
    rig_get(&rig, "/admin/in-doubt", &a);
    assert_int_equal(a.status, 200);
    assert_string_equal(rig_member(&a, "op", m1), "transfer");
    assert_memory_equal(rig_member(&a, "txid", m1), "tx_", 3);
    assert_true(atoi(rig_member(&a, "tries", m1)) >= 1);
}

RT_UNCHECKED static void more_than_256_open_operations_of_one_account_are_told_unsettled(void **state)
{
    enum { MOST = 256 };
    static struct raw_conn c[MOST];
    (void)state;
    hang();
    for (int i = 0; i < MOST; i++) {
        char key[16];
        snprintf(key, sizeof key, "open-%d", i);
        rig_ask(&rig, &c[i], "POST", "/v1/issue", key, issue);
    }
    rig_await_metric(&rig, "wallet_unsettled", "", MOST);
    rig_call(&rig, "POST", "/v1/issue", "one-more", NULL, issue, &a);
    assert_refused(429, "busy", "unsettled");
    rig_post(&rig, "/v1/simulate", "other", &a,
             "{\"op\":\"issue\",\"to\":\"acct:b\",\"asset\":\"ron\",\"amount\":\"1\"}");
    assert_int_equal(a.status, 200); /* others are none the worse */
    for (int i = 0; i < MOST; i++)
        raw_close(&c[i]);
}

RT_UNCHECKED static void what_has_ended_does_not_count_as_open(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) { /* committed and refused by turns */
        char key[16];
        snprintf(key, sizeof key, "one-%d", i);
        rig_post(&rig, i % 2 ? "/v1/burn" : "/v1/issue", key, &a,
                 i % 2 ? "{\"from\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"100000\",\"nonce\":1}"
                       : "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"1\"}");
        assert_int_equal(a.status, i % 2 ? 409 : 200);
    }
}

RT_UNCHECKED static void more_requests_than_max_inflight_are_told_busy(void **state)
{
    struct raw_conn c[2];
    (void)state;
    hang();
    rig_ask(&rig, &c[0], "POST", "/v1/issue", "a", issue);
    rig_ask(&rig, &c[1], "POST", "/v1/issue", "b", issue);
    rig_await_metric(&rig, "inflight_requests", "route=\"/v1/issue\"", 2);
    rig_call(&rig, "POST", "/v1/issue", "c", NULL, issue, &a);
    assert_int_equal(a.status, 429);
    assert_string_equal(rig_member(&a, "code", m1), "busy");
    assert_string_equal(rig_member(&a, "reason", m1), "inflight");
    assert_true(atoi(a.retry_after) >= 1);
    assert_true(rig_metric(&rig, "http_rejects_total", "why=\"inflight\"") == 1);
    raw_close(&c[0]);
    raw_close(&c[1]);
}

RT_UNCHECKED static void a_full_read_queue_is_told_as_such(void **state)
{
    struct raw_conn c;
    (void)state;
    mem_ledger_account_fault(rig.ledger, MEM_STALL, -1);
    rig_ask(&rig, &c, "GET", "/v1/nonce?account=acct:a", NULL, "");
    rig_await_metric(&rig, "inflight_requests", "route=\"/v1/nonce\"", 1);
    rig_settle(&rig);
    rig_get(&rig, "/v1/nonce?account=acct:b", &a);
    assert_refused(429, "busy", "read_queue");
    assert_true(rig_metric(&rig, "busy_rejections_total", "endpoint=\"nonce\"") == 1);
    raw_close(&c);
}

RT_UNCHECKED static void holds_end_with_their_time_and_give_no_more_than_they_hold(void **state)
{
    char hold[256];
    (void)state;
    fund();
    int64_t since = rig_now_ns(&rig);
    rig_post(
        &rig, "/v1/hold", "h", &a,
        "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"70\",\"nonce\":1,"
        "\"expires_in\":10}");
    assert_int_equal(a.status, 200);
    rig_member(&a, "txid", hold);
    rig_post(&rig, "/v1/capture", "c1", &a, "{\"hold\":\"%s\",\"amount\":\"71\"}", hold);
    assert_refused(422, "unprocessable", "over_hold");
    rig_move_to(&rig, since, 11000);
    rig_post(&rig, "/v1/capture", "c2", &a, "{\"hold\":\"%s\"}", hold);
    assert_refused(409, "hold_expired", "");
    assert_string_equal(rig_member(&a, "hold", m1), hold);
}

RT_UNCHECKED static void why_the_ledger_takes_nothing_is_told(void **state)
{
    (void)state;
    mem_ledger_ingest_fault(rig.ledger, MEM_SAFE_MODE, 1);
    rig_call(&rig, "POST", "/v1/issue", "k", NULL, issue, &a);
    assert_refused(503, "unavailable", "safe_mode");
    mem_ledger_ingest_fault(rig.ledger, MEM_REFUSE, 1);
    rig_call(&rig, "POST", "/v1/issue", "k", NULL, issue, &a);
    assert_refused(503, "unavailable", "busy");
    mem_ledger_ingest_fault(rig.ledger, MEM_DOWN, 1);
    rig_call(&rig, "POST", "/v1/issue", "k", NULL, issue, &a);
    assert_refused(503, "unavailable", "down");
    rig_call(&rig, "POST", "/v1/issue", "k", NULL, issue, &a); /* and the key is as it was */
    assert_int_equal(a.status, 200);
}

/* Whose keys are meant must be clear before any key is looked up. */
RT_UNCHECKED static void a_token_of_two_tenants_or_of_none_that_can_be_is_told_tenant(void **state)
{
    static const char *const tenants[][2] = {{"tenant = t1", "tenant = t2"}, {"tenant = .t1", NULL}};
    char token[4096];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        rig_narrow(&rig, tenants[i], tenants[i][1] ? 2 : 1, token);
        rig_call(&rig, "POST", "/v1/issue", "k", token, issue, &a);
        assert_refused(403, "forbidden", "tenant");
        assert_string_equal(rig_member(&a, "retryable", m1), "false");
    }
    assert_true(rig_metric(&rig, "rejected_total", "reason=\"forbidden\"") == 2);
    rig_narrow(&rig, (const char *const[]){"tenant = t1", "tenant = t1"}, 2, token);
    rig_call(&rig, "POST", "/v1/issue", "k", token, issue, &a); /* the same one twice is one */
    assert_int_equal(a.status, 200);
    assert_int_equal(mem_ledger_units(rig.ledger), 1);
}

RT_UNCHECKED static void a_simulation_says_that_it_is_one_also_when_it_refuses(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct raw_response r;
        char request[5000], header[16];
        const char *body =
            i ? "{\"op\":\"fly\"}" : "{\"op\":\"issue\",\"to\":\"a\",\"asset\":\"ron\",\"amount\":\"1\"}";
        snprintf(
            request, sizeof request,
            "POST /v1/simulate HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: s\r\n"
            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
            rig.token, strlen(body), body);
        raw_once((uint16_t)svc_port(rig.svc), request, &r);
        assert_int_equal(r.status, i ? 400 : 200);
        assert_string_equal(raw_header(&r, "Simulated", header, sizeof header), "true");
        raw_free(&r);
    }
    assert_int_equal(mem_ledger_units(rig.ledger), 0);
}

RT_UNCHECKED static void a_flushed_cache_asks_the_ledger_again(void **state)
{
    static const char path[] = "/v1/balance?account=acct:alice&asset=ron";
    (void)state;
    fund();
    struct deadline by = deadline_in_ms(30000);
    double asked;
    do { /* until it comes from memory: the clock stands, but the feed may still tell of the funding */
        assert_false(deadline_passed(by));
        asked = rig_metric(&rig, "upstream_calls_total", "op=\"account\"");
        rig_get(&rig, path, &a);
    } while (rig_metric(&rig, "upstream_calls_total", "op=\"account\"") != asked);
    do { /* an answer that was on its way when it was flushed may still be kept */
        assert_false(deadline_passed(by));
        rig_call(&rig, "POST", "/admin/cache/flush", NULL, NULL, "{}", &a);
        assert_int_equal(a.status, 200);
        rig_get(&rig, path, &a);
        assert_int_equal(a.status, 200);
    } while (rig_metric(&rig, "upstream_calls_total", "op=\"account\"") == asked);
}

RT_UNCHECKED static void open_with(const char *flag)
{
    wallet_rig_open_driven(
        &rig, (const char *const[]){"metrics_tick=100ms", "workers=1", "drain_deadline=1s", flag}, 4);
}

RT_UNCHECKED static int open_plain(void **state)
{
    (void)state;
    open_with("retry.max_tries=1"); /* what is refused is told at once */
    return 0;
}

RT_UNCHECKED static int open_one_waiter(void **state)
{
    (void)state;
    open_with("waiters_per_key=1");
    return 0;
}

RT_UNCHECKED static int open_two_requests(void **state)
{
    (void)state;
    open_with("max_inflight=2");
    return 0;
}

RT_UNCHECKED static int open_one_read(void **state)
{
    (void)state;
    open_with("queues.read=1");
    return 0;
}

#define T(fn, open) RIG_TEST_OPENED(fn, open, &rig)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(one_more_than_may_wait_for_a_key_is_told_in_flight, open_one_waiter),
        T(an_operation_behind_one_that_is_open_is_told_so, open_plain),
        T(more_than_256_open_operations_of_one_account_are_told_unsettled, open_plain),
        T(what_has_ended_does_not_count_as_open, open_plain),
        T(more_requests_than_max_inflight_are_told_busy, open_two_requests),
        T(a_full_read_queue_is_told_as_such, open_one_read),
        T(holds_end_with_their_time_and_give_no_more_than_they_hold, open_plain),
        T(why_the_ledger_takes_nothing_is_told, open_plain),
        T(a_token_of_two_tenants_or_of_none_that_can_be_is_told_tenant, open_plain),
        T(a_simulation_says_that_it_is_one_also_when_it_refuses, open_plain),
        T(a_flushed_cache_asks_the_ledger_again, open_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
