/*
 * What the files of the checkpoint share. Nobody else includes this.
 *
 *   checkpoint.c           a generation written down: columns, one index run, one state run
 *   checkpoint_runs.c      names and bytes of run files
 *   checkpoint_merge.c     four runs of a tier become one
 *   checkpoint_manifest.c  what a manifest says, and which files it keeps alive
 *   checkpoint_scrub.c     index runs read again
 *   checkpoint_load.c      the newest good manifest, put in place
 */
#ifndef RON_LEDGER_CHECKPOINT_INTERNAL_H
#define RON_LEDGER_CHECKPOINT_INTERNAL_H

#include "base/arena.h"
#include "base/json_read.h"
#include "services/ledger/checkpoint.h"
#include "services/ledger/core/state_run.h"

/*
 * How many runs there can be of a kind, whatever the history. A tier holds four that become one of the next, and three that came in
 * meanwhile; nothing is put into a tier that holds seven before four of them are one (checkpoint_merge.c). A tier is four times the
 * one below: the last is reached after four million generations, and what is merged there stays there.
 */
enum {
    CHECKPOINT_TIER_RUNS = 4,
    CHECKPOINT_TIER_MAX = 2 * CHECKPOINT_TIER_RUNS - 1,
    CHECKPOINT_TIERS = 12,
    CHECKPOINT_RUNS_MAX = CHECKPOINT_TIERS * CHECKPOINT_TIER_MAX
};
_Static_assert((int)CHECKPOINT_RUNS_MAX <= (int)STATE_RUNS_MAX &&
                   (int)CHECKPOINT_RUNS_MAX <= (int)INDEX_RUNS_MAX,
               "a view and a load hold them all");

/* Numbered files: prefix, digits, suffix. */
struct checkpoint_name {
    const char *prefix;
    int digits;
    const char *suffix;
};
extern const struct checkpoint_name ledger_checkpoint__level, ledger_checkpoint__index,
    ledger_checkpoint__state, ledger_checkpoint__manifest;
void ledger_checkpoint__name(char out[64], const struct checkpoint_name *k, uint64_t n);
void ledger_checkpoint__path(const struct ledger *l, char out[STORE_PATH_MAX],
                             const struct checkpoint_name *k, uint64_t n);

/* ---- runs: what is on disk now, oldest first ---- */

struct checkpoint_run {
    uint32_t number, tier;
    uint64_t bytes;
    struct sha256 sha256; /* of header and footer */
};
struct ledger_runs {
    struct checkpoint_run index[CHECKPOINT_RUNS_MAX], state[CHECKPOINT_RUNS_MAX];
    uint32_t n_index, n_state, next_number;
    struct checkpoint_merging
        *merging[2][CHECKPOINT_TIERS]; /* of index and state, by the tier of what goes in */
    uint64_t owed; /* slices of merging before the next generation (ledger_checkpoint_merge_owed) */
};
struct ledger_runs *ledger_checkpoint__runs(struct ledger *l); /* made when first asked for */
void ledger_checkpoint__ends(const uint8_t *p, size_t n, size_t footer, struct sha256 *out);

/* A run's bytes: mapped from the disk, or read. */
struct checkpoint_bytes {
    void *p;
    size_t n;
    bool mapped;
};
NODISCARD enum err ledger_checkpoint__map(struct ledger *l, const char *path,
                                          struct checkpoint_bytes *out) RT_BLOCKS;
void ledger_checkpoint__unmap(struct checkpoint_bytes *b);

/*
 * A run file written from its first byte to its last, in steps of 1 MiB that are on the device before the next: the committer shares
 * it. Durable when closed. Errors stick.
 */
struct checkpoint_out {
    struct ledger *l;
    struct store_file *file;
    uint8_t *piece;
    size_t held;
    uint64_t at;
    enum err err;
};
void ledger_checkpoint__out_open(struct ledger *l, const char *path, struct checkpoint_out *out) RT_BLOCKS;
void ledger_checkpoint__out_put(struct checkpoint_out *out, const void *p, size_t n) RT_BLOCKS;
/* Other bytes at the front, where as many were put: what is known at the end only. */
void ledger_checkpoint__out_front(struct checkpoint_out *out, const void *p, size_t n) RT_BLOCKS;
NODISCARD enum err ledger_checkpoint__out_close(struct checkpoint_out *out, const char *path) RT_BLOCKS;
void ledger_checkpoint__out_drop(
    struct checkpoint_out *out) RT_BLOCKS; /* the file stays as it is; again is fine */
/* What could not be written whole, or is not needed after all. */
void ledger_checkpoint__unwrite(struct ledger *l, const char *path) RT_BLOCKS;
NODISCARD enum err ledger_checkpoint__write_run(struct ledger *l, const char *path, const void *p,
                                                size_t n) RT_BLOCKS;

/* The names of the runs that are being made of others; how many. */
enum { CHECKPOINT_MERGES_MAX = 2 * CHECKPOINT_TIERS };
size_t ledger_checkpoint__merging(const struct ledger *l, char out_names[CHECKPOINT_MERGES_MAX][64]);

/* A generation was written down: merging is owed for it. */
void ledger_checkpoint__merge_owe(struct ledger *l, uint64_t index_bytes, uint64_t state_bytes);
/* Merges until there is room for one more generation. */
NODISCARD enum err ledger_checkpoint__merge_room(struct ledger *l) RT_BLOCKS;

/* ---- manifests ---- */

struct checkpoint_file {
    struct str name;
    uint64_t bytes;
    struct sha256 sha256;
    bool has_sha256;
};
struct checkpoint_manifest {
    uint64_t entries, group_no, ledger_ms, offset, segment, v;
    struct json_list files;
    struct str ledger_id;
    struct sha256 root;
};
struct checkpoint_list {
    uint64_t v[1024]; /* newest first */
    size_t n;
};
NODISCARD enum err ledger_checkpoint__write_manifest(struct ledger *l, uint64_t entries,
                                                     const struct ledger_group_row *g,
                                                     struct core_place end) RT_BLOCKS;
NODISCARD enum err ledger_checkpoint__read_manifest(struct ledger *l, uint64_t entries, struct arena *a,
                                                    struct checkpoint_manifest *out) RT_BLOCKS;
NODISCARD enum err ledger_checkpoint__list(struct ledger *l, struct checkpoint_list *out) RT_BLOCKS;
/* Removes manifests beyond checkpoint.retain, and every run that none of the others names. */
void ledger_checkpoint__retain(struct ledger *l) RT_BLOCKS;

#endif
