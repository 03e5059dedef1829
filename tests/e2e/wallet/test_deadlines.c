/*
 * Every time limit holds within ten per cent, on a clock that only the test moves: shortly before the limit nothing has
 * happened, shortly after it has. Nothing here measures how long anything took.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "wallet_rig.h"

static struct wallet_rig rig;

/* ---- connections ---- */

static void assert_silent(const struct raw_conn *c)
{
    char byte;
    assert_int_equal(recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

/* ---- limits of the listener ---- */

RT_UNCHECKED
static void a_request_that_does_not_arrive_is_told_408_after_read_timeout(void **state)
{
    (void)state;
    struct raw_conn c;
    raw_connect(&c, (uint16_t)svc_port(rig.svc));
    raw_puts(&c, "POST /v1/transfer HTTP/1.1\r\nHost: x\r\n");
    rig_settle(&rig);
    int64_t since = rig_now_ns(&rig);
    rig_move_to(&rig, since, 4500);
    assert_silent(&c);
    raw_puts(&c, "X-More: of it\r\n"); /* bytes do not buy time */
    rig_move_to(&rig, since, 5500);
    rig_answered(&c, 408, "took too long to arrive");
    rig_await_metric(&rig, "io_timeouts_total", "op=\"read\"", 1);
}

RT_UNCHECKED
static void a_connection_without_requests_is_closed_after_idle_timeout(void **state)
{
    (void)state;
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, (uint16_t)svc_port(rig.svc));
    raw_puts(&c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_int_equal(r.status, 200);
    raw_free(&r);
    rig_settle(&rig);
    int64_t since = rig_now_ns(&rig);
    rig_move_to(&rig, since, 54000);
    assert_silent(&c);
    rig_move_to(&rig, since, 66000);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
}

/* Over a Unix socket: what the system holds of an answer that nobody reads is bounded, and nothing is probed. */
RT_UNCHECKED
static void a_client_that_does_not_read_is_cut_after_write_timeout(void **state)
{
    (void)state;
    char path[128];
    struct raw_conn c;
    snprintf(path, sizeof path, "%s/run/wallet.sock", rig.root);
    raw_connect_unix(&c, path);
    for (int i = 0; i < 32; i++) /* a page of metrics is tens of thousands of bytes */
        raw_puts(&c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    rig_settle(&rig);
    int64_t since = rig_now_ns(&rig);
    rig_move_to(&rig, since, 4500);
    struct pollfd gone = {.fd = c.fd, .events = POLLRDHUP};
    assert_int_equal(poll(&gone, 1, 0), 0);
    rig_move_to(&rig, since, 5500);
    assert_int_equal(poll(&gone, 1, RAW_PATIENCE_MS), 1);
    rig_await_metric(&rig, "io_timeouts_total", "op=\"write\"", 1);
    raw_close(&c);
}

/* ---- limits of a request ---- */

static void ask_to_pay(struct raw_conn *c, const char *key, int nonce)
{
    char body[256];
    snprintf(
        body, sizeof body,
        "{\"from\":\"acct:alice\",\"to\":\"acct:bob\",\"asset\":\"ron\",\"amount\":\"1\",\"nonce\":%d}",
        nonce);
    rig_ask(&rig, c, "POST", "/v1/transfer", key, body);
}

RT_UNCHECKED
static void
an_operation_whose_answer_is_lost_is_pending_after_request_timeout_and_the_one_behind_it_never_sent(
    void **state)
{
    (void)state;
    struct raw_conn sent, behind;
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL_AFTER, -1);
    mem_ledger_unit_fault(rig.ledger, MEM_LOSE_BEFORE, -1); /* nor does anybody find out */
    int64_t since = rig_now_ns(&rig);
    ask_to_pay(&sent, "sent", 1);
    rig_await_metric(&rig, "worker_inflight", "", 1);
    ask_to_pay(&behind, "behind", 2);
    rig_await_metric(&rig, "wallet_parked", "", 1);
    rig_move_to(&rig, since, 4500);
    assert_silent(&sent);
    assert_silent(&behind);
    rig_move_to(&rig, since, 5500);
    rig_answered(&sent, 503, "outcome_pending");
    rig_answered(&behind, 503, "\"code\":\"timeout\",\"retryable\":true");
}

RT_UNCHECKED
static void the_callers_own_shorter_time_holds_too(void **state)
{
    (void)state;
    struct raw_conn c;
    char text[8192], body[] = "{\"to\":\"acct:carol\",\"asset\":\"ron\",\"amount\":\"1\"}";
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL_AFTER, -1);
    mem_ledger_unit_fault(rig.ledger, MEM_LOSE_BEFORE, -1); /* nor does anybody find out */
    int64_t since = rig_now_ns(&rig);
    raw_connect(&c, (uint16_t)svc_port(rig.svc));
    snprintf(text, sizeof text,
             "POST /v1/issue HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: short\r\n"
             "Request-Timeout: 2.0\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             rig.token, strlen(body), body);
    raw_puts(&c, text);
    rig_await_metric(&rig, "worker_inflight", "", 1);
    rig_move_to(&rig, since, 1800);
    assert_silent(&c);
    rig_move_to(&rig, since, 2200);
    rig_answered(&c, 503, "outcome_pending");
}

RT_UNCHECKED
static void a_balance_that_cannot_be_refreshed_is_shown_with_its_age_after_refresh_wait(void **state)
{
    (void)state;
    static const char path[] = "/v1/balance?account=acct:alice&asset=ron";
    struct rig_answer *a = calloc(1, sizeof *a);
    assert_non_null(a);
    rig_get(&rig, path, a);
    assert_int_equal(a->status, 200);
    mem_ledger_feed(rig.ledger, false); /* nobody vouches for what is known */
    mem_ledger_account_fault(rig.ledger, MEM_STALL, -1);
    rig_await_readyz(&rig, "\"feed\":false");
    free(a);
    struct raw_conn c;
    rig_move_to(&rig, rig_now_ns(&rig), 300); /* older than the staleness window */
    int64_t since = rig_now_ns(&rig);
    rig_ask(&rig, &c, "GET", path, NULL, "");
    rig_settle(&rig);
    rig_move_to(&rig, since, 180);
    assert_silent(&c);
    rig_move_to(&rig, since, 220);
    rig_answered(&c, 200, "\"degraded\":true");
}

/* ---- limits of a call to the ledger ---- */

RT_UNCHECKED
static void a_ledger_that_does_not_answer_is_asked_again_after_rpc_timeout(void **state)
{
    (void)state;
    struct raw_conn c;
    uint64_t before = mem_ledger_ingests(rig.ledger);
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, 1);
    int64_t since = rig_now_ns(&rig);
    ask_to_pay(&c, "again", 1);
    rig_await_metric(&rig, "worker_inflight", "", 1);
    rig_move_to(&rig, since, 900);
    assert_true(rig_metric(&rig, "io_timeouts_total", "op=\"ledger_rpc\"") == 0);
    rig_move_to(&rig, since, 1100);
    rig_await_metric(&rig, "io_timeouts_total", "op=\"ledger_rpc\"", 1);
    rig_await_metric(&rig, "backoff_retries_total", "op=\"ingest\"", 1);
    assert_silent(&c);
    assert_int_equal(mem_ledger_ingests(rig.ledger), before + 1);
    rig_move_to(&rig, since, 1200); /* the pause is 50 ms and at most 20 more */
    rig_answered(&c, 200, "\"op\":\"transfer\"");
    assert_int_equal(mem_ledger_ingests(rig.ledger), before + 2);
}

RT_UNCHECKED
static void a_ledger_that_says_when_is_not_asked_before_and_not_at_all_when_that_is_too_late(void **state)
{
    (void)state;
    struct raw_conn c;
    uint64_t before = mem_ledger_ingests(rig.ledger);
    mem_ledger_retry_after(rig.ledger, 2);
    mem_ledger_ingest_fault(rig.ledger, MEM_REFUSE, 1);
    int64_t since = rig_now_ns(&rig);
    ask_to_pay(&c, "later", 1);
    rig_await_metric(&rig, "backoff_retries_total", "op=\"ingest\"", 1);
    rig_move_to(&rig, since, 1800);
    assert_silent(&c);
    assert_int_equal(mem_ledger_ingests(rig.ledger), before + 1);
    rig_move_to(&rig, since, 2200);
    rig_answered(&c, 200, "\"op\":\"transfer\"");
    assert_int_equal(mem_ledger_ingests(rig.ledger), before + 2);

    mem_ledger_retry_after(rig.ledger, 5); /* nothing of the request's five seconds would be left */
    mem_ledger_ingest_fault(rig.ledger, MEM_REFUSE, 1);
    ask_to_pay(&c, "too-late", 2);
    rig_answered(&c, 503, "\"reason\":\"busy\"");
    assert_int_equal(mem_ledger_ingests(rig.ledger), before + 3);
}

RT_UNCHECKED
static void a_probe_that_is_not_answered_in_time_makes_it_unready(void **state)
{
    (void)state;
    mem_ledger_read_fault(rig.ledger, MEM_STALL);
    int64_t since = rig_now_ns(&rig);
    struct deadline by = deadline_in_ms(30000);
    for (uint64_t asked = mem_ledger_heads(rig.ledger); mem_ledger_heads(rig.ledger) < asked + 3;)
        assert_false(deadline_passed(by));
    rig_move_to(&rig, since, 72);
    assert_true(rig_metric(&rig, "upstream_calls_total", "op=\"head\",outcome=\"unknown\"") == 0);
    rig_await_ready(&rig, true);
    rig_move_to(&rig, since, 88);
    assert_true(rig_metric(&rig, "upstream_calls_total", "op=\"head\",outcome=\"unknown\"") >= 2);
    rig_await_ready(&rig, false);
}

/* ---- how long a receipt stays in memory ---- */

RT_UNCHECKED
static void a_receipt_leaves_memory_after_idempotency_ttl_and_is_the_same_afterwards(void **state)
{
    (void)state;
    struct rig_answer *a = calloc(2, sizeof *a);
    assert_non_null(a);
    static const char body[] = "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"7\"}";
    rig_post(&rig, "/v1/issue", "kept", &a[0], "%s", body);
    assert_int_equal(a[0].status, 200);
    int64_t since = rig_now_ns(&rig);
    uint64_t ingests = mem_ledger_ingests(rig.ledger);
    rig_move_to(&rig, since, 21 * 3600 * 1000);
    rig_post(&rig, "/v1/issue", "kept", &a[1], "%s", body);
    assert_string_equal(a[0].body, a[1].body);
    assert_int_equal(mem_ledger_ingests(rig.ledger), ingests);
    assert_true(rig_metric(&rig, "wallet_idem_evictions_total", "cause=\"ttl\"") == 0);
    rig_move_to(&rig, since, 27 * 3600 * 1000);
    rig_await_metric(&rig, "wallet_idem_evictions_total", "cause=\"ttl\"", 1);
    rig_post(&rig, "/v1/issue", "kept", &a[1], "%s", body); /* from the ledger, which forgets nothing */
    assert_string_equal(a[0].body, a[1].body);
    assert_int_equal(mem_ledger_ingests(rig.ledger), ingests + 1);
    free(a);
}

/* Who settled a hold asks again when the hold has left memory and the ledger is away: the receipt is here, and so is who may. */
RT_UNCHECKED
static void what_settled_a_hold_is_replayed_without_the_hold_and_without_the_ledger(void **state)
{
    (void)state;
    static const char *const payee[] = {"account in acct:shop"}, *const payer[] = {"account in acct:alice"};
    static const char *const how[] = {"capture", "release"};
    char as_payee[4096], as_payer[4096], hold[2][256], path[2][32], body[2][300];
    struct rig_answer *a = calloc(3, sizeof *a);
    assert_non_null(a);
    rig_narrow(&rig, payee, 1, as_payee);
    rig_narrow(&rig, payer, 1, as_payer);
    for (int i = 0; i < 2; i++) {
        rig_post(&rig, "/v1/hold", i ? "h1" : "h0", &a[2],
                 "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"70\","
                 "\"nonce\":%d}",
                 i + 1);
        assert_int_equal(a[2].status, 200);
        rig_member(&a[2], "txid", hold[i]);
    }
    int64_t since = rig_now_ns(&rig);
    rig_move_to(&rig, since, 20 * 3600 * 1000);
    rig_await_ready(&rig, true);
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "/v1/%s", how[i]);
        snprintf(body[i], sizeof body[i], "{\"hold\":\"%s\"%s}", hold[i], i ? "" : ",\"amount\":\"60\"");
        rig_call(&rig, "POST", path[i], how[i], as_payee, body[i], &a[i]);
        assert_int_equal(a[i].status, 200);
    }
    rig_move_to(&rig, since, 27 * 3600 * 1000);
    rig_await_metric(&rig, "wallet_idem_evictions_total", "cause=\"ttl\"",
                     3); /* the holds, and what funded them */
    mem_ledger_read_fault(rig.ledger, MEM_DOWN);
    mem_ledger_unit_fault(rig.ledger, MEM_DOWN, -1);
    mem_ledger_ingest_fault(rig.ledger, MEM_DOWN, -1);
    for (int i = 0; i < 2; i++) {
        rig_call(&rig, "POST", path[i], how[i], as_payee, body[i], &a[2]);
        assert_int_equal(a[2].status, 200);
        assert_string_equal(a[2].body, a[i].body);
        rig_call(&rig, "POST", path[i], how[i], as_payer, body[i], &a[2]);
        assert_int_equal(a[2].status, 403);
    }
    mem_ledger_read_fault(rig.ledger, MEM_OK);
    free(a);
}

