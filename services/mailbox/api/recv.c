/* POST /v1/recv: a batch under a lease, with long poll. */
#include <stdlib.h>

#include "base/json_write.h"
#include "services/mailbox/api/call.h"
#include "services/mailbox/api/routes.h"

struct recv_dto {
    struct str topic;
    uint64_t visibility_ms, max_messages, max_bytes, wait_ms;
    bool has_visibility_ms;
};

static const struct json_field recv_fields[] = {
    JSON_REQ(struct recv_dto, topic, JSON_KIND_STR, .min = 1, .max = MAILBOX_TOPIC_MAX,
             .check = mailbox_topic_valid),
    JSON_OPT(struct recv_dto, visibility_ms, JSON_KIND_U64),
    JSON_DEF(struct recv_dto, max_messages, JSON_KIND_U64, .min = 1, .max = 256),
    JSON_DEF(struct recv_dto, max_bytes, JSON_KIND_U64, .min = 1024, .max = 1048576),
    JSON_DEF(struct recv_dto, wait_ms, JSON_KIND_U64, .max = 20000),
    JSON_END,
};

void mailbox_recv_free(struct mailbox_recv *rv)
{
    for (uint32_t i = 0; i < rv->bodies_n; i++)
        free(rv->bodies[i]);
    free(rv->bodies);
    free(rv->got);
    rv->bodies = NULL;
    rv->got = NULL;
    rv->bodies_n = rv->n = 0;
}

void mailbox_put_envelope(struct json_w *w, struct str topic, const struct mailbox_delivery *d,
                          uint16_t shard)
{
    const struct mailbox_rec_enq *q = &d->enq;
    struct mailbox_attr a;
    size_t at = 0;
    json_obj_begin(w);
    json_key(w, "msg_id");
    json_uuid(w, &q->msg_id);
    json_put_str(w, "topic", topic);
    json_put_u64(w, "topic_seq", q->topic_seq);
    json_put_time_ms(w, "ts", (int64_t)q->ts_ms);
    json_put_str(w, "idem_key", q->idem_key);
    json_put_base64(w, "payload_b64", q->payload);
    json_put_hash(w, "payload_hash", &q->payload_hash);
    json_key(w, "attrs");
    json_obj_begin(w);
    while (mailbox_attrs_next(q->attrs, &at, &a)) {
        json_key_str(w, a.key);
        json_str(w, a.value);
    }
    json_obj_end(w);
    json_put_str(w, "corr_id", q->corr_id);
    json_put_u64(w, "shard", shard);
    json_put_u64(w, "attempt", d->attempt);
    json_put_u64(w, "lease_ms", d->lease_ms);
    json_put_hash(w, "chain_prev", &q->chain_prev);
    json_put_hash(w, "hash_chain", &q->chain);
    if (q->not_before_ms)
        json_put_time_ms(w, "not_before", (int64_t)q->not_before_ms);
    json_obj_end(w);
}

/* ---- giving leases back ---- */

struct give_back {
    struct mailbox_job job;
    uint32_t n;
    struct uuid ids[256];
    uint16_t attempts[256];
};

static void gave_back(struct mailbox_job *j)
{
    free(j->arg);
}

static void release_some(struct mailbox_lane *l, const struct mailbox_delivery *got, uint32_t n)
{
    struct give_back *g = calloc(1, sizeof *g);
    enum mailbox_why why;
    if (!g)
        return;
    g->n = n;
    for (uint32_t i = 0; i < g->n; i++) {
        g->ids[i] = got[i].enq.msg_id;
        g->attempts[i] = got[i].attempt;
    }
    g->job = (struct mailbox_job){
        .magic = MAILBOX_JOB_MAGIC, .kind = MAILBOX_JOB_RELEASE, .lane = l, .done = gave_back, .arg = g};
    g->job.release.ids = g->ids;
    g->job.release.attempts = g->attempts;
    g->job.release.n = g->n;
    if (mailbox_submit(&g->job, true, &why) != ERR_OK)
        free(g); /* the leases will expire */
}

void mailbox_release(struct mailbox_lane *l, const struct mailbox_delivery *got, uint32_t n)
{
    for (uint32_t some; n; got += some, n -= some) {
        some = n < 256 ? n : 256;
        release_some(l, got, some);
    }
}

/* ---- asking ---- */

void mailbox_recv_submit(struct mailbox_call *c)
{
    struct mailbox_recv *rv = c->recv;
    bool waits = rv->wait_ms > 0; /* then somebody may leave, and that is a job too */
    struct mailbox_job *j = mailbox_call_jobs(c, waits ? 2 : 1);
    if (!j) {
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, NULL);
        return;
    }
    j->kind = MAILBOX_JOB_RECV;
    j->lane = mailbox_lane_of(c->mb, mailbox_bucket(&rv->topic_hash));
    j->recv = rv;
    j->fair.key = be64_get(rv->topic_hash.b);
    j->fair.cost = 256;
    if (waits) {
        rv->leave = &j[1];
        rv->leave->kind = MAILBOX_JOB_RECV_LEAVE;
        rv->leave->lane = j->lane;
        rv->leave->recv = rv;
        c->jobs_n = 1;
    }
    mailbox_call_submit(c, false);
}

