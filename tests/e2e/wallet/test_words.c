/*
 * How the wallet says no, on the wire: every answer that is no 2xx is a problem of RFC 9457 with the same members whoever gives
 * it (the framing, the listener, the operation, the ledger behind it), says when to come back where that makes sense, and how
 * soon follows from how fast requests are done. Requests that two parties could read differently never reach an operation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wallet_rig.h"

static struct wallet_rig rig;
static struct rig_answer a;
static char m1[256];

/* ---- one body for every refusal ---- */

struct no {
    const char *request; /* method and target */
    const char *headers; /* besides Host, X-Corr-ID and Authorization */
    const char *body;
    int status;
    const char *code;
    bool retryable;
    const char *details; /* members of details, separated by blanks; NULL: none needed */
};

#define JSON   "Content-Type: application/json\r\n"
#define KEY(k) JSON "Idempotency-Key: " k "\r\n"
#define PAY(from, to, asset, amount, nonce)                                                                \
    "{\"from\":\"" from "\",\"to\":\"" to "\",\"asset\":\"" asset "\",\"amount\":\"" amount                \
    "\",\"nonce\":" nonce "}"
#define NO_TX "tx_00000000000000000000000000000000"

static const struct no noes[] = {
    {"GET /v1/nowhere", "", "", 404, "not_found", false, NULL},
    {"DELETE /v1/transfer", "", "", 405, "method_not_allowed", false, NULL},
    {"POST /v1/transfer", JSON "Expect: miracles\r\n", "{}", 417, "expectation_failed", false, NULL},
    {"POST /v1/transfer", KEY("k") "Content-Encoding: br\r\n", "{}", 415, "unsupported_media_type", false,
     NULL},
    {"POST /v1/transfer", "Content-Type: text/plain\r\nIdempotency-Key: k\r\n", "{}", 415,
     "unsupported_media_type", false, NULL},
    {"POST /v1/transfer", JSON, "{}", 400, "idempotency_key_missing", false, NULL},
    {"POST /v1/transfer", KEY("a b"), "{}", 400, "bad_request", false, NULL},
    {"POST /v1/transfer", KEY("k") "Idempotency-Key: k\r\n", "{}", 400, "bad_request", false, NULL},
    {"POST /v1/transfer", KEY("k"), "{", 400, "bad_request", false, "member reason"},
    {"POST /v1/transfer", KEY("k"), "{\"moon\":1}", 400, "bad_request", false, "member reason"},
    {"POST /v1/transfer?x=1", KEY("k"), "{}", 400, "bad_request", false, "member reason"},
    {"POST /v1/transfer", KEY("k"), PAY("acct:alice", "acct:alice", "ron", "1", "1"), 422, "unprocessable",
     false, "member reason"},
    {"POST /v1/transfer", KEY("k"), PAY("acct:alice", "acct:bob", "gold", "1", "1"), 422, "unknown_asset",
     false, "member"},
    {"POST /v1/transfer", KEY("k"),
     PAY("acct:alice", "acct:bob", "ron", "340282366920938463463374607431768211455", "1"), 403,
     "limit_exceeded", false, "limit max"},
    {"POST /v1/transfer", KEY("k"), PAY("acct:alice", "acct:bob", "ron", "1001", "1"), 409,
     "insufficient_funds", false, "account asset"},
    {"POST /v1/transfer", KEY("k"), PAY("acct:alice", "acct:bob", "ron", "1", "9"), 409, "nonce_conflict",
     true, "account lane expected"},
    {"POST /v1/issue", KEY("fund"), "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"999\"}", 422,
     "idempotency_mismatch", false, NULL},
    {"POST /v1/capture", KEY("k"), "{\"hold\":\"" NO_TX "\"}", 404, "hold_unknown", false, "hold"},
    {"POST /v1/release", KEY("k"), "{\"hold\":\"" NO_TX "\"}", 404, "hold_unknown", false, "hold"},
    {"POST /v1/simulate", KEY("k"), "{\"op\":\"fly\"}", 400, "bad_request", false, NULL},
    {"GET /v1/balance?account=acct:alice", "", "", 400, "bad_request", false, "member reason"},
    {"GET /v1/balance?account=acct:alice&asset=ron&min_seq=999999", "", "", 503, "behind", true,
     "min_seq as_of_seq"},
    {"GET /v1/tx/" NO_TX "x", "", "", 400, "bad_request", false, NULL},
};

