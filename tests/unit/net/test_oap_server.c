/* The server and the client against each other and against hand-made bytes, all on one loop that the test
 * turns itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "net/loop.h"
#include "net/oap_client.h"
#include "net/oap_server.h"
#include "rt/oneshot.h"

enum {
    APP = NET_OAP_MAILBOX,
    OP_ECHO = 1,
    OP_KEEP = 2,
    OP_CAP = 3,
    OP_FAIL = 4,
    OP_BIG = 5,
    OP_STREAM = 6
};

struct fix {
    struct clock_manual clock;
    struct net_loop *loop;
    struct net_oap_server *server;
    struct net_oap_client *client;
    char dir[64], uds[128];
    struct net_oap_req *kept[128];
    size_t kept_n;
    int closed;
    int room_calls;
    /* what the client heard */
    int answers, ends;
    enum err e;
    uint16_t status;
    struct buf payload;
};

static void note_close(struct net_oap_req *rq, void *arg)
{
    struct fix *f = arg;
    (void)rq;
    f->closed++;
}

static void note_room(struct net_oap_req *rq, void *arg)
{
    struct fix *f = arg;
    (void)rq;
    f->room_calls++;
}

static void serve(struct net_oap_req *rq, void *ctx)
{
    struct fix *f = ctx;
    static uint8_t big[3 << 20];
    switch (net_oap_req_code(rq)) {
    case OP_ECHO:
        net_oap_reply(rq, 200, net_oap_req_payload(rq));
        break;
    case OP_CAP:
        net_oap_reply(rq, 200, bytes_of_str(net_oap_req_cap(rq)));
        break;
    case OP_FAIL:
        net_oap_reply_problem(rq, ERR_FORBIDDEN, "not %s", "you");
        break;
    case OP_BIG:
        for (size_t i = 0; i < sizeof big; i++)
            big[i] = (uint8_t)(i * 7 >> 3);
        net_oap_reply(rq, 200, bytes_of(big, sizeof big));
        break;
    case OP_STREAM:
        net_oap_req_set_timeout(rq, 0);
        net_oap_req_on_room(rq, note_room, f);
        __attribute__((fallthrough));
    case OP_KEEP:
        net_oap_req_on_close(rq, note_close, f);
        f->kept[f->kept_n++] = rq;
        break;
    default:
        net_oap_reply_problem(rq, ERR_NOT_FOUND, "no such operation");
    }
}

static int open_fix(void **state)
{
    struct fix *f = calloc(1, sizeof *f);
    if (f == NULL)
        return -1;
    clock_manual_init(&f->clock, INT64_C(1780000000000));
    f->clock.mono_ns = 1000;
    strcpy(f->dir, "/tmp/ron-oap-XXXXXX");
    if (mkdtemp(f->dir) == NULL || net_loop_create(&f->clock.clock, &f->loop) != ERR_OK)
        return -1;
    snprintf(f->uds, sizeof f->uds, "%s/oap.sock", f->dir);
    struct net_listen listen_on[] = {{.bind = "127.0.0.1:0"}, {.uds = f->uds}};
    struct net_oap_handler handlers[] = {{.app = APP, .fn = serve, .ctx = f}};
    struct net_oap_server_config cfg = {.loops = &f->loop,
                                        .loops_count = 1,
                                        .listen = listen_on,
                                        .listen_count = 2,
                                        .handlers = handlers,
                                        .handlers_count = 1};
    buf_init(&f->payload, 1 << 24);
    *state = f;
    return net_oap_server_create(&cfg, &f->server) == ERR_OK ? 0 : -1;
}

static int close_fix(void **state)
{
    struct fix *f = *state;
    net_oap_client_destroy(f->client);
    for (size_t i = 0; i < f->kept_n; i++)
        if (f->kept[i] != NULL)
            net_oap_reply(f->kept[i], 200, bytes_of(NULL, 0));
    for (int i = 0; i < 5; i++)
        net_loop_once(f->loop, 0);
    net_oap_server_destroy(f->server);
    net_loop_destroy(f->loop);
    buf_fini(&f->payload);
    unlink(f->uds);
    rmdir(f->dir);
    free(f);
    return 0;
}

static void turn(struct fix *f, int times)
{
    for (int i = 0; i < times; i++)
        net_loop_once(f->loop, 0);
}

/* ---- by hand ---- */

static int dial(struct fix *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(net_oap_server_port(f->server, 0))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    turn(f, 3);
    return fd;
}

