/*
 * What goes sixteen or eight bytes at a time says the same as what goes byte by byte, at every alignment and for every length
 * around those steps, and touches no byte that is not its own: input and output end where a page ends that may not be touched.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/json_read.h"
#include "seed.h"

enum { LONGEST = 100, ROUNDS = 20 };

/* A page behind which there is nothing. */
static uint8_t *page_end(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + page, page, PROT_NONE), 0);
    return p + page;
}

static void page_free(uint8_t *end)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap(end - page, 2 * page);
}

/* ---- base64, one digit at a time ---- */

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static size_t slow_encode(const uint8_t *b, size_t n, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t o = 0;
    for (size_t bit = 0; bit < n * 8; bit += 6) {
        unsigned v = 0;
        for (size_t k = bit; k < bit + 6; k++)
            v = v << 1 | (k < n * 8 ? b[k / 8] >> (7 - k % 8) & 1u : 0);
        out[o++] = digits[v];
    }
    while (o % 4)
        out[o++] = '=';
    return o;
}

/* The bytes, or SIZE_MAX. */
static size_t slow_decode(const char *p, size_t n, uint8_t *out)
{
    size_t digits = n, o = 0;
    unsigned w = 0, bits = 0;
    if (n % 4)
        return SIZE_MAX;
    while (digits && n - digits < 2 && p[digits - 1] == '=')
        digits--;
    for (size_t i = 0; i < digits; i++) {
        int v = digit_of(p[i]);
        if (v < 0)
            return SIZE_MAX;
        w = (w << 6 | (unsigned)v) & 0xffff;
        if ((bits += 6) >= 8)
            out[o++] = (uint8_t)(w >> (bits -= 8));
    }
    return w & ((1u << bits) - 1) ? SIZE_MAX : o; /* bits that mean nothing: a second spelling */
}

/* Bytes of one round: any, all alike, or near one another. */
static void any_bytes(struct rng *r, uint8_t *p, size_t n)
{
    uint64_t kind = rng_below(r, 3), base = rng_below(r, 256);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(kind == 0 ? rng_below(r, 256) : kind == 1 ? base : base + i);
}

static void base64_is_what_the_slow_one_says_at_every_length_and_alignment(void **state)
{
    (void)state;
    struct rng r = seed_rng("base64");
    uint8_t *in_end = page_end(), *out_end = page_end(), bytes[LONGEST];
    char want[LONGEST * 2];
    for (size_t n = 0; n <= LONGEST; n++)
        for (size_t shift = 0; shift < 16;
             shift++) /* before the page's end: every alignment, and none to spare at 0 */
            for (int round = 0; round < ROUNDS; round++) {
                any_bytes(&r, bytes, n);
                size_t chars = slow_encode(bytes, n, want), got_n = 999;
                uint8_t *in = in_end - n - shift;
                memcpy(in, bytes, n);
                char *text = (char *)out_end - chars - 1 - shift; /* it is terminated */
                assert_int_equal(base64_encode(in, n, text), chars);
                assert_memory_equal(text, want, chars);
                assert_int_equal(text[chars], 0);

                char *digits = (char *)in_end - chars - shift;
                memcpy(digits, want, chars);
                uint8_t *back = out_end - n - shift, canary = (uint8_t)(round | 1);
                memset(out_end - shift, canary, shift);
                assert_int_equal(base64_decode(str_of(digits, chars), back, n, &got_n), ERR_OK);
                assert_int_equal(got_n, n);
                assert_memory_equal(back, bytes, n);
                for (size_t i = 0; i < shift; i++)
                    assert_int_equal(out_end[-1 - (ptrdiff_t)i], canary);
            }
    page_free(in_end);
    page_free(out_end);
}

