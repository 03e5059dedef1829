/* What the files of svc/ share. */
#ifndef RON_SVC_INTERNAL_H
#define RON_SVC_INTERNAL_H

#include <limits.h>
#include <stdatomic.h>

#include "net/oap_server.h"
#include "obs/span.h"
#include "svc/config.h"
#include "svc/svc.h"

enum svc_metric {
#define OBS_DEF(id) SVC_M_##id,
#include "obs/metrics_ids.h"
#include "svc/metrics.def"
#include "obs/metrics_end.h"
    SVC_M_COUNT
};

enum { SVC_QUEUES_MAX = 256, SVC_SNAPSHOTS_MAX = 256, SVC_STEPS_MAX = 31, SVC_TASKS_MAX = 128 };

/* One declared queue with what its collector needs. */
struct svc_queue {
    struct rt_chan *chan;   /* or */
    struct rt_bcast *bcast; /* called `name` */
    const char *name;
    svc_queue_stats *counted_by; /* NULL: the channel itself */
    void *counted_arg;
    struct obs_gauge *depth, *capacity, *high_water;
    struct obs_counter *rejected, *dropped;
    uint64_t rejected_seen, dropped_seen;
};

enum { SVC_STATUSES = 20 }; /* told apart by http_requests_total */

/* The series of one route that were used before. Handles live as long as the registry. */
struct svc_series {
    _Atomic(struct obs_counter *) requests[SVC_STATUSES];
    _Atomic(struct obs_hist *) latency;
    struct obs_gauge *inflight; /* from the start; shared by the methods of a path */
};

struct svc_step {
    struct svc *svc;
    unsigned step;
};

/* What of a task's counters has been told to the metrics. */
struct svc_task_seen {
    uint64_t spawned, canceled, aborted, leaked, restarts;
};

struct svc {
    const struct svc_def *def;
    struct svc_data *data;
    void *wiring;
    void *state;
    char data_dir[PATH_MAX];
    char bind[256], oap_bind[256], uds[PATH_MAX], oap_uds[PATH_MAX]; /* resolved; "" = none */
    const struct clock *clock;
    int base_port;
    bool quiet;

    atomic_bool
        reloading; /* by one at a time: exchanged (acquire) by who begins, cleared (release) at its end */
    const char *config_file;
    const char *const *flags;
    size_t flag_count;
    _Atomic(struct conf *) conf;               /* in force: release in adopt, acquire in svc_config */
    struct conf *snapshots[SVC_SNAPSHOTS_MAX]; /* all of them, destroyed by svc_close */
    size_t snapshot_count;
    uid_t allow_uids[64];

    struct store_disk *disk;
    bool own_disk;
    struct obs_metrics *metrics;
    struct obs_family *families[SVC_M_COUNT];
    struct obs_log *log;
    struct obs_health *health;
    struct obs_tracer *tracer;
    struct net_http_session
        *collector;         /* the exporting task's; NULL until there was something to send to */
    struct buf export_body; /* its last request: as large as the next one will be */
    struct auth *auth;
    struct net_tls *tls;
    struct net_server *server;
    struct net_oap_server *oap;
    struct rt_topology topology;
    struct rt_supervisor *supervisor;
    struct net_routes routes[2];
    struct svc_series *series; /* of the routes, in their order */

    struct svc_queue queues[SVC_QUEUES_MAX];
    size_t queue_count;
    size_t cause_draining, cause_tasks, cause_started;
    struct svc_step steps[SVC_STEPS_MAX];
    struct svc_task_seen tasks_seen[SVC_TASKS_MAX];
    _Atomic bool draining;
    _Atomic int64_t drain_by_ns;     /* when what is left is aborted */
    _Atomic bool may_reopen, reopen; /* the host can; the service asked */
    _Atomic bool was_ready;
    bool started, leaked;
    uint64_t log_lost_seen, tls_failures_seen, spans_lost_seen, caps_expired_seen, caps_evicted_seen;
};

void svc__set_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

NODISCARD enum err svc__config_open(struct svc *s);
void svc__config_print(struct svc *s, struct buf *out);
struct net_limits svc__limits(const struct svc *s);
void svc__topology_json(struct svc *s, struct buf *out); /* declared, with live depths and counters */
void svc__tasks_json(struct svc *s, struct buf *out);
int64_t svc__drain_ms(const struct svc *s); /* how long a drain may take, at least 1 */
NODISCARD enum err svc__http_open(struct svc *s);
unsigned svc__http_threads(const struct svc *s);
/* Why data cannot be opened and what to do about it, as the rest of a sentence for a person. */
const char *svc__advice(enum err e);
void svc__health_publish(struct svc *s); /* gauge and log line, from any thread */
void svc__collect(void *ctx);            /* metrics collector of the frame */

extern const struct net_route svc__routes[];
size_t svc__route_count(void);

#endif
