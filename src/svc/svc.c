/*
 * Opening and closing an instance. Everything is built in the order of struct svc and taken down in the reverse; a
 * failure on the way leaves what was built for svc_close, and a sentence for svc_last_error.
 */
#include "svc/svc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "net/loop.h"
#include "svc/host.h"
#include "net/http_client.h"
#include "svc/internal.h"

enum { FLUSH_MS = 1000 }; /* a client that reads slower than this when everything ends is cut */

static const struct obs_metric_def metric_table[] = {
#include "obs/metrics_rows.h"
#include "svc/metrics.def"
#include "obs/metrics_end.h"
};

/* "auto" and "" of the socket keys become addresses and paths. */
static void resolve_addresses(struct svc *s)
{
    const struct svc_config *c = svc_common(s);
    const char *root = svc_data_path(s->data);
    bool amnesia = svc_data_amnesia(s->data); /* a socket is a file: none unless asked for */

    if (*c->bind)
        snprintf(s->bind, sizeof s->bind, "%s", c->bind);
    else
        snprintf(s->bind, sizeof s->bind, "127.0.0.1:%d",
                 s->base_port ? s->base_port + s->def->port_offset : 0);
    if (strcmp(c->uds, "auto") != 0)
        snprintf(s->uds, sizeof s->uds, "%s", c->uds);
    else if (!amnesia)
        snprintf(s->uds, sizeof s->uds, "%s/run/%s.sock", root, s->def->name);
    for (size_t i = 0; i < c->uds_allow_uids.n; i++)
        s->allow_uids[i] = (uid_t)c->uds_allow_uids.v[i];
    if (!s->def->oap)
        return;
    if (strcmp(c->oap_bind, "auto") != 0)
        snprintf(s->oap_bind, sizeof s->oap_bind, "%s", c->oap_bind);
    else
        snprintf(s->oap_bind, sizeof s->oap_bind, "127.0.0.1:%d",
                 s->base_port ? s->base_port + s->def->oap_port_offset : 0);
    if (strcmp(c->oap_uds, "auto") != 0)
        snprintf(s->oap_uds, sizeof s->oap_uds, "%s", c->oap_uds);
    else if (!amnesia)
        snprintf(s->oap_uds, sizeof s->oap_uds, "%s/run/%s-oap.sock", root, s->def->name);
}

static bool same_labels(const struct svc_def *def, const struct obs_metric_def *row)
{
    for (size_t i = 0; i < def->metric_count; i++)
        if (strcmp(def->metrics[i].name, row->name) == 0)
            return strcmp(def->metrics[i].labels, row->labels) == 0;
    return true;
}

static enum err open_observability(struct svc *s, int log_fd)
{
    const struct svc_config *c = svc_common(s);
    enum err e = obs_metrics_create(s->def->name, &s->metrics);
    if (e == ERR_OK && s->def->metric_count)
        e = obs_metrics_add(s->metrics, s->def->metrics, s->def->metric_count, NULL);
    /* The service's own table comes first: a family it declares too is the one that counts. */
    for (size_t i = 0; e == ERR_OK && i < SVC_M_COUNT; i++) {
        s->families[i] = obs_family_find(s->metrics, metric_table[i].name);
        if (s->families[i] && !same_labels(s->def, &metric_table[i]))
            s->families[i] = NULL; /* the service labels it its own way and fills it itself */
        else if (!s->families[i])
            e = obs_metrics_add(s->metrics, &metric_table[i], 1, &s->families[i]);
    }
    if (e == ERR_OK)
        e = obs_metrics_collect(s->metrics, svc__collect, s);
    if (e == ERR_OK)
        e = obs_log_create(&(struct obs_log_config){.service = s->def->name,
                                                    .level = s->quiet && c->logging_level < OBS_WARN
                                                                 ? OBS_WARN
                                                                 : (enum obs_level)c->logging_level,
                                                    .fd = log_fd ? log_fd : STDERR_FILENO,
                                                    .dup_per_s = 10,
                                                    .clock = s->clock},
                           &s->log);
    if (e == ERR_OK)
        e = obs_health_create(s->clock, &s->health);
    if (e == ERR_OK)
        e = obs_tracer_create(
            &(struct obs_tracer_config){.clock = s->clock,
                                        .capacity = s->def->spans_max ? s->def->spans_max : 1024,
                                        .sample_ppm = (unsigned)(c->otlp_sample * 1e6)},
            &s->tracer);
    if (e != ERR_OK) {
        svc__set_error("%s: cannot set up metrics and logs (%s)", s->def->name, err_title(e));
        return e;
    }
    s->cause_started = obs_health_add(s->health, "started", OBS_HARD);
    s->cause_draining = obs_health_add(s->health, "not_draining", OBS_HARD);
    s->cause_tasks = obs_health_add(s->health, "tasks", OBS_HARD);
    obs_health_set(s->health, s->cause_draining, true);
    obs_health_set(s->health, s->cause_tasks, true);
    return ERR_OK;
}

