/*
 * Snapshots: whatever the bytes are, the reader must not crash, and must agree with a reading of the same file by jansson alone.
 * The first byte chooses the format; a second mode feeds single rows, which gets deeper faster; a third builds a snapshot from
 * the input in both formats and in two row orders, which must all have one digest, and breaks it in one place, which must be
 * refused.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/str.h"
#include "services/rewarder/core/snapshot.h"
#include "take.h"

enum { ROWS_MAX = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Does jansson read exactly one row of this shape here? *out gets its numbers. */
static bool oracle_row(const uint8_t *p, size_t n, unsigned dims, struct str *out_account,
                       json_t **out_root, uint64_t *usage)
{
    json_error_t why;
    json_t *row = json_loadb((const char *)p, n, 0, &why);
    bool ok =
        json_is_array(row) && json_array_size(row) == 1 + dims && json_is_string(json_array_get(row, 0));
    for (unsigned d = 0; ok && d < dims; d++) {
        const json_t *v = json_array_get(row, d + 1);
        ok = json_is_integer(v) && json_integer_value(v) >= 0;
        usage[d] = ok ? (uint64_t)json_integer_value(v) : 0;
    }
    const json_t *a = json_array_get(row, 0);
    *out_account = (struct str){json_string_value(a), json_string_length(a)};
    *out_root = row;
    return ok && str_is_account(*out_account);
}

