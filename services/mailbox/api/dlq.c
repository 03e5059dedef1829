/* /v1/dlq: list, reprocess, purge, and the jobs of reprocessing. All of it is the reprocessor's work. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json_write.h"
#include "base/str.h"
#include "base/time_fmt.h"
#include "services/mailbox/api/call.h"
#include "services/mailbox/api/routes.h"
#include "services/mailbox/operator.h"

enum { IDS_MAX = 1000, PURGE_ROUND = IDS_MAX, BODY_MAX = 8 << 20 };

struct operator_dto {
    struct str topic, cause, reason, before;
    struct json_list ids;
    uint64_t limit, rate, delay_ms;
    bool has_ids, has_cause, has_reason, has_before, all;
};

static const struct json_field reprocess_fields[] = {
    JSON_REQ(struct operator_dto, topic, JSON_KIND_STR, .min = 1, .max = MAILBOX_TOPIC_MAX,
             .check = mailbox_topic_valid),
    JSON_OPT(struct operator_dto, ids, JSON_KIND_STR_LIST, .min = 1, .max = IDS_MAX),
    JSON_OPT(struct operator_dto, cause, JSON_KIND_STR, .max = 32),
    JSON_OPT(struct operator_dto, reason, JSON_KIND_STR, .max = MAILBOX_REASON_MAX),
    JSON_OPT(struct operator_dto, before, JSON_KIND_STR, .max = 40),
    JSON_DEF(struct operator_dto, limit, JSON_KIND_U64, .min = 1, .max = 100000),
    JSON_DEF(struct operator_dto, rate, JSON_KIND_U64, .min = 1, .max = 10000),
    JSON_DEF(struct operator_dto, delay_ms, JSON_KIND_U64, .max = 43200000),
    JSON_END,
};

static const struct json_field purge_fields[] = {
    JSON_REQ(struct operator_dto, topic, JSON_KIND_STR, .min = 1, .max = MAILBOX_TOPIC_MAX,
             .check = mailbox_topic_valid),
    JSON_OPT(struct operator_dto, ids, JSON_KIND_STR_LIST, .min = 1, .max = IDS_MAX),
    JSON_DEF(struct operator_dto, all, JSON_KIND_BOOL),
    JSON_OPT(struct operator_dto, cause, JSON_KIND_STR, .max = 32),
    JSON_OPT(struct operator_dto, before, JSON_KIND_STR, .max = 40),
    JSON_END,
};

static void operator_free(struct mailbox_operator *op)
{
    free(op->ids);
    buf_fini(&op->body);
    free(op);
}

static struct mailbox_operator *operator_new(struct mailbox_call *c, enum mailbox_operator_kind kind,
                                             struct str topic)
{
    struct mailbox_operator *op = calloc(1, sizeof *op);
    if (!op)
        return NULL;
    op->kind = kind;
    memcpy(op->topic, topic.p, topic.n);
    op->topic_len = topic.n;
    mailbox_topic_hash(topic, &op->topic_hash);
    op->lane = mailbox_lane_of(c->mb, mailbox_bucket(&op->topic_hash));
    c->lane = op->lane;
    snprintf(op->kid, sizeof op->kid, "%s", auth_cap_kid(c->cap));
    buf_init(&op->body, BODY_MAX);
    return op;
}

static void refuse_operator(struct mailbox_call *c, enum err e, enum mailbox_why why)
{
    mailbox_call_refuse(c, e == ERR_DRAINING ? ERR_BUSY : e, e == ERR_DRAINING ? MAILBOX_WHY_DRAINING : why,
                        e == ERR_NOT_FOUND ? "no such topic" : NULL);
}

static void finish(struct mailbox_call *c)
{
    struct mailbox_operator *op = c->more;
    if (op->err == ERR_OK)
        mailbox_call_reply(c, 200, buf_bytes(&op->body));
    else if (op->err == ERR_NOT_RETAINED)
        mailbox_call_refuse_details(c, op->err, "links before first_available are no longer kept",
                                    buf_bytes(&op->body));
    else
        refuse_operator(c, op->err, op->why);
    operator_free(op);
}

/* Hands the work to the reprocessor; the call is answered when it is done. */
static void hand_over(struct mailbox_call *c, struct mailbox_operator *op)
{
    c->more = op;
    c->finish = finish;
    op->call = c;
    if (rt_chan_try_send(c->mb->reproc, op) == ERR_OK)
        return;
    obs_log(svc_log(c->mb->svc), OBS_WARN, "reproc_queue_full", OBS_END);
    operator_free(op);
    mailbox_call_refuse(c, ERR_BUSY, MAILBOX_WHY_REPROC, NULL);
}

