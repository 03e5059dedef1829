/* What calc.c (phases) and rank.c (who gets the rest) share. */
#ifndef RON_REWARDER_CORE_CALC_INTERNAL_H
#define RON_REWARDER_CORE_CALC_INTERNAL_H

#include "services/rewarder/core/calc.h"

struct calc_part {
    size_t rows_at;    /* offset of its first row in the canonical rows */
    uint64_t first, n; /* row numbers */
    wide_u128 score, whole, amount;
    uint64_t heap_n, heap_at; /* account bytes: its own, and before it */
    uint64_t leaves, leaves_before, paid;
    const char *reserved;
};

struct rewarder_calc {
    const struct rewarder_rows *rows;
    const struct rewarder_policy *policy;
    uint64_t
        weights[REWARDER_DIMS_MAX]; /* per dimension of the rows; 0 when the policy does not weigh it */
    wide_u128 declared;
    struct rewarder_result result;
    uint64_t part_count;
    struct calc_part *parts;
    /* per row; freed as soon as no later phase needs them */
    wide_u128 *score, *remainder, *amount;
    uint32_t *rank;
    /* the table */
    uint8_t *file;
    size_t file_n, records_at, heap_at, stride;
    uint64_t record_count, dust_row; /* dust_row == record_count: there is none */
    struct rewarder_salter salter;
    struct rewarder_tree tree;
    const char *reserved;
    enum rewarder_phase phase; /* the next one to be closed */
};

/* rank.c: both work on score, remainder, amount (= floor or webster's rounding) and fill rank and result.cut. */
NODISCARD enum err calc_rank_remainders(struct rewarder_calc *c, wide_u128 left_over);
NODISCARD enum err calc_webster(struct rewarder_calc *c, wide_u128 rounded_total);

#endif
