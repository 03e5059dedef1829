/* Full passes over the store because somebody asked: one at a time, everybody who asks meanwhile joins. */
#include <stdlib.h>

#include "base/json_write.h"
#include "services/edge/scrub.h"
#include "services/edge/store.h"

struct edge_verify {
    struct rt_lock lock; /* guards everything below */
    bool wanted;         /* asked for or under way */
    struct edge_call *calls;
    struct edge_scrub_report so_far;
};

enum err edge_verify_create(struct edge_verify **out)
{
    struct edge_verify *v = calloc(1, sizeof *v);
    if (!v)
        return ERR_NO_MEMORY;
    rt_lock_init(&v->lock, "verify", 28);
    *out = v;
    return ERR_OK;
}

void edge_verify_destroy(struct edge_verify *v)
{
    if (!v)
        return;
    rt_lock_fini(&v->lock);
    free(v);
}

bool edge_verify_wanted(struct edge *e)
{
    rt_lock_take(&e->verify->lock);
    bool wanted = e->verify->wanted;
    rt_lock_release(&e->verify->lock);
    return wanted;
}

enum err edge_verify_ask(struct edge *e, struct edge_call *call)
{
    struct edge_verify *v = e->verify;
    rt_lock_take(&v->lock);
    bool first = !v->wanted;
    v->wanted = true;
    if (first)
        v->so_far = (struct edge_scrub_report){0};
    if (call)
        edge_calls_add(&v->calls, call);
    rt_lock_release(&v->lock);
    if (!first)
        return ERR_OK;
    enum err err = rt_chan_try_send(e->scrub_ops, v);
    if (err == ERR_OK || err == ERR_BUSY) /* busy: the task has not picked up that one is wanted */
        return ERR_OK;
    rt_lock_take(&v->lock);
    v->wanted = false;
    struct edge_call *all = edge_calls_take(&v->calls);
    rt_lock_release(&v->lock);
    for (struct edge_call *c = all, *next; c; c = next) {
        next = c->next;
        if (c != call)
            net_reply_problem(c->rq, ERR_DRAINING, "the service is shutting down");
    }
    return err;
}

static bool note(struct edge *e, const struct edge_scrub_report *so_far)
{
    rt_lock_take(&e->verify->lock);
    e->verify->so_far = *so_far;
    rt_lock_release(&e->verify->lock);
    return true;
}

void edge_verify_reply(struct edge *e, struct net_req *rq, int status, const char *state,
                       const struct edge_scrub_report *r)
{
    struct json_w w;
    struct buf b;
    rt_lock_take(&e->store->refs);
    uint64_t objects = map_count(&e->store->catalog.objects), bytes = e->store->catalog.bytes;
    rt_lock_release(&e->store->refs);
    buf_init(&b, 1 << 16);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_cstr(&w, "state", state);
    json_put_u64(&w, "objects", objects);
    json_put_u64(&w, "bytes", bytes);
    json_put_u64(&w, "checked", r->checked);
    json_key(&w, "corrupt");
    json_arr_begin(&w);
    for (size_t i = 0; i < r->corrupt_n; i++)
        json_hex(&w, r->corrupt[i].b, 32);
    json_arr_end(&w);
    json_obj_end(&w);
    if (b.err == ERR_OK)
        net_reply_json(rq, status, buf_bytes(&b));
    else
        net_reply_problem(rq, ERR_INTERNAL, "the answer is too large");
    buf_fini(&b);
}

void edge_verify_run(struct edge *e, struct edge_turns *turns)
{
    struct edge_verify *v = e->verify;
    struct edge_scrub_report *r = calloc(1, sizeof *r);
    if (!edge_verify_wanted(e)) {
        free(r);
        return;
    }
    enum err err = rt_task_stopping(turns->self) ? ERR_CANCELED
                   : r                           ? edge_scrub_pass(e, turns, 0, r, note)
                                                 : ERR_NO_MEMORY;
    rt_lock_take(&v->lock);
    v->wanted = false;
    struct edge_call *all = edge_calls_take(&v->calls);
    rt_lock_release(&v->lock);
    for (struct edge_call *c = all, *next; c; c = next) {
        next = c->next; /* it goes with its request */
        if (err == ERR_OK)
            edge_verify_reply(e, c->rq, 200, "done", r);
        else
            net_reply_problem(c->rq, err == ERR_CANCELED ? ERR_DRAINING : ERR_UNAVAILABLE,
                              "the objects cannot be read");
    }
    free(r);
}

void edge_verify_tick(struct edge *e)
{
    struct edge_verify *v = e->verify;
    rt_lock_take(&v->lock);
    struct edge_call *late = edge_calls_overdue(&v->calls, edge_now_ns(e));
    struct edge_scrub_report *r = late ? malloc(sizeof *r) : NULL;
    if (r)
        *r = v->so_far;
    rt_lock_release(&v->lock);
    for (struct edge_call *c = late, *next; c; c = next) {
        next = c->next;
        if (r)
            edge_verify_reply(e, c->rq, 202, "running", r);
        else
            net_reply_problem(c->rq, ERR_UNAVAILABLE, "no memory");
    }
    free(r);
}
