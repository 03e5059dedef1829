/*
 * ron wallet: move money and look at it.
 *
 * Every operation is made to be repeated: the command makes its own key (and prints it), asks for the next nonce unless
 * one is given, and repeats the same request on 429, 503 and broken connections until --timeout. Exit 0 done, 3 refused,
 * 4 unavailable, 5 sent and not known yet: run it again with --key (and --nonce) as printed.
 */
#include "ron/cmd_wallet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json_write.h"
#include "base/str.h"
#include "base/uuid.h"
#include "ron/client.h"
#include "ron/services.h"
#include "ron/table.h"

enum { BODY_MAX = 4096, PATH_MAX_CHARS = 512 };

/* ---- one operation ---- */

struct operation {
    const char *op, *from, *to, *amount, *hold;
    bool nonce; /* it spends from `from` in order */
};

static int64_t timeout_ms(struct cmd_ctx *ctx)
{
    return cmd_flag_ms(ctx, "timeout", 30000, 1, CMD_MS_MAX);
}

RT_BLOCKS
static int next_nonce(struct cmd_ctx *ctx, const char *account, int64_t lane, int64_t *out)
{
    struct buf path;
    struct client_answer a;
    buf_init(&path, PATH_MAX_CHARS);
    buf_puts(&path, "/v1/nonce?account=");
    client_encode(account, &path);
    buf_printf(&path, "&lane=%lld", (long long)lane);
    int status = client_call(
        ctx, "wallet",
        &(struct client_request){.path = buf_cstr(&path), .timeout_ms = timeout_ms(ctx), .repeat = true},
        &a);
    buf_fini(&path);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    *out = client_int(a.json, "next");
    client_free(&a);
    return CMD_OK;
}

static void write_body(struct cmd_ctx *ctx, const struct operation *o, bool simulate, int64_t nonce,
                       int64_t lane, struct buf *out)
{
    struct json_w w;
    const char *memo = cmd_flag(ctx, "memo", NULL), *expires = cmd_flag(ctx, "expires-in", NULL);
    json_w_init(&w, out);
    json_obj_begin(&w);
    if (simulate)
        json_put_cstr(&w, "op", o->op);
    if (o->from)
        json_put_cstr(&w, "from", o->from);
    if (o->to)
        json_put_cstr(&w, "to", o->to);
    if (o->hold)
        json_put_cstr(&w, "hold", o->hold);
    else
        json_put_cstr(&w, "asset", cmd_flag(ctx, "asset", "ron"));
    if (o->amount)
        json_put_cstr(&w, "amount", o->amount);
    if (o->nonce) {
        json_put_i64(&w, "nonce", nonce);
        if (lane)
            json_put_i64(&w, "lane", lane);
    }
    if (expires && strcmp(o->op, "hold") == 0)
        json_put_i64(&w, "expires_in", cmd_flag_int(ctx, "expires-in", 1, 1, 100000000));
    if (memo)
        json_put_cstr(&w, "memo", memo);
    json_obj_end(&w);
}

/* Polls where the service said the outcome will be. */
RT_BLOCKS
static int await_outcome(struct cmd_ctx *ctx, const char *location, int64_t by_ms,
                         struct client_answer *out)
{
    int status = CMD_PENDING;
    do {
        struct timespec pause = {.tv_nsec = 200000000};
        nanosleep(&pause, NULL);
        client_free(out);
        status =
            client_call(ctx, "wallet", &(struct client_request){.path = location, .timeout_ms = 5000}, out);
    } while ((out->status == 202 || status == CMD_UNAVAILABLE) &&
             clock_mono_ns(clock_real()) / 1000000 < by_ms);
    return out->status == 202 ? CMD_PENDING : status;
}

/* What it takes to repeat it. */
static void tell_key(const char *key, int64_t nonce)
{
    fprintf(stderr, "key %s", key);
    if (nonce)
        fprintf(stderr, "  nonce %lld", (long long)nonce);
    fputc('\n', stderr);
}

