/*
 * Every operation against every kind of caveat, twice: with a value that covers it and with one that does not. A caveat that
 * cannot concern an operation leaves it alone, except that a token bound to payees cannot burn; what a caveat refuses leaves
 * nothing behind, and an operation that it allows moves exactly what it says. (A word that nobody knows cannot be minted here:
 * tests/interop/wallet/tokens.test has it from others.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "wallet_rig.h"

enum op { ISSUE, TRANSFER, BURN, HOLD, CAPTURE, RELEASE, BALANCE, ACCOUNTS, NONCE, TX, OPS };

static const char *const op_names[OPS] = {"issue",   "transfer", "burn",     "hold",  "capture",
                                          "release", "balance",  "accounts", "nonce", "tx"};

/* What is told: OK, or the code, or the reason or limit of its details. */
#define OK "ok"
#define ALL(x)                                                                                             \
    {                                                                                                      \
        x, x, x, x, x, x, x, x, x, x                                                                       \
    }

static const struct row {
    const char *caveat;
    const char *told[OPS]; /* issue, transfer, burn, hold, capture, release, balance, accounts, nonce, tx */
} rows[] = {
    {"aud = svc-wallet", ALL(OK)},
    {"aud = ron-ledger", ALL("aud")},
    {"exp < 2090-01-01T00:00:00Z", ALL(OK)},
    {"exp < 2020-01-01T00:00:00Z", ALL("expired")},
    {"nbf > 2020-01-01T00:00:00Z", ALL(OK)},
    {"nbf > 2090-01-01T00:00:00Z", ALL("not_yet")},
    {"op in issue", {OK, "op", "op", "op", "op", "op", "op", "op", "op", "op"}},
    {"op in transfer", {"op", OK, "op", "op", "op", "op", "op", "op", "op", "op"}},
    {"op in burn", {"op", "op", OK, "op", "op", "op", "op", "op", "op", "op"}},
    {"op in hold", {"op", "op", "op", OK, "op", "op", "op", "op", "op", "op"}},
    {"op in capture", {"op", "op", "op", "op", OK, "op", "op", "op", "op", "op"}},
    {"op in release", {"op", "op", "op", "op", "op", OK, "op", "op", "op", "op"}},
    {"op in read", {"op", "op", "op", "op", "op", "op", OK, OK, OK, OK}},
    {"op in admin", ALL("op")},
    {"op in *", {"op", OK, OK, OK, OK, OK, OK, OK, OK, OK}}, /* issuing must be spelled out */
    /* Who acts: the payer, who is issued to, the payee of a hold, who is asked about; of a receipt, either side. */
    {"account in acct:payer", {"account", OK, OK, OK, "account", "account", OK, OK, OK, OK}},
    {"account in acct:shop",
     {OK, "account", "account", "account", OK, OK, "account", "account", "account", OK}},
    {"account in acct:s*,acct:p*", ALL(OK)},
    {"account in acct:eve",
     {"account", "account", "account", "account", "account", "account", "account", "account", "account",
      "not_found"}},
    {"to in acct:shop", {OK, OK, "payee", OK, OK, OK, OK, OK, OK, OK}},
    {"to in acct:eve", {"payee", "payee", "payee", "payee", "payee", OK, OK, OK, OK, OK}},
    {"asset in ron", ALL(OK)},
    {"asset in gold", {"asset", "asset", "asset", "asset", "asset", "asset", "asset", OK, OK, "not_found"}},
    {"max_amount <= 2", ALL(OK)},
    {"max_amount <= 1",
     {"cap_max_amount", "cap_max_amount", "cap_max_amount", "cap_max_amount", "cap_max_amount", OK, OK, OK,
      OK, OK}},
    {"daily <= 2", ALL(OK)},
    {"daily <= 1", {"cap_daily", "cap_daily", "cap_daily", "cap_daily", OK, OK, OK, OK, OK, OK}},
    {"ip in 127.0.0.0/8", ALL(OK)},
    {"ip in 10.0.0.0/8", ALL("ip")},
    {"bytes <= 4096", ALL(OK)},
    {"bytes <= 3", {"bytes", "bytes", "bytes", "bytes", "bytes", "bytes", OK, OK, OK, OK}},
    {"rate <= 1000/s", ALL(OK)},
    {"tenant = default", ALL(OK)},
    {"topic in orders", ALL("caveat")}, /* nothing here has a topic: not understood, so it denies */
};

