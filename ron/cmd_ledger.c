/*
 * ron ledger: look at accounts, units, entries and the head of a running ledger; ingest; prove; verify offline.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/buf.h"
#include "base/sha256.h"
#include "ron/client.h"
#include "ron/cmd.h"
#include "ron/cmd_ledger.h"
#include "ron/ledger_verify.h"
#include "ron/progress.h"
#include "ron/table.h"
#include "services/ledger/files.h"
#include "services/ledger/service.h"

enum { PATH_CHARS = 1024, BODY_MAX = 1 << 20 };

static int print_answer(struct cmd_ctx *ctx, struct client_answer *a, int status)
{
    if (status != CMD_OK)
        return client_finish(ctx, a, status);
    client_print_raw(a);
    client_free(a);
    return CMD_OK;
}

static int get(struct cmd_ctx *ctx, const char *prefix, const char *name,
               struct client_answer *out) RT_BLOCKS
{
    struct buf path;
    buf_init(&path, PATH_CHARS);
    buf_puts(&path, prefix);
    if (name != NULL)
        client_encode(name, &path);
    int status = client_call(ctx, "ledger", &(struct client_request){.path = buf_cstr(&path)}, out);
    buf_fini(&path);
    return status;
}

static int run_account(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    struct client_answer a;
    int status = get(ctx, "/v1/accounts/", argv[0], &a);
    if (status != CMD_OK || cmd_global(ctx)->json)
        return print_answer(ctx, &a, status);
    size_t i;
    json_t *row;
    static const char *const headers[] = {"ASSET", ">AVAILABLE", ">HELD"};
    struct table t;
    printf("%s as of seq %lld\n", client_str(a.json, "account"), client_int(a.json, "as_of_seq"));
    table_init(&t, cmd_global(ctx)->color, headers, 3);
    json_array_foreach(json_object_get(a.json, "balances"), i, row)
    {
        table_cell(&t, "%s", client_str(row, "asset"));
        table_cell(&t, "%s", client_str(row, "available"));
        table_cell(&t, "%s", client_str(row, "held"));
    }
    table_print_or(&t, "it holds nothing");
    client_free(&a);
    return CMD_OK;
}

static int run_unit(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    struct client_answer a;
    return print_answer(ctx, &a, get(ctx, "/v1/units/", argv[0], &a));
}

static int run_entry(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    struct client_answer a;
    return print_answer(ctx, &a, get(ctx, "/v1/entries/", argv[0], &a));
}

/* A signed head as an object: the three lines that are signed, the root as it is written elsewhere, and the whole note. */
static bool print_head_json(const char *note)
{
    char origin[512], size[32], root64[64];
    struct sha256 root;
    char text[SHA256_TEXT_CHARS];
    size_t n;
    if (sscanf(note, "%511[^\n]\n%31[0-9]\n%63[^\n]\n", origin, size, root64) != 3 ||
        base64_decode(str_from_c(root64), root.b, sizeof root.b, &n) != ERR_OK || n != sizeof root.b)
        return false;
    sha256_format(&root, text);
    json_t *all = json_pack("{s:s,s:I,s:s,s:s}", "origin", origin, "tree_size",
                            (json_int_t)strtoll(size, NULL, 10), "root", text, "note", note);
    json_dumpf(all, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(all);
    return true;
}

static int run_head(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    (void)argv;
    struct client_answer a;
    int status = get(ctx, "/v1/checkpoint", NULL, &a);
    if (status != CMD_OK || !cmd_global(ctx)->json)
        return print_answer(ctx, &a, status);
    bool read = print_head_json(buf_cstr(&a.body));
    client_free(&a);
    return read ? CMD_OK : cmd_fail(ctx, CMD_FAILED, "the head cannot be read");
}

static int run_take_over(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    (void)argv;
    struct client_answer a;
    int status = client_call(ctx, "ledger",
                             &(struct client_request){.method = "POST", .path = "/admin/take-over"}, &a);
    if (status != CMD_OK || cmd_global(ctx)->json)
        return print_answer(ctx, &a, status);
    printf("this ledger writes now: epoch %lld, head %lld, root %s\n", client_int(a.json, "epoch"),
           client_int(a.json, "head_seq"), client_str(a.json, "root"));
    client_free(&a);
    return CMD_OK;
}

static const struct cmd_flag tail_flags[] = {
    {"from", CMD_VALUE, "SEQ", "first entry; default: the last ten"},
    {"limit", CMD_VALUE, "N", "how many; default 100"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static int run_tail(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    (void)argv;
    char path[128];
    struct client_answer a;
    int64_t from = cmd_flag_int(ctx, "from", 0, 0, INT64_MAX),
            limit = cmd_flag_int(ctx, "limit", 100, 1, 1000);
    if (from == 0) {
        int status = get(ctx, "/v1/entries?from=1&limit=1", NULL, &a);
        if (status != CMD_OK)
            return client_finish(ctx, &a, status);
        long long head = client_int(a.json, "as_of_seq");
        from = head > 10 ? head - 9 : 1;
        client_free(&a);
    }
    snprintf(path, sizeof path, "/v1/entries?from=%lld&limit=%lld", (long long)from, (long long)limit);
    int status = get(ctx, path, NULL, &a);
    if (status != CMD_OK || cmd_global(ctx)->json)
        return print_answer(ctx, &a, status);
    size_t i;
    json_t *row;
    static const char *const headers[] = {">SEQ", "KIND", "ACCOUNT", "TO", ">AMOUNT", "ASSET"};
    static const char *const members[] = {"kind", "account", "to", "amount", "asset"};
    struct table t;
    table_init(&t, cmd_global(ctx)->color, headers, 6);
    json_array_foreach(json_object_get(a.json, "entries"), i, row)
    {
        json_t *e = json_object_get(row, "entry");
        table_cell(&t, "%lld", client_int(row, "seq"));
        for (size_t k = 0; k < sizeof members / sizeof members[0]; k++)
            table_cell(&t, "%s", client_str(e, members[k]));
    }
    table_print_or(&t, "no entries there yet");
    client_free(&a);
    return CMD_OK;
}

static int run_ingest(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf body;
    struct client_answer a;
    buf_init(&body, BODY_MAX);
    FILE *in = argc == 0 || strcmp(argv[0], "-") == 0 ? stdin : fopen(argv[0], "r");
    if (in == NULL)
        return cmd_fail(ctx, CMD_FAILED, "cannot read %s: %s", argv[0], strerror(errno));
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, in)) > 0;)
        buf_put(&body, piece, n);
    if (in != stdin)
        fclose(in);
    if (body.err != ERR_OK)
        return buf_fini(&body), cmd_fail(ctx, CMD_USAGE, "the request is over 1 MiB");
    int status = client_call(ctx, "ledger",
                             &(struct client_request){.method = "POST",
                                                      .path = "/v1/ingest?balances=1",
                                                      .body = buf_cstr(&body),
                                                      .body_n = body.n,
                                                      .repeat = true},
                             &a);
    buf_fini(&body);
    bool partly = status == CMD_OK && a.status == 207;
    status = print_answer(ctx, &a, status);
    return partly ? cmd_fail(ctx, CMD_REFUSED, "some of the units were refused") : status;
}

