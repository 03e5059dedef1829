/* The service as the frame sees it: tables, hooks, and the order in which things come up and go down. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "services/mailbox/replica.h"

#define CONF_STRUCT struct mailbox_config
static const struct conf_key keys[] = {
#define CONF CONF_AS_KEY
#include "services/mailbox/config.def"
#undef CONF
};

static const struct obs_metric_def metrics[] = {
#include "obs/metrics_rows.h"
#include "services/mailbox/metrics.def"
#include "obs/metrics_end.h"
};

static enum err adjust(struct conf *c, void *config, struct conf_error *out_err)
{
    struct mailbox_config *cfg = config;
    struct mailbox_rules *rules = malloc(sizeof *rules);
    char why[200];
    if (!rules)
        return ERR_NO_MEMORY;
    enum err e = mailbox_rules_make(cfg, 1, rules, why);
    free(rules);
    if (e != ERR_OK)
        return conf_refuse(c, "topic_policies", out_err, "%s", why);
    if (mailbox_quotas_set(NULL, (const char *const *)cfg->quotas.v, cfg->quotas.n, why) != ERR_OK)
        return conf_refuse(c, "quotas", out_err, "%s", why);
    if (cfg->visibility_ms_min > cfg->default_visibility || cfg->default_visibility > cfg->visibility_max)
        return conf_refuse(c, "default_visibility", out_err,
                           "must lie between visibility_ms_min and visibility_max");
    if (cfg->index_max && cfg->index_max < 1024)
        return conf_refuse(c, "index_max", out_err, "must be 0, or 1024 and more");
    if (cfg->backoff_base > cfg->backoff_max)
        return conf_refuse(c, "backoff_base", out_err, "must not be over backoff_max");
    if (cfg->scanner_min_wake > cfg->scanner_max_wake)
        return conf_refuse(c, "scanner.min_wake", out_err, "must not be over scanner.max_wake");
    if (strpbrk(cfg->replica_node, " /") || strpbrk(cfg->replica_advertise, " "))
        return conf_refuse(c, "replica.node", out_err,
                           "must not hold a space or a slash, nor replica.advertise a space");
    if (cfg->segment_bytes % 4096)
        return conf_refuse(c, "storage.segment_bytes", out_err, "must be a multiple of 4096");
    return ERR_OK;
}

const struct conf_table mailbox_conf = {.service = "mailbox",
                                        .keys = keys,
                                        .keys_n = sizeof keys / sizeof *keys,
                                        .config_bytes = sizeof(struct mailbox_config),
                                        .adjust = adjust};

void mailbox_topology(const struct mailbox_config *cfg, struct rt_topology *topology)
{
    rt_topology_init(topology, "mailbox");
#include "rt/topology_rows.h"
#include "services/mailbox/topology.def"
#include "rt/topology_rows_end.h"
}

static void topology_of(const void *config, struct rt_topology *out)
{
    mailbox_topology(config, out);
}

/* Opening: journals are read by as many threads as there are CPUs, each taking the next shard. */
struct opening {
    struct mailbox *mb;
    atomic_uint next;
    atomic_int err; /* the first */
};

static void open_some(void *arg) RT_BLOCKS
{
    struct opening *o = arg;
    for (unsigned i; (i = atomic_fetch_add(&o->next, 1)) < o->mb->shards;) {
        enum err e = mailbox_lane_open(o->mb, &o->mb->lanes[i], (uint16_t)i);
        int none = ERR_OK;
        if (e != ERR_OK)
            atomic_compare_exchange_strong(&o->err, &none, (int)e);
    }
}

static enum err open_in_parallel(struct mailbox *mb) RT_BLOCKS
{
    struct opening o = {.mb = mb};
    struct os_thread helper[MAILBOX_SHARDS_MAX];
    unsigned n = os_cpus(), started = 0;
    if (n > mb->shards)
        n = mb->shards;
    while (started + 1 < n && os_thread_start(&helper[started], "mbx-open", open_some, &o) == ERR_OK)
        started++; /* fewer helpers only take longer */
    open_some(&o);
    while (started > 0)
        os_thread_join(&helper[--started]);
    return (enum err)atomic_load(&o.err);
}

