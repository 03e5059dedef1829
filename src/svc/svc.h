/*
 * The frame all services share: boot, configure, supervise, serve, reload, drain, exit code.
 *
 * A service is a `struct svc_def`: tables (configuration, topology, metrics, routes) and a few hooks. The frame
 * turns the tables into a running instance and calls the hooks in this order, all on the thread that opened it:
 *
 *     svc_open    load configuration, open data directory, auth, metrics, log, health
 *                 hooks.open      allocate state, create queues, recover from disk; nothing listens yet
 *     svc_start   hooks.start     add the service's tasks to the supervisor (svc_add_task)
 *                 listeners bind and serve; readiness follows hooks.readiness
 *     svc_drain   readiness falls, intake stops, hooks.drain_step(n) for each declared step n (close the queues
 *                 that feed the tasks of step n), tasks of step n are joined, next step; then the event loops flush
 *                 what was answered and end, whatever step their row names; deadline; abort; join
 *     svc_close   hooks.close     free everything
 *
 * Ownership   The instance owns what svc_*() returns; the state pointer belongs to the service.
 * Threads     open, start, drain and close from one thread. Accessors from any thread once open returned.
 * Memory      Configuration snapshots live until svc_close, so a borrowed pointer never dangles.
 */
#ifndef RON_SVC_SVC_H
#define RON_SVC_SVC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "auth/cap.h"
#include "base/clock.h"
#include "base/conf.h"
#include "base/err.h"
#include "base/json_write.h"
#include "net/http_server.h"
#include "net/oap_server.h"
#include "obs/health.h"
#include "obs/log.h"
#include "obs/metrics.h"
#include "rt/bcast.h"
#include "rt/bell.h"
#include "rt/chan.h"
#include "rt/supervisor.h"
#include "rt/topology.h"
#include "store/disk.h"
#include "svc/config.h"
#include "svc/data.h"

struct svc;
struct obs_tracer;

/* For a want that speaks of no account, payee, asset, amount or topic. */
#define SVC_LACKS_ALL                                                                                      \
    (AUTH_BIT(AUTH_CV_ACCOUNT) | AUTH_BIT(AUTH_CV_TO) | AUTH_BIT(AUTH_CV_ASSET) |                          \
     AUTH_BIT(AUTH_CV_MAX_AMOUNT) | AUTH_BIT(AUTH_CV_TOPIC))

/* What the command line, `ron up` or a test decides; zero is a sensible default for every member but data. */
struct svc_options {
    struct svc_data *data;    /* required: the opened data directory, shared by all services of a process */
    const char *config_file;  /* NULL: embedded defaults */
    int base_port;            /* 0: 7400 */
    const char *const *flags; /* "section.key=value", highest precedence */
    size_t flag_count;
    const struct clock *clock; /* NULL: clock_real() */
    struct store_disk *disk;   /* NULL: real, or memory with --amnesia; a simulation's stays the caller's */
    int log_fd;                /* 0: stderr */
    bool quiet;                /* log warnings and worse only */
    int ready_fd;              /* svc_run writes a byte here when it has started; 0: nowhere */
    void *wiring;              /* handed to hooks.open: how `ron up` passes the in-process ledger client */
};

enum { SVC_REQUEST_FIELDS = 4 };

