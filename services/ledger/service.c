#include "services/ledger/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/outbox.h"
#include "rt/os.h"
#include "services/ledger/policy.h"
#include "services/ledger/providers.h"
#include "services/ledger/reads.h"
#include "services/ledger/replica.h"
#include "store/file_replace.h"

#define CONF_STRUCT struct ledger_config
static const struct conf_key keys[] = {
#define CONF CONF_AS_KEY
#include "services/ledger/config.def"
#undef CONF
};

static const struct obs_metric_def metric_rows[] = {
#include "obs/metrics_rows.h"
#include "services/ledger/metrics.def"
#include "obs/metrics_end.h"
};

/* A question for the kms carries the token: never in plain text. */
static enum err check_provider(struct conf *c, const char *key, int mode, const char *url, bool plain,
                               struct conf_error *out_err)
{
    if (mode == 0 || strncmp(url, "https://", 8) == 0 || (strncmp(url, "unix:/", 6) == 0 && url[6] != 0))
        return ERR_OK;
    if (plain && (strncmp(url, "http://127.0.0.1", 16) == 0 || strncmp(url, "http://[::1]", 12) == 0))
        return ERR_OK;
    return conf_refuse(c, key, out_err,
                       plain ? "is https://, unix:/path or http:// to this machine"
                             : "is https:// or unix:/path");
}

static enum err adjust(struct conf *c, void *config, struct conf_error *out_err)
{
    struct ledger_config *cfg = config;
    uint64_t n = os_cpus();
    if (cfg->prevalidators == 0)
        cfg->prevalidators = n / 2 < 2 ? 2 : n / 2;
    if (cfg->ingress_workers == 0)
        cfg->ingress_workers = n / 4 < 1 ? 1 : n / 4;
    if (cfg->http_threads == 0)
        cfg->http_threads = cfg->ingress_workers;
    if (cfg->commit_high < cfg->commit_warn)
        return conf_refuse(c, "readiness.commit_high", out_err, "must not be below readiness.commit_warn");
    if (cfg->journal_align != 512 && cfg->journal_align != 4096)
        return conf_refuse(c, "journal.align", out_err, "is 512 or 4096");
    enum err bad = check_provider(c, "providers.kms.url", cfg->kms_mode, cfg->kms_url, false, out_err);
    if (bad == ERR_OK)
        bad = check_provider(c, "providers.policy.url", cfg->policy_mode, cfg->policy_url, true, out_err);
    if (bad == ERR_OK)
        bad = check_provider(c, "providers.wallet.url", cfg->wallet_mode, cfg->wallet_url, true, out_err);
    if (bad != ERR_OK)
        return bad;
    if (cfg->log_origin[0] != 0 && !ledger_note_origin_ok(str_from_c(cfg->log_origin)))
        return conf_refuse(c, "log.origin", out_err, "holds a blank or a plus sign");
    if (cfg->replica_dsn[0] != 0 && cfg->replica_timeout < 100)
        return conf_refuse(c, "replica.timeout", out_err, "must be at least 100ms");
    return ERR_OK;
}

/* Both times of the pipeline's drain, and what a last checkpoint takes. */
static const struct conf_default defaults[] = {{"drain_deadline", "15s"}, {NULL, NULL}};

const struct conf_table ledger_conf = {.service = "ledger",
                                       .keys = keys,
                                       .keys_n = sizeof keys / sizeof keys[0],
                                       .config_bytes = sizeof(struct ledger_config),
                                       .defaults = defaults,
                                       .adjust = adjust};

void ledger_topology(const void *config, struct rt_topology *topology)
{
    const struct ledger_config *cfg = config;
    rt_topology_init(topology, "ledger");
#include "rt/topology_rows.h"
#include "services/ledger/topology.def"
#include "rt/topology_rows_end.h"
}

