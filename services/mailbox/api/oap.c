/*
 * The mailbox over OAP/1: the same calls as HTTP, with protobuf instead of JSON.
 *
 * Messages are decoded with protobuf-c into the request's arena; answers are written field by field, because a generated object
 * per envelope would cost more than the bytes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "ron/mailbox.pb-c.h"
#include "services/mailbox/api/call.h"

enum { SEND_MAX = 64, SETTLE_MAX = 1024, REPLY_MAX = 8 << 20 };
enum { CODE_SEND = 1, CODE_RECV, CODE_STREAM, CODE_ACK, CODE_NACK, CODE_EXTEND };

/* ---- protobuf into the arena ---- */

static void *pb_alloc(void *arena, size_t n)
{
    return arena_alloc(arena, n);
}

static void pb_free(void *arena, void *p)
{
    (void)arena, (void)p; /* the arena ends with the request */
}

static ProtobufCAllocator allocator(struct mailbox_call *c)
{
    return (ProtobufCAllocator){pb_alloc, pb_free, mailbox_call_arena(c)};
}

/* ---- protobuf out ---- */

static void put_varint(struct buf *b, uint64_t v)
{
    uint8_t p[10];
    size_t n = 0;
    do {
        p[n] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        v >>= 7;
        n++;
    } while (v);
    buf_put(b, p, n);
}

static void put_uint(struct buf *b, uint32_t field, uint64_t v)
{
    if (v == 0)
        return; /* proto3: the default is not sent */
    put_varint(b, field << 3);
    put_varint(b, v);
}

static void put_bytes(struct buf *b, uint32_t field, const void *p, size_t n)
{
    if (n == 0)
        return;
    put_varint(b, field << 3 | 2);
    put_varint(b, n);
    buf_put(b, p, n);
}

static void put_text(struct buf *b, uint32_t field, struct str s)
{
    put_bytes(b, field, s.p, s.n);
}

/* A message field: its length is known only afterwards, so it is written to a scratch buffer first. */
static void put_message(struct buf *b, uint32_t field, struct buf *scratch)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, scratch->n);
    buf_put(b, scratch->p, scratch->n);
    buf_reset(scratch);
}

static void reply(struct mailbox_call *c, struct buf *b)
{
    struct net_oap_req *rq = c->oap;
    if (b->err != ERR_OK) {
        mailbox_call_refuse(c, ERR_TOO_LARGE, MAILBOX_WHY_NONE, "the answer does not fit");
    } else {
        mailbox_call_ended(c, ERR_OK);
        net_oap_reply(rq, 200, buf_bytes(b));
    }
    buf_fini(b);
}

/* ---- send ---- */

static void finish_send(struct mailbox_call *c)
{
    struct buf out, one;
    buf_init(&out, REPLY_MAX);
    buf_init(&one, 4096);
    for (size_t k = 0; k < c->jobs_n; k++)
        for (struct mailbox_send_item *it = c->jobs[k].send; c->jobs[k].err != ERR_OK && it;
             it = it->next) {
            it->err = c->jobs[k].err;
            it->why = c->jobs[k].why;
        }
    for (size_t i = 0; i < c->send.n; i++) {
        struct mailbox_send_item *it = &c->send.items[i];
        int status = err_http_status(it->err);
        put_uint(&one, 1, (uint64_t)status);
        if (it->err == ERR_OK || it->err == ERR_IDEM_CONFLICT)
            put_bytes(&one, 2, it->sent.msg_id.b, 16);
        if (it->err == ERR_OK) {
            put_uint(&one, 3, it->sent.topic_seq);
            put_uint(&one, 4, it->sent.duplicate);
            if (it->has_chain)
                put_bytes(&one, 5, it->sent.chain.b, 32);
            put_uint(&one, 6, it->sent.ts_ms);
        } else {
            put_text(&one, 7, str_from_c(err_code(it->err)));
            put_uint(&one, 8, status == 429 || status == 503);
        }
        put_message(&out, 1, &one);
    }
    buf_fini(&one);
    reply(c, &out);
}

