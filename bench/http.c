/*
 * The HTTP server at its two speeds: answered by the listener itself, and by a task behind a channel.
 *
 *   bench.http [port]      prints the port; ends when its input ends
 *
 *   GET  /direct   the listener answers
 *   POST /direct   the same with the body read
 *   GET  /hop      listener -> rt_chan -> task -> listener
 *   GET  /pinned   1 KiB straight from memory
 *
 * bench/rows/http runs it beside nginx.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/outbox.h"
#include "rt/chan.h"

enum { JOBS = 1024, BATCH = 64 };

static struct rt_chan *jobs;
static struct net_server *server;
static struct net_outbox *outbox;
static uint8_t kilobyte[1024];

static void direct(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply(rq, 200, &(struct net_headers){.type = "text/plain"}, bytes_of("ok\n", 3));
}

static void hop(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_outbox_put(outbox, net_req_loop_index(rq), rq);
}

static void refused(void *item, enum err why, void *ctx)
{
    (void)ctx;
    net_reply_problem(item, why, "work queue is full");
}

static void pinned(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply_pinned(rq, 200, &(struct net_headers){.type = "application/octet-stream"},
                     bytes_of(kilobyte, sizeof kilobyte), NULL, NULL);
}

static const struct net_route routes[] = {
    {.method = "GET", .pattern = "/direct", .fn = direct},
    {.method = "POST", .pattern = "/direct", .fn = direct},
    {.method = "GET", .pattern = "/hop", .fn = hop},
    {.method = "GET", .pattern = "/pinned", .fn = pinned},
};

RT_BLOCKS
static void *task(void *arg)
{
    (void)arg;
    void *items[BATCH];
    size_t n;
    while (rt_chan_recv_batch(jobs, items, BATCH, deadline_never(), &n) == ERR_OK) {
        net_loop_cork();
        for (size_t i = 0; i < n; i++)
            direct(items[i], NULL);
        net_loop_uncork();
    }
    return NULL;
}

RT_BLOCKS
static void *listener(void *arg)
{
    (void)arg;
    CHECK(net_server_run(server, 0, NULL) == ERR_OK);
    return NULL;
}

int main(int argc, char **argv)
{
    char bind[32];
    snprintf(bind, sizeof bind, "127.0.0.1:%s", argc > 1 ? argv[1] : "0");
    struct net_listen listen = {.bind = bind};
    struct net_routes set = {routes, sizeof routes / sizeof *routes, NULL};
    struct net_server_config config = {
        .listen = &listen, .listen_count = 1, .routes = &set, .routes_count = 1};
    jobs = rt_chan_create(&(struct rt_chan_spec){.name = "jobs", .capacity = JOBS, .policy = RT_REJECT});
    CHECK(jobs && net_server_create(&config, &server) == ERR_OK);
    CHECK(net_outbox_create(server, jobs, RT_REJECT, refused, NULL, &outbox) == ERR_OK);
    pthread_t threads[2];
    CHECK(pthread_create(&threads[0], NULL, listener, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, task, NULL) == 0);
    printf("%u\n", net_server_port(server, 0));
    fflush(stdout);
    char c;
    while (read(STDIN_FILENO, &c, 1) > 0)
        ;
    rt_chan_close(jobs);
    pthread_join(threads[1], NULL);
    net_server_stop(server);
    pthread_join(threads[0], NULL);
    net_outbox_destroy(outbox);
    net_server_destroy(server);
    rt_chan_destroy(jobs, NULL, NULL);
    return 0;
}
