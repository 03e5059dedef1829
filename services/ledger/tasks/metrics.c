/* Gauges once a second; spans are exported by the frame's own body. */
#include "rt/interval.h"
#include "rt/task.h"
#include "services/ledger/service.h"

static void sample_streams(struct ledger_service *s)
{
    struct obs_family *m = s->l->m[LEDGER_M_subscribers];
    uint32_t all = atomic_load(&s->n_streams), events = atomic_load(&s->l->event_subscribers);
    obs_gauge_set(OBS_GAUGE_OF(m, "events"), (double)events);
    obs_gauge_set(OBS_GAUGE_OF(m, "roots"),
                  (double)(all > events ? all - events : 0)); /* two words, read one after the other */
}

static void sample(struct ledger *l) RT_BLOCKS
{
    struct ledger_counts n = ledger_state_counts(l->state);
    int64_t began = atomic_load(&l->commit_began_ns), now = l->deps.clock->mono_ns(l->deps.clock->ctx);
    obs_gauge_set(obs_gauge(l->m[LEDGER_M_head_seq]), (double)ledger_head_seq(l));
    obs_gauge_set(obs_gauge(l->m[LEDGER_M_accounts]), (double)n.accounts);
    obs_gauge_set(obs_gauge(l->m[LEDGER_M_open_holds]), (double)n.open_holds);
    obs_gauge_set(obs_gauge(l->m[LEDGER_M_committer_lag]), began == 0 ? 0 : (double)(now - began) / 1e9);
    obs_gauge_set(obs_gauge(l->m[LEDGER_M_checkpoint_seq]), (double)atomic_load(&l->checkpoint_seq));
    obs_gauge_set(obs_gauge(l->m[LEDGER_M_safe_mode]), ledger_safe_cause(l) == CAUSE_NONE ? 0 : 1);
    struct ledger_view *v = ledger_index_pin(&l->index);
    obs_gauge_set(obs_gauge(l->m[LEDGER_M_index_runs]), (double)v->n_runs);
    ledger_view_unpin(v);
    uint64_t bytes;
    if (!l->set.amnesia && store_disk_free_bytes(l->deps.disk, l->set.dir, &bytes) == ERR_OK)
        obs_gauge_set(obs_gauge(l->m[LEDGER_M_disk_free]), (double)bytes);
}

enum err ledger_metrics_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    struct rt_interval tick;
    rt_interval_init(&tick, 1000, s->l->deps.clock->mono_ns(s->l->deps.clock->ctx));
    do {
        rt_task_beat(self);
        sample(s->l);
        sample_streams(s);
        svc_export_traces(s->svc);
    } while (rt_interval_wait(&tick, self) == ERR_OK);
    return ERR_OK;
}
