/* `ron rewarder put`, `compute`, `emit`, `quarantine`, `release`: what changes something. */
#include "ron/cmd_rewarder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/str.h"
#include "ron/client.h"

enum { HEADING_MAX = 65536 };

int rewarder_read_file(struct cmd_ctx *ctx, const char *path, struct buf *out)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!f)
        return cmd_fail(ctx, CMD_FAILED, "cannot read %s: %s", path, strerror(errno));
    char piece[65536];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        buf_put(out, piece, n);
    const char *why = ferror(f) ? strerror(errno) : out->err != ERR_OK ? err_title(out->err) : NULL;
    if (f != stdin)
        fclose(f);
    return why ? cmd_fail(ctx, CMD_FAILED, "cannot read %s: %s", path, why) : CMD_OK;
}

void rewarder_epoch_path(const char *epoch, const char *rest, struct buf *out)
{
    buf_puts(out, "/rewarder/epochs/");
    client_encode(epoch, out);
    buf_puts(out, rest);
}

/* ---- put, compute ---- */

/* Its first line is a whole object, the heading, and the rows are not in it. */
static bool is_ndjson(struct str text)
{
    struct str line;
    str_cut(text, '\n', &line);
    json_t *heading = line.n <= HEADING_MAX ? json_loadb(line.p, line.n, 0, NULL) : NULL;
    bool yes = json_is_object(heading) && !json_object_get(heading, "rows");
    json_decref(heading);
    return yes;
}

int rewarder_put_file(struct cmd_ctx *ctx, const char *path, char out_cid[SHA256_TEXT_CHARS], bool quiet)
{
    struct buf text;
    struct client_answer a;
    struct progress shown;
    buf_init(&text, REWARDER_FILE_MAX);
    int status = rewarder_read_file(ctx, path, &text);
    if (status != CMD_OK) {
        buf_fini(&text);
        return status;
    }
    progress_begin(&shown, ctx, "uploading");
    status = client_call(ctx, "rewarder",
                         &(struct client_request){.method = "PUT",
                                                  .path = "/rewarder/inputs",
                                                  .body = (const char *)text.p,
                                                  .body_n = text.n,
                                                  .type = is_ndjson(buf_str(&text)) ? "application/x-ndjson"
                                                                                    : "application/json",
                                                  .timeout_ms = 120000,
                                                  .upload = &shown},
                         &a);
    progress_end(&shown);
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

int rewarder_put_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    char cid[SHA256_TEXT_CHARS];
    (void)argc;
    return rewarder_put_file(ctx, argv[0], cid, false);
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

static int finish_run(struct cmd_ctx *ctx, struct client_answer *a)
{
    const char *state = client_str(a->json, "state");
    int status = !strcmp(state, "failed") || !strcmp(state, "quarantined") ? CMD_REFUSED
                 : !strcmp(state, "held")                                  ? CMD_PENDING
                                                                           : CMD_OK;
    if (cmd_global(ctx)->json)
        client_print_raw(a);
    else
        rewarder_print_run(a->json);
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

int rewarder_compute_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    char cid[SHA256_TEXT_CHARS];
    const char *inputs = cmd_flag(ctx, "inputs", NULL), *policy = cmd_flag(ctx, "policy", NULL);
    struct client_answer a;
    struct buf path, body, look;
    (void)argc;
    if (!inputs)
        return cmd_fail(ctx, CMD_USAGE, "name the inputs: --inputs FILE or --inputs sha256:...");
    if (strncmp(inputs, "sha256:", 7) != 0) {
        int status = rewarder_put_file(ctx, inputs, cid, true);
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

/* ---- acting ---- */

/* A run that the command itself has brought into `wanted` (NULL: none) is no refusal. */
static int post(struct cmd_ctx *ctx, const char *epoch, const char *what, const char *body,
                const char *wanted) RT_BLOCKS
{
    struct buf path;
    struct client_answer a;
    buf_init(&path, 1024);
    rewarder_epoch_path(epoch, what, &path);
    int status =
        client_call(ctx, "rewarder", &(struct client_request){.path = buf_cstr(&path), .body = body}, &a);
    buf_fini(&path);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    bool done = wanted && !strcmp(client_str(a.json, "state"), wanted);
    status = finish_run(ctx, &a);
    return done ? CMD_OK : status;
}

int rewarder_emit_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    return post(ctx, argv[0], "/emit", cmd_switch(ctx, "recheck") ? "{\"recheck\":true}" : "{}", NULL);
}

int rewarder_quarantine_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    json_t *body = json_pack("{s:s}", "reason", cmd_flag(ctx, "reason", "by operator"));
    char *text = json_dumps(body, JSON_COMPACT);
    int status = post(ctx, argv[0], "/quarantine", text, "quarantined");
    free(text);
    json_decref(body);
    return status;
}

int rewarder_release_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    json_t *body = json_pack("{s:s,s:s}", "action", cmd_switch(ctx, "discard") ? "discard" : "resume",
                             "reason", cmd_flag(ctx, "reason", "by operator"));
    char *text = json_dumps(body, JSON_COMPACT);
    int status = post(ctx, argv[0], "/release", text, NULL);
    free(text);
    json_decref(body);
    return status;
}
