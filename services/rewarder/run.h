/*
 * Runs and inputs as the service knows them: the registry.
 *
 * Ownership   Runs are reference-counted; the registry holds one reference for as long as it knows the run. The identity
 *             (tenant, epoch, dry) never changes; everything else is in struct rewarder_run_info and is copied out.
 * Threads     Every function from any thread; each takes the lock run_registry for a few instructions.
 * Order       State changes go through rewarder_run_move(), which obeys the table in core/state.h.
 */
#ifndef RON_REWARDER_RUN_H
#define RON_REWARDER_RUN_H

#include <stdatomic.h>

#include "base/map.h"
#include "obs/span.h"
#include "rt/lock.h"
#include "rt/oneshot.h"
#include "services/rewarder/core/calc.h"
#include "services/rewarder/core/manifest.h"
#include "services/rewarder/core/state.h"
#include "services/rewarder/policies.h"

struct rewarder_view;

enum {
    REWARDER_CAUSE_CHARS = 24,
    REWARDER_TEXT_CHARS = 257,
    REWARDER_CORR_CHARS = 129,
    REWARDER_REFUSED_CHARS = 1024
};

/* What changes during a run's life. Plain data: copied out under the lock. */
struct rewarder_run_info {
    enum rewarder_state state;
    uint64_t n; /* number in the registry, rising */
    struct sha256 inputs_cid, digest, run_key, manifest_digest, root;
    bool has_key;
    char policy_id[REWARDER_NAME_MAX + 1];
    struct sha256 policy_hash;
    char funding[REWARDER_ACCOUNT_MAX + 1], asset[REWARDER_ASSET_MAX + 1]; /* of the policy */
    struct rewarder_pool pool;
    bool pool_fixed;                 /* pool is what this run may pay */
    wide_u128 amount, payouts, dust; /* effective pool and where it went */
    wide_u128 placed;                /* of amount: what the ledger is known to hold already */
    uint64_t paid, leaves, cut;
    bool cut_negative;
    int64_t sealed_at_ms, settled_at_ms, since_ms;
    char cause[REWARDER_CAUSE_CHARS];  /* held: cause; quarantined: kind */
    char reason[REWARDER_TEXT_CHARS];  /* quarantine reason, or failure detail */
    char details[REWARDER_TEXT_CHARS]; /* failure details, a JSON object or "" */
    enum err failure;
    uint64_t chunks_done, seq_first, seq_last;
    bool maybe_sent; /* some unit may have left in an earlier life */
    bool recheck;
    uint32_t log_bytes; /* of its lines, when known from registry.log */
    bool swept; /* settled, and its files are gone: the line in registry.log keeps the epoch claimed */
};

struct rewarder_run {
    uint32_t magic;
    atomic_uint refs; /* relaxed add; release on drop pairs with the acquire before freeing */
    bool dry;
    char tenant[REWARDER_NAME_MAX + 1], epoch[REWARDER_NAME_MAX + 1];
    char key[2 * REWARDER_NAME_MAX + 4];
    size_t key_n;
    char corr_id[REWARDER_CORR_CHARS];
    struct obs_trace trace;             /* the span that admitted it; zero: none */
    int64_t began_ns, deadline_ns;      /* admitted; 0: in an earlier life */
    struct rewarder_policy_ref *policy; /* NULL for a run known from disk */
    struct rewarder_run_info info;      /* run_registry */
    struct rewarder_view *view;         /* run_registry */
    char *refused;            /* run_registry: JSON array of the units the ledger refused; NULL: none */
    struct rt_oneshot sealed; /* the artifact writer to the emitter: (void *)1 sealed, (void *)2 not */
    struct {
        int64_t at_ns, still_ns; /* not before; since when the lanes' heads are the same */
        uint64_t heads;          /* a hash of them; 0: not seen yet */
    } probe;                     /* of a held run; the emitter's alone */
    atomic_bool halt;  /* relaxed: an operator wants it quarantined; the emitter looks before each unit */
    atomic_uint phase; /* progress, relaxed */
    atomic_ullong done, of;
};

struct rewarder_input {
    struct sha256 cid, digest;
    char tenant[REWARDER_NAME_MAX + 1], epoch[REWARDER_NAME_MAX + 1];
    uint64_t bytes, rows;
    int64_t stored_at_ms;
    char dims[REWARDER_DIMS_MAX * (REWARDER_DIM_MAX + 3) + 3]; /* JSON array */
    bool ndjson;
};

