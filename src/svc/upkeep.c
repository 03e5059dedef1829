/*
 * What the frame does all the time: readiness every 100 ms, queue and task numbers when somebody scrapes, capability cache
 * upkeep.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_write.h"
#include "svc/internal.h"

enum { TICK_MS = 100, EXPORT_MS = 1000 };

void svc__health_publish(struct svc *s)
{
    struct obs_health_view after;
    obs_health_read(s->health, &after);
    obs_gauge_set(obs_gauge(s->families[SVC_M_ready]), after.ready);
    bool meant =
        after.ready || atomic_load(&s->draining); /* who is told to stop need not be worried about */
    if (atomic_exchange(&s->was_ready, after.ready) != after.ready)
        obs_log(s->log, meant ? OBS_INFO : OBS_WARN, "ready.changed", OBS_BOOL("ready", after.ready),
                OBS_STR("missing", after.n_missing ? after.missing[0] : ""), OBS_END);
}

void svc_health_tick(struct svc *s)
{
    if (s->def->hooks.readiness)
        s->def->hooks.readiness(s, s->state);
    svc__health_publish(s);
}

enum err svc_health_task(struct rt_task *self, void *arg)
{
    while (rt_task_sleep(self, deadline_in_ms(TICK_MS)) == ERR_OK)
        svc_health_tick(arg);
    return ERR_OK;
}

enum err svc_caps_task(struct rt_task *self, void *arg)
{
    struct svc *s = arg;
    return auth_refresher_run(self, s->auth);
}

enum err svc_metrics_task(struct rt_task *self, void *arg)
{
    while (rt_task_sleep(self, deadline_in_ms(EXPORT_MS)) == ERR_OK) {
        svc_export_traces(arg);
        rt_task_beat(self);
    }
    return ERR_OK;
}

static void grow(struct obs_counter *c, uint64_t now, uint64_t *seen)
{
    obs_counter_add(c, now - *seen);
    *seen = now;
}

struct task_sums {
    struct svc *s;
    size_t n;
};

/* Counters only rise, so each rendering adds what came since the last one. */
static void collect_task(void *ctx, const struct rt_task_info *info)
{
    struct task_sums *sums = ctx;
    struct svc *s = sums->s;
    if (sums->n == SVC_TASKS_MAX)
        return;
    struct svc_task_seen *seen = &s->tasks_seen[sums->n++];
    grow(OBS_COUNTER_OF(s->families[SVC_M_tasks_spawned], info->kind), info->spawned, &seen->spawned);
    grow(OBS_COUNTER_OF(s->families[SVC_M_tasks_canceled], info->kind), info->canceled, &seen->canceled);
    grow(OBS_COUNTER_OF(s->families[SVC_M_tasks_aborted], info->kind), info->aborted, &seen->aborted);
    grow(obs_counter(s->families[SVC_M_tasks_leaked]), info->leaked, &seen->leaked);
    grow(OBS_COUNTER_OF(s->families[SVC_M_restarts], info->kind), info->restarts, &seen->restarts);
}

/* Of a broadcast everything published has passed; what a slow reader lost was dropped. */
static struct rt_chan_stats stats_of(const struct svc_queue *q)
{
    if (q->counted_by)
        return q->counted_by(q->counted_arg);
    if (q->chan)
        return rt_chan_stats(q->chan);
    struct rt_bcast_stats b = rt_bcast_stats(q->bcast);
    return (struct rt_chan_stats){
        .capacity = b.capacity, .sent = b.published, .received = b.published, .dropped = b.lagged};
}

