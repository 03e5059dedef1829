/* The janitor: receipts past their time and counters of yesterday, in slices so small that nobody notices. */
#include "services/wallet/wallet.h"

enum { PERIOD_MS = 1000, SLICE = 256 };

static void tidy(struct rt_task *self, struct wallet *w)
{
    int64_t before = wallet_now_ns(w) - wallet_config(w)->idempotency_ttl * 1000000;
    uint64_t ttl = 0, bytes = 0, entries = 0;
    for (size_t i = 0; i <= w->shard_mask; i++) {
        struct wallet_shard *s = &w->shards[i];
        rt_lock_take(&s->idem_lock);
        wallet_idem_expire(&s->idem, before, SLICE);
        ttl += s->idem.evicted_ttl;
        bytes += s->idem.evicted_bytes;
        s->idem.evicted_ttl = s->idem.evicted_bytes = 0;
        entries += wallet_idem_count(&s->idem);
        rt_lock_release(&s->idem_lock);
        rt_task_beat(self);
    }
    obs_counter_add(obs_counter_nth(w->m[WALLET_M_idem_evictions], 0), ttl);
    obs_counter_add(obs_counter_nth(w->m[WALLET_M_idem_evictions], 1), bytes);
    obs_gauge_set(obs_gauge(w->m[WALLET_M_idem_entries]), (double)entries);
    int64_t today = clock_wall_ms(svc_clock(w->svc)) / 86400000;
    wallet_daily_saw(w, today);
    for (size_t i = 0; i < WALLET_DAILY_STRIPES; i++) {
        rt_lock_take(&w->daily[i].lock);
        wallet_daily_sweep(&w->daily[i].daily, today);
        rt_lock_release(&w->daily[i].lock);
    }
}

enum err wallet_janitor_run(struct rt_task *self, void *arg)
{
    while (rt_task_sleep(self, deadline_in_ms(PERIOD_MS)) == ERR_OK)
        tidy(self, arg);
    return rt_task_canceled(self) ? ERR_CANCELED : ERR_OK;
}
