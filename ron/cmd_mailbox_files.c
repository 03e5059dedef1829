/*
 * ron mailbox verify, export and check-trace: looking at a mailbox's journals and at recorded histories, offline.
 *
 * verify reads every frame of every shard through the code that starts the service, but writes nothing; export prints every
 * message that is not settled as one JSON object per line, ready to be sent again; check-trace follows a recorded history from
 * send to settlement and says the first thing that breaks the contract.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/json_write.h"
#include "ron/cmd_mailbox.h"
#include "ron/progress.h"
#include "services/mailbox/core/trace.h"
#include "services/mailbox/log.h"
#include "store/file_replace.h"

enum { LINE_MAX_BYTES = 4 << 20 };

struct opened {
    struct mailbox_shard *shard;
    struct mailbox_log log;
    struct mailbox_rules rules;
    void *group;
    struct store_journal_report report;
};

static void rules_for_looking(struct mailbox_rules *r)
{
    memset(r, 0, sizeof *r);
    r->index_max = UINT64_MAX;
    r->max_topics = UINT32_MAX;
    r->retention_ready_ms = r->retention_dlq_ms = (uint64_t)INT64_MAX / 2000;
    r->policies.n = 1;
    r->policies.p[0] = (struct mailbox_policy){
        .class_name = "default", .t_replay_ms = MAILBOX_UNLIMITED, .max_attempts = 100};
}

int cmd_mailbox_meta(struct cmd_ctx *ctx, const char *dir, struct mailbox_routing *out_routing,
                     uint8_t out_instance[16])
{
    struct mailbox_meta meta;
    enum err e = mailbox_files_meta(store_disk_real(), dir, &meta);
    if (e != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "%s is no mailbox directory (META: %s)", dir,
                        e == ERR_CORRUPT ? "damaged" : err_title(e));
    memcpy(out_instance, meta.instance, sizeof meta.instance);
    e = mailbox_routing_load(store_disk_real(), dir, out_routing);
    if (e != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "%s/routing: %s", dir,
                        e == ERR_CORRUPT ? "damaged" : err_title(e));
    return CMD_OK;
}

uint32_t cmd_mailbox_segment_bytes(const char *shard_dir)
{
    char path[STORE_PATH_MAX];
    struct store_stat st;
    for (uint32_t n = 1; n < 100000; n++) {
        store_journal_segment_path(path, shard_dir, n);
        if (store_disk_stat(store_disk_real(), path, &st) == ERR_OK)
            return (uint32_t)st.bytes;
    }
    return 0;
}

static void close_shard(struct opened *o) RT_BLOCKS
{
    if (o->shard) {
        mailbox_log_close(&o->log);
        mailbox_shard_fini(o->shard);
    }
    free(o->shard);
    free(o->group);
    memset(o, 0, sizeof *o);
}

static enum err open_shard(const char *dir, uint16_t no, const struct mailbox_routing *routing,
                           const uint8_t instance[16], struct opened *o) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    mailbox_log_shard_dir(path, dir, no);
    memset(o, 0, sizeof *o);
    rules_for_looking(&o->rules);
    uint32_t segment = cmd_mailbox_segment_bytes(path);
    if (!segment)
        return ERR_EMPTY;
    const struct clock *clock = clock_real();
    struct mailbox_now now = {clock_mono_ns(clock) / 1000, (uint64_t)clock_wall_ms(clock)};
    o->shard = calloc(1, sizeof *o->shard);
    o->group = malloc(MAILBOX_GROUP_MEMORY);
    if (!o->shard || !o->group)
        return ERR_NO_MEMORY;
    enum err e = mailbox_shard_init(o->shard, no, &o->rules, 1, now, o->group);
    if (e == ERR_OK)
        e = mailbox_log_open(&o->log, o->shard,
                             &(struct mailbox_log_config){.disk = store_disk_real(),
                                                          .dir = path,
                                                          .instance = instance,
                                                          .routing = routing->of,
                                                          .segment_bytes = segment,
                                                          .read_only = true,
                                                          .clock = clock,
                                                          .now = now},
                             &o->report);
    return e;
}

static uint32_t waiting(const struct opened *o)
{
    return o->shard->count[MAILBOX_READY] + o->shard->count[MAILBOX_DELAYED];
}

static void say_shard(uint16_t no, enum err e, const struct opened *o)
{
    if (e == ERR_EMPTY)
        printf("shard %u: empty\n", no);
    else if (e != ERR_OK)
        printf("shard %u: cannot be read (%s)\n", no, err_title(e));
    else if (o->report.damaged)
        printf("shard %u: DAMAGED: %s, byte %" PRIu64 ": %s\n", no, o->report.bad_file,
               o->report.bad_offset, o->report.bad_reason ? o->report.bad_reason : "contents");
    else
        printf("shard %u: %" PRIu64 " groups, %" PRIu64 " bytes, %u topics, %u waiting, %u dead%s\n", no,
               o->report.frames, o->report.bytes, o->shard->topics.count, waiting(o),
               o->shard->count[MAILBOX_DLQ],
               o->report.torn_bytes ? ", an unacknowledged write at the end" : "");
}

static json_t *shard_json(uint16_t no, enum err e, const struct opened *o)
{
    if (e != ERR_OK)
        return json_pack("{s:i,s:s}", "shard", no, "state", e == ERR_EMPTY ? "empty" : err_title(e));
    if (o->report.damaged)
        return json_pack("{s:i,s:s,s:s,s:I,s:s}", "shard", no, "state", "damaged", "file",
                         o->report.bad_file, "offset", (json_int_t)o->report.bad_offset, "reason",
                         o->report.bad_reason ? o->report.bad_reason : "contents");
    return json_pack("{s:i,s:s,s:I,s:I,s:I,s:I,s:I,s:I}", "shard", no, "state", "whole", "groups",
                     (json_int_t)o->report.frames, "bytes", (json_int_t)o->report.bytes, "topics",
                     (json_int_t)o->shard->topics.count, "waiting", (json_int_t)waiting(o), "dead",
                     (json_int_t)o->shard->count[MAILBOX_DLQ], "torn_bytes",
                     (json_int_t)o->report.torn_bytes);
}

const struct cmd_flag cmd_mailbox_verify_flags[] = {
    {"topic", CMD_VALUE, "TOPIC", "instead: recompute this topic's chain of a running mailbox"},
    {"seen", CMD_VALUE, "SEQ:HASH",
     "with --topic: a head noted earlier, which must be a link of this history"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

int cmd_mailbox_verify(struct cmd_ctx *ctx, int argc, char **argv)
{
    char path[STORE_PATH_MAX];
    uint8_t instance[16];
    struct mailbox_routing routing = {0};
    uint32_t bad = 0;
    char *topic[] = {(char *)(uintptr_t)cmd_flag(ctx, "topic", NULL)};
    if (topic[0] && argc > 0)
        return cmd_fail(ctx, CMD_USAGE, "a directory or --topic, not both");
    if (topic[0])
        return cmd_mailbox_audit(ctx, 1, topic);
    if (cmd_flag(ctx, "seen", NULL))
        return cmd_fail(ctx, CMD_USAGE, "--seen goes with --topic");
    snprintf(path, sizeof path, "%s/mailbox", cmd_global(ctx)->data);
    const char *dir = argc ? argv[0] : path;
    int status = cmd_mailbox_meta(ctx, dir, &routing, instance);
    if (status != CMD_OK)
        return status;
    json_t *shards = json_array();
    for (uint16_t i = 0; i < routing.shards; i++) {
        struct opened o;
        struct progress shown;
        progress_begin(&shown, ctx, "reading a shard's journal");
        enum err e = open_shard(dir, i, &routing, instance, &o);
        progress_end(&shown);
        bad += (e != ERR_OK && e != ERR_EMPTY) || (e == ERR_OK && o.report.damaged);
        if (cmd_global(ctx)->json)
            json_array_append_new(shards, shard_json(i, e, &o));
        else
            say_shard(i, e, &o);
        close_shard(&o);
    }
    if (cmd_global(ctx)->json) {
        json_t *all = json_pack("{s:b,s:O}", "ok", bad == 0, "shards", shards);
        json_dumpf(all, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(all);
    }
    json_decref(shards);
    return bad ? cmd_fail(ctx, CMD_FAILED, "%u of %u shards are damaged", bad, routing.shards) : CMD_OK;
}

/* ---- export ---- */

