#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/time_fmt.h"
#include "net/http_range.h"

static const int64_t now_s = 1794700000; /* 2026-11-14 */

static void all_three_date_forms_mean_the_same_second(void **state)
{
    (void)state;
    static const char *const same[] = {"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
                                       "Sun Nov  6 08:49:37 1994"};
    for (size_t i = 0; i < 3; i++) {
        int64_t s = 0;
        assert_int_equal(net_http_date_parse(str_from_c(same[i]), now_s, &s), ERR_OK);
        assert_int_equal(s, 784111777);
    }
    int64_t s = 0;
    assert_int_equal(net_http_date_parse(STR("Saturday, 01-Jan-72 00:00:00 GMT"), now_s, &s), ERR_OK);
    assert_int_equal(s, 3218832000 /* 2072: within 50 years */);
    assert_int_equal(net_http_date_parse(STR("Saturday, 01-Jan-77 00:00:00 GMT"), now_s, &s), ERR_OK);
    assert_int_equal(s, 220924800 /* 1977: 2077 is more than 50 years away */);
}

static void what_is_no_date_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "now",
                                      "Sun, 06 Nov 1994 08:49:37",
                                      "Sun, 06 Nov 1994 08:49:37 UTC",
                                      "Sun, 6 Nov 1994 08:49:37 GMT",
                                      "Sun, 31 Jun 1994 08:49:37 GMT",
                                      "Sun, 29 Feb 1995 08:49:37 GMT",
                                      "Sun, 06 nov 1994 08:49:37 GMT",
                                      "Sun, 06 Nov 1994 24:49:37 GMT",
                                      "Sun, 06 Nov 1994 08:60:37 GMT",
                                      "Sun, 06 Nov 1994 08:49:61 GMT",
                                      "Sun, 06 Nov 1994 08:49:37 GMT ",
                                      "Sunday, 06-Nov-1994 08:49:37 GMT",
                                      "Sun Nov 6 08:49:37 1994",
                                      "784111777"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t s = 42;
        if (net_http_date_parse(str_from_c(bad[i]), now_s, &s) != ERR_SYNTAX)
            fail_msg("accepted: %s", bad[i]);
        assert_int_equal(s, 42);
    }
}

static void every_formatted_date_parses_back(void **state)
{
    (void)state;
    for (int64_t s = 0; s < 4102444800; s += 86400 * 13 + 12347) {
        char out[TIME_HTTP_CHARS];
        int64_t back = -1;
        time_format_http(s * 1000, out);
        assert_int_equal(net_http_date_parse(str_from_c(out), now_s, &back), ERR_OK);
        assert_int_equal(back, s);
    }
}

