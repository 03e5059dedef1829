/* metrics: renders /metrics for who asks; every 100 ms readiness, promised answers and gauges, every second the capability cache. */
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

static void tick(struct edge *e, unsigned n)
{
    svc_health_tick(e->svc);
    edge_fills_tick(e);
    edge_reload_tick(e);
    edge_verify_tick(e);
    svc_feed_tick(e->events, false);
    set_gauges(e);
    if (n % 10 == 0)
        auth_refresh(svc_auth(e->svc));
}

/* Answers who scrapes until it is time for the next tick. Not ERR_TIMEOUT: there is none. */
RT_BLOCKS
static enum err serve_scrapes(struct edge *e, struct deadline by)
{
    enum err err = ERR_OK;
    while (err == ERR_OK && !deadline_passed(by)) {
        void *rq;
        err = rt_chan_recv(e->scrape, by, &rq);
        if (err == ERR_OK)
            svc_reply_metrics(e->svc, rq);
    }
    return err == ERR_OK ? ERR_TIMEOUT : err;
}

enum err edge_metrics_run(struct rt_task *self, void *arg)
{
    struct edge *e = arg;
    enum err err = ERR_TIMEOUT;
    for (unsigned n = 0; err == ERR_TIMEOUT && !rt_task_stopping(self); n++) {
        tick(e, n);
        rt_task_beat(self);
        err = serve_scrapes(e, deadline_in_ms(TICK_MS));
    }
    if (svc_draining(e->svc)) {
        void *rq;
        while (rt_chan_try_recv(e->scrape, &rq) == ERR_OK)
            svc_reply_metrics(e->svc, rq);
        svc_feed_tick(e->events, true);
    }
    return rt_task_stopping(self) ? ERR_OK : ERR_CANCELED;
}
