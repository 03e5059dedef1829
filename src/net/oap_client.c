/*
 * Callers of any thread put their calls into an inbox and kick the loop, once however many they are.
 * Everything else happens on the loop's thread:
 *
 *   waiting   not sent yet: no connection, or as many outstanding as the server allows
 *   sent      on the connection, found by corr
 *
 * The connection is opened when the first call waits, and after it broke again, with a back-off between
 * failed attempts. The capability travels with the first call of a connection and with the first after it
 * was replaced.
 */
#include "net/oap_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/map.h"
#include "base/rng.h"
#include "net/inbox.h"
#include "net/sock.h"
#include "rt/backoff.h"
#include "rt/oneshot.h"

enum {
    CLIENT_MAGIC = 0x6f61706c,
    CALL_MAGIC = 0x6f61706b,
    READ_BYTES = 64 * 1024,
    ANSWER_MAX = 64 << 20, /* of one call, put together from its frames */
    CLIENT_RANK = 940,
};

#define NS_PER_MS INT64_C(1000000)

enum call_state { CALL_INBOX, CALL_WAITING, CALL_SENT, CALL_OVER };

struct net_oap_stream {
    uint32_t magic;
    atomic_uint refs; /* the client's, and for streams the caller's; the last one frees */
    struct net_oap_client *client;
    struct net_oap_stream *next, *prev; /* in waiting */
    struct net_inbox_item item;
    atomic_bool close_asked; /* release in net_oap_stream_close, acquire on the loop */
    enum call_state state;   /* the loop's */
    bool is_stream, answered;
    struct net_oap_head head;
    struct net_timer timer;
    int64_t deadline_ns;
    net_oap_answer_fn *on_answer;
    net_oap_stream_fn *on_frame;
    void *arg;
    struct buf answer; /* of a call whose answer takes several frames */
    size_t payload_n;
    uint8_t payload[];
};

struct token {
    size_t n;
    char text[];
};

enum conn_state { CONN_NONE, CONN_CONNECTING, CONN_UP };

struct net_oap_client {
    uint32_t magic;
    struct net_oap_client_config cfg;
    struct net_loop *loop;
    union {
        struct sockaddr sa;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un un;
    } addr;
    socklen_t addr_n;

    struct net_inbox *inbox;

    struct rt_lock lock; /* guards the two below */
    struct token *token;
    uint64_t token_version;

    atomic_size_t calls; /* alive, for queue_max */
    atomic_bool up;

    /* the loop's */
    enum conn_state state;
    struct net_fd nf;
    struct net_timer timer; /* connect time-out, or the next attempt */
    struct rt_backoff backoff;
    uint64_t next_corr, sent_version;
    struct map64 sent;
    _Atomic size_t owed; /* the loop's; relaxed: a gauge reads it */
    struct net_oap_stream *wait_first, *wait_last;
    struct buf rx, tx;
    uint32_t events;
    bool ended; /* stopped, and everybody was told */
};

static void client_work(struct net_oap_client *c);
static void connection_lost(struct net_oap_client *c, enum err why);

/* ---- calls ---- */

static void watch(struct net_oap_client *c)
{
    uint32_t events = EPOLLIN | (c->tx.n > 0 || c->state == CONN_CONNECTING ? (uint32_t)EPOLLOUT : 0);
    if (events != c->events) {
        c->events = events;
        net_loop_change(c->loop, &c->nf, events);
    }
}

static void call_unref(struct net_oap_stream *call)
{
    CHECK_MAGIC(call, CALL_MAGIC);
    if (atomic_fetch_sub_explicit(&call->refs, 1, memory_order_acq_rel) > 1)
        return;
    buf_fini(&call->answer);
    call->magic = 0;
    free(call);
}

static void wait_append(struct net_oap_client *c, struct net_oap_stream *call)
{
    call->prev = c->wait_last;
    call->next = NULL;
    if (c->wait_last != NULL)
        c->wait_last->next = call;
    else
        c->wait_first = call;
    c->wait_last = call;
    call->state = CALL_WAITING;
}

static void wait_remove(struct net_oap_client *c, struct net_oap_stream *call)
{
    if (call->prev != NULL)
        call->prev->next = call->next;
    else
        c->wait_first = call->next;
    if (call->next != NULL)
        call->next->prev = call->prev;
    else
        c->wait_last = call->prev;
}

