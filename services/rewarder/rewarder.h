/*
 * The service's state and the items that travel through its queues.
 *
 *   http --work_req--> scheduler --work--> worker --results--> artifact
 *                                            '----intents----> emitter --notes--> artifact
 *
 * Ownership   An item belongs to whoever took it from its queue; the last one answers the request and frees it. Runs are
 *             referred to by counted references.
 * Threads     See run.h for what is shared. Everything below that is not atomic or a queue is set before the tasks start.
 */
#ifndef RON_REWARDER_REWARDER_H
#define RON_REWARDER_REWARDER_H

#include "ledger_client/ledger_client.h"
#include "net/http_server.h"
#include "obs/log.h"
#include "obs/metrics.h"
#include "rt/breaker.h"
#include "rt/chan.h"
#include "services/rewarder/files.h"
#include "services/rewarder/keys.h"
#include "services/rewarder/permits.h"
#include "services/rewarder/quarantines.h"
#include "services/rewarder/rates.h"
#include "services/rewarder/receipt.h"
#include "services/rewarder/run.h"
#include "services/rewarder/settlement.h"
#include "services/rewarder/view.h"
#include "svc/feed.h"
#include "svc/svc.h"

struct rewarder_config {
#define CONF CONF_AS_MEMBER
#include "services/rewarder/config.def"
#undef CONF
};
SVC_CONFIG_IS_PREFIX(struct rewarder_config);

enum rewarder_metric {
#define OBS_DEF(id) REWARDER_M_##id,
#include "obs/metrics_ids.h"
#include "services/rewarder/metrics.def"
#include "obs/metrics_end.h"
    REWARDER_M_COUNT
};

enum {
    REWARDER_WORKERS_MAX = 64,
    REWARDER_SHADOWS_MAX = 16,
    REWARDER_SEND_MS = 30000,
    REWARDER_VERDICT_MS = 5000,
    REWARDER_LANE_STILL_MS = 5000
};
/* Dry runs, shadow runs and failures are remembered for so long. */
#define REWARDER_REMEMBER_MS INT64_C(86400000)

struct rewarder_shadow;

struct rewarder {
    struct svc *svc;
    struct obs_log *log;
    struct obs_family *metrics[REWARDER_M_COUNT];
    struct rewarder_files files;
    struct store_disk *memory; /* amnesia: what files is on; NULL otherwise */
    struct rewarder_registry registry;
    struct rewarder_policies policies;
    struct rt_bell artifact_bell; /* results or notes have something for the artifact task */
    struct rt_chan *work_req, *work, *results, *intents, *notes;
    struct rewarder_permits io_permits;
    struct svc_feed *events; /* what becomes of runs, for /admin/events */
    struct rewarder_rates rates;
    struct rewarder_quarantines quarantines;
    _Atomic int64_t send_ms; /* how long workers and emitter wait for room; relaxed; tests shorten it */
    _Atomic int64_t lane_still_ms; /* how long nobody may have written our lanes; as above */
    struct ledger_client *ledger;
    bool own_ledger; /* opened by us: its I/O runs in our task ledger_io */
    struct rt_breaker ledger_breaker, accounting_breaker;
    struct rewarder_settler *settler; /* the emitter's */
    /* each worker's own, for balances and look-ups */
    struct rewarder_settler *readers[REWARDER_WORKERS_MAX];
    struct rewarder_keys keys;
    atomic_ullong memory_used; /* charged to computations; relaxed */
    atomic_ullong spool_used;  /* bytes of uploads in flight; relaxed */
    atomic_ullong spool_next;
    atomic_bool seals_off; /* a flush failed: nothing is sealed any more in this process */
    atomic_bool disk_full;
    struct {
        atomic_ullong written, refused, canceled; /* results and notes; requests; runs. Relaxed */
        uint64_t dropped_before;                  /* dropped_results_total when it began */
    } drain;                                      /* what became of things since the drain began */
    size_t cause_store, cause_ledger, cause_accounting, cause_policy, cause_work_queue;
    struct {
        bool work_queue_full;
        int breakers[2];                                   /* as last seen: ledger, accounting */
    } seen;                                                /* health task only */
    struct rewarder_shadow *shadows[REWARDER_SHADOWS_MAX]; /* run_registry; newest last */
    size_t shadow_n;
};

static inline const struct rewarder_config *rewarder_config(const struct rewarder *r)
{
    return svc_config(r->svc);
}

static inline struct deadline rewarder_send_deadline(struct rewarder *r)
{
    return deadline_in_ms(atomic_load_explicit(&r->send_ms, memory_order_relaxed));
}

/* A way to ask the ledger that counts its retries and timeouts; NULL: no memory. */
struct rewarder_settler *rewarder_open_settler(struct rewarder *r, unsigned lane, unsigned lanes,
                                               uint64_t seed);

unsigned rewarder_workers(const struct rewarder_config *cfg);

/* ---- items ---- */