static void put_all(struct fix *f, int fd, const void *p, size_t n)
{
    const uint8_t *b = p;
    while (n > 0) {
        ssize_t done = send(fd, b, n, MSG_NOSIGNAL);
        if (done > 0) {
            b += done;
            n -= (size_t)done;
        }
        turn(f, 1);
    }
}

static void request(struct fix *f, int fd, unsigned flags, uint16_t app, uint16_t code, uint64_t corr,
                    const char *cap, const char *payload)
{
    struct buf b;
    buf_init(&b, 1 << 21);
    struct net_oap_head h = {.flags = (uint16_t)flags, .app = app, .code = code, .corr = corr};
    net_oap_put(&b, &h, bytes_of(cap, strlen(cap)), bytes_of(payload, strlen(payload)));
    put_all(f, fd, b.p, b.n);
    buf_fini(&b);
}

enum { CALL = NET_OAP_REQ | NET_OAP_START | NET_OAP_END };

/* Reads until one whole frame is there, or nothing comes any more (false). */
static bool read_frame(struct fix *f, int fd, struct buf *rx, struct net_oap_frame *out)
{
    for (int idle = 0; idle < 500;) {
        size_t used;
        const char *why;
        if (net_oap_next(buf_bytes(rx), NET_OAP_FRAME_MAX, out, &used, &why) == ERR_OK)
            return true;
        uint8_t piece[65536];
        net_loop_once(f->loop, idle > 2 ? 1 : 0); /* the kernel may take a moment, too */
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n > 0)
            buf_put(rx, piece, (size_t)n);
        else
            idle++;
    }
    return false;
}

