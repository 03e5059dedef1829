/*
 * Waiting for an answer: in a task, beside a client that runs on a loop (net_http_wait), and in a program that has
 * no loop at all (net_http_once).
 */
#include <stdlib.h>

#include "base/check.h"
#include "net/http_client_internal.h"
#include "rt/oneshot.h"

struct waiter {
    struct rt_oneshot done;
    atomic_uint refs; /* the caller's and the callback's */
    enum err e;
    int status;
    struct buf body;
};

static void waiter_unref(struct waiter *w)
{
    if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) > 1)
        return;
    rt_oneshot_fini(&w->done);
    buf_fini(&w->body);
    free(w);
}

static void on_waited(void *arg, enum err e, const struct net_http_response *r)
{
    struct waiter *w = arg;
    w->e = e;
    if (r != NULL) {
        w->status = r->status;
        buf_put_bytes(&w->body, r->body);
    }
    /* Nobody waits any more: then nobody is told. */
    if (rt_oneshot_send(&w->done, w) != ERR_OK)
        w->e = ERR_CANCELED;
    waiter_unref(w);
}

enum err net_http_wait(struct net_http_client *c, const struct net_http_request *rq, int *out_status,
                       struct buf *out_body)
{
    CHECK(net_loop_current() != c->loop);
    CHECK(rq->on_body == NULL && rq->on_head == NULL);
    struct waiter *w = calloc(1, sizeof *w);
    if (w == NULL)
        return ERR_NO_MEMORY;
    rt_oneshot_init(&w->done);
    atomic_init(&w->refs, 2);
    buf_init(&w->body, rq->response_max > 0 ? rq->response_max : NET_HTTP_RESPONSE_MAX);
    void *value;
    struct net_http_call *call = NULL;
    enum err e = net_http_send(c, rq, on_waited, w, &call);
    if (e != ERR_OK)
        waiter_unref(w); /* the callback's: it will not come */
    else
        e = rt_oneshot_recv(&w->done, rq->by, &value);
    if ((e == ERR_TIMEOUT || e == ERR_CANCELED) && call != NULL && rt_oneshot_abandon(&w->done, &value))
        e = ERR_OK; /* it came at the last moment */
    if (e == ERR_OK)
        e = w->e;
    if (e == ERR_OK) {
        buf_put_bytes(out_body, buf_bytes(&w->body));
        e = w->body.err != ERR_OK ? w->body.err : out_body->err;
        *out_status = w->status;
    }
    if (call != NULL)
        net_http_call_close(call);
    waiter_unref(w);
    return e;
}

struct once {
    net_http_done_fn *fn;
    void *arg;
    const struct net_http_request *rq;
    bool done;
};

static void on_once(void *arg, enum err e, const struct net_http_response *r)
{
    struct once *o = arg;
    o->done = true;
    o->fn(o->arg, e, r);
}

static bool once_head(void *arg, const struct net_http_response *head)
{
    struct once *o = arg;
    return o->rq->on_head(o->arg, head);
}

static bool once_body(void *arg, struct bytes piece)
{
    struct once *o = arg;
    return o->rq->on_body(o->arg, piece);
}

enum err net_http_once(const struct net_http_request *rq, const char *ca_file, net_http_done_fn *fn,
                       void *arg)
{
    struct net_loop *loop;
    struct net_http_client *c = NULL;
    struct once o = {.fn = fn, .arg = arg, .rq = rq};
    struct net_http_request mine = *rq;
    mine.on_head = rq->on_head != NULL ? once_head : NULL;
    mine.on_body = rq->on_body != NULL ? once_body : NULL;
    enum err e = net_loop_create(NULL, &loop);
    if (e != ERR_OK)
        return e;
    struct net_http_client_config cfg = {.loop = loop, .ca_file = ca_file};
    e = net_http_client_create(&cfg, &c);
    if (e == ERR_OK)
        e = net_http_send(c, &mine, on_once, &o, NULL);
    while (e == ERR_OK && !o.done)
        net_loop_once(loop, -1);
    net_http_client_destroy(c);
    net_loop_destroy(loop);
    return e;
}
