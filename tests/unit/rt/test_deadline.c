#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/deadline.h"

static void far_deadlines_never_come_and_past_ones_have_passed(void **state)
{
    (void)state;
    assert_true(deadline_is_never(deadline_in_ms(INT64_MAX)));
    assert_true(deadline_passed(deadline_in_ms(0)));
    assert_true(deadline_passed(deadline_in_ms(-5)));
    assert_false(deadline_passed(deadline_in_ms(60000)));
    assert_false(deadline_passed(deadline_never()));
}

static void what_is_left_is_rounded_up(void **state)
{
    (void)state;
    struct deadline soon = deadline_at_ns(os_now_ns() + 59999900000);
    assert_int_equal(deadline_left_ms(soon), 60000);
    assert_int_equal(deadline_left_ms(deadline_in_ms(0)), 0);
    assert_int_equal(deadline_left_ms(deadline_never()), INT64_MAX);
}

static void the_nearer_of_two_counts(void **state)
{
    (void)state;
    struct deadline a = deadline_at_ns(5), b = deadline_never();
    assert_int_equal(deadline_min(a, b).at_ns, 5);
    assert_int_equal(deadline_min(b, a).at_ns, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(far_deadlines_never_come_and_past_ones_have_passed),
        cmocka_unit_test(what_is_left_is_rounded_up),
        cmocka_unit_test(the_nearer_of_two_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
