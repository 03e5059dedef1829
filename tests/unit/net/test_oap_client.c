/* The client against the server, and against nobody. */
#include "oap_rig.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/check.h"
#include "rt/oneshot.h"

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

/* A client of a port that nobody listens on; the descriptor keeps it so. */
static int open_client_of_nobody(struct fix *f)
{
    char to[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(to, sizeof to, "127.0.0.1:%u", ntohs(a.sin_port));
    struct net_oap_client_config cfg = {.loop = f->loop, .connect = to};
    assert_int_equal(net_oap_client_create(&cfg, &f->client), ERR_OK);
    return fd;
}

static void calls_to_nobody_are_refused_and_later_ones_find_the_server(void **state)
{
    struct fix *f = *state;
    int fd = open_client_of_nobody(f);
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
    int fd = open_client_of_nobody(f);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