/* The txid of the one operation in doubt. */
RT_UNCHECKED
static void doubted(struct rig_answer *a, char txid[256])
{
    const char *at = NULL;
    for (int i = 0; i < 100000 && !at; i++) {
        rig_get(&rig, "/admin/in-doubt", a);
        assert_int_equal(a->status, 200);
        at = strstr(a->body, "\"txid\":\"");
    }
    assert_non_null(at);
    snprintf(txid, 256, "%.35s", at + strlen("\"txid\":\""));
}

/* A copy of it may lie in a socket until the ledger itself would refuse it: until then "not found" means nothing. */
RT_UNCHECKED
static void i5_what_is_not_found_is_in_doubt_until_the_ledger_would_refuse_it(void **state)
{
    (void)state;
    struct raw_conn c;
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, -1);
    int64_t since = rig_now_ns(&rig);
    rig_ask(&rig, &c, "POST", "/v1/issue", "lost",
            "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"5\"}");
    rig_await_metric(&rig, "worker_inflight", "", 1);
    for (int i = 1; i <= 2;
         i++) { /* three tries of a second each, and pauses of 50 and 100 ms before the next */
        rig_move_to(&rig, since, 1250 * i - 150);
        rig_await_metric(&rig, "backoff_retries_total", "op=\"ingest\"", i);
        rig_move_to(&rig, since, 1250 * i);
        rig_await_metric(&rig, "worker_inflight", "", 1);
    }
    rig_move_to(&rig, since, 3600);
    rig_await_metric(&rig, "upstream_calls_total", "op=\"unit\",outcome=\"answered\"", 1);
    rig_move_to(&rig, since, 4450);
    rig_await_metric(&rig, "wallet_in_doubt", "", 1);
    assert_true(rig_metric(&rig, "wallet_ops_total", "op=\"issue\",outcome=\"not_committed\"") == 0);
    rig_move_to(&rig, since, 8000);
    rig_answered(&c, 503, "");
    rig_await_metric(&rig, "wallet_ops_total", "op=\"issue\",outcome=\"not_committed\"", 1);
}