/* The call is finished when both jobs are done; one that has been answered already, or is on its way back, is left alone. */
void mailbox_recv_left(struct mailbox_call *c)
{
    enum mailbox_why why;
    int left = atomic_load(&c->jobs_left);
    do {
        if (left == 0)
            return;
    } while (!atomic_compare_exchange_weak(&c->jobs_left, &left, left + 1));
    if (mailbox_submit(c->recv->leave, true, &why) != ERR_OK)
        mailbox_call_job_done(c->recv->leave); /* it waits as long as it meant to */
}

/* ---- the answer ---- */

struct sent_body {
    struct mailbox *mb;
    struct mailbox_lane *lane;
    struct buf body;
    struct mailbox_recv rv; /* taken over from the call, whose memory ends with the request */
};

/* A batch that did not reach the client goes back at once instead of when its lease ends. */
static void body_written(void *arg, enum err result)
{
    struct sent_body *s = arg;
    if (result != ERR_OK)
        mailbox_release(s->lane, s->rv.got, s->rv.n);
    buf_fini(&s->body);
    mailbox_recv_free(&s->rv);
    free(s);
}

static void finish(struct mailbox_call *c)
{
    struct mailbox_recv *rv = c->recv;
    struct mailbox_job *j = &c->jobs[0];
    struct json_w w;
    if (j->err != ERR_OK) {
        enum err e = j->err;
        enum mailbox_why why = j->why;
        mailbox_recv_free(rv);
        mailbox_call_refuse(c, e, why, NULL);
        return;
    }
    if (rv->n == 0 && rv->withheld) {
        mailbox_recv_free(rv);
        mailbox_call_refuse(c, ERR_INTEGRITY, MAILBOX_WHY_NONE,
                            "a stored message does not match its hash; it is withheld");
        return;
    }
    if (rv->n == 0) {
        mailbox_recv_free(rv);
        mailbox_call_reply(c, 200, bytes_of("{\"messages\":[],\"more\":false}", 28));
        return;
    }
    if (rv->wait_ms > 0 && mailbox_call_judge_again(c, rv->topic) != ERR_OK) {
        mailbox_release(j->lane, rv->got, rv->n); /* its token ended while it waited */
        mailbox_recv_free(rv);
        mailbox_call_ended(c, ERR_UNAUTHENTICATED);
        svc_reply_unauthenticated(c->http, NULL);
        return;
    }
    struct sent_body *s = calloc(1, sizeof *s);
    if (!s) {
        mailbox_release(j->lane, rv->got, rv->n);
        mailbox_recv_free(rv);
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, NULL);
        return;
    }
    s->mb = c->mb;
    s->lane = j->lane;
    buf_init(&s->body, 8 << 20);
    json_w_init(&w, &s->body);
    json_obj_begin(&w);
    json_key(&w, "messages");
    json_arr_begin(&w);
    for (uint32_t i = 0; i < rv->n; i++)
        mailbox_put_envelope(&w, rv->topic, &rv->got[i], j->lane->no);
    json_arr_end(&w);
    json_put_bool(&w, "more", rv->more);
    json_obj_end(&w);
    s->rv = *rv;
    struct net_req *rq = c->http;
    bool ok = s->body.err == ERR_OK;
    mailbox_call_ended(c, ERR_OK);
    if (!ok) {
        body_written(s, ERR_TOO_LARGE);
        net_reply_problem(rq, ERR_TOO_LARGE, "the answer does not fit");
        return;
    }
    net_reply_pinned(rq, 200, NULL, buf_bytes(&s->body), body_written, s);
}

static void client_left(struct net_req *rq, void *arg)
{
    (void)rq;
    mailbox_recv_left(arg);
}

void mailbox_post_recv(struct net_req *rq, void *ctx)
{
    struct mailbox_call *c = mailbox_call_http(ctx, rq, MAILBOX_OP_RECV, "recv");
    struct json_error why;
    if (!c)
        return;
    struct recv_dto d = {.max_messages = 32, .max_bytes = 512 << 10};
    enum err e = json_read_dto(net_req_body(rq), recv_fields, &d, net_req_arena(rq), &why);
    if (e != ERR_OK) {
        mailbox_call_refuse_json(c, e, &why);
        return;
    }
    const struct mailbox_config *cfg = mailbox_config(c->mb);
    if (d.has_visibility_ms && ((int64_t)d.visibility_ms < cfg->visibility_ms_min ||
                                d.visibility_ms > (uint64_t)cfg->visibility_max)) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE, "visibility_ms: range");
        return;
    }
    if ((e = mailbox_call_allows(c, d.topic, 0)) != ERR_OK) {
        mailbox_call_refuse(c, e, MAILBOX_WHY_NONE, "the capability does not cover this topic");
        return;
    }
    struct mailbox_recv *rv = arena_zalloc(net_req_arena(rq), sizeof *rv);
    if (!rv) {
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, NULL);
        return;
    }
    rv->topic = d.topic;
    mailbox_topic_hash(d.topic, &rv->topic_hash);
    rv->visibility_us = (int64_t)d.visibility_ms * 1000;
    rv->max = (uint32_t)d.max_messages;
    rv->max_bytes = (int64_t)d.max_bytes;
    rv->wait_ms = (int64_t)d.wait_ms;
    c->recv = rv;
    c->finish = finish;
    if (rv->wait_ms > 0) {
        net_req_waits(rq); /* max_waiters bounds those that wait, a shard's places those that do not yet */
        net_req_on_close(rq, client_left, c);
    }
    mailbox_recv_submit(c);
}
