#include "http_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net/loop.h"

struct http_rig http_rig;

static void hello(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply(rq, 200, &(struct net_headers){.type = "text/plain"}, http_text("hello\n"));
}

static void stand_still(void)
{
    atomic_store(&http_rig.stalled, true);
    while (atomic_load(&http_rig.stalled))
        sched_yield();
}

static void stall(struct net_req *rq, void *ctx)
{
    stand_still();
    hello(rq, ctx);
}

static void sent(void *arg, enum err result)
{
    (void)arg;
    (void)result;
    stand_still();
}

static void stall_after(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply_pinned(rq, 200, NULL, http_text("hello\n"), sent, NULL);
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
    if (rt_chan_try_send(http_rig.jobs, rq) != ERR_OK)
        net_reply_problem(rq, ERR_BUSY, "work queue is full");
}

static void boxed(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_outbox_put(http_rig.outbox, net_req_loop_index(rq), rq);
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
    http_rig.closes++;
}

static void hold(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_req_on_close(rq, closed, NULL);
    http_rig.held = rq;
}

/* What it began may be done or not if it is late; it is not. */
static void begun(struct net_req *rq, void *ctx)
{
    net_req_answer_by(rq, deadline_in_ms(60000), ERR_OUTCOME_UNKNOWN);
    hello(rq, ctx);
}

void http_rig_release(void *arg, enum err result)
{
    (void)arg;
    if (result == ERR_OK)
        http_rig.releases++;
    else
        http_rig.released_bad++;
    http_rig.unreadable += result == ERR_IO;
}

char http_rig_big[HTTP_RIG_BIG];

static void pinned(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply_pinned(rq, 200, NULL, bytes_of(http_rig_big, sizeof http_rig_big), http_rig_release, NULL);
}

static void parts(struct net_req *rq, void *ctx)
{
    (void)ctx;
    struct net_part v[6];
    for (size_t i = 0; i < 6; i++)
        v[i] = (struct net_part){.p = http_rig_big + 1000 * i, .n = 1000};
    net_reply_parts(rq, 206, NULL, &(struct net_source){.fd = -1, .release = http_rig_release}, v, 6);
}

static void large(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply(rq, 200, NULL, bytes_of(http_rig_big, sizeof http_rig_big));
}

static int file_fd(void)
{
    char path[] = "/tmp/ron-http-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, http_rig_big, 1 << 20), 1 << 20);
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
    net_reply_parts(rq, 200, NULL, &(struct net_source){.fd = file_fd(), .release = http_rig_release},
                    &(struct net_part){.n = 2 << 20}, 1);
}

static bool always(void *arg)
{
    (void)arg;
    return true;
}

/* A mapping of a file that is a quarter as long by now. */
static void shrunk(struct net_req *rq, void *ctx)
{
    static void *map;
    int fd = file_fd();
    (void)ctx;
    map = mmap(map, 1 << 20, PROT_READ, MAP_SHARED | (map ? MAP_FIXED : 0), fd, 0);
    assert_true(map != MAP_FAILED && ftruncate(fd, 1 << 18) == 0);
    close(fd);
    net_reply_parts(rq, 200, NULL,
                    &(struct net_source){.fd = -1, .still = always, .release = http_rig_release},
                    &(struct net_part){.p = map, .n = 1 << 20}, 1);
}

static void stream(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_req_on_close(rq, closed, NULL);
    net_stream_begin(rq, 200, &(struct net_headers){.type = "text/event-stream"});
    http_rig.stream = rq;
}

/* Produces ctx-free: 100 pieces of 50,000 bytes from the loop's thread, whenever there is room. */
struct producer {
    size_t left;
};

static void produce(struct net_req *rq, void *arg)
{
    struct producer *p = arg;
    while (p->left > 0) {
        if (net_stream_write(rq, bytes_of(http_rig_big + (100 - p->left) * 1000, 50000)) != ERR_OK)
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
    net_reply(rq, 200, NULL, http_text(""));
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
        http_rig.pieces++;
    }
    on_piece(rq, piece, end, arg);
}

static void slow_body(struct net_req *rq, void *ctx)
{
    (void)ctx;
    struct sum *s = arena_zalloc(net_req_arena(rq), sizeof *s);
    net_req_on_body(rq, slow_piece, s);
    net_req_on_close(rq, count_left, NULL);
    http_rig.held = rq;
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
    net_reply(rq, 204, &(struct net_headers){.list = h, .count = 2}, http_text(""));
}

