/* POST /v1/ack, /v1/nack, /v1/extend. */
#include <stdio.h>

#include "base/json_write.h"
#include "services/mailbox/api/call.h"
#include "services/mailbox/api/routes.h"

enum { ACKS_MAX = 1024, DELAY_MAX_MS = 12 * 3600 * 1000 };

struct one_dto {
    struct str msg_id, reason;
    uint64_t attempt, delay_ms, visibility_ms;
    bool has_attempt, has_delay_ms, has_reason, dead;
};

static const struct json_field ack_fields[] = {
    JSON_OPT(struct one_dto, attempt, JSON_KIND_U64, .min = 1, .max = 65535), JSON_END};
static const struct json_field nack_fields[] = {
    JSON_OPT(struct one_dto, attempt, JSON_KIND_U64, .min = 1, .max = 65535),
    JSON_OPT(struct one_dto, reason, JSON_KIND_STR, .max = MAILBOX_REASON_MAX),
    JSON_OPT(struct one_dto, delay_ms, JSON_KIND_U64, .max = DELAY_MAX_MS),
    JSON_DEF(struct one_dto, dead, JSON_KIND_BOOL), JSON_END};
static const struct json_field extend_fields[] = {
    JSON_OPT(struct one_dto, attempt, JSON_KIND_U64, .min = 1, .max = 65535),
    JSON_REQ(struct one_dto, visibility_ms, JSON_KIND_U64), JSON_END};

static const struct json_field ack_item_fields[] = {
    JSON_REQ(struct one_dto, msg_id, JSON_KIND_STR, .min = 36, .max = 36),
    JSON_OPT(struct one_dto, attempt, JSON_KIND_U64, .min = 1, .max = 65535), JSON_END};
struct acks_dto {
    struct json_list acks;
};
static const struct json_field acks_fields[] = {
    JSON_REQ(struct acks_dto, acks, JSON_KIND_OBJ_LIST, .min = 1, .max = ACKS_MAX,
             .fields = ack_item_fields, .item_bytes = sizeof(struct one_dto)),
    JSON_END};

void mailbox_settle_submit(struct mailbox_call *c, enum mailbox_job_kind kind)
{
    struct mailbox_settle_item *last[MAILBOX_SHARDS_MAX] = {NULL};
    uint16_t job_of[MAILBOX_SHARDS_MAX];
    size_t n = 0;
    struct mailbox_job *jobs =
        mailbox_call_jobs(c, c->settle.n < MAILBOX_SHARDS_MAX ? c->settle.n : MAILBOX_SHARDS_MAX);
    if (!jobs) {
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, NULL);
        return;
    }
    for (size_t i = 0; i < c->settle.n; i++) {
        struct mailbox_settle_item *it = &c->settle.items[i];
        if (it->err != ERR_OK)
            continue;
        it->fence.covers = mailbox_call_covers;
        it->fence.ctx = c->cap;
        uint16_t shard = mailbox_route(c->mb, mailbox_id_bucket(&it->fence.msg_id));
        if (!last[shard]) {
            job_of[shard] = (uint16_t)n;
            jobs[n].kind = kind;
            jobs[n].lane = &c->mb->lanes[shard];
            jobs[n].settle = it;
            n++;
        } else {
            last[shard]->next = it;
        }
        last[shard] = it;
    }
    (void)job_of;
    c->jobs_n = n;
    if (n == 0)
        c->finish(c);
    else
        mailbox_call_submit(c, true);
}

static void refuse_one(struct mailbox_call *c, const struct mailbox_settle_item *it)
{
    char json[48];
    int n = 0;
    if (it->err == ERR_STALE_ATTEMPT)
        n = snprintf(json, sizeof json, "{\"attempt\":%u}", it->out.attempt);
    const char *detail = it->err == ERR_NOT_FOUND       ? "no such message"
                         : it->err == ERR_STALE_ATTEMPT ? "another delivery has begun since"
                         : it->err == ERR_NOT_LEASED    ? "the message is not under a lease"
                         : it->err == ERR_DEAD_LETTERED ? "the message is in the dead-letter queue"
                                                        : mailbox_detail(it->err, MAILBOX_WHY_NONE);
    mailbox_call_refuse_details(c, it->err, detail, bytes_of(json, (size_t)n));
}

static void finish_one(struct mailbox_call *c)
{
    struct mailbox_settle_item *it = &c->settle.items[0];
    char json[96];
    int n;
    if (c->jobs[0].err != ERR_OK) {
        mailbox_call_refuse(c, c->jobs[0].err, c->jobs[0].why, NULL);
        return;
    }
    if (it->err != ERR_OK) {
        refuse_one(c, it);
        return;
    }
    const char *lost = atomic_load(&c->jobs[0].lane->readonly) ? ",\"durable\":false" : "";
    if (c->op == MAILBOX_OP_ACK)
        n = snprintf(json, sizeof json, "{\"ok\":true%s%s}", it->out.already ? ",\"already\":true" : "",
                     lost);
    else if (c->op == MAILBOX_OP_NACK)
        n = snprintf(json, sizeof json, "{\"ok\":true,\"state\":\"%s\",\"delay_ms\":%llu%s}",
                     it->out.dead ? "dlq" : "delayed", (unsigned long long)it->out.delay_ms, lost);
    else
        n = snprintf(json, sizeof json, "{\"ok\":true,\"lease_ms\":%lld}",
                     (long long)(it->visibility_us / 1000));
    mailbox_call_reply(c, 200, bytes_of(json, (size_t)n));
}