void svc__collect(void *ctx)
{
    struct svc *s = ctx;
    for (size_t i = 0; i < s->queue_count; i++) {
        struct svc_queue *q = &s->queues[i];
        if (!q->depth && !q->high_water)
            continue; /* followed only: its service counts it */
        struct rt_chan_stats stats = stats_of(q);
        obs_gauge_set(q->depth, (double)stats.depth);
        if (q->counted_by)
            obs_gauge_set(q->capacity, (double)stats.capacity);
        obs_gauge_set(q->high_water, (double)stats.high_water);
        grow(q->rejected, stats.rejected, &q->rejected_seen);
        grow(q->dropped, stats.dropped, &q->dropped_seen);
    }
    if (s->supervisor)
        rt_supervisor_each(s->supervisor, collect_task, &(struct task_sums){s, 0});
    if (s->auth) {
        struct auth_stats stats;
        auth_stats(s->auth, &stats);
        obs_gauge_set(obs_gauge(s->families[SVC_M_cap_cached]), (double)stats.entries);
        grow(obs_counter_nth(s->families[SVC_M_cap_evictions], 0), stats.expired, &s->caps_expired_seen);
        grow(obs_counter_nth(s->families[SVC_M_cap_evictions], 1), stats.evicted, &s->caps_evicted_seen);
    }
    if (s->tls)
        grow(obs_counter(s->families[SVC_M_tls_failures]), net_tls_failures(s->tls), &s->tls_failures_seen);
    if (s->log)
        grow(obs_counter(s->families[SVC_M_log_lost]), obs_log_lost(s->log), &s->log_lost_seen);
    if (s->tracer)
        grow(obs_counter(s->families[SVC_M_spans_lost]), obs_tracer_lost(s->tracer), &s->spans_lost_seen);
}

/* The single-label family of that name, or NULL: services label queues as their documents do. */
static struct obs_family *family_with_one_label(struct svc *s, const char *name)
{
    for (size_t i = 0; i < s->def->metric_count; i++)
        if (strcmp(s->def->metrics[i].name, name) == 0)
            return strchr(s->def->metrics[i].labels, ',') || !*s->def->metrics[i].labels
                       ? NULL
                       : obs_family_find(s->metrics, name);
    return NULL;
}

static bool label_allows(struct svc *s, const char *name, const char *value)
{
    for (size_t i = 0; i < s->def->metric_count; i++)
        if (strcmp(s->def->metrics[i].name, name) == 0) {
            const char *set = strchr(s->def->metrics[i].labels, '=');
            if (!set)
                return true;
            size_t n = strlen(value);
            for (const char *at = set + 1; at; at = strchr(at, '|')) {
                at += *at == '|';
                if (strncmp(at, value, n) == 0 && (at[n] == '|' || at[n] == 0))
                    return true;
            }
        }
    return false;
}

static const struct rt_topology_queue *declared(const struct svc *s, const char *name)
{
    const struct rt_topology_queue *row = rt_topology_find_queue(&s->topology, name);
    if (!row)
        check_failed("a queue that topology.def does not declare", __FILE__, __LINE__, name);
    return row;
}

void svc_show_queue(struct svc *s, const char *name, const char *label)
{
    obs_gauge_set(OBS_GAUGE_OF(s->families[SVC_M_queue_capacity], label),
                  (double)declared(s, name)->capacity);
}

static enum err follow(struct svc *s, struct svc_queue what)
{
    (void)declared(s, what.name);
    if (s->queue_count == SVC_QUEUES_MAX)
        return ERR_BUSY;
    s->queues[s->queue_count++] = what;
    return ERR_OK;
}

enum err svc_follow_queue(struct svc *s, struct rt_chan *chan)
{
    return follow(s, (struct svc_queue){.chan = chan, .name = rt_chan_name(chan)});
}

enum err svc_follow_bcast(struct svc *s, const char *name, struct rt_bcast *bcast)
{
    return follow(s, (struct svc_queue){.bcast = bcast, .name = name});
}

enum err svc_add_queue(struct svc *s, const char *name, const char *label, struct rt_chan **out_chan)
{
    return svc_add_queue_at(s, name, label, NULL, out_chan);
}

