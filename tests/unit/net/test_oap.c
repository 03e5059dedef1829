#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/rng.h"
#include "net/oap.h"
#include "ron/common.pb-c.h"

/* An Ack with capability "tok" and its answer, as the format page shows them. */
static const char request_hex[] =
    "0000003f00010019000402010000000000000000000000000000000000030000000000000001746f6b0a140a10"
    "0199d996c5e8709d80000000000000011001";
static const char answer_hex[] =
    "0000002b0001001200c8020100000000000000000000000000000000000000000000000000010a0308c801";

static struct bytes unhex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;
    assert_int_equal(hex_decode(str_from_c(hex), out, n), ERR_OK);
    return bytes_of(out, n);
}

static void the_published_frames_are_read_and_written(void **state)
{
    (void)state;
    uint8_t raw[128];
    struct net_oap_frame f;
    size_t used;
    const char *why;
    struct bytes in = unhex(request_hex, raw);
    assert_int_equal(net_oap_next(in, NET_OAP_FRAME_MAX, &f, &used, &why), ERR_OK);
    assert_int_equal(used, 63);
    assert_int_equal(f.head.flags, NET_OAP_REQ | NET_OAP_START | NET_OAP_END);
    assert_int_equal(f.head.code, 4);
    assert_int_equal(f.head.app, NET_OAP_MAILBOX);
    assert_int_equal(f.head.corr, 1);
    assert_true(str_eq(str_of_bytes(f.cap), STR("tok")));
    assert_int_equal(f.payload.n, 22);
    struct buf b;
    buf_init(&b, 1000);
    net_oap_put(&b, &f.head, f.cap, f.payload);
    assert_true(bytes_eq(buf_bytes(&b), in));
    buf_reset(&b);
    in = unhex(answer_hex, raw);
    assert_int_equal(net_oap_next(in, NET_OAP_FRAME_MAX, &f, &used, &why), ERR_OK);
    assert_int_equal(f.head.code, 200);
    net_oap_put(&b, &f.head, f.cap, f.payload);
    assert_true(bytes_eq(buf_bytes(&b), in));
    buf_fini(&b);
}

static void every_prefix_of_a_good_frame_asks_for_more_and_says_how_much(void **state)
{
    (void)state;
    uint8_t raw[128];
    struct bytes in = unhex(request_hex, raw);
    for (size_t n = 0; n < in.n; n++) {
        struct net_oap_frame f;
        size_t used = 0;
        const char *why;
        assert_int_equal(net_oap_next(bytes_of(raw, n), NET_OAP_FRAME_MAX, &f, &used, &why), ERR_EMPTY);
        assert_int_equal(used, n < NET_OAP_HEADER ? NET_OAP_HEADER : in.n);
    }
}

static void broken_headers_are_refused_before_their_frame_is_waited_for(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        const char *hex, *why;
    } rows[] = {
        {0, "00000025", "length"},    {0, "00000000", "length"}, {0, "00100001", "length"},
        {0, "ffffffff", "length"},    {4, "0000", "version"},    {4, "0002", "version"},
        {6, "0119", "flags"},         {6, "8019", "flags"},      {6, "0099", "flags"},
        {6, "0018", "one of"},        {6, "001b", "one of"},     {6, "001f", "one of"},
        {6, "0011", "without START"}, {28, "001a", "longer"},    {28, "ffff", "longer"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t raw[128], patch[8];
        struct net_oap_frame f;
        size_t used;
        const char *why = "";
        unhex(request_hex, raw);
        struct bytes p = unhex(rows[i].hex, patch);
        memcpy(raw + rows[i].at, p.p, p.n);
        assert_int_equal(net_oap_next(bytes_of(raw, NET_OAP_HEADER), NET_OAP_FRAME_MAX, &f, &used, &why),
                         ERR_SYNTAX);
        if (strstr(why, rows[i].why) == NULL)
            fail_msg("row %zu: %s", i, why);
        assert_int_equal(f.head.corr, 1);
        if (rows[i].at == 0) /* a bad length is known after four bytes */
            assert_int_equal(net_oap_next(bytes_of(raw, 4), NET_OAP_FRAME_MAX, &f, &used, &why),
                             ERR_SYNTAX);
    }
}