static enum err open_lanes(struct mailbox *mb) RT_BLOCKS
{
    int64_t began = clock_mono_ns(mb->clock);
    mb->lanes = calloc(MAILBOX_SHARDS_MAX, sizeof *mb->lanes); /* untouched ones take no memory */
    if (!mb->lanes)
        return ERR_NO_MEMORY;
    mb->lanes_made = mb->shards;
    mb->settles_flushed = mb->replica != NULL;
    enum err e = ERR_OK;
    for (uint16_t i = 0; mb->replica && e == ERR_OK && i < mb->shards; i++) {
        e = mailbox_lane_init(mb, &mb->lanes[i], i);
        mailbox_presence_begin_away(&mb->lanes[i].presence); /* the shard keeper sees which are ours */
    }
    if (mb->replica)
        return e;
    e = open_in_parallel(mb);
    if (e != ERR_OK)
        return e;
    obs_gauge_set(obs_gauge(mb->m[MAILBOX_M_recovery_seconds]),
                  (double)(clock_mono_ns(mb->clock) - began) / 1e9);
    return mailbox_files_check_clean(mb, svc_data_dir(mb->svc));
}

static enum err show_queues(struct mailbox *mb)
{
    enum err e = svc_follow_bcast(mb->svc, "events_tx", mb->events);
    for (uint16_t i = 0; e == ERR_OK && i < mb->shards; i++) {
        e = svc_follow_queue(mb->svc, mb->lanes[i].work);
        if (e == ERR_OK)
            e = svc_follow_queue(mb->svc, mb->lanes[i].requeue);
    }
    return e;
}

static void set_quotas(struct mailbox *mb)
{
    const struct mailbox_config *cfg = mailbox_config(mb);
    char why[200];
    if (mailbox_quotas_set(&mb->quotas, (const char *const *)cfg->quotas.v, cfg->quotas.n, why) != ERR_OK)
        UNREACHABLE(); /* adjust() has read the same lines */
}

static enum err open_service(struct svc *s, void **out_state) RT_BLOCKS
{
    struct mailbox *mb = calloc(1, sizeof *mb);
    if (!mb)
        return ERR_NO_MEMORY;
    *out_state = mb;
    mb->svc = s;
    mb->clock = svc_clock(s);
    rt_bell_init(&mb->scan);
    for (size_t i = 0; i < MAILBOX_M_COUNT; i++)
        mb->m[i] = obs_family_find(svc_metrics(s), metrics[i].name);
    enum err e = store_disk_mkdirs(svc_disk(s), svc_data_dir(s));
    if (e == ERR_OK || e == ERR_EXISTS)
        e = mailbox_replica_open(mb);
    const struct mailbox_config *cfg = mailbox_config(mb);
    struct mailbox_layout layout = mailbox_layout_in(svc_amnesia(s) ? cfg->amnesia_bytes : UINT64_MAX, cfg);
    mb->segment_bytes = layout.segment_bytes;
    mb->workers = mailbox_shards_at_first(cfg);
    if (e == ERR_OK)
        e = mailbox_files_open(mb, svc_data_dir(s), layout.shards);
    if (e == ERR_OK)
        mb->segment_bytes = mailbox_files_segment_bytes(mb, svc_data_dir(s), layout.segment_bytes);
    if (mb->segment_bytes != layout.segment_bytes)
        obs_log(svc_log(s), OBS_WARN, "storage.segment_bytes_kept", OBS_U64("bytes", mb->segment_bytes),
                OBS_U64("configured", layout.segment_bytes), OBS_END);
    if (e == ERR_OK)
        e = mailbox_replica_found(mb);
    if (e == ERR_OK)
        e = mailbox_files_shared(mb, svc_data_dir(s));
    if (e == ERR_OK)
        e = svc_add_queue(s, "reproc_tx", "reproc_tx", &mb->reproc);
    rt_lock_init(&mb->jobs.lock, "jobs", 41);
    mailbox_quotas_init(&mb->quotas);
    set_quotas(mb);
    mb->events = rt_bcast_create(&(struct rt_bcast_spec){
        .name = "events_tx", .capacity = 1024, .ref = mailbox_note_ref, .unref = mailbox_note_unref});
    if (e == ERR_OK && !mb->events)
        e = ERR_NO_MEMORY;
    if (e == ERR_OK)
        e = open_lanes(mb);
    if (e == ERR_OK)
        e = show_queues(mb);
    if (e != ERR_OK)
        return e;
    mb->cause_shards = obs_health_add(svc_health(s), "shards", OBS_HARD);
    mb->cause_scanner = obs_health_add(svc_health(s), "scanner", OBS_HARD);
    mb->cause_storage = obs_health_add(svc_health(s), "storage", OBS_HARD);
    mb->cause_rebalancing = obs_health_add(svc_health(s), "rebalancing", OBS_HARD);
    mb->cause_saturated = obs_health_add(svc_health(s), "saturation", OBS_SOFT);
    if (mb->replica)
        mb->cause_replica = obs_health_add(svc_health(s), "replica", OBS_HARD);
    return ERR_OK;
}

