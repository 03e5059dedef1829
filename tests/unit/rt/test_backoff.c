#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/backoff.h"

static void delays_grow_inside_their_bounds_up_to_the_cap(void **state)
{
    (void)state;
    const struct rt_backoff_spec spec = {.first_min_ms = 100, .first_max_ms = 400, .cap_ms = 5000};
    struct rng rng;
    rng_seed(&rng, 7);
    for (int i = 0; i < 1000; i++) {
        int64_t low = 100, high = 400;
        for (unsigned attempt = 0; attempt < 100; attempt++) {
            int64_t d = rt_backoff_delay_ms(&spec, attempt, &rng);
            assert_true(d >= low && d <= high);
            low = low * 2 < 5000 ? low * 2 : 5000;
            high = high * 2 < 5000 ? high * 2 : 5000;
        }
    }
}

static void full_jitter_starts_at_zero(void **state)
{
    (void)state;
    const struct rt_backoff_spec spec = {.first_max_ms = 200, .cap_ms = 60000};
    struct rng rng;
    rng_seed(&rng, 7);
    int64_t least = 60000, most = 0;
    for (int i = 0; i < 10000; i++) {
        int64_t d = rt_backoff_delay_ms(&spec, 4, &rng);
        least = d < least ? d : least;
        most = d > most ? d : most;
    }
    assert_true(least < 100);
    assert_true(most > 3100 && most <= 3200);
}

static void extra_is_added_on_top_of_the_cap(void **state)
{
    (void)state;
    struct rt_backoff b;
    rt_backoff_init(
        &b,
        &(struct rt_backoff_spec){.first_min_ms = 50, .first_max_ms = 50, .cap_ms = 800, .extra_ms = 50},
        3);
    int64_t base[] = {50, 100, 200, 400, 800, 800};
    for (size_t i = 0; i < 6; i++) {
        int64_t d = rt_backoff_next_ms(&b);
        assert_true(d >= base[i] && d <= base[i] + 50);
    }
    rt_backoff_reset(&b);
    assert_true(rt_backoff_next_ms(&b) <= 100);
}

static void growth_does_not_overflow(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 1);
    const struct rt_backoff_spec spec = {.first_min_ms = 3, .first_max_ms = 3, .cap_ms = INT64_MAX / 2};
    assert_int_equal(rt_backoff_delay_ms(&spec, 4000000000u, &rng), INT64_MAX / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delays_grow_inside_their_bounds_up_to_the_cap),
        cmocka_unit_test(full_jitter_starts_at_zero),
        cmocka_unit_test(extra_is_added_on_top_of_the_cap),
        cmocka_unit_test(growth_does_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
