/* A head that came before is not read again: whatever came in between, in whatever pieces, it is answered as when it was new. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "http_rig.h"

#define GET(target, fields) "GET " target " HTTP/1.1\r\nHost: x\r\nX-Corr-ID: c\r\n" fields "\r\n"
#define POST(target, n, body)                                                                              \
    "POST " target " HTTP/1.1\r\nHost: x\r\nX-Corr-ID: c\r\nContent-Length: " n "\r\n\r\n" body
#define FILL_100                                                                                           \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

/* Many differ in one byte, some in what follows their head, some begin like another. */
static const struct variant {
    const char *bytes;
    bool head_only, ends;
} variants[] = {
    {GET("/hello", ""), false, false},
    {GET("/hellp", ""), false, false},
    {GET("/show/a/b", ""), false, false},
    {GET("/show/a/c", ""), false, false},
    {GET("/show/b/c?k=1", ""), false, false},
    {GET("/show/b/c?k=2", ""), false, false},
    {GET("/show/b/c?k=2&l=%41", ""), false, false},
    {GET("/show/a/b", "X-Thing: one\r\n"), false, false},
    {GET("/show/a/b", "X-Thing: two\r\n"), false, false},
    {GET("/show/a/b", "X-Thing: two\r\nX-Other: " FILL_100 "\r\n"), false, false},
    {GET("/defer/4", ""), false, false},
    {GET("/defer/5", ""), false, false},
    {GET("/boxed/6", ""), false, false},
    {GET("/nowhere", ""), false, false},
    {GET("/echo", ""), false, false}, /* 405 */
    {POST("/echo", "5", "first"), false, false},
    {POST("/echo", "5", "other"), false, false},
    {POST("/echo", "6", "longer"), false, false},
    {POST("/defer/4", "4", "abcd"), false, false},
    {"HEAD /hello HTTP/1.1\r\nHost: x\r\nX-Corr-ID: c\r\n\r\n", true, false},
    {"\r\nGET /hello HTTP/1.1\r\nHost: x\r\nX-Corr-ID: c\r\n\r\n", false, false},
    {"POST /echo HTTP/1.1\r\nHost: x\r\nX-Corr-ID: c\r\nTransfer-Encoding: "
     "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
     false, false},
    {"POST /echo HTTP/1.1\r\nHost: x\r\nX-Corr-ID: c\r\nTransfer-Encoding: "
     "chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n",
     false, false},
    /* longer than what is kept */
    {GET("/show/a/b", "X-Long: " FILL_100 FILL_100 FILL_100 FILL_100 FILL_100 FILL_100 FILL_100 FILL_100
                          FILL_100 FILL_100 FILL_100 "\r\n"),
     false, false},
    {GET("/hello", "Connection: close\r\n"), false, true},
    {"GET /hello HTTP/1.0\r\nX-Corr-ID: c\r\n\r\n", false, true},
    {GET("/hello", "Host: y\r\n"), false, true}, /* two hosts: 400 */
    {GET("/hello", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), false, true},
};
enum { VARIANTS = sizeof variants / sizeof *variants, CONNS = 4, ROUNDS = 4000 };

/* Status, header lines and body, without the date and the names that a refused head does not give. */
static char *essence(struct raw_conn *c, const struct variant *v)
{
    struct raw_response r;
    raw_read(c, v->head_only, &r);
    char *out = malloc(strlen(r.head) + r.body_n + 1), *to = out;
    assert_non_null(out);
    for (char *line = r.head, *end; (end = strstr(line, "\r\n")); line = end + 2)
        if (strncmp(line, "Date:", 5) != 0 && strncmp(line, "X-Corr-ID:", 10) != 0)
            to = (char *)mempcpy(to, line, (size_t)(end + 2 - line));
    to = (char *)mempcpy(to, r.body, r.body_n);
    *to = '\0';
    char *name = strstr(out, "\"corr_id\":\"");
    if (name)
        for (name += strlen("\"corr_id\":\""); *name && *name != '"'; name++)
            *name = '-';
    raw_free(&r);
    return out;
}

/* In up to three pieces, so that a known head also arrives in part. */
static void send_cut(struct raw_conn *c, const char *bytes, struct rng *rng)
{
    size_t n = strlen(bytes), at = 0;
    for (uint64_t pieces = rng_below(rng, 3); pieces > 0 && at < n; pieces--) {
        size_t piece = 1 + (size_t)rng_below(rng, n - at);
        raw_send(c, bytes + at, piece);
        at += piece;
    }
    raw_send(c, bytes + at, n - at);
}