/* The one end of every call: out of all lists, then the callback. */
static void call_over(struct net_oap_stream *call, enum err e, uint16_t status, struct bytes payload)
{
    struct net_oap_client *c = call->client;
    if (call->state == CALL_OVER)
        return;
    if (call->state == CALL_WAITING)
        wait_remove(c, call);
    else if (call->state == CALL_SENT)
        map64_remove(&c->sent, call->head.corr);
    call->state = CALL_OVER;
    net_timer_cancel(c->loop, &call->timer);
    atomic_fetch_sub_explicit(&c->calls, 1, memory_order_relaxed);
    if (call->is_stream)
        call->on_frame(call->arg, e, status, payload, true);
    else
        call->on_answer(call->arg, e, status, payload);
    call_unref(call);
}

/* Tells the server that nobody listens to this stream any more; leaves with what is written next. */
static void put_stop(struct net_oap_client *c, const struct net_oap_stream *call)
{
    if (call->state != CALL_SENT || c->state != CONN_UP)
        return;
    struct net_oap_head h = {
        .flags = NET_OAP_REQ | NET_OAP_END, .app = call->head.app, .code = call->head.code};
    h.corr = call->head.corr;
    net_oap_put(&c->tx, &h, bytes_of(NULL, 0), bytes_of(NULL, 0));
    watch(c);
}