static struct mailbox_message message_of(struct mailbox_call *c, const Ron__Mailbox__V1__Message *m,
                                         enum err *out_err)
{
    struct mailbox_message r = {.topic = str_from_c(m->topic),
                                .idem_key = str_from_c(m->idem_key),
                                .payload = bytes_of(m->payload.data, m->payload.len),
                                .attrs_n = m->n_attrs,
                                .delay_ms = m->delay_ms,
                                .deliver_at_ms = m->deliver_at_ms,
                                .has_delay = m->delay_ms != 0,
                                .has_deliver_at = m->deliver_at_ms != 0};
    *out_err = ERR_OK;
    if (!mailbox_topic_valid(r.topic) || !mailbox_idem_valid(r.idem_key) || r.attrs_n > MAILBOX_ATTRS_MAX ||
        (m->payload_hash.len != 0 && m->payload_hash.len != 32))
        *out_err = ERR_BAD_REQUEST;
    else if (r.payload.n > MAILBOX_PAYLOAD_MAX)
        *out_err = ERR_TOO_LARGE;
    if (*out_err != ERR_OK)
        return r;
    r.attrs = arena_array(mailbox_call_arena(c), r.attrs_n, sizeof *r.attrs);
    if (!r.attrs)
        *out_err = ERR_TOO_LARGE;
    for (size_t i = 0; *out_err == ERR_OK && i < r.attrs_n; i++)
        r.attrs[i] = (struct mailbox_attr){str_from_c(m->attrs[i]->key), str_from_c(m->attrs[i]->value)};
    if (m->payload_hash.len == 32) {
        memcpy(r.payload_hash.b, m->payload_hash.data, 32);
        r.has_payload_hash = true;
    }
    return r;
}

static void do_send(struct mailbox_call *c)
{
    struct bytes in = net_oap_req_payload(c->oap);
    ProtobufCAllocator a = allocator(c);
    Ron__Mailbox__V1__SendRequest *rq = ron__mailbox__v1__send_request__unpack(&a, in.n, in.p);
    if (!rq || rq->n_messages < 1 || rq->n_messages > SEND_MAX) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE,
                            rq ? "messages: range" : "not a SendRequest");
        return;
    }
    c->send.n = rq->n_messages;
    c->send.items = arena_zalloc(mailbox_call_arena(c), c->send.n * sizeof *c->send.items);
    if (!c->send.items) {
        mailbox_call_refuse(c, ERR_TOO_LARGE, MAILBOX_WHY_NONE, "the batch does not fit");
        return;
    }
    struct str corr = str_from_c(rq->corr_id);
    for (size_t i = 0; i < c->send.n; i++) {
        enum err e;
        const char *detail;
        struct mailbox_send_item *it = &c->send.items[i];
        struct mailbox_message m = message_of(c, rq->messages[i], &e);
        if (e == ERR_OK)
            e = mailbox_send_prepare(c, &m, it, &detail);
        it->err = e;
        if (corr.n && corr.n <= MAILBOX_CORR_MAX)
            it->in.corr_id = corr;
    }
    c->finish = finish_send;
    mailbox_send_submit(c);
}

/* ---- receive ---- */

static void put_envelope(struct buf *b, struct buf *scratch, struct str topic,
                         const struct mailbox_delivery *d, uint16_t shard)
{
    const struct mailbox_rec_enq *q = &d->enq;
    struct mailbox_attr a;
    size_t at = 0;
    put_bytes(b, 1, q->msg_id.b, 16);
    put_text(b, 2, topic);
    put_uint(b, 3, q->topic_seq);
    put_uint(b, 4, q->ts_ms);
    put_text(b, 5, q->idem_key);
    put_bytes(b, 6, q->payload.p, q->payload.n);
    put_bytes(b, 7, q->payload_hash.b, 32);
    while (mailbox_attrs_next(q->attrs, &at, &a)) {
        put_text(scratch, 1, a.key);
        put_text(scratch, 2, a.value);
        put_message(b, 8, scratch);
    }
    put_text(b, 9, q->corr_id);
    put_uint(b, 10, shard);
    put_uint(b, 11, d->attempt);
    put_uint(b, 12, d->lease_ms);
    put_bytes(b, 13, q->chain_prev.b, 32);
    put_bytes(b, 14, q->chain.b, 32);
    put_uint(b, 15, q->not_before_ms);
}

