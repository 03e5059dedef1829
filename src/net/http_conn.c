/*
 * One connection. Descriptors are edge-triggered and registered once, so nothing but read and write is called per request.
 *
 * In: bytes are read into a pooled block, heads are judged in place and copied into the request, bodies are collected (or
 * handed on). A block goes back as soon as it is empty: an idle connection has none.
 * Out: answers collect during the loop's iteration and leave at its end in one call.
 * Time: one timer per connection for all its time limits. It is moved only when the next limit comes earlier; when it fires
 * too early it looks again. A busy connection touches the heap about once per time limit, not once per request.
 * End: refusals close with care: output is shut down and input thrown away for a while, because closing with unread
 * input would make the kernel send a reset that can overtake the answer.
 */
#include "net/http_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "rt/os.h"

enum {
    READS_PER_TURN = 4,
    PASSES_PER_TURN = 64, /* of a stream, NET_STREAM_AHEAD bytes each */
    LINGER_MS = 1000,
};

static const int64_t ms_ns = 1000000;

static int64_t now_of(const struct net_conn *c)
{
    return net_loop_now_ns(c->w->loop);
}

static struct net_limits *limits_of(const struct net_conn *c)
{
    return &c->w->limits;
}

/* ---- lists ---- */

void net_conn__dirty(struct net_conn *c)
{
    if (c->is_dirty || c->dead)
        return;
    c->is_dirty = true;
    if (c == c->w->current)
        return;
    c->dirty_next = c->w->dirty;
    c->w->dirty = c;
}

void net_conn__resume(struct net_conn *c)
{
    if (c->is_resume || c->dead)
        return;
    c->is_resume = true;
    c->resume_next = c->w->resume;
    c->w->resume = c;
}

void net_conn__arm(struct net_conn *c, int64_t at_ns)
{
    if (at_ns != OS_NEVER && (!net_timer_armed(&c->timer) || at_ns < c->timer.at_ns))
        net_timer_set(c->w->loop, &c->timer, at_ns);
}

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

static size_t in_n(const struct net_conn *c)
{
    return c->in_to - c->in_from;
}

static void in_drop(struct net_conn *c)
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
        memmove(c->in->data, c->in->data + c->in_from, in_n(c));
        c->in_to -= c->in_from;
        c->in_from = 0;
    }
    *out_n = NET_BLOCK - c->in_to;
    return c->in->data + c->in_to;
}

/* ---- end of a connection ---- */

static void report(struct net_req *rq, bool complete)
{
    struct net_server *s = rq->w->s;
    atomic_fetch_add_explicit(&rq->w->responses, 1, memory_order_relaxed);
    net_server__completed(rq->w);
    if (!s->hooks.done)
        return;
    struct net_done d = {
        .route = net_req_route(rq),
        .method = rq->method,
        .corr_id = rq->corr_id,
        .traceparent = rq->traceparent,
        .status = rq->status,
        .bytes_in = rq->bytes_in,
        .bytes_out = rq->bytes_out,
        .duration_ns = clock_mono_ns(net_loop_clock(rq->w->loop)) - rq->started_ns,
        .complete = complete,
    };
    s->hooks.done(s->hooks.ctx, &d);
}

static void req_end(struct net_req *rq, enum err result)
{
    report(rq, result == ERR_OK);
    net_reply__drop(rq, result);
    net_req__free(rq);
}

/* A request that will not be answered on this connection. */
static void req_cut(struct net_req *rq, enum err why)
{
    switch (rq->phase) {
    case NET_PHASE_READING:
        net_req__free(rq);
        break;
    case NET_PHASE_HANDLER:
        net_req__orphan(rq);
        break;
    case NET_PHASE_STORED:
    case NET_PHASE_STREAM:
        if (rq->stream && !rq->stream->end_seen) {
            report(rq, false);
            net_req__orphan(rq);
        } else {
            req_end(rq, why);
        }
        break;
    case NET_PHASE_SENT:
        req_end(rq, why);
        break;
    }
}