static void a_smaller_limit_holds(void **state)
{
    (void)state;
    uint8_t raw[128];
    struct net_oap_frame f;
    size_t used;
    const char *why;
    struct bytes in = unhex(request_hex, raw);
    assert_int_equal(net_oap_next(in, 63, &f, &used, &why), ERR_OK);
    assert_int_equal(net_oap_next(in, 62, &f, &used, &why), ERR_SYNTAX);
}

/* Feeds a stream in pieces through a growing buffer, as a connection does, and folds all frames into one
 * hash-like sum. */
static uint64_t digest_stream(const uint8_t *p, size_t n, struct rng *rng)
{
    struct buf b;
    uint64_t sum = 0;
    buf_init(&b, 2 * NET_OAP_FRAME_MAX);
    for (size_t at = 0; at < n;) {
        size_t piece = rng != NULL ? (size_t)rng_between(rng, 1, 97) : n;
        if (piece > n - at)
            piece = n - at;
        buf_put(&b, p + at, piece);
        at += piece;
        struct net_oap_frame f;
        size_t used;
        const char *why;
        while (net_oap_next(buf_bytes(&b), NET_OAP_FRAME_MAX, &f, &used, &why) == ERR_OK) {
            sum = sum * 31 + f.head.corr + f.head.flags;
            for (size_t i = 0; i < f.payload.n; i++)
                sum = sum * 31 + f.payload.p[i];
            buf_consume(&b, used);
        }
    }
    sum = sum * 31 + b.n;
    buf_fini(&b);
    return sum;
}

static void splits_of_the_stream_do_not_matter(void **state)
{
    (void)state;
    struct rng rng;
    struct buf stream;
    buf_init(&stream, 1 << 20);
    rng_seed(&rng, 7);
    for (uint64_t i = 0; i < 50; i++) {
        uint8_t payload[300];
        size_t n = (size_t)rng_below(&rng, sizeof payload);
        rng_bytes(&rng, payload, n);
        struct net_oap_head h = {.flags = NET_OAP_REQ | NET_OAP_START, .corr = i};
        net_oap_put(&stream, &h, bytes_of("token", i % 6), bytes_of(payload, n));
    }
    uint64_t whole = digest_stream(stream.p, stream.n, NULL);
    for (int i = 0; i < 100; i++)
        assert_int_equal(digest_stream(stream.p, stream.n, &rng), whole);
    buf_fini(&stream);
}

static void compression_round_trips_and_is_bounded(void **state)
{
    (void)state;
    struct buf small, big, out;
    buf_init(&small, 1 << 20);
    buf_init(&big, 1 << 24);
    buf_init(&out, NET_OAP_INFLATED_MAX + 1);
    assert_int_equal(net_oap_deflate(bytes_of("hello hello hello", 17), &small), ERR_OK);
    assert_int_equal(net_oap_inflate(buf_bytes(&small), 100, &out), ERR_OK);
    assert_true(str_eq(buf_str(&out), STR("hello hello hello")));
    buf_reset(&out);
    assert_int_equal(net_oap_inflate(buf_bytes(&small), 16, &out), ERR_TOO_LARGE);
    buf_reset(&out);
    buf_putc(&small, 'x');
    assert_int_equal(net_oap_inflate(buf_bytes(&small), 100, &out), ERR_SYNTAX);
    assert_int_equal(net_oap_inflate(bytes_of("rubbish", 7), 100, &out), ERR_SYNTAX);
    assert_int_equal(net_oap_inflate(bytes_of("", 0), 100, &out), ERR_SYNTAX);
    /* Nine megabytes of zeros are a kilobyte on the wire. */
    uint8_t *zeros = calloc(1, 9 << 20);
    assert_non_null(zeros);
    assert_int_equal(net_oap_deflate(bytes_of(zeros, 9 << 20), &big), ERR_OK);
    assert_true(big.n < 4096);
    buf_reset(&out);
    assert_int_equal(net_oap_inflate(buf_bytes(&big), NET_OAP_INFLATED_MAX, &out), ERR_TOO_LARGE);
    buf_reset(&big);
    buf_reset(&out);
    assert_int_equal(net_oap_deflate(bytes_of(zeros, 8 << 20), &big), ERR_OK);
    assert_int_equal(net_oap_inflate(buf_bytes(&big), NET_OAP_INFLATED_MAX, &out), ERR_OK);
    assert_int_equal(out.n, 8 << 20);
    assert_int_not_equal(net_oap_inflate(bytes_of(big.p, big.n - 1), NET_OAP_INFLATED_MAX, &out), ERR_OK);
    free(zeros);
    buf_fini(&small);
    buf_fini(&big);
    buf_fini(&out);
}

