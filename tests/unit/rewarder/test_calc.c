/* The allocation as a machine: parts in any order, refusals, damage between phases, proofs of every leaf. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/rng.h"
#include "services/rewarder/core/calc.h"
#include "services/rewarder/core/manifest.h"
#include "services/rewarder/core/snapshot.h"
#include "services/rewarder/core/state.h"

static struct rewarder_policy *policy_of(const char *rounding, const char *pool, const char *more)
{
    struct buf b;
    struct rewarder_policy *p;
    const char *member;
    buf_init(&b, 4096);
    buf_printf(&b,
               "{\"asset\":\"ron\",\"dust_account\":\"pool:dust\",\"funding_account\":\"pool:rewards\","
               "\"id\":\"p\","
               "\"pool\":\"%s\",\"rounding\":\"%s\",\"v\":1,\"weights\":[{\"den\":1,\"dim\":\"points\","
               "\"num\":1}]%s}",
               pool, rounding, more);
    assert_int_equal(rewarder_policy_create(buf_bytes(&b), &p, &member), ERR_OK);
    buf_fini(&b);
    return p;
}

static struct rewarder_snapshot snapshot_of(unsigned rows, uint64_t seed, bool salted)
{
    struct buf b;
    struct rng g;
    struct rewarder_snapshot s;
    struct rewarder_snapshot_error why;
    rng_seed(&g, seed);
    buf_init(&b, 1 << 24);
    buf_printf(&b,
               "{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"points\"],\"count\":%u%s}\n",
               rows, salted ? ",\"salt\":\"00112233445566778899aabbccddeeff\"" : "");
    for (unsigned i = 0; i < rows; i++)
        buf_printf(&b, "[\"%s:%05u\",%u]\n", i % 2 ? "acct" : "zoo", i, (unsigned)rng_below(&g, 50));
    assert_int_equal(rewarder_snapshot_parse(buf_bytes(&b), REWARDER_NDJSON, rows, &s, &why), ERR_OK);
    buf_fini(&b);
    return s;
}

/* Runs all phases with the parts of each in a random order, some of them twice. */
static void run_shuffled(struct rewarder_calc *c, struct rng *g)
{
    for (enum rewarder_phase ph = REWARDER_SCORES; ph < REWARDER_PHASES; ph++) {
        uint64_t n = rewarder_calc_parts(c, ph), order[256];
        assert_true(n <= 256);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t j = rng_below(g, i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        for (uint64_t i = 0; i < n; i++) {
            assert_int_equal(rewarder_calc_part(c, ph, order[i]), ERR_OK);
            if (rng_below(g, 4) == 0) /* a worker died after writing: the part is done again */
                assert_int_equal(rewarder_calc_part(c, ph, order[i]), ERR_OK);
        }
        assert_int_equal(rewarder_calc_close(c, ph), ERR_OK);
    }
}

static void r3_partition_size_order_and_repetition_do_not_change_a_byte(void **state)
{
    (void)state;
    static const char *const roundings[] = {"floor", "largest_remainder", "webster"};
    static const uint64_t sizes[] = {17, 64, 100, 333, 5000};
    struct rng g;
    rng_seed(&g, 7);
    for (unsigned m = 0; m < 3; m++) {
        struct rewarder_snapshot s = snapshot_of(3000, m, m == 1);
        struct rewarder_policy *p =
            policy_of(roundings[m], "123457", m == 2 ? ",\"min_payout\":\"5\"" : "");
        struct rewarder_calc *one, *other;
        unsigned index;
        assert_int_equal(rewarder_calc_create(&s.rows, p, p->pool, 1 << 20, &one, &index), ERR_OK);
        assert_int_equal(rewarder_calc_run(one), ERR_OK);
        struct bytes a = rewarder_calc_file(one);
        for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            assert_int_equal(rewarder_calc_create(&s.rows, p, p->pool, sizes[k], &other, &index), ERR_OK);
            run_shuffled(other, &g);
            struct bytes b = rewarder_calc_file(other);
            assert_true(bytes_eq(a, b));
            assert_memory_equal(rewarder_calc_result(one)->root.hash.b,
                                rewarder_calc_result(other)->root.hash.b, 32);
            rewarder_calc_destroy(other);
        }
        rewarder_calc_destroy(one);
        rewarder_policy_destroy(p);
        rewarder_snapshot_fini(&s);
    }
}