void net_conn__close(struct net_conn *c, enum err why)
{
    if (c->dead)
        return;
    c->dead = true;
    struct net_worker *w = c->w;
    struct net_server *s = w->s;
    net_loop_remove(w->loop, &c->nf);
    net_timer_cancel(w->loop, &c->timer);
    net_tls_close(c->tls);
    c->tls = NULL;
    close(c->nf.fd);
    net_out__free_all(c);
    in_drop(c);
    struct net_req *lists[2] = {c->sent_head, c->pipe_head};
    c->sent_head = c->sent_tail = c->pipe_head = c->pipe_tail = c->cur = NULL;
    c->pipe_n = 0;
    for (size_t i = 0; i < 2; i++) {
        for (struct net_req *rq = lists[i], *next; rq; rq = next) {
            next = rq->next;
            req_cut(rq, why == ERR_OK ? ERR_DISCONNECTED : why);
        }
    }
    if (c->prev)
        c->prev->next = c->next;
    else
        w->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->next = w->dead;
    w->dead = c;
    if (s->hooks.conn)
        s->hooks.conn(s->hooks.ctx, -1);
    net_server__conn_gone(s);
}

/* Everything is sent: close, gently when the peer may still be talking. */
static void conn_finish(struct net_conn *c)
{
    if (!c->linger || c->eof || c->hangup) {
        net_conn__close(c, ERR_OK);
        return;
    }
    if (c->lingering)
        return;
    c->lingering = c->read_off = true;
    in_drop(c);
    if (c->tls)
        net_tls_end_output(c->tls);
    shutdown(c->nf.fd, SHUT_WR);
    c->linger_by_ns = now_of(c) + LINGER_MS * ms_ns;
    net_conn__arm(c, c->linger_by_ns);
    c->readable = true;
    net_conn__resume(c);
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
    bool has_body = h->chunked || h->length > 0;
    c->cur = NULL;
    if (!has_body) {
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
    atomic_fetch_add_explicit(&w->requests, 1, memory_order_relaxed);
    rq->phase = NET_PHASE_HANDLER;
    if (hooks->gate && !hooks->gate(hooks->ctx, rq))
        return;
    const struct net_route_leaf *leaf = rq->match.leaf;
    leaf->route->fn(rq, leaf->ctx);
}

static bool admitted(struct net_conn *c, struct net_req *rq)
{
    struct net_worker *w = c->w;
    const struct net_limits *l = &w->limits;
    if (rq->match.leaf->route->flags & NET_NO_ADMISSION)
        return true;
    struct net_admission_limits al = {l->rate, l->rate_per_peer, l->max_inflight, l->max_inflight_per_peer};
    unsigned wait_s = 0;
    enum err e = net_admission_enter(w->s->admission, &al, rq->peer.addr, now_of(c), &rq->permit, &wait_s);
    if (e == ERR_OK) {
        rq->counted = true;
        if (w->s->hooks.inflight)
            w->s->hooks.inflight(w->s->hooks.ctx, 1);
        return true;
    }
    bool rate = e == ERR_RATE_LIMITED;
    refuse(c, rq, rate ? NET_REJECT_RATE : NET_REJECT_INFLIGHT,
           &(struct net_problem){.err = e,
                                 .detail = rate ? STR("too many requests per second")
                                                : STR("too many requests in flight"),
                                 .retry_after_s = wait_s});
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
    bool streams = rq->match.leaf->route->flags & NET_STREAM_BODY;
    if (h->encoding_other || (h->gzip && streams)) {
        refuse(c, rq, NET_REJECT_INFLATE,
               &(struct net_problem){.err = ERR_UNSUPPORTED_MEDIA_TYPE,
                                     .detail = streams ? STR("the body must not be encoded")
                                                       : STR("the only content coding is gzip")});
        return false;
    }
    return true;
}

static void body_begin(struct net_conn *c, struct net_req *rq)
{
    const struct net_http_head *h = &rq->head;
    net_http_body_init(&c->body, h, body_max(rq));
    c->reading = NET_READ_BODY;
    if (h->expect_continue && rq->head.minor == 1 && in_n(c) == 0) {
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
    if (!routed(c, rq) || !while_draining(c, rq) || !admitted(c, rq) || !body_welcome(c, rq))
        return;
    if (rq->deadline_ns <= now_of(c)) {
        refuse(c, rq, NET_REJECT_DEADLINE,
               &(struct net_problem){.err = ERR_TIMEOUT, .detail = STR("the deadline has passed already")});
        return;
    }
    net_conn__arm(c, rq->deadline_ns);
    if (h->chunked || h->length > 0) {
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

static bool inflated(struct net_conn *c, struct net_req *rq)
{
    struct net_worker *w = c->w;
    uint8_t *data;
    size_t n;
    enum err e = w->inflater ? ERR_OK : net_inflater_create(&w->inflater);
    if (e == ERR_OK)
        e = net_inflate(w->inflater, net_req_body(rq), w->limits.inflate_ratio, body_max(rq), &data, &n);
    if (e != ERR_OK) {
        c->cur = NULL;
        c->reading = NET_READ_IDLE;
        if (!rq->want_keep)
            c->read_off = true;
        net_reply__refuse(rq, NET_REJECT_INFLATE,
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

static void body_complete(struct net_conn *c)
{
    struct net_req *rq = c->cur;
    if (!rq) {
        c->reading = NET_READ_IDLE;
        return;
    }
    if (rq->phase == NET_PHASE_HANDLER) {
        c->cur = NULL;
        c->reading = NET_READ_IDLE;
        rq->body_ended = true;
        if (!rq->want_keep)
            c->read_off = true;
        if (rq->on_body)
            rq->on_body(rq, (struct bytes){NULL, 0}, true, rq->on_body_arg);
        return;
    }
    if (rq->head.gzip && !inflated(c, rq))
        return;
    request_complete(c, rq);
}

static void body_piece(struct net_conn *c, struct bytes piece)
{
    struct net_req *rq = c->cur;
    if (!rq)
        return;
    rq->bytes_in += piece.n;
    if (rq->phase == NET_PHASE_HANDLER) {
        if (rq->on_body)
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
    enum net_http_result r = net_http_body_feed(&c->body, data, in_n(c), &used, &piece);
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

void net_conn__body_resume(struct net_msg *m)
{
    struct net_req *rq = (struct net_req *)(void *)((char *)m - offsetof(struct net_req, body_msg));
    struct net_conn *c = rq->conn;
    atomic_exchange_explicit(&rq->resuming, false, memory_order_acq_rel);
    rq->body_paused = false;
    if (!c)
        return;
    c->read_by_ns = now_of(c) + limits_of(c)->read_timeout_ms * ms_ns;
    net_conn__arm(c, c->read_by_ns);
    net_conn__resume(c);
}

/* ---- reading ---- */

static void request_begin(struct net_conn *c)
{
    struct net_worker *w = c->w;
    const struct net_limits *l = &w->limits;
    struct net_req *rq = net_req__new(w);
    rq->started_ns = now_of(c);
    rq->peer = c->peer;
    net_http_head_init(&rq->head,
                       &(struct net_http_limits){l->header_bytes, l->header_fields, l->target_bytes});
    pipe_push(c, rq);
    c->cur = rq;
    c->reading = NET_READ_HEAD;
    c->read_by_ns = rq->started_ns + l->read_timeout_ms * ms_ns;
    net_conn__arm(c, c->read_by_ns);
}

static bool head_read(struct net_conn *c)
{
    struct net_req *rq = c->cur;
    switch (net_http_head_feed(&rq->head, (const char *)c->in->data + c->in_from, in_n(c))) {
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
    c->paused = c->pipe_n >= limits_of(c)->max_pipeline || c->out_n > NET_OUT_HIGH;
    return !c->paused;
}

/* Everything that can be done with the bytes at hand. */
static void process(struct net_conn *c)
{
    bool go = true;
    while (go && !c->dead && !c->read_off) {
        switch (c->reading) {
        case NET_READ_IDLE:
            if (in_n(c) == 0 || !may_begin(c))
                return;
            request_begin(c);
            break;
        case NET_READ_HEAD:
            if (in_n(c) == 0)
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
        req_cut(rq, ERR_DISCONNECTED);
    }
    c->eof_by_ns = now_of(c) + limits_of(c)->write_timeout_ms * ms_ns;
    net_conn__arm(c, c->eof_by_ns);
    if (!c->pipe_head && !c->out_head)
        net_conn__close(c, ERR_OK);
    else
        net_conn__dirty(c);
}

static void discard(struct net_conn *c)
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

static void conn_read(struct net_conn *c)
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
        c->active_ns = now_of(c);
        process(c);
    }
    if (c->dead)
        return;
    if (in_n(c) == 0 || c->read_off)
        in_drop(c);
    if (wants_bytes(c))
        net_conn__resume(c);
    else if (c->read_off && c->readable && !c->eof)
        discard(c);
}

static void resumed(struct net_conn *c)
{
    if (c->reading == NET_READ_IDLE && !may_begin(c))
        return;
    c->paused = false;
    process(c);
    if (!c->dead)
        conn_read(c);
}

/* ---- writing ---- */

static void sent_up_to(struct net_conn *c)
{
    while (c->sent_head && c->sent_head->end_at <= c->sent) {
        struct net_req *rq = c->sent_head;
        c->sent_head = rq->next;
        if (!c->sent_head)
            c->sent_tail = NULL;
        req_end(rq, ERR_OK);
    }
}

static bool stream_has_more(const struct net_conn *c)
{
    const struct net_req *rq = c->pipe_head;
    return rq && rq->phase == NET_PHASE_STREAM && net_stream__has_more(rq);
}

static void conn_flush(struct net_conn *c)
{
    enum err why = ERR_DISCONNECTED;
    enum net_io io;
    uint64_t before = c->sent;
    bool was_blocked = c->blocked;
    int passes = 0;
    do {
        net_reply__emit(c); /* a stream may have more for the room that was made */
        if (c->dead)
            return;
        io = net_out__flush(c, &why);
        if (io == NET_IO_ERROR) {
            net_conn__close(c, why);
            return;
        }
    } while (io == NET_IO_OK && stream_has_more(c) && ++passes < PASSES_PER_TURN);
    if (io == NET_IO_OK && stream_has_more(c))
        net_conn__dirty(c);
    sent_up_to(c);
    if (c->sent != before)
        c->active_ns = now_of(c);
    if (c->eof)
        net_conn__arm(c, c->eof_by_ns);
    if (c->out_head) {
        if (!c->blocked) {
            net_conn__dirty(c); /* used up its turn */
        } else if (!was_blocked || c->sent != before) {
            c->write_by_ns = now_of(c) + limits_of(c)->write_timeout_ms * ms_ns;
            net_conn__arm(c, c->write_by_ns);
        }
    } else if (c->closing || (c->eof && !c->pipe_head)) {
        conn_finish(c);
        return;
    } else if (!c->pipe_head) {
        if (c->reading == NET_READ_IDLE && in_n(c) == 0 && net_server__closed(c->w->s)) {
            conn_finish(c);
            return;
        }
        net_conn__arm(c, c->active_ns + limits_of(c)->idle_timeout_ms * ms_ns);
    }
    if (c->paused && c->pipe_n < limits_of(c)->max_pipeline && c->out_n <= NET_OUT_HIGH)
        net_conn__resume(c);
}

/* ---- time ---- */

static bool reading_now(const struct net_conn *c)
{
    return c->reading != NET_READ_IDLE && !c->read_off && !c->paused && !(c->cur && c->cur->body_paused);
}

static int64_t idle_by(const struct net_conn *c)
{
    int64_t ms = limits_of(c)->idle_timeout_ms;
    if (c->tls && !c->heard && limits_of(c)->read_timeout_ms < ms)
        ms = limits_of(c)->read_timeout_ms; /* the handshake */
    return c->active_ns + ms * ms_ns;
}

/* An event stream whose reader has closed its side: most likely nobody reads, and a quiet stream would never find out. */
static bool stream_forsaken(const struct net_conn *c)
{
    const struct net_req *rq = c->pipe_head;
    return c->eof && rq && rq->phase == NET_PHASE_STREAM && !rq->stream->sized;
}

static int64_t next_limit(const struct net_conn *c)
{
    int64_t at = OS_NEVER;
    if (c->lingering)
        return c->linger_by_ns;
    if (reading_now(c) && c->read_by_ns < at)
        at = c->read_by_ns;
    for (const struct net_req *rq = c->pipe_head; rq; rq = rq->next)
        if (rq->phase == NET_PHASE_HANDLER && rq->deadline_ns < at)
            at = rq->deadline_ns;
    if (c->out_head && c->blocked && c->write_by_ns < at)
        at = c->write_by_ns;
    if (stream_forsaken(c) && c->eof_by_ns < at)
        at = c->eof_by_ns;
    if (!c->pipe_head && !c->out_head && c->reading == NET_READ_IDLE && idle_by(c) < at)
        at = idle_by(c);
    return at;
}

static void reject(struct net_conn *c, enum net_reject why)
{
    const struct net_hooks *hooks = &c->w->s->hooks;
    if (hooks->reject)
        hooks->reject(hooks->ctx, why);
}

static void expire_requests(struct net_conn *c, int64_t now)
{
    for (struct net_req *rq = c->pipe_head, *next; rq && !c->dead; rq = next) {
        next = rq->next;
        if (rq->phase == NET_PHASE_HANDLER && rq->deadline_ns <= now)
            answer_instead(c, rq, NET_REJECT_DEADLINE, ERR_TIMEOUT, "the deadline passed while waiting",
                           c->cur == rq);
    }
}

static void on_timer(struct net_timer *t)
{
    struct net_conn *c = (struct net_conn *)(void *)((char *)t - offsetof(struct net_conn, timer));
    int64_t now = now_of(c);
    if (c->lingering) {
        if (c->linger_by_ns <= now)
            net_conn__close(c, ERR_OK);
        else
            net_conn__arm(c, c->linger_by_ns);
        return;
    }
    if (c->out_head && c->blocked && c->write_by_ns <= now) {
        reject(c, NET_REJECT_WRITE_TIMEOUT);
        net_conn__close(c, ERR_DISCONNECTED);
        return;
    }
    if (!c->pipe_head && !c->out_head && c->reading == NET_READ_IDLE && idle_by(c) <= now) {
        net_conn__close(c, ERR_OK);
        return;
    }
    if (stream_forsaken(c) && c->eof_by_ns <= now) {
        net_conn__close(c, ERR_DISCONNECTED);
        return;
    }
    expire_requests(c, now);
    if (reading_now(c) && c->read_by_ns <= now) {
        if (!c->cur)
            body_failed(c, ERR_REQUEST_TIMEOUT, NULL);
        else if (c->cur->phase == NET_PHASE_HANDLER)
            answer_instead(c, c->cur, NET_REJECT_READ_TIMEOUT, ERR_REQUEST_TIMEOUT,
                           "the request took too long to arrive", true);
        else
            refuse_and_close(c, c->cur, NET_REJECT_READ_TIMEOUT, ERR_REQUEST_TIMEOUT,
                             "the request took too long to arrive");
    }
    if (!c->dead)
        net_conn__arm(c, next_limit(c));
}

/* ---- events ---- */

/* What the input made ready leaves while its request and buffers are still in the cache. */
static void current_end(struct net_conn *c, bool was_dirty)
{
    c->w->current = NULL;
    if (was_dirty || !c->is_dirty || c->dead)
        return;
    c->is_dirty = false;
    conn_flush(c);
}

static void on_event(struct net_fd *nf, uint32_t events)
{
    struct net_conn *c = (struct net_conn *)(void *)nf;
    bool was_dirty = c->is_dirty; /* then it is on the list already */
    if (events & (EPOLLERR | EPOLLHUP)) {
        net_conn__close(c, ERR_DISCONNECTED);
        return;
    }
    c->w->current = c;
    if (events & EPOLLOUT) {
        c->blocked = false;
        if (c->out_head)
            net_conn__dirty(c);
    }
    if (events & (EPOLLIN | EPOLLRDHUP)) {
        c->readable = true;
        if (events & EPOLLRDHUP)
            c->hangup = true;
        if (c->read_off)
            discard(c);
        else
            conn_read(c);
    }
    current_end(c, was_dirty);
}

void net_conn__open(struct net_worker *w, int fd, const struct net_peer *peer, struct net_tls_session *tls,
                    bool refused)
{
    struct net_server *s = w->s;
    struct net_conn *c = w->free_conns;
    if (c)
        w->free_conns = c->next;
    else
        c = malloc(sizeof *c);
    CHECK(c != NULL);
    memset(c, 0, sizeof *c);
    c->nf = (struct net_fd){.fd = fd, .fn = on_event};
    c->timer.fn = on_timer;
    c->w = w;
    c->peer = *peer;
    c->tls = tls;
    c->active_ns = net_loop_now_ns(w->loop);
    c->next = w->conns;
    if (c->next)
        c->next->prev = c;
    w->conns = c;
    atomic_fetch_add_explicit(&w->accepted, 1, memory_order_relaxed);
    if (s->hooks.conn)
        s->hooks.conn(s->hooks.ctx, 1);
    if (net_loop_add(w->loop, &c->nf, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) != ERR_OK) {
        net_conn__close(c, ERR_BUSY);
        return;
    }
    net_conn__arm(c, idle_by(c));
    if (refused) {
        struct net_req *rq = net_req__new(w);
        rq->started_ns = c->active_ns;
        rq->peer = *peer;
        pipe_push(c, rq);
        refuse_and_close(c, rq, NET_REJECT_CONNS, ERR_BUSY, "too many connections");
    }
}

void net_conn__batch_end(struct net_worker *w)
{
    struct net_conn *list = w->resume;
    w->resume = NULL;
    for (struct net_conn *c = list, *next; c; c = next) {
        next = c->resume_next;
        c->is_resume = false;
        if (c->dead)
            continue;
        bool was_dirty = c->is_dirty;
        w->current = c;
        if (c->read_off)
            discard(c);
        else
            resumed(c);
        current_end(c, was_dirty);
    }
    list = w->dirty;
    w->dirty = NULL;
    for (struct net_conn *c = list, *next; c; c = next) {
        next = c->dirty_next;
        c->is_dirty = false;
        if (!c->dead)
            conn_flush(c);
    }
    if ((w->resume || w->dirty) && !w->again_posted) {
        w->again_posted = true;
        net_loop_post(w->loop, &w->again);
        return; /* dead ones may still be on a list */
    }
    while (!w->resume && !w->dirty && w->dead) {
        struct net_conn *c = w->dead;
        w->dead = c->next;
        c->next = w->free_conns;
        w->free_conns = c;
    }
}

/* No more requests are wanted: connections without one end now, the others with their last response. */
void net_conn__drain(struct net_worker *w)
{
    for (struct net_conn *c = w->conns, *next; c; c = next) {
        next = c->next;
        if (!c->pipe_head && !c->out_head && c->reading == NET_READ_IDLE && in_n(c) == 0 && !c->lingering)
            net_conn__close(c, ERR_OK);
    }
}
