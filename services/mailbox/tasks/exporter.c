/*
 * The exporter: readiness every 50 ms, gauges four times a second, and the telemetry nobody else listens to.
 */
#include <stdlib.h>
#include <string.h>

#include "services/mailbox/mailbox.h"

enum { READY_MS = 50, GAUGES_EVERY = 5 };

/* Class names as of the configuration; `version` says which. */
struct classes {
    struct mailbox_rules *rules;
    uint64_t version;
};

static void depth(struct mailbox *mb, const char *queue, const char *shard, double n, double capacity)
{
    struct obs_family *most = obs_family_find(svc_metrics(mb->svc), "queue_capacity");
    obs_gauge_set(OBS_GAUGE_OF(most, queue), capacity);
    obs_gauge_set(OBS_GAUGE_OF(mb->m[MAILBOX_M_queue_depth], queue, shard), n);
    obs_gauge_set(OBS_GAUGE_OF(mb->m[MAILBOX_M_saturation], queue, shard), capacity > 0 ? n / capacity : 0);
}

static void export_lane(struct mailbox *mb, struct mailbox_lane *l)
{
    static const struct {
        const char *name;
        enum mailbox_state state;
    } states[] = {{"ready", MAILBOX_READY},
                  {"delayed", MAILBOX_DELAYED},
                  {"leased", MAILBOX_LEASED},
                  {"dlq", MAILBOX_DLQ},
                  {"done", MAILBOX_DONE}};
    const struct mailbox_config *cfg = mailbox_config(mb);
    double index_max = (double)mailbox_index_max(cfg) / mb->shards;
    struct rt_chan_stats w = rt_chan_stats(l->work), r = rt_chan_stats(l->requeue);
    depth(mb, "work_tx", l->label, (double)atomic_load(&l->jobs), (double)w.capacity);
    depth(mb, "requeue_tx", l->label, (double)r.depth, (double)r.capacity);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        depth(mb, states[i].name, l->label, (double)atomic_load(&l->count[states[i].state]),
              states[i].state == MAILBOX_LEASED ? (double)cfg->global_inflight : index_max);
    obs_gauge_set(OBS_GAUGE_OF(mb->m[MAILBOX_M_reorder_depth], l->label),
                  (double)atomic_load(&l->reorder_depth));
    obs_gauge_set(OBS_GAUGE_OF(mb->m[MAILBOX_M_readonly], l->label), atomic_load(&l->readonly));
    obs_gauge_set(OBS_GAUGE_OF(mb->m[MAILBOX_M_index_entries], l->label), (double)atomic_load(&l->entries));
    obs_gauge_set(OBS_GAUGE_OF(mb->m[MAILBOX_M_topics], l->label), (double)atomic_load(&l->topics));
}

static void export_all(struct mailbox *mb)
{
    double waiters = 0, streams = 0, leases = 0, pressure = 0;
    for (uint16_t i = 0; i < mb->lanes_made; i++) {
        struct mailbox_lane *l = &mb->lanes[i];
        export_lane(mb, l);
        waiters += atomic_load(&l->waiters);
        streams += atomic_load(&l->open_streams);
        leases += atomic_load(&l->count[MAILBOX_LEASED]);
        pressure = atomic_load(&l->disk_full) ? 1 : pressure;
    }
    obs_gauge_set(obs_gauge(mb->m[MAILBOX_M_waiters]), waiters);
    obs_gauge_set(obs_gauge(mb->m[MAILBOX_M_streams]), streams);
    obs_gauge_set(obs_gauge(mb->m[MAILBOX_M_leases]), leases);
    obs_gauge_set(obs_gauge(mb->m[MAILBOX_M_disk_pressure]), pressure);
    struct rt_chan_stats r = rt_chan_stats(mb->reproc);
    depth(mb, "reproc_tx", "all", (double)r.depth, (double)r.capacity);
    depth(mb, "events_tx", "all", 0, 1024);
}

/* Each class once, though several policies may share its name; one that is no longer configured has nothing waiting. */
static void export_oldest(struct mailbox *mb, struct classes *k)
{
    struct obs_family *f = mb->m[MAILBOX_M_oldest_ready];
    uint64_t version = atomic_load(&mb->rules_version);
    char why[200];
    if (version != k->version) {
        for (uint8_t c = 0; c < k->rules->policies.n; c++)
            obs_gauge_set(OBS_GAUGE_OF(f, k->rules->policies.p[c].class_name), 0);
        if (mailbox_rules_make(mailbox_config(mb), mb->shards, k->rules, why) != ERR_OK)
            return; /* adjust() has read the same lines: no memory can be missing here */
        k->version = version;
    }
    const struct mailbox_policies *ps = &k->rules->policies;
    int64_t now_us = clock_mono_ns(mb->clock) / 1000;
    for (uint8_t c = 0; c < ps->n; c++) {
        int64_t since = INT64_MAX;
        bool told = false;
        for (uint8_t b = 0; b < ps->n; b++) {
            if (strcmp(ps->p[b].class_name, ps->p[c].class_name) != 0)
                continue;
            told = told || b < c;
            for (uint16_t i = 0; i < mb->shards; i++) {
                int64_t at = atomic_load_explicit(&mb->lanes[i].oldest_ready_us[b], memory_order_relaxed);
                since = at < since ? at : since;
            }
        }
        if (!told)
            obs_gauge_set(OBS_GAUGE_OF(f, ps->p[c].class_name),
                          since < now_us ? (double)(now_us - since) / 1e6 : 0);
    }
}

enum err mailbox_exporter_run(struct rt_task *self, void *arg)
{
    struct mailbox *mb = arg;
    struct classes classes = {calloc(1, sizeof *classes.rules), UINT64_MAX};
    uint64_t lagged = rt_bcast_stats(mb->events).lagged;
    if (!classes.rules)
        return ERR_NO_MEMORY;
    for (unsigned n = 0; rt_task_sleep(self, deadline_in_ms(READY_MS)) == ERR_OK && !rt_task_stopping(self);
         n++) {
        svc_health_tick(mb->svc);
        if (n % GAUGES_EVERY)
            continue;
        export_all(mb);
        export_oldest(mb, &classes);
        uint64_t now = rt_bcast_stats(mb->events).lagged;
        obs_counter_add(obs_counter(mb->m[MAILBOX_M_bus_lagged]), now - lagged);
        obs_counter_add(OBS_COUNTER_OF(mb->m[MAILBOX_M_queue_dropped], "events_tx"), now - lagged);
        lagged = now;
    }
    free(classes.rules);
    return ERR_OK;
}
