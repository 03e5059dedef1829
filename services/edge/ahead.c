#include "services/edge/ahead.h"

#include <stdlib.h>

#include "base/check.h"
#include "net/loop.h"
#include "services/edge/file.h"

enum { LOOK_BYTES = 64 << 10 }; /* may be in memory all the same: the loop looks itself */

struct edge_ahead {
    _Atomic uint32_t refs;
    struct edge *e;
    struct edge_file *file;
    unsigned loop; /* where the answer leaves */
    /* What is being read. Written by the loop while nobody reads; reading: release by who ended, acquire by the other. */
    uint64_t at, n;
    _Atomic bool reading;
    _Atomic bool failed; /* who sends it finds out why */
    struct edge_job job;
};

struct edge_ahead *edge_ahead_create(struct edge *e, const struct net_req *rq, struct edge_file *file)
{
    struct edge_ahead *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    atomic_init(&a->refs, 1);
    a->e = e;
    a->file = edge_file_ref(file);
    a->loop = net_req_loop_index(rq);
    return a;
}

void edge_ahead_unref(struct edge_ahead *a)
{
    /* Pairs with itself: the last one to leave sees everything the others did. */
    if (atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) > 1)
        return;
    edge_file_unref(a->file);
    free(a);
}

struct edge_file *edge_ahead_file(const struct edge_ahead *a)
{
    return a->file;
}

static void ended(struct edge_ahead *a, bool failed)
{
    if (failed)
        atomic_store_explicit(&a->failed, true, memory_order_relaxed);
    atomic_store_explicit(&a->reading, false, memory_order_release);
    net_server_go_on(svc_server(a->e->svc), a->loop);
    edge_ahead_unref(a);
}

static void read_piece(struct edge *e, struct net_req *rq, void *arg, unsigned reader) RT_UNCHECKED
{
    struct edge_ahead *a = arg;
    (void)rq;
    (void)reader;
    ended(a, edge_file_warm_up(a->file, a->at, a->n, edge_now_ns(e)) != ERR_OK);
}

static void drop_piece(void *arg)
{
    ended(arg, true);
}

/* The next piece. False: it is not on its way. */
static bool fetch(struct edge_ahead *a, uint64_t at, enum err *out_err)
{
    uint64_t left = a->file->size - at;
    a->at = at;
    a->n = left < EDGE_AHEAD_BYTES ? left : EDGE_AHEAD_BYTES;
    a->job = (struct edge_job){.run = read_piece, .drop = drop_piece, .arg = a};
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&a->reading, true, memory_order_relaxed);
    *out_err = rt_chan_try_send(a->e->read, &a->job);
    if (*out_err == ERR_OK)
        return true;
    atomic_store_explicit(&a->reading, false, memory_order_relaxed);
    edge_ahead_unref(a);
    return false;
}

size_t edge_ahead_ready(void *ahead, off_t off, size_t n)
{
    struct edge_ahead *a = ahead;
    uint64_t at = (uint64_t)off;
    int64_t now_ns = edge_now_ns(a->e);
    enum err err;
    if (!net_loop_current())
        return n;
    size_t warm = (size_t)edge_file_warm_ahead(a->file, at, n, now_ns);
    if (warm || atomic_load_explicit(&a->reading, memory_order_acquire))
        return warm;
    size_t some = n < LOOK_BYTES ? n : LOOK_BYTES;
    if (atomic_load_explicit(&a->failed, memory_order_relaxed))
        return n;
    if (edge_file_warm_now(a->file, at, some, now_ns))
        return some;
    if (fetch(a, at, &err))
        return 0;
    return err == ERR_CLOSED ? n : 0; /* full: others read, and this is asked again in a while */
}
