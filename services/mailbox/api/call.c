#include "services/mailbox/api/call.h"

#include <stdio.h>

#include "base/check.h"
#include "base/json_write.h"
#include "base/str.h"
#include "services/mailbox/api/span.h"
#include "services/mailbox/replica.h"

struct arena *mailbox_call_arena(struct mailbox_call *c)
{
    return c->http ? net_req_arena(c->http) : net_oap_req_arena(c->oap);
}

struct str mailbox_call_corr_id(struct mailbox_call *c)
{
    return c->http ? net_req_corr_id(c->http) : net_oap_req_corr_id(c->oap);
}

bool mailbox_call_covers(const void *cap, struct str topic)
{
    return auth_covers(cap, AUTH_CV_TOPIC, topic);
}

struct mailbox_call *mailbox_call_http(struct mailbox *mb, struct net_req *rq, enum mailbox_op op,
                                       const char *auth_op)
{
    struct auth_want want = {.op = str_from_c(auth_op), .lacks = SVC_LACKS_ALL};
    struct auth_cap *cap;
    if (svc_authorize(mb->svc, rq, &want, &cap) != ERR_OK)
        return NULL;
    struct mailbox_call *c = arena_zalloc(net_req_arena(rq), sizeof *c);
    if (!c) {
        auth_cap_release(cap);
        net_reply_problem(rq, ERR_NO_MEMORY, "no memory for this request");
        return NULL;
    }
    c->magic = MAILBOX_CALL_MAGIC;
    c->op = op;
    c->mb = mb;
    c->http = rq;
    c->loop = net_req_loop(rq);
    c->cap = cap;
    c->auth_op = auth_op;
    c->started_ns = net_loop_now_ns(c->loop);
    mailbox_span_begin(c, net_req_traceparent(rq));
    return c;
}

static enum err judge(struct mailbox_call *c, const char *auth_op, unsigned judged, struct str topic,
                      uint64_t bytes)
{
    struct auth_want want = {.op = str_from_c(auth_op),
                             .topic = topic,
                             .bytes = bytes,
                             .now_ms = net_loop_wall_ms(c->loop),
                             .lacks = SVC_LACKS_ALL & ~AUTH_BIT(AUTH_CV_TOPIC),
                             .judged = judged};
    const struct net_peer *peer = c->http ? net_req_peer(c->http) : net_oap_req_peer(c->oap);
    want.peer_ip = peer->kind == NET_PEER_UNIX ? NULL : peer->addr;
    return auth_allows(c->cap, &want, NULL);
}

/* Audience, operation and address were judged when the call was made. */
enum err mailbox_call_allows(struct mailbox_call *c, struct str topic, uint64_t bytes)
{
    return judge(c, c->auth_op, AUTH_BIT(AUTH_CV_AUD) | AUTH_BIT(AUTH_CV_OP) | AUTH_BIT(AUTH_CV_IP), topic,
                 bytes);
}

enum err mailbox_call_allows_too(struct mailbox_call *c, const char *auth_op, struct str topic)
{
    return judge(c, auth_op, 0, topic, 0);
}

struct str mailbox_call_token(const struct mailbox_call *c)
{
    return c->http ? svc_bearer(c->http) : net_oap_req_cap(c->oap);
}

enum err mailbox_call_judge_again(struct mailbox_call *c, struct str topic)
{
    struct auth_want want = {
        .op = str_from_c(c->auth_op), .topic = topic, .lacks = SVC_LACKS_ALL & ~AUTH_BIT(AUTH_CV_TOPIC)};
    struct auth_cap *cap;
    const struct net_peer *peer = c->http ? net_req_peer(c->http) : net_oap_req_peer(c->oap);
    enum err e = svc_authorize_again(c->mb->svc, peer, mailbox_call_token(c), &want, &cap);
    if (e == ERR_OK)
        auth_cap_release(cap);
    return e;
}