static void on_call_timer(struct net_timer *t)
{
    struct net_oap_stream *call =
        (struct net_oap_stream *)((char *)t - offsetof(struct net_oap_stream, timer));
    if (call->is_stream)
        put_stop(call->client, call);
    else if (call->state == CALL_SENT)
        atomic_fetch_add_explicit(&call->client->owed, 1, memory_order_relaxed);
    call_over(call, call->state == CALL_SENT ? ERR_TIMEOUT : ERR_UNAVAILABLE, 0, bytes_of(NULL, 0));
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
    watch(c);
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
            call_over(call, ERR_NO_MEMORY, 0, bytes_of(NULL, 0));
            continue;
        }
        wait_remove(c, call);
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
            call_over(call, e, 0, bytes_of(NULL, 0));
            return;
        }
        payload = buf_bytes(&call->answer);
    }
    if (end) {
        call_over(call, ERR_OK, f->head.code, payload);
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
    call_unref(call);
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
    uint8_t *p = buf_reserve(&c->rx, READ_BYTES);
    if (p == NULL) {
        connection_lost(c, ERR_NO_MEMORY);
        return;
    }
    ssize_t n = recv(c->nf.fd, p, READ_BYTES, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (n <= 0) {
        connection_lost(c, ERR_DISCONNECTED);
        return;
    }
    buf_commit(&c->rx, (size_t)n);
    take_frames(c);
    client_work(c);
}

/* ---- the connection ---- */

static void tell_state(struct net_oap_client *c, enum err state)
{
    atomic_store_explicit(&c->up, state == ERR_OK, memory_order_relaxed);
    if (c->cfg.on_state != NULL)
        c->cfg.on_state(c->cfg.ctx, state);
}

static void connection_drop(struct net_oap_client *c)
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

static void fail_sent(struct net_oap_client *c, enum err why)
{
    /* Callbacks may not add to `sent` (calls go through the inbox), so starting over each time is enough.
     */
    void *call;
    for (size_t at = 0; map64_next(&c->sent, &at, NULL, &call); at = 0)
        call_over(call, why, 0, bytes_of(NULL, 0));
}

static void fail_waiting(struct net_oap_client *c, enum err why)
{
    while (c->wait_first != NULL)
        call_over(c->wait_first, why, 0, bytes_of(NULL, 0));
}

static void connection_lost(struct net_oap_client *c, enum err why)
{
    bool was_up = c->state == CONN_UP;
    if (c->state == CONN_NONE)
        return;
    connection_drop(c);
    if (!c->ended)
        net_timer_set(c->loop, &c->timer,
                      net_loop_now_ns(c->loop) + rt_backoff_next_ms(&c->backoff) * NS_PER_MS);
    if (was_up) {
        tell_state(c, why);
        fail_sent(c, why == ERR_NO_MEMORY ? ERR_DISCONNECTED : why);
    } else {
        fail_waiting(c, ERR_REFUSED);
    }
}

static void connected(struct net_oap_client *c)
{
    c->state = CONN_UP;
    net_timer_cancel(c->loop, &c->timer);
    rt_backoff_reset(&c->backoff);
    tell_state(c, ERR_OK);
    watch(c);
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
            fail_waiting(c, ERR_BUSY);
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

static void on_client_timer(struct net_timer *t)
{
    struct net_oap_client *c =
        (struct net_oap_client *)((char *)t - offsetof(struct net_oap_client, timer));
    if (c->state == CONN_CONNECTING)
        connection_lost(c, ERR_TIMEOUT);
    else
        client_work(c);
}

/* Sends what waits; connects when that is what it takes and the back-off is over. */
static void client_work(struct net_oap_client *c)
{
    if (c->ended)
        return;
    if (c->state == CONN_UP)
        send_waiting(c);
    if (c->state == CONN_NONE && c->wait_first != NULL && !net_timer_armed(&c->timer))
        connect_now(c);
    else if (c->state == CONN_NONE && c->cfg.fail_fast)
        fail_waiting(c, ERR_REFUSED);
}

/* ---- the inbox ---- */

static void take_call(struct net_oap_client *c, struct net_oap_stream *call)
{
    if (call->state == CALL_INBOX) {
        wait_append(c, call);
        if (call->deadline_ns != OS_NEVER)
            net_timer_set(c->loop, &call->timer, call->deadline_ns);
    }
    if (atomic_load_explicit(&call->close_asked, memory_order_acquire)) {
        put_stop(c, call);
        call_over(call, ERR_CANCELED, 0, bytes_of(NULL, 0));
    } else if (c->ended) {
        call_over(call, ERR_CLOSED, 0, bytes_of(NULL, 0));
    }
}

static void end_all(struct net_oap_client *c)
{
    if (c->ended)
        return;
    c->ended = true;
    if (c->state != CONN_NONE) {
        bool was_up = c->state == CONN_UP;
        connection_drop(c);
        if (was_up)
            tell_state(c, ERR_CLOSED);
    }
    net_timer_cancel(c->loop, &c->timer);
    fail_sent(c, ERR_CLOSED);
    fail_waiting(c, ERR_CLOSED);
}

static struct net_oap_stream *call_of(struct net_inbox_item *item)
{
    return (struct net_oap_stream *)((char *)item - offsetof(struct net_oap_stream, item));
}

static void take_inbox(void *ctx)
{
    struct net_oap_client *c = ctx;
    if (net_inbox_begin(c->inbox))
        end_all(c);
    for (struct net_inbox_item *item; (item = net_inbox_next(c->inbox)) != NULL;) {
        struct net_oap_stream *call = call_of(item);
        take_call(c, call);
        call_unref(call); /* the inbox's */
    }
    client_work(c);
}

static enum err call_submit(struct net_oap_client *c, const struct net_oap_call *spec,
                            struct net_oap_stream **out, net_oap_answer_fn *on_answer,
                            net_oap_stream_fn *on_frame, void *arg)
{
    CHECK_MAGIC(c, CLIENT_MAGIC);
    if (spec->payload.n > NET_OAP_FRAME_MAX - NET_OAP_HEADER - NET_OAP_CAP_MAX)
        return ERR_TOO_LARGE;
    if (atomic_fetch_add_explicit(&c->calls, 1, memory_order_relaxed) >= c->cfg.queue_max) {
        atomic_fetch_sub_explicit(&c->calls, 1, memory_order_relaxed);
        return ERR_BUSY;
    }
    struct net_oap_stream *call = calloc(1, sizeof *call + spec->payload.n);
    if (call == NULL) {
        atomic_fetch_sub_explicit(&c->calls, 1, memory_order_relaxed);
        return ERR_NO_MEMORY;
    }
    call->magic = CALL_MAGIC;
    atomic_init(&call->refs, out != NULL ? 2 : 1);
    call->client = c;
    call->is_stream = on_frame != NULL;
    call->on_answer = on_answer;
    call->on_frame = on_frame;
    call->arg = arg;
    call->deadline_ns = spec->by.at_ns;
    call->timer.fn = on_call_timer;
    call->head.app = spec->app;
    call->head.code = spec->code;
    if (spec->tenant != NULL)
        memcpy(call->head.tenant, spec->tenant, NET_OAP_TENANT);
    buf_init(&call->answer, ANSWER_MAX);
    call->payload_n = spec->payload.n;
    if (spec->payload.n > 0)
        memcpy(call->payload, spec->payload.p, spec->payload.n);
    if (out != NULL)
        *out = call; /* before the loop can call back */

    atomic_fetch_add_explicit(&call->refs, 1, memory_order_relaxed); /* the inbox's */
    enum err e = net_inbox_add(c->inbox, &call->item);
    if (e != ERR_OK) {
        atomic_fetch_sub_explicit(&c->calls, 1, memory_order_relaxed);
        buf_fini(&call->answer);
        free(call);
        return e;
    }
    return ERR_OK;
}

enum err net_oap_call(struct net_oap_client *c, const struct net_oap_call *call, net_oap_answer_fn *fn,
                      void *arg)
{
    return call_submit(c, call, NULL, fn, NULL, arg);
}

enum err net_oap_open(struct net_oap_client *c, const struct net_oap_call *call, net_oap_stream_fn *fn,
                      void *arg, struct net_oap_stream **out_stream)
{
    struct net_oap_stream *st = NULL;
    enum err e = call_submit(c, call, &st, NULL, fn, arg);
    if (e == ERR_OK)
        *out_stream = st;
    return e;
}

void net_oap_stream_close(struct net_oap_stream *st)
{
    CHECK_MAGIC(st, CALL_MAGIC);
    struct net_oap_client *c = st->client;
    atomic_store_explicit(&st->close_asked, true, memory_order_release);
    atomic_fetch_add_explicit(&st->refs, 1, memory_order_relaxed);
    if (net_inbox_add_late(c->inbox, &st->item) != ERR_OK)
        call_unref(st); /* it is inside already and will be looked at */
    call_unref(st);
}

/* ---- waiting ---- */

struct waiter {
    struct rt_oneshot done;
    atomic_uint refs; /* the caller's and the callback's */
    enum err e;
    uint16_t status;
    struct buf payload;
};

static void waiter_unref(struct waiter *w)
{
    if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) > 1)
        return;
    rt_oneshot_fini(&w->done);
    buf_fini(&w->payload);
    free(w);
}

