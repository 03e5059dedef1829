/*
 * Random epochs against an oracle that knows nothing of radix sorts, heaps or partitions: shares by schoolbook long
 * division on bits, Hamilton by sorting exact fractions, Webster by listing claims one by one.
 * RON_SEED and RON_EPOCHS in the environment repeat or deepen a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/money.h"
#include "base/rng.h"
#include "services/rewarder/core/calc.h"

enum { ROWS_MAX = 12 };

struct epoch {
    unsigned n;
    uint64_t usage[ROWS_MAX];
    uint64_t weight;
    wide_u128 pool;
    uint8_t rows_bytes[1024];
    struct rewarder_rows rows;
    struct rewarder_policy policy; /* last: it ends in an open array, unused here */
};

static uint64_t seed_from_env(void)
{
    const char *s = getenv("RON_SEED");
    return s ? strtoull(s, NULL, 0) : 20260101;
}

static uint64_t epochs_from_env(void)
{
    const char *s = getenv("RON_EPOCHS");
    return s ? strtoull(s, NULL, 0) : 1000000;
}

/* a * b as 256 bits and its division, one bit at a time. */
static void slow_muldiv(wide_u128 a, wide_u128 b, wide_u128 d, wide_u128 *q, wide_u128 *r)
{
    wide_u128 hi = 0, lo = 0;
    for (int i = 127; i >= 0; i--) {
        hi = hi << 1 | lo >> 127;
        lo <<= 1;
        if (b >> i & 1) {
            lo += a;
            hi += lo < a;
        }
    }
    wide_u128 quotient = 0, rem = 0;
    for (int i = 255; i >= 0; i--) {
        wide_u128 carry = rem >> 127;
        rem = rem << 1 | ((i >= 128 ? hi >> (i - 128) : lo >> i) & 1);
        quotient <<= 1;
        if (carry || rem >= d) {
            rem -= d;
            quotient |= 1;
        }
    }
    *q = quotient;
    *r = rem;
}

static wide_u128 any_u128(struct rng *g)
{
    unsigned bits = (unsigned)(rng_u64(g) % 129);
    wide_u128 v = wide_u128_of(rng_u64(g), rng_u64(g));
    return bits == 0 ? 0 : v >> (128 - bits);
}

static void wide_arithmetic_agrees_with_schoolbook_division(void **state)
{
    (void)state;
    struct rng g;
    rng_seed(&g, seed_from_env());
    for (int i = 0; i < 200000; i++) {
        wide_u128 total = any_u128(&g), s, p = any_u128(&g), q, r, rem;
        if (total == 0)
            total = 1;
        s = i % 3 ? any_u128(&g) % total : total;
        slow_muldiv(p, s, total, &q, &r);
        assert_true(wide_share(p, s, total, &rem) == q);
        assert_true(rem == r);
        assert_true(wide_divmod(wide_mul(p, s), total, &rem) == q);
        assert_true(rem == r);
    }
}

static uint64_t any_usage(struct rng *g, unsigned kind)
{
    switch (kind) {
    case 0:
        return rng_u64(g) % 4;
    case 1:
        return rng_u64(g) % 100;
    case 2:
        return rng_u64(g) >> 1;
    case 3:
        return rng_u64(g) % 8 ? 0 : 1;
    case 4:
        return rng_u64(g) % 6 ? rng_u64(g) % 3 : rng_u64(g) >> 1; /* skewed */
    default:
        return INT64_MAX;
    }
}

static wide_u128 any_pool(struct rng *g, bool webster)
{
    switch (rng_u64(g) % 5) {
    case 0:
        return rng_u64(g) % 4;
    case 1:
        return rng_u64(g) % 40;
    case 2:
        return rng_u64(g);
    case 3:
        return webster ? (~(wide_u128)0) >> 1 : ~(wide_u128)0;
    default:
        return any_u128(g) >> webster;
    }
}

