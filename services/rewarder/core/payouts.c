#include "services/rewarder/core/payouts.h"

#include <stdlib.h>

#include "base/str.h"

static const char pay_magic[8] = "RONPAY01";

static bool read_head(struct rewarder_payouts *v)
{
    const uint8_t *p = v->all.p;
    if (v->all.n < REWARDER_PAY_HEAD + 32 || memcmp(p, pay_magic, 8) != 0)
        return false;
    v->dim_count = be32_get(p + 8);
    uint32_t salt_n = be32_get(p + 12);
    v->rows = be64_get(p + 16);
    v->leaves = be64_get(p + 24);
    v->pool = be128_get(p + 32);
    v->score_total = be128_get(p + 48);
    memcpy(v->inputs_digest.b, p + 96, 32);
    if (v->dim_count == 0 || v->dim_count > REWARDER_DIMS_MAX || salt_n > REWARDER_SALT_MAX ||
        v->leaves > v->rows)
        return false;
    v->salt = (struct bytes){p + 64, salt_n};
    v->stride = REWARDER_PAY_ROW + 8u * v->dim_count;
    size_t head = REWARDER_PAY_HEAD + 32u * v->dim_count;
    if (v->all.n < head + 32 || v->rows > (v->all.n - head - 32) / v->stride)
        return false;
    for (unsigned d = 0; d < v->dim_count; d++) {
        const char *name = (const char *)p + REWARDER_PAY_HEAD + 32u * d;
        v->dims[d] = (struct str){name, strnlen(name, 32)};
        if (!rewarder_is_dim(v->dims[d]) || (d && str_cmp(v->dims[d - 1], v->dims[d]) >= 0))
            return false;
    }
    v->records = p + head;
    v->heap = v->records + v->rows * v->stride;
    v->heap_n = v->all.n - 32 - head - v->rows * v->stride;
    return true;
}

/* Accounts lie in the heap one after the other, in row order, and ascend; leaf flags agree with the amounts. */
static bool read_rows(struct rewarder_payouts *v)
{
    uint64_t at = 0, leaves = 0;
    struct str before = {NULL, 0};
    for (uint64_t i = 0; i < v->rows; i++) {
        const uint8_t *p = v->records + i * v->stride;
        if (be64_get(p + 32) != at || p[44] > v->heap_n - at)
            return false;
        struct rewarder_payout row = rewarder_payouts_row(v, i);
        if (!str_is_account(row.account) || (i && str_cmp(before, row.account) >= 0))
            return false;
        if (((row.flags & REWARDER_LEAF) != 0) != (row.amount > 0))
            return false;
        if (i % REWARDER_PAY_MARK == 0)
            v->marks[i / REWARDER_PAY_MARK] = leaves;
        leaves += row.flags & REWARDER_LEAF;
        at += row.account.n;
        before = row.account;
    }
    return at == v->heap_n && leaves == v->leaves;
}

enum err rewarder_payouts_open(struct bytes file, struct rewarder_payouts *out)
{
    struct rewarder_payouts v = {.all = file};
    if (!read_head(&v))
        return ERR_CORRUPT;
    struct sha256 sum;
    struct sha256_ctx c;
    sha256_init(&c);
    sha256_update(&c, file.p, file.n - 32);
    struct sha256_ctx whole = c;
    sha256_final(&c, &sum);
    if (memcmp(sum.b, file.p + file.n - 32, 32) != 0)
        return ERR_CORRUPT;
    sha256_update(&whole, sum.b, 32);
    sha256_final(&whole, &v.file_hash);
    v.marks = malloc((v.rows / REWARDER_PAY_MARK + 1) * sizeof *v.marks);
    if (!v.marks)
        return ERR_NO_MEMORY;
    if (!read_rows(&v)) {
        free(v.marks);
        return ERR_CORRUPT;
    }
    *out = v;
    return ERR_OK;
}

void rewarder_payouts_close(struct rewarder_payouts *v)
{
    free(v->marks);
    v->marks = NULL;
}