static void tag_lists_match_strongly_and_weakly(void **state)
{
    (void)state;
    struct net_etag ours = {STR("\"abc\""), false}, weak = {STR("\"abc\""), true},
                    none = {{NULL, 0}, false};
    const struct {
        const char *list;
        int strong, weakly; /* -1: broken */
    } rows[] = {
        {"\"abc\"", 1, 1},
        {"W/\"abc\"", 0, 1},
        {"\"x\", \"abc\"", 1, 1},
        {"\"x\",W/\"abc\" ,\"y\"", 0, 1},
        {"\"ab\"", 0, 0},
        {",, \"abc\" ,", 1, 1},
        {"\"a,b\"", 0, 0},
        {"\"\"", 0, 0},
        {"*", 1, 1},
        {"", -1, -1},
        {",", -1, -1},
        {"abc", -1, -1},
        {"\"abc", -1, -1},
        {"\"abc\" \"x\"", -1, -1},
        {"w/\"abc\"", -1, -1},
        {"W/ \"abc\"", -1, -1},
        {"\"a b\"", -1, -1},
        {"*, \"abc\"", -1, -1},
        {"\"abc\", *", -1, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool m = false;
        enum err e = net_etag_list_has(str_from_c(rows[i].list), &ours, true, &m);
        if ((e == ERR_OK ? (int)m : -1) != rows[i].strong)
            fail_msg("strong: %s", rows[i].list);
        m = false;
        e = net_etag_list_has(str_from_c(rows[i].list), &ours, false, &m);
        if ((e == ERR_OK ? (int)m : -1) != rows[i].weakly)
            fail_msg("weak: %s", rows[i].list);
    }
    bool m = true;
    assert_int_equal(net_etag_list_has(STR("\"abc\""), &weak, true, &m), ERR_OK);
    assert_false(m);
    assert_int_equal(net_etag_list_has(STR("*"), &none, false, &m), ERR_OK);
    assert_false(m);
    char many[NET_ETAG_LIST_BYTES + 8];
    for (size_t tags = NET_ETAG_LIST_TAGS; tags <= NET_ETAG_LIST_TAGS + 1; tags++) {
        size_t n = 0;
        for (size_t i = 0; i < tags; i++)
            n += (size_t)sprintf(many + n, "\"t%zu\",", i);
        enum err e = net_etag_list_has((struct str){many, n}, &ours, true, &m);
        assert_int_equal(e, tags <= NET_ETAG_LIST_TAGS ? ERR_OK : ERR_SYNTAX);
    }
    memset(many, 'x', sizeof many);
    many[0] = many[NET_ETAG_LIST_BYTES] = '"';
    assert_int_equal(net_etag_list_has((struct str){many, NET_ETAG_LIST_BYTES + 1}, &ours, true, &m),
                     ERR_SYNTAX);
    many[NET_ETAG_LIST_BYTES - 1] = '"';
    assert_int_equal(net_etag_list_has((struct str){many, NET_ETAG_LIST_BYTES}, &ours, true, &m), ERR_OK);
}

static const char before[] = "Sun, 06 Nov 1994 08:49:36 GMT";
static const char same[] = "Sun, 06 Nov 1994 08:49:37 GMT";
static const char after[] = "Sun, 06 Nov 1994 08:49:38 GMT";

static void preconditions_are_judged_in_the_order_of_rfc_9110(void **state)
{
    (void)state;
    struct net_validator v = {.etag = {STR("\"a\""), false}, .modified_s = 784111777};
    struct net_validator undated = {.etag = {STR("\"a\""), false}, .modified_s = INT64_MIN};
    const struct {
        const char *im, *ius, *inm, *ims;
        int get, put, nodate;
    } rows[] = {
        {NULL, NULL, NULL, NULL, 0, 0, 0},
        {"\"a\"", NULL, NULL, NULL, 0, 0, 0},
        {"\"b\"", NULL, NULL, NULL, 2, 2, 2},
        {"W/\"a\"", NULL, NULL, NULL, 2, 2, 2},
        {"*", NULL, NULL, NULL, 0, 0, 0},
        {"nonsense", NULL, NULL, NULL, 3, 3, 3},
        {NULL, before, NULL, NULL, 2, 2, 0},
        {NULL, same, NULL, NULL, 0, 0, 0},
        {NULL, after, NULL, NULL, 0, 0, 0},
        {NULL, "nonsense", NULL, NULL, 0, 0, 0},
        {"\"a\"", before, NULL, NULL, 0, 0, 0}, /* If-Match there: the date is not looked at */
        {NULL, NULL, "\"a\"", NULL, 1, 2, 1},
        {NULL, NULL, "W/\"a\"", NULL, 1, 2, 1},
        {NULL, NULL, "*", NULL, 1, 2, 1},
        {NULL, NULL, "\"b\"", NULL, 0, 0, 0},
        {NULL, NULL, "nonsense", NULL, 3, 3, 3},
        {NULL, NULL, NULL, before, 0, 0, 0},
        {NULL, NULL, NULL, same, 1, 0, 0},
        {NULL, NULL, NULL, after, 1, 0, 0},
        {NULL, NULL, NULL, "nonsense", 0, 0, 0},
        {NULL, NULL, "\"b\"", same, 0, 0, 0}, /* If-None-Match there: the date is not looked at */
        {"\"a\"", NULL, "\"a\"", NULL, 1, 2, 1},
        {"\"b\"", NULL, "\"a\"", NULL, 2, 2, 2},
        {NULL, before, "\"a\"", NULL, 2, 2, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct net_conditions c = {.if_match = str_from_c(rows[i].im),
                                   .if_unmodified_since = str_from_c(rows[i].ius),
                                   .if_none_match = str_from_c(rows[i].inm),
                                   .if_modified_since = str_from_c(rows[i].ims),
                                   .is_get = true};
        assert_int_equal(net_conditions_check(&c, &v, now_s), rows[i].get);
        assert_int_equal(net_conditions_check(&c, &undated, now_s), rows[i].nodate);
        c.is_get = false;
        c.is_head = true;
        assert_int_equal(net_conditions_check(&c, &v, now_s), rows[i].get);
        c.is_head = false;
        assert_int_equal(net_conditions_check(&c, &v, now_s), rows[i].put);
    }
}

/* "a-b a-b", "whole", "416", "400" */
static void verdict(const struct net_conditions *c, uint64_t length, char *out)
{
    struct net_validator v = {.etag = {STR("\"a\""), false}, .modified_s = 784111777};
    struct net_range r[16];
    size_t n = 0;
    switch (net_range_read(c, &v, now_s, length, NULL, r, &n)) {
    case NET_RANGE_WHOLE:
        strcpy(out, "whole");
        return;
    case NET_RANGE_UNSATISFIABLE:
        strcpy(out, "416");
        return;
    case NET_RANGE_BAD:
        strcpy(out, "400");
        return;
    case NET_RANGE_PARTS:
        break;
    }
    *out = 0;
    for (size_t i = 0; i < n; i++)
        out += sprintf(out, "%s%llu-%llu", i ? " " : "", (unsigned long long)r[i].first,
                       (unsigned long long)r[i].last);
}

static void ranges_are_read_joined_and_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *range, *want;
    } rows[] = {
        {"bytes=0-4", "0-4"},
        {"BYTES=0-4", "0-4"},
        {"bytes=2-", "2-99"},
        {"bytes=-5", "95-99"},
        {"bytes=-500", "0-99"},
        {"bytes=-0", "416"},
        {"bytes=99-", "99-99"},
        {"bytes=100-", "416"},
        {"bytes=0-1000", "0-99"},
        {"bytes=50-99999999999999999999999999999999999999", "50-99"},
        {"bytes=0000000000000000000000000000000000000001-2", "1-2"},
        {"bytes=00000000000000000000000000000000000000001-2", "416"},
        {"bytes=99999999999999999999999999999-99999999999999999999999999998", "416"},
        {"bytes=99999999999999999999999999998-99999999999999999999999999999,0-0", "0-0"},
        {"bytes=4-0", "416"},
        {"bytes=0-0,4-0", "416"},
        {"bytes=0-0,200-300", "0-0"},
        {"bytes=0-4,10-14", "0-4 10-14"},
        {"bytes=10-14,0-4", "10-14 0-4"},
        {"bytes=0-4,5-9", "0-9"},
        {"bytes=10-20,0-4,15-30", "10-30 0-4"},
        {"bytes=30-40,0-4,20-29", "20-40 0-4"},
        {"bytes=0-4 , 10-14", "0-4 10-14"},
        {"bytes=,0-4,,10-14,", "0-4 10-14"},
        {"bytes= ,0-4", "0-4"},
        {"bytes= 0-4", "416"},
        {"bytes=", "416"},
        {"bytes=,", "416"},
        {"bytes", "416"},
        {"bytes=0", "416"},
        {"bytes=-", "416"},
        {"bytes=a-b", "416"},
        {"bytes=0-4;5-6", "416"},
        {"bytes=0 - 4", "416"},
        {"bytes=+0-4", "416"},
        {"bytes=0x0-4", "416"},
        {"bytes =0-4", "whole"},
        {"lines=0-4", "whole"},
        {"byte=0-4", "whole"},
        {"", "whole"},
        {"bytes=0-0,2-2,4-4,6-6,8-8,10-10,12-12,14-14,16-16,18-18,20-20,22-22,24-24,26-26,28-28,30-30",
         "0-0 2-2 4-4 6-6 8-8 10-10 12-12 14-14 16-16 18-18 20-20 22-22 24-24 26-26 28-28 30-30"},
        {"bytes=0-0,2-2,4-4,6-6,8-8,10-10,12-12,14-14,16-16,18-18,20-20,22-22,24-24,26-26,28-28,30-30,32-"
         "32",
         "416"},
    };
    char out[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct net_conditions c = {.range = str_from_c(rows[i].range), .is_get = true};
        verdict(&c, 100, out);
        if (strcmp(out, rows[i].want) != 0)
            fail_msg("%s: %s instead of %s", rows[i].range, out, rows[i].want);
    }
    struct net_conditions c = {.range = STR("bytes=0-4"), .is_get = true, .range_repeated = true};
    verdict(&c, 100, out);
    assert_string_equal(out, "416");
    c = (struct net_conditions){.range = STR("bytes=0-4"), .is_head = true};
    verdict(&c, 100, out);
    assert_string_equal(out, "whole");
    c = (struct net_conditions){.range = STR("bytes=0-4"), .is_get = true};
    verdict(&c, 0, out);
    assert_string_equal(out, "whole");
    char many[1024] = "bytes=0-0";
    for (int i = 1; i < 64; i++)
        strcat(many, ",0-0");
    c.range = str_from_c(many);
    verdict(&c, 100, out);
    assert_string_equal(out, "0-0");
    strcat(many, ",0-0");
    c.range = str_from_c(many);
    verdict(&c, 100, out);
    assert_string_equal(out, "416");
}

