/* The C client against a running service in this process: a whole life of a message, a refusal, an unclosed handle, and
 * redirects. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <netinet/in.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "services/mailbox/client/mbx.h"
#include "services/mailbox/mailbox.h"
#include "waiting.h"

struct running {
    struct svc_data *data;
    struct svc *s;
    struct buf token;
    char url[64];
};

static void start(struct running *r) RT_BLOCKS
{
    static const char *const flags[] = {
        "bind=127.0.0.1:0", "ready_shards=2", "uds=", "quotas=default send_rate=20",
        "write_timeout=250ms"}; /* how long a stream may be read half closed */
    const char *why;
    assert_int_equal(svc_data_open("unused", true, SVC_DATA_WHOLE, &r->data, &why),
                     ERR_OK); /* amnesia: no file anywhere */
    struct svc_options opt = {.data = r->data, .flags = flags, .flag_count = 5, .quiet = true};
    if (svc_open(&mailbox_svc, &opt, &r->s) != ERR_OK || svc_start(r->s) != ERR_OK)
        fail_msg("%s", svc_last_error());
    buf_init(&r->token, 8192);
    assert_int_equal(svc_data_operator_token(r->data, &r->token), ERR_OK);
    snprintf(r->url, sizeof r->url, "http://127.0.0.1:%d", svc_port(r->s));
}

static void stop(struct running *r) RT_BLOCKS
{
    assert_int_equal(svc_drain(r->s), 0);
    svc_close(r->s);
    svc_data_close(r->data);
    buf_fini(&r->token);
    assert_int_equal(access("unused", F_OK), -1);
}

/* A node that has no shard: sends everybody to `to`, whatever they ask for. */
struct signpost {
    int fd;
    uint16_t port;
    const char *to;
    atomic_uint asked;
    pthread_t thread;
};

static void *point(void *arg)
{
    struct signpost *p = arg;
    for (int c; (c = accept(p->fd, NULL, NULL)) >= 0; close(c)) {
        char in[8192], out[512], path[200] = "";
        ssize_t n, got = 0;
        const char *end = NULL;
        long length = 0;
        while (got < (ssize_t)sizeof in - 1 && (n = read(c, in + got, sizeof in - 1 - (size_t)got)) > 0) {
            got += n;
            in[got] = 0;
            end = strstr(in, "\r\n\r\n");
            const char *at = strcasestr(in, "content-length:");
            length = at ? strtol(at + 15, NULL, 10) : 0;
            if (end && got >= end + 4 - in + length)
                break;
        }
        if (end == NULL || sscanf(in, "POST %199s ", path) != 1)
            continue;
        atomic_fetch_add(&p->asked, 1);
        int len = snprintf(
            out, sizeof out,
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: %s%s\r\nContent-Length: 2\r\nConnection: "
            "close\r\n\r\n{}",
            p->to, path);
        if (write(c, out, (size_t)len) != len)
            continue;
    }
    return NULL;
}

static void signpost_start(struct signpost *p)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    p->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(p->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(p->fd, 16), 0);
    assert_int_equal(getsockname(p->fd, (struct sockaddr *)&a, &n), 0);
    p->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&p->thread, NULL, point, p), 0);
}

