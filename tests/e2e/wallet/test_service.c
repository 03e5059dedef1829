/* The wallet over real sockets and a ledger in memory: every operation, every refusal, every way to repeat a request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "wallet_rig.h"

static struct wallet_rig rig;
static struct rig_answer a, b;
static char m1[256], m2[256];

#define ISSUE(key, to, amount)                                                                             \
    rig_post(&rig, "/v1/issue", key, &a, "{\"to\":\"%s\",\"asset\":\"ron\",\"amount\":\"%s\"}", to, amount)
#define PAY(key, from, to, amount, nonce)                                                                  \
    rig_post(&rig, "/v1/transfer", key, &a,                                                                \
             "{\"from\":\"%s\",\"to\":\"%s\",\"asset\":\"ron\",\"amount\":\"%s\",\"nonce\":%d}", from, to, \
             amount, nonce)

static void assert_code(const struct rig_answer *x, int status, const char *code)
{
    if (x->status != status || strcmp(rig_member(x, "code", m1), code) != 0)
        print_error("%d %s\n", x->status, x->body);
    assert_int_equal(x->status, status);
    assert_string_equal(rig_member(x, "code", m1), code);
}

static void assert_units(struct money m, uint64_t units)
{
    assert_true(money_cmp(m, money_from_u64(units)) == 0);
}

RT_UNCHECKED static void money_goes_in_around_and_out(void **state)
{
    (void)state;
    ISSUE("i1", "acct:alice", "1000");
    assert_int_equal(a.status, 200);
    assert_string_equal(rig_member(&a, "op", m1), "issue");
    PAY("t1", "acct:alice", "acct:shop", "250", 1);
    assert_int_equal(a.status, 200);
    assert_string_equal(rig_member(&a, "seq", m1), "2");
    assert_string_equal(a.replayed, "");
    rig_post(&rig, "/v1/burn", "b1", &a,
             "{\"from\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"50\",\"nonce\":2}");
    assert_int_equal(a.status, 200);
    rig_post(&rig, "/v1/hold", "h1", &a,
             "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"100\",\"nonce\":"
             "1,\"lane\":3,\"expires_in\":60}");
    assert_int_equal(a.status, 200);
    char hold[256];
    rig_member(&a, "txid", hold);
    rig_post(&rig, "/v1/capture", "c1", &a, "{\"hold\":\"%s\",\"amount\":\"90\"}", hold);
    assert_int_equal(a.status, 200);
    assert_string_equal(rig_member(&a, "released", m1), "10");
    assert_string_equal(rig_member(&a, "to", m1), "acct:shop");
    assert_units(mem_ledger_available(rig.ledger, "acct:alice", "ron"), 610);
    assert_units(mem_ledger_available(rig.ledger, "acct:shop", "ron"), 340);
    assert_units(mem_ledger_held(rig.ledger, "acct:alice", "ron"), 0);
    assert_true(mem_ledger_conserves(rig.ledger));
    rig_post(&rig, "/v1/release", "r1", &a, "{\"hold\":\"%s\"}", hold);
    assert_code(&a, 409, "hold_settled");
}

RT_UNCHECKED static void a_release_gives_the_whole_hold_back(void **state)
{
    char hold[256];
    (void)state;
    ISSUE("i", "acct:alice", "100");
    rig_post(
        &rig, "/v1/hold", "h", &a,
        "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"70\",\"nonce\":1}");
    assert_int_equal(a.status, 200);
    assert_units(mem_ledger_held(rig.ledger, "acct:alice", "ron"), 70);
    rig_post(&rig, "/v1/release", "r", &b, "{\"hold\":\"%s\"}", rig_member(&a, "txid", hold));
    assert_int_equal(b.status, 200);
    assert_string_equal(rig_member(&b, "amount", m1), "70");
    assert_units(mem_ledger_available(rig.ledger, "acct:alice", "ron"), 100);
    rig_post(&rig, "/v1/capture", "c", &b, "{\"hold\":\"tx_00000000000000000000000000000000\"}");
    assert_code(&b, 404, "hold_unknown");
}

RT_UNCHECKED static void i2_the_same_key_gives_the_same_bytes_also_after_a_restart(void **state)
{
    (void)state;
    ISSUE("i", "acct:alice", "1000");
    PAY("pay-1", "acct:alice", "acct:shop", "10", 1);
    assert_int_equal(a.status, 200);
    b = a;
    PAY("pay-1", "acct:alice", "acct:shop", "10", 1);
    assert_string_equal(a.body, b.body);
    assert_string_equal(a.replayed, "true");
    PAY("\"pay-1\"", "acct:alice", "acct:shop", "10", 1); /* the quoted spelling is the same key */
    assert_string_equal(a.body, b.body);
    wallet_rig_restart(&rig, NULL, 0);
    PAY("pay-1", "acct:alice", "acct:shop", "10", 1);
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, b.body);
    assert_string_equal(a.replayed, "true");
    assert_int_equal(mem_ledger_units(rig.ledger), 2);
    assert_units(mem_ledger_available(rig.ledger, "acct:shop", "ron"), 10);
}

