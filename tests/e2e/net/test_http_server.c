#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "net/http_server.h"
#include "net/loop.h"
#include "net/outbox.h"
#include "raw_http.h"
#include "rt/chan.h"

/* ---- the service under test ---- */

struct rig {
    struct net_server *server;
    pthread_t loops[4], workers[2];
    unsigned loops_n;
    uint16_t port;
    struct rt_chan *jobs; /* requests for the worker threads */
    struct net_outbox *outbox;
    _Atomic int closes, releases, released_bad, rejects[NET_REJECT_COUNT], done, late, conns, inflight;
    _Atomic int done_status, done_complete, pieces;
    struct net_req *_Atomic held; /* by /hold */
    _Atomic(struct net_req *) stream;
    atomic_bool stop_workers;
};

static struct rig rig;

static struct bytes text(const char *s)
{
    return bytes_of(s, strlen(s));
}

static void hello(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply(rq, 200, &(struct net_headers){.type = "text/plain"}, text("hello\n"));
}

static void echo(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply(rq, 200, &(struct net_headers){.type = "application/octet-stream"}, net_req_body(rq));
}

/* Path, params, query and headers as the handler sees them. */
static void show(struct net_req *rq, void *ctx)
{
    (void)ctx;
    char out[1024], peer[NET_PEER_CHARS];
    struct str q = {NULL, 0}, a = net_req_param(rq, "a"), b = net_req_param(rq, "rest");
    bool has = net_req_query(rq, "k", &q) == ERR_OK;
    net_peer_format(net_req_peer(rq), peer);
    struct str x = net_req_header(rq, "x-thing");
    int n =
        snprintf(out, sizeof out, "a=%.*s rest=%.*s k=%s%.*s x=%.*s peer=%s members=%zu", STR_ARG(a),
                 STR_ARG(b), has ? "" : "(none)", STR_ARG(q), STR_ARG(x), peer, net_req_query_count(rq));
    net_reply(rq, 200, NULL, bytes_of(out, (size_t)n));
}

static void defer(struct net_req *rq, void *ctx)
{
    (void)ctx;
    if (rt_chan_try_send(rig.jobs, rq) != ERR_OK)
        net_reply_problem(rq, ERR_BUSY, "work queue is full");
}

static void boxed(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_outbox_put(rig.outbox, net_req_loop_index(rq), rq);
}

static void refused(void *item, enum err why, void *ctx)
{
    (void)ctx;
    net_reply_problem(item, why, "not taken");
}

static void closed(struct net_req *rq, void *arg)
{
    (void)rq;
    (void)arg;
    rig.closes++;
}

static void hold(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_req_on_close(rq, closed, NULL);
    rig.held = rq;
}

static void release(void *arg, enum err result)
{
    (void)arg;
    if (result == ERR_OK)
        rig.releases++;
    else
        rig.released_bad++;
}

static char big[3 << 20];

static void pinned(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply_pinned(rq, 200, NULL, bytes_of(big, sizeof big), release, NULL);
}

static void parts(struct net_req *rq, void *ctx)
{
    (void)ctx;
    struct bytes v[6];
    for (size_t i = 0; i < 6; i++)
        v[i] = bytes_of(big + 1000 * i, 1000);
    net_reply_pinnedv(rq, 206, NULL, v, 6, release, NULL);
}

static void large(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply(rq, 200, NULL, bytes_of(big, sizeof big));
}

static int file_fd(void)
{
    char path[] = "/tmp/ron-http-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, big, 1 << 20), 1 << 20);
    return fd;
}

static void file(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply_file(rq, 200, NULL, file_fd(), 100, (1 << 20) - 100);
}

static void short_file(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply_file_pinned(rq, 200, NULL, file_fd(), 0, 2 << 20, release, NULL);
}

static void stream(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_req_on_close(rq, closed, NULL);
    net_stream_begin(rq, 200, &(struct net_headers){.type = "text/event-stream"});
    rig.stream = rq;
}

/* Produces ctx-free: 100 pieces of 50,000 bytes from the loop's thread, whenever there is room. */
struct producer {
    size_t left;
};

static void produce(struct net_req *rq, void *arg)
{
    struct producer *p = arg;
    while (p->left > 0) {
        if (net_stream_write(rq, bytes_of(big + (100 - p->left) * 1000, 50000)) != ERR_OK)
            return;
        p->left--;
    }
    free(p);
    net_stream_end(rq);
}

static void produced(struct net_req *rq, void *ctx)
{
    (void)ctx;
    struct producer *p = malloc(sizeof *p);
    assert_non_null(p);
    p->left = 100;
    net_stream_begin_sized(rq, 200, NULL, 100 * 50000);
    net_stream_on_room(rq, produce, p);
    produce(rq, p);
}

struct sum {
    size_t n, calls;
};

static void on_piece(struct net_req *rq, struct bytes piece, bool end, void *arg)
{
    struct sum *s = arg;
    s->n += piece.n;
    s->calls++;
    if (!end)
        return;
    char out[32];
    int n = snprintf(out, sizeof out, "%zu", s->n);
    net_reply(rq, 200, NULL, bytes_of(out, (size_t)n));
}

/* A body that breaks off: the request must still be answered, into the void. */
static void count_left(struct net_req *rq, void *arg)
{
    (void)arg;
    net_reply(rq, 200, NULL, text(""));
}

static void count_body(struct net_req *rq, void *ctx)
{
    (void)ctx;
    struct sum *s = arena_zalloc(net_req_arena(rq), sizeof *s);
    net_req_on_body(rq, on_piece, s);
    net_req_on_close(rq, count_left, NULL);
}

/* Pauses after every piece; the test's thread resumes. */
static void slow_piece(struct net_req *rq, struct bytes piece, bool end, void *arg)
{
    if (!end) {
        net_req_pause_body(rq);
        rig.pieces++;
    }
    on_piece(rq, piece, end, arg);
}

static void slow_body(struct net_req *rq, void *ctx)
{
    (void)ctx;
    struct sum *s = arena_zalloc(net_req_arena(rq), sizeof *s);
    net_req_on_body(rq, slow_piece, s);
    net_req_on_close(rq, count_left, NULL);
    rig.held = rq;
}

static void refuse_body(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply_problem(rq, ERR_FORBIDDEN, "not with that body");
}

static void injected(struct net_req *rq, void *ctx)
{
    (void)ctx;
    struct net_header h[] = {{STR("X-Bad"), STR("a\r\nSet-Cookie: b")}, {STR("X-Good"), STR("yes")}};
    net_reply(rq, 204, &(struct net_headers){.list = h, .count = 2}, text(""));
}

