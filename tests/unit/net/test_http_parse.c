#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "net/http_parse.h"

static const struct net_http_limits limits = {16384, 100, 8192};
enum { BODY_MAX = 1000 };

/* What a reader made of some bytes. */
struct verdict {
    enum err err;  /* ERR_OK: a request, or not enough bytes yet */
    bool complete; /* head and body */
    size_t used;
    uint8_t minor;
    bool keep;
    char method[40], path[9000], query[9000], host[300], body[BODY_MAX + 1];
    size_t body_n, fields;
};

/* Reads one request from pieces that end at the given cuts (ascending, the last is n). */
static void read_cut_as(const char *in, size_t n, const size_t *cuts, size_t count,
                        struct net_http_seen *seen, struct verdict *v)
{
    struct net_http_head h;
    struct net_http_body b;
    bool head = false;
    size_t at = 0; /* body bytes consumed */
    memset(v, 0, sizeof *v);
    net_http_head_init(&h, &limits, seen);
    for (size_t i = 0; i < count; i++) {
        size_t have = cuts[i];
        if (!head) {
            enum net_http_result r = net_http_head_feed(&h, in, have);
            if (r == NET_HTTP_MORE)
                continue;
            if (r == NET_HTTP_BAD) {
                v->err = h.err;
                assert_non_null(h.why);
                return;
            }
            head = true;
            at = h.head_bytes;
            if (h.has_length && h.length > BODY_MAX) {
                v->err = ERR_TOO_LARGE;
                return;
            }
            net_http_body_init(&b, &h, BODY_MAX);
            v->minor = h.minor;
            v->keep = h.keep_alive;
            v->fields = h.field_count;
            snprintf(v->method, sizeof v->method, "%.*s", STR_ARG(net_http_text(in, h.method)));
            snprintf(v->path, sizeof v->path, "%.*s", STR_ARG(net_http_text(in, h.path)));
            snprintf(v->query, sizeof v->query, "%s%.*s", h.has_query ? "?" : "",
                     STR_ARG(net_http_text(in, h.query)));
            snprintf(v->host, sizeof v->host, "%.*s", STR_ARG(net_http_text(in, h.host)));
        }
        for (;;) {
            size_t used;
            struct bytes piece;
            enum net_http_result r =
                net_http_body_feed(&b, (const uint8_t *)in + at, have - at, &used, &piece);
            if (r == NET_HTTP_BAD) {
                v->err = b.err;
                assert_non_null(b.why);
                return;
            }
            at += used;
            if (r == NET_HTTP_DATA) {
                assert_true(v->body_n + piece.n <= BODY_MAX);
                memcpy(v->body + v->body_n, piece.p, piece.n);
                v->body_n += piece.n;
            }
            if (r == NET_HTTP_DONE) {
                v->complete = true;
                v->used = at;
                return;
            }
            if (r == NET_HTTP_MORE)
                break;
        }
    }
    (void)n;
}

/* With a memory of all that was read before, of just this, and with none: the verdict is the same. */
static void read_cut(const char *in, size_t n, const size_t *cuts, size_t count, struct verdict *v)
{
    static struct net_http_seen long_memory;
    static struct verdict other;
    read_cut_as(in, n, cuts, count, NULL, v);
    for (int i = 0; i < 2; i++) {
        read_cut_as(in, n, cuts, count, &long_memory, &other);
        assert_memory_equal(&other, v, sizeof other);
    }
}

static void read_whole(const char *in, size_t n, struct verdict *v)
{
    read_cut(in, n, &n, 1, v);
}

/* R: request line and Host; fields follow. */
#define R      "GET / HTTP/1.1\r\nHost: h\r\n"
#define P      "POST / HTTP/1.1\r\nHost: h\r\n"
#define TE     P "Transfer-Encoding: chunked\r\n\r\n"
#define OK     0
#define MORE   (-1)
#define S(lit) (lit), sizeof(lit) - 1

