/*
 * Who asks for /metrics: the page is made by the metrics task, from a queue of eight. The test holds a lock that the task needs for
 * its gauges, so that nothing but the test decides when the queue is served.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "metric_sum.h"
#include "raw_http.h"
#include "services/edge/store.h"

extern const struct svc_def edge_svc;

enum { SCRAPE_CAP = 8 };

static struct {
    struct svc_data *data;
    struct svc *s;
    struct edge *e;
} rig;

RT_UNCHECKED static void open_rig(const char *cidrs, const char *proxies)
{
    const char *why;
    const char *flags[] = {"bind=127.0.0.1:0",        "uds=", "request_timeout=60s",
                           "ingress.timeout_secs=60", cidrs,  proxies};
    assert_int_equal(svc_data_open("unused", true, SVC_DATA_WHOLE, &rig.data, &why), ERR_OK);
    struct svc_options opt = {
        .data = rig.data, .flags = flags, .flag_count = sizeof flags / sizeof *flags, .quiet = true};
    if (svc_open(&edge_svc, &opt, &rig.s) != ERR_OK)
        fail_msg("%s", svc_last_error());
    rig.e = svc_state(rig.s);
}

RT_UNCHECKED static void start_rig(void)
{
    if (svc_start(rig.s) != ERR_OK)
        fail_msg("%s", svc_last_error());
}

RT_UNCHECKED static int open_held(void **state)
{
    (void)state;
    open_rig("http.metrics_cidrs=127.0.0.0/8,::1", "http.trusted_proxies=");
    rt_lock_take(
        &rig.e->store->refs); /* the task waits for it before it looks into its queue for the first time */
    start_rig();
    return 0;
}

static int open_as_it_comes(void **state)
{
    (void)state;
    open_rig("http.metrics_cidrs=127.0.0.0/8,::1", "http.trusted_proxies=127.0.0.0/8");
    start_rig();
    return 0;
}

static int open_for_others(void **state)
{
    (void)state;
    open_rig("http.metrics_cidrs=10.0.0.0/8", "http.trusted_proxies=127.0.0.0/8");
    start_rig();
    return 0;
}

RT_UNCHECKED static int close_rig(void **state)
{
    (void)state;
    assert_int_equal(svc_drain(rig.s), 0);
    svc_close(rig.s);
    svc_data_close(rig.data);
    return 0;
}

static void ask(struct raw_conn *c, const char *headers)
{
    char head[200];
    snprintf(head, sizeof head, "GET /metrics HTTP/1.1\r\nHost: x\r\n%s\r\n", headers);
    raw_connect(c, (uint16_t)svc_port(rig.s));
    raw_puts(c, head);
}

static int answer(struct raw_conn *c, struct raw_response *r)
{
    raw_read(c, false, r);
    return r->status;
}

static double dropped(void)
{
    struct buf page;
    buf_init(&page, 4 << 20);
    obs_metrics_render(svc_metrics(rig.s), &page);
    double v = metric_sum(buf_cstr(&page), "queue_dropped_total", "queue=\"scrape\"");
    buf_fini(&page);
    return v;
}

RT_UNCHECKED static void a_scrape_too_many_is_told_busy_and_counted_and_the_others_are_served(void **state)
{
    struct raw_conn asker[SCRAPE_CAP], late;
    struct raw_response r;
    (void)state;
    struct deadline by = deadline_in_ms(RAW_PATIENCE_MS);
    for (size_t i = 0; i < SCRAPE_CAP; i++) {
        ask(&asker[i], "");
        while (rt_chan_stats(rig.e->scrape).depth == i && !deadline_passed(by))
            sched_yield();
    }
    double before = dropped();
    ask(&late, "");
    raw_read(&late, false, &r);
    rt_lock_release(&rig.e->store->refs);
    assert_int_equal(r.status, 429);
    assert_non_null(strstr(r.head, "Retry-After: "));
    assert_non_null(strstr(r.body, "\"code\":\"busy\""));
    raw_free(&r);
    raw_close(&late);
    assert_true(before == 0 && dropped() == 1);
    for (size_t i = 0; i < SCRAPE_CAP; i++) {
        assert_int_equal(answer(&asker[i], &r), 200);
        assert_non_null(strstr(r.body, "queue_depth{"));
        raw_free(&r);
        raw_close(&asker[i]);
    }
}

static void one(const char *headers, int status)
{
    struct raw_conn c;
    struct raw_response r;
    ask(&c, headers);
    assert_int_equal(answer(&c, &r), status);
    raw_free(&r);
    raw_close(&c);
}

static void numbers_are_for_the_networks_that_are_named_and_a_header_changes_nothing(void **state)
{
    (void)state;
    one("", 404);
    one("X-Forwarded-For: 10.1.2.3\r\n", 404);
}

static void this_machine_is_named_unless_said_otherwise_and_a_header_changes_nothing(void **state)
{
    (void)state;
    one("", 200);
    one("X-Forwarded-For: 9.9.9.9\r\n", 200);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_scrape_too_many_is_told_busy_and_counted_and_the_others_are_served, open_held, close_rig),
        cmocka_unit_test_setup_teardown(
            this_machine_is_named_unless_said_otherwise_and_a_header_changes_nothing, open_as_it_comes,
            close_rig),
        cmocka_unit_test_setup_teardown(
            numbers_are_for_the_networks_that_are_named_and_a_header_changes_nothing, open_for_others,
            close_rig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
