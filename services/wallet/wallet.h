/*
 * The wallet as its listener and its tasks see it.
 *
 * Who writes what
 *   http       claims keys, reads the cache, answers
 *   worker-i   the chains of its accounts, the phase of its jobs after QUEUED, receipts
 *   resolver   nothing: it asks and reports
 *   invalidator, worker  touched, feed position (raised only)
 *   prober     whether the ledger is there
 *
 * Threads     As above; shared parts are atomics or under a lock of topology.def.
 */
#ifndef RON_WALLET_WALLET_H
#define RON_WALLET_WALLET_H

#include "rt/bcast.h"
#include "rt/bell.h"
#include "rt/breaker.h"
#include "rt/limiter.h"
#include "services/wallet/core/cache.h"
#include "services/wallet/core/daily.h"
#include "services/wallet/core/policy.h"
#include "services/wallet/core/roots.h"
#include "services/wallet/core/tombs.h"
#include "services/wallet/job.h"
#include "svc/svc.h"

struct wallet_config {
#define CONF CONF_AS_MEMBER
#include "services/wallet/config.def"
#undef CONF
};
SVC_CONFIG_IS_PREFIX(struct wallet_config);

enum wallet_metric {
#define OBS_DEF(id) WALLET_M_##id,
#include "obs/metrics_ids.h"
#include "services/wallet/metrics.def"
#include "obs/metrics_end.h"
    WALLET_M_COUNT
};

/* In the order of the labels in metrics.def. */
enum wallet_endpoint {
    WALLET_EP_SIMULATE = WALLET_KIND_COUNT,
    WALLET_EP_BALANCE,
    WALLET_EP_ACCOUNTS,
    WALLET_EP_NONCE,
    WALLET_EP_TX,
    WALLET_EP_PROOF,
    WALLET_EP_COUNT
};
enum wallet_outcome {
    WALLET_O_COMMITTED,
    WALLET_O_REPLAYED,
    WALLET_O_REFUSED,
    WALLET_O_PENDING,
    WALLET_O_NOT_COMMITTED,
    WALLET_O_COUNT
};
enum wallet_call {
    WALLET_CALL_INGEST,
    WALLET_CALL_UNIT,
    WALLET_CALL_ACCOUNT,
    WALLET_CALL_ENTRY,
    WALLET_CALL_ENTRIES,
    WALLET_CALL_ROOTS,
    WALLET_CALL_PROOF,
    WALLET_CALL_HEAD
};

enum {
    WALLET_BATCH_MAX = 512, /* operations in one request; the most batch_units may be */
    WALLET_TOUCHED_SLOTS = 65536,
    WALLET_UNSETTLED_PER_ACCOUNT = 256,
    WALLET_DAILY_STRIPES = 16,
    WALLET_DAILY_MAX = 65536,
    WALLET_FLIGHT_STRIPES = 16,
    WALLET_TOMB_MAX = 65536,
    WALLET_TOMB_MS = 600000,
    WALLET_TOMB_TEXT = WALLET_TOMB_MAX * 64, /* who paid whom, of all tombstones */
    WALLET_SEND_LEFT_MS = 50,                /* nothing is sent with less time than this left */
};

struct wallet_shard {
    struct rt_lock idem_lock;
    struct wallet_idem idem;
    struct rt_lock cache_lock;
    struct wallet_cache cache;
};

struct wallet_stripe {
    struct rt_lock lock;
    struct wallet_daily daily;
    int64_t full_on; /* this day had more accounts than there are counters: who has none may have spent */
};

struct wallet_flights {
    struct rt_lock lock;
    struct map by_account;
};

struct wallet_batch {
    struct wallet_worker *worker;
    struct wallet_batch *next;
    int64_t sent_ns;
    size_t n;
    struct wallet_job *jobs[WALLET_BATCH_MAX];
};

