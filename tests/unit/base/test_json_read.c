#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/json_read.h"
#include "base/money.h"
#include "base/sha256.h"
#include "base/str.h"

struct entry {
    struct str account;
    struct money amount;
    int side;
};

static const char *const sides[] = {"debit", "credit", NULL};
static const struct json_field entry_fields[] = {
    JSON_REQ(struct entry, account, JSON_KIND_STR, .min = 1, .max = 128, .check = str_is_account),
    JSON_REQ(struct entry, amount, JSON_KIND_MONEY, .min = 1),
    JSON_REQ(struct entry, side, JSON_KIND_ENUM, .names = sides),
    JSON_END,
};

struct unit {
    struct json_list entries;
};

static const struct json_field unit_fields[] = {
    JSON_REQ(struct unit, entries, JSON_KIND_OBJ_LIST, .fields = entry_fields,
             .item_bytes = sizeof(struct entry), .min = 1, .max = 3),
    JSON_END,
};

struct limit {
    struct str asset;
    uint64_t ceiling;
};

static const struct json_field limit_fields[] = {
    JSON_REQ(struct limit, ceiling, JSON_KIND_U64, .max = 1000),
    JSON_END,
};

struct request {
    struct json_list units, tags, limits, labels;
    uint64_t nonce, seq;
    int64_t delta;
    bool dry_run, has_dry_run, has_nonce, has_seq, has_delta, has_blob, has_root, has_extra, has_inner;
    struct bytes blob;
    struct sha256 root;
    struct str extra;
    struct entry inner;
};

static const struct json_field request_fields[] = {
    JSON_REQ(struct request, units, JSON_KIND_OBJ_LIST, .fields = unit_fields,
             .item_bytes = sizeof(struct unit)),
    JSON_OPT(struct request, nonce, JSON_KIND_U64, .min = 1, .max = 10),
    JSON_OPT(struct request, seq, JSON_KIND_U64_TEXT),
    JSON_OPT(struct request, delta, JSON_KIND_I64, .least = -5, .most = 5),
    JSON_OPT_AS(struct request, dry_run, "dry-run", JSON_KIND_BOOL),
    JSON_OPT(struct request, blob, JSON_KIND_BASE64, .min = 1, .max = 4),
    JSON_OPT(struct request, root, JSON_KIND_HASH),
    JSON_OPT(struct request, extra, JSON_KIND_RAW),
    JSON_OPT(struct request, inner, JSON_KIND_OBJ, .fields = entry_fields),
    JSON_DEF(struct request, tags, JSON_KIND_STR_LIST, .max = 2, .check = str_is_asset),
    JSON_DEF(struct request, limits, JSON_KIND_OBJ_MAP, .fields = limit_fields,
             .item_bytes = sizeof(struct limit), .key_offset = offsetof(struct limit, asset),
             .check = str_is_asset, .max = 30),
    JSON_DEF(struct request, labels, JSON_KIND_STR_MAP, .max = 100),
    JSON_END,
};

static struct arena arena;
static struct json_error why;

static enum err read(const char *body, struct request *out)
{
    *out = (struct request){.nonce = 0};
    return json_read_dto(bytes_of_str(str_from_c(body)), request_fields, out, &arena, &why);
}

