/* Readiness, gauges and the streams of events, ten times a second. */
#include "rt/interval.h"
#include "services/rewarder/rewarder.h"

enum { PERIOD_MS = 100, FULL_PERCENT = 80, CLEAR_PERCENT = 60 };

static void look_at_disk(struct rewarder *r) RT_BLOCKS
{
    if (atomic_load(&r->disk_full) && rewarder_is_roomy(r))
        atomic_store(&r->disk_full, false);
    obs_health_set(svc_health(r->svc), r->cause_store,
                   !atomic_load(&r->seals_off) && !atomic_load(&r->disk_full));
}

static void look_at_queue(struct rewarder *r)
{
    struct rt_chan_stats s = rt_chan_stats(r->work);
    if (s.depth * 100 >= s.capacity * FULL_PERCENT)
        r->seen.work_queue_full = true;
    else if (s.depth * 100 < s.capacity * CLEAR_PERCENT)
        r->seen.work_queue_full = false;
    obs_health_set(svc_health(r->svc), r->cause_work_queue, !r->seen.work_queue_full);
}

static void look_at_breakers(struct rewarder *r)
{
    static const char *const names[] = {"ledger", "accounting"};
    static const char *const states[] = {"closed", "half_open", "open"};
    struct rt_breaker *breakers[] = {&r->ledger_breaker, &r->accounting_breaker};
    for (size_t i = 0; i < 2; i++) {
        int now = (int)rt_breaker_state(breakers[i], os_now_ns());
        obs_gauge_set(obs_gauge_nth(r->metrics[REWARDER_M_breaker], i), now);
        if (now != r->seen.breakers[i])
            obs_log(r->log, now == RT_BREAKER_OPEN ? OBS_WARN : OBS_INFO, "breaker.change",
                    OBS_STR("target", names[i]), OBS_STR("state", states[now]), OBS_END);
        r->seen.breakers[i] = now;
    }
    obs_health_set(svc_health(r->svc), r->cause_accounting,
                   !*rewarder_config(r)->accounting_base_url || r->seen.breakers[1] == RT_BREAKER_CLOSED);
}

/* The causes of metrics.def, in its order. */
static void set_degraded(struct rewarder *r)
{
    static const char *const causes[] = {"started",    "not_draining", "tasks",      "store",
                                         "work_queue", "ledger",       "accounting", "policy"};
    struct obs_health *h = svc_health(r->svc);
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
        size_t at;
        bool known = obs_health_find(h, causes[i], &at);
        obs_gauge_set(obs_gauge_nth(r->metrics[REWARDER_M_degraded], i), known && !obs_health_ok(h, at));
    }
}

static void set_gauges(struct rewarder *r)
{
    size_t held[4];
    set_degraded(r);
    obs_gauge_set(obs_gauge(r->metrics[REWARDER_M_unsettled]),
                  (double)rewarder_registry_count_unsettled(&r->registry, held));
    for (size_t i = 0; i < 4; i++)
        obs_gauge_set(obs_gauge_nth(r->metrics[REWARDER_M_held], i), (double)held[i]);
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
        look_at_breakers(r);
        set_gauges(r);
        svc_health_tick(r->svc);
        svc_feed_tick(r->events, false);
        if (rt_interval_wait(&tick, self) != ERR_OK) {
            if (svc_draining(r->svc))
                svc_feed_tick(r->events, true);
            return ERR_OK;
        }
    }
}
