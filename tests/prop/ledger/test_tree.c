/*
 * Proofs from stored nodes, verified by an independent verifier (RFC 9162's algorithms, not the ones that made them), for every
 * size up to a few hundred and for random large ones; and no proof survives a changed bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "services/ledger/core/merkle.h"

enum { LEAVES = 70000, LEVELS = 18, SMALL = 130 };

static struct sha256 *levels[LEVELS];
static struct sha256 roots[LEAVES + 1];

static void put(void *ctx, unsigned level, uint64_t index, const struct sha256 *h)
{
    (void)ctx;
    levels[level][index] = *h;
}

static enum err get(void *ctx, unsigned level, uint64_t index, struct sha256 *out)
{
    (void)ctx;
    *out = levels[level][index];
    return ERR_OK;
}

static const struct ledger_node_source src = {get, NULL};

/* The definition itself, straight from RFC 9162 §2.1.1; slow. */
static void root_by_definition(const struct sha256 *leaf, uint64_t n, struct sha256 *out)
{
    if (n == 1) {
        *out = leaf[0];
        return;
    }
    uint64_t k = 1;
    while (k * 2 < n)
        k *= 2;
    uint8_t text[65] = {1};
    struct sha256 l, r;
    root_by_definition(leaf, k, &l);
    root_by_definition(leaf + k, n - k, &r);
    memcpy(text + 1, l.b, 32);
    memcpy(text + 33, r.b, 32);
    sha256_of(text, 65, out);
}

static int grow(void **state)
{
    (void)state;
    struct ledger_frontier f;
    struct ledger_node_sink sink = {put, NULL};
    struct rng r;
    rng_seed(&r, 42);
    for (unsigned i = 0; i < LEVELS; i++)
        levels[i] = calloc(((size_t)LEAVES >> i) + 1, sizeof **levels);
    ledger_frontier_init(&f);
    ledger_frontier_root(&f, &roots[0]);
    for (uint64_t i = 0; i < LEAVES; i++) {
        struct sha256 leaf;
        rng_bytes(&r, leaf.b, 32);
        ledger_frontier_append(&f, &leaf, &sink);
        ledger_frontier_root(&f, &roots[i + 1]);
    }
    return 0;
}

static void roots_are_those_of_the_definition(void **state)
{
    (void)state;
    struct sha256 root;
    struct ledger_frontier f;
    for (uint64_t n = 1; n <= SMALL * 4; n++) {
        root_by_definition(levels[0], n, &root);
        assert_true(sha256_eq(&root, &roots[n]));
        assert_int_equal(ledger_merkle_root(&src, n, &root), ERR_OK);
        assert_true(sha256_eq(&root, &roots[n]));
        assert_int_equal(ledger_merkle_frontier(&src, n, &f), ERR_OK);
        ledger_frontier_root(&f, &root);
        assert_true(sha256_eq(&root, &roots[n]));
    }
}

static void same_node(void *ctx, unsigned level, uint64_t index, const struct sha256 *h)
{
    uint64_t *next = ctx; /* per level */
    assert_int_equal(index, next[level]++);
    assert_true(sha256_eq(h, &levels[level][index]));
}

/* However the leaves are cut into stretches: the same nodes, each once and in order, the same frontier. */
static void leaves_appended_in_stretches_give_the_same_nodes(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 7);
    for (unsigned round = 0; round < 6; round++) {
        struct ledger_frontier f;
        uint64_t next[MERKLE_LEVELS] = {0};
        struct ledger_node_sink sink = {same_node, next};
        ledger_frontier_init(&f);
        while (f.n < LEAVES) {
            uint64_t some = rng_below(&r, round % 2 == 0 ? 5 : 700);
            some = some > LEAVES - f.n ? LEAVES - f.n : some;
            ledger_frontier_append_many(&f, levels[0] + f.n, some, &sink);
            struct sha256 root;
            ledger_frontier_root(&f, &root);
            assert_true(sha256_eq(&root, &roots[f.n]));
        }
        for (unsigned i = 0; i < LEVELS; i++)
            assert_int_equal(next[i], (uint64_t)LEAVES >> i);
    }
}

static void check_inclusion(uint64_t index, uint64_t size)
{
    struct sha256 path[MERKLE_PATH_MAX];
    size_t n;
    assert_int_equal(ledger_merkle_inclusion(&src, index, size, path, &n), ERR_OK);
    assert_int_equal(ledger_merkle_verify_inclusion(&levels[0][index], index, size, path, n, &roots[size]),
                     ERR_OK);
    for (size_t i = 0; i < n; i++) {
        path[i].b[index % 32] ^= (uint8_t)(1u << (size % 8));
        assert_int_not_equal(
            ledger_merkle_verify_inclusion(&levels[0][index], index, size, path, n, &roots[size]), ERR_OK);
        path[i].b[index % 32] ^= (uint8_t)(1u << (size % 8));
    }
    if (n > 0)
        assert_int_not_equal(
            ledger_merkle_verify_inclusion(&levels[0][index], index, size, path, n - 1, &roots[size]),
            ERR_OK);
    assert_int_not_equal(
        ledger_merkle_verify_inclusion(&levels[0][index], index + 1, size, path, n, &roots[size]), ERR_OK);
}

static void check_consistency(uint64_t from, uint64_t to)
{
    struct sha256 path[MERKLE_PATH_MAX];
    size_t n;
    assert_int_equal(ledger_merkle_consistency(&src, from, to, path, &n), ERR_OK);
    assert_int_equal(ledger_merkle_verify_consistency(from, to, &roots[from], &roots[to], path, n), ERR_OK);
    for (size_t i = 0; i < n; i++) {
        path[i].b[from % 32] ^= (uint8_t)(1u << (to % 8));
        assert_int_not_equal(ledger_merkle_verify_consistency(from, to, &roots[from], &roots[to], path, n),
                             ERR_OK);
        path[i].b[from % 32] ^= (uint8_t)(1u << (to % 8));
    }
    if (from != to)
        assert_int_not_equal(ledger_merkle_verify_consistency(from, to, &roots[to], &roots[from], path, n),
                             ERR_OK);
}

static void every_proof_of_every_small_tree_verifies(void **state)
{
    (void)state;
    for (uint64_t size = 1; size <= SMALL; size++)
        for (uint64_t i = 0; i < size; i++) {
            check_inclusion(i, size);
            check_consistency(i + 1, size);
        }
}

static void random_proofs_of_large_trees_verify(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 1);
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t size = 1 + rng_below(&r, LEAVES);
        check_inclusion(rng_below(&r, size), size);
        check_consistency(1 + rng_below(&r, size), size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roots_are_those_of_the_definition),
        cmocka_unit_test(leaves_appended_in_stretches_give_the_same_nodes),
        cmocka_unit_test(every_proof_of_every_small_tree_verifies),
        cmocka_unit_test(random_proofs_of_large_trees_verify),
    };
    return cmocka_run_group_tests(tests, grow, NULL);
}
