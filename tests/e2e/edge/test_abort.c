/*
 * A worker in the midst of a fill when the drain's time is over: it is aborted and counted, and whoever waits for the fill is told.
 * The origin is a socket of this test, so that nothing but the test decides when the fill goes on: never.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "metric_sum.h"
#include "raw_http.h"
#include "svc/svc.h"

extern const struct svc_def edge_svc;

struct rig {
    struct svc_data *data;
    struct svc *s;
    int origin;
};

static struct rig rig;

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

RT_UNCHECKED static void open_rig(const char *drain_deadline)
{
    const char *why;
    char routes[96];
    uint16_t port;
    rig.origin = open_origin(&port);
    snprintf(routes, sizeof routes, "fill.routes=s/ http://127.0.0.1:%u/ timeout=60s", port);
    const char *flags[] = {"bind=127.0.0.1:0",
                           "uds=",
                           "mode=live",
                           "fill.allow_loopback_http=true",
                           "work.workers=1",
                           drain_deadline,
                           "request_timeout=60s",
                           "ingress.timeout_secs=60",
                           routes};
    assert_int_equal(svc_data_open("unused", true, SVC_DATA_WHOLE, &rig.data, &why), ERR_OK);
    struct svc_options opt = {
        .data = rig.data, .flags = flags, .flag_count = sizeof flags / sizeof *flags, .quiet = true};
    if (svc_open(&edge_svc, &opt, &rig.s) != ERR_OK || svc_start(rig.s) != ERR_OK)
        fail_msg("%s", svc_last_error());
}

RT_UNCHECKED static int open_hasty(void **state)
{
    (void)state;
    open_rig("drain_deadline=200ms");
    return 0;
}

RT_UNCHECKED static int open_patient(void **state)
{
    (void)state;
    open_rig("drain_deadline=60s");
    return 0;
}

RT_UNCHECKED static int close_rig(void **state)
{
    (void)state;
    svc_close(rig.s);
    svc_data_close(rig.data);
    close(rig.origin);
    return 0;
}

/* After the drain nobody answers /metrics any more, but the numbers are there. */
static double left_behind(const char *name, const char *labels)
{
    struct buf page;
    buf_init(&page, 4 << 20);
    obs_metrics_render(svc_metrics(rig.s), &page);
    assert_int_equal(page.err, ERR_OK);
    double v = metric_sum(buf_cstr(&page), name, labels);
    buf_fini(&page);
    return v;
}

/* The worker's GET has arrived; the connection it came on. */
static int asked(void)
{
    char head[4096];
    struct pollfd p = {.fd = rig.origin, .events = POLLIN};
    assert_int_equal(poll(&p, 1, RAW_PATIENCE_MS), 1);
    int fd = accept4(rig.origin, NULL, NULL, SOCK_CLOEXEC);
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
    raw_connect(&waiting, (uint16_t)svc_port(rig.s));
    raw_puts(&waiting, "GET /edge/assets/s/stuck HTTP/1.1\r\nHost: x\r\n\r\n");
    int upstream = asked();
    assert_true(left_behind("tasks_aborted_total", "") == 0);
    assert_true(left_behind("tasks_canceled_total", "") == 0);
    raw_connect(&queued, (uint16_t)svc_port(rig.s));
    raw_puts(&queued, "GET /edge/assets/s/behind HTTP/1.1\r\nHost: x\r\n\r\n");
    struct deadline by = deadline_in_ms(RAW_PATIENCE_MS);
    while (left_behind("queue_depth", "queue=\"work\"") < 1)
        assert_false(deadline_passed(by));
    assert_int_equal(svc_drain(rig.s), 1);
    raw_read(&waiting, false, &r);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body, "\"code\":\"draining\""));
    raw_free(&r);
    raw_read(&queued, false, &r);
    assert_int_equal(r.status, 503);
    raw_free(&r);
    assert_true(left_behind("tasks_aborted_total", "kind=\"worker\"") == 1);
    assert_true(left_behind("tasks_canceled_total", "kind=\"worker\"") == 1);
    assert_true(left_behind("tasks_leaked_total", "") == 0);
    raw_close(&waiting);
    raw_close(&queued);
    close(upstream);
}

RT_UNCHECKED static void a_drain_with_nothing_to_wait_for_aborts_nothing(void **state)
{
    (void)state;
    assert_int_equal(svc_drain(rig.s), 0);
    assert_true(left_behind("tasks_aborted_total", "") == 0);
    assert_true(left_behind("tasks_spawned_total", "kind=\"worker\"") == 1);
    assert_true(left_behind("tasks_leaked_total", "") == 0);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_worker_that_outlives_the_drain_is_aborted_and_its_waiters_are_told, open_hasty, close_rig),
        cmocka_unit_test_setup_teardown(a_drain_with_nothing_to_wait_for_aborts_nothing, open_patient,
                                        close_rig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