struct svc_hooks {
    enum err (*open)(struct svc *s, void **out_state);
    enum err (*start)(struct svc *s, void *state);
    /* Called on the supervisor's thread before the tasks of `step` are asked to stop. */
    void (*drain_step)(struct svc *s, void *state, int step);
    /* A client took too long to send ("read") or to take ("write") and was cut; on a loop's thread. May be NULL. */
    void (*client_late)(struct svc *s, void *state, const char *op);
    /* How long the step may take; 0: as long as the drain as a whole. Asked when it begins, before drain_step. May be NULL. */
    int64_t (*drain_step_ms)(struct svc *s, void *state, int step);
    /* Every 100 ms (svc_health_task): set causes on svc_health(s). */
    void (*readiness)(struct svc *s, void *state);
    /* Answers GET /metrics, now or later (svc_reply_metrics), on whichever thread; NULL: the frame does, on the listener. */
    void (*scrape)(struct svc *s, void *state, struct net_req *rq);
    /* More members for the body of /readyz, each with a leading comma. */
    void (*readiness_members)(void *state, struct buf *out);
    /* Answers a request that came while draining; NULL: 503 draining. */
    void (*refuse_draining)(struct svc *s, struct net_req *rq);
    /* Before the server refuses a request by itself: may add headers and details (see net_hooks.refusing). On a loop. */
    void (*refusing)(struct svc *s, void *state, struct net_req *rq, enum net_reject why,
                     struct net_problem *p);
    /* What the service adds to the log line of a request: at most SVC_REQUEST_FIELDS, returns how many. Texts live in the
     * request's arena or longer. Asked only for lines that are written; on a loop's thread. May be NULL. */
    size_t (*request_fields)(void *state, struct net_req *rq, struct obs_field *out);
    /* A request was answered with a problem, by whoever; on a loop's thread. May be NULL. */
    void (*refused)(struct svc *s, void *state, const struct net_done *d);
    /* What the service's own keys (its whole struct) add to the limits of the frame's; at the start and at each reload. */
    void (*limits)(const void *config, struct net_limits *limits);
    /* The new snapshot is in force (svc_config). */
    void (*reloaded)(struct svc *s, void *state);
    /* A task was restarted too often: readiness is already false. */
    void (*escalated)(struct svc *s, void *state, const char *task);
    /* Every task has ended, or was given up: what the service has to say about it. Before close, and always. */
    void (*drained)(struct svc *s, void *state, const struct rt_drain_report *report);
    void (*close)(struct svc *s, void *state);
};

struct svc_def {
    const char *name;  /* "ledger": configuration section, data folder, socket names, `service` label */
    const char *title; /* "ron-ledger": the audience its capabilities name */
    const char *summary;
    size_t spans_max;     /* that may wait for the exporter, which comes once a second; 0: 1024 */
    int info_from_status; /* requests answered so or above are logged at info; 0: 500 */
    int port_offset;      /* API port = base_port + port_offset */
    int oap_port_offset;  /* 0: no OAP listener */
    const struct conf_table *config; /* its config.def begins with svc/config.def */
    void (*topology)(const void *config, struct rt_topology *out); /* fills from topology.def */
    const char
        *listener_task; /* the TASK() row the frame runs event loops as: "ingress", "http", "listener" */
    const struct obs_metric_def *metrics;
    size_t metric_count;
    const struct net_route *routes; /* ends with a NULL method; handlers get the state as ctx */
    const char *headers;            /* of every answer, as net_server_config.headers */
    unsigned understands;           /* AUTH_BIT()s of caveats it can enforce beyond AUTH_BASIC */
    const char *const
        *explicit_ops; /* never implied by a token without an op caveat; NULL-terminated or NULL */
    void (*oap)(struct net_oap_req *rq, void *state); /* NULL: no OAP */
    uint16_t oap_app;
    struct svc_hooks hooks;
};

/* Would this configuration be taken? Touches nothing, so that a slip in it is said before anything is made. `data` is not used. */
NODISCARD enum err svc_check_config(const struct svc_def *def, const struct svc_options *opt);
/* The part of it that a table of keys cannot say, for who has loaded one. */
NODISCARD enum err svc_check_values(const struct svc_def *def, const struct conf *conf);
NODISCARD enum err svc_open(const struct svc_def *def, const struct svc_options *opt, struct svc **out_svc);
NODISCARD enum err svc_start(struct svc *s);
/* 0 when everything drained in time, 1 when something was aborted. */
int svc_drain(struct svc *s) RT_BLOCKS;
void svc_close(struct svc *s) RT_BLOCKS;

/*
 * Reads file, environment, keys and certificates again; all or nothing. *out_diff gets what changed, secrets as ***.
 * ERR_BAD_REQUEST, ERR_CONFLICT (a key that needs a restart), ERR_LOCKED (another thread is at it, and may have read what was there
 * before: ask again); svc_last_error() has the sentence.
 */