static void replica_settings(const struct svc *svc, const struct ledger_config *cfg,
                             struct ledger_settings *s)
{
    snprintf(s->replica_dsn, sizeof s->replica_dsn, "%s", cfg->replica_dsn);
    snprintf(s->replica_stream, sizeof s->replica_stream, "%s", cfg->replica_stream);
    svc_place(svc, cfg->replica_node, cfg->replica_advertise, s->replica_node, s->replica_url);
    s->replica_lease_ms = cfg->replica_lease;
    s->replica_timeout_ms = cfg->replica_timeout;
    s->replica_poll_ms = cfg->replica_poll;
    s->replica_quorum = (uint32_t)cfg->replica_quorum;
    s->replica_auto = cfg->replica_take_over == 0;
    s->replica_rejoin = cfg->replica_rejoin == 0;
    s->replica_local = cfg->replica_local;
}

static void limits_from(const struct ledger_config *cfg, struct ledger_limits *out)
{
    out->max_accounts = cfg->max_accounts;
    out->max_open_holds = cfg->max_open_holds;
    out->max_reversals = cfg->max_reversals;
    out->max_lanes = (uint32_t)cfg->max_lanes;
    out->max_hold_ms = (uint64_t)cfg->max_hold;
}

static void settings_from(const struct svc *svc, const struct ledger_config *cfg, struct ledger_settings *s)
{
    ledger_settings_default(s);
    snprintf(s->dir, sizeof s->dir, "%s", svc_data_dir(svc));
    snprintf(s->origin, sizeof s->origin, "%s", cfg->log_origin);
    if (cfg->log_key_file[0] != 0)
        snprintf(s->key_file, sizeof s->key_file, "%s", cfg->log_key_file);
    else
        snprintf(s->key_file, sizeof s->key_file, "%s/keys/ledger-ed25519", svc_data_root(svc));
    s->q_ingress = (uint32_t)cfg->q_ingress;
    s->q_preval = (uint32_t)cfg->q_prevalidator;
    s->q_commit = (uint32_t)cfg->q_commit;
    s->max_jobs = LEDGER_JOBS_MAX;
    s->max_entries = (uint32_t)cfg->max_entries;
    s->max_body_bytes = cfg->max_body_bytes;
    s->max_inflight_bytes = cfg->max_inflight_bytes;
    limits_from(cfg, &s->limits);
    s->max_subscribers = (uint32_t)cfg->max_subscribers;
    s->request_ms = (int64_t)cfg->request_ms;
    s->commit_wait_ms = (int64_t)cfg->commit_wait_ms;
    s->commit_max_entries = (uint32_t)cfg->commit_max_entries;
    s->commit_max_bytes = (uint32_t)cfg->commit_max_bytes;
    s->direct_io = cfg->journal_io == 0;
    s->compress = cfg->journal_compress;
    s->scrub_rate = cfg->journal_scrub_rate;
    s->segment_bytes = (uint32_t)cfg->journal_segment_bytes;
    s->align = (uint32_t)cfg->journal_align;
    s->checkpoint_entries = (uint32_t)cfg->checkpoint_entries;
    s->checkpoint_interval_ms = cfg->checkpoint_interval;
    s->checkpoint_retain = (uint32_t)cfg->checkpoint_retain;
    s->public_roots = cfg->public_roots;
    s->public_entries = cfg->public_entries;
    s->amnesia = svc_amnesia(svc);
    s->amnesia_max_entries = cfg->amnesia_max_entries;
    s->drills = cfg->drills_enabled;
    if (!s->amnesia) /* which writes nothing, anywhere */
        replica_settings(svc, cfg, s);
}

static void provider_settings(const struct ledger_config *cfg, struct ledger_providers_settings *out)
{
    *out = (struct ledger_providers_settings){.of = {{.http = cfg->kms_mode == 1,
                                                      .timeout_ms = (int64_t)cfg->kms_ms,
                                                      .max_backoff_ms = cfg->kms_max_backoff,
                                                      .max_retries = (unsigned)cfg->kms_max_retries},
                                                     {.http = cfg->policy_mode == 1,
                                                      .timeout_ms = (int64_t)cfg->policy_ms,
                                                      .max_backoff_ms = cfg->policy_max_backoff,
                                                      .max_retries = (unsigned)cfg->policy_max_retries},
                                                     {.http = cfg->wallet_mode == 1,
                                                      .timeout_ms = (int64_t)cfg->wallet_ms,
                                                      .max_backoff_ms = cfg->wallet_max_backoff,
                                                      .max_retries = (unsigned)cfg->wallet_max_retries}},
                                              .failures = (unsigned)cfg->breaker_failures,
                                              .half_open_successes = (unsigned)cfg->breaker_successes,
                                              .open_ms = cfg->breaker_open_for};
    snprintf(out->of[PROVIDER_KMS].url, sizeof out->of[0].url, "%s", cfg->kms_url);
    snprintf(out->of[PROVIDER_POLICY].url, sizeof out->of[0].url, "%s", cfg->policy_url);
    snprintf(out->of[PROVIDER_WALLET].url, sizeof out->of[0].url, "%s", cfg->wallet_url);
}

