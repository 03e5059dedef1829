/*
 * Scores and the split of the pool, once more: exact shares by long division on bits, rounding by its definition. Nothing of
 * services/rewarder is used, so an error there cannot hide here.
 */
#include <stdlib.h>
#include <string.h>

#include "ron/cmd_rewarder_verify.h"

/* floor(a*b/d) and the remainder, one bit at a time. Slow and obvious. */
static void divide(u128 a, u128 b, u128 d, u128 *q, u128 *rem)
{
    if (((a | b) >> 64) == 0) {
        u128 n = a * b;
        *q = n / d;
        *rem = n % d;
        return;
    }
    u128 hi = 0, lo = 0, out = 0, r = 0;
    for (int i = 127; i >= 0; i--) {
        hi = hi << 1 | lo >> 127;
        lo <<= 1;
        if (b >> i & 1) {
            lo += a;
            hi += lo < a;
        }
    }
    for (int i = 255; i >= 0; i--) {
        u128 carry = r >> 127;
        r = r << 1 | ((i >= 128 ? hi >> (i - 128) : lo >> i) & 1);
        out <<= 1;
        if (carry || r >= d) {
            r -= d;
            out |= 1;
        }
    }
    *q = out;
    *rem = r;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    return b ? gcd(b, a % b) : a;
}

enum { FRACTION_MAX = 1000000000 };

/* False: these cannot be the weights of a policy. */
static bool read_weights(struct verify_run *r)
{
    const json_t *list = json_object_get(json_object_get(r->root, "policy"), "weights"), *w;
    u128 lcm = 1;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)list, i, w)
    {
        uint64_t den = (uint64_t)json_integer_value(json_object_get(w, "den")),
                 num = (uint64_t)json_integer_value(json_object_get(w, "num"));
        if (den < 1 || den > FRACTION_MAX || num > FRACTION_MAX)
            return false;
        lcm = lcm / gcd((uint64_t)(lcm % den), den) * den;
        if (lcm >> 96)
            return false; /* then some W is above 2^64, whatever its num */
    }
    json_array_foreach((json_t *)(uintptr_t)list, i, w)
    {
        u128 den = (u128)json_integer_value(json_object_get(w, "den")),
             num = (u128)json_integer_value(json_object_get(w, "num")), scale = lcm / den * num;
        if (scale >> 64)
            return false;
        for (unsigned d = 0; d < r->dims; d++)
            if (!strcmp(r->dim[d], verify_text(w, "dim")))
                r->weight[d] = (uint64_t)scale;
    }
    return true;
}

static int by_remainder(const struct verify_row *x, const struct verify_row *y)
{
    if (x->remainder != y->remainder)
        return x->remainder > y->remainder ? -1 : 1;
    return str_cmp(x->account, y->account);
}

/* The table says who comes when. Put there, each must come after the one before it: nothing has to be sorted to see that. */
static int check_largest_remainder(struct cmd_ctx *ctx, struct verify_run *r, u128 left)
{
    const struct verify_row **order = calloc(r->rows + 1, sizeof *order);
    uint64_t n = 0;
    bool holds = true;
    if (!order)
        return cmd_fail(ctx, VERIFY_UNREADABLE, "out of memory");
    for (uint64_t i = 0; i < r->rows; i++)
        n += r->row[i].score != 0;
    for (uint64_t i = 0; i < r->rows && holds; i++) {
        const struct verify_row *row = &r->row[i];
        if (!row->score)
            continue;
        holds = row->rank >= 1 && row->rank <= n && !order[row->rank - 1];
        if (holds)
            order[row->rank - 1] = row;
    }
    for (uint64_t i = 0; i < n && holds; i++)
        holds = (i == 0 || by_remainder(order[i - 1], order[i]) < 0) &&
                order[i]->rounded == order[i]->floor + (i < left);
    free(order);
    return holds ? CMD_OK : verify_mismatch(ctx, "a row was not rounded by the largest remainder");
}

/* Whether s/(2a+1) of x is served before that of y: compares continued fractions, so nothing overflows. */
static int claim_compare(u128 a, u128 b, u128 c, u128 d)
{
    for (;;) {
        u128 qa = a / b, qc = c / d, ra = a % b, rc = c % d;
        if (qa != qc)
            return qa > qc ? 1 : -1;
        if (ra == 0 || rc == 0)
            return ra == rc ? 0 : ra ? 1 : -1;
        a = d, d = ra;
        u128 t = b;
        b = rc, c = t;
    }
}

/*
 * Webster's result is the one in which no row's last unit has a weaker claim than some other row's next: the smallest
 * s/(2a-1) of all is at least the largest s/(2a+1) of all, ties in account order.
 */
