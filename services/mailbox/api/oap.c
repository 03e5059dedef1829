/*
 * The mailbox over OAP/1: the same calls as HTTP, with protobuf instead of JSON.
 *
 * Requests are read in place (core/wire.h); answers are written field by field into one buffer whose size is known beforehand,
 * because a generated object per envelope would cost more than the bytes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/str.h"
#include "base/wire.h"
#include "services/mailbox/api/call.h"
#include "services/mailbox/api/oap.h"
#include "services/mailbox/api/span.h"

enum { SEND_MAX = 64, SETTLE_MAX = 1024 };
enum { CODE_SEND = 1, CODE_RECV, CODE_STREAM, CODE_ACK, CODE_NACK, CODE_EXTEND };
enum {
    SENT_BYTES = 128,   /* the most a SendResult takes, with its tag */
    SETTLED_BYTES = 64, /* an ItemResult */
    ENVELOPE_FIXED = 320,
};

static void reply(struct mailbox_call *c, struct bytes b)
{
    struct net_oap_req *rq = c->oap;
    mailbox_call_ended(c, ERR_OK);
    net_oap_reply(rq, 200, b);
}

static uint8_t *answer_room(struct mailbox_call *c, size_t n)
{
    uint8_t *p = arena_alloc(mailbox_call_arena(c), n);
    if (!p)
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, "no memory for the answer");
    return p;
}

/* ---- send ---- */

static uint8_t *put_sent(uint8_t *p, const struct mailbox_send_item *it)
{
    uint8_t one[SENT_BYTES], *q = one;
    int status = err_http_status(it->err);
    q = mailbox_wire_uint(q, 1, (uint64_t)status);
    if (it->err == ERR_OK || it->err == ERR_IDEM_CONFLICT)
        q = mailbox_wire_bytes(q, 2, it->sent.msg_id.b, 16);
    if (it->err == ERR_OK) {
        q = mailbox_wire_uint(q, 3, it->sent.topic_seq);
        q = mailbox_wire_uint(q, 4, it->sent.duplicate);
        if (it->has_chain)
            q = mailbox_wire_bytes(q, 5, it->sent.chain.b, 32);
        q = mailbox_wire_uint(q, 6, it->sent.ts_ms);
    } else {
        struct str code = str_from_c(err_code(it->err));
        q = mailbox_wire_bytes(q, 7, code.p, code.n < 32 ? code.n : 32);
        q = mailbox_wire_uint(q, 8, status == 429 || status == 503);
    }
    return mailbox_wire_bytes(p, 1, one, (size_t)(q - one));
}

static void finish_send(struct mailbox_call *c)
{
    for (size_t k = 0; k < c->jobs_n; k++)
        for (struct mailbox_send_item *it = c->jobs[k].send; c->jobs[k].err != ERR_OK && it;
             it = it->next) {
            it->err = c->jobs[k].err;
            it->why = c->jobs[k].why;
        }
    bool elsewhere = true; /* all of it: the problem says where; else the items say only that */
    for (size_t i = 0; i < c->send.n; i++)
        elsewhere = elsewhere && c->send.items[i].err == ERR_NOT_OWNER;
    if (elsewhere) {
        mailbox_call_refuse(c, ERR_NOT_OWNER, MAILBOX_WHY_ELSEWHERE, NULL);
        return;
    }
    uint8_t *out = answer_room(c, c->send.n * SENT_BYTES), *p = out;
    if (!out)
        return;
    for (size_t i = 0; i < c->send.n; i++) {
        mailbox_call_refused(c, c->send.items[i].err);
        p = put_sent(p, &c->send.items[i]);
    }
    reply(c, bytes_of(out, (size_t)(p - out)));
}

struct sending {
    struct mailbox_call *c;
    size_t at;
};

/* Text that can be shown as JSON by every reader: UTF-8 without NUL. */
static bool text_ok(struct str s)
{
    return str_utf8_valid(s) && !(s.n && memchr(s.p, 0, s.n));
}

