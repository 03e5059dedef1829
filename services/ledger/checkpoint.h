/*
 * Checkpoints: what is derived from the journal, written down so that opening need not read all of it.
 *
 * A frozen generation whose last entry is durable becomes: tree levels and group table grown to its end, one index run, one
 * state run (last value per key), then a manifest that names them all (temp, fsync, rename, fsync of the folder). Only then is
 * the memory let go. Four runs of a tier merge into one of the next, in slices, short merges first, so that neither a complete
 * generation nor a short merge waits for the merge of a long history. Files that no retained manifest names are removed.
 *
 * Damage to anything here is never fatal: an older manifest is taken, or everything is rebuilt from the journal.
 *
 *   manifest  canonical JSON {"entries","files":[{"bytes","name","sha256"}],"group_no","ledger_id","ledger_ms","offset","root",
 *             "segment","v"}, newline, 8 hex digits CRC-32C of that JSON.   sha256: of header and footer of runs, else absent
 *
 * Threads     load while opening; write by the checkpointer (or by opening, before there is one).
 */
#ifndef RON_LEDGER_CHECKPOINT_H
#define RON_LEDGER_CHECKPOINT_H

#include "services/ledger/ledger.h"

struct ledger_checkpoint {
    bool there;
    uint64_t entries, group_no, ledger_ms;
    struct core_place end; /* behind the last frame it covers */
    struct sha256 root;
};

/* Loads the newest good manifest: columns, index runs, state. *out.there is false when there is none. */
NODISCARD enum err ledger_checkpoint_load(struct ledger *l, struct ledger_checkpoint *out) RT_BLOCKS;

/* Writes a complete generation. Frees the log on success; after a failure it may be tried again. */
NODISCARD enum err ledger_checkpoint_write(struct ledger *l, struct ledger_gen_log *log) RT_BLOCKS;
void ledger_gen_log_free(struct ledger_gen_log *log);

/* One slice of merging: about a megabyte. *out_more is false when there is nothing to merge. A failure gives that merge up. */
NODISCARD enum err ledger_checkpoint_merge(struct ledger *l, bool *out_more) RT_BLOCKS;
/* True: whoever has more generations to write does a slice first. So merging keeps up with a stream that never pauses. */
bool ledger_checkpoint_merge_owed(const struct ledger *l);
NODISCARD enum err ledger_checkpoint_merge_all(struct ledger *l) RT_BLOCKS;

/* Asked before every piece that is read; false: it may stop. */
struct ledger_reread {
    bool (*go_on)(void *ctx, size_t bytes);
    void *ctx;
};
/* Reads the index runs again. ERR_CORRUPT: one is wrong; it was put aside, and the ledger is in safe mode. ERR_CANCELED: stopped. */
NODISCARD enum err ledger_checkpoint_reread(struct ledger *l, struct ledger_reread pace) RT_BLOCKS;
/* A derived file turned out to be wrong: writing ends, it is put aside (.bad), the next start makes it anew. ERR_CORRUPT always. */
NODISCARD enum err ledger_checkpoint_rotten(struct ledger *l, const char *file, uint64_t at,
                                            const char *why) RT_BLOCKS;
void ledger_checkpoint_merge_drop(
    struct ledger *l) RT_BLOCKS; /* what is under way, if anything; before closing */

/* Opens the columns of an empty ledger (or of one to be rebuilt). */
NODISCARD enum err ledger_columns_open(struct ledger *l, uint64_t entries, uint64_t groups) RT_BLOCKS;

#endif