struct wallet_worker {
    struct wallet *w;
    unsigned index;
    struct rt_bell bell;
    struct rt_chan *work, *done, *resolved;
    struct wallet_chains chains;
    struct wallet_batch *batches, *spare;
    size_t outstanding;
    size_t heap_room; /* of the last piece asked for; widen_heap() */
    struct os_count parked;
    _Atomic unsigned canceled; /* jobs in its chains whose time ran out */
    struct wallet_unit
        *built; /* what the next request carries: nobody keeps it, so all requests use the same */
    struct ledger_unit *units;
    struct ledger_entry *entries;
    struct wallet_link **taken;
    struct rng rng;
};

struct wallet_resolver {
    struct rt_bell bell;
    struct rt_chan *doubt, *done;
    struct heap waiting;
    size_t outstanding;
};

struct wallet_policy_box {
    struct os_a32 refs;
    struct wallet_policy *policy;
};

struct wallet_audit_stream;

struct wallet {
    struct svc *svc;
    struct obs_family *m[WALLET_M_COUNT];
    struct obs_family *auth_failures;
    struct ledger_client *ledger;
    bool owns_ledger;
    struct os_a64 calls; /* made and not yet answered; release in wallet_call_end, acquire in await_calls */

    struct wallet_shard *shards;
    size_t shard_mask;
    struct rt_lock jobs_lock;
    struct pool jobs;
    _Atomic uint16_t *unsettled; /* per slot of accounts */
    struct rt_inflight work_slots, read_slots;
    struct wallet_worker *workers;
    size_t n_workers;
    struct rt_chan *read_tx;
    struct wallet_read_item *reads_aside; /* the reader's: to be asked again, soonest first */
    struct rng reader_rng;
    struct wallet_resolver resolver;
    struct wallet_flights flights[WALLET_FLIGHT_STRIPES];
    struct wallet_stripe daily[WALLET_DAILY_STRIPES];
    struct os_a32 daily_loaded; /* release by who loaded; acquire by who asks */
    struct os_a64 daily_latest; /* the day the wall clock says; stored with the waiters' lock */
    int64_t daily_dated;        /* waiters' lock: the last day that anything may be dated */
    int64_t daily_behind_ms;    /* waiters' lock: how far the ledger's time has been behind our clock */
    bool daily_afresh;          /* waiters' lock: the wall clock came to a day that it was on before */
    int64_t
        daily_day; /* the loader's: a load that broke off goes on where it was, or it would count twice */
    uint64_t daily_from, daily_head;
    struct rt_lock daily_waiters_lock;
    struct wallet_patient *daily_waiters;
    struct rt_lock tomb_lock;
    struct wallet_tombs tombs;
    struct rt_lock policy_lock;
    struct wallet_policy_box *policy;

    struct os_a64 *touched, feed_seq, floor_seq, feed_ns; /* moved.c says in which order */
    atomic_bool feed_up;

    struct rt_breaker breaker;
    _Atomic int64_t ledger_offset_ms; /* ledger time − monotonic time; INT64_MIN: never heard of it */
    _Atomic uint64_t head_seq, acked_seq;
    _Atomic unsigned probe_bad, probe_good;
    atomic_bool forked, ledger_up;
    atomic_bool ledger_safe_mode; /* by its last answer, if it gave one */
    struct rt_lock roots_lock;
    struct wallet_roots roots;

    struct rt_bcast *events, *ledger_bus;
    struct os_count events_read, bus_read; /* how far their readers are: published - read waits */
    struct rt_lock streams_lock;
    struct rt_bell audit_bell; /* somebody listens now */
    struct wallet_audit_stream *streams;
    size_t n_streams;

    _Atomic uint64_t in_doubt;
    int64_t started_ns;
    size_t cause_ledger, cause_policy, cause_queue, cause_fork, cause_feed, cause_breaker;
    /* Readiness is looked at by its task, and once by who starts the service. */
    _Atomic int64_t queue_full_since_ns;
    atomic_bool queue_bad;
};

static inline const struct wallet_config *wallet_config(const struct wallet *w)
{
    return svc_config(w->svc);
}

