/*
 * ron bench: a load on a running service, what it took, and whether everything that was acknowledged is there. The generators are
 * those of src/load; here are flags, and how the outcome is said. With the name of a row it is measured beside its peer instead.
 */
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "load/ledger.h"
#include "load/mailbox.h"
#include "load/wallet.h"
#include "ron/bench_rows.h"
#include "ron/client.h"
#include "ron/cmd.h"

enum { SECONDS_MAX = 86400, TOKEN_MAX = 8192, LIST_MAX = 2048, CHECK_WAIT_MS = 10000 };

/* What every bench has in common. */
struct target {
    struct load_addr addrs[LOAD_ADDRS_MAX];
    size_t n;
    struct buf token;
};

#define FLAGS_OF_ALL                                                                                       \
    {"urls", CMD_VALUE, "LIST", "where: http://host:port or unix:/path, several with commas"},             \
        {"token-file", CMD_VALUE, "FILE", "the capability to present (default as for every command)"},     \
        {"connections", CMD_VALUE, "N", "how many"},                                                       \
        {"seconds", CMD_VALUE, "S", "for how long (default 10)"},                                          \
        {"timeout", CMD_VALUE, "MS", "an address that is silent for so long is left (default 2000)"},      \
    {                                                                                                      \
        "patience", CMD_VALUE, "S", "at the end, wait so long for what is not answered (default 30)"       \
    }

/* ---- stopping: Ctrl-C ends the load, what was acknowledged is still checked ---- */

static atomic_bool stopped;

static void on_signal(int number)
{
    (void)number;
    atomic_store(&stopped, true);
}

static void stop_on_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal,
                          .sa_flags = (int)SA_RESETHAND}; /* the second one ends us */
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

/* ---- who and where ---- */

static int find_target(struct cmd_ctx *ctx, const char *service, struct target *t)
{
    char list[LIST_MAX], base[256];
    const char *file = cmd_flag(ctx, "token-file", NULL);
    snprintf(list, sizeof list, "%s", cmd_flag(ctx, "urls", client_base_url(ctx, service, base)));
    buf_init(&t->token, TOKEN_MAX);
    enum err e = load_addrs_parse(list, t->addrs, &t->n);
    if (e == ERR_CONFLICT)
        return cmd_fail(ctx, CMD_USAGE, "addresses for HTTP and for OAP cannot be mixed: %s", list);
    if (e == ERR_NOT_FOUND)
        return cmd_fail(ctx, CMD_USAGE, "there is no such host: %s", t->addrs[t->n].text);
    if (e != ERR_OK)
        return cmd_fail(
            ctx, CMD_USAGE,
            "--urls takes up to %d of http://host:port, unix:/path, oap://host:port and oap+unix:/path, "
            "not '%s'",
            LOAD_ADDRS_MAX, list);
    if (file == NULL)
        return client_token(ctx, &t->token) ? CMD_OK : CMD_FAILED;
    return client_token_file(ctx, file, &t->token) ? CMD_OK : CMD_FAILED;
}

static int said_why(struct cmd_ctx *ctx, enum err e, const struct load_complaint *c, const struct target *t)
{
    if (e == ERR_REFUSED && c->status != 0)
        return cmd_fail(ctx, CMD_REFUSED, "refused: %d %s", c->status, c->text);
    if (e == ERR_REFUSED)
        return cmd_fail(ctx, CMD_UNAVAILABLE,
                        "nobody answers at %s%s; is it running? start it with: ron up", t->addrs[0].text,
                        t->n > 1 ? " or the others" : "");
    return cmd_fail(ctx, CMD_UNAVAILABLE, "no answer in time (%s)", err_title(e));
}

/* ---- saying it ---- */

/* 1234567 as 1,234,567 */
static const char *grouped(double v, char out[40])
{
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%.0f", v), at = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    return out;
}

static void on_second(void *app, double at_s, uint64_t done, const struct load_addr *where)
{
    char n[40];
    (void)app;
    fprintf(stderr, "%4.0f s  %12s/s  %s\n", at_s, grouped((double)done, n),
            done > 0 ? where->text : "nobody answers");
}