RT_UNCHECKED static void i3_the_same_key_for_another_payment_is_refused_also_after_a_restart(void **state)
{
    (void)state;
    ISSUE("i", "acct:alice", "1000");
    PAY("k", "acct:alice", "acct:shop", "10", 1);
    assert_int_equal(a.status, 200);
    PAY("k", "acct:alice", "acct:shop", "11", 2);
    assert_code(&a, 422, "idempotency_mismatch");
    wallet_rig_restart(&rig, NULL, 0);
    PAY("k", "acct:alice", "acct:shop", "11", 2);
    assert_code(&a, 422, "idempotency_mismatch");
    assert_int_equal(mem_ledger_units(rig.ledger), 2);
}

RT_UNCHECKED static void i6_a_refusal_leaves_nothing_behind(void **state)
{
    (void)state;
    ISSUE("i", "acct:alice", "100");
    PAY("k", "acct:alice", "acct:shop", "101", 1);
    assert_code(&a, 409, "insufficient_funds");
    assert_string_equal(rig_member(&a, "account", m1), "acct:alice");
    PAY("k", "acct:alice", "acct:shop", "100", 1); /* key and nonce are as before */
    assert_int_equal(a.status, 200);
}

RT_UNCHECKED static void nonces_that_are_not_next_are_told_which_one_is(void **state)
{
    (void)state;
    ISSUE("i", "acct:alice", "100");
    PAY("k1", "acct:alice", "acct:shop", "1", 5);
    assert_code(&a, 409, "nonce_conflict");
    assert_string_equal(rig_member(&a, "expected", m1), "1");
    assert_string_equal(rig_member(&a, "retryable", m1), "true");
    PAY("k2", "acct:alice", "acct:shop", "1", 1);
    assert_int_equal(a.status, 200);
    PAY("k3", "acct:alice", "acct:shop", "1", 1);
    assert_code(&a, 409, "nonce_conflict");
    assert_string_equal(rig_member(&a, "expected", m1), "2");
    assert_string_equal(rig_member(&a, "retryable", m1), "false");
    rig_get(&rig, "/v1/nonce?account=acct:alice", &a);
    assert_int_equal(a.status, 200);
    assert_string_equal(rig_member(&a, "next", m1), "2");
    rig_get(&rig, "/v1/nonce?account=acct:alice&lane=7", &a);
    assert_string_equal(rig_member(&a, "next", m1), "1");
}