static bool peer_closed(struct fix *f, int fd)
{
    uint8_t byte;
    for (int i = 0; i < 20; i++) {
        turn(f, 1);
        ssize_t n = recv(fd, &byte, 1, 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return true;
    }
    return false;
}

static void expect_answer(struct fix *f, int fd, uint64_t corr, uint16_t status, const char *payload)
{
    struct buf rx;
    struct net_oap_frame frame;
    buf_init(&rx, 1 << 22);
    assert_true(read_frame(f, fd, &rx, &frame));
    assert_int_equal(frame.head.corr, corr);
    assert_int_equal(frame.head.code, status);
    assert_int_equal(frame.head.flags, NET_OAP_RESP | NET_OAP_END);
    if (payload != NULL)
        assert_true(str_eq_c(str_of_bytes(frame.payload), payload));
    assert_int_equal(rx.n, frame.head.len);
    buf_fini(&rx);
}

static void hello_tells_the_limits_without_a_capability(void **state)
{
    struct fix *f = *state;
    int fd = dial(f);
    request(f, fd, CALL, NET_OAP_HELLO, 0, 7, "", "{\"ua\":\"test\"}");
    expect_answer(f, fd, 7, 200, "{\"max_frame\":1048576,\"max_inflight\":64,\"versions\":[1]}");
    close(fd);
}

static void a_capability_stays_in_force_until_it_is_replaced(void **state)
{
    struct fix *f = *state;
    int fd = dial(f);
    request(f, fd, CALL, APP, OP_CAP, 1, "", "");
    expect_answer(f, fd, 1, 401, NULL); /* the first must carry one */
    request(f, fd, CALL, APP, OP_CAP, 2, "tok", "");
    expect_answer(f, fd, 2, 200, "tok");
    request(f, fd, CALL, APP, OP_CAP, 3, "", "");
    expect_answer(f, fd, 3, 200, "tok");
    request(f, fd, CALL, APP, OP_CAP, 4, "other", "");
    expect_answer(f, fd, 4, 200, "other");
    int second = dial(f); /* another connection knows nothing of it */
    request(f, second, CALL, APP, OP_CAP, 1, "", "");
    expect_answer(f, second, 1, 401, NULL);
    close(fd);
    close(second);
}

static void frames_may_arrive_byte_by_byte(void **state)
{
    struct fix *f = *state;
    int fd = dial(f);
    struct buf b;
    buf_init(&b, 1000);
    struct net_oap_head h = {.flags = CALL, .app = APP, .code = OP_ECHO, .corr = 9};
    net_oap_put(&b, &h, bytes_of("tok", 3), bytes_of("hello", 5));
    for (size_t i = 0; i < b.n; i++)
        put_all(f, fd, b.p + i, 1);
    expect_answer(f, fd, 9, 200, "hello");
    buf_fini(&b);
    close(fd);
}

static void answers_match_their_requests_in_any_order(void **state)
{
    struct fix *f = *state;
    int fd = dial(f);
    request(f, fd, CALL, APP, OP_KEEP, 1, "tok", "");
    request(f, fd, CALL, APP, OP_KEEP, 2, "", "");
    request(f, fd, CALL, APP, OP_ECHO, 3, "", "now");
    expect_answer(f, fd, 3, 200, "now");
    assert_int_equal(f->kept_n, 2);
    net_oap_reply(f->kept[1], 200, bytes_of("b", 1));
    expect_answer(f, fd, 2, 200, "b");
    net_oap_reply(f->kept[0], 201, bytes_of("a", 1));
    expect_answer(f, fd, 1, 201, "a");
    f->kept_n = 0;
    assert_int_equal(net_oap_server_inflight(f->server), 0);
    close(fd);
}

static void broken_framing_gets_one_error_frame_and_the_end(void **state)
{
    struct fix *f = *state;
    static const uint8_t bad[][NET_OAP_HEADER] = {
        {0, 0, 0, 37, 0, 1, 0, 25},                       /* too short */
        {0xff, 0xff, 0xff, 0xff, 0, 1, 0, 25},            /* too long */
        {0, 0, 0, 38, 0, 2, 0, 25},                       /* version */
        {0, 0, 0, 38, 0, 1, 1, 25},                       /* reserved flag */
        {0, 0, 0, 38, 0, 1, 0, 18, 0, 200},               /* a response from a client */
        {0, 0, 0, 38, 0, 1, 0, 17, 0, 1, 2, 1, [29] = 1}, /* a capability without START */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct buf rx;
        struct net_oap_frame frame;
        buf_init(&rx, 1 << 20);
        int fd = dial(f);
        put_all(f, fd, bad[i], sizeof bad[i]);
        put_all(f, fd, "more of it", 10);
        assert_true(read_frame(f, fd, &rx, &frame));
        assert_int_equal(frame.head.code, 400);
        struct net_oap_problem_view v;
        assert_int_equal(net_oap_problem_get(frame.payload, &v), ERR_OK);
        assert_true(str_eq(v.code, STR("bad_request")));
        assert_true(peer_closed(f, fd));
        buf_fini(&rx);
        close(fd);
    }
    turn(f, 3);
    assert_int_equal(net_oap_server_conns(f->server), 0);
}

static void a_corr_in_use_breaks_the_connection(void **state)
{
    struct fix *f = *state;
    int fd = dial(f);
    request(f, fd, CALL, APP, OP_KEEP, 1, "tok", "");
    request(f, fd, CALL, APP, OP_ECHO, 1, "", "");
    struct buf rx;
    struct net_oap_frame frame;
    buf_init(&rx, 1 << 20);
    assert_true(read_frame(f, fd, &rx, &frame));
    assert_int_equal(frame.head.code, 400);
    buf_fini(&rx);
    close(fd);
    turn(f, 3);
    assert_true(net_oap_req_gone(f->kept[0]));
}

static void the_sixty_fifth_request_is_busy(void **state)
{
    struct fix *f = *state;
    int fd = dial(f);
    for (uint64_t i = 1; i <= 64; i++)
        request(f, fd, CALL, APP, OP_KEEP, i, "tok", "");
    assert_int_equal(f->kept_n, 64);
    request(f, fd, CALL, APP, OP_KEEP, 65, "", "");
    expect_answer(f, fd, 65, 429, NULL);
    assert_int_equal(f->kept_n, 64);
    net_oap_reply(f->kept[0], 200, bytes_of(NULL, 0));
    f->kept[0] = NULL;
    expect_answer(f, fd, 1, 200, "");
    request(f, fd, CALL, APP, OP_ECHO, 66, "", "x");
    expect_answer(f, fd, 66, 200, "x");
    close(fd);
}

static void a_request_that_takes_too_long_is_answered_by_the_server_once(void **state)
{
    struct fix *f = *state;
    int fd = dial(f);
    request(f, fd, CALL, APP, OP_KEEP, 1, "tok", "");
    clock_manual_advance_ms(&f->clock, 4999);
    turn(f, 2);
    assert_false(net_oap_req_gone(f->kept[0]));
    clock_manual_advance_ms(&f->clock, 1);
    expect_answer(f, fd, 1, 503, NULL);
    assert_true(net_oap_req_gone(f->kept[0]));
    assert_int_equal(f->closed, 1);
    net_oap_reply(f->kept[0], 200, bytes_of("late", 4));
    f->kept_n = 0;
    request(f, fd, CALL, APP, OP_ECHO, 1, "", "next"); /* the corr is free again */
    expect_answer(f, fd, 1, 200, "next");
    close(fd);
}

static void a_client_that_leaves_is_told_to_the_handler(void **state)
{
    struct fix *f = *state;
    int fd = dial(f);
    request(f, fd, CALL, APP, OP_KEEP, 1, "tok", "");
    close(fd);
    turn(f, 3);
    assert_int_equal(f->closed, 1);
    assert_true(net_oap_req_gone(f->kept[0]));
    assert_int_equal(net_oap_server_conns(f->server), 0);
    assert_int_equal(net_oap_send(f->kept[0], NET_OAP_EVENT, 200, bytes_of("x", 1)), ERR_CLOSED);
}

static void slow_and_silent_connections_are_cut(void **state)
{
    struct fix *f = *state;
    int half = dial(f), silent = dial(f);
    put_all(f, half, "\0\0\0", 3);
    clock_manual_advance_ms(&f->clock, 5000);
    assert_true(peer_closed(f, half));
    assert_int_equal(net_oap_server_conns(f->server), 1);
    clock_manual_advance_ms(&f->clock, 55000);
    assert_true(peer_closed(f, silent));
    close(half);
    close(silent);
}

static void compressed_requests_are_inflated_and_bombs_refused(void **state)
{
    struct fix *f = *state;
    int fd = dial(f);
    uint8_t *zeros = calloc(1, 9 << 20);
    struct buf small, frame;
    assert_non_null(zeros);
    buf_init(&small, 1 << 24);
    buf_init(&frame, 1 << 24);
    struct net_oap_head h = {.flags = CALL | NET_OAP_COMP, .app = APP, .code = OP_ECHO, .corr = 1};
    assert_int_equal(net_oap_deflate(bytes_of("squeeze me", 10), &small), ERR_OK);
    net_oap_put(&frame, &h, bytes_of("tok", 3), buf_bytes(&small));
    put_all(f, fd, frame.p, frame.n);
    expect_answer(f, fd, 1, 200, "squeeze me");
    buf_reset(&small);
    buf_reset(&frame);
    h.corr = 2;
    assert_int_equal(net_oap_deflate(bytes_of(zeros, 9 << 20), &small), ERR_OK);
    net_oap_put(&frame, &h, bytes_of(NULL, 0), buf_bytes(&small));
    put_all(f, fd, frame.p, frame.n);
    expect_answer(f, fd, 2, 413, NULL);
    buf_reset(&frame);
    h.corr = 3;
    net_oap_put(&frame, &h, bytes_of(NULL, 0), bytes_of("not zstd", 8));
    put_all(f, fd, frame.p, frame.n);
    expect_answer(f, fd, 3, 400, NULL);
    free(zeros);
    buf_fini(&small);
    buf_fini(&frame);
    close(fd);
}

static void draining_refuses_new_requests_and_lets_old_ones_end(void **state)
{
    struct fix *f = *state;
    int fd = dial(f), idle = dial(f);
    request(f, fd, CALL, APP, OP_KEEP, 1, "tok", "");
    net_oap_server_stop_accepting(f->server);
    assert_true(peer_closed(f, idle));
    request(f, fd, CALL, APP, OP_ECHO, 2, "", "");
    expect_answer(f, fd, 2, 503, NULL);
    net_oap_reply(f->kept[0], 200, bytes_of("bye", 3));
    f->kept_n = 0;
    expect_answer(f, fd, 1, 200, "bye");
    assert_true(peer_closed(f, fd));
    assert_int_equal(net_oap_server_conns(f->server), 0);
    close(fd);
    close(idle);
}

static void a_stream_that_is_not_read_is_busy_and_told_when_there_is_room(void **state)
{
    struct fix *f = *state;
    static uint8_t piece[60000];
    int fd = dial(f);
    request(f, fd, NET_OAP_REQ | NET_OAP_START, APP, OP_STREAM, 5, "tok", "");
    size_t sent = 0;
    enum err e = ERR_OK;
    for (; sent < 10000; sent++) {
        e = net_oap_send(f->kept[0], NET_OAP_EVENT, 200, bytes_of(piece, sizeof piece));
        if (e == ERR_BUSY) { /* let the kernel take what it can before it counts */
            turn(f, 2);
            e = net_oap_send(f->kept[0], NET_OAP_EVENT, 200, bytes_of(piece, sizeof piece));
        }
        if (e != ERR_OK)
            break;
    }
    assert_int_equal(e, ERR_BUSY);
    f->room_calls = 0;
    size_t got = 0;
    struct buf rx;
    buf_init(&rx, 1 << 24);
    for (; got < sent; got++) {
        struct net_oap_frame frame;
        assert_true(read_frame(f, fd, &rx, &frame));
        assert_int_equal(frame.head.flags, NET_OAP_EVENT);
        buf_consume(&rx, frame.head.len);
    }
    assert_true(f->room_calls > 0);
    /* The client ends it: the handler hears it and says the last word. */
    request(f, fd, NET_OAP_REQ | NET_OAP_END, APP, OP_STREAM, 5, "", "");
    assert_int_equal(f->closed, 1);
    assert_false(net_oap_req_gone(f->kept[0]));
    net_oap_end(f->kept[0], NET_OAP_RESP, 200, bytes_of("end", 3));
    f->kept_n = 0;
    struct net_oap_frame frame;
    assert_true(read_frame(f, fd, &rx, &frame));
    assert_int_equal(frame.head.flags, NET_OAP_RESP | NET_OAP_END);
    /* A second end crosses ours: nothing happens. */
    request(f, fd, NET_OAP_REQ | NET_OAP_END, APP, OP_STREAM, 5, "", "");
    request(f, fd, CALL, APP, OP_ECHO, 6, "", "still here");
    buf_consume(&rx, frame.head.len);
    assert_true(read_frame(f, fd, &rx, &frame));
    assert_int_equal(frame.head.corr, 6);
    buf_fini(&rx);
    close(fd);
}

/* ---- with the client ---- */

static void heard(void *arg, enum err e, uint16_t status, struct bytes payload)
{
    struct fix *f = arg;
    f->answers++;
    f->e = e;
    f->status = status;
    buf_reset(&f->payload);
    buf_put_bytes(&f->payload, payload);
}

static void heard_frame(void *arg, enum err e, uint16_t code, struct bytes payload, bool end)
{
    struct fix *f = arg;
    heard(f, e, code, payload);
    f->ends += end;
}

static void open_client(struct fix *f, const char *token, size_t compress_from)
{
    static char to[64];
    snprintf(to, sizeof to, "127.0.0.1:%u", net_oap_server_port(f->server, 0));
    struct net_oap_client_config cfg = {.loop = f->loop,
                                        .connect = to,
                                        .token = str_from_c(token),
                                        .compress_from = compress_from,
                                        .queue_max = 100};
    assert_int_equal(net_oap_client_create(&cfg, &f->client), ERR_OK);
}

static enum err call(struct fix *f, uint16_t code, const char *payload, int64_t ms)
{
    struct net_oap_call c = {.app = APP,
                             .code = code,
                             .payload = bytes_of(payload, strlen(payload)),
                             .by = deadline_at_ns(f->clock.mono_ns + ms * 1000000)};
    return net_oap_call(f->client, &c, heard, f);
}

static void wait_answers(struct fix *f, int n)
{
    for (int i = 0; i < 200 && f->answers < n; i++)
        net_loop_once(f->loop, 1);
    assert_int_equal(f->answers, n);
}

static void a_call_is_answered_with_status_and_payload(void **state)
{
    struct fix *f = *state;
    open_client(f, "tok", 0);
    assert_int_equal(call(f, OP_ECHO, "ping", 1000), ERR_OK);
    wait_answers(f, 1);
    assert_int_equal(f->e, ERR_OK);
    assert_int_equal(f->status, 200);
    assert_true(str_eq(buf_str(&f->payload), STR("ping")));
    assert_int_equal(call(f, OP_FAIL, "", 1000), ERR_OK);
    wait_answers(f, 2);
    assert_int_equal(f->status, 403);
    struct net_oap_problem_view v;
    assert_int_equal(net_oap_problem_get(buf_bytes(&f->payload), &v), ERR_OK);
    assert_true(str_eq(v.detail, STR("not you")));
    assert_int_equal(v.corr_id.n, 36);
}

static void the_token_goes_with_the_first_call_and_with_a_new_one(void **state)
{
    struct fix *f = *state;
    open_client(f, "tok", 0);
    assert_int_equal(call(f, OP_CAP, "", 1000), ERR_OK);
    wait_answers(f, 1);
    assert_true(str_eq(buf_str(&f->payload), STR("tok")));
    net_oap_client_set_token(f->client, STR("fresh"));
    assert_int_equal(call(f, OP_CAP, "", 1000), ERR_OK);
    wait_answers(f, 2);
    assert_true(str_eq(buf_str(&f->payload), STR("fresh")));
}

static void answers_over_one_frame_are_put_together(void **state)
{
    struct fix *f = *state;
    open_client(f, "tok", 0);
    assert_int_equal(call(f, OP_BIG, "", 1000), ERR_OK);
    wait_answers(f, 1);
    assert_int_equal(f->e, ERR_OK);
    assert_int_equal(f->payload.n, 3 << 20);
    for (size_t i = 0; i < f->payload.n; i += 4099)
        assert_int_equal(f->payload.p[i], (uint8_t)(i * 7 >> 3));
}

static void compression_works_both_ways(void **state)
{
    struct fix *f = *state;
    static char text[100001];
    memset(text, 'z', sizeof text - 1);
    open_client(f, "tok", 100);
    assert_int_equal(call(f, OP_ECHO, text, 1000), ERR_OK);
    wait_answers(f, 1);
    assert_int_equal(f->status, 200);
    assert_int_equal(f->payload.n, sizeof text - 1);
}

static void a_call_that_is_not_answered_in_time_is_over_and_a_late_answer_is_nobodys(void **state)
{
    struct fix *f = *state;
    open_client(f, "tok", 0);
    assert_int_equal(call(f, OP_KEEP, "", 100), ERR_OK);
    turn(f, 5);
    clock_manual_advance_ms(&f->clock, 100);
    wait_answers(f, 1);
    assert_int_equal(f->e, ERR_TIMEOUT);
    net_oap_reply(f->kept[0], 200, bytes_of(NULL, 0));
    f->kept_n = 0;
    assert_int_equal(call(f, OP_ECHO, "x", 100), ERR_OK);
    wait_answers(f, 2);
    assert_int_equal(f->e, ERR_OK);
}

static void a_lost_connection_ends_its_calls_and_the_next_call_makes_a_new_one(void **state)
{
    struct fix *f = *state;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    char to[64];
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(listener, 5), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &n), 0);
    snprintf(to, sizeof to, "127.0.0.1:%u", ntohs(a.sin_port));
    struct net_oap_client_config cfg = {.loop = f->loop, .connect = to, .token = STR("tok")};
    assert_int_equal(net_oap_client_create(&cfg, &f->client), ERR_OK);
    for (int round = 1; round <= 2; round++) {
        assert_int_equal(call(f, OP_ECHO, "x", 60000), ERR_OK);
        turn(f, 3);
        clock_manual_advance_ms(&f->clock, 200); /* over any back-off */
        turn(f, 3);
        int peer = accept(listener, NULL, NULL);
        assert_true(peer >= 0);
        uint8_t bytes[256];
        assert_int_equal(recv(peer, bytes, sizeof bytes, 0),
                         NET_OAP_HEADER + 3 + 1); /* with its token, each time */
        close(peer);
        wait_answers(f, round);
        assert_int_equal(f->e, ERR_DISCONNECTED);
        assert_false(net_oap_client_connected(f->client));
    }
    close(listener);
}

