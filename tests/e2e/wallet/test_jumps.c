/*
 * The wall clock of the wallet's machine jumps by an hour, forwards and back, while operations are open: nothing is committed
 * twice, nothing stays stuck, no balance is lost, and time limits go on counting. The ledger is on another machine, whose clock
 * does not jump; where both jump, a test says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/time_fmt.h"
#include "wallet_rig.h"

enum { HOUR_MS = 3600 * 1000 };

static struct wallet_rig rig;
static struct clock_manual steady; /* the ledger's */
static struct rig_answer a, b;
static char m1[256];

static const char pay[] =
    "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"5\",\"nonce\":%u}";

static void jump(int64_t ms)
{
    clock_manual_set_wall_ms(&rig.clock, clock_wall_ms(&rig.clock.clock) + ms);
}

/* Both clocks by as much. */
static void pass(int64_t ms)
{
    int64_t since = rig_now_ns(&rig);
    clock_manual_advance_ms(&steady, ms);
    rig_move_to(&rig, since, ms);
}

RT_UNCHECKED static void paid(const char *key, unsigned nonce)
{
    rig_post(&rig, "/v1/transfer", key, &a, pay, nonce);
    if (a.status != 200)
        fail_msg("%s: %d %s", key, a.status, a.body);
}

RT_UNCHECKED static void an_open_operation_survives(int64_t ms)
{
    struct raw_conn c;
    char body[256];
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL_AFTER,
                            1); /* carried out, and nobody hears of it in time */
    snprintf(body, sizeof body, pay, 1);
    rig_ask(&rig, &c, "POST", "/v1/transfer", "open", body);
    rig_await_metric(&rig, "worker_inflight", "", 1);
    jump(ms);
    pass(1100); /* the call's time limit */
    rig_await_metric(&rig, "backoff_retries_total", "op=\"ingest\"", 1);
    pass(100); /* the pause before the next try: 50 ms and at most 20 more */
    rig_answered(&c, 200, "\"op\":\"transfer\"");
    rig_post(&rig, "/v1/transfer", "open", &a, pay, 1U);
    jump(-ms);
    rig_post(&rig, "/v1/transfer", "open", &b, pay, 1U);
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, b.body);
    assert_int_equal(mem_ledger_last(rig.ledger, "acct:alice", 0), 1);
    assert_int_equal((uint64_t)mem_ledger_available(rig.ledger, "acct:shop", "ron").units, 5);
    paid("next", 2);
}

RT_UNCHECKED static void an_operation_that_was_open_when_the_clock_jumped_ahead_commits_once(void **state)
{
    (void)state;
    an_open_operation_survives(HOUR_MS);
}

RT_UNCHECKED static void an_operation_that_was_open_when_the_clock_jumped_back_commits_once(void **state)
{
    (void)state;
    an_open_operation_survives(-HOUR_MS);
}

/* Until the next probe the wallet counts with the ledger's time before the jump. */
static void ledger_jumps(int64_t ms)
{
    clock_manual_set_wall_ms(&steady, clock_wall_ms(&steady.clock) + ms);
    uint64_t heads = mem_ledger_heads(rig.ledger);
    struct deadline by = deadline_in_ms(30000);
    while (mem_ledger_heads(rig.ledger) < heads + 2) {
        assert_false(deadline_passed(by));
        pass(100);
    }
}

/* What was never carried out is known not to be once the ledger's own clock says so, whatever ours says. */
RT_UNCHECKED static void a_doubt_is_settled(int64_t ms)
{
    struct raw_conn c;
    char body[256];
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL, -1);
    mem_ledger_unit_fault(rig.ledger, MEM_LOSE_BEFORE, -1);
    snprintf(body, sizeof body, pay, 1);
    rig_ask(&rig, &c, "POST", "/v1/transfer", "lost", body);
    rig_await_metric(&rig, "worker_inflight", "", 1);
    jump(ms);
    for (int i = 0; i < 12; i++)
        pass(500);
    rig_answered(&c, 503, "outcome_pending");
    mem_ledger_ingest_fault(rig.ledger, MEM_OK, 0);
    mem_ledger_unit_fault(rig.ledger, MEM_OK, 0);
    struct deadline by = deadline_in_ms(30000);
    int64_t since = rig_now_ns(&rig);
    while (rig_metric(&rig, "wallet_ops_total", "op=\"transfer\",outcome=\"not_committed\"") < 1) {
        assert_false(deadline_passed(by));
        pass(500); /* the resolver's pauses are in this time */
    }
    assert_true(rig_now_ns(&rig) - since < (int64_t)HOUR_MS / 2 * 1000000);
    assert_int_equal(mem_ledger_last(rig.ledger, "acct:alice", 0), 0);
    paid("lost", 1); /* neither its key nor its nonce is used up */
    paid("next", 2);
    assert_true(mem_ledger_conserves(rig.ledger));
}

