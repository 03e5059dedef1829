/*
 * Canonical rows: the one byte form of a usage snapshot. Its SHA-256 is the inputs digest, equal for every row order
 * and file format of the same usage.
 *
 *   "RONROWS1" | lp(tenant) | lp(epoch) | lp(salt) | u8 D | D x lp(dim) ascending | u64 N
 *   | N x ( lp(account) | D x u64 usage, dims ascending ), accounts ascending          (integers big-endian)
 *
 * Valid when every name matches its grammar, dims and accounts are strictly ascending, usage is below 2^63 and the
 * bytes end exactly after row N.
 *
 * Ownership   struct rewarder_rows borrows the bytes (a mapping or a buffer); they must outlive it.
 * Threads     A view is immutable after rewarder_rows_open().
 */
#ifndef RON_REWARDER_CORE_ROWS_H
#define RON_REWARDER_CORE_ROWS_H

#include "base/bytes.h"
#include "base/err.h"
#include "services/rewarder/core/ident.h"

enum { REWARDER_SALT_MAX = 32 };

struct rewarder_rows {
    struct bytes all;
    struct str tenant, epoch;
    struct bytes salt;
    unsigned dim_count;
    struct str dims[REWARDER_DIMS_MAX];
    uint64_t count;
    size_t first; /* offset of row 0 */
    struct sha256 digest;
};

struct rewarder_row {
    struct str account;
    const uint8_t *usage; /* dim_count x u64, big-endian */
};

/* Checks every byte and hashes them. ERR_CORRUPT when anything is not canonical. */
NODISCARD enum err rewarder_rows_open(struct bytes all, struct rewarder_rows *out);

/* The row at *at, which moves to the next one. Only on a view that rewarder_rows_open() accepted. */
static inline struct rewarder_row rewarder_rows_next(const struct rewarder_rows *rows, size_t *at)
{
    const uint8_t *p = rows->all.p + *at;
    struct rewarder_row row = {.account = {(const char *)p + 1, p[0]}, .usage = p + 1 + p[0]};
    *at += 1u + p[0] + 8u * rows->dim_count;
    return row;
}

/* The header up to and including the row count; returns its length. out has REWARDER_ROWS_HEADER_MAX bytes. */
enum {
    REWARDER_ROWS_HEADER_MAX = 8 + 2 * (1 + REWARDER_NAME_MAX) + 1 + REWARDER_SALT_MAX + 1 +
                               REWARDER_DIMS_MAX * (1 + REWARDER_DIM_MAX) + 8
};
size_t rewarder_rows_header(const struct rewarder_rows *head, uint8_t *out);

#endif