static void calls_to_nobody_are_refused_and_later_ones_find_the_server(void **state)
{
    struct fix *f = *state;
    char to[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0); /* a port nobody listens on */
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(to, sizeof to, "127.0.0.1:%u", ntohs(a.sin_port));
    struct net_oap_client_config cfg = {.loop = f->loop, .connect = to};
    assert_int_equal(net_oap_client_create(&cfg, &f->client), ERR_OK);
    assert_int_equal(call(f, OP_ECHO, "x", 60000), ERR_OK);
    wait_answers(f, 1);
    assert_int_equal(f->e, ERR_REFUSED);
    assert_int_equal(call(f, OP_ECHO, "x", 60000), ERR_OK); /* waits for the back-off */
    turn(f, 3);
    assert_int_equal(f->answers, 1);
    clock_manual_advance_ms(&f->clock, 100);
    wait_answers(f, 2);
    assert_int_equal(f->e, ERR_REFUSED);
    close(fd);
}

static void a_call_that_never_left_says_so(void **state)
{
    struct fix *f = *state;
    char to[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0); /* a port nobody listens on */
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(to, sizeof to, "127.0.0.1:%u", ntohs(a.sin_port));
    struct net_oap_client_config cfg = {.loop = f->loop, .connect = to};
    assert_int_equal(net_oap_client_create(&cfg, &f->client), ERR_OK);
    assert_int_equal(call(f, OP_ECHO, "x", 60000), ERR_OK);
    wait_answers(f, 1);
    assert_int_equal(call(f, OP_ECHO, "x", 10), ERR_OK); /* its time ends before the back-off does */
    turn(f, 3);
    clock_manual_advance_ms(&f->clock, 11);
    wait_answers(f, 2);
    assert_int_equal(f->e, ERR_UNAVAILABLE);
    close(fd);
}

