#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/interval.h"

#define MS(n) ((int64_t)(n)*1000000)

static void ticks_keep_their_grid_and_missed_ones_are_counted(void **state)
{
    (void)state;
    struct rt_interval i;
    rt_interval_init(&i, 10, MS(100));
    assert_false(rt_interval_due(&i, MS(109)));
    assert_true(rt_interval_due(&i, MS(113)));
    assert_false(rt_interval_due(&i, MS(119)));
    assert_true(rt_interval_due(&i, MS(120)));
    assert_int_equal(i.missed, 0);
    assert_true(rt_interval_due(&i, MS(165)));
    assert_int_equal(i.missed, 3);
    assert_int_equal(i.next_ns, MS(170));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_keep_their_grid_and_missed_ones_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
