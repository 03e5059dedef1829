/* Requests and answers: what is said back, where it is routed, in which order, and when a connection ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http_rig.h"
#include "net/loop.h"

static void a_request_is_answered_with_date_corr_id_and_no_server_header(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_response r;
    char v[128];
    raw_once(http_rig.port, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    http_expect(&r, 200, "hello\n");
    assert_string_equal(raw_header(&r, "Content-Length", v, sizeof v), "6");
    assert_string_equal(raw_header(&r, "Content-Type", v, sizeof v), "text/plain");
    assert_int_equal(strlen(raw_header(&r, "Date", v, sizeof v)), 29);
    assert_int_equal(strlen(raw_header(&r, "X-Corr-ID", v, sizeof v)), 36);
    assert_int_equal(v[14], '7'); /* UUID version */
    assert_string_equal(raw_header(&r, "X-Always", v, sizeof v), "1");
    assert_null(raw_header(&r, "Server", v, sizeof v));
    assert_null(raw_header(&r, "Connection", v, sizeof v));
    raw_free(&r);
    http_rig_stop();
}

static void a_valid_corr_id_is_echoed_and_a_bad_one_replaced(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_response r;
    char v[256];
    raw_once(http_rig.port, "GET /hello HTTP/1.1\r\nHost: x\r\nX-Corr-ID: my-id/1\r\n\r\n", &r);
    assert_string_equal(raw_header(&r, "X-Corr-ID", v, sizeof v), "my-id/1");
    raw_free(&r);
    http_ask("GET /nowhere HTTP/1.1\r\nHost: x\r\nX-Corr-ID: on-errors-too\r\n\r\n", 404,
             "\"corr_id\":\"on-errors-too\"");
    raw_once(http_rig.port, "GET /hello HTTP/1.1\r\nHost: x\r\nX-Corr-ID: with space\r\n\r\n", &r);
    assert_int_equal(strlen(raw_header(&r, "X-Corr-ID", v, sizeof v)), 36);
    raw_free(&r);
    char request[512], longest[200];
    memset(longest, 'i', sizeof longest);
    for (int n = 128; n <= 129; n++) {
        snprintf(request, sizeof request, "GET /hello HTTP/1.1\r\nHost: x\r\nX-Corr-ID: %.*s\r\n\r\n", n,
                 longest);
        raw_once(http_rig.port, request, &r);
        assert_int_equal(strlen(raw_header(&r, "X-Corr-ID", v, sizeof v)), n == 128 ? 128 : 36);
        raw_free(&r);
    }
    http_rig_stop();
}