static int start(void **state)
{
    (void)state;
    arena_init(&arena, 4096, 1 << 20);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static void a_full_request_lands_in_its_struct(void **state)
{
    (void)state;
    struct request rq;
    assert_int_equal(
        read("{\"units\":[{\"entries\":[{\"account\":\"a\",\"amount\":\"5\",\"side\":\"credit\"}]}],"
             "\"nonce\":7,\"seq\":\"18446744073709551615\",\"delta\":-5,\"dry-run\":true,\"blob\":\"Zm9v\","
             "\"root\":\"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\","
             "\"extra\": {\"x\": [1, 2.5e3, null]} "
             ",\"inner\":{\"side\":\"debit\",\"amount\":\"1\",\"account\":\"b\"},"
             "\"tags\":[\"x\",\"y\"],\"limits\":{\"ron\":{\"ceiling\":10},\"eur\":{\"ceiling\":20}},"
             "\"labels\":{\"k\\u00e9\":\"v\\n\"}}",
             &rq),
        ERR_OK);
    assert_int_equal(rq.units.n, 1);
    struct unit *u = rq.units.items;
    struct entry *e = u->entries.items;
    assert_true(str_eq(e->account, STR("a")));
    assert_int_equal((uint64_t)e->amount.units, 5);
    assert_int_equal(e->side, 1);
    assert_true(rq.has_nonce && rq.nonce == 7);
    assert_true(rq.has_seq && rq.seq == UINT64_MAX);
    assert_true(rq.has_delta && rq.delta == -5);
    assert_true(rq.has_dry_run && rq.dry_run);
    assert_int_equal(rq.blob.n, 3);
    assert_memory_equal(rq.blob.p, "foo", 3);
    assert_int_equal(rq.root.b[0], 0xba);
    assert_true(str_eq(rq.extra, STR("{\"x\": [1, 2.5e3, null]}")));
    assert_true(rq.has_inner && rq.inner.side == 0);
    assert_int_equal(rq.tags.n, 2);
    assert_int_equal(rq.limits.n, 2);
    struct limit *l = rq.limits.items;
    assert_true(str_eq(l[1].asset, STR("eur")) && l[1].ceiling == 20);
    struct json_pair *pair = rq.labels.items;
    assert_true(str_eq(pair->key, STR("k\xc3\xa9")));
    assert_true(str_eq(pair->value, STR("v\n")));
}

static void absent_members_leave_flag_and_default_alone(void **state)
{
    (void)state;
    struct request rq;
    assert_int_equal(read(" {\"units\" : [ ] } ", &rq), ERR_OK);
    assert_false(rq.has_nonce || rq.has_dry_run || rq.has_extra || rq.has_inner);
    assert_int_equal(rq.tags.n, 0);
}

static void the_error_names_the_member_and_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *body, *path, *reason;
    } cases[] = {
        {"{}", "units", "missing"},
        {"{\"units\":[],\"nope\":1}", "nope", "unknown"},
        {"{\"units\":[],\"n\\u006fpe\":1}", "nope", "unknown"},
        {"{\"units\":[],\"<b>\":1}", "?b?", "unknown"},
        {"{\"units\":[],\"units\":[]}", "units", "duplicate"},
        {"{\"units\":{}}", "units", "type"},
        {"{\"units\":null}", "units", "type"},
        {"{\"units\":[7]}", "units[0]", "type"},
        {"{\"units\":[{\"entries\":[]}]}", "units[0].entries", "range"},
        {"{\"units\":[{\"entries\":[{\"account\":\"a\",\"amount\":\"5\",\"side\":\"credit\"},"
         "{\"account\":\"a\",\"amount\":5,\"side\":\"credit\"}]}]}",
         "units[0].entries[1].amount", "type"},
        {"{\"units\":[{\"entries\":[{\"account\":\"a\",\"amount\":\"05\",\"side\":\"credit\"}]}]}",
         "units[0].entries[0].amount", "pattern"},
        {"{\"units\":[{\"entries\":[{\"account\":\"a\",\"amount\":\"0\",\"side\":\"credit\"}]}]}",
         "units[0].entries[0].amount", "range"},
        {"{\"units\":[{\"entries\":[{\"account\":\"a\",\"amount\":"
         "\"999999999999999999999999999999999999999\"}]}]}",
         "units[0].entries[0].amount", "range"},
        {"{\"units\":[{\"entries\":[{\"account\":\"a b\"}]}]}", "units[0].entries[0].account", "pattern"},
        {"{\"units\":[{\"entries\":[{\"account\":\"\"}]}]}", "units[0].entries[0].account", "range"},
        {"{\"units\":[{\"entries\":[{\"side\":\"left\"}]}]}", "units[0].entries[0].side", "pattern"},
        {"{\"units\":[{\"entries\":[{\"account\":\"a\",\"amount\":\"5\"}]}]}", "units[0].entries[0].side",
         "missing"},
        {"{\"nonce\":0}", "nonce", "range"},
        {"{\"nonce\":11}", "nonce", "range"},
        {"{\"nonce\":1.0}", "nonce", "type"},
        {"{\"nonce\":1e1}", "nonce", "type"},
        {"{\"nonce\":-1}", "nonce", "range"},
        {"{\"nonce\":\"1\"}", "nonce", "type"},
        {"{\"nonce\":99999999999999999999}", "nonce", "range"},
        {"{\"nonce\":01}", "nonce", "syntax"},
        {"{\"seq\":1}", "seq", "type"},
        {"{\"seq\":\"01\"}", "seq", "pattern"},
        {"{\"delta\":6}", "delta", "range"},
        {"{\"delta\":-9223372036854775809}", "delta", "range"},
        {"{\"dry-run\":\"true\"}", "dry-run", "type"},
        {"{\"dry-run\":truth}", "", "syntax"},
        {"{\"blob\":\"Zm9v!\"}", "blob", "pattern"},
        {"{\"blob\":\"Zm9vYmE=\"}", "blob", "range"},
        {"{\"blob\":\"\"}", "blob", "range"},
        {"{\"root\":\"sha256:00\"}", "root", "pattern"},
        {"{\"tags\":[\"a\",\"b\",\"c\"]}", "tags", "range"},
        {"{\"tags\":[\"a\",\".b\"]}", "tags[1]", "pattern"},
        {"{\"tags\":[\"a\",1]}", "tags[1]", "type"},
        {"{\"extra\":{\"a\":{\"b\":1,\"b\":2}}}", "extra.a.b", "duplicate"},
        {"{\"extra\":[1,2,tru]}", "extra[2]", "syntax"},
        {"{\"limits\":{\"ron\":{\"ceiling\":1},\"ron\":{\"ceiling\":1}}}", "limits.ron", "duplicate"},
        {"{\"limits\":{\"ron\":{\"ceiling\":2000}}}", "limits.ron.ceiling", "range"},
        {"{\"limits\":{\"r n\":{\"ceiling\":1}}}", "limits.r?n", "pattern"},
        {"{\"units\":[]} x", "", "syntax"},
        {"{\"units\":[]}{}", "", "syntax"},
        {"{\"units\":[],}", "", "syntax"},
        {"{\"units\":[}", "units[0]", "type"},
        {"{\"units\":[{}", "units[0].entries", "missing"},
        {"", "", "syntax"},
        {"[]", "", "type"},
        {"{\"labels\":{\"a\":\"\xff\"}}", "labels.a", "syntax"},
        {"{\"labels\":{\"a\":\"\\ud800\"}}", "labels.a", "syntax"},
        {"{\"labels\":{\"a\":\"\\u0000\"}}", "labels.a", "syntax"},
        {"{\"labels\":{\"a\":\"tab\there\"}}", "labels.a", "syntax"},
        {"{\"extra\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}",
         "extra[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]", "depth"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request rq;
        assert_int_equal(read(cases[i].body, &rq), ERR_BAD_REQUEST);
        if (strcmp(json_reason_name(why.reason), cases[i].reason) != 0)
            print_message("body %s\n", cases[i].body);
        assert_string_equal(json_reason_name(why.reason), cases[i].reason);
        if (cases[i].path[0])
            assert_string_equal(why.path, cases[i].path);
        assert_true(why.offset <= strlen(cases[i].body));
    }
}

