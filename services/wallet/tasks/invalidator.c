/*
 * The invalidator: ledger_bus -> touched, feed_seq, feed_ns. Events that were lost, or a hole between two, make every
 * cached balance suspect at once.
 */
#include "services/wallet/tasks/feed.h"

enum { BEAT_MS = 500 };

static void raise(_Atomic uint64_t *slot, uint64_t seq)
{
    uint64_t now = atomic_load_explicit(slot, memory_order_relaxed);
    while (now < seq && !atomic_compare_exchange_weak_explicit(slot, &now, seq, memory_order_release,
                                                               memory_order_relaxed))
        ;
}

static void apply(struct wallet *w, const struct wallet_commit *c)
{
    uint64_t known = atomic_load_explicit(&w->feed_seq, memory_order_relaxed);
    if (c->seq_end <= known)
        return; /* of a feed before this one */
    if (c->seq_start > known + 1)
        wallet_all_dirty(w, c->seq_start - 1);
    for (size_t i = 0; i < c->n; i++)
        raise(&w->touched[c->slots[i]], c->seq_end);
    /* After the slots: who sees this seq sees what it touched. */
    atomic_store_explicit(&w->feed_seq, c->seq_end, memory_order_release);
    atomic_store_explicit(&w->feed_ns, c->heard_ns, memory_order_release);
}

enum err wallet_invalidator_run(struct rt_task *self, void *arg)
{
    struct wallet *w = arg;
    struct rt_bcast_sub *sub = rt_bcast_subscribe(w->ledger_bus, NULL, NULL);
    if (!sub)
        return ERR_NO_MEMORY;
    /* What was published while nobody listened is unknown. */
    wallet_all_dirty(w, atomic_load(&w->head_seq));
    enum err e;
    for (;;) {
        void *item;
        rt_task_beat(self);
        e = rt_bcast_recv(sub, deadline_in_ms(BEAT_MS), &item);
        if (e == ERR_OK) {
            apply(w, item);
            wallet_commit_unref(item);
        } else if (e == ERR_LAGGED) {
            uint64_t lost = rt_bcast_take_lost(sub);
            obs_counter_add(obs_counter_nth(w->m[WALLET_M_bus_lagged], 1), lost);
            obs_counter_add(obs_counter_nth(w->m[WALLET_M_queue_dropped], 2), lost);
            wallet_all_dirty(w, atomic_load(&w->head_seq));
        } else if (e != ERR_TIMEOUT)
            break;
    }
    rt_bcast_unsubscribe(sub);
    return e == ERR_CLOSED || (rt_task_stopping(self) && !rt_task_canceled(self)) ? ERR_OK : e;
}