static const struct net_route routes[] = {
    {.method = "GET", .pattern = "/hello", .fn = hello},
    {.method = "POST", .pattern = "/echo", .fn = echo, .body_max = 64 << 10},
    {.method = "GET", .pattern = "/show/{a}/{rest*}", .fn = show, .headers = "X-Route: show\r\n"},
    {.method = "GET", .pattern = "/defer/{n}", .fn = defer},
    {.method = "POST", .pattern = "/defer/{n}", .fn = defer},
    {.method = "GET", .pattern = "/boxed/{n}", .fn = boxed},
    {.method = "GET", .pattern = "/hold", .fn = hold},
    {.method = "GET", .pattern = "/pinned", .fn = pinned},
    {.method = "GET", .pattern = "/parts", .fn = parts},
    {.method = "GET", .pattern = "/large", .fn = large},
    {.method = "GET", .pattern = "/file", .fn = file},
    {.method = "GET", .pattern = "/short-file", .fn = short_file},
    {.method = "GET", .pattern = "/stream", .fn = stream, .flags = NET_NO_DEADLINE},
    {.method = "GET", .pattern = "/produced", .fn = produced},
    {.method = "POST",
     .pattern = "/count",
     .fn = count_body,
     .flags = NET_STREAM_BODY,
     .body_max = 8 << 20},
    {.method = "POST", .pattern = "/slow", .fn = slow_body, .flags = NET_STREAM_BODY, .body_max = 8 << 20},
    {.method = "POST",
     .pattern = "/refuse",
     .fn = refuse_body,
     .flags = NET_STREAM_BODY,
     .body_max = 8 << 20},
    {.method = "GET", .pattern = "/injected", .fn = injected},
    {.method = "GET", .pattern = "/healthz", .fn = hello, .flags = NET_NO_ADMISSION | NET_WHILE_DRAINING},
};

/* Answers what /defer sent: "answer <n>"; n = "hold" waits until the next one came, so that order is turned round. */
RT_BLOCKS
static void *worker(void *arg)
{
    (void)arg;
    struct net_req *kept = NULL;
    for (;;) {
        void *item;
        enum err e = rt_chan_recv(rig.jobs, deadline_never(), &item);
        if (e != ERR_OK)
            break;
        struct net_req *rq = item;
        struct str n = net_req_param(rq, "n");
        if (str_eq_c(n, "hold") && !kept) {
            kept = rq;
            continue;
        }
        char out[64];
        int len = snprintf(out, sizeof out, "answer %.*s", STR_ARG(n));
        if (str_eq_c(n, "problem"))
            net_reply_problem(rq, ERR_CONFLICT, "no \"%s\"", "way");
        else
            net_reply(rq, 200, NULL, bytes_of(out, (size_t)len));
        if (kept) {
            net_reply(kept, 200, NULL, text("answer hold"));
            kept = NULL;
        }
    }
    return NULL;
}

RT_BLOCKS
static void *loop_thread(void *arg)
{
    assert_int_equal(net_server_run(rig.server, (unsigned)(uintptr_t)arg, NULL), ERR_OK);
    return NULL;
}

static void on_conn(void *ctx, int delta)
{
    (void)ctx;
    rig.conns += delta;
}

static void on_inflight(void *ctx, int delta)
{
    (void)ctx;
    rig.inflight += delta;
}

static void on_done(void *ctx, const struct net_done *d)
{
    (void)ctx;
    rig.done_status = d->status;
    rig.done_complete = d->complete;
    rig.done++;
}

static void on_reject(void *ctx, enum net_reject why)
{
    (void)ctx;
    rig.rejects[why]++;
}

/* What a service's frame does: ask for a password, say why something was refused, know how long a queue is. */
static bool gate(void *ctx, struct net_req *rq)
{
    (void)ctx;
    if (!str_eq_c(net_req_header(rq, "x-gate"), "shut"))
        return true;
    net_reply_problem(rq, ERR_UNAUTHENTICATED, "no");
    return false;
}

static void refusing(void *ctx, struct net_req *rq, enum net_reject why, struct net_problem *p)
{
    (void)ctx;
    struct net_header *h = arena_array(net_req_arena(rq), 2, sizeof *h);
    struct net_headers *all = arena_zalloc(net_req_arena(rq), sizeof *all);
    assert_true(h && all);
    if (p->headers && p->headers->count)
        h[all->count++] = p->headers->list[0];
    h[all->count++] = (struct net_header){STR("X-Reason"), str_from_c(net_reject_name(why))};
    all->list = h;
    p->headers = all;
    p->details_json = bytes_of("{\"why\":1}", 9);
}

static unsigned retry_after(void *ctx, enum err e)
{
    (void)ctx;
    return e == ERR_TIMEOUT ? 7 : 0;
}

static void rig_start_listen(struct net_limits limits, unsigned threads, const struct net_listen *listen,
                             size_t count)
{
    memset(&rig, 0, sizeof rig);
    rig.jobs = rt_chan_create(&(struct rt_chan_spec){.name = "jobs", .capacity = 64, .policy = RT_REJECT});
    struct net_routes set = {routes, sizeof routes / sizeof *routes, NULL};
    struct net_server_config config = {
        .threads = threads,
        .listen = listen,
        .listen_count = count,
        .routes = &set,
        .routes_count = 1,
        .limits = limits,
        .hooks = {.conn = on_conn,
                  .inflight = on_inflight,
                  .done = on_done,
                  .reject = on_reject,
                  .gate = gate,
                  .refusing = refusing,
                  .retry_after = retry_after},
        .headers = "X-Always: 1\r\n",
    };
    assert_int_equal(net_server_create(&config, &rig.server), ERR_OK);
    assert_int_equal(net_outbox_create(rig.server, rig.jobs, RT_REJECT, refused, NULL, &rig.outbox),
                     ERR_OK);
    rig.port = net_server_port(rig.server, 0);
    rig.loops_n = threads;
    for (unsigned i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&rig.loops[i], NULL, loop_thread, (void *)(uintptr_t)i), 0);
    assert_int_equal(pthread_create(&rig.workers[0], NULL, worker, NULL), 0);
}

static void rig_start(struct net_limits limits)
{
    struct net_listen listen = {.bind = "127.0.0.1:0"};
    rig_start_listen(limits, 1, &listen, 1);
}

static void rig_stop(void)
{
    rt_chan_close(rig.jobs);
    pthread_join(rig.workers[0], NULL);
    net_server_stop(rig.server);
    for (unsigned i = 0; i < rig.loops_n; i++)
        pthread_join(rig.loops[i], NULL);
    net_outbox_destroy(rig.outbox);
    net_server_destroy(rig.server);
    assert_int_equal(rig.conns, 0);
    assert_int_equal(rig.inflight, 0);
    rt_chan_destroy(rig.jobs, NULL, NULL);
}

