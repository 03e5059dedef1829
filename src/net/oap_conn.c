/*
 * One connection's bytes.
 *
 * In: what arrives is read into the loop's scratch buffer and taken apart there; only a frame that has
 * begun and is not complete is copied into the connection's own buffer, which is given back as soon as it
 * is empty. A connection that does not take its answers is not read from.
 *
 * Out: answers are queued and written at the end of the loop's iteration, many with one system call.
 *
 * One timer watches everything that can take too long: a frame being read, answers not being taken, a
 * request's deadline, silence. It is armed for the earliest and looks at all of them when it fires.
 *
 * End: a peer that breaks the framing gets one error frame; then we half close and throw away what it still
 * sends for a second, so that the frame is not lost to a reset.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"
#include "net/oap_server_internal.h"

enum { READS_PER_EVENT = 4, IOV_COUNT = 64, LINGER_MS = 1000, TX_PAUSE = 4 << 20 };

#define NS_PER_MS INT64_C(1000000)

static struct net_oap_server *server_of(const struct net_oap_conn *c)
{
    return c->shard->server;
}

static int64_t now_of(const struct net_oap_conn *c)
{
    return net_loop_now_ns(c->shard->loop);
}

/* ---- what epoll watches ---- */

static bool tx_clogged(const struct net_oap_conn *c)
{
    return atomic_load_explicit(&c->tx_bytes, memory_order_relaxed) > TX_PAUSE;
}

static void watch(struct net_oap_conn *c)
{
    uint32_t events = EPOLLRDHUP;
    if (!tx_clogged(c))
        events |= EPOLLIN;
    if (c->out_first != NULL)
        events |= EPOLLOUT;
    if (!c->dead && events != c->events) {
        c->events = events;
        net_loop_change(c->shard->loop, &c->nf, events);
    }
}

/* ---- time ---- */