static enum err judge_message(const struct mailbox_message *m)
{
    if (!mailbox_topic_valid(m->topic) || !mailbox_idem_valid(m->idem_key) ||
        m->attrs_n > MAILBOX_ATTRS_MAX || m->bad_payload_hash)
        return ERR_BAD_REQUEST;
    for (size_t i = 0; i < m->attrs_n; i++)
        if (!text_ok(m->attrs[i].value))
            return ERR_BAD_REQUEST;
    return m->payload.n > MAILBOX_PAYLOAD_MAX ? ERR_TOO_LARGE : ERR_OK;
}

/* One message of the batch; what is wrong with it is its own result, and no reason to refuse the others. */
static enum err send_one(void *ctx, struct mailbox_message *m)
{
    struct sending *s = ctx;
    struct mailbox_send_item *it = &s->c->send.items[s->at++];
    const char *detail;
    enum err e = judge_message(m);
    it->err = e == ERR_OK ? mailbox_send_prepare(s->c, m, it, &detail) : e;
    return ERR_OK;
}

static void do_send(struct mailbox_call *c)
{
    struct bytes in = net_oap_req_payload(c->oap);
    size_t n = mailbox_wire_count(in);
    struct sending s = {.c = c};
    struct str corr;
    if (n < 1 || n > SEND_MAX) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE,
                            n ? "messages: range" : "not a SendRequest with messages");
        return;
    }
    c->send.n = n;
    c->send.items = arena_zalloc(mailbox_call_arena(c), n * sizeof *c->send.items);
    enum err e =
        c->send.items ? mailbox_wire_send(in, mailbox_call_arena(c), &corr, send_one, &s) : ERR_NO_MEMORY;
    if (e != ERR_OK) {
        bool syntax = e == ERR_SYNTAX;
        mailbox_call_refuse(c, syntax ? ERR_BAD_REQUEST : ERR_TOO_LARGE, MAILBOX_WHY_NONE,
                            syntax ? "not a SendRequest" : "the batch does not fit");
        return;
    }
    for (size_t i = 0; mailbox_idem_valid(corr) && corr.n <= MAILBOX_CORR_MAX && i < n; i++)
        c->send.items[i].in.corr_id = corr;
    c->finish = finish_send;
    mailbox_send_submit(c);
}

/* ---- receive ---- */

static uint8_t *put_attrs(uint8_t *p, struct bytes attrs)
{
    struct mailbox_attr a;
    size_t at = 0;
    while (mailbox_attrs_next(attrs, &at, &a)) {
        size_t n = (a.key.n ? 1 + wire_varint_size(a.key.n) + a.key.n : 0) +
                   (a.value.n ? 1 + wire_varint_size(a.value.n) + a.value.n : 0);
        p = wire_put_varint(wire_put_varint(p, 8 << 3 | 2), n);
        p = mailbox_wire_bytes(p, 1, a.key.p, a.key.n);
        p = mailbox_wire_bytes(p, 2, a.value.p, a.value.n);
    }
    return p;
}

static uint8_t *put_members(uint8_t *p, struct str topic, const struct mailbox_delivery *d, uint16_t shard)
{
    const struct mailbox_rec_enq *q = &d->enq;
    p = mailbox_wire_bytes(p, 1, q->msg_id.b, 16);
    p = mailbox_wire_bytes(p, 2, topic.p, topic.n);
    p = mailbox_wire_uint(p, 3, q->topic_seq);
    p = mailbox_wire_uint(p, 4, q->ts_ms);
    p = mailbox_wire_bytes(p, 5, q->idem_key.p, q->idem_key.n);
    p = mailbox_wire_bytes(p, 6, q->payload.p, q->payload.n);
    p = mailbox_wire_bytes(p, 7, q->payload_hash.b, 32);
    p = put_attrs(p, q->attrs);
    p = mailbox_wire_bytes(p, 9, q->corr_id.p, q->corr_id.n);
    p = mailbox_wire_uint(p, 10, shard);
    p = mailbox_wire_uint(p, 11, d->attempt);
    p = mailbox_wire_uint(p, 12, d->lease_ms);
    p = mailbox_wire_bytes(p, 13, q->chain_prev.b, 32);
    p = mailbox_wire_bytes(p, 14, q->chain.b, 32);
    return mailbox_wire_uint(p, 15, q->not_before_ms);
}

