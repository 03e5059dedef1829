/* What calc.c (phases), rank.c (who gets the rest) and calc_commit.c (the finished table) share. */
#ifndef RON_REWARDER_CORE_CALC_INTERNAL_H
#define RON_REWARDER_CORE_CALC_INTERNAL_H

#include "services/rewarder/core/calc.h"

/* Remainders are cut into ranges by their top bits (aligned to S): one range is one part of RANK. */
enum { CALC_RANGE_BITS = 6, CALC_RANGES = 1 << CALC_RANGE_BITS };

struct rank_item {
    uint32_t key; /* complement of the remainder's top bits: ascending keys are descending remainders */
    uint32_t row;
};

struct calc_part {
    size_t rows_at;    /* offset of its first row in the canonical rows */
    uint64_t first, n; /* row numbers */
    wide_u128 score, whole, amount;
    uint64_t heap_n, heap_at; /* account bytes: its own, and before it */
    uint64_t leaves, leaves_before, paid;
    const char *reserved;
    uint32_t range_n[CALC_RANGES], range_at[CALC_RANGES]; /* its items per range, and where they go */
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
    /* ranking; NULL when nothing is ranked */
    struct rank_item *items;
    uint32_t range_first[CALC_RANGES + 1];
    wide_u128 left_over; /* units for the first so many ranks */
    /* the table */
    uint8_t *file;
    size_t file_n, records_at, heap_at, stride;
    uint64_t record_count, dust_row; /* dust_row == record_count: there is none */
    struct rewarder_salter salter;
    struct rewarder_tree tree;
    const char *reserved;
    enum rewarder_phase phase; /* the next one to be closed */
};

/* rank.c */
/* shift = wide_clz(S): every remainder is below S */
static inline uint32_t calc_rank_key(wide_u128 remainder, int shift)
{
    return ~(uint32_t)((remainder << shift) >> 96);
}
/* From the counts in the parts: who writes where. ERR_NO_MEMORY. */
NODISCARD enum err calc_rank_prepare(struct rewarder_calc *c, wide_u128 left_over);
void calc_rank_scatter(struct rewarder_calc *c, struct calc_part *p);
NODISCARD enum err calc_rank_range(struct rewarder_calc *c, unsigned range); /* ERR_NO_MEMORY */
/* Works on score and amount (webster's rounding) and fills rank and result.cut. */
NODISCARD enum err calc_webster(struct rewarder_calc *c, wide_u128 rounded_total);

/* calc_commit.c; all ERR_CONSERVATION */
NODISCARD enum err calc_conserve_part(struct rewarder_calc *c, uint64_t part);
NODISCARD enum err calc_conserve_close(struct rewarder_calc *c); /* also ERR_NO_MEMORY */
uint64_t calc_commit_parts(const struct rewarder_calc *c);
NODISCARD enum err calc_commit_part(struct rewarder_calc *c, uint64_t part);
NODISCARD enum err calc_commit_close(struct rewarder_calc *c);

#endif