static struct wallet_rig rig;
static struct rig_answer a;
static char m1[256];
static unsigned cell, nonce;
static uint64_t issued, burned;

__attribute__((format(printf, 3, 4))) RT_UNCHECKED static void say(const char *path, const char *token,
                                                                   const char *fmt, ...)
{
    char body[512], key[32];
    va_list args;
    va_start(args, fmt);
    vsnprintf(body, sizeof body, fmt, args);
    va_end(args);
    snprintf(key, sizeof key, "cell-%u", cell++);
    rig_call(&rig, "POST", path, key, token, body, &a);
}

RT_UNCHECKED static void hold(const char *token)
{
    say("/v1/hold", token,
        "{\"from\":\"acct:payer\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"2\",\"nonce\":%u}",
        nonce + 1);
    nonce += a.status == 200;
}

RT_UNCHECKED static void settle(const char *path, const char *token)
{
    char txid[64];
    hold(NULL);
    assert_int_equal(a.status, 200);
    snprintf(txid, sizeof txid, "%s", rig_member(&a, "txid", m1));
    say(path, token, "{\"hold\":\"%s\"}", txid);
}

RT_UNCHECKED static void read_of(const char *path, const char *token)
{
    rig_call(&rig, "GET", path, NULL, token, NULL, &a);
}

RT_UNCHECKED static void try_op(enum op op, const char *token, const char *txid)
{
    char path[128];
    switch (op) {
    case ISSUE:
        say("/v1/issue", token, "{\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"2\"}");
        issued += a.status == 200 ? 2 : 0;
        return;
    case TRANSFER:
        say("/v1/transfer", token,
            "{\"from\":\"acct:payer\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"2\",\"nonce\":%"
            "u}",
            nonce + 1);
        nonce += a.status == 200;
        return;
    case BURN:
        say("/v1/burn", token, "{\"from\":\"acct:payer\",\"asset\":\"ron\",\"amount\":\"2\",\"nonce\":%u}",
            nonce + 1);
        nonce += a.status == 200;
        burned += a.status == 200 ? 2 : 0;
        return;
    case HOLD:
        hold(token);
        return;
    case CAPTURE:
        settle("/v1/capture", token);
        return;
    case RELEASE:
        settle("/v1/release", token);
        return;
    case BALANCE:
        read_of("/v1/balance?account=acct:payer&asset=ron", token);
        return;
    case ACCOUNTS:
        read_of("/v1/accounts/acct:payer", token);
        return;
    case NONCE:
        read_of("/v1/nonce?account=acct:payer", token);
        return;
    case TX:
        snprintf(path, sizeof path, "/v1/tx/%s", txid);
        read_of(path, token);
        return;
    case OPS:
        break;
    }
    fail();
}

static const char *told(void)
{
    if (a.status == 200)
        return OK;
    const char *word = rig_member(&a, "limit", m1);
    if (!*word)
        word = rig_member(&a, "reason", m1);
    return *word ? word : rig_member(&a, "code", m1);
}

static void assert_status_fits(const char *word)
{
    bool untimely = strcmp(word, "expired") == 0 || strcmp(word, "not_yet") == 0;
    int status = strcmp(word, OK) == 0 ? 200 : untimely ? 401 : strcmp(word, "not_found") == 0 ? 404 : 403;
    assert_int_equal(a.status, status);
}

