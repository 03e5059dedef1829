/*
 * Reading a usage snapshot (JSON or NDJSON) into canonical rows.
 *
 * The header members go through the reader of requests; rows go through a strict reader of our own that never recurses, because a
 * snapshot is nearly all rows. Sorting replaces hashing when duplicates are looked for, so no choice of accounts can
 * make it slow.
 *
 * Ownership   The result owns its canonical bytes (free with rewarder_snapshot_fini); the input is only borrowed.
 * Threads     Pure.
 * Memory      While parsing: the canonical bytes twice and 32 bytes per row; afterwards the canonical bytes once.
 */
#ifndef RON_REWARDER_CORE_SNAPSHOT_H
#define RON_REWARDER_CORE_SNAPSHOT_H

#include "services/rewarder/core/rows.h"

enum rewarder_media { REWARDER_JSON, REWARDER_NDJSON };

struct rewarder_snapshot {
    struct rewarder_rows rows; /* view of canonical.p */
    uint8_t *canonical;
    size_t canonical_bytes;
};

/* Where and why a snapshot was refused. `line` counts lines (NDJSON) or rows (JSON) from 1; 0: the whole file. */
struct rewarder_snapshot_error {
    uint64_t line, other_line;
    char member[REWARDER_DIM_MAX + 1]; /* "" when none */
    const char *reason;                /* static text */
};

/* ERR_BAD_SNAPSHOT, ERR_DUPLICATE_ACCOUNT, ERR_TOO_MANY_ROWS, ERR_NO_MEMORY. */
NODISCARD enum err rewarder_snapshot_parse(struct bytes raw, enum rewarder_media media, uint64_t rows_max,
                                           struct rewarder_snapshot *out,
                                           struct rewarder_snapshot_error *out_err);
/* Told now and then how far the reading is, in bytes: millions of rows take longer than a worker may be silent. */
struct rewarder_watcher {
    void (*fn)(void *ctx, uint64_t done, uint64_t of);
    void *ctx;
};
NODISCARD enum err rewarder_snapshot_parse_watched(struct bytes raw, enum rewarder_media media,
                                                   uint64_t rows_max,
                                                   const struct rewarder_watcher *watcher,
                                                   struct rewarder_snapshot *out,
                                                   struct rewarder_snapshot_error *out_err);
void rewarder_snapshot_fini(struct rewarder_snapshot *s);

/*
 * The row reader alone: one row of `dims` numbers at *p, blanks (and newlines when `multiline`) around tokens allowed.
 * On success *p is just after the closing bracket. NULL, or the reason it was refused.
 */
const char *rewarder_row_read(const uint8_t **p, const uint8_t *end, unsigned dims, bool multiline,
                              uint8_t account[REWARDER_ACCOUNT_MAX], size_t *out_account_n,
                              uint64_t *usage);

#endif
