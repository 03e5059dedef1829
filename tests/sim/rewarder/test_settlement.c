/*
 * Settlement against a ledger that loses replies, answers late, refuses at random, is written to by a stranger, runs out
 * of money and forgets; and an emitter that dies anywhere. Whatever happens, the ledger ends with one transfer per leaf.
 * RON_SEED and RON_ROUNDS in the environment repeat or deepen a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/rng.h"
#include "fake_ledger.h"
#include "services/rewarder/core/calc.h"
#include "services/rewarder/core/snapshot.h"
#include "services/rewarder/settlement.h"

enum { LANE = FAKE_LANE, LANES = FAKE_LANES };

/* ---- a run of about 1,500 leaves: three chunks ---- */

struct fixture {
    struct rewarder_snapshot snap;
    struct rewarder_policy *policy;
    struct rewarder_calc *calc;
    struct rewarder_payouts table;
    struct rewarder_chunk_place places[8];
    struct rewarder_settle_job job;
    struct rng rng;
    unsigned stop_percent;
};

static bool stop(void *ctx)
{
    struct fixture *x = ctx;
    return rng_below(&x->rng, 100) < x->stop_percent;
}

static void placed(void *ctx, uint32_t chunk, uint64_t seq_start, uint64_t nonce)
{
    struct fixture *x = ctx;
    assert_true(x->places[chunk].seq_start == seq_start && nonce != 0);
}

static void fixture_init(struct fixture *x, unsigned rows)
{
    static const char policy[] = "{\"asset\":\"ron\",\"dust_account\":\"pool:dust\",\"funding_account\":"
                                 "\"pool:rewards\",\"id\":\"p\","
                                 "\"pool\":\"100000\",\"rounding\":\"floor\",\"v\":1,\"weights\":[{\"den\":"
                                 "1,\"dim\":\"points\",\"num\":1}]}";
    struct buf b;
    struct rewarder_snapshot_error why;
    const char *member;
    unsigned index;
    memset(x, 0, sizeof *x);
    rng_seed(&x->rng, 1);
    buf_init(&b, 1 << 20);
    buf_printf(&b, "{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"points\"],\"count\":%u}\n",
               rows);
    for (unsigned i = 0; i < rows; i++)
        buf_printf(&b, "[\"acct:%05u\",%u]\n", i, 1 + i % 7);
    assert_int_equal(rewarder_snapshot_parse(buf_bytes(&b), REWARDER_NDJSON, rows, &x->snap, &why), ERR_OK);
    assert_int_equal(rewarder_policy_create(bytes_of(policy, sizeof policy - 1), &x->policy, &member),
                     ERR_OK);
    assert_int_equal(
        rewarder_calc_create(&x->snap.rows, x->policy, x->policy->pool, 1024, &x->calc, &index), ERR_OK);
    assert_int_equal(rewarder_calc_run(x->calc), ERR_OK);
    assert_int_equal(rewarder_payouts_open(rewarder_calc_file(x->calc), &x->table), ERR_OK);
    buf_fini(&b);
    x->job = (struct rewarder_settle_job){
        .tenant = STR("t"),
        .epoch = STR("e"),
        .funding = STR("pool:rewards"),
        .asset = STR("ron"),
        .run_key = rewarder_run_key(STR("t"), STR("e"), &x->policy->hash, &x->snap.rows.digest),
        .root = rewarder_calc_result(x->calc)->root.hash,
        .sealed_at_ms = 1760000000000,
        .table = &x->table,
        .places = x->places,
        .ctx = x,
        .stop = stop,
        .placed = placed,
    };
}

static void fixture_fini(struct fixture *x)
{
    rewarder_payouts_close(&x->table);
    rewarder_calc_destroy(x->calc);
    rewarder_policy_destroy(x->policy);
    rewarder_snapshot_fini(&x->snap);
}

static struct rewarder_settler *settler_of(struct fake_ledger *f, struct rt_breaker *b, uint64_t seed)
{
    return rewarder_settler_create(&(struct rewarder_settler_spec){
        .ledger = &f->client, .breaker = b, .lane = LANE, .lanes = LANES, .seed = seed, .retry_max_ms = 1});
}