/* The first try may still arrive: the refusal of the second is kept until it cannot. */
RT_UNCHECKED
static void i5_a_refusal_is_not_told_while_an_earlier_try_is_open(void **state)
{
    (void)state;
    struct raw_conn c;
    char txid[256], path[300];
    struct rig_answer *a = calloc(1, sizeof *a);
    assert_non_null(a);
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, 1);
    int64_t since = rig_now_ns(&rig);
    rig_ask(
        &rig, &c, "POST", "/v1/transfer", "poor",
        "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"5000\",\"nonce\":1}");
    rig_await_metric(&rig, "worker_inflight", "", 1);
    rig_move_to(&rig, since, 1100);
    rig_await_metric(&rig, "backoff_retries_total", "op=\"ingest\"", 1);
    rig_move_to(&rig, since, 1200);
    doubted(a, txid);
    assert_silent(&c);
    rig_move_to(&rig, since, 8000);
    rig_answered(&c, 503, "outcome_pending");
    rig_await_metric(&rig, "wallet_ops_total", "op=\"transfer\",outcome=\"not_committed\"", 1);
    snprintf(path, sizeof path, "/v1/tx/%s", txid);
    rig_get(&rig, path, a);
    assert_int_equal(a->status, 404);
    assert_non_null(strstr(a->body, "\"outcome\":\"not_committed\",\"code\":\"insufficient_funds\""));
    free(a);
}

