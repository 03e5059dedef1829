/*
 * The client's connection: opened when the first call waits and, after it broke, again, with a back-off between failed
 * attempts; frames out, frames in. The capability travels with the first call of a connection and with the first after it was
 * replaced.
 */
#include "net/oap_client_internal.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/check.h"

#define NS_PER_MS INT64_C(1000000)

static void connection_lost(struct net_oap_client *c, enum err why);

void net_oap_client__watch(struct net_oap_client *c)
{
    uint32_t events = EPOLLIN | (c->tx.n > 0 || c->state == CONN_CONNECTING ? (uint32_t)EPOLLOUT : 0);
    if (events != c->events) {
        c->events = events;
        net_loop_change(c->loop, &c->nf, events);
    }
}

/* ---- writing ---- */

static void write_out(struct net_oap_client *c)
{
    size_t done = 0;
    while (done < c->tx.n) {
        ssize_t n = send(c->nf.fd, c->tx.p + done, c->tx.n - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0) {
            connection_lost(c, ERR_DISCONNECTED);
            return;
        }
        done += (size_t)n;
    }
    buf_consume(&c->tx, done);
    net_oap_client__watch(c);
}

static void put_frame(struct net_oap_client *c, struct net_oap_stream *call)
{
    struct bytes cap = {NULL, 0}, payload = bytes_of(call->payload, call->payload_n);
    struct buf small;
    call->head.flags = NET_OAP_REQ | NET_OAP_START | NET_OAP_END;
    buf_init(&small, call->payload_n + call->payload_n / 8 + 1024);
    if (c->cfg.compress_from > 0 && payload.n >= c->cfg.compress_from &&
        net_oap_deflate(payload, &small) == ERR_OK && small.n < payload.n) {
        payload = buf_bytes(&small);
        call->head.flags |= NET_OAP_COMP;
    }
    uint8_t token[NET_OAP_CAP_MAX];
    rt_lock_take(&c->lock);
    if (c->token != NULL && c->sent_version != c->token_version) {
        memcpy(token, c->token->text, c->token->n);
        cap = bytes_of(token, c->token->n);
        c->sent_version = c->token_version;
    }
    rt_lock_release(&c->lock);
    net_oap_put(&c->tx, &call->head, cap, payload);
    explicit_bzero(token, cap.n);
    buf_fini(&small);
}

static void send_waiting(struct net_oap_client *c)
{
    while (c->state == CONN_UP && c->wait_first != NULL && map64_count(&c->sent) < c->cfg.inflight_max) {
        struct net_oap_stream *call = c->wait_first;
        call->head.corr = ++c->next_corr;
        if (map64_add(&c->sent, call->head.corr, call) != ERR_OK) {
            net_oap_call__over(call, ERR_NO_MEMORY, 0, bytes_of(NULL, 0));
            continue;
        }
        net_oap_call__unwait(c, call);
        call->state = CALL_SENT;
        put_frame(c, call);
    }
    if (c->state == CONN_UP && c->tx.err != ERR_OK)
        connection_lost(c, ERR_NO_MEMORY);
    else if (c->state == CONN_UP && c->tx.n > 0)
        write_out(c);
}

/* ---- reading ---- */

/* Appends the frame's payload, inflated, to the call's answer. */
static enum err collect(struct net_oap_stream *call, const struct net_oap_frame *f)
{
    if (f->head.flags & NET_OAP_COMP) {
        struct buf b;
        buf_init(&b, NET_OAP_INFLATED_MAX + 65536);
        enum err e = net_oap_inflate(f->payload, NET_OAP_INFLATED_MAX, &b);
        if (e == ERR_OK)
            buf_put_bytes(&call->answer, buf_bytes(&b));
        buf_fini(&b);
        if (e != ERR_OK)
            return ERR_CORRUPT;
    } else {
        buf_put_bytes(&call->answer, f->payload);
    }
    return call->answer.err;
}