/* Waits for something the server does on its own; a condition, never a duration. */
#define EVENTUALLY(condition)                                                                              \
    do {                                                                                                   \
        struct deadline by_ = deadline_in_ms(RAW_PATIENCE_MS);                                             \
        while (!(condition)) {                                                                             \
            if (deadline_passed(by_))                                                                      \
                fail_msg("never came true: %s", #condition);                                               \
            sched_yield();                                                                                 \
        }                                                                                                  \
    } while (0)

static void expect(const struct raw_response *r, int status, const char *body_part)
{
    if (r->status != status)
        fail_msg("status %d instead of %d: %s", r->status, status, r->body ? r->body : "");
    if (body_part && !(r->body && strstr(r->body, body_part)))
        fail_msg("no %s in %s", body_part, r->body ? r->body : "(nothing)");
}

static void ask(const char *request, int status, const char *body_part)
{
    struct raw_response r;
    raw_once(rig.port, request, &r);
    expect(&r, status, body_part);
    raw_free(&r);
}

/* The next answer on this connection. */
static void answered(struct raw_conn *c, int status, const char *body_part)
{
    struct raw_response r;
    raw_read(c, false, &r);
    expect(&r, status, body_part);
    raw_free(&r);
}

/* ---- tests ---- */

static void a_request_is_answered_with_date_corr_id_and_no_server_header(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_response r;
    char v[128];
    raw_once(rig.port, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    expect(&r, 200, "hello\n");
    assert_string_equal(raw_header(&r, "Content-Length", v, sizeof v), "6");
    assert_string_equal(raw_header(&r, "Content-Type", v, sizeof v), "text/plain");
    assert_int_equal(strlen(raw_header(&r, "Date", v, sizeof v)), 29);
    assert_int_equal(strlen(raw_header(&r, "X-Corr-ID", v, sizeof v)), 36);
    assert_int_equal(v[14], '7'); /* UUID version */
    assert_string_equal(raw_header(&r, "X-Always", v, sizeof v), "1");
    assert_null(raw_header(&r, "Server", v, sizeof v));
    assert_null(raw_header(&r, "Connection", v, sizeof v));
    raw_free(&r);
    rig_stop();
}

static void a_valid_corr_id_is_echoed_and_a_bad_one_replaced(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_response r;
    char v[256];
    raw_once(rig.port, "GET /hello HTTP/1.1\r\nHost: x\r\nX-Corr-ID: my-id/1\r\n\r\n", &r);
    assert_string_equal(raw_header(&r, "X-Corr-ID", v, sizeof v), "my-id/1");
    raw_free(&r);
    ask("GET /nowhere HTTP/1.1\r\nHost: x\r\nX-Corr-ID: on-errors-too\r\n\r\n", 404,
        "\"corr_id\":\"on-errors-too\"");
    raw_once(rig.port, "GET /hello HTTP/1.1\r\nHost: x\r\nX-Corr-ID: with space\r\n\r\n", &r);
    assert_int_equal(strlen(raw_header(&r, "X-Corr-ID", v, sizeof v)), 36);
    raw_free(&r);
    char request[512], longest[200];
    memset(longest, 'i', sizeof longest);
    for (int n = 128; n <= 129; n++) {
        snprintf(request, sizeof request, "GET /hello HTTP/1.1\r\nHost: x\r\nX-Corr-ID: %.*s\r\n\r\n", n,
                 longest);
        raw_once(rig.port, request, &r);
        assert_int_equal(strlen(raw_header(&r, "X-Corr-ID", v, sizeof v)), n == 128 ? 128 : 36);
        raw_free(&r);
    }
    rig_stop();
}

static void paths_params_and_queries_are_decoded_after_routing(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    ask("GET /show/a%2Fb/r/e%20st?k=v+w%26x&flag&k=2 HTTP/1.1\r\nHost: x\r\nX-Thing: t\r\n\r\n", 200,
        "a=a/b rest=r/e st k=v w&x x=t peer=127.0.0.1 members=3");
    ask("GET /show/one/two HTTP/1.1\r\nHost: x\r\n\r\n", 200, "a=one rest=two k=(none)");
    ask("GET http://x/show/one/two HTTP/1.1\r\nHost: x\r\n\r\n", 200, "a=one rest=two");
    ask("GET /show/one/ HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found");
    ask("GET /show//two HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found");
    ask("GET /show/%zz/two HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_request");
    ask("GET /show/a%00/two HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_request");
    struct raw_response r;
    char v[64];
    raw_once(rig.port, "GET /show/a/b HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_string_equal(raw_header(&r, "X-Route", v, sizeof v), "show");
    raw_free(&r);
    rig_stop();
}

static void unknown_paths_are_404_and_unknown_methods_405_with_allow(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_response r;
    char v[128];
    raw_once(rig.port, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    expect(&r, 404, "\"type\":\"urn:ron:error:not_found\",\"title\":\"Not found\",\"status\":404");
    assert_string_equal(raw_header(&r, "Content-Type", v, sizeof v), "application/problem+json");
    raw_free(&r);
    raw_once(rig.port, "DELETE /defer/1 HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    expect(&r, 405, "\"code\":\"method_not_allowed\",\"retryable\":false");
    assert_string_equal(raw_header(&r, "Allow", v, sizeof v), "GET, HEAD, POST");
    raw_free(&r);
    rig_stop();
}

static void head_gets_the_headers_of_get_and_no_body(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    char v[64];
    raw_connect(&c, rig.port);
    raw_puts(&c, "HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\nHEAD /pinned HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, true, &r);
    assert_string_equal(raw_header(&r, "Content-Length", v, sizeof v), "6");
    raw_free(&r);
    raw_read(&c, true, &r);
    assert_int_equal(atoi(raw_header(&r, "Content-Length", v, sizeof v)), sizeof big);
    raw_free(&r);
    answered(&c, 200, "hello\n");
    raw_close(&c);
    EVENTUALLY(rig.releases == 1);
    rig_stop();
}

static void pipelined_requests_are_answered_in_order_also_when_tasks_answer_out_of_order(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, rig.port);
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
        expect(&r, want[i].status, want[i].body);
        if (i == 5)
            assert_true(r.body_n == sizeof big && memcmp(r.body, big, sizeof big) == 0);
        raw_free(&r);
    }
    raw_close(&c);
    rig_stop();
}

static void an_outbox_carries_an_iterations_requests_and_answers_what_is_not_taken(void **state)
{
    (void)state;
    rig_start((struct net_limits){.max_pipeline = 40});
    struct raw_conn c;
    raw_connect(&c, rig.port);
    for (int i = 0; i < 30; i++)
        raw_puts(&c, "GET /boxed/b HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 30; i++) {
        answered(&c, 200, "answer b");
    }
    rt_chan_close(rig.jobs);
    raw_puts(&c, "GET /boxed/b HTTP/1.1\r\nHost: x\r\n\r\n");
    answered(&c, 503, "not taken");
    raw_close(&c);
    rig_stop();
}

static void more_pipelined_requests_than_the_limit_wait_and_are_all_answered(void **state)
{
    (void)state;
    rig_start((struct net_limits){.max_pipeline = 4});
    struct raw_conn c;
    raw_connect(&c, rig.port);
    enum { MANY = 3000 };
    static char all[MANY * 64];
    size_t n = 0;
    for (int i = 0; i < MANY; i++)
        n += (size_t)sprintf(all + n, "GET /defer/%d HTTP/1.1\r\nHost: x\r\n\r\n", i);
    raw_send(&c, all, n);
    for (int i = 0; i < MANY; i++) {
        char want[32];
        snprintf(want, sizeof want, "answer %d", i);
        answered(&c, 200, want);
    }
    raw_close(&c);
    rig_stop();
}

static void bytes_that_come_one_by_one_make_the_same_requests(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, rig.port);
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
        expect(&r, 200, NULL);
        assert_string_equal(r.body, want[i]);
        raw_free(&r);
    }
    raw_close(&c);
    rig_stop();
}

static void connection_close_and_http_1_0_are_honoured(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    char v[64];
    raw_connect(&c, rig.port);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    raw_read(&c, false, &r);
    assert_string_equal(raw_header(&r, "Connection", v, sizeof v), "close");
    raw_free(&r);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    raw_connect(&c, rig.port);
    raw_puts(&c, "GET /hello HTTP/1.0\r\n\r\n");
    answered(&c, 200, "hello");
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    raw_connect(&c, rig.port);
    raw_puts(&c,
             "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_string_equal(raw_header(&r, "Connection", v, sizeof v), "keep-alive");
    raw_free(&r);
    answered(&c, 200, "hello");
    raw_close(&c);
    rig_stop();
}

static void a_client_that_shuts_its_side_still_gets_its_answer(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, rig.port);
    raw_puts(&c,
             "GET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /defer/9 HTTP/1.1\r\nHost: x\r\n\r\nGET /unfinish");
    shutdown(c.fd, SHUT_WR);
    answered(&c, 200, "hello");
    answered(&c, 200, "answer 9");
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    rig_stop();
}

static void expect_100_is_answered_only_after_the_limits_passed(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, rig.port);
    raw_puts(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    answered(&c, 100, NULL);
    raw_puts(&c, "body");
    answered(&c, 200, "body");
    raw_close(&c);
    raw_connect(&c, rig.port);
    raw_puts(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\nExpect: 100-continue\r\n\r\n");
    answered(&c, 413, "too_large");
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: a-pony\r\n\r\nbody", 417,
        "expectation_failed");
    rig_stop();
}

static void a_declared_body_over_the_limit_is_refused_before_it_is_read(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, rig.port);
    raw_puts(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n");
    raw_read(&c, false, &r); /* not one byte of the body was sent */
    expect(&r, 413, "\"code\":\"too_large\"");
    raw_free(&r);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413,
        "too_large");
    raw_connect(&c, rig.port);
    raw_puts(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n");
    answered(&c, 413, "too_large");
    raw_close(&c);
    /* exactly the limit is welcome */
    raw_connect(&c, rig.port);
    raw_puts(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 65536\r\n\r\n");
    raw_send(&c, big, 65536);
    raw_read(&c, false, &r);
    assert_true(r.status == 200 && r.body_n == 65536 && memcmp(r.body, big, 65536) == 0);
    raw_free(&r);
    raw_close(&c);
    assert_int_equal(rig.rejects[NET_REJECT_BODY], 3);
    rig_stop();
}

static void a_refusal_reads_a_small_body_away_and_keeps_the_connection(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, rig.port);
    raw_puts(&c,
             "POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /GET /hello "
             "HTTP/1.1\r\nHost: x\r\n\r\n"
             "POST /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
             "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    const int want[] = {404, 200, 405, 200};
    for (int i = 0; i < 4; i++) {
        answered(&c, want[i], NULL);
    }
    raw_close(&c);
    rig_stop();
}

static void requests_that_could_be_smuggled_are_400_and_the_connection_closes(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nbody",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;ext\r\nabc\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\n",
        "GET /hello HTTP/1.1\nHost: x\n\n",
        "GET /hello HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost : x\r\n\r\n",
        "GET /hello HTTP/1.1\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: x\r\nX: a\001b\r\n\r\n",
    };
    rig_start((struct net_limits){0});
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct raw_conn c;
        struct raw_response r;
        char v[64];
        raw_connect(&c, rig.port);
        raw_puts(&c, bad[i]);
        raw_try_send(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 32);
        raw_read(&c, false, &r);
        if (r.status != 400)
            fail_msg("%d for: %s", r.status, bad[i]);
        assert_string_equal(raw_header(&r, "Connection", v, sizeof v), "close");
        raw_free(&r);
        assert_true(raw_at_eof(&c)); /* the request behind it was not answered */
        raw_close(&c);
    }
    ask("GET /hello HTTP/2.0\r\nHost: x\r\n\r\n", 505, "version_not_supported");
    rig_stop();
}

