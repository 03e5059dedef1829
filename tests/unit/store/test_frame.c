#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/crc32c.h"
#include "base/hex.h"
#include "store/disk.h"
#include "store/frame.h"

static const struct store_layout ledger = {.align = 4096, .segment_bytes = 1 << 20};
static const struct store_layout mailbox = {
    .align = 4096, .segment_bytes = 1 << 20, .count_zero_sectors = true, .crc_at_end = true};

static struct sha256 hash(const char *hex)
{
    struct sha256 h;
    assert_int_equal(hex_decode(str_from_c(hex), h.b, 32), ERR_OK);
    return h;
}

static void put_hex(struct buf *b, const char *hex)
{
    uint8_t bytes[64];
    size_t n = strlen(hex) / 2;
    assert_int_equal(hex_decode(str_from_c(hex), bytes, n), ERR_OK);
    buf_put(b, bytes, n);
}

static void put_le(struct buf *b, uint64_t v, size_t n)
{
    uint8_t p[8];
    le64_put(p, v);
    buf_put(b, p, n);
}

static void assert_bytes(const uint8_t *p, const char *hex)
{
    uint8_t want[64];
    size_t n = strlen(hex) / 2;
    assert_int_equal(hex_decode(str_from_c(hex), want, n), ERR_OK);
    assert_memory_equal(p, want, n);
}

static void assert_sha(const uint8_t *p, size_t n, const char *hex)
{
    struct sha256 got, want = hash(hex);
    sha256_of(p, n, &got);
    assert_memory_equal(got.b, want.b, 32);
}

/* A ledger unit record with one leaf, made by token 0011223344556677 of key k1. */
static void put_unit(struct buf *b, const char *idem, const char *meta, const char *fp, const char *leaf)
{
    size_t idem_n = strlen(idem), meta_n = strlen(meta), leaf_n = strlen(leaf);
    put_le(b, 52 + idem_n + 2 + meta_n + 2 + leaf_n, 4);
    put_le(b, 1, 2);
    put_le(b, idem_n, 1);
    put_le(b, 2, 1);
    put_le(b, meta_n, 2);
    put_le(b, 0, 2);
    put_hex(b, "0011223344556677");
    put_hex(b, fp);
    buf_printf(b, "%sk1%s", idem, meta);
    buf_putc(b, (char)(leaf_n >> 8));
    buf_putc(b, (char)leaf_n);
    buf_puts(b, leaf);
}

static const char leaf_a[] =
    "{\"account\":\"acct:alice\",\"amount\":\"1000\",\"asset\":\"ron\",\"id\":\"demo-1\",\"kind\":\"mint\","
    "\"ts\":1760000000000,\"unit\":\"sha256:"
    "285df40c053867a68ac306f223b407967f88b40b41f613501d85bbe02ad154d7\",\"v\":1}";
static const char leaf_b[] =
    "{\"account\":\"acct:alice\",\"amount\":\"250\",\"asset\":\"ron\",\"id\":\"demo-2\",\"kind\":"
    "\"transfer\",\"nonce\":\"1\","
    "\"to\":\"acct:shop\",\"ts\":1760000000500,"
    "\"unit\":\"sha256:8394f14fbf5c1b66b5659f2f682b0976f863db631242581f8e28e939a48d5ce0\",\"v\":1}";
static const char leaf_c[] =
    "{\"account\":\"acct:alice\",\"amount\":\"100\",\"asset\":\"ron\",\"hold_until\":1760000600000,\"id\":"
    "\"demo-3\","
    "\"kind\":\"hold\",\"nonce\":\"281474976710657\",\"ts\":1760000001000,"
    "\"unit\":\"sha256:bac70ea7fcd26764b4626f6385a5ec23c7d5d35d642f4ca0f4b71088f6e4ad2b\",\"v\":1}";