/* Whether the ledger can be written to now; NULL, or the reason why not (a literal: down, safe_mode, breaker, fork). */
const char *wallet_shed(struct wallet *w);
/* Whether it need not be asked either: one in safe mode answers. */
bool wallet_cannot_read(struct wallet *w);

/* Before the next try of a call that failed `tries` times; the jitter comes on top. */
int64_t wallet_retry_pause_ms(const struct wallet_config *cfg, uint64_t tries, uint32_t retry_after_s);
/* The ledger's clock as far as it is known, unix ms; 0 when it never was. */
uint64_t wallet_ledger_now_ms(const struct wallet *w);
int64_t wallet_now_ns(const struct wallet *w);
/* Time limits count on the service's own clock, as the requests do: from now on, and until then (0 when passed). */
struct deadline wallet_in_ms(const struct wallet *w, int64_t ms);
int64_t wallet_left_ms(const struct wallet *w, struct deadline by);
/* Tasks sleep by the system's clock: until it is until_ns by the service's, but no longer than most_ms. */
struct deadline wallet_wake_at(const struct wallet *w, int64_t until_ns, int64_t most_ms);

/* ---- calls to the ledger ---- */
void wallet_call_begin(struct wallet *w);
void wallet_call_end(struct wallet *w, enum wallet_call call, const struct ledger_answer *a,
                     int64_t sent_ns);
/* An answer counts for the breaker; when that opens or closes it, it is told. */
void wallet_breaker_note(struct wallet *w, bool good, int64_t now_ns);
/* What was seen of the log: remembered, compared; a contradiction stops writes for good. */
void wallet_saw_root(struct wallet *w, uint64_t tree_size, const struct sha256 *root);
void wallet_fork(struct wallet *w, const char *what);

/* ---- accounts that moved ---- */
struct wallet_heard {
    uint64_t seq_start, seq_end;
    int64_t at_ns;
    const uint32_t *slots;
    size_t n;
};

size_t wallet_slot(struct str account);
void wallet_touch(struct wallet *w, struct str account, uint64_t seq);
void wallet_all_dirty(struct wallet *w, uint64_t seq);
/* A commit of the feed; and: at since_ns the ledger's head was still head_seq. */
void wallet_heard(struct wallet *w, const struct wallet_heard *commit);
void wallet_heard_nothing(struct wallet *w, uint64_t head_seq, int64_t since_ns);
/* The highest seq known to have touched the account's slot, and what the feed vouches for: to be judged together. */
uint64_t wallet_moved(const struct wallet *w, struct str account, struct wallet_feed *out_feed);

/* ---- the policy in force ---- */
struct wallet_policy_box *wallet_policy_get(struct wallet *w); /* counted */
void wallet_policy_put(struct wallet_policy_box *box);
NODISCARD enum err wallet_policy_load(struct wallet *w); /* keeps the last good one on failure */

/* ---- jobs ---- */
struct wallet_job *wallet_job_new(struct wallet *w); /* NULL: all in use */
struct wallet_shard *wallet_shard_of(struct wallet *w, const struct wallet_idem_name *name,
                                     size_t *out_index);
