/*
 * Who asks for /metrics: the page is made by the metrics task, from a queue of eight. The test holds a lock that the task needs for
 * its gauges, so that nothing but the test decides when the queue is served.
 */
#include "rig.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "services/edge/store.h"

enum { SCRAPE_CAP = 8 };

RT_UNCHECKED static int open_held(void **state)
{
    (void)state;
    rig_open(NULL, (const char *const[]){RIG_PATIENT, NULL});
    rt_lock_take(
        &rig.e->store->refs); /* the task waits for it before it looks into its queue for the first time */
    rig_start();
    return 0;
}

static int open_for(const char *cidrs)
{
    rig_open(NULL, (const char *const[]){RIG_PATIENT, "http.trusted_proxies=127.0.0.0/8", cidrs, NULL});
    rig_start();
    return 0;
}

static int open_as_it_comes(void **state)
{
    (void)state;
    return open_for(NULL);
}

static int open_for_others(void **state)
{
    (void)state;
    return open_for("http.metrics_cidrs=10.0.0.0/8");
}

RT_UNCHECKED static int close_rig(void **state)
{
    (void)state;
    assert_int_equal(svc_drain(rig.s), 0);
    rig_close();
    return 0;
}

static void ask(struct raw_conn *c, const char *headers)
{
    char head[200];
    snprintf(head, sizeof head, "GET /metrics HTTP/1.1\r\nHost: x\r\n%s\r\n", headers);
    raw_connect(c, rig_port());
    raw_puts(c, head);
}

static int answer(struct raw_conn *c, struct raw_response *r)
{
    raw_read(c, false, r);
    return r->status;
}

static double dropped(void)
{
    return rig_number("queue_dropped_total", "queue=\"scrape\"");
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
