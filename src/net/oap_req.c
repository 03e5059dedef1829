/*
 * Requests and their answers.
 *
 * An answer is built by whoever gives it, whole frames in one block, and travels to the loop as a message;
 * on the loop's own thread it goes straight into the connection's queue, unless blocks of the same request
 * are still under way.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/oap_server_internal.h"

enum { COMPRESS_FROM = 1024, ARENA_CHUNK = 4096, ARENA_MAX = 1 << 20, DETAIL_MAX = 256 };

#define NS_PER_MS INT64_C(1000000)

static const struct bytes nothing = {NULL, 0};

/* ---- capabilities ---- */

static struct net_oap_cap *cap_new(struct bytes text)
{
    struct net_oap_cap *cap = malloc(sizeof *cap + text.n);
    if (cap != NULL) {
        cap->refs = 1;
        cap->n = text.n;
        memcpy(cap->text, text.p, text.n);
    }
    return cap;
}

void net_oap_cap__unref(struct net_oap_cap *cap)
{
    if (cap == NULL || --cap->refs > 0)
        return;
    explicit_bzero(cap->text, cap->n);
    free(cap);
}

/* ---- out ---- */

static struct net_oap_out *out_new(size_t n)
{
    struct net_oap_out *o = malloc(sizeof *o + n);
    CHECK(o != NULL); /* an answer that was earned cannot be refused */
    *o = (struct net_oap_out){.n = n};
    return o;
}

static size_t payload_room(const struct net_oap_shard *sh)
{
    return sh->server->limits.frame_max - NET_OAP_HEADER;
}

/* As many frames as it takes; END only on the last. */
static struct net_oap_out *out_frames(const struct net_oap_shard *sh, const struct net_oap_head *to,
                                      unsigned flags, uint16_t code, struct bytes payload)
{
    size_t room = payload_room(sh), frames = payload.n == 0 ? 1 : (payload.n + room - 1) / room;
    struct net_oap_out *o = out_new(frames * NET_OAP_HEADER + payload.n);
    struct net_oap_head h = {.code = code, .app = to->app, .corr = to->corr};
    memcpy(h.tenant, to->tenant, sizeof h.tenant);
    uint8_t *p = o->bytes;
    for (size_t i = 0; i < frames; i++) {
        size_t n = payload.n < room ? payload.n : room;
        h.flags = (uint16_t)(i + 1 < frames ? flags & ~(unsigned)NET_OAP_END : flags);
        net_oap_head_put(&h, 0, n, p);
        if (n > 0) {
            memcpy(p + NET_OAP_HEADER, payload.p, n);
            payload.p += n;
            payload.n -= n;
        }
        p += NET_OAP_HEADER + n;
    }
    o->status = code;
    return o;
}

/* What came compressed is answered compressed, when that makes one frame of it. NULL: it does not pay. */
static struct net_oap_out *out_compressed(const struct net_oap_req *rq, unsigned flags, uint16_t code,
                                          struct bytes payload)
{
    if (!(rq->head.flags & NET_OAP_COMP) || payload.n < COMPRESS_FROM || payload.n > NET_OAP_INFLATED_MAX)
        return NULL;
    struct buf b;
    struct net_oap_out *o = NULL;
    buf_init(&b, payload.n + payload.n / 8 + 1024);
    if (net_oap_deflate(payload, &b) == ERR_OK && b.n < payload.n && b.n <= payload_room(rq->shard))
        o = out_frames(rq->shard, &rq->head, flags | NET_OAP_COMP, code, buf_bytes(&b));
    buf_fini(&b);
    return o;
}

static void req_finish(struct net_oap_req *rq, const struct net_oap_out *last);

static void deliver(struct net_oap_out *o)
{
    struct net_oap_req *rq = o->rq;
    struct net_oap_conn *c = rq->conn;
    bool end = o->end, dropped = c->dead || atomic_load_explicit(&rq->gone, memory_order_relaxed);
    struct net_oap_out last = *o;
    if (dropped) {
        atomic_fetch_sub(&c->tx_bytes, o->n);
        free(o);
        net_oap_conn__mark_dirty(c);
    } else {
        rq->bytes_out += o->payload_n;
        net_oap_conn__queue(c, o);
    }
    if (end)
        req_finish(rq, &last);
}

