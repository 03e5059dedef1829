/* `ron rewarder`: seal usage, compute an epoch, look at it, ask why, settle it. Sealing, fetching, verifying and
 * what works on the files of a stopped service have files of their own. */
#include "ron/cmd_rewarder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/sha256.h"
#include "base/str.h"
#include "ron/client.h"
#include "ron/services.h"
#include "ron/table.h"
#include "rt/deadline.h"

enum { FILE_MAX = 1 << 30 };

/* ---- small things ---- */

int rewarder_read_file(struct cmd_ctx *ctx, const char *path, struct buf *out)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!f)
        return cmd_fail(ctx, CMD_FAILED, "cannot read %s: %s", path, strerror(errno));
    char piece[65536];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        buf_put(out, piece, n);
    bool bad = ferror(f) || out->err != ERR_OK;
    if (f != stdin)
        fclose(f);
    return bad ? cmd_fail(ctx, CMD_FAILED, "cannot read %s", path) : CMD_OK;
}

void rewarder_epoch_path(const char *epoch, const char *rest, struct buf *out)
{
    buf_puts(out, "/rewarder/epochs/");
    client_encode(epoch, out);
    buf_puts(out, rest);
}

static int show_json(struct cmd_ctx *ctx, const struct client_request *rq) RT_BLOCKS
{
    struct client_answer a;
    int status = client_call(ctx, "rewarder", rq, &a);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    client_print_raw(&a);
    client_free(&a);
    return CMD_OK;
}