static void make_rows(struct epoch *e)
{
    static const struct str dim = STR_INIT("points");
    e->rows = (struct rewarder_rows){
        .tenant = STR_INIT("t"), .epoch = STR_INIT("e"), .dim_count = 1, .count = e->n};
    e->rows.dims[0] = dim;
    size_t at = rewarder_rows_header(&e->rows, e->rows_bytes);
    for (unsigned i = 0; i < e->n; i++) {
        /* names of different length; "p..." stands on both sides of the dust account "pool:dust" */
        e->rows_bytes[at] = i % 2 ? 2 : 1;
        e->rows_bytes[at + 1] = (uint8_t)('i' + i);
        if (i % 2)
            e->rows_bytes[at + 2] = 'x';
        at += 1u + e->rows_bytes[at];
        be64_put(e->rows_bytes + at, e->usage[i]);
        at += 8;
    }
    assert_int_equal(rewarder_rows_open((struct bytes){e->rows_bytes, at}, &e->rows), ERR_OK);
}

static void make_epoch(struct rng *g, struct epoch *e)
{
    memset(&e->policy, 0, sizeof e->policy);
    unsigned kind = (unsigned)(rng_u64(g) % 6);
    e->n = (unsigned)(rng_u64(g) % (ROWS_MAX + 1));
    for (unsigned i = 0; i < e->n; i++)
        e->usage[i] = any_usage(g, kind);
    e->weight = rng_u64(g) % 3 ? 1 + rng_u64(g) % 7 : rng_u64(g) >> 4;
    if (e->weight == 0)
        e->weight = 1;
    e->policy.rounding = (enum rewarder_rounding)(rng_u64(g) % 3);
    e->pool = any_pool(g, e->policy.rounding == REWARDER_WEBSTER);
    e->policy.min_payout = rng_u64(g) % 4 ? 1 : 1 + rng_u64(g) % 20;
    e->policy.has_max = rng_u64(g) % 4 == 0;
    e->policy.max_payout = e->policy.min_payout + any_u128(g) / 2;
    e->policy.weight_count = 1;
    memcpy(e->policy.weights[0].dim, "points", 7);
    e->policy.weights[0].whole = e->weight;
    memcpy(e->policy.funding, "pool:rewards", 13);
    memcpy(e->policy.dust, "pool:dust", 10);
    make_rows(e);
}

/* Whether the fraction a/b is larger than c/d (b, d > 0), by comparing a*d with c*b bit by bit. */
static int slow_compare(wide_u128 a, wide_u128 b, wide_u128 c, wide_u128 d)
{
    for (;;) {
        wide_u128 qa = a / b, qc = c / d;
        if (qa != qc)
            return qa > qc ? 1 : -1;
        wide_u128 ra = a % b, rc = c % d;
        if (ra == 0 || rc == 0)
            return ra == rc ? 0 : ra ? 1 : -1;
        /* compare ra/b with rc/d by comparing d/rc with b/ra (the continued fraction) */
        wide_u128 na = d, nb = rc, nc = b, nd = ra;
        a = na, b = nb, c = nc, d = nd;
    }
}

static void oracle_hamilton(const struct epoch *e, const wide_u128 *s, wide_u128 total, wide_u128 *a)
{
    wide_u128 r[ROWS_MAX], left = e->pool;
    bool taken[ROWS_MAX] = {false};
    for (unsigned i = 0; i < e->n; i++) {
        slow_muldiv(e->pool, s[i], total, &a[i], &r[i]);
        left -= a[i];
    }
    for (; left; left--) {
        unsigned best = ROWS_MAX;
        for (unsigned i = 0; i < e->n; i++)
            if (!taken[i] && s[i] && (best == ROWS_MAX || r[i] > r[best]))
                best = i;
        assert_true(best < ROWS_MAX);
        taken[best] = true;
        a[best]++;
    }
}

/*
 * Take the largest claims s/(2j-1), ties by account: the pool may be astronomical, so the listing starts two below each
 * row's exact share. (Webster stays within a few units of it for so few rows; the count at the end proves it did.)
 */
