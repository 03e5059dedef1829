/*
 * The mailbox service: what its tasks and its API share.
 *
 * A request becomes a call and one job per shard it touches (job.h); a shard with its journal and queues is a lane (lane.h); the
 * last job that is done posts the call back to its event loop, which writes the answer.
 *
 * Ownership   A lane belongs to its worker's thread; others read the atomics and nothing else.
 * Threads     struct mailbox is written by open and then only through atomics and the declared locks.
 */
#ifndef RON_MAILBOX_MAILBOX_H
#define RON_MAILBOX_MAILBOX_H

#include "rt/bcast.h"
#include "rt/bell.h"
#include "services/mailbox/lane.h"
#include "services/mailbox/quota.h"
#include "services/mailbox/routing.h"
#include "svc/svc.h"

struct mailbox_config {
#define CONF CONF_AS_MEMBER
#include "services/mailbox/config.def"
#undef CONF
};
SVC_CONFIG_IS_PREFIX(struct mailbox_config);

enum mailbox_metric {
#define OBS_DEF(id) MAILBOX_M_##id,
#include "obs/metrics_ids.h"
#include "services/mailbox/metrics.def"
#include "obs/metrics_end.h"
    MAILBOX_M_COUNT
};

#define MAILBOX_REQUEUE_CAPACITY(capacity)                                                                 \
    ((capacity) / 4 < 1 ? 1 : (capacity) / 4 > 512 ? 512 : (capacity) / 4)

enum { MAILBOX_JOBS_KEPT = 256 /* reprocess jobs remembered */ };

struct mailbox_operator;
struct mailbox_replica;

/* Reprocess runs, newest first, the last 256. */
struct mailbox_jobs {
    struct rt_lock lock; /* "jobs", rank 41: guards the list and the numbers of its runs */
    struct mailbox_operator *list;
    size_t n;
};

/* Another number of shards; the rebalancer's own, but it outlives its thread. */
struct mailbox_change {
    uint16_t want;
    int64_t since_ns;
    uint64_t topics, messages, keys; /* moved */
    uint16_t refused;                /* this number was tried, or asked for, under refused_version */
    uint64_t refused_version;
};

struct mailbox {
    struct svc *svc;
    const struct clock *clock;
    struct obs_family *m[MAILBOX_M_COUNT];
    _Atomic uint16_t shards;
    _Atomic uint16_t lanes_made;     /* at least as many; those above had a shard once, or will have one */
    unsigned workers;                /* since the start */
    uint32_t segment_bytes;          /* storage.segment_bytes; smaller in amnesia mode */
    struct mailbox_lane *lanes;      /* room for MAILBOX_SHARDS_MAX */
    struct mailbox_replica *replica; /* NULL: this mailbox is alone */
    struct mailbox_routing routing;  /* changes only while no shard is here; event loops: mailbox_route() */
    struct mailbox_change change;
    atomic_bool rebalancing; /* the doors are closed */
    bool
        settles_flushed; /* settlements are written before they are answered: another node may go on with the shard */
    uint8_t instance[16];
    uint64_t epoch;
    struct rt_chan *reproc;
    struct rt_bcast *events;
    struct mailbox_quotas quotas;
    /* What all shards together have out, exactly: whoever wants one more takes it here first (tasks/deliver.c). */
    _Atomic uint64_t leases;
    atomic_uint parked, streams;
    atomic_bool draining;
    _Atomic int64_t scanner_by_ns; /* it will have woken again by then */
    _Atomic int64_t
        crowded_since_ns; /* the exporter's: since when some shard's queue is nearly full; 0 = none is */
    _Atomic uint64_t stalled_said; /* the exporter's: shards whose stall has been logged, a bit each */
    struct rt_bell scan; /* scan_next: rung by a worker that published an earlier due than before */
    size_t cause_shards, cause_scanner, cause_storage, cause_saturated, cause_replica, cause_rebalancing;
    struct mailbox_jobs jobs;
    struct mailbox_operator *runs; /* the reprocessor's own: runs not finished */
    struct mailbox_operator *walks,
        *purges; /* the same: chains to be read, dead letters to go; the first has begun */
    _Atomic uint64_t rules_version;
};

static inline const struct mailbox_config *mailbox_config(const struct mailbox *mb)
{
    return svc_config(mb->svc);
}

static inline struct mailbox_now mailbox_now(const struct mailbox *mb)
{
    return (struct mailbox_now){clock_mono_ns(mb->clock) / 1000, (uint64_t)clock_wall_ms(mb->clock)};
}

