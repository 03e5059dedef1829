/*
 * ron mailbox: send, receive, settle, look, and bring dead letters back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json_write.h"
#include "base/uuid.h"
#include "ron/client.h"
#include "ron/cmd.h"
#include "ron/cmd_mailbox.h"
#include "ron/table.h"
#include "services/mailbox/core/ids.h"
#include "services/mailbox/mailbox.h"

enum { BODY_MAX = 2 << 20, PATH_CHARS = 1024 };

/* ---- shared ---- */

static int post(struct cmd_ctx *ctx, const char *path, struct buf *body, int64_t timeout_ms,
                struct client_answer *out) RT_BLOCKS
{
    if (body && body->err != ERR_OK)
        return cmd_fail(ctx, CMD_USAGE, "the request is too large");
    return client_call(ctx, "mailbox",
                       &(struct client_request){.method = "POST",
                                                .path = path,
                                                .body = body ? buf_cstr(body) : "",
                                                .body_n = body ? body->n : 0,
                                                .timeout_ms = timeout_ms},
                       out);
}

static void path_of(struct buf *out, const char *prefix, const char *encode, const char *suffix)
{
    buf_puts(out, prefix);
    client_encode(encode, out);
    buf_puts(out, suffix);
}

/* ---- send ---- */

static const struct cmd_flag send_flags[] = {
    {"key", CMD_VALUE, "KEY", "idempotency key; default: a fresh one"},
    {"delay", CMD_VALUE, "DURATION", "deliver no earlier than this long from now: 500ms, 30s, 2h"},
    {"attr", CMD_VALUE, "NAME=VALUE", "an attribute; may be given several times"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static enum err read_stdin(struct buf *out)
{
    char chunk[8192];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, stdin)) > 0)
        buf_put(out, chunk, n);
    return out->err;
}

static void put_attrs(struct cmd_ctx *ctx, struct json_w *w)
{
    const char *attr;
    if (!cmd_flag(ctx, "attr", NULL))
        return;
    json_key(w, "attrs");
    json_obj_begin(w);
    for (int at = 0; (attr = cmd_flag_each(ctx, "attr", &at));) {
        size_t name = strcspn(attr, "=");
        json_key_str(w, str_of(attr, name));
        json_cstr(w, attr + name + 1);
    }
    json_obj_end(w);
}

static int run_send(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf body, payload;
    struct json_w w;
    struct client_answer a = {0};
    char key[UUID_CHARS];
    struct uuid fresh = uuid_v7_now(clock_real());
    const char *attr;
    int64_t delay = cmd_flag_ms(ctx, "delay", 0, 0, CMD_MS_MAX);
    for (int at = 0; (attr = cmd_flag_each(ctx, "attr", &at));)
        if (!strchr(attr, '='))
            return cmd_fail(ctx, CMD_USAGE, "--attr takes NAME=VALUE, not '%s'", attr);
    uuid_format(&fresh, key);
    buf_init(&payload, MAILBOX_PAYLOAD_MAX);
    if (argc > 1)
        buf_puts(&payload, argv[1]);
    else if (read_stdin(&payload) != ERR_OK || ferror(stdin)) {
        bool large = payload.err != ERR_OK;
        buf_fini(&payload);
        return large ? cmd_fail(ctx, CMD_USAGE, "the payload is larger than %d bytes", MAILBOX_PAYLOAD_MAX)
                     : cmd_fail(ctx, CMD_FAILED, "standard input cannot be read; nothing was sent");
    }
    buf_init(&body, BODY_MAX);
    json_w_init(&w, &body);
    json_obj_begin(&w);
    json_put_cstr(&w, "topic", argv[0]);
    json_put_cstr(&w, "idem_key", cmd_flag(ctx, "key", key));
    json_put_base64(&w, "payload_b64", buf_bytes(&payload));
    if (delay)
        json_put_i64(&w, "delay_ms", delay);
    put_attrs(ctx, &w);
    json_obj_end(&w);
    int status = post(ctx, "/v1/send", &body, 0, &a);
    buf_fini(&payload);
    buf_fini(&body);
    if (status != CMD_OK || cmd_global(ctx)->json)
        return client_show(ctx, &a, status);
    printf("%s  seq %lld%s\n", client_str(a.json, "msg_id"), client_int(a.json, "topic_seq"),
           json_is_true(json_object_get(a.json, "duplicate")) ? "  duplicate" : "");
    client_free(&a);
    return CMD_OK;
}