RT_UNCHECKED static void bad_requests_name_the_member(void **state)
{
    static const struct {
        const char *path, *body, *member, *reason;
    } bad[] = {
        {"/v1/issue", "{\"to\":\"acct:a\",\"asset\":\"ron\"}", "amount", "missing"},
        {"/v1/issue", "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"0\"}", "amount", "range"},
        {"/v1/issue", "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":1}", "amount", "type"},
        {"/v1/issue",
         "{\"to\":\"acct:a\",\"asset\":\"ron\",\"amount\":\"340282366920938463463374607431768211456\"}",
         "amount", "range"},
        {"/v1/issue", "{\"to\":\"acct a\",\"asset\":\"ron\",\"amount\":\"1\"}", "to", "pattern"},
        {"/v1/issue", "{\"to\":\"a\",\"asset\":\"ron\",\"amount\":\"1\",\"x\":1}", "x", "unknown"},
        {"/v1/issue", "{\"to\":\"a\",\"to\":\"a\",\"asset\":\"ron\",\"amount\":\"1\"}", "to", "duplicate"},
        {"/v1/issue", "{\"to\":\"a\",\"asset\":\"ron\",\"amount\":\"1\",\"memo\":\"\\u0007\"}", "memo",
         "pattern"},
        {"/v1/transfer", "{\"from\":\"a\",\"to\":\"b\",\"asset\":\"ron\",\"amount\":\"1\",\"nonce\":0}",
         "nonce", "range"},
        {"/v1/transfer",
         "{\"from\":\"a\",\"to\":\"b\",\"asset\":\"ron\",\"amount\":\"1\",\"nonce\":281474976710656}",
         "nonce", "range"},
        {"/v1/transfer",
         "{\"from\":\"a\",\"to\":\"b\",\"asset\":\"ron\",\"amount\":\"1\",\"nonce\":1,\"lane\":256}",
         "lane", "range"},
        {"/v1/capture", "{\"hold\":\"tx_1\"}", "hold", "pattern"},
        {"/v1/release", "{", "", "syntax"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rig_call(&rig, "POST", bad[i].path, "k", NULL, bad[i].body, &a);
        assert_code(&a, 400, "bad_request");
        assert_string_equal(rig_member(&a, "member", m1), bad[i].member);
        assert_string_equal(rig_member(&a, "reason", m1), bad[i].reason);
    }
    rig_call(&rig, "POST", "/v1/issue", NULL, NULL, "{}", &a);
    assert_code(&a, 400, "idempotency_key_missing");
    rig_call(&rig, "POST", "/v1/issue", "a b", NULL, "{}", &a);
    assert_code(&a, 400, "bad_request");
    assert_int_equal(mem_ledger_ingests(rig.ledger), 0);
}

RT_UNCHECKED static void refusals_of_the_wallet_itself(void **state)
{
    (void)state;
    PAY("k1", "acct:a", "acct:a", "1", 1);
    assert_code(&a, 422, "unprocessable");
    assert_string_equal(rig_member(&a, "reason", m1), "same_account");
    rig_post(&rig, "/v1/issue", "k2", &a, "{\"to\":\"acct:a\",\"asset\":\"gold\",\"amount\":\"1\"}");
    assert_code(&a, 422, "unknown_asset");
    ISSUE("k3", "acct:a", "100000000000000000001");
    assert_code(&a, 403, "limit_exceeded");
    assert_string_equal(rig_member(&a, "limit", m1), "max_amount_per_op");
    assert_int_equal(mem_ledger_ingests(rig.ledger), 0);
}

RT_UNCHECKED static void i10_capabilities_are_judged_on_every_call_replays_included(void **state)
{
    static const struct {
        const char *caveat;
        int status;
        const char *code, *detail;
    } table[] = {
        {"op in read", 403, "forbidden", "op"},
        {"account in acct:bob", 403, "forbidden", "account"},
        {"to in acct:bob", 403, "forbidden", "payee"},
        {"asset in gold", 403, "forbidden", "asset"},
        {"max_amount <= 9", 403, "limit_exceeded", "cap_max_amount"},
        {"account in acct:al*", 200, "", ""},
        {"to in acct:shop", 200, "", ""},
        {"tenant = t2", 409, "nonce_conflict",
         ""}, /* another tenant: the key is free there, the nonce is spent */
        {"exp < 2020-01-01T00:00:00Z", 401, "unauthenticated", ""},
    };
    char token[4096];
    (void)state;
    ISSUE("i", "acct:alice", "100");
    PAY("k", "acct:alice", "acct:shop", "10", 1);
    assert_int_equal(a.status, 200);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        rig_narrow(&rig, &table[i].caveat, 1, token);
        rig_call(&rig, "POST", "/v1/transfer", "k", token,
                 "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"10\","
                 "\"nonce\":1}",
                 &b);
        if (b.status != table[i].status)
            print_error("%s: %d %s\n", table[i].caveat, b.status, b.body);
        assert_int_equal(b.status, table[i].status);
        if (table[i].status == 200)
            assert_string_equal(a.body, b.body);
        else
            assert_string_equal(rig_member(&b, "code", m1), table[i].code);
        if (*table[i].detail)
            assert_non_null(strstr(b.body, table[i].detail));
    }
    rig_call(&rig, "POST", "/v1/transfer", "k", "", "{}", &b);
    assert_code(&b, 401, "unauthenticated");
}