static void sixteen_levels_are_read_and_seventeen_are_not(void **state)
{
    (void)state;
    struct request rq;
    assert_int_equal(read("{\"extra\":[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]],\"units\":[]}", &rq), ERR_OK);
    assert_int_equal(read("{\"extra\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]],\"units\":[]}", &rq),
                     ERR_BAD_REQUEST);
}

static void lax_reading_skips_what_it_does_not_know_but_not_duplicates(void **state)
{
    (void)state;
    struct limit l;
    struct bytes body = bytes_of_str(STR("{\"new\":{\"deep\":[1]},\"ceiling\":3,\"newer\":null}"));
    assert_int_equal(json_read_dto(body, limit_fields, &l, &arena, &why), ERR_BAD_REQUEST);
    assert_int_equal(json_read_dto_lax(body, limit_fields, &l, &arena, &why), ERR_OK);
    assert_int_equal(l.ceiling, 3);
    body = bytes_of_str(STR("{\"new\":1,\"ceiling\":3,\"new\":2}"));
    assert_int_equal(json_read_dto_lax(body, limit_fields, &l, &arena, &why), ERR_BAD_REQUEST);
    assert_string_equal(json_reason_name(why.reason), "duplicate");
}

static void many_members_are_still_checked_for_duplicates(void **state)
{
    (void)state;
    char body[4096];
    size_t n = (size_t)sprintf(body, "{");
    for (int i = 0; i < 200; i++)
        n += (size_t)sprintf(body + n, "\"k%d\":1,", i);
    sprintf(body + n, "\"last\":1}");
    assert_int_equal(json_check(bytes_of_str(str_from_c(body)), &arena, &why), ERR_OK);
    sprintf(body + n, "\"k150\":1}");
    assert_int_equal(json_check(bytes_of_str(str_from_c(body)), &arena, &why), ERR_BAD_REQUEST);
    assert_string_equal(why.path, "k150");
}