static enum err open_auth(struct svc *s)
{
    struct auth_file_error where = {0};
    enum err e = auth_open(&(struct auth_config){.aud = s->def->title,
                                                 .understands = s->def->understands,
                                                 .explicit_ops = s->def->explicit_ops,
                                                 .key_file = svc_data_key_file(s->data),
                                                 .keyring = svc_data_keyring(s->data),
                                                 .revocation_file = svc_data_revocation_file(s->data),
                                                 .cache_ttl_ms = svc_common(s)->auth_cache_ttl,
                                                 .clock = s->clock},
                           &s->auth, &where);
    if (e != ERR_OK)
        svc__set_error("%s: key file line %u: %s", s->def->name, where.line,
                       where.reason ? where.reason : err_title(e));
    return e;
}

static void log_event(void *ctx, const struct rt_event *ev)
{
    struct svc *s = ctx;
    bool bad = ev->kind == RT_EVENT_FAILED || ev->kind == RT_EVENT_SILENT ||
               ev->kind == RT_EVENT_ESCALATED || ev->kind == RT_EVENT_ABORTED ||
               ev->kind == RT_EVENT_LEAKED;
    if (ev->kind == RT_EVENT_DRAIN)
        obs_log(s->log, OBS_INFO, "drain", OBS_STR("state", rt_drain_state_name(ev->drain)), OBS_END);
    else
        obs_log(s->log, bad ? OBS_WARN : OBS_DEBUG, rt_event_kind_name(ev->kind), OBS_STR("name", ev->task),
                OBS_I64("delay_ms", ev->delay_ms), OBS_ERR(ev->err), OBS_END);
    if (ev->kind == RT_EVENT_ESCALATED || ev->kind == RT_EVENT_HEALED)
        obs_health_set(s->health, s->cause_tasks, !rt_supervisor_escalated(s->supervisor));
    if (ev->kind == RT_EVENT_ESCALATED && s->def->hooks.escalated)
        s->def->hooks.escalated(s, s->state, ev->task);
    /* A task the service cannot go on without starts the drain by itself: end the process the same way. */
    if (ev->kind == RT_EVENT_DRAIN && ev->drain == RT_DRAIN_DRAINING && !atomic_load(&s->draining))
        svc_host_request_drain(NULL);
}

/* One per declared drain step; the first stops intake. */
static void begin_step(void *ctx)
{
    struct svc_step *step = ctx;
    struct svc *s = step->svc;
    if (step == s->steps) {
        net_server_stop_accepting(s->server);
        if (s->oap)
            net_oap_server_stop_accepting(s->oap);
    }
    if (s->def->hooks.drain_step)
        s->def->hooks.drain_step(s, s->state, (int)step->step);
}

static int64_t step_deadline(void *ctx)
{
    struct svc_step *step = ctx;
    struct svc *s = step->svc;
    return s->def->hooks.drain_step_ms ? s->def->hooks.drain_step_ms(s, s->state, (int)step->step) : 0;
}

int64_t svc__drain_ms(const struct svc *s)
{
    int64_t ms = svc_common(s)->drain_deadline;
    return ms > 0 ? ms : 1; /* none at all: what is left is aborted at once */
}

static enum err open_supervisor(struct svc *s)
{
    struct rt_drain_step steps[SVC_STEPS_MAX];
    size_t n = 0;

