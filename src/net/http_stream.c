/*
 * Streaming responses. The writer (any one thread at a time) puts bytes into a ring; the loop takes them out as fast as the
 * connection drains, in chunks. The ring is single-producer single-consumer: `put` is moved by the writer only, `got` by the
 * loop only. One message tells the loop about any number of writes (`queued`); a second, posted last, tells it that the
 * writer will not touch the request again, so only then may it be recycled.
 */
#include "net/http_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

static struct net_req *req_of_write(struct net_msg *m)
{
    struct net_stream *st =
        (struct net_stream *)(void *)((char *)m - offsetof(struct net_stream, write_msg));
    return st->owner;
}

static struct net_req *req_of_end(struct net_msg *m)
{
    struct net_stream *st = (struct net_stream *)(void *)((char *)m - offsetof(struct net_stream, end_msg));
    return st->owner;
}

void net_stream__free(struct net_req *rq)
{
    if (!rq->stream)
        return;
    free(rq->stream->data);
    free(rq->stream);
    rq->stream = NULL;
}

static void touched(struct net_req *rq)
{
    if (rq->conn)
        net_conn__dirty(rq->conn); /* the flush pumps first */
}

static void written(struct net_msg *m)
{
    struct net_req *rq = req_of_write(m);
    /* acquire-release with the writer's exchange: what it put before is seen now, or it posts again */
    atomic_exchange_explicit(&rq->stream->queued, false, memory_order_acq_rel);
    touched(rq);
}

static void ended(struct net_req *rq)
{
    rq->stream->end_seen = true;
    if (!rq->conn)
        net_req__free(rq);
    else if (rq->stream->aborted)
        net_conn__close(rq->conn, ERR_IO);
    else
        touched(rq);
}

static void ended_msg(struct net_msg *m)
{
    ended(req_of_end(m));
}

static void begin(struct net_req *rq, int status, const struct net_headers *headers, bool sized,
                  uint64_t length)
{
    CHECK_MAGIC(rq, NET_REQ_MAGIC);
    CHECK(!rq->stream);
    struct net_stream *st = calloc(1, sizeof *st);
    CHECK(st != NULL);
    st->owner = rq;
    st->cap = rq->w->s->stream_buffer;
    st->data = malloc(st->cap);
    CHECK(st->data != NULL);
    st->sized = sized;
    st->left = length;
    st->chunked = !sized && !rq->http10;
    st->mute = rq->is_head || status == 204 || status == 304;
    st->write_msg.fn = written;
    st->end_msg.fn = ended_msg;
    rq->stream = st;
    net_reply__give(rq, &(struct net_answer){.kind = NET_ANSWER_STREAM,
                                             .status = status,
                                             .headers = headers,
                                             .sized = sized,
                                             .stream_n = length});
}

void net_stream_begin(struct net_req *rq, int status, const struct net_headers *headers)
{
    begin(rq, status, headers, false, 0);
}

void net_stream_begin_sized(struct net_req *rq, int status, const struct net_headers *headers,
                            uint64_t length)
{
    begin(rq, status, headers, true, length);
}

size_t net_stream_room(const struct net_req *rq)
{
    const struct net_stream *st = rq->stream;
    return st->cap - (atomic_load_explicit(&st->put, memory_order_relaxed) -
                      atomic_load_explicit(&st->got, memory_order_acquire));
}

