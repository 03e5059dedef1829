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

enum { REWARDER_CAUSE_CHARS = 24, REWARDER_TEXT_CHARS = 257, REWARDER_CORR_CHARS = 129 };

/* What changes during a run's life. Plain data: copied out under the lock. */
struct rewarder_run_info {
    enum rewarder_state state;
    uint64_t n; /* number in the registry, rising */
    struct sha256 inputs_cid, digest, run_key, manifest_digest, root;
    bool has_key;
    char policy_id[REWARDER_NAME_MAX + 1];
    struct sha256 policy_hash;
    struct rewarder_pool pool;
    wide_u128 amount, payouts, dust; /* effective pool and where it went */
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
    struct obs_trace trace; /* the span that admitted it; zero: none */
    int64_t deadline_ns;
    struct rewarder_policy_ref *policy; /* NULL for a run known from disk until it is opened */
    struct rewarder_run_info info;      /* run_registry */
    struct rewarder_view *view;         /* run_registry */
    struct rt_oneshot sealed; /* the artifact writer to the emitter: (void *)1 sealed, (void *)2 not */
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
/* Up to max references with n < before, newest first; tenant.p NULL: all. */
size_t rewarder_registry_list(struct rewarder_registry *r, struct str tenant, uint64_t before,
                              struct rewarder_run **out, size_t max);
/* Sealed, emitting and held runs in sealing order. */
size_t rewarder_registry_unsettled(struct rewarder_registry *r, struct rewarder_run **out, size_t max);
size_t rewarder_registry_count_unsettled(struct rewarder_registry *r, size_t held_by[4]);
/* What other runs with a fixed pool still owe from this funding account. */
wide_u128 rewarder_registry_owed(struct rewarder_registry *r, const struct rewarder_run *except,
                                 struct str funding);

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

/* The view of a run that has one; a reference, or NULL. */
struct rewarder_view *rewarder_run_view(struct rewarder_registry *r, struct rewarder_run *run);
void rewarder_run_set_view(struct rewarder_registry *r, struct rewarder_run *run,
                           struct rewarder_view *view);

#endif