static const char *read_list_query(struct net_req *rq, struct mailbox_operator *op)
{
    struct str s;
    if (!mailbox_query_u32(rq, "limit", 1, 1000, &op->limit))
        return "limit: range";
    if (net_req_query(rq, "cause", &s) == ERR_OK && (op->cause = (uint8_t)mailbox_cause_parse(s)) == 0)
        return "cause: pattern";
    if (net_req_query(rq, "reason", &s) == ERR_OK) {
        if (s.n > sizeof op->reason)
            return "reason: range";
        memcpy(op->reason, s.p, s.n);
        op->reason_len = s.n;
    }
    if (net_req_query(rq, "after", &s) == ERR_OK) {
        if (uuid_parse(s, &op->after) != ERR_OK)
            return "after: pattern";
        op->has_after = true;
    }
    uint32_t payload = 0;
    if (!mailbox_query_u32(rq, "payload", 0, 1, &payload))
        return "payload: range";
    op->payload = payload;
    return NULL;
}

void mailbox_get_dlq(struct net_req *rq, void *ctx)
{
    struct mailbox_call *c = mailbox_call_http(ctx, rq, MAILBOX_OP_DLQ, "dlq");
    struct str topic;
    if (!c)
        return;
    bool named = net_req_query(rq, "topic", &topic) == ERR_OK;
    if (!named || !mailbox_topic_valid(topic)) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE,
                            named ? "topic: pattern" : "topic: missing");
        return;
    }
    enum err e = mailbox_call_allows(c, topic, 0);
    struct mailbox_operator *op = e == ERR_OK ? operator_new(c, MAILBOX_OPERATOR_LIST, topic) : NULL;
    if (!op) {
        mailbox_call_refuse(c, e == ERR_OK ? ERR_NO_MEMORY : e, MAILBOX_WHY_NONE, NULL);
        return;
    }
    op->limit = 100;
    const char *bad = read_list_query(rq, op);
    if (!bad && op->payload && mailbox_call_allows_too(c, "recv", topic) != ERR_OK) {
        operator_free(op);
        mailbox_call_refuse(c, ERR_FORBIDDEN, MAILBOX_WHY_NONE, "payloads need recv too");
        return;
    }
    if (bad) {
        operator_free(op);
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE, bad);
        return;
    }
    hand_over(c, op);
}

static const char *fill(struct mailbox_operator *op, const struct operator_dto *d)
{
    int64_t before = 0;
    if (d->has_cause && (op->cause = (uint8_t)mailbox_cause_parse(d->cause)) == 0)
        return "cause: pattern";
    if (d->has_before && (time_parse_ms(d->before, &before) != ERR_OK || before <= 0))
        return "before: pattern";
    op->before_ms = (uint64_t)before;
    if (d->has_reason)
        memcpy(op->reason, d->reason.p, d->reason.n);
    op->reason_len = d->has_reason ? d->reason.n : 0;
    op->limit = (uint32_t)d->limit;
    op->all = d->all;
    op->rate = (uint32_t)d->rate;
    op->delay_ms = d->delay_ms;
    if (!d->has_ids)
        return NULL;
    op->ids = calloc(d->ids.n, sizeof *op->ids);
    if (!op->ids)
        return "no memory";
    for (size_t i = 0; i < d->ids.n; i++)
        if (uuid_parse(((const struct str *)d->ids.items)[i], &op->ids[i]) != ERR_OK)
            return "ids: pattern";
    op->ids_n = (uint32_t)d->ids.n;
    return NULL;
}