RT_UNCHECKED
static void i6_what_was_never_sent_gives_its_daily_allowance_back(void **state)
{
    (void)state;
    static const char *const ten[] = {"op in transfer", "daily <= 10"};
    static const char eight[] =
        "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"8\","
        "\"nonce\":%d,\"lane\":%d}";
    char token[4096], body[256], head[4600];
    struct raw_conn first, behind;
    struct rig_answer *a = calloc(1, sizeof *a);
    assert_non_null(a);
    rig_narrow(&rig, ten, 2, token);
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, -1);
    int64_t since = rig_now_ns(&rig);
    snprintf(body, sizeof body, eight, 1, 0);
    rig_ask(&rig, &first, "POST", "/v1/transfer", "first", body);
    rig_await_metric(&rig, "worker_inflight", "", 1);
    snprintf(body, sizeof body, eight, 2, 0);
    raw_connect(&behind, (uint16_t)svc_port(rig.svc));
    snprintf(
        head, sizeof head,
        "POST /v1/transfer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: behind\r\n"
        "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
        token, strlen(body), body);
    raw_puts(&behind, head);
    rig_await_metric(&rig, "wallet_unsettled", "", 2);
    rig_move_to(&rig, since, 5500);
    rig_answered(&first, 503, "outcome_pending");
    rig_answered(&behind, 503, "\"code\":\"timeout\"");
    mem_ledger_ingest_fault(rig.ledger, MEM_OK, 0);
    rig_await_ready(&rig, true);
    snprintf(body, sizeof body, eight, 1, 1);
    rig_call(&rig, "POST", "/v1/transfer", "again", token, body, a);
    assert_int_equal(a->status, 200);
    snprintf(body, sizeof body, eight, 2, 1);
    rig_call(&rig, "POST", "/v1/transfer", "too-much", token, body, a);
    assert_int_equal(a->status, 403);
    free(a);
}

