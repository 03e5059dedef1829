/* The service as the frame sees it: tables, hooks, and the order in which things come up and go down. */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

#include "services/edge/api/api.h"
#include "services/edge/dirs.h"
#include "services/edge/fills.h"
#include "services/edge/reload.h"
#include "services/edge/retired.h"
#include "services/edge/scrub.h"
#include "svc/feed.h"

enum { TAG_CACHE_BYTES = 4 << 20 };

#define CONF_STRUCT struct edge_config
static const struct conf_key keys[] = {
#define CONF CONF_AS_KEY
#include "services/edge/config.def"
#undef CONF
};

static const struct obs_metric_def metrics[] = {
#include "obs/metrics_rows.h"
#include "services/edge/metrics.def"
#include "obs/metrics_end.h"
};

static enum err adjust(struct conf *c, void *config, struct conf_error *out_err)
{
    struct edge_config *cfg = config;
    struct edge_settings *s;
    struct edge_why why;
    enum err e = edge_settings_make(cfg, NULL, &s, &why);
    if (e != ERR_OK)
        return conf_refuse(c, why.key, out_err, "%s", why.text);
    edge_settings_free(s);
    if (cfg->packs_seal_rate && cfg->packs_seal_rate < 1 << 20)
        return conf_refuse(c, "packs.seal_rate", out_err, "must be 0 or at least 1MiB");
    if (cfg->retry_base > cfg->retry_max)
        return conf_refuse(c, "retry.live_fill.base_ms", out_err, "must not be over max_ms");
    return ERR_OK;
}

static const struct conf_default defaults[] = {{"drain_deadline", "3s"}, {NULL, NULL}};

static const struct conf_table config_table = {.service = "edge",
                                               .keys = keys,
                                               .keys_n = sizeof keys / sizeof *keys,
                                               .config_bytes = sizeof(struct edge_config),
                                               .defaults = defaults,
                                               .adjust = adjust};

static void topology_of(const void *config, struct rt_topology *topology)
{
    const struct edge_config *cfg = config;
    rt_topology_init(topology, "edge");
#include "rt/topology_rows.h"
#include "services/edge/topology.def"
#include "rt/topology_rows_end.h"
}

static enum err load_settings(struct edge *e)
{
    struct edge_settings *s;
    struct edge_why why;
    enum err err = edge_settings_make(edge_config(e), svc_data_dir(e->svc), &s, &why);
    if (err != ERR_OK)
        return err;
    edge_settings_publish(e, s);
    return ERR_OK;
}

static enum err add_queues(struct edge *e)
{
    const struct {
        const char *name, *label;
        struct rt_chan **to;
        struct rt_bell *bell;
    } rows[] = {{"work_tx", "work", &e->work, NULL},
                {"read", "read", &e->read, NULL},
                {"commit", "commit", &e->commit, &e->store_bell},
                {"store_ops", "store_ops", &e->store_ops, &e->store_bell},
                {"pack_ops", "pack_ops", &e->pack_ops, NULL},
                {"tags", "tags", &e->tags, NULL},
                {"scrub_ops", "scrub_ops", &e->scrub_ops, NULL},
                {"scrape", "scrape", &e->scrape, NULL}};
    enum err err = ERR_OK;
    rt_bell_init(&e->store_bell);
    for (size_t i = 0; err == ERR_OK && i < sizeof rows / sizeof *rows; i++)
        err = svc_add_queue_at(e->svc, rows[i].name, rows[i].label, rows[i].bell, rows[i].to);
    return err;
}

static enum err open_service(struct svc *s, void **out_state) RT_BLOCKS
{
    struct edge *e = calloc(1, sizeof *e);
    struct edge_reload report;
    if (!e)
        return ERR_NO_MEMORY;
    *out_state = e;
    e->svc = s;
    e->clock = svc_clock(s);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    for (size_t i = 0; i < EDGE_M_COUNT; i++)
        e->m[i] = obs_family_find(svc_metrics(s), metrics[i].name);
    rt_lock_init(&e->state_meta, "state_meta", 10);
    rt_lock_init(&e->routing_table, "routing_table", 20);
    rt_lock_init(&e->reload_lock, "reload", 21);
    enum err err = load_settings(e);
    if (err == ERR_OK)
        err = add_queues(e);
    if (err == ERR_OK)
        err = svc_feed_create(&(struct svc_feed_spec){.service = "edge",
                                                      .queue = "events_tx",
                                                      .lock_rank = 31,
                                                      .svc = s,
                                                      .lagged = obs_counter(e->m[EDGE_M_bus_lagged]),
                                                      .log = svc_log(s)},
                              &e->events);
    if (err == ERR_OK)
        err = edge_store_create(e, &e->store);
    if (err == ERR_OK)
        err = edge_fills_create(e, &e->fills);
    if (err == ERR_OK)
        err = edge_verify_create(&e->verify);
    if (err == ERR_OK)
        err = edge_dirs_create(&e->dirs);
    if (err == ERR_OK)
        err = edge_variants_create(&e->variants);
    for (size_t i = 0; err == ERR_OK && i < EDGE_LOOPS_MAX; i++)
        e->tag_cache[i] = NULL;
    if (err != ERR_OK)
        return err;
    obs_gauge_set(obs_gauge(e->m[EDGE_M_amnesia]), svc_amnesia(s));
    edge_reload_init(&report);
    err = edge_packs_reload(e, NULL, 0, &report);
    edge_reload_fini(&report);
    e->cause_packs = obs_health_add(svc_health(s), "packs_verified", OBS_HARD);
    e->cause_cas = obs_health_add(svc_health(s), "cas_reachable", OBS_HARD);
    e->cause_workers = obs_health_add(svc_health(s), "workers_alive", OBS_HARD);
    e->cause_shed = obs_health_add(svc_health(s), "shedder_stable", OBS_HARD);
    return err;
}

