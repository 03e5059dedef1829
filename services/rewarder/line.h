/*
 * One line of registry.log, read. Members a line does not have are zero; members this version does not know are skipped.
 * What writes lines: rewarder_note_*() in rewarder.h.
 *
 * Ownership   Texts live in the arena.
 */
#ifndef RON_REWARDER_LINE_H
#define RON_REWARDER_LINE_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/money.h"
#include "base/sha256.h"

struct rewarder_line {
    uint64_t n;
    struct str tenant, epoch, op;
    /* sealed */
    struct sha256 run_key, cid, digest, manifest, root, policy_hash;
    bool has_run_key, has_cid, has_digest, has_manifest, has_root, has_policy_hash;
    bool has_declared, has_pool, has_payouts, has_dust;
    struct money declared, pool, payouts, dust;
    struct str policy_id, funding, asset;
    bool from_balance;
    uint64_t ledger_seq, paid, leaves;
    int64_t sealed_at;
    /* quarantined, released, discarded */
    struct str kind, reason, refused;
    bool has_placed;
    struct money placed;
    int64_t at;
    /* settled */
    int64_t settled_at;
    uint64_t seq_first, seq_last;
};

/* ERR_CORRUPT: not a line of ours; ERR_NO_MEMORY. */
NODISCARD enum err rewarder_line_read(struct bytes text, struct arena *arena, struct rewarder_line *out);

#endif