/* The server answers instead when the time is over; here is what came too late. */
static void count_late(struct mailbox_call *c, int64_t took_ns)
{
    const char *op = NULL;
    int64_t most_ms = mailbox_config(c->mb)->request_timeout;
    if (c->op == MAILBOX_OP_SEND)
        op = "send";
    else if (c->op == MAILBOX_OP_ACK || c->op == MAILBOX_OP_NACK || c->op == MAILBOX_OP_EXTEND)
        op = "ack";
    else if (c->op == MAILBOX_OP_RECV)
        op = "recv", most_ms = MAILBOX_RECV_MS;
    if (op && took_ns > most_ms * 1000000)
        obs_counter_inc(OBS_COUNTER_OF(c->mb->m[MAILBOX_M_io_timeouts], op));
}

static void log_refused(struct mailbox_call *c, enum err e)
{
    bool settles = c->op == MAILBOX_OP_ACK || c->op == MAILBOX_OP_NACK || c->op == MAILBOX_OP_EXTEND;
    const char *event = c->op == MAILBOX_OP_SEND            ? "send.rejected"
                        : settles && e == ERR_NOT_FOUND     ? "ack.unknown"
                        : settles && e == ERR_STALE_ATTEMPT ? "fence.rejected"
                                                            : NULL;
    if (event)
        obs_log(svc_log(c->mb->svc), OBS_INFO, event, OBS_STR("corr_id", mailbox_call_corr_id(c)),
                OBS_ERR(e), OBS_END);
}

void mailbox_call_refused(struct mailbox_call *c, enum err e)
{
    struct mailbox *mb = c->mb;
    if (e == ERR_OK)
        return;
    obs_counter_inc(OBS_COUNTER_OF(mb->m[MAILBOX_M_rejected], err_code(e)));
    if (e == ERR_BUSY || e == ERR_RATE_LIMITED)
        obs_counter_inc(obs_counter_nth(mb->m[MAILBOX_M_busy], c->op));
    log_refused(c, e);
}

static void log_done(struct mailbox_call *c)
{
    struct obs_log *lg = svc_log(c->mb->svc);
    struct str corr_id = mailbox_call_corr_id(c);
    if (c->op == MAILBOX_OP_SEND)
        obs_log(lg, OBS_DEBUG, "send.accepted", OBS_STR("corr_id", corr_id), OBS_U64("messages", c->send.n),
                OBS_END);
    else if (c->op == MAILBOX_OP_RECV)
        obs_log(lg, OBS_DEBUG, "recv.batch", OBS_STR("corr_id", corr_id), OBS_STR("topic", c->recv->topic),
                OBS_END);
    else if (c->op == MAILBOX_OP_ACK)
        obs_log(lg, OBS_DEBUG, "ack.ok", OBS_STR("corr_id", corr_id), OBS_U64("messages", c->settle.n),
                OBS_END);
}

void mailbox_call_ended(struct mailbox_call *c, enum err e)
{
    struct mailbox *mb = c->mb;
    int64_t took_ns = clock_mono_ns(mb->clock) - c->started_ns;
    obs_hist_observe(obs_hist_nth(mb->m[MAILBOX_M_latency], c->op), (double)took_ns / 1e9);
    count_late(c, took_ns);
    mailbox_call_refused(c, e);
    if (e == ERR_OK && obs_log_enabled(svc_log(mb->svc), OBS_DEBUG))
        log_done(c);
    mailbox_span_end(c, mailbox_call_corr_id(c), e);
    auth_cap_release(c->cap);
    c->cap = NULL;
}

void mailbox_call_reply(struct mailbox_call *c, int status, struct bytes json)
{
    struct net_req *rq = c->http;
    mailbox_call_ended(c, ERR_OK);
    net_reply_json(rq, status, json);
}