/* A file that is refused leaves the one in force; at the start there is none, and nothing would be forbidden. */
static enum err policy_load(struct ledger_service *s, const struct ledger_config *cfg) RT_BLOCKS
{
    struct ledger_policy *p = NULL;
    struct buf b;
    char why[200] = "cannot be read";
    bool given = cfg->policy_file[0] != 0;
    buf_init(&b, 8 << 20);
    enum err err = given ? store_file_slurp(store_disk_real(), cfg->policy_file, &b) : ERR_OK;
    if (err == ERR_OK && given)
        err = ledger_policy_parse(buf_bytes(&b), &p, why);
    else if (err == ERR_OK)
        p = ledger_policy_default();
    buf_fini(&b);
    if (err != ERR_OK) {
        obs_log(svc_log(s->svc), OBS_ERROR, "policy_refused", OBS_STR("file", cfg->policy_file),
                OBS_STR("why", why), OBS_END);
        char said[STORE_PATH_MAX + 256];
        snprintf(said, sizeof said, "policy.file %s: %s", cfg->policy_file, why);
        svc_say_error(said);
        return err;
    }
    ledger_policy_replaces(
        p, atomic_load(&s->l->policy)); /* a prevalidator may be looking at it; reloads are rare */
    atomic_store(&s->l->policy, p);
    if (given)
        obs_log(svc_log(s->svc), OBS_INFO, "policy_loaded", OBS_STR("file", cfg->policy_file), OBS_END);
    return ERR_OK;
}

static enum err queues_open(struct ledger_service *s)
{
    struct ledger *l = s->l;
    struct {
        const char *name, *label;
        struct rt_chan **at;
    } rows[] = {
        {"ingress_tx", "ingress", &l->ingress}, {"preval_tx", "preval", &l->preval},
        {"commit_tx", "commit", &l->commit},    {"late_tx", "late", &l->late},
        {"gen_tx", "gen", &l->gen_tx},          {"read_tx", "read", &l->read},
        {"admin_tx", "admin", &l->admin},       {"stream_tx", "stream", &s->stream_tx},
    };
    enum err err = ERR_OK;
    for (size_t i = 0; err == ERR_OK && i < sizeof rows / sizeof rows[0]; i++)
        err = svc_add_queue(s->svc, rows[i].name, rows[i].label, rows[i].at);
    if (err == ERR_OK)
        err = svc_follow_bcast(s->svc, "root_pub_tx", l->root_pub);
    if (err == ERR_OK)
        ledger_gen_logs_hand_over(l);
    return err;
}

