/*
 * ron ledger export: which head, which entries, where to. The signing key stays with the ledger, so the head is one that it signed: a
 * file that somebody kept, or the one that an orderly stop and a snapshot leave in the directory.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ron/cmd_ledger.h"
#include "ron/ledger_export.h"
#include "ron/verify/check.h"

const struct cmd_flag cmd_ledger_export_flags[] = {
    {"from", CMD_VALUE, "SEQ", "first entry; default: 1"},
    {"to", CMD_VALUE, "SEQ", "last entry; default: the last one that the head covers"},
    {"format", CMD_VALUE, "FORMAT", "jsonl (default), or bundles: leaves as in tlog entry bundles"},
    {"checkpoint", CMD_VALUE, "FILE", "the signed head to export under; default: DIR/checkpoint"},
    {"vkey", CMD_VALUE, "KEY", "verifier key of the log: the head must be signed with it"},
    {"out", CMD_VALUE, "FILE", "where to; default: standard output"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

/* Beside the target first: what stands under its name is whole. */
static int write_file(struct cmd_ctx *ctx, const struct ledger_export *x, const char *path)
{
    struct ledger_verify_report r;
    char temp[1200];
    snprintf(temp, sizeof temp, "%s.part", path);
    FILE *out = fopen(temp, "wb");
    if (out == NULL)
        return cmd_fail(ctx, CMD_FAILED, "cannot write %s: %s", temp, strerror(errno));
    int code = ledger_export(x, out, &r);
    bool written = ferror(out) == 0;
    written = fclose(out) == 0 && written;
    if (code == 0 && written && rename(temp, path) == 0)
        return CMD_OK;
    int why = errno;
    unlink(temp);
    return code != 0 ? cmd_ledger_report(ctx, x->dir, &r, code)
                     : cmd_fail(ctx, CMD_FAILED, "cannot write %s: %s", path, strerror(why));
}

static int write_stdout(struct cmd_ctx *ctx, const struct ledger_export *x)
{
    struct ledger_verify_report r;
    int code = ledger_export(x, stdout, &r);
    if (code != 0)
        return cmd_ledger_report(ctx, x->dir, &r, code);
    return fflush(stdout) == 0 && !ferror(stdout)
               ? CMD_OK
               : cmd_fail(ctx, CMD_FAILED, "cannot write: %s", strerror(errno));
}

static int with_note(struct cmd_ctx *ctx, struct ledger_export *x)
{
    struct str origin, format = str_from_c(cmd_flag(ctx, "format", "jsonl"));
    struct sha256 root;
    const char *out = cmd_flag(ctx, "out", NULL);
    x->bundles = str_eq(format, STR("bundles"));
    if (!x->bundles && !str_eq(format, STR("jsonl")))
        return cmd_fail(ctx, CMD_USAGE, "--format is jsonl or bundles");
    if (verify_note_read(x->note, &origin, &x->size, &root) != ERR_OK || x->size > INT64_MAX)
        return cmd_fail(ctx, CMD_FAILED, "the head is no signed note");
    x->from = (uint64_t)cmd_flag_int(ctx, "from", 1, 1, INT64_MAX);
    x->to = (uint64_t)cmd_flag_int(ctx, "to", (int64_t)x->size, 1, INT64_MAX);
    if (x->to > x->size || x->from - 1 > x->to)
        return cmd_fail(
            ctx, CMD_USAGE, "--from %llu --to %llu is not within the %llu entries that the head covers",
            (unsigned long long)x->from, (unsigned long long)x->to, (unsigned long long)x->size);
    return out != NULL ? write_file(ctx, x, out) : write_stdout(ctx, x);
}

int cmd_ledger_export(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    char kept[1200];
    struct buf note;
    snprintf(kept, sizeof kept, "%s/checkpoint", argv[0]);
    const char *file = cmd_flag(ctx, "checkpoint", kept);
    buf_init(&note, 65536);
    int code = CMD_FAILED;
    if (cmd_ledger_slurp(file, &note)) {
        struct ledger_export x = {
            .dir = argv[0], .note = buf_str(&note), .vkey = str_from_c(cmd_flag(ctx, "vkey", NULL))};
        code = with_note(ctx, &x);
    } else {
        cmd_fail(
            ctx, code,
            "there is no signed head in %s: ask the running ledger for one (ron ledger head) and name it "
            "with --checkpoint",
            file);
    }
    buf_fini(&note);
    return code;
}
