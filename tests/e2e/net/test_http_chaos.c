/*
 * Many clients that behave at random (pipelining, cutting bytes anywhere, leaving half way, resetting, not reading) against
 * handlers that answer at random (at once, later, from another thread, streaming, too late). Whatever happens: every response
 * that arrives is whole and belongs to its request, nothing is in flight at the end, and no memory is touched twice (asan).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/outbox.h"
#include "raw_http.h"
#include "rt/chan.h"

enum { LOOPS = 2, WORKERS = 2, CLIENTS = 6, ROUNDS = 60 };

static struct net_server *server;
static struct rt_chan *jobs;
static struct net_outbox *outbox;
static _Atomic int conns, inflight, answered, released;
static char big[200000];

static struct str kind_of(struct net_req *rq)
{
    return net_req_param(rq, "kind");
}

static void release(void *arg, enum err result)
{
    (void)arg;
    (void)result;
    released++;
}

/* The body names the request, so that an answer to another request is noticed. */
static void answer(struct net_req *rq)
{
    struct str kind = kind_of(rq), id = net_req_param(rq, "id");
    answered++;
    if (str_eq_c(kind, "big")) {
        net_reply(rq, 200, NULL, bytes_of(big, sizeof big));
    } else if (str_eq_c(kind, "pinned")) {
        net_reply_pinned(rq, 200, NULL, bytes_of(big, sizeof big), release, NULL);
    } else if (str_eq_c(kind, "problem")) {
        net_reply_problem(rq, ERR_CONFLICT, "%.*s", STR_ARG(id));
    } else if (str_eq_c(kind, "stream")) {
        net_stream_begin(rq, 200, NULL);
        enum err e = ERR_OK;
        for (int i = 0; i < 3 && e == ERR_OK; i++)
            e = net_stream_write(rq, bytes_of_str(id));
        net_stream_end(rq);
    } else if (str_eq_c(kind, "echo")) {
        net_reply(rq, 200, NULL, net_req_body(rq));
    } else {
        net_reply(rq, 200, NULL, bytes_of_str(id));
    }
}

static void now(struct net_req *rq, void *ctx)
{
    (void)ctx;
    answer(rq);
}

static void later(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_outbox_put(outbox, net_req_loop_index(rq), rq);
}

static void refused(void *item, enum err why, void *ctx)
{
    (void)ctx;
    answered++;
    net_reply_problem(item, why, "full");
}

static const struct net_route routes[] = {
    {.method = "GET", .pattern = "/now/{kind}/{id}", .fn = now},
    {.method = "POST", .pattern = "/now/{kind}/{id}", .fn = now},
    {.method = "GET", .pattern = "/later/{kind}/{id}", .fn = later},
    {.method = "POST", .pattern = "/later/{kind}/{id}", .fn = later},
};

RT_BLOCKS
static void *worker(void *arg)
{
    struct rng g;
    rng_seed(&g, (uint64_t)(uintptr_t)arg);
    void *items[16];
    size_t n;
    while (rt_chan_recv_batch(jobs, items, 16, deadline_never(), &n) == ERR_OK) {
        bool slow = rng_below(&g, 8) == 0; /* longer than the requests' deadline */
        if (slow)
            poll(NULL, 0, 30);
        net_loop_cork();
        for (size_t i = n; i-- > 0;) /* the wrong way round */
            answer(items[i]);
        net_loop_uncork();
    }
    return NULL;
}

RT_BLOCKS
static void *loop_thread(void *arg)
{
    assert_int_equal(net_server_run(server, (unsigned)(uintptr_t)arg, NULL), ERR_OK);
    return NULL;
}

static const char *const kinds[] = {"plain", "plain", "big", "pinned", "problem", "stream", "echo"};

static size_t request(struct rng *g, unsigned id, char *out, const char **out_kind)
{
    const char *kind = kinds[rng_below(g, sizeof kinds / sizeof *kinds)],
               *when = rng_below(g, 2) ? "now" : "later";
    *out_kind = kind;
    if (strcmp(kind, "echo") != 0)
        return (size_t)sprintf(out, "GET /%s/%s/%u HTTP/1.1\r\nHost: x\r\nX-Corr-ID: %u\r\n\r\n", when,
                               kind, id, id);
    char digits[16];
    int n = sprintf(digits, "%u", id);
    if (rng_below(g, 2))
        return (size_t)sprintf(
            out, "POST /%s/%s/%u HTTP/1.1\r\nHost: x\r\nX-Corr-ID: %u\r\nContent-Length: %d\r\n\r\n%s",
            when, kind, id, id, n, digits);
    return (size_t)sprintf(
        out,
        "POST /%s/%s/%u HTTP/1.1\r\nHost: x\r\nX-Corr-ID: %u\r\nTransfer-Encoding: chunked\r\n\r\n"
        "%x\r\n%s\r\n0\r\n\r\n",
        when, kind, id, id, (unsigned)n, digits);
}