/* Every leaf once, in the place its chunk says, nothing else. */
static void assert_paid_exactly(const struct fixture *x, const struct fake_ledger *f)
{
    size_t entries = 0;
    for (size_t i = 0; i < f->n_units; i++)
        entries += f->units[i].n;
    assert_int_equal(entries, x->table.leaves);
    for (uint64_t leaf = 0; leaf < x->table.leaves; leaf++) {
        char id[REWARDER_ENTRY_ID_LEN + 1];
        struct rewarder_payout pay =
            rewarder_payouts_row(&x->table, rewarder_payouts_row_of_leaf(&x->table, leaf));
        rewarder_entry_id(STR("t"), STR("e"), pay.account, id);
        const struct fake_entry *e = map_get(&f->ids, bytes_of(id, strlen(id)));
        assert_non_null(e);
        assert_true(e->amount.units == pay.amount && str_eq_c(pay.account, e->to));
        uint64_t seq = x->places[leaf / REWARDER_CHUNK].seq_start + leaf % REWARDER_CHUNK;
        bool found = false;
        for (size_t i = 0; i < f->n_units && !found; i++)
            found = seq >= f->units[i].seq_start && seq < f->units[i].seq_start + f->units[i].n &&
                    &f->units[i].entries[seq - f->units[i].seq_start] == e;
        assert_true(found);
    }
    assert_true(rewarder_settlement_is_bijection(x->places, rewarder_chunk_count(x->table.leaves),
                                                 x->table.leaves));
}

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 0) : otherwise;
}

static void r7_nobody_is_paid_twice_or_left_out_whatever_fails(void **state) RT_BLOCKS
{
    (void)state;
    uint64_t seed = from_env("RON_SEED", 1), rounds = from_env("RON_ROUNDS", 1500);
    print_message("seed %llu, %llu rounds\n", (unsigned long long)seed, (unsigned long long)rounds);
    struct fixture x;
    fixture_init(&x, 1500);
    for (uint64_t round = 0; round < rounds; round++) {
        struct fake_ledger f;
        struct rewarder_settle_result r = {.end = REWARDER_SETTLE_STOPPED};
        fake_ledger_init(&f, seed + round);
        rng_seed(&x.rng, seed + round);
        memset(x.places, 0, sizeof x.places);
        x.job.maybe_sent = false;
        f.lose_before = (unsigned)rng_below(&x.rng, 30);
        f.lose_after = (unsigned)rng_below(&x.rng, 50);
        f.busy = (unsigned)rng_below(&x.rng, 30);
        f.late = (unsigned)rng_below(&x.rng, 20);
        f.others = (unsigned)rng_below(&x.rng, 20);
        x.stop_percent = (unsigned)rng_below(&x.rng, 40);
        unsigned lives = 0;
        while (r.end != REWARDER_SETTLE_DONE) {
            assert_true(++lives < 500);
            struct rewarder_settler *s = settler_of(&f, NULL, round);
            rewarder_settle(s, &x.job, NULL, &r);
            rewarder_settler_destroy(s);
            assert_int_not_equal(r.end, REWARDER_SETTLE_QUARANTINE);
            if (r.end == REWARDER_SETTLE_DONE)
                break;
            /* it died: settle.log keeps everything, a prefix of it, or nothing */
            for (unsigned i = 0; i < 8; i++)
                if (fake_ledger_chance(&f, 40))
                    x.places[i].seq_start = 0;
            x.job.maybe_sent = true;
            if (fake_ledger_chance(&f, 50))
                fake_ledger_deliver_late(&f);
        }
        fake_ledger_deliver_late(&f); /* copies that were still in some socket change nothing */
        assert_paid_exactly(&x, &f);
        fake_ledger_fini(&f);
    }
    fixture_fini(&x);
}

static void a_clean_settlement_uses_two_units_per_request_and_several_lanes(void **state) RT_BLOCKS
{
    (void)state;
    struct fixture x;
    struct fake_ledger f;
    struct rewarder_settle_result r;
    fixture_init(&x, 1600);
    fake_ledger_init(&f, 1);
    struct rewarder_settler *s = settler_of(&f, NULL, 1);
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_DONE);
    assert_int_equal(r.committed.units, 4);
    assert_int_equal(r.committed.leaves, x.table.leaves);
    assert_int_equal(f.calls, 2);
    assert_int_equal(r.tree_size, x.table.leaves);
    assert_int_equal(f.head[0] >> 48, LANE);
    assert_int_equal(f.head[0] & 0xffffff, 1024);
    assert_paid_exactly(&x, &f);
    rewarder_settler_destroy(s);
    fake_ledger_fini(&f);
    fixture_fini(&x);
}