size_t mailbox_oap_envelope_max(struct str topic, const struct mailbox_delivery *d)
{
    const struct mailbox_rec_enq *q = &d->enq;
    return ENVELOPE_FIXED + topic.n + q->idem_key.n + q->payload.n + q->corr_id.n +
           q->attrs.n *
               2; /* an attribute's tags and lengths take less than its eight bytes of lengths here */
}

/* Its length comes first and is known afterwards: room for the longest is left, and the members moved up. */
uint8_t *mailbox_oap_put_envelope(uint8_t *p, struct str topic, const struct mailbox_delivery *d,
                                  uint16_t shard)
{
    enum { LENGTH_ROOM = 5 };
    uint8_t *members = p + 1 + LENGTH_ROOM, *end = put_members(members, topic, d, shard);
    size_t n = (size_t)(end - members);
    *p = 1 << 3 | 2;
    uint8_t *from = wire_put_varint(p + 1, n);
    memmove(from, members, n);
    return from + n;
}

static void finish_recv(struct mailbox_call *c)
{
    struct mailbox_recv *rv = c->recv;
    struct mailbox_job *j = &c->jobs[0];
    if (j->err != ERR_OK || (rv->n == 0 && rv->withheld)) {
        enum err e = j->err != ERR_OK ? j->err : ERR_INTEGRITY;
        mailbox_recv_free(rv);
        mailbox_call_refuse(c, e, j->why, NULL);
        return;
    }
    if (net_oap_req_gone(c->oap)) {
        mailbox_release(j->lane, rv->got, rv->n); /* nobody is there to take them */
    } else if (rv->n && rv->wait_ms > 0 && mailbox_call_judge_again(c, rv->topic) != ERR_OK) {
        mailbox_release(j->lane, rv->got, rv->n); /* its token ended while it waited */
        mailbox_recv_free(rv);
        mailbox_call_refuse(c, ERR_UNAUTHENTICATED, MAILBOX_WHY_NONE, NULL);
        return;
    }
    size_t room = 16;
    for (uint32_t i = 0; i < rv->n; i++)
        room += mailbox_oap_envelope_max(rv->topic, &rv->got[i]);
    uint8_t *out = malloc(room), *p = out;
    if (!out) {
        mailbox_release(j->lane, rv->got, rv->n);
        mailbox_recv_free(rv);
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, "no memory for the answer");
        return;
    }
    for (uint32_t i = 0; i < rv->n; i++)
        p = mailbox_oap_put_envelope(p, rv->topic, &rv->got[i], j->lane->no);
    p = mailbox_wire_uint(p, 2, rv->more);
    CHECK((size_t)(p - out) <= room);
    mailbox_recv_free(rv);
    reply(c, bytes_of(out, (size_t)(p - out)));
    free(out);
}

bool mailbox_oap_visibility_ok(struct mailbox_call *c, uint32_t ms)
{
    const struct mailbox_config *cfg = mailbox_config(c->mb);
    return ms == 0 || ((int64_t)ms >= cfg->visibility_ms_min && (int64_t)ms <= cfg->visibility_max);
}

static void client_left(struct net_oap_req *rq, void *arg)
{
    (void)rq;
    mailbox_recv_left(arg);
}