static void ledger_frames_match_their_vectors_byte_for_byte(void **state)
{
    (void)state;
    uint8_t out[4096];
    struct buf b;
    buf_init(&b, 4096);
    put_unit(&b, "demo:mint:1", "", "c0966dba37c52a88fa3280894d8deaa9c47b5d5d8b3e67fba74db43ec3bcbba7",
             leaf_a);
    assert_int_equal(b.n, 255);
    struct store_frame f = {
        .group_no = 1, .first_seq = 1, .count = 1, .count2 = 1, .ms = 1760000000123, .epoch = 1};
    sha256_of("", 0, &f.prev_root);
    f.new_root = hash("bc059994155caf5c5c994872c71c4be72640fcb1b2901d0d389372bd67321f06");
    struct bytes payload = buf_bytes(&b);
    assert_int_equal(store_frame_len(&ledger, payload.n), 4096);
    memset(out, 0xaa, sizeof out);
    store_frame_encode(&ledger, &f, &payload, 1, out);
    assert_bytes(out + 120, "5011d91d");
    assert_bytes(out + 4080, "0100000000000000c8116eed524c4645");
    assert_sha(out, 4096, "67c73d220bc8dabaf0d6bf2d8b45cf4467229cd9730c6a9f9d57ff3a9414d446");

    buf_reset(&b);
    put_unit(&b, "demo:pay:1", "", "bfe141d1e710c45828f5264abb7cb403427719101478d1d1df19cfefe19de8cd",
             leaf_b);
    struct bytes parts[2] = {{0}, {0}};
    size_t first_n = b.n;
    put_unit(&b, "demo:hold:1",
             "aGVsbG8=", "33ba7434387d3bb7a08f5129331ca2d2d12e615d9e3013d33b0bdaeeb5d3f315", leaf_c);
    assert_int_equal(b.n, 601);
    parts[0] = bytes_of(b.p, first_n);
    parts[1] = bytes_of(b.p + first_n, b.n - first_n);
    f = (struct store_frame){
        .group_no = 2, .first_seq = 2, .count = 2, .count2 = 2, .ms = 1760000001234, .epoch = 1};
    f.prev_root = hash("bc059994155caf5c5c994872c71c4be72640fcb1b2901d0d389372bd67321f06");
    f.new_root = hash("5b47952d6d560d938edb107a7980f1f3b6c9b7d3f6c43c20d4252dd21cb7185e");
    store_frame_encode(&ledger, &f, parts, 2, out);
    assert_bytes(out + 120, "5bacad2c");
    assert_bytes(out + 4080, "0200000000000000c8a86ea8524c4645");
    assert_sha(out, 4096, "6bb9ef486ce510a5f3f91f2daa3b780ee79ebe908ea9d2c345c3c068282ecf12");
    buf_fini(&b);
}

/* A mailbox record: length, CRC, type, version 1, n 1, topic 1, body, padding to 8. */
static void put_record(struct buf *b, uint8_t type, struct bytes body)
{
    uint8_t p[512] = {0};
    size_t n = (16 + body.n + 7) / 8 * 8;
    le32_put(p, (uint32_t)n);
    p[8] = type;
    p[9] = 1;
    le16_put(p + 10, 1);
    le32_put(p + 12, 1);
    memcpy(p + 16, body.p, body.n);
    le32_put(p + 4, crc32c(0, p + 8, n - 8));
    buf_put(b, p, n);
}

static void put_mailbox_payload(struct buf *payload)
{
    static const char chain_0[] = "2ef8e07f48f999a73facedf6d8de4c6fdfb51d9161cc8c80986e087a13ab4fc7";
    static const char chain_1[] = "df60d38678347140169678e1e5effafeb40c9542f1ff446a00b233a78cc09701";
    static const uint8_t attrs[] = "\0\0\0\1\0\0\0\14content-type\0\0\0\20application/json";
    uint64_t ms = 1760292161000;
    struct buf b;
    buf_init(&b, 1024);
    put_hex(&b, "0199d996c5e87c3e9b0a51d2f0c3a8e7");
    put_le(&b, ms, 8);
    put_le(&b, 0, 8);
    put_hex(&b, chain_0);
    put_le(&b, 13, 2);
    buf_puts(&b, "user:42:inbox");
    put_record(payload, 1, buf_bytes(&b));
    buf_reset(&b);
    put_hex(&b, "0199d996c5e8709d8000000000000001");
    put_le(&b, 1, 8);
    put_le(&b, ms, 8);
    put_le(&b, 0, 8);
    put_hex(&b, "cf5f5780928ea38bd40ce1722a085b33989d8dc265ead09aaa0a1e7def576a42");
    put_hex(&b, chain_0);
    put_hex(&b, chain_1);
    put_le(&b, 16, 4);
    put_le(&b, sizeof attrs - 1, 4);
    put_le(&b, 19, 2);
    put_le(&b, 36, 2);
    put_le(&b, 0, 4);
    buf_puts(&b, "email-2025-10-12-01");
    buf_puts(&b, "0199d996-c5e8-7c3e-9b0a-51d2f0c3a8e7");
    buf_put(&b, attrs, sizeof attrs - 1);
    buf_puts(&b, "{\"subject\":\"Hi\"}");
    put_record(payload, 2, buf_bytes(&b));
    buf_fini(&b);
}

