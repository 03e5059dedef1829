/* The server as a whole: workers, listeners, limits, draining. */
#include "net/http_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/check.h"
#include "net/sock.h"
#include "rt/deadline.h"
#include "rt/task.h"
#include "rt/watch.h"

enum {
    LIMITS_LOCK_RANK = 91,
    ACCEPTS_PER_TURN = 64,
    LAST_TURNS = 64, /* the kernel's queue holds no more; who comes while it is emptied is not waited for */
    ACCEPT_PAUSE_MS = 100, /* out of descriptors: try again then */
    RATE_WINDOW_MS = 1000,
    RETRY_AFTER_MAX_S = 60,
};

const char *net_reject_name(enum net_reject why)
{
    static const char *const names[NET_REJECT_COUNT] = {
        [NET_REJECT_CONNS] = "conns",
        [NET_REJECT_UID] = "uid",
        [NET_REJECT_FRAMING] = "framing",
        [NET_REJECT_HEADERS] = "headers",
        [NET_REJECT_BODY] = "body",
        [NET_REJECT_INFLATE] = "inflate",
        [NET_REJECT_RATE] = "rate",
        [NET_REJECT_INFLIGHT] = "inflight",
        [NET_REJECT_READ_TIMEOUT] = "read_timeout",
        [NET_REJECT_DEADLINE] = "deadline",
        [NET_REJECT_DRAINING] = "draining",
        [NET_REJECT_ROUTE] = "route",
        [NET_REJECT_WRITE_TIMEOUT] = "write_timeout",
    };
    CHECK((unsigned)why < NET_REJECT_COUNT);
    return names[why];
}

/* ---- limits ---- */

static size_t or_size(size_t v, size_t fallback)
{
    return v ? v : fallback;
}

static int64_t or_ms(int64_t v, int64_t fallback)
{
    return v ? v : fallback;
}

static size_t at_most(size_t v, size_t most)
{
    return v < most ? v : most;
}

static struct net_limits limits_filled(const struct net_limits *l)
{
    struct net_limits f = *l;
    f.header_bytes = at_most(or_size(l->header_bytes, NET_HTTP_HEAD_MAX), NET_HTTP_HEAD_MAX);
    f.header_fields = at_most(or_size(l->header_fields, NET_HTTP_FIELDS_MAX), NET_HTTP_FIELDS_MAX);
    f.target_bytes = at_most(or_size(l->target_bytes, 8192), f.header_bytes);
    f.body_max = l->no_body ? 0 : or_size(l->body_max, 1 << 20);
    f.inflate_ratio = l->inflate_ratio ? l->inflate_ratio : 10;
    f.read_timeout_ms = or_ms(l->read_timeout_ms, 5000);
    f.write_timeout_ms = or_ms(l->write_timeout_ms, 5000);
    f.idle_timeout_ms = or_ms(l->idle_timeout_ms, 60000);
    f.request_timeout_ms = or_ms(l->request_timeout_ms, 5000);
    f.max_conns = or_size(l->max_conns, 1024);
    f.max_inflight = or_size(l->max_inflight, 512);
    f.max_pipeline = or_size(l->max_pipeline, 16);
    f.stream_buffer = or_size(l->stream_buffer, 64 << 10);
    return f;
}

void net_server_go_on(struct net_server *s, unsigned index)
{
    struct net_worker *w = &s->workers[index];
    if (!atomic_exchange_explicit(&w->poked, true, memory_order_acq_rel))
        net_loop_post(w->loop, &w->poke);
}

static void poke_all(struct net_server *s)
{
    for (unsigned i = 0; i < s->workers_n; i++)
        net_server_go_on(s, i);
}

void net_server_set_limits(struct net_server *s, const struct net_limits *limits)
{
    struct net_limits f = limits_filled(limits);
    rt_lock_take(&s->lock);
    s->limits = f;
    rt_lock_release(&s->lock);
    /* release, with the acquire in worker_news: who sees the number sees the limits (and takes the lock anyway) */
    atomic_fetch_add_explicit(&s->limits_version, 1, memory_order_release);
    poke_all(s);
}

static void worker_news(struct net_worker *w)
{
    struct net_server *s = w->s;
    uint64_t version = atomic_load_explicit(&s->limits_version, memory_order_acquire);
    if (version == w->limits_seen)
        return;
    rt_lock_take(&s->lock);
    w->limits = s->limits;
    rt_lock_release(&s->lock);
    w->limits_seen = version;
}