static const char *group_digits(const char *digits, char out[64])
{
    size_t n = strlen(digits), at = 0;
    for (size_t i = 0; i < n && at < 60; i++) {
        if (i && (n - i) % 3 == 0)
            out[at++] = ' ';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

/* ---- put, compute ---- */

/* Uploads a snapshot; *out_cid gets its content id. */
static int put_file(struct cmd_ctx *ctx, const char *path, char out_cid[SHA256_TEXT_CHARS],
                    bool quiet) RT_BLOCKS
{
    struct buf text;
    struct client_answer a;
    buf_init(&text, FILE_MAX);
    int status = rewarder_read_file(ctx, path, &text);
    if (status != CMD_OK) {
        buf_fini(&text);
        return status;
    }
    const char *nl = memchr(text.p, '\n', text.n);
    bool ndjson = !(nl && memmem(text.p, text.n, "\"rows\"", 6));
    status =
        client_call(ctx, "rewarder",
                    &(struct client_request){.method = "PUT",
                                             .path = "/rewarder/inputs",
                                             .body = (const char *)text.p,
                                             .body_n = text.n,
                                             .type = ndjson ? "application/x-ndjson" : "application/json",
                                             .timeout_ms = 120000},
                    &a);
    buf_fini(&text);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    snprintf(out_cid, SHA256_TEXT_CHARS, "%s", client_str(a.json, "cid"));
    if (!quiet && cmd_global(ctx)->json)
        client_print_raw(&a);
    else if (!quiet)
        printf("%s  %lld rows, digest %s\n", out_cid, client_int(a.json, "rows"),
               client_str(a.json, "digest"));
    client_free(&a);
    return CMD_OK;
}

static int run_put(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    char cid[SHA256_TEXT_CHARS];
    (void)argc;
    return put_file(ctx, argv[0], cid, false);
}

static void say_progress(const json_t *body)
{
    const json_t *p = json_object_get(body, "progress");
    if (!isatty(STDERR_FILENO))
        return;
    if (p)
        fprintf(stderr, "\r%-10s %-9s %lld/%lld ", client_str(body, "state"), client_str(p, "phase"),
                client_int(p, "done"), client_int(p, "of"));
    else
        fprintf(stderr, "\r%-40s", client_str(body, "state"));
}

static bool is_over(const char *state, bool dry)
{
    return !strcmp(state, "settled") || !strcmp(state, "held") || !strcmp(state, "quarantined") ||
           !strcmp(state, "failed") || (dry && !strcmp(state, "sealed"));
}

static void print_run(const json_t *body)
{
    char a[64], b[64], c[64];
    const json_t *m = json_object_get(body, "manifest"), *totals = json_object_get(m, "totals");
    printf("epoch    %s (%s)\n", client_str(body, "epoch"), client_str(body, "tenant"));
    printf("state    %s", client_str(body, "state"));
    const json_t *why = json_object_get(body, "held");
    if (why)
        printf(": %s since %s", client_str(why, "cause"), client_str(why, "since"));
    if ((why = json_object_get(body, "quarantine")))
        printf(": %s, %s", client_str(why, "kind"), client_str(why, "reason"));
    if ((why = json_object_get(body, "failure")))
        printf(": %s, %s", client_str(why, "code"), client_str(why, "detail"));
    printf("\nrun      %s\ninputs   %s\n", client_str(body, "run_key"), client_str(body, "inputs_cid"));
    if (!m)
        return;
    printf("pool     %s\npayouts  %s to %lld recipients, %lld without\ndust     %s\n",
           group_digits(client_str(json_object_get(m, "pool"), "amount"), a),
           group_digits(client_str(totals, "payouts"), b), client_int(totals, "paid"),
           client_int(totals, "unpaid"), group_digits(client_str(totals, "dust"), c));
    const json_t *commitment = json_object_get(m, "commitment");
    printf("root     %s over %lld leaves\n", client_str(commitment, "root"),
           client_int(commitment, "count"));
    const json_t *s = json_object_get(body, "settlement");
    if (s)
        printf("ledger   %lld of %lld units, seq %lld to %lld\n", client_int(s, "done"),
               client_int(s, "chunks"), client_int(s, "seq_first"), client_int(s, "seq_last"));
}

static int finish_run(struct cmd_ctx *ctx, struct client_answer *a)
{
    const char *state = client_str(a->json, "state");
    int status = !strcmp(state, "failed") || !strcmp(state, "quarantined") ? CMD_REFUSED
                 : !strcmp(state, "held")                                  ? CMD_PENDING
                                                                           : CMD_OK;
    if (cmd_global(ctx)->json)
        client_print_raw(a);
    else
        print_run(a->json);
    client_free(a);
    return status;
}

static int wait_for_run(struct cmd_ctx *ctx, const char *path, bool dry) RT_BLOCKS
{
    struct client_answer a;
    for (;;) {
        int status =
            client_call(ctx, "rewarder", &(struct client_request){.path = path, .repeat = true}, &a);
        if (status != CMD_OK)
            return client_finish(ctx, &a, status);
        say_progress(a.json);
        if (is_over(client_str(a.json, "state"), dry))
            break;
        client_free(&a);
        usleep(50000);
    }
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%-60s\r", "");
    return finish_run(ctx, &a);
}

static int run_compute(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    char cid[SHA256_TEXT_CHARS];
    const char *inputs = cmd_flag(ctx, "inputs", NULL), *policy = cmd_flag(ctx, "policy", NULL);
    struct client_answer a;
    struct buf path, body, look;
    (void)argc;
    if (!inputs)
        return cmd_fail(ctx, CMD_USAGE, "name the inputs: --inputs FILE or --inputs sha256:...");
    if (strncmp(inputs, "sha256:", 7)) {
        int status = put_file(ctx, inputs, cid, true);
        if (status != CMD_OK)
            return status;
        inputs = cid;
    }
    buf_init(&path, 1024);
    buf_init(&body, 1024);
    buf_init(&look, 1024);
    rewarder_epoch_path(argv[0], "/compute", &path);
    buf_printf(&body, "{\"inputs_cid\":\"%s\"", inputs);
    if (policy)
        buf_printf(&body, ",\"policy_id\":\"%s\"", policy);
    bool dry = cmd_switch(ctx, "dry-run");
    buf_printf(&body, "%s}", dry ? ",\"dry_run\":true" : "");
    int status = client_call(
        ctx, "rewarder",
        &(struct client_request){.path = buf_cstr(&path), .body = buf_cstr(&body), .repeat = true}, &a);
    if (status != CMD_OK) {
        status = client_finish(ctx, &a, status);
    } else if (cmd_switch(ctx, "wait")) {
        client_free(&a);
        rewarder_epoch_path(argv[0], dry ? "?dry_run=true" : "", &look);
        status = wait_for_run(ctx, buf_cstr(&look), dry);
    } else {
        status = finish_run(ctx, &a);
        if (status == CMD_PENDING) /* it was accepted; that it is held already is a matter of speed */
            status = CMD_OK;
    }
    buf_fini(&path);
    buf_fini(&body);
    buf_fini(&look);
    return status;
}

/* ---- looking ---- */

static int run_list(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    static const char *const headers[] = {">n",       "epoch", "state", "policy", ">pool",
                                          ">payouts", ">dust", ">paid", "sealed"};
    struct client_answer a;
    (void)argc;
    (void)argv;
    int status =
        client_call(ctx, "rewarder", &(struct client_request){.path = "/rewarder/epochs?limit=200"}, &a);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    if (cmd_global(ctx)->json) {
        client_print_raw(&a);
    } else {
        struct table t;
        size_t i;
        json_t *e;
        table_init(&t, cmd_global(ctx)->color, headers, 9);
        json_array_foreach(json_object_get(a.json, "epochs"), i, e)
        {
            table_cell(&t, "%lld", client_int(e, "n"));
            table_cell(&t, "%s", client_str(e, "epoch"));
            table_cell(&t, "%s", client_str(e, "state"));
            table_cell(&t, "%s", client_str(e, "policy_id"));
            table_cell(&t, "%s", client_str(e, "pool"));
            table_cell(&t, "%s", client_str(e, "payouts"));
            table_cell(&t, "%s", client_str(e, "dust"));
            table_cell(&t, "%lld", client_int(e, "paid"));
            table_cell(&t, "%s", client_str(e, "sealed_at"));
        }
        table_print_or(&t, "no runs yet");
    }
    client_free(&a);
    return CMD_OK;
}

static int run_show(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf path;
    struct client_answer a;
    (void)argc;
    buf_init(&path, 1024);
    rewarder_epoch_path(argv[0], cmd_switch(ctx, "dry-run") ? "?dry_run=true" : "", &path);
    int status = client_call(ctx, "rewarder", &(struct client_request){.path = buf_cstr(&path)}, &a);
    buf_fini(&path);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    if (cmd_global(ctx)->json)
        client_print_raw(&a);
    else
        print_run(a.json);
    client_free(&a);
    return CMD_OK;
}

/* In words what the service derived: usage times weight, share, rounding. */
static void print_explanation(const json_t *body)
{
    const json_t *x = json_object_get(body, "explain"), *v;
    const json_t *usage = json_object_get(x, "usage"), *weights = json_object_get(x, "weights");
    const char *dim;
    printf("%s gets %s %s in epoch %s: %s\n\n", client_str(body, "account"), client_str(body, "amount"),
           client_str(body, "asset"), client_str(body, "epoch"), client_str(x, "why"));
    json_object_foreach((json_t *)(uintptr_t)usage, dim, v)
    {
        const char *w = client_str(weights, dim);
        printf("  %-20s %20lld x %s\n", dim, (long long)json_integer_value(v), *w ? w : "0 (not weighed)");
    }
    printf("  %-20s %20s of %s\n", "score", client_str(x, "score"), client_str(x, "score_total"));
    printf("  %-20s %20s + %s/%s of the pool of %s\n", "exact share", client_str(x, "floor"),
           client_str(x, "remainder"), client_str(x, "score_total"), client_str(x, "pool"));
    printf("  %-20s %20s by %s", "rounded", client_str(x, "rounded"), client_str(x, "rounding"));
    if (client_int(x, "rank"))
        printf(" (rank %lld, cut %lld)", client_int(x, "rank"), client_int(x, "cut"));
    printf("\n");
    const json_t *p = json_object_get(body, "proof");
    if (p)
        printf("  %-20s leaf %lld of %lld under %s\n", "proof", client_int(p, "index"),
               client_int(p, "count"), client_str(p, "root"));
    if (client_int(body, "ledger_seq"))
        printf("  %-20s entry %s, seq %lld\n", "ledger", client_str(body, "entry_id"),
               client_int(body, "ledger_seq"));
}

static int run_explain(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf path;
    struct client_answer a;
    (void)argc;
    buf_init(&path, 2048);
    rewarder_epoch_path(argv[0], "/payouts?account=", &path);
    client_encode(argv[1], &path);
    int status = client_call(ctx, "rewarder", &(struct client_request){.path = buf_cstr(&path)}, &a);
    buf_fini(&path);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    if (cmd_global(ctx)->json)
        client_print_raw(&a);
    else
        print_explanation(a.json);
    client_free(&a);
    return CMD_OK;
}

static int run_csv(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf path;
    (void)argc;
    buf_init(&path, 1024);
    rewarder_epoch_path(argv[0], "/payouts.csv", &path);
    int status = show_json(ctx, &(struct client_request){.path = buf_cstr(&path), .timeout_ms = 120000});
    buf_fini(&path);
    return status;
}

/* ---- acting ---- */

static int post(struct cmd_ctx *ctx, const char *epoch, const char *what, const char *body) RT_BLOCKS
{
    struct buf path;
    struct client_answer a;
    buf_init(&path, 1024);
    rewarder_epoch_path(epoch, what, &path);
    int status =
        client_call(ctx, "rewarder", &(struct client_request){.path = buf_cstr(&path), .body = body}, &a);
    buf_fini(&path);
    return status == CMD_OK ? finish_run(ctx, &a) : client_finish(ctx, &a, status);
}

static int run_emit(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    return post(ctx, argv[0], "/emit", cmd_switch(ctx, "recheck") ? "{\"recheck\":true}" : "{}");
}

static int run_quarantine(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    json_t *body = json_pack("{s:s}", "reason", cmd_flag(ctx, "reason", "by operator"));
    char *text = json_dumps(body, JSON_COMPACT);
    int status = post(ctx, argv[0], "/quarantine", text);
    free(text);
    json_decref(body);
    return status == CMD_REFUSED ? CMD_OK : status; /* "quarantined" is what was asked for */
}

static int run_release(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    json_t *body = json_pack("{s:s,s:s}", "action", cmd_switch(ctx, "discard") ? "discard" : "resume",
                             "reason", cmd_flag(ctx, "reason", "by operator"));
    char *text = json_dumps(body, JSON_COMPACT);
    int status = post(ctx, argv[0], "/release", text);
    free(text);
    json_decref(body);
    return status;
}

static int run_shadow(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf policy, body;
    struct client_answer a;
    const char *inputs = cmd_flag(ctx, "inputs", NULL), *file = cmd_flag(ctx, "policy-file", NULL);
    char cid[SHA256_TEXT_CHARS], location[160];
    (void)argc;
    (void)argv;
    if (!inputs || !file)
        return cmd_fail(ctx, CMD_USAGE, "needs --inputs and --policy-file");
    if (strncmp(inputs, "sha256:", 7)) {
        int put = put_file(ctx, inputs, cid, true);
        if (put != CMD_OK)
            return put;
        inputs = cid;
    }
    buf_init(&policy, 1 << 20);
    buf_init(&body, 2 << 20);
    int status = rewarder_read_file(ctx, file, &policy);
    buf_printf(&body, "{\"inputs_cid\":\"%s\",\"policy\":%.*s}", inputs, (int)policy.n,
               (const char *)policy.p);
    if (status == CMD_OK)
        status = client_call(
            ctx, "rewarder",
            &(struct client_request){.path = "/rewarder/shadow", .body = buf_cstr(&body), .body_n = body.n},
            &a);
    buf_fini(&policy);
    buf_fini(&body);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    snprintf(location, sizeof location, "%s", a.location);
    while (!strcmp(client_str(a.json, "state"), "queued") ||
           !strcmp(client_str(a.json, "state"), "computing")) {
        client_free(&a);
        usleep(50000);
        status = client_call(ctx, "rewarder", &(struct client_request){.path = location}, &a);
        if (status != CMD_OK)
            return client_finish(ctx, &a, status);
    }
    client_print_raw(&a);
    client_free(&a);
    return CMD_OK;
}

/* ---- table ---- */

static const struct cmd_flag seal_flags[] = {
    {"epoch", CMD_VALUE, "E", "the epoch this usage belongs to"},
    {"tenant", CMD_VALUE, "T", "the tenant (default: default)"},
    {"salt", CMD_SWITCH, NULL, "salt the leaves, so that proofs reveal no names"},
    {"out", CMD_VALUE, "FILE", "where the snapshot goes (default: standard output)"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag compute_flags[] = {
    {"inputs", CMD_VALUE, "CID|FILE", "the snapshot; a file is uploaded first"},
    {"policy", CMD_VALUE, "ID", "the reward policy"},
    {"dry-run", CMD_SWITCH, NULL, "claim and emit nothing"},
    {"wait", CMD_SWITCH, NULL, "wait until it is settled, held or refused"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag show_flags[] = {{"dry-run", CMD_SWITCH, NULL, "the epoch's dry run"},
                                             {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag emit_flags[] = {
    {"recheck", CMD_SWITCH, NULL, "ask the ledger for every unit again and send what it does not know"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag reason_flags[] = {{"reason", CMD_VALUE, "TEXT", "why"},
                                               {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag release_flags[] = {
    {"reason", CMD_VALUE, "TEXT", "why"},
    {"discard", CMD_SWITCH, NULL, "free the epoch instead of resuming"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag shadow_flags[] = {{"inputs", CMD_VALUE, "CID|FILE", "the snapshot"},
                                               {"policy-file", CMD_VALUE, "FILE", "the candidate policy"},
                                               {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag verify_flags[] = {
    {"inputs", CMD_VALUE, "FILE", "prove that this snapshot is what was used"},
    {"key", CMD_VALUE, "PUB.pem", "the key that must have signed (default: pub.pem in the directory)"},
    {"ledger", CMD_VALUE, "URL", "compare every leaf with its entry in this ledger"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag proof_flags[] = {{"run", CMD_VALUE, "run.json", "the manifest"},
                                              {"key", CMD_VALUE, "PUB.pem", "the key that signed it"},
                                              {"sig", CMD_VALUE, "FILE", "the signature of the manifest"},
                                              {NULL, CMD_SWITCH, NULL, NULL}};

static const struct cmd_flag fsck_flags[] = {
    {"repair", CMD_SWITCH, NULL,
     "salvage a damaged registry.log; unsettled runs are quarantined for a look"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag rebuild_flags[] = {
    {"tenant", CMD_VALUE, "T", "the tenant (default: default)"},
    {"policy-file", CMD_VALUE, "FILE", "the policy, when run.json cannot be read any more"},
    {NULL, CMD_SWITCH, NULL, NULL}};

static const struct cmd commands[] = {
    {"seal", "USAGE.csv", "turn a usage table into a snapshot",
     "  ron rewarder seal usage.csv --epoch 2026-W41 --out usage.ndjson", seal_flags, 1, 1,
     rewarder_seal_run},
    {"put", "FILE", "upload a snapshot", "  ron rewarder put usage.ndjson", NULL, 1, 1, run_put},
    {"compute", "EPOCH", "compute an epoch, seal it and pay it",
     "  ron rewarder compute 2026-W41 --inputs usage.ndjson --wait", compute_flags, 1, 1, run_compute},
    {"list", "", "runs, newest first", "  ron rewarder list", NULL, 0, 0, run_list},
    {"show", "EPOCH", "one run", "  ron rewarder show 2026-W41", show_flags, 1, 1, run_show},
    {"explain", "EPOCH ACCOUNT", "why an account got what it got",
     "  ron rewarder explain 2026-W41 acct:alice", NULL, 2, 2, run_explain},
    {"payout", "EPOCH ACCOUNT", "the same as explain", "  ron rewarder payout 2026-W41 acct:alice --json",
     NULL, 2, 2, run_explain},
    {"csv", "EPOCH", "every payout as CSV", "  ron rewarder csv 2026-W41 > payouts.csv", NULL, 1, 1,
     run_csv},
    {"emit", "EPOCH", "settle a sealed run, or check a settled one again",
     "  ron rewarder emit 2026-W41 --recheck", emit_flags, 1, 1, run_emit},
    {"quarantine", "EPOCH", "stop a run before its next unit leaves",
     "  ron rewarder quarantine 2026-W41 --reason 'wrong snapshot'", reason_flags, 1, 1, run_quarantine},
    {"release", "EPOCH", "resume or discard a quarantined run", "  ron rewarder release 2026-W41 --discard",
     release_flags, 1, 1, run_release},
    {"shadow", "", "who would gain and lose under another policy",
     "  ron rewarder shadow --inputs usage.ndjson --policy-file candidate.json", shadow_flags, 0, 0,
     run_shadow},
    {"fetch", "EPOCH DIR", "download every file of a run", "  ron rewarder fetch 2026-W41 run/", NULL, 2, 2,
     rewarder_fetch_run},
    {"verify", "DIR", "recompute a fetched run without the service",
     "  ron rewarder verify run/ --inputs usage.ndjson --key pub.pem --ledger http://127.0.0.1:7410",
     verify_flags, 1, 1, rewarder_verify_run},
    {"check-proof", "PAYOUT.json", "check one payout's proof against a manifest",
     "  ron rewarder check-proof alice.json --run run/run.json --key pub.pem", proof_flags, 1, 1,
     rewarder_check_proof_run},
    {"fsck", "", "check every stored file of a stopped service", "  ron rewarder fsck --data ron-data",
     fsck_flags, 0, 0, rewarder_fsck_run},
    {"rebuild", "EPOCH", "compute a run's damaged files again from its stored inputs (service stopped)",
     "  ron rewarder rebuild 2026-W41 --data ron-data", rebuild_flags, 1, 1, rewarder_rebuild_run},
    {.run = NULL},
};

const struct cmd_group cmd_rewarder = {"rewarder", "per-epoch rewards: compute, explain, settle, verify",
                                       commands, &rewarder_svc};