static bool talks(const struct cmd_ctx *ctx)
{
    return !cmd_global(ctx)->json && (isatty(STDERR_FILENO) || cmd_switch(ctx, "progress"));
}

static void print_times(const struct load_times *t)
{
    printf("latency   p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, longest %.2f ms\n", load_times_ms(t, 0.5),
           load_times_ms(t, 0.99), load_times_ms(t, 0.999), load_times_ms(t, 1));
}

static void print_load(const char *things, const struct load_mill_result *r, const struct target *t)
{
    char a[40], b[40];
    printf("rate      %s %s/s in %.1f s (%s requests/s)\n", grouped((double)r->done / r->seconds, a),
           things, r->seconds, grouped((double)r->requests / r->seconds, b));
    print_times(&r->times);
    printf("errors    %llu refused, %llu not answered; asked again %llu times, %llu connections lost\n",
           (unsigned long long)r->failed, (unsigned long long)r->unanswered, (unsigned long long)r->again,
           (unsigned long long)r->cut);
    if (t->n > 1)
        printf("address   %s answers; changed %llu times, longest silence %.2f s\n",
               t->addrs[r->last_addr].text, (unsigned long long)r->moved, (double)r->longest_gap_ns / 1e9);
}

static void json_times(const struct load_times *t)
{
    printf("\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f,\"max_ms\":%.3f", load_times_ms(t, 0.5),
           load_times_ms(t, 0.99), load_times_ms(t, 0.999), load_times_ms(t, 1));
}

static void json_load(const char *things, const struct load_mill_result *r, const struct load_complaint *c)
{
    printf("\"seconds\":%.3f,\"%s\":%llu,\"%s_per_s\":%.1f,\"requests_per_s\":%.1f,", r->seconds, things,
           (unsigned long long)r->done_in_all, things, (double)r->done / r->seconds,
           (double)r->requests / r->seconds);
    json_times(&r->times);
    printf(",\"errors\":%llu,\"first_error\":%d,\"unanswered\":%llu,\"again\":%llu,\"cut\":%llu,\"moved\":%"
           "llu,"
           "\"longest_gap_ms\":%.1f,\"longest_silence_ms\":%.1f,\"cpu_s\":%.2f,\"idle_s\":%.3f",
           (unsigned long long)r->failed, c->status, (unsigned long long)r->unanswered,
           (unsigned long long)r->again, (unsigned long long)r->cut, (unsigned long long)r->moved,
           (double)r->longest_gap_ns / 1e6, (double)r->longest_silence_ns / 1e6,
           (double)clock() / CLOCKS_PER_SEC, (double)r->idle_ns / 1e9);
}

static int outcome(struct cmd_ctx *ctx, const struct load_mill_result *r, const struct load_complaint *c,
                   bool whole)
{
    if (!whole)
        return cmd_fail(ctx, CMD_FAILED, "what was acknowledged is not what is there");
    if (r->failed > 0)
        return cmd_fail(ctx, CMD_REFUSED, "%llu requests were refused, the first with %d %s",
                        (unsigned long long)r->failed, c->status, c->text);
    if (r->done_in_all == 0 || r->unanswered > 0)
        return cmd_fail(ctx, CMD_UNAVAILABLE, "%llu requests were never answered",
                        (unsigned long long)r->unanswered);
    return CMD_OK;
}

/* ---- ledger ---- */