static void r2_a_damaged_table_is_a_conservation_breach(void **state)
{
    (void)state;
    struct rewarder_snapshot s = snapshot_of(50, 1, false);
    struct rewarder_policy *p = policy_of("floor", "1001", "");
    unsigned index;
    size_t head = REWARDER_PAY_HEAD + 32, stride = REWARDER_PAY_ROW + 8;
    /* amount of row 3 (low byte), its flags, and the dust row's amount, one at a time */
    size_t spots[] = {head + 3 * stride + 15, head + 3 * stride + 45, head + 25 * stride + 15};
    for (size_t i = 0; i < sizeof spots / sizeof *spots; i++) {
        struct rewarder_calc *c;
        assert_int_equal(rewarder_calc_create(&s.rows, p, p->pool, 16, &c, &index), ERR_OK);
        for (enum rewarder_phase ph = REWARDER_SCORES; ph <= REWARDER_TABLE; ph++) {
            for (uint64_t k = 0; k < rewarder_calc_parts(c, ph); k++)
                assert_int_equal(rewarder_calc_part(c, ph, k), ERR_OK);
            assert_int_equal(rewarder_calc_close(c, ph), ERR_OK);
        }
        size_t n;
        uint8_t *table = rewarder_calc_table(c, &n);
        table[spots[i]] ^= 1;
        assert_int_equal(rewarder_calc_run(c), ERR_CONSERVATION);
        rewarder_calc_destroy(c);
    }
    rewarder_policy_destroy(p);
    rewarder_snapshot_fini(&s);
}

static enum err run_phase(struct rewarder_calc *c, enum rewarder_phase ph)
{
    enum err e = ERR_OK;
    for (uint64_t k = 0; e == ERR_OK && k < rewarder_calc_parts(c, ph); k++)
        e = rewarder_calc_part(c, ph, k);
    return e == ERR_OK ? rewarder_calc_close(c, ph) : e;
}

/* Neither leans on the other: the pass over the table finds what is wrong before it, the tree what is wrong after. */
static void r1_both_sums_find_a_unit_too_many_by_themselves(void **state)
{
    (void)state;
    struct rewarder_snapshot s = snapshot_of(50, 1, false);
    struct rewarder_policy *p = policy_of("floor", "1001", "");
    unsigned index;
    size_t n, amount = REWARDER_PAY_HEAD + 32 + 3 * (REWARDER_PAY_ROW + 8) + 15;
    for (enum rewarder_phase after = REWARDER_TABLE; after <= REWARDER_CONSERVE; after++) {
        struct rewarder_calc *c;
        assert_int_equal(rewarder_calc_create(&s.rows, p, p->pool, 16, &c, &index), ERR_OK);
        uint8_t *table = NULL;
        for (enum rewarder_phase ph = REWARDER_SCORES; ph <= after; ph++) {
            assert_int_equal(run_phase(c, ph), ERR_OK);
            if (ph == REWARDER_TABLE)
                table = rewarder_calc_table(c, &n);
        }
        table[amount] += 1;
        assert_int_equal(run_phase(c, after + 1), ERR_CONSERVATION);
        rewarder_calc_destroy(c);
    }
    rewarder_policy_destroy(p);
    rewarder_snapshot_fini(&s);
}

