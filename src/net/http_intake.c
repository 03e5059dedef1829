/*
 * What a connection's bytes become: requests, refusals, bodies.
 *
 * Bytes are read into a pooled block, heads are judged in place and copied into the request, bodies are collected (or
 * handed on). A block goes back as soon as it is empty: an idle connection has none. A request enters the connection's pipe with
 * its first byte; whatever refuses it answers through the same pipe, so order is kept.
 */
#include "net/http_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/check.h"

enum { READS_PER_TURN = 4, INFLATE_PIECE = 16384 };

/* ---- the pipe ---- */

static void pipe_push(struct net_conn *c, struct net_req *rq)
{
    rq->conn = c;
    rq->next = NULL;
    if (c->pipe_tail)
        c->pipe_tail->next = rq;
    else
        c->pipe_head = rq;
    c->pipe_tail = rq;
    c->pipe_n++;
}

/* Takes `rq` out of the pipe; `with` (or nobody) takes its place. */
static void pipe_replace(struct net_conn *c, struct net_req *rq, struct net_req *with)
{
    struct net_req **at = &c->pipe_head, *before = NULL;
    while (*at != rq) {
        before = *at;
        at = &(*at)->next;
    }
    struct net_req *next = rq->next;
    *at = with ? with : next;
    if (with) {
        with->conn = c;
        with->next = next;
    } else {
        c->pipe_n--;
    }
    if (!next)
        c->pipe_tail = with ? with : before;
    rq->next = NULL;
}

/* ---- input buffer ---- */

void net_intake__drop(struct net_conn *c)
{
    if (c->in)
        net_out__block_free(c->w, c->in);
    c->in = NULL;
    c->in_from = c->in_to = 0;
}

static void in_used(struct net_conn *c, size_t n)
{
    c->in_from += n;
    if (c->in_from == c->in_to)
        c->in_from = c->in_to = 0;
}

/* A place to read into, at least one byte. */
static uint8_t *in_room(struct net_conn *c, size_t *out_n)
{
    if (!c->in)
        c->in = net_out__block(c->w, NET_BLOCK);
    if (c->in_from > 0) {
        memmove(c->in->data, c->in->data + c->in_from, net_conn__in_n(c));
        c->in_to -= c->in_from;
        c->in_from = 0;
    }
    *out_n = NET_BLOCK - c->in_to;
    return c->in->data + c->in_to;
}

/* ---- requests: refusing, starting ---- */

/* The answer is the last thing this connection says. */
static void last_words(struct net_conn *c, struct net_req *rq)
{
    rq->close = true;
    c->read_off = c->linger = true;
    c->cur = NULL;
    c->reading = NET_READ_IDLE;
}

static void refuse_and_close(struct net_conn *c, struct net_req *rq, enum net_reject why, enum err e,
                             const char *detail)
{
    last_words(c, rq);
    if (!rq->corr_id.p)
        net_req__read_head(rq, NULL);
    net_reply__refuse(rq, why, &(struct net_problem){.err = e, .detail = str_from_c(detail)});
}

/* A refusal that leaves the connection usable when the rest of the request is small enough to be read away. */
static void refuse(struct net_conn *c, struct net_req *rq, enum net_reject why, const struct net_problem *p)
{
    const struct net_http_head *h = &rq->head;
    bool body = h->chunked || h->length > 0;
    c->cur = NULL;
    if (!body) {
        c->reading = NET_READ_IDLE;
        if (!rq->want_keep)
            c->read_off = true;
    } else if (h->expect_continue || h->length > NET_SKIP_MAX || !rq->want_keep) {
        last_words(c, rq);
    } else {
        net_http_body_init(&c->body, h, NET_SKIP_MAX);
        c->reading = NET_READ_BODY;
    }
    net_reply__refuse(rq, why, p);
}

/* The handler keeps `rq`; the server answers in its place. */
static void answer_instead(struct net_conn *c, struct net_req *rq, enum net_reject why, enum err e,
                           const char *detail, bool close)
{
    struct net_req *ghost = net_req__new(c->w);
    ghost->started_ns = rq->started_ns;
    ghost->peer = rq->peer;
    ghost->is_head = rq->is_head;
    ghost->http10 = rq->http10;
    ghost->want_keep = rq->want_keep;
    ghost->match.leaf = rq->match.leaf;
    ghost->bytes_in = rq->bytes_in;
    memcpy(ghost->corr, rq->corr_id.p, rq->corr_id.n);
    ghost->corr_id = (struct str){ghost->corr, rq->corr_id.n};
    if (rq->method.n)
        ghost->method = (struct str){arena_strdup(&ghost->arena, rq->method), rq->method.n};
    pipe_replace(c, rq, ghost);
    if (c->cur == rq)
        c->cur = NULL;
    if (close)
        last_words(c, ghost);
    net_req__orphan(rq);
    net_reply__refuse(ghost, why, &(struct net_problem){.err = e, .detail = str_from_c(detail)});
}

