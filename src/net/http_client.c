/*
 * libcurl's multi interface on our loop: curl tells which sockets and which time-out it waits for, the loop
 * watches them and calls curl back. Requests come in through an inbox; each owns one easy handle and lives
 * through its tries (http_call.c).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/check.h"
#include "net/http_client_internal.h"

#define NS_PER_MS INT64_C(1000000)

struct net_http_socket {
    struct net_fd nf;
    struct net_http_client *client;
    struct net_http_socket *next, *prev;
};

/* ---- what curl tells us ---- */

/* Everything curl has finished. */
static void pump(struct net_http_client *c)
{
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(c->multi, &left)) != NULL) {
        if (m->msg != CURLMSG_DONE)
            continue;
        char *private = NULL;
        CURLcode rc = m->data.result; /* m is invalid once the handle is removed */
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
        struct net_http_call *call = (struct net_http_call *)(void *)private;
        CHECK_MAGIC(call, NET_HTTP_CALL_MAGIC);
        net_http_call_tried(call, rc);
    }
}

static void on_socket_event(struct net_fd *nf, uint32_t events)
{
    struct net_http_socket *s =
        (struct net_http_socket *)((char *)nf - offsetof(struct net_http_socket, nf));
    struct net_http_client *c = s->client;
    int running, what = (events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                        (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                        (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
    curl_multi_socket_action(c->multi, nf->fd, what, &running); /* s may be gone now */
    pump(c);
}

static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *of_socket)
{
    struct net_http_client *c = ctx;
    struct net_http_socket *s = of_socket;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (s == NULL)
            return 0;
        /* libcurl 7.88 closes a socket that is still connecting by itself: without our close function, and before it
         * says that here. The kernel took it out of the epoll with that close. */
        net_loop_remove_closed(c->loop, &s->nf);
        if (s->prev != NULL)
            s->prev->next = s->next;
        else
            c->sockets = s->next;
        if (s->next != NULL)
            s->next->prev = s->prev;
        curl_multi_assign(c->multi, fd, NULL);
        free(s);
        return 0;
    }
    uint32_t events =
        (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) | (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0);
    if (s != NULL && s->nf.in_loop) {
        net_loop_change(c->loop, &s->nf, events);
        return 0;
    }
    if (s != NULL) /* the number is in use again, for a new socket */
        return net_loop_add(c->loop, &s->nf, events) == ERR_OK ? 0 : -1;
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return -1;
    s->nf = (struct net_fd){.fd = fd, .fn = on_socket_event};
    s->client = c;
    if (net_loop_add(c->loop, &s->nf, events) != ERR_OK) {
        free(s);
        return -1;
    }
    s->next = c->sockets;
    if (c->sockets != NULL)
        c->sockets->prev = s;
    c->sockets = s;
    curl_multi_assign(c->multi, fd, s);
    return 0;
}

/* curl closes a socket that was connected here, perhaps before it says that it need not be watched; by then the number can be
 * somebody else's. */
int net_http_client_close_socket(void *ctx, curl_socket_t fd)
{
    struct net_http_client *c = ctx;
    for (struct net_http_socket *s = c->sockets; s != NULL; s = s->next)
        if (s->nf.fd == fd)
            net_loop_remove(c->loop, &s->nf);
    return close(fd);
}

static void on_curl_timer(struct net_timer *t)
{
    struct net_http_client *c =
        (struct net_http_client *)((char *)t - offsetof(struct net_http_client, timer));
    int running;
    curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    pump(c);
}

static int set_timer(CURLM *multi, long timeout_ms, void *ctx)
{
    struct net_http_client *c = ctx;
    (void)multi;
    if (timeout_ms < 0)
        net_timer_cancel(c->loop, &c->timer);
    else
        net_timer_set(c->loop, &c->timer, clock_mono_ns(net_loop_clock(c->loop)) + timeout_ms * NS_PER_MS);
    return 0;
}

/* ---- sending ---- */

enum err net_http_send(struct net_http_client *c, const struct net_http_request *rq, net_http_done_fn *fn,
                       void *arg, struct net_http_call **out_call)
{
    CHECK_MAGIC(c, NET_HTTP_CLIENT_MAGIC);
    if (atomic_fetch_add_explicit(&c->calls, 1, memory_order_relaxed) >= c->cfg.max_requests) {
        atomic_fetch_sub_explicit(&c->calls, 1, memory_order_relaxed);
        return ERR_BUSY;
    }
    struct net_http_call *call;
    enum err e = net_http_call_new(c, rq, &call);
    if (e == ERR_OK) {
        call->fn = fn;
        call->arg = arg;
        atomic_init(&call->refs, out_call != NULL ? 3 : 2); /* client, inbox, caller */
        e = net_inbox_add(c->inbox, &call->item);
        if (e == ERR_OK && out_call != NULL)
            *out_call = call;
        else if (e != ERR_OK)
            net_http_call_free(call);
    }
    if (e != ERR_OK)
        atomic_fetch_sub_explicit(&c->calls, 1, memory_order_relaxed);
    return e;
}

void net_http_call_close(struct net_http_call *call)
{
    CHECK_MAGIC(call, NET_HTTP_CALL_MAGIC);
    atomic_store_explicit(&call->close_asked, true, memory_order_release);
    atomic_fetch_add_explicit(&call->refs, 1, memory_order_relaxed);
    if (net_inbox_add_late(call->client->inbox, &call->item) != ERR_OK)
        net_http_call_unref(call); /* it is inside already and will be looked at */
    net_http_call_unref(call);
}

/* ---- the loop's side ---- */

static void call_link(struct net_http_client *c, struct net_http_call *call)
{
    call->next = c->first;
    if (c->first != NULL)
        c->first->prev = call;
    c->first = call;
}

static void end_all(struct net_http_client *c)
{
    c->ended = true;
    while (c->first != NULL)
        net_http_call_over(c->first, ERR_CLOSED);
}

static void take_call(struct net_http_client *c, struct net_http_call *call)
{
    bool fresh = call->state == CALL_INBOX;
    if (atomic_load_explicit(&call->close_asked, memory_order_acquire)) {
        net_http_call_over(call, ERR_CANCELED);
    } else if (c->ended) {
        net_http_call_over(call, ERR_CLOSED);
    } else if (fresh) {
        call->state = CALL_WAITING;
        call_link(c, call);
        net_http_call_start(call);
    }
}

static void take_inbox(void *ctx)
{
    struct net_http_client *c = ctx;
    if (net_inbox_begin(c->inbox))
        end_all(c);
    for (struct net_inbox_item *item; (item = net_inbox_next(c->inbox)) != NULL;) {
        struct net_http_call *call =
            (struct net_http_call *)((char *)item - offsetof(struct net_http_call, item));
        take_call(c, call);
        net_http_call_unref(call); /* the inbox's */
    }
}

/* ---- life ---- */

static void curl_start(void)
{
    CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

static enum err client_setup(struct net_http_client *c)
{
    c->ca_file = c->cfg.ca_file != NULL ? strdup(c->cfg.ca_file) : NULL;
    c->user_agent = strdup(c->cfg.user_agent != NULL ? c->cfg.user_agent : "ron");
    if (c->user_agent == NULL || (c->cfg.ca_file != NULL && c->ca_file == NULL))
        return ERR_NO_MEMORY;
    c->multi = curl_multi_init();
    if (c->multi == NULL)
        return ERR_UNAVAILABLE; /* more likely than no memory: libcurl is not there (rt/late.h) */
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, (void *)c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, (void *)c);
    curl_multi_setopt(c->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)c->cfg.max_per_host);
    curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    return net_inbox_create(c->loop, take_inbox, c, &c->inbox);
}

