/*
 * A state run: the last value of every key that changed in a stretch of the log, sorted.
 *
 *   0 "RONLSTA1" | 8 version u32 = 1 | 12 tier u32 | 16 n u64 | 24 as_of_seq u64 | 32 zero[28] | 60 CRC-32C of 0..59
 *   64 n × ( type u8 | key_len u16 | key | val_len u16 | value ), by type, key
 *   CRC-32C of the records | "RSTA"
 *
 * An empty value says that the key is gone; the oldest run needs none. Runs merge by taking the newest value of each key.
 *
 * Ownership   Runs and cursors are views of the file's bytes.
 * Threads     Pure.
 */
#ifndef RON_LEDGER_CORE_STATE_RUN_H
#define RON_LEDGER_CORE_STATE_RUN_H

#include "base/buf.h"
#include "services/ledger/core/state.h"

enum { STATE_RUN_HEADER = 64, STATE_RUN_FOOTER = 8, STATE_RUNS_MAX = 96 };

struct ledger_state_run {
    const uint8_t *p;
    size_t bytes;
    uint32_t tier;
    uint64_t n, as_of_seq;
    uint64_t n_rows; /* of the records, balances */
};

/* One record in its bytes. */
struct ledger_state_item {
    uint8_t type;
    struct bytes key, value;
};
int ledger_state_item_cmp(const struct ledger_state_item *a,
                          const struct ledger_state_item *b); /* type, key */

void ledger_state_run_begin(struct buf *out); /* room for the header */
void ledger_state_run_put(struct buf *out, const struct ledger_state_item *it);
void ledger_state_run_end(struct buf *out, uint32_t tier, uint64_t n, uint64_t as_of_seq);
/* For a run that is never in memory as a whole: its ends, once its records are known. */
void ledger_state_run_header(uint32_t tier, uint64_t n, uint64_t as_of_seq, uint8_t out[STATE_RUN_HEADER]);
void ledger_state_run_footer(uint32_t records_crc, uint8_t out[STATE_RUN_FOOTER]);

/* ERR_CORRUPT, ERR_VERSION; checks every byte and the order. */
NODISCARD enum err ledger_state_run_open(const uint8_t *p, size_t bytes, struct ledger_state_run *out);

/*
 * Walks several runs, oldest first in `runs`, as one: each key once, newest value. A heap of their next records: one long run
 * beside many short ones costs two comparisons a record, however many they are.
 */
struct ledger_state_merge {
    const struct ledger_state_run *runs;
    size_t n; /* in the heap: runs that have records left */
    uint8_t heap[STATE_RUNS_MAX];
    struct ledger_state_item head[STATE_RUNS_MAX]; /* by run: the next record, */
    size_t next[STATE_RUNS_MAX];                   /* where the one behind it starts, */
    uint64_t left[STATE_RUNS_MAX];                 /* and how many there are with it */
};
void ledger_state_merge_init(struct ledger_state_merge *m, const struct ledger_state_run *runs, size_t n);
bool ledger_state_merge_next(struct ledger_state_merge *m, struct ledger_state_item *out);

#endif
