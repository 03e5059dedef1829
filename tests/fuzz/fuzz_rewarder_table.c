/*
 * payouts.bin and tree.bin, whoever wrote them: made by a real computation, then damaged as the input says, with the trailing hash
 * left wrong or made right again. A wrong one is refused; one that opens can be walked, searched and proved from without going out
 * of bounds, and every proof leads to the root of the tree that the table itself gives.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "services/rewarder/core/calc.h"
#include "take.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROWS_MAX = 9 };

/* free() it. */
static uint8_t *make_table(struct take *t, struct rewarder_tree *tree, size_t *out_n)
{
    static const struct str dim = STR_INIT("points");
    uint8_t bytes[512];
    struct rewarder_policy policy = {.min_payout = 1, .weight_count = 1};
    struct rewarder_rows rows = {.tenant = STR_INIT("t"),
                                 .epoch = STR_INIT("e"),
                                 .dim_count = 1,
                                 .count = take_number(t, 1) % (ROWS_MAX + 1)};
    struct rewarder_calc *calc;
    unsigned index;
    rows.dims[0] = dim;
    policy.rounding = (enum rewarder_rounding)(take_number(t, 1) % 3);
    policy.weights[0].whole = 1;
    memcpy(policy.weights[0].dim, "points", 7);
    memcpy(policy.funding, "pool:rewards", 13);
    memcpy(policy.dust, "pool:dust", 10);
    size_t at = rewarder_rows_header(&rows, bytes);
    for (unsigned i = 0; i < rows.count; i++, at += 10) {
        bytes[at] = 1;
        bytes[at + 1] = (uint8_t)('l' + i);
        be64_put(bytes + at + 2, take_number(t, 3));
    }
    CHECK(rewarder_rows_open((struct bytes){bytes, at}, &rows) == ERR_OK);
    CHECK(rewarder_calc_create(&rows, &policy, take_number(t, 3), 4, &calc, &index) == ERR_OK);
    CHECK(rewarder_calc_run(calc) == ERR_OK);
    const struct rewarder_tree *made = rewarder_calc_tree(calc);
    size_t n = rewarder_tree_bytes(made);
    uint8_t *file = malloc(n);
    CHECK(file != NULL);
    rewarder_tree_encode(made, file);
    CHECK(rewarder_tree_decode((struct bytes){file, n}, tree) == ERR_OK);
    CHECK(sha256_eq(&tree->root.hash, &rewarder_calc_result(calc)->root.hash));
    free(file);
    file = rewarder_calc_take_file(calc, out_n);
    rewarder_calc_destroy(calc);
    return file;
}

/* A few bytes changed, or the end cut off; with `sealed` the hash at the end fits again. */
static bool damage(struct take *t, uint8_t *file, size_t *n, bool sealed)
{
    unsigned changes = (unsigned)take_number(t, 1) % 5;
    struct sha256 sum;
    for (unsigned i = 0; i < changes; i++)
        file[take_number(t, 2) % *n] ^= (uint8_t)take_number(t, 1);
    if (changes == 4)
        *n -= take_number(t, 1) % *n;
    if (sealed && *n > 32) {
        sha256_of(file, *n - 32, &sum);
        memcpy(file + *n - 32, sum.b, 32);
    }
    return changes != 0;
}

static void prove_all(const struct rewarder_payouts *v)
{
    struct rewarder_tree tree;
    struct rewarder_salter salter;
    uint8_t salt[REWARDER_LEAF_SALT_BYTES];
    if (rewarder_payouts_tree(v, &tree) != ERR_OK)
        return; /* amounts that were made up may add up to too much */
    rewarder_salter_init(&salter, v->salt);
    for (uint64_t i = 0; i < v->rows; i++) {
        struct rewarder_payout row = rewarder_payouts_row(v, i);
        struct rewarder_proof p;
        uint64_t at;
        CHECK(rewarder_payouts_find(v, row.account, &at) && at == i);
        if (!rewarder_payouts_is_leaf(v, i))
            continue;
        CHECK(rewarder_payouts_row_of_leaf(v, rewarder_payouts_leaf_of(v, i)) == i);
        rewarder_payouts_prove(v, &tree, i, &p);
        struct rewarder_node leaf = rewarder_leaf(
            (struct bytes){salt, rewarder_leaf_salt(&salter, row.account, salt)}, row.account, row.amount);
        CHECK(rewarder_proof_check(&p, &leaf, &tree.root) == ERR_OK);
    }
    rewarder_tree_fini(&tree);
}

static void open_table(struct bytes file, bool whole)
{
    struct rewarder_payouts v;
    uint64_t at;
    if (rewarder_payouts_open(file, &v) != ERR_OK) {
        CHECK(!whole);
        return;
    }
    (void)rewarder_payouts_find(&v, STR("nobody"), &at);
    prove_all(&v);
    rewarder_payouts_close(&v);
}

static void open_tree(struct take *t, const struct rewarder_tree *tree)
{
    size_t n = rewarder_tree_bytes(tree);
    uint8_t *file = malloc(n);
    struct rewarder_tree back;
    CHECK(file != NULL);
    rewarder_tree_encode(tree, file);
    bool sealed = take_number(t, 1) % 2, changed = damage(t, file, &n, sealed);
    enum err e = rewarder_tree_decode((struct bytes){file, n}, &back);
    CHECK(e == ERR_OK || changed);
    if (e == ERR_OK)
        rewarder_tree_fini(&back);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct take t = {data, size};
    struct rewarder_payouts v;
    struct rewarder_tree tree;
    size_t n;
    if (take_number(&t, 1) % 8 == 0) { /* no table at all */
        if (rewarder_payouts_open((struct bytes){t.p, t.n}, &v) == ERR_OK)
            rewarder_payouts_close(&v);
        if (rewarder_tree_decode((struct bytes){t.p, t.n}, &tree) == ERR_OK)
            rewarder_tree_fini(&tree);
        return 0;
    }
    uint8_t *file = make_table(&t, &tree, &n);
    bool sealed = take_number(&t, 1) % 2, changed = damage(&t, file, &n, sealed);
    open_table((struct bytes){file, n}, !changed);
    open_tree(&t, &tree);
    rewarder_tree_fini(&tree);
    free(file);
    return 0;
}
