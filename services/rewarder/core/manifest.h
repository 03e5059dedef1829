/*
 * The documents of a run in canonical JSON: run.json (what was computed; signed), settlement.json (where the ledger put
 * it; signed), the unit's meta, and the one-line commitment.
 *
 * Memory      Everything is appended to the caller's buf; look at b->err afterwards.
 */
#ifndef RON_REWARDER_CORE_MANIFEST_H
#define RON_REWARDER_CORE_MANIFEST_H

#include "base/buf.h"
#include "services/rewarder/core/calc.h"

struct rewarder_pool {
    wide_u128 declared;
    bool from_balance;
    uint64_t ledger_seq; /* with from_balance */
};

struct rewarder_manifest {
    struct str tenant, epoch;
    const struct rewarder_policy *policy;
    const struct rewarder_rows *rows;
    struct rewarder_pool pool;
    const struct rewarder_result *result;
};

void rewarder_manifest_write(const struct rewarder_manifest *m, struct buf *b);
/* "merkle-sum-sha256/1 <root hex> <sum> <count>\n" */
void rewarder_commitment_write(const struct rewarder_result *r, struct buf *b);

enum { REWARDER_CHUNK = 512 }; /* leaves in one ledger unit */

static inline uint64_t rewarder_chunk_count(uint64_t leaves)
{
    return (leaves + REWARDER_CHUNK - 1) / REWARDER_CHUNK;
}

static inline uint32_t rewarder_chunk_leaves(uint64_t leaves, uint32_t chunk)
{
    uint64_t rest = leaves - (uint64_t)chunk * REWARDER_CHUNK;
    return rest < REWARDER_CHUNK ? (uint32_t)rest : REWARDER_CHUNK;
}

struct rewarder_chunk_place {
    uint32_t leaves;
    uint64_t seq_start; /* 0: not settled */
};

/* True when every leaf has exactly one ledger seq: all chunks placed, full, and their ranges disjoint. */
bool rewarder_settlement_is_bijection(const struct rewarder_chunk_place *places, uint64_t chunks,
                                      uint64_t leaves);

struct rewarder_settlement {
    struct str tenant, epoch;
    struct sha256 run_key;
    struct sha256 root; /* of the run's tree */
    const struct rewarder_chunk_place *places;
    uint64_t chunks;
    uint64_t tree_size; /* of the ledger after the last unit */
    struct sha256 ledger_root;
};
void rewarder_settlement_write(const struct rewarder_settlement *s, struct buf *b);

/* What every unit carries into the ledger's tree. */
void rewarder_unit_meta_write(struct str tenant, struct str epoch, const struct sha256 *manifest,
                              const struct sha256 *root, uint32_t chunk, struct buf *b);

/* Nonce of a lane: lane in the high 16 bits, counter from 1 in the low 48. */
static inline uint64_t rewarder_lane_nonce(uint32_t lane, uint64_t counter)
{
    return (uint64_t)lane << 48 | counter;
}

#endif