static void on_posted(struct net_msg *m)
{
    struct net_oap_out *o = (struct net_oap_out *)((char *)m - offsetof(struct net_oap_out, msg));
    /* acquire: pairs with the release in out_send; what the sender did to the request is seen. */
    atomic_fetch_sub_explicit(&o->rq->posted, 1, memory_order_acquire);
    deliver(o);
}

static void out_send(struct net_oap_req *rq, struct net_oap_out *o)
{
    o->rq = rq;
    atomic_fetch_add(&rq->conn->tx_bytes, o->n);
    if (net_loop_current() == rq->shard->loop &&
        atomic_load_explicit(&rq->posted, memory_order_acquire) == 0) {
        deliver(o);
        return;
    }
    o->msg.fn = on_posted;
    atomic_fetch_add_explicit(&rq->posted, 1, memory_order_release);
    net_loop_post(rq->shard->loop, &o->msg);
}

/* ---- life ---- */

static void inflight_add(struct net_oap_server *s, int delta)
{
    if (delta > 0)
        atomic_fetch_add_explicit(&s->inflight, 1, memory_order_relaxed);
    else
        atomic_fetch_sub_explicit(&s->inflight, 1, memory_order_relaxed);
    if (s->hooks.inflight != NULL)
        s->hooks.inflight(s->hooks.ctx, delta);
}

static void req_free(struct net_oap_req *rq)
{
    net_oap_cap__unref(rq->cap);
    arena_fini(&rq->arena);
    free(rq->inflated);
    rq->magic = 0;
    free(rq);
}

void net_oap_req__bury(struct net_oap_shard *sh)
{
    while (sh->grave != NULL) {
        struct net_oap_req *rq = sh->grave;
        sh->grave = rq->next_grave;
        req_free(rq);
    }
}

static void req_finish(struct net_oap_req *rq, const struct net_oap_out *last)
{
    struct net_oap_conn *c = rq->conn;
    struct net_oap_shard *sh = rq->shard;
    struct net_oap_server *s = sh->server;
    if (rq->prev != NULL)
        rq->prev->next = rq->next;
    else
        c->first = rq->next;
    if (rq->next != NULL)
        rq->next->prev = rq->prev;
    else
        c->last = rq->prev;
    c->inflight--;
    c->active_ns = net_loop_now_ns(sh->loop);
    if (!c->dead && c->first == NULL)
        net_oap_conn__arm(c, c->active_ns + s->limits.idle_timeout_ms * NS_PER_MS);
    inflight_add(s, -1);
    if (s->hooks.done != NULL) {
        struct net_oap_done d = {.app = rq->head.app,
                                 .code = rq->head.code,
                                 .status = last->status,
                                 .bytes_in = rq->payload.n,
                                 .bytes_out = rq->bytes_out,
                                 .duration_ns = clock_mono_ns(net_loop_clock(sh->loop)) - rq->started_ns,
                                 .complete = !atomic_load_explicit(&rq->gone, memory_order_relaxed)};
        s->hooks.done(s->hooks.ctx, &d);
    }
    rq->next_grave = sh->grave;
    sh->grave = rq;
    net_oap_conn__free_if_done(c);
}

bool net_oap_req__over(const struct net_oap_req *rq)
{
    return atomic_load_explicit(&rq->gone, memory_order_relaxed) ||
           atomic_load_explicit(&rq->ended, memory_order_relaxed);
}

static void call_on_close(struct net_oap_req *rq)
{
    void (*fn)(struct net_oap_req *, void *) = rq->on_close;
    rq->on_close = NULL; /* once */
    if (fn != NULL && !atomic_load_explicit(&rq->ended, memory_order_acquire))
        fn(rq, rq->on_close_arg);
}

void net_oap_req__abandon(struct net_oap_req *rq)
{
    /* release: pairs with net_oap_req_gone */
    atomic_store_explicit(&rq->gone, true, memory_order_release);
    call_on_close(rq);
}