static enum err run_input(const char *rows, unsigned count, const char *rounding, const char *pool,
                          const char **role)
{
    struct buf b;
    struct rewarder_snapshot s;
    struct rewarder_snapshot_error why;
    struct rewarder_calc *c = NULL;
    unsigned index;
    buf_init(&b, 1 << 16);
    buf_printf(&b,
               "{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"points\"],\"count\":%u}\n%s",
               count, rows);
    assert_int_equal(rewarder_snapshot_parse(buf_bytes(&b), REWARDER_NDJSON, 100, &s, &why), ERR_OK);
    struct rewarder_policy *p = policy_of(rounding, pool, "");
    enum err e = rewarder_calc_create(&s.rows, p, p->pool, 1024, &c, &index);
    if (e == ERR_OK)
        e = rewarder_calc_run(c);
    if (role && c)
        *role = rewarder_calc_reserved_role(c);
    rewarder_calc_destroy(c);
    rewarder_policy_destroy(p);
    rewarder_snapshot_fini(&s);
    buf_fini(&b);
    return e;
}

static void what_cannot_be_paid_is_refused(void **state)
{
    (void)state;
    const char *role;
    assert_int_equal(run_input("[\"pool:dust\",1]\n", 1, "floor", "1", &role), ERR_RESERVED_ACCOUNT);
    assert_string_equal(role, "dust");
    assert_int_equal(run_input("[\"a\",1]\n[\"pool:rewards\",1]\n", 2, "floor", "1", &role),
                     ERR_RESERVED_ACCOUNT);
    assert_string_equal(role, "funding");
    assert_int_equal(
        run_input("[\"a\",1]\n", 1, "webster", "170141183460469231731687303715884105728", NULL),
        ERR_POOL_TOO_LARGE);
    assert_int_equal(
        run_input("[\"a\",1]\n", 1, "webster", "170141183460469231731687303715884105727", NULL), ERR_OK);
    assert_int_equal(run_input("", 0, "webster", "5", NULL), ERR_OK);

    struct rewarder_snapshot s = snapshot_of(3, 1, false);
    struct rewarder_policy *p = rewarder_policy_create_default();
    struct rewarder_calc *c;
    unsigned index = 99;
    memcpy(p->weights[0].dim, "hours", 6);
    assert_int_equal(rewarder_calc_create(&s.rows, p, 1, 1024, &c, &index), ERR_DIMENSION_MISSING);
    assert_int_equal(index, 0);
    rewarder_policy_destroy(p);
    rewarder_snapshot_fini(&s);
}

static void without_a_score_the_pool_is_not_touched(void **state)
{
    (void)state;
    struct rewarder_snapshot s = snapshot_of(1, 1, false);
    struct rewarder_policy *p = policy_of("largest_remainder", "1000", "");
    struct rewarder_calc *c;
    unsigned index;
    memset(s.canonical + s.canonical_bytes - 8, 0, 8);
    assert_int_equal(rewarder_rows_open((struct bytes){s.canonical, s.canonical_bytes}, &s.rows), ERR_OK);
    assert_int_equal(rewarder_calc_create(&s.rows, p, p->pool, 1024, &c, &index), ERR_OK);
    assert_int_equal(rewarder_calc_run(c), ERR_OK);
    const struct rewarder_result *r = rewarder_calc_result(c);
    assert_true(r->pool == 0 && r->dust == 0 && r->leaves == 0 && r->unpaid == 1 && r->root.sum == 0);
    rewarder_calc_destroy(c);
    rewarder_policy_destroy(p);
    rewarder_snapshot_fini(&s);
}

