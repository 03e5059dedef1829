/*
 * ron ledger: look at accounts, units, entries and the head of a running ledger; ingest; prove; verify offline.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "ron/client.h"
#include "ron/cmd.h"
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
    printf("%s as of seq %lld\n%-32s %40s %40s\n", client_str(a.json, "account"),
           client_int(a.json, "as_of_seq"), "ASSET", "AVAILABLE", "HELD");
    json_array_foreach(json_object_get(a.json, "balances"), i, row)
        printf("%-32s %40s %40s\n", client_str(row, "asset"), client_str(row, "available"),
               client_str(row, "held"));
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

static int run_head(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    (void)argc;
    (void)argv;
    struct client_answer a;
    return print_answer(ctx, &a, get(ctx, "/v1/checkpoint", NULL, &a));
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
    printf("%10s %-9s %-28s %-28s %20s %s\n", "SEQ", "KIND", "ACCOUNT", "TO", "AMOUNT", "ASSET");
    json_array_foreach(json_object_get(a.json, "entries"), i, row)
    {
        json_t *e = json_object_get(row, "entry");
        printf("%10lld %-9s %-28s %-28s %20s %s\n", client_int(row, "seq"), client_str(e, "kind"),
               client_str(e, "account"), client_str(e, "to"), client_str(e, "amount"),
               client_str(e, "asset"));
    }
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
        return cmd_fail(ctx, CMD_FAILED, "cannot read %s", argv[0]);
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
    return print_answer(ctx, &a, status);
}

static const struct cmd commands[] = {
    {"account", "ACCOUNT", "balances and nonces", "ron ledger account acct:alice", NULL, 1, 1, run_account},
    {"unit", "IDEM_ID", "what became of a unit", "ron ledger unit demo:pay:1", NULL, 1, 1, run_unit},
    {"entry", "ID", "one entry with its leaf", "ron ledger entry demo-2", NULL, 1, 1, run_entry},
    {"head", "", "the signed checkpoint of the durable head", "ron ledger head", NULL, 0, 0, run_head},
    {"tail", "", "the newest entries", "ron ledger tail --from 1", tail_flags, 0, 0, run_tail},
    {"ingest", "[FILE]", "send units (JSON, stdin without FILE)", "ron ledger ingest units.json", NULL, 0,
     1, run_ingest},
    {.run = NULL},
};

const struct cmd_group cmd_ledger = {.noun = "ledger",
                                     .summary =
                                         "the durable, provable truth: accounts, units, entries, proofs",
                                     .commands = commands,
                                     .service = &ledger_svc};