RT_UNCHECKED static void balances_follow_ones_own_writes(void **state)
{
    char path[128];
    (void)state;
    for (int i = 1; i <= 20; i++) {
        char key[16], available[16];
        snprintf(key, sizeof key, "i%d", i);
        ISSUE(key, "acct:alice", "10");
        assert_int_equal(a.status, 200);
        snprintf(path, sizeof path, "/v1/balance?account=acct:alice&asset=ron&min_seq=%s",
                 rig_member(&a, "seq", m1));
        rig_get(&rig, path, &b);
        assert_int_equal(b.status, 200);
        snprintf(available, sizeof available, "%d", 10 * i);
        assert_string_equal(rig_member(&b, "available", m2), available);
        assert_string_equal(rig_member(&b, "degraded", m2), "false");
    }
    rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron&min_seq=999", &b);
    assert_code(&b, 503, "behind");
    rig_get(&rig, "/v1/balance?account=acct:nobody&asset=ron", &b);
    assert_string_equal(rig_member(&b, "available", m2), "0");
    rig_get(&rig, "/v1/accounts/acct:alice", &b);
    assert_int_equal(b.status, 200);
    assert_non_null(
        strstr(b.body, "\"assets\":[{\"asset\":\"ron\",\"available\":\"200\",\"held\":\"0\"}]"));
    rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron&x=1", &b);
    assert_code(&b, 400, "bad_request");
}

RT_UNCHECKED static void an_account_shows_256_assets_and_every_one_when_it_is_asked_for(void **state)
{
    enum { ASSETS = 300 };
    const char *some = "asset in asset-0,asset-1,asset-299";
    char idem[32], asset[32], token[4096];
    (void)state;
    for (int i = 0; i < ASSETS; i++) {
        snprintf(idem, sizeof idem, "many-%d", i);
        snprintf(asset, sizeof asset, "asset-%d", i);
        mem_ledger_mint(rig.ledger, idem, "acct:rich", asset, (uint64_t)i + 1);
    }
    int shown = 0;
    rig_get(&rig, "/v1/accounts/acct:rich", &a);
    assert_int_equal(a.status, 200);
    for (const char *at = a.body; (at = strstr(at, "\"asset\":")); at++)
        shown++;
    assert_int_equal(shown, 256);
    assert_non_null(strstr(a.body, "\"truncated\":true"));
    for (int i = 0; i < ASSETS; i++) {
        char path[128], amount[16];
        snprintf(path, sizeof path, "/v1/balance?account=acct:rich&asset=asset-%d", i);
        snprintf(amount, sizeof amount, "%d", i + 1);
        rig_get(&rig, path, &a);
        assert_string_equal(rig_member(&a, "available", m1), amount);
    }
    rig_narrow(&rig, &some, 1, token); /* it covers three: none is left out */
    rig_call(&rig, "GET", "/v1/accounts/acct:rich", NULL, token, "", &a);
    assert_non_null(strstr(a.body, "\"asset-299\""));
    assert_null(strstr(a.body, "truncated"));
}

