/*
 * An append-only array of fixed-size records: its young end in memory, the rest in a file. Tree levels and the group table
 * are columns.
 *
 * Threads     One appender. One flusher, which writes [flushed, upto) to the file and then lets the memory go. Anybody reads.
 *             Readers take no lock: they copy a record out of memory and then look whether it was flushed meanwhile; if so
 *             the chunk may have been reused, and the file has the truth. Chunks are recycled, never unmapped.
 * Memory      Chunks for what is not flushed; at most `chunks_max`. Without a file (amnesia) everything stays.
 * Order       A reader may only ask for records below a count that was published after they were appended (release).
 */
#ifndef RON_LEDGER_COLUMN_H
#define RON_LEDGER_COLUMN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "rt/lock.h"
#include "store/disk.h"

struct ledger_column {
    uint32_t record;            /* bytes, a multiple of 8 */
    uint32_t chunk;             /* records per chunk, a power of two */
    uint32_t slots;             /* ring of chunks, a power of two */
    uint64_t n;                 /* appended (the appender's own) */
    _Atomic uint64_t flushed;   /* in the file; stored by the flusher, acquired by readers */
    _Atomic(uint64_t *) *ring;  /* chunk i lives in ring[i % slots] */
    _Atomic(uint64_t *) *spare; /* ring of chunks given back: flusher pushes, appender pops */
    _Atomic uint32_t spare_in, spare_out;
    struct store_file *file; /* NULL: memory only */
};

/* `file` may be NULL; else it holds `flushed` good records. The column closes it. */
NODISCARD enum err ledger_column_init(struct ledger_column *c, uint32_t record, uint32_t chunk,
                                      uint32_t slots, struct store_file *file, uint64_t flushed);
void ledger_column_fini(struct ledger_column *c) RT_BLOCKS;

bool ledger_column_has_room(const struct ledger_column *c, uint64_t more);
/* ERR_NO_MEMORY, ERR_BUSY when the ring is full (the flusher is behind). */
NODISCARD enum err ledger_column_append(struct ledger_column *c, const void *record);
/* ERR_RANGE past the end; else what reading the file says. */
NODISCARD enum err ledger_column_get(const struct ledger_column *c, uint64_t index, void *out) RT_BLOCKS;
/* `count` records from `index` on. */
NODISCARD enum err ledger_column_get_many(const struct ledger_column *c, uint64_t index, uint64_t count,
                                          void *out) RT_BLOCKS;

/* Flusher: writes up to `upto` (a published count) and syncs; then ledger_column_flushed() frees the memory. */
NODISCARD enum err ledger_column_flush(struct ledger_column *c, uint64_t upto) RT_BLOCKS;
void ledger_column_forget(struct ledger_column *c, uint64_t upto);

#endif