struct rewarder_registry {
    struct rt_lock lock;
    struct map runs;   /* key -> run */
    struct map inputs; /* cid -> rewarder_input */
    uint64_t next_n;
    struct rewarder_run **order; /* live runs by n, rising; grows */
    size_t order_n, order_cap;
};

NODISCARD enum err rewarder_registry_init(struct rewarder_registry *r);
void rewarder_registry_fini(struct rewarder_registry *r);

struct rewarder_run *rewarder_run_create(struct str tenant, struct str epoch,
                                         bool dry); /* NULL: no memory */
struct rewarder_run *rewarder_run_ref(struct rewarder_run *run);
void rewarder_run_unref(struct rewarder_run *run); /* NULL is fine */

/* A reference, or NULL. */
struct rewarder_run *rewarder_registry_find(struct rewarder_registry *r, struct str tenant,
                                            struct str epoch, bool dry);
/*
 * Makes `run` the run of its epoch unless another one claims it: then ERR_EXISTS and *out_holder (a reference). A failed
 * or dry predecessor is replaced.
 */
NODISCARD enum err rewarder_registry_claim(struct rewarder_registry *r, struct rewarder_run *run,
                                           struct rewarder_run **out_holder);
void rewarder_registry_forget(struct rewarder_registry *r, struct rewarder_run *run);
struct rewarder_listing {
    struct str tenant;
    enum rewarder_state state; /* REWARDER_STATE_COUNT: any */
    uint64_t before;           /* n is less */
};
/* Up to max references, newest first. Dry runs are not listed. */
size_t rewarder_registry_list(struct rewarder_registry *r, const struct rewarder_listing *which,
                              struct rewarder_run **out, size_t max);
/* Up to max references to runs that are held, or that are sealed or emitting, from the first with a larger n on. */
size_t rewarder_registry_unsettled(struct rewarder_registry *r, bool held, uint64_t after,
                                   struct rewarder_run **out, size_t max);
size_t rewarder_registry_count_unsettled(struct rewarder_registry *r, size_t held_by[4]);
/* What other runs whose pool is fixed may still take from this funding account. */
wide_u128 rewarder_registry_owed(struct rewarder_registry *r, const struct rewarder_run *except,
                                 struct str funding);
/*
 * Fixes the run's pool: from a balance what the account had (pool->declared) less what others are owed, else as it is. In one
 * step, so that of two runs that saw the same balance only one is promised it. `owed_before`, asked before the balance was,
 * covers who was paid in between.
 */
void rewarder_registry_fix_pool(struct rewarder_registry *r, struct rewarder_run *run,
                                wide_u128 owed_before, struct rewarder_pool *pool);

struct rewarder_run_info rewarder_run_read(struct rewarder_registry *r, const struct rewarder_run *run);
/* Takes the event; `change` (may be NULL) then edits the info under the same lock. ERR_CONFLICT. */
NODISCARD enum err rewarder_run_move(struct rewarder_registry *r, struct rewarder_run *run,
                                     enum rewarder_event ev,
                                     void (*change)(struct rewarder_run_info *info, void *arg), void *arg);
void rewarder_run_edit(struct rewarder_registry *r, struct rewarder_run *run,
                       void (*change)(struct rewarder_run_info *info, void *arg), void *arg);

bool rewarder_registry_input(struct rewarder_registry *r, const struct sha256 *cid,
                             struct rewarder_input *out);
/* Takes one input out of the index that was stored before and that no live run refers to; false: there is none. */
bool rewarder_registry_take_old_input(struct rewarder_registry *r, int64_t stored_before_ms,
                                      struct rewarder_input *out);
/* References to up to max runs for which `wanted` says so, oldest first. */
size_t rewarder_registry_pick(struct rewarder_registry *r,
                              bool (*wanted)(const struct rewarder_run *run, const void *arg),
                              const void *arg, struct rewarder_run **out, size_t max);
NODISCARD enum err rewarder_registry_add_input(struct rewarder_registry *r,
                                               const struct rewarder_input *in);

/* What the ledger refused, a JSON array; an empty text forgets it. Without memory for it the list stays as it was. */
void rewarder_run_set_refused(struct rewarder_registry *r, struct rewarder_run *run, struct str list);
/* A copy of it in `out`; empty: nothing. */
struct str rewarder_run_refused(struct rewarder_registry *r, const struct rewarder_run *run,
                                char out[REWARDER_REFUSED_CHARS]);

/* The view of a run that has one; a reference, or NULL. */
struct rewarder_view *rewarder_run_view(struct rewarder_registry *r, struct rewarder_run *run);
void rewarder_run_set_view(struct rewarder_registry *r, struct rewarder_run *run,
                           struct rewarder_view *view);

#endif