static void paths_params_and_queries_are_decoded_after_routing(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    http_ask("GET /show/a%2Fb/r/e%20st?k=v+w%26x&flag&k=2 HTTP/1.1\r\nHost: x\r\nX-Thing: t\r\n\r\n", 200,
             "a=a/b rest=r/e st k=v w&x x=t peer=127.0.0.1 members=3");
    http_ask("GET /show/one/two HTTP/1.1\r\nHost: x\r\n\r\n", 200, "a=one rest=two k=(none)");
    http_ask("GET http://x/show/one/two HTTP/1.1\r\nHost: x\r\n\r\n", 200, "a=one rest=two");
    http_ask("GET /show/one/ HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found");
    http_ask("GET /show//two HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found");
    http_ask("GET /show/%zz/two HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_request");
    http_ask("GET /show/a%00/two HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_request");
    struct raw_response r;
    char v[64];
    raw_once(http_rig.port, "GET /show/a/b HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_string_equal(raw_header(&r, "X-Route", v, sizeof v), "show");
    raw_free(&r);
    http_rig_stop();
}

static void unknown_paths_are_404_and_unknown_methods_405_with_allow(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_response r;
    char v[128];
    raw_once(http_rig.port, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    http_expect(&r, 404, "\"type\":\"urn:ron:error:not_found\",\"title\":\"Not found\",\"status\":404");
    assert_string_equal(raw_header(&r, "Content-Type", v, sizeof v), "application/problem+json");
    raw_free(&r);
    raw_once(http_rig.port, "DELETE /defer/1 HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    http_expect(&r, 405, "\"code\":\"method_not_allowed\",\"retryable\":false");
    assert_string_equal(raw_header(&r, "Allow", v, sizeof v), "GET, HEAD, POST");
    raw_free(&r);
    http_rig_stop();
}

static void head_gets_the_headers_of_get_and_no_body(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    char v[64];
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\nHEAD /pinned HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, true, &r);
    assert_string_equal(raw_header(&r, "Content-Length", v, sizeof v), "6");
    raw_free(&r);
    raw_read(&c, true, &r);
    assert_int_equal(atoi(raw_header(&r, "Content-Length", v, sizeof v)), sizeof http_rig_big);
    raw_free(&r);
    http_answered(&c, 200, "hello\n");
    raw_close(&c);
    EVENTUALLY(http_rig.releases == 1);
    http_rig_stop();
}

static void pipelined_requests_are_answered_in_order_also_when_tasks_answer_out_of_order(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /defer/hold HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /defer/2 HTTP/1.1\r\nHost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /defer/problem HTTP/1.1\r\nHost: x\r\n\r\nGET /large HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /defer/last HTTP/1.1\r\nHost: x\r\n\r\n");
    const struct {
        int status;
        const char *body;
    } want[] = {{200, "answer hold"},    {200, "hello"},   {200, "answer 2"},   {404, "not_found"},
                {409, "no \\\"way\\\""}, {200, "abcdefg"}, {200, "answer last"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct raw_response r;
        raw_read(&c, false, &r);
        http_expect(&r, want[i].status, want[i].body);
        if (i == 5)
            assert_true(r.body_n == sizeof http_rig_big &&
                        memcmp(r.body, http_rig_big, sizeof http_rig_big) == 0);
        raw_free(&r);
    }
    raw_close(&c);
    http_rig_stop();
}

static void an_outbox_carries_an_iterations_requests_and_answers_what_is_not_taken(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){.max_pipeline = 40});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    for (int i = 0; i < 30; i++)
        raw_puts(&c, "GET /boxed/b HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 30; i++) {
        http_answered(&c, 200, "answer b");
    }
    rt_chan_close(http_rig.jobs);
    raw_puts(&c, "GET /boxed/b HTTP/1.1\r\nHost: x\r\n\r\n");
    http_answered(&c, 503, "not taken");
    raw_close(&c);
    http_rig_stop();
}

static void more_than_the_limit(const char *route)
{
    http_rig_start((struct net_limits){.max_pipeline = 4});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    enum { MANY = 3000 };
    static char all[MANY * 64];
    size_t n = 0;
    for (int i = 0; i < MANY; i++)
        n += (size_t)sprintf(all + n, "GET /%s/%d HTTP/1.1\r\nHost: x\r\n\r\n", route, i);
    raw_send(&c, all, n);
    for (int i = 0; i < MANY; i++) {
        char want[32];
        snprintf(want, sizeof want, "answer %d", i);
        http_answered(&c, 200, want);
    }
    raw_close(&c);
    http_rig_stop();
}

static void more_pipelined_requests_than_the_limit_wait_and_are_all_answered(void **state)
{
    (void)state;
    more_than_the_limit("defer");
}

/* They are begun when the iteration's output has made room for them: the outbox must hear of them all the same. */
static void requests_that_waited_for_room_in_the_pipe_reach_their_task_through_an_outbox(void **state)
{
    (void)state;
    more_than_the_limit("boxed");
}

struct letter {
    struct net_msg msg;
    struct net_loop *loop;
    int left; /* it posts itself so often again */
};

static void read_letter(struct net_msg *m)
{
    struct letter *l = (struct letter *)m;
    if (l->left-- > 0)
        net_loop_post(l->loop, &l->msg);
}