static void finish_batch(struct mailbox_call *c)
{
    struct buf b;
    struct json_w w;
    for (size_t k = 0; k < c->jobs_n; k++)
        for (struct mailbox_settle_item *it = c->jobs[k].settle; c->jobs[k].err != ERR_OK && it;
             it = it->next)
            it->err = c->jobs[k].err;
    buf_init(&b, 1 << 20);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "results");
    json_arr_begin(&w);
    for (size_t i = 0; i < c->settle.n; i++) {
        struct mailbox_settle_item *it = &c->settle.items[i];
        json_obj_begin(&w);
        json_key(&w, "msg_id");
        json_uuid(&w, &it->fence.msg_id);
        json_put_i64(&w, "status", err_http_status(it->err));
        mailbox_call_refused(c, it->err);
        if (it->err != ERR_OK)
            json_put_cstr(&w, "code", err_code(it->err));
        json_obj_end(&w);
    }
    json_arr_end(&w);
    json_obj_end(&w);
    mailbox_call_reply(c, 200, buf_bytes(&b));
    buf_fini(&b);
}

static void settle_one(struct net_req *rq, void *ctx, enum mailbox_op op, enum mailbox_job_kind kind,
                       const struct json_field *fields)
{
    struct mailbox_call *c = mailbox_call_http(ctx, rq, op, "ack");
    struct json_error why;
    struct one_dto d = {0};
    if (!c)
        return;
    struct mailbox_settle_item *it = arena_zalloc(net_req_arena(rq), sizeof *it);
    if (!it) {
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, NULL);
        return;
    }
    if (uuid_parse(net_req_param(rq, "msg_id"), &it->fence.msg_id) != ERR_OK) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE, "msg_id: pattern");
        return;
    }
    struct bytes body = net_req_body(rq);
    enum err e = body.n || op == MAILBOX_OP_EXTEND
                     ? json_read_dto(body, fields, &d, net_req_arena(rq), &why)
                     : ERR_OK;
    if (e != ERR_OK) {
        mailbox_call_refuse_json(c, e, &why);
        return;
    }
    const struct mailbox_config *cfg = mailbox_config(c->mb);
    if (op == MAILBOX_OP_EXTEND && ((int64_t)d.visibility_ms < cfg->visibility_ms_min ||
                                    d.visibility_ms > (uint64_t)cfg->visibility_max)) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE, "visibility_ms: range");
        return;
    }
    it->fence.attempt = (uint16_t)d.attempt;
    it->visibility_us = (int64_t)d.visibility_ms * 1000;
    it->nack = (struct mailbox_nack){
        .reason = d.reason, .use_delay = d.has_delay_ms, .dead = d.dead, .delay_ms = d.delay_ms};
    c->settle.items = it;
    c->settle.n = 1;
    c->finish = finish_one;
    mailbox_settle_submit(c, kind);
}

void mailbox_post_ack(struct net_req *rq, void *ctx)
{
    settle_one(rq, ctx, MAILBOX_OP_ACK, MAILBOX_JOB_ACK, ack_fields);
}

void mailbox_post_nack(struct net_req *rq, void *ctx)
{
    settle_one(rq, ctx, MAILBOX_OP_NACK, MAILBOX_JOB_NACK, nack_fields);
}

void mailbox_post_extend(struct net_req *rq, void *ctx)
{
    settle_one(rq, ctx, MAILBOX_OP_EXTEND, MAILBOX_JOB_EXTEND, extend_fields);
}

void mailbox_post_ack_batch(struct net_req *rq, void *ctx)
{
    struct mailbox_call *c = mailbox_call_http(ctx, rq, MAILBOX_OP_ACK, "ack");
    struct json_error why;
    struct acks_dto d = {0};
    if (!c)
        return;
    enum err e = json_read_dto(net_req_body(rq), acks_fields, &d, net_req_arena(rq), &why);
    if (e != ERR_OK) {
        mailbox_call_refuse_json(c, e, &why);
        return;
    }
    c->settle.n = d.acks.n;
    c->settle.items = arena_zalloc(net_req_arena(rq), d.acks.n * sizeof *c->settle.items);
    if (!c->settle.items) {
        mailbox_call_refuse(c, ERR_TOO_LARGE, MAILBOX_WHY_NONE, "the batch does not fit");
        return;
    }
    for (size_t i = 0; i < d.acks.n; i++) {
        const struct one_dto *o = (const struct one_dto *)d.acks.items + i;
        struct mailbox_settle_item *it = &c->settle.items[i];
        if (uuid_parse(o->msg_id, &it->fence.msg_id) != ERR_OK) {
            mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE, "acks: msg_id: pattern");
            return;
        }
        it->fence.attempt = (uint16_t)o->attempt;
    }
    c->finish = finish_batch;
    mailbox_settle_submit(c, MAILBOX_JOB_ACK);
}
