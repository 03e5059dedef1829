/*
 * The invalidator: ledger_bus -> touched, feed_seq, feed_ns. Events that were lost, or a hole between two, make every
 * cached balance suspect at once.
 */
#include "services/wallet/tasks/feed.h"

enum { BEAT_MS = 500 };

enum err wallet_invalidator_run(struct rt_task *self, void *arg)
{
    struct wallet *w = arg;
    struct rt_bcast_sub *sub = rt_bcast_subscribe(w->ledger_bus, NULL, NULL);
    if (!sub)
        return ERR_NO_MEMORY;
    os_count_set(&w->bus_read, rt_bcast_stats(w->ledger_bus).published);
    /* What was published while nobody listened is unknown. */
    wallet_all_dirty(w, atomic_load(&w->head_seq));
    enum err e;
    for (;;) {
        void *item;
        rt_task_beat(self);
        e = rt_bcast_recv(sub, deadline_in_ms(BEAT_MS), &item);
        if (e == ERR_OK) {
            const struct wallet_commit *c = item;
            wallet_heard(w, &(struct wallet_heard){c->seq_start, c->seq_end, c->heard_ns, c->slots, c->n});
            wallet_commit_unref(item);
            os_count_add(&w->bus_read, 1);
        } else if (e == ERR_LAGGED) {
            uint64_t lost = rt_bcast_take_lost(sub);
            os_count_add(&w->bus_read, lost);
            obs_counter_add(obs_counter_nth(w->m[WALLET_M_bus_lagged], 1), lost);
            obs_counter_add(obs_counter_nth(w->m[WALLET_M_queue_dropped], 2), lost);
            wallet_all_dirty(w, atomic_load(&w->head_seq));
        } else if (e != ERR_TIMEOUT)
            break;
    }
    rt_bcast_unsubscribe(sub);
    return e == ERR_CLOSED || (rt_task_stopping(self) && !rt_task_canceled(self)) ? ERR_OK : e;
}
