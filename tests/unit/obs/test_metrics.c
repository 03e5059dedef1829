#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "obs/metrics_internal.h"

static const struct obs_metric_def table[] = {
    {OBS_COUNTER, "demo_units_total", "Units judged, by outcome.", "status=committed|rejected", NULL},
    {OBS_GAUGE, "demo_depth", "Items waiting.", "", NULL},
    {OBS_HISTOGRAM, "demo_latency_seconds", "Time to answer.", "op=send|recv", OBS_SECONDS},
    {OBS_SUMMARY, "demo_jitter_seconds", "How late a wake-up was.", "", NULL},
    {OBS_COUNTER, "demo_http_requests_total", "Answers.", "route,method=GET|POST,status", NULL},
};
enum { UNITS, DEPTH, LATENCY, JITTER, HTTP, N };

struct fixture {
    struct obs_metrics *reg;
    struct obs_family *f[N];
    struct buf out;
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    assert_int_equal(obs_metrics_create("svc-demo", &x->reg), ERR_OK);
    assert_int_equal(obs_metrics_add(x->reg, table, N, x->f), ERR_OK);
    buf_init(&x->out, 1 << 22);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    buf_fini(&x->out);
    obs_metrics_destroy(x->reg);
    free(x);
    return 0;
}

static const char *render(struct fixture *x)
{
    buf_reset(&x->out);
    obs_metrics_render(x->reg, &x->out);
    assert_int_equal(x->out.err, ERR_OK);
    return buf_cstr(&x->out);
}

static void every_closed_series_is_there_at_zero(void **state)
{
    const char *text = render(*state);
    assert_non_null(strstr(text, "demo_units_total{service=\"svc-demo\",status=\"committed\"} 0\n"));
    assert_non_null(strstr(text, "demo_units_total{service=\"svc-demo\",status=\"rejected\"} 0\n"));
    assert_non_null(strstr(text, "demo_depth{service=\"svc-demo\"} 0\n"));
    assert_non_null(strstr(text, "demo_latency_seconds_count{service=\"svc-demo\",op=\"recv\"} 0\n"));
    assert_non_null(strstr(text, "# TYPE demo_latency_seconds histogram\n"));
    assert_non_null(strstr(text, "# HELP demo_units_total Units judged, by outcome.\n"));
}