RT_BLOCKS
static int run_operation(struct cmd_ctx *ctx, const struct operation *o, bool simulate)
{
    int64_t lane = cmd_flag_int(ctx, "lane", 0, 0, 65535), nonce = 0, limit = timeout_ms(ctx);
    int64_t by_ms = clock_mono_ns(clock_real()) / 1000000 + limit;
    char key[UUID_CHARS], header[200], path[32], body_text[BODY_MAX], location[160];
    struct client_answer a;
    struct buf body;
    struct uuid id = uuid_v7_now(clock_real());
    uuid_format(&id, key);
    bool fetched = false;
    if (o->nonce) {
        nonce = cmd_flag_int(ctx, "nonce", 0, 1, INT64_C(281474976710655));
        fetched = nonce == 0;
        int status = fetched ? next_nonce(ctx, o->from, lane, &nonce) : CMD_OK;
        if (status != CMD_OK)
            return status;
    }
    buf_init_fixed(&body, body_text, sizeof body_text);
    write_body(ctx, o, simulate, nonce, lane, &body);
    if (body.err != ERR_OK)
        return cmd_fail(ctx, CMD_USAGE, "that is too long");
    const char *used = cmd_flag(ctx, "key", key);
    snprintf(header, sizeof header, "Idempotency-Key: %s", used);
    snprintf(path, sizeof path, "/v1/%s", simulate ? "simulate" : o->op);
    bool for_people = !cmd_global(ctx)->json;
    if (!simulate && for_people)
        tell_key(used, nonce);
    int status = client_call(ctx, "wallet",
                             &(struct client_request){.path = path,
                                                      .body = body_text,
                                                      .body_n = body.n,
                                                      .headers = {header},
                                                      .timeout_ms = limit,
                                                      .repeat = true},
                             &a);
    if (strcmp(client_str(a.json, "code"), "outcome_pending") == 0) {
        status = CMD_PENDING;
        snprintf(location, sizeof location, "%s", a.location);
        if (*location && clock_mono_ns(clock_real()) / 1000000 < by_ms)
            status = await_outcome(ctx, location, by_ms, &a);
    }
    if (fetched && strcmp(client_str(a.json, "code"), "idempotency_mismatch") == 0)
        fprintf(stderr, "to repeat what was sent under this key, give its nonce too: --nonce N\n");
    if (status != CMD_OK && !simulate && !for_people)
        tell_key(used, nonce); /* no receipt does */
    if (status == CMD_PENDING && for_people) {
        client_free(&a);
        return cmd_fail(ctx, status, "its outcome is not known yet; to find out, repeat it with this key%s",
                        o->nonce ? " and nonce" : "");
    }
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    client_print(ctx, &a);
    if (for_people && !simulate && *a.replayed)
        fprintf(stderr, "it had been carried out before: this is its receipt\n");
    client_free(&a);
    return CMD_OK;
}

/* FROM TO AMOUNT and their kin, by operation. */
static bool operation_of(const char *op, int argc, char **argv, const char *amount_flag,
                         struct operation *out)
{
    *out = (struct operation){.op = op};
    if (strcmp(op, "issue") == 0 && argc == 2) {
        out->to = argv[0];
        out->amount = argv[1];
    } else if (strcmp(op, "burn") == 0 && argc == 2) {
        out->from = argv[0];
        out->amount = argv[1];
        out->nonce = true;
    } else if ((strcmp(op, "transfer") == 0 || strcmp(op, "hold") == 0) && argc == 3) {
        out->from = argv[0];
        out->to = argv[1];
        out->amount = argv[2];
        out->nonce = true;
    } else if (strcmp(op, "capture") == 0 && argc == 1) {
        out->hold = argv[0];
        out->amount = amount_flag;
    } else if (strcmp(op, "release") == 0 && argc == 1)
        out->hold = argv[0];
    else
        return false;
    return true;
}

