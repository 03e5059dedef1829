/* What the files of `ron rewarder verify` share: a fetched run, read with code of their own, part by part on all cores. */
#ifndef RON_CMD_REWARDER_VERIFY_H
#define RON_CMD_REWARDER_VERIFY_H

#include <jansson.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/sha256.h"
#include "ron/cmd.h"
#include "rt/lock.h"

typedef unsigned __int128 u128;

enum { VERIFY_DIMS = 16, VERIFY_MISMATCH = 1, VERIFY_UNREADABLE = 3, VERIFY_DUST = 2 };

struct verify_row {
    struct str account;
    u128 amount, rounded, score, floor, remainder;
    const uint8_t *usage; /* as it stands in the table: verify_usage() */
    uint32_t rank;
    uint8_t flags;
};

/* Rows from .. to-1, what one core found in them. */
struct verify_part {
    uint64_t from, to;
    const char *wrong; /* NULL: nothing */
    u128 payouts, dust, scores, floors, rounded;
    uint64_t paid, unpaid, dust_rows; /* rows of the inputs that are paid or not; the dust account's */
    uint64_t first_leaf, leaves;
};

struct verify_run {
    struct buf payouts, manifest;
    struct sha256 payouts_digest, rows_digest;
    bool intact; /* payouts.bin ends in its hash */
    json_t *root;
    unsigned dims;
    char dim[VERIFY_DIMS][33];
    uint8_t salt[32];
    uint32_t salt_n;
    uint64_t rows, leaves;
    u128 pool, total;
    struct verify_row *row;
    uint64_t weight[VERIFY_DIMS]; /* W of each dimension, 0 when it is not weighed */
    struct verify_part *part;
    uint64_t parts;
    struct merkle_sum *nodes; /* of the tree */
};

static inline uint64_t verify_usage(const struct verify_row *w, unsigned dim)
{
    return be64_get(w->usage + (size_t)8 * dim);
}

/* `part` for every part of the table and, where it is not NULL, `beside` once, all at the same time; what is wrong with the first
 * part that has something wrong, or NULL. */
const char *verify_each(struct verify_run *r, void (*part)(struct verify_run *r, struct verify_part *p),
                        void (*beside)(struct verify_run *r));

int verify_mismatch(struct cmd_ctx *ctx, const char *what); /* says it, returns VERIFY_MISMATCH */

const char *verify_text(const json_t *o,
                        const char *name);             /* a member of a file; "" when it is not there */
u128 verify_amount(const json_t *o, const char *name); /* 0 when it is no amount */

/* Scores, shares, rounding, caps and dust are what the policy in run.json makes of the rows. */
int verify_split(struct cmd_ctx *ctx, struct verify_run *r);
/* Accounts ascend, and amounts add up to the pool and to what run.json says about the table as a whole. */
int verify_totals(struct cmd_ctx *ctx, struct verify_run *r);
/* The tree over the payouts has the committed root, count and sum; `beside` as in verify_each(). */
int verify_tree(struct cmd_ctx *ctx, struct verify_run *r, void (*beside)(struct verify_run *r));
/* `path` holds the signature of `manifest` by the key in the file `key`; path NULL: sigs/ in `dir` does. */
int verify_signature(struct cmd_ctx *ctx, struct bytes manifest, const char *dir, const char *key,
                     const char *path);
/* The snapshot file at `path` is what was rewarded. */
int verify_inputs(struct cmd_ctx *ctx, const struct verify_run *r, const char *path);
/* Every leaf has the ledger entry that settlement.json names, and it is the payout; asks the ledger at `url`. */
int verify_ledger(struct cmd_ctx *ctx, const struct verify_run *r, const char *dir,
                  const char *url) RT_BLOCKS;

#endif