static void do_recv(struct mailbox_call *c)
{
    struct mailbox_wire_recv want, *rq = &want;
    enum err e = mailbox_wire_recv(net_oap_req_payload(c->oap), rq);
    if (e != ERR_OK || !mailbox_topic_valid(rq->topic) ||
        !mailbox_oap_visibility_ok(c, rq->visibility_ms) || rq->max_messages > 256 || rq->wait_ms > 20000 ||
        (rq->max_bytes && (rq->max_bytes < 1024 || rq->max_bytes > 1048576))) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE,
                            e == ERR_OK ? "a member is out of range" : "not a RecvRequest");
        return;
    }
    struct str topic = rq->topic;
    e = mailbox_call_allows(c, topic, 0);
    struct mailbox_recv *rv = e == ERR_OK ? arena_zalloc(mailbox_call_arena(c), sizeof *rv) : NULL;
    if (!rv) {
        mailbox_call_refuse(c, e == ERR_OK ? ERR_NO_MEMORY : e, MAILBOX_WHY_NONE, NULL);
        return;
    }
    rv->topic = topic;
    mailbox_topic_hash(topic, &rv->topic_hash);
    rv->visibility_us = (int64_t)rq->visibility_ms * 1000;
    rv->max = rq->max_messages ? rq->max_messages : 32;
    rv->max_bytes = rq->max_bytes ? rq->max_bytes : 512 << 10;
    rv->wait_ms = rq->wait_ms;
    net_oap_req_set_timeout(c->oap, (int64_t)rq->wait_ms + 2000);
    c->recv = rv;
    c->finish = finish_recv;
    if (rv->wait_ms > 0)
        net_oap_req_on_close(c->oap, client_left, c);
    mailbox_recv_submit(c);
}

/* ---- settle ---- */

static uint8_t *put_settled(uint8_t *p, const struct mailbox_call *c, const struct mailbox_settle_item *it)
{
    uint8_t one[SETTLED_BYTES], *q = one;
    struct str code = str_from_c(err_code(it->err));
    q = mailbox_wire_uint(q, 1, (uint64_t)err_http_status(it->err));
    if (it->err != ERR_OK)
        q = mailbox_wire_bytes(q, 2, code.p, code.n < 32 ? code.n : 32);
    else if (c->op == MAILBOX_OP_EXTEND)
        q = mailbox_wire_uint(q, 3, (uint64_t)it->visibility_us / 1000);
    if (it->err == ERR_STALE_ATTEMPT)
        q = mailbox_wire_uint(q, 4, it->out.attempt);
    q = mailbox_wire_uint(q, 5, it->out.already);
    return mailbox_wire_bytes(p, 1, one, (size_t)(q - one));
}

static void finish_settle(struct mailbox_call *c)
{
    for (size_t k = 0; k < c->jobs_n; k++)
        for (struct mailbox_settle_item *it = c->jobs[k].settle; c->jobs[k].err != ERR_OK && it;
             it = it->next)
            it->err = c->jobs[k].err;
    bool elsewhere = true;
    for (size_t i = 0; i < c->settle.n; i++)
        elsewhere = elsewhere && c->settle.items[i].err == ERR_NOT_OWNER;
    if (elsewhere) {
        mailbox_call_refuse(c, ERR_NOT_OWNER, MAILBOX_WHY_ELSEWHERE, NULL);
        return;
    }
    uint8_t *out = answer_room(c, c->settle.n * SETTLED_BYTES), *p = out;
    if (!out)
        return;
    for (size_t i = 0; i < c->settle.n; i++) {
        mailbox_call_refused(c, c->settle.items[i].err);
        p = put_settled(p, c, &c->settle.items[i]);
    }
    reply(c, bytes_of(out, (size_t)(p - out)));
}

struct settling {
    struct mailbox_call *c;
    enum mailbox_wire_kind kind;
    size_t at;
};

static enum err settle_one(void *ctx, const struct mailbox_wire_settle *w)
{
    struct settling *s = ctx;
    struct mailbox_settle_item *it = &s->c->settle.items[s->at++];
    bool ok = w->msg_id.n == 16 && w->attempt <= UINT16_MAX;
    if (s->kind == MAILBOX_WIRE_NACK)
        ok = ok && w->reason.n <= MAILBOX_REASON_MAX && w->delay_ms <= 43200000 && text_ok(w->reason);
    if (s->kind == MAILBOX_WIRE_EXTEND)
        ok = ok && w->visibility_ms != 0 && mailbox_oap_visibility_ok(s->c, w->visibility_ms);
    if (!ok) {
        it->err = ERR_BAD_REQUEST;
        return ERR_OK;
    }
    memcpy(it->fence.msg_id.b, w->msg_id.p, 16);
    it->fence.attempt = (uint16_t)w->attempt;
    it->nack = (struct mailbox_nack){
        .reason = w->reason, .use_delay = w->use_delay, .dead = w->dead, .delay_ms = w->delay_ms};
    it->visibility_us = (int64_t)w->visibility_ms * 1000;
    return ERR_OK;
}

