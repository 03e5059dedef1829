/* The service as the frame sees it: tables, opening and closing, drain. */
#include "services/rewarder/rewarder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/rng.h"
#include "services/rewarder/ledger.h"
#include "store/file_replace.h"

enum { POLICY_FILE_MAX = 16 << 20 };

#define CONF_STRUCT struct rewarder_config
static const struct conf_key config_keys[] = {
#define CONF CONF_AS_KEY
#include "services/rewarder/config.def"
#undef CONF
};

/* Nobody can listen in: TLS, or this machine. Where a call goes in the end is checked again when it is made. */
static bool is_private(const char *url)
{
    static const char *const safe[] = {"https://", "http://127.", "http://localhost", "http://[::1]"};
    bool ok = *url == '\0';
    for (size_t i = 0; i < sizeof safe / sizeof *safe; i++)
        ok = ok || !strncmp(url, safe[i], strlen(safe[i]));
    return ok;
}

static enum err adjust(struct conf *c, void *config, struct conf_error *out_err)
{
    struct rewarder_config *cfg = config;
    if (conf_is_default(c, "drain_deadline"))
        cfg->drain_deadline = 3000;
    if (cfg->settlement_lane + cfg->settlement_lanes > 65536)
        return conf_refuse(c, "settlement.lanes", out_err, "the last lane must be at most 65535");
    if (cfg->max_spool_bytes < cfg->max_input_bytes)
        return conf_refuse(c, "limits.max_spool_bytes", out_err, "must be at least limits.max_input_bytes");
    if (!is_private(cfg->accounting_base_url))
        return conf_refuse(c, "inputs.accounting_base_url", out_err,
                           "must be https://..., or http:// to this machine");
    return ERR_OK;
}

static const struct conf_table config_table = {.service = "rewarder",
                                               .keys = config_keys,
                                               .keys_n = sizeof config_keys / sizeof *config_keys,
                                               .config_bytes = sizeof(struct rewarder_config),
                                               .adjust = adjust};

static const struct obs_metric_def metric_table[] = {
#include "obs/metrics_rows.h"
#include "services/rewarder/metrics.def"
#include "obs/metrics_end.h"
};

unsigned rewarder_workers(const struct rewarder_config *cfg)
{
    unsigned cpus = os_cpus();
    if (cfg->compute_workers)
        return (unsigned)cfg->compute_workers;
    return cpus > REWARDER_WORKERS_MAX ? REWARDER_WORKERS_MAX : cpus;
}

static void topology(const void *config, struct rt_topology *topology)
{
    const struct rewarder_config *cfg = config;
    rt_topology_init(topology, "rewarder");
#include "rt/topology_rows.h"
#include "services/rewarder/topology.def"
#include "rt/topology_rows_end.h"
}

/* ---- opening ---- */

static enum err open_queues(struct rewarder *r)
{
    rt_bell_init(&r->artifact_bell);
    enum err e = svc_add_queue(r->svc, "work_req", "work_req", &r->work_req);
    if (e == ERR_OK)
        e = svc_add_queue(r->svc, "work", "work", &r->work);
    if (e == ERR_OK)
        e = svc_add_queue_at(r->svc, "results", "results", &r->artifact_bell, &r->results);
    if (e == ERR_OK)
        e = svc_add_queue(r->svc, "intents", "intents", &r->intents);
    if (e == ERR_OK)
        e = svc_add_queue_at(r->svc, "notes", "notes", &r->artifact_bell, &r->notes);
    if (e == ERR_OK)
        e = svc_add_queue(r->svc, "io_permits", "io_permits", &r->io_permits.free);
    if (e == ERR_OK)
        svc_count_queue_by(r->svc, r->io_permits.free, rewarder_permits_stats, &r->io_permits);
    if (e == ERR_OK)
        rewarder_permits_set(&r->io_permits, (unsigned)rewarder_config(r)->io_inflight);
    return e;
}

static enum err open_policies(struct rewarder *r) RT_BLOCKS
{
    const char *path = rewarder_config(r)->policy_file, *member = "";
    struct buf text;
    if (!*path)
        return rewarder_policies_load(&r->policies, (struct bytes){NULL, 0}, &member);
    buf_init(&text, POLICY_FILE_MAX);
    enum err e = store_file_slurp(store_disk_real(), path, &text);
    if (e == ERR_OK)
        e = rewarder_policies_load(&r->policies, buf_bytes(&text), &member);
    obs_log(r->log, e == ERR_OK ? OBS_INFO : OBS_ERROR, "policy.reloaded", OBS_STR("file", path),
            OBS_STR("member", e == ERR_OK ? "" : member), OBS_ERR(e), OBS_END);
    buf_fini(&text);
    return e;
}