static void take_answer(struct net_oap_stream *call, const struct net_oap_frame *f)
{
    bool end = f->head.flags & NET_OAP_END;
    bool simple = !(f->head.flags & NET_OAP_COMP) && call->answer.n == 0 && (end || call->is_stream);
    struct bytes payload = f->payload;
    if (!simple) {
        enum err e = collect(call, f);
        if (e != ERR_OK) {
            net_oap_call__over(call, e, 0, bytes_of(NULL, 0));
            return;
        }
        payload = buf_bytes(&call->answer);
    }
    if (end) {
        net_oap_call__over(call, ERR_OK, f->head.code, payload);
    } else if (call->is_stream) {
        if (!call->answered)
            net_timer_cancel(call->client->loop, &call->timer);
        call->answered = true;
        call->on_frame(call->arg, ERR_OK, f->head.code, payload, false);
        if (call->state == CALL_SENT)
            buf_reset(&call->answer);
    }
}

static void take_frame(struct net_oap_client *c, const struct net_oap_frame *f)
{
    if (f->head.flags & NET_OAP_REQ) {
        connection_lost(c, ERR_CORRUPT);
        return;
    }
    struct net_oap_stream *call = map64_get(&c->sent, f->head.corr);
    if (call == NULL) {
        if ((f->head.flags & NET_OAP_END) && atomic_load_explicit(&c->owed, memory_order_relaxed) > 0)
            atomic_fetch_sub_explicit(&c->owed, 1, memory_order_relaxed);
        /* Late answers to calls that gave up are fine. An error for nobody means that the server broke with
         * us. */
        if (f->head.corr == 0 && f->head.code >= 400)
            connection_lost(c, f->head.code == 429 ? ERR_BUSY : ERR_CORRUPT);
        return;
    }
    atomic_fetch_add_explicit(&call->refs, 1, memory_order_relaxed);
    take_answer(call, f);
    net_oap_call__unref(call);
}

static void take_frames(struct net_oap_client *c)
{
    size_t taken = 0;
    while (c->state == CONN_UP) {
        struct net_oap_frame f;
        size_t used;
        const char *why;
        enum err e =
            net_oap_next(bytes_of(c->rx.p + taken, c->rx.n - taken), NET_OAP_FRAME_MAX, &f, &used, &why);
        if (e == ERR_EMPTY)
            break;
        if (e != ERR_OK) {
            connection_lost(c, ERR_CORRUPT);
            return;
        }
        taken += used;
        take_frame(c, &f);
    }
    if (c->state == CONN_UP)
        buf_consume(&c->rx, taken);
}

