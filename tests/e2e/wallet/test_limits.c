/* Bounds and forecasts: daily allowances, full queues, too much of one account, simulations, the audit stream, a busy drain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "base/check.h"
#include "raw_http.h"
#include "wallet_rig.h"
#include "waiting.h"

static struct wallet_rig rig;
static struct rig_answer a, b;
static char m1[256];

#define TRANSFER                                                                                           \
    "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"%d\",\"nonce\":%d}"

RT_UNCHECKED static void pay(const char *key, const char *token, int amount, int nonce,
                             struct rig_answer *out)
{
    char body[256];
    snprintf(body, sizeof body, TRANSFER, amount, nonce);
    rig_call(&rig, "POST", "/v1/transfer", key, token, body, out);
}

RT_UNCHECKED static void fund(void)
{
    rig_post(&rig, "/v1/issue", "fund", &a,
             "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"100000\"}");
    assert_int_equal(a.status, 200);
}

RT_UNCHECKED static void a_daily_caveat_is_shared_by_all_tokens_narrowed_from_it(void **state)
{
    char daily[4096], narrow[4096];
    const char *caveats[] = {"op in transfer", "daily <= 100", "account in acct:alice"};
    (void)state;
    fund();
    rig_narrow(&rig, caveats, 2, daily);
    rig_narrow(&rig, caveats, 3, narrow);
    pay("k1", daily, 60, 1, &a);
    assert_int_equal(a.status, 200);
    pay("k1", daily, 60, 1, &a); /* a replay costs nothing */
    assert_int_equal(a.status, 200);
    pay("k2", narrow, 41, 2, &a);
    assert_int_equal(a.status, 403);
    assert_string_equal(rig_member(&a, "limit", m1), "cap_daily");
    pay("k3", narrow, 1000000, 2, &a);
    assert_int_equal(a.status, 403);
    pay("k4", narrow, 40, 3, &a); /* refused by the ledger: the allowance comes back */
    assert_int_equal(a.status, 409);
    pay("k5", narrow, 40, 2, &a);
    assert_int_equal(a.status, 200);
    pay("k6", daily, 1, 3, &a);
    assert_int_equal(a.status, 403);
    pay("k7", NULL, 1, 3, &a); /* a token without the caveat is not bound by it */
    assert_int_equal(a.status, 200);
    wallet_rig_restart(&rig, NULL, 0); /* what was spent today counts after a restart too */
    pay("k8", daily, 1, 4, &a);
    assert_int_equal(a.status, 403);
}

RT_UNCHECKED static void issues(const char *account, const char *key, const char *token, int amount,
                                int want)
{
    char body[256];
    snprintf(body, sizeof body, "{\"to\":\"%s\",\"asset\":\"ron\",\"amount\":\"%d\"}", account, amount);
    rig_call(&rig, "POST", "/v1/issue", key, token, body, &a);
    if (a.status != want)
        fail_msg("%s: %d %s", key, a.status, a.body);
}

RT_UNCHECKED static void burns(const char *account, const char *key, const char *token, int amount,
                               int nonce, int want)
{
    char body[256];
    snprintf(body, sizeof body, "{\"from\":\"%s\",\"asset\":\"ron\",\"amount\":\"%d\",\"nonce\":%d}",
             account, amount, nonce);
    rig_call(&rig, "POST", "/v1/burn", key, token, body, &a);
    if (a.status != want)
        fail_msg("%s: %d %s", key, a.status, a.body);
}

