#include "net/oap_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/check.h"
#include "net/oap_server_internal.h"
#include "net/sock.h"

enum {
    ACCEPTS_PER_EVENT = 32,
    LAST_TURNS = 128, /* the kernel's queue holds no more; who comes meanwhile is not waited for */
    ACCEPT_PAUSE_MS = 100
};

#define NS_PER_MS INT64_C(1000000)

/* ---- accepting ---- */

static bool uid_allowed(const struct net_listen *spec, uid_t uid)
{
    if (spec->allow_uids == NULL)
        return uid == geteuid();
    for (size_t i = 0; i < spec->allow_uids_count; i++)
        if (spec->allow_uids[i] == uid)
            return true;
    return false;
}

void net_oap__reject(struct net_oap_server *s, enum net_reject why)
{
    if (s->hooks.reject != NULL)
        s->hooks.reject(s->hooks.ctx, why);
}

/* The one error frame of a connection that is not let in; if the kernel does not take it at once, so be it.
 */
static void turn_away(int fd, enum err e, const char *detail)
{
    uint8_t payload[256], frame[NET_OAP_HEADER + sizeof payload];
    struct buf b, f;
    buf_init_fixed(&b, payload, sizeof payload);
    buf_init_fixed(&f, frame, sizeof frame);
    struct net_oap_problem p = {.err = e, .detail = str_from_c(detail)};
    net_oap_problem_put(&b, &p);
    struct net_oap_head h = {.flags = NET_OAP_RESP | NET_OAP_END,
                             .code = (uint16_t)net_oap_problem_status(&p)};
    net_oap_put(&f, &h, bytes_of(NULL, 0), buf_bytes(&b));
    ssize_t n = write(fd, f.p, f.n);
    (void)n;
    close(fd);
}

static void admit(struct net_oap_listener *l, int fd, const struct net_peer *peer)
{
    struct net_oap_server *s = l->shard->server;
    if (peer->kind == NET_PEER_UNIX && !uid_allowed(l->spec, peer->uid)) {
        net_oap__reject(s, NET_REJECT_UID);
        close(fd);
    } else if (atomic_load_explicit(&s->conns, memory_order_relaxed) >= s->limits.max_conns) {
        net_oap__reject(s, NET_REJECT_CONNS);
        turn_away(fd, ERR_BUSY, "too many connections");
    } else {
        net_oap_conn__open(l->shard, fd, peer);
    }
}

static void accept_again(struct net_timer *t)
{
    struct net_oap_listener *l =
        (struct net_oap_listener *)((char *)t - offsetof(struct net_oap_listener, again));
    if (l->nf.in_loop)
        net_loop_change(l->shard->loop, &l->nf, EPOLLIN);
}

/* True: there may be more. */
static bool accept_turn(struct net_oap_listener *l)
{
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        int fd;
        struct net_peer peer;
        enum err e = net_sock_accept(l->nf.fd, &fd, &peer);
        if (e != ERR_OK && e != ERR_EMPTY) {
            /* Out of descriptors, or of memory: the event would come again at once and for ever. */
            net_loop_change(l->shard->loop, &l->nf, 0);
            net_timer_set(l->shard->loop, &l->again,
                          net_loop_now_ns(l->shard->loop) + ACCEPT_PAUSE_MS * NS_PER_MS);
        }
        if (e != ERR_OK)
            return false;
        admit(l, fd, &peer);
    }
    return true;
}

static void on_accept(struct net_fd *nf, uint32_t events)
{
    (void)events;
    (void)accept_turn((struct net_oap_listener *)((char *)nf - offsetof(struct net_oap_listener, nf)));
}

/* ---- life ---- */

static void default_to(size_t *value, size_t if_zero)
{
    if (*value == 0)
        *value = if_zero;
}

static void default_ms(int64_t *value, int64_t if_zero)
{
    if (*value == 0)
        *value = if_zero;
}

static void limits_fill(struct net_oap_limits *l)
{
    default_to(&l->frame_max, NET_OAP_FRAME_MAX);
    default_to(&l->inflight_per_conn, 64);
    default_to(&l->inflight, 4096);
    default_to(&l->max_conns, 1024);
    default_to(&l->stream_buffer, 256 * 1024);
    default_ms(&l->request_timeout_ms, 5000);
    default_ms(&l->read_timeout_ms, 5000);
    default_ms(&l->write_timeout_ms, 5000);
    default_ms(&l->idle_timeout_ms, 60000);
    if (l->frame_max > NET_OAP_FRAME_MAX)
        l->frame_max = NET_OAP_FRAME_MAX;
    CHECK(l->frame_max > NET_OAP_HEADER + NET_OAP_CAP_MAX);
}