static enum err service_open(struct svc *svc, void **out_state) RT_BLOCKS
{
    const struct ledger_config *cfg = svc_config(svc);
    struct ledger_service *s = calloc(1, sizeof *s);
    if (s == NULL)
        return ERR_NO_MEMORY;
    s->svc = svc;
    rt_bell_init(&s->stream_bell);
    rt_lock_init(&s->note_lock, "note_cache", 33);
    rt_lock_init(&s->direct_lock, "direct_calls", 35);
    struct obs_health *h = svc_health(svc);
    s->cause_safe = obs_health_add(h, "safe_mode", OBS_HARD);
    s->cause_backpressure = obs_health_add(h, "backpressure", OBS_HARD);
    s->cause_lag = obs_health_add(h, "committer", OBS_HARD);
    s->cause_disk = obs_health_add(h, "disk", OBS_HARD);
    s->cause_kms = obs_health_add(h, "kms", OBS_HARD);
    s->cause_policy = obs_health_add(h, "policy", OBS_HARD);
    s->cause_wallet = obs_health_add(h, "wallet", OBS_HARD);
    s->cause_warn = obs_health_add(h, "commit_queue", OBS_SOFT);
    s->cause_replica = obs_health_add(h, "replica", OBS_HARD);
    s->cause_checkpoint = obs_health_add(h, "checkpoint", OBS_SOFT);
    s->cause_clock = obs_health_add(h, "clock", OBS_SOFT);
    struct ledger_settings set;
    settings_from(svc, cfg, &set);
    char why[LEDGER_WHY_MAX] = "";
    struct ledger_deps deps = {svc_disk(svc),    svc_clock(svc), svc_log(svc),
                               svc_metrics(svc), svc_auth(svc),  why};
    enum err err = ledger_open(&set, &deps, &s->l);
    if (why[0] != 0)
        svc_say_error(why);
    if (err == ERR_OK) {
        s->l->shell = s;
        s->l->auth_failures = obs_family_find(svc_metrics(svc), "auth_failures_total");
        s->l->tracer = svc_tracer(svc);
        s->l->deps.why = NULL;
        struct ledger_providers_settings providers;
        provider_settings(cfg, &providers);
        err = policy_load(s, cfg);
        if (err == ERR_OK)
            err = queues_open(s);
        if (err == ERR_OK)
            err = ledger_providers_create(s->l, &providers, &s->l->providers);
    }
    if (err != ERR_OK) {
        if (s->l != NULL)
            ledger_close(s->l, false);
        rt_lock_fini(&s->note_lock);
        rt_lock_fini(&s->direct_lock);
        free(s);
        return err;
    }
    *out_state = s;
    return ERR_OK;
}

/* The queue was full, or closed, when the loop's iteration ended. */
static void door_refused(void *item, enum err why, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_job *job = item;
    job->err = ledger_not_taken(s->l, job, why);
    ledger_answer(s->l, job);
}

enum err ledger_door_submit(struct ledger_service *s, const struct net_loop *loop, struct ledger_job *job)
{
    unsigned at = 0;
    enum err err = ledger_admit(s->l, job);
    if (err != ERR_OK)
        return err;
    while (net_server_loop(svc_server(s->svc), at) != loop)
        at++;
    net_outbox_put(s->doors, at, job);
    return ERR_OK;
}

static enum err service_start(struct svc *svc, void *state)
{
    struct ledger_service *s = state;
    struct {
        const char *name;
        enum err (*run)(struct rt_task *, void *);
        void *arg;
    } rows[] = {
        {"prevalidator", ledger_prevalidator_run, s},
        {"sequencer", ledger_sequencer_run, s},
        {"committer", ledger_committer_run, s},
        {"finisher", ledger_finisher_run, s},
        {"reader", ledger_reader_run, s},
        {"roots_publisher", ledger_roots_publisher_run, s},
        {"checkpointer", ledger_checkpointer_run, s},
        {"segment_keeper", ledger_segment_keeper_run, s},
        {"admin", ledger_admin_run, s},
        {"metrics", ledger_metrics_run, s},
        {"replica", ledger_replica_run, s},
        {"health", svc_health_task, svc},
        {"cap_refresher", svc_caps_task, svc},
    };
    enum err err = net_outbox_create(svc_server(svc), s->l->ingress, RT_REJECT, door_refused, s, &s->doors);
    for (size_t i = 0; err == ERR_OK && i < sizeof rows / sizeof rows[0]; i++)
        err = svc_add_task(svc, rows[i].name, rows[i].run, rows[i].arg);
    if (err == ERR_OK)
        err = svc_add_loop_task(svc, "provider", ledger_provider_run, s, ledger_provider_wake);
    return err;
}