/* Issued and spent under one caveat are one sum, after a restart too; where only one of them could be, the other is not counted. */
RT_UNCHECKED static void a_daily_caveat_counts_what_it_was_for_before_a_restart(void **state)
{
    const char *both[] = {"daily <= 100"}, *spend[] = {"op in burn", "daily <= 100"},
               *issue[] = {"op in issue", "daily <= 100"}, *narrowed[] = {"daily <= 100", "op in burn"};
    char token[4][4096];
    (void)state;
    rig_narrow(&rig, both, 1, token[0]);
    rig_narrow(&rig, spend, 2, token[1]);
    rig_narrow(&rig, issue, 2, token[2]);
    rig_narrow(&rig, narrowed, 2, token[3]);
    issues("acct:a", "a1", token[0], 60, 200);
    burns("acct:a", "a2", token[0], 30, 1, 200);
    issues("acct:b", "b1", NULL, 1000, 200);
    burns("acct:b", "b2", token[1], 30, 1, 200);
    issues("acct:c", "c1", token[2], 60, 200);
    burns("acct:c", "c2", NULL, 50, 1, 200);
    wallet_rig_restart(&rig, NULL, 0);
    burns("acct:a", "a3", token[0], 11, 2, 403);
    burns("acct:a", "a3", token[3], 11, 2, 403); /* its counter is the same */
    issues("acct:a", "a4", token[0], 11, 403);
    burns("acct:a", "a5", token[3], 10, 2, 200);
    burns("acct:b", "b3", token[1], 71, 2, 403);
    burns("acct:b", "b4", token[1], 70, 2, 200);
    issues("acct:c", "c3", token[2], 41, 403);
    issues("acct:c", "c4", token[2], 40, 200);
}

/* The ledger does not say what was spent today: nothing is let through, and it is told within the request's time. */
RT_UNCHECKED static void an_allowance_that_cannot_be_added_up_is_told_as_loading(void **state)
{
    static const char *const flags[] = {"--request_timeout=1s", "--ledger.rpc_timeout=900ms"};
    char daily[4096];
    const char *caveats[] = {"op in transfer", "daily <= 100"};
    (void)state;
    fund(); /* before it starts again: there is something to add up */
    wallet_rig_restart(&rig, flags, 2);
    rig_narrow(&rig, caveats, 2, daily);
    mem_ledger_read_fault(rig.ledger, MEM_STALL);
    struct deadline by = deadline_in_ms(30000);
    pay("k1", daily, 60, 1, &a);
    assert_false(deadline_passed(by));
    assert_int_equal(a.status, 503);
    const char *reason = rig_member(&a, "reason", m1);
    assert_true(strcmp(reason, "limits_loading") == 0 || strcmp(reason, "down") == 0);
    assert_int_equal(mem_ledger_last(rig.ledger, "acct:alice", 0), 0);
    mem_ledger_read_fault(rig.ledger, MEM_OK);
    rig_await_ready(&rig, true);
    do
        pay("k1", daily, 60, 1, &a);
    while (a.status == 503 && !deadline_passed(by)); /* the breaker may still be open */
    assert_int_equal(a.status, 200);
}

RT_UNCHECKED static void a_policy_limits_freezes_and_survives_a_broken_reload(void **state)
{
    char path[128], flag[160];
    (void)state;
    snprintf(path, sizeof path, "%s/policy.json", rig.dir);
    FILE *f = fopen(path, "w");
    fputs("{\"version\":3,\"assets\":{\"ron\":{}},\"frozen\":[\"acct:mallory\"],\"limits\":[{\"account\":"
          "\"acct:alice\",\"max_amount\":\"50\",\"daily\":\"70\"}]}",
          f);
    fclose(f);
    snprintf(flag, sizeof flag, "--policy.file=%s", path);
    const char *flags[] = {flag};
    wallet_rig_restart(&rig, flags, 1);
    rig_post(&rig, "/v1/issue", "i", &a, "{\"to\":\"acct:mallory\",\"asset\":\"ron\",\"amount\":\"1\"}");
    assert_int_equal(a.status, 403);
    assert_string_equal(rig_member(&a, "reason", m1), "frozen");
    mem_ledger_mint(rig.ledger, "x:1", "acct:alice", "ron", 1000);
    pay("k1", NULL, 51, 1, &a);
    assert_string_equal(rig_member(&a, "limit", m1), "policy_max_amount");
    pay("k2", NULL, 50, 1, &a);
    assert_int_equal(a.status, 200);
    pay("k3", NULL, 21, 2, &a);
    assert_string_equal(rig_member(&a, "limit", m1), "policy_daily");
    f = fopen(path, "w");
    fputs("{\"limits\":", f);
    fclose(f);
    rig_call(&rig, "POST", "/admin/reload", NULL, NULL, "{}", &a);
    pay("k4", NULL, 21, 2, &a); /* the last good one is in force */
    assert_string_equal(rig_member(&a, "limit", m1), "policy_daily");
    assert_true(rig_metric(&rig, "policy_version", "") == 3);
}