RT_BLOCKS
static int run_op(struct cmd_ctx *ctx, const char *op, int argc, char **argv, bool simulate)
{
    struct operation o;
    if (!operation_of(op, argc, argv, cmd_flag(ctx, "amount", NULL), &o))
        return cmd_fail(ctx, CMD_USAGE,
                        "'%s' with these arguments is none of: issue TO AMOUNT, transfer FROM TO AMOUNT, "
                        "burn FROM AMOUNT, hold FROM TO AMOUNT, capture HOLD, release HOLD",
                        op);
    return run_operation(ctx, &o, simulate);
}

#define OPERATION(name)                                                                                    \
    RT_BLOCKS                                                                                              \
    static int run_##name(struct cmd_ctx *ctx, int argc, char **argv)                                      \
    {                                                                                                      \
        return run_op(ctx, #name, argc, argv, false);                                                      \
    }
OPERATION(issue)
OPERATION(transfer)
OPERATION(burn)
OPERATION(hold)
OPERATION(capture)
OPERATION(release)

RT_BLOCKS
static int run_simulate(struct cmd_ctx *ctx, int argc, char **argv)
{
    return run_op(ctx, argv[0], argc - 1, argv + 1, true);
}

/* ---- looking ---- */

RT_BLOCKS
static int get(struct cmd_ctx *ctx, const char *prefix, const char *name, const char *suffix,
               struct client_answer *out)
{
    struct buf path;
    if (!*name)
        exit(cmd_fail(ctx, CMD_USAGE, "an empty name names nothing"));
    buf_init(&path, PATH_MAX_CHARS);
    buf_puts(&path, prefix);
    client_encode(name, &path);
    buf_puts(&path, suffix);
    int status = client_call(ctx, "wallet", &(struct client_request){.path = buf_cstr(&path)}, out);
    buf_fini(&path);
    return status;
}

static void balance_row(struct table *t, const json_t *row)
{
    table_cell(t, "%s", client_str(row, "asset"));
    table_cell(t, "%s", client_str(row, "available"));
    table_cell(t, "%s", client_str(row, "held"));
}

/* Of an account with all its assets, or of one asset of it. */
static void print_balances(struct cmd_ctx *ctx, const struct client_answer *a)
{
    static const char *const headers[] = {"asset", ">available", ">held"};
    const json_t *answer = a->json;
    struct table t;
    size_t i;
    json_t *row;
    table_init(&t, cmd_global(ctx)->color, headers, 3);
    if (json_object_get(answer, "asset"))
        balance_row(&t, answer);
    json_array_foreach(json_object_get(answer, "assets"), i, row) balance_row(&t, row);
    table_print_or(&t, "%s holds nothing", client_str(answer, "account"));
    if (json_is_true(json_object_get(answer, "degraded")))
        printf("the ledger is away: this is %lld ms old\n", client_int(answer, "stale_ms"));
}

/* Shows what is there: as it came with --json, or when nothing prints it nicely, or when it is not known yet. */
RT_BLOCKS
static int show(struct cmd_ctx *ctx, const char *prefix, const char *name, const char *suffix,
                void (*print)(struct cmd_ctx *ctx, const struct client_answer *a))
{
    struct client_answer a;
    int status = get(ctx, prefix, name, suffix, &a);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    bool pending = a.status == 202;
    if (cmd_global(ctx)->json || pending || !print)
        client_print_raw(&a);
    else
        print(ctx, &a);
    client_free(&a);
    return pending ? CMD_PENDING : CMD_OK;
}

RT_BLOCKS
static int run_balance(struct cmd_ctx *ctx, int argc, char **argv)
{
    const char *asset = cmd_flag(ctx, "asset", NULL);
    struct buf query;
    (void)argc;
    if (!asset)
        return show(ctx, "/v1/accounts/", argv[0], "", print_balances);
    buf_init(&query, PATH_MAX_CHARS);
    buf_puts(&query, "&asset=");
    client_encode(asset, &query);
    int status = show(ctx, "/v1/balance?account=", argv[0], buf_cstr(&query), print_balances);
    buf_fini(&query);
    return status;
}

RT_BLOCKS
static int run_tx(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    return show(ctx, "/v1/tx/", argv[0], "", client_print);
}

RT_BLOCKS
static int run_prove(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    return show(ctx, "/v1/tx/", argv[0], cmd_switch(ctx, "tlog") ? "/proof?format=tlog" : "/proof", NULL);
}

static void print_change(struct cmd_ctx *ctx, const struct client_answer *a)
{
    size_t i;
    json_t *row, *assets = json_object_get(a->json, "assets");
    if (cmd_global(ctx)->json) {
        client_print_raw(a);
        return;
    }
    printf("%s  ", client_str(a->json, "as_of"));
    json_array_foreach(assets, i, row)
    {
        const char *held = client_str(row, "held");
        printf("%s%s %s", i ? ", " : "", client_str(row, "available"), client_str(row, "asset"));
        if (strcmp(held, "0") != 0)
            printf(" (and %s held)", held);
    }
    puts(json_array_size(assets) ? "" : "nothing");
}

/* One line per change, until it is interrupted (or --count changes were seen). A wallet that is away is waited for. */
RT_BLOCKS
static int run_watch(struct cmd_ctx *ctx, int argc, char **argv)
{
    int64_t count = cmd_flag_int(ctx, "count", 0, 0, 1000000000);
    char *last = NULL;
    bool away = false;
    (void)argc;
    for (int64_t seen = 0; count == 0 || seen < count;) {
        struct timespec pause = {.tv_sec = 1};
        struct client_answer a;
        int status = get(ctx, "/v1/accounts/", argv[0], "", &a);
        /* Once it has been seen it is waited for: a restart is no reason to stop watching. */
        if (status != CMD_OK && (status != CMD_UNAVAILABLE || !last)) {
            free(last);
            return client_finish(ctx, &a, status);
        }
        if (status != CMD_OK && !away)
            cmd_fail(ctx, status, "no balance to be had now; asking again every second");
        away = status != CMD_OK;
        char *now = json_dumps(json_object_get(a.json, "assets"), JSON_COMPACT);
        if (status == CMD_OK && now && (!last || strcmp(last, now) != 0)) {
            print_change(ctx, &a);
            fflush(stdout);
            free(last);
            last = now;
            now = NULL;
            seen++;
        }
        free(now);
        client_free(&a);
        if (count == 0 || seen < count)
            nanosleep(&pause, NULL);
    }
    free(last);
    return CMD_OK;
}

/* ---- the table ---- */

#define FLAG(name, value, help)                                                                            \
    {                                                                                                      \
        name, CMD_VALUE, value, help                                                                       \
    }
#define F_ASSET FLAG("asset", "ASSET", "what is moved; default ron")
#define F_MEMO  FLAG("memo", "TEXT", "kept in the ledger for ever, shown in the receipt")
#define F_NONCE                                                                                            \
    FLAG("nonce", "N", "counter in its lane; default: the next one. To repeat a request, the one it had")
#define F_LANE    FLAG("lane", "N", "which of the payer's lanes; default 0")
#define F_KEY     FLAG("key", "KEY", "idempotency key; default: a new UUID, printed")
#define F_TIMEOUT FLAG("timeout", "DURATION", "repeat for this long; default 30s")
#define F_EXPIRES FLAG("expires-in", "SECONDS", "when the hold ends by itself")
#define F_AMOUNT  FLAG("amount", "N", "less than all of the hold; the rest goes back")
#define F_END                                                                                              \
    {                                                                                                      \
        NULL, CMD_SWITCH, NULL, NULL                                                                       \
    }

static const struct cmd_flag issue_flags[] = {F_ASSET, F_MEMO, F_KEY, F_TIMEOUT, F_END};
static const struct cmd_flag pay_flags[] = {F_ASSET, F_MEMO, F_NONCE, F_LANE, F_KEY, F_TIMEOUT, F_END};
static const struct cmd_flag hold_flags[] = {F_ASSET,   F_MEMO, F_NONCE,   F_LANE,
                                             F_EXPIRES, F_KEY,  F_TIMEOUT, F_END};
static const struct cmd_flag settle_flags[] = {F_AMOUNT, F_MEMO, F_KEY, F_TIMEOUT, F_END};
static const struct cmd_flag simulate_flags[] = {F_ASSET,  F_MEMO, F_NONCE,   F_LANE, F_EXPIRES,
                                                 F_AMOUNT, F_KEY,  F_TIMEOUT, F_END};
static const struct cmd_flag prove_flags[] = {{"tlog", CMD_SWITCH, NULL, "as a C2SP tlog-proof"}, F_END};
static const struct cmd_flag verify_flags[] = {
    FLAG("key", "VKEY|FILE", "the ledger's public key (origin+id+key), or a file that holds it"), F_END};
static const struct cmd_flag balance_flags[] = {FLAG("asset", "ASSET", "only this one"), F_END};
static const struct cmd_flag watch_flags[] = {FLAG("count", "N", "stop after so many changes"), F_END};

static const struct cmd commands[] = {
    {"issue", "TO AMOUNT", "create money on an account", "  ron wallet issue acct:alice 1000", issue_flags,
     2, 2, run_issue},
    {"transfer", "FROM TO AMOUNT", "pay",
     "  ron wallet transfer acct:alice acct:shop 250\n  ron wallet transfer acct:alice acct:shop 250 --key "
     "order-1001 --memo 'two books'",
     pay_flags, 3, 3, run_transfer},
    {"burn", "FROM AMOUNT", "destroy money", "  ron wallet burn acct:alice 10", pay_flags, 2, 2, run_burn},
    {"hold", "FROM TO AMOUNT", "set money aside for somebody",
     "  ron wallet hold acct:alice acct:hotel 9900 --expires-in 3600", hold_flags, 3, 3, run_hold},
    {"capture", "HOLD", "pay out a hold, all or part of it",
     "  ron wallet capture tx_1e5588f713605a32a3bba98a383db8f0 --amount 9000", settle_flags, 1, 1,
     run_capture},
    {"release", "HOLD", "give a hold back", "  ron wallet release tx_1e5588f713605a32a3bba98a383db8f0",
     settle_flags, 1, 1, run_release},
    {"simulate", "OPERATION ARGUMENTS", "what an operation would do, without doing it",
     "  ron wallet simulate transfer acct:alice acct:shop 250", simulate_flags, 2, 4, run_simulate},
    {"balance", "ACCOUNT", "what an account has",
     "  ron wallet balance acct:alice\n  ron wallet balance acct:alice --asset ron", balance_flags, 1, 1,
     run_balance},
    {"tx", "TXID", "the receipt of a transaction", "  ron wallet tx tx_41892e7d297fbcbf28f2706a97637b40",
     NULL, 1, 1, run_tx},
    {"prove", "TXID", "receipt and proof, for anybody to check",
     "  ron wallet prove tx_41892e7d297fbcbf28f2706a97637b40 > proof.json", prove_flags, 1, 1, run_prove},
    {"verify", "FILE", "check a proof offline", "  ron wallet verify proof.json --key ledger.pub",
     verify_flags, 1, 1, wallet_verify_run},
    {"watch", "ACCOUNT", "print balances as they change", "  ron wallet watch acct:alice", watch_flags, 1,
     1, run_watch},
    {.run = NULL},
};

const struct cmd_group cmd_wallet = {.noun = "wallet",
                                     .summary = "money: issue, transfer, hold, balances, receipts, proofs",
                                     .commands = commands,
                                     .service = &wallet_svc};