/* A TCP address is opened once per loop, the first time to learn the port. */
static enum err listener_open(struct net_oap_server *s, size_t shard, size_t at)
{
    struct net_oap_shard *sh = &s->shards[shard];
    const struct net_listen *spec = &s->listen[at];
    struct net_oap_listener *l = &sh->listeners[at];
    int fd;
    enum err e;
    if (spec->tls != NULL)
        return ERR_RANGE;
    if (spec->uds != NULL)
        e = shard == 0 ? net_sock_listen_unix(spec->uds, &fd) : ERR_EMPTY;
    else if (shard == 0)
        e = net_sock_listen_tcp(spec->bind, s->shards_count > 1, &fd);
    else
        e = net_sock_listen_same(s->shards[0].listeners[at].nf.fd, &fd);
    if (e == ERR_EMPTY)
        return ERR_OK;
    if (e != ERR_OK)
        return e;
    l->nf = (struct net_fd){.fd = fd, .fn = on_accept};
    l->again.fn = accept_again;
    l->shard = sh;
    l->spec = spec;
    if (shard == 0)
        s->ports[at] = spec->uds != NULL ? 0 : net_sock_port(fd);
    return net_loop_add(sh->loop, &l->nf, EPOLLIN);
}

static void listener_close(struct net_oap_listener *l)
{
    if (l->nf.fd < 0)
        return;
    net_loop_remove(l->shard->loop, &l->nf);
    net_timer_cancel(l->shard->loop, &l->again);
    close(l->nf.fd);
    l->nf.fd = -1;
    if (l->spec->uds != NULL)
        unlink(l->spec->uds);
}

/* On the loop's thread. */
static void on_stop(struct net_msg *m)
{
    struct net_oap_shard *sh = (struct net_oap_shard *)((char *)m - offsetof(struct net_oap_shard, stop));
    for (size_t i = 0; i < sh->listeners_count; i++) {
        struct net_oap_listener *l = &sh->listeners[i];
        for (int turn = 0; turn < LAST_TURNS && l->nf.fd >= 0 && accept_turn(l); turn++)
            ; /* who is in the queue was told "connected" */
        listener_close(l);
    }
    /* Dead connections keep their `next` until the end of the iteration. */
    for (struct net_oap_conn *c = sh->conns; c != NULL; c = c->next)
        net_oap_conn__close_if_idle(c);
}

