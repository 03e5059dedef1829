/* cas_writer: the only one that changes the store. Takes what has gathered, up to 32 commits, and flushes once for all. */
#include <stdlib.h>

#include "services/edge/store.h"

enum { BATCH = 32, UPKEEP_MS = 60000, ROOM_MS = 1000 };

RT_BLOCKS
static bool do_ops(struct edge *e)
{
    void *item;
    bool any = false;
    while (rt_chan_try_recv(e->store_ops, &item) == ERR_OK) {
        edge_store_do(e->store, item);
        free(item);
        any = true;
    }
    return any;
}

enum err edge_cas_writer_run(struct rt_task *self, void *arg)
{
    struct edge *e = arg;
    int64_t upkeep_ns = edge_now_ns(e);
    for (;;) {
        void *items[BATCH];
        size_t n = 0;
        struct edge_store *s = e->store;
        uint64_t noted = rt_bell_note(&e->store_bell);
        atomic_store(&s->at_work_ns, edge_now_ns(e));
        bool busy = do_ops(e);
        enum err err =
            rt_task_canceled(self) ? ERR_CANCELED : rt_chan_try_recv_batch(e->commit, items, BATCH, &n);
        if (err == ERR_OK)
            edge_store_commit(e->store, (struct edge_commit **)(void *)items, n);
        else if (err == ERR_EMPTY && !busy) {
            bool doubt = atomic_load(&s->full) || atomic_load(&s->failed);
            atomic_store(&s->at_work_ns, 0);
            err = rt_bell_wait(&e->store_bell, noted, deadline_in_ms(doubt ? ROOM_MS : UPKEEP_MS));
            atomic_store(&s->at_work_ns, edge_now_ns(e));
        }
        if (err != ERR_OK && err != ERR_EMPTY && err != ERR_TIMEOUT) {
            if (svc_draining(e->svc) && rt_chan_try_recv_batch(e->commit, items, BATCH, &n) == ERR_OK)
                edge_store_commit(e->store, (struct edge_commit **)(void *)items,
                                  n); /* what it holds is still written */
            do_ops(e);
            edge_store_upkeep(e->store, true);
            return err == ERR_CLOSED || rt_task_stopping(self) ? ERR_OK : err;
        }
        if (atomic_load(&s->full))
            edge_store_look_for_room(s);
        if (atomic_load(&s->failed))
            edge_store_probe(s);
        if (edge_now_ns(e) - upkeep_ns >= UPKEEP_MS * 1000000LL) {
            upkeep_ns = edge_now_ns(e);
            edge_store_upkeep(e->store, false);
        }
        rt_task_beat(self);
    }
}