static void finish_recv(struct mailbox_call *c)
{
    struct mailbox_recv *rv = c->recv;
    struct mailbox_job *j = &c->jobs[0];
    struct buf out, one, scratch;
    if (j->err != ERR_OK || (rv->n == 0 && rv->withheld)) {
        enum err e = j->err != ERR_OK ? j->err : ERR_INTEGRITY;
        mailbox_recv_free(rv);
        mailbox_call_refuse(c, e, j->why, NULL);
        return;
    }
    if (net_oap_req_gone(c->oap))
        mailbox_release(c->mb, j->lane, rv->got, rv->n); /* nobody is there to take them */
    buf_init(&out, REPLY_MAX);
    buf_init(&one, REPLY_MAX);
    buf_init(&scratch, 8192);
    for (uint32_t i = 0; i < rv->n; i++) {
        put_envelope(&one, &scratch, rv->topic, &rv->got[i], j->lane->no);
        put_message(&out, 1, &one);
    }
    put_uint(&out, 2, rv->more);
    buf_fini(&one);
    buf_fini(&scratch);
    mailbox_recv_free(rv);
    reply(c, &out);
}

static bool visibility_ok(struct mailbox_call *c, uint32_t ms)
{
    const struct mailbox_config *cfg = mailbox_config(c->mb);
    return ms == 0 || ((int64_t)ms >= cfg->visibility_ms_min && (int64_t)ms <= cfg->visibility_max);
}

static void do_recv(struct mailbox_call *c)
{
    struct bytes in = net_oap_req_payload(c->oap);
    ProtobufCAllocator a = allocator(c);
    Ron__Mailbox__V1__RecvRequest *rq = ron__mailbox__v1__recv_request__unpack(&a, in.n, in.p);
    if (!rq || !mailbox_topic_valid(str_from_c(rq->topic)) || !visibility_ok(c, rq->visibility_ms) ||
        rq->max_messages > 256 || rq->wait_ms > 20000 ||
        (rq->max_bytes && (rq->max_bytes < 1024 || rq->max_bytes > 1048576))) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE,
                            rq ? "a member is out of range" : "not a RecvRequest");
        return;
    }
    struct str topic = str_from_c(rq->topic);
    enum err e = mailbox_call_allows(c, "recv", topic, 0);
    struct mailbox_recv *rv = e == ERR_OK ? arena_zalloc(mailbox_call_arena(c), sizeof *rv) : NULL;
    struct mailbox_job *j = rv ? mailbox_call_jobs(c, 1) : NULL;
    if (!j) {
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
    j->kind = MAILBOX_JOB_RECV;
    j->lane = mailbox_lane_of(c->mb, mailbox_bucket(&rv->topic_hash));
    j->recv = rv;
    j->fair.key = be64_get(rv->topic_hash.b);
    j->fair.cost = 256;
    mailbox_call_submit(c, false);
}

/* ---- settle ---- */

static void finish_settle(struct mailbox_call *c)
{
    struct buf out, one;
    buf_init(&out, REPLY_MAX);
    buf_init(&one, 256);
    for (size_t k = 0; k < c->jobs_n; k++)
        for (struct mailbox_settle_item *it = c->jobs[k].settle; c->jobs[k].err != ERR_OK && it;
             it = it->next)
            it->err = c->jobs[k].err;
    for (size_t i = 0; i < c->settle.n; i++) {
        struct mailbox_settle_item *it = &c->settle.items[i];
        put_uint(&one, 1, (uint64_t)err_http_status(it->err));
        if (it->err != ERR_OK)
            put_text(&one, 2, str_from_c(err_code(it->err)));
        else if (c->op == MAILBOX_OP_EXTEND)
            put_uint(&one, 3, (uint64_t)it->visibility_us / 1000);
        if (it->err == ERR_STALE_ATTEMPT)
            put_uint(&one, 4, it->out.attempt);
        put_uint(&one, 5, it->out.already);
        put_message(&out, 1, &one);
    }
    buf_fini(&one);
    reply(c, &out);
}

static struct mailbox_settle_item *settle_items(struct mailbox_call *c, size_t n)
{
    c->settle.n = n;
    c->settle.items =
        n >= 1 && n <= SETTLE_MAX ? arena_zalloc(mailbox_call_arena(c), n * sizeof *c->settle.items) : NULL;
    if (!c->settle.items)
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE, "items: range");
    return c->settle.items;
}