static void r9_every_leaf_has_a_proof_and_no_mutated_proof_passes(void **state)
{
    (void)state;
    static const unsigned sizes[] = {1, 2, 3, 255, 256, 257, 513, 1300};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct rewarder_snapshot s = snapshot_of(sizes[k], k, k % 2);
        struct rewarder_policy *p = policy_of("floor", "100003", "");
        struct rewarder_calc *c;
        struct rewarder_payouts v;
        struct rewarder_tree again, decoded;
        unsigned index;
        assert_int_equal(rewarder_calc_create(&s.rows, p, p->pool, 100, &c, &index), ERR_OK);
        assert_int_equal(rewarder_calc_run(c), ERR_OK);
        assert_int_equal(rewarder_payouts_open(rewarder_calc_file(c), &v), ERR_OK);
        const struct rewarder_node *root = &rewarder_calc_result(c)->root;
        assert_int_equal(rewarder_payouts_tree(&v, &again), ERR_OK);
        assert_memory_equal(again.root.hash.b, root->hash.b, 32);
        size_t n = rewarder_tree_bytes(&again);
        uint8_t *file = malloc(n);
        rewarder_tree_encode(&again, file);
        assert_int_equal(rewarder_tree_decode((struct bytes){file, n}, &decoded), ERR_OK);
        struct rewarder_salter salter;
        rewarder_salter_init(&salter, v.salt);
        uint64_t leaves = 0;
        for (uint64_t row = 0; row < v.rows; row++) {
            struct rewarder_payout pay = rewarder_payouts_row(&v, row);
            if (!(pay.flags & REWARDER_LEAF))
                continue;
            struct rewarder_proof proof;
            uint8_t salt[REWARDER_LEAF_SALT_BYTES];
            size_t salt_n = rewarder_leaf_salt(&salter, pay.account, salt);
            struct rewarder_node leaf =
                rewarder_leaf((struct bytes){salt, salt_n}, pay.account, pay.amount);
            rewarder_payouts_prove(&v, &decoded, row, &proof);
            assert_int_equal(proof.index, leaves);
            assert_int_equal(rewarder_payouts_row_of_leaf(&v, leaves++), row);
            assert_int_equal(rewarder_proof_check(&proof, &leaf, root), ERR_OK);
            struct rewarder_node other = leaf;
            other.sum++;
            if (proof.steps)
                assert_int_equal(rewarder_proof_check(&proof, &other, root), ERR_CORRUPT);
            if (proof.steps) {
                struct rewarder_proof bad = proof;
                bad.step[bad.steps - 1].node.sum = ~(wide_u128)0;
                assert_int_equal(rewarder_proof_check(&bad, &leaf, root), ERR_OVERFLOW);
                bad = proof;
                bad.steps--;
                assert_int_equal(rewarder_proof_check(&bad, &leaf, root), ERR_CORRUPT);
                bad = proof;
                bad.step[0].left = !bad.step[0].left;
                assert_int_equal(rewarder_proof_check(&bad, &leaf, root), ERR_CORRUPT);
            }
        }
        assert_int_equal(leaves, v.leaves);
        for (size_t i = 0; i < n; i += 41) {
            file[i] ^= 4;
            struct rewarder_tree bad;
            assert_int_equal(rewarder_tree_decode((struct bytes){file, n}, &bad), ERR_CORRUPT);
            file[i] ^= 4;
        }
        free(file);
        rewarder_tree_fini(&again);
        rewarder_tree_fini(&decoded);
        rewarder_payouts_close(&v);
        rewarder_calc_destroy(c);
        rewarder_policy_destroy(p);
        rewarder_snapshot_fini(&s);
    }
}

static void a_flipped_bit_in_payouts_is_corrupt(void **state)
{
    (void)state;
    struct rewarder_snapshot s = snapshot_of(20, 3, true);
    struct rewarder_policy *p = policy_of("floor", "1000", "");
    struct rewarder_calc *c;
    unsigned index;
    assert_int_equal(rewarder_calc_create(&s.rows, p, p->pool, 100, &c, &index), ERR_OK);
    assert_int_equal(rewarder_calc_run(c), ERR_OK);
    size_t n;
    uint8_t *file = rewarder_calc_take_file(c, &n);
    struct rewarder_payouts v;
    for (size_t i = 0; i < n; i++) {
        file[i] ^= 0x10;
        assert_int_equal(rewarder_payouts_open((struct bytes){file, n}, &v), ERR_CORRUPT);
        file[i] ^= 0x10;
    }
    for (size_t cut = 0; cut < n; cut += 7)
        assert_int_equal(rewarder_payouts_open((struct bytes){file, cut}, &v), ERR_CORRUPT);
    free(file);
    rewarder_calc_destroy(c);
    rewarder_policy_destroy(p);
    rewarder_snapshot_fini(&s);
}

