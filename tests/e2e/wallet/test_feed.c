/*
 * The ledger's feed is cut, resumed, and has a hole. Money comes to an account behind the wallet's back each time. However
 * long it takes until that shows: no answer may say that the old balance was still current at a time when it was not.
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
#include "wallet_rig.h"

enum { PATIENCE_MS = 30000 };

static struct wallet_rig rig;
static struct rig_answer a;
static char m[256];

RT_UNCHECKED static void await_feed(bool up)
{
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    const char *feed = up ? "\"feed\":true" : "\"feed\":false";
    const char *degraded = up ? "\"degraded\":false" : "\"degraded\":true";
    do { /* the one is looked at now, the other ten times a second */
        assert_false(deadline_passed(by));
        rig_get(&rig, "/readyz", &a);
    } while (!strstr(a.body, feed) || !strstr(a.body, degraded));
    assert_int_equal(a.status, 200); /* it serves all the same */
}

/* Until alice has `want`; before, an answer must own up to being as old as what happened at `since_ns`. */
RT_UNCHECKED static void await_balance(int want, int64_t since_ns)
{
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    for (;;) {
        int64_t asked_ns = os_now_ns();
        rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron", &a);
        assert_int_equal(a.status, 200);
        if (atoi(rig_member(&a, "available", m)) == want)
            return;
        int64_t old_ms = strtoll(rig_member(&a, "stale_ms", m), NULL, 10);
        if (old_ms + 1 < (asked_ns - since_ns) / 1000000)
            fail_msg("%s when that was over for %lld ms", a.body,
                     (long long)((asked_ns - since_ns) / 1000000));
        assert_false(deadline_passed(by));
    }
}

RT_UNCHECKED static void begin(void)
{
    rig_post(&rig, "/v1/issue", "i", &a, "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"10\"}");
    assert_int_equal(a.status, 200);
    await_feed(true);
    await_balance(10, os_now_ns());
}

RT_UNCHECKED static void a_cut_feed_makes_no_balance_older_than_it_says(void **state)
{
    (void)state;
    begin();
    mem_ledger_feed(rig.ledger, false);
    mem_ledger_mint(rig.ledger, "m1", "acct:alice", "ron",
                    5); /* maybe before the wallet knows of the cut */
    await_balance(15, os_now_ns());
    await_feed(false);
    for (int i = 0; i < 3; i++) {
        char idem[16];
        snprintf(idem, sizeof idem, "n%d", i);
        mem_ledger_mint(rig.ledger, idem, "acct:alice", "ron", 5);
        await_balance(20 + 5 * i, os_now_ns());
    }
    /* Who knows the seq need not wait. */
    char path[96];
    mem_ledger_mint(rig.ledger, "m2", "acct:alice", "ron", 5);
    snprintf(path, sizeof path, "/v1/balance?account=acct:alice&asset=ron&min_seq=%llu",
             (unsigned long long)mem_ledger_head(rig.ledger));
    rig_get(&rig, path, &a);
    assert_int_equal(a.status, 200);
    assert_string_equal(rig_member(&a, "available", m), "35");
}

RT_UNCHECKED static void a_resumed_feed_vouches_for_balances_again(void **state)
{
    (void)state;
    begin();
    mem_ledger_feed(rig.ledger, false);
    await_feed(false);
    mem_ledger_mint(rig.ledger, "missed", "acct:alice", "ron", 5);
    int64_t since_ns = os_now_ns();
    mem_ledger_feed(rig.ledger, true);
    await_feed(true);
    await_balance(15, since_ns);
    mem_ledger_mint(rig.ledger, "told", "acct:alice", "ron", 5);
    await_balance(20, os_now_ns());
    /* An idle ledger keeps it fresh: in the end the answer comes from memory. */
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    double hits = rig_metric(&rig, "wallet_cache_total", "result=\"hit\"");
    while (rig_metric(&rig, "wallet_cache_total", "result=\"hit\"") == hits) {
        assert_false(deadline_passed(by));
        await_balance(20, os_now_ns());
    }
}

RT_UNCHECKED static void a_hole_in_the_feed_makes_everything_suspect(void **state)
{
    (void)state;
    begin();
    mem_ledger_mint_untold(rig.ledger, "lost", "acct:alice", "ron", 5);
    int64_t since_ns = os_now_ns();
    mem_ledger_mint(rig.ledger, "next", "acct:bob", "ron", 5); /* the hole shows with this one */
    await_balance(15, since_ns);
    mem_ledger_mint_untold(rig.ledger, "last", "acct:alice", "ron",
                           5); /* and nothing comes after this one */
    await_balance(20, os_now_ns());
    await_feed(true);
}

RT_UNCHECKED static void remembers(const char *available)
{
    rig_get(&rig, "/v1/balance?account=acct:alice&asset=ron", &a);
    assert_int_equal(a.status, 200);
    assert_string_equal(rig_member(&a, "available", m), available);
}

RT_UNCHECKED static int pays(const char *key, int amount, int nonce)
{
    rig_post(
        &rig, "/v1/transfer", key, &a,
        "{\"from\":\"acct:alice\",\"to\":\"acct:shop\",\"asset\":\"ron\",\"amount\":\"%d\",\"nonce\":%d}",
        amount, nonce);
    return a.status;
}

/* Balances cannot be read for a while, so what is remembered is wrong: too little first, then too much. */
RT_UNCHECKED static void i8_a_remembered_balance_neither_allows_nor_refuses_a_payment(void **state)
{
    (void)state;
    begin();
    mem_ledger_account_fault(rig.ledger, MEM_REFUSE, -1);
    mem_ledger_mint_untold(rig.ledger, "more", "acct:alice", "ron", 90);
    remembers("10");
    assert_int_equal(pays("above", 50, 1), 200);
    mem_ledger_account_fault(rig.ledger, MEM_OK, -1);
    await_balance(50, os_now_ns());
    mem_ledger_account_fault(rig.ledger, MEM_REFUSE, -1);
    mem_ledger_burn_untold(rig.ledger, "less", "acct:alice", "ron", 45, 2);
    remembers("50");
    assert_int_equal(pays("below", 20, 3), 409);
    assert_string_equal(rig_member(&a, "code", m), "insufficient_funds");
    remembers("50");
    assert_int_equal(pays("below", 5, 3), 200); /* the refusal bound neither key nor nonce */
    assert_true(mem_ledger_conserves(rig.ledger));
}

#define T(fn) RIG_TEST(fn, &rig)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_cut_feed_makes_no_balance_older_than_it_says),
        T(a_resumed_feed_vouches_for_balances_again),
        T(a_hole_in_the_feed_makes_everything_suspect),
        T(i8_a_remembered_balance_neither_allows_nor_refuses_a_payment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