static void on_waited(void *arg, enum err e, uint16_t status, struct bytes payload)
{
    struct waiter *w = arg;
    w->e = e;
    w->status = status;
    buf_put_bytes(&w->payload, payload);
    /* Nobody waits any more: then nobody is told. */
    if (rt_oneshot_send(&w->done, w) != ERR_OK)
        w->e = ERR_CANCELED;
    waiter_unref(w);
}

enum err net_oap_call_wait(struct net_oap_client *c, const struct net_oap_call *call, uint16_t *out_status,
                           struct buf *out_payload)
{
    CHECK(net_loop_current() != c->loop);
    struct waiter *w = calloc(1, sizeof *w);
    if (w == NULL)
        return ERR_NO_MEMORY;
    rt_oneshot_init(&w->done);
    atomic_init(&w->refs, 2);
    buf_init(&w->payload, ANSWER_MAX);
    void *value;
    enum err e = net_oap_call(c, call, on_waited, w);
    if (e != ERR_OK)
        waiter_unref(w); /* the callback's: it will not come */
    else
        e = rt_oneshot_recv(&w->done, call->by, &value);
    if ((e == ERR_TIMEOUT || e == ERR_CANCELED) && rt_oneshot_abandon(&w->done, &value))
        e = ERR_OK; /* it came at the last moment */
    if (e == ERR_OK)
        e = w->e;
    if (e == ERR_OK) {
        buf_put_bytes(out_payload, buf_bytes(&w->payload));
        e = w->payload.err != ERR_OK ? w->payload.err : out_payload->err;
        *out_status = w->status;
    }
    waiter_unref(w);
    return e;
}

/* ---- life ---- */

static enum err client_address(struct net_oap_client *c, const struct net_oap_client_config *cfg)
{
    if (cfg->uds != NULL) {
        if (strlen(cfg->uds) >= sizeof c->addr.un.sun_path)
            return ERR_RANGE;
        c->addr.un.sun_family = AF_UNIX;
        strcpy(c->addr.un.sun_path, cfg->uds);
        c->addr_n = sizeof c->addr.un;
        return ERR_OK;
    }
    struct str host;
    uint16_t port;
    uint8_t addr[16];
    enum err e = net_sock_split(str_from_c(cfg->connect), &host, &port);
    if (e == ERR_OK)
        e = net_addr_parse(host, addr);
    if (e != ERR_OK)
        return e;
    if (memchr(host.p, ':', host.n) == NULL) {
        c->addr.v4.sin_family = AF_INET;
        c->addr.v4.sin_port = htons(port);
        memcpy(&c->addr.v4.sin_addr, addr + 12, 4);
        c->addr_n = sizeof c->addr.v4;
    } else {
        c->addr.v6.sin6_family = AF_INET6;
        c->addr.v6.sin6_port = htons(port);
        memcpy(&c->addr.v6.sin6_addr, addr, 16);
        c->addr_n = sizeof c->addr.v6;
    }
    return ERR_OK;
}