RT_UNCHECKED
static void i9_an_old_balance_is_shown_until_degraded_max_and_no_longer(void **state)
{
    (void)state;
    static const char path[] = "/v1/balance?account=acct:alice&asset=ron";
    struct rig_answer *a = calloc(1, sizeof *a);
    char age[256];
    assert_non_null(a);
    rig_get(&rig, path, a);
    assert_int_equal(a->status, 200);
    mem_ledger_feed(rig.ledger, false);
    mem_ledger_read_fault(rig.ledger, MEM_DOWN);
    mem_ledger_account_fault(rig.ledger, MEM_DOWN, -1);
    rig_await_ready(&rig, false);
    int64_t since = rig_now_ns(&rig);
    rig_move_to(&rig, since, 54000);
    rig_get(&rig, path, a);
    assert_int_equal(a->status, 200);
    assert_non_null(strstr(a->body, "\"degraded\":true"));
    assert_in_range(atoi(rig_member(a, "stale_ms", age)), 54000, 60000);
    rig_move_to(&rig, since, 66000);
    rig_get(&rig, path, a);
    assert_int_equal(a->status, 503);
    mem_ledger_read_fault(rig.ledger, MEM_OK);
    free(a);
}

/* Nobody tells of it but the worker itself, and by the clock the remembered balance is as fresh as can be. */
RT_UNCHECKED
static void a_balance_after_ones_own_payment_is_never_the_remembered_one(void **state)
{
    (void)state;
    struct rig_answer *a = calloc(1, sizeof *a);
    char available[256];
    assert_non_null(a);
    mem_ledger_feed(rig.ledger, false);
    for (int i = 1; i <= 3; i++) {
        char key[16];
        rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron", a);
        snprintf(key, sizeof key, "own-%d", i);
        rig_post(&rig, "/v1/transfer", key, a,
                 "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"10\","
                 "\"nonce\":%d}",
                 i);
        assert_int_equal(a->status, 200);
        rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron", a);
        assert_int_equal(atoi(rig_member(a, "available", available)), 1000 - 10 * i);
        rig_get(&rig, "/v1/balance?account=acct:shop&asset=ron", a);
        assert_int_equal(atoi(rig_member(a, "available", available)), 10 * i);
    }
    free(a);
}