static void dispatch(struct net_conn *c, struct net_req *rq)
{
    struct net_worker *w = c->w;
    const struct net_hooks *hooks = &w->s->hooks;
    net__count(&w->requests);
    rq->phase = NET_PHASE_HANDLER;
    if (hooks->gate && !hooks->gate(hooks->ctx, rq))
        return;
    const struct net_route_leaf *leaf = rq->match.leaf;
    leaf->route->fn(rq, leaf->ctx);
}

/* May it come in? Otherwise *out says what it is told. */
static bool admission(struct net_conn *c, struct net_req *rq, struct net_problem *out)
{
    struct net_worker *w = c->w;
    const struct net_limits *l = &w->limits;
    if (rq->match.leaf->route->flags & NET_NO_ADMISSION)
        return true;
    struct net_admission_limits al = {l->rate, l->rate_per_peer, l->max_inflight, l->max_inflight_per_peer,
                                      l->burst};
    struct net_admission_refusal why = {0};
    enum err e =
        net_admission_enter(w->s->admission, &al, rq->peer.addr, net_conn__now_ns(c), &rq->permit, &why);
    if (e == ERR_OK) {
        rq->counted = true;
        if (w->s->hooks.inflight)
            w->s->hooks.inflight(w->s->hooks.ctx, rq->match.leaf->route, 1);
        return true;
    }
    bool rate = e == ERR_RATE_LIMITED;
    *out = (struct net_problem){
        .err = e,
        .detail = rate ? STR("too many requests per second") : STR("too many requests in flight"),
        .details_json =
            bytes_of_str(rate ? STR("{\"reason\":\"rate\"}") : STR("{\"reason\":\"inflight\"}")),
        .retry_after_s = why.wait_s,
        .own_limit = why.own};
    return false;
}

static enum net_reject admission_reject(const struct net_problem *p)
{
    return p->err == ERR_RATE_LIMITED ? NET_REJECT_RATE : NET_REJECT_INFLIGHT;
}

static bool has_body(const struct net_req *rq)
{
    return rq->head.chunked || rq->head.length > 0;
}

static bool admitted_late(const struct net_req *rq)
{
    return has_body(rq) && (rq->match.leaf->route->flags & NET_ADMIT_LATE);
}

static const struct net_problem too_late = {.err = ERR_TIMEOUT,
                                            .detail = STR_INIT("the deadline has passed already")};

static bool admitted(struct net_conn *c, struct net_req *rq)
{
    struct net_problem p;
    if (admitted_late(rq) || admission(c, rq, &p))
        return true;
    refuse(c, rq, admission_reject(&p), &p);
    return false;
}

static bool routed(struct net_conn *c, struct net_req *rq)
{
    if (rq->match.leaf)
        return true;
    if (!rq->match.allow.p) {
        refuse(c, rq, NET_REJECT_ROUTE,
               &(struct net_problem){.err = ERR_NOT_FOUND, .detail = STR("no such path")});
        return false;
    }
    struct net_header allow = {STR("Allow"), rq->match.allow};
    struct net_headers h = {.list = &allow, .count = 1};
    refuse(c, rq, NET_REJECT_ROUTE,
           &(struct net_problem){
               .err = ERR_METHOD_NOT_ALLOWED, .detail = STR("the path has other methods"), .headers = &h});
    return false;
}

static bool while_draining(struct net_conn *c, struct net_req *rq)
{
    struct net_server *s = c->w->s;
    if (!net_server__draining(s) || (rq->match.leaf->route->flags & NET_WHILE_DRAINING))
        return true;
    if (!s->hooks.draining) {
        refuse(c, rq, NET_REJECT_DRAINING,
               &(struct net_problem){.err = ERR_DRAINING, .detail = STR("shutting down")});
        return false;
    }
    if (s->hooks.reject)
        s->hooks.reject(s->hooks.ctx, NET_REJECT_DRAINING);
    last_words(c, rq);
    rq->phase = NET_PHASE_HANDLER;
    s->hooks.draining(s->hooks.ctx, rq);
    return false;
}