void net_oap_conn__arm(struct net_oap_conn *c, int64_t at_ns)
{
    if (!c->dead && at_ns != INT64_MAX && (!net_timer_armed(&c->timer) || at_ns < c->timer.at_ns))
        net_timer_set(c->shard->loop, &c->timer, at_ns);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Expires what is due; returns when to look again. */
static int64_t check_requests(struct net_oap_conn *c, int64_t now_ns)
{
    int64_t next_ns = INT64_MAX;
    for (struct net_oap_req *rq = c->first; rq != NULL; rq = rq->next) {
        if (net_oap_req__over(rq))
            continue;
        if (rq->deadline_ns <= now_ns)
            net_oap_req__expire(rq);
        else
            next_ns = earlier(next_ns, rq->deadline_ns);
    }
    return next_ns;
}

static void on_timer(struct net_timer *t)
{
    struct net_oap_conn *c = (struct net_oap_conn *)((char *)t - offsetof(struct net_oap_conn, timer));
    const struct net_oap_limits *l = &server_of(c)->limits;
    int64_t now_ns = now_of(c), next_ns = check_requests(c, now_ns);
    int64_t read_by =
        c->rx.n > 0 && !tx_clogged(c) ? c->frame_began_ns + l->read_timeout_ms * NS_PER_MS : INT64_MAX;
    int64_t write_by =
        c->out_first != NULL ? c->write_began_ns + l->write_timeout_ms * NS_PER_MS : INT64_MAX;
    int64_t idle_by = c->first == NULL ? c->active_ns + l->idle_timeout_ms * NS_PER_MS : INT64_MAX;
    int64_t linger_by = c->shut ? c->linger_until_ns : INT64_MAX;
    if (read_by <= now_ns && !c->closing)
        net_oap__reject(server_of(c), NET_REJECT_READ_TIMEOUT);
    else if (write_by <= now_ns)
        net_oap__reject(server_of(c), NET_REJECT_WRITE_TIMEOUT);
    int64_t due = earlier(earlier(read_by, write_by), earlier(idle_by, linger_by));
    if (due <= now_ns)
        net_oap_conn__kill(c);
    else
        net_oap_conn__arm(c, earlier(due, next_ns));
}

/* ---- in ---- */

static void half_close(struct net_oap_conn *c)
{
    if (c->shut)
        return;
    c->shut = true;
    shutdown(c->nf.fd, SHUT_WR);
    c->linger_until_ns = now_of(c) + LINGER_MS * NS_PER_MS;
    net_oap_conn__arm(c, c->linger_until_ns);
}

static void broken(struct net_oap_conn *c, const struct net_oap_head *head, const char *why)
{
    net_oap__reject(server_of(c), NET_REJECT_FRAMING);
    c->closing = true;
    net_oap_req__refuse(c, head, ERR_BAD_REQUEST, why);
}

static struct net_oap_req *find(struct net_oap_conn *c, uint64_t corr)
{
    for (struct net_oap_req *rq = c->first; rq != NULL; rq = rq->next)
        if (rq->head.corr == corr && !net_oap_req__over(rq))
            return rq;
    return NULL;
}

static void take_frame(struct net_oap_conn *c, const struct net_oap_frame *f)
{
    unsigned flags = f->head.flags;
    struct net_oap_req *open = find(c, f->head.corr);
    if (!(flags & NET_OAP_REQ))
        broken(c, &f->head, "only requests are taken");
    else if ((flags & NET_OAP_START) && open != NULL)
        broken(c, &f->head, "corr is in use");
    else if (flags & NET_OAP_START)
        net_oap_req__start(c, f);
    else if (open != NULL && (flags & NET_OAP_END))
        net_oap_req__cancel(open);
    else if (open != NULL || !(flags & NET_OAP_END) || f->payload.n > 0)
        net_oap_req__refuse(c, &f->head, ERR_BAD_REQUEST, "a request begins with START and is one frame");
    /* else: the end of a stream that has just ended by itself; both sides were right. */
}

/* Takes whole frames off the front; returns how many bytes they were. */
static size_t take_frames(struct net_oap_conn *c, struct bytes in)
{
    size_t taken = 0;
    while (!c->closing && !c->dead && !tx_clogged(c)) {
        struct net_oap_frame f;
        size_t used;
        const char *why;
        enum err e = net_oap_next(bytes_of(in.p + taken, in.n - taken), server_of(c)->limits.frame_max, &f,
                                  &used, &why);
        if (e == ERR_EMPTY)
            return taken;
        if (e != ERR_OK) {
            broken(c, &f.head, why);
            break;
        }
        taken += used;
        take_frame(c, &f);
    }
    return c->closing ? in.n : taken; /* nobody reads the rest */
}

static void keep_rest(struct net_oap_conn *c, struct bytes in, size_t taken)
{
    if (taken == in.n)
        return;
    buf_put(&c->rx, in.p + taken, in.n - taken);
    CHECK(c->rx.err != ERR_TOO_LARGE);
    c->frame_began_ns = now_of(c);
    net_oap_conn__arm(c, c->frame_began_ns + server_of(c)->limits.read_timeout_ms * NS_PER_MS);
}

/* Frames in the connection's own buffer; afterwards it holds one that is incomplete, or is gone. */
static void take_from_rx(struct net_oap_conn *c)
{
    size_t taken = take_frames(c, buf_bytes(&c->rx));
    if (c->dead)
        return;
    if (taken > 0) {
        buf_consume(&c->rx, taken);
        c->frame_began_ns = now_of(c);
    }
    if (c->rx.n == 0) {
        size_t max = c->rx.max;
        buf_fini(&c->rx);
        buf_init(&c->rx, max);
    }
}

static void take_bytes(struct net_oap_conn *c, struct bytes in)
{
    if (c->shut || c->closing)
        return;
    c->active_ns = now_of(c);
    if (c->rx.n == 0) {
        size_t taken = take_frames(c, in);
        if (!c->dead)
            keep_rest(c, in, taken);
    } else {
        buf_put(&c->rx, in.p, in.n);
        take_from_rx(c);
    }
    if (!c->dead && c->rx.err != ERR_OK)
        net_oap_conn__kill(c); /* no memory */
}

static void on_readable(struct net_oap_conn *c)
{
    for (int i = 0; i < READS_PER_EVENT && !c->dead && !tx_clogged(c); i++) {
        ssize_t n = recv(c->nf.fd, c->shard->scratch, NET_OAP_SCRATCH, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n <= 0) {
            net_oap_conn__kill(c);
            return;
        }
        take_bytes(c, bytes_of(c->shard->scratch, (size_t)n));
        if ((size_t)n < NET_OAP_SCRATCH)
            return;
    }
}

/* ---- out ---- */

void net_oap_conn__mark_dirty(struct net_oap_conn *c)
{
    if (c->dirty || c->dead)
        return;
    c->dirty = true;
    c->next_dirty = c->shard->dirty;
    c->shard->dirty = c;
}

void net_oap_conn__queue(struct net_oap_conn *c, struct net_oap_out *out)
{
    out->next = NULL;
    if (c->out_first == NULL) {
        c->out_first = out;
        c->write_began_ns = now_of(c);
        net_oap_conn__arm(c, c->write_began_ns + server_of(c)->limits.write_timeout_ms * NS_PER_MS);
    } else {
        c->out_last->next = out;
    }
    c->out_last = out;
    net_oap_conn__mark_dirty(c);
}

static void written(struct net_oap_conn *c, size_t n)
{
    c->write_began_ns = now_of(c);
    /* seq_cst: pairs with wants_room in net_oap_send, either side sees the other. */
    atomic_fetch_sub(&c->tx_bytes, n);
    while (n > 0) {
        struct net_oap_out *o = c->out_first;
        CHECK(o != NULL); /* no more was written than there was */
        size_t part = o->n - o->at < n ? o->n - o->at : n;
        o->at += part;
        n -= part;
        if (o->at < o->n)
            break;
        c->out_first = o->next;
        if (c->out_first == NULL)
            c->out_last = NULL;
        free(o);
    }
}

/* False: the connection is gone. */
static bool write_some(struct net_oap_conn *c)
{
    while (c->out_first != NULL) {
        struct iovec iov[IOV_COUNT];
        int count = 0;
        for (struct net_oap_out *o = c->out_first; o != NULL && count < IOV_COUNT; o = o->next)
            iov[count++] = (struct iovec){o->bytes + o->at, o->n - o->at};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)count};
        ssize_t n = sendmsg(c->nf.fd, &m, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (n < 0) {
            net_oap_conn__kill(c);
            return false;
        }
        written(c, (size_t)n);
    }
    return true;
}