static void if_range_keeps_the_range_only_for_the_same_representation(void **state)
{
    (void)state;
    static const struct {
        const char *if_range, *want;
    } rows[] = {
        {"\"a\"", "0-4"}, {"\"b\"", "whole"}, {"W/\"a\"", "whole"}, {same, "0-4"},  {before, "whole"},
        {after, "whole"}, {"a", "400"},       {"", "400"},          {"\"a", "400"}, {"\"a\", \"b\"", "400"},
    };
    char out[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct net_conditions c = {
            .range = STR("bytes=0-4"), .if_range = str_from_c(rows[i].if_range), .is_get = true};
        verdict(&c, 100, out);
        if (strcmp(out, rows[i].want) != 0)
            fail_msg("%s: %s instead of %s", rows[i].if_range, out, rows[i].want);
    }
}

static void multipart_bodies_look_as_rfc_9110_says(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 4096);
    struct net_range one = {0, 1}, two = {5, 6};
    net_multipart_head(&b, true, STR("B"), STR("text/plain"), &one, 10);
    buf_puts(&b, "ab");
    net_multipart_head(&b, false, STR("B"), STR("text/plain"), &two, 10);
    buf_puts(&b, "fg");
    net_multipart_tail(&b, STR("B"));
    assert_string_equal(
        buf_cstr(&b),
        "--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\nab\r\n"
        "--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 5-6/10\r\n\r\nfg\r\n--B--\r\n");
    buf_fini(&b);
    char out[NET_CONTENT_RANGE_CHARS];
    net_content_range_format(NULL, 11, out);
    assert_string_equal(out, "bytes */11");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_three_date_forms_mean_the_same_second),
        cmocka_unit_test(what_is_no_date_is_refused),
        cmocka_unit_test(every_formatted_date_parses_back),
        cmocka_unit_test(tag_lists_match_strongly_and_weakly),
        cmocka_unit_test(preconditions_are_judged_in_the_order_of_rfc_9110),
        cmocka_unit_test(ranges_are_read_joined_and_bounded),
        cmocka_unit_test(if_range_keeps_the_range_only_for_the_same_representation),
        cmocka_unit_test(multipart_bodies_look_as_rfc_9110_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