RT_UNCHECKED
static void that_it_failed_is_told_for_ten_minutes_and_only_to_who_may_see_it(void **state)
{
    (void)state;
    static const char *const payee[] = {"account in acct:shop"},
                             *const stranger[] = {"account in acct:eve"},
                             *const coins[] = {"asset in gold"};
    char txid[256], path[300], as_payee[4096], as_stranger[4096], in_gold[4096];
    struct raw_conn c;
    struct rig_answer *a = calloc(1, sizeof *a);
    assert_non_null(a);
    rig_narrow(&rig, payee, 1, as_payee);
    rig_narrow(&rig, stranger, 1, as_stranger);
    rig_narrow(&rig, coins, 1, in_gold);
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, -1);
    mem_ledger_unit_fault(rig.ledger, MEM_LOSE_BEFORE, -1);
    int64_t since = rig_now_ns(&rig);
    rig_ask(
        &rig, &c, "POST", "/v1/transfer", "lost",
        "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"5\",\"nonce\":1}");
    rig_await_metric(&rig, "worker_inflight", "", 1);
    rig_move_to(&rig, since, 5500);
    rig_answered(&c, 503, "outcome_pending");
    doubted(a, txid);
    snprintf(path, sizeof path, "/v1/tx/%s", txid);
    rig_call(&rig, "GET", path, NULL, as_stranger, "", a);
    assert_int_equal(a->status, 404);
    rig_call(&rig, "GET", path, NULL, as_payee, "", a);
    assert_int_equal(a->status, 202);

    mem_ledger_unit_fault(rig.ledger, MEM_OK, 0);
    rig_move_to(&rig, since, 8000); /* past its not_after: surely not committed */
    rig_await_metric(&rig, "wallet_ops_total", "op=\"transfer\",outcome=\"not_committed\"", 1);
    const char *const may[] = {NULL, as_payee}, *const may_not[] = {as_stranger, in_gold};
    for (size_t i = 0; i < 2; i++) {
        rig_call(&rig, "GET", path, NULL, may[i], "", a);
        assert_int_equal(a->status, 404);
        assert_non_null(strstr(a->body, "\"outcome\":\"not_committed\",\"code\":\"unavailable\""));
        rig_call(&rig, "GET", path, NULL, may_not[i], "", a);
        assert_int_equal(a->status, 404);
        assert_null(strstr(a->body, "outcome"));
    }
    rig_move_to(&rig, since, 8000 + 540 * 1000);
    rig_get(&rig, path, a);
    assert_non_null(strstr(a->body, "not_committed"));
    rig_move_to(&rig, since, 8000 + 660 * 1000);
    rig_get(&rig, path, a);
    assert_int_equal(a->status, 404);
    assert_null(strstr(a->body, "not_committed"));
    free(a);
}

RT_UNCHECKED
static int open_all(void **state)
{
    (void)state;
    struct rig_answer *a = calloc(1, sizeof *a);
    assert_non_null(a);
    wallet_rig_open_driven(&rig, (const char *const[]){"metrics_tick=100ms"}, 1);
    rig_post(&rig, "/v1/issue", "fund", a, "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"1000\"}");
    assert_int_equal(a->status, 200);
    free(a);
    return 0;
}

#define T(fn) RIG_TEST_OPENED(fn, open_all, &rig)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_request_that_does_not_arrive_is_told_408_after_read_timeout),
        T(a_connection_without_requests_is_closed_after_idle_timeout),
        T(an_operation_whose_answer_is_lost_is_pending_after_request_timeout_and_the_one_behind_it_never_sent),
        T(the_callers_own_shorter_time_holds_too),
        T(a_balance_that_cannot_be_refreshed_is_shown_with_its_age_after_refresh_wait),
        T(a_client_that_does_not_read_is_cut_after_write_timeout),
        T(a_ledger_that_does_not_answer_is_asked_again_after_rpc_timeout),
        T(a_ledger_that_says_when_is_not_asked_before_and_not_at_all_when_that_is_too_late),
        T(a_probe_that_is_not_answered_in_time_makes_it_unready),
        T(a_receipt_leaves_memory_after_idempotency_ttl_and_is_the_same_afterwards),
        T(what_settled_a_hold_is_replayed_without_the_hold_and_without_the_ledger),
        T(i6_what_was_never_sent_gives_its_daily_allowance_back),
        T(i9_an_old_balance_is_shown_until_degraded_max_and_no_longer),
        T(i5_what_is_not_found_is_in_doubt_until_the_ledger_would_refuse_it),
        T(i5_a_refusal_is_not_told_while_an_earlier_try_is_open),
        T(a_balance_after_ones_own_payment_is_never_the_remembered_one),
        T(that_it_failed_is_told_for_ten_minutes_and_only_to_who_may_see_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
