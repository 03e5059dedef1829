/*
 * Ingest as JSON, member by member: each one left out, said twice, of another type, just inside and just outside its limits, and where its
 * kind has no place for it. Every fault is named with unit, entry, member and reason, and nothing of the request is taken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "services/ledger/api/api.h"

enum { MEMBERS = 12, TEXT = 2048 };

struct member {
    const char *name, *value;
};

/* A unit of one entry; members of the unit first. NULL ends. */
struct form {
    struct member unit[4], entry[MEMBERS];
};

#define UNIT                                                                                               \
    {                                                                                                      \
        {"idem_id", "\"u:1\""}, {"meta", "\"aGVsbG8=\""},                                                  \
        {                                                                                                  \
            "not_after", "1760000000000"                                                                   \
        }                                                                                                  \
    }
#define ALWAYS(kind)                                                                                       \
    {"id", "\"e-1\""}, {"ts", "1760000000000"}, {"kind", "\"" kind "\""}, {"account", "\"acct:a\""},       \
        {"asset", "\"ron\""},                                                                              \
    {                                                                                                      \
        "amount", "\"5\""                                                                                  \
    }

static const struct form kinds[] = {
    {UNIT, {ALWAYS("mint")}},
    {UNIT, {ALWAYS("burn"), {"nonce", "\"1\""}}},
    {UNIT, {ALWAYS("transfer"), {"to", "\"acct:b\""}, {"nonce", "\"1\""}}},
    {UNIT, {ALWAYS("hold"), {"nonce", "\"1\""}, {"hold_until", "1760000600000"}}},
    {UNIT, {ALWAYS("capture"), {"to", "\"acct:b\""}, {"ref_id", "\"h-1\""}}},
    {UNIT, {ALWAYS("release"), {"ref_id", "\"h-1\""}}},
    {UNIT, {ALWAYS("reverse"), {"to", "\"acct:b\""}, {"ref_id", "\"t-1\""}}},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static struct ledger *engine(void)
{
    static struct ledger *l;
    if (l == NULL) {
        l = calloc(1, sizeof *l);
        assert_non_null(l);
        l->set.max_entries = 1024;
        assert_int_equal(ledger_jobs_init(&l->jobs, 4), ERR_OK);
    }
    return l;
}

/* What a caller is told of this body; "" when it is taken. */
static void judge(struct str body, char out[256])
{
    struct ledger_job *job = ledger_job_take(&engine()->jobs, engine());
    struct buf b;
    assert_non_null(job);
    buf_init(&b, 4096);
    job->body = bytes_of_str(body);
    job->err = ledger_ingest_decode_json(job);
    for (uint32_t i = 0; job->err == ERR_OK && i < job->n_units; i++) {
        job->err = ledger_unit_check(&job->units[i].u, false, &job->fault);
        job->has_fault = job->err != ERR_OK;
        job->fault_unit = i;
    }
    if (job->err != ERR_OK) {
        assert_int_equal(job->err, ERR_BAD_REQUEST);
        ledger_json_job_details(job, &b);
    }
    snprintf(out, 256, "%.*s", (int)b.n, (const char *)b.p);
    buf_fini(&b);
    ledger_job_free(job);
}

static void put_members(struct buf *b, const struct member *m, size_t max)
{
    for (size_t i = 0; i < max && m[i].name != NULL; i++)
        if (m[i].value != NULL)
            buf_printf(b, "%s\"%s\":%s", b->p[b->n - 1] == '{' ? "" : ",", m[i].name, m[i].value);
}

static void judge_form(const struct form *f, char out[256])
{
    struct buf b;
    buf_init(&b, 65536);
    buf_puts(&b, "{\"units\":[{");
    put_members(&b, f->unit, 4);
    buf_printf(&b, "%s\"entries\":[{", b.p[b.n - 1] == '{' ? "" : ",");
    put_members(&b, f->entry, MEMBERS);
    buf_puts(&b, "}]}]}");
    assert_int_equal(b.err, ERR_OK);
    judge(buf_str(&b), out);
    buf_fini(&b);
}

static struct member *find(struct form *f, const char *name, bool *out_of_unit)
{
    for (size_t i = 0; i < 4 && f->unit[i].name != NULL; i++)
        if (strcmp(f->unit[i].name, name) == 0)
            return *out_of_unit = true, &f->unit[i];
    *out_of_unit = false;
    size_t i = 0;
    while (i < MEMBERS - 1 && f->entry[i].name != NULL && strcmp(f->entry[i].name, name) != 0)
        i++;
    f->entry[i].name = name; /* a new one, behind the others */
    return &f->entry[i];
}

/* With this member having this value (NULL: left out) in a request of this kind; `reason` NULL: it is taken. */
static void expect(unsigned kind, const char *name, const char *value, const char *reason)
{
    struct form f = kinds[kind];
    char said[256], want[256] = "";
    bool of_unit;
    find(&f, name, &of_unit)->value = value;
    judge_form(&f, said);
    if (reason != NULL && of_unit && strcmp(reason, "reserved") != 0)
        snprintf(want, sizeof want, "{\"unit\":0,\"member\":\"%s\",\"reason\":\"%s\"}", name, reason);
    else if (reason != NULL)
        snprintf(want, sizeof want, "{\"unit\":0,\"entry\":0,\"member\":\"%s\",\"reason\":\"%s\"}", name,
                 reason);
    if (strcmp(said, want) != 0)
        print_message("kind %u, \"%s\": %.60s\n", kind, name, value == NULL ? "(left out)" : value);
    assert_string_equal(said, want);
}

static bool is_text(const struct member *m)
{
    return m->value[0] == '"';
}

static void each_kind_is_taken_as_it_stands(void **state)
{
    (void)state;
    for (unsigned k = 0; k < KINDS; k++)
        expect(k, "amount", "\"5\"", NULL);
}

static void a_member_left_out_is_named(void **state)
{
    (void)state;
    for (unsigned k = 0; k < KINDS; k++) {
        for (size_t i = 0; kinds[k].entry[i].name != NULL; i++) {
            const char *name = kinds[k].entry[i].name;
            expect(k, name, NULL, strcmp(name, "hold_until") == 0 ? NULL : "missing");
        }
        expect(k, "meta", NULL, NULL);
        expect(k, "not_after", NULL, NULL);
    }
}

static void a_member_said_twice_is_named(void **state)
{
    (void)state;
    for (unsigned k = 0; k < KINDS; k++)
        for (size_t i = 0; kinds[k].entry[i].name != NULL; i++) {
            struct form f = kinds[k];
            char said[256], want[256];
            size_t end = i;
            while (f.entry[end].name != NULL)
                end++;
            f.entry[end] = f.entry[i];
            judge_form(&f, said);
            snprintf(want, sizeof want,
                     "{\"unit\":0,\"entry\":0,\"member\":\"%s\",\"reason\":\"duplicate\"}",
                     f.entry[i].name);
            assert_string_equal(said, want);
        }
}

static void a_member_of_another_type_is_named(void **state)
{
    (void)state;
    static const char *const others[] = {"true", "null", "[]", "{}", "1.5"};
    for (unsigned k = 0; k < KINDS; k++)
        for (size_t i = 0; kinds[k].entry[i].name != NULL; i++) {
            const struct member *m = &kinds[k].entry[i];
            expect(k, m->name, is_text(m) ? "7" : "\"7\"", "type");
            for (size_t o = 0; o < sizeof others / sizeof others[0]; o++)
                expect(k, m->name, others[o], "type");
        }
    for (size_t i = 0; i < 3; i++)
        expect(0, kinds[0].unit[i].name, is_text(&kinds[0].unit[i]) ? "7" : "\"7\"", "type");
}

/* `n` times `c` between quotes. */
static const char *repeated(char c, size_t n)
{
    static char text[TEXT];
    assert_true(n + 3 <= TEXT);
    text[0] = '"';
    memset(text + 1, c, n);
    memcpy(text + 1 + n, "\"", 2);
    return text;
}

static void names_end_at_their_limits(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned kind;
        size_t max;
    } rows[] = {{"id", 0, 128},     {"account", 0, 128}, {"to", 2, 128},
                {"ref_id", 5, 128}, {"asset", 0, 32},    {"idem_id", 0, 128}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect(rows[i].kind, rows[i].name, repeated('x', 1), NULL);
        expect(rows[i].kind, rows[i].name, repeated('x', rows[i].max), NULL);
        expect(rows[i].kind, rows[i].name, repeated('x', rows[i].max + 1), "range");
        expect(rows[i].kind, rows[i].name, "\"\"", "range");
        expect(rows[i].kind, rows[i].name, "\"a b\"", "pattern");
        expect(rows[i].kind, rows[i].name, "\"a\\u00e9\"", "pattern");
    }
    char meta[TEXT];
    snprintf(meta, sizeof meta, "%s", repeated('A', 684));
    expect(0, "meta", meta, "pattern"); /* 513 bytes */
    meta[684] = '=';
    expect(0, "meta", meta, NULL); /* 512 */
    expect(0, "meta", repeated('A', 688), "range");
    expect(0, "meta", "\"aGVsbG8\"", "pattern"); /* without padding */
}