/* ---- numbers ---- */

void net_server__completed(struct net_worker *w)
{
    int64_t now = net_loop_now_ns(w->loop), window = (int64_t)RATE_WINDOW_MS * 1000000;
    w->rate_count++;
    int64_t took = now - w->rate_from_ns;
    if (took < window)
        return;
    uint64_t milli = (uint64_t)((double)w->rate_count * 1e12 / (double)took);
    atomic_store_explicit(&w->rate_milli, milli, memory_order_relaxed);
    w->rate_from_ns = now;
    w->rate_count = 0;
}

void net_server_stats(const struct net_server *s, struct net_server_stats *out)
{
    struct net_server_stats st = {
        .conns = atomic_load_explicit(&s->conns, memory_order_relaxed),
        .inflight = net_admission_inflight(s->admission),
    };
    uint64_t milli = 0;
    for (unsigned i = 0; i < s->workers_n; i++) {
        const struct net_worker *w = &s->workers[i];
        st.accepted += atomic_load_explicit(&w->accepted, memory_order_relaxed);
        st.requests += atomic_load_explicit(&w->requests, memory_order_relaxed);
        st.responses += atomic_load_explicit(&w->responses, memory_order_relaxed);
        milli += atomic_load_explicit(&w->rate_milli, memory_order_relaxed);
    }
    st.completed_per_s = (double)milli / 1000;
    *out = st;
}

unsigned net_server__retry_after(struct net_server *s, enum err e)
{
    unsigned seconds = s->hooks.retry_after ? s->hooks.retry_after(s->hooks.ctx, e) : 0;
    if (seconds)
        return seconds;
    struct net_server_stats st;
    net_server_stats(s, &st);
    if (st.completed_per_s < 1)
        return 1;
    double wait = (double)st.inflight / st.completed_per_s;
    return wait >= RETRY_AFTER_MAX_S ? RETRY_AFTER_MAX_S : (unsigned)wait + 1;
}

void net_server__conn_gone(struct net_server *s)
{
    /* acq_rel: the drain that sees zero sees what the connections did */
    if (atomic_fetch_sub_explicit(&s->conns, 1, memory_order_acq_rel) == 1 && net_server__closed(s))
        rt_watch_publish(s->idle, NULL);
}

/* ---- accepting ---- */

static bool uid_allowed(const struct net_server *s, size_t index, uid_t uid)
{
    const struct net_listen *l = &s->listen[index];
    if (!l->allow_uids)
        return uid == geteuid();
    for (size_t i = 0; i < l->allow_uids_count; i++)
        if (l->allow_uids[i] == uid)
            return true;
    return false;
}

static void accepted(struct net_listener *l, int fd, struct net_peer *peer)
{
    struct net_worker *w = l->w;
    struct net_server *s = w->s;
    const struct net_listen *spec = &s->listen[l->index];
    struct net_tls_session *tls = NULL;
    if (peer->kind == NET_PEER_UNIX && !uid_allowed(s, l->index, peer->uid)) {
        if (s->hooks.reject)
            s->hooks.reject(s->hooks.ctx, NET_REJECT_UID);
        close(fd);
        return;
    }
    size_t before = atomic_fetch_add_explicit(&s->conns, 1, memory_order_acq_rel);
    bool over = before >= w->limits.max_conns;
    if ((over && (spec->tls || before >= w->limits.max_conns + NET_CONNS_OVER)) ||
        (spec->tls && net_tls_accept(spec->tls, fd, &tls) != ERR_OK)) {
        if (s->hooks.reject)
            s->hooks.reject(s->hooks.ctx, NET_REJECT_CONNS);
        close(fd);
        net_server__conn_gone(s);
        return;
    }
    if (tls)
        peer->kind = NET_PEER_TLS;
    net_conn__open(w, fd, peer, tls, over);
}

/* Loops share a Unix socket: one connection wakes one of them. */
static enum err listener_watch(struct net_listener *l)
{
    return net_loop_add(l->w->loop, &l->nf,
                        l->w->s->listen[l->index].uds ? EPOLLIN | EPOLLEXCLUSIVE : EPOLLIN);
}

/* Out of the loop and in again, because what was added with EPOLLEXCLUSIVE cannot be changed (epoll_ctl(2)). */
static void accept_pause(struct net_worker *w)
{
    for (size_t i = 0; i < w->s->listen_n; i++)
        net_loop_remove(w->loop, &w->listeners[i].nf);
    net_timer_set(w->loop, &w->accept_again, net_loop_now_ns(w->loop) + (int64_t)ACCEPT_PAUSE_MS * 1000000);
}

