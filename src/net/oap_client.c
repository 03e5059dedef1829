/*
 * Callers of any thread put their calls into an inbox and kick the loop, once however many they are.
 * Everything else happens on the loop's thread:
 *
 *   waiting   not sent yet: no connection, or as many outstanding as the server allows
 *   sent      on the connection (oap_client_conn.c), found by corr
 */
#include "net/oap_client_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "net/sock.h"

enum { CLIENT_MAGIC = 0x6f61706c, CALL_MAGIC = 0x6f61706b, CLIENT_RANK = 940 };

/* ---- calls ---- */

void net_oap_call__unref(struct net_oap_stream *call)
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

void net_oap_call__unwait(struct net_oap_client *c, struct net_oap_stream *call)
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
void net_oap_call__over(struct net_oap_stream *call, enum err e, uint16_t status, struct bytes payload)
{
    struct net_oap_client *c = call->client;
    if (call->state == CALL_OVER)
        return;
    if (call->state == CALL_WAITING)
        net_oap_call__unwait(c, call);
    else if (call->state == CALL_SENT)
        map64_remove(&c->sent, call->head.corr);
    call->state = CALL_OVER;
    net_timer_cancel(c->loop, &call->timer);
    atomic_fetch_sub_explicit(&c->calls, 1, memory_order_relaxed);
    if (call->is_stream)
        call->on_frame(call->arg, e, status, payload, true);
    else
        call->on_answer(call->arg, e, status, payload);
    net_oap_call__unref(call);
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
    net_oap_client__watch(c);
}

static void on_call_timer(struct net_timer *t)
{
    struct net_oap_stream *call =
        (struct net_oap_stream *)((char *)t - offsetof(struct net_oap_stream, timer));
    if (call->is_stream)
        put_stop(call->client, call);
    else if (call->state == CALL_SENT)
        atomic_fetch_add_explicit(&call->client->owed, 1, memory_order_relaxed);
    net_oap_call__over(call, call->state == CALL_SENT ? ERR_TIMEOUT : ERR_UNAVAILABLE, 0,
                       bytes_of(NULL, 0));
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
        net_oap_call__over(call, ERR_CANCELED, 0, bytes_of(NULL, 0));
    } else if (c->ended) {
        net_oap_call__over(call, ERR_CLOSED, 0, bytes_of(NULL, 0));
    }
}

static void end_all(struct net_oap_client *c)
{
    if (c->ended)
        return;
    c->ended = true;
    if (c->state != CONN_NONE) {
        bool was_up = c->state == CONN_UP;
        net_oap_client__drop(c);
        if (was_up)
            net_oap_client__tell_state(c, ERR_CLOSED);
    }
    net_timer_cancel(c->loop, &c->timer);
    net_oap_client__fail_sent(c, ERR_CLOSED);
    net_oap_client__fail_waiting(c, ERR_CLOSED);
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
        net_oap_call__unref(call); /* the inbox's */
    }
    net_oap_client__work(c);
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
    buf_init(&call->answer, NET_OAP_ANSWER_MAX);
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
        net_oap_call__unref(st); /* it is inside already and will be looked at */
    net_oap_call__unref(st);
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
    c->timer.fn = net_oap_client__on_timer;
    struct rt_backoff_spec spec = {.first_min_ms = c->cfg.backoff_min_ms / 2,
                                   .first_max_ms = c->cfg.backoff_min_ms,
                                   .cap_ms = c->cfg.backoff_max_ms};
    rt_backoff_init(&c->backoff, &spec, rng_secure_u64());
    rt_lock_init(&c->lock, "net.oap_client", CLIENT_RANK);
    buf_init(&c->rx, NET_OAP_FRAME_MAX + NET_OAP_READ_BYTES);
    buf_init(&c->tx, c->cfg.inflight_max * (size_t)NET_OAP_FRAME_MAX * 2);
    net_oap_client_set_token(c, config->token);
    *out = c;
    return ERR_OK;
}

void net_oap_client_set_token(struct net_oap_client *c, struct str token)
{
    CHECK(token.n <= NET_OAP_CAP_MAX);
    struct net_oap_token *fresh = NULL;
    if (token.n > 0) {
        fresh = malloc(sizeof *fresh + token.n);
        CHECK(fresh != NULL);
        fresh->n = token.n;
        memcpy(fresh->text, token.p, token.n);
    }
    rt_lock_take(&c->lock);
    struct net_oap_token *old = c->token;
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