RT_UNCHECKED static void a_doubt_is_settled_after_a_jump_ahead(void **state)
{
    (void)state;
    a_doubt_is_settled(HOUR_MS);
}

RT_UNCHECKED static void a_doubt_is_settled_after_a_jump_back(void **state)
{
    (void)state;
    a_doubt_is_settled(-HOUR_MS);
}

/* A ledger that was started anew on a clock that had been set back: its time is another one, and counts at once. */
RT_UNCHECKED static void a_doubt_is_settled_when_the_ledgers_time_went_back(void **state)
{
    (void)state;
    ledger_jumps(-HOUR_MS);
    a_doubt_is_settled(0);
}

RT_UNCHECKED static void a_hold_is_captured_and_released_across_jumps(void **state)
{
    static const char hold[] =
        "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"7\","
        "\"nonce\":%u,\"expires_in\":1800}";
    char txid[2][64];
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        rig_post(&rig, "/v1/hold", i ? "h2" : "h1", &a, hold, i + 1);
        assert_int_equal(a.status, 200);
        snprintf(txid[i], sizeof txid[i], "%s", rig_member(&a, "txid", m1));
    }
    jump(
        HOUR_MS); /* past what the holds say; whether they have ended is for the ledger to say, and it says no */
    rig_post(&rig, "/v1/capture", "c1", &a, "{\"hold\":\"%s\"}", txid[0]);
    assert_int_equal(a.status, 200);
    jump(-2 * HOUR_MS);
    rig_post(&rig, "/v1/release", "r2", &a, "{\"hold\":\"%s\"}", txid[1]);
    assert_int_equal(a.status, 200);
    rig_post(&rig, "/v1/release", "r3", &a, "{\"hold\":\"%s\"}", txid[0]);
    assert_string_equal(rig_member(&a, "code", m1), "hold_settled");
    rig_post(&rig, "/v1/capture", "c1", &b, "{\"hold\":\"%s\"}", txid[0]);
    assert_int_equal(b.status, 200);
    assert_int_equal((uint64_t)mem_ledger_held(rig.ledger, "acct:alice", "ron").units, 0);
    assert_int_equal((uint64_t)mem_ledger_available(rig.ledger, "acct:shop", "ron").units, 7);
    assert_true(mem_ledger_conserves(rig.ledger));
}

/* The one thing that must follow the wall clock at once, both ways; what was verified before is not trusted longer. */
RT_UNCHECKED static void
a_token_ends_when_the_clock_says_so_and_is_good_again_when_it_does_not(void **state)
{
    char text[TIME_FMT_CHARS], caveat[64], token[4096];
    const char *const caveats[] = {caveat};
    (void)state;
    time_format_ms(clock_wall_ms(&rig.clock.clock) + HOUR_MS / 2, text);
    snprintf(caveat, sizeof caveat, "exp < %s", text);
    rig_narrow(&rig, caveats, 1, token);
    for (int i = 0; i < 3; i++) {
        rig_call(&rig, "GET", "/v1/nonce?account=acct:alice", NULL, token, NULL, &a);
        assert_int_equal(a.status, 200);
        jump(HOUR_MS);
        rig_call(&rig, "GET", "/v1/nonce?account=acct:alice", NULL, token, NULL, &a);
        assert_int_equal(a.status, 401);
        jump(-HOUR_MS);
    }
}

/* Ages and time limits count on a clock that does not jump. */
RT_UNCHECKED static void a_balance_is_as_old_as_it_is(void **state)
{
    static const char path[] = "/v1/balance?account=acct:alice&asset=ron";
    static const int64_t steps[] = {HOUR_MS, -HOUR_MS, -HOUR_MS, HOUR_MS};
    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        rig_get(&rig, path, &a);
        assert_int_equal(a.status, 200);
        jump(steps[i]);
        rig_get(&rig, path, &a);
        assert_int_equal(a.status, 200);
        assert_string_equal(rig_member(&a, "degraded", m1), "false");
        assert_string_equal(rig_member(&a, "available", m1), "1000");
        assert_true(strlen(rig_member(&a, "stale_ms", m1)) <= 3); /* at most the window */
    }
}

/* Both machines jump ahead: a unit on its way is too late for the ledger's clock, which is said, and nothing has moved. */
RT_UNCHECKED static void when_the_ledgers_clock_jumps_too_payments_go_on(void **state)
{
    (void)state;
    paid("before", 1);
    snprintf(b.body, sizeof b.body, "%s", a.body);
    static const int64_t steps[] = {HOUR_MS, -HOUR_MS};
    for (unsigned i = 0; i < 2; i++) {
        char key[16];
        jump(steps[i]);
        ledger_jumps(steps[i]);
        snprintf(key, sizeof key, "after-%u", i);
        paid(key, 2 + i);
        rig_post(&rig, "/v1/transfer", "before", &a, pay, 1U);
        assert_string_equal(a.body, b.body);
    }
    assert_int_equal(mem_ledger_last(rig.ledger, "acct:alice", 0), 3);
    assert_true(mem_ledger_conserves(rig.ledger));
}