static void signpost_stop(struct signpost *p)
{
    shutdown(p->fd, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    close(p->fd);
}

RT_BLOCKS
static void a_client_goes_where_it_is_sent_but_not_for_ever(void **state)
{
    (void)state;
    struct running r;
    struct signpost there = {0}, itself = {0};
    struct mbx *c;
    struct mbx_sent sent;
    struct mbx_batch b = {0};
    char url[64];
    start(&r);
    there.to = r.url;
    signpost_start(&there);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", there.port);
    assert_int_equal(mbx_open(&(struct mbx_config){.url = url, .token = buf_cstr(&r.token)}, &c), ERR_OK);
    assert_int_equal(
        mbx_send(c, &(struct mbx_message){.topic = "c/far", .key = "k1", .payload = bytes_of("hello", 5)},
                 &sent),
        ERR_OK);
    assert_int_equal(mbx_recv(c, "c/far", &(struct mbx_wish){.max = 1, .wait_ms = 1000}, &b), ERR_OK);
    assert_int_equal(b.n, 1);
    assert_int_equal(mbx_ack(c, &b.m[0]), ERR_OK);
    assert_int_equal(atomic_load(&there.asked), 3);
    mbx_batch_free(&b);
    mbx_close(c);
    signpost_stop(&there);

    signpost_start(&itself);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", itself.port);
    itself.to = url;
    assert_int_equal(mbx_open(&(struct mbx_config){.url = url, .token = buf_cstr(&r.token)}, &c), ERR_OK);
    assert_int_equal(mbx_recv(c, "c/far", &(struct mbx_wish){0}, &b), ERR_UNAVAILABLE);
    assert_int_equal(atomic_load(&itself.asked), 6);
    mbx_close(c);
    signpost_stop(&itself);
    stop(&r);
}

RT_BLOCKS
static void a_message_lives_through_the_client(void **state)
{
    (void)state;
    struct running r;
    struct mbx *c;
    start(&r);
    const char *url = r.url;
    assert_int_equal(mbx_open(&(struct mbx_config){.url = url, .token = buf_cstr(&r.token)}, &c), ERR_OK);

    struct mbx_message m = {.topic = "c/lib", .key = "k1", .payload = bytes_of("hello\0there", 11)};
    struct mbx_sent sent, again;
    assert_int_equal(mbx_send(c, &m, &sent), ERR_OK);
    assert_int_equal(sent.topic_seq, 1);
    assert_false(sent.duplicate);
    assert_int_equal(mbx_send(c, &m, &again), ERR_OK);
    assert_true(again.duplicate && mailbox_id_eq(&again.msg_id, &sent.msg_id));
    m.payload = bytes_of("other", 5);
    assert_int_equal(mbx_send(c, &m, &again), ERR_IDEM_CONFLICT);
    assert_true(strlen(mbx_why(c)) > 0);

    struct mbx_batch b = {0};
    assert_int_equal(
        mbx_recv(c, "c/lib", &(struct mbx_wish){.max = 5, .visibility_ms = 60000, .wait_ms = 1000}, &b),
        ERR_OK);
    assert_int_equal(b.n, 1);
    assert_true(bytes_eq(b.m[0].payload, bytes_of("hello\0there", 11)));
    assert_int_equal(b.m[0].attempt, 1);
    assert_int_equal(mbx_extend(c, &b.m[0], 90000), ERR_OK);
    struct mbx_delivery stale = b.m[0];
    stale.attempt = 7;
    assert_int_equal(mbx_ack(c, &stale), ERR_STALE_ATTEMPT);
    assert_int_equal(mbx_nack(c, &b.m[0], "not now"), ERR_OK);
    assert_int_equal(mbx_ack(c, &b.m[0]), ERR_OK); /* late work counts: nobody has a newer token */
    mbx_batch_free(&b);
    assert_int_equal(mbx_recv(c, "c/lib", &(struct mbx_wish){0}, &b), ERR_OK);
    assert_int_equal(b.n, 0);
    mbx_batch_free(&b);
    mbx_close(c);

    assert_int_equal(mbx_open(&(struct mbx_config){.url = url, .token = "nonsense"}, &c), ERR_OK);
    assert_int_equal(mbx_recv(c, "c/lib", &(struct mbx_wish){0}, &b), ERR_UNAUTHENTICATED);
    mbx_destroy(c);
    stop(&r);
}

/* More than may be sent a second: the client waits as it is told to, and every message arrives. */
RT_BLOCKS
static void a_send_that_comes_too_soon_is_repeated_when_it_may(void **state)
{
    (void)state;
    struct running r;
    struct mbx *c;
    struct mbx_sent sent;
    start(&r);
    struct mailbox *mb = svc_state(r.s);
    assert_int_equal(
        mbx_open(&(struct mbx_config){.url = r.url, .token = buf_cstr(&r.token), .timeout_ms = 30000}, &c),
        ERR_OK);
    for (int i = 0; i < 80; i++) { /* 64 at once are always let through */
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(mbx_send(c, &(struct mbx_message){.topic = "c/soon", .key = key}, &sent), ERR_OK);
        assert_int_equal(sent.topic_seq, i + 1);
    }
    assert_true(obs_counter_value(OBS_COUNTER_OF(mb->m[MAILBOX_M_rejected], "rate_limited")) > 0);
    mbx_close(c);
    stop(&r);
}

struct reader {
    struct mbx *c;
    unsigned n, enough;
    atomic_uint seen;
    enum err result;
};

/* One at a time, in order; what was under way to a reader that had had enough comes again. */
static bool take(void *arg, const struct mbx_delivery *d) RT_BLOCKS
{
    struct reader *x = arg;
    bool ok = bytes_eq(d->payload, bytes_of("hello\0there", 11)) &&
              (++x->n > 3 || (d->topic_seq == x->n && d->attempt == 1)) &&
              mbx_ack(x->c, d) == ERR_OK; /* gives the credit back: there is one */
    atomic_fetch_add(&x->seen, ok);
    return x->n < x->enough;
}

static void *read_stream(void *arg) RT_BLOCKS
{
    struct reader *x = arg;
    x->result = mbx_stream(x->c, "c/stream", &(struct mbx_stream_wish){.credit = 1}, take, x);
    return NULL;
}

RT_BLOCKS
static void a_stream_ends_when_its_reader_has_had_enough_and_when_the_service_says_so(void **state)
{
    (void)state;
    struct running r;
    struct mbx *c;
    struct mbx_sent sent;
    struct reader x = {.enough = 3};
    pthread_t thread;
    start(&r);
    assert_int_equal(mbx_open(&(struct mbx_config){.url = r.url, .token = buf_cstr(&r.token)}, &c), ERR_OK);
    assert_int_equal(mbx_open(&(struct mbx_config){.url = r.url, .token = buf_cstr(&r.token)}, &x.c),
                     ERR_OK);
    for (int i = 0; i < 5; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(mbx_send(c,
                                  &(struct mbx_message){.topic = "c/stream",
                                                        .key = key,
                                                        .payload = bytes_of("hello\0there", 11)},
                                  &sent),
                         ERR_OK);
    }
    read_stream(&x);
    assert_int_equal(x.result, ERR_OK);
    assert_int_equal(atomic_load(&x.seen), 3);
    x.enough = 100;
    assert_int_equal(pthread_create(&thread, NULL, read_stream, &x), 0);
    AWAIT(atomic_load(&x.seen) == 5);
    stop(&r); /* drains: the stream is told */
    pthread_join(thread, NULL);
    assert_int_equal(x.result, ERR_DRAINING);
    mbx_close(x.c);
    assert_int_equal(mbx_open(&(struct mbx_config){.url = r.url, .token = "nonsense"}, &x.c), ERR_OK);
    assert_int_equal(mbx_stream(x.c, "c/stream", &(struct mbx_stream_wish){0}, take, &x), ERR_REFUSED);
    mbx_close(x.c);
    mbx_close(c);
}

/* ---- closing from another thread ---- */

static size_t open_files(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

struct waiter {
    struct mbx *c;
    struct mbx_batch batch;
    bool streams, sends;
    enum err result;
};

static bool never(void *arg, const struct mbx_delivery *d)
{
    (void)arg;
    (void)d;
    return true;
}

static void *wait_for_it(void *arg) RT_BLOCKS
{
    struct waiter *x = arg;
    struct mbx_sent sent;
    if (x->streams)
        x->result = mbx_stream(x->c, "c/wait", &(struct mbx_stream_wish){0}, never, x);
    else if (x->sends)
        x->result = mbx_send(x->c, &(struct mbx_message){.topic = "c/wait", .key = "s"}, &sent);
    else
        x->result = mbx_recv(x->c, "c/wait", &(struct mbx_wish){.wait_ms = 20000}, &x->batch);
    return NULL;
}

static void *cancel_soon(void *arg)
{
    mbx_cancel(arg);
    return NULL;
}

RT_BLOCKS
static void a_call_that_waits_ends_when_another_thread_cancels_it_and_leaves_nothing(void **state)
{
    (void)state;
    struct running r;
    start(&r);
    struct mailbox *mb = svc_state(r.s);
    size_t files = 0;
    for (int round = 0; round < 6; round++) {
        struct waiter x = {.streams = round % 2};
        struct mbx_config config = {.url = r.url, .token = buf_cstr(&r.token), .timeout_ms = 60000};
        pthread_t thread, other;
        assert_int_equal(mbx_open(&config, &x.c), ERR_OK);
        assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &x), 0);
        AWAIT(atomic_load(x.streams ? &mb->streams : &mb->parked) == 1);
        assert_int_equal(pthread_create(&other, NULL, cancel_soon, x.c), 0);
        mbx_cancel(x.c); /* twice is once */
        pthread_join(other, NULL);
        pthread_join(thread, NULL);
        assert_int_equal(x.result, ERR_CANCELED);
        wait_for_it(&x); /* it stays so: nothing is asked any more */
        assert_int_equal(x.result, ERR_CANCELED);
        mbx_close(x.c);
        AWAIT(atomic_load(&mb->streams) + atomic_load(&mb->parked) ==
              0); /* the service knows that nobody is there */
        if (round == 1)
            files = open_files();
    }
    AWAIT(open_files() <= files);

    /* nobody took it for the dead: it is delivered for the first time */
    struct waiter x = {0};
    assert_int_equal(mbx_open(&(struct mbx_config){.url = r.url, .token = buf_cstr(&r.token)}, &x.c),
                     ERR_OK);
    x.sends = true;
    wait_for_it(&x);
    assert_int_equal(x.result, ERR_OK);
    x.sends = false;
    wait_for_it(&x);
    assert_int_equal(x.result, ERR_OK);
    assert_int_equal(x.batch.n, 1);
    assert_int_equal(x.batch.m[0].attempt, 1);
    mbx_batch_free(&x.batch);
    mbx_close(x.c);
    stop(&r);
}