const char *mailbox_detail(enum err e, enum mailbox_why why)
{
    static const char *const texts[] = {
        [MAILBOX_WHY_WORK] = "the shard's queue is full",
        [MAILBOX_WHY_TOPIC_SHARE] = "this topic holds its share of the shard's queue",
        [MAILBOX_WHY_BYTES] = "the shard holds as many bytes as it may",
        [MAILBOX_WHY_MESSAGES] = "the index is full: no new key can be remembered",
        [MAILBOX_WHY_TOPICS] = "there are as many topics as there may be",
        [MAILBOX_WHY_INFLIGHT] = "messages wait, but no lease is free",
        [MAILBOX_WHY_WAITERS] = "as many receives wait as may",
        [MAILBOX_WHY_STREAMS] = "as many streams are open as may",
        [MAILBOX_WHY_REPROC] = "the operator queue is full",
        [MAILBOX_WHY_DISK_QUOTA] = "the journals use as much disk as they may",
        [MAILBOX_WHY_DRAINING] = "the mailbox is shutting down",
        [MAILBOX_WHY_REBALANCING] = "shards are being rearranged",
        [MAILBOX_WHY_DISK_FULL] = "the disk is full",
        [MAILBOX_WHY_BREAKER] = "sends to this shard keep timing out; it is left alone for a while",
        [MAILBOX_WHY_STALLED] = "the shard hangs in a write to its disk",
        [MAILBOX_WHY_QUOTA] = "the tenant's quota is used up",
        [MAILBOX_WHY_ELSEWHERE] = "another node has this shard",
        [MAILBOX_WHY_LEASE] = "PostgreSQL does not answer, and the lease of this shard has run out",
    };
    if (why != MAILBOX_WHY_NONE && why < sizeof texts / sizeof *texts && texts[why])
        return texts[why];
    if (e == ERR_SAFE_MODE)
        return "the shard is read-only: a write failed, or its files are damaged";
    return err_title(e);
}

void mailbox_call_refuse_details(struct mailbox_call *c, enum err e, const char *detail,
                                 struct bytes details)
{
    struct net_req *rq = c->http;
    struct net_oap_req *oap = c->oap;
    mailbox_call_ended(c, e);
    if (rq)
        net_reply_problem_details(rq, e, detail, details);
    else
        net_oap_reply_problem_full(oap, &(struct net_oap_problem){.err = e,
                                                                  .detail = str_from_c(detail),
                                                                  .details_json = str_of_bytes(details)});
}

/*
 * Another node's shard: 307 to it, with its name and places in the body; over OAP the same problem. Between two owners there is
 * nobody to send to: 503, and soon there is.
 */
static void refuse_elsewhere(struct mailbox_call *c)
{
    struct net_req *rq = c->http;
    struct net_oap_req *oap = c->oap;
    struct mailbox_owner o = {0};
    bool known = c->lane && mailbox_replica_owner(c->mb, c->lane->no, &o) &&
                 strcmp(o.node, c->mb->replica->node) != 0;
    enum err e = known ? ERR_NOT_OWNER : ERR_UNAVAILABLE;
    const char *detail = known ? "another node has this shard" : "no node has this shard at the moment";
    char storage[1024];
    struct buf b;
    struct json_w w;
    buf_init_fixed(&b, storage, sizeof storage);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_cstr(&w, "reason", known ? "elsewhere" : "no_owner");
    if (c->lane)
        json_put_u64(&w, "shard", c->lane->no);
    if (known) {
        json_put_cstr(&w, "node", o.node);
        json_put_cstr(&w, "url", o.url);
        json_put_cstr(&w, "oap", o.oap);
    }
    json_obj_end(&w);
    mailbox_call_ended(c, e);
    if (!rq) {
        net_oap_reply_problem_full(
            oap, &(struct net_oap_problem){
                     .err = e, .detail = str_from_c(detail), .details_json = str_of_bytes(buf_bytes(&b))});
        return;
    }
    struct str target = net_req_target(rq);
    char *there = known ? arena_alloc(net_req_arena(rq), strlen(o.url) + target.n + 1) : NULL;
    struct net_header location = {STR("Location"), {0}};
    struct net_headers headers = {.list = &location, .count = there ? 1 : 0};
    if (there) {
        memcpy(there, o.url, strlen(o.url));
        memcpy(there + strlen(o.url), target.p, target.n);
        location.value = str_of(there, strlen(o.url) + target.n);
    }
    net_reply_problem_full(rq, &(struct net_problem){.err = e,
                                                     .status = there ? 307 : 0,
                                                     .detail = str_from_c(detail),
                                                     .details_json = buf_bytes(&b),
                                                     .headers = &headers});
}

