/*
 * Crowds: ten times more than the ledger can take, and a thousand clients at once that repeat themselves, steal nonces and
 * pipeline. What is refused says when to come back; what was acknowledged is there; the books balance.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "load/wallet.h"
#include "wallet_rig.h"

static struct wallet_rig rig;

static struct load_addr at_the_wallet(void)
{
    struct load_addr a[LOAD_ADDRS_MAX];
    size_t n;
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u", (unsigned)svc_port(rig.svc));
    CHECK(load_addrs_parse(url, a, &n) == ERR_OK);
    return a[0];
}

static void fund(unsigned payers)
{
    for (unsigned i = 0; i < payers; i++) { /* straight into the ledger */
        char idem[32], account[32];
        snprintf(idem, sizeof idem, "fund:%u", i);
        snprintf(account, sizeof account, "acct:payer-%u", i);
        mem_ledger_mint(rig.ledger, idem, account, "ron", 10000000);
    }
}

static void show(const char *what, const struct load_wallet_result *r)
{
    print_message("%s: %.1f s, sent %llu, ok %llu (%.0f/s, p50 %.1f ms, p99 %.1f ms), busy %llu (p50 %.1f "
                  "ms, p99 %.1f ms), "
                  "unavailable %llu, pending %llu, conflict %llu, cut %llu, unsent %llu, other %llu %s\n",
                  what, r->seconds, (unsigned long long)r->sent, (unsigned long long)r->ok,
                  (double)r->ok / r->seconds, load_times_ms(&r->good, 0.5), load_times_ms(&r->good, 0.99),
                  (unsigned long long)r->busy, load_times_ms(&r->refused, 0.5),
                  load_times_ms(&r->refused, 0.99), (unsigned long long)r->unavailable,
                  (unsigned long long)r->pending, (unsigned long long)r->conflict,
                  (unsigned long long)r->cut, (unsigned long long)r->unsent, (unsigned long long)r->other,
                  r->first_odd);
}

/* What a strand was told and what the ledger has are the same, once nothing is under way. */
static void assert_nothing_lost(const struct load_wallet_result *r, unsigned strands, unsigned first)
{
    for (unsigned i = 0; i < strands; i++) {
        char account[32];
        snprintf(account, sizeof account, "acct:payer-%u", first + i);
        assert_int_equal(mem_ledger_last(rig.ledger, account, 0), r->acked[i]);
    }
    assert_true(mem_ledger_conserves(rig.ledger));
}

/*
 * A ledger that takes two operations every four milliseconds, and five thousand asked for a second. How much of its
 * capacity is left to do good with is bench/rows/wallet's business (row overload): here nothing is measured.
 */
RT_UNCHECKED static void
ten_times_too_much_is_told_when_to_come_back_and_nothing_acknowledged_is_lost(void **state)
{
    static const char *const flags[] = {"--workers=1", "--batch_units=2", "--inflight_requests=1",
                                        "--queues.work=32"};
    enum { STRANDS = 400 };
    struct load_wallet_result flood;
    (void)state;
    wallet_rig_open(&rig, flags, 4);
    fund(STRANDS);
    mem_ledger_service_time(rig.ledger, 4000);
    size_t rss = rig_rss_kib();
    struct load_wallet_spec spec = {.addr = at_the_wallet(),
                                    .asset = "ron",
                                    .payer_head = "acct:payer-",
                                    .token = rig.token,
                                    .run = "flood",
                                    .conns = STRANDS,
                                    .payers = STRANDS,
                                    .rate = 5000,
                                    .ms = 2500};
    CHECK(load_wallet_run(&spec, &flood) == ERR_OK);
    show("flood", &flood);
    double grown_kib = (double)rig_rss_kib() - (double)rss;
    assert_true(flood.ok > 0);
    assert_true(flood.busy > 0);
    assert_int_equal(flood.no_retry_after, 0);
    assert_int_equal(flood.other + flood.cut + flood.pending + flood.conflict + flood.wrong, 0);
    double refused = rig_metric(&rig, "busy_rejections_total", "endpoint=\"transfer\"");
    assert_true(refused == rig_metric(&rig, "queue_dropped_total", "queue=\"work\""));
    assert_true(refused >= (double)flood.busy); /* the last ones were not waited for */
    assert_nothing_lost(&flood, STRANDS, 0);
    /* Bounded: connections, requests and a few seconds of receipts, not what was offered. */
    assert_true(grown_kib < 48 * 1024);
    free(flood.acked);
    assert_int_equal(wallet_rig_stop(&rig), 0);
    wallet_rig_close(&rig);
}