static void assert_member(const json_t *problem, const char *name, const char *value)
{
    const char *is = json_string_value(json_object_get(problem, name));
    if (!is || (value && strcmp(is, value) != 0) || !*is)
        fail_msg("%s is %s, not %s", name, is ? is : "missing", value ? value : "some text");
}

static void assert_only_known_members(const json_t *problem)
{
    static const char *const known[] = {"type", "title",     "status",  "detail",
                                        "code", "retryable", "corr_id", "details"};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)problem, name, value)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(known[i], name) != 0)
            i++;
        if (i == sizeof known / sizeof *known)
            fail_msg("a member nobody knows: %s", name);
    }
}

static void assert_details(const json_t *problem, const char *names)
{
    char text[128];
    snprintf(text, sizeof text, "%s", names ? names : "");
    for (char *save = NULL, *name = strtok_r(text, " ", &save); name; name = strtok_r(NULL, " ", &save))
        if (!json_object_get(json_object_get(problem, "details"), name))
            fail_msg("details have no %s", name);
}

/* Nothing the wallet says may be told again by somebody in between. */
static void assert_not_kept(const struct raw_response *r)
{
    char v[128];
    const char *cache = raw_header(r, "Cache-Control", v, sizeof v);
    assert_non_null(cache);
    assert_string_equal(cache, "no-store");
}

static void assert_problem(const struct raw_response *r, const struct no *no)
{
    char v[128];
    if (r->status != no->status)
        fail_msg("%s: %d, not %d: %s", no->request, r->status, no->status, r->body);
    assert_string_equal(raw_header(r, "Content-Type", v, sizeof v), "application/problem+json");
    assert_not_kept(r);
    json_t *problem = json_loadb(r->body, r->body_n, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(problem);
    assert_only_known_members(problem);
    snprintf(m1, sizeof m1, "urn:ron:error:%s", no->code);
    assert_member(problem, "type", m1);
    assert_member(problem, "code", no->code);
    assert_member(problem, "title", NULL);
    assert_member(problem, "corr_id", raw_header(r, "X-Corr-ID", v, sizeof v));
    assert_int_equal(json_integer_value(json_object_get(problem, "status")), no->status);
    assert_int_equal(json_boolean_value(json_object_get(problem, "retryable")), no->retryable);
    assert_true(json_is_boolean(json_object_get(problem, "retryable")));
    assert_details(problem, no->details);
    const char *wait = raw_header(r, "Retry-After", v, sizeof v);
    bool must = no->status == 429 || no->status == 503;
    assert_int_equal(wait != NULL, must);
    assert_true(!wait || strtoul(wait, NULL, 10) >= 1);
    assert_null(strstr(r->body, rig.token));
    json_decref(problem);
}

static void send_raw(const struct no *no, const char *token, struct raw_response *out)
{
    char text[9000];
    struct raw_conn c;
    int n = snprintf(text, sizeof text,
                     "%s HTTP/1.1\r\nHost: x\r\nX-Corr-ID: words-1\r\nAuthorization: Bearer "
                     "%s\r\n%sContent-Length: %zu\r\n\r\n%s",
                     no->request, token, no->headers, strlen(no->body), no->body);
    assert_true(n > 0 && (size_t)n < sizeof text);
    raw_connect(&c, (uint16_t)svc_port(rig.svc));
    raw_puts(&c, text);
    raw_read(&c, false, out);
    raw_close(&c);
}

static void assert_told(const struct no *no, const char *token)
{
    struct raw_response r;
    send_raw(no, token, &r);
    assert_problem(&r, no);
    raw_free(&r);
}

RT_UNCHECKED static void fund(void)
{
    rig_post(&rig, "/v1/issue", "fund", &a,
             "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"1000\"}");
    assert_int_equal(a.status, 200);
}

RT_UNCHECKED static void every_refusal_is_the_same_kind_of_problem(void **state)
{
    char narrow[4096];
    (void)state;
    fund();
    for (size_t i = 0; i < sizeof noes / sizeof *noes; i++)
        assert_told(&noes[i], rig.token);
    struct no plain = {"GET /v1/nonce?account=acct:alice", "", "", 401, "unauthenticated", false, NULL};
    assert_told(&plain, "nonsense");
    rig_narrow(&rig, (const char *const[]){"op in transfer"}, 1, narrow);
    plain = (struct no){"GET /v1/nonce?account=acct:alice", "", "", 403, "forbidden", false, "reason"};
    assert_told(&plain, narrow);
    assert_int_equal(mem_ledger_last(rig.ledger, "acct:alice", 0), 0); /* and nothing has moved */
}

RT_UNCHECKED static void what_is_no_refusal_is_not_kept_either(void **state)
{
    static const char *const paths[] = {"/healthz",
                                        "/readyz",
                                        "/version",
                                        "/metrics",
                                        "/v1/balance?account=acct:alice&asset=ron",
                                        "/v1/accounts/a%2Fb", /* one segment, decoded after it was routed */
                                        "/v1/nonce?account=acct:alice",
                                        ("/v1/tx/" NO_TX),
                                        "/admin/in-doubt"};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char line[128];
        struct raw_response r;
        snprintf(line, sizeof line, "GET %s", paths[i]);
        send_raw(&(struct no){.request = line, .headers = "", .body = ""}, rig.token, &r);
        assert_true(r.status == 200 || r.status == 202);
        assert_not_kept(&r);
        assert_true(!strstr(paths[i], "%2F") || strstr(r.body, "\"account\":\"a/b\""));
        raw_free(&r);
    }
}

