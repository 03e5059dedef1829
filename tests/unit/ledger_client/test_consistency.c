/* The client's own consistency check against the ledger's proofs: every pair of small sizes, and every bit that may be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ledger_client/guard.h"
#include "services/ledger/core/merkle.h"

enum { N = 40 };

static struct sha256 nodes[7][N];

static enum err node_get(void *ctx, unsigned level, uint64_t index, struct sha256 *out)
{
    (void)ctx;
    *out = nodes[level][index];
    return ERR_OK;
}

static const struct ledger_node_source source = {.get = node_get};

static int build(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < N; i++)
        sha256_of(&i, sizeof i, &nodes[0][i]);
    for (unsigned level = 1; level < 7; level++)
        for (uint64_t i = 0; (i + 1) << level <= N; i++)
            ledger_merkle_node(&nodes[level - 1][2 * i], &nodes[level - 1][2 * i + 1], &nodes[level][i]);
    return 0;
}

static void every_true_prefix_is_accepted(void **state)
{
    (void)state;
    for (uint64_t to = 1; to <= N; to++)
        for (uint64_t from = 1; from <= to; from++) {
            struct sha256 path[MERKLE_PATH_MAX], a, b;
            size_t n;
            assert_int_equal(ledger_merkle_root(&source, from, &a), ERR_OK);
            assert_int_equal(ledger_merkle_root(&source, to, &b), ERR_OK);
            assert_int_equal(ledger_merkle_consistency(&source, from, to, path, &n), ERR_OK);
            assert_true(ledger_consistency_holds(from, to, &a, &b, path, n));
        }
}

static void one_wrong_bit_anywhere_is_refused(void **state)
{
    (void)state;
    for (uint64_t to = 2; to <= N; to += 3)
        for (uint64_t from = 1; from < to; from++) {
            struct sha256 path[MERKLE_PATH_MAX], a, b;
            size_t n;
            assert_int_equal(ledger_merkle_root(&source, from, &a), ERR_OK);
            assert_int_equal(ledger_merkle_root(&source, to, &b), ERR_OK);
            assert_int_equal(ledger_merkle_consistency(&source, from, to, path, &n), ERR_OK);
            for (size_t i = 0; i < n; i++) {
                path[i].b[from % 32] ^= 16;
                assert_false(ledger_consistency_holds(from, to, &a, &b, path, n));
                path[i].b[from % 32] ^= 16;
            }
            a.b[0] ^= 1;
            assert_false(ledger_consistency_holds(from, to, &a, &b, path, n));
            a.b[0] ^= 1;
            b.b[31] ^= 128;
            assert_false(ledger_consistency_holds(from, to, &a, &b, path, n));
            b.b[31] ^= 128;
            assert_false(ledger_consistency_holds(from, to, &a, &b, path, n - 1));
            path[n] = a;
            assert_false(ledger_consistency_holds(from, to, &a, &b, path, n + 1));
            assert_false(ledger_consistency_holds(0, to, &a, &b, path, n));
            assert_false(ledger_consistency_holds(to, from, &b, &a, path, n));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_true_prefix_is_accepted),
        cmocka_unit_test(one_wrong_bit_anywhere_is_refused),
    };
    return cmocka_run_group_tests(tests, build, NULL);
}