/* To this many ms after the next midnight, UTC; negative: before it. */
static void jump_to_midnight(int64_t ms)
{
    int64_t day = 24 * (int64_t)HOUR_MS, now = clock_wall_ms(&rig.clock.clock);
    jump((now / day + 1) * day + ms - now);
}

RT_UNCHECKED static void pays_today(const char *token, const char *key, unsigned amount, unsigned nonce,
                                    bool allowed)
{
    char body[256];
    snprintf(
        body, sizeof body,
        "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"%u\",\"nonce\":%u}",
        amount, nonce);
    rig_call(&rig, "POST", "/v1/transfer", key, token, body, &a);
    if (a.status != (allowed ? 200 : 403))
        fail_msg("%s: %d %s", key, a.status, a.body);
    if (!allowed)
        assert_string_equal(rig_member(&a, "limit", m1), "cap_daily");
}

/* What is spent on a day is spent, also when the clock was on the next one in between. */
RT_UNCHECKED static void
a_daily_allowance_is_not_had_twice_when_the_clock_goes_over_midnight_and_back(void **state)
{
    static const char *const caveats[] = {"op in transfer", "daily <= 100"};
    char token[4096];
    (void)state;
    rig_narrow(&rig, caveats, 2, token);
    jump_to_midnight(-HOUR_MS / 4);
    pays_today(token, "d1", 60, 1, true);
    jump(HOUR_MS);
    pays_today(token, "d2", 70, 2, true); /* a new day */
    pays_today(token, "d3", 31, 3, false);
    jump(-HOUR_MS);
    pays_today(token, "d4", 41, 3, false);
    pays_today(token, "d5", 40, 3, true);
    pays_today(token, "d6", 1, 4, false);
    jump(HOUR_MS);
    jump(-HOUR_MS);
    pays_today(token, "d7", 1, 4, false);
    jump(HOUR_MS); /* and the next day has begun before */
    pays_today(token, "d8", 31, 4, false);
    pays_today(token, "d9", 30, 4, true);
    assert_int_equal((uint64_t)mem_ledger_available(rig.ledger, "acct:shop", "ron").units, 200);
}

/* The next day comes of itself, after it was there for a while because the clock was wrong: its first payments are from before. */
RT_UNCHECKED static void a_day_that_the_clock_was_on_too_early_is_not_had_twice(void **state)
{
    static const char *const caveats[] = {"op in transfer", "daily <= 100"};
    char token[4096];
    (void)state;
    rig_narrow(&rig, caveats, 2, token);
    jump_to_midnight(-HOUR_MS * 11 / 12);
    ledger_jumps(clock_wall_ms(&rig.clock.clock) - clock_wall_ms(&steady.clock));
    pays_today(token, "d1", 60, 1, true);
    jump(HOUR_MS);
    pays_today(token, "d2", 70, 2, true);
    jump(-HOUR_MS);
    pays_today(token, "d3", 41, 3, false);
    jump(HOUR_MS);
    ledger_jumps(HOUR_MS);
    pays_today(token, "d4", 31, 3, false);
    pays_today(token, "d5", 30, 3, true);
}

/* The same, and whoever counted is gone. */
RT_UNCHECKED static void a_day_that_the_clock_was_on_before_a_restart_is_not_had_twice(void **state)
{
    static const char *const caveats[] = {"op in transfer", "daily <= 100"}, *const flags[] = {
                                                                                 "http.threads=1"};
    char token[4096];
    (void)state;
    jump_to_midnight(-HOUR_MS / 4);
    ledger_jumps(clock_wall_ms(&rig.clock.clock) - clock_wall_ms(&steady.clock));
    rig_narrow(&rig, caveats, 2, token);
    pays_today(token, "d1", 60, 1, true);
    jump(HOUR_MS);
    pays_today(token, "d2", 70, 2, true);
    jump(-HOUR_MS);
    wallet_rig_restart(&rig, flags, 1);
    pays_today(token, "d3", 41, 3, false);
    jump(HOUR_MS);
    pays_today(token, "d4", 31, 3, false);
    pays_today(token, "d5", 30, 3, true);
}

