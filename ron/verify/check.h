/*
 * What the parts of the ledger's verification share: the books it keeps while it reads the journal, and where it is.
 *
 *     segment.c  ──►  unit.c  ──►  books.c        frames, then units, then rows and the tree
 *     state.c                                     at the end: sums, digest
 *     note.c                                      signed heads and proofs; needs no journal
 *
 * Everything is kept in chained tables by text: slow, plain, and nothing like the service.
 *
 * Ownership   ledger_verify() owns the one struct verify; items belong to their table.
 * Threads     One.
 * Memory      Out of it: abort(). This is an offline tool, and half a check is none.
 */
#ifndef RON_VERIFY_CHECK_H
#define RON_VERIFY_CHECK_H

#include <stdio.h>

#include "ron/ledger_verify.h"

typedef unsigned __int128 verify_u128; /* whole units; not the money type of the service */

struct verify_item {
    struct verify_item *next;
    verify_u128 a, b; /* available, held / counter / minted, burned / remaining, until / reversed */
    uint64_t seq;
    char kind, account[130], asset[34], to[130];
    verify_u128 amount;
    size_t key_n;
    char key[];
};

enum { VERIFY_BUCKETS = 1 << 16 };
struct verify_table {
    struct verify_item *v[VERIFY_BUCKETS];
    uint64_t n;
};

struct verify {
    struct ledger_verify_report *r;
    const char *dir;
    uint32_t align, segment_bytes;
    uint8_t ledger_id[16];
    struct verify_table rows, lanes, supply, holds, units, ids, reversals;
    struct sha256 front[64]; /* one per 1-bit of the size */
    uint64_t n;
    struct sha256 root;
    uint64_t group, last_ms;
    FILE *tree0;
    FILE *groups;
    ledger_verify_entry_fn *fn;
    void *ctx;
    char at_file[96];
    uint64_t at_byte;
    bool failed;
};

struct verify_item *verify_find(struct verify_table *t, const char *key, size_t n);
/* Found, or made with zeros. */
struct verify_item *verify_need(struct verify_table *t, const char *key, size_t n);
void verify_table_free(struct verify_table *t);

/* Notes the first thing that is wrong, at the current file and byte; returns false. */
bool verify_wrong(struct verify *c, const char *rule);

void verify_node(const struct sha256 *l, const struct sha256 *r, struct sha256 *out);
void verify_tree_add(struct verify *c, struct sha256 h);
void verify_tree_root(const struct verify *c, struct sha256 *out);

/* The unit at `p`; its length goes to *out_len. */
bool verify_unit(struct verify *c, const uint8_t *p, size_t left, uint64_t ms, uint32_t *out_len);

/* A whole file, or NULL; to be freed. */
uint8_t *verify_slurp(const char *path, size_t *out_n);
bool verify_segment_exists(const struct verify *c, uint32_t no);
/* Unpacked if need be; NULL: it cannot be read, or is damaged (then verify_wrong() was called). */
uint8_t *verify_segment_read(struct verify *c, uint32_t no, size_t *out_n);
/* One segment; *out_end: nothing more follows. */
bool verify_segment(struct verify *c, const uint8_t *p, size_t n, bool last, bool *out_end);

/* After the last segment: fills the report. */
bool verify_state(struct verify *c);

/* ERR_OK: signed by that key. */
NODISCARD enum err verify_note(struct str note, struct str vkey, uint64_t *size, struct sha256 *root);

#endif