/* After a rotation the file holds another key. One that cannot be read leaves the old one in use. */
static enum err use_signing_key(struct rewarder *r, bool make) RT_BLOCKS
{
    const char *path = rewarder_config(r)->signing_key_file;
    char derived[STORE_PATH_MAX];
    if (!strcmp(path, "auto")) {
        snprintf(derived, sizeof derived, "%s/keys/rewarder.ed25519", svc_data_root(r->svc));
        path = derived;
    }
    struct rewarder_signer *old = rewarder_keys_signer(&r->keys), *now = NULL;
    enum err e = rewarder_keys_use(&r->keys, &r->files, svc_disk(r->svc), path, make);
    if (e == ERR_OK)
        now = rewarder_keys_signer(&r->keys);
    if (e != ERR_OK)
        obs_log(r->log, OBS_ERROR, "signing_key.refused", OBS_STR("file", path), OBS_ERR(e), OBS_END);
    else if (old && strcmp(old->public.kid, now->public.kid) != 0)
        obs_log(r->log, OBS_INFO, "signing_key.rotated", OBS_STR("kid", (const char *)now->public.kid),
                OBS_STR("before", (const char *)old->public.kid), OBS_END);
    rewarder_signer_unref(old);
    rewarder_signer_unref(now);
    return e;
}

static void init_breakers(struct rewarder *r)
{
    struct rt_breaker_spec spec = {.in_a_row = 5,
                                   .window_ms = 10000,
                                   .rate_calls = 20,
                                   .rate_percent = 50,
                                   .open_ms = 1000,
                                   .open_max_ms = 5000,
                                   .jitter_ms = 250,
                                   .seed = rng_secure_u64()};
    rt_breaker_init(&r->ledger_breaker, &spec);
    spec.seed++;
    rt_breaker_init(&r->accounting_breaker, &spec);
}

static void count_note(void *ctx, enum rewarder_settle_note what)
{
    struct rewarder *r = ctx;
    switch (what) {
    case REWARDER_NOTE_READ_AGAIN:
        REWARDER_COUNT(r, retries, "read");
        break;
    case REWARDER_NOTE_INGEST_AGAIN:
        REWARDER_COUNT(r, retries, "ingest");
        break;
    case REWARDER_NOTE_READ_TIMEOUT:
        REWARDER_COUNT(r, io_timeouts, "read", "ledger");
        break;
    case REWARDER_NOTE_INGEST_TIMEOUT:
        REWARDER_COUNT(r, io_timeouts, "ingest", "ledger");
        break;
    }
}

struct rewarder_settler *rewarder_open_settler(struct rewarder *r, unsigned lane, unsigned lanes,
                                               uint64_t seed)
{
    return rewarder_settler_create(&(struct rewarder_settler_spec){.ledger = r->ledger,
                                                                   .breaker = &r->ledger_breaker,
                                                                   .lane = lane,
                                                                   .lanes = lanes,
                                                                   .seed = seed,
                                                                   .note = count_note,
                                                                   .ctx = r});
}

static enum err open_state(struct rewarder *r) RT_BLOCKS
{
    const struct rewarder_config *cfg = rewarder_config(r);
    struct obs_health *h = svc_health(r->svc);
    r->cause_store = obs_health_add(h, "store", OBS_HARD);
    r->cause_work_queue = obs_health_add(h, "work_queue", OBS_HARD);
    r->cause_ledger = obs_health_add(h, "ledger", OBS_SOFT);
    r->cause_accounting = obs_health_add(h, "accounting", OBS_SOFT);
    r->cause_policy = obs_health_add(h, "policy", OBS_SOFT);
    obs_health_set(h, r->cause_ledger, true);
    obs_health_set(h, r->cause_policy, true);
    enum err e = svc_amnesia(r->svc) ? store_disk_memory(cfg->amnesia_max, &r->memory) : ERR_OK;
    if (!svc_amnesia(r->svc) && rewarder_files_lost_log(svc_disk(r->svc), svc_data_dir(r->svc))) {
        svc_say_error(
            "rewarder: registry.log is missing, and sealed runs are there: put it back from a backup, or "
            "see `ron rewarder fsck`");
        return ERR_CORRUPT; /* what was quarantined would be paid */
    }
    if (e == ERR_OK)
        e = rewarder_files_open(&r->files, r->memory ? r->memory : svc_disk(r->svc), svc_data_dir(r->svc));
    r->files.compact_above = cfg->compact_above;
    if (e == ERR_OK)
        e = rewarder_keys_recover(&r->keys, &r->files);
    if (e == ERR_OK)
        e = use_signing_key(r, true);
    if (e == ERR_OK)
        e = open_policies(r);
    if (e == ERR_OK)
        e = rewarder_recover(r);
    if (e == ERR_OK)
        e = open_queues(r);
    if (e == ERR_OK)
        rewarder_ledger_open(r);
    if (e == ERR_OK && r->ledger) {
        r->settler = rewarder_open_settler(r, (unsigned)cfg->settlement_lane,
                                           (unsigned)cfg->settlement_lanes, rng_secure_u64());
        e = r->settler ? ERR_OK : ERR_NO_MEMORY;
    }
    return e;
}

