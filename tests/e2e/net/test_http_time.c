/* Time limits: slow requests, idle connections, clients that do not read, deadlines, and those who leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "http_rig.h"

static void a_request_that_arrives_too_slowly_is_408(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){.read_timeout_ms = 60});
    static const char *const slow[] = {
        "GET /hel",
        "GET /hello HTTP/1.1\r\nHost: x\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123",
        "POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12",
    };
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        struct raw_conn c;
        raw_connect(&c, http_rig.port);
        raw_puts(&c, slow[i]);
        http_answered(&c, 408, "\"code\":\"timeout\",\"retryable\":true");
        assert_true(raw_at_eof(&c));
        raw_close(&c);
    }
    assert_int_equal(http_rig.rejects[NET_REJECT_READ_TIMEOUT], 5);
    http_rig_stop();
}

static void an_idle_connection_is_closed(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){.idle_timeout_ms = 500});
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, http_rig.port);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    raw_free(&r);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    http_rig_stop();
}

static void a_client_that_does_not_read_is_cut_and_pins_are_released(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){.write_timeout_ms = 50, .max_pipeline = 64});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    int small = 4096;
    setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (int i = 0; i < 10; i++)
        raw_puts(&c, "GET /pinned HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(http_rig.rejects[NET_REJECT_WRITE_TIMEOUT] == 1);
    EVENTUALLY(http_rig.conns == 0);
    assert_true(http_rig.released_bad > 0);
    raw_close(&c);
    http_rig_stop();
}

static void the_server_answers_503_at_the_deadline_and_drops_the_late_answer(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){.request_timeout_ms = 60});
    struct raw_conn c;
    struct raw_response r;
    char v[64];
    raw_connect(&c, http_rig.port);
    raw_puts(
        &c,
        "GET /hold HTTP/1.1\r\nHost: x\r\nX-Corr-ID: late\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    http_expect(&r, 503, "\"code\":\"timeout\",\"retryable\":true,\"corr_id\":\"late\"");
    assert_true(atoi(raw_header(&r, "Retry-After", v, sizeof v)) >= 1);
    raw_free(&r);
    http_answered(&c, 200, "hello");
    EVENTUALLY(http_rig.closes == 1);
    struct net_req *rq = http_rig.held;
    assert_true(net_req_gone(rq));
    EVENTUALLY(http_rig.inflight == 1); /* the work still counts */
    net_reply(rq, 200, NULL, http_text("too late"));
    EVENTUALLY(http_rig.inflight == 0);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    http_answered(&c, 200, "hello");
    raw_close(&c);
    http_rig_stop();
}

/* What one handler meant by its deadline is not what the next one means: requests are used again. */
static void a_late_answer_is_called_what_its_own_handler_said(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){.request_timeout_ms = 60});
    http_ask("GET /begun HTTP/1.1\r\nHost: x\r\n\r\n", 200, "hello");
    EVENTUALLY(http_rig.done == 1);
    http_ask("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", 503, "\"code\":\"timeout\"");
    EVENTUALLY(http_rig.closes == 1);
    net_reply(http_rig.held, 200, NULL, http_text(""));
    http_rig_stop();
}

static void callers_shorten_the_deadline_but_never_lengthen_it(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){.request_timeout_ms = 8000});
    static const char *const headers[] = {"Request-Timeout: 0.2", "Request-Timeout: 200ms",
                                          "Deadline: 1000", "Request-Timeout: 0"};
    for (size_t i = 0; i < 4; i++) {
        char request[256];
        snprintf(request, sizeof request, "GET /hold HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", headers[i]);
        http_ask(request, 503, "\"code\":\"timeout\"");
        if (i < 2)
            net_reply(http_rig.held, 200, NULL, http_text(""));
    }
    /* unreadable or longer ones change nothing */
    http_ask("GET /hello HTTP/1.1\r\nHost: x\r\nRequest-Timeout: soon\r\nDeadline: x\r\n\r\n", 200,
             "hello");
    net_server_set_limits(http_rig.server, &(struct net_limits){.request_timeout_ms = 50});
    http_ask("GET /hold HTTP/1.1\r\nHost: x\r\nRequest-Timeout: 3600s\r\n\r\n", 503, "timeout");
    net_reply(http_rig.held, 200, NULL, http_text(""));
    http_rig_stop();
}

static void a_client_that_leaves_is_noticed_and_its_answer_dropped(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(http_rig.held != NULL);
    struct linger hard = {1, 0};
    setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard); /* reset */
    raw_close(&c);
    EVENTUALLY(http_rig.closes == 1);
    assert_true(net_req_gone(http_rig.held));
    net_reply_pinned(http_rig.held, 200, NULL, bytes_of(http_rig_big, 10), http_rig_release, NULL);
    EVENTUALLY(http_rig.released_bad == 1);
    http_rig_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_arrives_too_slowly_is_408),
        cmocka_unit_test(an_idle_connection_is_closed),
        cmocka_unit_test(a_client_that_does_not_read_is_cut_and_pins_are_released),
        cmocka_unit_test(the_server_answers_503_at_the_deadline_and_drops_the_late_answer),
        cmocka_unit_test(a_late_answer_is_called_what_its_own_handler_said),
        cmocka_unit_test(callers_shorten_the_deadline_but_never_lengthen_it),
        cmocka_unit_test(a_client_that_leaves_is_noticed_and_its_answer_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