/* A key is for ever: what used up the allowance itself is not refused by it when its receipt is no longer in memory. */
RT_UNCHECKED static void a_replay_is_answered_though_its_allowance_is_used_up(void **state)
{
    static const char simulated[] = "{\"op\":\"transfer\",\"from\":\"acct:alice\",\"to\":\"acct:shop\","
                                    "\"asset\":\"ron\",\"amount\":\"60\",\"nonce\":1}";
    char daily[4096];
    const char *caveats[] = {"op in transfer", "daily <= 100"}; /* being issued is not its spending */
    (void)state;
    fund();
    rig_narrow(&rig, caveats, 2, daily);
    pay("k1", daily, 60, 1, &b);
    assert_int_equal(b.status, 200);
    wallet_rig_restart(&rig, NULL, 0);
    rig_call(&rig, "POST", "/v1/simulate", "k1", daily, simulated, &a);
    assert_int_equal(a.status, 200);
    assert_string_equal(rig_member(&a, "would", m1), "replay");
    wallet_rig_restart(&rig, NULL, 0);
    pay("k1", daily, 60, 1, &a);
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, b.body);
    assert_true(rig_metric(&rig, "wallet_idem_replays_total", "source=\"ledger\"") == 1);
    wallet_rig_restart(&rig, NULL, 0);
    pay("k1", daily, 61, 1, &a); /* the key is another request's, whatever else is wrong with this one */
    assert_int_equal(a.status, 422);
    assert_string_equal(rig_member(&a, "code", m1), "idempotency_mismatch");
    pay("k2", daily, 41, 2, &a);
    assert_int_equal(a.status, 403);
    pay("k3", daily, 40, 2, &a); /* and none of that has used any of it */
    assert_int_equal(a.status, 200);
    assert_int_equal((uint64_t)mem_ledger_available(rig.ledger, "acct:shop", "ron").units, 100);
}

/* Nor by a policy that has changed since. Who cannot be told whether it was done is not told that it is forbidden. */
RT_UNCHECKED static void a_replay_is_answered_though_the_policy_forbids_it_now(void **state)
{
    static const char *const policies[] = {
        "{\"frozen\":[\"acct:shop\"]}",
        "{\"limits\":[{\"account\":\"acct:alice\",\"max_amount\":\"59\"}]}",
        "{\"limits\":[{\"account\":\"*\",\"daily\":\"59\"}]}",
        "{\"assets\":{\"gold\":{}}}",
    };
    char path[128], flag[160];
    const char *flags[] = {flag, "max_amount_per_op=59"};
    (void)state;
    fund();
    pay("k1", NULL, 60, 1, &b);
    assert_int_equal(b.status, 200);
    snprintf(path, sizeof path, "%s/policy.json", rig.dir);
    for (size_t i = 0; i < 5; i++) {
        FILE *f = fopen(path, "w");
        fputs(i < 4 ? policies[i] : "{}", f);
        fclose(f);
        snprintf(flag, sizeof flag, "--policy.file=%s", path);
        wallet_rig_restart(&rig, flags, i < 4 ? 1 : 2);
        pay("k2", NULL, 60, 2, &a);
        if (a.status != 403 && a.status != 422)
            fail_msg("policy %zu, a new one: %d %s", i, a.status, a.body);
        pay("k1", NULL, 60, 1, &a);
        if (a.status != 200)
            fail_msg("policy %zu, again: %d %s", i, a.status, a.body);
        assert_string_equal(a.body, b.body);
    }
    wallet_rig_restart(&rig, flags, 2);
    mem_ledger_unit_fault(rig.ledger, MEM_LOSE_BEFORE, -1);
    pay("k1", NULL, 60, 1, &a);
    assert_int_equal(a.status, 503);
    mem_ledger_unit_fault(rig.ledger, MEM_OK, 0);
    struct deadline by = deadline_in_ms(30000);
    do
        pay("k1", NULL, 60, 1, &a);
    while (a.status == 503 && !deadline_passed(by)); /* the breaker may still be open */
    assert_string_equal(a.body, b.body);
    assert_int_equal((uint64_t)mem_ledger_available(rig.ledger, "acct:shop", "ron").units, 60);
}

