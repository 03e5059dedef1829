/* `ron rewarder list`, `show`, `explain`, `csv`: what became of an epoch, and why. */
#include "ron/cmd_rewarder.h"

#include <stdio.h>
#include <string.h>

#include "ron/client.h"
#include "ron/table.h"

enum { LIST_PAGE = 200 };

/* ---- one run ---- */

static void print_refused(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        printf("refused  unit %lld: %s\n", client_int(one, "chunk"), client_str(one, "reason"));
    }
}

/* A newcomer who forgot to fund the pool should not have to guess. */
static const char *why_nobody(const json_t *manifest)
{
    const json_t *pool = json_object_get(manifest, "pool");
    if (!strcmp(client_str(json_object_get(manifest, "totals"), "score"), "0"))
        return "no account has a score under this policy";
    if (strcmp(client_str(pool, "declared"), "0") != 0)
        return "every share is below the policy's min_payout";
    if (!strcmp(client_str(pool, "source"), "balance"))
        return "the funding account was empty, or promised to other runs, when this was computed (another "
               "epoch "
               "can be paid once it is funded)";
    return "the policy's pool is 0";
}

void rewarder_print_run(const json_t *body)
{
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
           client_str(json_object_get(m, "pool"), "amount"), client_str(totals, "payouts"),
           client_int(totals, "paid"), client_int(totals, "unpaid"), client_str(totals, "dust"));
    const json_t *commitment = json_object_get(m, "commitment");
    printf("root     %s over %lld leaves\n", client_str(commitment, "root"),
           client_int(commitment, "count"));
    const json_t *s = json_object_get(body, "settlement");
    if (client_int(s, "chunks"))
        printf("ledger   %lld of %lld units", client_int(s, "done"), client_int(s, "chunks"));
    if (client_int(s, "seq_first"))
        printf(", seq %lld to %lld", client_int(s, "seq_first"), client_int(s, "seq_last"));
    if (client_int(s, "chunks"))
        printf("\n");
    print_refused(json_object_get(s, "refused"));
    if (!client_int(totals, "paid"))
        printf("nobody is paid: %s\n", why_nobody(m));
}

/* One page of runs, older than number *io_before (0: the newest), which becomes its last one; 0: there are no more. */
static int list_page(struct cmd_ctx *ctx, long long *io_before, struct table *t) RT_BLOCKS
{
    char path[96];
    struct client_answer a;
    size_t i;
    json_t *e;
    int n = snprintf(path, sizeof path, "/rewarder/epochs?limit=%d", LIST_PAGE);
    if (*io_before)
        snprintf(path + n, sizeof path - (size_t)n, "&before=%lld", *io_before);
    int status = client_call(ctx, "rewarder", &(struct client_request){.path = path}, &a);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    bool json = cmd_global(ctx)->json;
    json_array_foreach(json ? NULL : json_object_get(a.json, "epochs"), i, e)
    {
        table_cell(t, "%lld", client_int(e, "n"));
        table_cell(t, "%s", client_str(e, "epoch"));
        table_cell(t, "%s", client_str(e, "state"));
        table_cell(t, "%s", client_str(e, "policy_id"));
        table_cell(t, "%s", client_str(e, "pool"));
        table_cell(t, "%s", client_str(e, "payouts"));
        table_cell(t, "%s", client_str(e, "dust"));
        table_cell(t, "%lld", client_int(e, "paid"));
        table_cell(t, "%s", client_str(e, "sealed_at"));
    }
    if (json)
        client_print_raw(&a);
    *io_before = client_int(a.json, "next");
    client_free(&a);
    return CMD_OK;
}

/* All of them, however many pages that takes; as JSON a page is a line. */
int rewarder_list_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    static const char *const headers[] = {">n",       "epoch", "state", "policy", ">pool",
                                          ">payouts", ">dust", ">paid", "sealed"};
    struct table t;
    long long before = 0;
    int status;
    (void)argc;
    (void)argv;
    table_init(&t, cmd_global(ctx)->color, headers, 9);
    do
        status = list_page(ctx, &before, &t);
    while (status == CMD_OK && before);
    if (status == CMD_OK && !cmd_global(ctx)->json)
        table_print_or(&t, "no runs yet");
    return status;
}

/* Shows what is at `path`, which goes: as it came with --json, else as `print` says it. */
static int look(struct cmd_ctx *ctx, struct buf *path, void (*print)(const json_t *body)) RT_BLOCKS
{
    struct client_answer a;
    int status = client_call(ctx, "rewarder", &(struct client_request){.path = buf_cstr(path)}, &a);
    buf_fini(path);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    if (cmd_global(ctx)->json)
        client_print_raw(&a);
    else
        print(a.json);
    client_free(&a);
    return CMD_OK;
}

int rewarder_show_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf path;
    (void)argc;
    buf_init(&path, 1024);
    rewarder_epoch_path(argv[0], cmd_switch(ctx, "dry-run") ? "?dry_run=true" : "", &path);
    return look(ctx, &path, rewarder_print_run);
}

static const char *in_words(const char *why)
{
    static const char *const words[][2] = {
        {"exact", "the share is a whole number"},
        {"rounded_down", "the share, rounded down"},
        {"rounded_up", "the share, rounded up"},
        {"adjusted_up", "the rounded share and one more, so that all add up"},
        {"adjusted_down", "the rounded share less one, so that all add up"},
        {"capped", "no more than the policy's max_payout"},
        {"below_min", "the share is below the policy's min_payout"},
        {"zero_score", "no score, no share"},
        {"dust", "what rounding, caps and minimums left over"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(why, words[i][0]))
            return words[i][1];
    return why;
}

/* In words what the service derived: usage times weight, share, rounding. */
static void print_explanation(const json_t *body)
{
    const json_t *x = json_object_get(body, "explain"), *v;
    const json_t *usage = json_object_get(x, "usage"), *weights = json_object_get(x, "weights");
    const char *dim;
    printf("%s gets %s %s in epoch %s: %s\n\n", client_str(body, "account"), client_str(body, "amount"),
           client_str(body, "asset"), client_str(body, "epoch"), in_words(client_str(x, "why")));
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

int rewarder_explain_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf path;
    (void)argc;
    buf_init(&path, 2048);
    rewarder_epoch_path(argv[0], "/payouts?account=", &path);
    client_encode(argv[1], &path);
    return look(ctx, &path, print_explanation);
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

int rewarder_csv_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf path;
    (void)argc;
    buf_init(&path, 1024);
    rewarder_epoch_path(argv[0], "/payouts.csv", &path);
    int status =
        show_json(ctx, &(struct client_request){
                           .path = buf_cstr(&path), .timeout_ms = 600000, .answer_max = REWARDER_FILE_MAX});
    buf_fini(&path);
    return status;
}