/* Loops end with mail in their inboxes when a drain has no time left; who posted it is still there, and may be no longer. */
static void what_was_posted_last_runs_when_the_server_settles(void **state)
{
    (void)state;
    struct net_listen listen = {.bind = "127.0.0.1:0"};
    struct net_routes none = {NULL, 0, NULL};
    struct net_server *s;
    struct net_server_config config = {
        .threads = 1, .listen = &listen, .listen_count = 1, .routes = &none, .routes_count = 1};
    assert_int_equal(net_server_create(&config, &s), ERR_OK);
    struct letter l = {.msg = {.fn = read_letter}, .loop = net_server_loop(s, 0), .left = 2};
    net_loop_post(l.loop, &l.msg);
    net_server_settle(s);
    assert_int_equal(l.left, -1);
    net_server_destroy(s);
}

static void bytes_that_come_one_by_one_make_the_same_requests(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    const char *all = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345"
                      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                      "chunked\r\n\r\n3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n"
                      "X-Trailer: t\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
    for (const char *p = all; *p; p++)
        raw_send(&c, p, 1);
    const char *want[] = {"12345", "abc0123456789", "hello\n"};
    for (int i = 0; i < 3; i++) {
        struct raw_response r;
        raw_read(&c, false, &r);
        http_expect(&r, 200, NULL);
        assert_string_equal(r.body, want[i]);
        raw_free(&r);
    }
    raw_close(&c);
    http_rig_stop();
}

static void connection_close_and_http_1_0_are_honoured(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    char v[64];
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    raw_read(&c, false, &r);
    assert_string_equal(raw_header(&r, "Connection", v, sizeof v), "close");
    raw_free(&r);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /hello HTTP/1.0\r\n\r\n");
    http_answered(&c, 200, "hello");
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    raw_connect(&c, http_rig.port);
    raw_puts(&c,
             "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_string_equal(raw_header(&r, "Connection", v, sizeof v), "keep-alive");
    raw_free(&r);
    http_answered(&c, 200, "hello");
    raw_close(&c);
    http_rig_stop();
}

static void a_client_that_shuts_its_side_still_gets_its_answer(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    raw_puts(&c,
             "GET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /defer/9 HTTP/1.1\r\nHost: x\r\n\r\nGET /unfinish");
    shutdown(c.fd, SHUT_WR);
    http_answered(&c, 200, "hello");
    http_answered(&c, 200, "answer 9");
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    http_rig_stop();
}

static void header_injection_by_a_handler_is_left_out(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_response r;
    char v[64];
    raw_once(http_rig.port, "GET /injected HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    http_expect(&r, 204, NULL);
    assert_null(raw_header(&r, "Set-Cookie", v, sizeof v));
    assert_null(raw_header(&r, "X-Bad", v, sizeof v));
    assert_null(raw_header(&r, "Content-Length", v, sizeof v));
    assert_string_equal(raw_header(&r, "X-Good", v, sizeof v), "yes");
    raw_free(&r);
    http_rig_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_answered_with_date_corr_id_and_no_server_header),
        cmocka_unit_test(a_valid_corr_id_is_echoed_and_a_bad_one_replaced),
        cmocka_unit_test(paths_params_and_queries_are_decoded_after_routing),
        cmocka_unit_test(unknown_paths_are_404_and_unknown_methods_405_with_allow),
        cmocka_unit_test(head_gets_the_headers_of_get_and_no_body),
        cmocka_unit_test(pipelined_requests_are_answered_in_order_also_when_tasks_answer_out_of_order),
        cmocka_unit_test(an_outbox_carries_an_iterations_requests_and_answers_what_is_not_taken),
        cmocka_unit_test(more_pipelined_requests_than_the_limit_wait_and_are_all_answered),
        cmocka_unit_test(requests_that_waited_for_room_in_the_pipe_reach_their_task_through_an_outbox),
        cmocka_unit_test(what_was_posted_last_runs_when_the_server_settles),
        cmocka_unit_test(bytes_that_come_one_by_one_make_the_same_requests),
        cmocka_unit_test(connection_close_and_http_1_0_are_honoured),
        cmocka_unit_test(a_client_that_shuts_its_side_still_gets_its_answer),
        cmocka_unit_test(header_injection_by_a_handler_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
