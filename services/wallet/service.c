/* svc-wallet: how it is put together, started, drained and taken down. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "obs/metrics_def.h"
#include "services/wallet/api/api.h"
#include "services/wallet/audit.h"
#include "services/wallet/tasks/feed.h"
#include "services/wallet/transport.h"
#include "services/wallet/wallet.h"

/* ---- tables ---- */

#define CONF_STRUCT struct wallet_config
static const struct conf_key config_keys[] = {
#define CONF CONF_AS_KEY
#include "services/wallet/config.def"
#undef CONF
};

static enum err adjust(struct conf *c, void *config, struct conf_error *why)
{
    struct wallet_config *cfg = config;
    if (cfg->workers == 0)
        cfg->workers = os_cpus() > 64 ? 64 : os_cpus();
    if (cfg->burst && cfg->burst < cfg->rate_per_second)
        return conf_refuse(c, "limits.burst", why, "is less than limits.rate_per_second");
    if (cfg->shards & (cfg->shards - 1))
        return conf_refuse(c, "shards", why, "must be a power of two");
    if (cfg->request_timeout < cfg->ledger_rpc_timeout)
        return conf_refuse(c, "request_timeout", why, "is shorter than ledger.rpc_timeout");
    if (cfg->degraded_max > 0 && cfg->degraded_max < cfg->staleness_window)
        return conf_refuse(c, "degraded_max", why,
                           "is shorter than staleness_window; 0 shows no old balances at all");
    if (cfg->hold_max_ttl < cfg->hold_default_ttl)
        return conf_refuse(c, "hold.max_ttl", why, "is shorter than hold.default_ttl");
    if (cfg->retry_max < cfg->retry_base)
        return conf_refuse(c, "retry.max", why, "is shorter than retry.base");
    if (cfg->probe_timeout >= cfg->probe_interval)
        return conf_refuse(c, "probe.timeout", why, "is not shorter than probe.interval");
    return ERR_OK;
}

static void wallet_limits(const void *config, struct net_limits *limits)
{
    const struct wallet_config *cfg = config;
    limits->rate = (double)cfg->rate_per_second;
    limits->burst = (double)(cfg->burst ? cfg->burst : 2 * cfg->rate_per_second);
    limits->inflate_ratio = (unsigned)cfg->decompress_ratio_cap;
}

static const struct conf_default defaults[] = {{"drain_deadline", "3s"}, {NULL, NULL}};

static const struct conf_table config_table = {.service = "wallet",
                                               .keys = config_keys,
                                               .keys_n = sizeof config_keys / sizeof config_keys[0],
                                               .config_bytes = sizeof(struct wallet_config),
                                               .defaults = defaults,
                                               .adjust = adjust};

static const struct obs_metric_def metrics[] = {
#include "obs/metrics_rows.h"
#include "services/wallet/metrics.def"
#include "obs/metrics_end.h"
};

static void wallet_topology(const void *config, struct rt_topology *topology)
{
    const struct wallet_config *cfg = config;
    rt_topology_init(topology, "wallet");
#include "rt/topology_rows.h"
#include "services/wallet/topology.def"
#include "rt/topology_rows_end.h"
}

/* ---- open ---- */