RT_UNCHECKED static void simulations_agree_with_the_operation_and_change_nothing(void **state)
{
    (void)state;
    fund();
    uint64_t units = mem_ledger_units(rig.ledger);
    rig_post(&rig, "/v1/simulate", "s1", &a,
             "{\"op\":\"transfer\",\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\","
             "\"amount\":\"10\",\"nonce\":1}");
    assert_int_equal(a.status, 200);
    assert_string_equal(rig_member(&a, "would", m1), "commit");
    assert_non_null(strstr(a.body, "\"available_before\":\"100000\",\"available_after\":\"99990\""));
    assert_int_equal(mem_ledger_units(rig.ledger), units);
    char txid[256];
    rig_member(&a, "txid", txid);
    pay("s1", NULL, 10, 1, &b);
    assert_int_equal(b.status, 200);
    assert_string_equal(rig_member(&b, "txid", m1), txid);
    rig_post(&rig, "/v1/simulate", "s1", &a,
             "{\"op\":\"transfer\",\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\","
             "\"amount\":\"10\",\"nonce\":1}");
    assert_string_equal(rig_member(&a, "would", m1), "replay");
    assert_non_null(strstr(a.body, b.body));
    wallet_rig_restart(&rig, NULL, 0);
    rig_post(&rig, "/v1/simulate", "s1", &a,
             "{\"op\":\"transfer\",\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\","
             "\"amount\":\"10\",\"nonce\":1}");
    assert_string_equal(rig_member(&a, "would", m1), "replay");
    rig_post(
        &rig, "/v1/simulate", "s2", &a,
        "{\"op\":\"burn\",\"from\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"100000\",\"nonce\":2}");
    assert_int_equal(a.status, 409);
    assert_string_equal(rig_member(&a, "code", m1), "insufficient_funds");
    rig_post(&rig, "/v1/simulate", "s3", &a,
             "{\"op\":\"burn\",\"from\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"1\",\"nonce\":9}");
    assert_string_equal(rig_member(&a, "expected", m1), "2");
    rig_post(&rig, "/v1/simulate", "s4", &a, "{\"op\":\"fly\"}");
    assert_int_equal(a.status, 400);
    assert_int_equal(mem_ledger_units(rig.ledger), units + 1);
}

/* ---- full ---- */

enum { CROWD = 40 };

struct one {
    pthread_t thread;
    int index, status;
    char code[32], reason[32];
};

RT_UNCHECKED static void *one_payment(void *arg)
{
    struct one *o = arg;
    struct rig_answer *x = malloc(sizeof *x);
    char key[32], member[256];
    snprintf(key, sizeof key, "crowd-%d", o->index);
    rig_post(&rig, "/v1/issue", key, x, "{\"to\":\"acct:%d\",\"asset\":\"ron\",\"amount\":\"1\"}",
             o->index);
    o->status = x->status;
    snprintf(o->code, sizeof o->code, "%s", rig_member(x, "code", member));
    snprintf(o->reason, sizeof o->reason, "%s", rig_member(x, "reason", member));
    free(x);
    return NULL;
}