/* ---- receive ---- */

static const struct cmd_flag recv_flags[] = {
    {"max", CMD_VALUE, "N", "messages, 1 to 256 (1)"},
    {"visibility", CMD_VALUE, "DURATION", "length of the lease: 500ms, 30s, 1h"},
    {"wait", CMD_VALUE, "DURATION", "wait for a message, up to 20s"},
    {"ack", CMD_SWITCH, NULL, "ack what was printed"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static void print_payload(const json_t *m)
{
    struct str b64 = str_from_c(client_str(m, "payload_b64"));
    uint8_t *p = malloc(b64.n + 1);
    size_t n = 0;
    if (p && base64_decode(b64, p, b64.n, &n) == ERR_OK) {
        if (isatty(STDOUT_FILENO)) /* into a file or a pipe it goes as it is */
            table_tame((char *)p, n, "\n\t");
        fwrite(p, 1, n, stdout);
    }
    free(p);
}

static int ack_id(struct cmd_ctx *ctx, const char *id, long long attempt) RT_BLOCKS
{
    struct buf path, body;
    struct client_answer a = {0};
    buf_init(&path, PATH_CHARS);
    buf_init(&body, 256);
    path_of(&path, "/v1/ack/", id, "");
    if (attempt)
        buf_printf(&body, "{\"attempt\":%lld}", attempt);
    int status = post(ctx, buf_cstr(&path), &body, 0, &a);
    buf_fini(&path);
    buf_fini(&body);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    client_free(&a);
    return CMD_OK;
}

static int receive(struct cmd_ctx *ctx, const char *topic, int64_t wait_ms, bool ack,
                   size_t *out_n) RT_BLOCKS
{
    struct buf body;
    struct json_w w;
    struct client_answer a = {0};
    size_t i;
    json_t *m;
    int64_t visibility = cmd_flag_ms(ctx, "visibility", 0, 0, 86400000);
    buf_init(&body, 4096);
    json_w_init(&w, &body);
    json_obj_begin(&w);
    json_put_cstr(&w, "topic", topic);
    json_put_i64(&w, "max_messages", cmd_flag_int(ctx, "max", 1, 1, 256));
    json_put_i64(&w, "wait_ms", wait_ms);
    if (visibility)
        json_put_i64(&w, "visibility_ms", visibility);
    json_obj_end(&w);
    int status = post(ctx, "/v1/recv", &body, wait_ms + 10000, &a);
    buf_fini(&body);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    json_array_foreach(json_object_get(a.json, "messages"), i, m)
    {
        if (cmd_global(ctx)->json) {
            char *line = json_dumps(m, JSON_COMPACT);
            puts(line ? line : "");
            free(line);
        } else {
            printf("%s  seq %lld  attempt %lld  ", client_str(m, "msg_id"), client_int(m, "topic_seq"),
                   client_int(m, "attempt"));
            print_payload(m);
            putchar('\n');
        }
        if (fflush(stdout) != 0 || ferror(stdout))
            break; /* nobody saw it: it comes back when its lease ends */
        if (ack && status == CMD_OK)
            status = ack_id(ctx, client_str(m, "msg_id"), client_int(m, "attempt"));
    }
    *out_n = json_array_size(json_object_get(a.json, "messages"));
    client_free(&a);
    return ferror(stdout) && status == CMD_OK
               ? cmd_fail(ctx, CMD_FAILED, "cannot write the output; what was not printed is not acked")
               : status;
}

static int run_recv(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    size_t n = 0;
    (void)argc;
    int status = receive(ctx, argv[0], cmd_flag_ms(ctx, "wait", 0, 0, 20000), cmd_switch(ctx, "ack"), &n);
    if (status == CMD_OK && n == 0 && !cmd_global(ctx)->json)
        fprintf(stderr, "nothing ready\n");
    return status;
}

static int run_tail(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    size_t n;
    int status = CMD_OK;
    (void)argc;
    while (status == CMD_OK)
        status = receive(ctx, argv[0], 20000, !cmd_switch(ctx, "keep"), &n);
    return status;
}

static const struct cmd_flag tail_flags[] = {
    {"max", CMD_VALUE, "N", "messages per receive (1)"},
    {"visibility", CMD_VALUE, "DURATION", "length of the lease: 500ms, 30s, 1h"},
    {"keep", CMD_SWITCH, NULL, "do not ack: they come back when their lease ends"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

/* ---- settle ---- */

static const struct cmd_flag ack_flags[] = {
    {"attempt", CMD_VALUE, "N", "only if this is the current delivery"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static int run_ack(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    int status = CMD_OK;
    for (int i = 0; i < argc && status == CMD_OK; i++)
        status = ack_id(ctx, argv[i], cmd_flag_int(ctx, "attempt", 0, 0, 65535));
    return status;
}

static const struct cmd_flag nack_flags[] = {
    {"attempt", CMD_VALUE, "N", "only if this is the current delivery"},
    {"reason", CMD_VALUE, "TEXT", "kept in the message's history"},
    {"delay", CMD_VALUE, "DURATION", "come back after this long instead of the back-off"},
    {"dead", CMD_SWITCH, NULL, "straight to the dead-letter queue"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static int settle(struct cmd_ctx *ctx, const char *verb, const char *id, struct buf *body) RT_BLOCKS
{
    struct buf path;
    struct client_answer a = {0};
    buf_init(&path, PATH_CHARS);
    path_of(&path, verb, id, "");
    int status = post(ctx, buf_cstr(&path), body, 0, &a);
    buf_fini(&path);
    return client_show(ctx, &a, status);
}

static int run_nack(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf body;
    struct json_w w;
    int64_t delay = cmd_flag_ms(ctx, "delay", -1, 0, 43200000),
            attempt = cmd_flag_int(ctx, "attempt", 0, 0, 65535);
    (void)argc;
    buf_init(&body, 4096);
    json_w_init(&w, &body);
    json_obj_begin(&w);
    if (attempt)
        json_put_i64(&w, "attempt", attempt);
    if (cmd_flag(ctx, "reason", NULL))
        json_put_cstr(&w, "reason", cmd_flag(ctx, "reason", ""));
    if (delay >= 0)
        json_put_i64(&w, "delay_ms", delay);
    if (cmd_switch(ctx, "dead"))
        json_put_bool(&w, "dead", true);
    json_obj_end(&w);
    int status = settle(ctx, "/v1/nack/", argv[0], &body);
    buf_fini(&body);
    return status;
}

static int run_extend(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf body;
    int64_t attempt = cmd_flag_int(ctx, "attempt", 0, 0, 65535), ms;
    (void)argc;
    if (!cmd_parse_ms(argv[1], &ms) || ms <= 0)
        return cmd_fail(ctx, CMD_USAGE, "DURATION is a time such as 30s, not '%s'", argv[1]);
    buf_init(&body, 256);
    buf_printf(&body, "{\"visibility_ms\":%lld", (long long)ms);
    if (attempt)
        buf_printf(&body, ",\"attempt\":%lld", (long long)attempt);
    buf_puts(&body, "}");
    int status = settle(ctx, "/v1/extend/", argv[0], &body);
    buf_fini(&body);
    return status;
}

/* ---- dead letters ---- */

static const struct cmd_flag dlq_flags[] = {
    {"cause", CMD_VALUE, "CAUSE", "nack, lease_expired, integrity, dead or retention"},
    {"limit", CMD_VALUE, "N", "list, reprocess: at most so many (100, 1000)"},
    {"rate", CMD_VALUE, "N", "reprocess: messages per second (100)"},
    {"id", CMD_VALUE, "MSG_ID", "reprocess, purge: only this one"},
    {"wait", CMD_SWITCH, NULL, "reprocess: until it is done"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static int dlq_list(struct cmd_ctx *ctx, const char *topic) RT_BLOCKS
{
    struct buf path;
    struct client_answer a = {0};
    size_t i;
    json_t *m;
    buf_init(&path, PATH_CHARS);
    path_of(&path, "/v1/dlq?topic=", topic, "");
    buf_printf(&path, "&limit=%lld", (long long)cmd_flag_int(ctx, "limit", 100, 1, 1000));
    buf_puts(&path, cmd_flag(ctx, "cause", NULL) ? "&cause=" : "");
    client_encode(cmd_flag(ctx, "cause", ""), &path);
    int status = client_call(ctx, "mailbox", &(struct client_request){.path = buf_cstr(&path)}, &a);
    buf_fini(&path);
    if (status != CMD_OK || cmd_global(ctx)->json)
        return client_show(ctx, &a, status);
    json_array_foreach(json_object_get(a.json, "entries"), i, m)
    {
        char reason[MAILBOX_REASON_MAX + 1];
        snprintf(reason, sizeof reason, "%s", client_str(m, "reason"));
        table_tame(reason, strlen(reason), "");
        printf("%s  seq %-6lld attempt %-3lld %-13s %-24s %s\n", client_str(m, "msg_id"),
               client_int(m, "topic_seq"), client_int(m, "attempt"), client_str(m, "cause"),
               client_str(m, "moved_at"), reason);
    }
    long long all = client_int(a.json, "count"),
              shown = (long long)json_array_size(json_object_get(a.json, "entries"));
    printf("%lld dead letter%s", all, all == 1 ? "" : "s");
    printf(shown < all ? ", %lld shown\n" : "\n", shown);
    client_free(&a);
    return CMD_OK;
}

static int watch_run(struct cmd_ctx *ctx, const char *job) RT_BLOCKS
{
    struct buf path;
    buf_init(&path, PATH_CHARS);
    path_of(&path, "/v1/dlq/jobs/", job, "");
    for (;;) {
        struct client_answer a = {0};
        int status = client_call(ctx, "mailbox", &(struct client_request){.path = buf_cstr(&path)}, &a);
        bool running = status == CMD_OK && strcmp(client_str(a.json, "state"), "running") == 0;
        if (!running) {
            buf_fini(&path);
            return client_show(ctx, &a, status);
        }
        client_free(&a);
        usleep(100000);
    }
}

static int dlq_act(struct cmd_ctx *ctx, const char *verb, const char *topic) RT_BLOCKS
{
    bool purge = strcmp(verb, "purge") == 0;
    struct buf body;
    struct json_w w;
    struct client_answer a = {0};
    const char *id = cmd_flag(ctx, "id", NULL);
    buf_init(&body, 4096);
    json_w_init(&w, &body);
    json_obj_begin(&w);
    json_put_cstr(&w, "topic", topic);
    if (id) {
        json_key(&w, "ids");
        json_arr_begin(&w);
        json_cstr(&w, id);
        json_arr_end(&w);
    } else if (purge) {
        json_put_bool(&w, "all", true);
    }
    if (cmd_flag(ctx, "cause", NULL))
        json_put_cstr(&w, "cause", cmd_flag(ctx, "cause", ""));
    if (!purge) {
        json_put_i64(&w, "limit", cmd_flag_int(ctx, "limit", 1000, 1, 100000));
        json_put_i64(&w, "rate", cmd_flag_int(ctx, "rate", 100, 1, 10000));
    }
    json_obj_end(&w);
    int status = post(ctx, purge ? "/v1/dlq/purge" : "/v1/dlq/reprocess", &body, 0, &a);
    buf_fini(&body);
    if (status == CMD_OK && !purge && cmd_switch(ctx, "wait")) {
        char job[UUID_CHARS];
        snprintf(job, sizeof job, "%s", client_str(a.json, "job"));
        client_free(&a);
        return watch_run(ctx, job);
    }
    return client_show(ctx, &a, status);
}

/* A flag that a verb would not look at: somebody who says purge --limit 5 does not mean all of them. */
static int dlq_flags_fit(struct cmd_ctx *ctx, const char *verb)
{
    static const struct {
        const char *verb, *flag;
    } none[] = {{"list", "id"},     {"list", "rate"},  {"list", "wait"},
                {"purge", "limit"}, {"purge", "rate"}, {"purge", "wait"}};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (strcmp(verb, none[i].verb) == 0 && cmd_switch(ctx, none[i].flag))
            return cmd_fail(ctx, CMD_USAGE, "dlq %s takes no --%s; nothing was done", verb, none[i].flag);
    return CMD_OK;
}

static int run_dlq(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    int status = dlq_flags_fit(ctx, argv[0]);
    (void)argc;
    if (status != CMD_OK)
        return status;
    if (strcmp(argv[0], "list") == 0)
        return dlq_list(ctx, argv[1]);
    if (strcmp(argv[0], "reprocess") == 0 || strcmp(argv[0], "purge") == 0)
        return dlq_act(ctx, argv[0], argv[1]);
    return cmd_fail(ctx, CMD_USAGE, "dlq takes list, reprocess or purge, not '%s'", argv[0]);
}

/* ---- looking ---- */

static void waiting_cells(struct table *table, const json_t *counts)
{
    static const char *const names[] = {"ready", "delayed", "leased", "dlq"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        table_cell(table, "%lld", client_int(counts, names[i]));
}

/* One page of topics, behind the topic `io_after`, which becomes its last one; empty: there are no more. Shards it lacks are the caller's. */
static int topics_page(struct cmd_ctx *ctx, const char *prefix, char io_after[MAILBOX_TOPIC_MAX + 1],
                       struct table *table, json_t **out_missing) RT_BLOCKS
{
    struct buf path;
    struct client_answer a = {0};
    size_t i;
    json_t *t;
    buf_init(&path, PATH_CHARS);
    path_of(&path, "/v1/topics?limit=1000&prefix=", prefix, "&after=");
    client_encode(io_after, &path);
    int status = client_call(ctx, "mailbox", &(struct client_request){.path = buf_cstr(&path)}, &a);
    buf_fini(&path);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    bool json = cmd_global(ctx)->json;
    json_array_foreach(json ? NULL : json_object_get(a.json, "topics"), i, t)
    {
        table_cell(table, "%s", client_str(t, "topic"));
        table_cell(table, "%lld", client_int(t, "shard"));
        waiting_cells(table, t);
        table_cell(table, "%lld", client_int(json_object_get(t, "head"), "topic_seq"));
    }
    snprintf(io_after, MAILBOX_TOPIC_MAX + 1, "%s", client_str(a.json, "next"));
    if (json)
        client_print_raw(&a);
    json_decref(*out_missing);
    *out_missing = json_incref(json_object_get(a.json, "missing"));
    client_free(&a);
    return CMD_OK;
}

/* All of them, however many pages that takes; as JSON a page is a line. */
static int run_topics(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    static const char *const headers[] = {"topic",   ">shard", ">ready", ">delayed",
                                          ">leased", ">dead",  ">seq"};
    char after[MAILBOX_TOPIC_MAX + 1] = "";
    struct table table;
    json_t *missing = NULL, *m;
    size_t i;
    int status;
    table_init(&table, cmd_global(ctx)->color, headers, 7);
    do
        status = topics_page(ctx, argc ? argv[0] : "", after, &table, &missing);
    while (status == CMD_OK && *after);
    if (status == CMD_OK && !cmd_global(ctx)->json)
        table_print_or(&table, argc ? "no topic begins with that" : "no topics yet");
    json_array_foreach(missing, i, m) status =
        cmd_fail(ctx, CMD_UNAVAILABLE, "the topics of shard %lld are not listed: %s",
                 client_int(m, "shard"), client_str(m, "detail"));
    json_decref(missing);
    return status;
}

/* Every node knows who has which shard; what is in a shard only its own node knows. */
static int shards_list(struct cmd_ctx *ctx) RT_BLOCKS
{
    struct client_answer a = {0};
    size_t i;
    json_t *s;
    int status = client_call(ctx, "mailbox", &(struct client_request){.path = "/admin/mailbox/shards"}, &a);
    if (status != CMD_OK || cmd_global(ctx)->json)
        return client_show(ctx, &a, status);
    bool shared = json_object_get(a.json, "node") != NULL;
    static const char *const headers[] = {">shard",   "stage",   "node",  ">epoch", ">ready",
                                          ">delayed", ">leased", ">dead", "url"};
    struct table table;
    table_init(&table, cmd_global(ctx)->color, headers, 9);
    json_array_foreach(json_object_get(a.json, "shards"), i, s)
    {
        const char *node = client_str(s, "node");
        table_cell(&table, "%lld", client_int(s, "shard"));
        bool bad = json_is_true(json_object_get(s, "readonly")),
             full = json_is_true(json_object_get(s, "disk_full"));
        table_cell(&table, "%s",
                   bad      ? "read-only"
                   : full   ? "disk full"
                   : shared ? client_str(s, "stage")
                            : "here");
        table_cell(&table, "%s", !shared ? "-" : *node ? node : "nobody");
        table_cell(&table, "%lld", client_int(s, "epoch"));
        waiting_cells(&table, s);
        table_cell(&table, "%s", client_str(s, "url"));
    }
    table_print(&table);
    if (shared)
        printf("node %s has %lld, its share of %lld nodes is %lld\n", client_str(a.json, "node"),
               client_int(a.json, "here"), client_int(a.json, "nodes"), client_int(a.json, "share"));
    client_free(&a);
    return CMD_OK;
}

static int run_shards(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct buf path;
    struct client_answer a = {0};
    if (argc == 0)
        return shards_list(ctx);
    if (argc != 2 || (strcmp(argv[0], "claim") != 0 && strcmp(argv[0], "release") != 0))
        return cmd_fail(ctx, CMD_USAGE, "shards takes nothing, or claim or release and the shard's number");
    buf_init(&path, PATH_CHARS);
    path_of(&path, "/admin/mailbox/shards/", argv[1], "/");
    buf_puts(&path, argv[0]);
    int status = post(ctx, buf_cstr(&path), NULL, 0, &a);
    buf_fini(&path);
    return client_show(ctx, &a, status);
}

static const struct cmd commands[] = {
    {"send", "TOPIC [TEXT]", "send a message (from stdin without TEXT)",
     "ron mailbox send orders hello --key order-1", send_flags, 1, 2, run_send},
    {"recv", "TOPIC", "receive messages under a lease", "ron mailbox recv orders --max 10 --ack",
     recv_flags, 1, 1, run_recv},
    {"tail", "TOPIC", "print and ack messages as they come", "ron mailbox tail orders", tail_flags, 1, 1,
     run_tail},
    {"ack", "MSG_ID...", "settle messages for good", "ron mailbox ack 0199d996-c5e8-709d-8000-000000000001",
     ack_flags, 1, -1, run_ack},
    {"nack", "MSG_ID", "give a message back", "ron mailbox nack 0199… --reason 'printer on fire'",
     nack_flags, 1, 1, run_nack},
    {"extend", "MSG_ID DURATION", "let the lease end that long from now", "ron mailbox extend 0199… 60s",
     ack_flags, 2, 2, run_extend},
    {"dlq", "list|reprocess|purge TOPIC", "dead letters",
     "ron mailbox dlq list orders\nron mailbox dlq reprocess orders --wait", dlq_flags, 2, 2, run_dlq},
    {"topics", "[PREFIX]", "topics and what waits in them", "ron mailbox topics", NULL, 0, 1, run_topics},
    {"shards", "[claim|release SHARD]", "which node has which shard; move one by command",
     "ron mailbox shards\nron mailbox shards claim 3", NULL, 0, 2, run_shards},
    {"audit", "TOPIC", "recompute the topic's hash chain; is it the history seen before?",
     "ron mailbox audit orders", cmd_mailbox_audit_flags, 1, 1, cmd_mailbox_audit},
    {"repair", "", "make a damaged shard's files whole again, of what is intact in them (stopped mailbox)",
     "ron mailbox repair --shard 0", cmd_mailbox_repair_flags, 0, 0, cmd_mailbox_repair},
    {"verify", "[DIR]", "check every journal of a stopped mailbox; with --topic the same as audit",
     "ron mailbox verify ron-data/mailbox\nron mailbox verify --topic orders", cmd_mailbox_verify_flags, 0,
     1, cmd_mailbox_verify},
    {"export", "[DIR]", "print every unsettled message, one JSON object per line",
     "ron mailbox export >messages.ndjson", NULL, 0, 1, cmd_mailbox_export},
    {"check-trace", "FILE", "does a recorded history keep the contract?",
     "ron mailbox check-trace history.ndjson --drained", cmd_mailbox_trace_flags, 1, 1,
     cmd_mailbox_check_trace},
    {.run = NULL},
};

const struct cmd_group cmd_mailbox = {.noun = "mailbox",
                                      .summary =
                                          "messages: send, receive under a lease, settle, dead letters",
                                      .commands = commands,
                                      .service = &mailbox_svc};
