/* A call whose caller waits for its answer: the callback fills a slot that both sides hold. */
#include <stdlib.h>

#include "base/check.h"
#include "net/oap_client_internal.h"
#include "rt/oneshot.h"

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
    buf_init(&w->payload, NET_OAP_ANSWER_MAX);
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