static void fence_of(struct mailbox_settle_item *it, const ProtobufCBinaryData *id, uint32_t attempt)
{
    if (id->len != 16 || attempt > UINT16_MAX) {
        it->err = ERR_BAD_REQUEST;
        return;
    }
    memcpy(it->fence.msg_id.b, id->data, 16);
    it->fence.attempt = (uint16_t)attempt;
}

static bool read_acks(struct mailbox_call *c, ProtobufCAllocator *a, struct bytes in)
{
    Ron__Mailbox__V1__AckRequest *rq = ron__mailbox__v1__ack_request__unpack(a, in.n, in.p);
    struct mailbox_settle_item *items = settle_items(c, rq ? rq->n_items : 0);
    for (size_t i = 0; items && i < rq->n_items; i++)
        fence_of(&items[i], &rq->items[i]->msg_id, rq->items[i]->attempt);
    return items != NULL;
}

static bool read_nacks(struct mailbox_call *c, ProtobufCAllocator *a, struct bytes in)
{
    Ron__Mailbox__V1__NackRequest *rq = ron__mailbox__v1__nack_request__unpack(a, in.n, in.p);
    struct mailbox_settle_item *items = settle_items(c, rq ? rq->n_items : 0);
    for (size_t i = 0; items && i < rq->n_items; i++) {
        const Ron__Mailbox__V1__NackItem *n = rq->items[i];
        fence_of(&items[i], &n->msg_id, n->attempt);
        items[i].nack = (struct mailbox_nack){.reason = str_from_c(n->reason),
                                              .use_delay = n->use_delay,
                                              .dead = n->dead,
                                              .delay_ms = n->delay_ms};
        if (items[i].nack.reason.n > MAILBOX_REASON_MAX || n->delay_ms > 43200000)
            items[i].err = ERR_BAD_REQUEST;
    }
    return items != NULL;
}

static bool read_extends(struct mailbox_call *c, ProtobufCAllocator *a, struct bytes in)
{
    Ron__Mailbox__V1__ExtendRequest *rq = ron__mailbox__v1__extend_request__unpack(a, in.n, in.p);
    struct mailbox_settle_item *items = settle_items(c, rq ? rq->n_items : 0);
    for (size_t i = 0; items && i < rq->n_items; i++) {
        fence_of(&items[i], &rq->items[i]->msg_id, rq->items[i]->attempt);
        items[i].visibility_us = (int64_t)rq->items[i]->visibility_ms * 1000;
        if (rq->items[i]->visibility_ms == 0 || !visibility_ok(c, rq->items[i]->visibility_ms))
            items[i].err = ERR_BAD_REQUEST;
    }
    return items != NULL;
}

static void do_settle(struct mailbox_call *c, enum mailbox_job_kind kind,
                      bool (*read)(struct mailbox_call *, ProtobufCAllocator *, struct bytes))
{
    ProtobufCAllocator a = allocator(c);
    if (!read(c, &a, net_oap_req_payload(c->oap)))
        return;
    c->finish = finish_settle;
    mailbox_settle_submit(c, kind);
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
    c->started_ns = clock_mono_ns(mb->clock);
    return c;
}

void mailbox_oap(struct net_oap_req *rq, void *state)
{
    uint16_t code = net_oap_req_code(rq);
    if (code < CODE_SEND || code > CODE_EXTEND || code == CODE_STREAM) {
        net_oap_reply_problem(rq, code == CODE_STREAM ? ERR_UNPROCESSABLE : ERR_NOT_FOUND,
                              code == CODE_STREAM ? "streams are served over HTTP" : "no such operation");
        return;
    }
    struct mailbox_call *c = open_call(state, rq, code);
    if (!c)
        return;
    if (code == CODE_SEND)
        do_send(c);
    else if (code == CODE_RECV)
        do_recv(c);
    else if (code == CODE_ACK)
        do_settle(c, MAILBOX_JOB_ACK, read_acks);
    else if (code == CODE_NACK)
        do_settle(c, MAILBOX_JOB_NACK, read_nacks);
    else
        do_settle(c, MAILBOX_JOB_EXTEND, read_extends);
}