/* Accepts, reads, and never says a word. */
RT_BLOCKS
static void a_server_that_is_silent_or_gone_and_a_process_without_descriptors_end_a_call(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    char url[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", ntohs(at.sin_port));
    for (int kind = 0; kind < 3; kind++) { /* a receive, a stream, a send */
        struct waiter x = {.streams = kind == 1, .sends = kind == 2};
        pthread_t thread;
        assert_int_equal(
            mbx_open(&(struct mbx_config){.url = url, .token = "t", .timeout_ms = 60000}, &x.c), ERR_OK);
        assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &x), 0);
        int peer = accept(fd, NULL, NULL);
        assert_true(peer >= 0);
        mbx_cancel(x.c);
        pthread_join(thread, NULL);
        assert_int_equal(x.result, ERR_CANCELED);
        mbx_close(x.c);
        close(peer);
    }
    struct waiter x = {.sends = true};
    assert_int_equal(mbx_open(&(struct mbx_config){.url = url, .token = "t", .timeout_ms = 200}, &x.c),
                     ERR_OK);
    wait_for_it(&x);
    assert_int_equal(x.result, ERR_TIMEOUT);
    close(fd); /* gone */
    wait_for_it(&x);
    assert_true(x.result == ERR_REFUSED || x.result == ERR_TIMEOUT);
    struct rlimit was, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = (struct rlimit){3, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    wait_for_it(&x);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_not_equal(x.result, ERR_OK);
    wait_for_it(&x); /* and it can be asked again */
    assert_true(x.result == ERR_REFUSED || x.result == ERR_TIMEOUT);
    mbx_close(x.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_lives_through_the_client),
        cmocka_unit_test(a_client_goes_where_it_is_sent_but_not_for_ever),
        cmocka_unit_test(a_send_that_comes_too_soon_is_repeated_when_it_may),
        cmocka_unit_test(a_stream_ends_when_its_reader_has_had_enough_and_when_the_service_says_so),
        cmocka_unit_test(a_call_that_waits_ends_when_another_thread_cancels_it_and_leaves_nothing),
        cmocka_unit_test(a_server_that_is_silent_or_gone_and_a_process_without_descriptors_end_a_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