RT_UNCHECKED static void a_full_queue_is_told_at_once_and_counted(void **state)
{
    static const char *const flags[] = {"--workers=1", "--queues.work=4", "--batch_units=1",
                                        "--inflight_requests=1", "--request_timeout=3s"};
    struct one crowd[CROWD] = {0};
    int ok = 0, busy = 0;
    (void)state;
    wallet_rig_restart(&rig, flags, 5);
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL,
                            1); /* one request hangs for a second: what comes meanwhile piles up */
    for (int i = 0; i < CROWD; i++) {
        crowd[i].index = i;
        pthread_create(&crowd[i].thread, NULL, one_payment, &crowd[i]);
    }
    for (int i = 0; i < CROWD; i++) {
        pthread_join(crowd[i].thread, NULL);
        ok += crowd[i].status == 200;
        busy += crowd[i].status == 429 && strcmp(crowd[i].reason, "queue") == 0;
    }
    assert_int_equal(ok + busy, CROWD);
    assert_true(
        busy >=
        CROWD -
            8); /* one with the ledger, one parked, four in the queue, and a few that came as it cleared */
    assert_true(rig_metric(&rig, "busy_rejections_total", "endpoint=\"issue\"") == busy);
    assert_true(rig_metric(&rig, "queue_dropped_total", "queue=\"work\"") == busy);
    assert_int_equal(mem_ledger_units(rig.ledger), (uint64_t)ok);
}

RT_UNCHECKED static void a_drain_under_load_answers_everybody(void **state)
{
    struct one crowd[CROWD] = {0};
    int odd = 0, ok = 0;
    (void)state;
    for (int i = 0; i < CROWD; i++) {
        crowd[i].index = i;
        pthread_create(&crowd[i].thread, NULL, one_payment, &crowd[i]);
    }
    int code = svc_drain(rig.svc);
    for (int i = 0; i < CROWD; i++) {
        pthread_join(crowd[i].thread, NULL);
        ok += crowd[i].status == 200;
        /* Refused connections and 503 draining are definite: nothing happened. */
        odd += crowd[i].status != 200 && crowd[i].status >= 0 && strcmp(crowd[i].code, "draining") != 0;
    }
    assert_int_equal(code, 0);
    assert_int_equal(odd, 0);
    assert_int_equal(mem_ledger_units(rig.ledger), (uint64_t)ok);
}

static void await_refusal(struct raw_conn *stream, const char *op, const char *code)
{
    char no[200];
    int n = snprintf(no, sizeof no,
                     "event: wallet.request.rejected\ndata: {\"op\":\"%s\",\"code\":\"%s\",\"corr_id\":\"",
                     op, code);
    while (!memmem(stream->buf, stream->n, no, (size_t)n))
        assert_true(raw_more(stream));
}