enum rewarder_kind {
    REWARDER_COMPUTE, /* a request to compute an epoch; in `work`: the lead */
    REWARDER_HELP,    /* a ticket to help a lead */
    REWARDER_INGEST,  /* a spooled upload to parse and store */
    REWARDER_EMIT,    /* emit or re-emit a sealed run */
    REWARDER_SHADOW,
    REWARDER_READ,  /* a GET that needs its run opened first */
    REWARDER_ADMIN, /* quarantine or release */
};

struct rewarder_job; /* tasks/job.h */

struct rewarder_item {
    uint32_t magic;
    enum rewarder_kind kind;
    struct net_req *rq; /* NULL: nobody waits (any more) */
    struct rewarder_run *run;
    char tenant[REWARDER_NAME_MAX + 1], epoch[REWARDER_NAME_MAX + 1];
    struct deadline by;
    uint64_t charged;  /* memory of compute_memory held by this item */
    unsigned attempts; /* how many workers have failed with it */
    /* compute, shadow */
    struct sha256 cid;
    struct rewarder_policy_ref *policy, *candidate;
    bool dry;
    /* help */
    struct rewarder_job *job;
    /* ingest */
    char spool[STORE_PATH_MAX];
    uint64_t bytes;
    bool ndjson, has_expected;
    struct sha256 expected;
    /* emit */
    bool recheck;
    /* read: runs again once the run is open */
    void (*again)(struct net_req *rq, void *ctx);
    /* admin */
    bool release, discard;
    char reason[REWARDER_TEXT_CHARS], actor[64];
};

struct rewarder_item *rewarder_item_create(enum rewarder_kind kind,
                                           struct net_req *rq); /* NULL: no memory */
void rewarder_item_destroy(struct rewarder *r,
                           struct rewarder_item *it); /* gives memory and references back */

/* The same for one that nobody worked on: what was spooled goes, who waits for it is told, what was halted goes on. */
void rewarder_item_abandon(struct rewarder *r, struct rewarder_item *it) RT_BLOCKS;

/* What a worker hands to the artifact writer. */
enum rewarder_outcome_kind {
    REWARDER_OUT_RUN,
    REWARDER_OUT_SNAPSHOT,
    REWARDER_OUT_BREACH,
    REWARDER_OUT_NOTE,
    REWARDER_OUT_UNANNOUNCED, /* the emitter could not be told of the run: quarantine it once it is sealed */
    REWARDER_OUT_SHADOW,
};

struct rewarder_outcome {
    uint32_t magic;
    enum rewarder_outcome_kind kind;
    struct rewarder_run *run;
    struct net_req *rq; /* snapshot, admin notes: answered when durable */
    int status;         /* notes: with this */
    /* run */
    struct buf manifest;
    uint8_t *payouts;
    size_t payouts_n;
    uint8_t *tree;
    size_t tree_n;
    struct buf commitment;
    struct rewarder_result result;
    /* snapshot */
    struct rewarder_input input;
    char spool[STORE_PATH_MAX];
    uint8_t *rows;
    size_t rows_n;
    /* note: one line of registry.log, and what to do when it is durable */
    struct buf line;
    struct buf settlement;            /* settled: settlement.json, written and signed first */
    struct rewarder_receipt *receipt; /* the writer's reference; NULL: nobody waits */
    bool discard;
    bool no_room;                   /* the writer: amnesia's memory is full */
    struct rewarder_shadow *shadow; /* a reference */
};
struct rewarder_outcome *rewarder_outcome_create(enum rewarder_outcome_kind kind, struct rewarder_run *run);
void rewarder_outcome_destroy(struct rewarder *r, struct rewarder_outcome *o);
/* The bytes of payouts.bin and tree.bin, which are on the disk now. */
void rewarder_outcome_forget_files(struct rewarder_outcome *o);

/* ---- shared by tasks and api ---- */

/* The body of GET /rewarder/epochs/{id}. */
void rewarder_write_run(struct rewarder *r, struct rewarder_run *run, struct buf *b);
/* Answers with the run's body; 200 or 202. */
void rewarder_reply_run(struct rewarder *r, struct net_req *rq, int status, struct rewarder_run *run);
/* The 409 of an epoch that belongs to another run, or is quarantined. */
void rewarder_reply_conflict(struct rewarder *r, struct net_req *rq, struct rewarder_run *holder);
/* The 409 of a run that has no result yet. */
void rewarder_reply_not_sealed(struct net_req *rq, enum rewarder_state state);
/* Ends a run that did not make it; details is a JSON object or NULL. */
void rewarder_run_fail(struct rewarder *r, struct rewarder_run *run, enum err why, const char *detail,
                       const char *details);
void rewarder_write_seal(const char *corr_id, const struct rewarder_run_info *i, const char *kid,
                         struct buf *b); /* seal.json */
void rewarder_write_input(const struct rewarder_input *in, struct buf *b);
/* To who listens to /admin/events. detail may be NULL. */
void rewarder_tell_run(struct rewarder *r, const char *event, const struct rewarder_run *run,
                       const char *detail);
/* Into the log and, above debug, to who listens. */
void rewarder_log_run(struct rewarder *r, enum obs_level level, const char *event,
                      const struct rewarder_run *run, const char *detail);
