/*
 * The last two phases look at nothing but the finished table. CONSERVE adds up what is stored there and holds it against the
 * pool; COMMIT hashes the file and its leaves, and the tree adds the same numbers up once more. So a mistake in the phases before
 * shows here, twice.
 */
#include "base/check.h"
#include "services/rewarder/core/calc_internal.h"

enum { LEAVES_PER_PART = 16384 };

/* ---- CONSERVE ---- */

/* Records of part p: its rows, and the dust row when it stands among or right after them. */
static void record_span(const struct rewarder_calc *c, uint64_t p, uint64_t *out_from, uint64_t *out_to)
{
    const struct calc_part *part = &c->parts[p];
    *out_from = part->first + (part->first > c->dust_row);
    *out_to = part->first + part->n + (part->first + part->n > c->dust_row);
    if (p + 1 == c->part_count)
        *out_to = c->record_count;
}

static struct str stored_account(const struct rewarder_calc *c, uint64_t record)
{
    const uint8_t *p = c->file + c->records_at + record * c->stride;
    return (struct str){(const char *)c->file + c->heap_at + be64_get(p + 32), p[44]};
}

static bool stored_amount_allowed(const struct rewarder_calc *c, wide_u128 amount, uint8_t flags)
{
    if (((flags & REWARDER_LEAF) != 0) != (amount > 0))
        return false;
    if ((flags & REWARDER_DUST) || amount == 0)
        return true;
    return amount >= c->policy->min_payout && (!c->policy->has_max || amount <= c->policy->max_payout);
}

enum err calc_conserve_part(struct rewarder_calc *c, uint64_t part)
{
    uint64_t from, to, leaves = 0;
    wide_u128 sum = 0;
    record_span(c, part, &from, &to);
    size_t heap_n = c->file_n - 32 - c->heap_at;
    for (uint64_t i = from; i < to; i++) {
        const uint8_t *p = c->file + c->records_at + i * c->stride;
        wide_u128 amount = be128_get(p);
        uint64_t heap = be64_get(p + 32);
        if (heap > heap_n || p[44] > heap_n - heap)
            return ERR_CONSERVATION;
        if (i && str_cmp(stored_account(c, i - 1), stored_account(c, i)) >= 0)
            return ERR_CONSERVATION;
        if (!stored_amount_allowed(c, amount, p[45]) || wide_add_overflows(sum, amount, &sum))
            return ERR_CONSERVATION;
        leaves += p[45] & REWARDER_LEAF;
    }
    c->parts[part].amount = sum;
    c->parts[part].leaves = leaves;
    return ERR_OK;
}

enum err calc_conserve_close(struct rewarder_calc *c)
{
    wide_u128 sum = 0;
    uint64_t leaves = 0;
    for (uint64_t p = 0; p < c->part_count; p++) {
        c->parts[p].leaves_before = leaves;
        leaves += c->parts[p].leaves;
        if (wide_add_overflows(sum, c->parts[p].amount, &sum))
            return ERR_CONSERVATION;
    }
    if (sum != c->result.pool || c->result.payouts + c->result.dust != c->result.pool ||
        leaves != c->result.leaves)
        return ERR_CONSERVATION;
    return rewarder_tree_init(&c->tree, leaves);
}

/* ---- COMMIT ---- */

static void hash_file(struct rewarder_calc *c)
{
    struct sha256 sum;
    struct sha256_ctx ctx, whole;
    sha256_init(&ctx);
    sha256_update(&ctx, c->file, c->file_n - 32);
    whole = ctx;
    sha256_final(&ctx, &sum);
    memcpy(c->file + c->file_n - 32, sum.b, 32);
    sha256_update(&whole, sum.b, 32);
    sha256_final(&whole, &c->result.file_hash);
}

/* The record of the given leaf: its part by the prefix sums, then along the flags. */
static uint64_t record_of_leaf(const struct rewarder_calc *c, uint64_t leaf)
{
    uint64_t lo = 0, hi = c->part_count - 1;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo + 1) / 2;
        if (c->parts[mid].leaves_before <= leaf)
            lo = mid;
        else
            hi = mid - 1;
    }
    uint64_t record, end, seen = c->parts[lo].leaves_before;
    record_span(c, lo, &record, &end);
    for (;; record++) {
        CHECK(record < c->record_count);
        if ((c->file[c->records_at + record * c->stride + 45] & REWARDER_LEAF) && seen++ == leaf)
            return record;
    }
}

static enum err hash_leaves(struct rewarder_calc *c, uint64_t part)
{
    uint64_t leaf = part * LEAVES_PER_PART;
    uint64_t end = c->tree.leaves - leaf < LEAVES_PER_PART ? c->tree.leaves : leaf + LEAVES_PER_PART;
    const uint8_t *p = c->file + c->records_at + record_of_leaf(c, leaf) * c->stride;
    const char *heap = (const char *)c->file + c->heap_at;
    struct rewarder_leaves leaves;
    rewarder_leaves_begin(&leaves, &c->salter);
    while (leaf < end) {
        struct rewarder_node nodes[REWARDER_TREE_BLOCK], node;
        uint64_t block = leaf / REWARDER_TREE_BLOCK;
        size_t n = end - leaf < REWARDER_TREE_BLOCK ? (size_t)(end - leaf) : REWARDER_TREE_BLOCK;
        for (size_t i = 0; i < n; p += c->stride) {
            if (!(p[45] & REWARDER_LEAF))
                continue;
            struct str account = {heap + be64_get(p + 32), p[44]};
            rewarder_leaves_add(&leaves, account, be128_get(p), &nodes[i++]);
        }
        rewarder_leaves_end(&leaves);
        enum err e = rewarder_nodes_reduce(nodes, n, &node);
        if (e != ERR_OK)
            return ERR_CONSERVATION; /* the conservation pass added the same numbers */
        rewarder_tree_set_block(&c->tree, block, &node);
        leaf += n;
    }
    return ERR_OK;
}

uint64_t calc_commit_parts(const struct rewarder_calc *c)
{
    return 1 + (c->tree.leaves + LEAVES_PER_PART - 1) / LEAVES_PER_PART;
}

enum err calc_commit_part(struct rewarder_calc *c, uint64_t part)
{
    if (part > 0)
        return hash_leaves(c, part - 1);
    hash_file(c);
    return ERR_OK;
}

enum err calc_commit_close(struct rewarder_calc *c)
{
    if (rewarder_tree_close(&c->tree) != ERR_OK || c->tree.root.sum != c->result.pool)
        return ERR_CONSERVATION;
    c->result.root = c->tree.root;
    return ERR_OK;
}