/* Requests with two faults: the first in this order is told. */
RT_UNCHECKED static void of_two_faults_the_first_in_order_is_told(void **state)
{
    static const struct {
        struct no no;
        const char *caveat; /* of a narrowed token; NULL: one that nobody knows, "": the operator's */
    } twice[] = {
        {{"POST /v1/nowhere", "", "{", 404, "not_found", false, NULL}, NULL},
        {{"PUT /v1/transfer", "", "{", 405, "method_not_allowed", false, NULL}, NULL},
        {{"POST /v1/transfer", "", "{", 415, "unsupported_media_type", false, NULL}, NULL},
        {{"POST /v1/transfer", JSON, "{", 401, "unauthenticated", false, NULL}, NULL},
        {{"POST /v1/transfer", JSON, "{", 400, "idempotency_key_missing", false, NULL}, "op in read"},
        {{"POST /v1/transfer", KEY("used"), "{", 400, "bad_request", false, NULL}, "op in read"},
        {{"POST /v1/transfer", KEY("used"), PAY("acct:alice", "acct:bob", "ron", "2", "1"), 403,
          "forbidden", false, "reason"},
         "op in read"},
        {{"POST /v1/transfer", KEY("used"), PAY("acct:alice", "acct:bob", "gold", "2", "1"), 422,
          "idempotency_mismatch", false, NULL},
         ""},
        {{"POST /v1/transfer", KEY("new"), PAY("acct:alice", "acct:bob", "gold", "2", "9"), 422,
          "unknown_asset", false, "member"},
         ""},
        {{"POST /v1/transfer", KEY("new"), PAY("acct:alice", "acct:bob", "ron", "2", "9"), 503,
          "unavailable", true, "svc reason"},
         ""},
    };
    static const char paid[] = PAY("acct:alice", "acct:bob", "ron", "1", "1");
    char narrow[4096];
    (void)state;
    fund();
    rig_call(&rig, "POST", "/v1/transfer", "used", NULL, paid, &a);
    assert_int_equal(a.status, 200);
    mem_ledger_fork(rig.ledger); /* from now on nothing is written: what a row tells comes before that */
    rig_await_ready(&rig, false);
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++) {
        if (twice[i].caveat)
            rig_narrow(&rig, &twice[i].caveat, *twice[i].caveat ? 1 : 0, narrow);
        assert_told(&twice[i].no, twice[i].caveat ? narrow : "nonsense");
    }
    rig_call(&rig, "POST", "/v1/transfer", "used", NULL, paid, &a);
    assert_int_equal(a.status, 200); /* what is in memory is told all the same */
    assert_string_equal(a.replayed, "true");
}

RT_UNCHECKED static void a_ledger_that_refuses_is_told_as_the_same_kind_of_problem(void **state)
{
    const struct no down = {"POST /v1/issue",
                            KEY("d"),
                            "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"1\"}",
                            503,
                            "unavailable",
                            true,
                            "svc reason"};
    (void)state;
    mem_ledger_ingest_fault(rig.ledger, MEM_DOWN, -1);
    assert_told(&down, rig.token);
    mem_ledger_ingest_fault(rig.ledger, MEM_OK, 0);
}