static size_t body_max(const struct net_req *rq)
{
    size_t own = rq->match.leaf->route->body_max;
    return own ? own : rq->w->limits.body_max;
}

static bool body_welcome(struct net_conn *c, struct net_req *rq)
{
    const struct net_http_head *h = &rq->head;
    if (!h->chunked && h->length == 0)
        return true;
    if (h->length > body_max(rq)) {
        refuse_and_close(c, rq, NET_REJECT_BODY, ERR_TOO_LARGE, "the body is too large");
        return false;
    }
    if (h->encoding_other) {
        refuse(c, rq, NET_REJECT_INFLATE,
               &(struct net_problem){.err = ERR_UNSUPPORTED_MEDIA_TYPE,
                                     .detail = STR("the only content coding is gzip")});
        return false;
    }
    bool streams = rq->match.leaf->route->flags & NET_STREAM_BODY;
    enum err e = h->gzip && streams ? net_inflater_create(&rq->inflater) : ERR_OK;
    if (e == ERR_OK && rq->inflater)
        e = net_inflate_begin(rq->inflater);
    if (e != ERR_OK)
        refuse_and_close(c, rq, NET_REJECT_INFLIGHT, ERR_BUSY, "no memory to inflate the body");
    return e == ERR_OK;
}

static void body_begin(struct net_conn *c, struct net_req *rq)
{
    const struct net_http_head *h = &rq->head;
    net_http_body_init(&c->body, h, body_max(rq));
    c->reading = NET_READ_BODY;
    if (h->expect_continue && rq->head.minor == 1 && net_conn__in_n(c) == 0) {
        rq->want_100 = true;
        net_reply__emit(c);
    }
    if (rq->match.leaf->route->flags & NET_STREAM_BODY)
        dispatch(c, rq);
}

static void request_complete(struct net_conn *c, struct net_req *rq)
{
    c->cur = NULL;
    c->reading = NET_READ_IDLE;
    if (!rq->want_keep)
        c->read_off = true;
    dispatch(c, rq);
}

static void head_complete(struct net_conn *c, struct net_req *rq)
{
    net_req__read_head(rq, (const char *)c->in->data + c->in_from);
    in_used(c, rq->head.head_bytes);
    const struct net_http_head *h = &rq->head;
    if (h->expect_other) {
        refuse(c, rq, NET_REJECT_FRAMING,
               &(struct net_problem){.err = ERR_EXPECTATION_FAILED,
                                     .detail = STR("the only expectation is 100-continue")});
        return;
    }
    if (!routed(c, rq) || !while_draining(c, rq) || !body_welcome(c, rq) || !admitted(c, rq))
        return;
    if (!admitted_late(rq) && rq->deadline_ns <= net_conn__now_ns(c)) {
        refuse(c, rq, NET_REJECT_DEADLINE, &too_late);
        return;
    }
    net_conn__arm(c, rq->deadline_ns);
    if (has_body(rq)) {
        body_begin(c, rq);
        return;
    }
    if (rq->match.leaf->route->flags & NET_STREAM_BODY) {
        c->reading = NET_READ_BODY; /* the machine is at its end already and says so */
        net_http_body_init(&c->body, h, 0);
        dispatch(c, rq);
        return;
    }
    request_complete(c, rq);
}

/* ---- bodies ---- */

static void body_failed(struct net_conn *c, enum err e, const char *why)
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
        answer_instead(c, rq, reject, e, why, true);
    else
        refuse_and_close(c, rq, reject, e, why);
}

/* Its body is read: the connection stays usable. */
static void refuse_complete(struct net_conn *c, struct net_req *rq, enum net_reject why,
                            const struct net_problem *p)
{
    c->cur = NULL;
    c->reading = NET_READ_IDLE;
    if (!rq->want_keep)
        c->read_off = true;
    net_reply__refuse(rq, why, p);
}