/* A 404 from whoever stands in the ledger's place does not say that nobody was paid. */
static void a_404_that_is_not_the_ledgers_is_no_word_about_a_unit(void **state) RT_BLOCKS
{
    (void)state;
    struct fixture x;
    struct fake_ledger f;
    struct rewarder_settle_result r;
    bool known = true;
    fixture_init(&x, 1500);
    fake_ledger_init(&f, 1);
    f.strange = true;
    x.job.maybe_sent = true;
    struct rewarder_settler *s = settler_of(&f, NULL, 1);
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_HOLD);
    assert_string_equal(r.cause, "ledger");
    assert_int_equal(f.calls, 0);
    assert_int_equal(rewarder_settler_knows(s, x.job.tenant, x.job.epoch, &x.job.run_key, 3, NULL, &known),
                     ERR_LEDGER_UNAVAILABLE);
    f.strange = false;
    assert_int_equal(rewarder_settler_knows(s, x.job.tenant, x.job.epoch, &x.job.run_key, 3, NULL, &known),
                     ERR_OK);
    assert_false(known);
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_DONE);
    assert_paid_exactly(&x, &f);
    rewarder_settler_destroy(s);
    fake_ledger_fini(&f);
    fixture_fini(&x);
}

static void nothing_leaves_before_the_whole_rest_is_covered(void **state) RT_BLOCKS
{
    (void)state;
    struct fixture x;
    struct fake_ledger f;
    struct rewarder_settle_result r;
    fixture_init(&x, 1500);
    fake_ledger_init(&f, 1);
    f.available = money_from_u64(99999);
    struct rewarder_settler *s = settler_of(&f, NULL, 1);
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_HOLD);
    assert_string_equal(r.cause, "funds");
    assert_int_equal(f.calls, 0);
    f.available = money_from_u64(100000);
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_DONE);
    assert_true(money_is_zero(f.available));
    rewarder_settler_destroy(s);
    fake_ledger_fini(&f);
    fixture_fini(&x);
}

static void a_stranger_on_the_lanes_is_followed_or_the_run_is_held(void **state) RT_BLOCKS
{
    (void)state;
    struct fixture x;
    struct fake_ledger f;
    struct rewarder_settle_result r;
    fixture_init(&x, 1500);
    fake_ledger_init(&f, 1);
    f.head[0] = rewarder_lane_nonce(LANE, 77);
    struct rewarder_settler *s = settler_of(&f, NULL, 1);
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_DONE);
    assert_paid_exactly(&x, &f);
    rewarder_settler_destroy(s);
    fake_ledger_fini(&f);
    fixture_fini(&x);
}

static void a_frozen_recipient_stops_its_chunk_only_and_resume_completes(void **state) RT_BLOCKS
{
    (void)state;
    struct fixture x;
    struct fake_ledger f;
    struct rewarder_settle_result r;
    fixture_init(&x, 1500);
    fake_ledger_init(&f, 1);
    f.frozen = "acct:00003"; /* first chunk */
    struct rewarder_settler *s = settler_of(&f, NULL, 1);
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_QUARANTINE);
    assert_string_equal(r.cause, "settlement");
    assert_int_equal(r.refusals, 1);
    assert_int_equal(r.refused[0].chunk, 0);
    assert_string_equal(r.refused[0].reason, "policy_denied");
    assert_true(x.places[0].seq_start == 0 && x.places[1].seq_start && x.places[2].seq_start);
    f.frozen = NULL;
    x.job.maybe_sent = true;
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_DONE);
    assert_paid_exactly(&x, &f);
    rewarder_settler_destroy(s);
    fake_ledger_fini(&f);
    fixture_fini(&x);
}

static void another_run_of_the_epoch_is_refused_by_its_entry_ids(void **state) RT_BLOCKS
{
    (void)state;
    struct fixture x;
    struct fake_ledger f;
    struct rewarder_settle_result r;
    fixture_init(&x, 1500);
    fake_ledger_init(&f, 1);
    struct rewarder_settler *s = settler_of(&f, NULL, 1);
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_DONE);
    uint64_t paid = f.seq;
    /* amnesia: the service forgot the first run and computed another one with other inputs */
    memset(x.places, 0, sizeof x.places);
    x.job.run_key.b[0] ^= 1;
    x.job.maybe_sent = false;
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_QUARANTINE);
    assert_string_equal(r.cause, "duplicate_entry");
    assert_int_equal(f.seq, paid);
    rewarder_settler_destroy(s);
    fake_ledger_fini(&f);
    fixture_fini(&x);
}