/* Text that framing itself refuses: the same body, and the connection ends. */
RT_UNCHECKED static void what_framing_refuses_is_the_same_kind_of_problem(void **state)
{
    static char request[40000];
    const struct no long_head = {"a long head", "", "", 431, "headers_too_large", false, NULL},
                    long_uri = {"a long target", "", "", 414, "uri_too_long", false, NULL},
                    large = {"a large body", "", "", 413, "too_large", false, NULL},
                    version = {"another version", "", "", 505, "version_not_supported", false, NULL};
    struct raw_response r;
    uint16_t port = (uint16_t)svc_port(rig.svc);
    (void)state;
    size_t n = (size_t)sprintf(request, "GET /v1/nonce HTTP/1.1\r\nHost: x\r\nX-Long: ");
    memset(request + n, 'v', 17000);
    strcpy(request + n + 17000, "\r\n\r\n");
    raw_once(port, request, &r);
    assert_problem(&r, &long_head);
    raw_free(&r);
    n = (size_t)sprintf(request, "GET /");
    memset(request + n, 'p', 9000);
    strcpy(request + n + 9000, " HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_once(port, request, &r);
    assert_problem(&r, &long_uri);
    raw_free(&r);
    raw_once(port, "POST /v1/issue HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n", &r);
    assert_problem(&r, &large);
    raw_free(&r);
    raw_once(port, "GET /v1/nonce HTTP/2.0\r\nHost: x\r\n\r\n", &r);
    assert_problem(&r, &version);
    raw_free(&r);
}

/* ---- smuggling ---- */

#define ISSUE "{\"to\":\"acct:mallory\",\"asset\":\"ron\",\"amount\":\"10\"}" /* 0x31 = 49 bytes */

static const char *const smuggled[] = {
    "Content-Length: 49\r\nTransfer-Encoding: chunked\r\n\r\n" ISSUE,
    "Transfer-Encoding: chunked\r\nContent-Length: 49\r\n\r\n31\r\n" ISSUE "\r\n0\r\n\r\n",
    "Content-Length: 49\r\nContent-Length: 49\r\n\r\n" ISSUE,
    "Content-Length: 49\r\nContent-Length: 0\r\n\r\n" ISSUE,
    "Content-Length: 49, 49\r\n\r\n" ISSUE,
    "Content-Length: +49\r\n\r\n" ISSUE,
    "Content-Length: 0x31\r\n\r\n" ISSUE,
    "Content-Length: -49\r\n\r\n" ISSUE,
    "Content-Length: 4 9\r\n\r\n" ISSUE,
    "Content-Length : 49\r\n\r\n" ISSUE,
    "Transfer-Encoding: gzip, chunked\r\n\r\n31\r\n" ISSUE "\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, identity\r\n\r\n31\r\n" ISSUE "\r\n0\r\n\r\n",
    "Transfer-Encoding: xchunked\r\n\r\n31\r\n" ISSUE "\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n31\r\n" ISSUE "\r\n0\r\n\r\n",
    "Transfer-Encoding : chunked\r\n\r\n31\r\n" ISSUE "\r\n0\r\n\r\n",
    "Transfer-Encoding:\r\n chunked\r\n\r\n31\r\n" ISSUE "\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n0x31\r\n" ISSUE "\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n+31\r\n" ISSUE "\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n31;x=y\r\n" ISSUE "\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n31\n" ISSUE "\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n31\r\n" ISSUE "X\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n10000000000000031\r\n" ISSUE "\r\n0\r\n\r\n",
    "Host: y\r\nContent-Length: 49\r\n\r\n" ISSUE,
    "X: a\rb\r\nContent-Length: 49\r\n\r\n" ISSUE,
    "X: a\r\n folded\r\nContent-Length: 49\r\n\r\n" ISSUE,
    "X: a\nContent-Length: 49\r\n\r\n" ISSUE,
    "X: a\001b\r\nContent-Length: 49\r\n\r\n" ISSUE,
    "X Y: a\r\nContent-Length: 49\r\n\r\n" ISSUE,
};

RT_UNCHECKED static void requests_that_could_be_smuggled_reach_no_operation(void **state)
{
    char text[8192];
    (void)state;
    assert_int_equal(strlen(ISSUE), 49);
    uint64_t ingests = mem_ledger_ingests(rig.ledger);
    for (size_t i = 0; i < sizeof smuggled / sizeof *smuggled; i++) {
        struct raw_conn c;
        struct raw_response r;
        int n = snprintf(
            text, sizeof text,
            "POST /v1/issue HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" KEY("smuggled-%zu") "%s",
            rig.token, i, smuggled[i]);
        raw_connect(&c, (uint16_t)svc_port(rig.svc));
        raw_send(&c, text, (size_t)n);
        /* What stands behind it is another's request to whoever reads it otherwise. */
        n = snprintf(text, sizeof text,
                     "POST /v1/issue HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" KEY(
                         "behind-%zu") "Content-Length: 49\r\n\r\n" ISSUE,
                     rig.token, i);
        raw_try_send(&c, text, (size_t)n);
        raw_read(&c, false, &r);
        if (r.status != 400)
            fail_msg("%d for %s", r.status, smuggled[i]);
        assert_problem(&r, &(struct no){smuggled[i], "", "", 400, "bad_request", false, NULL});
        assert_string_equal(raw_header(&r, "Connection", m1, sizeof m1), "close");
        raw_free(&r);
        assert_true(raw_at_eof(&c));
        raw_close(&c);
    }
    assert_int_equal(mem_ledger_ingests(rig.ledger), ingests);
    assert_int_equal((uint64_t)mem_ledger_available(rig.ledger, "acct:mallory", "ron").units, 0);
    rig_call(&rig, "POST", "/v1/issue", "plain", NULL, ISSUE,
             &a); /* spelled as it should be, it is welcome */
    assert_int_equal(a.status, 200);
}

/* ---- when to come back ---- */

enum { OPEN = 200 };

/* On the wallet's clock, which only the test moves, a second passes in which this many requests are done and a few more. */
RT_UNCHECKED static void done_in_a_second(unsigned requests)
{
    rig_move_to(&rig, rig_now_ns(&rig), 1001); /* what came before is another second's */
    for (unsigned i = 0; i < requests; i++)
        rig_get(&rig, "/healthz", &a);
    rig_move_to(&rig, rig_now_ns(&rig), 1001);
    rig_get(&rig, "/healthz", &a); /* it ends with what is done after it */
}

RT_UNCHECKED static unsigned told_to_wait(void)
{
    rig_get(&rig, "/v1/nonce?account=acct:alice", &a);
    assert_int_equal(a.status, 429);
    assert_string_equal(rig_member(&a, "reason", m1), "inflight");
    return (unsigned)strtoul(a.retry_after, NULL, 10);
}

RT_UNCHECKED static void retry_after_follows_how_fast_requests_are_done(void **state)
{
    static struct raw_conn open[OPEN];
    char text[8192];
    (void)state;
    snprintf(text, sizeof text,
             "POST /v1/issue HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" KEY(
                 "open") "Content-Length: 49\r\n\r\n",
             rig.token);
    for (int i = 0; i < OPEN; i++) { /* let in, and its body is still to come */
        raw_connect(&open[i], (uint16_t)svc_port(rig.svc));
        raw_puts(&open[i], text);
    }
    rig_await_metric(&rig, "inflight_requests", "route=\"/v1/issue\"", OPEN);
    done_in_a_second(2);
    unsigned slow = told_to_wait(); /* before two hundred: at most ten a second */
    done_in_a_second(400);
    unsigned fast = told_to_wait();
    if (slow < 20 || slow > 60 || fast != 1)
        fail_msg("told to wait %u s when slow, %u s when fast", slow, fast);
    for (int i = 0; i < OPEN; i++)
        raw_close(&open[i]);
}

RT_UNCHECKED static int open_driven(void **state)
{
    (void)state;
    wallet_rig_open_driven(&rig, (const char *const[]){"max_inflight=200"}, 1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(every_refusal_is_the_same_kind_of_problem, &rig),
        RIG_TEST(what_is_no_refusal_is_not_kept_either, &rig),
        RIG_TEST(of_two_faults_the_first_in_order_is_told, &rig),
        RIG_TEST(a_ledger_that_refuses_is_told_as_the_same_kind_of_problem, &rig),
        RIG_TEST(what_framing_refuses_is_the_same_kind_of_problem, &rig),
        RIG_TEST(requests_that_could_be_smuggled_reach_no_operation, &rig),
        RIG_TEST_OPENED(retry_after_follows_how_fast_requests_are_done, open_driven, &rig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