    struct buf why;
    s->def->topology(svc_config(s), &s->topology);
    buf_init(&why, 4096);
    if (rt_topology_check(&s->topology, &why) != ERR_OK) {
        svc__set_error("%s: topology: %s", s->def->name, buf_cstr(&why));
        buf_fini(&why);
        return ERR_INTERNAL;
    }
    buf_fini(&why);
    for (unsigned step = 0; step < SVC_STEPS_MAX; step++)
        for (size_t i = 0; i < s->topology.tasks_n; i++)
            if (s->topology.tasks[i].drain_step == step) {
                s->steps[n] = (struct svc_step){s, step};
                steps[n] = (struct rt_drain_step){
                    .step = step, .begin = begin_step, .deadline_for = step_deadline, .ctx = &s->steps[n]};
                n++;
                break;
            }
    s->supervisor = rt_supervisor_create(&(struct rt_supervisor_spec){.name = s->def->name,
                                                                      .drain_deadline_ms = svc__drain_ms(s),
                                                                      .steps = steps,
                                                                      .steps_n = n,
                                                                      .on_event = log_event,
                                                                      .ctx = s});
    if (!s->supervisor) {
        svc__set_error("%s: no memory for the supervisor", s->def->name);
        return ERR_NO_MEMORY;
    }
    return ERR_OK;
}

enum err svc_open(const struct svc_def *def, const struct svc_options *opt, struct svc **out_svc)
{
    struct svc *s = calloc(1, sizeof *s);
    if (!s)
        return ERR_NO_MEMORY;
    *out_svc = s; /* also on failure: svc_close takes down what was built */
    s->def = def;
    s->data = opt->data;
    s->wiring = opt->wiring;
    s->config_file = opt->config_file;
    s->flags = opt->flags;
    s->flag_count = opt->flag_count;
    s->base_port = opt->base_port;
    s->quiet = opt->quiet;
    s->clock = opt->clock ? opt->clock : clock_real();
    snprintf(s->data_dir, sizeof s->data_dir, "%s/%s", svc_data_path(s->data), def->name);

    enum err e = svc__config_open(s);
    if (e != ERR_OK)
        return e;
    resolve_addresses(s);
    if ((e = open_observability(s, opt->log_fd)) != ERR_OK)
        return e;
    s->disk = opt->disk ? opt->disk : store_disk_real();
    s->own_disk = !opt->disk && svc_data_amnesia(s->data);
    if (s->own_disk && (e = store_disk_memory(0, &s->disk)) != ERR_OK)
        return e;
    if ((e = open_auth(s)) != ERR_OK || (e = open_supervisor(s)) != ERR_OK)
        return e;
    svc_say_error("");
    /* Before a file of it is read: opening a journal repairs what looks like a torn end. */
    e = svc_data_claim(s->data, def->name);
    if (e == ERR_OK && def->hooks.open)
        e = def->hooks.open(s, &s->state);
    if (e != ERR_OK) {
        if (!*svc_last_error()) /* the hook may know better */
            svc__set_error("%s: cannot open its data in %s: %s", def->name, s->data_dir, svc__advice(e));
        if (!s->quiet) /* whoever asked for quiet says the sentence itself */
            obs_log(s->log, OBS_ERROR, "open_failed", OBS_STR("why", svc_last_error()), OBS_ERR(e),
                    OBS_END);
        return e;
    }
    return ERR_OK;
}

/* The loops end last: by then every request has been answered, and what is left is to hand the bytes over. */
static enum err run_listener(struct rt_task *self, void *arg) RT_BLOCKS
{
    struct svc *s = arg;
    enum err e = net_server_run(s->server, rt_task_index(self), self);
    if (!rt_task_stopping(self))
        return e;
    struct deadline by = deadline_in_ms(FLUSH_MS);
    struct net_server_stats stats;
    for (net_server_stats(s->server, &stats);
         stats.conns && !deadline_passed(by) && !rt_task_canceled(self);
         net_server_stats(s->server, &stats))
        net_loop_once(net_server_loop(s->server, rt_task_index(self)), 5);
    return ERR_OK;
}

static void wake_listener(struct rt_task *self, void *arg)
{
    struct svc *s = arg;
    net_loop_wake(net_server_loop(s->server, rt_task_index(self))); /* not stop: it may be started anew */
}

