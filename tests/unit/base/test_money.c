#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/money.h"
#include "base/u256.h"

static void only_one_spelling_of_an_amount_is_accepted(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",    "00",  "01",  "-1", "+1", " 1",  "1 ",
        "1.0", "1e3", "0x1", "a",  "1a", "1_0", "1000000000000000000000000000000000000000"};
    struct money m = money_from_u64(77);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(money_parse(str_from_c(bad[i]), &m), ERR_SYNTAX);
    assert_int_equal(money_parse(STR("340282366920938463463374607431768211456"), &m), ERR_RANGE);
    assert_int_equal(money_parse(STR("999999999999999999999999999999999999999"), &m), ERR_RANGE);
    assert_int_equal(money_parse(STR("99999999999999999999999999999999999999x"), &m), ERR_SYNTAX);
    assert_int_equal((uint64_t)m.units, 77);
}

static void parse_and_format_are_inverse_at_the_edges(void **state)
{
    (void)state;
    static const char *const good[] = {"0",
                                       "1",
                                       "10",
                                       "18446744073709551615",
                                       "18446744073709551616",
                                       "340282366920938463463374607431768211455"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct money m;
        char text[MONEY_CHARS];
        assert_int_equal(money_parse(str_from_c(good[i]), &m), ERR_OK);
        assert_int_equal(money_format(m, text), strlen(good[i]));
        assert_string_equal(text, good[i]);
        uint8_t raw[MONEY_BYTES];
        money_encode(m, raw);
        assert_int_equal(money_cmp(money_decode(raw), m), 0);
    }
}

static void arithmetic_refuses_instead_of_wrapping(void **state)
{
    (void)state;
    struct money out = money_from_u64(5);
    assert_int_equal(money_add(MONEY_MAX, money_from_u64(1), &out), ERR_OVERFLOW);
    assert_int_equal(money_sub(money_from_u64(1), money_from_u64(2), &out), ERR_UNDERFLOW);
    assert_int_equal(money_mul(MONEY_MAX, 2, &out), ERR_OVERFLOW);
    assert_int_equal((uint64_t)out.units, 5);
    assert_int_equal(money_add(money_from_u64(2), money_from_u64(3), &out), ERR_OK);
    assert_int_equal((uint64_t)out.units, 5);
    assert_int_equal(money_sub(MONEY_MAX, MONEY_MAX, &out), ERR_OK);
    assert_true(money_is_zero(out));
}

static void mul_div_keeps_every_unit(void **state)
{
    (void)state;
    struct money q, r;
    assert_int_equal(money_mul_div(money_from_u64(10), money_from_u64(7), money_from_u64(4), &q, &r),
                     ERR_OK);
    assert_int_equal((uint64_t)q.units, 17);
    assert_int_equal((uint64_t)r.units, 2);
    assert_int_equal(money_mul_div(MONEY_MAX, MONEY_MAX, MONEY_MAX, &q, &r), ERR_OK);
    assert_int_equal(money_cmp(q, MONEY_MAX), 0);
    assert_true(money_is_zero(r));
    assert_int_equal(money_mul_div(MONEY_MAX, money_from_u64(2), money_from_u64(1), &q, &r), ERR_OVERFLOW);
    assert_int_equal(money_mul_div(MONEY_MAX, money_from_u64(2), MONEY_ZERO, &q, &r), ERR_RANGE);
}

static void u256_product_of_the_largest_is_exact(void **state)
{
    (void)state;
    unsigned __int128 max = ~(unsigned __int128)0;
    struct u256 p = u256_mul(max, max); /* 2^256 - 2^129 + 1 */
    assert_int_equal(p.w[0], 1);
    assert_int_equal(p.w[1], 0);
    assert_int_equal(p.w[2], UINT64_MAX - 1);
    assert_int_equal(p.w[3], UINT64_MAX);
    struct u256 out = {{9, 9, 9, 9}};
    assert_int_equal(u256_add(p, p, &out), ERR_OVERFLOW);
    assert_int_equal(u256_sub(u256_from_u128(1), p, &out), ERR_UNDERFLOW);
    assert_int_equal(out.w[0], 9);
    assert_int_equal(u256_cmp(p, u256_from_u128(max)), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_one_spelling_of_an_amount_is_accepted),
        cmocka_unit_test(parse_and_format_are_inverse_at_the_edges),
        cmocka_unit_test(arithmetic_refuses_instead_of_wrapping),
        cmocka_unit_test(mul_div_keeps_every_unit),
        cmocka_unit_test(u256_product_of_the_largest_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