static enum err shard_open(struct net_oap_server *s, size_t at, struct net_loop *loop)
{
    struct net_oap_shard *sh = &s->shards[at];
    sh->server = s;
    sh->loop = loop;
    sh->batch.fn = net_oap_conn__flush_dirty;
    sh->stop.fn = on_stop;
    sh->scratch = malloc(NET_OAP_SCRATCH);
    sh->listeners = calloc(s->listen_count, sizeof *sh->listeners);
    if (sh->scratch == NULL || (sh->listeners == NULL && s->listen_count > 0))
        return ERR_NO_MEMORY;
    sh->listeners_count = s->listen_count;
    for (size_t i = 0; i < s->listen_count; i++)
        sh->listeners[i].nf.fd = -1;
    for (size_t i = 0; i < s->listen_count; i++) {
        enum err e = listener_open(s, at, i);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

static void *copy_array(const void *p, size_t count, size_t size)
{
    void *copy = calloc(count > 0 ? count : 1, size);
    if (copy != NULL && count > 0)
        memcpy(copy, p, count * size);
    return copy;
}

/* Paths and uid lists outlive the config: sockets are unlinked, and uids compared, much later. */
static bool own_listen(struct net_listen *l)
{
    l->bind = l->bind != NULL ? strdup(l->bind) : NULL;
    l->uds = l->uds != NULL ? strdup(l->uds) : NULL;
    if (l->allow_uids != NULL)
        l->allow_uids = copy_array(l->allow_uids, l->allow_uids_count, sizeof(uid_t));
    return l->bind != NULL || l->uds != NULL;
}

static bool copy_config(struct net_oap_server *s, const struct net_oap_server_config *config)
{
    s->handlers = copy_array(config->handlers, config->handlers_count, sizeof *s->handlers);
    s->handlers_count = config->handlers_count;
    s->listen = copy_array(config->listen, config->listen_count, sizeof *s->listen);
    s->ports = calloc(config->listen_count + 1, sizeof *s->ports);
    s->shards = calloc(config->loops_count, sizeof *s->shards);
    if (s->handlers == NULL || s->listen == NULL || s->ports == NULL || s->shards == NULL)
        return false;
    for (; s->listen_count < config->listen_count; s->listen_count++)
        if (!own_listen(&s->listen[s->listen_count]))
            return false;
    return true;
}

enum err net_oap_server_create(const struct net_oap_server_config *config, struct net_oap_server **out)
{
    CHECK(config->loops_count > 0);
    struct net_oap_server *s = calloc(1, sizeof *s);
    if (s == NULL)
        return ERR_NO_MEMORY;
    s->magic = NET_OAP_SERVER_MAGIC;
    s->limits = config->limits;
    limits_fill(&s->limits);
    s->hooks = config->hooks;
    s->draining_err = config->draining_err != ERR_OK ? config->draining_err : ERR_DRAINING;
    enum err e = copy_config(s, config) ? ERR_OK : ERR_NO_MEMORY;
    for (size_t i = 0; e == ERR_OK && i < config->loops_count; i++) {
        s->shards_count = config->loops_count;
        e = shard_open(s, i, config->loops[i]);
    }
    if (e != ERR_OK) {
        net_oap_server_destroy(s);
        return e;
    }
    /* Only now: a batch function cannot be taken out of a loop again. */
    for (size_t i = 0; i < s->shards_count; i++)
        net_loop_at_batch_end(s->shards[i].loop, &s->shards[i].batch);
    *out = s;
    return ERR_OK;
}

static void shard_close(struct net_oap_shard *sh)
{
    for (size_t i = 0; i < sh->listeners_count; i++)
        listener_close(&sh->listeners[i]);
    while (sh->conns != NULL) {
        struct net_oap_conn *c = sh->conns;
        CHECK(c->first == NULL); /* every request was ended */
        net_oap_conn__kill(c);
    }
    net_oap_conn__flush_dirty(&sh->batch); /* frees them */
    free(sh->listeners);
    free(sh->scratch);
}

void net_oap_server_destroy(struct net_oap_server *s)
{
    if (s == NULL)
        return;
    CHECK_MAGIC(s, NET_OAP_SERVER_MAGIC);
    for (size_t i = 0; i < s->shards_count; i++)
        if (s->shards[i].server != NULL) {
            net_loop_forget_batch(s->shards[i].loop, &s->shards[i].batch);
            net_loop_forget(s->shards[i].loop, &s->shards[i].stop);
            shard_close(&s->shards[i]);
        }
    for (size_t i = 0; i < s->listen_count; i++) {
        free((void *)(uintptr_t)s->listen[i].bind);
        free((void *)(uintptr_t)s->listen[i].uds);
        free((void *)(uintptr_t)s->listen[i].allow_uids);
    }
    free(s->listen);
    free(s->ports);
    free(s->handlers);
    free(s->shards);
    s->magic = 0;
    free(s);
}

uint16_t net_oap_server_port(const struct net_oap_server *s, size_t listen_index)
{
    CHECK_MAGIC(s, NET_OAP_SERVER_MAGIC);
    CHECK(listen_index < s->listen_count);
    return s->ports[listen_index];
}

void net_oap_server_set_draining(struct net_oap_server *s, bool draining)
{
    CHECK_MAGIC(s, NET_OAP_SERVER_MAGIC);
    atomic_store_explicit(&s->draining, draining, memory_order_relaxed);
}

void net_oap_server_stop_accepting(struct net_oap_server *s)
{
    net_oap_server_set_draining(s, true);
    atomic_store(&s->stopping, true);
    for (size_t i = 0; i < s->shards_count; i++)
        if (!atomic_exchange(&s->shards[i].stop_posted, true))
            net_loop_post(s->shards[i].loop, &s->shards[i].stop);
}

size_t net_oap_server_conns(const struct net_oap_server *s)
{
    CHECK_MAGIC(s, NET_OAP_SERVER_MAGIC);
    return atomic_load_explicit(&s->conns, memory_order_relaxed);
}

size_t net_oap_server_inflight(const struct net_oap_server *s)
{
    CHECK_MAGIC(s, NET_OAP_SERVER_MAGIC);
    return atomic_load_explicit(&s->inflight, memory_order_relaxed);
}