static void put_line(const struct opened *o, const struct mailbox_entry *e, const struct mailbox_rec_enq *q,
                     struct buf *line)
{
    struct json_w w;
    struct mailbox_attr a;
    size_t at = 0;
    buf_reset(line);
    json_w_init(&w, line);
    json_obj_begin(&w);
    json_put_str(&w, "topic", mailbox_topic_name(o->shard->topics.slot[e->topic]));
    json_put_str(&w, "idem_key", q->idem_key);
    json_put_base64(&w, "payload_b64", q->payload);
    json_key(&w, "attrs");
    json_obj_begin(&w);
    while (mailbox_attrs_next(q->attrs, &at, &a)) {
        json_key_str(&w, a.key);
        json_str(&w, a.value);
    }
    json_obj_end(&w);
    if (q->not_before_ms)
        json_put_time_ms(&w, "deliver_at", (int64_t)q->not_before_ms);
    json_obj_end(&w);
    buf_putc(line, '\n');
}

int cmd_mailbox_export(struct cmd_ctx *ctx, int argc, char **argv)
{
    char path[STORE_PATH_MAX];
    uint8_t instance[16];
    struct mailbox_routing routing = {0};
    uint32_t lost = 0;
    struct buf line;
    snprintf(path, sizeof path, "%s/mailbox", cmd_global(ctx)->data);
    const char *dir = argc ? argv[0] : path;
    int status = cmd_mailbox_meta(ctx, dir, &routing, instance);
    if (status != CMD_OK)
        return status;
    uint8_t *buffer = malloc(MAILBOX_REC_BYTES_MAX + 64);
    buf_init(&line, LINE_MAX_BYTES);
    for (uint16_t i = 0; buffer && i < routing.shards; i++) {
        struct opened o;
        enum err e = open_shard(dir, i, &routing, instance, &o);
        if (e != ERR_OK && e != ERR_EMPTY)
            lost++;
        if (o.report.damaged) {
            cmd_fail(ctx, CMD_FAILED,
                     "shard %u is damaged at %s, byte %" PRIu64
                     ": what lies behind it is not among these; ron mailbox repair --shard %u reads on",
                     i, o.report.bad_file, o.report.bad_offset, i);
            lost++;
        }
        for (uint32_t k = 1; e == ERR_OK && k < o.shard->slabs.used; k++) {
            const struct mailbox_entry *en = mailbox_shard_entry(o.shard, k);
            struct mailbox_rec r;
            if (en->state == MAILBOX_FREE || en->state == MAILBOX_DONE)
                continue;
            if (mailbox_log_read(&o.log, en->segment, en->offset8, en->length64, buffer, &r) != ERR_OK) {
                lost++;
                continue;
            }
            put_line(&o, en, &r.enq, &line);
            fwrite(line.p, 1, line.n, stdout);
        }
        close_shard(&o);
    }
    free(buffer);
    buf_fini(&line);
    return lost ? cmd_fail(ctx, CMD_FAILED, "%u messages or shards could not be read", lost) : CMD_OK;
}