static void heads_over_the_limits_are_431_and_414(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    static char request[40000];
    size_t n = (size_t)sprintf(request, "GET /hello HTTP/1.1\r\nHost: x\r\nX-Long: ");
    memset(request + n, 'v', 17000);
    strcpy(request + n + 17000, "\r\n\r\n");
    ask(request, 431, "headers_too_large");
    n = (size_t)sprintf(request, "GET /hello HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 100; i++)
        n += (size_t)sprintf(request + n, "X-%d: v\r\n", i);
    strcpy(request + n, "\r\n");
    ask(request, 431, "headers_too_large");
    n = (size_t)sprintf(request, "GET /");
    memset(request + n, 'p', 9000);
    strcpy(request + n + 9000, " HTTP/1.1\r\nHost: x\r\n\r\n");
    ask(request, 414, "uri_too_long");
    /* 99 fields and Host make 100: welcome */
    n = (size_t)sprintf(request, "GET /hello HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 99; i++)
        n += (size_t)sprintf(request + n, "X-%d: v\r\n", i);
    strcpy(request + n, "\r\n");
    ask(request, 200, "hello");
    rig_stop();
}

/* gzip of `random` incompressible bytes and `zeros` zeros. */
static size_t gzip(size_t random, size_t zeros, uint8_t *out, size_t cap)
{
    uint8_t *in = calloc(1, random + zeros + 1);
    assert_non_null(in);
    uint32_t x = 1;
    for (size_t i = 0; i < random; i++)
        in[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
    z_stream z = {
        .next_in = in, .avail_in = (uInt)(random + zeros), .next_out = out, .avail_out = (uInt)cap};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    free(in);
    return z.total_out;
}

static void post_gzip(const uint8_t *body, size_t n, struct raw_response *out)
{
    struct raw_conn c;
    char head[256];
    raw_connect(&c, rig.port);
    int h = snprintf(
        head, sizeof head,
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n", n);
    raw_send(&c, head, (size_t)h);
    raw_send(&c, body, n);
    raw_read(&c, false, out);
    raw_close(&c);
}

static void gzip_bodies_inflate_up_to_ten_times_and_the_cap(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    static uint8_t body[100000];
    struct raw_response r;
    /* The largest body within ten times, and the smallest beyond. */
    size_t random = 2000, zeros = 15000, n = 0;
    while ((n = gzip(random, zeros + 1, body, sizeof body)) * 10 >= random + zeros + 1)
        zeros++;
    n = gzip(random, zeros, body, sizeof body);
    assert_true((double)(random + zeros) / (double)n > 9.9);
    post_gzip(body, n, &r);
    expect(&r, 200, NULL);
    assert_int_equal(r.body_n, random + zeros);
    raw_free(&r);
    n = gzip(random, zeros + 200, body, sizeof body);
    post_gzip(body, n, &r);
    expect(&r, 413, "too_large");
    raw_free(&r);
    n = gzip(30000, 50000, body, sizeof body); /* small ratio, but over the route's 64 KiB */
    post_gzip(body, n, &r);
    expect(&r, 413, "too_large");
    raw_free(&r);
    n = gzip(1000, 10, body, sizeof body);
    post_gzip(body, n - 1, &r);
    expect(&r, 400, "bad_request");
    raw_free(&r);
    body[n - 5] ^= 1; /* the checksum */
    post_gzip(body, n, &r);
    expect(&r, 400, "bad_request");
    raw_free(&r);
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx", 415,
        "unsupported_media_type");
    assert_int_equal(rig.rejects[NET_REJECT_INFLATE], 5);
    rig_stop();
}

/* In pieces of `step` bytes, so that the inflater stops and goes on everywhere. */
static void stream_gzip(const char *path, const uint8_t *body, size_t n, size_t step,
                        struct raw_response *out)
{
    struct raw_conn c;
    char head[256];
    raw_connect(&c, rig.port);
    int h = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nTransfer-Encoding: "
                     "chunked\r\n\r\n",
                     path);
    raw_send(&c, head, (size_t)h);
    for (size_t at = 0; at < n; at += step) {
        size_t k = n - at < step ? n - at : step;
        h = snprintf(head, sizeof head, "%zx\r\n", k);
        raw_try_send(&c, head, (size_t)h);
        raw_try_send(&c, body + at, k);
        raw_try_send(&c, "\r\n", 2);
    }
    raw_try_send(&c, "0\r\n\r\n", 5);
    raw_read(&c, false, out);
    raw_close(&c);
}

static void streamed_gzip_bodies_arrive_inflated_under_the_same_limits(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    static uint8_t body[600000];
    struct raw_response r;
    char want[16];
    size_t steps[] = {1, 7, 16384, sizeof body};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        size_t n = gzip(i == 0 ? 500 : 300000, 1000, body, sizeof body);
        snprintf(want, sizeof want, "%d", i == 0 ? 1500 : 301000);
        stream_gzip("/count", body, n, steps[i], &r);
        expect(&r, 200, want);
        raw_free(&r);
    }
    /* two members after each other are one body */
    size_t n = gzip(700, 0, body, sizeof body);
    n += gzip(300, 5, body + n, sizeof body - n);
    stream_gzip("/count", body, n, 100, &r);
    expect(&r, 200, "1005");
    raw_free(&r);
    n = gzip(100, 100000, body, sizeof body); /* over ten times, judged at the end */
    stream_gzip("/count", body, n, 50, &r);
    expect(&r, 413, "too_large");
    raw_free(&r);
    n = gzip(100, 7 << 20, body, sizeof body); /* a bomb, judged on the way */
    stream_gzip("/count", body, n, 1000, &r);
    expect(&r, 413, "too_large");
    raw_free(&r);
    n = gzip(1000, 10, body, sizeof body);
    stream_gzip("/count", body, n - 1, 300, &r); /* cut off */
    expect(&r, 400, "bad_request");
    raw_free(&r);
    body[n - 5] ^= 1; /* the checksum */
    stream_gzip("/count", body, n, 300, &r);
    expect(&r, 400, "bad_request");
    raw_free(&r);
    stream_gzip("/refuse", body, n, 300, &r); /* answered before the first piece */
    expect(&r, 403, "forbidden");
    raw_free(&r);
    assert_int_equal(rig.rejects[NET_REJECT_INFLATE], 4);
    rig_stop();
}

static void a_request_that_arrives_too_slowly_is_408(void **state)
{
    (void)state;
    rig_start((struct net_limits){.read_timeout_ms = 60});
    static const char *const slow[] = {
        "GET /hel",
        "GET /hello HTTP/1.1\r\nHost: x\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123",
        "POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12",
    };
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        struct raw_conn c;
        raw_connect(&c, rig.port);
        raw_puts(&c, slow[i]);
        answered(&c, 408, "\"code\":\"timeout\",\"retryable\":true");
        assert_true(raw_at_eof(&c));
        raw_close(&c);
    }
    assert_int_equal(rig.rejects[NET_REJECT_READ_TIMEOUT], 5);
    rig_stop();
}