static void a_full_arena_is_too_large_not_a_crash(void **state)
{
    (void)state;
    struct arena small;
    arena_init(&small, 64, 64);
    struct request rq = {.nonce = 0};
    struct bytes body =
        bytes_of_str(STR("{\"units\":[],\"extra\":"
                         "\"0123456789012345678901234567890123456789012345678901234567890123456789\"}"));
    assert_int_equal(json_read_dto(body, request_fields, &rq, &small, &why), ERR_TOO_LARGE);
    arena_fini(&small);
}

/* The cases that readers are known to disagree on (after the public "parsing JSON is a minefield" list). */
static void well_formed_documents_pass_and_malformed_ones_do_not(void **state)
{
    (void)state;
    static const char *const good[] = {"0",
                                       "-0",
                                       "1.5",
                                       "1e5",
                                       "1E+2",
                                       "-1.0e-3",
                                       "123456789012345678901234567890",
                                       "\"\"",
                                       "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
                                       "\"\\uD834\\uDd1e\"",
                                       "\"\\u00e9\"",
                                       "\"\xf0\x9f\x98\x80\"",
                                       "true",
                                       "false",
                                       "null",
                                       "[]",
                                       "{}",
                                       " [ ] ",
                                       "[1,2]",
                                       "{\"a\":1}",
                                       "{\"\":0}",
                                       "[[],[]]",
                                       "\t\r\n[]\n",
                                       "\"\x7f\"",
                                       "\"\xef\xbf\xbf\"",
                                       "[\"\xe2\x80\xa8\"]",
                                       "[null,1,\"1\",{}]"};
    static const char *const bad[] = {"",
                                      " ",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      "[,]",
                                      "[1,]",
                                      "[1,,2]",
                                      "[1 2]",
                                      "[1:2]",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "{'a':1}",
                                      "{1:1}",
                                      "{\"a\" 1}",
                                      "{\"a\"::1}",
                                      "{\"a\":1 \"b\":2}",
                                      "01",
                                      "-",
                                      "-01",
                                      "+1",
                                      ".5",
                                      "1.",
                                      "1.e1",
                                      "1e",
                                      "1e+",
                                      "0x1",
                                      "1a",
                                      "NaN",
                                      "Infinity",
                                      "-Infinity",
                                      "nul",
                                      "True",
                                      "truefalse",
                                      "\"",
                                      "\"a",
                                      "'a'",
                                      "\"\\x\"",
                                      "\"\\\"",
                                      "\"\\u12\"",
                                      "\"\\u12g4\"",
                                      "\"\\ud800\"",
                                      "\"\\udc00\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\\ud800\\ud800\"",
                                      "\"\\ud800x\"",
                                      "\"\n\"",
                                      "\"\t\"",
                                      "\"\x80\"",
                                      "\"\xc0\x80\"",
                                      "\"\xed\xa0\x80\"",
                                      "\"\xf5\x80\x80\x80\"",
                                      "\"\\u0000\"",
                                      "\xef\xbb\xbf{}",
                                      "[1]x",
                                      "[1]]",
                                      "{}{}",
                                      "// c\n1",
                                      "/**/1",
                                      "[1]//",
                                      "\x0c[]",
                                      "\xc2\xa0[]",
                                      "{\"a\":1,\"a\":1}",
                                      "{\"a\":1,\"\\u0061\":1}",
                                      "[\"a\", 4\n1]",
                                      "[\\n]",
                                      "\"\\",
                                      "\"\\u",
                                      "{\"\\ud800\":1}",
                                      "-a",
                                      "1e5.5",
                                      "--1",
                                      "\"\\U0041\""};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (json_check(bytes_of_str(str_from_c(good[i])), &arena, &why) != ERR_OK)
            fail_msg("refused %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (json_check(bytes_of_str(str_from_c(bad[i])), &arena, &why) == ERR_OK)
            fail_msg("accepted %s", bad[i]);
    assert_int_equal(json_check(bytes_of("[1]\0", 4), &arena, &why), ERR_BAD_REQUEST);
    assert_int_equal(json_check(bytes_of("\"a\0b\"", 5), &arena, &why), ERR_BAD_REQUEST);
}

/* Strings are measured many bytes at a time: what ends one, or may not be in one, is seen at every place of such a step. */
static void a_byte_that_may_not_be_in_a_string_is_seen_at_every_place(void **state)
{
    (void)state;
    char text[66];
    for (size_t len = 1; len <= 64; len++)
        for (size_t at = 1; at <= len; at++)
            for (int c = 0; c < 256; c++) {
                bool alone = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
                if (c > 0x21 && c < 0x7f && alone && c != 'a')
                    continue;
                memset(text, 'a', len + 2);
                text[0] = text[len + 1] = '"';
                text[at] = (char)c;
                assert_int_equal(json_check(bytes_of(text, len + 2), &arena, &why),
                                 alone ? ERR_OK : ERR_BAD_REQUEST);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_byte_that_may_not_be_in_a_string_is_seen_at_every_place, start,
                                        finish),
        cmocka_unit_test_setup_teardown(a_full_request_lands_in_its_struct, start, finish),
        cmocka_unit_test_setup_teardown(absent_members_leave_flag_and_default_alone, start, finish),
        cmocka_unit_test_setup_teardown(the_error_names_the_member_and_the_reason, start, finish),
        cmocka_unit_test_setup_teardown(sixteen_levels_are_read_and_seventeen_are_not, start, finish),
        cmocka_unit_test_setup_teardown(lax_reading_skips_what_it_does_not_know_but_not_duplicates, start,
                                        finish),
        cmocka_unit_test_setup_teardown(many_members_are_still_checked_for_duplicates, start, finish),
        cmocka_unit_test_setup_teardown(a_full_arena_is_too_large_not_a_crash, start, finish),
        cmocka_unit_test_setup_teardown(well_formed_documents_pass_and_malformed_ones_do_not, start,
                                        finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