/* Whose bucket it is, for who is not the worker: it may be another's by the time a job gets there, and is refused then. */
static inline uint16_t mailbox_route(const struct mailbox *mb, uint16_t bucket)
{
    return __atomic_load_n(&mb->routing.of[bucket], __ATOMIC_RELAXED); /* nothing else hangs on it */
}

static inline struct mailbox_lane *mailbox_lane_of(struct mailbox *mb, uint16_t bucket)
{
    return &mb->lanes[mailbox_route(mb, bucket)];
}

/* How many shards a new mailbox gets, and how many workers there are. */
static inline uint16_t mailbox_shards_at_first(const struct mailbox_config *cfg)
{
    unsigned cpus = os_cpus();
    return (uint16_t)(cfg->ready_shards ? cfg->ready_shards : cpus > 8 ? 8 : cpus);
}

/* note.c: what goes over events_tx; reference-counted, so that every listener may keep it. */
struct mailbox_note {
    atomic_uint refs;
    uint16_t shard;
    int64_t at_ms;
    struct mailbox_event ev;
};
struct mailbox_note *mailbox_note_create(uint16_t shard, int64_t at_ms,
                                         const struct mailbox_event *ev); /* NULL: no memory */
/* Tells whoever listens; without memory nobody is told. Never waits. */
void mailbox_tell(struct mailbox *mb, uint16_t shard, const struct mailbox_event *ev);
void mailbox_note_ref(void *note);
void mailbox_note_unref(void *note);

/* rules.c: configuration as the core wants it; ERR_BAD_REQUEST with a sentence. */
NODISCARD enum err mailbox_rules_make(const struct mailbox_config *cfg, uint16_t shards,
                                      struct mailbox_rules *out, char why[200]);
uint64_t mailbox_index_max(const struct mailbox_config *cfg);
/*
 * Journals in memory: as many shards and as large segments as storage.amnesia_bytes can hold, so that each shard has at least four
 * segments and, where the smallest ones allow it, eight. Never more or larger than configured.
 */
struct mailbox_layout {
    uint16_t shards;
    uint32_t segment_bytes;
};
struct mailbox_layout mailbox_layout_in(uint64_t bytes, const struct mailbox_config *cfg);

/* files.c: META, routing, CLEAN */
NODISCARD enum err mailbox_files_open(struct mailbox *mb, const char *dir, uint16_t want_shards) RT_BLOCKS;
/* Compares the journals with CLEAN, then removes it; a shorter one makes its shard read-only, and CLEAN stays until that is repaired. */
NODISCARD enum err mailbox_files_check_clean(struct mailbox *mb, const char *dir) RT_BLOCKS;
NODISCARD enum err mailbox_files_clean(struct mailbox *mb, const char *dir) RT_BLOCKS;
/* Segments keep the size the first ones were made with: that, if there are segments and none has the wanted one. */
uint32_t mailbox_files_segment_bytes(struct mailbox *mb, const char *dir, uint32_t wanted) RT_BLOCKS;
/* Whether there is a META: a mailbox was made here. */
bool mailbox_files_made(struct mailbox *mb, const char *dir) RT_BLOCKS;
/* A directory of a shared mailbox says so (REPLICA) and is not opened alone: what it would write nobody else would know. */
NODISCARD enum err mailbox_files_shared(struct mailbox *mb, const char *dir) RT_BLOCKS;

/* Task bodies; arg is the struct mailbox. */
enum err mailbox_worker_run(struct rt_task *self, void *arg) RT_BLOCKS;
enum err mailbox_scanner_run(struct rt_task *self, void *arg) RT_BLOCKS;
enum err mailbox_reprocessor_run(struct rt_task *self, void *arg) RT_BLOCKS;
enum err mailbox_rebalancer_run(struct rt_task *self, void *arg) RT_BLOCKS;
void mailbox_change_look(struct mailbox *mb,
                         struct rt_task *self) RT_BLOCKS; /* change.c, by the rebalancer */
enum err mailbox_shard_keeper_run(struct rt_task *self, void *arg) RT_BLOCKS;
enum err mailbox_exporter_run(struct rt_task *self, void *arg) RT_BLOCKS;

void mailbox_operators_free(struct mailbox *mb); /* after every task ended */
void mailbox_topology(const struct mailbox_config *cfg, struct rt_topology *topology);
extern const struct conf_table mailbox_conf;
extern const struct svc_def mailbox_svc;
extern const struct net_route mailbox_routes[];
void mailbox_oap(struct net_oap_req *rq, void *state);

#endif