/* ---- check-trace ---- */

const struct cmd_flag cmd_mailbox_trace_flags[] = {
    {"max-attempts", CMD_VALUE, "N", "deliveries per life (5)"},
    {"t-replay-ms", CMD_VALUE, "MS", "dedup window (300000)"},
    {"lazy-ms", CMD_VALUE, "MS", "an ack this close to a crash may be forgotten (50)"},
    {"slack-ms", CMD_VALUE, "MS", "how far the recorded times may be off (50)"},
    {"drained", CMD_SWITCH, NULL, "everything was drained: nothing may be missing"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

struct trace_line {
    struct str event, id, topic, key;
    uint64_t seq, attempt;
    int64_t at_ms, until_ms;
    bool has_id;
};

static const struct json_field trace_fields[] = {
    JSON_REQ(struct trace_line, event, JSON_KIND_STR, .max = 32),
    JSON_OPT(struct trace_line, id, JSON_KIND_STR, .max = 36),
    JSON_DEF(struct trace_line, topic, JSON_KIND_STR, .max = MAILBOX_TOPIC_MAX),
    JSON_DEF(struct trace_line, key, JSON_KIND_STR, .max = MAILBOX_IDEM_MAX),
    JSON_DEF(struct trace_line, seq, JSON_KIND_U64),
    JSON_DEF(struct trace_line, attempt, JSON_KIND_U64, .max = 65535),
    JSON_REQ(struct trace_line, at_ms, JSON_KIND_I64),
    JSON_DEF(struct trace_line, until_ms, JSON_KIND_I64),
    JSON_END,
};

static int check_lines(struct cmd_ctx *ctx, FILE *f, const char *name, struct mailbox_trace *t)
{
    char *line = NULL;
    size_t cap = 0, n = 0;
    ssize_t got;
    int status = CMD_OK;
    struct arena arena;
    arena_init(&arena, 4096, 1 << 20);
    while (status == CMD_OK && (got = getline(&line, &cap, f)) > 0) {
        struct trace_line l = {0};
        struct json_error why;
        struct mailbox_trace_event ev = {0};
        n++;
        arena_reset(&arena);
        enum err e = json_read_dto(bytes_of(line, (size_t)got - (line[got - 1] == '\n')), trace_fields, &l,
                                   &arena, &why);
        if (e == ERR_OK)
            e = mailbox_trace_kind_parse(l.event, &ev.kind);
        if (e == ERR_OK && l.has_id)
            e = uuid_parse(l.id, &ev.id);
        ev.topic = l.topic;
        ev.key = l.key;
        ev.seq = l.seq;
        ev.attempt = (uint16_t)l.attempt;
        ev.at_ms = l.at_ms;
        ev.until_ms = l.until_ms;
        if (e != ERR_OK)
            status = cmd_fail(ctx, CMD_USAGE, "%s line %zu is no event", name, n);
        else if (mailbox_trace_feed(t, &ev) != ERR_OK)
            status = cmd_fail(ctx, CMD_FAILED, "%s line %zu breaks the contract: %s", name, n, t->why);
    }
    arena_fini(&arena);
    free(line);
    return status;
}

int cmd_mailbox_check_trace(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct mailbox_trace t;
    struct mailbox_trace_rules rules = {
        .max_attempts = (unsigned)cmd_flag_int(ctx, "max-attempts", 5, 1, 65535),
        .t_replay_ms = cmd_flag_int(ctx, "t-replay-ms", 300000, 0, INT64_MAX / 2),
        .lazy_ms = cmd_flag_int(ctx, "lazy-ms", 50, 0, 3600000),
        .slack_ms = cmd_flag_int(ctx, "slack-ms", 50, 0, 3600000),
    };
    (void)argc;
    FILE *f = strcmp(argv[0], "-") == 0 ? stdin : fopen(argv[0], "r");
    if (!f)
        return cmd_fail(ctx, CMD_FAILED, "cannot read %s", argv[0]);
    if (mailbox_trace_init(&t, &rules) != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "no memory");
    int status = check_lines(ctx, f, argv[0], &t);
    if (status == CMD_OK && ferror(f)) /* a directory, say: nothing was read, and nothing is known */
        status = cmd_fail(ctx, CMD_FAILED, "cannot read %s", argv[0]);
    if (status == CMD_OK && cmd_switch(ctx, "drained") && mailbox_trace_end(&t) != ERR_OK)
        status = cmd_fail(ctx, CMD_FAILED, "%s", t.why);
    if (status == CMD_OK)
        printf(cmd_global(ctx)->json ? "{\"sent\":%zu,\"duplicates\":%zu,\"delivered\":%zu,\"acked\":%zu,"
                                       "\"dead\":%zu}\n"
                                     : "%zu sent, %zu duplicates, %zu delivered, %zu acked, %zu dead: the "
                                       "contract holds\n",
               t.sent, t.duplicates, t.delivered, t.acked, t.dead);
    mailbox_trace_fini(&t);
    if (f != stdin)
        fclose(f);
    return status;
}