static const struct cmd_flag ledger_flags[] = {
    FLAGS_OF_ALL,
    {"inflight", CMD_VALUE, "N", "requests under way on each connection (default 4)"},
    {"batch", CMD_VALUE, "N", "units in a request (default 64)"},
    {"per-unit", CMD_VALUE, "N", "transfers in a unit (default 1)"},
    {"accounts", CMD_VALUE, "N", "accounts that are minted first (default 1000)"},
    {"asset", CMD_VALUE, "ASSET", "of what (default bench)"},
    {"rate", CMD_VALUE, "N", "requests a second, whatever comes back; default: as fast as it answers"},
    {"entries", CMD_VALUE, "N", "end after so many transfers"},
    {"hot", CMD_SWITCH, NULL, "every debit from one account"},
    {"no-check", CMD_SWITCH, NULL,
     "keep no record of what was acknowledged and do not read the log afterwards"},
    {"progress", CMD_SWITCH, NULL, "a line every second also when nobody looks"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static bool ledger_whole(const struct load_ledger_result *r)
{
    return !r->checked || (r->found == r->acknowledged && r->doubled == 0);
}

static void ledger_print(const struct load_ledger_result *r, const struct load_ledger_spec *s,
                         const struct target *t)
{
    char n[40];
    printf("load      %u connections, %u requests under way on each, %u units in a request; %s accounts "
           "were made\n",
           s->conns, s->inflight, s->units, grouped((double)r->minted, n));
    print_load("transfers", &r->load, t);
    if (r->checked)
        printf("history   acknowledged %llu, found %llu, doubled %llu; %llu more whose answers were lost\n",
               (unsigned long long)r->acknowledged, (unsigned long long)r->found,
               (unsigned long long)r->doubled, (unsigned long long)r->unasked);
}

static void ledger_json(const struct load_ledger_result *r)
{
    printf("{");
    json_load("entries", &r->load, &r->complaint);
    printf(",\"minted\":%llu", (unsigned long long)r->minted);
    if (r->checked)
        printf(",\"history\":{\"acknowledged\":%llu,\"found\":%llu,\"doubled\":%llu,\"elsewhere\":%llu,"
               "\"answer_lost\":%llu,\"entries_read\":%llu}",
               (unsigned long long)r->acknowledged, (unsigned long long)r->found,
               (unsigned long long)r->doubled, (unsigned long long)r->moved, (unsigned long long)r->unasked,
               (unsigned long long)r->entries_read);
    printf("}\n");
}

static int run_ledger(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct target t;
    if (argc > 0)
        return bench_rows_run(ctx, "ledger", argc, argv);
    int status = find_target(ctx, "ledger", &t);
    struct load_ledger_spec s = {
        .addrs = t.addrs,
        .n_addrs = t.n,
        .token = buf_cstr(&t.token),
        .asset = cmd_flag(ctx, "asset", "bench"),
        .conns = (unsigned)cmd_flag_int(ctx, "connections", 8, 1, LOAD_MILL_CONNS_MAX),
        .inflight = (unsigned)cmd_flag_int(ctx, "inflight", 4, 1, 64),
        .units = (unsigned)cmd_flag_int(ctx, "batch", 64, 1, LOAD_LEDGER_ENTRIES_MAX),
        .per_unit = (unsigned)cmd_flag_int(ctx, "per-unit", 1, 1, 1024),
        .accounts = (unsigned)cmd_flag_int(ctx, "accounts", 1000, 2, 10000000),
        .hot = cmd_switch(ctx, "hot"),
        .check = !cmd_switch(ctx, "no-check"),
        .rate = (double)cmd_flag_int(ctx, "rate", 0, 0, 1000000),
        .ms = cmd_flag_int(ctx, "seconds", 10, 1, SECONDS_MAX) * 1000,
        .entries = (uint64_t)cmd_flag_int(ctx, "entries", 0, 0, INT64_MAX),
        .timeout_ms = cmd_flag_int(ctx, "timeout", 2000, 10, 600000),
        .patience_ms = cmd_flag_int(ctx, "patience", 30, 1, 3600) * 1000,
        .stop = &stopped,
        .each_second = talks(ctx) ? on_second : NULL,
    };
    static struct load_ledger_result r;
    if (status == CMD_OK && !s.hot && s.accounts < s.conns * s.inflight)
        status = cmd_fail(ctx, CMD_USAGE, "%u requests at once need at least as many --accounts, not %u",
                          s.conns * s.inflight, s.accounts);
    if (status == CMD_OK && s.units * s.per_unit > LOAD_LEDGER_ENTRIES_MAX)
        status = cmd_fail(ctx, CMD_USAGE, "a request takes at most %d transfers", LOAD_LEDGER_ENTRIES_MAX);
    if (status != CMD_OK) {
        buf_fini(&t.token);
        return status;
    }
    if (s.entries > 0 && cmd_flag(ctx, "seconds", NULL) == NULL)
        s.ms = (int64_t)SECONDS_MAX * 1000;
    stop_on_signals();
    enum err e = load_ledger_run(&s, &r);
    buf_fini(&t.token);
    if (e != ERR_OK && r.load.done_in_all == 0)
        return said_why(ctx, e, &r.complaint, &t);
    if (cmd_global(ctx)->json)
        ledger_json(&r);
    else
        ledger_print(&r, &s, &t);
    if (e != ERR_OK)
        return cmd_fail(ctx, CMD_UNAVAILABLE,
                        "the log could not be read to its end (%s): nothing is known of %s", err_title(e),
                        "what was acknowledged");
    return outcome(ctx, &r.load, &r.complaint, ledger_whole(&r));
}

/* ---- wallet ---- */

static const struct cmd_flag wallet_flags[] = {
    FLAGS_OF_ALL,
    {"payers", CMD_VALUE, "N", "accounts that pay; default: one for each connection"},
    {"first-payer", CMD_VALUE, "N", "number of the first one (default 0)"},
    {"payer", CMD_VALUE, "HEAD",
     "what their names begin with; default: fresh ones, which are issued to first"},
    {"asset", CMD_VALUE, "ASSET", "of what (default ron)"},
    {"depth", CMD_VALUE, "N", "requests under way on a connection (default 1)"},
    {"rate", CMD_VALUE, "N", "requests a second, whatever comes back; default: as fast as it answers"},
    {"run", CMD_VALUE, "NAME", "head of the idempotency keys; default: a fresh one"},
    {"balances", CMD_SWITCH, NULL, "read balances instead of paying"},
    {"acked", CMD_VALUE, "FILE", "the last nonce acknowledged on each connection, a line each"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static void wallet_json(const struct load_wallet_result *r, const struct load_wallet_books *b, bool checked)
{
    printf("{\"seconds\":%.3f,\"sent\":%llu,\"ok\":%llu,\"per_s\":%.1f,\"busy\":%llu,\"draining\":%llu,"
           "\"pending\":%llu,\"unavailable\":%llu,\"conflict\":%llu,\"other\":%llu,\"cut\":%llu,\"unsent\":"
           "%llu,"
           "\"no_retry_after\":%llu,\"good\":{\"n\":%llu,",
           r->seconds, (unsigned long long)r->sent, (unsigned long long)r->ok, (double)r->ok / r->seconds,
           (unsigned long long)r->busy, (unsigned long long)r->draining, (unsigned long long)r->pending,
           (unsigned long long)r->unavailable, (unsigned long long)r->conflict,
           (unsigned long long)r->other, (unsigned long long)r->cut, (unsigned long long)r->unsent,
           (unsigned long long)r->no_retry_after, (unsigned long long)r->good.n);
    json_times(&r->good);
    printf("},\"refused\":{\"n\":%llu,", (unsigned long long)r->refused.n);
    json_times(&r->refused);
    printf("}");
    if (checked)
        printf(",\"history\":{\"acknowledged\":%llu,\"found\":%llu,\"lost\":%llu,\"doubled\":%llu}",
               (unsigned long long)b->acknowledged, (unsigned long long)b->found,
               (unsigned long long)b->lost, (unsigned long long)b->doubled);
    printf("}\n");
}

static void wallet_print(const struct load_wallet_result *r, const struct load_wallet_spec *s,
                         const struct load_wallet_books *b, bool checked)
{
    char n[40];
    printf("load      %u connections, %u payers\n", s->conns, s->payers);
    printf("rate      %s %s/s in %.1f s\n", grouped((double)r->ok / r->seconds, n),
           s->balances ? "balances" : "transfers", r->seconds);
    print_times(&r->good);
    printf("errors    %llu; refused for now %llu times, %llu connections lost\n",
           (unsigned long long)r->other + r->conflict,
           (unsigned long long)r->busy + r->unavailable + r->draining, (unsigned long long)r->cut);
    if (checked)
        printf("history   acknowledged %llu, found %llu, doubled %llu; %llu more whose answers were lost\n",
               (unsigned long long)b->acknowledged,
               (unsigned long long)(b->found < b->acknowledged ? b->found : b->acknowledged),
               (unsigned long long)b->doubled,
               (unsigned long long)(b->found > b->acknowledged ? b->found - b->acknowledged : 0));
}

static int write_acked(struct cmd_ctx *ctx, const char *file, const uint64_t *acked, unsigned n)
{
    FILE *f = fopen(file, "w");
    for (unsigned i = 0; f != NULL && i < n; i++)
        fprintf(f, "%llu\n", (unsigned long long)acked[i]);
    return f != NULL && fclose(f) == 0 ? CMD_OK : cmd_fail(ctx, CMD_FAILED, "cannot write %s", file);
}

/* Funds, pays, checks. `own`: the payers are fresh, and nobody else knows them. */
static int pay(struct cmd_ctx *ctx, const struct load_wallet_spec *s, const struct target *t, bool own)
{
    static struct load_wallet_result r;
    struct load_wallet_books books = {0};
    struct load_complaint why = {0};
    const char *acked = cmd_flag(ctx, "acked", NULL);
    enum err e = own ? load_wallet_fund(s, &why) : ERR_OK;
    if (e == ERR_OK)
        e = load_wallet_run(s, &r);
    if (e != ERR_OK) {
        free(r.acked);
        return said_why(ctx, e, &why, t);
    }
    bool checked = own && !s->balances;
    if (checked)
        e = load_wallet_check(s, r.acked, CHECK_WAIT_MS, &books, &why);
    if (cmd_global(ctx)->json)
        wallet_json(&r, &books, checked && e == ERR_OK);
    else
        wallet_print(&r, s, &books, checked && e == ERR_OK);
    int status = acked == NULL ? CMD_OK : write_acked(ctx, acked, r.acked, s->conns);
    free(r.acked);
    if (status != CMD_OK)
        return status;
    if (e != ERR_OK)
        return said_why(ctx, e, &why, t);
    if (books.lost + books.doubled > 0)
        return cmd_fail(ctx, CMD_FAILED, "what was acknowledged is not what is there");
    return r.other > 0 ? cmd_fail(ctx, CMD_REFUSED, "%llu answers were refusals, the first: %s",
                                  (unsigned long long)r.other, r.first_odd)
                       : CMD_OK;
}

static int run_wallet(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct target t;
    char head[40], run[24];
    if (argc > 0)
        return bench_rows_run(ctx, "wallet", argc, argv);
    int status = find_target(ctx, "wallet", &t);
    snprintf(run, sizeof run, "b%llx", (unsigned long long)(rng_secure_u64() >> 24));
    snprintf(head, sizeof head, "acct:%s-", run);
    unsigned conns = (unsigned)cmd_flag_int(ctx, "connections", 16, 1, 4096);
    struct load_wallet_spec s = {
        .addr = t.addrs[0],
        .token = buf_cstr(&t.token),
        .asset = cmd_flag(ctx, "asset", "ron"),
        .payer_head = cmd_flag(ctx, "payer", head),
        .run = cmd_flag(ctx, "run", run),
        .conns = conns,
        .payers = (unsigned)cmd_flag_int(ctx, "payers", conns, 1, 4096),
        .first_payer = (unsigned)cmd_flag_int(ctx, "first-payer", 0, 0, 1000000000),
        .depth = (unsigned)cmd_flag_int(ctx, "depth", 1, 1, 32),
        .balances = cmd_switch(ctx, "balances"),
        .rate = (double)cmd_flag_int(ctx, "rate", 0, 0, 10000000),
        .ms = cmd_flag_int(ctx, "seconds", 10, 1, SECONDS_MAX) * 1000,
        .stop = &stopped,
    };
    if (status == CMD_OK && (t.n != 1 || t.addrs[0].oap))
        status = cmd_fail(ctx, CMD_USAGE, "a wallet has one address, http://host:port or unix:/path");
    if (status == CMD_OK) {
        stop_on_signals();
        status = pay(ctx, &s, &t, cmd_flag(ctx, "payer", NULL) == NULL);
    }
    buf_fini(&t.token);
    return status;
}

/* ---- mailbox ---- */

static const struct cmd_flag mailbox_flags[] = {
    FLAGS_OF_ALL,
    {"mode", CMD_VALUE, "MODE", "cycle: send, receive, ack (default); send; receive: what waits"},
    {"inflight", CMD_VALUE, "N", "requests under way on each connection (default 1)"},
    {"batch", CMD_VALUE, "N", "messages in a request, when sending over OAP (default 1)"},
    {"topic", CMD_VALUE, "HEAD", "topics are HEAD/0 and so on; default: fresh ones"},
    {"topics", CMD_VALUE, "N", "how many (default 1)"},
    {"messages", CMD_VALUE, "N", "end after so many"},
    {"rate", CMD_VALUE, "N",
     "with --mode send over HTTP: requests a second, whatever comes back; default: as fast as it answers"},
    {"awake", CMD_SWITCH, NULL,
     "never sleep between answers: waking this program would cost the mailbox; takes a core"},
    {"no-check", CMD_SWITCH, NULL, "keep no record of what was acknowledged"},
    {"progress", CMD_SWITCH, NULL, "a line every second also when nobody looks"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static int mailbox_mode(struct cmd_ctx *ctx, enum load_mailbox_mode *out)
{
    static const char *const names[] = {
        [LOAD_MAILBOX_CYCLE] = "cycle", [LOAD_MAILBOX_SEND] = "send", [LOAD_MAILBOX_RECEIVE] = "receive"};
    const char *name = cmd_flag(ctx, "mode", "cycle");
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum load_mailbox_mode)i;
            return CMD_OK;
        }
    return cmd_fail(ctx, CMD_USAGE, "--mode takes cycle, send or receive, not '%s'", name);
}

static void mailbox_print(const struct load_mailbox_result *r, const struct load_mailbox_spec *s,
                          const struct target *t)
{
    printf("load      %u connections, %u requests under way on each, %u topics %s/…\n", s->conns,
           s->inflight, s->topics, s->topic);
    print_load("messages", &r->load, t);
    if (s->rate > 0)
        printf("busy      %llu answered with 429, p99 %.2f ms\n", (unsigned long long)r->refused.n,
               load_times_ms(&r->refused, 0.99));
    if (r->checked)
        printf("history   acknowledged %llu, found %llu, doubled %llu\n",
               (unsigned long long)r->acknowledged, (unsigned long long)r->found,
               (unsigned long long)r->doubled);
}

static void mailbox_json(const struct load_mailbox_result *r)
{
    printf("{");
    json_load("messages", &r->load, &r->complaint);
    printf(",\"busy\":%llu,\"busy_p99_ms\":%.3f", (unsigned long long)r->refused.n,
           load_times_ms(&r->refused, 0.99));
    if (r->checked)
        printf(",\"history\":{\"acknowledged\":%llu,\"found\":%llu,\"doubled\":%llu}",
               (unsigned long long)r->acknowledged, (unsigned long long)r->found,
               (unsigned long long)r->doubled);
    printf("}\n");
}

static int run_mailbox(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct target t;
    char topic[40];
    enum load_mailbox_mode mode = LOAD_MAILBOX_CYCLE;
    if (argc > 0)
        return bench_rows_run(ctx, "mailbox", argc, argv);
    int status = find_target(ctx, "mailbox", &t);
    if (status == CMD_OK)
        status = mailbox_mode(ctx, &mode);
    snprintf(topic, sizeof topic, "bench/%llx", (unsigned long long)(rng_secure_u64() >> 24));
    struct load_mailbox_spec s = {
        .addrs = t.addrs,
        .n_addrs = t.n,
        .token = buf_cstr(&t.token),
        .mode = mode,
        .topic = cmd_flag(ctx, "topic", topic),
        .topics = (unsigned)cmd_flag_int(ctx, "topics", 1, 1, 10000000),
        .conns = (unsigned)cmd_flag_int(ctx, "connections", 16, 1, LOAD_MILL_CONNS_MAX),
        .inflight = (unsigned)cmd_flag_int(ctx, "inflight", 1, 1, 64),
        .batch = (unsigned)cmd_flag_int(ctx, "batch", 1, 1, 64),
        .check = mode == LOAD_MAILBOX_CYCLE && !cmd_switch(ctx, "no-check"),
        .rate = (double)cmd_flag_int(ctx, "rate", 0, 0, 10000000),
        .awake = cmd_switch(ctx, "awake"),
        .ms = cmd_flag_int(ctx, "seconds", 10, 1, SECONDS_MAX) * 1000,
        .count = (uint64_t)cmd_flag_int(ctx, "messages", 0, 0, INT64_MAX),
        .timeout_ms = cmd_flag_int(ctx, "timeout", 2000, 10, 600000),
        .patience_ms = cmd_flag_int(ctx, "patience", 30, 1, 3600) * 1000,
        .stop = &stopped,
        .each_second = talks(ctx) ? on_second : NULL,
    };
    static struct load_mailbox_result r;
    if (status == CMD_OK && t.addrs[0].oap && mode != LOAD_MAILBOX_SEND)
        status = cmd_fail(ctx, CMD_USAGE, "over OAP it only sends: --mode send");
    if (status == CMD_OK && s.rate > 0 && (t.addrs[0].oap || mode != LOAD_MAILBOX_SEND))
        status = cmd_fail(ctx, CMD_USAGE, "--rate is for sending over HTTP: --mode send");
    if (status == CMD_OK && !t.addrs[0].oap && s.batch > 1)
        status =
            cmd_fail(ctx, CMD_USAGE, "--batch is for sending over OAP: --mode send --urls oap://host:port");
    if (status == CMD_OK) {
        stop_on_signals();
        enum err e = load_mailbox_run(&s, &r);
        if (e != ERR_OK) {
            status = said_why(ctx, e, &r.complaint, &t);
        } else {
            if (cmd_global(ctx)->json)
                mailbox_json(&r);
            else
                mailbox_print(&r, &s, &t);
            status = outcome(ctx, &r.load, &r.complaint, !r.checked || r.found == r.acknowledged);
        }
    }
    buf_fini(&t.token);
    return status;
}

/* ---- what is measured beside a peer only ---- */

static const struct cmd_flag row_flags[] = {
    {"seconds", CMD_VALUE, "S", "for how long a side runs"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static int run_rewarder(struct cmd_ctx *ctx, int argc, char **argv)
{
    return bench_rows_run(ctx, "rewarder", argc, argv);
}

static int run_edge(struct cmd_ctx *ctx, int argc, char **argv)
{
    return bench_rows_run(ctx, "edge", argc, argv);
}

static const struct cmd commands[] = {
    {"ledger", "[ROW...]",
     "transfers in units; follows several addresses, checks that the log holds what was acknowledged",
     "ron bench ledger --seconds 5\n"
     "ron bench ledger --urls http://127.0.0.1:7410,http://127.0.0.1:7510 --seconds 30\n"
     "ron bench ledger --urls oap+unix:ron-data/run/ledger-oap.sock --batch 256",
     ledger_flags, 0, -1, run_ledger},
    {"wallet", "[ROW...]", "payments under nonces; checks nonces and balances afterwards",
     "ron bench wallet --connections 64 --seconds 5", wallet_flags, 0, -1, run_wallet},
    {"mailbox", "[ROW...]", "messages sent, received and acknowledged; checks that each came back",
     "ron bench mailbox --seconds 5\nron bench mailbox cycle\nron bench mailbox --mode send --urls "
     "oap://127.0.0.1:7431 --batch 64",
     mailbox_flags, 0, -1, run_mailbox},
    {"rewarder", "[ROW...]", "rows of the rewarder beside their peers; none named: all",
     "ron bench rewarder oz sql", row_flags, 0, -1, run_rewarder},
    {"edge", "[ROW...]", "rows of the edge beside their peers; none named: all",
     "ron bench edge tile1k --seconds 5", row_flags, 0, -1, run_edge},
    {.run = NULL},
};

const struct cmd_group cmd_bench = {
    .noun = "bench",
    .summary =
        "a load on a running service, and whether it kept what it acknowledged; or ROWs beside their peers",
    .commands = commands};
