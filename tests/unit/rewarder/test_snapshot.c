#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/buf.h"
#include "base/rng.h"
#include "services/rewarder/core/snapshot.h"

#define HEAD  "{\"snapshot\":1,\"tenant\":\"default\",\"epoch\":\"e1\",\"dims\":[\"b\",\"a\"],\"count\":2}\n"
#define HEAD1 "{\"snapshot\":1,\"tenant\":\"default\",\"epoch\":\"e1\",\"dims\":[\"a\"],\"count\":1}\n"

static struct bytes text(const char *s)
{
    return (struct bytes){(const uint8_t *)s, strlen(s)};
}

static struct sha256 digest_of(const char *s, enum rewarder_media media)
{
    struct rewarder_snapshot snap;
    struct rewarder_snapshot_error why;
    enum err e = rewarder_snapshot_parse(text(s), media, 1000, &snap, &why);
    if (e != ERR_OK)
        fail_msg("refused: %s (line %u)", why.reason, (unsigned)why.line);
    struct sha256 d = snap.rows.digest;
    rewarder_snapshot_fini(&snap);
    return d;
}

static void row_order_dim_order_and_format_do_not_change_the_digest(void **state)
{
    (void)state;
    struct sha256 one = digest_of(HEAD "[\"x\",1,2]\n[\"y\",3,4]\n", REWARDER_NDJSON);
    static const struct {
        const char *text;
        enum rewarder_media media;
    } same[] = {
        {HEAD "[\"y\",3,4]\n[\"x\",1,2]", REWARDER_NDJSON},
        {HEAD " [ \"y\" , 3 ,\t4 ] \r\n[\"\\u0078\",1,2]\n", REWARDER_NDJSON},
        {"{\"rows\":[[\"y\",4,3],[\"x\",2,1]],\"epoch\":\"e1\",\"count\":2,\"dims\":[\"a\",\"b\"],"
         "\"tenant\":\"default\","
         "\"snapshot\":1,\"producer\":\"]}\\\"\",\"sealed_at\":\"2026-01-01T00:00:00Z\"}",
         REWARDER_JSON},
        {" {\"snapshot\":1,\"tenant\":\"default\",\"epoch\":\"e1\",\"dims\":[\"b\",\"a\"],\"count\":2,"
         "\"rows\" : [\n"
         "[\"x\",1,2] , [\n\"y\",3,4]\n] }\n",
         REWARDER_JSON},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct sha256 other = digest_of(same[i].text, same[i].media);
        assert_true(sha256_eq(&one, &other));
    }
    struct sha256 changed = digest_of(HEAD "[\"x\",1,2]\n[\"y\",3,5]\n", REWARDER_NDJSON);
    assert_false(sha256_eq(&one, &changed));
}

struct bad {
    const char *text;
    enum rewarder_media media;
    enum err err;
    uint64_t line;
    const char *member;
};

static void r3_a_thousand_orders_of_the_rows_have_one_digest(void **state)
{
    (void)state;
    enum { ROWS = 60 };
    struct sha256 first;
    struct rng g;
    unsigned order[ROWS];
    rng_seed(&g, 11);
    for (unsigned i = 0; i < ROWS; i++)
        order[i] = i;
    for (unsigned round = 0; round < 1000; round++) {
        struct buf b;
        bool json = round % 2;
        buf_init(&b, 1 << 16);
        buf_printf(&b, "{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"a\"],\"count\":%d%s",
                   ROWS, json ? ",\"rows\":[" : "}\n");
        for (unsigned i = 0; i < ROWS; i++)
            buf_printf(&b, "%s[\"acct:%u\",%u]%s", json && i ? "," : "", order[i] * 37 % 1009, order[i],
                       json ? "" : "\n");
        buf_puts(&b, json ? "]}" : "");
        struct sha256 d = digest_of(buf_cstr(&b), json ? REWARDER_JSON : REWARDER_NDJSON);
        if (round == 0)
            first = d;
        assert_true(sha256_eq(&first, &d));
        buf_fini(&b);
        for (unsigned i = ROWS; i-- > 1;) {
            unsigned j = (unsigned)rng_below(&g, i + 1), kept = order[i];
            order[i] = order[j];
            order[j] = kept;
        }
    }
}