/* The janitor throws away what was counted for a day that is over, whether or not anybody paid on the next. */
RT_UNCHECKED static void a_day_whose_counters_were_swept_is_added_up_again(void **state)
{
    static const char *const caveats[] = {"op in transfer", "daily <= 100"};
    char token[4096];
    (void)state;
    rig_narrow(&rig, caveats, 2, token);
    jump_to_midnight(-HOUR_MS / 4);
    pays_today(token, "d1", 60, 1, true);
    jump(HOUR_MS);
    for (unsigned i = 0; i < 2;
         i++) { /* it counts receipts, then sweeps: at the second count it has swept */
        char key[8];
        snprintf(key, sizeof key, "i%u", i);
        rig_post(&rig, "/v1/issue", key, &a, "{\"to\":\"acct:bob\",\"asset\":\"ron\",\"amount\":\"1\"}");
        assert_int_equal(a.status, 200);
        rig_await_metric(&rig, "wallet_idem_entries", "", 3 + i); /* the funding, d1 and these */
    }
    jump(-HOUR_MS);
    pays_today(token, "d2", 41, 2, false);
    pays_today(token, "d3", 40, 2, true);
}

/* A ledger whose time is an hour behind has the first hour of our day in the day before. */
RT_UNCHECKED static void what_was_spent_counts_after_a_restart_though_the_ledger_is_behind(void **state)
{
    static const char *const caveats[] = {"op in transfer", "daily <= 100"}, *const flags[] = {
                                                                                 "http.threads=1"};
    char token[4096];
    (void)state;
    jump_to_midnight(HOUR_MS / 4);
    ledger_jumps(clock_wall_ms(&rig.clock.clock) - HOUR_MS - clock_wall_ms(&steady.clock));
    rig_narrow(&rig, caveats, 2, token);
    pays_today(token, "d1", 60, 1, true);
    wallet_rig_restart(&rig, flags, 1);
    pays_today(token, "d2", 41, 2, false);
    pays_today(token, "d3", 40, 2, true);
}

/* As many accounts in a day as there are counters: some find their share of them full. Whoever is not counted has not spent nothing. */
RT_UNCHECKED static void a_day_with_more_accounts_than_counters_gives_nobody_more(void **state)
{
    enum { ACCOUNTS = 65000, ASKED = 2000 };
    static const char *const caveats[] = {"daily <= 10"}, *const flags[] = {"http.threads=1"};
    char token[4096], name[32], body[128];
    unsigned busy = 0;
    (void)state;
    for (unsigned i = 0; i < ACCOUNTS; i++) {
        snprintf(name, sizeof name, "acct:n%u", i);
        mem_ledger_mint_untold(rig.ledger, name, name, "ron", 10);
    }
    wallet_rig_restart(&rig, flags, 1);
    rig_narrow(&rig, caveats, 1, token);
    for (unsigned i = ACCOUNTS - ASKED; i < ACCOUNTS;
         i++) { /* the last ones: those that found no counter are among them */
        snprintf(name, sizeof name, "acct:n%u", i);
        snprintf(body, sizeof body, "{\"to\":\"%s\",\"asset\":\"ron\",\"amount\":\"1\"}", name);
        rig_call(&rig, "POST", "/v1/issue", name, token, body, &a);
        if (a.status != 403 && a.status != 429)
            fail_msg("%s: %d %s", name, a.status, a.body);
        busy += a.status == 429;
    }
    assert_true(busy > 0 && busy < ASKED);
}

RT_UNCHECKED static int open_all(void **state)
{
    (void)state;
    wallet_rig_open_driven(&rig, (const char *const[]){"metrics_tick=100ms"}, 1);
    clock_manual_init(&steady, clock_wall_ms(&rig.clock.clock));
    steady.mono_ns = rig_now_ns(&rig);
    mem_ledger_drive(rig.ledger, &steady.clock);
    rig_post(&rig, "/v1/issue", "fund", &a,
             "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"1000\"}");
    assert_int_equal(a.status, 200);
    return 0;
}

#define T(fn) RIG_TEST_OPENED(fn, open_all, &rig)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(an_operation_that_was_open_when_the_clock_jumped_ahead_commits_once),
        T(an_operation_that_was_open_when_the_clock_jumped_back_commits_once),
        T(a_doubt_is_settled_after_a_jump_ahead),
        T(a_doubt_is_settled_after_a_jump_back),
        T(a_doubt_is_settled_when_the_ledgers_time_went_back),
        T(a_hold_is_captured_and_released_across_jumps),
        T(a_token_ends_when_the_clock_says_so_and_is_good_again_when_it_does_not),
        T(a_balance_is_as_old_as_it_is),
        T(when_the_ledgers_clock_jumps_too_payments_go_on),
        T(a_daily_allowance_is_not_had_twice_when_the_clock_goes_over_midnight_and_back),
        T(a_day_that_the_clock_was_on_too_early_is_not_had_twice),
        T(a_day_that_the_clock_was_on_before_a_restart_is_not_had_twice),
        T(a_day_whose_counters_were_swept_is_added_up_again),
        T(what_was_spent_counts_after_a_restart_though_the_ledger_is_behind),
        T(a_day_with_more_accounts_than_counters_gives_nobody_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