static enum err hook_open(struct svc *s, void **out_state) RT_BLOCKS
{
    struct rewarder *r = calloc(1, sizeof *r);
    if (!r)
        return ERR_NO_MEMORY;
    r->svc = s;
    r->log = svc_log(s);
    r->send_ms = REWARDER_SEND_MS;
    r->lane_still_ms = REWARDER_LANE_STILL_MS;
    *out_state = r; /* also on failure: hook_close takes down what was built */
    for (size_t i = 0; i < REWARDER_M_COUNT; i++)
        r->metrics[i] = obs_family_find(svc_metrics(s), metric_table[i].name);
    init_breakers(r);
    const struct rewarder_config *cfg = rewarder_config(r);
    rewarder_rates_init(&r->rates, cfg->rps, cfg->burst, cfg->tenant_rps);
    rewarder_quarantines_init(&r->quarantines);
    obs_metrics_told(svc_metrics(s), r->metrics[REWARDER_M_quarantine], rewarder_quarantines_tell,
                     &r->quarantines);
    rewarder_policies_init(&r->policies);
    rewarder_keys_init(&r->keys);
    enum err e = rewarder_registry_init(&r->registry);
    if (e == ERR_OK)
        e = svc_feed_create(
            &(struct svc_feed_spec){.service = "rewarder",
                                    .queue = "events",
                                    .lock_rank = 4,
                                    .svc = r->svc,
                                    .lagged = obs_counter_nth(r->metrics[REWARDER_M_bus_lagged], 0),
                                    .log = r->log},
            &r->events);
    return e == ERR_OK ? open_state(r) : e;
}

/* ---- running ---- */

static enum err hook_start(struct svc *s, void *state)
{
    struct rewarder *r = state;
    enum err e = svc_add_task(s, "scheduler", rewarder_scheduler_run, r);
    if (e == ERR_OK)
        e = svc_add_task(s, "worker", rewarder_worker_run, r);
    if (e == ERR_OK)
        e = svc_add_task(s, "emitter", rewarder_emitter_run, r);
    if (e == ERR_OK)
        e = svc_add_task(s, "artifact", rewarder_artifact_run, r);
    if (e == ERR_OK)
        e = svc_add_task(s, "health", rewarder_health_run, r);
    if (e == ERR_OK)
        e = svc_add_task(s, "caps", svc_caps_task, s);
    if (e == ERR_OK)
        e = svc_add_task(s, "traces", svc_metrics_task, s);
    if (e == ERR_OK)
        e = rewarder_ledger_add_task(r);
    return e;
}

static uint64_t dropped_results(struct rewarder *r)
{
    return obs_counter_value(obs_counter(r->metrics[REWARDER_M_dropped_results]));
}

/* Each stage's queue is closed when its tasks are asked to finish: they empty it and end. */
static void hook_drain_step(struct svc *s, void *state, int step)
{
    struct rewarder *r = state;
    (void)s;
    if (step == 1) {
        r->drain.dropped_before = dropped_results(r);
        svc_feed_tell(r->events, "draining", "{}");
    } else if (step == 2)
        rt_chan_close(r->work_req);
    else if (step == 3)
        rt_chan_close(r->work);
    else if (step == 4)
        rt_chan_close(r->intents);
    else if (step == 5) {
        rt_chan_close(r->results);
        rt_chan_close(r->notes);
    }
}

/* What was in flight when the drain began: written after all, refused, canceled, or lost. What is sealed goes on next time. */
static void hook_drained(struct svc *s, void *state, const struct rt_drain_report *report)
{
    struct rewarder *r = state;
    size_t held[4];
    (void)s;
    size_t left = rt_chan_depth(r->results) + rt_chan_depth(r->notes);
    uint64_t dropped = dropped_results(r) - r->drain.dropped_before + left;
    bool lost = dropped || report->aborted || report->leaked;
    obs_log(r->log, lost ? OBS_WARN : OBS_INFO, "shutdown.report",
            OBS_U64("drained", atomic_load_explicit(&r->drain.written, memory_order_relaxed)),
            OBS_U64("refused", atomic_load_explicit(&r->drain.refused, memory_order_relaxed)),
            OBS_U64("canceled", atomic_load_explicit(&r->drain.canceled, memory_order_relaxed)),
            OBS_U64("dropped", dropped), OBS_U64("aborted", report->aborted),
            OBS_U64("unsettled", rewarder_registry_count_unsettled(&r->registry, held)),
            OBS_I64("ms", report->took_ms), OBS_END);
}

