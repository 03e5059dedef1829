#include "net/outbox.h"

#include "base/check.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "rt/chan.h"
#include "rt/os.h"

enum { HELD = 256 }; /* more than one iteration usually brings; a full one is sent at once */

struct lane {
    struct net_batch batch;
    struct net_outbox *o;
    struct net_loop *loop;
    size_t n;
    void *items[HELD];
};

struct net_outbox {
    struct rt_chan *to;
    enum rt_policy policy;
    net_outbox_refused *refused;
    void *ctx;
    unsigned lanes_n;
    struct lane lanes[];
};

static void lane_push(struct lane *l)
{
    struct net_outbox *o = l->o;
    void *dropped[HELD];
    size_t gone = 0;
    enum err e = rt_chan_push_drop_oldest_batch(o->to, l->items, l->n, dropped, &gone);
    for (size_t i = 0; e != ERR_OK && i < l->n; i++)
        o->refused(l->items[i], e, o->ctx);
    for (size_t i = 0; i < gone; i++)
        o->refused(dropped[i], ERR_BUSY, o->ctx);
    l->n = 0;
}

static void lane_send(struct lane *l)
{
    struct net_outbox *o = l->o;
    size_t sent = 0;
    enum err e = ERR_OK;
    while (sent < l->n && e == ERR_OK) {
        size_t n = 0;
        e = rt_chan_try_send_batch(o->to, l->items + sent, l->n - sent, &n);
        sent += e == ERR_OK ? n : 0;
    }
    for (; sent < l->n; sent++)
        o->refused(l->items[sent], e, o->ctx);
    l->n = 0;
}

static void lane_flush(struct lane *l)
{
    if (l->n == 0)
        return;
    if (l->o->policy == RT_DROP_OLDEST)
        lane_push(l);
    else
        lane_send(l);
}

static void lane_batch(struct net_batch *b)
{
    lane_flush((struct lane *)(void *)b);
}

enum err net_outbox_create(struct net_server *s, struct rt_chan *to, enum rt_policy policy,
                           net_outbox_refused *refused, void *ctx, struct net_outbox **out_outbox)
{
    unsigned lanes = net_server_threads(s);
    struct net_outbox *o = os_alloc(sizeof *o + lanes * sizeof(struct lane));
    if (!o)
        return ERR_NO_MEMORY;
    *o = (struct net_outbox){.to = to, .policy = policy, .refused = refused, .ctx = ctx, .lanes_n = lanes};
    for (unsigned i = 0; i < lanes; i++) {
        struct lane *l = &o->lanes[i];
        l->o = o;
        l->loop = net_server_loop(s, i);
        l->batch.fn = lane_batch;
        net_loop_at_batch_end(l->loop, &l->batch);
    }
    *out_outbox = o;
    return ERR_OK;
}

void net_outbox_destroy(struct net_outbox *o)
{
    for (unsigned i = 0; o && i < o->lanes_n; i++) {
        lane_flush(&o->lanes[i]);
        net_loop_forget_batch(o->lanes[i].loop, &o->lanes[i].batch);
    }
    os_free(o);
}

void net_outbox_put(struct net_outbox *o, unsigned loop_index, void *item)
{
    CHECK(loop_index < o->lanes_n && item);
    struct lane *l = &o->lanes[loop_index];
    if (l->n == HELD)
        lane_flush(l);
    if (l->n == 0) /* a request that waited for room begins when output was written, after lane_batch() */
        net_loop_again(l->loop);
    l->items[l->n++] = item;
}