const struct net_route http_rig_routes[] = {
    {.method = "GET", .pattern = "/hello", .fn = hello},
    {.method = "POST", .pattern = "/echo", .fn = echo, .body_max = 64 << 10},
    {.method = "GET", .pattern = "/show/{a}/{rest*}", .fn = show, .headers = "X-Route: show\r\n"},
    {.method = "GET", .pattern = "/defer/{n}", .fn = defer},
    {.method = "POST", .pattern = "/defer/{n}", .fn = defer},
    {.method = "GET", .pattern = "/boxed/{n}", .fn = boxed},
    {.method = "GET", .pattern = "/hold", .fn = hold},
    {.method = "GET", .pattern = "/begun", .fn = begun},
    {.method = "GET", .pattern = "/stall", .fn = stall},
    {.method = "GET", .pattern = "/stall-after", .fn = stall_after},
    {.method = "GET", .pattern = "/pinned", .fn = pinned},
    {.method = "GET", .pattern = "/parts", .fn = parts},
    {.method = "GET", .pattern = "/large", .fn = large},
    {.method = "GET", .pattern = "/file", .fn = file},
    {.method = "GET", .pattern = "/short-file", .fn = short_file},
    {.method = "GET", .pattern = "/shrunk", .fn = shrunk},
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
        enum err e = rt_chan_recv(http_rig.jobs, deadline_never(), &item);
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
            net_reply(kept, 200, NULL, http_text("answer hold"));
            kept = NULL;
        }
    }
    return NULL;
}

RT_BLOCKS
static void *loop_thread(void *arg)
{
    assert_int_equal(net_server_run(http_rig.server, (unsigned)(uintptr_t)arg, NULL), ERR_OK);
    return NULL;
}

static void on_conn(void *ctx, int delta)
{
    (void)ctx;
    http_rig.conns += delta;
}

static void on_inflight(void *ctx, const struct net_route *route, int delta)
{
    (void)route;
    (void)ctx;
    http_rig.inflight += delta;
}

static void on_done(void *ctx, const struct net_done *d)
{
    (void)ctx;
    http_rig.done_status = d->status;
    http_rig.done_complete = d->complete;
    http_rig.done++;
}

static void on_reject(void *ctx, enum net_reject why)
{
    (void)ctx;
    http_rig.rejects[why]++;
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

void http_rig_start_on(struct net_limits limits, unsigned threads, const struct net_listen *listen,
                       size_t count)
{
    memset(&http_rig, 0, sizeof http_rig);
    for (size_t i = 0; i < sizeof http_rig_big; i++)
        http_rig_big[i] = (char)('a' + i % 23);
    http_rig.jobs =
        rt_chan_create(&(struct rt_chan_spec){.name = "jobs", .capacity = 64, .policy = RT_REJECT});
    struct net_routes set = {http_rig_routes, sizeof http_rig_routes / sizeof *http_rig_routes, NULL};
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
    assert_int_equal(net_server_create(&config, &http_rig.server), ERR_OK);
    assert_int_equal(
        net_outbox_create(http_rig.server, http_rig.jobs, RT_REJECT, refused, NULL, &http_rig.outbox),
        ERR_OK);
    http_rig.port = net_server_port(http_rig.server, 0);
    http_rig.loops_n = threads;
    for (unsigned i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&http_rig.loops[i], NULL, loop_thread, (void *)(uintptr_t)i), 0);
    assert_int_equal(pthread_create(&http_rig.workers[0], NULL, worker, NULL), 0);
}

void http_rig_start(struct net_limits limits)
{
    struct net_listen listen = {.bind = "127.0.0.1:0"};
    http_rig_start_on(limits, 1, &listen, 1);
}

void http_rig_stop(void)
{
    rt_chan_close(http_rig.jobs);
    pthread_join(http_rig.workers[0], NULL);
    net_server_stop(http_rig.server);
    for (unsigned i = 0; i < http_rig.loops_n; i++)
        pthread_join(http_rig.loops[i], NULL);
    net_outbox_destroy(http_rig.outbox);
    net_server_destroy(http_rig.server);
    assert_int_equal(http_rig.conns, 0);
    assert_int_equal(http_rig.inflight, 0);
    rt_chan_destroy(http_rig.jobs, NULL, NULL);
}

void http_expect(const struct raw_response *r, int status, const char *body_part)
{
    if (r->status != status)
        fail_msg("status %d instead of %d: %s", r->status, status, r->body ? r->body : "");
    if (body_part && !(r->body && strstr(r->body, body_part)))
        fail_msg("no %s in %s", body_part, r->body ? r->body : "(nothing)");
}

void http_ask(const char *request, int status, const char *body_part)
{
    struct raw_response r;
    raw_once(http_rig.port, request, &r);
    http_expect(&r, status, body_part);
    raw_free(&r);
}

/* The next answer on this connection. */
void http_answered(struct raw_conn *c, int status, const char *body_part)
{
    struct raw_response r;
    raw_read(c, false, &r);
    http_expect(&r, status, body_part);
    raw_free(&r);
}