/* Seventeen, eighteen and nineteen digits: where numbers begin to need a look at each digit. */
static void numbers_of_every_length_are_read_exactly_and_none_above_two_to_the_63_less_one(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0},
                {"99999999999999999", 99999999999999999},
                {"999999999999999999", 999999999999999999},
                {"1000000000000000000", 1000000000000000000},
                {"9223372036854775799", 9223372036854775799},
                {"9223372036854775807", INT64_MAX}};
    static const char *const bad[] = {"9223372036854775808",
                                      "9223372036854775810",
                                      "9999999999999999999",
                                      "92233720368547758070",
                                      "18446744073709551616",
                                      "00",
                                      "01"};
    uint8_t account[REWARDER_ACCOUNT_MAX];
    uint64_t usage;
    size_t n;
    char row[64];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int len = snprintf(row, sizeof row, "[\"a\",%s]", good[i].text);
        const uint8_t *p = (const uint8_t *)row;
        assert_null(rewarder_row_read(&p, p + len, 1, false, account, &n, &usage));
        assert_true(usage == good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int len = snprintf(row, sizeof row, "[\"a\",%s]", bad[i]);
        const uint8_t *p = (const uint8_t *)row;
        assert_non_null(rewarder_row_read(&p, p + len, 1, false, account, &n, &usage));
    }
}

static void malformed_snapshots_are_refused_with_line_and_member(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 1, ""},
        {"[]", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 1, ""},
        {"{", REWARDER_JSON, ERR_BAD_SNAPSHOT, 0, "rows"},
        {HEAD "[\"x\",1,2]\n", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 0, "count"},
        {HEAD "[\"x\",1,2]\n[\"y\",1,2]\n[\"z\",1,2]\n", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 4, "count"},
        {HEAD "[\"x\",1,2]\n\n[\"y\",1,2]\n", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 3, ""},
        {HEAD "[\"x\",1,2]\n[\"y\",1]\n", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 3, ""},
        {HEAD "[\"x\",1,2]\n[\"y\",1,2,3]\n", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 3, ""},
        {HEAD "[\"x\",1,2] x\n[\"y\",1,2]\n", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 2, ""},
        {HEAD "[\"x\",1,2]\n[\"x\",1,2]\n", REWARDER_NDJSON, ERR_DUPLICATE_ACCOUNT, 3, ""},
        {HEAD1 "[\"x\",-1]", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 2, ""},
        {HEAD1 "[\"x\",1.0]", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 2, ""},
        {HEAD1 "[\"x\",1e3]", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 2, ""},
        {HEAD1 "[\"x\",01]", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 2, ""},
        {HEAD1 "[\"x\",\"1\"]", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 2, ""},
        {HEAD1 "[\"x\",9223372036854775808]", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 2, ""},
        {HEAD1 "[\"\",1]", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 2, ""},
        {HEAD1 "[\"a b\",1]", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 2, ""},
        {HEAD1 "[\"a\\u0000\",1]", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 2, ""},
        {HEAD1 "[\"a", REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 2, ""},
        {"{\"snapshot\":2,\"tenant\":\"default\",\"epoch\":\"e\",\"dims\":[\"a\"],\"count\":0}",
         REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 1, "snapshot"},
        {"{\"snapshot\":1,\"tenant\":\"../x\",\"epoch\":\"e\",\"dims\":[\"a\"],\"count\":0}",
         REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 1, "tenant"},
        {"{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"a/b\",\"dims\":[\"a\"],\"count\":0}",
         REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 1, "epoch"},
        {"{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"a\",\"a\"],\"count\":0}",
         REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 1, "dims"},
        {"{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[],\"count\":0}", REWARDER_NDJSON,
         ERR_BAD_SNAPSHOT, 1, "dims"},
        {"{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"a\"]}", REWARDER_NDJSON,
         ERR_BAD_SNAPSHOT, 1, "count"},
        {"{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"a\"],\"count\":0,\"extra\":1}",
         REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 1, "extra"},
        {"{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"a\"],\"count\":0,\"salt\":\"00\"}",
         REWARDER_NDJSON, ERR_BAD_SNAPSHOT, 1, "salt"},
        {"{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"a\"],\"count\":0,\"rows\":[],"
         "\"rows\":[]}",
         REWARDER_JSON, ERR_BAD_SNAPSHOT, 0, "rows"},
        {"{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"a\"],\"count\":1,\"rows\":[[\"x\",1]"
         ",]}",
         REWARDER_JSON, ERR_BAD_SNAPSHOT, 1, ""},
        {"{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"a\"],\"count\":1,\"rows\":[[\"x\",1]"
         "}}",
         REWARDER_JSON, ERR_BAD_SNAPSHOT, 0, "rows"},
        {"{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"a\"],\"count\":2000,\"rows\":[]}",
         REWARDER_JSON, ERR_TOO_MANY_ROWS, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rewarder_snapshot snap;
        struct rewarder_snapshot_error why;
        enum err e = rewarder_snapshot_parse(text(cases[i].text), cases[i].media, 1000, &snap, &why);
        if (e != cases[i].err || why.line != cases[i].line || strcmp(why.member, cases[i].member))
            fail_msg("case %zu: %s line %u member '%s' (%s)", i, err_name(e), (unsigned)why.line,
                     why.member, why.reason);
    }
}