static void a_dead_ledger_holds_the_run_and_a_forgetful_one_is_paid_again_by_recheck(void **state) RT_BLOCKS
{
    (void)state;
    struct fixture x;
    struct fake_ledger f;
    struct rewarder_settle_result r;
    struct rt_breaker breaker;
    fixture_init(&x, 1500);
    fake_ledger_init(&f, 1);
    rt_breaker_init(&breaker, &(struct rt_breaker_spec){.in_a_row = 5, .open_ms = 60000});
    struct rewarder_settler *s = settler_of(&f, &breaker, 1);
    f.down = true;
    assert_false(rewarder_settler_ready(s, NULL));
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_HOLD);
    assert_string_equal(r.cause, "ledger");
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(rt_breaker_state(&breaker, os_now_ns()), RT_BREAKER_OPEN);
    f.down = false;
    rewarder_settler_destroy(s);
    s = settler_of(&f, NULL, 1);
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_DONE);
    rewarder_settler_destroy(s);

    /* restored from an older backup: nothing of the run is there. Recheck looks every unit up and sends what is missing */
    fake_ledger_fini(&f);
    fake_ledger_init(&f, 2);
    memset(x.places, 0, sizeof x.places);
    x.job.maybe_sent = true;
    s = settler_of(&f, NULL, 1);
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_DONE);
    assert_paid_exactly(&x, &f);
    bool known = false;
    assert_int_equal(rewarder_settler_knows(s, STR("t"), STR("e"), &x.job.run_key, 3, NULL, &known),
                     ERR_OK);
    assert_true(known);
    rewarder_settler_destroy(s);
    rt_breaker_fini(&breaker);
    fake_ledger_fini(&f);
    fixture_fini(&x);
}

static void note(void *ctx, enum rewarder_settle_note what)
{
    ((unsigned *)ctx)[what]++;
}

static void retries_and_timeouts_are_told_to_whoever_counts_them(void **state) RT_BLOCKS
{
    (void)state;
    struct fixture x;
    struct fake_ledger f;
    struct rewarder_settle_result r;
    unsigned notes[4] = {0};
    fixture_init(&x, 600);
    fake_ledger_init(&f, 1);
    struct rewarder_settler *s = rewarder_settler_create(&(struct rewarder_settler_spec){
        .ledger = &f.client, .lane = LANE, .lanes = LANES, .retry_max_ms = 1, .note = note, .ctx = notes});
    f.lose_after = 100; /* every answer to a request that pays is lost: three tries, two of them again */
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_HOLD);
    assert_int_equal(r.errors, 2);
    assert_int_equal(r.committed.units + r.duplicates.units, 0);
    assert_int_equal(notes[REWARDER_NOTE_INGEST_TIMEOUT], 3);
    assert_int_equal(notes[REWARDER_NOTE_INGEST_AGAIN], 2);
    assert_int_equal(notes[REWARDER_NOTE_READ_AGAIN], 0);
    f.lose_after = 0;
    f.down = true; /* reads are refused, not late */
    x.job.maybe_sent = true;
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(notes[REWARDER_NOTE_READ_AGAIN], 2);
    assert_int_equal(notes[REWARDER_NOTE_READ_TIMEOUT], 0);
    f.down = false; /* what was paid under lost answers is found, and counted as such */
    rewarder_settle(s, &x.job, NULL, &r);
    assert_int_equal(r.end, REWARDER_SETTLE_DONE);
    assert_int_equal(r.committed.leaves, 0);
    assert_int_equal(r.duplicates.leaves, x.table.leaves);
    assert_paid_exactly(&x, &f);
    rewarder_settler_destroy(s);
    fake_ledger_fini(&f);
    fixture_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_settlement_uses_two_units_per_request_and_several_lanes),
        cmocka_unit_test(a_404_that_is_not_the_ledgers_is_no_word_about_a_unit),
        cmocka_unit_test(nothing_leaves_before_the_whole_rest_is_covered),
        cmocka_unit_test(a_stranger_on_the_lanes_is_followed_or_the_run_is_held),
        cmocka_unit_test(a_frozen_recipient_stops_its_chunk_only_and_resume_completes),
        cmocka_unit_test(another_run_of_the_epoch_is_refused_by_its_entry_ids),
        cmocka_unit_test(a_dead_ledger_holds_the_run_and_a_forgetful_one_is_paid_again_by_recheck),
        cmocka_unit_test(retries_and_timeouts_are_told_to_whoever_counts_them),
        cmocka_unit_test(r7_nobody_is_paid_twice_or_left_out_whatever_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