static void do_settle(struct mailbox_call *c, enum mailbox_job_kind job, enum mailbox_wire_kind kind)
{
    struct bytes in = net_oap_req_payload(c->oap);
    struct settling s = {.c = c, .kind = kind};
    size_t n = mailbox_wire_count(in);
    c->settle.n = n;
    c->settle.items =
        n >= 1 && n <= SETTLE_MAX ? arena_zalloc(mailbox_call_arena(c), n * sizeof *c->settle.items) : NULL;
    enum err e = c->settle.items ? mailbox_wire_settle(in, kind, settle_one, &s) : ERR_RANGE;
    if (e != ERR_OK) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE,
                            e == ERR_RANGE ? "items: range" : "not a request of this kind");
        return;
    }
    c->finish = finish_settle;
    mailbox_settle_submit(c, job);
}

/* ---- the door ---- */

static const struct {
    enum mailbox_op op;
    const char *auth_op;
} codes[] = {[CODE_SEND] = {MAILBOX_OP_SEND, "send"},     [CODE_RECV] = {MAILBOX_OP_RECV, "recv"},
             [CODE_STREAM] = {MAILBOX_OP_STREAM, "recv"}, [CODE_ACK] = {MAILBOX_OP_ACK, "ack"},
             [CODE_NACK] = {MAILBOX_OP_NACK, "ack"},      [CODE_EXTEND] = {MAILBOX_OP_EXTEND, "ack"}};

static struct mailbox_call *open_call(struct mailbox *mb, struct net_oap_req *rq, uint16_t code)
{
    struct auth_want want = {.op = str_from_c(codes[code].auth_op), .lacks = SVC_LACKS_ALL};
    struct auth_deny why = {0};
    struct auth_cap *cap;
    const struct net_peer *peer = net_oap_req_peer(rq);
    want.peer_ip = peer->kind == NET_PEER_UNIX ? NULL : peer->addr;
    enum err e = svc_authorize_token(mb->svc, net_oap_req_cap(rq), &want, &cap, &why);
    if (e == ERR_OK && !auth_cap_fits_tenant_id(cap, net_oap_req_tenant(rq))) {
        auth_cap_release(cap);
        e = ERR_FORBIDDEN;
    }
    if (e != ERR_OK) {
        net_oap_reply_problem(rq, e, "%s",
                              e == ERR_FORBIDDEN ? "the capability does not cover this" : err_title(e));
        return NULL;
    }
    struct mailbox_call *c = arena_zalloc(net_oap_req_arena(rq), sizeof *c);
    if (!c) {
        auth_cap_release(cap);
        net_oap_reply_problem(rq, ERR_NO_MEMORY, "no memory for this request");
        return NULL;
    }
    c->magic = MAILBOX_CALL_MAGIC;
    c->op = codes[code].op;
    c->mb = mb;
    c->oap = rq;
    c->loop = net_oap_req_loop(rq);
    c->cap = cap;
    c->auth_op = codes[code].auth_op;
    c->started_ns = net_loop_now_ns(c->loop);
    mailbox_span_begin(c, (struct str){0});
    return c;
}

void mailbox_oap(struct net_oap_req *rq, void *state)
{
    uint16_t code = net_oap_req_code(rq);
    if (code < CODE_SEND || code > CODE_EXTEND) {
        net_oap_reply_problem(rq, ERR_NOT_FOUND, "no such operation");
        return;
    }
    struct mailbox_call *c = open_call(state, rq, code);
    if (!c)
        return;
    if (code == CODE_SEND)
        do_send(c);
    else if (code == CODE_RECV)
        do_recv(c);
    else if (code == CODE_STREAM)
        mailbox_oap_stream(c);
    else if (code == CODE_ACK)
        do_settle(c, MAILBOX_JOB_ACK, MAILBOX_WIRE_ACK);
    else if (code == CODE_NACK)
        do_settle(c, MAILBOX_JOB_NACK, MAILBOX_WIRE_NACK);
    else
        do_settle(c, MAILBOX_JOB_EXTEND, MAILBOX_WIRE_EXTEND);
}
