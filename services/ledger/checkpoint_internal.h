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
 * With so many runs, merging comes before the next generation. Tiers hold three each once they are merged, and a tier is four times
 * the one below, so a dozen tiers are more entries than there will be; the rest is what may come in while one merge is under way.
 */
enum { CHECKPOINT_RUNS_MAX = STATE_RUNS_MAX, CHECKPOINT_RUNS_HIGH = 48 };

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
    struct checkpoint_merging *merging; /* NULL: none is under way */
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

/* A run file written from its first byte to its last, in flushed steps of 1 MiB: the committer shares the device. Errors stick. */
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
NODISCARD enum err ledger_checkpoint__write_run(struct ledger *l, const char *path, const void *p,
                                                size_t n) RT_BLOCKS;

/* The name of the run that is being made of others; false when none is. */
bool ledger_checkpoint__merging(const struct ledger *l, char out_name[64]);

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