static bool inflated(struct net_conn *c, struct net_req *rq)
{
    struct net_worker *w = c->w;
    uint8_t *data;
    size_t n;
    enum err e = w->inflater ? ERR_OK : net_inflater_create(&w->inflater);
    size_t most = w->limits.inflate_max ? w->limits.inflate_max : body_max(rq);
    if (e == ERR_OK)
        e = net_inflate(w->inflater, net_req_body(rq), w->limits.inflate_ratio, most, &data, &n);
    if (e != ERR_OK) {
        refuse_complete(c, rq, NET_REJECT_INFLATE,
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
    answer_instead(c, rq, NET_REJECT_INFLATE, e,
                   e == ERR_TOO_LARGE ? "the body inflates to too much" : "the body is not gzip", true);
}

/* What a piece of a streamed gzip body makes goes to the handler, who may answer (and be gone) at any piece. */
static void inflate_piece(struct net_conn *c, struct net_req *rq, struct bytes piece)
{
    uint8_t out[INFLATE_PIECE];
    size_t n;
    net_inflate_feed(rq->inflater, piece);
    for (;;) {
        enum err e =
            net_inflate_take(rq->inflater, c->w->limits.inflate_ratio, body_max(rq), out, sizeof out, &n);
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
    struct net_problem p;
    if (rq->head.gzip && !inflated(c, rq))
        return;
    if (admitted_late(rq) && !admission(c, rq, &p))
        refuse_complete(c, rq, admission_reject(&p), &p);
    else if (rq->deadline_ns <= net_conn__now_ns(c))
        refuse_complete(c, rq, NET_REJECT_DEADLINE, &too_late);
    else
        request_complete(c, rq);
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
        refuse_and_close(c, rq, NET_REJECT_INFLIGHT, ERR_BUSY, "no memory for the body");
}

/* False: nothing more can be done with what is there. */
static bool body_read(struct net_conn *c)
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
        in_used(c, used);
        return true;
    case NET_HTTP_DONE:
        in_used(c, used);
        body_complete(c);
        return true;
    case NET_HTTP_MORE:
        in_used(c, used);
        return false;
    case NET_HTTP_BAD:
        body_failed(c, c->body.err, c->body.why);
        return false;
    }
    UNREACHABLE();
}

void net_intake__body_resume(struct net_msg *m)
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

/* ---- reading ---- */

static void request_begin(struct net_conn *c)
{
    struct net_worker *w = c->w;
    const struct net_limits *l = &w->limits;
    struct net_req *rq = net_req__new(w);
    rq->started_ns = net_conn__now_ns(c);
    rq->peer = c->peer;
    net_http_head_init(&rq->head,
                       &(struct net_http_limits){l->header_bytes, l->header_fields, l->target_bytes});
    pipe_push(c, rq);
    c->cur = rq;
    c->reading = NET_READ_HEAD;
    c->read_by_ns = rq->started_ns + l->read_timeout_ms * NET_MS_NS;
    net_conn__arm(c, c->read_by_ns);
}

static bool head_read(struct net_conn *c)
{
    struct net_req *rq = c->cur;
    switch (net_http_head_feed(&rq->head, (const char *)c->in->data + c->in_from, net_conn__in_n(c))) {
    case NET_HTTP_DONE:
        head_complete(c, rq);
        return true;
    case NET_HTTP_BAD:
        refuse_and_close(c, rq,
                         rq->head.err == ERR_HEADERS_TOO_LARGE ? NET_REJECT_HEADERS : NET_REJECT_FRAMING,
                         rq->head.err, rq->head.why);
        return false;
    case NET_HTTP_MORE:
    case NET_HTTP_DATA:
        return false;
    }
    UNREACHABLE();
}

static bool may_begin(struct net_conn *c)
{
    c->paused = c->pipe_n >= c->w->limits.max_pipeline || c->out_n > NET_OUT_HIGH;
    return !c->paused;
}

/* Everything that can be done with the bytes at hand. */
static void process(struct net_conn *c)
{
    bool go = true;
    while (go && !c->dead && !c->read_off) {
        switch (c->reading) {
        case NET_READ_IDLE:
            if (net_conn__in_n(c) == 0 || !may_begin(c))
                return;
            request_begin(c);
            break;
        case NET_READ_HEAD:
            if (net_conn__in_n(c) == 0)
                return;
            go = head_read(c);
            break;
        case NET_READ_BODY:
            go = body_read(c);
            break;
        }
    }
}

static enum net_io conn_io_read(struct net_conn *c, void *p, size_t n, size_t *out_n)
{
    if (c->tls)
        return net_tls_read(c->tls, p, n, out_n);
    ssize_t r = recv(c->nf.fd, p, n, 0);
    if (r > 0) {
        *out_n = (size_t)r;
        return NET_IO_OK;
    }
    if (r == 0)
        return NET_IO_EOF;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? NET_IO_AGAIN : NET_IO_ERROR;
}

/* The peer has sent its last byte. What is complete is still answered. */
static void at_eof(struct net_conn *c)
{
    c->eof = c->read_off = true;
    c->readable = false;
    struct net_req *rq = c->cur;
    c->cur = NULL;
    if (rq) {
        pipe_replace(c, rq, NULL);
        net_conn__cut(rq, ERR_DISCONNECTED);
    }
    c->eof_by_ns = net_conn__now_ns(c) + c->w->limits.write_timeout_ms * NET_MS_NS;
    net_conn__arm(c, c->eof_by_ns);
    if (!c->pipe_head && !c->out_head)
        net_conn__close(c, ERR_OK);
    else
        net_conn__dirty(c);
}

void net_intake__discard(struct net_conn *c)
{
    uint8_t waste[4096];
    size_t n;
    for (int i = 0; i < READS_PER_TURN * 4; i++) {
        enum net_io io = conn_io_read(c, waste, sizeof waste, &n);
        if (io == NET_IO_OK)
            continue;
        c->readable = false;
        if (io != NET_IO_AGAIN && c->lingering)
            net_conn__close(c, ERR_OK);
        else if (io == NET_IO_ERROR)
            net_conn__close(c, ERR_DISCONNECTED);
        else if (io == NET_IO_EOF)
            at_eof(c);
        return;
    }
    net_conn__resume(c);
}

static bool wants_bytes(const struct net_conn *c)
{
    return !c->dead && !c->read_off && c->readable && !c->paused && !(c->cur && c->cur->body_paused);
}

void net_intake__read(struct net_conn *c)
{
    for (int i = 0; i < READS_PER_TURN && wants_bytes(c); i++) {
        size_t room, n;
        uint8_t *to = in_room(c, &room);
        enum net_io io = conn_io_read(c, to, room, &n);
        if (io == NET_IO_AGAIN) {
            c->readable = false;
            break;
        }
        if (io == NET_IO_EOF) {
            at_eof(c);
            break;
        }
        if (io == NET_IO_ERROR) {
            net_conn__close(c, ERR_DISCONNECTED);
            return;
        }
        /* A short read has emptied the socket, unless its end is waiting behind it. */
        if (n < room && !c->tls && !c->hangup)
            c->readable = false;
        c->heard = true;
        c->in_to += n;
        c->active_ns = net_conn__now_ns(c);
        process(c);
    }
    if (c->dead)
        return;
    if (net_conn__in_n(c) == 0 || c->read_off)
        net_intake__drop(c);
    if (wants_bytes(c))
        net_conn__resume(c);
    else if (c->read_off && c->readable && !c->eof)
        net_intake__discard(c);
}

void net_intake__resumed(struct net_conn *c)
{
    if (c->reading == NET_READ_IDLE && !may_begin(c))
        return;
    c->paused = false;
    process(c);
    if (!c->dead)
        net_intake__read(c);
}

/* ---- time ---- */

bool net_intake__reading(const struct net_conn *c)
{
    return c->reading != NET_READ_IDLE && !c->read_off && !c->paused && !(c->cur && c->cur->body_paused);
}

static void expire_requests(struct net_conn *c, int64_t now)
{
    for (struct net_req *rq = c->pipe_head, *next; rq && !c->dead; rq = next) {
        next = rq->next;
        if (rq->phase == NET_PHASE_HANDLER && rq->deadline_ns <= now)
            answer_instead(c, rq, NET_REJECT_DEADLINE, rq->late_err != ERR_OK ? rq->late_err : ERR_TIMEOUT,
                           "the deadline passed while waiting", c->cur == rq);
    }
}

void net_intake__expire(struct net_conn *c, int64_t now_ns)
{
    expire_requests(c, now_ns);
    if (net_intake__reading(c) && c->read_by_ns <= now_ns) {
        if (!c->cur)
            body_failed(c, ERR_REQUEST_TIMEOUT, NULL);
        else if (c->cur->phase == NET_PHASE_HANDLER)
            answer_instead(c, c->cur, NET_REJECT_READ_TIMEOUT, ERR_REQUEST_TIMEOUT,
                           "the request took too long to arrive", true);
        else
            refuse_and_close(c, c->cur, NET_REJECT_READ_TIMEOUT, ERR_REQUEST_TIMEOUT,
                             "the request took too long to arrive");
    }
}

void net_intake__refuse_conn(struct net_conn *c)
{
    struct net_req *rq = net_req__new(c->w);
    rq->started_ns = c->active_ns;
    rq->peer = c->peer;
    pipe_push(c, rq);
    refuse_and_close(c, rq, NET_REJECT_CONNS, ERR_BUSY, "too many connections");
}