static void reload(struct rewarder *r) RT_BLOCKS
{
    const struct rewarder_config *cfg = rewarder_config(r);
    rewarder_rates_configure(&r->rates, cfg->rps, cfg->burst, cfg->tenant_rps);
    rewarder_permits_set(&r->io_permits, (unsigned)cfg->io_inflight);
    obs_health_set(svc_health(r->svc), r->cause_policy, open_policies(r) == ERR_OK);
    (void)!use_signing_key(r, false); /* said in the log; the old key goes on */
    rewarder_ledger_reloaded(r);
}

static void hook_reloaded(struct svc *s, void *state) RT_BLOCKS
{
    struct rewarder *r = state;
    (void)s;
    reload(r);
    svc_feed_tell(r->events, "reloaded", "{}");
}

/* ---- closing ---- */

static void drop_item(void *item, void *arg)
{
    struct rewarder_item *it = item;
    if (it->rq)
        net_reply_problem(it->rq, ERR_DRAINING, "the service is shutting down");
    it->rq = NULL;
    rewarder_item_destroy(arg, it);
}

static void drop_outcome(void *item, void *arg)
{
    struct rewarder *r = arg;
    struct rewarder_outcome *o = item;
    if (o->rq)
        net_reply_problem(o->rq, ERR_DRAINING, "the service is shutting down");
    o->rq = NULL;
    obs_counter_inc(obs_counter(r->metrics[REWARDER_M_dropped_results]));
    rewarder_outcome_destroy(r, o);
}

static void drop_run(void *item, void *arg)
{
    (void)arg;
    rewarder_run_unref(item);
}

static void drop_permit(void *item, void *arg)
{
    (void)item;
    (void)arg;
}

static void destroy_chan(struct rt_chan *ch, void (*drop)(void *, void *), struct rewarder *r)
{
    if (ch)
        rt_chan_destroy(ch, drop, r);
}

static void hook_close(struct svc *s, void *state) RT_BLOCKS
{
    struct rewarder *r = state;
    obs_metrics_told(svc_metrics(s), r->metrics[REWARDER_M_quarantine], NULL, NULL);
    if (r->own_ledger)
        ledger_client_close(r->ledger);
    destroy_chan(r->work_req, drop_item, r);
    destroy_chan(r->work, drop_item, r);
    destroy_chan(r->results, drop_outcome, r);
    destroy_chan(r->notes, drop_outcome, r);
    destroy_chan(r->intents, drop_run, r);
    destroy_chan(r->io_permits.free, drop_permit, r);
    rewarder_settler_destroy(r->settler);
    for (size_t i = 0; i < sizeof r->readers / sizeof *r->readers; i++)
        rewarder_settler_destroy(r->readers[i]);
    for (size_t i = 0; i < r->shadow_n; i++)
        rewarder_shadow_unref(r->shadows[i]);
    rewarder_registry_fini(&r->registry);
    rewarder_quarantines_fini(&r->quarantines);
    rewarder_policies_fini(&r->policies);
    rewarder_files_close(&r->files);
    if (r->memory)
        store_disk_destroy(r->memory);
    svc_feed_destroy(r->events);
    rewarder_keys_fini(&r->keys);
    rt_breaker_fini(&r->ledger_breaker);
    rt_breaker_fini(&r->accounting_breaker);
    free(r);
}

static void hook_refused(struct svc *s, void *state, const struct net_done *d)
{
    struct rewarder *r = state;
    (void)s;
    REWARDER_COUNT(r, rejected, err_code(d->problem));
}

static void hook_client_late(struct svc *s, void *state, const char *op)
{
    struct rewarder *r = state;
    (void)s;
    REWARDER_COUNT(r, io_timeouts, op, "client");
}

extern const struct svc_def rewarder_svc;
const struct svc_def rewarder_svc = {
    .name = "rewarder",
    .title = "svc-rewarder",
    .summary = "per-epoch rewards: exact, committed, explained, settled once",
    .port_offset = 40,
    .config = &config_table,
    .topology = topology,
    .listener_task = "http",
    .metrics = metric_table,
    .metric_count = REWARDER_M_COUNT,
    .routes = rewarder_routes,
    .understands = AUTH_BIT(AUTH_CV_ACCOUNT) | AUTH_BIT(AUTH_CV_ASSET) | AUTH_BIT(AUTH_CV_MAX_AMOUNT) |
                   AUTH_BIT(AUTH_CV_TENANT) | AUTH_BIT(AUTH_CV_IP) | AUTH_BIT(AUTH_CV_BYTES) |
                   AUTH_BIT(AUTH_CV_RATE),
    .hooks = {.open = hook_open,
              .start = hook_start,
              .drain_step = hook_drain_step,
              .client_late = hook_client_late,
              .refused = hook_refused,
              .reloaded = hook_reloaded,
              .drained = hook_drained,
              .close = hook_close},
};