static enum err open_oap(struct svc *s)
{
    struct net_listen listen[2];
    struct net_loop *loops[16];
    size_t n = 0, threads = (size_t)svc__http_threads(s);
    if (!s->def->oap || (!*s->oap_bind && !*s->oap_uds))
        return ERR_OK;
    if (*s->oap_bind)
        listen[n++] = (struct net_listen){.bind = s->oap_bind};
    if (*s->oap_uds)
        listen[n++] =
            (struct net_listen){.uds = s->oap_uds,
                                .allow_uids = svc_common(s)->uds_allow_uids.n ? s->allow_uids : NULL,
                                .allow_uids_count = svc_common(s)->uds_allow_uids.n};
    for (size_t i = 0; i < threads; i++)
        loops[i] = net_server_loop(s->server, (unsigned)i);
    struct net_oap_handler handler = {.app = s->def->oap_app, .fn = s->def->oap, .ctx = s->state};
    enum err e = net_oap_server_create(&(struct net_oap_server_config){.loops = loops,
                                                                       .loops_count = threads,
                                                                       .listen = listen,
                                                                       .listen_count = n,
                                                                       .handlers = &handler,
                                                                       .handlers_count = 1},
                                       &s->oap);
    if (e != ERR_OK)
        svc__set_error("%s: cannot listen for OAP on %s (%s)%s", s->def->name, s->oap_bind, err_title(e),
                       e == ERR_EXISTS ? "; it is in use, move all ports with --base-port" : "");
    return e;
}

enum err svc_start(struct svc *s)
{
    enum err e = svc__http_open(s);
    if (e == ERR_OK)
        e = open_oap(s);
    if (e == ERR_OK)
        e = svc_add_loop_task(s, s->def->listener_task, run_listener, s, wake_listener);
    if (e == ERR_OK && s->def->hooks.start)
        e = s->def->hooks.start(s, s->state);
    if (e != ERR_OK)
        return e;
    s->started = true;
    svc_health_tick(s); /* the first look; from then on it is its task that looks */
    e = rt_supervisor_start(s->supervisor);
    if (e != ERR_OK) {
        svc__set_error("%s: cannot start its tasks (%s)", s->def->name, err_title(e));
        return e;
    }
    obs_health_set(s->health, s->cause_started, true);
    svc__health_publish(s);
    obs_log(s->log, OBS_INFO, "start", OBS_STR("bind", s->bind), OBS_U64("port", (uint64_t)svc_port(s)),
            OBS_STR("data", s->data_dir), OBS_BOOL("amnesia", svc_amnesia(s)), OBS_END);
    return ERR_OK;
}

int svc_drain(struct svc *s)
{
    struct rt_drain_report report = {0};
    if (!s->started)
        return 0;
    s->started = false;
    int64_t within_ms = svc__drain_ms(s);
    atomic_store(&s->drain_by_ns, deadline_in_ms(within_ms).at_ns);
    atomic_store(&s->draining, true);
    obs_health_set(s->health, s->cause_draining, false);
    net_server_set_draining(s->server, true);
    if (s->oap)
        net_oap_server_set_draining(s->oap, true);
    obs_log(s->log, OBS_INFO, "drain_begin", OBS_END);
    rt_supervisor_drain_within(s->supervisor, within_ms);
    rt_supervisor_drain(s->supervisor);
    enum err e = rt_supervisor_join(s->supervisor, deadline_in_ms(within_ms + 10000), &report);
    obs_log(s->log, OBS_INFO, "drain_end", OBS_U64("aborted", report.aborted),
            OBS_U64("leaked", report.leaked), OBS_I64("ms", report.took_ms), OBS_ERR(e), OBS_END);
    if (s->def->hooks.drained)
        s->def->hooks.drained(s, s->state, &report);
    s->leaked = e != ERR_OK || report.leaked > 0;
    return e == ERR_OK && report.aborted == 0 && report.leaked == 0 && !report.fatal ? 0 : 1;
}

void svc_close(struct svc *s)
{
    if (!s)
        return;
    (void)svc_drain(s);
    /* A thread that could not be joined may still use everything below: leave it, the process is about to end. */
    if (s->leaked)
        return;
    if (s->server)
        net_server_settle(s->server);
    if (s->def->hooks.close && s->state)
        s->def->hooks.close(s, s->state);
    net_oap_server_destroy(s->oap);
    if (s->server)
        net_server_destroy(s->server);
    if (s->supervisor)
        rt_supervisor_destroy(s->supervisor);
    if (s->tls)
        net_tls_unref(s->tls);
    auth_close(s->auth);
    if (s->own_disk && s->disk != store_disk_real())
        store_disk_destroy(s->disk);
    net_http_session_close(s->collector);
    buf_fini(&s->export_body);
    obs_tracer_destroy(s->tracer);
    obs_health_destroy(s->health);
    obs_log_destroy(s->log);
    obs_metrics_destroy(s->metrics);
    for (size_t i = 0; i < s->snapshot_count; i++)
        conf_destroy(s->snapshots[i]);
    free(s->series);
    free(s);
}

