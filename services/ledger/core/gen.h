/*
 * A generation: the idempotency keys and entry ids of a stretch of the log, in RAM, until they are in an index run.
 *
 * Two insert-only tables (units by idem key with fingerprint, entries by id key). Slots hold a tag and an index into a dense
 * array of records, so a miss costs one cache line and a hit two.
 *
 * Threads     The sequencer inserts. The committer fills in where a unit lies, before it publishes the head. Anybody may look
 *             up at any time; a place is only meaningful for a seq that is durable.
 * Memory      All of it is reserved by create, touched as it fills.
 */
#ifndef RON_LEDGER_CORE_GEN_H
#define RON_LEDGER_CORE_GEN_H

#include <stdatomic.h>

#include "services/ledger/core/canon.h"

/* Where a unit record lies: segment and offset in the image of the segment. */
struct core_place {
    uint32_t segment, offset;
};

struct ledger_gen_unit {
    struct core_key key;
    struct sha256 fp;
    uint64_t seq; /* of the first entry */
    uint32_t n;
    _Atomic uint64_t place; /* segment << 32 | offset, written by the committer */
};

struct ledger_gen_entry {
    struct core_key key;
    uint64_t seq;
    uint32_t unit; /* index of its unit in this generation */
    uint8_t kind;
};

struct ledger_gen {
    _Atomic uint32_t refs;
    uint32_t capacity; /* entries (and so units) */
    uint64_t number, first_seq;
    _Atomic uint32_t n_units, n_entries;
    _Atomic bool frozen;
    uint64_t mask;
    _Atomic uint64_t *unit_slots, *entry_slots;
    struct ledger_gen_unit *units;
    struct ledger_gen_entry *entries;
};

struct ledger_gen *ledger_gen_create(uint64_t number, uint64_t first_seq,
                                     uint32_t capacity); /* NULL without memory */
void ledger_gen_ref(struct ledger_gen *g);
void ledger_gen_unref(struct ledger_gen *g);
uint64_t ledger_gen_last_seq(const struct ledger_gen *g); /* first_seq - 1 when empty */
static inline uint32_t ledger_gen_room(const struct ledger_gen *g)
{
    return g->capacity - atomic_load_explicit(&g->n_entries, memory_order_relaxed);
}

/* CHECKs room; the key must not be there. Returns the index of the unit for ledger_gen_add_entry and set_place. */
uint32_t ledger_gen_add_unit(struct ledger_gen *g, struct core_key key, const struct sha256 *fp,
                             uint64_t seq, uint32_t n);
void ledger_gen_add_entry(struct ledger_gen *g, struct core_key key, uint64_t seq, uint32_t unit,
                          enum core_kind kind);
void ledger_gen_set_place(struct ledger_gen *g, uint32_t unit, struct core_place place);

const struct ledger_gen_unit *ledger_gen_find_unit(const struct ledger_gen *g, struct core_key key);
const struct ledger_gen_entry *ledger_gen_find_entry(const struct ledger_gen *g, struct core_key key);
void ledger_gen_prefetch(const struct ledger_gen *g, struct core_key idem, struct core_key id);

static inline struct core_place ledger_gen_place(const struct ledger_gen_unit *u)
{
    uint64_t v = atomic_load_explicit(&u->place, memory_order_relaxed); /* ordered by the published head */
    return (struct core_place){(uint32_t)(v >> 32), (uint32_t)v};
}

#endif