void net_oap_req__expire(struct net_oap_req *rq)
{
    net_oap__reject(rq->shard->server, NET_REJECT_DEADLINE);
    net_oap_req__refuse(rq->conn, &rq->head, rq->late_err != ERR_OK ? rq->late_err : ERR_TIMEOUT,
                        "not answered in time");
    net_oap_req__abandon(rq);
}

void net_oap_req__cancel(struct net_oap_req *rq)
{
    call_on_close(rq);
}

/* ---- the server's own words ---- */

static void say(struct net_oap_conn *c, const struct net_oap_head *to, uint16_t code, struct bytes payload)
{
    struct net_oap_out *o = out_frames(c->shard, to, NET_OAP_RESP | NET_OAP_END, code, payload);
    atomic_fetch_add(&c->tx_bytes, o->n);
    net_oap_conn__queue(c, o);
}

void net_oap_req__refuse(struct net_oap_conn *c, const struct net_oap_head *head, enum err e,
                         const char *detail)
{
    uint8_t bytes[512];
    struct buf b;
    buf_init_fixed(&b, bytes, sizeof bytes);
    struct net_oap_problem p = {.err = e, .detail = str_from_c(detail)};
    net_oap_problem_put(&b, &p);
    CHECK(b.err == ERR_OK);
    say(c, head, (uint16_t)net_oap_problem_status(&p), buf_bytes(&b));
}

static void hello(struct net_oap_conn *c, const struct net_oap_head *head)
{
    char text[128];
    const struct net_oap_limits *l = &c->shard->server->limits;
    int n = snprintf(text, sizeof text, "{\"max_frame\":%zu,\"max_inflight\":%zu,\"versions\":[1]}",
                     l->frame_max, l->inflight_per_conn);
    say(c, head, 200, bytes_of(text, (size_t)n));
}

/* ---- from frame to handler ---- */

static const struct net_oap_handler *handler_of(const struct net_oap_server *s, uint16_t app)
{
    for (size_t i = 0; i < s->handlers_count; i++)
        if (s->handlers[i].app == app)
            return &s->handlers[i];
    return NULL;
}

/* Keeps a new capability for the connection; an empty one leaves the old in force. */
static bool take_cap(struct net_oap_conn *c, struct bytes text)
{
    if (text.n == 0)
        return true;
    if (c->cap != NULL && c->cap->n == text.n && memcmp(c->cap->text, text.p, text.n) == 0)
        return true;
    struct net_oap_cap *cap = cap_new(text);
    if (cap == NULL)
        return false;
    net_oap_cap__unref(c->cap);
    c->cap = cap;
    return true;
}

/* ERR_OK, or why this request goes no further. */
static enum err admit(struct net_oap_conn *c, const struct net_oap_handler *h, const char **out_detail)
{
    struct net_oap_server *s = c->shard->server;
    if (h == NULL) {
        *out_detail = "no such app here";
        return ERR_NOT_FOUND;
    }
    if (atomic_load_explicit(&s->draining, memory_order_relaxed)) {
        net_oap__reject(s, NET_REJECT_DRAINING);
        *out_detail = "draining";
        return s->draining_err;
    }
    if (!h->without_cap && c->cap == NULL) {
        *out_detail = "the first request must carry a capability";
        return ERR_UNAUTHENTICATED;
    }
    if (c->inflight >= s->limits.inflight_per_conn ||
        atomic_load_explicit(&s->inflight, memory_order_relaxed) >= s->limits.inflight) {
        net_oap__reject(s, NET_REJECT_INFLIGHT);
        *out_detail = "too many requests outstanding";
        return ERR_BUSY;
    }
    return ERR_OK;
}

static enum err inflate(const struct net_oap_frame *f, uint8_t **out_bytes, size_t *out_n)
{
    struct buf b;
    buf_init(&b, NET_OAP_INFLATED_MAX + 65536);
    enum err e = net_oap_inflate(f->payload, NET_OAP_INFLATED_MAX, &b);
    if (e == ERR_OK)
        *out_bytes = buf_take(&b, out_n);
    else
        buf_fini(&b);
    return e == ERR_SYNTAX ? ERR_BAD_REQUEST : e;
}