/* Queues it with its worker. ERR_BUSY, ERR_CLOSED: it stays the caller's. */
NODISCARD enum err wallet_job_queue(struct wallet_job *j);
/* Ends it: key, tickets, allowance, account. Its answer is filled. Takes over the reference. */
void wallet_job_settle(struct wallet_job *j, bool committed);
/* Tells whoever waits that it is pending, and goes on. */
void wallet_job_tell_pending(struct wallet_job *j);
void wallet_answer_problem(struct wallet_answer *a, enum err e, const char *detail);
void wallet_answer_details(struct wallet_answer *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void wallet_reservations_back(struct wallet *w, const struct wallet_reservation *r, size_t n, int64_t day,
                              struct money amount, bool used);

/* ---- daily allowances (daily_load.c) ---- */
/* A request that waits until it is known what was spent today. In the request's memory; go runs on its loop, once. */
struct wallet_patient {
    struct net_msg msg;
    struct net_timer timer;
    struct net_req *rq;
    struct wallet *w;
    struct wallet_patient *next; /* daily_waiters lock */
    bool linked;                 /* daily_waiters lock */
    bool loaded;
    void (*go)(
        struct wallet_patient *p); /* loaded: false when its time ran out or the ledger did not say */
};

/* The wall clock said it is this day. A day that it was on before is added up again. */
void wallet_daily_saw(struct wallet *w, int64_t day);
/* The day is added up again, whatever it is known. */
void wallet_daily_again(struct wallet *w);
/* Whether it is known what was spent on this day before this process began; asks the ledger when it is not. */
bool wallet_daily_ready(struct wallet *w, int64_t day);
/* Waits for that. False: it is known by now, or nobody is asking; go will not run. On the request's loop. */
bool wallet_daily_await(struct wallet *w, struct wallet_patient *p, struct deadline by);
/* ERR_BUSY: there was no counter for it. */
NODISCARD enum err wallet_daily_before(struct wallet *w, bool issue, struct str account, struct str asset,
                                       int64_t day, struct money *out);

/* ---- tickets ---- */
void wallet_ticket_init(struct wallet_ticket *t, struct wallet *w, struct net_req *rq);
/* Arms its deadline; on its loop's thread, once it is linked. */
void wallet_ticket_arm(struct wallet_ticket *t, struct deadline by);
struct deadline wallet_deadline(struct wallet *w, const struct net_req *rq);
void wallet_reply_answer(struct wallet *w, struct net_req *rq, const struct wallet_answer *a,
                         const char *txid, bool replayed);

/* ---- replies ---- */
/* Counts and tells whoever listens that a request was refused; the answer is the caller's. */
void wallet_refused(struct wallet *w, struct net_req *rq, enum err e);
void wallet_tell_refused(struct wallet *w, const struct net_req *rq, enum err e); /* only tells; told.c */
void wallet_refuse(struct wallet *w, struct net_req *rq, enum err e, const char *detail);
void wallet_refuse_details(struct wallet *w, struct net_req *rq, enum err e, const char *detail,
                           const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void wallet_refuse_busy(struct wallet *w, struct net_req *rq, unsigned endpoint, const char *reason);
/* 503 for a ledger that takes no writes; why: wallet_shed. */
void wallet_refuse_shed(struct wallet *w, struct net_req *rq, const char *why);

/* ---- task bodies ---- */
NODISCARD enum err wallet_worker_run(struct rt_task *self, void *wallet) RT_BLOCKS;
NODISCARD enum err wallet_resolver_run(struct rt_task *self, void *wallet) RT_BLOCKS;
NODISCARD enum err wallet_reader_run(struct rt_task *self, void *wallet) RT_BLOCKS;
NODISCARD enum err wallet_feed_run(struct rt_task *self, void *wallet) RT_BLOCKS;
NODISCARD enum err wallet_invalidator_run(struct rt_task *self, void *wallet) RT_BLOCKS;
NODISCARD enum err wallet_prober_run(struct rt_task *self, void *wallet) RT_BLOCKS;
NODISCARD enum err wallet_janitor_run(struct rt_task *self, void *wallet) RT_BLOCKS;
NODISCARD enum err wallet_audit_run(struct rt_task *self, void *wallet) RT_BLOCKS;
NODISCARD enum err wallet_metrics_run(struct rt_task *self, void *wallet) RT_BLOCKS;

/* One turn of their loops; false: there was nothing to do. Models turn them by hand. */
bool wallet_worker_step(struct wallet_worker *k);
bool wallet_worker_ended(const struct wallet_worker *k); /* closed, and nothing is left */
bool wallet_resolver_step(struct wallet *w);

extern const struct net_route wallet_routes[];
extern const struct svc_def wallet_svc;

#endif