/* Ingress stops, then each stage drains into the next; the last root is published before the streams end. */
static void service_drain_step(struct svc *svc, void *state, int step)
{
    (void)svc;
    struct ledger_service *s = state;
    struct ledger *l = s->l;
    switch (step) {
    case 1:
        atomic_store(&l->phase, PHASE_DRAINING);
        rt_chan_close(l->ingress);
        break;
    case 2:
        rt_chan_close(l->preval);
        break;
    case 3:
        rt_chan_close(l->commit);
        break;
    case 4:
        rt_chan_close(l->late);
        break;
    case 5:
        rt_chan_close(l->read);
        rt_chan_close(s->stream_tx);
        rt_bcast_close(l->root_pub);
        break;
    case 6:
        rt_chan_close(l->gen_tx);
        break;
    case 8:
        rt_chan_close(l->admin);
        break;
    default:
        break;
    }
}

static void service_client_late(struct svc *svc, void *state, const char *op)
{
    (void)svc;
    struct ledger_service *s = state;
    obs_counter_inc(OBS_COUNTER_OF(s->l->m[LEDGER_M_io_timeouts], op));
}

/* Prevalidators and sequencer share one time, the committer has its own; the rest has what the drain as a whole leaves. */
static int64_t service_drain_step_ms(struct svc *svc, void *state, int step)
{
    struct ledger_service *s = state;
    const struct ledger_config *cfg = svc_config(svc);
    int64_t now_ns = svc_clock(svc)->mono_ns(svc_clock(svc)->ctx);
    int64_t left_ms = (int64_t)cfg->shutdown_drain_ms;
    switch (step) {
    case 1:
        s->drain_began_ns = now_ns;
        break;
    case 2:
        left_ms -= (now_ns - s->drain_began_ns) / 1000000;
        break;
    case 3:
        left_ms = (int64_t)cfg->shutdown_commit_ms;
        break;
    default:
        return 0;
    }
    return left_ms > 0 ? left_ms : 1;
}

enum { CLOCK_BEHIND_MS = 5 * 60 * 1000 };

/* Ledger time never goes back and follows the wall clock slowly: when that is far behind, somebody should look at it. */
static void look_at_clock(struct svc *svc, struct ledger_service *s)
{
    int64_t ledger_ms = (int64_t)atomic_load(&s->l->ledger_ms);
    int64_t behind_ms = ledger_ms - svc_clock(svc)->wall_ms(svc_clock(svc)->ctx);
    bool ok = behind_ms <= CLOCK_BEHIND_MS;
    if (!ok && obs_health_ok(svc_health(svc), s->cause_clock))
        obs_log(svc_log(svc), OBS_WARN, "clock_behind", OBS_I64("ms", behind_ms), OBS_END);
    obs_health_set(svc_health(svc), s->cause_clock, ok);
}

static void service_readiness(struct svc *svc, void *state)
{
    struct ledger_service *s = state;
    struct ledger *l = s->l;
    const struct ledger_config *cfg = svc_config(svc);
    struct obs_health *h = svc_health(svc);
    double depth = (double)rt_chan_depth(l->commit) / (double)l->set.q_commit;
    int64_t began = atomic_load(&l->commit_began_ns), now = svc_clock(svc)->mono_ns(svc_clock(svc)->ctx);
    bool lagging = began != 0 && now - began > (int64_t)cfg->max_committer_lag_ms * 1000000;
    obs_health_set(h, s->cause_safe, ledger_safe_cause(l) == CAUSE_NONE);
    obs_health_set(h, s->cause_backpressure, depth < cfg->commit_high);
    obs_health_set(h, s->cause_warn, depth < cfg->commit_warn);
    obs_health_set(h, s->cause_lag, !lagging);
    obs_health_set(h, s->cause_disk, !atomic_load(&l->disk_pressure));
    const size_t causes[PROVIDER_COUNT] = {s->cause_kms, s->cause_policy, s->cause_wallet};
    for (unsigned i = 0; i < PROVIDER_COUNT; i++) {
        int state_now = ledger_provider_breaker(l->providers, (enum ledger_provider)i);
        obs_health_set(h, causes[i], state_now != 2);
        obs_gauge_set(
            OBS_GAUGE_OF(l->m[LEDGER_M_breaker_state], ledger_provider_name((enum ledger_provider)i)),
            state_now);
    }
    obs_health_set(h, s->cause_replica, ledger_replica_ready(l));
    obs_health_set(h, s->cause_checkpoint, !atomic_load(&l->checkpoint_failing));
    look_at_clock(svc, s);
    obs_tracer_sample_all(svc_tracer(svc), ledger_safe_cause(l) != CAUSE_NONE);
    ledger_direct_tick(s);
}

