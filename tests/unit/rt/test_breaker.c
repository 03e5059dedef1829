#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/breaker.h"

#define MS(n) ((int64_t)(n)*1000000)

static struct rt_breaker b;
static int64_t now;

static void start(struct rt_breaker_spec spec)
{
    now = MS(1000000);
    rt_breaker_init(&b, &spec);
}

static void fail_times(int n)
{
    for (int i = 0; i < n; i++) {
        assert_true(rt_breaker_allow(&b, now));
        rt_breaker_failure(&b, now);
    }
}

static void failures_in_a_row_open_and_one_probe_closes(void **state)
{
    (void)state;
    start((struct rt_breaker_spec){.in_a_row = 5, .open_ms = 5000});
    fail_times(4);
    assert_true(rt_breaker_allow(&b, now));
    rt_breaker_success(&b, now);
    fail_times(5);
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_OPEN);
    assert_false(rt_breaker_allow(&b, now));
    assert_int_equal(rt_breaker_retry_ms(&b, now), 5000);
    now += MS(5000) - 1;
    assert_false(rt_breaker_allow(&b, now));
    now += 1;
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_HALF_OPEN);
    assert_true(rt_breaker_allow(&b, now));
    assert_false(rt_breaker_allow(&b, now)); /* one probe at a time */
    rt_breaker_success(&b, now);
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_CLOSED);
    assert_int_equal(rt_breaker_opened(&b), 1);
}

static void failures_in_a_rolling_window_open(void **state)
{
    (void)state;
    start((struct rt_breaker_spec){
        .in_window = 20, .window_ms = 10000, .open_ms = 5000, .probes = 10, .successes = 3});
    for (int i = 0; i < 100; i++) { /* 19 within any 10 s are not enough, successes between do not matter */
        now += MS(600);
        fail_times(1);
        rt_breaker_success(&b, now);
    }
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_CLOSED);
    now += MS(20000);
    fail_times(20);
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_OPEN);
    now += MS(5000);
    for (int i = 0; i < 10; i++)
        assert_true(rt_breaker_allow(&b, now));
    assert_false(rt_breaker_allow(&b, now));
    rt_breaker_success(&b, now);
    rt_breaker_success(&b, now);
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_HALF_OPEN);
    rt_breaker_success(&b, now);
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_CLOSED);
}

static void a_longer_window_is_a_window_from_the_start(void **state)
{
    (void)state;
    struct rt_breaker_spec spec = {.in_window = 20, .window_ms = 10000, .open_ms = 5000};
    start(spec);
    fail_times(1);
    spec.window_ms = 60000;
    rt_breaker_configure(&b, &spec);
    for (int i = 0; i < 100; i++) { /* 16 a minute */
        now += MS(3800);
        fail_times(1);
    }
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_CLOSED);
    fail_times(5);
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_OPEN);
}

static void share_of_failures_opens_only_with_enough_calls(void **state)
{
    (void)state;
    start((struct rt_breaker_spec){
        .rate_calls = 20, .rate_percent = 50, .window_ms = 10000, .open_ms = 1000});
    fail_times(19);
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_CLOSED);
    for (int i = 0; i < 20; i++)
        rt_breaker_success(&b, now); /* 19 of 39: just under half */
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_CLOSED);
    fail_times(1); /* 20 of 40 */
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_OPEN);
}

static void each_failed_probe_doubles_the_pause_up_to_the_maximum(void **state)
{
    (void)state;
    start((struct rt_breaker_spec){.in_a_row = 1, .open_ms = 1000, .open_max_ms = 5000});
    fail_times(1);
    int64_t expect[] = {1000, 2000, 4000, 5000, 5000};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(rt_breaker_retry_ms(&b, now), expect[i]);
        now += MS(expect[i]);
        fail_times(1);
    }
    now += MS(5000);
    assert_true(rt_breaker_allow(&b, now));
    rt_breaker_success(&b, now);
    fail_times(1);
    assert_int_equal(rt_breaker_retry_ms(&b, now), 1000); /* closing starts over */
}

static void neutral_answers_free_the_probe_without_deciding(void **state)
{
    (void)state;
    start((struct rt_breaker_spec){.in_a_row = 1, .open_ms = 1000});
    fail_times(1);
    now += MS(1000);
    assert_true(rt_breaker_allow(&b, now));
    rt_breaker_neither(&b, now);
    assert_int_equal(rt_breaker_state(&b, now), RT_BREAKER_HALF_OPEN);
    assert_true(rt_breaker_allow(&b, now));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_in_a_row_open_and_one_probe_closes),
        cmocka_unit_test(failures_in_a_rolling_window_open),
        cmocka_unit_test(a_longer_window_is_a_window_from_the_start),
        cmocka_unit_test(share_of_failures_opens_only_with_enough_calls),
        cmocka_unit_test(each_failed_probe_doubles_the_pause_up_to_the_maximum),
        cmocka_unit_test(neutral_answers_free_the_probe_without_deciding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
