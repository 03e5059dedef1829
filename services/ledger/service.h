/*
 * The ledger as a service: what ties the engine (ledger.h) to the frame (svc.h). tasks/ and api/ see both through this.
 *
 * Ownership   The service owns the engine, its queues and its streams.
 */
#ifndef RON_LEDGER_SERVICE_H
#define RON_LEDGER_SERVICE_H

#include "rt/bell.h"
#include "services/ledger/ledger.h"
#include "svc/svc.h"

struct ledger_config {
#define CONF CONF_AS_MEMBER
#include "services/ledger/config.def"
#undef CONF
};
SVC_CONFIG_IS_PREFIX(struct ledger_config);

enum { LEDGER_JOBS_MAX = 512 + 4096 + 512 };

struct ledger_stream;
struct direct;

struct ledger_service {
    struct svc *svc;
    struct ledger *l;
    struct rt_chan *stream_tx;
    struct rt_bell
        stream_bell; /* a group was committed, a stream came or wants to go: for the roots_publisher */
    struct net_outbox *doors; /* from the event loops to ingress_tx */
    _Atomic uint32_t n_streams;
    _Atomic uint32_t prevalidating; /* prevalidators alive */
    int64_t drain_began_ns;         /* supervisor only */
    bool committer_done;            /* it ended as it should: a clean stop */
    size_t cause_safe, cause_backpressure, cause_lag, cause_disk, cause_kms, cause_policy, cause_wallet,
        cause_warn, cause_checkpoint, cause_replica, cause_clock;
    struct rt_lock note_lock; /* guards notes */
    struct {
        uint64_t size;
        size_t n;
        char text[NOTE_MAX];
    } notes[64];
    unsigned next_note;
    struct rt_lock direct_lock; /* guards directs, and which of their calls wait */
    struct direct *directs;     /* clients in this process */
};

extern const struct svc_def ledger_svc;
extern const struct conf_table ledger_conf;
void ledger_topology(const void *config, struct rt_topology *topology);

/* Task bodies (tasks/), arg is the struct ledger_service. */
NODISCARD enum err ledger_prevalidator_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err ledger_sequencer_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err ledger_committer_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err ledger_finisher_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err ledger_reader_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err ledger_admin_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err ledger_roots_publisher_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err ledger_checkpointer_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err ledger_segment_keeper_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err ledger_metrics_run(struct rt_task *self, void *arg) RT_BLOCKS;
NODISCARD enum err ledger_provider_run(struct rt_task *self, void *arg) RT_BLOCKS;
void ledger_provider_wake(struct rt_task *self, void *arg);

/* A job's next step of prevalidation: passed on, answered, or parked with a provider. */
void ledger_prevalidator_next(struct ledger_service *s, struct ledger_job *job) RT_BLOCKS;
NODISCARD enum err ledger_replica_run(struct rt_task *self, void *arg) RT_BLOCKS;

/* Work for a reader (or the admin task): runs there, answers, and is gone. */
struct ledger_read {
    void (*run)(struct ledger_service *s, struct ledger_read *r);
    void *door;
};
/* ERR_BUSY: read_tx is full, the caller answers. */
NODISCARD enum err ledger_read_submit(struct ledger_service *s, struct ledger_read *r);

/*
 * A door on an event loop hands a job in; it reaches ingress_tx at the end of the loop's iteration, together with the others of
 * that iteration. Errors as of ledger_submit(); when the queue is full by then, the job is answered like any that is refused.
 */
NODISCARD enum err ledger_door_submit(struct ledger_service *s, const struct net_loop *loop,
                                      struct ledger_job *job);

/* A subscriber; see stream.h. */
NODISCARD enum err ledger_stream_submit(struct ledger_service *s, struct ledger_stream *st);

/* A signed note, from the cache when it was asked for before. */
NODISCARD enum err ledger_note_cached(struct ledger_service *s, uint64_t size, char out[NOTE_MAX],
                                      size_t *out_n) RT_BLOCKS;

/* A millisecond's rest between two looks; wakes by itself. Readers only. */
static inline void ledger_nap(void)
{
    struct os_a32 never;
    os_a32_store(&never, 0, memory_order_relaxed);
    (void)os_sleep_on(&never, 0, os_now_ns() + 1000000);
}

/* Tells callers in this process whose time is up that nobody knows; with the readiness tick. */
void ledger_direct_tick(struct ledger_service *s);

/* The OAP door. */
void ledger_oap(struct net_oap_req *rq, void *state);

extern const struct net_route ledger_routes[];

#endif