enum err net_stream_write(struct net_req *rq, struct bytes piece)
{
    CHECK_MAGIC(rq, NET_REQ_MAGIC);
    struct net_stream *st = rq->stream;
    CHECK(st != NULL);
    if (net_req_gone(rq))
        return ERR_CLOSED;
    if (piece.n > st->cap || (st->sized && piece.n > st->left))
        return ERR_TOO_LARGE;
    if (st->mute) {
        st->left -= st->sized ? piece.n : 0;
        return ERR_OK;
    }
    if (net_stream_room(rq) < piece.n) {
        /* seq_cst with the pump: either it sees the wish, or we see its room */
        atomic_store(&st->wants_room, true);
        if (st->cap - (atomic_load_explicit(&st->put, memory_order_relaxed) - atomic_load(&st->got)) <
            piece.n)
            return ERR_BUSY;
        atomic_store(&st->wants_room, false);
    }
    size_t put = atomic_load_explicit(&st->put, memory_order_relaxed);
    size_t at = put % st->cap, first = st->cap - at < piece.n ? st->cap - at : piece.n;
    if (piece.n) {
        memcpy(st->data + at, piece.p, first);
        memcpy(st->data, piece.p + first, piece.n - first);
    }
    st->left -= st->sized ? piece.n : 0;
    atomic_store_explicit(&st->put, put + piece.n, memory_order_release);
    if (net_loop_current() == rq->w->loop)
        touched(rq);
    else if (!atomic_exchange_explicit(&st->queued, true, memory_order_acq_rel))
        net_loop_post(rq->w->loop, &st->write_msg);
    return ERR_OK;
}

void net_stream_on_room(struct net_req *rq, void (*fn)(struct net_req *rq, void *arg), void *arg)
{
    rq->stream->on_room = fn;
    rq->stream->on_room_arg = arg;
}

static void finish(struct net_req *rq, bool aborted)
{
    CHECK_MAGIC(rq, NET_REQ_MAGIC);
    struct net_stream *st = rq->stream;
    CHECK(st != NULL);
    st->aborted =
        aborted || (st->sized && st->left > 0); /* short of what was promised: never taken for complete */
    if (net_loop_current() == rq->w->loop && !atomic_load_explicit(&st->queued, memory_order_acquire) &&
        rq->phase != NET_PHASE_HANDLER) {
        ended(rq);
        return;
    }
    net_loop_post(rq->w->loop, &st->end_msg);
}

void net_stream_end(struct net_req *rq)
{
    finish(rq, false);
}

void net_stream_abort(struct net_req *rq)
{
    finish(rq, true);
}

/* ---- the loop's side ---- */

static void take_out(struct net_conn *c, struct net_req *rq, size_t n)
{
    struct net_stream *st = rq->stream;
    size_t got = atomic_load_explicit(&st->got, memory_order_relaxed);
    uint8_t *start = net_out__reserve(c, n + 32), *to = start;
    if (st->chunked)
        to += snprintf((char *)to, 20, "%zx\r\n", n);
    size_t at = got % st->cap, first = st->cap - at < n ? st->cap - at : n;
    memcpy(to, st->data + at, first);
    memcpy(to + first, st->data, n - first);
    to += n;
    if (st->chunked) {
        memcpy(to, "\r\n", 2);
        to += 2;
    }
    net_out__commit(c, (size_t)(to - start));
    rq->bytes_out += n;
    atomic_store(&st->got, got + n); /* seq_cst: see net_stream_write */
}

bool net_stream__has_more(const struct net_req *rq)
{
    const struct net_stream *st = rq->stream;
    return st->end_seen || atomic_load_explicit(&st->put, memory_order_acquire) !=
                               atomic_load_explicit(&st->got, memory_order_relaxed);
}

bool net_stream__pump(struct net_conn *c, struct net_req *rq)
{
    struct net_stream *st = rq->stream;
    for (;;) {
        size_t have = atomic_load_explicit(&st->put, memory_order_acquire) -
                      atomic_load_explicit(&st->got, memory_order_relaxed);
        if (have == 0 || c->out_n >= NET_STREAM_AHEAD)
            break;
        size_t most = NET_BLOCK - 64;
        take_out(c, rq, have < most ? have : most);
    }
    size_t have = atomic_load_explicit(&st->put, memory_order_acquire) -
                  atomic_load_explicit(&st->got, memory_order_relaxed);
    if (st->end_seen && have == 0) {
        if (st->chunked && !st->mute)
            net_out__put(c, "0\r\n\r\n", 5);
        return true;
    }
    if (st->on_room && have <= st->cap / 2 && !st->end_seen && atomic_load(&st->wants_room)) {
        atomic_store(&st->wants_room, false);
        st->on_room(rq, st->on_room_arg);
    }
    return false;
}