static void mailbox_frame_matches_its_vector_byte_for_byte(void **state)
{
    (void)state;
    uint8_t out[4096];
    struct buf b;
    buf_init(&b, 4096);
    put_mailbox_payload(&b);
    assert_int_equal(b.n, 376);
    struct store_frame f = {
        .group_no = 1, .first_seq = 1, .count = 2, .count2 = 1, .ms = 1760292161000, .epoch = 1};
    f.new_root = hash("2b79a51465dbd931c5f0f70478974d1edb47ed42cf08a060d981ba216a168743");
    struct bytes payload = buf_bytes(&b);
    store_frame_encode(&mailbox, &f, &payload, 1, out);
    assert_bytes(out + 120, "8417e371");
    assert_bytes(out + 4080, "0100000000000000b8e62a72524c4645");
    assert_sha(out, 4096, "b92970350a529f4618a6f56a4982a2e4a9504fa65802a2b371898c6864a833a5");
    buf_fini(&b);
}

static void make_frame(const struct store_layout *l, size_t n, uint8_t fill, uint8_t *out)
{
    uint8_t payload[8192];
    memset(payload, fill, sizeof payload);
    struct bytes part = {payload, n};
    struct store_frame f = {.group_no = 7, .first_seq = 40, .count = 3, .count2 = 2, .ms = 99, .epoch = 5};
    memset(f.prev_root.b, 1, 32);
    memset(f.new_root.b, 2, 32);
    store_frame_encode(l, &f, &part, 1, out);
}

static void a_frame_decodes_to_what_was_encoded(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 367, 368, 369, 512, 3952, 3953, 8000};
    static const uint32_t aligns[] = {512, 4096};
    for (size_t a = 0; a < 2; a++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct store_layout l = {.align = aligns[a], .segment_bytes = 1 << 16};
            uint8_t out[12288];
            struct store_frame f;
            make_frame(&l, sizes[i], 'x', out);
            uint32_t len = store_frame_len(&l, sizes[i]);
            assert_int_equal(len % aligns[a], 0);
            assert_true(len >= 144 + sizes[i] && len < 144 + sizes[i] + aligns[a]);
            assert_int_equal(store_frame_decode(&l, out, len, &f), ERR_OK);
            assert_int_equal(f.group_no, 7);
            assert_int_equal(f.first_seq, 40);
            assert_int_equal(f.count, 3);
            assert_int_equal(f.count2, 2);
            assert_int_equal(f.ms, 99);
            assert_int_equal(f.epoch, 5);
            assert_int_equal(f.payload.n, sizes[i]);
            assert_int_equal(f.new_root.b[31], 2);
        }
    assert_int_equal(store_frame_len(&ledger, store_frame_payload_max(&ledger)), (1 << 20) - 4096);
    assert_int_equal(store_frame_len(&ledger, store_frame_payload_max(&ledger) + 1u), 0);
}

