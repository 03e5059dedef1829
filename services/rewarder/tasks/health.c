/* Readiness and gauges, ten times a second. */
#include "rt/interval.h"
#include "services/rewarder/rewarder.h"

enum { PERIOD_MS = 100, FULL_PERCENT = 80, CLEAR_PERCENT = 60 };
static const uint64_t free_bytes_min = 64u << 20;

static void look_at_disk(struct rewarder *r) RT_BLOCKS
{
    uint64_t free_bytes;
    if (atomic_load(&r->disk_full) &&
        store_disk_free_bytes(r->files.disk, r->files.root, &free_bytes) == ERR_OK &&
        free_bytes >= free_bytes_min)
        atomic_store(&r->disk_full, false);
    obs_health_set(svc_health(r->svc), r->cause_store,
                   !atomic_load(&r->seals_off) && !atomic_load(&r->disk_full));
}

static void look_at_queue(struct rewarder *r)
{
    struct rt_chan_stats s = rt_chan_stats(r->work);
    if (s.depth * 100 >= s.capacity * FULL_PERCENT)
        r->work_queue_full = true;
    else if (s.depth * 100 < s.capacity * CLEAR_PERCENT)
        r->work_queue_full = false;
    obs_health_set(svc_health(r->svc), r->cause_work_queue, !r->work_queue_full);
}

static void set_gauges(struct rewarder *r)
{
    size_t held[4];
    obs_gauge_set(obs_gauge(r->metrics[REWARDER_M_unsettled]),
                  (double)rewarder_registry_count_unsettled(&r->registry, held));
    for (size_t i = 0; i < 4; i++)
        obs_gauge_set(obs_gauge_nth(r->metrics[REWARDER_M_held], i), (double)held[i]);
    int64_t now = os_now_ns();
    obs_gauge_set(obs_gauge_nth(r->metrics[REWARDER_M_breaker], 0),
                  rt_breaker_state(&r->ledger_breaker, now));
    obs_gauge_set(obs_gauge_nth(r->metrics[REWARDER_M_breaker], 1),
                  rt_breaker_state(&r->accounting_breaker, now));
}

enum err rewarder_health_run(struct rt_task *self, void *arg)
{
    struct rewarder *r = arg;
    struct rt_interval tick;
    rt_interval_init(&tick, PERIOD_MS, os_now_ns());
    for (;;) {
        rt_task_beat(self);
        look_at_disk(r);
        look_at_queue(r);
        set_gauges(r);
        svc_health_tick(r->svc);
        if (rt_interval_wait(&tick, self) != ERR_OK)
            return ERR_OK;
    }
}