enum err net_http_client_create(const struct net_http_client_config *config, struct net_http_client **out)
{
    static pthread_once_t started = PTHREAD_ONCE_INIT;
    pthread_once(&started, curl_start);
    struct net_http_client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return ERR_NO_MEMORY;
    c->magic = NET_HTTP_CLIENT_MAGIC;
    c->cfg = *config;
    c->loop = config->loop;
    c->timer.fn = on_curl_timer;
    if (c->cfg.max_requests == 0)
        c->cfg.max_requests = 256;
    if (c->cfg.max_per_host == 0)
        c->cfg.max_per_host = 16;
    if (c->cfg.connect_timeout_ms == 0)
        c->cfg.connect_timeout_ms = 1000;
    enum err e = client_setup(c);
    if (e != ERR_OK) {
        if (c->multi != NULL)
            curl_multi_cleanup(c->multi);
        free(c->ca_file);
        free(c->user_agent);
        free(c);
        return e;
    }
    *out = c;
    return ERR_OK;
}

void net_http_client_stop(struct net_http_client *c)
{
    CHECK_MAGIC(c, NET_HTTP_CLIENT_MAGIC);
    net_inbox_close(c->inbox);
}

void net_http_client_destroy(struct net_http_client *c)
{
    if (c == NULL)
        return;
    CHECK_MAGIC(c, NET_HTTP_CLIENT_MAGIC);
    net_inbox_close_quietly(c->inbox);
    take_inbox(c); /* everybody is told */
    net_inbox_destroy(c->inbox);
    curl_multi_cleanup(c->multi); /* closes what it kept and takes its sockets out of the loop */
    net_timer_cancel(c->loop, &c->timer);
    CHECK(c->sockets == NULL);
    free(c->ca_file);
    free(c->user_agent);
    c->magic = 0;
    free(c);
}
