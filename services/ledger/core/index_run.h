/*
 * An index run: the keys of a stretch of the log on disk, sorted, with a filter that says no for almost every key that is not
 * there. Integers little-endian, CRC = CRC-32C.
 *
 *   0 "RONLIDX1" | 8 version u32 = 1 | 12 tier u32 | 16 n u64 | 24 first_seq u64 | 32 last_seq u64 | 40 filter_blocks u64
 *   48 zero[12] | 60 CRC of 0..59
 *   64 n × ( key[16] | seq u64 | segment u32 | offset u32 of the unit record ), by key, seq
 *   samples: first 8 key bytes of every 128th record
 *   filter: ceil(n/32) blocks of 512 bits
 *   CRC of records | CRC of samples | CRC of filter | "RIDX"
 *
 * Filter: block = (LE64(key[0..8]) × blocks) >> 64; the 7 bits (LE64(key[8..16]) >> 9i) & 511, i = 0..6.
 *
 * Ownership   A run is a view of the file's bytes (mapped or read). Building writes into a caller's buffer.
 * Threads     Pure.
 */
#ifndef RON_LEDGER_CORE_INDEX_RUN_H
#define RON_LEDGER_CORE_INDEX_RUN_H

#include "services/ledger/core/gen.h"

enum { INDEX_RUN_HEADER = 64, INDEX_RUN_FOOTER = 16, INDEX_RUN_RECORD = 32, INDEX_RUN_SAMPLE = 128 };

struct ledger_index_item {
    struct core_key key;
    uint64_t seq;
    struct core_place place;
};

struct ledger_index_run {
    const uint8_t *p;
    size_t bytes;
    uint32_t tier;
    uint64_t n, first_seq, last_seq, filter_blocks;
    const uint8_t *records, *samples, *filter;
};

size_t ledger_index_run_bytes(uint64_t n);
int ledger_index_item_order(const void *a, const void *b);
/* Sorts n items from `items` into `out`. ERR_NO_MEMORY: nothing happened. */
NODISCARD enum err ledger_index_sort(const struct ledger_index_item *items, uint64_t n,
                                     struct ledger_index_item *out); /* for qsort: key, then seq */
/*
 * A run made piece by piece, in the order of its bytes: header, records in order (put gives the bytes of each), samples, filter,
 * footer. Samples and filter are made in memory that the caller lends (zeroed, ledger_index_tail_bytes(n)), about two bytes per
 * record: they stand there as in the file.
 */
struct ledger_index_build {
    uint64_t n, at;
    uint8_t *samples, *filter;
    size_t samples_bytes, filter_bytes;
    uint32_t records_crc;
};
size_t ledger_index_tail_bytes(uint64_t n);
void ledger_index_build_begin(struct ledger_index_build *b, uint64_t n, uint8_t *tail);
void ledger_index_build_header(const struct ledger_index_build *b, uint32_t tier, uint64_t first_seq,
                               uint64_t last_seq, uint8_t out[INDEX_RUN_HEADER]);
void ledger_index_build_put(struct ledger_index_build *b, const struct ledger_index_item *it,
                            uint8_t out[INDEX_RUN_RECORD]);
void ledger_index_build_prefetch(const struct ledger_index_build *b, struct core_key key); /* put soon */
void ledger_index_build_footer(const struct ledger_index_build *b, uint8_t out[INDEX_RUN_FOOTER]);

/* The same in one go, into a buffer of ledger_index_run_bytes(n); `items` in order. */
void ledger_index_run_build(const struct ledger_index_item *items, uint64_t n, uint32_t tier,
                            uint64_t first_seq, uint64_t last_seq, uint8_t *out);
/* Where the parts lie in a file of so many bytes, and what their checksums are, from its ends alone. ERR_CORRUPT, ERR_VERSION. */
enum { INDEX_RUN_PARTS = 3 };
struct ledger_index_layout {
    struct {
        uint64_t at, bytes;
        uint32_t crc;
    } part[INDEX_RUN_PARTS]; /* records, samples, filter */
};
NODISCARD enum err ledger_index_layout(const uint8_t header[INDEX_RUN_HEADER],
                                       const uint8_t footer[INDEX_RUN_FOOTER], uint64_t bytes,
                                       struct ledger_index_layout *out);
/* ERR_CORRUPT, ERR_VERSION. `deep` also checks the CRC of every part and the order of the records. */
NODISCARD enum err ledger_index_run_open(const uint8_t *p, size_t bytes, bool deep,
                                         struct ledger_index_run *out_run);
void ledger_index_run_item(const struct ledger_index_run *r, uint64_t i, struct ledger_index_item *out);
/* Brings what run_maybe will look at nearer. */
void ledger_index_run_prefetch(const struct ledger_index_run *r, struct core_key key);
bool ledger_index_run_maybe(const struct ledger_index_run *r, struct core_key key); /* the filter alone */
bool ledger_index_run_find(const struct ledger_index_run *r, struct core_key key,
                           struct ledger_index_item *out);

#endif
