/*
 * The allocation: from canonical rows, a policy and a pool to a conserved, committed table of payouts.
 *
 * Work is cut into phases, and each phase into parts that touch only their own slots. Whoever drives it runs all parts
 * of a phase (in any order, on any number of threads, a part again if its thread died), then closes the phase, then
 * goes on to the next. Partial sums are exact integers, so none of that can change a byte of the result.
 *
 *   SCORES    s_i = sum of usage * weight                       close: S, effective pool
 *   SPLIT     q_i = floor(P*s_i/S), r_i                         close: webster adjustments, or room for the ranking
 *   SCATTER   rows into 64 ranges of remainders                 close: -                (largest_remainder only)
 *   RANK      each range sorted, its rows ranked and rounded    close: -                (largest_remainder only)
 *   AMOUNTS   rounded, capped, below minimum                    close: dust, table layout
 *   TABLE     the rows of payouts.bin                           close: -
 *   CONSERVE  adds the stored amounts up again                  close: sum + dust == P, or ERR_CONSERVATION
 *   COMMIT    file hash (part 0), leaf hashes and block roots   close: tree, root sum == P again
 *
 * Ownership   The calc owns everything it makes; rows and policy must outlive it. rewarder_calc_take_file() hands the
 *             bytes of payouts.bin over.
 * Threads     Parts of one phase may run at once (a part that runs again must not overlap with itself); create, close and destroy may not overlap with anything.
 * Memory      Rows apart, at the peak 68 bytes per row plus 8 per dimension plus the account. No clock, I/O or locks.
 */
#ifndef RON_REWARDER_CORE_CALC_H
#define RON_REWARDER_CORE_CALC_H

#include "services/rewarder/core/payouts.h"
#include "services/rewarder/core/policy.h"

enum rewarder_phase {
    REWARDER_SCORES,
    REWARDER_SPLIT,
    REWARDER_SCATTER,
    REWARDER_RANK,
    REWARDER_AMOUNTS,
    REWARDER_TABLE,
    REWARDER_CONSERVE,
    REWARDER_COMMIT,
    REWARDER_PHASES
};

const char *rewarder_phase_name(enum rewarder_phase p);

struct rewarder_result {
    wide_u128 pool;        /* effective: 0 when nobody has a score */
    wide_u128 score_total; /* S */
    wide_u128 payouts, dust;
    uint64_t paid, unpaid, leaves;
    uint64_t cut;      /* k of largest_remainder, |D| of webster, else 0 */
    bool cut_negative; /* webster took away */
    struct sha256 file_hash;
    struct rewarder_node root;
};

struct rewarder_calc;

/*
 * pool is the declared one. ERR_DIMENSION_MISSING (*out_index: the policy's weight), ERR_POOL_TOO_LARGE (webster needs
 * pool < 2^127), ERR_NO_MEMORY.
 */
NODISCARD enum err rewarder_calc_create(const struct rewarder_rows *rows,
                                        const struct rewarder_policy *policy, wide_u128 pool,
                                        uint64_t partition_rows, struct rewarder_calc **out,
                                        unsigned *out_index);
void rewarder_calc_destroy(struct rewarder_calc *c);

uint64_t rewarder_calc_parts(const struct rewarder_calc *c, enum rewarder_phase phase);
/* ERR_OVERFLOW, ERR_RESERVED_ACCOUNT, ERR_CONSERVATION. */
NODISCARD enum err rewarder_calc_part(struct rewarder_calc *c, enum rewarder_phase phase, uint64_t part);
NODISCARD enum err rewarder_calc_close(struct rewarder_calc *c, enum rewarder_phase phase);
/* All phases that are left, on the calling thread. */
NODISCARD enum err rewarder_calc_run(struct rewarder_calc *c);

/* After ERR_RESERVED_ACCOUNT: "funding" or "dust". */
const char *rewarder_calc_reserved_role(const struct rewarder_calc *c);
/* After COMMIT was closed. */
const struct rewarder_result *rewarder_calc_result(const struct rewarder_calc *c);
const struct rewarder_tree *rewarder_calc_tree(const struct rewarder_calc *c);
struct bytes rewarder_calc_file(const struct rewarder_calc *c);
uint8_t *rewarder_calc_take_file(struct rewarder_calc *c, size_t *out_n); /* free() it */
/* The table between TABLE and CONSERVE, so that tests can damage it. */
uint8_t *rewarder_calc_table(struct rewarder_calc *c, size_t *out_n);

#endif
