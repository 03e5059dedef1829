/*
 * Settlement: every leaf of a sealed run becomes one ledger transfer, once, whatever crashes.
 *
 * Chunk c is the ledger unit of leaves [512c, 512(c+1)). Its idempotency id and its entry ids are derived, so sending it
 * again after a crash, a lost reply or a restart is a duplicate to the ledger and never a second payment. The emitter
 * alone writes its nonce lanes; one request of at most two units is outstanding per lane.
 *
 * Ownership   The settler owns its call slots; they outlive a cancelled emitter, because an answer may still come. A job
 *             is the caller's and only borrowed for the call.
 * Threads     rewarder_settle() by one thread at a time (the emitter). The ledger's callbacks come on any thread.
 * Memory      All call slots and scratch space are allocated by rewarder_settler_create().
 */
#ifndef RON_REWARDER_SETTLEMENT_H
#define RON_REWARDER_SETTLEMENT_H

#include "ledger_client/ledger_client.h"
#include "rt/breaker.h"
#include "rt/task.h"
#include "services/rewarder/core/manifest.h"
#include "services/rewarder/core/payouts.h"

enum { REWARDER_LANES_MAX = 16, REWARDER_REFUSALS_MAX = 8, REWARDER_REASON_CHARS = 48 };

struct rewarder_settler;

/* What a settler's owner may want to count. */
enum rewarder_settle_note {
    REWARDER_NOTE_READ_AGAIN,
    REWARDER_NOTE_INGEST_AGAIN,
    REWARDER_NOTE_READ_TIMEOUT,
    REWARDER_NOTE_INGEST_TIMEOUT,
};

struct rewarder_settler_spec {
    struct ledger_client *ledger; /* may be replaced between runs: rewarder_settler_use() */
    struct rt_breaker *breaker;
    unsigned lane, lanes;                                    /* the first and how many */
    uint64_t seed;                                           /* jitter */
    int64_t read_timeout_ms, ingest_timeout_ms;              /* 0: 1 s and 5 s */
    int64_t retry_min_ms, retry_max_ms;                      /* 0: 100 and 250 */
    void (*note)(void *ctx, enum rewarder_settle_note what); /* by the thread that settles; may be NULL */
    void *ctx;
};

struct rewarder_settler *
rewarder_settler_create(const struct rewarder_settler_spec *spec); /* NULL: no memory */
void rewarder_settler_destroy(
    struct rewarder_settler *s); /* no call may be outstanding: close the client first */

enum rewarder_settle_end {
    REWARDER_SETTLE_DONE,       /* every chunk placed */
    REWARDER_SETTLE_HOLD,       /* cause */
    REWARDER_SETTLE_QUARANTINE, /* cause is the kind */
    REWARDER_SETTLE_STOPPED,    /* the job's stop() said so, or the task was cancelled */
};

struct rewarder_refusal {
    uint32_t chunk;
    char reason[REWARDER_REASON_CHARS];
};

struct rewarder_settle_job {
    struct str tenant, epoch, funding, asset;
    struct sha256 run_key, manifest, root;
    int64_t sealed_at_ms;
    const struct rewarder_payouts *table;
    struct rewarder_chunk_place *places; /* one per chunk; seq_start 0 = open. In and out */
    bool maybe_sent; /* some of the open chunks may have been sent before: look them up first */
    struct str corr_id, traceparent; /* passed on to the ledger; may be empty */
    void *ctx;
    bool (*stop)(void *ctx); /* asked before each request */
    void (*placed)(void *ctx, uint32_t chunk, uint64_t seq_start,
                   uint64_t nonce); /* after each placement */
    void (*asked)(void *ctx, unsigned units, int64_t took_ns,
                  enum err err); /* a call is over; may be NULL */
    void (*event)(void *ctx, const char *what,
                  const char *detail); /* resync restart|nonce|idem|timeout, ... */
};

/* What the leaves of a chunk add up to. */
wide_u128 rewarder_chunk_amount(const struct rewarder_payouts *t, uint32_t chunk);

struct rewarder_settle_count {
    uint64_t units, leaves;
};

struct rewarder_settle_result {
    enum rewarder_settle_end end;
    const char *cause;  /* hold: ledger funds lane; quarantine: settlement duplicate_entry */
    uint64_t tree_size; /* the ledger's, after the last unit; 0 when unknown */
    struct sha256 ledger_root;
    unsigned refusals;
    struct rewarder_refusal refused[REWARDER_REFUSALS_MAX];
    struct rewarder_settle_count committed,
        duplicates;  /* placed by this pass, by how the ledger answered */
    uint64_t errors; /* units of requests that were given up for now */
};

void rewarder_settle(struct rewarder_settler *s, struct rewarder_settle_job *job, struct rt_task *self,
                     struct rewarder_settle_result *out) RT_BLOCKS;

/* One probe of the ledger; false when it is unreachable, not ready, or the task was cancelled. */
bool rewarder_settler_ready(struct rewarder_settler *s, struct rt_task *self) RT_BLOCKS;

struct rewarder_funds {
    struct money available;
    uint64_t as_of_seq;
    uint64_t lane_heads[REWARDER_LANES_MAX]; /* full nonces; 0 = never used */
};
/* ERR_LEDGER_UNAVAILABLE after three attempts, ERR_UNAUTHENTICATED, ERR_CANCELED. */
NODISCARD enum err rewarder_settler_funds(struct rewarder_settler *s, struct str account, struct str asset,
                                          struct rt_task *self, struct rewarder_funds *out) RT_BLOCKS;
/* Whether the ledger knows any chunk of the run: what a discard must ask. */
NODISCARD enum err rewarder_settler_knows(struct rewarder_settler *s, struct str tenant, struct str epoch,
                                          const struct sha256 *run_key, uint64_t chunks,
                                          struct rt_task *self, bool *out_known) RT_BLOCKS;

#endif