static void check_response(const struct raw_response *r, unsigned id, const char *kind)
{
    char v[64], want[64];
    snprintf(want, sizeof want, "%u", id);
    const char *corr = raw_header(r, "X-Corr-ID", v, sizeof v);
    if (!corr || strcmp(corr, want) != 0)
        fail_msg("answer to %s instead of %s", corr ? corr : "nobody", want);
    if (r->status == 503 || r->status == 429)
        return; /* deadline, queue full */
    assert_true(r->complete);
    if (strcmp(kind, "big") == 0 || strcmp(kind, "pinned") == 0) {
        assert_true(r->body_n == sizeof big && memcmp(r->body, big, sizeof big) == 0);
    } else if (strcmp(kind, "problem") == 0) {
        assert_int_equal(r->status, 409);
    } else if (strcmp(kind, "stream") == 0) {
        char three[64];
        snprintf(three, sizeof three, "%u%u%u", id, id, id);
        assert_string_equal(r->body, three);
    } else {
        assert_string_equal(r->body, want);
    }
}

static void client_round(struct rng *g, uint16_t port)
{
    enum { MOST = 12 };
    struct raw_conn c;
    char all[MOST * 256];
    const char *kind[MOST];
    unsigned count = 1 + (unsigned)rng_below(g, MOST), ids[MOST];
    size_t n = 0;
    for (unsigned i = 0; i < count; i++) {
        ids[i] = (unsigned)rng_below(g, 1000000);
        n += request(g, ids[i], all + n, &kind[i]);
    }
    raw_connect(&c, port);
    uint64_t mood = rng_below(g, 6);
    size_t send = mood == 0 ? rng_below(g, n) : n; /* 0: leaves in the middle of sending */
    for (size_t at = 0, piece; at < send; at += piece) {
        piece = 1 + rng_below(g, rng_below(g, 2) ? 20 : n);
        if (piece > send - at)
            piece = send - at;
        if (!raw_try_send(&c, all + at, piece))
            break;
    }
    unsigned read = mood == 0   ? 0
                    : mood == 1 ? (unsigned)rng_below(g, count)
                                : count; /* 1: leaves while answers come */
    if (mood == 2)
        shutdown(c.fd, SHUT_WR);
    for (unsigned i = 0; i < read; i++) {
        struct raw_response r;
        raw_read(&c, false, &r);
        assert_int_not_equal(r.status, 0);
        check_response(&r, ids[i], kind[i]);
        raw_free(&r);
    }
    if (rng_below(g, 2)) {
        struct linger hard = {1, 0};
        setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    }
    raw_close(&c);
}

static uint64_t seed;

static void *client(void *arg)
{
    struct rng g;
    rng_seed(&g, seed + (uint64_t)(uintptr_t)arg);
    for (int i = 0; i < ROUNDS; i++)
        client_round(&g, net_server_port(server, 0));
    return NULL;
}

static void on_conn(void *ctx, int delta)
{
    (void)ctx;
    conns += delta;
}

static void on_inflight(void *ctx, const struct net_route *route, int delta)
{
    (void)route;
    (void)ctx;
    inflight += delta;
}

RT_BLOCKS
static void clients_and_handlers_at_random_never_mix_up_or_lose_a_request(void **state)
{
    (void)state;
    seed = getenv("RON_SEED") ? strtoull(getenv("RON_SEED"), NULL, 10) : rng_secure_u64();
    print_message("RON_SEED=%llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)('a' + i % 19);
    jobs = rt_chan_create(&(struct rt_chan_spec){.name = "jobs", .capacity = 32, .policy = RT_REJECT});
    struct net_listen listen = {.bind = "127.0.0.1:0"};
    struct net_routes set = {routes, sizeof routes / sizeof *routes, NULL};
    struct net_server_config config = {
        .threads = LOOPS,
        .listen = &listen,
        .listen_count = 1,
        .routes = &set,
        .routes_count = 1,
        .limits = {.request_timeout_ms = 20, .max_pipeline = 5},
        .hooks = {.conn = on_conn, .inflight = on_inflight},
    };
    assert_int_equal(net_server_create(&config, &server), ERR_OK);
    assert_int_equal(net_outbox_create(server, jobs, RT_REJECT, refused, NULL, &outbox), ERR_OK);
    pthread_t loops[LOOPS], workers[WORKERS], clients[CLIENTS];
    for (uintptr_t i = 0; i < LOOPS; i++)
        assert_int_equal(pthread_create(&loops[i], NULL, loop_thread, (void *)i), 0);
    for (uintptr_t i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&workers[i], NULL, worker, (void *)(i + 1)), 0);
    for (uintptr_t i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&clients[i], NULL, client, (void *)i), 0);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
    assert_int_equal(net_server_drain(server, deadline_in_ms(RAW_PATIENCE_MS)), ERR_OK);
    rt_chan_close(jobs);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    net_server_stop(server);
    for (int i = 0; i < LOOPS; i++)
        pthread_join(loops[i], NULL);
    struct net_server_stats st;
    net_server_stats(server, &st);
    net_outbox_destroy(outbox);
    net_server_destroy(server);
    assert_int_equal(conns, 0);
    assert_int_equal(inflight, 0);
    assert_int_equal(rt_chan_depth(jobs), 0);
    assert_int_equal(st.requests, answered);
    rt_chan_destroy(jobs, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_and_handlers_at_random_never_mix_up_or_lose_a_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
