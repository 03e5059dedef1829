/*
 * A job: one ingest request on its way through the pipeline, from whatever door it came in.
 *
 *   Received → Validated → Sequenced → Committed → answered; or refused on the way, as a whole or unit by unit.
 *
 * Ownership   The job moves with the channel item. Whoever ends it calls ledger_job_answer(), exactly once, and must not
 *             touch it afterwards: the door (job->ops->answer) takes it over, writes the reply and gives it back.
 * Threads     One owner at a time; the pending index is shared and guarded by striped locks.
 * Memory      Jobs are pooled. All that belongs to one lives in its arena.
 */
#ifndef RON_LEDGER_JOB_H
#define RON_LEDGER_JOB_H

#include "base/arena.h"
#include "net/loop.h"
#include "obs/span.h"
#include "rt/deadline.h"
#include "rt/lock.h"
#include "services/ledger/core/state.h"
#include "services/ledger/index.h"

struct auth_cap;
struct ledger;
struct ledger_job;

enum ledger_verdict { VERDICT_NONE, VERDICT_COMMITTED, VERDICT_DUPLICATE, VERDICT_REJECTED };

/* What a late reader found for a duplicate or a proof; see ledger_reads.h. */
struct ledger_unit_facts;

struct ledger_job_unit {
    struct core_unit u;
    struct core_prepared p;
    enum ledger_verdict verdict;
    struct ledger_reject reject;
    uint64_t seq; /* first entry; of the first commit when duplicate */
    uint32_t n;   /* entries as committed */
    struct core_place place;
    bool place_known;
    struct ledger_gen *gen; /* where its keys went; alive through the job's round */
    uint32_t gen_unit;
    struct ledger_effect *fx;
    uint32_t n_fx;
    const struct ledger_fact **facts;
    struct ledger_unit_facts *late;
    struct ledger_job_unit *pending_next;
    bool pending;
};

struct ledger_job_ops {
    /* Prevalidator: fills units from the request. ERR_BAD_REQUEST with job->fault, ERR_TOO_LARGE. */
    enum err (*decode)(struct ledger_job *job);
    /* Takes the job over and replies; ends with ledger_job_free(). Runs on any thread, must not wait. */
    void (*answer)(struct ledger_job *job);
};

#define LEDGER_JOB_MAGIC 0x4c4a4f42u

struct ledger_job {
    uint32_t magic;
    struct net_msg msg; /* for the door */
    struct ledger *ledger;
    const struct ledger_job_ops *ops;
    void *door; /* the request it answers */
    struct arena arena;

    struct ledger_job_unit *units;
    uint32_t n_units, n_entries;
    bool want_balances, want_proof, own;
    struct core_caller who;
    struct auth_cap *cap; /* NULL: the ledger itself, or a token that the kms judges */
    struct str token;     /* for the kms; else empty */
    struct bytes body;
    uint8_t peer_ip[16];
    bool has_ip;

    struct deadline by; /* to be sequenced by then */
    int64_t admitted_ns;
    char corr_id[129];
    struct obs_trace trace; /* of the caller until it is admitted, then of its ingress span */

    /* Refused as a whole. */
    enum err err;
    const char *why; /* queue, task, disk, op … */
    const char *why_key;
    struct core_fault fault;
    uint32_t fault_unit;
    bool has_fault;
    char fault_path[200]; /* where the JSON itself is at fault */

    uint8_t stage, asks; /* of prevalidation; enum ledger_provider whose verdict it waits for */

    struct ledger_view *view;
    struct ledger_gen *gen; /* where the keys of its new entries are; groups do not mix generations */
    uint64_t payload_bytes; /* of accepted units */
    uint32_t new_entries;   /* accepted */
    struct ledger_job *next;
    bool counted; /* in the in-flight count */

    /* After the commit. */
    uint64_t tree_size;
    struct sha256 root;
};

struct ledger_jobs {
    struct rt_lock lock; /* guards free and made */
    struct ledger_job *free;
    uint32_t made, max;
    struct rt_lock stripes[16]; /* each guards its part of pending */
    struct ledger_job_unit **pending;
};

enum { JOBS_BUCKETS = 16384 }; /* of units: 32 requests of 256 are usual */

NODISCARD enum err ledger_jobs_init(struct ledger_jobs *js, uint32_t max);
void ledger_jobs_fini(struct ledger_jobs *js);

struct ledger_job *ledger_job_take(struct ledger_jobs *js, struct ledger *l); /* NULL: `max` are in use */
void ledger_job_free(struct ledger_job *job);

/* A unit that is decoded and not answered is pending. */
void ledger_job_pend(struct ledger_jobs *js, struct ledger_job *job);
void ledger_job_unpend(struct ledger_jobs *js, struct ledger_job *job);
bool ledger_jobs_is_pending(struct ledger_jobs *js, struct core_key idem_key);

/* Refuses the whole job. Not for one whose units were sequenced. */
void ledger_job_refuse(struct ledger_job *job, enum err err, const char *key, const char *why);

#endif