static void service_readiness_members(void *state, struct buf *out)
{
    struct ledger_service *s = state;
    struct ledger *l = s->l;
    struct ledger_head head;
    ledger_head_read(l, &head);
    int64_t began = atomic_load(&l->commit_began_ns);
    int64_t lag = began == 0 ? 0 : (svc_clock(s->svc)->mono_ns(svc_clock(s->svc)->ctx) - began) / 1000000;
    struct obs_health *h = svc_health(s->svc);
    buf_printf(out,
               ",\"kms_ready\":%s,\"policy_ready\":%s,\"wallet_ready\":%s,\"backpressure_ok\":%s,"
               "\"committer_lag_ms\":%lld,"
               "\"safe_mode\":%s,\"draining\":%s,\"replaying\":%s,\"disk_ok\":%s,\"head_seq\":%llu,\"group_"
               "no\":%llu,\"ledger_ms\":%llu,\"root\":\"",
               obs_health_ok(h, s->cause_kms) ? "true" : "false",
               obs_health_ok(h, s->cause_policy) ? "true" : "false",
               obs_health_ok(h, s->cause_wallet) ? "true" : "false",
               obs_health_ok(h, s->cause_backpressure) ? "true" : "false", (long long)lag,
               ledger_safe_cause(l) != CAUSE_NONE ? "true" : "false",
               svc_draining(s->svc) ? "true" : "false",
               atomic_load(&l->phase) == PHASE_REPLAYING ? "true" : "false",
               atomic_load(&l->disk_pressure) ? "false" : "true", (unsigned long long)head.seq,
               (unsigned long long)head.group_no, (unsigned long long)atomic_load(&l->ledger_ms));
    char root[SHA256_TEXT_CHARS];
    sha256_format(&head.root, root);
    buf_printf(out, "%s\",\"role\":\"%s\"", root, ledger_role_name(ledger_replica_role(l)));
    if (l->replica == NULL)
        return;
    char writer[STORE_LEASE_URL_MAX + 1], why[REPLICA_WHY_MAX];
    ledger_replica_writer(l, writer);
    ledger_replica_why(l, why);
    struct json_w w;
    json_w_init(&w, out);
    buf_printf(out, ",\"epoch\":%llu,\"lag_ms\":%lld,\"writer\":",
               (unsigned long long)atomic_load(&l->replica->seen_epoch),
               (long long)ledger_replica_lag_ms(l));
    json_str(&w, str_from_c(writer));
    if (why[0] != 0) {
        buf_puts(out, ",\"replica_error\":");
        json_w_init(&w, out);
        json_str(&w, str_from_c(why));
    }
}

static void service_reloaded(struct svc *svc, void *state) RT_BLOCKS
{
    struct ledger_service *s = state;
    const struct ledger_config *cfg = svc_config(svc);
    struct ledger_settings set;
    settings_from(svc, cfg, &set);
    limits_from(cfg, &s->l->set.limits);
    s->l->set.max_entries = set.max_entries;
    s->l->set.max_inflight_bytes = set.max_inflight_bytes;
    s->l->set.max_subscribers = set.max_subscribers;
    s->l->set.request_ms = set.request_ms;
    s->l->set.commit_wait_ms = set.commit_wait_ms;
    s->l->set.public_roots = set.public_roots;
    s->l->set.public_entries = set.public_entries;
    s->l->set.compress = set.compress;
    s->l->set.scrub_rate = set.scrub_rate;
    s->l->set.checkpoint_interval_ms = set.checkpoint_interval_ms;
    s->l->set.checkpoint_retain = set.checkpoint_retain;
    (void)!policy_load(s, cfg);
    struct ledger_providers_settings providers;
    provider_settings(cfg, &providers);
    ledger_providers_configure(s->l->providers, &providers);
}