static enum err open_shards(struct wallet *w, const struct wallet_config *cfg)
{
    w->shards = calloc(cfg->shards, sizeof *w->shards);
    if (!w->shards)
        return ERR_NO_MEMORY;
    w->shard_mask = cfg->shards - 1;
    for (size_t i = 0; i < cfg->shards; i++) {
        struct wallet_shard *s = &w->shards[i];
        rt_lock_init(&s->idem_lock, "idem", 40);
        rt_lock_init(&s->cache_lock, "balance_cache", 20);
        enum err e = wallet_idem_init(&s->idem, cfg->idempotency_bytes / cfg->shards);
        if (e == ERR_OK)
            e = wallet_cache_init(&s->cache, cfg->cache_bytes / cfg->shards);
        if (e != ERR_OK)
            return e;
    }
    for (size_t i = 0; i < WALLET_DAILY_STRIPES; i++) {
        rt_lock_init(&w->daily[i].lock, "daily", 41);
        enum err e = wallet_daily_init(&w->daily[i].daily, WALLET_DAILY_MAX / WALLET_DAILY_STRIPES);
        if (e != ERR_OK)
            return e;
    }
    for (size_t i = 0; i < WALLET_FLIGHT_STRIPES; i++) {
        rt_lock_init(&w->flights[i].lock, "flight", 42);
        enum err e = map_init(&w->flights[i].by_account, 32);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

/* Listeners wake a worker once for all that an iteration brought it. */
static void work_came(void *bell)
{
    net_loop_at_end(rt_bell_ring, bell);
}

static enum err open_worker(struct wallet *w, const struct wallet_config *cfg, unsigned index)
{
    struct wallet_worker *k = &w->workers[index];
    k->w = w;
    k->index = index;
    rt_bell_init(&k->bell);
    rng_seed(&k->rng, rng_secure_u64());
    k->work = rt_chan_create(&(struct rt_chan_spec){.name = "work_tx",
                                                    .capacity = cfg->queue_work,
                                                    .policy = RT_REJECT,
                                                    .on_ready = work_came,
                                                    .on_ready_arg = &k->bell});
    k->done = rt_chan_create(&(struct rt_chan_spec){.name = "commit_done",
                                                    .capacity = cfg->inflight_requests + 64,
                                                    .policy = RT_REJECT,
                                                    .on_ready = rt_bell_ring,
                                                    .on_ready_arg = &k->bell});
    k->resolved = rt_chan_create(&(struct rt_chan_spec){.name = "resolved",
                                                        .capacity = cfg->max_unsettled,
                                                        .policy = RT_REJECT,
                                                        .on_ready = rt_bell_ring,
                                                        .on_ready_arg = &k->bell});
    k->batches = calloc(cfg->inflight_requests, sizeof *k->batches);
    k->built = calloc(WALLET_BATCH_MAX, sizeof *k->built);
    k->units = calloc(WALLET_BATCH_MAX, sizeof *k->units);
    k->entries = calloc(WALLET_BATCH_MAX, WALLET_UNIT_ENTRIES_MAX * sizeof *k->entries);
    k->taken = calloc(WALLET_BATCH_MAX, sizeof *k->taken);
    if (!k->work || !k->done || !k->resolved || !k->batches || !k->built || !k->units || !k->entries ||
        !k->taken)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < cfg->inflight_requests; i++) {
        k->batches[i].worker = k;
        k->batches[i].next = k->spare;
        k->spare = &k->batches[i];
    }
    return wallet_chains_init(&k->chains, 256);
}

static bool doubt_sooner(const struct heap_node *a, const struct heap_node *b)
{
    return heap_entry(a, struct wallet_job, doubt)->look_at_ns <
           heap_entry(b, struct wallet_job, doubt)->look_at_ns;
}

static enum err show_queues(struct wallet *w)
{
    struct rt_chan *const one_each[] = {w->resolver.doubt, w->resolver.done};
    enum err e = svc_follow_bcast(w->svc, "events_tx", w->events);
    if (e == ERR_OK)
        e = svc_follow_bcast(w->svc, "ledger_bus", w->ledger_bus);
    for (size_t i = 0; e == ERR_OK && i < sizeof one_each / sizeof *one_each; i++)
        e = svc_follow_queue(w->svc, one_each[i]);
    for (unsigned i = 0; e == ERR_OK && i < w->n_workers; i++) {
        struct rt_chan *const of_worker[] = {w->workers[i].work, w->workers[i].done,
                                             w->workers[i].resolved};
        for (size_t k = 0; e == ERR_OK && k < sizeof of_worker / sizeof *of_worker; k++)
            e = svc_follow_queue(w->svc, of_worker[k]);
    }
    return e;
}

static enum err open_queues(struct wallet *w, const struct wallet_config *cfg)
{
    struct wallet_resolver *r = &w->resolver;
    rt_bell_init(&r->bell);
    r->doubt = rt_chan_create(&(struct rt_chan_spec){.name = "doubt_tx",
                                                     .capacity = cfg->max_unsettled,
                                                     .policy = RT_REJECT,
                                                     .on_ready = rt_bell_ring,
                                                     .on_ready_arg = &r->bell});
    r->done = rt_chan_create(&(struct rt_chan_spec){.name = "looked_up",
                                                    .capacity = cfg->max_unsettled,
                                                    .policy = RT_REJECT,
                                                    .on_ready = rt_bell_ring,
                                                    .on_ready_arg = &r->bell});
    w->events = rt_bcast_create(&(struct rt_bcast_spec){.name = "events_tx",
                                                        .capacity = cfg->queue_events,
                                                        .ref = wallet_event_ref,
                                                        .unref = wallet_event_unref});
    w->ledger_bus = rt_bcast_create(&(struct rt_bcast_spec){.name = "ledger_bus",
                                                            .capacity = cfg->queue_ledger_bus,
                                                            .ref = wallet_commit_ref,
                                                            .unref = wallet_commit_unref});
    if (!r->doubt || !r->done || !w->events || !w->ledger_bus)
        return ERR_NO_MEMORY;
    enum err e = heap_init(&r->waiting, cfg->max_unsettled, cfg->max_unsettled, doubt_sooner);
    if (e == ERR_OK)
        e = svc_add_queue(w->svc, "read_tx", "read", &w->read_tx);
    svc_show_queue(w->svc, "work_tx", "work");
    svc_show_queue(w->svc, "events_tx", "events");
    svc_show_queue(w->svc, "ledger_bus", "ledger_bus");
    w->n_workers = cfg->workers;
    w->workers = calloc(w->n_workers, sizeof *w->workers);
    if (!w->workers)
        return ERR_NO_MEMORY;
    for (unsigned i = 0; e == ERR_OK && i < w->n_workers; i++)
        e = open_worker(w, cfg, i);
    if (e == ERR_OK)
        e = show_queues(w);
    rt_inflight_init(&w->work_slots, cfg->queue_work);
    rt_inflight_init(&w->read_slots, cfg->queue_read);
    rng_seed(&w->reader_rng, rng_secure_u64());
    return e;
}

static struct rt_breaker_spec breaker_spec(const struct wallet_config *cfg)
{
    return (struct rt_breaker_spec){.window_ms = cfg->breaker_window,
                                    .in_window = (unsigned)cfg->breaker_failures,
                                    .open_ms = cfg->breaker_open,
                                    .probes = (unsigned)cfg->breaker_probes,
                                    .successes = (unsigned)cfg->breaker_probes,
                                    .seed = 1};
}

static void add_causes(struct wallet *w)
{
    struct obs_health *h = svc_health(w->svc);
    w->cause_ledger = obs_health_add(h, "ledger", OBS_HARD);
    w->cause_policy = obs_health_add(h, "policy", OBS_HARD);
    w->cause_queue = obs_health_add(h, "queue", OBS_HARD);
    w->cause_fork = obs_health_add(h, "fork", OBS_HARD);
    w->cause_feed = obs_health_add(h, "feed", OBS_SOFT);
    w->cause_breaker = obs_health_add(h, "breaker", OBS_SOFT);
    obs_health_set(h, w->cause_queue, true);
    obs_health_set(h, w->cause_fork, true);
    obs_health_set(h, w->cause_breaker, true);
}

static enum err wallet_open(struct svc *s, void **out_state)
{
    const struct wallet_config *cfg = svc_config(s);
    struct wallet *w = calloc(1, sizeof *w);
    if (!w)
        return ERR_NO_MEMORY;
    *out_state = w;
    w->svc = s;
    for (size_t i = 0; i < WALLET_M_COUNT; i++)
        w->m[i] = obs_family_find(svc_metrics(s), metrics[i].name);
    w->auth_failures = obs_family_find(svc_metrics(s), "auth_failures_total");
    w->started_ns = wallet_now_ns(w);
    atomic_store(&w->ledger_offset_ms, INT64_MIN);
    rt_lock_init(&w->jobs_lock, "jobs", 44);
    rt_lock_init(&w->tomb_lock, "tombstones", 45);
    rt_lock_init(&w->policy_lock, "cfg_snapshot", 10);
    rt_lock_init(&w->daily_waiters_lock, "daily_waiters", 47);
    rt_lock_init(&w->roots_lock, "roots", 43);
    rt_lock_init(&w->streams_lock, "streams", 46);
    rt_bell_init(&w->audit_bell);
    struct rt_breaker_spec spec = breaker_spec(cfg);
    rt_breaker_init(&w->breaker, &spec);
    add_causes(w);
    w->touched = calloc(WALLET_TOUCHED_SLOTS, sizeof *w->touched);
    w->unsettled = calloc(WALLET_TOUCHED_SLOTS, sizeof *w->unsettled);
    enum err e = w->touched && w->unsettled ? ERR_OK : ERR_NO_MEMORY;
    if (e == ERR_OK)
        e = pool_init(&w->jobs, sizeof(struct wallet_job), cfg->max_unsettled);
    if (e == ERR_OK)
        e = wallet_tombs_init(&w->tombs, WALLET_TOMB_MAX, WALLET_TOMB_TEXT);
    if (e == ERR_OK)
        e = wallet_roots_init(&w->roots);
    if (e == ERR_OK)
        e = open_shards(w, cfg);
    if (e == ERR_OK)
        e = open_queues(w, cfg);
    if (e == ERR_OK)
        e = wallet_policy_load(w);
    return e == ERR_OK ? wallet_transport_open(w) : e;
}

/* ---- start and drain ---- */

static enum err wallet_start(struct svc *s, void *state)
{
    static const struct {
        const char *name;
        enum err (*run)(struct rt_task *self, void *arg);
    } tasks[] = {
        {"worker", wallet_worker_run},           {"resolver", wallet_resolver_run},
        {"reader", wallet_reader_run},           {"ledger_feed", wallet_feed_run},
        {"invalidator", wallet_invalidator_run}, {"prober", wallet_prober_run},
        {"janitor", wallet_janitor_run},         {"audit", wallet_audit_run},
        {"metrics", wallet_metrics_run},
    };
    struct wallet *w = state;
    enum err e = wallet_transport_start(w);
    for (size_t i = 0; e == ERR_OK && i < sizeof tasks / sizeof tasks[0]; i++)
        e = svc_add_task(s, tasks[i].name, tasks[i].run, w);
    if (e == ERR_OK)
        e = svc_add_task(s, "cap_refresher", svc_caps_task, s);
    return e == ERR_OK ? svc_add_task(s, "health", svc_health_task, s) : e;
}

static void wallet_drain_step(struct svc *s, void *state, int step)
{
    struct wallet *w = state;
    (void)s;
    if (step == 2)
        for (size_t i = 0; i < w->n_workers; i++)
            rt_chan_close(w->workers[i].work);
    if (step == 3) {
        rt_chan_close(w->resolver.doubt);
        rt_chan_close(w->read_tx);
    }
    if (step == 4) {
        rt_bcast_close(w->events);
        rt_bcast_close(w->ledger_bus);
    }
}

static void wallet_readiness(struct svc *s, void *state)
{
    struct wallet *w = state;
    int64_t now = wallet_now_ns(w);
    uint64_t depth = rt_inflight_now(&w->work_slots), room = wallet_config(w)->queue_work;
    /* Full for 100 ms: not ready, until a fifth of it is free again. */
    int64_t since = atomic_load_explicit(&w->queue_full_since_ns, memory_order_relaxed);
    bool bad = atomic_load_explicit(&w->queue_bad, memory_order_relaxed);
    since = depth * 100 < room * 95 ? 0 : since ? since : now;
    bad = (bad && depth * 100 >= room * 80) || (since && now - since >= 100000000);
    atomic_store_explicit(&w->queue_full_since_ns, since, memory_order_relaxed);
    atomic_store_explicit(&w->queue_bad, bad, memory_order_relaxed);
    obs_health_set(svc_health(s), w->cause_queue, !bad);
    obs_health_set(svc_health(s), w->cause_breaker,
                   rt_breaker_state(&w->breaker, now) == RT_BREAKER_CLOSED);
}

static void readiness_members(void *state, struct buf *out)
{
    static const char *const states[] = {"closed", "half_open", "open"};
    struct wallet *w = state;
    struct obs_health *h = svc_health(w->svc);
    const char *const yes[] = {"false", "true"};
    buf_printf(out,
               ",\"listener_bound\":true,\"cfg_loaded\":true,\"ledger\":%s,\"auth\":true,\"policy\":%s,"
               "\"queue_ok\":%s,"
               "\"feed\":%s,\"fork\":%s,\"draining\":%s,\"shed_writes\":%s,\"breakers\":{\"ledger\":\"%s\"}"
               ",\"in_doubt\":%llu",
               yes[obs_health_ok(h, w->cause_ledger)], yes[obs_health_ok(h, w->cause_policy)],
               yes[obs_health_ok(h, w->cause_queue)], yes[obs_health_ok(h, w->cause_feed)],
               yes[atomic_load(&w->forked)], yes[svc_draining(w->svc)], yes[wallet_shed(w) != NULL],
               states[rt_breaker_state(&w->breaker, wallet_now_ns(w))],
               (unsigned long long)atomic_load(&w->in_doubt));
}

static void wallet_reloaded(struct svc *s, void *state)
{
    struct wallet *w = state;
    struct rt_breaker_spec spec = breaker_spec(svc_config(s));
    rt_breaker_configure(&w->breaker, &spec);
    wallet_transport_reloaded(w);
    if (wallet_policy_load(w) != ERR_OK) /* it has said why; the last good one stays */
        obs_log(svc_log(s), OBS_WARN, "policy.kept", OBS_END);
}

/* ---- close ---- */

static void close_worker(struct wallet_worker *k)
{
    if (k->work)
        rt_chan_destroy(k->work, NULL, NULL);
    if (k->done)
        rt_chan_destroy(k->done, NULL, NULL);
    if (k->resolved)
        rt_chan_destroy(k->resolved, NULL, NULL);
    wallet_chains_fini(&k->chains);
    free(k->batches);
    free(k->built);
    free(k->units);
    free(k->entries);
    free(k->taken);
    rt_word_fini(&k->bell.word);
}

/* Every call to the ledger has a deadline of a second or two; nothing is freed before the last one came back. */
static void await_calls(struct wallet *w)
{
    while (os_a64_load(&w->calls, memory_order_acquire) > 0)
        usleep(1000);
}

static void ignore(void *item, void *arg)
{
    (void)item;
    (void)arg;
}

static void wallet_close(struct svc *s, void *state)
{
    struct wallet *w = state;
    (void)s;
    wallet_transport_close(w);
    await_calls(w);
    for (size_t i = 0; w->workers && i < w->n_workers; i++) {
        struct wallet_worker *k = &w->workers[i];
        void *left;
        /* Aborted in mid-drain: what is left was answered, its memory is the pool's. */
        while (k->done && rt_chan_try_recv(k->done, &left) == ERR_OK)
            ;
        while (k->resolved && rt_chan_try_recv(k->resolved, &left) == ERR_OK)
            ;
        close_worker(k);
    }
    free(w->workers);
    if (w->resolver.doubt)
        rt_chan_destroy(w->resolver.doubt, ignore, NULL);
    if (w->resolver.done)
        rt_chan_destroy(w->resolver.done, ignore, NULL);
    heap_fini(&w->resolver.waiting);
    if (w->read_tx)
        rt_chan_destroy(w->read_tx, ignore, NULL);
    if (w->events)
        rt_bcast_destroy(w->events);
    if (w->ledger_bus)
        rt_bcast_destroy(w->ledger_bus);
    for (size_t i = 0; w->shards && i <= w->shard_mask; i++) {
        wallet_idem_fini(&w->shards[i].idem);
        wallet_cache_fini(&w->shards[i].cache);
    }
    free(w->shards);
    for (size_t i = 0; i < WALLET_DAILY_STRIPES; i++)
        wallet_daily_fini(&w->daily[i].daily);
    for (size_t i = 0; i < WALLET_FLIGHT_STRIPES; i++)
        map_fini(&w->flights[i].by_account);
    wallet_tombs_fini(&w->tombs);
    wallet_roots_fini(&w->roots);
    wallet_policy_put(w->policy);
    pool_fini(&w->jobs);
    rt_breaker_fini(&w->breaker);
    free(w->touched);
    free(w->unsettled);
    free(w);
}

static const char *const explicit_ops[] = {"issue", NULL};

static void client_late(struct svc *s, void *state, const char *op)
{
    struct wallet *w = state;
    (void)s;
    obs_counter_inc(OBS_COUNTER_OF(w->m[WALLET_M_io_timeouts], op));
}

const struct svc_def wallet_svc = {
    .name = "wallet",
    .title = "svc-wallet",
    .summary = "money over HTTP: issue, transfer, burn, hold, capture, release, balances, receipts, proofs",
    .info_from_status = 400,
    .spans_max = 4096, /* seven each: a second at full load, one in a hundred, is more than a thousand */
    .port_offset = 20,
    .config = &config_table,
    .topology = wallet_topology,
    .listener_task = "http",
    .metrics = metrics,
    .metric_count = WALLET_M_COUNT,
    .routes = wallet_routes,
    .headers = "Cache-Control: no-store\r\n",
    .understands = AUTH_BIT(AUTH_CV_ACCOUNT) | AUTH_BIT(AUTH_CV_TO) | AUTH_BIT(AUTH_CV_ASSET) |
                   AUTH_BIT(AUTH_CV_MAX_AMOUNT) | AUTH_BIT(AUTH_CV_DAILY) | AUTH_BIT(AUTH_CV_IP) |
                   AUTH_BIT(AUTH_CV_BYTES) | AUTH_BIT(AUTH_CV_RATE) | AUTH_BIT(AUTH_CV_TENANT),
    .explicit_ops = explicit_ops,
    .hooks = {.open = wallet_open,
              .start = wallet_start,
              .drain_step = wallet_drain_step,
              .readiness = wallet_readiness,
              .readiness_members = readiness_members,
              .request_fields = wallet_request_fields,
              .refusing = wallet_refusing,
              .refused = wallet_answered_no,
              .refuse_draining = wallet_refuse_draining,
              .limits = wallet_limits,
              .client_late = client_late,
              .reloaded = wallet_reloaded,
              .close = wallet_close},
};
