#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/drain.h"

#define MS(n) ((int64_t)(n)*1000000)

static struct rt_drain d;

static void start(void)
{
    rt_drain_init(&d, 5000, 1000);
    rt_drain_add(&d, &(struct rt_drain_step){.step = 2, .name = "work"});
    rt_drain_add(&d, &(struct rt_drain_step){.step = 1, .name = "intake", .deadline_ms = 3000});
    rt_drain_add(&d, &(struct rt_drain_step){.step = 1, .name = "again", .deadline_ms = 1});
}

static void steps_are_entered_in_order_and_end_in_stopped(void **state)
{
    (void)state;
    start();
    assert_int_equal(rt_drain_next(&d, 0, 1), RT_DRAIN_WAIT);
    rt_drain_begin(&d, 0);
    assert_int_equal(rt_drain_next(&d, 0, 1), RT_DRAIN_ENTER);
    assert_string_equal(rt_drain_current(&d)->name, "intake");
    assert_int_equal(rt_drain_next(&d, 0, 1), RT_DRAIN_WAIT);
    assert_int_equal(rt_drain_next_ns(&d), MS(3000));
    assert_int_equal(rt_drain_next(&d, MS(10), 0), RT_DRAIN_ENTER);
    assert_string_equal(rt_drain_current(&d)->name, "work");
    assert_int_equal(rt_drain_next_ns(&d), MS(5000));
    assert_int_equal(rt_drain_next(&d, MS(20), 0), RT_DRAIN_FINISH);
    assert_int_equal(d.state, RT_DRAIN_STOPPED);
}

static void late_step_is_cancelled_then_given_up_and_the_next_one_still_runs(void **state)
{
    (void)state;
    start();
    rt_drain_begin(&d, 0);
    assert_int_equal(rt_drain_next(&d, 0, 1), RT_DRAIN_ENTER);
    assert_int_equal(rt_drain_next(&d, MS(3000), 1), RT_DRAIN_CANCEL);
    assert_int_equal(d.state, RT_DRAIN_ABORTING);
    assert_int_equal(rt_drain_next(&d, MS(3999), 1), RT_DRAIN_WAIT);
    assert_int_equal(rt_drain_next(&d, MS(4000), 1), RT_DRAIN_GIVE_UP);
    assert_int_equal(rt_drain_next(&d, MS(4000), 0), RT_DRAIN_ENTER);
    assert_int_equal(rt_drain_next(&d, MS(4999), 1), RT_DRAIN_WAIT);
    assert_int_equal(rt_drain_next(&d, MS(4999), 0), RT_DRAIN_FINISH);
}

static void second_request_gives_no_step_any_time(void **state)
{
    (void)state;
    start();
    rt_drain_begin(&d, 0);
    assert_int_equal(rt_drain_next(&d, 0, 1), RT_DRAIN_ENTER);
    rt_drain_begin(&d, MS(1));
    assert_int_equal(rt_drain_next(&d, MS(1), 1), RT_DRAIN_CANCEL);
    assert_int_equal(rt_drain_next(&d, MS(2), 0), RT_DRAIN_ENTER);
    assert_int_equal(rt_drain_next(&d, MS(2), 1), RT_DRAIN_CANCEL);
    assert_int_equal(rt_drain_next(&d, MS(2), 0), RT_DRAIN_FINISH);
}

static int64_t left_ms;
static int64_t what_is_left(void *ctx)
{
    (void)ctx;
    return left_ms;
}

static void a_step_may_say_how_long_it_has_when_it_is_entered(void **state)
{
    (void)state;
    rt_drain_init(&d, 5000, 1000);
    rt_drain_add(&d, &(struct rt_drain_step){.step = 1, .deadline_for = what_is_left});
    rt_drain_add(&d, &(struct rt_drain_step){.step = 2, .deadline_for = what_is_left});
    rt_drain_begin(&d, 0);
    left_ms = 700;
    assert_int_equal(rt_drain_next(&d, 0, 1), RT_DRAIN_ENTER);
    left_ms = 0; /* says nothing: as long as the whole */
    assert_int_equal(rt_drain_next_ns(&d), MS(700));
    assert_int_equal(rt_drain_next(&d, MS(10), 0), RT_DRAIN_ENTER);
    assert_int_equal(rt_drain_next_ns(&d), MS(5000));
}

static void nothing_to_drain_stops_at_once(void **state)
{
    (void)state;
    rt_drain_init(&d, 5000, 1000);
    rt_drain_begin(&d, 0);
    assert_int_equal(rt_drain_next(&d, 0, 0), RT_DRAIN_FINISH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_entered_in_order_and_end_in_stopped),
        cmocka_unit_test(late_step_is_cancelled_then_given_up_and_the_next_one_still_runs),
        cmocka_unit_test(second_request_gives_no_step_any_time),
        cmocka_unit_test(a_step_may_say_how_long_it_has_when_it_is_entered),
        cmocka_unit_test(nothing_to_drain_stops_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