RT_UNCHECKED static void each_operation_is_judged_by_each_caveat(void **state)
{
    char txid[64], token[4096];
    unsigned moved = 0;
    (void)state;
    /* What was spent before the first limited operation counts against every limit: here that is nothing. */
    const char *const first[] = {"daily <= 100000"};
    rig_narrow(&rig, first, 1, token);
    say("/v1/issue", token, "{\"to\":\"acct:payer\",\"asset\":\"ron\",\"amount\":\"100000\"}");
    assert_int_equal(a.status, 200);
    issued += 100000;
    try_op(TRANSFER, NULL, NULL);
    snprintf(txid, sizeof txid, "%s", rig_member(&a, "txid", m1));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (enum op op = 0; op < OPS; op++) {
            /* A daily allowance is counted for each caveat: a token of its own for each cell. */
            char own[64];
            snprintf(own, sizeof own, "bytes <= %zu", 100000 + i * OPS + op);
            const char *const caveats[] = {own, rows[i].caveat};
            rig_narrow(&rig, caveats, 2, token);
            uint64_t units = mem_ledger_units(rig.ledger);
            try_op(op, token, txid);
            if (strcmp(told(), rows[i].told[op]) != 0)
                fail_msg("%s under \"%s\": %s, not %s: %s", op_names[op], rows[i].caveat, told(),
                         rows[i].told[op], a.body);
            assert_status_fits(rows[i].told[op]);
            bool writes = op <= RELEASE && a.status == 200, prepared = op == CAPTURE || op == RELEASE;
            assert_int_equal(mem_ledger_units(rig.ledger), units + writes + prepared);
            moved += writes;
        }
    assert_true(moved > 50);
    assert_int_equal(mem_ledger_last(rig.ledger, "acct:payer", 0), nonce);
    assert_true(mem_ledger_conserves(rig.ledger));
    uint64_t sum = 0;
    const char *const accounts[] = {"acct:payer", "acct:shop"};
    for (size_t i = 0; i < 2; i++)
        sum += (uint64_t)mem_ledger_available(rig.ledger, accounts[i], "ron").units +
               (uint64_t)mem_ledger_held(rig.ledger, accounts[i], "ron").units;
    assert_int_equal(sum, issued - burned);
}

/* The same capability is judged again when a receipt is asked for a second time. */
RT_UNCHECKED static void i10_a_replay_is_judged_like_the_first_time(void **state)
{
    static const char body[] = "{\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"2\"}";
    char token[4096];
    (void)state;
    rig_call(&rig, "POST", "/v1/issue", "again", NULL, body, &a);
    assert_int_equal(a.status, 200);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool counted = strncmp(rows[i].caveat, "daily", 5) == 0; /* a replay spends nothing */
        rig_narrow(&rig, &rows[i].caveat, 1, token);
        rig_call(&rig, "POST", "/v1/issue", "again", token, body, &a);
        if (strcmp(told(), counted ? OK : rows[i].told[ISSUE]) != 0)
            fail_msg("replayed under \"%s\": %s", rows[i].caveat, told());
    }
}

RT_UNCHECKED static void a_rate_lets_through_what_it_says_and_then_tells_to_wait(void **state)
{
    const char *const slow[] = {"rate <= 1/s"};
    char token[4096];
    int ok = 0, late = 0;
    (void)state;
    rig_narrow(&rig, slow, 1, token);
    for (int i = 0; i < 100 && !late; i++) {
        read_of("/v1/nonce?account=acct:payer", token);
        assert_true(a.status == 200 || a.status == 429);
        ok += a.status == 200;
        late += a.status == 429;
    }
    assert_true(ok >= 1 && late == 1);
    assert_string_equal(rig_member(&a, "code", m1), "rate_limited");
    assert_true(a.retry_after[0] >= '1');
}

RT_UNCHECKED static void two_tenants_in_one_token_are_none(void **state)
{
    const char *const two[] = {"tenant = t1", "tenant = t2"};
    char token[4096];
    (void)state;
    rig_narrow(&rig, two, 2, token);
    for (enum op op = ISSUE; op <= BURN; op++) {
        try_op(op, token, NULL);
        assert_int_equal(a.status, 403);
        assert_string_equal(told(), "tenant");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(each_operation_is_judged_by_each_caveat, &rig),
        RIG_TEST(i10_a_replay_is_judged_like_the_first_time, &rig),
        RIG_TEST(a_rate_lets_through_what_it_says_and_then_tells_to_wait, &rig),
        RIG_TEST(two_tenants_in_one_token_are_none, &rig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
