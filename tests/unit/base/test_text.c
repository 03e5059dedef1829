#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include <ctype.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/hex.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/time_fmt.h"
#include "base/uuid.h"

static void integers_have_a_fixed_byte_order(void **state)
{
    (void)state;
    uint8_t b[16];
    be32_put(b, 0x01020304);
    assert_memory_equal(b, "\1\2\3\4", 4);
    assert_int_equal(be32_get(b), 0x01020304);
    assert_int_equal(le32_get(b), 0x04030201);
    le16_put(b, 0xff01);
    assert_memory_equal(b, "\1\xff", 2);
    assert_int_equal(be16_get(b), 0x01ff);
    be128_put(b, (unsigned __int128)1 << 120 | 2);
    assert_int_equal(b[0], 1);
    assert_int_equal(b[15], 2);
    assert_true(be128_get(b) == ((unsigned __int128)1 << 120 | 2));
    le64_put(b, 0x1122334455667788u);
    assert_int_equal(be64_get(b), 0x8877665544332211u);
}

static void views_compare_by_bytes(void **state)
{
    (void)state;
    assert_true(str_eq(STR("abc"), str_of("abcd", 3)));
    assert_true(str_eq((struct str){NULL, 0}, STR("")));
    assert_true(str_starts(STR("abc"), STR("ab")));
    assert_false(str_starts(STR("ab"), STR("abc")));
    assert_true(str_ends(STR("abc"), STR("bc")));
    assert_true(str_cmp(STR("ab"), STR("abc")) < 0);
    assert_true(str_cmp(STR("b"), STR("abc")) > 0);
    assert_true(bytes_eq_secret(bytes_of("xy", 2), bytes_of("xy", 2)));
    assert_false(bytes_eq_secret(bytes_of("xy", 2), bytes_of("xz", 2)));
    struct str head, rest = str_cut(STR("k=v=w"), '=', &head);
    assert_true(str_eq(head, STR("k")));
    assert_true(str_eq(rest, STR("v=w")));
    assert_null(str_cut(STR("none"), '=', &head).p);
    assert_true(str_eq(str_trim(STR(" \tx y ")), STR("x y")));
    assert_true(str_match_tail(STR("acct:shop-*"), STR("acct:shop-7")));
    assert_false(str_match_tail(STR("acct:shop-"), STR("acct:shop-7")));
}