NODISCARD enum err svc_reload(struct svc *s, struct buf *out_diff);

/* One service as a process: open, start, wait for a signal, drain, close. Returns the exit code. */
int svc_run(const struct svc_def *def, const struct svc_options *opt) RT_BLOCKS;

/*
 * A service that can go on only from what is on the disk asks to be drained, closed and opened anew: any thread, once is enough.
 * svc_run() and `ron up` (which closes and opens those that call it, too) do so, with a growing pause before each attempt, and give
 * up (exit code 1) when a minute of them did not help. False: this host does not listen.
 */
bool svc_ask_reopen(struct svc *s);

/* The sentence that says why the last svc_open or svc_start failed, for a person. */
const char *svc_last_error(void);
void svc_say_error(const char *sentence); /* for a hook that knows better why it failed */

const struct svc_def *svc_def(const struct svc *s);
void *svc_state(const struct svc *s);
const void *svc_config(const struct svc *s); /* the service's own struct; the snapshot in force now */
const struct svc_config *svc_common(const struct svc *s);
const char *svc_data_root(const struct svc *s); /* ron-data */
const char *svc_data_dir(const struct svc *s);  /* ron-data/<name>; made by the service through svc_disk */
bool svc_amnesia(const struct svc *s);
bool svc_draining(const struct svc *s);
/* Whole seconds until a drain is over, one more than that, at least one: what Retry-After says meanwhile. */
unsigned svc_drain_left_s(const struct svc *s);
const struct clock *svc_clock(const struct svc *s);
struct store_disk *svc_disk(const struct svc *s); /* real, or memory with --amnesia */
struct obs_metrics *svc_metrics(const struct svc *s);
struct obs_log *svc_log(const struct svc *s);
struct obs_health *svc_health(const struct svc *s);
struct obs_tracer *svc_tracer(const struct svc *s);
struct auth *svc_auth(const struct svc *s);
struct net_server *svc_server(const struct svc *s);
struct rt_supervisor *svc_supervisor(const struct svc *s);
const struct rt_topology *svc_topology(const struct svc *s);
void *svc_wiring(const struct svc *s);
struct svc_data *svc_data(const struct svc *s);
int svc_base_port(const struct svc *s); /* where the default ports of all services begin */
/* Who this instance is among several: the host's name and the port, and where it is reached. As configured, when that is not "". */
void svc_place(const struct svc *s, const char *node, const char *advertise, char out_node[65],
               char out_url[257]);
const char *svc_oap_bind(const struct svc *s); /* "" when there is no OAP over TCP */
int svc_port(const struct svc *s);             /* the API port it really listens on */
int svc_oap_port(const struct svc *s);         /* 0: none */

/* Adds the task declared as TASK(name, ...) in topology.def; `arg` is shared by all its threads. In hooks.start. */
NODISCARD enum err svc_add_task(struct svc *s, const char *name,
                                enum err (*run)(struct rt_task *self, void *arg), void *arg);
/* The same for a task that sleeps in an event loop of its own: wake makes it look at rt_task_stopping(). */
NODISCARD enum err svc_add_loop_task(struct svc *s, const char *name,
                                     enum err (*run)(struct rt_task *self, void *arg), void *arg,
                                     void (*wake)(struct rt_task *self, void *arg));

/*
 * Creates the channel declared as QUEUE(name, ...) with the capacity and policy of that row. queue_depth{…="label"} follows it
 * if the service's metrics.def has a queue_depth with one label; so do queue_capacity, queue_high_water and
 * queue_rejected_total, and queue_dropped_total where declared. The service destroys it in hooks.close. In hooks.open.
 */
NODISCARD enum err svc_add_queue(struct svc *s, const char *name, const char *label,
                                 struct rt_chan **out_chan);
/* The same for one of several queues that a task sleeps on: `bell` rings when something comes, and at the end. */
NODISCARD enum err svc_add_queue_at(struct svc *s, const char *name, const char *label,
                                    struct rt_bell *bell, struct rt_chan **out_chan);