/* ---- offline ---- */

bool cmd_ledger_slurp(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    char piece[4096];
    if (f == NULL)
        return false;
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_put(out, piece, n);
    bool read = !ferror(f);
    fclose(f);
    return read && out->err == ERR_OK;
}

static const struct cmd_flag verify_flags[] = {
    {"vkey", CMD_VALUE, "KEY", "verifier key of the log, with --checkpoint"},
    {"checkpoint", CMD_VALUE, "FILE", "a signed note that the journal must hold"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

int cmd_ledger_report(struct cmd_ctx *ctx, const char *dir, const struct ledger_verify_report *r, int code)
{
    char root[SHA256_TEXT_CHARS], digest[SHA256_TEXT_CHARS];
    sha256_format(&r->root, root);
    sha256_format(&r->state_digest, digest);
    if (code == 0 && cmd_global(ctx)->json)
        printf("{\"ok\":true,\"seq\":%llu,\"groups\":%llu,\"root\":\"%s\",\"state_digest\":\"%s\",\"torn_"
               "bytes\":%llu}\n",
               (unsigned long long)r->seq, (unsigned long long)r->groups, root, digest,
               (unsigned long long)r->torn_bytes);
    else if (code == 0)
        printf("verified %llu entries in %llu groups\nroot          %s\nstate digest  %s\n",
               (unsigned long long)r->seq, (unsigned long long)r->groups, root, digest);
    else if (code == 1 && cmd_global(ctx)->json)
        printf("{\"ok\":false,\"file\":\"%s\",\"byte\":%llu,\"rule\":\"%s\"}\n", r->file,
               (unsigned long long)r->byte, r->rule);
    else if (code == 1)
        cmd_fail(ctx, code, "%s, byte %llu: %s", r->file, (unsigned long long)r->byte, r->rule);
    else
        cmd_fail(ctx, code, "%s holds no ledger that can be read", dir);
    return code;
}

static void entry_read(void *ctx, uint64_t seq, struct str leaf, const struct sha256 *leaf_hash,
                       struct str idem_id, struct str kid, uint64_t ledger_ms)
{
    (void)leaf, (void)leaf_hash, (void)idem_id, (void)kid, (void)ledger_ms;
    if (seq % 4096 == 0)
        progress_step(ctx, seq, 0);
}

int cmd_ledger_verify(struct cmd_ctx *ctx, const char *dir, struct str note, struct str vkey,
                      struct ledger_verify_report *out)
{
    struct progress shown;
    progress_begin(&shown, ctx, "verifying entries");
    int code = ledger_verify(dir, note, vkey, entry_read, &shown, out);
    progress_end(&shown);
    return code;
}

/* Who runs holds this lock: what it derived must not be taken away under its feet. It is kept until the command ends. */
static bool nobody_runs(const char *dir)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[1024];
    snprintf(path, sizeof path, "%s/LOCK", dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

static int run_verify(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    struct ledger_verify_report r;
    struct buf note;
    const char *file = cmd_flag(ctx, "checkpoint", NULL), *vkey = cmd_flag(ctx, "vkey", NULL);
    if ((file == NULL) != (vkey == NULL))
        return cmd_fail(ctx, CMD_USAGE, "--checkpoint and --vkey belong together");
    buf_init(&note, 65536);
    if (file != NULL && !cmd_ledger_slurp(file, &note))
        return buf_fini(&note), cmd_fail(ctx, CMD_FAILED, "cannot read %s", file);
    int code = cmd_ledger_verify(ctx, argv[0], buf_str(&note), str_from_c(vkey), &r);
    buf_fini(&note);
    return cmd_ledger_report(ctx, argv[0], &r, code);
}

static int journal_verify(struct cmd_ctx *ctx, const char *dir, struct ledger_verify_report *out)
{
    struct progress shown;
    progress_begin(&shown, ctx, "verifying entries");
    int code = ledger_verify_journal(dir, entry_read, &shown, out);
    progress_end(&shown);
    return code;
}

static int run_rebuild(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    static const char *const folders[] = {"tree", "index", "state", "ckpt"};
    struct ledger_verify_report r;
    char path[1024];
    snprintf(path, sizeof path, "%s/SUPERBLOCK", argv[0]);
    if (access(path, R_OK) != 0)
        return cmd_fail(ctx, 2, "%s holds no ledger", argv[0]);
    if (!nobody_runs(argv[0]))
        return cmd_fail(ctx, CMD_FAILED, "a running ledger uses %s: stop it first", argv[0]);
    int code =
        journal_verify(ctx, argv[0], &r); /* what is derived may be all that still knows what is missing */
    if (code != 0)
        return cmd_ledger_report(ctx, argv[0], &r, code);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", argv[0], folders[i]);
        DIR *d = opendir(path);
        for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
            char file[1400];
            snprintf(file, sizeof file, "%s/%s", path, e->d_name);
            if (e->d_name[0] != '.' && unlink(file) != 0)
                return closedir(d), cmd_fail(ctx, CMD_FAILED, "cannot remove %s", file);
        }
        if (d != NULL)
            closedir(d);
    }
    snprintf(path, sizeof path, "%s/groups", argv[0]);
    if (unlink(path) != 0 && errno != ENOENT)
        return cmd_fail(ctx, CMD_FAILED, "cannot remove %s", path);
    if (!cmd_global(ctx)->json)
        puts(
            "everything derived was removed; the next start rebuilds it from the journal, which is whole:");
    return cmd_ledger_report(ctx, argv[0], &r, code);
}

static const struct cmd_flag new_key_flags[] = {
    {"out", CMD_VALUE, "FILE", "the key file (log.key_file), which must not be there"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

/* For a log that lost its key: a start makes none, because whoever pinned the old one has to be told first. */
static int run_new_key(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    const char *out = cmd_flag(ctx, "out", NULL);
    struct ledger_superblock sb;
    struct ledger_signer *signer;
    char path[1024], vkey[NOTE_VKEY_MAX];
    struct buf b;
    if (out == NULL)
        return cmd_fail(ctx, CMD_USAGE, "new-key takes --out FILE");
    snprintf(path, sizeof path, "%s/SUPERBLOCK", argv[0]);
    buf_init(&b, 4096);
    bool read = cmd_ledger_slurp(path, &b) && b.n == 4096 && ledger_superblock_decode(b.p, &sb) == ERR_OK;
    buf_fini(&b);
    if (!read)
        return cmd_fail(ctx, CMD_FAILED, "%s holds no ledger", argv[0]);
    if (!nobody_runs(argv[0]))
        return cmd_fail(ctx, CMD_FAILED, "a running ledger uses %s: stop it first", argv[0]);
    if (access(out, F_OK) == 0)
        return cmd_fail(ctx, CMD_FAILED, "%s is there: a log keeps its key", out);
    if (ledger_key_new(store_disk_real(), out, sb.origin, &signer) != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "cannot write %s", out);
    ledger_signer_vkey(signer, vkey);
    ledger_signer_destroy(signer);
    printf(cmd_global(ctx)->json ? "{\"vkey\":\"%s\"}\n" : "%s\n", vkey);
    return CMD_OK;
}

static const struct cmd_flag prove_flags[] = {
    {"id", CMD_VALUE, "ID", "the entry with this id"},
    {"seq", CMD_VALUE, "SEQ", "the entry with this number"},
    {"out", CMD_VALUE, "FILE", "where to; default: standard output"},
    {"check", CMD_VALUE, "FILE", "verify a proof, offline"},
    {"vkey", CMD_VALUE, "KEY", "verifier key, with --check"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static int prove_check(struct cmd_ctx *ctx, const char *file)
{
    struct buf proof;
    uint64_t index = 0, size = 0;
    const char *vkey = cmd_flag(ctx, "vkey", NULL);
    if (vkey == NULL)
        return cmd_fail(ctx, CMD_USAGE, "--check needs --vkey");
    buf_init(&proof, 1 << 20);
    if (!cmd_ledger_slurp(file, &proof))
        return buf_fini(&proof), cmd_fail(ctx, CMD_FAILED, "cannot read %s", file);
    enum err err = ledger_verify_proof(buf_str(&proof), str_from_c(vkey), &index, &size);
    buf_fini(&proof);
    bool json = cmd_global(ctx)->json;
    if (err == ERR_OK)
        printf(json ? "{\"ok\":true,\"seq\":%llu,\"tree_size\":%llu}\n"
                    : "seq %llu is in the signed tree of size %llu\n",
               (unsigned long long)index + 1, (unsigned long long)size);
    else if (json)
        printf("{\"ok\":false,\"rule\":\"%s\"}\n", err_title(err));
    else
        cmd_fail(ctx, CMD_FAILED, "the proof does not hold: %s", err_title(err));
    return err == ERR_OK ? CMD_OK : CMD_FAILED;
}

static int run_prove(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    (void)argv;
    const char *check = cmd_flag(ctx, "check", NULL), *id = cmd_flag(ctx, "id", NULL),
               *out = cmd_flag(ctx, "out", NULL);
    int64_t seq = cmd_flag_int(ctx, "seq", 0, 0, INT64_MAX);
    struct client_answer a;
    char path[96];
    if (check != NULL)
        return prove_check(ctx, check);
    if (id != NULL) {
        int status = get(ctx, "/v1/entries/", id, &a);
        if (status != CMD_OK)
            return client_finish(ctx, &a, status);
        seq = client_int(a.json, "seq");
        client_free(&a);
    }
    if (seq == 0)
        return cmd_fail(ctx, CMD_USAGE, "prove takes --id or --seq, or --check");
    snprintf(path, sizeof path, "/v1/proof/inclusion?format=%s&seq=%lld",
             cmd_global(ctx)->json ? "json" : "tlog", (long long)seq);
    int status = get(ctx, path, NULL, &a);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    FILE *f = out == NULL ? stdout : fopen(out, "w");
    bool ok = f != NULL && fwrite(a.body.p, 1, a.body.n, f) == a.body.n;
    if (f != NULL && f != stdout)
        ok = fclose(f) == 0 && ok;
    client_free(&a);
    return ok ? CMD_OK : cmd_fail(ctx, CMD_FAILED, "cannot write %s", out == NULL ? "the proof" : out);
}

static const struct cmd commands[] = {
    {"account", "ACCOUNT", "balances and nonces", "ron ledger account acct:alice", NULL, 1, 1, run_account},
    {"unit", "IDEM_ID", "what became of a unit", "ron ledger unit demo:pay:1", NULL, 1, 1, run_unit},
    {"entry", "ID", "one entry with its leaf", "ron ledger entry demo-2", NULL, 1, 1, run_entry},
    {"head", "", "the signed checkpoint of the durable head", "ron ledger head", NULL, 0, 0, run_head},
    {"take-over", "", "make this copy the one that writes (replication)", "ron ledger take-over", NULL, 0,
     0, run_take_over},
    {"tail", "", "the newest entries", "ron ledger tail --from 1", tail_flags, 0, 0, run_tail},
    {"ingest", "[FILE]", "send units (JSON, stdin without FILE)", "ron ledger ingest units.json", NULL, 0,
     1, run_ingest},
    {"prove", "", "a proof that an entry is in the signed tree; --check verifies one offline",
     "ron ledger prove --id demo-2 --out demo-2.tlog-proof\nron ledger prove --check demo-2.tlog-proof "
     "--vkey KEY",
     prove_flags, 0, 0, run_prove},
    {"verify", "DIR", "check a ledger's files without trusting the ledger",
     "ron ledger verify ron-data/ledger", verify_flags, 1, 1, run_verify},
    {"export", "DIR", "entries for somebody who checks them elsewhere, tied to a signed head",
     "ron ledger export ron-data/ledger --out entries.jsonl", cmd_ledger_export_flags, 1, 1,
     cmd_ledger_export},
    {"snapshot", "", "a running ledger's journal and signed head in one file",
     "ron ledger snapshot --out ledger.tar.zst", cmd_ledger_snapshot_flags, 0, 0, cmd_ledger_snapshot},
    {"restore", "FILE", "unpack a snapshot into a new directory, after everything in it was verified",
     "ron ledger restore ledger.tar.zst --into ron-data/ledger", cmd_ledger_restore_flags, 1, 1,
     cmd_ledger_restore},
    {"rebuild", "DIR", "remove everything derived from the journal and verify the rest",
     "ron ledger rebuild ron-data/ledger", NULL, 1, 1, run_rebuild},
    {"new-key", "DIR",
     "another signing key for a log whose key is lost; prints the verifier key to publish",
     "ron ledger new-key ron-data/ledger --out ron-data/keys/ledger-ed25519", new_key_flags, 1, 1,
     run_new_key},
    {.run = NULL},
};

const struct cmd_group cmd_ledger = {
    .noun = "ledger",
    .summary = "the durable, provable truth: accounts, units, entries, proofs",
    .commands = commands,
    .service = &ledger_svc,
    .exits = "verify and rebuild end with 1 when something is wrong, 2 when it cannot be read"};
