/* `ron rewarder shadow`: the same usage under another policy, and who would gain and lose. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ron/client.h"
#include "ron/cmd_rewarder.h"
#include "ron/table.h"

enum { POLICY_MAX = 1 << 20, SHOWN_MAX = 20, LOOK_US = 50000 };

static void put_side(struct table *t, const char *what, const json_t *side)
{
    table_cell(t, "%s", what);
    table_cell(t, "%s", client_str(side, "policy_id"));
    table_cell(t, "%s", client_str(side, "pool"));
    table_cell(t, "%s", client_str(side, "payouts"));
    table_cell(t, "%s", client_str(side, "dust"));
    table_cell(t, "%lld", client_int(side, "paid"));
}

static void print_shadow(struct cmd_ctx *ctx, const json_t *body)
{
    static const char *const sides[] = {"", "policy", ">pool", ">payouts", ">dust", ">paid"};
    static const char *const rows[] = {"account", ">now", ">then", ">change"};
    const json_t *diff = json_object_get(body, "diff"), *top = json_object_get(diff, "top");
    bool color = cmd_global(ctx)->color;
    struct table t;
    table_init(&t, color, sides, 6);
    put_side(&t, "now", json_object_get(body, "base"));
    put_side(&t, "then", json_object_get(body, "candidate"));
    table_print(&t);
    printf(
        "\n%lld gain, %lld lose, %lld stay as they are; %lld come in, %lld drop out; %s changes hands\n\n",
        client_int(diff, "gained"), client_int(diff, "lost"), client_int(diff, "same"),
        client_int(diff, "entered"), client_int(diff, "left"), client_str(diff, "moved"));
    table_init(&t, color, rows, 4);
    for (size_t i = 0; i < json_array_size(top) && i < SHOWN_MAX; i++) {
        const json_t *row = json_array_get(top, i);
        table_cell(&t, "%s", client_str(row, "account"));
        table_cell(&t, "%s", client_str(row, "base"));
        table_cell(&t, "%s", client_str(row, "candidate"));
        table_cell(&t, "%s", client_str(row, "delta"));
    }
    table_print_or(&t, "nobody's payout changes");
    if (json_array_size(top) > SHOWN_MAX)
        printf("... and more: --json shows the hundred largest, /rewarder/shadow/%s/diff.csv all\n",
               client_str(body, "shadow_id"));
}

static bool is_under_way(const struct client_answer *a)
{
    const char *state = client_str(a->json, "state");
    return !strcmp(state, "queued") || !strcmp(state, "computing");
}

static int wait_for_shadow(struct cmd_ctx *ctx, struct client_answer *a) RT_BLOCKS
{
    char path[160];
    snprintf(path, sizeof path, "/rewarder/shadow/%s", client_str(a->json, "shadow_id"));
    while (is_under_way(a)) {
        client_free(a);
        usleep(LOOK_US);
        int status =
            client_call(ctx, "rewarder", &(struct client_request){.path = path, .repeat = true}, a);
        if (status != CMD_OK)
            return client_finish(ctx, a, status);
    }
    int status = CMD_OK;
    if (cmd_global(ctx)->json)
        client_print_raw(a);
    else if (!strcmp(client_str(a->json, "state"), "done"))
        print_shadow(ctx, a->json);
    else
        status = cmd_fail(ctx, CMD_REFUSED, "it failed: %s",
                          client_str(json_object_get(a->json, "failure"), "code"));
    client_free(a);
    return status;
}

int rewarder_shadow_run(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct buf policy;
    struct client_answer a;
    const char *inputs = cmd_flag(ctx, "inputs", NULL), *file = cmd_flag(ctx, "policy-file", NULL),
               *against = cmd_flag(ctx, "against", NULL);
    char cid[SHA256_TEXT_CHARS];
    json_error_t why;
    (void)argc;
    (void)argv;
    if (!inputs || !file)
        return cmd_fail(ctx, CMD_USAGE,
                        "name the snapshot and the candidate: --inputs FILE --policy-file FILE");
    buf_init(&policy, POLICY_MAX);
    int status = rewarder_read_file(ctx, file, &policy);
    json_t *candidate = status == CMD_OK
                            ? json_loadb((const char *)policy.p, policy.n, JSON_REJECT_DUPLICATES, &why)
                            : NULL;
    if (status == CMD_OK && !candidate)
        status = cmd_fail(ctx, CMD_FAILED, "%s, line %d: %s", file, why.line, why.text);
    buf_fini(&policy);
    if (status == CMD_OK && strncmp(inputs, "sha256:", 7) != 0) {
        status = rewarder_put_file(ctx, inputs, cid, true);
        inputs = cid;
    }
    if (status != CMD_OK) {
        json_decref(candidate);
        return status;
    }
    json_t *body =
        json_pack("{s:s,s:o,s:s*}", "inputs_cid", inputs, "policy", candidate, "against", against);
    char *text = json_dumps(body, JSON_COMPACT);
    status = client_call(ctx, "rewarder",
                         &(struct client_request){.path = "/rewarder/shadow", .body = text}, &a);
    free(text);
    json_decref(body);
    return status == CMD_OK ? wait_for_shadow(ctx, &a) : client_finish(ctx, &a, status);
}