RT_UNCHECKED static void a_transaction_is_found_again_by_who_may_see_it(void **state)
{
    char path[64], token[4096];
    const char *other = "account in acct:bob";
    (void)state;
    ISSUE("i", "acct:alice", "10");
    snprintf(path, sizeof path, "/v1/tx/%s", rig_member(&a, "txid", m1));
    rig_get(&rig, path, &b);
    assert_int_equal(b.status, 200);
    assert_string_equal(a.body, b.body);
    rig_narrow(&rig, &other, 1, token);
    rig_call(&rig, "GET", path, NULL, token, NULL, &b);
    assert_code(&b, 404, "not_found");
    wallet_rig_restart(&rig, NULL, 0);
    rig_get(&rig, path, &b); /* from the ledger now */
    assert_int_equal(b.status, 200);
    assert_string_equal(a.body, b.body);
    rig_call(&rig, "GET", path, NULL, token, NULL, &b);
    assert_code(&b, 404, "not_found");
    rig_get(&rig, "/v1/tx/tx_00000000000000000000000000000000", &b);
    assert_int_equal(b.status, 202); /* the process before may have sent it */
    strcat(path, "/proof");
    rig_get(&rig, path, &b);
    assert_int_equal(b.status, 200);
    assert_non_null(strstr(
        b.body,
        "\"request\":\"{\\\"amount\\\":\\\"10\\\",\\\"asset\\\":\\\"ron\\\",\\\"op\\\":\\\"issue\\\""));
}

RT_UNCHECKED static int asked_again(const char *op)
{
    char label[32];
    snprintf(label, sizeof label, "op=\"%s\"", op);
    return (int)rig_metric(&rig, "backoff_retries_total", label);
}

/* Three tries in all; only what a later moment may answer is asked again. */
RT_UNCHECKED static void a_question_that_got_no_answer_is_put_again(void **state)
{
    char path[64];
    (void)state;
    ISSUE("i", "acct:alice", "10");
    snprintf(path, sizeof path, "/v1/tx/%s", rig_member(&a, "txid", m1));
    wallet_rig_restart(&rig, NULL, 0); /* nothing in memory: all is read */
    mem_ledger_unit_fault(rig.ledger, MEM_LOSE_BEFORE, 2);
    rig_get(&rig, path, &b);
    assert_int_equal(b.status, 200);
    assert_string_equal(a.body, b.body);
    assert_int_equal(asked_again("unit"), 2);
    mem_ledger_account_fault(rig.ledger, MEM_REFUSE, 1); /* busy */
    rig_get(&rig, "/v1/nonce?account=acct:alice", &b);
    assert_int_equal(b.status, 200);
    assert_int_equal(asked_again("account"), 1);
    mem_ledger_account_fault(rig.ledger, MEM_LOSE_BEFORE, 3);
    rig_get(&rig, "/v1/nonce?account=acct:alice", &b);
    assert_code(&b, 503, "unavailable");
    assert_int_equal(asked_again("account"), 3);
    rig_get(&rig, "/v1/nonce?account=acct:alice", &b);
    assert_int_equal(b.status, 200);
    rig_get(&rig, "/v1/tx/tx_00000000000000000000000000000000", &b); /* that there is none is an answer */
    assert_int_equal(asked_again("entry"), 0);
    /* A request that has no time for another try is not kept waiting for one. */
    wallet_rig_restart(&rig,
                       (const char *const[]){"--retry.base=1s", "--retry.max=10s", "--retry.factor=10"}, 3);
    mem_ledger_account_fault(rig.ledger, MEM_LOSE_BEFORE, 2);
    rig_get(&rig, "/v1/nonce?account=acct:alice", &b);
    assert_code(&b, 503, "unavailable");
    assert_int_equal(asked_again("account"), 1);
}

RT_UNCHECKED static void lost_answers_are_found_out_and_nothing_happens_twice(void **state)
{
    static const enum mem_fault faults[] = {MEM_REFUSE, MEM_LOSE_BEFORE, MEM_LOSE_AFTER, MEM_GARBLE,
                                            MEM_DOWN};
    char key[16];
    (void)state;
    ISSUE("i", "acct:alice", "1000");
    for (int n = 1; n <= 2; n++)
        for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
            uint64_t before = mem_ledger_units(rig.ledger);
            int nonce = (int)(n - 1) * 5 + (int)i + 1;
            snprintf(key, sizeof key, "k%d-%zu", n, i);
            mem_ledger_ingest_fault(rig.ledger, faults[i], n);
            PAY(key, "acct:alice", "acct:shop", "1", nonce);
            if (a.status != 200)
                print_error("fault %d n %d: %d %s\n", (int)faults[i], n, a.status, a.body);
            assert_int_equal(a.status, 200);
            assert_int_equal(mem_ledger_units(rig.ledger), before + 1);
            b = a;
            PAY(key, "acct:alice", "acct:shop", "1", nonce);
            assert_string_equal(a.body, b.body);
        }
    assert_true(mem_ledger_conserves(rig.ledger));
}

