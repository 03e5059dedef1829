#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/str.h"
#include "obs/prom_read.h"

static const char text[] = "# HELP up whether it is\n"
                           "# TYPE up gauge\n"
                           "up 1\n"
                           "\n"
                           "d_bucket{service=\"a\",route=\"/x\",le=\"0.1\"} 10\n"
                           "d_bucket{service=\"a\",route=\"/x\",le=\"1\"} 20\n"
                           "d_bucket{service=\"a\",route=\"/x\",le=\"+Inf\"} 20\n"
                           "d_bucket{service=\"a\",route=\"/y\",le=\"0.1\"} 0\n"
                           "d_bucket{service=\"a\",route=\"/y\",le=\"1\"} 10\n"
                           "d_bucket{service=\"a\",route=\"/y\",le=\"+Inf\"} 20\n"
                           "d_count{service=\"a\",route=\"/y\"} 20\n"
                           "no value\n"
                           "depth{queue=\"work\",shard=\"1\"} 2.5e3";

static void samples_come_in_order_and_comments_are_passed_over(void **state)
{
    (void)state;
    struct str rest = str_from_c(text);
    struct obs_prom_sample s;
    size_t n = 0;
    assert_true(obs_prom_next(&rest, &s));
    assert_true(str_eq_c(s.name, "up"));
    assert_true(s.value == 1);
    assert_int_equal(obs_prom_label(&s, "service").n, 0);
    while (obs_prom_next(&rest, &s))
        n++;
    assert_int_equal(n, 9);
    assert_true(str_eq_c(s.name, "depth"));
    assert_true(s.value == 2500);
    assert_true(str_eq_c(obs_prom_label(&s, "queue"), "work"));
    assert_true(str_eq_c(obs_prom_label(&s, "shard"), "1"));
    assert_int_equal(obs_prom_label(&s, "shar").n, 0);
}

static void buckets_are_summed_over_every_other_label(void **state)
{
    (void)state;
    struct obs_prom_histogram h;
    obs_prom_histogram_read(str_from_c(text), "d", &h);
    assert_int_equal(h.n, 3);
    assert_true(h.count[0] == 10 && h.count[1] == 30 && h.count[2] == 40);
    assert_true(isinf(h.bound[2]));
    assert_true(obs_prom_histogram_total(&h) == 40);
    assert_true(fabs(obs_prom_histogram_quantile(&h, 0.5) - (0.1 + 0.9 * 0.5)) <
                1e-9);                                       /* the 20th of 10..30 */
    assert_true(obs_prom_histogram_quantile(&h, 0.99) == 1); /* beyond the last bound: at least that */
}

static void only_what_was_observed_in_between_counts_unless_the_process_is_another(void **state)
{
    (void)state;
    struct obs_prom_histogram before, now, none;
    obs_prom_histogram_read(str_from_c(text), "d", &before);
    now = before;
    now.count[0] += 2, now.count[1] += 2, now.count[2] += 2;
    struct obs_prom_histogram since = now;
    obs_prom_histogram_since(&since, &before);
    assert_true(obs_prom_histogram_total(&since) == 2);
    assert_true(obs_prom_histogram_quantile(&since, 0.99) < 0.1);
    since = before;
    obs_prom_histogram_since(&since, &now); /* it counts from zero again */
    assert_true(obs_prom_histogram_total(&since) == 40);
    obs_prom_histogram_read(str_from_c("x 1\n"), "d", &none);
    assert_true(obs_prom_histogram_quantile(&none, 0.5) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_come_in_order_and_comments_are_passed_over),
        cmocka_unit_test(buckets_are_summed_over_every_other_label),
        cmocka_unit_test(only_what_was_observed_in_between_counts_unless_the_process_is_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
