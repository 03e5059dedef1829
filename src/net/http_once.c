/* Requests of a thread that has no loop: a session is one, and a client on it. */
#include <stdlib.h>

#include "net/http_client.h"
#include "rt/task.h"

enum { TURN_MS = 100 }; /* how soon it is seen that a task was cancelled, or a request */

struct net_http_session {
    struct net_loop *loop;
    struct net_http_client *client;
};

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

static void once_upload(void *arg, uint64_t sent, uint64_t of)
{
    const struct once *o = arg;
    o->rq->on_upload(o->arg, sent, of);
}

static bool ends(const struct once *o, struct rt_task *self)
{
    return (self && rt_task_canceled(self)) || (o->rq->stop && atomic_load(o->rq->stop));
}

/* A task beats while it waits here, and a hard cancel ends the request. */
static void await(struct net_loop *loop, struct net_http_call *call, const struct once *o)
{
    struct rt_task *self = rt_task_current();
    while (!o->done) {
        net_loop_once(loop, self || o->rq->stop ? TURN_MS : -1);
        if (self)
            rt_task_beat(self);
        if (call && ends(o, self)) {
            net_http_call_close(call);
            call = NULL;
        }
    }
    if (call)
        net_http_call_close(call);
}

enum err net_http_session_open(const char *ca_file, struct net_http_session **out)
{
    struct net_http_session *s = calloc(1, sizeof *s);
    if (s == NULL)
        return ERR_NO_MEMORY;
    enum err e = net_loop_create(NULL, &s->loop);
    if (e == ERR_OK)
        e = net_http_client_create(&(struct net_http_client_config){.loop = s->loop, .ca_file = ca_file},
                                   &s->client);
    if (e == ERR_OK)
        *out = s;
    else
        net_http_session_close(s);
    return e;
}

void net_http_session_close(struct net_http_session *s)
{
    if (s == NULL)
        return;
    net_http_client_destroy(s->client);
    if (s->loop != NULL) {
        net_loop_once(s->loop, 0); /* closing a call left a message to the client, which goes now */
        net_loop_destroy(s->loop);
    }
    free(s);
}

enum err net_http_session_send(struct net_http_session *s, const struct net_http_request *rq,
                               net_http_done_fn *fn, void *arg)
{
    struct net_http_call *call;
    struct once o = {.fn = fn, .arg = arg, .rq = rq};
    struct net_http_request mine = *rq;
    mine.body_stays = true;
    mine.on_head = rq->on_head != NULL ? once_head : NULL;
    mine.on_body = rq->on_body != NULL ? once_body : NULL;
    mine.on_upload = rq->on_upload != NULL ? once_upload : NULL;
    enum err e = net_http_send(s->client, &mine, on_once, &o, &call);
    if (e == ERR_OK)
        await(s->loop, call, &o);
    return e;
}

enum err net_http_once(const struct net_http_request *rq, const char *ca_file, net_http_done_fn *fn,
                       void *arg)
{
    struct net_http_session *s;
    enum err e = net_http_session_open(ca_file, &s);
    if (e != ERR_OK)
        return e;
    e = net_http_session_send(s, rq, fn, arg);
    net_http_session_close(s);
    return e;
}
