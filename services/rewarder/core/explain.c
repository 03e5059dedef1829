#include "services/rewarder/core/explain.h"

static wide_u128 score_of(const struct rewarder_payouts *v, const struct rewarder_policy *policy,
                          const uint8_t *usage)
{
    wide_u128 score = 0;
    for (unsigned d = 0; d < v->dim_count; d++)
        for (unsigned w = 0; w < policy->weight_count; w++)
            if (str_eq_c(v->dims[d], policy->weights[w].dim))
                score += (wide_u128)be64_get(usage + 8 * d) * policy->weights[w].whole;
    return score;
}

static const char *why(const struct rewarder_payouts *v, const struct rewarder_policy *policy,
                       const struct rewarder_payout *row, const struct rewarder_explanation *x,
                       bool cut_negative)
{
    if (row->flags & REWARDER_DUST)
        return "dust";
    if (x->score == 0)
        return "zero_score";
    if (row->flags & REWARDER_CAPPED)
        return "capped";
    if (row->flags & REWARDER_BELOW_MIN)
        return "below_min";
    if (policy->rounding == REWARDER_WEBSTER && row->rank)
        return cut_negative ? "adjusted_down" : "adjusted_up";
    if (x->remainder == 0 && row->rounded == x->floor)
        return "exact";
    (void)v;
    return row->rounded > x->floor ? "rounded_up" : "rounded_down";
}

struct rewarder_explanation rewarder_explain(const struct rewarder_payouts *v,
                                             const struct rewarder_policy *policy,
                                             const struct rewarder_payout *row, bool cut_negative)
{
    struct rewarder_explanation x = {.score = score_of(v, policy, row->usage)};
    if (x.score && x.score <= v->score_total)
        x.floor = wide_share(v->pool, x.score, v->score_total, &x.remainder);
    x.why = why(v, policy, row, &x, cut_negative);
    return x;
}

uint64_t rewarder_explain_cut(const struct rewarder_payouts *v, const struct rewarder_policy *policy,
                              bool *out_negative)
{
    *out_negative = false;
    if (policy->rounding == REWARDER_FLOOR || v->score_total == 0)
        return 0;
    wide_u128 sum = 0;
    for (uint64_t i = 0; i < v->rows; i++) {
        struct rewarder_payout row = rewarder_payouts_row(v, i);
        wide_u128 score = score_of(v, policy, row.usage), rem = 0;
        if ((row.flags & REWARDER_DUST) || score == 0)
            continue;
        sum += wide_share(v->pool, score, v->score_total, &rem);
        if (policy->rounding == REWARDER_WEBSTER && rem && rem >= v->score_total - rem)
            sum++;
    }
    *out_negative = sum > v->pool;
    return (uint64_t)(sum > v->pool ? sum - v->pool : v->pool - sum);
}
