/*
 * ron ledger snapshot, ron ledger restore. A snapshot is taken by the running ledger (POST /admin/snapshot) and packed here; a
 * restore unpacks beside the target, verifies every byte as `ron ledger verify` does, and only then puts it in place.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "ron/client.h"
#include "ron/cmd_ledger.h"
#include "ron/ledger_archive.h"
#include "ron/progress.h"

const struct cmd_flag cmd_ledger_snapshot_flags[] = {
    {"out", CMD_VALUE, "FILE", "where to, e.g. ledger.tar.zst"},
    {"derived", CMD_SWITCH, NULL,
     "also what can be rebuilt from the journal: larger, and quicker to start from"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

const struct cmd_flag cmd_ledger_restore_flags[] = {
    {"into", CMD_VALUE, "DIR", "new or empty directory"},
    {"vkey", CMD_VALUE, "KEY", "verifier key of the log: the signed head must be its own"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

/* The two levels that a snapshot or a half restored ledger has. */
static void remove_tree(const char *dir)
{
    static const char *const levels[] = {"/journal", "/tree", "/index", "/state", "/ckpt", ""};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        char path[1300], file[1600];
        snprintf(path, sizeof path, "%s%s", dir, levels[i]);
        DIR *d = opendir(path);
        for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
            snprintf(file, sizeof file, "%s/%s", path, e->d_name);
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                unlink(file);
        }
        if (d != NULL)
            closedir(d);
        rmdir(path);
    }
}

int cmd_ledger_snapshot(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    const char *out = cmd_flag(ctx, "out", NULL);
    struct client_answer a;
    struct ledger_archive_report r;
    struct progress shown;
    if (out == NULL)
        return cmd_fail(ctx, CMD_USAGE, "--out FILE is needed");
    if (access(out, F_OK) == 0)
        return cmd_fail(ctx, CMD_FAILED, "%s exists", out);
    int status = client_call(ctx, "ledger",
                             &(struct client_request){.method = "POST",
                                                      .path = cmd_switch(ctx, "derived")
                                                                  ? "/admin/snapshot?derived=1"
                                                                  : "/admin/snapshot"},
                             &a);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    const char *dir = client_str(a.json, "path");
    progress_begin(&shown, ctx, "packing the snapshot");
    enum err e = ledger_archive_pack(dir, out, &r);
    progress_end(&shown);
    remove_tree(dir);
    if (e != ERR_OK)
        status = cmd_fail(ctx, CMD_FAILED, "%s", r.why);
    else if (cmd_global(ctx)->json)
        printf("{\"file\":\"%s\",\"seq\":%lld,\"root\":\"%s\",\"files\":%llu,\"bytes\":%llu}\n", out,
               client_int(a.json, "seq"), client_str(a.json, "root"), (unsigned long long)r.files,
               (unsigned long long)r.bytes);
    else
        printf("%s: %llu files up to seq %lld\nroot  %s\n", out, (unsigned long long)r.files,
               client_int(a.json, "seq"), client_str(a.json, "root"));
    client_free(&a);
    return status;
}

static bool read_note(const char *dir, struct buf *out)
{
    char path[1300];
    snprintf(path, sizeof path, "%s/checkpoint", dir);
    return cmd_ledger_slurp(path, out);
}

/* 0, or the exit code; what went wrong has been said. */
static int unpack_and_verify(struct cmd_ctx *ctx, const char *file, const char *temp)
{
    struct ledger_archive_report unpacked;
    struct ledger_verify_report r;
    const char *vkey = cmd_flag(ctx, "vkey", NULL);
    struct buf note;
    if (ledger_archive_unpack(file, temp, &unpacked) != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "%s: %s", file, unpacked.why);
    buf_init(&note, 65536);
    if (vkey != NULL && !read_note(temp, &note))
        return buf_fini(&note), cmd_fail(ctx, CMD_FAILED, "%s holds no signed head", file);
    int code = cmd_ledger_verify(ctx, temp, buf_str(&note), str_from_c(vkey), &r);
    buf_fini(&note);
    return cmd_ledger_report(ctx, file, &r, code);
}

int cmd_ledger_restore(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    const char *named = cmd_flag(ctx, "into", NULL);
    char into[1024], temp[1200];
    if (named == NULL)
        return cmd_fail(ctx, CMD_USAGE, "--into DIR is needed");
    size_t n = (size_t)snprintf(into, sizeof into, "%s", named);
    if (n >= sizeof into)
        return cmd_fail(ctx, CMD_USAGE, "--into is longer than %zu characters", sizeof into - 1);
    while (n > 1 && into[n - 1] == '/') /* a shell completes it so, and what is unpacked goes beside it */
        into[--n] = 0;
    if (access(into, F_OK) == 0 && rmdir(into) != 0)
        return cmd_fail(ctx, CMD_FAILED, "%s is not an empty directory", into);
    snprintf(temp, sizeof temp, "%s.restoring", into);
    if (mkdir(temp, 0700) != 0)
        return cmd_fail(ctx, CMD_FAILED, "cannot make %s: %s%s", temp, strerror(errno),
                        errno == EEXIST ? "; a restore that was interrupted left it: remove it" : "");
    int code = unpack_and_verify(ctx, argv[0], temp);
    if (code == 0 && rename(temp, into) != 0)
        code = cmd_fail(ctx, CMD_FAILED, "cannot make %s: %s", into, strerror(errno));
    if (code != 0)
        remove_tree(temp);
    return code;
}
