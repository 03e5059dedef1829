#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/limiter.h"

#define MS(n) ((int64_t)(n)*1000000)

static void bucket_allows_its_burst_then_its_rate(void **state)
{
    (void)state;
    struct rt_bucket b;
    rt_bucket_init(&b, 100, 10);
    int64_t now = MS(5000);
    for (int i = 0; i < 10; i++)
        assert_true(rt_bucket_take(&b, 1, now));
    assert_false(rt_bucket_take(&b, 1, now));
    assert_int_equal(rt_bucket_wait_ms(&b, 1, now), 10);
    now += MS(10);
    assert_true(rt_bucket_take(&b, 1, now));
    assert_false(rt_bucket_take(&b, 1, now));
    int taken = 0;
    for (int i = 0; i < 1000; i++) { /* 10 s */
        now += MS(10);
        while (rt_bucket_take(&b, 1, now))
            taken++;
    }
    assert_in_range(taken, 999, 1001);
}

static void bucket_never_holds_more_than_its_burst(void **state)
{
    (void)state;
    struct rt_bucket b;
    rt_bucket_init(&b, 1000, 5);
    assert_false(rt_bucket_take(&b, 6, MS(3600000)));
    assert_true(rt_bucket_take(&b, 5, MS(3600000)));
    assert_false(rt_bucket_take(&b, 1, MS(3600000)));
}

static void rate_zero_is_no_limit(void **state)
{
    (void)state;
    struct rt_bucket b;
    rt_bucket_init(&b, 0, 0);
    for (int i = 0; i < 1000; i++)
        assert_true(rt_bucket_take(&b, 1000, 0));
    assert_int_equal(rt_bucket_wait_ms(&b, 1, 0), 0);
}

static void inflight_is_never_over_its_maximum(void **state)
{
    (void)state;
    struct rt_inflight f;
    rt_inflight_init(&f, 2);
    assert_true(rt_inflight_take(&f));
    assert_true(rt_inflight_take(&f));
    assert_false(rt_inflight_take(&f));
    rt_inflight_release(&f);
    assert_true(rt_inflight_take(&f));
    assert_int_equal(rt_inflight_now(&f), 2);
    rt_inflight_configure(&f, 1);
    rt_inflight_release(&f);
    assert_false(rt_inflight_take(&f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bucket_allows_its_burst_then_its_rate),
        cmocka_unit_test(bucket_never_holds_more_than_its_burst),
        cmocka_unit_test(rate_zero_is_no_limit),
        cmocka_unit_test(inflight_is_never_over_its_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