static void oracle_webster(const struct epoch *e, const wide_u128 *s, wide_u128 total, wide_u128 *a)
{
    wide_u128 sum = 0, rem;
    for (unsigned i = 0; i < e->n; i++) {
        slow_muldiv(e->pool, s[i], total, &a[i], &rem);
        a[i] = a[i] > ROWS_MAX ? a[i] - ROWS_MAX : 0;
        sum += a[i];
    }
    for (; sum < e->pool; sum++) {
        unsigned best = ROWS_MAX;
        for (unsigned i = 0; i < e->n; i++)
            if (s[i] &&
                (best == ROWS_MAX || slow_compare(s[i], 2 * a[i] + 1, s[best], 2 * a[best] + 1) > 0))
                best = i;
        a[best]++;
    }
}

static bool oracle(const struct epoch *e, wide_u128 *a, wide_u128 *out_pool)
{
    wide_u128 s[ROWS_MAX], total = 0, rem;
    for (unsigned i = 0; i < e->n; i++) {
        s[i] = (wide_u128)e->usage[i] * e->weight;
        if (total + s[i] < total)
            return false;
        total += s[i];
        a[i] = 0;
    }
    *out_pool = total ? e->pool : 0;
    if (total == 0)
        return true;
    if (e->policy.rounding == REWARDER_FLOOR)
        for (unsigned i = 0; i < e->n; i++)
            slow_muldiv(e->pool, s[i], total, &a[i], &rem);
    else if (e->policy.rounding == REWARDER_LARGEST_REMAINDER)
        oracle_hamilton(e, s, total, a);
    else
        oracle_webster(e, s, total, a);
    return true;
}

static void check_epoch(const struct epoch *e, uint64_t partition)
{
    struct rewarder_calc *c;
    unsigned index;
    wide_u128 want[ROWS_MAX], pool, sum = 0;
    assert_int_equal(rewarder_calc_create(&e->rows, &e->policy, e->pool, partition, &c, &index), ERR_OK);
    enum err got = rewarder_calc_run(c);
    if (!oracle(e, want, &pool)) {
        assert_int_equal(got, ERR_OVERFLOW);
        rewarder_calc_destroy(c);
        return;
    }
    assert_int_equal(got, ERR_OK);
    const struct rewarder_result *res = rewarder_calc_result(c);
    struct rewarder_payouts v;
    assert_int_equal(rewarder_payouts_open(rewarder_calc_file(c), &v), ERR_OK);
    unsigned row = 0;
    for (uint64_t i = 0; i < v.rows; i++) {
        struct rewarder_payout p = rewarder_payouts_row(&v, i);
        sum += p.amount;
        assert_true(sum >= p.amount);
        if (p.flags & REWARDER_DUST) {
            assert_true(p.amount == res->dust);
            continue;
        }
        assert_true(p.rounded == want[row]);
        wide_u128 paid = want[row];
        if (e->policy.has_max && paid > e->policy.max_payout)
            paid = e->policy.max_payout;
        else if (paid < e->policy.min_payout)
            paid = 0;
        assert_true(p.amount == paid);
        row++;
    }
    assert_int_equal(row, e->n);
    assert_true(sum == pool && res->payouts + res->dust == pool && res->root.sum == pool);
    rewarder_payouts_close(&v);
    rewarder_calc_destroy(c);
}

static void r1_every_epoch_conserves_its_pool_and_agrees_with_the_oracle(void **state)
{
    (void)state;
    struct rng g;
    uint64_t seed = seed_from_env(), epochs = epochs_from_env();
    rng_seed(&g, seed);
    print_message("seed %llu, %llu epochs\n", (unsigned long long)seed, (unsigned long long)epochs);
    for (uint64_t i = 0; i < epochs; i++) {
        struct epoch e;
        make_epoch(&g, &e);
        check_epoch(&e, 1 + i % 5);
    }
}

/* ---- fairness: what a rounding method promises about two epochs that differ in one thing ---- */