void rewarder_count_quarantine(struct rewarder *r, const struct rewarder_run *run);
int64_t rewarder_now_ms(const struct rewarder *r);

/* Lines of registry.log. */
void rewarder_note_sealed(const struct rewarder_run *run, const struct rewarder_run_info *info,
                          struct buf *b);
struct rewarder_quarantine {
    uint64_t n;       /* of the run */
    wide_u128 placed; /* what the ledger holds of it */
    const char *kind, *reason;
    const char *refused; /* JSON array of what the ledger refused; NULL: nothing */
    int64_t now_ms;
};
void rewarder_note_quarantined(const struct rewarder_run *run, const struct rewarder_quarantine *q,
                               struct buf *b);
void rewarder_note_simple(const struct rewarder_run *run, uint64_t n, const char *op, const char *reason,
                          struct buf *b);
void rewarder_note_swept(const struct rewarder_run *run, uint64_t n, struct buf *b);
void rewarder_note_settled(const struct rewarder_run *run, const struct rewarder_run_info *info,
                           struct buf *b);
/* After lines were written: folds registry.log when half of it is dead. An error: nothing can be appended any more. */
NODISCARD enum err rewarder_tidy_log(struct rewarder *r) RT_BLOCKS;
/* registry.log, run directories, shadow runs, inputs: r->files and r->registry are all it needs. */
NODISCARD enum err rewarder_recover(struct rewarder *r) RT_BLOCKS;
/* A sealed run as its files say it is; NULL: no memory. */
struct rewarder_run *rewarder_run_from_view(const char *tenant, const char *epoch, bool dry,
                                            const struct rewarder_view *v);

/* ---- shadow runs: computed in memory, then kept as shadow/<id>/{shadow.json,diff.csv,meta.json} ---- */
enum rewarder_shadow_state {
    REWARDER_SHADOW_QUEUED,
    REWARDER_SHADOW_COMPUTING,
    REWARDER_SHADOW_DONE, /* its files are durable: answers come from there */
    REWARDER_SHADOW_FAILED,
};
struct rewarder_shadow {
    atomic_uint refs;
    struct sha256 id, digest;
    char tenant[REWARDER_NAME_MAX + 1];
    struct rewarder_policy_ref *base, *candidate; /* NULL for one known from disk */
    int64_t made_ms;
    atomic_int state; /* enum rewarder_shadow_state; release by who writes, acquire by readers */
    enum err failure;
    struct rewarder_result base_result, candidate_result;
    uint64_t gained, lost, same, entered, left;
    wide_u128 moved;
    struct buf top, csv; /* JSON array; diff.csv */
};
struct rewarder_shadow *rewarder_shadow_find(struct rewarder *r,
                                             const struct sha256 *id); /* a reference, or NULL */
/* Adds it (taking a reference), dropping the oldest beyond REWARDER_SHADOWS_MAX. */
void rewarder_shadow_add(struct rewarder *r, struct rewarder_shadow *s);
void rewarder_shadow_unref(struct rewarder_shadow *s);
/* The body of GET /rewarder/shadow/{id}; with `done` what it will be when it is stored. */
void rewarder_shadow_write(struct rewarder_shadow *s, bool done, struct buf *b);
/* Out of the list when made before; a reference, or NULL when there is none. */
struct rewarder_shadow *rewarder_shadow_take_old(struct rewarder *r, int64_t made_before_ms);
NODISCARD enum err rewarder_shadows_recover(struct rewarder *r) RT_BLOCKS;

/* ---- tasks ---- */
NODISCARD enum err rewarder_scheduler_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err rewarder_worker_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err rewarder_artifact_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err rewarder_emitter_run(struct rt_task *self, void *arg) RT_BLOCKS;
/* One pass over everything that is kept for a time only (the artifact task's, every minute). */
void rewarder_sweep(struct rewarder *r, int64_t now_ms) RT_BLOCKS;
NODISCARD enum err rewarder_health_run(struct rt_task *self, void *arg) RT_BLOCKS;

/* Lets the oldest settled runs and their inputs go until there is room for `bytes` and some to spare, or none is left. */
void rewarder_sweep_for_room(struct rewarder *r, uint64_t bytes) RT_BLOCKS;

/* ---- room.c ---- */
/* So many bytes more may be written; on a real disk always. */
bool rewarder_has_room(struct rewarder *r, uint64_t bytes) RT_BLOCKS;
/* Enough is free for `disk_full` to be over. */
bool rewarder_is_roomy(struct rewarder *r) RT_BLOCKS;
/* Whoever writes says what came of it: a full disk is known to readiness from then on, until there is room. */
void rewarder_met(struct rewarder *r, enum err e);
/* Amnesia's memory is full: 429 until something was settled. */
bool rewarder_refuses_more(const struct rewarder *r);

/* ---- api ---- */
extern const struct net_route rewarder_routes[];

#define REWARDER_COUNT(r, id, ...)                                                                         \
    obs_counter_inc(OBS_COUNTER_OF((r)->metrics[REWARDER_M_##id], __VA_ARGS__))

#endif
