/*
 * payouts.bin: every input row with what it was paid and why, in one self-contained, hashed table.
 *
 *   0    "RONPAY01" | u32 D | u32 salt_len | u64 rows | u64 leaves | u128 pool | u128 score_total
 *   64   salt[32] zero-padded | inputs_digest[32]
 *   128  D x dim[32] zero-padded
 *   ...  rows x ( u128 amount | u128 rounded | u64 heap offset | u32 rank | u8 account_len | u8 flags | u16 0 | D x u64 )
 *   ...  heap of account bytes | SHA-256 of all before
 *
 * Rows are ascending by account and include the dust row when dust > 0. Integers are big-endian. Valid when the sizes
 * add up exactly, accounts ascend and the hash matches.
 *
 * Ownership   A view borrows the bytes and owns a small index (rewarder_payouts_close).
 * Threads     Immutable after rewarder_payouts_open().
 */
#ifndef RON_REWARDER_CORE_PAYOUTS_H
#define RON_REWARDER_CORE_PAYOUTS_H

#include "services/rewarder/core/rows.h"
#include "services/rewarder/core/tree.h"

enum {
    REWARDER_PAY_HEAD = 128,
    REWARDER_PAY_ROW = 48, /* + 8 per dimension */
    REWARDER_PAY_MARK = 1024,
    REWARDER_LEAF = 1,
    REWARDER_DUST = 2,
    REWARDER_CAPPED = 4,
    REWARDER_BELOW_MIN = 8,
};

struct rewarder_payout {
    struct str account;
    wide_u128 amount, rounded;
    uint32_t rank;
    uint8_t flags;
    const uint8_t *usage; /* D x u64, big-endian */
};

struct rewarder_payouts {
    struct bytes all;
    unsigned dim_count;
    struct str dims[REWARDER_DIMS_MAX];
    struct bytes salt;
    struct sha256 inputs_digest, file_hash;
    uint64_t rows, leaves;
    wide_u128 pool, score_total;
    size_t stride;
    const uint8_t *records, *heap;
    size_t heap_n;
    uint64_t *marks; /* leaves before row i * REWARDER_PAY_MARK */
};

/* Everything is checked, also the hash. ERR_CORRUPT, ERR_NO_MEMORY. */
NODISCARD enum err rewarder_payouts_open(struct bytes file, struct rewarder_payouts *out);
void rewarder_payouts_close(struct rewarder_payouts *v);

static inline struct rewarder_payout rewarder_payouts_row(const struct rewarder_payouts *v, uint64_t i)
{
    const uint8_t *p = v->records + i * v->stride;
    return (struct rewarder_payout){
        .amount = be128_get(p),
        .rounded = be128_get(p + 16),
        .account = {(const char *)v->heap + be64_get(p + 32), p[44]},
        .rank = be32_get(p + 40),
        .flags = p[45],
        .usage = p + REWARDER_PAY_ROW,
    };
}

static inline bool rewarder_payouts_is_leaf(const struct rewarder_payouts *v, uint64_t i)
{
    return v->records[i * v->stride + 45] & REWARDER_LEAF;
}

/* Binary search; false when the account is not in the table. */
bool rewarder_payouts_find(const struct rewarder_payouts *v, struct str account, uint64_t *out_row);
/* Leaf number of a row that is a leaf, and back. */
uint64_t rewarder_payouts_leaf_of(const struct rewarder_payouts *v, uint64_t row);
uint64_t rewarder_payouts_row_of_leaf(const struct rewarder_payouts *v, uint64_t leaf);

/* The tree over the table's leaves, from scratch. ERR_OVERFLOW, ERR_NO_MEMORY. */
NODISCARD enum err rewarder_payouts_tree(const struct rewarder_payouts *v, struct rewarder_tree *out);
void rewarder_payouts_prove(const struct rewarder_payouts *v, const struct rewarder_tree *t, uint64_t row,
                            struct rewarder_proof *out);

#endif
