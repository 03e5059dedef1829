/*
 * The CSV of `ron rewarder seal`. Whatever the bytes are, the reader must not crash, and what it takes must be rows that the reader of
 * snapshots takes as well, with the same accounts and numbers, one for every line that is not empty. A second mode builds a good file
 * from the input, in one of four spellings, which must be taken whole, and breaks one field, which must be refused at its place.
 */
#include <string.h>

#include "base/check.h"
#include "ron/seal_csv.h"
#include "services/rewarder/core/snapshot.h"
#include "take.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all of it; NULL, or the first refusal. */
static const char *read_all(struct seal_csv *c, struct str text, struct buf *rows, int *out_column)
{
    bool more = true;
    *out_column = 0;
    const char *why = seal_csv_open(c, text);
    CHECK(why || (c->columns >= 2 && c->columns <= SEAL_COLUMNS_MAX && c->line == 1));
    while (!why && more) {
        uint64_t rows_before = c->rows;
        why = seal_csv_next(c, rows, &more, out_column);
        CHECK(c->rows == rows_before + (!why && more));
    }
    return why;
}

static void any_bytes(const uint8_t *data, size_t size)
{
    struct buf rows;
    struct seal_csv c;
    int column;
    buf_init(&rows, 1 << 20);
    const char *why = read_all(&c, (struct str){(const char *)data, size}, &rows, &column);
    CHECK(c.line <= size + 1 && c.rows < c.line + (c.line == 0));
    const uint8_t *p = rows.p, *end = rows.n ? rows.p + rows.n : rows.p; /* nothing put: nowhere */
    for (uint64_t i = 0; !why && i < c.rows; i++) {
        uint8_t account[REWARDER_ACCOUNT_MAX];
        uint64_t usage[REWARDER_DIMS_MAX];
        size_t n;
        CHECK(!rewarder_row_read(&p, end, (unsigned)c.columns - 1, false, account, &n, usage));
        CHECK(p < end && *p == '\n');
        p++;
    }
    CHECK(why || p == end);
    buf_fini(&rows);
}

/* ---- built files ---- */

static void built(struct take *t)
{
    struct buf text, rows, want;
    struct seal_csv c;
    unsigned dims = 1 + take_below(t, 16), count = take_below(t, 30), how = take_below(t, 4);
    unsigned bad = take_below(t, 2) ? take_below(t, 30) : 30, bad_column = take_below(t, 17) % (dims + 1);
    const char *nl = how & 1 ? "\r\n" : "\n";
    int column;
    buf_init(&text, 1 << 20);
    buf_init(&rows, 1 << 20);
    buf_init(&want, 1 << 20);
    buf_puts(&text, "account");
    for (unsigned d = 0; d < dims; d++)
        buf_printf(&text, ",d%u", d);
    buf_puts(&text, nl);
    for (unsigned i = 0; i < count; i++) {
        if (how & 2)
            buf_puts(&text, nl); /* an empty line between */
        buf_printf(&text, "a:%u%s", i, i == bad && bad_column == 0 ? "\"" : "");
        buf_printf(&want, "[\"a:%u\"", i);
        for (unsigned d = 1; d <= dims; d++) {
            unsigned long long v = (unsigned long long)take_below(t, 256) << take_below(t, 55);
            buf_printf(&text, ",%llu%s", v, i == bad && bad_column == d ? "." : "");
            buf_printf(&want, ",%llu", v);
        }
        buf_puts(&text, i + 1 == count && take_below(t, 2) ? "" : nl);
        buf_puts(&want, "]\n");
    }
    const char *why = read_all(&c, buf_str(&text), &rows, &column);
    CHECK((why != NULL) == (bad < count));
    if (why)
        CHECK(column == (int)bad_column + 1 && c.rows == bad &&
              c.line == (how & 2 ? 2 * bad + 3 : bad + 2));
    else
        CHECK(c.rows == count && rows.n == want.n && (!want.n || !memcmp(rows.p, want.p, want.n)));
    buf_fini(&text);
    buf_fini(&rows);
    buf_fini(&want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (data[0] < 128)
        any_bytes(data + 1, size - 1);
    else
        built(&(struct take){data + 1, size - 1});
    return 0;
}