static void updates_show_in_the_text(void **state)
{
    struct fixture *x = *state;
    obs_counter_add(OBS_COUNTER_OF(x->f[UNITS], "rejected"), 7);
    obs_counter_inc(obs_counter_nth(x->f[UNITS], 1));
    obs_gauge_set(obs_gauge(x->f[DEPTH]), 2.5);
    obs_gauge_add(obs_gauge(x->f[DEPTH]), -1);
    obs_hist_observe(OBS_HIST_OF(x->f[LATENCY], "send"), 0.0001);
    obs_hist_observe(OBS_HIST_OF(x->f[LATENCY], "send"), 0.03);
    obs_hist_observe(OBS_HIST_OF(x->f[LATENCY], "send"), 99);
    const char *text = render(x);
    assert_non_null(strstr(text, "status=\"rejected\"} 8\n"));
    assert_non_null(strstr(text, "demo_depth{service=\"svc-demo\"} 1.5\n"));
    assert_non_null(strstr(text, "op=\"send\",le=\"0.0001\"} 1\n"));
    assert_non_null(strstr(text, "op=\"send\",le=\"0.02\"} 1\n"));
    assert_non_null(strstr(text, "op=\"send\",le=\"0.04\"} 2\n"));
    assert_non_null(strstr(text, "op=\"send\",le=\"10\"} 2\n"));
    assert_non_null(strstr(text, "op=\"send\",le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(text, "demo_latency_seconds_count{service=\"svc-demo\",op=\"send\"} 3\n"));
}

static void open_labels_are_bounded_and_end_in_other(void **state)
{
    struct fixture *x = *state;
    for (int i = 0; i < OBS_OPEN_MAX + 50; i++) {
        char route[16];
        snprintf(route, sizeof route, "/r/%d", i);
        obs_counter_inc(OBS_COUNTER_OF(x->f[HTTP], route, "GET", "200"));
    }
    struct obs_counter *other = OBS_COUNTER_OF(x->f[HTTP], "/one/more", "POST", "500");
    assert_int_equal(obs_counter_value(other), 50);
    assert_ptr_equal(other, OBS_COUNTER_OF(x->f[HTTP], "/and/more", "GET", "200"));
    assert_int_equal(obs_counter_value(OBS_COUNTER_OF(x->f[HTTP], "/r/3", "GET", "200")), 1);
    const char *text = render(x);
    assert_non_null(
        strstr(text, "{service=\"svc-demo\",route=\"other\",method=\"other\",status=\"other\"} 50\n"));
    size_t lines = 0;
    for (const char *p = text; (p = strstr(p, "\ndemo_http_requests_total{")); p++)
        lines++;
    assert_int_equal(lines, OBS_OPEN_MAX + 1);
}

static void label_values_are_escaped(void **state)
{
    struct fixture *x = *state;
    obs_counter_inc(OBS_COUNTER_OF(x->f[HTTP], "/a\"b\\c\nd", "GET", "200"));
    assert_non_null(strstr(render(x), "route=\"/a\\\"b\\\\c\\nd\""));
}

static void the_same_table_twice_shares_its_series_and_another_shape_is_refused(void **state)
{
    struct fixture *x = *state;
    struct obs_family *again[N];
    assert_int_equal(obs_metrics_add(x->reg, table, N, again), ERR_OK);
    assert_ptr_equal(again[UNITS], x->f[UNITS]);
    assert_ptr_equal(obs_family_find(x->reg, "demo_depth"), x->f[DEPTH]);
    assert_null(obs_family_find(x->reg, "nobody"));
    struct obs_metric_def other = {OBS_GAUGE, "demo_units_total", "x", "status=committed|rejected", NULL};
    assert_int_equal(obs_metrics_add(x->reg, &other, 1, again), ERR_EXISTS);
    other = (struct obs_metric_def){OBS_COUNTER, "demo_units_total", "x", "status=other", NULL};
    assert_int_equal(obs_metrics_add(x->reg, &other, 1, again), ERR_EXISTS);
}

static void a_summary_gives_quantiles_within_its_grid(void **state)
{
    struct fixture *x = *state;
    struct obs_hist *h = obs_hist(x->f[JITTER]);
    assert_true(obs_hist_quantile(h, 0.5) <= 0);
    for (int i = 1; i <= 1000; i++)
        obs_hist_observe(h, i / 100.0);
    double p50 = obs_hist_quantile(h, 0.5), p99 = obs_hist_quantile(h, 0.99);
    assert_true(p50 >= 5.0 && p50 <= 5.0 * 1.125);
    assert_true(p99 >= 9.9 && p99 <= 9.9 * 1.125);
    obs_hist_observe(h, 1e300);
    obs_hist_observe(h, -5);
    obs_hist_observe(h, NAN);
    assert_int_equal(obs_hist_count(h), 1002);
}

/* Three values around each bound of each set, and the ends: as if every bound had been compared. */
static void a_value_falls_into_the_lowest_bucket_that_holds_it(void **state)
{
    static const struct obs_buckets *const sets[] = {OBS_SECONDS, OBS_SIZES, OBS_BYTES, OBS_SMALL};
    static const double ends[] = {-INFINITY, -1,     0,      1e-300, 0x1p-33,
                                  0x1p-32,   0x1p31, 0x1p32, 1e300,  INFINITY};
    static const char *const names[] = {"demo_a", "demo_b", "demo_c", "demo_d"};
    enum { ENDS = sizeof ends / sizeof ends[0] };
    struct fixture *x = *state;
    for (size_t set = 0; set < sizeof sets / sizeof sets[0]; set++) {
        const struct obs_buckets *b = sets[set];
        struct obs_metric_def def = {OBS_HISTOGRAM, names[set], "x", "", b};
        struct obs_family *f;
        assert_int_equal(obs_metrics_add(x->reg, &def, 1, &f), ERR_OK);
        uint64_t want[OBS_BUCKETS_MAX + 1] = {0};
        for (size_t i = 0; i < 3 * b->n + ENDS; i++) {
            double v = i < ENDS ? ends[i] : b->le[(i - ENDS) / 3];
            if (i >= ENDS && (i - ENDS) % 3 != 0)
                v = nextafter(v, (i - ENDS) % 3 == 1 ? 0 : INFINITY);
            size_t cell = 0;
            while (cell < b->n && v > b->le[cell])
                cell++;
            want[cell]++;
            obs_hist_observe(obs_hist(f), v);
        }
        for (size_t cell = 0; cell <= b->n; cell++)
            assert_int_equal(obs_metrics__cell(obs_hist(f), cell), want[cell]);
    }
}

static void set_depth(void *ctx)
{
    struct fixture *x = ctx;
    obs_gauge_add(obs_gauge(x->f[DEPTH]), 1);
}

static void collectors_run_before_each_rendering_until_forgotten(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(obs_metrics_collect(x->reg, set_depth, x), ERR_OK);
    assert_non_null(strstr(render(x), "demo_depth{service=\"svc-demo\"} 1\n"));
    assert_non_null(strstr(render(x), "demo_depth{service=\"svc-demo\"} 2\n"));
    obs_metrics_forget(x->reg, set_depth, x);
    assert_non_null(strstr(render(x), "demo_depth{service=\"svc-demo\"} 2\n"));
}

static void *hammer(void *arg)
{
    struct fixture *x = arg;
    for (int i = 0; i < 20000; i++) {
        char status[8];
        snprintf(status, sizeof status, "%d", 200 + i % 50);
        obs_counter_inc(OBS_COUNTER_OF(x->f[HTTP], "/", "GET", status));
        obs_hist_observe(obs_hist_nth(x->f[LATENCY], 0), 1);
        obs_gauge_add(obs_gauge(x->f[DEPTH]), 1);
    }
    return NULL;
}

static void nothing_is_lost_when_threads_count_together(void **state)
{
    struct fixture *x = *state;
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, hammer, x), 0);
    for (int i = 0; i < 10; i++)
        render(x);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    uint64_t sum = 0;
    for (int i = 0; i < 50; i++) {
        char status[8];
        snprintf(status, sizeof status, "%d", 200 + i);
        sum += obs_counter_value(OBS_COUNTER_OF(x->f[HTTP], "/", "GET", status));
    }
    assert_int_equal(sum, 80000);
    assert_int_equal(obs_hist_count(obs_hist_nth(x->f[LATENCY], 0)), 80000);
    assert_true(fabs(obs_hist_sum(obs_hist_nth(x->f[LATENCY], 0)) - 80000) < 0.5);
    assert_true(fabs(obs_gauge_value(obs_gauge(x->f[DEPTH])) - 80000) < 0.5);
}

