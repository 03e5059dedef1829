/* What the files of `ron rewarder verify` share: a fetched run, read with code of their own. */
#ifndef RON_CMD_REWARDER_VERIFY_H
#define RON_CMD_REWARDER_VERIFY_H

#include <jansson.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "ron/cmd.h"
#include "rt/lock.h"

typedef unsigned __int128 u128;

enum { VERIFY_DIMS = 16, VERIFY_MISMATCH = 1, VERIFY_UNREADABLE = 3, VERIFY_LEAF = 1 };

struct verify_row {
    struct str account;
    u128 amount, rounded, score, floor, remainder;
    uint64_t usage[VERIFY_DIMS];
    uint32_t rank;
    uint8_t flags;
};

struct verify_run {
    struct buf payouts, manifest;
    json_t *root;
    unsigned dims;
    char dim[VERIFY_DIMS][33];
    uint8_t salt[32];
    uint32_t salt_n;
    uint64_t rows, leaves;
    u128 pool, total;
    struct verify_row *row;
    uint64_t weight[VERIFY_DIMS]; /* W of each dimension, 0 when it is not weighed */
};

int verify_mismatch(struct cmd_ctx *ctx, const char *what); /* says it, returns VERIFY_MISMATCH */

const char *verify_text(const json_t *o,
                        const char *name);             /* a member of a file; "" when it is not there */
u128 verify_amount(const json_t *o, const char *name); /* 0 when it is no amount */

/* Scores, shares, rounding and dust are what the policy in run.json makes of the rows. */
int verify_split(struct cmd_ctx *ctx, struct verify_run *r);
/* What run.json says about the table as a whole; after the split. */
int verify_totals(struct cmd_ctx *ctx, const struct verify_run *r);
/* The snapshot file at `path` is what was rewarded. */
int verify_inputs(struct cmd_ctx *ctx, const struct verify_run *r, const char *path);
/* Every leaf has the ledger entry that settlement.json names, and it is the payout; asks the ledger at `url`. */
int verify_ledger(struct cmd_ctx *ctx, const struct verify_run *r, const char *dir,
                  const char *url) RT_BLOCKS;

#endif