/* What everybody gets before caps and minimums; false: the scores do not fit. */
static bool rounded(const struct epoch *e, wide_u128 *out)
{
    struct rewarder_calc *c;
    struct rewarder_payouts v;
    unsigned index, row = 0;
    assert_int_equal(rewarder_calc_create(&e->rows, &e->policy, e->pool, 3, &c, &index), ERR_OK);
    bool fits = rewarder_calc_run(c) == ERR_OK;
    if (fits) {
        assert_int_equal(rewarder_payouts_open(rewarder_calc_file(c), &v), ERR_OK);
        for (uint64_t i = 0; i < v.rows; i++) {
            struct rewarder_payout p = rewarder_payouts_row(&v, i);
            if (!(p.flags & REWARDER_DUST))
                out[row++] = p.rounded;
        }
        rewarder_payouts_close(&v);
    }
    rewarder_calc_destroy(c);
    return fits;
}

static uint64_t fair_epochs(void)
{
    uint64_t n = epochs_from_env() / 10;
    return n ? n : 1;
}

static void who_alone_scores_more_never_gets_less(void **state)
{
    (void)state;
    struct rng g;
    uint64_t epochs = fair_epochs(), seen = 0;
    rng_seed(&g, seed_from_env() + 1);
    for (uint64_t i = 0; i < epochs; i++) {
        struct epoch e;
        wide_u128 before[ROWS_MAX], after[ROWS_MAX];
        make_epoch(&g, &e);
        if (e.n == 0 || e.policy.rounding == REWARDER_LARGEST_REMAINDER || !rounded(&e, before))
            continue;
        unsigned who = (unsigned)(rng_u64(&g) % e.n);
        uint64_t room = INT64_MAX - e.usage[who];
        e.usage[who] += rng_u64(&g) % 2 ? rng_u64(&g) % 5 % (room + 1) : rng_u64(&g) % (room + 1);
        make_rows(&e);
        if (!rounded(&e, after))
            continue;
        assert_true(after[who] >= before[who]);
        seen++;
    }
    assert_true(seen > 0);
}

static void webster_lowers_nobody_when_the_pool_grows(void **state)
{
    (void)state;
    struct rng g;
    uint64_t epochs = fair_epochs(), seen = 0;
    rng_seed(&g, seed_from_env() + 2);
    for (uint64_t i = 0; i < epochs; i++) {
        struct epoch e;
        wide_u128 before[ROWS_MAX], after[ROWS_MAX], more;
        make_epoch(&g, &e);
        e.policy.rounding = REWARDER_WEBSTER;
        e.pool >>= 1; /* webster's pools are below 2^127 */
        more = rng_u64(&g) % 2 ? rng_u64(&g) % 3 : any_u128(&g) >> 1;
        if (e.pool + more < e.pool || (e.pool + more) >> 127 || !rounded(&e, before))
            continue;
        e.pool += more;
        assert_true(rounded(&e, after));
        for (unsigned k = 0; k < e.n; k++)
            assert_true(after[k] >= before[k]);
        seen++;
    }
    assert_true(seen > 0);
}

static void largest_remainder_stays_within_one_of_the_exact_share(void **state)
{
    (void)state;
    struct rng g;
    uint64_t epochs = fair_epochs(), seen = 0;
    rng_seed(&g, seed_from_env() + 3);
    for (uint64_t i = 0; i < epochs; i++) {
        struct epoch e;
        wide_u128 got[ROWS_MAX], total = 0, q, r;
        make_epoch(&g, &e);
        e.policy.rounding = REWARDER_LARGEST_REMAINDER;
        if (!rounded(&e, got))
            continue;
        for (unsigned k = 0; k < e.n; k++)
            total += (wide_u128)e.usage[k] * e.weight;
        for (unsigned k = 0; k < e.n && total; k++) {
            slow_muldiv(e.pool, (wide_u128)e.usage[k] * e.weight, total, &q, &r);
            assert_true(got[k] == q || (r && got[k] == q + 1));
        }
        seen += total != 0;
    }
    assert_true(seen > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wide_arithmetic_agrees_with_schoolbook_division),
        cmocka_unit_test(r1_every_epoch_conserves_its_pool_and_agrees_with_the_oracle),
        cmocka_unit_test(who_alone_scores_more_never_gets_less),
        cmocka_unit_test(webster_lowers_nobody_when_the_pool_grows),
        cmocka_unit_test(largest_remainder_stays_within_one_of_the_exact_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