RT_UNCHECKED static void the_audit_stream_tells_what_was_accepted_and_what_was_not(void **state)
{
    struct raw_conn c;
    struct raw_response head;
    char request[5000];
    (void)state;
    raw_connect(&c, (uint16_t)svc_port(rig.svc));
    snprintf(request, sizeof request,
             "GET /admin/audit HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", rig.token);
    raw_puts(&c, request);
    raw_head(&c, &head);
    assert_int_equal(head.status, 200);
    bool seen = false;
    for (int i = 0; i < 50 && !seen;
         i++) { /* events are made while somebody listens: the first few may come too early */
        char key[16];
        snprintf(key, sizeof key, "audit-%d", i);
        rig_post(&rig, "/v1/issue", key, &a, "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"5\"}");
        assert_int_equal(a.status, 200);
        assert_true(raw_more(&c));
        seen = memmem(c.buf, c.n, "event: wallet.issue.accepted", 28) != NULL;
    }
    assert_true(seen);
    rig_post(&rig, "/v1/transfer", "too-much", &a,
             "{\"from\":\"acct:a\",\"to\":\"acct:b\",\"asset\":\"ron\",\"amount\":\"100000\",\"nonce\":1}");
    assert_int_equal(a.status, 409);
    char no[300];
    int n =
        snprintf(no, sizeof no,
                 "event: wallet.request.rejected\n"
                 "data: {\"op\":\"transfer\",\"code\":\"insufficient_funds\",\"corr_id\":\"%s\",\"ts\":\"",
                 rig_member(&a, "corr_id", m1));
    while (!memmem(c.buf, c.n, no, (size_t)n))
        assert_true(raw_more(&c));

    /* And what never became an operation: no key, no token, more than a body may have. */
    rig_call(&rig, "POST", "/v1/burn", NULL, NULL, "{}", &a);
    assert_int_equal(a.status, 400);
    await_refusal(&c, "burn", "idempotency_key_missing");
    rig_call(&rig, "GET", "/v1/balance?account=acct:a&asset=ron", NULL, "", "", &a);
    assert_int_equal(a.status, 401);
    await_refusal(&c, "read", "unauthenticated");
    struct raw_conn big;
    raw_connect(&big, (uint16_t)svc_port(rig.svc));
    raw_puts(&big, "POST /v1/hold HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n");
    rig_answered(&big, 413, "too_large");
    await_refusal(&c, "hold", "too_large");
    assert_true(rig_metric(&rig, "rejected_total", "reason=\"too_large\"") == 1);
    raw_free(&head);
    raw_close(&c);
}

RT_UNCHECKED static void a_rate_for_all_callers_lets_its_burst_in_and_then_refuses(void **state)
{
    static const char *const flags[] = {"--limits.rate_per_second=1", "--limits.burst=3"};
    int in = 0;
    (void)state;
    wallet_rig_restart(&rig, flags, 2);
    do /* a slow machine earns a few more on the way */
        rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron", &a);
    while (a.status == 200 && ++in < 200);
    assert_int_equal(a.status, 429);
    assert_true(in >= 3);
    assert_string_equal(rig_member(&a, "code", m1), "rate_limited");
    assert_true(atoi(a.retry_after) >= 1);
}

enum { ORDER_MAX = 4096 };