/* A ledger, or what stands before it, that mixes answers up. What is not about us says nothing about us. */
RT_UNCHECKED static void an_answer_to_another_question_is_no_answer(void **state)
{
    (void)state;
    ISSUE("i", "acct:alice", "1000");
    mem_ledger_ingest_fault(rig.ledger, MEM_OTHERS, 1);
    PAY("k1", "acct:alice", "acct:shop", "1", 1);
    assert_int_equal(a.status, 200);
    assert_string_equal(rig_member(&a, "seq", m1), "2");
    mem_ledger_ingest_fault(rig.ledger, MEM_LOSE_AFTER, 3);
    mem_ledger_unit_fault(rig.ledger, MEM_OTHERS, 2);
    PAY("k2", "acct:alice", "acct:shop", "1", 2);
    assert_int_equal(a.status, 200);
    assert_string_equal(rig_member(&a, "seq", m1), "3");
    b = a;
    wallet_rig_restart(&rig, NULL, 0);
    PAY("k2", "acct:alice", "acct:shop", "1", 2);
    assert_string_equal(a.body, b.body);
    wallet_rig_restart(&rig, NULL, 0);
    mem_ledger_account_fault(rig.ledger, MEM_OTHERS, -1);
    rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron", &a);
    assert_int_equal(a.status, 503);
    mem_ledger_account_fault(rig.ledger, MEM_OK, 0);
    rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron", &a);
    assert_string_equal(rig_member(&a, "available", m1), "998");
    assert_int_equal(mem_ledger_units(rig.ledger), 3);
}

RT_UNCHECKED static void an_outcome_nobody_knows_is_told_as_pending_and_settles(void **state)
{
    static const char *const flags[] = {"--request_timeout=1s", "--ledger.rpc_timeout=300ms"};
    char path[64], txid[256];
    (void)state;
    wallet_rig_restart(&rig, flags, 2);
    ISSUE("i", "acct:alice", "1000");
    assert_int_equal(a.status, 200);
    /* Carried out, every answer and every look lost: nobody can know. */
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL_AFTER, 3);
    mem_ledger_unit_fault(rig.ledger, MEM_LOSE_BEFORE, -1);
    PAY("k", "acct:alice", "acct:shop", "1", 1);
    assert_code(&a, 503, "outcome_pending");
    rig_member(&a, "txid", txid);
    snprintf(path, sizeof path, "/v1/tx/%s", txid);
    assert_string_equal(a.location, path);
    rig_get(&rig, path, &b);
    assert_int_equal(b.status, 202);
    mem_ledger_unit_fault(rig.ledger, MEM_OK, 0);
    do /* the resolver finds it */
        rig_get(&rig, path, &b);
    while (b.status == 202);
    assert_int_equal(b.status, 200);
    PAY("k", "acct:alice", "acct:shop", "1", 1);
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, b.body);

    /* Never carried out, and told as such once ledger time is past its not_after. */
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, 3);
    PAY("k2", "acct:alice", "acct:shop", "1", 2);
    assert_int_equal(a.status, 503);
    mem_ledger_ingest_fault(rig.ledger, MEM_OK, 0);
    if (strcmp(rig_member(&a, "code", m1), "outcome_pending") == 0) {
        snprintf(path, sizeof path, "/v1/tx/%s", rig_member(&a, "txid", txid));
        do
            rig_get(&rig, path, &b);
        while (b.status == 202);
        assert_code(&b, 404, "not_found");
        assert_non_null(strstr(b.body, "not_committed"));
    }
    PAY("k3", "acct:alice", "acct:shop", "1", 2); /* the lane is free again */
    assert_int_equal(a.status, 200);
    assert_int_equal(mem_ledger_units(rig.ledger), 3);
}