static int check_webster(struct cmd_ctx *ctx, const struct verify_run *r)
{
    const struct verify_row *weakest = NULL, *strongest = NULL;
    for (uint64_t i = 0; i < r->rows; i++) {
        const struct verify_row *w = &r->row[i];
        if (!w->score)
            continue;
        if (w->rounded && (!weakest || claim_compare(w->score, 2 * w->rounded - 1, weakest->score,
                                                     2 * weakest->rounded - 1) <= 0))
            weakest = w;
        if (!strongest ||
            claim_compare(w->score, 2 * w->rounded + 1, strongest->score, 2 * strongest->rounded + 1) > 0)
            strongest = w;
    }
    if (!weakest || !strongest)
        return CMD_OK;
    int c = claim_compare(weakest->score, 2 * weakest->rounded - 1, strongest->score,
                          2 * strongest->rounded + 1);
    if (c < 0 || (c == 0 && str_cmp(weakest->account, strongest->account) > 0))
        return verify_mismatch(ctx, "the split is not Webster's");
    return CMD_OK;
}

/* Caps, minimums and where the dust went; the sums were checked before. */
static void check_amounts(struct verify_run *r, struct verify_part *p)
{
    const json_t *policy = json_object_get(r->root, "policy");
    u128 min = verify_amount(policy, "min_payout"), max = verify_amount(policy, "max_payout");
    bool has_max = json_object_get(policy, "max_payout") != NULL;
    const char *dust = verify_text(policy, "dust_account");
    for (uint64_t i = p->from; i < p->to && !p->wrong; i++) {
        const struct verify_row *w = &r->row[i];
        u128 want = has_max && w->rounded > max ? max : w->rounded < min ? 0 : w->rounded;
        if (w->flags & VERIFY_DUST)
            p->wrong = str_eq_c(w->account, dust) ? NULL : "the dust row is not the policy's dust account";
        else if (w->amount != want)
            p->wrong = "a cap or minimum was not applied as the policy says";
    }
}

static void score(struct verify_run *r, struct verify_part *p)
{
    for (uint64_t i = p->from; i < p->to; i++) {
        struct verify_row *w = &r->row[i];
        w->score = w->floor = w->remainder = 0;
        for (unsigned d = 0; d < r->dims && !(w->flags & VERIFY_DUST); d++)
            if (__builtin_add_overflow(w->score, (u128)verify_usage(w, d) * r->weight[d], &w->score))
                p->wrong = "the scores overflow";
        if (__builtin_add_overflow(p->scores, w->score, &p->scores))
            p->wrong = "the scores overflow";
    }
}

static void share(struct verify_run *r, struct verify_part *p)
{
    bool down = !strcmp(verify_text(json_object_get(r->root, "policy"), "rounding"), "floor");
    for (uint64_t i = p->from; i < p->to; i++) {
        struct verify_row *w = &r->row[i];
        if (w->flags & VERIFY_DUST)
            continue;
        divide(r->pool, w->score, r->total, &w->floor, &w->remainder);
        p->floors += w->floor; /* at most the pool, all together */
        if (__builtin_add_overflow(p->rounded, w->rounded, &p->rounded))
            p->wrong = "the rounded shares overflow";
        else if (down && w->rounded != w->floor)
            p->wrong = "a row was not rounded down";
    }
}

static int check_rounding(struct cmd_ctx *ctx, struct verify_run *r)
{
    const char *rounding = verify_text(json_object_get(r->root, "policy"), "rounding"),
               *wrong = verify_each(r, share, NULL);
    u128 floors = 0, rounded = 0;
    if (wrong)
        return verify_mismatch(ctx, wrong);
    for (uint64_t i = 0; i < r->parts; i++) {
        floors += r->part[i].floors;
        if (__builtin_add_overflow(rounded, r->part[i].rounded, &rounded))
            return verify_mismatch(ctx, "the rounded shares overflow");
    }
    if (!strcmp(rounding, "largest_remainder"))
        return check_largest_remainder(ctx, r, r->pool - floors);
    if (!strcmp(rounding, "webster"))
        return rounded == r->pool ? check_webster(ctx, r)
                                  : verify_mismatch(ctx, "the rounded shares do not add up to the pool");
    return strcmp(rounding, "floor") ? verify_mismatch(ctx, "a rounding that nobody knows") : CMD_OK;
}

int verify_split(struct cmd_ctx *ctx, struct verify_run *r)
{
    u128 total = 0;
    bool overflow = false;
    if (!read_weights(r))
        return verify_mismatch(ctx, "the weights in run.json are not those of a policy");
    const char *wrong = verify_each(r, score, NULL);
    for (uint64_t i = 0; i < r->parts; i++)
        overflow = __builtin_add_overflow(total, r->part[i].scores, &total) || overflow;
    if (wrong || overflow)
        return verify_mismatch(ctx, "the scores overflow");
    if (total != r->total)
        return verify_mismatch(ctx, "the scores do not add up to score_total");
    int status = total ? check_rounding(ctx, r) : CMD_OK;
    wrong = status == CMD_OK ? verify_each(r, check_amounts, NULL) : NULL;
    return wrong ? verify_mismatch(ctx, wrong) : status;
}