static void every_single_bit_flip_of_a_frame_is_detected_and_none_looks_torn(void **state)
{
    (void)state;
    struct store_layout layouts[] = {ledger, mailbox, {.align = 512, .segment_bytes = 1 << 16}};
    for (size_t i = 0; i < 3; i++) {
        uint8_t p[8192];
        make_frame(&layouts[i], 1000, 'y', p);
        uint32_t len = store_frame_len(&layouts[i], 1000), peeked;
        uint64_t group;
        struct store_frame f;
        for (uint32_t bit = 0; bit < len * 8; bit++) {
            p[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            assert_int_not_equal(store_frame_decode(&layouts[i], p, len, &f), ERR_OK);
            if (store_frame_peek(&layouts[i], p, &peeked, &group) == ERR_OK)
                assert_false(store_frame_incomplete(&layouts[i], p, len));
            p[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        }
        assert_int_equal(store_frame_decode(&layouts[i], p, len, &f), ERR_OK);
    }
}

static void every_single_bit_flip_of_a_segment_header_is_detected(void **state)
{
    (void)state;
    const struct store_layout *layouts[] = {&ledger, &mailbox};
    for (size_t i = 0; i < 2; i++) {
        uint8_t p[STORE_SEGMENT_HEADER];
        struct store_segment_header h = {.segment_no = 3,
                                         .first_seq = 9,
                                         .first_group = 4,
                                         .epoch = 1,
                                         .created_ms = 5},
                                    got;
        memset(h.stream_id, 0xee, 16);
        store_segment_encode(layouts[i], &h, p);
        assert_int_equal(store_segment_decode(layouts[i], p, &got), ERR_OK);
        assert_int_equal(got.segment_no, 3);
        assert_int_equal(got.first_group, 4);
        assert_memory_equal(got.stream_id, h.stream_id, 16);
        for (uint32_t bit = 0; bit < sizeof p * 8; bit++) {
            p[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            assert_int_not_equal(store_segment_decode(layouts[i], p, &got), ERR_OK);
            assert_false(store_segment_incomplete(layouts[i], p));
            p[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        }
    }
}

/* Every way to lose sectors of a write into zeros: valid (only padding was lost), or visibly incomplete. */
static void every_subset_of_sectors_is_valid_or_visibly_incomplete(void **state)
{
    (void)state;
    struct store_layout layouts[] = {ledger, mailbox, {.align = 512, .segment_bytes = 1 << 16}};
    for (size_t i = 0; i < 3; i++) {
        uint8_t whole[4096], p[4096];
        make_frame(&layouts[i], 1500, 'z', whole);
        uint32_t len = store_frame_len(&layouts[i], 1500), sectors = len / 512, peeked;
        uint64_t group;
        struct store_frame f;
        for (uint32_t kept = 0; kept < 1u << sectors; kept++) {
            for (uint32_t s = 0; s < sectors; s++) {
                if (kept & (1u << s))
                    memcpy(p + s * 512, whole + s * 512, 512);
                else
                    memset(p + s * 512, 0, 512);
            }
            if (store_frame_decode(&layouts[i], p, len, &f) == ERR_OK)
                assert_memory_equal(p, whole, len);
            else if (kept & 1)
                assert_true(store_frame_peek(&layouts[i], p, &peeked, &group) == ERR_OK &&
                            store_frame_incomplete(&layouts[i], p, len));
            else
                assert_true(store_is_zero(p, 512));
        }
    }
}

static void sectors_that_are_zero_by_content_are_counted_and_do_not_look_lost(void **state)
{
    (void)state;
    uint8_t p[8192];
    make_frame(&mailbox, 4000, 0, p);
    uint32_t len = store_frame_len(&mailbox, 4000);
    assert_int_equal(len, 8192);
    /* 128 + 4000 bytes touch sectors 0..8; the header's is not zero. */
    assert_int_equal(le16_get(p + 14), 8);
    struct store_frame f;
    assert_int_equal(store_frame_decode(&mailbox, p, len, &f), ERR_OK);
    p[5000] ^= 1; /* padding: damaged, but nothing is missing */
    assert_int_not_equal(store_frame_decode(&mailbox, p, len, &f), ERR_OK);
    assert_false(store_frame_incomplete(&mailbox, p, len));
    p[5000] ^= 1;
    memset(p + 7680, 0, 512); /* the trailer's sector was not written */
    assert_true(store_frame_incomplete(&mailbox, p, len));
}

static void a_newer_version_is_not_called_corruption(void **state)
{
    (void)state;
    uint8_t p[STORE_SEGMENT_HEADER];
    struct store_segment_header h = {.segment_no = 1}, got;
    store_segment_encode(&ledger, &h, p);
    le32_put(p + 8, 2);
    le32_put(p + 104, crc32c(0, p, 104));
    assert_int_equal(store_segment_decode(&ledger, p, &got), ERR_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ledger_frames_match_their_vectors_byte_for_byte),
        cmocka_unit_test(mailbox_frame_matches_its_vector_byte_for_byte),
        cmocka_unit_test(a_frame_decodes_to_what_was_encoded),
        cmocka_unit_test(every_single_bit_flip_of_a_frame_is_detected_and_none_looks_torn),
        cmocka_unit_test(every_single_bit_flip_of_a_segment_header_is_detected),
        cmocka_unit_test(every_subset_of_sectors_is_valid_or_visibly_incomplete),
        cmocka_unit_test(sectors_that_are_zero_by_content_are_counted_and_do_not_look_lost),
        cmocka_unit_test(a_newer_version_is_not_called_corruption),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
