/*
 * What the parts of the ledger's verification share: the books it keeps while it reads the journal, and where it is.
 *
 *     segment.c  ──►  unit.c  ──►  books.c        frames, then units, then rows and the tree
 *     state.c                                     at the end: sums, digest
 *     reach.c                                     what the journal must at least hold
 *     note.c                                      signed heads and proofs; needs no journal
 *     consistency.c                               the proof that heads an export
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

struct verify_tree {
    uint64_t n;
    struct sha256 front[64]; /* one per 1-bit of n */
};

struct verify_reach {
    uint32_t segment;                 /* the last */
    uint64_t groups, leaves, entries; /* as the group table, the tree and the newest manifest have them */
    bool clean;                       /* the last orderly stop was here: */
    uint64_t clean_seq, clean_group;
    struct sha256 root;
};

struct verify {
    struct ledger_verify_report *r;
    const char *dir;
    struct verify_reach reach;
    uint32_t align, segment_bytes;
    uint8_t ledger_id[16];
    struct verify_table rows, lanes, supply, holds, units, ids, reversals;
    struct verify_tree tree; /* over the entries read so far */
    struct sha256 root;
    uint64_t note_size; /* of the signed head, if there is one */
    struct sha256 note_root;
    bool note_met; /* the tree had that root at that size */
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
void verify_tree_add(struct verify_tree *t, struct sha256 h);
void verify_tree_root(const struct verify_tree *t, struct sha256 *out);

/* The unit at `p`; its length goes to *out_len. */
bool verify_unit(struct verify *c, const uint8_t *p, size_t left, uint64_t ms, uint32_t *out_len);

/* A whole file, or NULL; to be freed. */
uint8_t *verify_slurp(const char *path, size_t *out_n);
bool verify_segment_exists(const struct verify *c, uint32_t no);
/* Unpacked if need be; NULL: it cannot be read, or is damaged (then verify_wrong() was called). */
uint8_t *verify_segment_read(struct verify *c, uint32_t no, size_t *out_n);
/* One segment; *out_end: nothing more follows. */
bool verify_segment(struct verify *c, const uint8_t *p, size_t n, bool last, bool *out_end);

/* Before the first segment, and after the last. */
void verify_reach(struct verify *c);
bool verify_reached(struct verify *c);

/* After the last segment: fills the report. */
bool verify_state(struct verify *c);

/* Only a group's end is ever signed: called at each of them, and before the first. */
void verify_meets_note(struct verify *c);

/* What a note says, whoever signed it. ERR_SYNTAX */
NODISCARD enum err verify_note_read(struct str note, struct str *out_origin, uint64_t *out_size,
                                    struct sha256 *out_root);
/* ERR_OK: signed by that key. */
NODISCARD enum err verify_note(struct str note, struct str vkey, uint64_t *out_size,
                               struct sha256 *out_root);

/*
 * RFC 9162 §2.1.4.1 for one pass over the leaves: the proof that the tree of `from` leaves is the beginning of that of `to` is a
 * list of roots over ranges of leaves that do not overlap. Which ranges is known before the first leaf.
 */
enum { VERIFY_RANGES_MAX = 128 };
struct verify_range {
    uint64_t first, n;
    struct verify_tree tree;
};
struct verify_consistency {
    uint64_t from, to;
    struct verify_tree all;
    struct sha256 from_root, to_root;
    size_t n;
    struct verify_range v[VERIFY_RANGES_MAX];
};
void verify_consistency_begin(struct verify_consistency *p, uint64_t from, uint64_t to); /* from <= to */
void verify_consistency_add(struct verify_consistency *p, const struct sha256 *leaf);    /* the next one */

#endif