static void tell_room(struct net_oap_conn *c)
{
    if (atomic_load(&c->tx_bytes) > server_of(c)->limits.stream_buffer / 2)
        return;
    for (struct net_oap_req *rq = c->first; rq != NULL; rq = rq->next) {
        if (rq->on_room != NULL && !net_oap_req__over(rq) && atomic_exchange(&rq->wants_room, false))
            rq->on_room(rq, rq->on_room_arg);
    }
}

static bool idle(const struct net_oap_conn *c)
{
    return !c->dead && c->out_first == NULL && c->inflight == 0;
}

void net_oap_conn__close_if_idle(struct net_oap_conn *c)
{
    if (idle(c) && c->closing) {
        half_close(c);
    } else if (idle(c) && atomic_load_explicit(&server_of(c)->stopping, memory_order_relaxed)) {
        /* A request that has come and was not read yet gets its answer. Looked at once: who goes on asking does not go on for ever. */
        if (!c->last_look) {
            c->last_look = true;
            on_readable(c);
            if (!idle(c) || c->rx.n > 0)
                return;
        }
        net_oap_conn__kill(c);
    }
}

static void flush(struct net_oap_conn *c)
{
    if (!write_some(c))
        return;
    tell_room(c);
    if (!tx_clogged(c) && c->rx.n > 0)
        take_from_rx(c); /* frames that were held back */
    if (c->dead)
        return;
    if (c->closing && c->out_first == NULL)
        half_close(c);
    net_oap_conn__close_if_idle(c);
    if (!c->dead)
        watch(c);
}

