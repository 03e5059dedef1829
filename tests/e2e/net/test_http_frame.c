/* What a service builds on: trusted proxies, Unix sockets, several loops, draining, gates and hooks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http_rig.h"

static void behind_trusted_proxies_the_client_is_the_nearest_stranger(void **state)
{
    (void)state;
    struct net_cidr trusted[2];
    assert_int_equal(net_cidr_parse(STR("127.0.0.0/8"), &trusted[0]), ERR_OK);
    assert_int_equal(net_cidr_parse(STR("10.0.0.0/8"), &trusted[1]), ERR_OK);
    http_rig_start((struct net_limits){.trusted_proxies = trusted, .trusted_proxies_count = 2});
    http_ask("GET /show/a/b HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.0.0.9\r\n\r\n",
             200, "peer=1.2.3.4 ");
    http_ask("GET /show/a/b HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: "
             "2001:db8::7\r\n\r\n",
             200, "peer=2001:db8::7 ");
    http_ask("GET /show/a/b HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: nonsense\r\n\r\n", 200,
             "peer=127.0.0.1 ");
    http_rig_stop();
    http_rig_start((struct net_limits){0}); /* nobody is trusted: the header means nothing */
    http_ask("GET /show/a/b HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n", 200,
             "peer=127.0.0.1 ");
    http_rig_stop();
}