static void an_empty_snapshot_is_allowed(void **state)
{
    (void)state;
    static const char head[] =
        "{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"a\"],\"count\":0}";
    (void)digest_of(head, REWARDER_NDJSON);
}

static void canonical_bytes_read_back_and_any_flipped_byte_is_noticed(void **state)
{
    (void)state;
    struct rewarder_snapshot snap;
    struct rewarder_snapshot_error why;
    struct rewarder_rows rows;
    assert_int_equal(
        rewarder_snapshot_parse(text(HEAD "[\"x\",1,2]\n[\"y\",3,4]\n"), REWARDER_NDJSON, 10, &snap, &why),
        ERR_OK);
    for (size_t i = 0; i < snap.canonical_bytes; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            snap.canonical[i] ^= (uint8_t)(1u << bit);
            bool same =
                rewarder_rows_open((struct bytes){snap.canonical, snap.canonical_bytes}, &rows) == ERR_OK &&
                sha256_eq(&rows.digest, &snap.rows.digest);
            assert_false(same);
            snap.canonical[i] ^= (uint8_t)(1u << bit);
        }
    }
    assert_int_equal(rewarder_rows_open((struct bytes){snap.canonical, snap.canonical_bytes}, &rows),
                     ERR_OK);
    rewarder_snapshot_fini(&snap);
}

/* Accounts that share long prefixes, so that sorting goes through several windows. */
static void many_accounts_with_long_common_prefixes_come_out_sorted(void **state)
{
    (void)state;
    enum { N = 6000 };
    struct buf b;
    buf_init(&b, 1 << 22);
    buf_printf(&b, "{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"a\"],\"count\":%d}\n", N);
    for (unsigned i = 0; i < N; i++) {
        unsigned k = i * 7919u % N;
        buf_printf(&b, "[\"shared/prefix/of/all:%s%05u%s\",%u]\n", k % 3 ? "same-middle-part:" : "", k,
                   k % 2 ? "z" : "", k);
    }
    struct rewarder_snapshot snap;
    struct rewarder_snapshot_error why;
    assert_int_equal(rewarder_snapshot_parse(buf_bytes(&b), REWARDER_NDJSON, N, &snap, &why), ERR_OK);
    assert_int_equal(snap.rows.count, N);
    size_t at = snap.rows.first;
    struct str before = {"", 0};
    for (unsigned i = 0; i < N; i++) {
        struct rewarder_row row = rewarder_rows_next(&snap.rows, &at);
        assert_true(str_cmp(before, row.account) < 0);
        before = row.account;
    }
    rewarder_snapshot_fini(&snap);

    /* The last row repeats the first: both lines are named, in whatever order they were sorted. */
    buf_printf(&b, "[\"shared/prefix/of/all:00000\",1]\n");
    uint8_t *count = memmem(b.p, b.n, "6000}", 5);
    count[3] = '1';
    assert_int_equal(rewarder_snapshot_parse(buf_bytes(&b), REWARDER_NDJSON, N + 1, &snap, &why),
                     ERR_DUPLICATE_ACCOUNT);
    assert_int_equal(why.other_line, 2);
    assert_int_equal(why.line, N + 2);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_order_dim_order_and_format_do_not_change_the_digest),
        cmocka_unit_test(r3_a_thousand_orders_of_the_rows_have_one_digest),
        cmocka_unit_test(numbers_of_every_length_are_read_exactly_and_none_above_two_to_the_63_less_one),
        cmocka_unit_test(malformed_snapshots_are_refused_with_line_and_member),
        cmocka_unit_test(an_empty_snapshot_is_allowed),
        cmocka_unit_test(canonical_bytes_read_back_and_any_flipped_byte_is_noticed),
        cmocka_unit_test(many_accounts_with_long_common_prefixes_come_out_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
