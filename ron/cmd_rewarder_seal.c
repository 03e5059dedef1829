/* `ron rewarder seal`: a usage table (CSV) becomes a snapshot (a header and one line per account), named by its hash. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "ron/cmd_rewarder.h"
#include "ron/progress.h"
#include "ron/seal_csv.h"
#include "services/rewarder/core/snapshot.h"

enum { SHOW_EVERY = 4096 };

static int write_rows(struct cmd_ctx *ctx, struct seal_csv *csv, struct buf *rows)
{
    struct progress shown;
    size_t all = csv->text.n;
    bool more = true;
    int column = 0;
    const char *why = NULL;
    progress_begin(&shown, ctx, "reading rows");
    while (more && !why) {
        why = seal_csv_next(csv, rows, &more, &column);
        if (csv->rows % SHOW_EVERY == 0)
            progress_step(&shown, all - csv->text.n, all);
    }
    progress_end(&shown);
    if (why && column)
        return cmd_fail(ctx, CMD_FAILED, "line %llu, column %d: %s", (unsigned long long)csv->line, column,
                        why);
    if (why)
        return cmd_fail(ctx, CMD_FAILED, "line %llu has %d fields, the header has %d",
                        (unsigned long long)csv->line, csv->fields, csv->columns);
    return rows->err == ERR_OK ? CMD_OK : cmd_fail(ctx, CMD_FAILED, "%s", err_title(rows->err));
}

static void write_header(const struct cmd_ctx *ctx, const struct seal_csv *csv, struct buf *out)
{
    buf_printf(out, "{\"snapshot\":1,\"tenant\":\"%s\",\"epoch\":\"%s\",\"dims\":[",
               cmd_flag(ctx, "tenant", "default"), cmd_flag(ctx, "epoch", ""));
    for (int i = 1; i < csv->columns; i++)
        buf_printf(out, "%s\"%.*s\"", i > 1 ? "," : "", STR_ARG(csv->column[i]));
    buf_printf(out, "],\"count\":%llu,\"producer\":\"ron rewarder seal\"", (unsigned long long)csv->rows);
    if (cmd_switch(ctx, "salt")) {
        uint8_t salt[16];
        rng_secure(salt, sizeof salt);
        buf_puts(out, ",\"salt\":\"");
        for (size_t i = 0; i < sizeof salt; i++)
            buf_printf(out, "%02x", salt[i]);
        buf_putc(out, '"');
    }
    buf_puts(out, "}\n");
}

static void show(void *ctx, uint64_t done, uint64_t of)
{
    progress_step(ctx, done, of);
}

/* What the service would refuse is refused here: names that are none, an account twice. */
static int check(struct cmd_ctx *ctx, struct bytes snapshot, uint64_t count,
                 char out_digest[SHA256_TEXT_CHARS])
{
    struct rewarder_snapshot s;
    struct rewarder_snapshot_error why = {.reason = ""};
    struct progress shown;
    progress_begin(&shown, ctx, "checking the snapshot");
    enum err e = rewarder_snapshot_parse_watched(snapshot, REWARDER_NDJSON, count ? count : 1,
                                                 &(struct rewarder_watcher){show, &shown}, &s, &why);
    progress_end(&shown);
    if (e == ERR_DUPLICATE_ACCOUNT)
        return cmd_fail(ctx, CMD_FAILED, "rows %llu and %llu are of the same account",
                        (unsigned long long)(why.other_line - 1), (unsigned long long)(why.line - 1));
    if (e == ERR_BAD_SNAPSHOT)
        return cmd_fail(ctx, CMD_FAILED, "%s%s%s", why.member, why.member[0] ? ": " : "", why.reason);
    if (e != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "%s", err_title(e));
    sha256_format(&s.rows.digest, out_digest);
    rewarder_snapshot_fini(&s);
    return CMD_OK;
}

int rewarder_seal_run(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct buf text, rows, out;
    struct seal_csv csv = {.columns = 0};
    (void)argc;
    buf_init(&text, REWARDER_FILE_MAX);
    buf_init(&rows, REWARDER_FILE_MAX);
    buf_init(&out, REWARDER_FILE_MAX);
    if (!*cmd_flag(ctx, "epoch", ""))
        return cmd_fail(ctx, CMD_USAGE, "name the epoch: --epoch 2026-W41");
    int status = rewarder_read_file(ctx, argv[0], &text);
    const char *why = status == CMD_OK ? seal_csv_open(&csv, buf_str(&text)) : NULL;
    if (why)
        status = cmd_fail(ctx, CMD_FAILED, "%s", why);
    if (status == CMD_OK)
        status = write_rows(ctx, &csv, &rows);
    char digest[SHA256_TEXT_CHARS];
    if (status == CMD_OK) {
        write_header(ctx, &csv, &out);
        buf_put_bytes(&out, buf_bytes(&rows));
        status = check(ctx, buf_bytes(&out), csv.rows, digest);
    }
    if (status == CMD_OK) {
        struct sha256 cid;
        char cid_text[SHA256_TEXT_CHARS];
        const char *path = cmd_flag(ctx, "out", "-");
        FILE *f = strcmp(path, "-") ? fopen(path, "wb") : stdout;
        if (!f || fwrite(out.p, 1, out.n, f) != out.n || (f != stdout && fclose(f) != 0))
            status = cmd_fail(ctx, CMD_FAILED, "cannot write %s: %s", path, strerror(errno));
        sha256_of(out.p, out.n, &cid);
        sha256_format(&cid, cid_text);
        /* The snapshot may be on its way through standard output. */
        if (status == CMD_OK)
            fprintf(cmd_global(ctx)->json && f != stdout ? stdout : stderr,
                    cmd_global(ctx)->json ? "{\"rows\":%llu,\"cid\":\"%s\",\"digest\":\"%s\"}\n"
                                          : "%llu rows\ncid     %s\ndigest  %s\n",
                    (unsigned long long)csv.rows, cid_text, digest);
    }
    buf_fini(&text);
    buf_fini(&rows);
    buf_fini(&out);
    return status;
}
