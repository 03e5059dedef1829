/* `ron rewarder seal`: a usage table (CSV) becomes a snapshot (a header and one line per account), named by its hash. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "base/str.h"
#include "ron/cmd_rewarder.h"
#include "services/rewarder/core/snapshot.h"

enum { FILE_MAX = 1 << 30, DIMS_MAX = 16, LINE_FIELDS = DIMS_MAX + 1 };

struct csv {
    struct str text;
    unsigned line;
};

/* One line into fields; usage files are plain: no quotes, no blanks. */
static int csv_next(struct csv *c, struct str *fields, int max)
{
    if (c->text.n == 0)
        return 0;
    const char *nl = memchr(c->text.p, '\n', c->text.n);
    size_t n = nl ? (size_t)(nl - c->text.p) : c->text.n;
    struct str line = str_of(c->text.p, n);
    c->text.p += n + (nl != NULL);
    c->text.n -= n + (nl != NULL);
    c->line++;
    if (line.n && line.p[line.n - 1] == '\r')
        line.n--;
    int count = 0;
    while (line.p && count < max)
        line = str_cut(line, ',', &fields[count++]);
    return line.p ? max + 1 : count;
}

static int write_rows(struct cmd_ctx *ctx, struct csv *csv, int columns, struct buf *rows,
                      uint64_t *out_count)
{
    struct str f[LINE_FIELDS];
    int n;
    while ((n = csv_next(csv, f, LINE_FIELDS)) != 0) {
        uint64_t v;
        if (n == 1 && f[0].n == 0)
            continue;
        if (n != columns)
            return cmd_fail(ctx, CMD_FAILED, "line %u has %d fields, the header has %d", csv->line, n,
                            columns);
        if (!str_is_account(f[0]))
            return cmd_fail(ctx, CMD_FAILED, "line %u: the account may only hold A-Z a-z 0-9 : / . _ -",
                            csv->line);
        buf_printf(rows, "[\"%.*s\"", STR_ARG(f[0]));
        for (int i = 1; i < n; i++) {
            if (str_parse_u64(f[i], &v) != ERR_OK || v > INT64_MAX)
                return cmd_fail(ctx, CMD_FAILED,
                                "line %u, column %d: usage is a whole number from 0 to 2^63-1", csv->line,
                                i + 1);
            buf_printf(rows, ",%.*s", STR_ARG(f[i]));
        }
        buf_puts(rows, "]\n");
        ++*out_count;
    }
    return CMD_OK;
}

static void write_header(const struct cmd_ctx *ctx, const struct str *f, int columns, uint64_t count,
                         struct buf *out)
{
    buf_printf(out, "{\"snapshot\":1,\"tenant\":\"%s\",\"epoch\":\"%s\",\"dims\":[",
               cmd_flag(ctx, "tenant", "default"), cmd_flag(ctx, "epoch", ""));
    for (int i = 1; i < columns; i++)
        buf_printf(out, "%s\"%.*s\"", i > 1 ? "," : "", STR_ARG(f[i]));
    buf_printf(out, "],\"count\":%llu,\"producer\":\"ron rewarder seal\"", (unsigned long long)count);
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

/* What the service would refuse is refused here: names that are none, an account twice. */
static int check(struct cmd_ctx *ctx, struct bytes snapshot, uint64_t count,
                 char out_digest[SHA256_TEXT_CHARS])
{
    struct rewarder_snapshot s;
    struct rewarder_snapshot_error why = {.reason = ""};
    enum err e = rewarder_snapshot_parse(snapshot, REWARDER_NDJSON, count ? count : 1, &s, &why);
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
    struct str header[LINE_FIELDS];
    uint64_t count = 0;
    (void)argc;
    buf_init(&text, FILE_MAX);
    buf_init(&rows, FILE_MAX);
    buf_init(&out, FILE_MAX);
    if (!*cmd_flag(ctx, "epoch", ""))
        return cmd_fail(ctx, CMD_USAGE, "name the epoch: --epoch 2026-W41");
    int status = rewarder_read_file(ctx, argv[0], &text);
    struct csv csv = {.text = buf_str(&text)};
    int columns = status == CMD_OK ? csv_next(&csv, header, LINE_FIELDS) : 0;
    if (status == CMD_OK && (columns < 2 || columns > LINE_FIELDS || !str_eq(header[0], STR("account"))))
        status = cmd_fail(ctx, CMD_FAILED,
                          "the first line names the columns: account,<dimension>,... (1 to 16 dimensions)");
    if (status == CMD_OK)
        status = write_rows(ctx, &csv, columns, &rows, &count);
    char digest[SHA256_TEXT_CHARS];
    if (status == CMD_OK) {
        write_header(ctx, header, columns, count, &out);
        buf_put_bytes(&out, buf_bytes(&rows));
        status = check(ctx, buf_bytes(&out), count, digest);
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
                    (unsigned long long)count, cid_text, digest);
    }
    buf_fini(&text);
    buf_fini(&rows);
    buf_fini(&out);
    return status;
}
