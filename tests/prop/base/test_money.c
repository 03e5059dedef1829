#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/money.h"
#include "base/u256.h"
#include "seed.h"

/* Numbers that break arithmetic are near powers of two: every length is as likely as every other. */
static unsigned __int128 any_u128(struct rng *r)
{
    unsigned __int128 v = (unsigned __int128)rng_u64(r) << 64 | rng_u64(r);
    unsigned bits = (unsigned)rng_below(r, 129);
    v = bits == 0 ? 0 : v >> (128 - bits);
    switch (rng_below(r, 4)) {
    case 0:
        return bits == 128 ? ~(unsigned __int128)0 : ((unsigned __int128)1 << bits) - 1;
    case 1:
        return bits == 128 ? 0 : (unsigned __int128)1 << bits;
    default:
        return v;
    }
}

/* The product by 32-bit digits, as on paper. */
static struct u256 mul_on_paper(unsigned __int128 a, unsigned __int128 b)
{
    uint32_t x[4], y[4];
    uint64_t digits[9] = {0};
    for (unsigned i = 0; i < 4; i++) {
        x[i] = (uint32_t)(a >> (32 * i));
        y[i] = (uint32_t)(b >> (32 * i));
    }
    for (unsigned i = 0; i < 4; i++) {
        uint64_t carry = 0;
        for (unsigned j = 0; j < 4; j++) {
            uint64_t t = (uint64_t)x[i] * y[j] + digits[i + j] + carry;
            digits[i + j] = (uint32_t)t;
            carry = t >> 32;
        }
        digits[i + 4] += carry;
    }
    struct u256 out;
    for (unsigned i = 0; i < 4; i++)
        out.w[i] = digits[2 * i] | digits[2 * i + 1] << 32;
    return out;
}

/* Quotient and rest bit by bit. */
static void div_on_paper(struct u256 a, unsigned __int128 d, struct u256 *q, unsigned __int128 *rest)
{
    *q = (struct u256){{0}};
    *rest = 0;
    for (int bit = 255; bit >= 0; bit--) {
        bool carry = *rest >> 127;
        *rest = *rest << 1 | (a.w[bit / 64] >> (bit % 64) & 1);
        if (carry || *rest >= d) {
            *rest -= d;
            q->w[bit / 64] |= (uint64_t)1 << (bit % 64);
        }
    }
}

static void product_agrees_with_pen_and_paper(void **state)
{
    (void)state;
    struct rng r = seed_rng("mul");
    for (int i = 0; i < 300000; i++) {
        unsigned __int128 a = any_u128(&r), b = any_u128(&r);
        struct u256 ab = u256_mul(a, b);
        assert_int_equal(u256_cmp(ab, mul_on_paper(a, b)), 0);
        assert_int_equal(u256_cmp(ab, u256_mul(b, a)), 0);
    }
}

static void division_agrees_with_pen_and_paper(void **state)
{
    (void)state;
    struct rng r = seed_rng("div");
    for (int i = 0; i < 60000; i++) {
        struct u256 a = {{rng_u64(&r), rng_u64(&r), rng_u64(&r), rng_u64(&r)}};
        if (rng_below(&r, 2))
            a = u256_mul(any_u128(&r), any_u128(&r));
        unsigned __int128 d = any_u128(&r), rest, expected_rest;
        struct u256 q, expected;
        if (d == 0) {
            assert_int_equal(u256_div(a, d, &q, &rest), ERR_RANGE);
            continue;
        }
        assert_int_equal(u256_div(a, d, &q, &rest), ERR_OK);
        div_on_paper(a, d, &expected, &expected_rest);
        assert_int_equal(u256_cmp(q, expected), 0);
        assert_true(rest == expected_rest);
    }
}

static void division_undoes_multiplication(void **state)
{
    (void)state;
    struct rng r = seed_rng("undo");
    for (int i = 0; i < 300000; i++) {
        unsigned __int128 a = any_u128(&r), b = any_u128(&r), c = any_u128(&r);
        if (b == 0)
            continue;
        c %= b;
        struct u256 sum, q;
        unsigned __int128 rest;
        if (u256_add(u256_mul(a, b), u256_from_u128(c), &sum) != ERR_OK)
            continue;
        assert_int_equal(u256_div(sum, b, &q, &rest), ERR_OK);
        assert_true(u256_fits_u128(q) && u256_low_u128(q) == a && rest == c);
        struct u256 back;
        assert_int_equal(u256_sub(sum, u256_from_u128(c), &back), ERR_OK);
        assert_int_equal(u256_cmp(back, u256_mul(a, b)), 0);
    }
}

static void sums_are_exact_or_refused(void **state)
{
    (void)state;
    struct rng r = seed_rng("sums");
    for (int i = 0; i < 300000; i++) {
        struct money a = {any_u128(&r)}, b = {any_u128(&r)}, sum, rest;
        struct u256 wide;
        assert_int_equal(u256_add(u256_from_u128(a.units), u256_from_u128(b.units), &wide), ERR_OK);
        enum err e = money_add(a, b, &sum);
        assert_int_equal(e, u256_fits_u128(wide) ? ERR_OK : ERR_OVERFLOW);
        if (e == ERR_OK) {
            assert_true(sum.units == u256_low_u128(wide));
            assert_int_equal(money_sub(sum, b, &rest), ERR_OK);
            assert_int_equal(money_cmp(rest, a), 0);
        }
        assert_int_equal(money_sub(a, b, &rest), money_cmp(a, b) >= 0 ? ERR_OK : ERR_UNDERFLOW);
    }
}

static void text_and_bytes_come_back_as_the_same_amount(void **state)
{
    (void)state;
    struct rng r = seed_rng("text");
    for (int i = 0; i < 300000; i++) {
        struct money m = {any_u128(&r)}, back;
        char text[MONEY_CHARS];
        size_t n = money_format(m, text);
        assert_int_equal(money_parse(str_of(text, n), &back), ERR_OK);
        assert_int_equal(money_cmp(m, back), 0);
        uint8_t raw[MONEY_BYTES], other_raw[MONEY_BYTES];
        struct money other = {any_u128(&r)};
        money_encode(m, raw);
        money_encode(other, other_raw);
        assert_int_equal(money_cmp(money_decode(raw), m), 0);
        int order = memcmp(raw, other_raw, sizeof raw);
        assert_int_equal((order > 0) - (order < 0), money_cmp(m, other));
    }
}

static void shares_never_exceed_the_whole(void **state)
{
    (void)state;
    struct rng r = seed_rng("shares");
    for (int i = 0; i < 50000; i++) {
        struct money pool = {any_u128(&r)}, weight[5], total = {0};
        for (int k = 0; k < 5; k++) {
            weight[k] = money_from_u64(rng_u64(&r) >> rng_below(&r, 64));
            assert_int_equal(money_add(total, weight[k], &total), ERR_OK);
        }
        if (money_is_zero(total))
            continue;
        struct money given = {0}, q, rest;
        for (int k = 0; k < 5; k++) {
            assert_int_equal(money_mul_div(pool, weight[k], total, &q, &rest), ERR_OK);
            assert_int_equal(money_add(given, q, &given), ERR_OK);
        }
        assert_true(money_cmp(given, pool) <= 0);
        assert_true(pool.units - given.units < 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(product_agrees_with_pen_and_paper),
        cmocka_unit_test(division_agrees_with_pen_and_paper),
        cmocka_unit_test(division_undoes_multiplication),
        cmocka_unit_test(sums_are_exact_or_refused),
        cmocka_unit_test(text_and_bytes_come_back_as_the_same_amount),
        cmocka_unit_test(shares_never_exceed_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
