/* Connections as the server keeps them, on a loop that the test turns itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/http_internal.h"
#include "raw_http.h"

enum { TURNS_MAX = 10000, VISITORS = 50 };

static struct net_server *server;
static struct net_req *sinking;

static void swallow(struct net_req *rq, struct bytes piece, bool end, void *arg)
{
    (void)rq;
    (void)piece;
    (void)end;
    (void)arg;
}

static void sink(struct net_req *rq, void *ctx)
{
    (void)ctx;
    sinking = rq;
    net_req_on_body(rq, swallow, NULL);
}

static const struct net_route routes[] = {{.method = "POST",
                                           .pattern = "/sink",
                                           .fn = sink,
                                           .flags = NET_STREAM_BODY | NET_NO_DEADLINE,
                                           .body_max = (size_t)1 << 40}};

static void start(void)
{
    static const struct net_listen listen = {.bind = "127.0.0.1:0"};
    static const struct net_routes set = {routes, 1, NULL};
    struct net_server_config config = {.listen = &listen,
                                       .listen_count = 1,
                                       .routes = &set,
                                       .routes_count = 1,
                                       .limits = {.read_timeout_ms = 3600000}};
    assert_int_equal(net_server_create(&config, &server), ERR_OK);
}

static size_t length(const struct net_conn *c)
{
    size_t n = 0;
    for (; c; c = c->next)
        n++;
    return n;
}

static void fill(int fd)
{
    static const char bytes[1 << 16];
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
}

/* One client sends faster than it is read: there is always something left for the next turn. */
static void who_came_and_went_leaves_nothing_however_busy_others_are(void **state)
{
    (void)state;
    start();
    struct net_worker *w = &server->workers[0];
    struct raw_conn busy;
    raw_connect(&busy, net_server_port(server, 0));
    raw_puts(&busy, "POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n");
    for (int turn = 0; !sinking && turn < TURNS_MAX; turn++)
        net_loop_once(w->loop, 1);
    assert_non_null(sinking);
    size_t most = 0, busy_turns = 0;
    for (uint64_t i = 1; i <= VISITORS; i++) {
        struct raw_conn c;
        raw_connect(&c, net_server_port(server, 0));
        raw_close(&c);
        for (int turn = 0; turn < TURNS_MAX && (atomic_load(&w->accepted) <= i || length(w->conns) > 1);
             turn++) {
            fill(busy.fd);
            net_loop_once(w->loop, 0);
            busy_turns += w->resume != NULL;
            most = length(w->dead) > most ? length(w->dead) : most;
        }
    }
    assert_true(busy_turns > 0);
    assert_in_range(most, 0, VISITORS / 2); /* all of them, if they waited for a turn without more to do */
    assert_in_range(length(w->free_conns), 1, VISITORS / 2);
    raw_close(&busy);
    for (int turn = 0; w->conns && turn < TURNS_MAX; turn++)
        net_loop_once(w->loop, 1);
    assert_null(w->conns);
    net_reply(sinking, 200, NULL, bytes_of("", 0));
    net_server_destroy(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_came_and_went_leaves_nothing_however_busy_others_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