static void config_fill(struct net_oap_client_config *cfg)
{
    if (cfg->queue_max == 0)
        cfg->queue_max = 1024;
    if (cfg->inflight_max == 0)
        cfg->inflight_max = 64;
    if (cfg->connect_timeout_ms == 0)
        cfg->connect_timeout_ms = 1000;
    if (cfg->backoff_min_ms == 0)
        cfg->backoff_min_ms = 100;
    if (cfg->backoff_max_ms == 0)
        cfg->backoff_max_ms = 5000;
    if (cfg->backoff_max_ms < cfg->backoff_min_ms)
        cfg->backoff_max_ms = cfg->backoff_min_ms;
}

enum err net_oap_client_create(const struct net_oap_client_config *config, struct net_oap_client **out)
{
    struct net_oap_client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return ERR_NO_MEMORY;
    enum err e = client_address(c, config);
    if (e == ERR_OK)
        e = map64_init(&c->sent, 64);
    if (e == ERR_OK) {
        e = net_inbox_create(config->loop, take_inbox, c, &c->inbox);
        if (e != ERR_OK)
            map64_fini(&c->sent);
    }
    if (e != ERR_OK) {
        free(c);
        return e;
    }
    c->magic = CLIENT_MAGIC;
    c->cfg = *config;
    config_fill(&c->cfg);
    c->loop = config->loop;
    c->nf.fd = -1;
    c->timer.fn = on_client_timer;
    struct rt_backoff_spec spec = {.first_min_ms = c->cfg.backoff_min_ms / 2,
                                   .first_max_ms = c->cfg.backoff_min_ms,
                                   .cap_ms = c->cfg.backoff_max_ms};
    rt_backoff_init(&c->backoff, &spec, rng_secure_u64());
    rt_lock_init(&c->lock, "net.oap_client", CLIENT_RANK);
    buf_init(&c->rx, NET_OAP_FRAME_MAX + READ_BYTES);
    buf_init(&c->tx, c->cfg.inflight_max * (size_t)NET_OAP_FRAME_MAX * 2);
    net_oap_client_set_token(c, config->token);
    *out = c;
    return ERR_OK;
}

void net_oap_client_set_token(struct net_oap_client *c, struct str token)
{
    CHECK(token.n <= NET_OAP_CAP_MAX);
    struct token *fresh = NULL;
    if (token.n > 0) {
        fresh = malloc(sizeof *fresh + token.n);
        CHECK(fresh != NULL);
        fresh->n = token.n;
        memcpy(fresh->text, token.p, token.n);
    }
    rt_lock_take(&c->lock);
    struct token *old = c->token;
    c->token = fresh;
    c->token_version++;
    rt_lock_release(&c->lock);
    if (old != NULL) {
        explicit_bzero(old->text, old->n);
        free(old);
    }
}

size_t net_oap_client_owed(const struct net_oap_client *c)
{
    return atomic_load_explicit(&c->owed, memory_order_relaxed);
}

bool net_oap_client_connected(const struct net_oap_client *c)
{
    CHECK_MAGIC(c, CLIENT_MAGIC);
    return atomic_load_explicit(&c->up, memory_order_relaxed);
}

void net_oap_client_stop(struct net_oap_client *c)
{
    CHECK_MAGIC(c, CLIENT_MAGIC);
    net_inbox_close(c->inbox);
}

void net_oap_client_destroy(struct net_oap_client *c)
{
    if (c == NULL)
        return;
    CHECK_MAGIC(c, CLIENT_MAGIC);
    net_inbox_close_quietly(c->inbox);
    take_inbox(c); /* everybody is told */
    net_inbox_destroy(c->inbox);
    net_oap_client_set_token(c, STR(""));
    buf_fini(&c->rx);
    buf_fini(&c->tx);
    map64_fini(&c->sent);
    rt_lock_fini(&c->lock);
    c->magic = 0;
    free(c);
}