bool rewarder_payouts_find(const struct rewarder_payouts *v, struct str account, uint64_t *out_row)
{
    uint64_t lo = 0, hi = v->rows;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        const uint8_t *p = v->records + mid * v->stride;
        int c = str_cmp((struct str){(const char *)v->heap + be64_get(p + 32), p[44]}, account);
        if (c == 0) {
            *out_row = mid;
            return true;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

uint64_t rewarder_payouts_leaf_of(const struct rewarder_payouts *v, uint64_t row)
{
    uint64_t i = row / REWARDER_PAY_MARK * REWARDER_PAY_MARK, leaf = v->marks[row / REWARDER_PAY_MARK];
    for (; i < row; i++)
        leaf += rewarder_payouts_is_leaf(v, i);
    return leaf;
}

uint64_t rewarder_payouts_row_of_leaf(const struct rewarder_payouts *v, uint64_t leaf)
{
    CHECK(leaf < v->leaves);
    uint64_t lo = 0, hi = (v->rows - 1) / REWARDER_PAY_MARK;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo + 1) / 2;
        if (v->marks[mid] <= leaf)
            lo = mid;
        else
            hi = mid - 1;
    }
    uint64_t seen = v->marks[lo];
    for (uint64_t i = lo * REWARDER_PAY_MARK; i < v->rows; i++) {
        if (!rewarder_payouts_is_leaf(v, i))
            continue;
        if (seen++ == leaf)
            return i;
    }
    UNREACHABLE();
}

/* Leaf nodes of one block; returns how many there are. */
static size_t hash_block(const struct rewarder_payouts *v, const struct rewarder_salter *salter,
                         uint64_t block, struct rewarder_node nodes[REWARDER_TREE_BLOCK])
{
    uint64_t first = block * REWARDER_TREE_BLOCK;
    size_t n = v->leaves - first < REWARDER_TREE_BLOCK ? (size_t)(v->leaves - first) : REWARDER_TREE_BLOCK;
    uint64_t row = rewarder_payouts_row_of_leaf(v, first);
    struct rewarder_leaves leaves;
    rewarder_leaves_begin(&leaves, salter);
    for (size_t i = 0; i < n; row++) {
        struct rewarder_payout p = rewarder_payouts_row(v, row);
        if (p.flags & REWARDER_LEAF)
            rewarder_leaves_add(&leaves, p.account, p.amount, &nodes[i++]);
    }
    rewarder_leaves_end(&leaves);
    return n;
}

enum err rewarder_payouts_tree(const struct rewarder_payouts *v, struct rewarder_tree *out)
{
    struct rewarder_tree t;
    struct rewarder_salter salter;
    rewarder_salter_init(&salter, v->salt);
    enum err e = rewarder_tree_init(&t, v->leaves);
    uint64_t blocks = e == ERR_OK && t.level_count ? t.level_n[0] : 0;
    for (uint64_t b = 0; b < blocks && e == ERR_OK; b++) {
        struct rewarder_node nodes[REWARDER_TREE_BLOCK], node;
        size_t n = hash_block(v, &salter, b, nodes);
        e = rewarder_nodes_reduce(nodes, n, &node);
        if (e == ERR_OK)
            rewarder_tree_set_block(&t, b, &node);
    }
    if (e == ERR_OK)
        e = rewarder_tree_close(&t);
    if (e != ERR_OK) {
        rewarder_tree_fini(&t);
        return e;
    }
    *out = t;
    return ERR_OK;
}

void rewarder_payouts_prove(const struct rewarder_payouts *v, const struct rewarder_tree *t, uint64_t row,
                            struct rewarder_proof *out)
{
    struct rewarder_node nodes[REWARDER_TREE_BLOCK];
    struct rewarder_salter salter;
    uint64_t leaf = rewarder_payouts_leaf_of(v, row);
    rewarder_salter_init(&salter, v->salt);
    (void)hash_block(v, &salter, leaf / REWARDER_TREE_BLOCK, nodes);
    rewarder_tree_prove(t, leaf, nodes, out);
}