void net_oap_conn__flush_dirty(struct net_batch *b)
{
    struct net_oap_shard *sh = (struct net_oap_shard *)((char *)b - offsetof(struct net_oap_shard, batch));
    while (sh->dirty != NULL) {
        struct net_oap_conn *c = sh->dirty;
        sh->dirty = c->next_dirty;
        c->dirty = false;
        if (c->dead)
            net_oap_conn__free_if_done(c);
        else
            flush(c);
    }
    net_oap_req__bury(sh);
}

/* ---- life ---- */

static void on_event(struct net_fd *nf, uint32_t events)
{
    struct net_oap_conn *c = (struct net_oap_conn *)((char *)nf - offsetof(struct net_oap_conn, nf));
    CHECK_MAGIC(c, NET_OAP_CONN_MAGIC);
    if (events & EPOLLIN)
        on_readable(c);
    else if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP))
        net_oap_conn__kill(c);
    if (events & EPOLLOUT)
        net_oap_conn__mark_dirty(c);
}

void net_oap_conn__open(struct net_oap_shard *sh, int fd, const struct net_peer *peer)
{
    struct net_oap_server *s = sh->server;
    struct net_oap_conn *c = calloc(1, sizeof *c);
    if (c == NULL) {
        close(fd);
        return;
    }
    c->magic = NET_OAP_CONN_MAGIC;
    c->nf = (struct net_fd){.fd = fd, .fn = on_event};
    c->timer.fn = on_timer;
    c->shard = sh;
    c->peer = *peer;
    c->active_ns = now_of(c);
    c->events = EPOLLIN | EPOLLRDHUP;
    buf_init(&c->rx, s->limits.frame_max + NET_OAP_SCRATCH);
    if (net_loop_add(sh->loop, &c->nf, c->events) != ERR_OK) {
        close(fd);
        free(c);
        return;
    }
    c->next = sh->conns;
    if (c->next != NULL)
        c->next->prev = c;
    sh->conns = c;
    atomic_fetch_add_explicit(&s->conns, 1, memory_order_relaxed);
    if (s->hooks.conn != NULL)
        s->hooks.conn(s->hooks.ctx, 1);
    net_oap_conn__arm(c, c->active_ns + s->limits.idle_timeout_ms * NS_PER_MS);
}

/* The struct stays until its requests are ended and the iteration's list is done with it. */
void net_oap_conn__free_if_done(struct net_oap_conn *c)
{
    if (!c->dead || c->first != NULL || c->dirty)
        return;
    c->magic = 0;
    free(c);
}

void net_oap_conn__kill(struct net_oap_conn *c)
{
    struct net_oap_server *s = server_of(c);
    if (c->dead)
        return;
    net_loop_remove(c->shard->loop, &c->nf);
    net_timer_cancel(c->shard->loop, &c->timer);
    close(c->nf.fd);
    c->dead = true;
    for (struct net_oap_out *o = c->out_first, *next; o != NULL; o = next) {
        next = o->next;
        free(o);
    }
    c->out_first = c->out_last = NULL;
    buf_fini(&c->rx);
    net_oap_cap__unref(c->cap);
    c->cap = NULL;
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        c->shard->conns = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    atomic_fetch_sub_explicit(&s->conns, 1, memory_order_relaxed);
    if (s->hooks.conn != NULL)
        s->hooks.conn(s->hooks.ctx, -1);
    /* Freed at the end of the iteration at the earliest: callers up the stack still look at c->dead. */
    if (!c->dirty) {
        c->dirty = true;
        c->next_dirty = c->shard->dirty;
        c->shard->dirty = c;
    }
    for (struct net_oap_req *rq = c->first; rq != NULL; rq = rq->next)
        net_oap_req__abandon(rq);
}