static void numbers_durations_and_sizes_have_one_spelling(void **state)
{
    (void)state;
    uint64_t u = 9;
    int64_t i = 9;
    assert_int_equal(str_parse_u64(STR("18446744073709551615"), &u), ERR_OK);
    assert_true(u == UINT64_MAX);
    assert_int_equal(str_parse_u64(STR("18446744073709551616"), &u), ERR_RANGE);
    assert_int_equal(str_parse_u64(STR("01"), &u), ERR_SYNTAX);
    assert_int_equal(str_parse_i64(STR("-9223372036854775808"), &i), ERR_OK);
    assert_true(i == INT64_MIN);
    assert_int_equal(str_parse_i64(STR("9223372036854775808"), &i), ERR_RANGE);
    assert_int_equal(str_parse_i64(STR("-0"), &i), ERR_SYNTAX);
    static const struct {
        const char *text;
        int64_t ms;
    } durations[] = {{"250ms", 250},    {"5s", 5000},      {"1m", 60000},
                     {"24h", 86400000}, {"2d", 172800000}, {"0", 0}};
    for (size_t k = 0; k < sizeof durations / sizeof durations[0]; k++) {
        assert_int_equal(str_parse_duration_ms(str_from_c(durations[k].text), &i), ERR_OK);
        assert_int_equal(i, durations[k].ms);
    }
    static const char *const bad[] = {"", "5", "s", "5 s", "-5s", "5S", "1.5s", "05s", "5sec"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        assert_int_equal(str_parse_duration_ms(str_from_c(bad[k]), &i), ERR_SYNTAX);
    assert_int_equal(str_parse_duration_ms(STR("99999999999999d"), &i), ERR_RANGE);
    assert_int_equal(str_parse_size(STR("64KiB"), &u), ERR_OK);
    assert_int_equal(u, 65536);
    assert_int_equal(str_parse_size(STR("64KB"), &u), ERR_SYNTAX);
    assert_int_equal(str_parse_size(STR("99999999TiB"), &u), ERR_RANGE);
    char text[STR_NUMBER_CHARS];
    str_format_duration_ms(90000, text);
    assert_string_equal(text, "90s");
    str_format_duration_ms(1500, text);
    assert_string_equal(text, "1500ms");
    str_format_size(3u << 20, text);
    assert_string_equal(text, "3MiB");
    str_format_size(0, text);
    assert_string_equal(text, "0");
}

static void utf8_refuses_overlong_surrogates_and_stubs(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "plain ascii text longer than eight",
                                       "gr\xc3\xbc\xc3\x9f",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x98\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "\xed\x9f\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xc0\xaf",
                                      "\xc3",
                                      "\xe0\x80\xaf",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "12345678\xff",
                                      "\xe2\x82",
                                      "\xe2\x28\xa1"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(str_utf8_valid(str_from_c(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(str_utf8_valid(str_from_c(bad[i])));
}

static void accounts_and_assets_follow_their_alphabets(void **state)
{
    (void)state;
    assert_true(str_is_account(STR("acct:alice/sub.x_y-1")));
    assert_false(str_is_account(STR("")));
    assert_false(str_is_account(STR("a b")));
    assert_false(str_is_account(str_of("a\0b", 3)));
    assert_true(str_is_asset(STR("ron")));
    assert_false(str_is_asset(STR(".ron")));
    assert_false(str_is_asset(STR("a12345678901234567890123456789012")));
}

/* Lengths on both sides of every step the wide code takes, against a decoder that knows one digit at a time. */
static void base64_of_every_length_comes_back_also_in_place(void **state)
{
    (void)state;
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t bytes[200], back[200];
    char text[300];
    for (size_t len = 0; len <= sizeof bytes; len++) {
        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)(i * 37 + len * 11);
        size_t chars = base64_encode(bytes, len, text), n = 999;
        assert_int_equal(chars, base64_encoded_chars(len));
        assert_int_equal(strlen(text), chars);
        for (size_t i = 0; i < len * 8 / 6; i++) {
            size_t bit = i * 6;
            unsigned two = (unsigned)bytes[bit / 8] << 8 | (bit / 8 + 1 < len ? bytes[bit / 8 + 1] : 0);
            assert_int_equal(text[i], digits[two >> (10 - bit % 8) & 63]);
        }
        assert_int_equal(base64_decode(str_of(text, chars), back, len, &n), ERR_OK);
        assert_int_equal(n, len);
        assert_memory_equal(back, bytes, len);
        if (len > 0)
            assert_int_equal(base64_decode(str_of(text, chars), back, len - 1, &n), ERR_TOO_LARGE);
        assert_int_equal(base64_decode(str_of(text, chars), text, len, &n), ERR_OK);
        assert_memory_equal(text, bytes, len);
    }
}

static void base64_refuses_every_other_byte_at_every_place(void **state)
{
    (void)state;
    uint8_t out[64];
    char text[65];
    size_t n;
    for (size_t at = 0; at < 64; at++)
        for (unsigned c = 0; c < 256; c++) {
            memset(text, 'A', 64);
            text[at] = (char)c;
            bool digit = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                         c == '+' || c == '/';
            bool padding = c == '=' && at == 63;
            assert_int_equal(base64_decode(str_of(text, 64), out, sizeof out, &n),
                             digit || padding ? ERR_OK : ERR_SYNTAX);
        }
}

/* Every byte, as either digit, by the C library's word. */
static void a_byte_is_a_digit_or_refused(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++)
        for (int place = 0; place < 2; place++) {
            char two[3] = "00";
            uint8_t small = 0xee, any = 0xee;
            two[place] = (char)c;
            unsigned long want = strtoul(two, NULL, 16);
            enum err is_small = isxdigit(c) && !isupper(c) ? ERR_OK : ERR_SYNTAX,
                     is_any = isxdigit(c) ? ERR_OK : ERR_SYNTAX;
            assert_int_equal(hex_decode(str_of(two, 2), &small, 1), is_small);
            assert_int_equal(hex_decode_any_case(str_of(two, 2), &any, 1), is_any);
            assert_int_equal(small, is_small == ERR_OK ? want : 0xee); /* untouched when refused */
            assert_int_equal(any, is_any == ERR_OK ? want : 0xee);
        }
}

static void hex_and_base64_decode_only_what_they_encode(void **state)
{
    (void)state;
    uint8_t out[64] = {0};
    size_t n;
    char text[100];
    assert_int_equal(hex_decode(STR("00ff"), out, 2), ERR_OK);
    assert_int_equal(out[1], 255);
    assert_int_equal(hex_decode(STR("00FF"), out, 2), ERR_SYNTAX);
    assert_int_equal(hex_decode_any_case(STR("00FF"), out, 2), ERR_OK);
    assert_int_equal(hex_decode(STR("0"), out, 0), ERR_SYNTAX);
    static const char *const pairs[][3] = {{"", "", ""},
                                           {"f", "Zg==", "Zg"},
                                           {"fo", "Zm8=", "Zm8"},
                                           {"foo", "Zm9v", "Zm9v"},
                                           {"foob", "Zm9vYg==", "Zm9vYg"},
                                           {"\xfb\xff", "+/8=", "-_8"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        base64_encode(pairs[i][0], strlen(pairs[i][0]), text);
        assert_string_equal(text, pairs[i][1]);
        base64url_encode(pairs[i][0], strlen(pairs[i][0]), text);
        assert_string_equal(text, pairs[i][2]);
        assert_int_equal(base64_decode(str_from_c(pairs[i][1]), out, sizeof out, &n), ERR_OK);
        assert_int_equal(n, strlen(pairs[i][0]));
        assert_memory_equal(out, pairs[i][0], n);
        assert_int_equal(base64url_decode(str_from_c(pairs[i][2]), out, sizeof out, &n), ERR_OK);
        assert_memory_equal(out, pairs[i][0], n);
    }
    static const char *const bad[] = {
        "Zg", "Zg=", "Zh==", "Zo==", "Zm9=", "Z===", "====", "Zm9v\n", "Zm9v====", "Z=9v", "-_8="};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(base64_decode(str_from_c(bad[i]), out, sizeof out, &n), ERR_SYNTAX);
    assert_int_equal(base64_decode(STR("Zm9v"), out, 2, &n), ERR_TOO_LARGE);
}

static void hex_is_the_same_for_every_byte_length_and_position(void **state)
{
    (void)state;
    uint8_t in[37];
    char got[80], want[80];
    for (unsigned first = 0; first < 256; first++) {
        for (size_t i = 0; i < sizeof in; i++)
            in[i] = (uint8_t)(first + 73 * i);
        for (size_t n = 0; n <= sizeof in; n++) {
            memset(got, '#', sizeof got);
            want[0] = '\0';
            for (size_t i = 0; i < n; i++)
                snprintf(want + 2 * i, 3, "%02x", (unsigned)in[i]);
            hex_encode(in, n, got);
            assert_string_equal(got, want);
            assert_int_equal(got[2 * n + 1], '#');
        }
    }
}

static void uuid_v7_carries_its_time_and_reads_back(void **state)
{
    (void)state;
    struct clock_manual clock;
    clock_manual_init(&clock, 1645557742000);
    struct uuid a = uuid_v7_now(&clock.clock), b = uuid_v7_now(&clock.clock), back;
    assert_memory_not_equal(a.b, b.b, 16);
    char text[UUID_CHARS];
    uuid_format(&a, text);
    assert_memory_equal(text, "017f22e2-79b0-7", 15);
    assert_int_equal(uuid_v7_wall_ms(&a), 1645557742000);
    assert_int_equal(uuid_parse(str_from_c(text), &back), ERR_OK);
    assert_memory_equal(a.b, back.b, 16);
    assert_int_equal(uuid_parse(STR("017f22e2-79b0-7cc3-98c4-dc0c0c07398f"), &back), ERR_OK);
    uuid_format(&back, text);
    assert_string_equal(text, "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
    assert_int_equal(uuid_parse(STR("017F22E2-79B0-7CC3-98C4-DC0C0C07398F"), &back), ERR_SYNTAX);
    assert_int_equal(uuid_parse(STR("017f22e279b07cc398c4dc0c0c07398f0000"), &back), ERR_SYNTAX);
}

static void wall_time_reads_and_writes_rfc_3339(void **state)
{
    (void)state;
    char text[TIME_FMT_CHARS];
    time_format_ms(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    time_format_ms(-1, text);
    assert_string_equal(text, "1969-12-31T23:59:59.999Z");
    time_format_ms(INT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
    int64_t ms;
    assert_int_equal(time_parse_ms(STR("2026-12-01T00:00:00Z"), &ms), ERR_OK);
    time_format_ms(ms, text);
    assert_string_equal(text, "2026-12-01T00:00:00.000Z");
    assert_int_equal(time_parse_ms(STR("2024-02-29T12:30:00.1234+02:00"), &ms), ERR_OK);
    time_format_ms(ms, text);
    assert_string_equal(text, "2024-02-29T10:30:00.123Z");
    static const char *const bad[] = {"2023-02-29T00:00:00Z",
                                      "2024-13-01T00:00:00Z",
                                      "2024-01-01T24:00:00Z",
                                      "2024-01-01T00:00:60Z",
                                      "2024-01-01 00:00:00Z",
                                      "2024-01-01T00:00:00",
                                      "2024-01-01T00:00:00.Z",
                                      "2024-01-01T00:00:00Zx",
                                      "2024-1-01T00:00:00Z",
                                      "2024-01-01T00:00:00+24:00",
                                      ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(time_parse_ms(str_from_c(bad[i]), &ms), ERR_SYNTAX);
    char http[TIME_HTTP_CHARS];
    assert_int_equal(time_parse_http(STR("Sun, 06 Nov 1994 08:49:37 GMT"), &ms), ERR_OK);
    assert_int_equal(ms, 784111777000);
    time_format_http(ms, http);
    assert_string_equal(http, "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_int_equal(time_parse_http(STR("Mon, 06 Nov 1994 08:49:37 GMT"), &ms), ERR_SYNTAX);
    for (int64_t day = -800000; day < 3000000; day += 997) {
        int y, m, d;
        time_date_from_days(day, &y, &m, &d);
        assert_int_equal(time_days_from_date(y, m, d), day);
    }
}

static void manual_clock_moves_only_when_told(void **state)
{
    (void)state;
    struct clock_manual m;
    clock_manual_init(&m, 1000);
    int64_t before = clock_mono_ns(&m.clock);
    clock_manual_advance_ms(&m, 5);
    assert_int_equal(clock_mono_ns(&m.clock) - before, 5000000);
    assert_int_equal(clock_wall_ms(&m.clock), 1005);
    clock_manual_set_wall_ms(&m, 1);
    assert_int_equal(clock_mono_ns(&m.clock) - before, 5000000);
    assert_true(clock_wall_ms(clock_real()) > 1600000000000);
}

static void seeded_rng_repeats_and_stays_in_range(void **state)
{
    (void)state;
    struct rng a, b;
    rng_seed(&a, 42);
    rng_seed(&b, 42);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(rng_u64(&a), rng_u64(&b));
        assert_true(rng_below(&a, 7) < 7);
        (void)rng_below(&b, 7);
        int64_t v = rng_between(&a, -3, 3);
        assert_in_range(v + 3, 0, 6);
        (void)rng_between(&b, -3, 3);
    }
    double u = rng_unit(&a);
    assert_true(u >= 0 && u < 1);
}

static void a_child_does_not_repeat_its_parents_random_bytes(void **state)
{
    (void)state;
    (void)rng_secure_u64();
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        uint64_t mine = rng_secure_u64();
        _exit(write(fds[1], &mine, sizeof mine) == sizeof mine ? 0 : 1);
    }
    uint64_t mine = rng_secure_u64(), theirs = 0;
    assert_int_equal(read(fds[0], &theirs, sizeof theirs), sizeof theirs);
    assert_true(mine != theirs);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(fds[0]);
    close(fds[1]);
}

static void numbers_are_spelled_as_printf_does(void **state)
{
    (void)state;
    struct rng r;
    char ours[STR_NUMBER_CHARS], theirs[STR_NUMBER_CHARS];
    rng_seed(&r, 7);
    for (int i = 0; i < 20000; i++) {
        uint64_t power = 1;
        for (int n = i % 20; n > 0; n--)
            power *= 10;
        uint64_t v = i < 60 ? power + (uint64_t)(i / 20) - 1 : rng_u64(&r) >> (i % 64);
        if (i == 60)
            v = UINT64_MAX;
        assert_int_equal(str_format_u64(v, ours),
                         snprintf(theirs, sizeof theirs, "%llu", (unsigned long long)v));
        assert_string_equal(ours, theirs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_spelled_as_printf_does),
        cmocka_unit_test(integers_have_a_fixed_byte_order),
        cmocka_unit_test(views_compare_by_bytes),
        cmocka_unit_test(numbers_durations_and_sizes_have_one_spelling),
        cmocka_unit_test(utf8_refuses_overlong_surrogates_and_stubs),
        cmocka_unit_test(accounts_and_assets_follow_their_alphabets),
        cmocka_unit_test(a_byte_is_a_digit_or_refused),
        cmocka_unit_test(hex_and_base64_decode_only_what_they_encode),
        cmocka_unit_test(base64_of_every_length_comes_back_also_in_place),
        cmocka_unit_test(base64_refuses_every_other_byte_at_every_place),
        cmocka_unit_test(hex_is_the_same_for_every_byte_length_and_position),
        cmocka_unit_test(uuid_v7_carries_its_time_and_reads_back),
        cmocka_unit_test(wall_time_reads_and_writes_rfc_3339),
        cmocka_unit_test(manual_clock_moves_only_when_told),
        cmocka_unit_test(seeded_rng_repeats_and_stays_in_range),
        cmocka_unit_test(a_child_does_not_repeat_its_parents_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
