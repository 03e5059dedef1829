#include "services/rewarder/receipt.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "rt/oneshot.h"

struct rewarder_receipt {
    atomic_uint refs; /* acq_rel: the last one frees what the other wrote */
    struct rt_oneshot slot;
};

enum { DURABLE = 1, LOST = 2 };

static void unref(struct rewarder_receipt *rc)
{
    if (atomic_fetch_sub_explicit(&rc->refs, 1, memory_order_acq_rel) != 1)
        return;
    rt_oneshot_fini(&rc->slot);
    free(rc);
}

struct rewarder_receipt *rewarder_receipt_create(void)
{
    struct rewarder_receipt *rc = malloc(sizeof *rc);
    if (!rc)
        return NULL;
    atomic_init(&rc->refs, 2);
    rt_oneshot_init(&rc->slot);
    return rc;
}

void rewarder_receipt_give(struct rewarder_receipt *rc, bool durable)
{
    (void)!rt_oneshot_send(&rc->slot, (void *)(uintptr_t)(durable ? DURABLE : LOST));
    unref(rc);
}

enum err rewarder_receipt_await(struct rewarder_receipt *rc, struct deadline by)
{
    void *value;
    enum err e = rt_oneshot_recv(&rc->slot, by, &value);
    if (e != ERR_OK)
        return e;
    return (uintptr_t)value == DURABLE ? ERR_OK : ERR_IO;
}

void rewarder_receipt_leave(struct rewarder_receipt *rc)
{
    void *value;
    (void)!rt_oneshot_abandon(&rc->slot, &value);
    unref(rc);
}