static void on_readable(struct net_oap_client *c)
{
    uint8_t *p = buf_reserve(&c->rx, NET_OAP_READ_BYTES);
    if (p == NULL) {
        connection_lost(c, ERR_NO_MEMORY);
        return;
    }
    ssize_t n = recv(c->nf.fd, p, NET_OAP_READ_BYTES, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (n <= 0) {
        connection_lost(c, ERR_DISCONNECTED);
        return;
    }
    buf_commit(&c->rx, (size_t)n);
    take_frames(c);
    net_oap_client__work(c);
}

/* ---- the connection ---- */

void net_oap_client__tell_state(struct net_oap_client *c, enum err state)
{
    atomic_store_explicit(&c->up, state == ERR_OK, memory_order_relaxed);
    if (c->cfg.on_state != NULL)
        c->cfg.on_state(c->cfg.ctx, state);
}

void net_oap_client__drop(struct net_oap_client *c)
{
    net_loop_remove(c->loop, &c->nf);
    close(c->nf.fd);
    c->nf.fd = -1;
    c->state = CONN_NONE;
    atomic_store_explicit(&c->owed, 0, memory_order_relaxed);
    c->sent_version = 0;
    net_timer_cancel(c->loop, &c->timer);
    buf_reset(&c->tx);
    buf_reset(&c->rx);
}

void net_oap_client__fail_sent(struct net_oap_client *c, enum err why)
{
    /* Callbacks may not add to `sent` (calls go through the inbox), so starting over each time is enough.
     */
    void *call;
    for (size_t at = 0; map64_next(&c->sent, &at, NULL, &call); at = 0)
        net_oap_call__over(call, why, 0, bytes_of(NULL, 0));
}

void net_oap_client__fail_waiting(struct net_oap_client *c, enum err why)
{
    while (c->wait_first != NULL)
        net_oap_call__over(c->wait_first, why, 0, bytes_of(NULL, 0));
}

static void connection_lost(struct net_oap_client *c, enum err why)
{
    bool was_up = c->state == CONN_UP;
    if (c->state == CONN_NONE)
        return;
    net_oap_client__drop(c);
    if (!c->ended)
        net_timer_set(c->loop, &c->timer,
                      net_loop_now_ns(c->loop) + rt_backoff_next_ms(&c->backoff) * NS_PER_MS);
    if (was_up) {
        net_oap_client__tell_state(c, why);
        net_oap_client__fail_sent(c, why == ERR_NO_MEMORY ? ERR_DISCONNECTED : why);
    } else {
        net_oap_client__fail_waiting(c, ERR_REFUSED);
    }
}

static void connected(struct net_oap_client *c)
{
    c->state = CONN_UP;
    net_timer_cancel(c->loop, &c->timer);
    rt_backoff_reset(&c->backoff);
    net_oap_client__tell_state(c, ERR_OK);
    net_oap_client__watch(c);
    send_waiting(c);
}

static void on_event(struct net_fd *nf, uint32_t events)
{
    struct net_oap_client *c = (struct net_oap_client *)((char *)nf - offsetof(struct net_oap_client, nf));
    if (c->state == CONN_CONNECTING) {
        int error = 0;
        socklen_t n = sizeof error;
        if (getsockopt(nf->fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 || error != 0)
            connection_lost(c, err_from_errno(error));
        else if (events & EPOLLOUT)
            connected(c);
        return;
    }
    if (events & EPOLLOUT)
        write_out(c);
    if (c->state == CONN_UP && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        on_readable(c);
}

static void connect_now(struct net_oap_client *c)
{
    int fd = socket(c->addr.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd >= 0 && c->addr.sa.sa_family != AF_UNIX)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int rc = fd >= 0 ? connect(fd, &c->addr.sa, c->addr_n) : -1;
    int error = rc == 0 ? 0 : errno;
    c->nf = (struct net_fd){.fd = fd, .fn = on_event};
    c->events = EPOLLIN | EPOLLOUT;
    c->state = CONN_CONNECTING;
    if (fd < 0 || (rc != 0 && error != EINPROGRESS) || net_loop_add(c->loop, &c->nf, c->events) != ERR_OK) {
        /* A full backlog of a Unix socket is EAGAIN, a missing one ENOENT: nobody answers either way. */
        bool refused = error == EAGAIN || error == ENOENT || error == ECONNREFUSED;
        if (fd < 0) {
            c->state = CONN_NONE;
            net_timer_set(c->loop, &c->timer,
                          net_loop_now_ns(c->loop) + rt_backoff_next_ms(&c->backoff) * NS_PER_MS);
            net_oap_client__fail_waiting(c, ERR_BUSY);
        } else {
            connection_lost(c, refused ? ERR_REFUSED : err_from_errno(error));
        }
        return;
    }
    if (rc == 0)
        connected(c);
    else
        net_timer_set(c->loop, &c->timer, net_loop_now_ns(c->loop) + c->cfg.connect_timeout_ms * NS_PER_MS);
}

void net_oap_client__on_timer(struct net_timer *t)
{
    struct net_oap_client *c =
        (struct net_oap_client *)((char *)t - offsetof(struct net_oap_client, timer));
    if (c->state == CONN_CONNECTING)
        connection_lost(c, ERR_TIMEOUT);
    else
        net_oap_client__work(c);
}

/* Sends what waits; connects when that is what it takes and the back-off is over. */
void net_oap_client__work(struct net_oap_client *c)
{
    if (c->ended)
        return;
    if (c->state == CONN_UP)
        send_waiting(c);
    if (c->state == CONN_NONE && c->wait_first != NULL && !net_timer_armed(&c->timer))
        connect_now(c);
    else if (c->state == CONN_NONE && c->cfg.fail_fast)
        net_oap_client__fail_waiting(c, ERR_REFUSED);
}
