/*
 * Bytes from a connection, until they are heads and bodies.
 *
 * They are read into a pooled block, heads are judged in place (http_admit.c) and copied into the request, unless it knows them
 * from before; bodies go to http_body.c. A block goes back as soon as it is empty: an idle connection has none. A request enters the connection's pipe
 * with its first byte; whatever refuses it (http_refuse.c) answers through the same pipe, so order is kept.
 */
#include "net/http_internal.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/check.h"

enum { READS_PER_TURN = 4 };

void net_intake__drop(struct net_conn *c)
{
    if (c->in)
        net_out__block_free(c->w, c->in);
    c->in = NULL;
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

static void request_begin(struct net_conn *c)
{
    struct net_worker *w = c->w;
    const struct net_limits *l = &w->limits;
    const struct net_http_limits limits = {l->header_bytes, l->header_fields, l->target_bytes};
    struct net_req *rq =
        net_req__new_for(w, bytes_of(c->in->data + c->in_from, net_conn__in_n(c)), &limits);
    rq->started_ns = net_conn__now_ns(c);
    rq->peer = c->peer;
    if (!rq->known_n)
        net_http_head_init(&rq->head, &limits, &w->seen);
    net_pipe__push(c, rq);
    c->cur = rq;
    c->reading = NET_READ_HEAD;
    c->read_by_ns = rq->started_ns + l->read_timeout_ms * NET_MS_NS;
    net_conn__arm(c, c->read_by_ns);
}

static bool head_read(struct net_conn *c)
{
    struct net_req *rq = c->cur;
    const char *text = (const char *)c->in->data + c->in_from;
    switch (rq->known_n ? NET_HTTP_DONE : net_http_head_feed(&rq->head, text, net_conn__in_n(c))) {
    case NET_HTTP_DONE:
        net_admit__head(c, rq);
        return true;
    case NET_HTTP_BAD:
        net_refuse__close(c, rq,
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
            go = net_body__read(c);
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

/*
 * The peer has sent its last byte. What is complete is still answered; but hardly anybody closes one direction and then waits long for
 * the other, so who waits for something to happen is told, and should answer with what there is.
 */
static void at_eof(struct net_conn *c)
{
    c->eof = c->read_off = true;
    c->readable = false;
    struct net_req *rq = c->cur;
    c->cur = NULL;
    if (rq) {
        net_pipe__replace(c, rq, NULL);
        net_conn__cut(rq, ERR_DISCONNECTED);
    }
    for (struct net_req *w = c->pipe_head, *next; w; w = next) {
        next = w->next; /* it may be answered in there */
        if (w->waits && (w->phase == NET_PHASE_HANDLER || w->phase == NET_PHASE_STREAM))
            net_req__left(w);
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
        if (io == NET_IO_OK || io == NET_IO_LATER)
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
        if (io == NET_IO_LATER)
            continue;
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

bool net_intake__reading(const struct net_conn *c)
{
    return c->reading != NET_READ_IDLE && !c->read_off && !c->paused && !(c->cur && c->cur->body_paused);
}

static void expire_requests(struct net_conn *c, int64_t now)
{
    for (struct net_req *rq = c->pipe_head, *next; rq && !c->dead; rq = next) {
        next = rq->next;
        if (rq->phase == NET_PHASE_HANDLER && rq->deadline_ns <= now)
            net_refuse__instead(c, rq, NET_REJECT_DEADLINE,
                                rq->late_err != ERR_OK ? rq->late_err : ERR_TIMEOUT,
                                "the deadline passed while waiting", c->cur == rq);
    }
}

void net_intake__expire(struct net_conn *c, int64_t now_ns)
{
    expire_requests(c, now_ns);
    if (net_intake__reading(c) && c->read_by_ns <= now_ns) {
        if (!c->cur)
            net_body__failed(c, ERR_REQUEST_TIMEOUT, NULL);
        else if (c->cur->phase == NET_PHASE_HANDLER)
            net_refuse__instead(c, c->cur, NET_REJECT_READ_TIMEOUT, ERR_REQUEST_TIMEOUT,
                                "the request took too long to arrive", true);
        else
            net_refuse__close(c, c->cur, NET_REJECT_READ_TIMEOUT, ERR_REQUEST_TIMEOUT,
                              "the request took too long to arrive");
    }
}
