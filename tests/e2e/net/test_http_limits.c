/* What is too large, too much or could be read in two ways is refused, and what becomes of the connection then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include "http_rig.h"

static void expect_100_is_answered_only_after_the_limits_passed(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    http_answered(&c, 100, NULL);
    raw_puts(&c, "body");
    http_answered(&c, 200, "body");
    raw_close(&c);
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\nExpect: 100-continue\r\n\r\n");
    http_answered(&c, 413, "too_large");
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    http_ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: a-pony\r\n\r\nbody", 417,
             "expectation_failed");
    http_rig_stop();
}

static void a_declared_body_over_the_limit_is_refused_before_it_is_read(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n");
    raw_read(&c, false, &r); /* not one byte of the body was sent */
    http_expect(&r, 413, "\"code\":\"too_large\"");
    raw_free(&r);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    http_ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413,
             "too_large");
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n");
    http_answered(&c, 413, "too_large");
    raw_close(&c);
    /* exactly the limit is welcome */
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 65536\r\n\r\n");
    raw_send(&c, http_rig_big, 65536);
    raw_read(&c, false, &r);
    assert_true(r.status == 200 && r.body_n == 65536 && memcmp(r.body, http_rig_big, 65536) == 0);
    raw_free(&r);
    raw_close(&c);
    assert_int_equal(http_rig.rejects[NET_REJECT_BODY], 3);
    http_rig_stop();
}

static void a_refusal_reads_a_small_body_away_and_keeps_the_connection(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    raw_puts(&c,
             "POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /GET /hello "
             "HTTP/1.1\r\nHost: x\r\n\r\n"
             "POST /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
             "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    const int want[] = {404, 200, 405, 200};
    for (int i = 0; i < 4; i++) {
        http_answered(&c, want[i], NULL);
    }
    raw_close(&c);
    http_rig_stop();
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
    http_rig_start((struct net_limits){0});
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct raw_conn c;
        struct raw_response r;
        char v[64];
        raw_connect(&c, http_rig.port);
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
    http_ask("GET /hello HTTP/2.0\r\nHost: x\r\n\r\n", 505, "version_not_supported");
    http_rig_stop();
}

static void heads_over_the_limits_are_431_and_414(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    static char request[40000];
    size_t n = (size_t)sprintf(request, "GET /hello HTTP/1.1\r\nHost: x\r\nX-Long: ");
    memset(request + n, 'v', 17000);
    strcpy(request + n + 17000, "\r\n\r\n");
    http_ask(request, 431, "headers_too_large");
    n = (size_t)sprintf(request, "GET /hello HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 100; i++)
        n += (size_t)sprintf(request + n, "X-%d: v\r\n", i);
    strcpy(request + n, "\r\n");
    http_ask(request, 431, "headers_too_large");
    n = (size_t)sprintf(request, "GET /");
    memset(request + n, 'p', 9000);
    strcpy(request + n + 9000, " HTTP/1.1\r\nHost: x\r\n\r\n");
    http_ask(request, 414, "uri_too_long");
    /* 99 fields and Host make 100: welcome */
    n = (size_t)sprintf(request, "GET /hello HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 99; i++)
        n += (size_t)sprintf(request + n, "X-%d: v\r\n", i);
    strcpy(request + n, "\r\n");
    http_ask(request, 200, "hello");
    http_rig_stop();
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
    raw_connect(&c, http_rig.port);
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
    http_rig_start((struct net_limits){0});
    static uint8_t body[100000];
    struct raw_response r;
    /* The largest body within ten times, and the smallest beyond. */
    size_t random = 2000, zeros = 15000, n = 0;
    while ((n = gzip(random, zeros + 1, body, sizeof body)) * 10 >= random + zeros + 1)
        zeros++;
    n = gzip(random, zeros, body, sizeof body);
    assert_true((double)(random + zeros) / (double)n > 9.9);
    post_gzip(body, n, &r);
    http_expect(&r, 200, NULL);
    assert_int_equal(r.body_n, random + zeros);
    raw_free(&r);
    n = gzip(random, zeros + 200, body, sizeof body);
    post_gzip(body, n, &r);
    http_expect(&r, 413, "too_large");
    raw_free(&r);
    n = gzip(30000, 50000, body, sizeof body); /* small ratio, but over the route's 64 KiB */
    post_gzip(body, n, &r);
    http_expect(&r, 413, "too_large");
    raw_free(&r);
    n = gzip(1000, 10, body, sizeof body);
    post_gzip(body, n - 1, &r);
    http_expect(&r, 400, "bad_request");
    raw_free(&r);
    body[n - 5] ^= 1; /* the checksum */
    post_gzip(body, n, &r);
    http_expect(&r, 400, "bad_request");
    raw_free(&r);
    http_ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx", 415,
             "unsupported_media_type");
    assert_int_equal(http_rig.rejects[NET_REJECT_INFLATE], 5);
    http_rig_stop();
}

/* In pieces of `step` bytes, so that the inflater stops and goes on everywhere. */
static void stream_gzip(const char *path, const uint8_t *body, size_t n, size_t step,
                        struct raw_response *out)
{
    struct raw_conn c;
    char head[256];
    raw_connect(&c, http_rig.port);
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
    http_rig_start((struct net_limits){0});
    static uint8_t body[600000];
    struct raw_response r;
    char want[16];
    size_t steps[] = {1, 7, 16384, sizeof body};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        size_t n = gzip(i == 0 ? 500 : 300000, 1000, body, sizeof body);
        snprintf(want, sizeof want, "%d", i == 0 ? 1500 : 301000);
        stream_gzip("/count", body, n, steps[i], &r);
        http_expect(&r, 200, want);
        raw_free(&r);
    }
    /* two members after each other are one body */
    size_t n = gzip(700, 0, body, sizeof body);
    n += gzip(300, 5, body + n, sizeof body - n);
    stream_gzip("/count", body, n, 100, &r);
    http_expect(&r, 200, "1005");
    raw_free(&r);
    n = gzip(100, 100000, body, sizeof body); /* over ten times, judged at the end */
    stream_gzip("/count", body, n, 50, &r);
    http_expect(&r, 413, "too_large");
    raw_free(&r);
    n = gzip(100, 7 << 20, body, sizeof body); /* a bomb, judged on the way */
    stream_gzip("/count", body, n, 1000, &r);
    http_expect(&r, 413, "too_large");
    raw_free(&r);
    n = gzip(1000, 10, body, sizeof body);
    stream_gzip("/count", body, n - 1, 300, &r); /* cut off */
    http_expect(&r, 400, "bad_request");
    raw_free(&r);
    body[n - 5] ^= 1; /* the checksum */
    stream_gzip("/count", body, n, 300, &r);
    http_expect(&r, 400, "bad_request");
    raw_free(&r);
    stream_gzip("/refuse", body, n, 300, &r); /* answered before the first piece */
    http_expect(&r, 403, "forbidden");
    raw_free(&r);
    assert_int_equal(http_rig.rejects[NET_REJECT_INFLATE], 4);
    http_rig_stop();
}

static void connections_over_the_cap_get_429_and_are_closed(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){.max_conns = 2});
    struct raw_conn a, b, c;
    struct raw_response r;
    char v[64];
    raw_connect(&a, http_rig.port);
    raw_connect(&b, http_rig.port);
    EVENTUALLY(http_rig.conns == 2);
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    http_expect(&r, 429, "\"code\":\"busy\"");
    assert_true(atoi(raw_header(&r, "Retry-After", v, sizeof v)) >= 1);
    raw_free(&r);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    raw_puts(&a, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&a, false, &r);
    http_expect(&r, 200, "hello");
    raw_free(&r);
    raw_close(&a);
    raw_close(&b);
    EVENTUALLY(http_rig.conns == 0);
    http_ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 200, "hello");
    http_rig_stop();
}