static void handles_that_do_not_exist_are_ignored(void **state)
{
    (void)state;
    obs_counter_add(NULL, 1);
    obs_gauge_set(NULL, 1);
    obs_gauge_add(NULL, 1);
    obs_hist_observe(NULL, 1);
}

static void promtool_finds_nothing_to_complain_about(void **state)
{
    struct fixture *x = *state;
    if (system("command -v promtool >/dev/null") != 0)
        skip();
    updates_show_in_the_text(state);
    label_values_are_escaped(state);
    obs_hist_observe(obs_hist(x->f[JITTER]), 0.25);
    render(x);
    char path[] = "/tmp/ron-metrics-XXXXXX", command[128];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, x->out.p, x->out.n), (ssize_t)x->out.n);
    close(fd);
    snprintf(command, sizeof command, "promtool check metrics <%s", path);
    int status = system(command);
    unlink(path);
    assert_int_equal(status, 0);
}

static const struct obs_metric_def told_table[] = {
    {OBS_COUNTER, "demo_told_total", "Told by who knows.", "epoch", NULL}};

static void tell_two(void *ctx, struct obs_telling *to)
{
    obs_tell_counter(to, "e\"1", *(uint64_t *)ctx);
    obs_tell_counter(to, "_other", 7);
}

static void an_owner_may_tell_which_series_there_are(void **state)
{
    struct fixture *x = *state;
    struct obs_family *f;
    uint64_t n = 3;
    assert_int_equal(obs_metrics_add(x->reg, told_table, 1, &f), ERR_OK);
    obs_metrics_told(x->reg, f, tell_two, &n);
    assert_non_null(strstr(render(x), "# TYPE demo_told_total counter\n"
                                      "demo_told_total{service=\"svc-demo\",epoch=\"e\\\"1\"} 3\n"
                                      "demo_told_total{service=\"svc-demo\",epoch=\"_other\"} 7\n"));
    n = 4;
    assert_non_null(strstr(render(x), "epoch=\"e\\\"1\"} 4\n"));
    obs_metrics_told(x->reg, f, NULL, NULL);
    assert_null(strstr(render(x), "demo_told_total{"));
}

#define WITH_REGISTRY(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_REGISTRY(every_closed_series_is_there_at_zero),
        WITH_REGISTRY(updates_show_in_the_text),
        WITH_REGISTRY(open_labels_are_bounded_and_end_in_other),
        WITH_REGISTRY(label_values_are_escaped),
        WITH_REGISTRY(the_same_table_twice_shares_its_series_and_another_shape_is_refused),
        WITH_REGISTRY(a_value_falls_into_the_lowest_bucket_that_holds_it),
        WITH_REGISTRY(a_summary_gives_quantiles_within_its_grid),
        WITH_REGISTRY(collectors_run_before_each_rendering_until_forgotten),
        WITH_REGISTRY(an_owner_may_tell_which_series_there_are),
        WITH_REGISTRY(nothing_is_lost_when_threads_count_together),
        cmocka_unit_test(handles_that_do_not_exist_are_ignored),
        WITH_REGISTRY(promtool_finds_nothing_to_complain_about),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