static void problems_are_what_the_generated_code_reads_and_writes(void **state)
{
    (void)state;
    struct net_oap_problem p = {.err = ERR_BUSY,
                                .detail = STR("work queue is full"),
                                .corr_id = STR("c-1"),
                                .details_json = STR("{\"reason\":\"queue\"}"),
                                .retry_after_s = 300,
                                .extra = bytes_of("\x08\x01", 2)};
    struct buf b;
    buf_init(&b, 4096);
    net_oap_problem_put(&b, &p);
    Ron__Problem *g = ron__problem__unpack(NULL, b.n, b.p);
    assert_non_null(g);
    assert_string_equal(g->code, "busy");
    assert_int_equal(g->status, 429);
    assert_string_equal(g->detail, "work queue is full");
    assert_true(g->retryable);
    assert_string_equal(g->corr_id, "c-1");
    assert_string_equal(g->details, "{\"reason\":\"queue\"}");
    assert_int_equal(g->retry_after, 300);
    assert_int_equal(g->extra.len, 2);
    uint8_t packed[512];
    assert_int_equal(ron__problem__pack(g, packed), b.n);
    assert_memory_equal(packed, b.p, b.n);
    struct net_oap_problem_view v;
    assert_int_equal(net_oap_problem_get(bytes_of(packed, b.n), &v), ERR_OK);
    assert_true(str_eq(v.code, STR("busy")));
    assert_int_equal(v.status, 429);
    assert_true(v.retryable);
    assert_int_equal(v.retry_after_s, 300);
    assert_true(str_eq(v.details_json, p.details_json));
    for (size_t n = 1; n < b.n; n++) /* never beyond the end, whatever the cut */
        (void)!net_oap_problem_get(bytes_of(packed, n), &v);
    ron__problem__free_unpacked(g, NULL);
    buf_fini(&b);
}

static void busy_and_unavailable_problems_say_when_to_come_back(void **state)
{
    (void)state;
    static const struct {
        enum err err;
        uint32_t retry_after_s;
    } rows[] = {{ERR_BUSY, 1}, {ERR_DRAINING, 1}, {ERR_FORBIDDEN, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t raw[256];
        struct buf b;
        struct net_oap_problem_view v;
        buf_init_fixed(&b, raw, sizeof raw);
        net_oap_problem_put(&b, &(struct net_oap_problem){.err = rows[i].err});
        assert_int_equal(net_oap_problem_get(buf_bytes(&b), &v), ERR_OK);
        assert_int_equal(v.retry_after_s, rows[i].retry_after_s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_frames_are_read_and_written),
        cmocka_unit_test(every_prefix_of_a_good_frame_asks_for_more_and_says_how_much),
        cmocka_unit_test(broken_headers_are_refused_before_their_frame_is_waited_for),
        cmocka_unit_test(a_smaller_limit_holds),
        cmocka_unit_test(splits_of_the_stream_do_not_matter),
        cmocka_unit_test(compression_round_trips_and_is_bounded),
        cmocka_unit_test(problems_are_what_the_generated_code_reads_and_writes),
        cmocka_unit_test(busy_and_unavailable_problems_say_when_to_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