/* One descriptor is left, and the client takes it: its connection waits until there is room, whichever door it came through. */
static void without_descriptors_accepting_pauses_and_goes_on(void **state)
{
    (void)state;
    char dir[] = "/tmp/ron-accept-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/s", dir);
    struct net_listen listen[] = {{.bind = "127.0.0.1:0"}, {.uds = path}};
    http_rig_start_on((struct net_limits){0}, 1, listen, 2);
    struct raw_conn before, c;
    struct rlimit was, tight;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    raw_connect(&before, http_rig.port);
    raw_puts(&before, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    http_answered(&before, 200,
                  "hello"); /* and nobody is about to accept: that takes a descriptor for a moment */
    for (int round = 0; round < 3; round++) {
        EVENTUALLY(http_rig.conns == 1);
        int next = dup(0);
        assert_true(next >= 0);
        close(next);
        tight = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = was.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        raw_connect(&c, http_rig.port);
        raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        raw_puts(&before, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        http_answered(&before, 200, "hello"); /* it came later: the newcomer was tried before */
        assert_int_equal(http_rig.conns, 1);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        http_answered(&c, 200, "hello");
        raw_close(&c);
    }
    raw_close(&before);
    http_rig_stop();
    rmdir(dir);
}

static void requests_in_flight_over_the_cap_get_429_but_health_does_not(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){.max_inflight = 1});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(http_rig.held != NULL);
    http_ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 429, "\"code\":\"busy\"");
    http_ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", 429, "\"code\":\"busy\"");
    http_ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200, "hello");
    net_reply(http_rig.held, 200, NULL, http_text("done"));
    http_answered(&c, 200, "done");
    EVENTUALLY(http_rig.inflight == 0);
    http_ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 200, "hello");
    raw_close(&c);
    assert_int_equal(http_rig.rejects[NET_REJECT_INFLIGHT], 2);
    http_rig_stop();
}

static void a_peer_over_its_rate_gets_429_with_retry_after(void **state)
{
    (void)state;
    http_rig_start(
        (struct net_limits){.rate_per_peer = 0.5}); /* burst twice that: one request, then two seconds */
    struct raw_conn c;
    struct raw_response r;
    char v[64];
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    http_answered(&c, 200, "hello");
    raw_read(&c, false, &r);
    http_expect(&r, 429, "\"code\":\"rate_limited\"");
    assert_string_equal(raw_header(&r, "Retry-After", v, sizeof v), "2");
    raw_free(&r);
    http_answered(&c, 200, "hello");
    raw_close(&c);
    assert_int_equal(http_rig.rejects[NET_REJECT_RATE], 1);
    http_rig_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expect_100_is_answered_only_after_the_limits_passed),
        cmocka_unit_test(a_declared_body_over_the_limit_is_refused_before_it_is_read),
        cmocka_unit_test(a_refusal_reads_a_small_body_away_and_keeps_the_connection),
        cmocka_unit_test(requests_that_could_be_smuggled_are_400_and_the_connection_closes),
        cmocka_unit_test(heads_over_the_limits_are_431_and_414),
        cmocka_unit_test(gzip_bodies_inflate_up_to_ten_times_and_the_cap),
        cmocka_unit_test(streamed_gzip_bodies_arrive_inflated_under_the_same_limits),
        cmocka_unit_test(connections_over_the_cap_get_429_and_are_closed),
        cmocka_unit_test(without_descriptors_accepting_pauses_and_goes_on),
        cmocka_unit_test(requests_in_flight_over_the_cap_get_429_but_health_does_not),
        cmocka_unit_test(a_peer_over_its_rate_gets_429_with_retry_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
