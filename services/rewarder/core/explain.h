/*
 * Why a row got what it got: the derivation is recomputed from the stored row and the policy, not remembered.
 *
 * Threads     Pure.
 */
#ifndef RON_REWARDER_CORE_EXPLAIN_H
#define RON_REWARDER_CORE_EXPLAIN_H

#include "services/rewarder/core/payouts.h"
#include "services/rewarder/core/policy.h"

struct rewarder_explanation {
    wide_u128 score, floor, remainder;
    const char
        *why; /* exact rounded_down rounded_up adjusted_up adjusted_down capped below_min zero_score dust */
};

/* cut_negative: webster had to take units away in this run. */
struct rewarder_explanation rewarder_explain(const struct rewarder_payouts *v,
                                             const struct rewarder_policy *policy,
                                             const struct rewarder_payout *row, bool cut_negative);

/* k, |D| or 0 for the whole run, recomputed from the table. */
uint64_t rewarder_explain_cut(const struct rewarder_payouts *v, const struct rewarder_policy *policy,
                              bool *out_negative);

#endif
