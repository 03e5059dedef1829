/* The server against hand-made bytes. */
#include "oap_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

/* Connected, and nobody has accepted it yet. */
static int knock(struct fix *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(net_oap_server_port(f->server, 0))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static int dial(struct fix *f)
{
    int fd = knock(f);
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
    request(f, second, CALL, NET_OAP_HELLO, 0, 2, "early", "{}"); /* it may come with the first words */
    expect_answer(f, second, 2, 200, NULL);
    request(f, second, CALL, APP, OP_CAP, 3, "", "");
    expect_answer(f, second, 3, 200, "early");
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

/* On old connections and on such that nobody had accepted yet; one of them has said half of it. */
static void draining_answers_whoever_asked_before_it_is_seen(void **state)
{
    enum { OLD = 2, NEW = 40, HALF = OLD - 1 };
    struct fix *f = *state;
    struct buf b;
    int fd[OLD + NEW];
    buf_init(&b, 1 << 10);
    struct net_oap_head h = {.flags = CALL, .app = APP, .code = OP_ECHO, .corr = 1};
    net_oap_put(&b, &h, bytes_of(NULL, 0), bytes_of("hello", 5));
    for (size_t i = 0; i < OLD + NEW; i++)
        fd[i] = i < OLD ? dial(f) : knock(f);
    net_oap_server_stop_accepting(f->server);
    for (size_t i = 0; i < OLD + NEW; i++)
        assert_true(send(fd[i], b.p, i == HALF ? b.n / 2 : b.n, MSG_NOSIGNAL) > 0);
    turn(f, 1);
    put_all(f, fd[HALF], b.p + b.n / 2, b.n - b.n / 2);
    for (size_t i = 0; i < OLD + NEW; i++) {
        expect_answer(f, fd[i], 1, 503, NULL);
        assert_true(peer_closed(f, fd[i]));
        close(fd[i]);
    }
    assert_int_equal(net_oap_server_conns(f->server), 0);
    buf_fini(&b);
}

static void ask_again(struct fix *f)
{
    struct buf b;
    struct net_oap_head h = {.flags = CALL, .app = APP, .code = OP_ECHO, .corr = (uint64_t)++f->asked};
    buf_init(&b, 1 << 10);
    net_oap_put(&b, &h, bytes_of(NULL, 0), bytes_of("hello", 5));
    if (f->asked < 1000)
        assert_true(send(f->asker, b.p, b.n, MSG_NOSIGNAL) > 0);
    buf_fini(&b);
}

/* Whoever has the next request ready before the answer to the last has left could keep a server from ending. */
static void draining_ends_although_somebody_goes_on_asking(void **state)
{
    struct fix *f = *state;
    f->asker = dial(f);
    f->refused = ask_again;
    net_oap_server_stop_accepting(f->server);
    ask_again(f);
    turn(f, 5);
    assert_in_range(f->asked, 2, 10);
    assert_int_equal(net_oap_server_conns(f->server), 0);
    close(f->asker);
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

/* A loop whose task was told to stop does not look into its inbox again. */
static void a_stop_that_the_loop_never_saw_ends_with_the_server(void **state)
{
    struct fix *f = *state;
    net_oap_server_stop_accepting(f->server);
    net_oap_server_destroy(f->server);
    f->server = NULL;
    turn(f, 2); /* finds nothing of it */
}

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
        TEST(draining_answers_whoever_asked_before_it_is_seen),
        TEST(draining_ends_although_somebody_goes_on_asking),
        TEST(a_stream_that_is_not_read_is_busy_and_told_when_there_is_room),
        TEST(a_stop_that_the_loop_never_saw_ends_with_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