static void base64_refuses_what_the_slow_one_refuses(void **state)
{
    (void)state;
    struct rng r = seed_rng("base64 wrong");
    uint8_t *in_end = page_end(), *out_end = page_end(), bytes[LONGEST], want[LONGEST + 3];
    char text[LONGEST * 2];
    unsigned refused = 0, taken = 0;
    for (int round = 0; round < 150000; round++) {
        size_t n = rng_below(&r, LONGEST + 1);
        any_bytes(&r, bytes, n);
        size_t chars = slow_encode(bytes, n, text);
        if (chars && rng_below(&r, 4)) /* one byte of it is any byte, more often a near miss */
            text[rng_below(&r, chars)] =
                rng_below(&r, 2) ? (char)rng_below(&r, 256) : "=-_/+09AZaz@[`{:,"[rng_below(&r, 17)];
        char *digits = (char *)in_end - chars;
        memcpy(digits, text, chars);
        size_t should = slow_decode(text, chars, want), got_n = 0;
        size_t room = should == SIZE_MAX ? chars / 4 * 3 : should;
        enum err e = base64_decode(str_of(digits, chars), out_end - room, room, &got_n);
        if (should == SIZE_MAX) {
            assert_int_equal(e, ERR_SYNTAX);
            refused++;
        } else {
            assert_int_equal(e, ERR_OK);
            assert_int_equal(got_n, should);
            assert_memory_equal(out_end - room, want, should);
            taken++;
        }
    }
    assert_true(refused > 1000 && taken > 1000);
    page_free(in_end);
    page_free(out_end);
}

/* ---- strings ---- */

struct holder {
    struct str text;
};
static const struct json_field holder_fields[] = {JSON_REQ(struct holder, text, JSON_KIND_STR), JSON_END};

/* Runs of plain letters, so that whole steps are plain, with now and then something that is not. */
static size_t any_string(struct rng *r, uint8_t *out, size_t max)
{
    static const char *const pieces[] = {"\"",      "\\\"",
                                         "\\\\",    "\\n",
                                         "\\u00e9", "\\ud83d\\ude00",
                                         "\\ud83d", "\\x",
                                         "\\",      "\n",
                                         "\x01",    "\x1f",
                                         "\x7f",    "\xc3\xa9",
                                         "\xc3",    "\xe2\x82\xac",
                                         "\x80",    "\xf0\x9f\x98\x80",
                                         "\xff",    " ",
                                         "!",       "#",
                                         "[",       "]",
                                         "\\u0000"};
    size_t n = 0, count = rng_below(r, 4);
    for (size_t i = 0; i <= count; i++) {
        for (uint64_t run = rng_below(r, 40); run && n < max; run--)
            out[n++] = (uint8_t)('a' + rng_below(r, 26));
        const char *piece = pieces[rng_below(r, sizeof pieces / sizeof pieces[0])];
        if (i < count && n + strlen(piece) <= max) {
            memcpy(out + n, piece, strlen(piece));
            n += strlen(piece);
        }
    }
    return n;
}

static void strings_are_what_a_reader_of_single_bytes_says(void **state)
{
    (void)state;
    struct rng r = seed_rng("json strings");
    struct arena arena;
    uint8_t *end = page_end();
    unsigned refused = 0, taken = 0;
    arena_init(&arena, 4096, 1 << 20);
    for (int round = 0; round < 120000; round++) {
        uint8_t text[256];
        size_t n = 0;
        arena_reset(&arena);
        memcpy(text, "{\"text\":\"", 9);
        n = 9 + any_string(&r, text + 9, 200);
        bool whole = rng_below(&r, 16);
        if (whole) {
            text[n++] = '"';
            text[n++] = '}';
        }
        size_t shift = rng_below(&r, 33);
        uint8_t *at = end - n - shift;
        memcpy(at, text, n);
        struct holder out;
        struct json_error why;
        json_error_t e;
        enum err ours = json_read_dto(bytes_of(at, n), holder_fields, &out, &arena, &why);
        json_t *tree = json_loadb((const char *)text, n, JSON_REJECT_DUPLICATES, &e);
        json_t *value = json_object_get(tree, "text");
        if (!tree) {
            if (ours == ERR_OK)
                fail_msg("taken, and %s: %.*s", e.text, (int)n, text);
            refused++;
        } else {
            if (ours != ERR_OK)
                fail_msg("refused (%s at %zu): %.*s", json_reason_name(why.reason), why.offset, (int)n,
                         text);
            assert_int_equal(out.text.n, json_string_length(value));
            assert_memory_equal(out.text.p, json_string_value(value), out.text.n);
            taken++;
        }
        json_decref(tree);
    }
    assert_true(refused > 1000 && taken > 1000);
    arena_fini(&arena);
    page_free(end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_is_what_the_slow_one_says_at_every_length_and_alignment),
        cmocka_unit_test(base64_refuses_what_the_slow_one_refuses),
        cmocka_unit_test(strings_are_what_a_reader_of_single_bytes_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