RT_UNCHECKED static void a_thousand_clients_repeat_steal_and_pipeline(void **state)
{
    /* A thousand strands over 125 accounts, eight lanes each, four nonces of each in the pipe. */
    enum { STRANDS = 1000, PAYERS = 125 };
    struct load_wallet_result r;
    (void)state;
    wallet_rig_open(&rig, NULL, 0);
    fund(PAYERS);
    struct load_wallet_spec spec = {.addr = at_the_wallet(),
                                    .asset = "ron",
                                    .payer_head = "acct:payer-",
                                    .token = rig.token,
                                    .run = "crowd",
                                    .conns = STRANDS,
                                    .payers = PAYERS,
                                    .depth = 4,
                                    .repeat_pct = 10,
                                    .thief_pct = 10,
                                    .ms = 3000};
    CHECK(load_wallet_run(&spec, &r) == ERR_OK);
    show("crowd", &r);
    assert_int_equal(r.wrong, 0); /* no other bytes for a repeated request, nothing for a stolen nonce */
    assert_int_equal(r.other + r.cut, 0);
    assert_int_equal(r.no_retry_after, 0);
    assert_true(r.replayed > 0 && r.conflict > 0);
    /* No strand is stuck, and none was told more or less than what happened. */
    for (unsigned i = 0; i < STRANDS; i++) {
        char account[32];
        snprintf(account, sizeof account, "acct:payer-%u", i % PAYERS);
        uint64_t last = mem_ledger_last(rig.ledger, account, i / PAYERS);
        assert_true(last >= r.acked[i] &&
                    last <= r.acked[i] + spec.depth); /* sent, and cut short by the end */
    }
    assert_true(mem_ledger_conserves(rig.ledger));
    free(r.acked);
    assert_int_equal(wallet_rig_stop(&rig), 0);
    wallet_rig_close(&rig);
}

static atomic_bool enough;

RT_UNCHECKED static void *pay_all_the_time(void *arg)
{
    struct load_wallet_spec *spec = ((void **)arg)[0];
    CHECK(load_wallet_run(spec, ((void **)arg)[1]) == ERR_OK);
    return NULL;
}

/* DRAINS=1000 for the long one. */
RT_UNCHECKED static void drained_again_and_again_under_load_nothing_is_unknown(void **state)
{
    int rounds = getenv("DRAINS") ? atoi(getenv("DRAINS")) : 8;
    enum { STRANDS = 32 };
    (void)state;
    wallet_rig_open(&rig, NULL, 0);
    fund((unsigned)rounds * STRANDS);
    for (int round = 0; round < rounds; round++) {
        struct load_wallet_result r;
        char run[16];
        snprintf(run, sizeof run, "d%d", round);
        struct load_wallet_spec spec = {.addr = at_the_wallet(),
                                        .asset = "ron",
                                        .payer_head = "acct:payer-",
                                        .token = rig.token,
                                        .run = run,
                                        .conns = STRANDS,
                                        .payers = STRANDS,
                                        .first_payer = (unsigned)round * STRANDS,
                                        .ms = 60000,
                                        .stop = &enough};
        void *both[2] = {&spec, &r};
        pthread_t load;
        uint64_t before = mem_ledger_units(rig.ledger);
        atomic_store(&enough, false);
        pthread_create(&load, NULL, pay_all_the_time, both);
        struct deadline by = deadline_in_ms(10000);
        while (mem_ledger_units(rig.ledger) < before + 200 && !deadline_passed(by))
            ;
        assert_int_equal(svc_drain(rig.svc), 0); /* what the process would exit with */
        atomic_store(&enough, true);
        pthread_join(load, NULL);
        assert_int_equal(r.pending + r.other, 0);
        assert_nothing_lost(&r, STRANDS, (unsigned)round * STRANDS);
        free(r.acked);
        wallet_rig_restart(&rig, NULL, 0);
    }
    wallet_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drained_again_and_again_under_load_nothing_is_unknown),
        cmocka_unit_test(ten_times_too_much_is_told_when_to_come_back_and_nothing_acknowledged_is_lost),
        cmocka_unit_test(a_thousand_clients_repeat_steal_and_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
