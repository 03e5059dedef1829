/*
 * `ron rewarder verify --inputs`: whether a snapshot file, in any row order and format, is what a run rewarded. The heading must be of
 * the run's tenant and epoch, with its salt and its dimensions; every row must be in the table as it is, each once, and none may be
 * missing. Own code, like the rest of verify.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/str.h"
#include "ron/cmd_rewarder.h"
#include "ron/cmd_rewarder_verify.h"
#include "ron/progress.h"

enum { SHOW_EVERY = 4096 };

struct inputs {
    const struct verify_run *run;
    unsigned column[VERIFY_DIMS]; /* where each dimension of the file is in the table */
    bool *seen;                   /* per row of the table */
    uint64_t n;
    struct progress shown;
};

static bool heading_fits(const json_t *head, const struct verify_run *r)
{
    char salt[2 * sizeof r->salt + 1];
    hex_encode(r->salt, r->salt_n, salt);
    return !strcmp(verify_text(head, "tenant"), verify_text(r->root, "tenant")) &&
           !strcmp(verify_text(head, "epoch"), verify_text(r->root, "epoch")) &&
           !strcasecmp(verify_text(head, "salt"), salt);
}

/* The same names, each once, in whatever order. */
static bool dims_fit(struct inputs *in, const json_t *dims)
{
    bool used[VERIFY_DIMS] = {false};
    if (json_array_size(dims) != in->run->dims)
        return false;
    for (unsigned i = 0; i < in->run->dims; i++) {
        const char *name = json_string_value(json_array_get(dims, i));
        unsigned d = 0;
        while (name && d < in->run->dims && strcmp(in->run->dim[d], name) != 0)
            d++;
        if (!name || d == in->run->dims || used[d])
            return false;
        used[d] = true;
        in->column[i] = d;
    }
    return true;
}

static int by_account(const void *key, const void *element)
{
    return str_cmp(*(const struct str *)key, ((const struct verify_row *)element)->account);
}

static bool row_fits(struct inputs *in, const json_t *row)
{
    const struct verify_run *r = in->run;
    const json_t *first = json_array_get(row, 0);
    struct str account = {json_string_value(first), json_string_length(first)};
    const struct verify_row *w =
        account.p ? bsearch(&account, r->row, r->rows, sizeof *r->row, by_account) : NULL;
    if (!w || (w->flags & VERIFY_DUST) || in->seen[w - r->row] ||
        json_array_size(row) != 1 + (size_t)r->dims)
        return false;
    for (unsigned i = 0; i < r->dims; i++) {
        const json_t *v = json_array_get(row, i + 1);
        if (!json_is_integer(v) || (uint64_t)json_integer_value(v) != verify_usage(w, in->column[i]))
            return false;
    }
    in->seen[w - r->row] = true;
    in->n++;
    return true;
}

static bool lines_fit(struct inputs *in, struct str rest)
{
    struct str line;
    json_error_t why;
    bool ok = true;
    size_t all = rest.n;
    for (rest = str_cut(rest, '\n', &line); ok && rest.p && rest.n;) {
        rest = str_cut(rest, '\n', &line);
        json_t *row = json_loadb(line.p, line.n, 0, &why);
        ok = row && row_fits(in, row);
        json_decref(row);
        if (in->n % SHOW_EVERY == 0)
            progress_step(&in->shown, all - rest.n, all);
    }
    return ok;
}

static bool rows_fit(struct inputs *in, const json_t *rows)
{
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(rows); i++)
        ok = row_fits(in, json_array_get(rows, i));
    return ok;
}

int verify_inputs(struct cmd_ctx *ctx, const struct verify_run *r, const char *path)
{
    struct buf text;
    json_error_t why;
    uint64_t expect = 0;
    struct inputs in = {.run = r, .seen = calloc(r->rows ? r->rows : 1, sizeof *in.seen)};
    buf_init(&text, REWARDER_FILE_MAX);
    if (!in.seen || rewarder_read_file(ctx, path, &text) != CMD_OK) {
        free(in.seen);
        return VERIFY_UNREADABLE;
    }
    progress_begin(&in.shown, ctx, "comparing the inputs");
    for (uint64_t i = 0; i < r->rows; i++)
        expect += !(r->row[i].flags & VERIFY_DUST);
    json_t *head = json_loadb((const char *)text.p, text.n, JSON_DISABLE_EOF_CHECK, &why);
    const json_t *rows = json_object_get(head, "rows");
    bool heading = heading_fits(head, r), dims = heading && dims_fit(&in, json_object_get(head, "dims"));
    bool same = dims && (rows ? rows_fit(&in, rows) : lines_fit(&in, buf_str(&text))) && in.n == expect;
    progress_end(&in.shown);
    int status = CMD_OK;
    if (!heading)
        status = verify_mismatch(ctx, "the file is of another tenant, epoch or salt than the run");
    else if (!dims)
        status = verify_mismatch(ctx, "the file has other dimensions than the run");
    else if (!same)
        status = verify_mismatch(ctx, "the file is not the usage that was rewarded");
    json_decref(head);
    buf_fini(&text);
    free(in.seen);
    return status;
}