static int64_t shorter(int64_t ms, uint64_t seconds)
{
    return ms < (int64_t)seconds * 1000 ? ms : (int64_t)seconds * 1000;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What the frame does not know: rates for all, caps per client, proxies. Where both have a key the stricter one holds. */
static void set_limits(struct edge *e)
{
    const struct edge_config *c = edge_config(e);
    const struct edge_settings *s = edge_settings(e);
    uint64_t body = least(c->max_body_bytes, c->ingress_body);
    struct net_limits limits = {
        .header_bytes = c->header_bytes,
        .body_max = body,
        .no_body = body == 0,
        .inflate_ratio = (unsigned)c->inflate_ratio,
        .inflate_max = c->inflate_abs,
        .read_timeout_ms = shorter(c->read_timeout, c->ingress_timeout),
        .write_timeout_ms = c->write_timeout,
        .idle_timeout_ms = shorter(c->idle_timeout, c->ingress_idle),
        .request_timeout_ms = shorter(c->request_timeout, c->ingress_timeout),
        .max_conns = least(c->max_conns, c->ingress_conns),
        .max_inflight = least(c->max_inflight, c->ingress_inflight),
        .max_inflight_per_peer = c->client_inflight,
        .rate_per_peer = c->rate_limit > 0 ? c->rate_limit : (double)c->client_rps,
        .rate = (double)c->rps_limit,
        .trusted_proxies = s->proxies,
        .trusted_proxies_count = s->proxies_n,
    };
    net_server_set_limits(svc_server(e->svc), &limits);
}

static enum err start_service(struct svc *s, void *state)
{
    struct edge *e = state;
    static const struct {
        const char *name;
        enum err (*run)(struct rt_task *self, void *arg);
    } rows[] = {{"worker", edge_worker_run},         {"reader", edge_reader_run},
                {"cas_writer", edge_cas_writer_run}, {"pack_verifier", edge_pack_verifier_run},
                {"scrub", edge_scrub_run},           {"metrics", edge_metrics_run}};
    enum err err = ERR_OK;
    e->loops = net_server_threads(svc_server(s));
    for (unsigned i = 0; i < e->loops && i < EDGE_LOOPS_MAX; i++)
        if (!(e->tag_cache[i] = edge_tag_cache_create(TAG_CACHE_BYTES / e->loops)))
            return ERR_NO_MEMORY;
    set_limits(e);
    for (size_t i = 0; err == ERR_OK && i < sizeof rows / sizeof *rows; i++)
        err = svc_add_task(s, rows[i].name, rows[i].run, e);
    return err == ERR_OK ? svc_add_task(s, "traces", svc_metrics_task, s) : err;
}

static void drain_step(struct svc *s, void *state, int step)
{
    struct edge *e = state;
    (void)s;
    if (step == 2)
        rt_chan_close(e->work);
    else if (step == 3)
        rt_chan_close(e->read);
    else if (step == 4) {
        rt_chan_close(e->commit);
        rt_chan_close(e->store_ops);
    } else if (step == 5) {
        rt_chan_close(e->pack_ops);
        rt_chan_close(e->tags);
        rt_chan_close(e->scrub_ops);
    } else if (step == 6)
        rt_chan_close(e->scrape);
}

static void readiness(struct svc *s, void *state)
{
    struct edge *e = state;
    struct obs_health *h = svc_health(s);
    const struct edge_config *cfg = edge_config(e);
    bool live = cfg->mode == EDGE_LIVE;
    struct rt_chan_stats work = rt_chan_stats(e->work);
    int64_t shed = atomic_load(&e->shed_ns);
    struct net_server_stats http;
    net_server_stats(svc_server(s), &http);
    bool calm = !shed || edge_now_ns(e) - shed > cfg->shed_window * 1000000;
    obs_health_set(h, e->cause_packs, atomic_load(&e->packs_ok));
    obs_health_set(h, e->cause_cas, !live || edge_store_reachable(e->store));
    obs_health_set(h, e->cause_workers, !live || atomic_load(&e->workers_run) * 2 > cfg->work_workers);
    obs_health_set(h, e->cause_shed,
                   calm && work.depth * 10 < work.capacity * 9 &&
                       http.inflight * 10 < least(cfg->max_inflight, cfg->ingress_inflight) * 9);
}

static void readiness_members(void *state, struct buf *out)
{
    struct edge *e = state;
    struct edge_generation *g = edge_pin(e);
    bool first = true;
    buf_printf(out, ",\"mode\":\"%s\",\"amnesia\":%s,\"generation\":%llu,\"sealing\":[",
               edge_config(e)->mode == EDGE_LIVE ? "live" : "offline",
               svc_amnesia(e->svc) ? "true" : "false", (unsigned long long)g->number);
    for (size_t i = 0; i < g->n; i++) {
        const struct edge_pack *p = g->slots[i].pack;
        if (!p || p->kind == EDGE_PACK_DIR || atomic_load(&((struct edge_pack *)(uintptr_t)p)->sealed))
            continue;
        buf_printf(out, "%s\"%s\"", first ? "" : ",", g->slots[i].name);
        first = false;
    }
    buf_putc(out, ']');
    edge_unpin(g);
}

static void reloaded(struct svc *s, void *state)
{
    struct edge *e = state;
    enum err err = load_settings(e);
    if (err != ERR_OK)
        obs_log(svc_log(s), OBS_ERROR, "settings_not_reloaded", OBS_ERR(err), OBS_END);
    edge_count_move(e);
    set_limits(e);
    edge_fills_configure(e);
    err = edge_request_reload(e, NULL, 0, NULL);
    if (err != ERR_OK)
        obs_log(svc_log(s), OBS_WARN, "packs_not_reloaded", OBS_ERR(err), OBS_END);
}

static void refuse_draining(struct svc *s, struct net_req *rq)
{
    edge_refuse(svc_state(s), rq, ERR_DRAINING, EDGE_R_DRAINING, "the service is shutting down");
}

static void drop_note(void *item, void *arg)
{
    struct edge_tag_note *n = item;
    (void)arg;
    edge_pack_unref(n->pack);
    free(n);
}

static void drop_op(void *item, void *arg)
{
    (void)arg;
    free(item);
}

static void close_service(struct svc *s, void *state) RT_BLOCKS
{
    struct edge *e = state;
    (void)s;
    edge_unpin(e->generation);
    edge_retired_drop(e);
    if (e->work)
        rt_chan_destroy(e->work, NULL, NULL);
    if (e->read)
        rt_chan_destroy(e->read, NULL, NULL);
    if (e->commit)
        rt_chan_destroy(e->commit, NULL, NULL);
    if (e->store_ops)
        rt_chan_destroy(e->store_ops, drop_op, NULL);
    if (e->pack_ops)
        rt_chan_destroy(e->pack_ops, NULL, NULL);
    if (e->tags)
        rt_chan_destroy(e->tags, drop_note, NULL);
    if (e->scrub_ops)
        rt_chan_destroy(e->scrub_ops, NULL, NULL);
    if (e->scrape)
        rt_chan_destroy(e->scrape, NULL, NULL);
    edge_verify_destroy(e->verify);
    svc_feed_destroy(e->events);
    edge_dirs_destroy(e->dirs);
    edge_variants_destroy(e->variants);
    edge_fills_destroy(e->fills);
    edge_store_destroy(e->store);
    for (size_t i = 0; i < EDGE_LOOPS_MAX; i++)
        edge_tag_cache_destroy(e->tag_cache[i]);
    while (e->settings_list) {
        struct edge_settings *next = e->settings_list->next;
        edge_settings_free(e->settings_list);
        e->settings_list = next;
    }
    rt_lock_fini(&e->state_meta);
    rt_lock_fini(&e->routing_table);
    rt_lock_fini(&e->reload_lock);
    free(e->reload_next);
    free(e);
}

static void client_late(struct svc *s, void *state, const char *op)
{
    struct edge *e = state;
    (void)s;
    obs_counter_inc(OBS_COUNTER_OF(e->m[EDGE_M_io_timeouts], op));
}

const struct svc_def edge_svc = {
    .name = "edge",
    .title = "svc-edge",
    .summary = "edge assets: map packs, content-addressed store, verified live fill",
    .port_offset = 50,
    .config = &config_table,
    .topology = topology_of,
    .listener_task = "listener",
    .metrics = metrics,
    .metric_count = EDGE_M_COUNT,
    .routes = edge_routes,
    .hooks = {.open = open_service,
              .start = start_service,
              .drain_step = drain_step,
              .readiness = readiness,
              .readiness_members = readiness_members,
              .scrape = edge_scrape,
              .refuse_draining = refuse_draining,
              .refusing = edge_refusing,
              .client_late = client_late,
              .reloaded = reloaded,
              .close = close_service},
};