static void fresh_answers(char **out)
{
    for (size_t i = 0; i < VARIANTS; i++) {
        struct raw_conn c;
        http_rig_start((struct net_limits){0}); /* a server that has seen nothing */
        raw_connect(&c, http_rig.port);
        raw_puts(&c, variants[i].bytes);
        out[i] = essence(&c, &variants[i]);
        raw_close(&c);
        http_rig_stop();
    }
}

static void a_repeated_head_is_answered_as_when_it_was_new(void **state)
{
    (void)state;
    char *want[VARIANTS];
    struct raw_conn conns[CONNS];
    struct rng rng;
    fresh_answers(want);
    rng_seed(&rng, 20261116);
    http_rig_start((struct net_limits){0});
    for (int i = 0; i < CONNS; i++)
        raw_connect(&conns[i], http_rig.port);
    for (int round = 0; round < ROUNDS; round++) {
        struct raw_conn *c = &conns[rng_below(&rng, CONNS)];
        /* two on one connection, mostly alike: the second may wait behind the first */
        size_t first = (size_t)rng_below(&rng, VARIANTS);
        size_t asked[2] = {first, rng_below(&rng, 2) ? first : (size_t)rng_below(&rng, VARIANTS)};
        size_t n = variants[first].ends ? 1 : 2;
        for (size_t i = 0; i < n; i++)
            send_cut(c, variants[asked[i]].bytes, &rng);
        for (size_t i = 0; i < n; i++) {
            char *got = essence(c, &variants[asked[i]]);
            if (strcmp(got, want[asked[i]]) != 0)
                fail_msg("round %d, %s\nwas answered\n%s\nand now\n%s", round, variants[asked[i]].bytes,
                         want[asked[i]], got);
            free(got);
        }
        if (variants[asked[n - 1]].ends) {
            raw_close(c);
            raw_connect(c, http_rig.port);
        }
    }
    for (int i = 0; i < CONNS; i++)
        raw_close(&conns[i]);
    http_rig_stop();
    for (size_t i = 0; i < VARIANTS; i++)
        free(want[i]);
}

static void each_request_has_a_name_of_its_own(void **state)
{
    (void)state;
    char names[8][64];
    struct raw_conn c;
    http_rig_start((struct net_limits){0});
    raw_connect(&c, http_rig.port);
    for (int i = 0; i < 8; i++) {
        struct raw_response r;
        raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        raw_read(&c, false, &r);
        assert_non_null(raw_header(&r, "X-Corr-ID", names[i], sizeof names[i]));
        for (int k = 0; k < i; k++)
            assert_string_not_equal(names[i], names[k]);
        raw_free(&r);
    }
    raw_close(&c);
    http_rig_stop();
}

static void limits_that_shrank_hold_for_known_heads(void **state)
{
    (void)state;
    struct raw_conn c;
    const char *request = GET("/show/a/b", "X-Thing: " FILL_100 "\r\nX-More: " FILL_100 "\r\n");
    http_rig_start((struct net_limits){0});
    raw_connect(&c, http_rig.port);
    for (int i = 0; i < 3; i++) {
        raw_puts(&c, request);
        http_answered(&c, 200, "a=a");
    }
    net_server_set_limits(http_rig.server, &(struct net_limits){.header_bytes = 200});
    int status = 200; /* until the loop has taken them up */
    for (struct deadline by = deadline_in_ms(RAW_PATIENCE_MS); status == 200 && !deadline_passed(by);) {
        struct raw_response r;
        raw_puts(&c, request);
        raw_read(&c, false, &r);
        status = r.status;
        raw_free(&r);
    }
    assert_int_equal(status, 431);
    raw_close(&c);
    http_rig_stop();
}

/* The server answers in its place and the handler keeps the object; its successor in the pool must not speak for it. */
static void what_answers_for_a_late_handler_learns_nothing(void **state)
{
    (void)state;
    struct raw_conn c;
    http_rig_start((struct net_limits){.request_timeout_ms = 50});
    raw_connect(&c, http_rig.port);
    for (int i = 0; i < 6; i++) {
        raw_puts(&c, GET("/hello", ""));
        http_answered(&c, 200, "hello");
        raw_puts(&c, GET("/hold", ""));
        http_answered(&c, 503, "the deadline passed");
        raw_puts(&c, GET("/show/a/b", ""));
        http_answered(&c, 200, "a=a rest=b");
        net_reply(http_rig.held, 200, NULL, http_text("too late"));
    }
    raw_close(&c);
    http_rig_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_head_is_answered_as_when_it_was_new),
        cmocka_unit_test(each_request_has_a_name_of_its_own),
        cmocka_unit_test(limits_that_shrank_hold_for_known_heads),
        cmocka_unit_test(what_answers_for_a_late_handler_learns_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