RT_UNCHECKED static void a_ledger_that_hangs_is_noticed_and_reads_go_on_with_their_age(void **state)
{
    static const char *const flags[] = {"--circuit_breaker.open_duration=100ms"};
    (void)state;
    wallet_rig_restart(&rig, flags, 1);
    ISSUE("i", "acct:alice", "1000");
    rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron", &a);
    assert_int_equal(a.status, 200);
    mem_ledger_read_fault(rig.ledger, MEM_STALL);
    int64_t began = os_now_ns();
    rig_await_ready(&rig, false);
    print_message("noticed after %d ms; the bar is 200 on a machine that has nothing else to do\n",
                  (int)((os_now_ns() - began) / 1000000));
    int nonce = 0;
    do { /* shed from the second bad probe on */
        char key[16];
        snprintf(key, sizeof key, "k%d", ++nonce);
        PAY(key, "acct:alice", "acct:shop", "1", nonce);
    } while (a.status == 200);
    assert_code(&a, 503, "unavailable");
    assert_true(atoi(a.retry_after) >= 1);
    ISSUE("i", "acct:alice", "1000"); /* a known key is answered whatever the ledger does */
    assert_int_equal(a.status, 200);
    do
        rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron", &a);
    while (a.status == 200 && strcmp(rig_member(&a, "degraded", m1), "true") != 0);
    assert_int_equal(a.status, 200);
    mem_ledger_read_fault(rig.ledger, MEM_OK);
    rig_await_ready(&rig, true);
    do
        PAY("again", "acct:alice", "acct:shop", "1", (int)mem_ledger_last(rig.ledger, "acct:alice", 0) + 1);
    while (a.status == 503);
    assert_int_equal(a.status, 200);
}

RT_UNCHECKED static void a_ledger_between_two_writers_is_asked_again_and_not_shunned(void **state)
{
    static const char *const flags[] = {"--circuit_breaker.failure_threshold=3",
                                        "--circuit_breaker.open_duration=60s"};
    (void)state;
    wallet_rig_restart(&rig, flags, 2);
    ISSUE("i", "acct:alice", "1000");
    assert_int_equal(a.status, 200);
    mem_ledger_ingest_fault(rig.ledger, MEM_NOT_WRITER, -1);
    for (int i = 0; i < 6; i++) { /* twice what would open the breaker */
        PAY("k", "acct:alice", "acct:shop", "1", 1);
        assert_int_equal(a.status, 503);
    }
    assert_true(rig_metric(&rig, "wallet_contract_breaches_total", "") == 0);
    assert_true(rig_metric(&rig, "circuit_open_total", "svc=\"ledger\"") == 0);
    mem_ledger_ingest_fault(rig.ledger, MEM_OK, -1);
    do
        PAY("k", "acct:alice", "acct:shop", "1", 1);
    while (a.status == 503 || a.status == 429);
    assert_int_equal(a.status, 200);
    assert_true(rig_metric(&rig, "circuit_open_total", "svc=\"ledger\"") == 0);
}

RT_UNCHECKED static void assert_writes_stop_for_a_fork(void)
{
    rig_await_ready(&rig, false);
    ISSUE("late", "acct:alice", "1000");
    assert_code(&a, 503, "unavailable");
    assert_string_equal(rig_member(&a, "reason", m1), "fork");
    assert_true(rig_metric(&rig, "wallet_fork_detected_total", "") == 1);
}

RT_UNCHECKED static void a_ledger_that_contradicts_itself_stops_writes(void **state)
{
    (void)state;
    ISSUE("i", "acct:alice", "1000");
    assert_int_equal(a.status, 200);
    mem_ledger_fork(rig.ledger);
    assert_writes_stop_for_a_fork();
}

/* In one process with the ledger no guard of the client stands between: the wallet's own look at the head is what sees it. */
RT_UNCHECKED static void a_ledger_that_forgot_what_it_acknowledged_stops_writes(void **state)
{
    (void)state;
    ISSUE("i", "acct:alice", "1000");
    assert_int_equal(a.status, 200);
    ISSUE("i2", "acct:alice", "1000");
    assert_int_equal(a.status, 200);
    mem_ledger_forget_last(rig.ledger);
    assert_writes_stop_for_a_fork();
}

/* ---- many at once ---- */

struct racer {
    pthread_t thread;
    int index, wins, losses, others;
    char body[2048];
};