static struct net_oap_req *req_new(struct net_oap_conn *c, const struct net_oap_frame *f, enum err *out_err)
{
    bool compressed = f->head.flags & NET_OAP_COMP;
    uint8_t *inflated = NULL;
    size_t n = f->payload.n;
    *out_err = compressed ? inflate(f, &inflated, &n) : ERR_OK;
    if (*out_err != ERR_OK)
        return NULL;
    struct net_oap_req *rq = malloc(sizeof *rq + (compressed ? 0 : n));
    if (rq == NULL) {
        free(inflated);
        *out_err = ERR_BUSY;
        return NULL;
    }
    memset(rq, 0, sizeof *rq); /* not the payload's place: it is written in a moment */
    rq->magic = NET_OAP_REQ_MAGIC;
    rq->conn = c;
    rq->shard = c->shard;
    rq->head = f->head;
    rq->inflated = inflated;
    if (!compressed && n > 0)
        memcpy(rq->tail, f->payload.p, n);
    rq->payload = bytes_of(compressed ? inflated : rq->tail, n);
    rq->started_ns = net_loop_now_ns(c->shard->loop);
    rq->deadline_ns = rq->started_ns + c->shard->server->limits.request_timeout_ms * NS_PER_MS;
    if (c->cap != NULL) {
        rq->cap = c->cap;
        rq->cap->refs++;
    }
    arena_init(&rq->arena, ARENA_CHUNK, ARENA_MAX);
    return rq;
}

static void req_link(struct net_oap_conn *c, struct net_oap_req *rq)
{
    rq->prev = c->last;
    if (c->last != NULL)
        c->last->next = rq;
    else
        c->first = rq;
    c->last = rq;
    c->inflight++;
    inflight_add(c->shard->server, 1);
}

void net_oap_req__start(struct net_oap_conn *c, const struct net_oap_frame *f)
{
    if (!take_cap(c, f->cap)) {
        net_oap_req__refuse(c, &f->head, ERR_BUSY, "no memory");
        return;
    }
    if (f->head.app == NET_OAP_HELLO) {
        hello(c, &f->head);
        return;
    }
    const struct net_oap_handler *h = handler_of(c->shard->server, f->head.app);
    const char *detail = "";
    enum err e = admit(c, h, &detail);
    struct net_oap_req *rq = NULL;
    if (e == ERR_OK) {
        rq = req_new(c, f, &e);
        detail = "the payload cannot be inflated";
    }
    if (e != ERR_OK) {
        net_oap_req__refuse(c, &f->head, e, detail);
        return;
    }
    req_link(c, rq);
    h->fn(rq, h->ctx);
    /* It may be over and in the grave already; its memory is still there. */
    if (!net_oap_req__over(rq))
        net_oap_conn__arm(c, rq->deadline_ns);
}

/* ---- accessors ---- */

uint16_t net_oap_req_code(const struct net_oap_req *rq)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    return rq->head.code;
}

const uint8_t *net_oap_req_tenant(const struct net_oap_req *rq)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    return rq->head.tenant;
}

struct str net_oap_req_cap(const struct net_oap_req *rq)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    return rq->cap != NULL ? (struct str){rq->cap->text, rq->cap->n} : STR("");
}

struct bytes net_oap_req_payload(const struct net_oap_req *rq)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    return rq->payload;
}

const struct net_peer *net_oap_req_peer(const struct net_oap_req *rq)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    return &rq->conn->peer;
}

struct arena *net_oap_req_arena(struct net_oap_req *rq)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    return &rq->arena;
}

struct net_loop *net_oap_req_loop(const struct net_oap_req *rq)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    return rq->shard->loop;
}

struct str net_oap_req_corr_id(struct net_oap_req *rq)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    if (rq->corr_id[0] == 0) {
        struct uuid u = uuid_v7_now(net_loop_clock(rq->shard->loop));
        uuid_format(&u, rq->corr_id);
    }
    return (struct str){rq->corr_id, UUID_CHARS - 1};
}

bool net_oap_req_gone(const struct net_oap_req *rq)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    return atomic_load_explicit(&rq->gone, memory_order_acquire);
}

