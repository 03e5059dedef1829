/*
 * A worker in the midst of a fill when the time of whoever waits, or of the drain, is over: they are told; the worker is aborted
 * and counted.
 * The origin is a socket of this test, so that nothing but the test decides when the fill goes on: never.
 */
#include "rig.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int origin;

static int open_origin(uint16_t *out_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 && listen(fd, 8) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    *out_port = ntohs(at.sin_port);
    return fd;
}

enum { ROUTE_CHARS = 96 };

/* Where the fills of `s/` go: to this test. */
static const char *make_route(char out[ROUTE_CHARS])
{
    uint16_t port;
    origin = open_origin(&port);
    snprintf(out, ROUTE_CHARS, "fill.routes=s/ http://127.0.0.1:%u/ timeout=60s", port);
    return out;
}

#define LIVE "mode=live", "fill.allow_loopback_http=true", "work.workers=1"

static void open_rig(const char *drain_deadline)
{
    char route[ROUTE_CHARS];
    rig_open(NULL, (const char *const[]){RIG_PATIENT, LIVE, drain_deadline, make_route(route), NULL});
    rig_start();
}

static int open_hasty(void **state)
{
    (void)state;
    open_rig("drain_deadline=200ms");
    return 0;
}

static int open_patient(void **state)
{
    (void)state;
    open_rig("drain_deadline=60s");
    return 0;
}

static int open_as_it_comes(void **state)
{
    char route[ROUTE_CHARS];
    (void)state;
    rig_open(NULL, (const char *const[]){LIVE, make_route(route), NULL});
    rig_start();
    return 0;
}

static int open_short_ingress(void **state)
{
    char route[ROUTE_CHARS];
    (void)state;
    rig_open(NULL, (const char *const[]){"request_timeout=60s", "ingress.timeout_secs=1", LIVE,
                                         make_route(route), NULL});
    rig_start();
    return 0;
}

RT_UNCHECKED static int close_rig(void **state)
{
    (void)state;
    rig_close();
    close(origin);
    return 0;
}

RT_UNCHECKED static int close_drained(void **state)
{
    (void)svc_drain(rig.s);
    return close_rig(state);
}

/* The worker's GET has arrived; the connection it came on. */
static int asked(void)
{
    char head[4096];
    struct pollfd p = {.fd = origin, .events = POLLIN};
    assert_int_equal(poll(&p, 1, RAW_PATIENCE_MS), 1);
    int fd = accept4(origin, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    p = (struct pollfd){.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, RAW_PATIENCE_MS), 1);
    ssize_t n = recv(fd, head, sizeof head, 0);
    assert_true(n > 4 && memcmp(head, "GET ", 4) == 0);
    return fd;
}

RT_UNCHECKED static void a_worker_that_outlives_the_drain_is_aborted_and_its_waiters_are_told(void **state)
{
    struct raw_conn waiting, queued;
    struct raw_response r;
    (void)state;
    raw_connect(&waiting, rig_port());
    raw_puts(&waiting, "GET /edge/assets/s/stuck HTTP/1.1\r\nHost: x\r\n\r\n");
    int upstream = asked();
    assert_true(rig_number("tasks_aborted_total", "") == 0);
    assert_true(rig_number("tasks_canceled_total", "") == 0);
    raw_connect(&queued, rig_port());
    raw_puts(&queued, "GET /edge/assets/s/behind HTTP/1.1\r\nHost: x\r\n\r\n");
    struct deadline by = deadline_in_ms(RAW_PATIENCE_MS);
    while (rig_number("queue_depth", "queue=\"work\"") < 1)
        assert_false(deadline_passed(by));
    assert_int_equal(svc_drain(rig.s), 1);
    raw_read(&waiting, false, &r);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body, "\"code\":\"draining\""));
    raw_free(&r);
    raw_read(&queued, false, &r);
    assert_int_equal(r.status, 503);
    raw_free(&r);
    assert_true(rig_number("tasks_aborted_total", "kind=\"worker\"") == 1);
    assert_true(rig_number("tasks_canceled_total", "kind=\"worker\"") == 1);
    assert_true(rig_number("tasks_leaked_total", "") == 0);
    raw_close(&waiting);
    raw_close(&queued);
    close(upstream);
}

/* How punctual it is is measured by bench/rows/edgelife: here it is not told sooner. */
static void a_miss_that_nobody_fills_is_told_timeout_after_five_seconds(void **state)
{
    struct raw_conn c;
    struct raw_response r;
    (void)state;
    int64_t began = os_now_ns();
    raw_connect(&c, rig_port());
    raw_puts(&c, "GET /edge/assets/s/never HTTP/1.1\r\nHost: x\r\n\r\n");
    int upstream = asked();
    raw_read(&c, false, &r);
    assert_true(os_now_ns() - began >= 4900 * (int64_t)1000000);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.head, "X-Reason: timeout\r\n"));
    assert_non_null(strstr(r.body, "\"code\":\"timeout\""));
    raw_free(&r);
    assert_true(rig_number("edge_rejects_total", "reason=\"timeout\"") == 1);
    raw_close(&c);
    close(upstream);
}

static void of_two_limits_the_shorter_holds(void **state)
{
    struct raw_response r;
    (void)state;
    raw_once(rig_port(), "GET /edge/assets/s/never HTTP/1.1\r\nHost: x\r\n\r\n",
             &r); /* or its patience ends first */
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.head, "X-Reason: timeout\r\n"));
    raw_free(&r);
}

RT_UNCHECKED static void a_drain_with_nothing_to_wait_for_aborts_nothing(void **state)
{
    (void)state;
    assert_int_equal(svc_drain(rig.s), 0);
    assert_true(rig_number("tasks_aborted_total", "") == 0);
    assert_true(rig_number("tasks_spawned_total", "kind=\"worker\"") == 1);
    assert_true(rig_number("tasks_leaked_total", "") == 0);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_worker_that_outlives_the_drain_is_aborted_and_its_waiters_are_told, open_hasty, close_rig),
        cmocka_unit_test_setup_teardown(a_miss_that_nobody_fills_is_told_timeout_after_five_seconds,
                                        open_as_it_comes, close_drained),
        cmocka_unit_test_setup_teardown(of_two_limits_the_shorter_holds, open_short_ingress, close_drained),
        cmocka_unit_test_setup_teardown(a_drain_with_nothing_to_wait_for_aborts_nothing, open_patient,
                                        close_rig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