static void one_row(const uint8_t *data, size_t size)
{
    uint8_t account[REWARDER_ACCOUNT_MAX];
    uint64_t mine[REWARDER_DIMS_MAX], theirs[REWARDER_DIMS_MAX];
    size_t account_n = 0;
    unsigned dims = 1 + data[0] % 3;
    const uint8_t *p = data + 1, *end = data + size;
    if (memmem(p, size - 1, "-0", 2) || memchr(p, 0, size - 1))
        return; /* jansson takes these for 0 and for a blank; we take neither signs nor NULs */
    const char *why = rewarder_row_read(&p, end, dims, true, account, &account_n, mine);
    while (!why && p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
        p++;
    bool ours = !why && p == end;
    struct str name;
    json_t *row;
    bool oracle = oracle_row(data + 1, size - 1, dims, &name, &row, theirs);
    CHECK(ours == oracle);
    if (ours) {
        CHECK(name.n == account_n && !memcmp(name.p, account, account_n));
        CHECK(!memcmp(mine, theirs, dims * sizeof *mine));
    }
    json_decref(row);
}

static void whole_file(const uint8_t *data, size_t size)
{
    struct rewarder_snapshot s, again;
    struct rewarder_snapshot_error why;
    enum rewarder_media media = data[0] & 1 ? REWARDER_JSON : REWARDER_NDJSON;
    enum err e = rewarder_snapshot_parse((struct bytes){data + 1, size - 1}, media, ROWS_MAX, &s, &why);
    if (e != ERR_OK) {
        CHECK(e == ERR_BAD_SNAPSHOT || e == ERR_DUPLICATE_ACCOUNT || e == ERR_TOO_MANY_ROWS);
        return;
    }
    if (media == REWARDER_JSON) {
        json_error_t j;
        json_t *root = json_loadb((const char *)data + 1, size - 1, JSON_REJECT_DUPLICATES, &j);
        CHECK(root && json_array_size(json_object_get(root, "rows")) == s.rows.count);
        json_decref(root);
    }
    struct rewarder_rows rows;
    CHECK(rewarder_rows_open((struct bytes){s.canonical, s.canonical_bytes}, &rows) == ERR_OK);
    CHECK(sha256_eq(&rows.digest, &s.rows.digest));
    CHECK(rewarder_snapshot_parse((struct bytes){data + 1, size - 1}, media, ROWS_MAX, &again, &why) ==
          ERR_OK);
    CHECK(sha256_eq(&again.rows.digest, &s.rows.digest));
    rewarder_snapshot_fini(&again);
    rewarder_snapshot_fini(&s);
}

/* ---- built snapshots ---- */

enum { BUILT_MAX = 40 };

struct built {
    unsigned rows, dims;
    bool dim_reversed; /* columns in the other order */
    uint64_t usage[BUILT_MAX][3];
    unsigned name[BUILT_MAX];
};

static void build(struct take *t, struct built *b)
{
    b->rows = take_below(t, BUILT_MAX);
    b->dims = 1 + take_below(t, 3);
    for (unsigned i = 0; i < b->rows; i++) {
        b->name[i] = i * 251 + take_below(t, 251); /* ascending and different */
        for (unsigned d = 0; d < b->dims; d++)
            b->usage[i][d] = (uint64_t)take_below(t, 256) << take_below(t, 55);
    }
}

static void put_row(const struct built *b, unsigned i, bool reversed, struct buf *out)
{
    buf_printf(out, "[\"a:%x/%s\"", b->name[i], i % 3 ? "x" : "\\u0079");
    for (unsigned d = 0; d < b->dims; d++)
        buf_printf(out, ",%llu", (unsigned long long)b->usage[i][reversed ? b->dims - 1 - d : d]);
    buf_putc(out, ']');
}

static void put_snapshot(const struct built *b, enum rewarder_media media, bool reversed, unsigned count,
                         struct buf *out)
{
    buf_printf(out, "{\"count\":%u,\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[", count);
    for (unsigned d = 0; d < b->dims; d++)
        buf_printf(out, "%s\"d%u\"", d ? "," : "", reversed ? b->dims - 1 - d : d);
    buf_puts(out, media == REWARDER_JSON ? "],\"rows\":[" : "]}\n");
    for (unsigned k = 0; k < b->rows; k++) {
        put_row(b, reversed ? b->rows - 1 - k : k, reversed, out);
        if (media == REWARDER_NDJSON)
            buf_putc(out, '\n');
        else if (k + 1 < b->rows)
            buf_putc(out, ',');
    }
    if (media == REWARDER_JSON)
        buf_puts(out, "]}");
}

static enum err parse_built(const struct built *b, enum rewarder_media media, bool reversed, unsigned count,
                            struct sha256 *out)
{
    struct buf text;
    struct rewarder_snapshot s;
    struct rewarder_snapshot_error why;
    buf_init(&text, 1 << 20);
    put_snapshot(b, media, reversed, count, &text);
    enum err e = rewarder_snapshot_parse(buf_bytes(&text), media, ROWS_MAX, &s, &why);
    if (e == ERR_OK) {
        *out = s.rows.digest;
        CHECK(s.rows.count == b->rows);
        rewarder_snapshot_fini(&s);
    }
    buf_fini(&text);
    return e;
}

static void built_file(struct take *t)
{
    struct built b;
    struct sha256 one, other;
    build(t, &b);
    CHECK(parse_built(&b, REWARDER_NDJSON, false, b.rows, &one) == ERR_OK);
    for (unsigned i = 1; i < 4; i++) {
        CHECK(parse_built(&b, i & 1 ? REWARDER_JSON : REWARDER_NDJSON, i & 2, b.rows, &other) == ERR_OK);
        CHECK(sha256_eq(&one, &other));
    }
    CHECK(parse_built(&b, REWARDER_JSON, false, b.rows + 1 + take_below(t, 9), &other) == ERR_BAD_SNAPSHOT);
    if (b.rows < 2)
        return;
    unsigned i = take_below(t, b.rows), j = take_below(t, b.rows);
    if (i != j) {
        b.name[i] = b.name[j];
        bool same = (i % 3 == 0) == (j % 3 == 0); /* the two spellings of the end differ */
        CHECK((parse_built(&b, REWARDER_NDJSON, true, b.rows, &other) == ERR_DUPLICATE_ACCOUNT) == same);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    if (data[0] >= 0x40 && data[0] < 0x80)
        built_file(&(struct take){data + 1, size - 1});
    else if (data[0] & 0x80)
        one_row(data, size);
    else
        whole_file(data, size);
    return 0;
}