static const struct row {
    const char *in;
    size_t n;
    int want; /* OK, MORE or a status */
    const char *body;
} rows[] = {
    /* plain requests */
    {S(R "\r\n"), OK, ""},
    {S("GET /a/b?c=d&e HTTP/1.1\r\nHost: h\r\n\r\n"), OK, ""},
    {S("GET / HTTP/1.0\r\n\r\n"), OK, ""},
    {S("\r\n" R "\r\n"), OK, ""},
    {S("DELETE /x HTTP/1.1\r\nhOST:h\r\n\r\n"), OK, ""},
    {S("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"), OK, ""},
    {S("GET http://h/p HTTP/1.1\r\nHost: h\r\n\r\n"), OK, ""},
    {S("GET HTTPS://h:8/p?q HTTP/1.1\r\nHost: H:8\r\n\r\n"), OK, ""},
    {S("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n"), OK, ""},
    {S("GET http://h?q HTTP/1.1\r\nHost: h\r\n\r\n"), OK, ""},
    {S("M-SEARCH!#$ / HTTP/1.1\r\nHost: h\r\n\r\n"), OK, ""},
    {S(R "X-Empty:\r\nX-Blank:   \r\n\r\n"), OK, ""},
    {S(R "X: \tv\t \r\n\r\n"), OK, ""},
    {S(R "X: caf\xc3\xa9 \x80\xff\r\n\r\n"), OK, ""},
    {S(R "X: tab\tinside\r\n\r\n"), OK, ""},
    {S("GET / HTTP/1.1\r\nHost:\r\n\r\n"), OK, ""},
    {S("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"), OK, ""},
    {S("GET /%41%e4 HTTP/1.1\r\nHost: h\r\n\r\n"), OK, ""},
    {S("GET /a;b=c,d@e:f!$&'()*+ HTTP/1.1\r\nHost: h\r\n\r\n"), OK, ""},
    {S("GET //x HTTP/1.1\r\nHost: h\r\n\r\n"), OK, ""},
    /* bodies */
    {S(P "Content-Length: 0\r\n\r\n"), OK, ""},
    {S(P "Content-Length: 5\r\n\r\nhello"), OK, "hello"},
    {S(P "Content-Length: 0005\r\n\r\nhello"), OK, "hello"},
    {S(P "content-length:5 \r\n\r\nhello"), OK, "hello"},
    {S("POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello"), OK, "hello"},
    {S(TE "0\r\n\r\n"), OK, ""},
    {S(TE "5\r\nhello\r\n0\r\n\r\n"), OK, "hello"},
    {S(TE "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"), OK, "hello"},
    {S(TE "a\r\n0123456789\r\n0\r\n\r\n"), OK, "0123456789"},
    {S(TE "A\r\n0123456789\r\n000\r\n\r\n"), OK, "0123456789"},
    {S(TE "0000000000000005\r\nhello\r\n0\r\n\r\n"), OK, "hello"},
    {S(TE "5\r\nhello\r\n0\r\nX-Sum: 1\r\nY: \r\n\r\n"), OK, "hello"},
    {S(TE "2\r\n\r\n\r\n0\r\n\r\n"), OK, "\r\n"},
    {S(P "Content-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n"), OK, "abc"},
    /* unfinished */
    {S(""), MORE, ""},
    {S("\r\n"), MORE, ""},
    {S("G"), MORE, ""},
    {S("GET / HTTP/1.1"), MORE, ""},
    {S("GET / HTTP/1.1\r"), MORE, ""},
    {S(R), MORE, ""},
    {S(R "\r"), MORE, ""},
    {S(P "Content-Length: 5\r\n\r\nhell"), MORE, "hell"},
    {S(TE), MORE, ""},
    {S(TE "5\r\nhello\r\n0\r\n"), MORE, "hello"},
    {S(TE "5\r\nhello\r\n0\r\n\r"), MORE, "hello"},
    {S(TE "5\r\nhello\r\n0\r\nX: y\r\n"), MORE, "hello"},
    /* CL with TE, in both orders */
    {S(P "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"), 400, ""},
    /* two lengths, even equal */
    {S(P "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: 5, 5\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: 0\r\ncontent-length: 0\r\n\r\n"), 400, ""},
    /* lengths that are not plain digits */
    {S(P "Content-Length: \r\n\r\n"), 400, ""},
    {S(P "Content-Length: +5\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: -5\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: 0x5\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: 5 5\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: 5.0\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: 5e0\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: five\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: \xd9\xa5\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: 5\0\r\n\r\nhello"), 400, ""},
    {S(P "Content-Length: 1001\r\n\r\n"), 413, ""},
    {S(P "Content-Length: 18446744073709551616\r\n\r\n"), 413, ""},
    {S(P "Content-Length: 18446744073709551621\r\n\r\nhello"), 413, ""},
    /* any coding but chunked */
    {S(P "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: gzip\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: identity\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: \r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: xchunked\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: chunked;q=1\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: \"chunked\"\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: \x0b"
         "chunked\r\n\r\n"),
     400, ""},
    {S(P "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, ""},
    {S(P "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"), 400, ""},
    {S("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, ""},
    /* chunk sizes that are not plain hex, chunk lines that do not end in CRLF */
    {S(TE "0x5\r\nhello\r\n0\r\n\r\n"), 400, ""},
    {S(TE "+5\r\nhello\r\n0\r\n\r\n"), 400, ""},
    {S(TE "-5\r\nhello\r\n0\r\n\r\n"), 400, ""},
    {S(TE " 5\r\nhello\r\n0\r\n\r\n"), 400, ""},
    {S(TE "5 \r\nhello\r\n0\r\n\r\n"), 400, ""},
    {S(TE "5;a=b\r\nhello\r\n0\r\n\r\n"), 400, ""},
    {S(TE "5;\r\nhello\r\n0\r\n\r\n"), 400, ""},
    {S(TE "g\r\n"), 400, ""},
    {S(TE "\r\nhello\r\n0\r\n\r\n"), 400, ""},
    {S(TE "00000000000000005\r\nhello\r\n0\r\n\r\n"), 400, ""},
    {S(TE "10000000000000005\r\nhello"), 400, ""},
    {S(TE "5\nhello\r\n0\r\n\r\n"), 400, ""},
    {S(TE "5\rXhello\r\n0\r\n\r\n"), 400, ""},
    {S(TE "5\r\nhello\n0\r\n\r\n"), 400, "hello"},
    {S(TE "5\r\nhello\rX0\r\n\r\n"), 400, "hello"},
    {S(TE "5\r\nhelloX\r\n0\r\n\r\n"), 400, "hello"},
    {S(TE "5\r\nhello0\r\n\r\n"), 400, "hello"},
    {S(TE "0\n\r\n"), 400, ""},
    {S(TE "0\r\n\n"), 400, ""},
    {S(TE "0\r\n\rX"), 400, ""},
    {S(TE "3e9\r\n"), 413, ""},
    {S(TE "3e8\r\n"), MORE, ""},
    {S(TE "ffffffffffffffff\r\n"), 413, ""},
    {S(TE "1\r\na\r\n3e8\r\n"), 413, "a"},
    {S(TE "0\r\nX y\r\n\r\n"), 400, ""},
    {S(TE "0\r\n folded: x\r\n\r\n"), 400, ""},
    {S(TE "0\r\nX : y\r\n\r\n"), 400, ""},
    {S(TE "0\r\n: y\r\n\r\n"), 400, ""},
    {S(TE "0\r\nX: a\001\r\n\r\n"), 400, ""},
    {S(TE "0\r\nX: a\n\r\n"), 400, ""},
    /* bare LF, bare CR */
    {S("GET / HTTP/1.1\nHost: h\r\n\r\n"), 400, ""},
    {S("GET / HTTP/1.1\r\nHost: h\n\r\n"), 400, ""},
    {S(R "\n"), 400, ""},
    {S("\n" R "\r\n"), 400, ""},
    {S("\r\n\r\n" R "\r\n"), 400, ""},
    {S(R "X: a\rb\r\n\r\n"), 400, ""},
    {S(R "X: a\r\r\n\r\n"), 400, ""},
    {S(R "X\r: a\r\n\r\n"), 400, ""},
    {S("GET /\r HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("\rGET / HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    /* folded lines, space before the colon, names that are no names */
    {S(R "X: a\r\n b\r\n\r\n"), 400, ""},
    {S(R "X: a\r\n\tb\r\n\r\n"), 400, ""},
    {S("GET / HTTP/1.1\r\n Host: h\r\n\r\n"), 400, ""},
    {S(R " \r\n\r\n"), 400, ""},
    {S("GET / HTTP/1.1\r\nHost : h\r\n\r\n"), 400, ""},
    {S(P "Content-Length : 5\r\n\r\nhello"), 400, ""},
    {S(R "X\t: a\r\n\r\n"), 400, ""},
    {S(R ": a\r\n\r\n"), 400, ""},
    {S(R "X\r\n\r\n"), 400, ""},
    {S(R "X y: a\r\n\r\n"), 400, ""},
    {S(R "X(y): a\r\n\r\n"), 400, ""},
    {S(R "X\xe4: a\r\n\r\n"), 400, ""},
    {S(R "X@y: a\r\n\r\n"), 400, ""},
    /* control bytes and NUL */
    {S(R "X: a\0b\r\n\r\n"), 400, ""},
    {S(R "X: a\001b\r\n\r\n"), 400, ""},
    {S(R "X: a\x7f"
         "b\r\n\r\n"),
     400, ""},
    {S(R "X\0: a\r\n\r\n"), 400, ""},
    {S(R "X: 12345678\x1f"
         "12345678\r\n\r\n"),
     400, ""},
    {S("GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET /\x7f HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET /\xc3\xa4 HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    /* Host */
    {S("GET / HTTP/1.1\r\n\r\n"), 400, ""},
    {S(R "Host: h\r\n\r\n"), 400, ""},
    {S("GET / HTTP/1.0\r\nHost: h\r\nHost: i\r\n\r\n"), 400, ""},
    {S("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), 400, ""},
    {S("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), 400, ""},
    {S("GET / HTTP/1.1\r\nHost: u@h\r\n\r\n"), 400, ""},
    {S("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n"), 400, ""},
    {S("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n"), 400, ""},
    {S("GET http:///x HTTP/1.1\r\nHost: b\r\n\r\n"), 400, ""},
    {S("GET http://u@h/ HTTP/1.1\r\nHost: u@h\r\n\r\n"), 400, ""},
    /* request lines */
    {S("GET\r\n\r\n"), 400, ""},
    {S("GET /\r\n\r\n"), 400, ""},
    {S("GET  / HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET /  HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET / HTTP/1.1 \r\nHost: h\r\n\r\n"), 400, ""},
    {S(" GET / HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET /a b HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("G@T / HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("METHODMETHODMETHODMETHODMETHODMETHOD / HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET x HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET * HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET /#f HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET /%4 HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET /?%4 HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET /?a=%00 HTTP/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), 400, ""},
    /* versions */
    {S("GET / HTTP/1.2\r\nHost: h\r\n\r\n"), 505, ""},
    {S("GET / HTTP/2.0\r\nHost: h\r\n\r\n"), 505, ""},
    {S("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505, ""},
    {S("GET / HTTP/0.9\r\n\r\n"), 505, ""},
    {S("GET / HTTP/1.10\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET / HTTP/11\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET / HTTP/2\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET / http/1.1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET / HTTP/1,1\r\nHost: h\r\n\r\n"), 400, ""},
    {S("GET / HTTPS/1.1\r\nHost: h\r\n\r\n"), 400, ""},
};

static int told(const struct verdict *v)
{
    if (v->err != ERR_OK)
        return err_http_status(v->err);
    return v->complete ? OK : MORE;
}

static void every_request_of_the_table_gets_its_verdict(void **state)
{
    (void)state;
    assert_true(sizeof rows / sizeof *rows >= 120);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct verdict v;
        read_whole(rows[i].in, rows[i].n, &v);
        if (told(&v) != rows[i].want)
            fail_msg("%d instead of %d for: %s", told(&v), rows[i].want, rows[i].in);
        if (strcmp(v.body, rows[i].body) != 0)
            fail_msg("body %s instead of %s", v.body, rows[i].body);
    }
}

static void any_way_to_cut_the_bytes_gives_the_same_result(void **state)
{
    (void)state;
    struct rng g;
    uint64_t seed = getenv("RON_SEED") ? strtoull(getenv("RON_SEED"), NULL, 10) : rng_secure_u64();
    print_message("RON_SEED=%llu\n", (unsigned long long)seed);
    rng_seed(&g, seed);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        struct verdict whole, cut;
        size_t cuts[512];
        assert_true(row->n < 500);
        read_whole(row->in, row->n, &whole);
        for (int round = 0; round < 200; round++) {
            size_t n = 0;
            for (size_t k = 1; k < row->n; k++) /* round 0: every byte alone; 1..n: one cut; then random */
                if (round == 0 || (size_t)round == k || (round > 100 && rng_below(&g, 6) == 0))
                    cuts[n++] = k;
            cuts[n++] = row->n;
            read_cut(row->in, row->n, cuts, n, &cut);
            if (memcmp(&whole, &cut, sizeof whole) != 0)
                fail_msg("differs when cut (round %d): %s", round, row->in);
        }
    }
}

static void the_parts_of_a_request_are_found(void **state)
{
    (void)state;
    struct verdict v;
    const char in[] = "GET http://Host:8/p%20q?x=1&y HTTP/1.1\r\nA: 1\r\nHost: host:8\r\n\r\n";
    read_whole(S(in), &v);
    assert_int_equal(told(&v), OK);
    assert_string_equal(v.method, "GET");
    assert_string_equal(v.path, "/p%20q");
    assert_string_equal(v.query, "?x=1&y");
    assert_string_equal(v.host, "host:8");
    assert_int_equal(v.fields, 2);
    assert_int_equal(v.used, sizeof in - 1);
    read_whole(S("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n"), &v);
    assert_string_equal(v.path, "/");
    assert_string_equal(v.query, "");
    read_whole(S("GET http://h?q HTTP/1.1\r\nHost: h\r\n\r\n"), &v);
    assert_string_equal(v.path, "/");
    assert_string_equal(v.query, "?q");
    read_whole(S(P "Content-Length: 3\r\n\r\nabcGET"), &v);
    assert_int_equal(v.used, sizeof(P "Content-Length: 3\r\n\r\nabc") - 1);
}

static void connection_options_decide_about_keep_alive(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        bool keep;
    } cases[] = {
        {R "\r\n", true},
        {R "Connection: close\r\n\r\n", false},
        {R "Connection: Close\r\n\r\n", false},
        {R "Connection: keep-alive\r\n\r\n", true},
        {R "Connection: keep-alive, close\r\n\r\n", false},
        {R "Connection: x ,close\r\n\r\n", false},
        {R "Connection: closed\r\n\r\n", true},
        {R "Connection: x\r\nConnection: close\r\n\r\n", false},
        {"GET / HTTP/1.0\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true},
        {"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct verdict v;
        read_whole(cases[i].in, strlen(cases[i].in), &v);
        assert_int_equal(told(&v), OK);
        assert_int_equal(v.keep, cases[i].keep);
    }
}

static void heads_end_exactly_at_their_limits(void **state)
{
    (void)state;
    static char in[20000];
    struct verdict v;
    /* header block: 16,384 bytes with the empty line are welcome, one more is not */
    for (size_t over = 0; over < 2; over++) {
        size_t n = (size_t)sprintf(in, R "X: ");
        size_t fill = 16384 - n - 4 + over;
        memset(in + n, 'v', fill);
        memcpy(in + n + fill, "\r\n\r\n", 4);
        read_whole(in, n + fill + 4, &v);
        assert_int_equal(told(&v), over ? 431 : OK);
        read_whole(in, n + fill, &v); /* not even ended */
        assert_int_equal(told(&v), MORE);
        memset(in + n, 'v', 17000);
        read_whole(in, n + 17000, &v);
        assert_int_equal(told(&v), 431);
    }
    /* request line: 8,192 bytes with CRLF */
    for (size_t over = 0; over < 2; over++) {
        size_t fill = 8192 - 15 + over;
        memcpy(in, "GET /", 5);
        memset(in + 5, 'p', fill - 1);
        memcpy(in + 4 + fill, " HTTP/1.1\r\nHost: h\r\n\r\n", 22);
        read_whole(in, 4 + fill + 22, &v);
        assert_int_equal(told(&v), over ? 414 : (int)OK);
    }
    /* fields */
    for (int fields = 100; fields <= 101; fields++) {
        size_t n = (size_t)sprintf(in, R);
        for (int i = 1; i < fields; i++)
            n += (size_t)sprintf(in + n, "X: y\r\n");
        n += (size_t)sprintf(in + n, "\r\n");
        read_whole(in, n, &v);
        assert_int_equal(told(&v), fields > 100 ? 431 : OK);
    }
    /* trailers have the same limits */
    size_t n = (size_t)sprintf(in, TE "0\r\n");
    for (int i = 0; i < 101; i++)
        n += (size_t)sprintf(in + n, "X: y\r\n");
    read_whole(in, n, &v);
    assert_int_equal(told(&v), 431);
    n = (size_t)sprintf(in, TE "0\r\nX: ");
    memset(in + n, 'v', 16385);
    read_whole(in, n + 16385, &v);
    assert_int_equal(told(&v), 431);
}

/* Values are read in blocks: no length and no place in them may hide a byte. */
static void a_byte_is_refused_wherever_it_stands_in_a_value(void **state)
{
    char in[160];
    struct verdict v;
    (void)state;
    for (size_t n = 1; n <= 50; n++)
        for (size_t at = 0; at < n; at++)
            for (unsigned byte = 0; byte < 256; byte++) {
                size_t from = (size_t)sprintf(in, "GET / HTTP/1.1\r\nHost: h\r\nX: a");
                memset(in + from, 'v', n);
                in[from + at] = (char)byte;
                memcpy(in + from + n, "z\r\n\r\n", 5);
                read_whole(in, from + n + 5, &v);
                bool fits = (byte >= 0x20 || byte == '\t') && byte != 0x7f;
                if ((v.err == ERR_OK) != fits)
                    fail_msg("byte %u at %zu of %zu", byte, at, n);
            }
}

static void escapes_are_decoded_or_refused(void **state)
{
    (void)state;
    char out[64];
    size_t n = 0;
    assert_int_equal(net_http_percent_decode(STR("a%2Fb%c3%A4+c"), false, out, &n), ERR_OK);
    assert_int_equal(n, 7);
    assert_memory_equal(out, "a/b\xc3\xa4+c", 7);
    assert_int_equal(net_http_percent_decode(STR("a+b"), true, out, &n), ERR_OK);
    assert_memory_equal(out, "a b", 3);
    assert_int_equal(net_http_percent_decode(STR("%4"), false, out, &n), ERR_SYNTAX);
    assert_int_equal(net_http_percent_decode(STR("%g0"), false, out, &n), ERR_SYNTAX);
    assert_int_equal(net_http_percent_decode(STR("%00"), false, out, &n), ERR_SYNTAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_of_the_table_gets_its_verdict),
        cmocka_unit_test(any_way_to_cut_the_bytes_gives_the_same_result),
        cmocka_unit_test(the_parts_of_a_request_are_found),
        cmocka_unit_test(connection_options_decide_about_keep_alive),
        cmocka_unit_test(heads_end_exactly_at_their_limits),
        cmocka_unit_test(a_byte_is_refused_wherever_it_stands_in_a_value),
        cmocka_unit_test(escapes_are_decoded_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