static void service_close(struct svc *svc, void *state) RT_BLOCKS
{
    (void)svc;
    struct ledger_service *s = state;
    net_outbox_destroy(s->doors);
    /* Normally empty: only a task that was given up for good leaves anything, and then nobody else will answer. */
    struct rt_chan *queues[] = {s->l->ingress, s->l->preval, s->l->commit, s->l->late};
    for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++)
        ledger_answer_queued(s->l, queues[i], i < 2 ? ERR_DRAINING : ERR_OUTCOME_UNKNOWN);
    ledger_providers_destroy(s->l->providers);
    ledger_close(s->l, s->committer_done);
    if (s->stream_tx != NULL)
        rt_chan_destroy(s->stream_tx, NULL, NULL);
    rt_lock_fini(&s->note_lock);
    rt_lock_fini(&s->direct_lock);
    free(s);
}

static const char *const explicit_ops[] = {"mint", "reverse", NULL};

const struct svc_def ledger_svc = {
    .name = "ledger",
    .title = "ron-ledger",
    .summary = "the provable truth about value",
    .port_offset = 10,
    .oap_port_offset = 11,
    .config = &ledger_conf,
    .topology = ledger_topology,
    .listener_task = "ingress",
    .metrics = metric_rows,
    .metric_count = LEDGER_M_COUNT,
    .routes = ledger_routes,
    .understands = AUTH_BIT(AUTH_CV_ACCOUNT) | AUTH_BIT(AUTH_CV_ASSET) | AUTH_BIT(AUTH_CV_MAX_AMOUNT) |
                   AUTH_BIT(AUTH_CV_IP) | AUTH_BIT(AUTH_CV_BYTES) | AUTH_BIT(AUTH_CV_RATE),
    .explicit_ops = explicit_ops,
    .oap = ledger_oap,
    .oap_app = NET_OAP_LEDGER,
    .hooks = {.open = service_open,
              .start = service_start,
              .client_late = service_client_late,
              .drain_step = service_drain_step,
              .drain_step_ms = service_drain_step_ms,
              .readiness = service_readiness,
              .readiness_members = service_readiness_members,
              .reloaded = service_reloaded,
              .close = service_close},
};

enum err ledger_read_submit(struct ledger_service *s, struct ledger_read *r)
{
    enum err err = rt_chan_try_send(s->l->read, r);
    if (err == ERR_BUSY)
        obs_counter_inc(OBS_COUNTER_OF(s->l->m[LEDGER_M_busy_rejections], "read"));
    return err;
}

enum err ledger_stream_submit(struct ledger_service *s, struct ledger_stream *st)
{
    if (atomic_fetch_add(&s->n_streams, 1) >= s->l->set.max_subscribers) {
        atomic_fetch_sub(&s->n_streams, 1);
        obs_counter_inc(OBS_COUNTER_OF(s->l->m[LEDGER_M_busy_rejections], "stream"));
        return ERR_BUSY;
    }
    ledger_listen(s->l); /* before the publisher reads the head for it */
    enum err err = rt_chan_try_send(s->stream_tx, st);
    if (err != ERR_OK) {
        ledger_unlisten(s->l);
        atomic_fetch_sub(&s->n_streams, 1);
    } else
        rt_bell_ring(&s->stream_bell);
    return err;
}

enum err ledger_note_cached(struct ledger_service *s, uint64_t size, char out[NOTE_MAX], size_t *out_n)
{
    bool hit = false;
    rt_lock_take(&s->note_lock);
    for (size_t i = 0; !hit && i < 64; i++)
        if (s->notes[i].n != 0 && s->notes[i].size == size) {
            memcpy(out, s->notes[i].text, s->notes[i].n);
            *out_n = s->notes[i].n;
            hit = true;
        }
    rt_lock_release(&s->note_lock);
    if (hit)
        return ERR_OK;
    char text[NOTE_MAX];
    size_t n;
    enum err err = ledger_checkpoint_note(s->l, size, text, &n);
    if (err != ERR_OK)
        return err;
    rt_lock_take(&s->note_lock);
    unsigned at = s->next_note++ % 64;
    s->notes[at].size = size;
    s->notes[at].n = n;
    memcpy(s->notes[at].text, text, n);
    rt_lock_release(&s->note_lock);
    memcpy(out, text, n);
    *out_n = n;
    return ERR_OK;
}