static void numbers_end_at_their_limits(void **state)
{
    (void)state;
    expect(0, "ts", "0", NULL);
    expect(0, "ts", "253402300799999", NULL);
    expect(0, "ts", "253402300800000", "range");
    expect(0, "ts", "-1", "range");
    expect(3, "hold_until", "1", NULL);
    expect(3, "hold_until", "0", "range");
    expect(3, "hold_until", "253402300799999", NULL);
    expect(3, "hold_until", "253402300800000", "range");
    expect(0, "amount", "\"1\"", NULL);
    expect(0, "amount", "\"0\"", "range");
    expect(0, "amount", "\"01\"", "pattern");
    expect(0, "amount", "\"-1\"", "pattern");
    expect(0, "amount", "\"340282366920938463463374607431768211455\"", NULL);
    expect(0, "amount", "\"340282366920938463463374607431768211456\"", "range");
    expect(2, "nonce", "\"18446744073709551615\"", NULL);
    expect(2, "nonce", "\"18446744073709551616\"", "range");
    expect(2, "nonce", "\"0\"", "range");
    expect(2, "nonce", "\"281474976710656\"", "range"); /* lane 1, counter 0 */
    expect(2, "nonce", "\"281474976710657\"", NULL);
}

static void what_a_kind_has_no_place_for_is_refused(void **state)
{
    (void)state;
    static const struct member extra[] = {
        {"to", "\"acct:b\""}, {"nonce", "\"1\""}, {"ref_id", "\"h-1\""}, {"hold_until", "1760000600000"}};
    unsigned refused = 0;
    for (unsigned k = 0; k < KINDS; k++)
        for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++) {
            bool has = false;
            for (size_t m = 0; kinds[k].entry[m].name != NULL; m++)
                has = has || strcmp(kinds[k].entry[m].name, extra[i].name) == 0;
            expect(k, extra[i].name, extra[i].value, has ? NULL : "not_allowed");
            refused += !has;
        }
    assert_int_equal(refused, 4 + 3 + 2 + 2 + 2 + 3 + 2);
    expect(0, "price", "1", "unknown");
    expect(0, "kind", "\"expire\"", "pattern");
    expect(0, "kind", "\"gift\"", "pattern");
    expect(0, "id", "\"_mine\"", "reserved");
    expect(0, "idem_id", "\"_mine\"", "reserved");
    expect(2, "to", "\"acct:a\"", "same_account");
}

static void a_unit_may_be_nameless_only_if_every_entry_has_a_nonce(void **state)
{
    (void)state;
    char said[256];
    expect(2, "idem_id", NULL, NULL);
    struct form f = kinds[0];
    f.unit[0].value = NULL;
    judge_form(&f, said);
    assert_string_equal(said, "{\"unit\":0,\"entry\":0,\"member\":\"idem_id\",\"reason\":\"missing\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_taken_as_it_stands),
        cmocka_unit_test(a_member_left_out_is_named),
        cmocka_unit_test(a_member_said_twice_is_named),
        cmocka_unit_test(a_member_of_another_type_is_named),
        cmocka_unit_test(names_end_at_their_limits),
        cmocka_unit_test(numbers_end_at_their_limits),
        cmocka_unit_test(what_a_kind_has_no_place_for_is_refused),
        cmocka_unit_test(a_unit_may_be_nameless_only_if_every_entry_has_a_nonce),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