RT_UNCHECKED static void *race_nonce(void *arg)
{
    struct racer *r = arg;
    struct rig_answer *x = malloc(sizeof *x);
    char key[32];
    snprintf(key, sizeof key, "race-%d", r->index);
    rig_post(
        &rig, "/v1/transfer", key, x,
        "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"1\",\"nonce\":1}");
    r->wins = x->status == 200;
    r->losses = x->status == 409 && strstr(x->body, "nonce_conflict");
    free(x);
    return NULL;
}

RT_UNCHECKED static void i4_one_nonce_from_twelve_threads_is_spent_once(void **state)
{
    struct racer racers[12] = {0};
    int wins = 0, losses = 0;
    (void)state;
    ISSUE("i", "acct:alice", "1000");
    for (int i = 0; i < 12; i++) {
        racers[i].index = i;
        pthread_create(&racers[i].thread, NULL, race_nonce, &racers[i]);
    }
    for (int i = 0; i < 12; i++) {
        pthread_join(racers[i].thread, NULL);
        wins += racers[i].wins;
        losses += racers[i].losses;
    }
    assert_int_equal(wins, 1);
    assert_int_equal(losses, 11);
    assert_units(mem_ledger_available(rig.ledger, "acct:shop", "ron"), 1);
}

RT_UNCHECKED static void *race_key(void *arg)
{
    struct racer *r = arg;
    struct rig_answer *x = malloc(sizeof *x);
    rig_post(
        &rig, "/v1/transfer", "one-key", x,
        "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"1\",\"nonce\":1}");
    r->wins = x->status == 200;
    strcpy(r->body, x->body);
    free(x);
    return NULL;
}

RT_UNCHECKED static void i1_one_key_from_twelve_threads_pays_once_and_all_get_the_same_bytes(void **state)
{
    struct racer racers[12] = {0};
    (void)state;
    ISSUE("i", "acct:alice", "1000");
    for (int i = 0; i < 12; i++)
        pthread_create(&racers[i].thread, NULL, race_key, &racers[i]);
    for (int i = 0; i < 12; i++) {
        pthread_join(racers[i].thread, NULL);
        assert_true(racers[i].wins);
        assert_string_equal(racers[i].body, racers[0].body);
    }
    assert_units(mem_ledger_available(rig.ledger, "acct:shop", "ron"), 1);
}

RT_UNCHECKED static void a_drain_ends_clean(void **state)
{
    (void)state;
    ISSUE("i", "acct:alice", "1000");
    assert_int_equal(wallet_rig_stop(&rig), 0);
    wallet_rig_restart(&rig, NULL, 0);
}

#define T(fn) RIG_TEST(fn, &rig)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(money_goes_in_around_and_out),
        T(a_release_gives_the_whole_hold_back),
        T(i2_the_same_key_gives_the_same_bytes_also_after_a_restart),
        T(i3_the_same_key_for_another_payment_is_refused_also_after_a_restart),
        T(i6_a_refusal_leaves_nothing_behind),
        T(nonces_that_are_not_next_are_told_which_one_is),
        T(bad_requests_name_the_member),
        T(refusals_of_the_wallet_itself),
        T(i10_capabilities_are_judged_on_every_call_replays_included),
        T(balances_follow_ones_own_writes),
        T(an_account_shows_256_assets_and_every_one_when_it_is_asked_for),
        T(a_transaction_is_found_again_by_who_may_see_it),
        T(a_question_that_got_no_answer_is_put_again),
        T(lost_answers_are_found_out_and_nothing_happens_twice),
        T(an_answer_to_another_question_is_no_answer),
        T(an_outcome_nobody_knows_is_told_as_pending_and_settles),
        T(a_ledger_that_hangs_is_noticed_and_reads_go_on_with_their_age),
        T(a_ledger_between_two_writers_is_asked_again_and_not_shunned),
        T(a_ledger_that_contradicts_itself_stops_writes),
        T(a_ledger_that_forgot_what_it_acknowledged_stops_writes),
        T(i4_one_nonce_from_twelve_threads_is_spent_once),
        T(i1_one_key_from_twelve_threads_pays_once_and_all_get_the_same_bytes),
        T(a_drain_ends_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