/* An order that is mostly blanks, n bytes of it; how many it is packed. */
static size_t pack(size_t n, uint8_t packed[ORDER_MAX])
{
    static const char order[] = "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"1\"}";
    uint8_t text[ORDER_MAX];
    assert_in_range(n, sizeof order, sizeof text);
    memset(text, ' ', n);
    memcpy(text, order, sizeof order - 1);
    z_stream z = {.next_in = text, .avail_in = (unsigned)n, .next_out = packed, .avail_out = ORDER_MAX};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static int post_gzip(const char *key, size_t n)
{
    char head[5000];
    uint8_t packed[ORDER_MAX];
    struct raw_conn c;
    struct raw_response r;
    size_t packed_n = pack(n, packed);
    raw_connect(&c, (uint16_t)svc_port(rig.svc));
    int head_n =
        snprintf(head, sizeof head,
                 "POST /v1/issue HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\n"
                 "Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n",
                 rig.token, key, packed_n);
    raw_send(&c, head, (size_t)head_n);
    raw_send(&c, packed, packed_n);
    raw_read(&c, false, &r);
    raw_close(&c);
    int status = r.status;
    raw_free(&r);
    return status;
}

/* The longest order that grows by at most tenths/10. */
static size_t growing_by(size_t tenths)
{
    uint8_t packed[ORDER_MAX];
    size_t n = 100;
    while (10 * (n + 1) <= tenths * pack(n + 1, packed))
        n++;
    return n;
}

RT_UNCHECKED static void a_body_may_grow_by_the_configured_factor(void **state)
{
    static const char *const flags[] = {"--limits.decompress_ratio_cap=2"};
    (void)state;
    assert_int_equal(post_gzip("g1", growing_by(99)), 200);
    assert_int_equal(post_gzip("g2", growing_by(101)), 413);
    assert_int_equal(post_gzip("g3", ORDER_MAX), 413);
    wallet_rig_restart(&rig, flags, 1);
    assert_int_equal(post_gzip("g4", growing_by(19)), 200);
    assert_int_equal(post_gzip("g5", growing_by(22)), 413);
    assert_int_equal(mem_ledger_units(rig.ledger), 2);
}

/* Hundreds who send a byte now and then cost a connection each, for five seconds at most, and nobody else anything. */
RT_UNCHECKED static void slow_connections_are_cut_and_others_are_served(void **state)
{
    enum { SLOW = 300 };
    static const char *const flags[] = {"--read_timeout=500ms"};
    static struct raw_conn slow[SLOW];
    (void)state;
    wallet_rig_restart(&rig, flags, 1);
    for (int i = 0; i < SLOW; i++) {
        raw_connect(&slow[i], (uint16_t)svc_port(rig.svc));
        raw_puts(&slow[i],
                 i % 2 ? "POST /v1/transfer HTTP/1.1\r\nHost: x\r\nContent-Le"
                       : "POST /v1/transfer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"from\"");
    }
    fund();                          /* served beside them */
    for (int i = 0; i < SLOW; i++) { /* 408, then the end; the body was never waited for longer */
        struct raw_response r;
        raw_read(&slow[i], false, &r);
        assert_int_equal(r.status, 408);
        raw_free(&r);
        raw_close(&slow[i]);
    }
    AWAIT(rig_metric(&rig, "io_timeouts_total", "op=\"read\"") >= SLOW); /* sampled every metrics_tick */
    pay("after", NULL, 1, 1, &a);
    assert_int_equal(a.status, 200);
}

/* ---- traces ---- */

static struct {
    pthread_mutex_t m;
    char text[65536];
    size_t n;
} collected = {.m = PTHREAD_MUTEX_INITIALIZER};

/* Takes whatever is posted, one request a connection. */
static void *collector(void *arg)
{
    int listener = *(int *)arg, fd;
    static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        char in[65536];
        size_t n = 0, want = SIZE_MAX;
        for (ssize_t got;
             n < want && n < sizeof in - 1 && (got = recv(fd, in + n, sizeof in - 1 - n, 0)) > 0;) {
            n += (size_t)got;
            in[n] = 0;
            char *end = strstr(in, "\r\n\r\n"), *length = strcasestr(in, "content-length:");
            if (end && length)
                want = (size_t)(end + 4 - in) + strtoul(length + 15, NULL, 10);
        }
        pthread_mutex_lock(&collected.m);
        if (collected.n + n < sizeof collected.text) {
            memcpy(collected.text + collected.n, in, n);
            collected.n += n;
        }
        pthread_mutex_unlock(&collected.m);
        (void)!send(fd, ok, sizeof ok - 1, MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

static bool collected_has(const char *what)
{
    pthread_mutex_lock(&collected.m);
    bool has = memmem(collected.text, collected.n, what, strlen(what)) != NULL;
    pthread_mutex_unlock(&collected.m);
    return has;
}

RT_UNCHECKED static void an_operation_is_traced_below_its_callers_span(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t at_n = sizeof at;
    struct raw_response r;
    pthread_t thread;
    char flag[96], request[5000], body[200];
    (void)state;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 16), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &at_n), 0);
    pthread_create(&thread, NULL, collector, &listener);
    snprintf(flag, sizeof flag, "--otlp.endpoint=http://127.0.0.1:%d/v1/traces", ntohs(at.sin_port));
    const char *flags[] = {flag, "--metrics_tick=100ms"};
    wallet_rig_restart(&rig, flags, 2);
    fund();
    snprintf(body, sizeof body, TRANSFER, 5, 1);
    snprintf(
        request, sizeof request,
        "POST /v1/transfer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: traced\r\n"
        "Content-Type: application/json\r\ntraceparent: "
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
        "Content-Length: %zu\r\n\r\n%s",
        rig.token, strlen(body), body);
    raw_once((uint16_t)svc_port(rig.svc), request, &r);
    assert_int_equal(r.status, 200);
    raw_free(&r);
    AWAIT(collected_has("\"wallet.request\""));
    assert_true(collected_has("4bf92f3577b34da6a3ce929d0e0e4736") && collected_has("00f067aa0ba902b7"));
    assert_true(collected_has("\"wallet.auth\"") && collected_has("\"wallet.claim\"") &&
                collected_has("\"wallet.queue\"") && collected_has("\"wallet.ledger\"") &&
                collected_has("\"wallet.settle\"") && collected_has("\"tries\"") &&
                collected_has("\"batch\""));
    AWAIT(collected_has("\"wallet.reply\""));
    assert_false(collected_has("Bearer") ||
                 collected_has("acct:alice")); /* neither secrets nor whose money */
    wallet_rig_stop(&rig);
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
    wallet_rig_restart(&rig, NULL, 0);
}