/* A queue of permits is as deep as many are taken, of as many as there are: `stats` says so, on any thread, in the place of the
 * channel's own numbers. In hooks.open. */
typedef struct rt_chan_stats svc_queue_stats(void *arg);
void svc_count_queue_by(struct svc *s, const struct rt_chan *chan, svc_queue_stats *stats, void *arg);
/* For a declared queue that the service makes itself: queue_capacity{queue="label"} is what its row says. In hooks.open. */
void svc_show_queue(struct svc *s, const char *name, const char *label);
/*
 * The same queues in /admin/topology: what they hold and what passed, each of several under one name. They are not destroyed
 * before the service is closed. In hooks.open.
 */
NODISCARD enum err svc_follow_queue(struct svc *s, struct rt_chan *chan);
NODISCARD enum err svc_follow_bcast(struct svc *s, const char *name, struct rt_bcast *bcast);

/* Task bodies a service may run under the name its topology gives them; arg is the struct svc. */
NODISCARD enum err svc_health_task(struct rt_task *self, void *arg) RT_BLOCKS; /* readiness every 100 ms */
NODISCARD enum err svc_metrics_task(struct rt_task *self,
                                    void *arg) RT_BLOCKS; /* trace export every second */
void svc_export_traces(
    struct svc *s) RT_BLOCKS; /* what it does each time, for a service that has its own ticker */
NODISCARD enum err svc_caps_task(struct rt_task *self, void *arg) RT_BLOCKS; /* capability cache upkeep */
/* The page of all numbers as the answer. Any thread. */
void svc_reply_metrics(struct svc *s, struct net_req *rq);
void svc_health_tick(
    struct svc *s); /* what svc_health_task does each time, for a service that has its own ticker */

/*
 * Who is calling, and may they? On ERR_OK *out_cap is verified and covers `want`. Otherwise the problem has been
 * sent and the handler only returns. `want->aud`, peer and time are filled in here.
 */
NODISCARD enum err svc_authorize(struct svc *s, struct net_req *rq, struct auth_want *want,
                                 struct auth_cap **out_cap);
/* The same for what an operator does: `op in admin`, logged with the key's id. False: answered. The frame has seen to it that
 * a call of /admin/... comes from this machine. */
NODISCARD bool svc_allow_admin(struct svc *s, struct net_req *rq);
/* The same for a token from elsewhere (OAP): nothing is sent. *out_why may be NULL. A rate that was judged is not charged again. */
NODISCARD enum err svc_authorize_token(struct svc *s, struct str token, struct auth_want *want,
                                       struct auth_cap **out_cap, struct auth_deny *out_why);
/*
 * Whether the token that an answer of some length began with is still good, and whose it is then. Its rate counts calls, and this is
 * none. want has the op and what else it is about.
 */
NODISCARD enum err svc_authorize_again(struct svc *s, const struct net_peer *peer, struct str token,
                                       struct auth_want *want, struct auth_cap **out_cap);

/* The same for whoever listens for as long as he likes: judged again every auth.cache_ttl. The bytes are the request's. */
struct svc_hearing {
    const struct net_peer *peer;
    struct str token; /* p NULL: nobody had to say who he is */
    int64_t judge_at_ns;
};
struct svc_hearing svc_hearing_begin(struct svc *s, const struct net_peer *peer, struct str token);
bool svc_hearing_goes_on(struct svc *s, struct svc_hearing *h, const char *op); /* false: it is over */
struct str svc_bearer(const struct net_req *rq);                                /* p NULL: none */
/* A line at level debug for a handler that judges capabilities itself: which token (its name in logs) was refused, and why. */
void svc_log_refused(struct svc *s, struct net_req *rq, enum err e, const char *reason);
/* 401; says when the capability is out of its time (`expired`, `not_yet`), and of no other what is wrong with it. */
void svc_reply_unauthenticated(struct net_req *rq, const char *reason);

#endif