static enum err start_service(struct svc *s, void *state)
{
    struct mailbox *mb = state;
    enum err e = ERR_OK;
    for (uint16_t i = 0; e == ERR_OK && i < mb->shards; i++)
        e = mailbox_lane_doors(&mb->lanes[i]);
    if (e == ERR_OK)
        e = svc_add_task(s, "worker", mailbox_worker_run, state);
    if (e == ERR_OK)
        e = svc_add_task(s, "scanner", mailbox_scanner_run, state);
    if (e == ERR_OK)
        e = svc_add_task(s, "reprocessor", mailbox_reprocessor_run, state);
    if (e == ERR_OK)
        e = svc_add_task(s, "rebalancer", mailbox_rebalancer_run, state);
    if (e == ERR_OK)
        e = svc_add_task(s, "shard_keeper", mailbox_shard_keeper_run, state);
    if (e == ERR_OK)
        e = svc_add_task(s, "cap_refresher", svc_caps_task, s);
    if (e == ERR_OK)
        e = svc_add_task(s, "exporter", mailbox_exporter_run, state);
    if (e == ERR_OK)
        e = svc_add_task(s, "traces", svc_metrics_task, s);
    return e;
}

static void drain_step(struct svc *s, void *state, int step)
{
    struct mailbox *mb = state;
    (void)s;
    if (step == 1)
        atomic_store(&mb->draining, true);
    for (uint16_t i = 0; step == 2 && i < mb->lanes_made; i++)
        rt_chan_close(mb->lanes[i].work);
    if (step == 3)
        rt_chan_close(mb->reproc);
}

static bool lane_stalled(const struct mailbox *mb, const struct mailbox_lane *l)
{
    int64_t since = atomic_load(&l->busy_since_ns);
    return since && clock_mono_ns(mb->clock) - since > (int64_t)MAILBOX_STALL_MS * 1000000;
}

static void say_stalled(struct mailbox *mb, uint16_t shard, bool stalled)
{
    uint64_t bit = UINT64_C(1) << shard;
    if (stalled == ((atomic_load(&mb->stalled_said) & bit) != 0))
        return;
    atomic_fetch_xor(&mb->stalled_said, bit);
    obs_log(svc_log(mb->svc), OBS_WARN, "shard.stalled", OBS_U64("shard", shard),
            OBS_BOOL("stalled", stalled), OBS_END);
}

/* A burst fills a queue, too: only what lasts is worth a word. */
static bool crowded_for_long(struct mailbox *mb, bool calm)
{
    int64_t now = clock_mono_ns(mb->clock), since = atomic_load(&mb->crowded_since_ns);
    if (calm || !since)
        atomic_store(&mb->crowded_since_ns, since = calm ? 0 : now);
    return since && now - since >= (int64_t)MAILBOX_CROWDED_MS * 1000000;
}

static void readiness(struct svc *s, void *state)
{
    struct mailbox *mb = state;
    struct obs_health *h = svc_health(s);
    const struct mailbox_config *cfg = mailbox_config(mb);
    bool shards = true, storage = true, calm = true;
    for (uint16_t i = 0; i < mb->shards; i++) {
        struct mailbox_lane *l = &mb->lanes[i];
        bool stalled = lane_stalled(mb, l);
        say_stalled(mb, i, stalled);
        shards = shards && !atomic_load(&l->readonly) && !atomic_load(&l->given_up) && !stalled;
        storage = storage && !atomic_load(&l->disk_full);
        calm = calm && atomic_load(&l->jobs) * 10 <= cfg->shard_capacity * 9;
    }
    obs_health_set(h, mb->cause_shards, shards);
    obs_health_set(h, mb->cause_storage, storage);
    obs_health_set(h, mb->cause_rebalancing, !atomic_load(&mb->rebalancing));
    obs_health_set(h, mb->cause_saturated, !crowded_for_long(mb, calm));
    if (mb->replica)
        obs_health_set(h, mb->cause_replica, mailbox_replica_in_touch(mb));
    obs_health_set(h, mb->cause_scanner, clock_mono_ns(mb->clock) < atomic_load(&mb->scanner_by_ns));
}