static void an_idle_connection_is_closed(void **state)
{
    (void)state;
    rig_start((struct net_limits){.idle_timeout_ms = 50});
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, rig.port);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    raw_connect(&c, rig.port);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    raw_free(&r);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    rig_stop();
}

static void a_client_that_does_not_read_is_cut_and_pins_are_released(void **state)
{
    (void)state;
    rig_start((struct net_limits){.write_timeout_ms = 50, .max_pipeline = 64});
    struct raw_conn c;
    raw_connect(&c, rig.port);
    int small = 4096;
    setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (int i = 0; i < 10; i++)
        raw_puts(&c, "GET /pinned HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(rig.rejects[NET_REJECT_WRITE_TIMEOUT] == 1);
    EVENTUALLY(rig.conns == 0);
    assert_true(rig.released_bad > 0);
    raw_close(&c);
    rig_stop();
}

static void the_server_answers_503_at_the_deadline_and_drops_the_late_answer(void **state)
{
    (void)state;
    rig_start((struct net_limits){.request_timeout_ms = 60});
    struct raw_conn c;
    struct raw_response r;
    char v[64];
    raw_connect(&c, rig.port);
    raw_puts(
        &c,
        "GET /hold HTTP/1.1\r\nHost: x\r\nX-Corr-ID: late\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    expect(&r, 503, "\"code\":\"timeout\",\"retryable\":true,\"corr_id\":\"late\"");
    assert_true(atoi(raw_header(&r, "Retry-After", v, sizeof v)) >= 1);
    raw_free(&r);
    answered(&c, 200, "hello");
    assert_int_equal(rig.closes, 1);
    struct net_req *rq = rig.held;
    assert_true(net_req_gone(rq));
    EVENTUALLY(rig.inflight == 1); /* the work still counts */
    net_reply(rq, 200, NULL, text("too late"));
    EVENTUALLY(rig.inflight == 0);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    answered(&c, 200, "hello");
    raw_close(&c);
    rig_stop();
}

static void callers_shorten_the_deadline_but_never_lengthen_it(void **state)
{
    (void)state;
    rig_start((struct net_limits){.request_timeout_ms = 8000});
    static const char *const headers[] = {"Request-Timeout: 0.05", "Request-Timeout: 50ms",
                                          "Deadline: 1000", "Request-Timeout: 0"};
    for (size_t i = 0; i < 4; i++) {
        char request[256];
        snprintf(request, sizeof request, "GET /hold HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", headers[i]);
        ask(request, 503, "\"code\":\"timeout\"");
        if (i < 2)
            net_reply(rig.held, 200, NULL, text(""));
    }
    /* unreadable or longer ones change nothing */
    ask("GET /hello HTTP/1.1\r\nHost: x\r\nRequest-Timeout: soon\r\nDeadline: x\r\n\r\n", 200, "hello");
    net_server_set_limits(rig.server, &(struct net_limits){.request_timeout_ms = 50});
    ask("GET /hold HTTP/1.1\r\nHost: x\r\nRequest-Timeout: 3600s\r\n\r\n", 503, "timeout");
    net_reply(rig.held, 200, NULL, text(""));
    rig_stop();
}

static void a_client_that_leaves_is_noticed_and_its_answer_dropped(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, rig.port);
    raw_puts(&c, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(rig.held != NULL);
    struct linger hard = {1, 0};
    setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard); /* reset */
    raw_close(&c);
    EVENTUALLY(rig.closes == 1);
    assert_true(net_req_gone(rig.held));
    net_reply_pinned(rig.held, 200, NULL, bytes_of(big, 10), release, NULL);
    EVENTUALLY(rig.released_bad == 1);
    rig_stop();
}

