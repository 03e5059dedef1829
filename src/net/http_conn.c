/*
 * One connection: its life, its output, its time. What comes in is http_intake.c.
 *
 * Descriptors are edge-triggered and registered once, so nothing but read and write is called per request.
 * Out: answers collect while a connection's input is worked off (or, for those from elsewhere, during the loop's
 * iteration) and leave in one call.
 * Time: one timer per connection for all its time limits. It is moved only when the next limit comes earlier; when it fires
 * too early it looks again. A busy connection touches the heap about once per time limit, not once per request.
 * End: refusals close with care: output is shut down and input thrown away for a while, because closing with unread
 * input would make the kernel send a reset that can overtake the answer.
 */
#include "net/http_internal.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "rt/os.h"

enum {
    PASSES_PER_TURN = 64, /* of a stream, NET_STREAM_AHEAD bytes each */
    LINGER_MS = 1000,
    ASK_AGAIN_MS = 20, /* for what is being fetched, if nobody says that it is there */
};

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

/* ---- end of a connection ---- */

static void report(struct net_req *rq, bool complete)
{
    struct net_server *s = rq->w->s;
    net__count(&rq->w->responses);
    net_server__completed(rq->w);
    if (!s->hooks.done)
        return;
    struct net_done d = {
        .rq = rq,
        .route = net_req_route(rq),
        .method = rq->method,
        .corr_id = rq->corr_id,
        .traceparent = rq->traceparent,
        .status = rq->status,
        .problem = rq->problem,
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
void net_conn__cut(struct net_req *rq, enum err why)
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
    net_intake__drop(c);
    struct net_req *lists[2] = {c->sent_head, c->pipe_head};
    c->sent_head = c->sent_tail = c->pipe_head = c->pipe_tail = c->cur = NULL;
    c->pipe_n = 0;
    for (size_t i = 0; i < 2; i++) {
        for (struct net_req *rq = lists[i], *next; rq; rq = next) {
            next = rq->next;
            net_conn__cut(rq, why == ERR_OK ? ERR_DISCONNECTED : why);
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
    net_intake__drop(c);
    if (c->tls)
        net_tls_end_output(c->tls);
    shutdown(c->nf.fd, SHUT_WR);
    c->linger_by_ns = net_conn__now_ns(c) + LINGER_MS * NET_MS_NS;
    net_conn__arm(c, c->linger_by_ns);
    c->readable = true;
    net_conn__resume(c);
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

static void end_if_idle(struct net_conn *c);

static void conn_flush(struct net_conn *c)
{
    enum err why = ERR_DISCONNECTED;
    enum net_io io;
    uint64_t before = c->sent;
    bool had_to_wait = c->blocked || c->starved;
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
        c->active_ns = net_conn__now_ns(c);
    if (c->eof)
        net_conn__arm(c, c->eof_by_ns);
    if (c->out_head) {
        if (!c->blocked && !c->starved) {
            net_conn__dirty(c); /* used up its turn */
        } else if (!had_to_wait || c->sent != before) {
            c->write_by_ns = net_conn__now_ns(c) + c->w->limits.write_timeout_ms * NET_MS_NS;
            net_conn__arm(c, c->write_by_ns);
        }
        if (c->starved) {
            c->ask_at_ns = net_conn__now_ns(c) + ASK_AGAIN_MS * NET_MS_NS;
            net_conn__arm(c, c->ask_at_ns);
        }
    } else if (c->closing || (c->eof && !c->pipe_head)) {
        conn_finish(c);
        return;
    } else if (!c->pipe_head) {
        if (net_server__closed(c->w->s)) {
            end_if_idle(c);
            if (c->dead)
                return;
        }
        net_conn__arm(c, c->active_ns + c->w->limits.idle_timeout_ms * NET_MS_NS);
    }
    if (c->paused && c->pipe_n < c->w->limits.max_pipeline && c->out_n <= NET_OUT_HIGH)
        net_conn__resume(c);
}

/* ---- time ---- */

static int64_t idle_by(const struct net_conn *c)
{
    int64_t ms = c->w->limits.idle_timeout_ms;
    if (c->tls && !c->heard && c->w->limits.read_timeout_ms < ms)
        ms = c->w->limits.read_timeout_ms; /* the handshake */
    return c->active_ns + ms * NET_MS_NS;
}

/* An event stream whose reader has closed its side: most likely nobody reads, and a quiet stream would never find out. */
static bool stream_forsaken(const struct net_conn *c)
{
    const struct net_req *rq = c->pipe_head;
    return c->eof && rq && rq->phase == NET_PHASE_STREAM && !rq->stream->sized;
}

/* Nothing leaves until the client has read, or the disk was. */
static bool stuck(const struct net_conn *c)
{
    return c->out_head && (c->blocked || c->starved);
}

static int64_t next_limit(const struct net_conn *c)
{
    int64_t at = OS_NEVER;
    if (c->lingering)
        return c->linger_by_ns;
    if (net_intake__reading(c) && c->read_by_ns < at)
        at = c->read_by_ns;
    for (const struct net_req *rq = c->pipe_head; rq; rq = rq->next)
        if (rq->phase == NET_PHASE_HANDLER && rq->deadline_ns < at)
            at = rq->deadline_ns;
    if (stuck(c) && c->write_by_ns < at)
        at = c->write_by_ns;
    if (c->starved && c->ask_at_ns < at)
        at = c->ask_at_ns;
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

static void on_timer(struct net_timer *t)
{
    struct net_conn *c = (struct net_conn *)(void *)((char *)t - offsetof(struct net_conn, timer));
    int64_t now = net_conn__now_ns(c);
    if (c->lingering) {
        if (c->linger_by_ns <= now)
            net_conn__close(c, ERR_OK);
        else
            net_conn__arm(c, c->linger_by_ns);
        return;
    }
    if (stuck(c) && c->write_by_ns <= now) {
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
    net_intake__expire(c, now);
    if (c->dead)
        return;
    if (c->starved) {
        c->ask_at_ns = now + ASK_AGAIN_MS * NET_MS_NS;
        net_conn__dirty(c);
    }
    net_conn__arm(c, next_limit(c));
}

/* ---- events ---- */

/* What the input made ready leaves while its request and buffers are still in the cache. */
static void current_end(struct net_conn *c, bool was_dirty)
{
    c->w->current = NULL;
    if (was_dirty || !c->is_dirty)
        return;
    c->is_dirty = false;
    if (!c->dead)
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
            net_intake__discard(c);
        else
            net_intake__read(c);
    }
    current_end(c, was_dirty);
}

static bool idle(const struct net_conn *c)
{
    return !c->dead && !c->pipe_head && !c->out_head && c->reading == NET_READ_IDLE && !c->lingering;
}

/* While draining. A request whose bytes have come and were not read yet is there: it gets its answer, the last one. */
static void end_if_idle(struct net_conn *c)
{
    if (idle(c))
        on_event(&c->nf, EPOLLIN);
    if (idle(c) && net_conn__in_n(c) == 0)
        net_conn__close(c, ERR_OK);
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
    net__count(&w->accepted);
    if (s->hooks.conn)
        s->hooks.conn(s->hooks.ctx, 1);
    if (net_loop_add(w->loop, &c->nf, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) != ERR_OK) {
        net_conn__close(c, ERR_BUSY);
        return;
    }
    net_conn__arm(c, idle_by(c));
    if (refused)
        net_refuse__conn(c);
}

/* Those that are not on one of the lists any more. Not when the lists are empty: one client that sends as fast as it is read keeps
 * them filled for as long as it likes, and whoever came and went meanwhile would stay. */
static void bury(struct net_worker *w)
{
    for (struct net_conn **at = &w->dead, *c; (c = *at);) {
        if (c->is_dirty || c->is_resume) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        c->next = w->free_conns;
        w->free_conns = c;
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
            net_intake__discard(c);
        else
            net_intake__resumed(c);
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
    if (w->resume || w->dirty)
        net_loop_again(w->loop);
    bury(w);
}

void net_conn__go_on(struct net_worker *w)
{
    for (struct net_conn *c = w->conns; c; c = c->next)
        if (c->starved)
            net_conn__dirty(c);
}

/* No more requests are wanted: connections without one end now, the others with their last response. */
void net_conn__drain(struct net_worker *w)
{
    for (struct net_conn *c = w->conns, *next; c; c = next) {
        next = c->next;
        end_if_idle(c);
    }
}
