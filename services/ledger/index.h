/*
 * Which units and entries exist: generations in memory for what is young, runs on disk for the rest.
 *
 * A view is an immutable list of both, counted by reference. A prevalidator pins the current one, looks a key up in all of
 * it, and the job carries it along. The sequencer then only has to look at what may have grown since: the generation that
 * was open when the view was pinned, and those that came after. A generation leaves the current view only in the same step
 * that brings its run in, so no key is ever hidden.
 *
 * Threads     pin and look-ups: any. open_generation: the sequencer. replace: the checkpointer. One short lock guards the
 *             pointer to the current view.
 */
#ifndef RON_LEDGER_INDEX_H
#define RON_LEDGER_INDEX_H

#include "rt/lock.h"
#include "services/ledger/core/gen.h"
#include "services/ledger/core/index_run.h"
#include "store/disk.h"

enum { INDEX_GENS_MAX = 64, INDEX_RUNS_MAX = 96 };

/* A run's file, mapped (or read, where there is no descriptor). */
struct ledger_run {
    _Atomic uint32_t refs;
    uint32_t number;
    struct ledger_index_run run;
    void *bytes;
    size_t n_bytes;
    bool mapped;
};

struct ledger_view {
    _Atomic uint32_t refs;
    uint32_t n_gens, n_runs;
    struct ledger_gen *gens[INDEX_GENS_MAX]; /* oldest first; the last one is open */
    struct ledger_run *runs[INDEX_RUNS_MAX]; /* oldest first */
};

struct ledger_index {
    struct rt_lock lock; /* guards `current` only */
    struct ledger_view *current;
};

/* What is known about a key. */
struct ledger_found {
    uint64_t seq;
    bool young; /* from a generation: fp, n and kind are known; place only when durable */
    uint32_t n; /* entries of the unit */
    struct sha256 fp;
    enum core_kind kind;     /* of an entry */
    struct core_place place; /* of the unit record */
};

NODISCARD enum err ledger_index_init(struct ledger_index *x);
void ledger_index_fini(struct ledger_index *x);

struct ledger_view *ledger_index_pin(struct ledger_index *x);
void ledger_view_unpin(struct ledger_view *v);
struct ledger_gen *
ledger_view_open_gen(const struct ledger_view *v); /* the newest generation; NULL when none */

bool ledger_view_find_unit(const struct ledger_view *v, struct core_key key, struct ledger_found *out);
bool ledger_view_find_entry(const struct ledger_view *v, struct core_key key, struct ledger_found *out);
/*
 * For the sequencer, of a key that was not in `then` when its prevalidator looked: has it become known up to `now`, the current view?
 * The generation that was open then may have grown; newer ones may have been opened; and some of those may have come and gone, if
 * the job waited that long: then their runs are asked, and what is found there is not `young`.
 */
bool ledger_view_grown(const struct ledger_view *then, const struct ledger_view *now, struct core_key key,
                       bool unit, struct ledger_found *out);
void ledger_view_prefetch(const struct ledger_view *v, struct core_key idem,
                          struct core_key id); /* a hint */
bool ledger_gen_found_unit(const struct ledger_gen *g, struct core_key key, struct ledger_found *out);
bool ledger_gen_found_entry(const struct ledger_gen *g, struct core_key key, struct ledger_found *out);

/* Freezes the open generation and appends a new one; ERR_BUSY when INDEX_GENS_MAX are there, ERR_NO_MEMORY. */
NODISCARD enum err ledger_index_open_generation(struct ledger_index *x, uint64_t number, uint64_t first_seq,
                                                uint32_t capacity);
/* In one step: removes `gen` (may be NULL) and the runs of `gone`, adds `run` (may be NULL; its reference is taken over). */
NODISCARD enum err ledger_index_replace(struct ledger_index *x, struct ledger_gen *gen,
                                        struct ledger_run *const *gone, size_t n_gone,
                                        struct ledger_run *run);

NODISCARD enum err ledger_run_open(struct store_disk *disk, const char *path, uint32_t number, bool deep,
                                   struct ledger_run **out) RT_BLOCKS;
void ledger_run_ref(struct ledger_run *r);
void ledger_run_unref(struct ledger_run *r);

#endif