static void a_client_in_a_hurry_does_not_wait_for_the_next_attempt(void **state)
{
    struct fix *f = *state;
    char to[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(to, sizeof to, "127.0.0.1:%u", ntohs(a.sin_port));
    struct net_oap_client_config cfg = {.loop = f->loop, .connect = to, .fail_fast = true};
    assert_int_equal(net_oap_client_create(&cfg, &f->client), ERR_OK);
    for (int i = 1; i <= 3; i++) { /* time stands still: the back-off is never over */
        assert_int_equal(call(f, OP_ECHO, "x", 60000), ERR_OK);
        wait_answers(f, i);
        assert_int_equal(f->e, ERR_REFUSED);
    }
    close(fd);
}

static void more_calls_than_the_server_takes_wait_their_turn(void **state)
{
    struct fix *f = *state;
    open_client(f, "tok", 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(call(f, OP_KEEP, "", 100000), ERR_OK);
    assert_int_equal(call(f, OP_KEEP, "", 100000), ERR_BUSY);
    turn(f, 5);
    assert_int_equal(f->kept_n, 64);
    for (size_t i = 0; i < 64; i++)
        net_oap_reply(f->kept[i], 200, bytes_of(NULL, 0));
    memset(f->kept, 0, sizeof f->kept);
    wait_answers(f, 64);
    turn(f, 5);
    assert_int_equal(f->kept_n, 100);
    net_oap_client_stop(f->client);
    wait_answers(f, 100);
    assert_int_equal(f->e, ERR_CLOSED);
    assert_int_equal(call(f, OP_ECHO, "", 1000), ERR_CLOSED);
}

static void a_stream_delivers_each_frame_and_one_end(void **state)
{
    struct fix *f = *state;
    struct net_oap_stream *st;
    open_client(f, "tok", 0);
    struct net_oap_call c = {
        .app = APP, .code = OP_STREAM, .by = deadline_at_ns(f->clock.mono_ns + 1000000000)};
    assert_int_equal(net_oap_open(f->client, &c, heard_frame, f, &st), ERR_OK);
    turn(f, 5);
    assert_int_equal(f->kept_n, 1);
    assert_int_equal(net_oap_send(f->kept[0], NET_OAP_EVENT, 200, bytes_of("one", 3)), ERR_OK);
    assert_int_equal(net_oap_send(f->kept[0], NET_OAP_EVENT, 200, bytes_of("two", 3)), ERR_OK);
    wait_answers(f, 2);
    assert_true(str_eq(buf_str(&f->payload), STR("two")));
    assert_int_equal(f->ends, 0);
    clock_manual_advance_ms(&f->clock, 10000); /* the deadline was for the first frame */
    turn(f, 3);
    net_oap_end(f->kept[0], NET_OAP_EVENT, 200, bytes_of("last", 4));
    f->kept_n = 0;
    wait_answers(f, 3);
    assert_int_equal(f->ends, 1);
    net_oap_stream_close(st);
    turn(f, 3);
    assert_int_equal(f->answers, 3);
}

static void closing_a_stream_reaches_the_server(void **state)
{
    struct fix *f = *state;
    struct net_oap_stream *st;
    open_client(f, "tok", 0);
    struct net_oap_call c = {
        .app = APP, .code = OP_STREAM, .by = deadline_at_ns(f->clock.mono_ns + 1000000000)};
    assert_int_equal(net_oap_open(f->client, &c, heard_frame, f, &st), ERR_OK);
    turn(f, 5);
    net_oap_stream_close(st);
    wait_answers(f, 1);
    assert_int_equal(f->e, ERR_CANCELED);
    assert_int_equal(f->ends, 1);
    turn(f, 5);
    assert_int_equal(f->closed, 1);
}

/* ---- threads ---- */

struct worker {
    struct net_oap_client *client;
    struct net_loop *loop;
    atomic_int done;
    int ok;
};

static void *turn_loop(void *arg)
{
    struct worker *w = arg;
    while (atomic_load(&w->done) == 0)
        net_loop_once(w->loop, 5);
    return NULL;
}

struct echo {
    struct rt_oneshot done;
    char text[32];
};

/* The answer, once; NULL for one that is not the echo. */
static void echoed(void *arg, enum err e, uint16_t status, struct bytes payload)
{
    struct echo *x = arg;
    bool same =
        e == ERR_OK && status == 200 && str_eq_c((struct str){(const char *)payload.p, payload.n}, x->text);
    CHECK(rt_oneshot_send(&x->done, same ? x : NULL) == ERR_OK);
}

static void *call_many(void *arg) RT_BLOCKS;

static void *call_many(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < 200; i++) {
        struct echo x;
        void *answer = NULL;
        rt_oneshot_init(&x.done);
        int n = snprintf(x.text, sizeof x.text, "%p %d", arg, i);
        struct net_oap_call c = {.app = APP,
                                 .code = OP_ECHO,
                                 .payload = bytes_of(x.text, (size_t)n),
                                 .by = deadline_in_ms(20000)};
        CHECK(net_oap_call(w->client, &c, echoed, &x) == ERR_OK);
        CHECK(rt_oneshot_recv(&x.done, deadline_never(), &answer) ==
              ERR_OK); /* at the latest when `by` has come */
        w->ok += answer == &x;
        rt_oneshot_fini(&x.done);
    }
    return NULL;
}

static void many_threads_share_one_connection(void **state)
{
    struct fix *f = *state;
    /* Real time here: the waiting threads' deadlines are real. */
    net_oap_server_destroy(f->server);
    net_loop_destroy(f->loop);
    assert_int_equal(net_loop_create(NULL, &f->loop), ERR_OK);
    struct net_listen listen_on[] = {{.uds = f->uds}};
    struct net_oap_handler handlers[] = {{.app = APP, .fn = serve, .ctx = f, .without_cap = true}};
    struct net_oap_server_config cfg = {.loops = &f->loop,
                                        .loops_count = 1,
                                        .listen = listen_on,
                                        .listen_count = 1,
                                        .handlers = handlers,
                                        .handlers_count = 1};
    assert_int_equal(net_oap_server_create(&cfg, &f->server), ERR_OK);
    struct net_oap_client_config client = {.loop = f->loop, .uds = f->uds};
    assert_int_equal(net_oap_client_create(&client, &f->client), ERR_OK);
    pthread_t threads[5];
    struct worker loop = {.loop = f->loop}, workers[4];
    assert_int_equal(pthread_create(&threads[4], NULL, turn_loop, &loop), 0);
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){.client = f->client};
        assert_int_equal(pthread_create(&threads[i], NULL, call_many, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_store(&loop.done, 1);
    assert_int_equal(pthread_join(threads[4], NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(workers[i].ok, 200);
}

/* A loop whose task was told to stop does not look into its inbox again. */
static void a_stop_that_the_loop_never_saw_ends_with_the_server(void **state)
{
    struct fix *f = *state;
    net_oap_server_stop_accepting(f->server);
    net_oap_server_destroy(f->server);
    f->server = NULL;
    turn(f, 2); /* finds nothing of it */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fix, close_fix)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hello_tells_the_limits_without_a_capability),
        TEST(a_capability_stays_in_force_until_it_is_replaced),
        TEST(frames_may_arrive_byte_by_byte),
        TEST(answers_match_their_requests_in_any_order),
        TEST(broken_framing_gets_one_error_frame_and_the_end),
        TEST(a_corr_in_use_breaks_the_connection),
        TEST(the_sixty_fifth_request_is_busy),
        TEST(a_request_that_takes_too_long_is_answered_by_the_server_once),
        TEST(a_client_that_leaves_is_told_to_the_handler),
        TEST(slow_and_silent_connections_are_cut),
        TEST(compressed_requests_are_inflated_and_bombs_refused),
        TEST(draining_refuses_new_requests_and_lets_old_ones_end),
        TEST(a_stream_that_is_not_read_is_busy_and_told_when_there_is_room),
        TEST(a_call_is_answered_with_status_and_payload),
        TEST(the_token_goes_with_the_first_call_and_with_a_new_one),
        TEST(answers_over_one_frame_are_put_together),
        TEST(compression_works_both_ways),
        TEST(a_call_that_is_not_answered_in_time_is_over_and_a_late_answer_is_nobodys),
        TEST(a_lost_connection_ends_its_calls_and_the_next_call_makes_a_new_one),
        TEST(calls_to_nobody_are_refused_and_later_ones_find_the_server),
        TEST(a_call_that_never_left_says_so),
        TEST(a_client_in_a_hurry_does_not_wait_for_the_next_attempt),
        TEST(more_calls_than_the_server_takes_wait_their_turn),
        TEST(a_stream_delivers_each_frame_and_one_end),
        TEST(closing_a_stream_reaches_the_server),
        TEST(many_threads_share_one_connection),
        TEST(a_stop_that_the_loop_never_saw_ends_with_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
