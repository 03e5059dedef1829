/*
 * A client that has seen a ledger knows it again: it refuses one that went back, one that tells another history (shorter, as long,
 * longer), and takes one back that only restarted. Over both wires.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ledger_rig.h"
#include "waiting.h"

static const enum rig_transport wires[] = {RIG_HTTP, RIG_OAP_UNIX};

/* At addresses that it can come back to, so that a client finds what is started there. */
static void open_pinned(struct ledger_rig *r, bool amnesia)
{
    char http[40], oap[40];
    const char *flags[] = {http, oap};
    snprintf(http, sizeof http, "bind=127.0.0.1:%d", rig_quiet_port());
    snprintf(oap, sizeof oap, "oap.bind=127.0.0.1:%d", rig_quiet_port());
    ledger_rig_open(r, amnesia, flags, 2);
}

static void mint_some(struct rig_client *c, const char *story, int n)
{
    for (int i = 0; i < n; i++) {
        struct rig_unit u;
        struct rig_reply a;
        char name[64];
        snprintf(name, sizeof name, "%s-%d", story, i);
        rig_mint(&u, name, "acct:alice", 1);
        struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
        rig_ingest(c, &rq, 5000, &a);
        assert_int_equal(a.outcome, LEDGER_ANSWERED);
        assert_int_equal(a.v[0].status, LEDGER_COMMITTED);
    }
}

/* A fresh ledger in the place of the old one, with so many entries of another story. */
static void replace(struct ledger_rig *r, int n)
{
    struct rig_client other;
    (void)ledger_rig_stop(r);
    ledger_rig_start(r);
    rig_client_open(r, RIG_DIRECT, &other);
    mint_some(&other, "other", n);
    rig_client_close(&other);
}

/* The line may need a moment to be there again; then the first thing heard is the verdict. */
static bool head_says_forked(struct rig_client *c)
{
    struct rig_reply a;
    rig_head(c, 5000, &a);
    assert_int_equal(a.outcome, LEDGER_REFUSED);
    return a.err == ERR_LEDGER_FORKED;
}

static bool ingest_says_forked(struct rig_client *c, const struct ledger_ingest *rq)
{
    struct rig_reply a;
    rig_ingest(c, rq, 5000, &a);
    assert_int_equal(a.outcome, LEDGER_REFUSED);
    return a.err == ERR_LEDGER_FORKED;
}

static bool account_answered(struct rig_client *c, struct rig_reply *out)
{
    rig_account(c, "acct:alice", 0, out);
    assert_int_not_equal(out->err, ERR_LEDGER_FORKED);
    return out->outcome == LEDGER_ANSWERED;
}

static void everything_is_refused(struct rig_client *c)
{
    struct rig_unit u;
    struct rig_reply a;
    rig_mint(&u, "after", "acct:alice", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(c, &rq, 5000, &a);
    assert_int_equal(a.outcome, LEDGER_REFUSED);
    assert_int_equal(a.err, ERR_LEDGER_FORKED);
    rig_account(c, "acct:alice", 0, &a);
    assert_int_equal(a.err, ERR_LEDGER_FORKED);
    rig_unit(c, u.idem, 0, &a);
    assert_int_equal(a.err, ERR_LEDGER_FORKED);
}

static void with_history_of(int other_size)
{
    for (size_t i = 0; i < 2; i++) {
        struct ledger_rig r;
        struct rig_client c;
        open_pinned(&r, true);
        rig_client_open(&r, wires[i], &c);
        mint_some(&c, "ours", 3);
        replace(&r, other_size);
        AWAIT(head_says_forked(&c));
        everything_is_refused(&c);
        rig_client_close(&c);
        ledger_rig_close(&r);
    }
}

static void a_ledger_that_is_empty_again_is_refused(void **state)
{
    (void)state;
    with_history_of(0);
}

static void a_ledger_that_went_back_is_refused(void **state)
{
    (void)state;
    with_history_of(2);
}

static void another_root_for_the_same_size_is_refused(void **state)
{
    (void)state;
    with_history_of(3);
}

static void a_longer_history_that_does_not_contain_ours_is_refused(void **state)
{
    (void)state;
    with_history_of(7);
}

/* No head was asked in between: the first write after the cut waits for an audit, and the stranger never gets it. */
static void after_a_cut_a_write_does_not_reach_a_stranger(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct ledger_rig r;
        struct rig_client c, direct;
        struct rig_unit u;
        struct rig_reply a;
        open_pinned(&r, true);
        rig_client_open(&r, wires[i], &c);
        mint_some(&c, "ours", 3);
        (void)ledger_rig_stop(&r);
        rig_account(&c, "acct:alice", 0, &a); /* finds nobody: the line is known to be cut */
        assert_int_equal(a.outcome, LEDGER_REFUSED);
        ledger_rig_start(&r);
        rig_client_open(&r, RIG_DIRECT, &direct);
        mint_some(&direct, "other", 9);
        rig_mint(&u, "late", "acct:alice", 1);
        struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
        AWAIT(ingest_says_forked(&c, &rq));
        rig_unit(&direct, u.idem, 0, &a);
        assert_int_equal(a.outcome, LEDGER_ANSWERED);
        assert_false(a.found);
        rig_client_close(&direct);
        rig_client_close(&c);
        ledger_rig_close(&r);
    }
}

static void a_ledger_that_only_restarted_is_taken_back_and_calls_that_waited_go_through(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct ledger_rig r;
        struct rig_client c, other;
        struct rig_reply a;
        open_pinned(&r, false);
        rig_client_open(&r, wires[i], &c);
        mint_some(&c, "ours", 3);
        assert_int_equal(ledger_rig_stop(&r), 0);
        rig_account(&c, "acct:alice", 0, &a);
        ledger_rig_start(&r);
        rig_client_open(&r, RIG_DIRECT, &other);
        mint_some(&other, "meanwhile", 6);
        rig_client_close(&other);
        AWAIT(account_answered(&c, &a));
        assert_int_equal(a.seq, 9);
        mint_some(&c, "again", 2);
        rig_head(&c, 5000, &a);
        assert_int_equal(a.seq, 11);
        rig_client_close(&c);
        ledger_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ledger_that_is_empty_again_is_refused),
        cmocka_unit_test(a_ledger_that_went_back_is_refused),
        cmocka_unit_test(another_root_for_the_same_size_is_refused),
        cmocka_unit_test(a_longer_history_that_does_not_contain_ours_is_refused),
        cmocka_unit_test(after_a_cut_a_write_does_not_reach_a_stranger),
        cmocka_unit_test(a_ledger_that_only_restarted_is_taken_back_and_calls_that_waited_go_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
