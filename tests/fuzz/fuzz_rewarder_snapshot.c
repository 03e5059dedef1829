/*
 * Snapshots: whatever the bytes are, the reader must not crash, and must agree with a reading of the same file by jansson alone.
 * The first byte chooses the format; a second mode feeds single rows, which gets deeper faster.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/str.h"
#include "services/rewarder/core/snapshot.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    if (data[0] & 0x80)
        one_row(data, size);
    else
        whole_file(data, size);
    return 0;
}
