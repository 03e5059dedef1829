/* metrics: every 100 ms readiness and promised answers, every second gauges and the capability cache. */
#include "services/edge/dirs.h"
#include "services/edge/fills.h"
#include "services/edge/reload.h"
#include "services/edge/scrub.h"
#include "svc/feed.h"

enum { TICK_MS = 100 };

static void set_gauges(struct edge *e)
{
    struct edge_store *s = e->store;
    rt_lock_take(&s->refs);
    uint64_t bytes = s->catalog.bytes;
    size_t objects = map_count(&s->catalog.objects);
    rt_lock_release(&s->refs);
    obs_gauge_set(obs_gauge(e->m[EDGE_M_cas_bytes]), (double)bytes);
    obs_gauge_set(obs_gauge(e->m[EDGE_M_cas_objects]), (double)objects);
    obs_gauge_set(obs_gauge(e->m[EDGE_M_dir_cache]), (double)edge_dirs_bytes(e->dirs));
}

enum err edge_metrics_run(struct rt_task *self, void *arg)
{
    struct edge *e = arg;
    for (unsigned n = 0; !rt_task_stopping(self); n++) {
        svc_health_tick(e->svc);
        edge_fills_tick(e);
        edge_reload_tick(e);
        edge_verify_tick(e);
        svc_feed_tick(e->events, false);
        set_gauges(e);
        if (n % 10 == 0)
            auth_refresh(svc_auth(e->svc));
        rt_task_beat(self);
        enum err err = rt_task_sleep(self, deadline_in_ms(TICK_MS));
        if (err != ERR_OK)
            break;
    }
    if (svc_draining(e->svc))
        svc_feed_tick(e->events, true);
    return rt_task_stopping(self) ? ERR_OK : ERR_CANCELED;
}