static void readiness_members(void *state, struct buf *out)
{
    struct mailbox *mb = state;
    unsigned readonly = 0, stalled = 0;
    for (uint16_t i = 0; i < mb->shards; i++) {
        readonly += atomic_load(&mb->lanes[i].readonly) || atomic_load(&mb->lanes[i].given_up);
        stalled += lane_stalled(mb, &mb->lanes[i]);
    }
    buf_printf(out, ",\"shards_readonly\":%u,\"shards_stalled\":%u", readonly, stalled);
    if (mb->replica)
        buf_printf(out, ",\"node\":\"%s\",\"shards_here\":%u,\"shards_share\":%u,\"nodes\":%u",
                   mb->replica->node, atomic_load(&mb->replica->here), atomic_load(&mb->replica->share),
                   atomic_load(&mb->replica->live));
}

static void refuse_draining(struct svc *s, struct net_req *rq)
{
    (void)s;
    net_reply_problem_full(
        rq, &(struct net_problem){.err = ERR_BUSY,
                                  .detail = STR("the mailbox is shutting down"),
                                  .details_json = bytes_of("{\"reason\":\"draining\"}", 21)});
}

static void client_late(struct svc *s, void *state, const char *op)
{
    struct mailbox *mb = state;
    (void)s;
    obs_counter_inc(OBS_COUNTER_OF(mb->m[MAILBOX_M_io_timeouts], op));
}

static void answered_no(struct svc *s, void *state, const struct net_done *d)
{
    const struct mailbox *mb = state;
    (void)s;
    if (d->status == 429)
        obs_hist_observe(obs_hist(mb->m[MAILBOX_M_refusal_seconds]), (double)d->duration_ns / 1e9);
}

static void reloaded(struct svc *s, void *state)
{
    struct mailbox *mb = state;
    (void)s;
    set_quotas(mb);
    atomic_fetch_add(&mb->rules_version, 1); /* each worker takes the new snapshot before its next batch */
}

static void close_service(struct svc *s, void *state) RT_BLOCKS
{
    struct mailbox *mb = state;
    bool orderly = mb->lanes != NULL && atomic_load(&mb->draining) &&
                   !mb->replica; /* then PostgreSQL knows the ends */
    for (uint16_t i = 0; orderly && i < mb->shards; i++)
        orderly =
            mb->lanes[i].loaded && !atomic_load(&mb->lanes[i].readonly) && mb->lanes[i].shard.group.n == 0;
    if (orderly && mailbox_files_clean(mb, svc_data_dir(s)) != ERR_OK)
        obs_log(svc_log(s), OBS_WARN, "clean_not_written", OBS_END);
    for (uint16_t i = 0; mb->lanes && i < mb->lanes_made; i++)
        mailbox_lane_close(&mb->lanes[i]);
    if (mb->reproc)
        rt_chan_destroy(mb->reproc, NULL, NULL);
    if (mb->events)
        rt_bcast_destroy(mb->events);
    mailbox_operators_free(mb);
    mailbox_replica_close(mb);
    rt_lock_fini(&mb->jobs.lock);
    mailbox_quotas_fini(&mb->quotas);
    free(mb->lanes);
    free(mb);
}

static const char *const explicit_ops[] = {"dlq", NULL};

const struct svc_def mailbox_svc = {
    .name = "mailbox",
    .title = "svc-mailbox",
    .summary = "store-and-forward messaging: send, receive under a lease, ack, dead letters",
    .port_offset = 30,
    .oap_port_offset = 31,
    .config = &mailbox_conf,
    .topology = topology_of,
    .listener_task = "listener",
    .metrics = metrics,
    .metric_count = MAILBOX_M_COUNT,
    .routes = mailbox_routes,
    .understands = AUTH_BIT(AUTH_CV_TOPIC) | AUTH_BIT(AUTH_CV_BYTES) | AUTH_BIT(AUTH_CV_RATE) |
                   AUTH_BIT(AUTH_CV_TENANT),
    .explicit_ops = explicit_ops,
    .oap = mailbox_oap,
    .oap_app = 0x0201,
    .hooks = {.open = open_service,
              .start = start_service,
              .drain_step = drain_step,
              .readiness = readiness,
              .readiness_members = readiness_members,
              .refuse_draining = refuse_draining,
              .client_late = client_late,
              .refused = answered_no,
              .reloaded = reloaded,
              .close = close_service},
};