void net_oap_req_set_timeout(struct net_oap_req *rq, int64_t ms)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    rq->deadline_ns = ms == 0 ? INT64_MAX : rq->started_ns + ms * NS_PER_MS;
}

void net_oap_req_answer_by(struct net_oap_req *rq, struct deadline by, enum err late)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    rq->deadline_ns = by.at_ns;
    rq->late_err = late;
}

void net_oap_req_on_close(struct net_oap_req *rq, void (*fn)(struct net_oap_req *rq, void *arg), void *arg)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    rq->on_close = fn;
    rq->on_close_arg = arg;
}

void net_oap_req_on_room(struct net_oap_req *rq, void (*fn)(struct net_oap_req *rq, void *arg), void *arg)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    rq->on_room = fn;
    rq->on_room_arg = arg;
}

/* ---- answers ---- */

void net_oap_end(struct net_oap_req *rq, enum net_oap_flag kind, uint16_t code, struct bytes payload)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    CHECK(kind == NET_OAP_RESP || kind == NET_OAP_EVENT);
    CHECK(!atomic_exchange(&rq->ended, true));
    unsigned flags = (unsigned)kind | NET_OAP_END;
    struct net_oap_out *o = out_compressed(rq, flags, code, payload);
    if (o == NULL)
        o = out_frames(rq->shard, &rq->head, flags, code, payload);
    o->payload_n = payload.n;
    o->end = true;
    out_send(rq, o);
}

void net_oap_reply(struct net_oap_req *rq, uint16_t status, struct bytes payload)
{
    net_oap_end(rq, NET_OAP_RESP, status, payload);
}

void net_oap_reply_problem_full(struct net_oap_req *rq, const struct net_oap_problem *p)
{
    struct net_oap_problem full = *p;
    if (full.corr_id.n == 0)
        full.corr_id = net_oap_req_corr_id(rq);
    struct buf b;
    buf_init(&b, NET_OAP_INFLATED_MAX);
    net_oap_problem_put(&b, &full);
    net_oap_end(rq, NET_OAP_RESP, (uint16_t)net_oap_problem_status(&full),
                b.err == ERR_OK ? buf_bytes(&b) : nothing);
    buf_fini(&b);
}

void net_oap_reply_problem(struct net_oap_req *rq, enum err e, const char *detail_fmt, ...)
{
    char detail[DETAIL_MAX];
    va_list args;
    va_start(args, detail_fmt);
    int n = vsnprintf(detail, sizeof detail, detail_fmt, args);
    va_end(args);
    CHECK(n >= 0);
    net_oap_reply_problem_full(rq, &(struct net_oap_problem){.err = e, .detail = str_from_c(detail)});
}

enum err net_oap_send(struct net_oap_req *rq, enum net_oap_flag kind, uint16_t code, struct bytes payload)
{
    CHECK_MAGIC(rq, NET_OAP_REQ_MAGIC);
    CHECK(kind == NET_OAP_RESP || kind == NET_OAP_EVENT);
    CHECK(!atomic_load_explicit(&rq->ended, memory_order_relaxed));
    size_t n = NET_OAP_HEADER + payload.n, limit = rq->shard->server->limits.stream_buffer;
    if (payload.n > payload_room(rq->shard))
        return ERR_TOO_LARGE;
    if (net_oap_req_gone(rq))
        return ERR_CLOSED;
    size_t waiting = atomic_load(&rq->conn->tx_bytes);
    if (waiting > 0 && waiting + n > limit) {
        /* Say so first, look again then: the loop makes room first and looks for us then. */
        atomic_store(&rq->wants_room, true);
        waiting = atomic_load(&rq->conn->tx_bytes);
        if (waiting > 0 && waiting + n > limit)
            return ERR_BUSY;
    }
    struct net_oap_out *o = out_compressed(rq, (unsigned)kind, code, payload);
    if (o == NULL)
        o = out_frames(rq->shard, &rq->head, (unsigned)kind, code, payload);
    o->payload_n = payload.n;
    out_send(rq, o);
    return ERR_OK;
}
