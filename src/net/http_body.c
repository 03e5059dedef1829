/*
 * The body of a request: collected for a handler that wants it whole, handed on piece by piece to one that streams, read away
 * when the request has been answered already. gzip is undone on the way, within the limits of size and ratio.
 */
#include "net/http_internal.h"

#include <stdlib.h>

#include "base/check.h"

enum { INFLATE_PIECE = 16384 };

size_t net_body__max(const struct net_req *rq)
{
    size_t own = rq->match.leaf->route->body_max;
    return own ? own : rq->w->limits.body_max;
}

void net_body__failed(struct net_conn *c, enum err e, const char *why)
{
    enum net_reject reject = e == ERR_TOO_LARGE           ? NET_REJECT_BODY
                             : e == ERR_HEADERS_TOO_LARGE ? NET_REJECT_HEADERS
                                                          : NET_REJECT_FRAMING;
    struct net_req *rq = c->cur;
    if (!rq) {
        /* Its request is answered already; what follows cannot be read as a request. */
        c->read_off = c->linger = true;
        c->reading = NET_READ_IDLE;
        if (c->pipe_tail)
            c->pipe_tail->close = true;
        else
            c->closing = true;
        net_conn__dirty(c);
        return;
    }
    if (rq->phase == NET_PHASE_HANDLER)
        net_refuse__instead(c, rq, reject, e, why, true);
    else
        net_refuse__close(c, rq, reject, e, why);
}

static bool inflated(struct net_conn *c, struct net_req *rq)
{
    struct net_worker *w = c->w;
    uint8_t *data;
    size_t n;
    enum err e = w->inflater ? ERR_OK : net_inflater_create(&w->inflater);
    size_t most = w->limits.inflate_max ? w->limits.inflate_max : net_body__max(rq);
    if (e == ERR_OK)
        e = net_inflate(w->inflater, net_req_body(rq), w->limits.inflate_ratio, most, &data, &n);
    if (e != ERR_OK) {
        net_refuse__complete(c, rq, NET_REJECT_INFLATE,
                             &(struct net_problem){.err = e,
                                                   .detail = e == ERR_TOO_LARGE
                                                                 ? STR("the body inflates to too much")
                                                                 : STR("the body is not gzip")});
        return false;
    }
    if (rq->body_owned)
        free(rq->body);
    rq->body = data;
    rq->body_n = rq->body_cap = n;
    rq->body_owned = true;
    return true;
}

static void inflate_failed(struct net_conn *c, struct net_req *rq, enum err e)
{
    net_refuse__instead(c, rq, NET_REJECT_INFLATE, e,
                        e == ERR_TOO_LARGE ? "the body inflates to too much" : "the body is not gzip",
                        true);
}

/* What a piece of a streamed gzip body makes goes to the handler, who may answer (and be gone) at any piece. */
static void inflate_piece(struct net_conn *c, struct net_req *rq, struct bytes piece)
{
    uint8_t out[INFLATE_PIECE];
    size_t n;
    net_inflate_feed(rq->inflater, piece);
    for (;;) {
        enum err e = net_inflate_take(rq->inflater, c->w->limits.inflate_ratio, net_body__max(rq), out,
                                      sizeof out, &n);
        if (e != ERR_OK)
            inflate_failed(c, rq, e);
        if (e != ERR_OK || n == 0)
            return;
        if (rq->on_body)
            rq->on_body(rq, bytes_of(out, n), false, rq->on_body_arg);
        if (c->dead || c->cur != rq)
            return;
    }
}

static void body_complete(struct net_conn *c)
{
    struct net_req *rq = c->cur;
    if (!rq) {
        c->reading = NET_READ_IDLE;
        return;
    }
    if (rq->phase == NET_PHASE_HANDLER) {
        enum err e = rq->inflater ? net_inflate_end(rq->inflater, c->w->limits.inflate_ratio) : ERR_OK;
        if (e != ERR_OK) {
            inflate_failed(c, rq, e);
            c->reading = NET_READ_IDLE;
            return;
        }
        c->cur = NULL;
        c->reading = NET_READ_IDLE;
        rq->body_ended = true;
        if (!rq->want_keep)
            c->read_off = true;
        if (rq->on_body)
            rq->on_body(rq, (struct bytes){NULL, 0}, true, rq->on_body_arg);
        return;
    }
    if (!rq->head.gzip || inflated(c, rq))
        net_admit__whole(c, rq);
}

static void body_piece(struct net_conn *c, struct bytes piece)
{
    struct net_req *rq = c->cur;
    if (!rq)
        return;
    rq->bytes_in += piece.n;
    if (rq->phase == NET_PHASE_HANDLER) {
        if (rq->inflater)
            inflate_piece(c, rq, piece);
        else if (rq->on_body)
            rq->on_body(rq, piece, false, rq->on_body_arg);
        return;
    }
    if (net_req__body_add(rq, piece) != ERR_OK)
        net_refuse__close(c, rq, NET_REJECT_INFLIGHT, ERR_BUSY, "no memory for the body");
}

/* False: nothing more can be done with what is there. */
bool net_body__read(struct net_conn *c)
{
    if (c->cur && c->cur->body_paused)
        return false;
    size_t used;
    struct bytes piece;
    const uint8_t *data = c->in ? c->in->data + c->in_from : NULL;
    enum net_http_result r = net_http_body_feed(&c->body, data, net_conn__in_n(c), &used, &piece);
    switch (r) {
    case NET_HTTP_DATA:
        body_piece(c, piece);
        if (c->dead)
            return false;
        net_conn__in_used(c, used);
        return true;
    case NET_HTTP_DONE:
        net_conn__in_used(c, used);
        body_complete(c);
        return true;
    case NET_HTTP_MORE:
        net_conn__in_used(c, used);
        return false;
    case NET_HTTP_BAD:
        net_body__failed(c, c->body.err, c->body.why);
        return false;
    }
    UNREACHABLE();
}

void net_body__resume(struct net_msg *m)
{
    struct net_req *rq = (struct net_req *)(void *)((char *)m - offsetof(struct net_req, body_msg));
    struct net_conn *c = rq->conn;
    atomic_exchange_explicit(&rq->resuming, false, memory_order_acq_rel);
    rq->body_paused = false;
    if (!c)
        return;
    c->read_by_ns = net_conn__now_ns(c) + c->w->limits.read_timeout_ms * NET_MS_NS;
    net_conn__arm(c, c->read_by_ns);
    net_conn__resume(c);
}