/* Reads the body and makes the operator; NULL when the call has been answered. */
static struct mailbox_operator *read_operator(struct mailbox_call *c, struct net_req *rq,
                                              const struct json_field *fields,
                                              enum mailbox_operator_kind kind)
{
    struct operator_dto d = {.limit = kind == MAILBOX_OPERATOR_PURGE ? PURGE_ROUND : 1000, .rate = 100};
    struct json_error why;
    enum err e = json_read_dto(net_req_body(rq), fields, &d, net_req_arena(rq), &why);
    if (e != ERR_OK) {
        mailbox_call_refuse_json(c, e, &why);
        return NULL;
    }
    if (kind == MAILBOX_OPERATOR_PURGE && d.has_ids == d.all) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE, "ids: either ids or all:true");
        return NULL;
    }
    e = mailbox_call_allows(c, d.topic, 0);
    struct mailbox_operator *op = e == ERR_OK ? operator_new(c, kind, d.topic) : NULL;
    if (!op) {
        mailbox_call_refuse(c, e == ERR_OK ? ERR_NO_MEMORY : e, MAILBOX_WHY_NONE, NULL);
        return NULL;
    }
    const char *bad = fill(op, &d);
    if (bad) {
        operator_free(op);
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE, bad);
        return NULL;
    }
    return op;
}

void mailbox_post_purge(struct net_req *rq, void *ctx)
{
    struct mailbox_call *c = mailbox_call_http(ctx, rq, MAILBOX_OP_DLQ, "dlq");
    struct mailbox_operator *op = c ? read_operator(c, rq, purge_fields, MAILBOX_OPERATOR_PURGE) : NULL;
    if (op)
        hand_over(c, op);
}

/* ---- runs ---- */

/* Puts the run into the table; the oldest finished one beyond 256 leaves, to be freed. False: all of them are running. */
static bool remember(struct mailbox *mb, struct mailbox_operator *op, struct mailbox_operator **out_gone)
{
    struct mailbox_operator **oldest = NULL;
    *out_gone = NULL;
    rt_lock_take(&mb->jobs.lock);
    if (mb->jobs.n >= MAILBOX_JOBS_KEPT)
        for (struct mailbox_operator **l = &mb->jobs.list; *l; l = &(*l)->next)
            if ((*l)->state != MAILBOX_RUN_RUNNING)
                oldest = l;
    bool room = mb->jobs.n < MAILBOX_JOBS_KEPT || oldest;
    if (oldest) {
        *out_gone = *oldest;
        *oldest = (*oldest)->next;
        mb->jobs.n--;
    }
    if (room) {
        op->next = mb->jobs.list;
        mb->jobs.list = op;
        mb->jobs.n++;
    }
    rt_lock_release(&mb->jobs.lock);
    return room;
}

static void finish_run(struct mailbox_call *c)
{
    const struct mailbox_run_found *f = c->more;
    char id[UUID_CHARS], json[96];
    if (f->err != ERR_OK) {
        refuse_operator(c, f->err, MAILBOX_WHY_NONE);
        return;
    }
    uuid_format(&f->job, id);
    int n = snprintf(json, sizeof json, "{\"job\":\"%s\",\"matched\":%u}", id, f->matched);
    mailbox_call_reply(c, 202, bytes_of(json, (size_t)n));
}

void mailbox_post_reprocess(struct net_req *rq, void *ctx)
{
    struct mailbox *mb = ctx;
    struct mailbox_call *c = mailbox_call_http(mb, rq, MAILBOX_OP_DLQ, "dlq");
    struct mailbox_operator *op = c ? read_operator(c, rq, reprocess_fields, MAILBOX_OPERATOR_RUN) : NULL;
    struct mailbox_run_found *found = op ? arena_alloc(net_req_arena(rq), sizeof *found) : NULL;
    if (!op)
        return;
    if (!found) {
        operator_free(op);
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, NULL);
        return;
    }
    op->job = found->job = uuid_v7_now(mb->clock);
    op->started_ms = (uint64_t)clock_wall_ms(mb->clock);
    op->found = found;
    op->call = c;
    c->more = found;
    c->finish = finish_run;
    struct mailbox_operator *gone;
    bool room = remember(mb, op, &gone);
    if (gone)
        operator_free(gone);
    if (!room) {
        operator_free(op);
        mailbox_call_refuse(c, ERR_BUSY, MAILBOX_WHY_REPROC, NULL);
        return;
    }
    if (rt_chan_try_send(mb->reproc, op) != ERR_OK) {
        rt_lock_take(&mb->jobs.lock);
        op->state = MAILBOX_RUN_FAILED;
        rt_lock_release(&mb->jobs.lock);
        obs_log(svc_log(mb->svc), OBS_WARN, "reproc_queue_full", OBS_END);
        mailbox_call_refuse(c, ERR_BUSY, MAILBOX_WHY_REPROC, NULL);
    }
}