/* Only what is sampled has a trace to go on with; the id goes on whatever it is. */
RT_UNCHECKED static void who_asked_goes_on_to_the_ledger(void **state)
{
    static const char trace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
    char request[5000], body[200], corr_id[129], traceparent[64];
    (void)state;
    fund();
    for (int sampled = 0; sampled < 2; sampled++) {
        struct raw_response r;
        snprintf(body, sizeof body, TRANSFER, 5, 1 + sampled);
        snprintf(request, sizeof request,
                 "POST /v1/transfer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                 "Idempotency-Key: asked-%d\r\nX-Corr-ID: order-%d\r\nContent-Type: application/json\r\n"
                 "traceparent: 00-%s-00f067aa0ba902b7-0%d\r\nContent-Length: %zu\r\n\r\n%s",
                 rig.token, sampled, sampled, trace, sampled, strlen(body), body);
        raw_once((uint16_t)svc_port(rig.svc), request, &r);
        assert_int_equal(r.status, 200);
        raw_free(&r);
        mem_ledger_origin(rig.ledger, corr_id, traceparent);
        assert_string_equal(corr_id, sampled ? "order-1" : "order-0");
        if (!sampled) {
            assert_string_equal(traceparent, "");
            continue;
        }
        assert_int_equal(strlen(traceparent), 55);
        assert_memory_equal(traceparent + 3, trace, 32);
        assert_memory_not_equal(traceparent + 36, "00f067aa0ba902b7", 16); /* below ours, not beside it */
        assert_string_equal(traceparent + 52, "-01");
    }
}

#define T(fn) RIG_TEST(fn, &rig)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_daily_caveat_is_shared_by_all_tokens_narrowed_from_it),
        T(a_daily_caveat_counts_what_it_was_for_before_a_restart),
        T(an_allowance_that_cannot_be_added_up_is_told_as_loading),
        T(a_policy_limits_freezes_and_survives_a_broken_reload),
        T(a_replay_is_answered_though_its_allowance_is_used_up),
        T(a_replay_is_answered_though_the_policy_forbids_it_now),
        T(simulations_agree_with_the_operation_and_change_nothing),
        T(a_full_queue_is_told_at_once_and_counted),
        T(a_drain_under_load_answers_everybody),
        T(a_rate_for_all_callers_lets_its_burst_in_and_then_refuses),
        T(a_body_may_grow_by_the_configured_factor),
        T(slow_connections_are_cut_and_others_are_served),
        T(an_operation_is_traced_below_its_callers_span),
        T(who_asked_goes_on_to_the_ledger),
        T(the_audit_stream_tells_what_was_accepted_and_what_was_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