static void unix_sockets_are_private_and_check_the_peers_uid(void **state)
{
    (void)state;
    char dir[] = "/tmp/ron-uds-XXXXXX", path[128], run[64];
    assert_non_null(mkdtemp(dir));
    snprintf(run, sizeof run, "%s/run", dir);
    snprintf(path, sizeof path, "%s/http.sock", run);
    struct net_listen listen = {.uds = path};
    http_rig_start_on((struct net_limits){0}, 2, &listen, 1);
    struct stat st;
    assert_int_equal(stat(run, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    struct raw_conn c;
    struct raw_response r;
    raw_connect_unix(&c, path);
    char want[64], request[] = "GET /show/a/b HTTP/1.1\r\nHost: x\r\n\r\n";
    raw_puts(&c, request);
    raw_read(&c, false, &r);
    snprintf(want, sizeof want, "peer=uid:%u", (unsigned)geteuid());
    http_expect(&r, 200, want);
    raw_free(&r);
    raw_close(&c);
    struct net_server *second;
    struct net_routes set = {http_rig_routes, 1, NULL};
    struct net_server_config config = {
        .listen = &listen, .listen_count = 1, .routes = &set, .routes_count = 1};
    assert_int_equal(net_server_create(&config, &second), ERR_EXISTS); /* somebody listens there */
    http_rig_stop();
    assert_int_equal(access(path, F_OK), -1);
    uid_t stranger = geteuid() + 1;
    listen = (struct net_listen){.uds = path, .allow_uids = &stranger, .allow_uids_count = 1};
    http_rig_start_on((struct net_limits){0}, 1, &listen, 1);
    raw_connect_unix(&c, path);
    raw_try_send(&c, request, sizeof request - 1);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    assert_int_equal(http_rig.rejects[NET_REJECT_UID], 1);
    http_rig_stop();
    chmod(run, 0755);
    assert_int_equal(net_server_create(&config, &second), ERR_PERMISSION); /* a directory open to others */
    rmdir(run);
    rmdir(dir);
}

static void several_loops_share_one_port(void **state)
{
    (void)state;
    struct net_listen listen = {.bind = "127.0.0.1:0"};
    http_rig_start_on((struct net_limits){0}, 3, &listen, 1);
    struct raw_conn c[24];
    for (int i = 0; i < 24; i++)
        raw_connect(&c[i], http_rig.port);
    for (int i = 0; i < 24; i++)
        raw_puts(&c[i], "GET /defer/x HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 24; i++) {
        struct raw_response r;
        raw_read(&c[i], false, &r);
        http_expect(&r, 200, "answer x");
        raw_free(&r);
        raw_read(&c[i], false, &r);
        http_expect(&r, 200, "hello");
        raw_free(&r);
        raw_close(&c[i]);
    }
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%u", http_rig.port);
    struct net_server *second;
    struct net_routes set = {http_rig_routes, 1, NULL};
    listen.bind = taken;
    struct net_server_config config = {
        .threads = 2, .listen = &listen, .listen_count = 1, .routes = &set, .routes_count = 1};
    assert_int_equal(net_server_create(&config, &second), ERR_EXISTS);
    http_rig_stop();
}

RT_BLOCKS
static void draining_answers_what_runs_refuses_what_is_new_and_ends(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn idle, busy, other;
    struct raw_response r;
    char v[64];
    raw_connect(&idle, http_rig.port);
    raw_connect(&busy, http_rig.port);
    raw_connect(&other, http_rig.port);
    raw_puts(&busy, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_puts(&other, "GET /hello HTTP/1.1\r\n");
    EVENTUALLY(http_rig.held != NULL && http_rig.conns == 3);
    net_server_set_draining(http_rig.server, true);
    http_ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 503, "\"code\":\"draining\"");
    http_ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200, "hello");
    net_server_stop_accepting(http_rig.server);
    assert_true(raw_at_eof(&idle)); /* idle ones are closed at once */
    raw_puts(&other, "Host: x\r\n\r\n");
    raw_read(&other, false, &r);
    http_expect(&r, 503, "draining");
    assert_string_equal(raw_header(&r, "Connection", v, sizeof v), "close");
    raw_free(&r);
    assert_int_equal(net_server_drain(http_rig.server, deadline_in_ms(20)), ERR_TIMEOUT);
    net_reply(http_rig.held, 200, NULL, http_text("finished"));
    raw_read(&busy, false, &r);
    http_expect(&r, 200, "finished");
    assert_string_equal(raw_header(&r, "Connection", v, sizeof v), "close");
    raw_free(&r);
    raw_close(&idle);
    raw_close(&busy);
    raw_close(&other);
    assert_int_equal(net_server_drain(http_rig.server, deadline_in_ms(RAW_PATIENCE_MS)), ERR_OK);
    http_rig_stop();
}

/* They had asked before the loop came to it, on old connections and on such that nobody had accepted yet. */
RT_BLOCKS
static void draining_answers_whoever_asked_before_it_is_seen(void **state)
{
    enum { NEW = 150, OLD = 3 };
    (void)state;
    http_rig_start((struct net_limits){.max_conns = 2 * NEW});
    struct raw_conn busy, c[OLD + NEW];
    struct raw_response r;
    raw_connect(&busy, http_rig.port);
    for (size_t i = 0; i < OLD; i++) {
        raw_connect(&c[i], http_rig.port);
        raw_puts(&c[i], "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        http_answered(&c[i], 200, "hello");
    }
    raw_puts(&busy, "GET /stall HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(atomic_load(&http_rig.stalled));
    net_server_stop_accepting(http_rig.server);
    for (size_t i = 0; i < OLD + NEW; i++) {
        if (i >= OLD)
            raw_connect(&c[i], http_rig.port);
        raw_puts(&c[i], "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    atomic_store(&http_rig.stalled, false);
    raw_read(&busy, false, &r);
    http_expect(&r, 200, "hello");
    raw_free(&r);
    for (size_t i = 0; i < OLD + NEW; i++) {
        http_answered(&c[i], 503, "draining");
        assert_true(raw_at_eof(&c[i]));
        raw_close(&c[i]);
    }
    raw_close(&busy);
    assert_int_equal(net_server_drain(http_rig.server, deadline_in_ms(RAW_PATIENCE_MS)), ERR_OK);
    http_rig_stop();
}

/* Its answer had left, without a word of the end, when the drain began; the next request lay there when the loop looked again. */
RT_BLOCKS
static void draining_answers_a_request_that_came_while_an_answer_left(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /stall-after HTTP/1.1\r\nHost: x\r\n\r\n");
    http_answered(&c, 200, "hello");
    EVENTUALLY(atomic_load(&http_rig.stalled));
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    net_server_stop_accepting(http_rig.server);
    atomic_store(&http_rig.stalled, false);
    http_answered(&c, 503, "draining");
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    assert_int_equal(net_server_drain(http_rig.server, deadline_in_ms(RAW_PATIENCE_MS)), ERR_OK);
    http_rig_stop();
}

RT_BLOCKS
static void a_server_without_connections_drains_at_once(void **state)
{
    (void)state;
    struct net_listen listen = {.bind = "127.0.0.1:0"};
    http_rig_start_on((struct net_limits){0}, 2, &listen, 1);
    assert_int_equal(net_server_drain(http_rig.server, deadline_in_ms(RAW_PATIENCE_MS)), ERR_OK);
    http_rig_stop();
}

static void a_frame_can_gate_requests_and_explain_refusals(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_response r;
    char v[64];
    http_ask("GET /hello HTTP/1.1\r\nHost: x\r\nX-Gate: shut\r\n\r\n", 401, "unauthenticated");
    http_ask("GET /hello HTTP/1.1\r\nHost: x\r\nX-Gate: open\r\n\r\n", 200, "hello");
    raw_once(http_rig.port, "PUT /hello HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    http_expect(&r, 405, "\"details\":{\"why\":1}");
    assert_string_equal(raw_header(&r, "X-Reason", v, sizeof v), "route");
    assert_string_equal(raw_header(&r, "Allow", v, sizeof v), "GET, HEAD");
    raw_free(&r);
    raw_once(http_rig.port, "nonsense\r\n\r\n", &r);
    http_expect(&r, 400, "\"details\":{\"why\":1}");
    assert_string_equal(raw_header(&r, "X-Reason", v, sizeof v), "framing");
    raw_free(&r);
    raw_once(http_rig.port, "GET /hello HTTP/1.1\r\nHost: x\r\nDeadline: 1\r\n\r\n", &r);
    http_expect(&r, 503, "timeout");
    assert_string_equal(raw_header(&r, "Retry-After", v, sizeof v), "7");
    raw_free(&r);
    http_rig_stop();
}

static void hooks_see_every_response_and_stats_add_up(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    http_ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 200, "hello");
    EVENTUALLY(http_rig.done == 1);
    assert_true(http_rig.done_status == 200 && http_rig.done_complete);
    http_ask("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404, NULL);
    http_ask("garbage\r\n\r\n", 400, NULL);
    EVENTUALLY(http_rig.done == 3);
    struct net_server_stats st;
    net_server_stats(http_rig.server, &st);
    assert_int_equal(st.accepted, 3);
    assert_int_equal(st.responses, 3);
    assert_int_equal(st.requests, 1);
    http_rig_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behind_trusted_proxies_the_client_is_the_nearest_stranger),
        cmocka_unit_test(unix_sockets_are_private_and_check_the_peers_uid),
        cmocka_unit_test(several_loops_share_one_port),
        cmocka_unit_test(draining_answers_what_runs_refuses_what_is_new_and_ends),
        cmocka_unit_test(draining_answers_whoever_asked_before_it_is_seen),
        cmocka_unit_test(draining_answers_a_request_that_came_while_an_answer_left),
        cmocka_unit_test(a_server_without_connections_drains_at_once),
        cmocka_unit_test(a_frame_can_gate_requests_and_explain_refusals),
        cmocka_unit_test(hooks_see_every_response_and_stats_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