static void put_run(struct json_w *w, const struct mailbox_operator *op)
{
    static const char *const states[] = {"running", "done", "canceled", "failed"};
    json_obj_begin(w);
    json_key(w, "job");
    json_uuid(w, &op->job);
    json_put_str(w, "topic", str_of(op->topic, op->topic_len));
    json_put_u64(w, "matched", op->matched);
    json_put_u64(w, "moved", op->moved);
    json_put_u64(w, "skipped", op->skipped);
    json_put_cstr(w, "state", states[op->state]);
    json_put_u64(w, "rate", op->rate);
    json_put_time_ms(w, "started_at", (int64_t)op->started_ms);
    if (op->finished_ms)
        json_put_time_ms(w, "finished_at", (int64_t)op->finished_ms);
    json_obj_end(w);
}

static void answer_run(struct net_req *rq, struct mailbox *mb, bool cancel)
{
    struct mailbox_call *c = mailbox_call_http(mb, rq, MAILBOX_OP_DLQ, "dlq");
    struct uuid id;
    uint8_t storage[1024];
    struct buf b;
    struct json_w w;
    bool found = false;
    if (!c)
        return;
    if (uuid_parse(net_req_param(rq, "job"), &id) != ERR_OK) {
        mailbox_call_refuse(c, ERR_NOT_FOUND, MAILBOX_WHY_NONE, "no such job");
        return;
    }
    buf_init_fixed(&b, storage, sizeof storage);
    json_w_init(&w, &b);
    rt_lock_take(&mb->jobs.lock);
    for (struct mailbox_operator *op = mb->jobs.list; op && !found; op = op->next) {
        found = mailbox_id_eq(&op->job, &id) &&
                auth_covers(c->cap, AUTH_CV_TOPIC, str_of(op->topic, op->topic_len));
        if (found && cancel)
            atomic_store(&op->cancel, true);
        if (found)
            put_run(&w, op);
    }
    rt_lock_release(&mb->jobs.lock);
    if (found)
        mailbox_call_reply(c, 200, buf_bytes(&b));
    else
        mailbox_call_refuse(c, ERR_NOT_FOUND, MAILBOX_WHY_NONE, "no such job");
}

void mailbox_get_job(struct net_req *rq, void *ctx)
{
    answer_run(rq, ctx, false);
}

void mailbox_delete_job(struct net_req *rq, void *ctx)
{
    answer_run(rq, ctx, true);
}

void mailbox_operators_free(struct mailbox *mb)
{
    while (mb->jobs.list) {
        struct mailbox_operator *op = mb->jobs.list;
        mb->jobs.list = op->next;
        operator_free(op);
    }
}

/* ---- chains: read by the reprocessor as well ---- */

void mailbox_get_chain(struct net_req *rq, void *ctx)
{
    struct mailbox_call *c = mailbox_call_http(ctx, rq, MAILBOX_OP_CHAIN, "read");
    struct str s;
    if (!c)
        return;
    struct str topic = net_req_param(rq, "topic");
    if (!mailbox_topic_valid(topic)) {
        mailbox_call_refuse(c, ERR_NOT_FOUND, MAILBOX_WHY_NONE, "no such topic");
        return;
    }
    enum err e = mailbox_call_allows(c, topic, 0);
    struct mailbox_operator *op = e == ERR_OK ? operator_new(c, MAILBOX_OPERATOR_CHAIN, topic) : NULL;
    if (!op) {
        mailbox_call_refuse(c, e == ERR_OK ? ERR_NO_MEMORY : e, MAILBOX_WHY_NONE, NULL);
        return;
    }
    op->limit = 100;
    bool ok = mailbox_query_u32(rq, "limit", 1, 1000, &op->limit);
    if (ok && net_req_query(rq, "from", &s) == ERR_OK) {
        op->has_from = true;
        ok = str_parse_u64(s, &op->from) == ERR_OK && op->from > 0;
    }
    if (!ok) {
        operator_free(op);
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE, "from or limit: range");
        return;
    }
    hand_over(c, op);
}
