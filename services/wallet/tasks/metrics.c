/* The metrics ticker: depths and ages once per metrics_tick; traces out. */
#include "rt/interval.h"
#include "services/wallet/wallet.h"

static double waiting(struct rt_bcast *b, const struct os_count *read)
{
    struct rt_bcast_stats s = rt_bcast_stats(b);
    uint64_t seen = os_count_get(read), depth = s.published > seen ? s.published - seen : 0;
    return (double)(depth < s.capacity ? depth : s.capacity);
}

static void sample(struct wallet *w)
{
    int64_t now = wallet_now_ns(w);
    size_t work = 0, parked = 0;
    for (size_t i = 0; i < w->n_workers; i++) {
        work += rt_chan_depth(w->workers[i].work);
        parked += os_count_get(&w->workers[i].parked);
    }
    rt_lock_take(&w->jobs_lock);
    size_t unsettled = w->jobs.count - pool_free_count(&w->jobs);
    rt_lock_release(&w->jobs_lock);
    obs_gauge_set(obs_gauge_nth(w->m[WALLET_M_queue_depth], 0), (double)work);
    obs_gauge_set(obs_gauge_nth(w->m[WALLET_M_queue_depth], 1), waiting(w->events, &w->events_read));
    obs_gauge_set(obs_gauge_nth(w->m[WALLET_M_queue_depth], 2), waiting(w->ledger_bus, &w->bus_read));
    obs_gauge_set(obs_gauge(w->m[WALLET_M_parked]), (double)parked);
    obs_gauge_set(obs_gauge(w->m[WALLET_M_unsettled]), (double)unsettled);
    obs_gauge_set(obs_gauge(w->m[WALLET_M_owing]), (double)ledger_client_owing(w->ledger));
    obs_gauge_set(obs_gauge(w->m[WALLET_M_in_doubt]), (double)atomic_load(&w->in_doubt));
    obs_gauge_set(obs_gauge_nth(w->m[WALLET_M_breaker_state], 0),
                  (double)rt_breaker_state(&w->breaker, now));
    int64_t heard = (int64_t)os_a64_load(&w->feed_ns, memory_order_relaxed);
    if (!heard) /* never: as old as we are */
        heard = w->started_ns;
    obs_gauge_set(obs_gauge(w->m[WALLET_M_feed_age]), (double)(now - heard) / 1e9);
}

enum err wallet_metrics_run(struct rt_task *self, void *arg)
{
    struct wallet *w = arg;
    for (;;) {
        sample(w);
        svc_export_traces(w->svc);
        rt_task_beat(self);
        if (rt_task_sleep(self, deadline_in_ms(wallet_config(w)->metrics_tick)) != ERR_OK)
            return rt_task_canceled(self) ? ERR_CANCELED : ERR_OK;
    }
}