static void connections_over_the_cap_get_429_and_are_closed(void **state)
{
    (void)state;
    rig_start((struct net_limits){.max_conns = 2});
    struct raw_conn a, b, c;
    struct raw_response r;
    char v[64];
    raw_connect(&a, rig.port);
    raw_connect(&b, rig.port);
    EVENTUALLY(rig.conns == 2);
    raw_connect(&c, rig.port);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    expect(&r, 429, "\"code\":\"busy\"");
    assert_true(atoi(raw_header(&r, "Retry-After", v, sizeof v)) >= 1);
    raw_free(&r);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    raw_puts(&a, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&a, false, &r);
    expect(&r, 200, "hello");
    raw_free(&r);
    raw_close(&a);
    raw_close(&b);
    EVENTUALLY(rig.conns == 0);
    ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 200, "hello");
    rig_stop();
}

static void requests_in_flight_over_the_cap_get_429_but_health_does_not(void **state)
{
    (void)state;
    rig_start((struct net_limits){.max_inflight = 1});
    struct raw_conn c;
    raw_connect(&c, rig.port);
    raw_puts(&c, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(rig.held != NULL);
    ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 429, "\"code\":\"busy\"");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", 429, "\"code\":\"busy\"");
    ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200, "hello");
    net_reply(rig.held, 200, NULL, text("done"));
    answered(&c, 200, "done");
    EVENTUALLY(rig.inflight == 0);
    ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 200, "hello");
    raw_close(&c);
    assert_int_equal(rig.rejects[NET_REJECT_INFLIGHT], 2);
    rig_stop();
}

static void a_peer_over_its_rate_gets_429_with_retry_after(void **state)
{
    (void)state;
    rig_start(
        (struct net_limits){.rate_per_peer = 0.5}); /* burst twice that: one request, then two seconds */
    struct raw_conn c;
    struct raw_response r;
    char v[64];
    raw_connect(&c, rig.port);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    answered(&c, 200, "hello");
    raw_read(&c, false, &r);
    expect(&r, 429, "\"code\":\"rate_limited\"");
    assert_string_equal(raw_header(&r, "Retry-After", v, sizeof v), "2");
    raw_free(&r);
    answered(&c, 200, "hello");
    raw_close(&c);
    assert_int_equal(rig.rejects[NET_REJECT_RATE], 1);
    rig_stop();
}