void mailbox_call_refuse(struct mailbox_call *c, enum err e, enum mailbox_why why, const char *detail)
{
    char json[64];
    int n = 0;
    if (e == ERR_NOT_OWNER) {
        refuse_elsewhere(c);
        return;
    }
    if (why != MAILBOX_WHY_NONE)
        n = snprintf(json, sizeof json, "{\"reason\":\"%s\"}", mailbox_why_name(why));
    else if (e == ERR_SAFE_MODE && c->lane) /* which one, for whoever has to repair it */
        n = snprintf(json, sizeof json, "{\"shard\":%u}", c->lane->no);
    mailbox_call_refuse_details(c, e, detail ? detail : mailbox_detail(e, why), bytes_of(json, (size_t)n));
}

void mailbox_call_refuse_json(struct mailbox_call *c, enum err e, const struct json_error *why)
{
    char text[300], json[320];
    if (e == ERR_TOO_LARGE || why->reason == JSON_MEMORY) {
        mailbox_call_refuse(c, ERR_TOO_LARGE, MAILBOX_WHY_NONE, "the request does not fit");
        return;
    }
    size_t n = strlen(why->path);
    if (why->reason == JSON_RANGE && n >= 11 && strcmp(why->path + n - 11, "payload_b64") == 0) {
        mailbox_call_refuse(c, ERR_TOO_LARGE, MAILBOX_WHY_NONE, "payload_b64 is larger than max_payload");
        return;
    }
    snprintf(text, sizeof text, "%s: %s", json_error_place(why), json_reason_name(why->reason));
    int jn = snprintf(json, sizeof json, "{\"member\":\"%s\",\"reason\":\"%s\"}", why->path,
                      json_reason_name(why->reason));
    mailbox_call_refuse_details(c, ERR_BAD_REQUEST, text, bytes_of(json, (size_t)jn));
}

struct mailbox_job *mailbox_call_jobs(struct mailbox_call *c, size_t n)
{
    c->jobs = arena_zalloc(mailbox_call_arena(c), n * sizeof *c->jobs);
    c->jobs_n = c->jobs ? n : 0;
    for (size_t i = 0; i < c->jobs_n; i++) {
        c->jobs[i].magic = MAILBOX_JOB_MAGIC;
        c->jobs[i].done = mailbox_call_job_done;
        c->jobs[i].arg = c;
    }
    return c->jobs;
}

void mailbox_call_submit(struct mailbox_call *c, bool settling)
{
    size_t n = c->jobs_n;
    struct mailbox_job *jobs = c->jobs;
    atomic_init(&c->jobs_left, (int)n);
    c->lane = jobs[0].lane;
    mailbox_span_submitted(c);
    for (size_t i = 0; i < n; i++) { /* the call may be finished as soon as the last job is sent */
        enum mailbox_why why;
        enum err e = mailbox_submit(&jobs[i], settling, &why);
        if (e != ERR_OK) {
            jobs[i].err = e;
            jobs[i].why = why;
            mailbox_call_job_done(&jobs[i]);
        }
    }
}

bool mailbox_query_u32(struct net_req *rq, const char *name, uint32_t least, uint32_t most, uint32_t *out)
{
    struct str s;
    uint64_t v;
    if (net_req_query(rq, name, &s) != ERR_OK)
        return true;
    if (str_parse_u64(s, &v) != ERR_OK || v < least || v > most)
        return false;
    *out = (uint32_t)v;
    return true;
}