enum err svc_add_queue_at(struct svc *s, const char *name, const char *label, struct rt_bell *bell,
                          struct rt_chan **out_chan)
{
    const struct rt_topology_queue *row = declared(s, name);
    if (s->queue_count == SVC_QUEUES_MAX)
        return ERR_BUSY;
    struct rt_chan *chan = rt_chan_create(&(struct rt_chan_spec){.name = row->name,
                                                                 .label = label,
                                                                 .capacity = row->capacity,
                                                                 .policy = row->policy,
                                                                 .on_ready = bell ? rt_bell_ring : NULL,
                                                                 .on_ready_arg = bell});
    if (!chan)
        return ERR_NO_MEMORY;
    struct svc_queue *q = &s->queues[s->queue_count++];
    struct obs_family *depth = family_with_one_label(s, "queue_depth");
    struct obs_family *dropped = family_with_one_label(s, "queue_dropped_total");
    q->chan = chan;
    q->name = row->name;
    if (depth && label_allows(s, "queue_depth", label))
        q->depth = OBS_GAUGE_OF(depth, label);
    if (dropped && label_allows(s, "queue_dropped_total", label))
        q->dropped = OBS_COUNTER_OF(dropped, label);
    svc_show_queue(s, name, label);
    q->capacity = OBS_GAUGE_OF(s->families[SVC_M_queue_capacity], label);
    q->high_water = OBS_GAUGE_OF(s->families[SVC_M_queue_high_water], label);
    q->rejected = OBS_COUNTER_OF(s->families[SVC_M_queue_rejected], label);
    *out_chan = chan;
    return ERR_OK;
}

void svc_count_queue_by(struct svc *s, const struct rt_chan *chan, svc_queue_stats *stats, void *arg)
{
    for (size_t i = 0; i < s->queue_count; i++)
        if (s->queues[i].chan == chan) {
            s->queues[i].counted_by = stats;
            s->queues[i].counted_arg = arg;
        }
}

static void task_json(void *ctx, const struct rt_task_info *info)
{
    struct json_w *w = ctx;
    json_obj_begin(w);
    json_put_cstr(w, "name", info->name);
    json_put_cstr(w, "kind", info->kind);
    json_put_cstr(w, "state", rt_task_state_name(info->state));
    json_put_bool(w, "escalated", info->escalated);
    json_put_u64(w, "drain_step", info->drain_step);
    json_put_u64(w, "spawned", info->spawned);
    json_put_u64(w, "restarts", info->restarts);
    json_obj_end(w);
}

static void tasks_array(struct svc *s, struct json_w *w)
{
    json_arr_begin(w);
    rt_supervisor_each(s->supervisor, task_json, w);
    json_arr_end(w);
}

void svc__tasks_json(struct svc *s, struct buf *out)
{
    struct json_w w;
    json_w_init(&w, out);
    json_obj_begin(&w);
    json_key(&w, "tasks");
    tasks_array(s, &w);
    json_obj_end(&w);
}

static void queue_json(const struct svc_queue *q, struct json_w *w)
{
    struct rt_chan_stats stats = stats_of(q);
    const char *label = q->chan ? rt_chan_label(q->chan) : NULL;
    json_obj_begin(w);
    json_put_cstr(w, "name", q->name);
    json_put_cstr(w, "label", label ? label : "");
    json_put_u64(w, "depth", stats.depth);
    json_put_u64(w, "capacity", stats.capacity);
    json_put_u64(w, "high_water", stats.high_water);
    json_put_u64(w, "sent", stats.sent);
    json_put_u64(w, "received", stats.received);
    json_put_u64(w, "rejected", stats.rejected);
    json_put_u64(w, "dropped", stats.dropped);
    json_obj_end(w);
}

/* What is declared, and beside it what is: the console draws the one and moves with the other. */
void svc__topology_json(struct svc *s, struct buf *out)
{
    struct json_w w;
    struct buf declared;
    buf_init(&declared, 1 << 20);
    rt_topology_json(&s->topology, &declared);
    json_w_init(&w, out);
    json_obj_begin(&w);
    json_put_cstr(&w, "service", s->def->name);
    json_put_raw(&w, "declared", buf_str(&declared));
    json_key(&w, "queues");
    json_arr_begin(&w);
    for (size_t i = 0; i < s->queue_count; i++)
        queue_json(&s->queues[i], &w);
    json_arr_end(&w);
    json_key(&w, "tasks");
    tasks_array(s, &w);
    json_obj_end(&w);
    buf_fini(&declared);
}