static void memory_and_files_leave_without_being_copied_and_are_released(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, rig.port);
    raw_puts(&c, "GET /pinned HTTP/1.1\r\nHost: x\r\n\r\nGET /parts HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /file HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_true(r.complete && r.body_n == sizeof big && memcmp(r.body, big, sizeof big) == 0);
    raw_free(&r);
    raw_read(&c, false, &r);
    assert_true(r.status == 206 && r.body_n == 6000 && memcmp(r.body, big, 6000) == 0);
    raw_free(&r);
    raw_read(&c, false, &r);
    assert_true(r.complete && r.body_n == (1 << 20) - 100 && memcmp(r.body, big + 100, r.body_n) == 0);
    raw_free(&r);
    answered(&c, 200, "hello");
    raw_close(&c);
    EVENTUALLY(rig.releases == 2);
    assert_int_equal(rig.released_bad, 0);
    /* a file shorter than promised: the response is cut, not padded */
    raw_once(rig.port, "GET /short-file HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_true(r.status == 200 && !r.complete && r.body_n == 1 << 20);
    raw_free(&r);
    EVENTUALLY(rig.released_bad == 1);
    rig_stop();
}

static void streams_are_chunked_bounded_and_end(void **state)
{
    (void)state;
    rig_start((struct net_limits){.stream_buffer = 1000});
    struct raw_conn c;
    struct raw_response r;
    char v[64];
    raw_connect(&c, rig.port);
    raw_puts(&c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_head(&c, &r);
    expect(&r, 200, NULL);
    assert_string_equal(raw_header(&r, "Transfer-Encoding", v, sizeof v), "chunked");
    assert_string_equal(raw_header(&r, "Content-Type", v, sizeof v), "text/event-stream");
    raw_free(&r);
    EVENTUALLY(rig.stream != NULL);
    struct net_req *rq = rig.stream;
    assert_int_equal(net_stream_write(rq, bytes_of(big, 1001)), ERR_TOO_LARGE);
    assert_int_equal(net_stream_write(rq, text("data: 1\n\n")), ERR_OK);
    while (c.n < 14)
        assert_true(raw_more(&c)); /* it is there before the stream ends */
    assert_memory_equal(c.buf, "9\r\ndata: 1\n\n\r\n", 14);
    assert_int_equal(net_stream_write(rq, text("data: 2\n\n")), ERR_OK);
    net_stream_end(rq);
    const char *rest = "9\r\ndata: 2\n\n\r\n0\r\n\r\nHTTP/1.1 200";
    while (c.n < 14 + strlen(rest))
        assert_true(raw_more(&c));
    assert_memory_equal(c.buf + 14, rest, strlen(rest));
    raw_close(&c);
    rig_stop();
}

static void a_full_stream_is_busy_and_a_left_one_closed(void **state)
{
    (void)state;
    rig_start((struct net_limits){.stream_buffer = 60000});
    struct raw_conn c;
    raw_connect(&c, rig.port);
    int small = 4096;
    setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    raw_puts(&c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(rig.stream != NULL);
    size_t sent = 0;
    enum err e = ERR_OK;
    /* The socket's own buffers are large; the stream must say busy within a bounded number of bytes. */
    for (int i = 0; i < 100000 && e != ERR_BUSY; i++) {
        e = net_stream_write(rig.stream, bytes_of(big, 50000));
        sent += e == ERR_OK ? 50000 : 0;
    }
    assert_int_equal(e, ERR_BUSY);
    assert_true(sent < 64u << 20);
    raw_close(&c);
    EVENTUALLY(rig.closes == 1);
    assert_int_equal(net_stream_write(rig.stream, text("x")), ERR_CLOSED);
    net_stream_end(rig.stream);
    EVENTUALLY(rig.inflight == 0);
    rig_stop();
}

static void a_sized_stream_refills_when_there_is_room(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, rig.port);
    raw_puts(&c, "GET /produced HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_true(r.complete && r.body_n == 100 * 50000);
    for (size_t i = 0; i < 100; i++)
        assert_memory_equal(r.body + i * 50000, big + i * 1000, 50000);
    raw_free(&r);
    answered(&c, 200, "hello");
    raw_close(&c);
    rig_stop();
}

static void request_bodies_can_be_streamed_in(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, rig.port);
    raw_puts(&c, "POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 3145728\r\n\r\n");
    raw_send(&c, big, sizeof big);
    answered(&c, 200, "3145728");
    raw_puts(&c, "POST /count HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_string_equal(r.body, "0");
    raw_free(&r);
    raw_puts(
        &c, "POST /count HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n");
    raw_read(&c, false, &r);
    assert_string_equal(r.body, "5");
    raw_free(&r);
    /* an answer before the end: the rest is thrown away, the connection goes on */
    raw_puts(&c, "POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    answered(&c, 403, "forbidden");
    raw_send(&c, big, 100000);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    answered(&c, 200, "hello");
    raw_close(&c);
    rig_stop();
}

static void a_paused_body_waits_for_the_handler(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, rig.port);
    raw_puts(&c, "POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n");
    raw_send(&c, big, 200000);
    EVENTUALLY(rig.pieces == 1);
    int seen = 1;
    for (int i = 0; i < 200 && rig.done == 0; i++) {
        net_req_resume_body(rig.held); /* one resume, one piece */
        EVENTUALLY(rig.pieces == seen + 1 || rig.done == 1);
        seen = rig.pieces;
    }
    answered(&c, 200, "200000");
    raw_close(&c);
    rig_stop();
}

static void behind_trusted_proxies_the_client_is_the_nearest_stranger(void **state)
{
    (void)state;
    struct net_cidr trusted[2];
    assert_int_equal(net_cidr_parse(STR("127.0.0.0/8"), &trusted[0]), ERR_OK);
    assert_int_equal(net_cidr_parse(STR("10.0.0.0/8"), &trusted[1]), ERR_OK);
    rig_start((struct net_limits){.trusted_proxies = trusted, .trusted_proxies_count = 2});
    ask("GET /show/a/b HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.0.0.9\r\n\r\n", 200,
        "peer=1.2.3.4 ");
    ask("GET /show/a/b HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: "
        "2001:db8::7\r\n\r\n",
        200, "peer=2001:db8::7 ");
    ask("GET /show/a/b HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: nonsense\r\n\r\n", 200, "peer=127.0.0.1 ");
    rig_stop();
    rig_start((struct net_limits){0}); /* nobody is trusted: the header means nothing */
    ask("GET /show/a/b HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n", 200, "peer=127.0.0.1 ");
    rig_stop();
}

static void header_injection_by_a_handler_is_left_out(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_response r;
    char v[64];
    raw_once(rig.port, "GET /injected HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    expect(&r, 204, NULL);
    assert_null(raw_header(&r, "Set-Cookie", v, sizeof v));
    assert_null(raw_header(&r, "X-Bad", v, sizeof v));
    assert_null(raw_header(&r, "Content-Length", v, sizeof v));
    assert_string_equal(raw_header(&r, "X-Good", v, sizeof v), "yes");
    raw_free(&r);
    rig_stop();
}

static void unix_sockets_are_private_and_check_the_peers_uid(void **state)
{
    (void)state;
    char dir[] = "/tmp/ron-uds-XXXXXX", path[128], run[64];
    assert_non_null(mkdtemp(dir));
    snprintf(run, sizeof run, "%s/run", dir);
    snprintf(path, sizeof path, "%s/http.sock", run);
    struct net_listen listen = {.uds = path};
    rig_start_listen((struct net_limits){0}, 2, &listen, 1);
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
    expect(&r, 200, want);
    raw_free(&r);
    raw_close(&c);
    struct net_server *second;
    struct net_routes set = {routes, 1, NULL};
    struct net_server_config config = {
        .listen = &listen, .listen_count = 1, .routes = &set, .routes_count = 1};
    assert_int_equal(net_server_create(&config, &second), ERR_EXISTS); /* somebody listens there */
    rig_stop();
    assert_int_equal(access(path, F_OK), -1);
    uid_t stranger = geteuid() + 1;
    listen = (struct net_listen){.uds = path, .allow_uids = &stranger, .allow_uids_count = 1};
    rig_start_listen((struct net_limits){0}, 1, &listen, 1);
    raw_connect_unix(&c, path);
    raw_try_send(&c, request, sizeof request - 1);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    assert_int_equal(rig.rejects[NET_REJECT_UID], 1);
    rig_stop();
    chmod(run, 0755);
    assert_int_equal(net_server_create(&config, &second), ERR_PERMISSION); /* a directory open to others */
    rmdir(run);
    rmdir(dir);
}

static void several_loops_share_one_port(void **state)
{
    (void)state;
    struct net_listen listen = {.bind = "127.0.0.1:0"};
    rig_start_listen((struct net_limits){0}, 3, &listen, 1);
    struct raw_conn c[24];
    for (int i = 0; i < 24; i++)
        raw_connect(&c[i], rig.port);
    for (int i = 0; i < 24; i++)
        raw_puts(&c[i], "GET /defer/x HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 24; i++) {
        struct raw_response r;
        raw_read(&c[i], false, &r);
        expect(&r, 200, "answer x");
        raw_free(&r);
        raw_read(&c[i], false, &r);
        expect(&r, 200, "hello");
        raw_free(&r);
        raw_close(&c[i]);
    }
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%u", rig.port);
    struct net_server *second;
    struct net_routes set = {routes, 1, NULL};
    listen.bind = taken;
    struct net_server_config config = {
        .threads = 2, .listen = &listen, .listen_count = 1, .routes = &set, .routes_count = 1};
    assert_int_equal(net_server_create(&config, &second), ERR_EXISTS);
    rig_stop();
}

RT_BLOCKS
static void draining_answers_what_runs_refuses_what_is_new_and_ends(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_conn idle, busy, other;
    struct raw_response r;
    char v[64];
    raw_connect(&idle, rig.port);
    raw_connect(&busy, rig.port);
    raw_connect(&other, rig.port);
    raw_puts(&busy, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_puts(&other, "GET /hello HTTP/1.1\r\n");
    EVENTUALLY(rig.held != NULL && rig.conns == 3);
    net_server_set_draining(rig.server, true);
    ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 503, "\"code\":\"draining\"");
    ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200, "hello");
    net_server_stop_accepting(rig.server);
    assert_true(raw_at_eof(&idle)); /* idle ones are closed at once */
    raw_puts(&other, "Host: x\r\n\r\n");
    raw_read(&other, false, &r);
    expect(&r, 503, "draining");
    assert_string_equal(raw_header(&r, "Connection", v, sizeof v), "close");
    raw_free(&r);
    assert_int_equal(net_server_drain(rig.server, deadline_in_ms(20)), ERR_TIMEOUT);
    net_reply(rig.held, 200, NULL, text("finished"));
    raw_read(&busy, false, &r);
    expect(&r, 200, "finished");
    assert_string_equal(raw_header(&r, "Connection", v, sizeof v), "close");
    raw_free(&r);
    raw_close(&idle);
    raw_close(&busy);
    raw_close(&other);
    assert_int_equal(net_server_drain(rig.server, deadline_in_ms(RAW_PATIENCE_MS)), ERR_OK);
    rig_stop();
}

RT_BLOCKS
static void a_server_without_connections_drains_at_once(void **state)
{
    (void)state;
    struct net_listen listen = {.bind = "127.0.0.1:0"};
    rig_start_listen((struct net_limits){0}, 2, &listen, 1);
    assert_int_equal(net_server_drain(rig.server, deadline_in_ms(RAW_PATIENCE_MS)), ERR_OK);
    rig_stop();
}

static void a_frame_can_gate_requests_and_explain_refusals(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    struct raw_response r;
    char v[64];
    ask("GET /hello HTTP/1.1\r\nHost: x\r\nX-Gate: shut\r\n\r\n", 401, "unauthenticated");
    ask("GET /hello HTTP/1.1\r\nHost: x\r\nX-Gate: open\r\n\r\n", 200, "hello");
    raw_once(rig.port, "PUT /hello HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    expect(&r, 405, "\"details\":{\"why\":1}");
    assert_string_equal(raw_header(&r, "X-Reason", v, sizeof v), "route");
    assert_string_equal(raw_header(&r, "Allow", v, sizeof v), "GET, HEAD");
    raw_free(&r);
    raw_once(rig.port, "nonsense\r\n\r\n", &r);
    expect(&r, 400, "\"details\":{\"why\":1}");
    assert_string_equal(raw_header(&r, "X-Reason", v, sizeof v), "framing");
    raw_free(&r);
    raw_once(rig.port, "GET /hello HTTP/1.1\r\nHost: x\r\nDeadline: 1\r\n\r\n", &r);
    expect(&r, 503, "timeout");
    assert_string_equal(raw_header(&r, "Retry-After", v, sizeof v), "7");
    raw_free(&r);
    rig_stop();
}

static void hooks_see_every_response_and_stats_add_up(void **state)
{
    (void)state;
    rig_start((struct net_limits){0});
    ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 200, "hello");
    EVENTUALLY(rig.done == 1);
    assert_true(rig.done_status == 200 && rig.done_complete);
    ask("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404, NULL);
    ask("garbage\r\n\r\n", 400, NULL);
    EVENTUALLY(rig.done == 3);
    struct net_server_stats st;
    net_server_stats(rig.server, &st);
    assert_int_equal(st.accepted, 3);
    assert_int_equal(st.responses, 3);
    assert_int_equal(st.requests, 1);
    rig_stop();
}

int main(void)
{
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)('a' + i % 23);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_answered_with_date_corr_id_and_no_server_header),
        cmocka_unit_test(a_valid_corr_id_is_echoed_and_a_bad_one_replaced),
        cmocka_unit_test(paths_params_and_queries_are_decoded_after_routing),
        cmocka_unit_test(unknown_paths_are_404_and_unknown_methods_405_with_allow),
        cmocka_unit_test(head_gets_the_headers_of_get_and_no_body),
        cmocka_unit_test(pipelined_requests_are_answered_in_order_also_when_tasks_answer_out_of_order),
        cmocka_unit_test(an_outbox_carries_an_iterations_requests_and_answers_what_is_not_taken),
        cmocka_unit_test(more_pipelined_requests_than_the_limit_wait_and_are_all_answered),
        cmocka_unit_test(bytes_that_come_one_by_one_make_the_same_requests),
        cmocka_unit_test(connection_close_and_http_1_0_are_honoured),
        cmocka_unit_test(a_client_that_shuts_its_side_still_gets_its_answer),
        cmocka_unit_test(expect_100_is_answered_only_after_the_limits_passed),
        cmocka_unit_test(a_declared_body_over_the_limit_is_refused_before_it_is_read),
        cmocka_unit_test(a_refusal_reads_a_small_body_away_and_keeps_the_connection),
        cmocka_unit_test(requests_that_could_be_smuggled_are_400_and_the_connection_closes),
        cmocka_unit_test(heads_over_the_limits_are_431_and_414),
        cmocka_unit_test(gzip_bodies_inflate_up_to_ten_times_and_the_cap),
        cmocka_unit_test(streamed_gzip_bodies_arrive_inflated_under_the_same_limits),
        cmocka_unit_test(a_request_that_arrives_too_slowly_is_408),
        cmocka_unit_test(an_idle_connection_is_closed),
        cmocka_unit_test(a_client_that_does_not_read_is_cut_and_pins_are_released),
        cmocka_unit_test(the_server_answers_503_at_the_deadline_and_drops_the_late_answer),
        cmocka_unit_test(callers_shorten_the_deadline_but_never_lengthen_it),
        cmocka_unit_test(a_client_that_leaves_is_noticed_and_its_answer_dropped),
        cmocka_unit_test(connections_over_the_cap_get_429_and_are_closed),
        cmocka_unit_test(requests_in_flight_over_the_cap_get_429_but_health_does_not),
        cmocka_unit_test(a_peer_over_its_rate_gets_429_with_retry_after),
        cmocka_unit_test(memory_and_files_leave_without_being_copied_and_are_released),
        cmocka_unit_test(streams_are_chunked_bounded_and_end),
        cmocka_unit_test(a_full_stream_is_busy_and_a_left_one_closed),
        cmocka_unit_test(a_sized_stream_refills_when_there_is_room),
        cmocka_unit_test(request_bodies_can_be_streamed_in),
        cmocka_unit_test(a_paused_body_waits_for_the_handler),
        cmocka_unit_test(behind_trusted_proxies_the_client_is_the_nearest_stranger),
        cmocka_unit_test(header_injection_by_a_handler_is_left_out),
        cmocka_unit_test(unix_sockets_are_private_and_check_the_peers_uid),
        cmocka_unit_test(several_loops_share_one_port),
        cmocka_unit_test(draining_answers_what_runs_refuses_what_is_new_and_ends),
        cmocka_unit_test(a_server_without_connections_drains_at_once),
        cmocka_unit_test(a_frame_can_gate_requests_and_explain_refusals),
        cmocka_unit_test(hooks_see_every_response_and_stats_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