static enum err add_task(struct svc *s, const char *name, enum err (*run)(struct rt_task *, void *),
                         void *arg, void (*wake)(struct rt_task *, void *))
{
    const struct rt_topology_task *t = rt_topology_find_task(&s->topology, name);
    if (!t)
        check_failed("a task that topology.def does not declare", __FILE__, __LINE__, name);
    bool listener = run == run_listener;
    enum err e = rt_supervisor_add(
        s->supervisor, &(struct rt_task_spec){.name = t->name,
                                              .count = listener ? svc__http_threads(s) : t->count,
                                              .run = run,
                                              .arg = arg,
                                              .on_fail = t->on_fail,
                                              .heartbeat_ms = t->heartbeat_ms,
                                              .drain_step = listener ? SVC_STEPS_MAX : t->drain_step,
                                              .wake = wake});
    if (e != ERR_OK)
        svc__set_error("%s: cannot add task %s (%s)", s->def->name, name, err_title(e));
    return e;
}

enum err svc_add_task(struct svc *s, const char *name, enum err (*run)(struct rt_task *self, void *arg),
                      void *arg)
{
    return add_task(s, name, run, arg, NULL);
}

enum err svc_add_loop_task(struct svc *s, const char *name,
                           enum err (*run)(struct rt_task *self, void *arg), void *arg,
                           void (*wake)(struct rt_task *self, void *arg))
{
    return add_task(s, name, run, arg, wake);
}

const struct svc_def *svc_def(const struct svc *s)
{
    return s->def;
}

void *svc_state(const struct svc *s)
{
    return s->state;
}

const char *svc_data_root(const struct svc *s)
{
    return svc_data_path(s->data);
}

const char *svc_data_dir(const struct svc *s)
{
    return s->data_dir;
}

struct svc_data *svc_data(const struct svc *s)
{
    return s->data;
}

bool svc_amnesia(const struct svc *s)
{
    return svc_data_amnesia(s->data);
}

bool svc_draining(const struct svc *s)
{
    return atomic_load(&s->draining);
}

unsigned svc_drain_left_s(const struct svc *s)
{
    int64_t ms = svc_draining(s) ? deadline_left_ms(deadline_at_ns(atomic_load(&s->drain_by_ns))) : 0;
    return ms > 0 ? (unsigned)((ms + 999) / 1000) + 1 : 1;
}

const struct clock *svc_clock(const struct svc *s)
{
    return s->clock;
}

struct store_disk *svc_disk(const struct svc *s)
{
    return s->disk;
}

struct obs_metrics *svc_metrics(const struct svc *s)
{
    return s->metrics;
}

struct obs_log *svc_log(const struct svc *s)
{
    return s->log;
}

struct obs_health *svc_health(const struct svc *s)
{
    return s->health;
}

struct obs_tracer *svc_tracer(const struct svc *s)
{
    return s->tracer;
}

struct auth *svc_auth(const struct svc *s)
{
    return s->auth;
}

struct net_server *svc_server(const struct svc *s)
{
    return s->server;
}

struct rt_supervisor *svc_supervisor(const struct svc *s)
{
    return s->supervisor;
}

const struct rt_topology *svc_topology(const struct svc *s)
{
    return &s->topology;
}

void *svc_wiring(const struct svc *s)
{
    return s->wiring;
}

int svc_base_port(const struct svc *s)
{
    return s->base_port ? s->base_port : 7400;
}

void svc_place(const struct svc *s, const char *node, const char *advertise, char out_node[65],
               char out_url[257])
{
    char host[48] = "";
    const char *port = strrchr(s->bind, ':');
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == 0)
        snprintf(host, sizeof host, "%s", s->def->name);
    if (node[0] != 0)
        snprintf(out_node, 65, "%s", node);
    else
        snprintf(out_node, 65, "%s%.12s", host, port == NULL ? "" : port);
    if (advertise[0] != 0)
        snprintf(out_url, 257, "%s", advertise);
    else
        snprintf(out_url, 257, "%s://%.200s", svc_common(s)->tls_cert[0] ? "https" : "http", s->bind);
}

const char *svc_oap_bind(const struct svc *s)
{
    return s->def->oap ? s->oap_bind : "";
}

int svc_port(const struct svc *s)
{
    return s->server ? net_server_port(s->server, 0) : 0;
}

int svc_oap_port(const struct svc *s)
{
    return s->oap && *s->oap_bind ? net_oap_server_port(s->oap, 0) : 0;
}