static void r8_settlement_places_must_be_a_bijection(void **state)
{
    (void)state;
    struct rewarder_chunk_place good[] = {{512, 1000}, {512, 2000}, {6, 1512}};
    assert_true(rewarder_settlement_is_bijection(good, 3, 1030));
    assert_true(rewarder_settlement_is_bijection(NULL, 0, 0));
    assert_false(rewarder_settlement_is_bijection(good, 2, 1030));
    struct rewarder_chunk_place overlap[] = {{512, 1000}, {512, 1511}, {6, 3000}};
    assert_false(rewarder_settlement_is_bijection(overlap, 3, 1030));
    struct rewarder_chunk_place missing[] = {{512, 1000}, {512, 0}, {6, 3000}};
    assert_false(rewarder_settlement_is_bijection(missing, 3, 1030));
    struct rewarder_chunk_place small[] = {{512, 1000}, {511, 2000}, {6, 3000}};
    assert_false(rewarder_settlement_is_bijection(small, 3, 1030));
}

static void states_move_only_along_the_table(void **state)
{
    (void)state;
    enum rewarder_state s = REWARDER_SEALING;
    static const enum rewarder_event life[] = {
        REWARDER_EV_INPUTS_STORED, REWARDER_EV_TAKEN, REWARDER_EV_SEAL,   REWARDER_EV_EMIT,
        REWARDER_EV_HOLD,          REWARDER_EV_EMIT,  REWARDER_EV_SETTLE, REWARDER_EV_RECHECK};
    for (size_t i = 0; i < sizeof life / sizeof *life; i++)
        assert_int_equal(rewarder_state_step(s, life[i], &s), ERR_OK);
    assert_int_equal(s, REWARDER_EMITTING);
    unsigned allowed = 0;
    for (unsigned from = 0; from < REWARDER_STATE_COUNT; from++) {
        enum rewarder_state to;
        for (unsigned ev = 0; ev < REWARDER_EVENT_COUNT; ev++)
            allowed +=
                rewarder_state_step((enum rewarder_state)from, (enum rewarder_event)ev, &to) == ERR_OK;
        assert_true(rewarder_state_parse(str_from_c(rewarder_state_name((enum rewarder_state)from)), &to));
        assert_int_equal(to, from);
        /* nothing is paid out of a run that was not sealed, and nothing leaves a discarded one */
        if (from != REWARDER_SEALED && from != REWARDER_EMITTING && from != REWARDER_HELD)
            assert_int_equal(rewarder_state_step((enum rewarder_state)from, REWARDER_EV_EMIT, &to),
                             ERR_CONFLICT);
        assert_int_equal(rewarder_state_step(REWARDER_DISCARDED, (enum rewarder_event)from, &to),
                         ERR_CONFLICT);
    }
    assert_int_equal(allowed, 22);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r3_partition_size_order_and_repetition_do_not_change_a_byte),
        cmocka_unit_test(r1_both_sums_find_a_unit_too_many_by_themselves),
        cmocka_unit_test(r2_a_damaged_table_is_a_conservation_breach),
        cmocka_unit_test(what_cannot_be_paid_is_refused),
        cmocka_unit_test(without_a_score_the_pool_is_not_touched),
        cmocka_unit_test(r9_every_leaf_has_a_proof_and_no_mutated_proof_passes),
        cmocka_unit_test(a_flipped_bit_in_payouts_is_corrupt),
        cmocka_unit_test(r8_settlement_places_must_be_a_bijection),
        cmocka_unit_test(states_move_only_along_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
