/* The client against a small server of the test's own that can also misbehave. The test turns the loop
 * itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "net/http_client.h"
#include "rt/supervisor.h"

/* ---- the server: one connection at a time per thread, answers by path ---- */

enum { SERVER_THREADS = 3 };

struct server {
    int fd, stop[2];
    uint16_t port;
    pthread_t threads[SERVER_THREADS];
    atomic_int conns, requests, flaky;
};

static void say(int fd, const char *text)
{
    size_t n = strlen(text);
    while (n > 0) {
        ssize_t done = send(fd, text, n, MSG_NOSIGNAL);
        if (done <= 0)
            return;
        text += done;
        n -= (size_t)done;
    }
}

static void say_body(int fd, const char *head, const char *body)
{
    char text[2048];
    snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", head, strlen(body), body);
    say(fd, text);
}

static void say_big(int fd, bool tell)
{
    char kib[1025];
    memset(kib, 'x', 1024);
    kib[1024] = 0;
    say(fd, tell ? "HTTP/1.1 200 OK\r\nContent-Length: 2097152\r\n\r\n"
                 : "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    for (int i = 0; i < 2048; i++)
        say(fd, kib);
}

/* False: the connection is over. */
static bool answer(struct server *s, int fd, const char *request, const char *body)
{
    char method[16], path[128], text[1024];
    if (sscanf(request, "%15s %127s", method, path) != 2)
        return false;
    atomic_fetch_add(&s->requests, 1);
    if (strcmp(path, "/ok") == 0) {
        say_body(fd, "200 OK\r\nX-Thing: a: b \r\nETag: \"1\"", "fine");
    } else if (strcmp(path, "/echo") == 0) {
        const char *x = strstr(request, "X-Given:");
        snprintf(text, sizeof text, "%s|%s|%.12s", method, body, x != NULL ? x : "");
        say_body(fd, "200 OK", text);
    } else if (strcmp(path, "/flaky") == 0) {
        say_body(fd, atomic_fetch_add(&s->flaky, 1) < 2 ? "503 Busy\r\nRetry-After: 0" : "200 OK", "flaky");
    } else if (strcmp(path, "/later") == 0) {
        say_body(fd, "503 Busy\r\nRetry-After: 60", "later");
    } else if (strcmp(path, "/break") == 0) {
        return false;
    } else if (strcmp(path, "/half") == 0) {
        say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        return false;
    } else if (strcmp(path, "/big") == 0) {
        say_big(fd, true);
    } else if (strcmp(path, "/endless") == 0) {
        say_big(fd, false);
        return false;
    } else if (strcmp(path, "/redirect") == 0) {
        say_body(fd, "302 Found\r\nLocation: /ok", "elsewhere");
    } else if (strcmp(path, "/ring") == 0) {
        say_body(fd, "302 Found\r\nLocation: /ring", "elsewhere");
    } else if (strcmp(path, "/leave") == 0) {
        say_body(fd, "302 Found\r\nLocation: ftp://127.0.0.1/x", "elsewhere");
    } else if (strcmp(path, "/chunks") == 0) {
        say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
        say(fd, "3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n");
    } else if (strcmp(path, "/silent") == 0) {
        struct pollfd p[] = {{.fd = s->stop[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};
        (void)poll(p, 2, -1); /* until the client gives up */
        return false;
    } else if (strcmp(path, "/stalls") == 0) { /* whole the third time only */
        bool whole = atomic_fetch_add(&s->flaky, 1) >= 2;
        say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        say(fd, whole ? "half" : "");
        struct pollfd p[] = {{.fd = s->stop[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};
        (void)poll(p, 2, whole ? 0 : -1);
        return whole;
    } else {
        say_body(fd, "404 Not Found", "");
    }
    return true;
}

static void serve_one(struct server *s, int fd)
{
    char request[8192];
    for (;;) {
        size_t n = 0;
        char *end = NULL;
        while (end == NULL && n < sizeof request - 1) {
            struct pollfd p[] = {{.fd = s->stop[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};
            (void)poll(p, 2, -1);
            ssize_t got = p[0].revents ? 0 : recv(fd, request + n, sizeof request - 1 - n, 0);
            if (got <= 0)
                return;
            n += (size_t)got;
            request[n] = 0;
            end = strstr(request, "\r\n\r\n");
        }
        const char *length = strstr(request, "Content-Length: ");
        size_t want = length != NULL ? strtoul(length + 16, NULL, 10) : 0,
               have = (size_t)(request + n - (end + 4));
        while (have < want) {
            ssize_t got = recv(fd, request + n, sizeof request - 1 - n, 0);
            if (got <= 0)
                return;
            n += (size_t)got;
            have += (size_t)got;
            request[n] = 0;
        }
        if (!answer(s, fd, request, end + 4))
            return;
    }
}

static void *serve(void *arg)
{
    struct server *s = arg;
    for (;;) {
        struct pollfd p[] = {{.fd = s->stop[0], .events = POLLIN}, {.fd = s->fd, .events = POLLIN}};
        (void)poll(p, 2, -1);
        if (p[0].revents)
            return NULL;
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        atomic_fetch_add(&s->conns, 1);
        serve_one(s, fd);
        close(fd);
    }
}

static void server_start(struct server *s, int fd)
{
    s->fd = fd;
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(pipe(s->stop), 0);
    for (int i = 0; i < SERVER_THREADS; i++)
        assert_int_equal(pthread_create(&s->threads[i], NULL, serve, s), 0);
}

static void server_stop(struct server *s)
{
    close(s->stop[1]);
    for (int i = 0; i < SERVER_THREADS; i++)
        pthread_join(s->threads[i], NULL);
    close(s->stop[0]);
    close(s->fd);
}

/* ---- the fixture ---- */

struct fix {
    struct server server;
    struct net_loop *loop;
    struct net_http_client *client;
    char base[64], url[128], dir[64];
    int done, heads, pieces;
    enum err e;
    int status;
    unsigned tries;
    char body[256], thing[32];
    bool refuse_body;
    int gate_asked, gate_good, gate_bad;
    bool gate_shut;
};

static int open_fix(void **state)
{
    struct fix *f = calloc(1, sizeof *f);
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (f == NULL || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) != 0)
        return -1;
    f->server.port = ntohs(a.sin_port);
    server_start(&f->server, fd);
    snprintf(f->base, sizeof f->base, "http://127.0.0.1:%u", f->server.port);
    *state = f;
    if (net_loop_create(NULL, &f->loop) != ERR_OK)
        return -1;
    struct net_http_client_config cfg = {.loop = f->loop, .max_requests = 8};
    return net_http_client_create(&cfg, &f->client) == ERR_OK ? 0 : -1;
}

static int close_fix(void **state)
{
    struct fix *f = *state;
    net_http_client_destroy(f->client);
    net_loop_destroy(f->loop);
    server_stop(&f->server);
    free(f);
    return 0;
}

static void on_done(void *arg, enum err e, const struct net_http_response *r)
{
    struct fix *f = arg;
    f->done++;
    f->e = e;
    f->status = r != NULL ? r->status : 0;
    f->tries = r != NULL ? r->tries : 0;
    f->body[0] = 0;
    if (r != NULL)
        snprintf(f->body, sizeof f->body, "%.*s", (int)(r->body.n < 255 ? r->body.n : 255),
                 (const char *)r->body.p);
    struct str thing = r != NULL ? net_http_header(r, "x-thing") : STR("");
    snprintf(f->thing, sizeof f->thing, "%.*s", STR_ARG(thing));
}

static struct net_http_request request_to(struct fix *f, const char *path)
{
    snprintf(f->url, sizeof f->url, "%s%s", f->base, path);
    return (struct net_http_request){.url = f->url, .by = deadline_in_ms(10000)};
}

static void finish(struct fix *f, int n)
{
    while (f->done < n)
        net_loop_once(f->loop, 100);
}

static void run(struct fix *f, const struct net_http_request *rq)
{
    f->done = 0;
    assert_int_equal(net_http_send(f->client, rq, on_done, f, NULL), ERR_OK);
    finish(f, 1);
}

static void a_get_brings_status_headers_and_body(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/ok");
    run(f, &rq);
    assert_int_equal(f->e, ERR_OK);
    assert_int_equal(f->status, 200);
    assert_string_equal(f->body, "fine");
    assert_string_equal(f->thing, "a: b");
    rq = request_to(f, "/nothing");
    run(f, &rq);
    assert_int_equal(f->e, ERR_OK); /* a response is a response */
    assert_int_equal(f->status, 404);
}

static void methods_headers_and_bodies_arrive(void **state)
{
    struct fix *f = *state;
    static const struct {
        const char *method, *body, *want;
    } rows[] = {
        {NULL, "", "GET||X-Given: yes"},          {NULL, "data", "POST|data|X-Given: yes"},
        {"PUT", "data", "PUT|data|X-Given: yes"}, {"DELETE", "", "DELETE||X-Given: yes"},
        {"POST", "", "POST||X-Given: yes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct net_http_request rq = request_to(f, "/echo");
        rq.method = rows[i].method;
        rq.body = bytes_of(rows[i].body, strlen(rows[i].body));
        rq.headers = (const char *const[]){"X-Given: yes", NULL};
        run(f, &rq);
        assert_string_equal(f->body, rows[i].want);
    }
}

static void header_lines_cannot_be_smuggled_in(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/ok");
    rq.headers = (const char *const[]){"X-A: b\r\nX-Evil: yes", NULL};
    assert_int_equal(net_http_send(f->client, &rq, on_done, f, NULL), ERR_SYNTAX);
}

static void one_connection_serves_many_requests(void **state)
{
    struct fix *f = *state;
    for (int i = 0; i < 20; i++) {
        struct net_http_request rq = request_to(f, "/ok");
        run(f, &rq);
        assert_int_equal(f->status, 200);
    }
    assert_int_equal(atomic_load(&f->server.requests), 20);
    assert_int_equal(atomic_load(&f->server.conns), 1);
}

static void a_deadline_ends_a_request_that_is_not_answered(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/silent");
    rq.by = deadline_in_ms(50);
    run(f, &rq);
    assert_int_equal(f->e, ERR_TIMEOUT);
    rq.by = deadline_in_ms(-1);
    run(f, &rq);
    assert_int_equal(f->e, ERR_TIMEOUT);
}

/* A listener whose queue is full answers no SYN: whoever calls it is connecting until its time is up. */
static void calls_that_end_while_they_connect_leave_nothing_in_the_loop(void **state)
{
    enum { FILL = 4, CALLS = 8 };
    struct fix *f = *state;
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fill[FILL];
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    assert_int_equal(listen(fd, 0), 0);
    for (int i = 0; i < FILL; i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(fill[i], (struct sockaddr *)&a, sizeof a);
    }
    for (int round = 0; round < 2; round++) {
        f->done = 0;
        for (int i = 0; i < CALLS; i++) {
            struct net_http_request rq = {.url = f->url, .by = deadline_in_ms(30)};
            snprintf(f->url, sizeof f->url, "http://127.0.0.1:%u/", ntohs(a.sin_port));
            assert_int_equal(net_http_send(f->client, &rq, on_done, f, NULL), ERR_OK);
        }
        finish(f, CALLS);
        assert_int_equal(f->e, ERR_TIMEOUT);
    }
    struct net_http_request rq = request_to(f, "/ok"); /* on numbers that were theirs */
    run(f, &rq);
    assert_int_equal(f->status, 200);
    for (int i = 0; i < FILL; i++)
        close(fill[i]);
    close(fd);
}

static void an_answer_that_stalls_is_given_up_long_before_the_deadline(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/silent");
    rq.by = deadline_in_ms(3600000);
    rq.stall_ms = 50;
    run(f, &rq);
    assert_int_equal(f->e, ERR_TIMEOUT);
    rq = request_to(f, "/stalls");
    rq.by = deadline_in_ms(3600000);
    rq.stall_ms = 50;
    rq.retry =
        (struct net_http_retry){.tries = 1000, .backoff_min_ms = 1, .backoff_max_ms = 2, .on_sent = true};
    run(f, &rq);
    assert_int_equal(f->e, ERR_OK);
    assert_string_equal(f->body, "halfhalf"); /* nothing of the tries before is left in it */
    assert_true(f->tries >= 3);
}

static void answers_over_their_bound_are_refused(void **state)
{
    struct fix *f = *state;
    static const char *const paths[] = {"/big", "/endless"}; /* told beforehand, and not */
    for (int i = 0; i < 2; i++) {
        struct net_http_request rq = request_to(f, paths[i]);
        run(f, &rq);
        assert_int_equal(f->e, ERR_TOO_LARGE);
        rq = request_to(f, paths[i]);
        rq.response_max = 2 << 20;
        run(f, &rq);
        assert_int_equal(f->e, ERR_OK);
    }
}

static void broken_connections_are_told_apart_from_refused_ones(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/break");
    run(f, &rq);
    assert_int_equal(f->e, ERR_DISCONNECTED);
    rq = request_to(f, "/half");
    run(f, &rq);
    assert_int_equal(f->e, ERR_DISCONNECTED);
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound, nobody listens */
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(f->url, sizeof f->url, "http://127.0.0.1:%u/", ntohs(a.sin_port));
    run(f, &rq);
    assert_int_equal(f->e, ERR_REFUSED);
    close(fd);
}

static void a_failing_answer_is_tried_again_as_often_as_allowed(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/flaky");
    rq.retry =
        (struct net_http_retry){.tries = 3, .backoff_min_ms = 1, .backoff_max_ms = 2, .on_later = true};
    run(f, &rq);
    assert_int_equal(f->status, 200);
    assert_int_equal(f->tries, 3);
    atomic_store(&f->server.flaky, 0);
    rq.retry.tries = 2;
    run(f, &rq);
    assert_int_equal(f->status, 503); /* the last answer is handed out */
    atomic_store(&f->server.flaky, 0);
    rq.retry = (struct net_http_retry){.tries = 3};
    run(f, &rq);
    assert_int_equal(f->status, 503); /* not asked for */
    assert_int_equal(f->tries, 1);
}

static void a_server_that_asks_for_more_time_than_there_is_is_not_tried_again(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/later");
    rq.retry = (struct net_http_retry){.tries = 5, .backoff_min_ms = 1, .on_later = true};
    run(f, &rq);
    assert_int_equal(f->status, 503);
    assert_int_equal(f->tries, 1);
}

static void what_may_have_taken_effect_is_only_repeated_when_told(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/break");
    rq.retry = (struct net_http_retry){.tries = 3, .backoff_min_ms = 1};
    run(f, &rq);
    assert_int_equal(f->e, ERR_DISCONNECTED);
    assert_int_equal(atomic_load(&f->server.requests), 1);
    rq.retry.on_sent = true;
    run(f, &rq);
    assert_int_equal(atomic_load(&f->server.requests), 4);
}

static void redirects_are_followed_only_when_asked_for(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/redirect");
    run(f, &rq);
    assert_int_equal(f->status, 302);
    rq.redirects = 1;
    run(f, &rq);
    assert_int_equal(f->status, 200);
    assert_string_equal(f->body, "fine");
    assert_string_equal(f->thing, "a: b"); /* headers of the last response */
    rq = request_to(f, "/ring");
    rq.redirects = 3;
    run(f, &rq);
    assert_int_equal(f->e, ERR_UNPROCESSABLE);
    rq = request_to(f, "/leave");
    rq.redirects = 3;
    run(f, &rq);
    assert_int_equal(f->e, ERR_FORBIDDEN);
}

static void only_http_and_https_are_spoken_and_http_only_to_loopback(void **state)
{
    struct fix *f = *state;
    static const struct {
        const char *url;
        enum err want;
    } rows[] = {
        {"ftp://127.0.0.1/", ERR_SYNTAX},
        {"file:///etc/passwd", ERR_SYNTAX},
        {"nonsense", ERR_SYNTAX},
        {"http://", ERR_SYNTAX},
        {"http://192.0.2.1/", ERR_FORBIDDEN},
        {"http://example.com/", ERR_FORBIDDEN},
        {"http://127.example.com/", ERR_FORBIDDEN},
        {"http://localhost.example.com/", ERR_FORBIDDEN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct net_http_request rq = {.url = rows[i].url, .by = deadline_in_ms(1000)};
        if (net_http_send(f->client, &rq, on_done, f, NULL) != rows[i].want)
            fail_msg("%s", rows[i].url);
    }
}

static bool nowhere(void *ctx, const struct sockaddr *addr, socklen_t n)
{
    struct fix *f = ctx;
    (void)n;
    f->pieces++;
    return addr->sa_family != AF_INET;
}

static void addresses_are_vetted_before_a_socket_is_opened(void **state)
{
    struct fix *f = *state;
    net_http_client_destroy(f->client);
    struct net_http_client_config cfg = {.loop = f->loop, .may_connect = nowhere, .ctx = f};
    assert_int_equal(net_http_client_create(&cfg, &f->client), ERR_OK);
    struct net_http_request rq = request_to(f, "/ok");
    rq.retry = (struct net_http_retry){.tries = 3, .backoff_min_ms = 1};
    run(f, &rq);
    assert_int_equal(f->e, ERR_FORBIDDEN);
    assert_int_equal(f->pieces, 1);
    assert_int_equal(atomic_load(&f->server.conns), 0);
}

static bool note_head(void *arg, const struct net_http_response *head)
{
    struct fix *f = arg;
    f->heads++;
    assert_int_equal(f->pieces, 0); /* comes first */
    f->status = head->status;
    return true;
}

static bool note_piece(void *arg, struct bytes piece)
{
    struct fix *f = arg;
    f->pieces += (int)piece.n;
    return !f->refuse_body;
}

static void a_stream_is_handed_out_as_it_comes(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/chunks");
    rq.on_head = note_head;
    rq.on_body = note_piece;
    run(f, &rq);
    assert_int_equal(f->e, ERR_OK);
    assert_int_equal(f->heads, 1);
    assert_int_equal(f->pieces, 11);
    assert_string_equal(f->body, "");
    f->heads = f->pieces = 0;
    f->refuse_body = true;
    run(f, &rq);
    assert_int_equal(f->e, ERR_CANCELED);
}

static bool gate_allow(void *ctx)
{
    struct fix *f = ctx;
    f->gate_asked++;
    return !f->gate_shut;
}

static void gate_result(void *ctx, bool success)
{
    struct fix *f = ctx;
    f->gate_good += success;
    f->gate_bad += !success;
}

static void every_try_passes_the_gate_and_reports_back(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/flaky");
    rq.retry = (struct net_http_retry){.tries = 3, .backoff_min_ms = 1, .on_later = true};
    rq.gate = (struct net_http_gate){gate_allow, gate_result, f};
    run(f, &rq);
    assert_int_equal(f->gate_asked, 3);
    assert_int_equal(f->gate_good, 1);
    assert_int_equal(f->gate_bad, 2);
    f->gate_shut = true;
    run(f, &rq);
    assert_int_equal(f->e, ERR_UNAVAILABLE);
    assert_int_equal(f->gate_good + f->gate_bad, 3);
}

static void more_requests_than_allowed_are_busy(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/silent");
    rq.by = deadline_in_ms(100);
    for (int i = 0; i < 8; i++)
        assert_int_equal(net_http_send(f->client, &rq, on_done, f, NULL), ERR_OK);
    assert_int_equal(net_http_send(f->client, &rq, on_done, f, NULL), ERR_BUSY);
    finish(f, 8);
    assert_int_equal(net_http_send(f->client, &rq, on_done, f, NULL), ERR_OK);
    finish(f, 9);
}

static void a_request_can_be_cancelled_and_everything_stopped(void **state)
{
    struct fix *f = *state;
    struct net_http_call *call;
    struct net_http_request rq = request_to(f, "/silent");
    assert_int_equal(net_http_send(f->client, &rq, on_done, f, &call), ERR_OK);
    net_loop_once(f->loop, 0);
    net_http_call_close(call);
    finish(f, 1);
    assert_int_equal(f->e, ERR_CANCELED);
    assert_int_equal(net_http_send(f->client, &rq, on_done, f, &call), ERR_OK);
    net_http_call_close(call); /* before the loop has even seen it */
    finish(f, 2);
    assert_int_equal(f->e, ERR_CANCELED);
    assert_int_equal(net_http_send(f->client, &rq, on_done, f, NULL), ERR_OK);
    net_loop_once(f->loop, 0);
    net_http_client_stop(f->client);
    finish(f, 3);
    assert_int_equal(f->e, ERR_CLOSED);
    assert_int_equal(net_http_send(f->client, &rq, on_done, f, NULL), ERR_CLOSED);
}

static void unix_sockets_are_spoken_to(void **state)
{
    struct fix *f = *state;
    struct server s = {0};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(f->dir, "/tmp/ron-http-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(a.sun_path, sizeof a.sun_path, "%s/sock", f->dir);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    server_start(&s, fd);
    struct net_http_request rq = {.url = "http://wallet/ok", .uds = a.sun_path, .by = deadline_in_ms(5000)};
    run(f, &rq);
    assert_int_equal(f->status, 200);
    net_http_client_destroy(f->client); /* closes its connection */
    f->client = NULL;
    server_stop(&s);
    unlink(a.sun_path);
    rmdir(f->dir);
}

static void the_command_line_needs_no_loop_of_its_own(void **state) RT_BLOCKS;

static void the_command_line_needs_no_loop_of_its_own(void **state)
{
    struct fix *f = *state;
    struct net_http_request rq = request_to(f, "/chunks");
    assert_int_equal(net_http_once(&rq, NULL, on_done, f), ERR_OK);
    assert_string_equal(f->body, "onetwothree");
    rq.on_head = note_head;
    rq.on_body = note_piece;
    assert_int_equal(net_http_once(&rq, NULL, on_done, f), ERR_OK);
    assert_int_equal(f->pieces, 11);
}

struct sent_there {
    struct fix *f;
    pthread_t loops_thread;
    unsigned done;
    enum err e, late;
    int status;
};

static enum err ask_the_silent(struct rt_task *self, void *arg) RT_BLOCKS;

static enum err ask_the_silent(struct rt_task *self, void *arg)
{
    struct fix *f = arg;
    struct net_http_request rq = request_to(f, "/silent");
    rq.by = deadline_in_ms(3600000);
    (void)self;
    enum err e = net_http_once(&rq, NULL, on_done, f);
    return e == ERR_OK ? f->e : e;
}

static void a_cancelled_task_waits_for_no_answer(void **state) RT_BLOCKS;

static void a_cancelled_task_waits_for_no_answer(void **state)
{
    struct fix *f = *state;
    struct rt_drain_report report;
    struct rt_supervisor *sup = rt_supervisor_create(
        &(struct rt_supervisor_spec){.name = "asking", .drain_deadline_ms = 1, .abort_grace_ms = 60000});
    assert_non_null(sup);
    assert_int_equal(
        rt_supervisor_add(sup, &(struct rt_task_spec){.name = "asks", .run = ask_the_silent, .arg = f}),
        ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
    while (atomic_load(&f->server.requests) == 0)
        net_loop_once(f->loop, 5); /* it has asked */
    rt_supervisor_drain(sup);
    assert_int_equal(rt_supervisor_join(sup, deadline_in_ms(120000), &report), ERR_OK);
    assert_int_equal(report.aborted, 1);
    assert_int_equal(report.leaked, 0);
    assert_int_equal(f->e, ERR_CANCELED);
    rt_supervisor_destroy(sup);
}

static void answered_here(void *arg, enum err e, const struct net_http_response *r)
{
    struct sent_there *s = arg;
    assert_true(pthread_equal(pthread_self(), s->loops_thread));
    s->e = e;
    s->status = r != NULL ? r->status : 0;
    s->done++;
}

static void late_here(void *arg, enum err e, const struct net_http_response *r)
{
    struct sent_there *s = arg;
    assert_null(r);
    s->late = e;
    s->done++;
}

static void *send_there(void *arg)
{
    struct sent_there *s = arg;
    char url[128];
    snprintf(url, sizeof url, "%s/ok", s->f->base);
    struct net_http_request rq = {.url = url, .by = deadline_in_ms(20000)};
    CHECK(net_http_send(s->f->client, &rq, answered_here, s, NULL) == ERR_OK);
    snprintf(url, sizeof url, "%s/silent", s->f->base);
    rq.by = deadline_in_ms(50);
    CHECK(net_http_send(s->f->client, &rq, late_here, s, NULL) == ERR_OK);
    return NULL;
}

static void another_thread_can_send_and_the_loops_is_told(void **state)
{
    struct fix *f = *state;
    struct sent_there s = {.f = f, .loops_thread = pthread_self()};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, send_there, &s), 0);
    while (s.done < 2)
        net_loop_once(f->loop, 5);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_int_equal(s.e, ERR_OK);
    assert_int_equal(s.status, 200);
    assert_int_equal(s.late, ERR_TIMEOUT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fix, close_fix)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_get_brings_status_headers_and_body),
        TEST(methods_headers_and_bodies_arrive),
        TEST(header_lines_cannot_be_smuggled_in),
        TEST(one_connection_serves_many_requests),
        TEST(a_deadline_ends_a_request_that_is_not_answered),
        TEST(calls_that_end_while_they_connect_leave_nothing_in_the_loop),
        TEST(an_answer_that_stalls_is_given_up_long_before_the_deadline),
        TEST(answers_over_their_bound_are_refused),
        TEST(broken_connections_are_told_apart_from_refused_ones),
        TEST(a_failing_answer_is_tried_again_as_often_as_allowed),
        TEST(a_server_that_asks_for_more_time_than_there_is_is_not_tried_again),
        TEST(what_may_have_taken_effect_is_only_repeated_when_told),
        TEST(redirects_are_followed_only_when_asked_for),
        TEST(only_http_and_https_are_spoken_and_http_only_to_loopback),
        TEST(addresses_are_vetted_before_a_socket_is_opened),
        TEST(a_stream_is_handed_out_as_it_comes),
        TEST(every_try_passes_the_gate_and_reports_back),
        TEST(more_requests_than_allowed_are_busy),
        TEST(a_request_can_be_cancelled_and_everything_stopped),
        TEST(unix_sockets_are_spoken_to),
        TEST(the_command_line_needs_no_loop_of_its_own),
        TEST(a_cancelled_task_waits_for_no_answer),
        TEST(another_thread_can_send_and_the_loops_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