static void accept_again(struct net_timer *t)
{
    struct net_worker *w =
        (struct net_worker *)(void *)((char *)t - offsetof(struct net_worker, accept_again));
    for (size_t i = 0; i < w->s->listen_n; i++)
        if (w->listeners[i].nf.fd >= 0 && !w->listeners[i].nf.in_loop &&
            listener_watch(&w->listeners[i]) != ERR_OK) { /* no memory: later */
            accept_pause(w);
            return;
        }
}

/* True: there may be more. */
static bool accept_turn(struct net_listener *l)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd;
        struct net_peer peer;
        enum err e = net_sock_accept(l->nf.fd, &fd, &peer);
        if (e == ERR_EMPTY)
            return false;
        if (e != ERR_OK) {
            accept_pause(l->w);
            return false;
        }
        accepted(l, fd, &peer);
    }
    return true;
}

static void on_listener(struct net_fd *nf, uint32_t events)
{
    (void)events;
    (void)accept_turn((struct net_listener *)(void *)nf);
}

/* What is already in the queue is still taken: those clients were told "connected". */
static void listeners_close(struct net_worker *w)
{
    if (!atomic_load_explicit(&w->accepting, memory_order_relaxed))
        return;
    for (size_t i = 0; i < w->s->listen_n; i++) {
        struct net_listener *l = &w->listeners[i];
        if (l->nf.fd < 0)
            continue;
        for (int turn = 0; turn < LAST_TURNS && accept_turn(l); turn++)
            ;
        net_loop_remove(w->loop, &l->nf);
        close(l->nf.fd);
        l->nf.fd = -1;
    }
    net_timer_cancel(w->loop, &w->accept_again); /* the last look may have set it */
    net_conn__drain(w);
    atomic_store_explicit(&w->accepting, false, memory_order_release);
    rt_watch_publish(w->s->idle, NULL);
}

/* ---- workers ---- */

static void worker_poked(struct net_msg *m)
{
    struct net_worker *w = (struct net_worker *)(void *)((char *)m - offsetof(struct net_worker, poke));
    /* An exchange, as in poke_all, not a store: of two on one word one comes first, so that either what was set before the other's is
     * seen below, or it finds this false and posts again. Past a mere store the looks below could be done early, and miss it. */
    atomic_exchange_explicit(&w->poked, false, memory_order_acq_rel);
    worker_news(w);
    net_conn__go_on(w);
    if (net_server__closed(w->s))
        listeners_close(w);
}

static void worker_batch(struct net_batch *b)
{
    struct net_worker *w = (struct net_worker *)(void *)((char *)b - offsetof(struct net_worker, batch));
    net_conn__batch_end(w);
}

