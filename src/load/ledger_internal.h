/* What the three steps of load/ledger.h share. */
#ifndef RON_LOAD_LEDGER_INTERNAL_H
#define RON_LOAD_LEDGER_INTERNAL_H

#include "load/ledger.h"

enum load_ledger_kind { LOAD_MINT = 1, LOAD_TRANSFER = 3 }; /* numbers of proto/ron/ledger.proto */

struct load_ledger_slot {
    uint64_t turn;       /* which of its accounts is next */
    uint64_t first_unit; /* of the request under way */
    unsigned n_units;
    uint64_t page;   /* the first seq it reads */
    struct buf body; /* the request under way, to be sent again as it was */
};

struct load_record {
    uint64_t acked_seq, seen_seq; /* first seq of the unit; 0: not (yet) */
    uint32_t seen_entries;
    bool doubled;
};

struct load_ledger {
    const struct load_ledger_spec *spec;
    struct load_ledger_result *r;
    struct load_ledger_slot *slots;
    unsigned n_slots;
    bool oap;
    uint64_t *nonces;
    uint64_t next_entry, next_unit, next_account;
    char entry_head[32], unit_head[32], account_head[32]; /* fresh ones for every run */
    size_t unit_head_n;
    struct buf scratch;
    /* the record */
    struct load_record *units;
    size_t units_room;
    uint64_t first_seq; /* where reading begins: the lowest that a mint was given */
    uint64_t read_next, read_end;
};

/* Appends unit number next_unit to slot->body; from == to for a mint. */
void load_ledger__unit_begin(struct load_ledger *l, struct load_ledger_slot *s);
void load_ledger__entry(struct load_ledger *l, enum load_ledger_kind kind, uint64_t from, uint64_t to,
                        uint64_t amount, uint64_t nonce);
void load_ledger__unit_end(struct load_ledger *l, struct load_ledger_slot *s);
void load_ledger__body_begin(struct load_ledger *l, struct load_ledger_slot *s);
void load_ledger__body_end(struct load_ledger *l, struct load_ledger_slot *s);

/* fn for each result of an ingest answer, in order; false: it was no such answer. */
typedef void load_ledger_result_fn(struct load_ledger *l, uint64_t unit, bool committed,
                                   uint64_t seq_start);
bool load_ledger__results(struct load_ledger *l, const struct load_ledger_slot *s, struct bytes body,
                          load_ledger_result_fn *fn);

/* A page of the log: fn for each entry. */
typedef void load_ledger_entry_fn(struct load_ledger *l, uint64_t seq, uint64_t unit_seq,
                                  struct str idem_id);
bool load_ledger__entries(struct load_ledger *l, struct bytes body, load_ledger_entry_fn *fn,
                          uint64_t *out_last, uint64_t *out_head);

bool load_ledger__record_room(struct load_ledger *l);
/* Reads the log and fills in found, doubled, moved, unasked. */
NODISCARD enum err load_ledger__check(struct load_ledger *l, size_t first_addr);

#endif