static enum err worker_listen(struct net_worker *w, size_t i)
{
    struct net_server *s = w->s;
    struct net_listener *l = &w->listeners[i];
    int fd = -1;
    /* Of a TCP port each loop has a socket of its own, and the kernel spreads connections. */
    if (w->index == 0 || s->listen[i].uds) {
        fd = fcntl(s->listen_fds[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            return err_from_errno(errno);
    } else {
        enum err e = net_sock_listen_same(s->listen_fds[i], &fd);
        if (e != ERR_OK)
            return e;
    }
    *l = (struct net_listener){.nf = {.fd = fd, .fn = on_listener}, .w = w, .index = i};
    return listener_watch(l);
}

static enum err worker_init(struct net_server *s, unsigned index, const struct clock *clock)
{
    struct net_worker *w = &s->workers[index];
    w->s = s;
    w->index = index;
    w->limits = s->limits;
    w->limits_seen = atomic_load_explicit(&s->limits_version, memory_order_relaxed);
    rng_seed(&w->rng, rng_secure_u64());
    w->date_s = -1;
    w->batch.fn = worker_batch;
    w->poke.fn = worker_poked;
    w->accept_again.fn = accept_again;
    atomic_store_explicit(&w->accepting, true, memory_order_relaxed);
    enum err e = net_loop_create(clock, &w->loop);
    if (e != ERR_OK)
        return e;
    w->rate_from_ns = net_loop_now_ns(w->loop);
    net_loop_at_batch_end(w->loop, &w->batch);
    w->listeners = calloc(s->listen_n ? s->listen_n : 1, sizeof *w->listeners);
    if (!w->listeners)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < s->listen_n; i++)
        w->listeners[i].nf.fd = -1;
    for (size_t i = 0; i < s->listen_n && e == ERR_OK; i++)
        e = worker_listen(w, i);
    return e;
}

static void run_mail(struct net_worker *w)
{
    do
        net_loop_once(w->loop, 0);
    while (net_loop_has_mail(w->loop));
}

static void close_doors(struct net_worker *w)
{
    for (size_t i = 0; w->listeners && i < w->s->listen_n; i++) {
        struct net_listener *l = &w->listeners[i];
        net_loop_remove(w->loop, &l->nf);
        if (l->nf.fd >= 0)
            close(l->nf.fd);
        l->nf.fd = -1;
    }
}

static void close_conns(struct net_worker *w)
{
    while (w->conns)
        net_conn__close(w->conns, ERR_DISCONNECTED);
    run_mail(w); /* answers that were on their way find their connection gone and end */
}

void net_server_settle(struct net_server *s)
{
    for (unsigned i = 0; i < s->workers_n; i++) {
        close_doors(&s->workers[i]);
        run_mail(&s->workers[i]); /* the last answers are still written, as far as they fit */
        close_conns(&s->workers[i]);
    }
}

static void worker_fini(struct net_worker *w)
{
    if (!w->loop)
        return;
    close_doors(w);
    close_conns(w);
    free(w->listeners);
    for (struct net_conn *c = w->dead, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    for (struct net_conn *c = w->free_conns, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    for (struct net_req *rq = w->free_reqs, *next; rq; rq = next) {
        next = rq->next;
        arena_fini(&rq->arena);
        free(rq->kept);
        buf_fini(&rq->reply);
        free(rq);
    }
    for (struct net_out *o = w->free_blocks, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    for (struct net_out *o = w->free_outs, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    free(w->scratch);
    net_inflater_destroy(w->inflater);
    net_loop_destroy(w->loop);
}

/* ---- life ---- */

/* sendfile and OpenSSL cannot be told not to raise SIGPIPE. A program's own handler is left alone. */
static void ignore_sigpipe(void)
{
    struct sigaction old;
    if (sigaction(SIGPIPE, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
}

static enum err listen_copy(struct net_server *s, size_t i, const struct net_listen *from)
{
    struct net_listen *to = &s->listen[i];
    *to = *from;
    to->bind = NULL;
    to->tls = from->tls ? net_tls_ref(from->tls) : NULL;
    if (from->allow_uids) {
        s->uids[i] = calloc(from->allow_uids_count ? from->allow_uids_count : 1, sizeof(uid_t));
        if (!s->uids[i])
            return ERR_NO_MEMORY;
        memcpy(s->uids[i], from->allow_uids, from->allow_uids_count * sizeof(uid_t));
        to->allow_uids = s->uids[i];
    }
    if (!from->uds) {
        enum err e = net_sock_listen_tcp(from->bind, s->workers_n > 1, &s->listen_fds[i]);
        if (e == ERR_OK)
            s->ports[i] = net_sock_port(s->listen_fds[i]);
        return e;
    }
    s->uds_paths[i] = strdup(from->uds);
    if (!s->uds_paths[i])
        return ERR_NO_MEMORY;
    enum err e = net_sock_listen_unix(from->uds, &s->listen_fds[i]);
    if (e != ERR_OK) {
        free(s->uds_paths[i]); /* not ours to unlink */
        s->uds_paths[i] = NULL;
    }
    to->uds = s->uds_paths[i];
    return e;
}

static void listen_fds_close(struct net_server *s)
{
    for (size_t i = 0; i < s->listen_n; i++) {
        if (s->listen_fds[i] >= 0)
            close(s->listen_fds[i]);
        s->listen_fds[i] = -1;
    }
}

static enum err server_init(struct net_server *s, const struct net_server_config *config)
{
    size_t n = config->listen_count ? config->listen_count : 1;
    rt_lock_init(&s->lock, "http_limits", LIMITS_LOCK_RANK);
    s->hooks = config->hooks;
    s->limits = limits_filled(&config->limits);
    s->stream_buffer = s->limits.stream_buffer;
    s->workers_n = config->threads ? config->threads : 1;
    s->listen = calloc(n, sizeof *s->listen);
    s->listen_fds = calloc(n, sizeof *s->listen_fds);
    s->ports = calloc(n, sizeof *s->ports);
    s->uds_paths = calloc(n, sizeof *s->uds_paths);
    s->uids = calloc(n, sizeof *s->uids);
    s->workers = calloc(s->workers_n, sizeof *s->workers);
    s->idle = rt_watch_create(&(struct rt_watch_spec){.name = "http_idle"});
    if (!s->listen || !s->listen_fds || !s->ports || !s->uds_paths || !s->uids || !s->workers || !s->idle)
        return ERR_NO_MEMORY;
    if (config->headers) {
        s->headers_copy = strdup(config->headers);
        if (!s->headers_copy)
            return ERR_NO_MEMORY;
        s->headers = str_from_c(s->headers_copy);
    }
    enum err e = net_router_create(config->routes, config->routes_count, &s->router);
    if (e == ERR_OK)
        e = net_admission_create(&s->admission);
    for (size_t i = 0; i < config->listen_count; i++)
        s->listen_fds[i] = -1;
    for (size_t i = 0; i < config->listen_count && e == ERR_OK; i++) {
        e = listen_copy(s, i, &config->listen[i]);
        s->listen_n = i + 1;
    }
    for (unsigned i = 0; i < s->workers_n && e == ERR_OK; i++)
        e = worker_init(s, i, config->clock);
    listen_fds_close(s);
    return e;
}

enum err net_server_create(const struct net_server_config *config, struct net_server **out_server)
{
    struct net_server *s = calloc(1, sizeof *s);
    if (!s)
        return ERR_NO_MEMORY;
    ignore_sigpipe();
    enum err e = server_init(s, config);
    if (e != ERR_OK) {
        net_server_destroy(s);
        return e;
    }
    *out_server = s;
    return ERR_OK;
}

void net_server_destroy(struct net_server *s)
{
    if (!s)
        return;
    for (unsigned i = 0; s->workers && i < s->workers_n; i++)
        worker_fini(&s->workers[i]);
    for (size_t i = 0; i < s->listen_n; i++) {
        if (s->uds_paths[i])
            unlink(s->uds_paths[i]);
        net_tls_unref(s->listen[i].tls);
        free(s->uds_paths[i]);
        free(s->uids[i]);
    }
    net_router_destroy(s->router);
    net_admission_destroy(s->admission);
    if (s->idle)
        rt_watch_destroy(s->idle);
    rt_lock_fini(&s->lock);
    free(s->headers_copy);
    free(s->listen);
    free(s->listen_fds);
    free(s->ports);
    free(s->uds_paths);
    free(s->uids);
    free(s->workers);
    free(s);
}

enum err net_server_run(struct net_server *s, unsigned index, struct rt_task *self)
{
    CHECK(index < s->workers_n);
    return net_loop_run(s->workers[index].loop, self);
}

unsigned net_server_threads(const struct net_server *s)
{
    return s->workers_n;
}

struct net_loop *net_server_loop(struct net_server *s, unsigned index)
{
    CHECK(index < s->workers_n);
    return s->workers[index].loop;
}

uint16_t net_server_port(const struct net_server *s, size_t listen_index)
{
    CHECK(listen_index < s->listen_n);
    return s->ports[listen_index];
}

void net_server_set_draining(struct net_server *s, bool draining)
{
    atomic_store_explicit(&s->draining, draining, memory_order_release);
}

void net_server_stop_accepting(struct net_server *s)
{
    net_server_set_draining(s, true);
    atomic_store(&s->closed, true);
    poke_all(s);
}

enum err net_server_drain(struct net_server *s, struct deadline by)
{
    net_server_stop_accepting(s);
    for (;;) {
        uint64_t seen = rt_watch_version(s->idle);
        /* Every worker must have closed its listeners before "no connection" means "no more". */
        bool open = false;
        for (unsigned i = 0; i < s->workers_n; i++)
            open = open || atomic_load_explicit(&s->workers[i].accepting, memory_order_acquire);
        if (!open && atomic_load_explicit(&s->conns, memory_order_acquire) == 0)
            return ERR_OK;
        void *value;
        enum err e = rt_watch_wait(s->idle, seen, by, &value, &seen);
        if (e != ERR_OK)
            return e;
    }
}

void net_server_stop(struct net_server *s)
{
    for (unsigned i = 0; i < s->workers_n; i++)
        net_loop_stop(s->workers[i].loop);
}
