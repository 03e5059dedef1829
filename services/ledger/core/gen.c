#include "services/ledger/core/gen.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

/* Reserved, not touched: an idle ledger must stay small. */
static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void release(void *p, size_t bytes)
{
    if (p != NULL)
        CHECK(munmap(p, bytes) == 0);
}

static void gen_free(struct ledger_gen *g)
{
    release(g->unit_slots, (g->mask + 1) * sizeof *g->unit_slots);
    release(g->entry_slots, (g->mask + 1) * sizeof *g->entry_slots);
    release(g->units, g->capacity * sizeof *g->units);
    release(g->entries, g->capacity * sizeof *g->entries);
    free(g);
}

struct ledger_gen *ledger_gen_create(uint64_t number, uint64_t first_seq, uint32_t capacity)
{
    struct ledger_gen *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    uint64_t slots = 64;
    while (slots * 3 < (uint64_t)capacity * 4)
        slots *= 2;
    atomic_init(&g->refs, 1);
    g->capacity = capacity;
    g->number = number;
    g->first_seq = first_seq;
    g->mask = slots - 1;
    g->unit_slots = reserve(slots * sizeof *g->unit_slots);
    g->entry_slots = reserve(slots * sizeof *g->entry_slots);
    g->units = reserve(capacity * sizeof *g->units);
    g->entries = reserve(capacity * sizeof *g->entries);
    if (g->unit_slots == NULL || g->entry_slots == NULL || g->units == NULL || g->entries == NULL) {
        gen_free(g);
        return NULL;
    }
    return g;
}

void ledger_gen_ref(struct ledger_gen *g)
{
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
}

void ledger_gen_unref(struct ledger_gen *g)
{
    if (atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) == 1)
        gen_free(g);
}

uint64_t ledger_gen_last_seq(const struct ledger_gen *g)
{
    return g->first_seq + atomic_load_explicit(&g->n_entries, memory_order_acquire) - 1;
}

/* Keys are hashes already: the low bits choose the slot, other bits are the tag. */
static uint64_t slot_word(struct core_key k, uint32_t index)
{
    return (k.w[1] & 0xffffffff00000000u) | (index + 1);
}

static void slot_insert(_Atomic uint64_t *slots, uint64_t mask, struct core_key k, uint32_t index)
{
    uint64_t at = k.w[0] & mask;
    while (atomic_load_explicit(&slots[at], memory_order_relaxed) != 0)
        at = (at + 1) & mask;
    atomic_store_explicit(&slots[at], slot_word(k, index),
                          memory_order_release); /* pairs with find's acquire */
}

uint32_t ledger_gen_add_unit(struct ledger_gen *g, struct core_key key, const struct sha256 *fp,
                             uint64_t seq, uint32_t n)
{
    uint32_t i = atomic_load_explicit(&g->n_units, memory_order_relaxed);
    CHECK(i < g->capacity);
    struct ledger_gen_unit *u = &g->units[i];
    u->key = key;
    u->fp = *fp;
    u->seq = seq;
    u->n = n;
    slot_insert(g->unit_slots, g->mask, key, i);
    atomic_store_explicit(&g->n_units, i + 1, memory_order_release);
    return i;
}

void ledger_gen_add_entry(struct ledger_gen *g, struct core_key key, uint64_t seq, uint32_t unit,
                          enum core_kind kind)
{
    uint32_t i = atomic_load_explicit(&g->n_entries, memory_order_relaxed);
    CHECK(i < g->capacity && seq == g->first_seq + i);
    struct ledger_gen_entry *e = &g->entries[i];
    e->key = key;
    e->seq = seq;
    e->unit = unit;
    e->kind = (uint8_t)kind;
    slot_insert(g->entry_slots, g->mask, key, i);
    atomic_store_explicit(&g->n_entries, i + 1, memory_order_release);
}

void ledger_gen_set_place(struct ledger_gen *g, uint32_t unit, struct core_place place)
{
    atomic_store_explicit(&g->units[unit].place, (uint64_t)place.segment << 32 | place.offset,
                          memory_order_relaxed);
}

const struct ledger_gen_unit *ledger_gen_find_unit(const struct ledger_gen *g, struct core_key key)
{
    uint64_t word;
    for (uint64_t at = key.w[0] & g->mask;
         (word = atomic_load_explicit(&g->unit_slots[at], memory_order_acquire)) != 0;
         at = (at + 1) & g->mask) {
        if (((word ^ key.w[1]) >> 32) == 0 && core_key_eq(g->units[(uint32_t)word - 1].key, key))
            return &g->units[(uint32_t)word - 1];
    }
    return NULL;
}

const struct ledger_gen_entry *ledger_gen_find_entry(const struct ledger_gen *g, struct core_key key)
{
    uint64_t word;
    for (uint64_t at = key.w[0] & g->mask;
         (word = atomic_load_explicit(&g->entry_slots[at], memory_order_acquire)) != 0;
         at = (at + 1) & g->mask) {
        if (((word ^ key.w[1]) >> 32) == 0 && core_key_eq(g->entries[(uint32_t)word - 1].key, key))
            return &g->entries[(uint32_t)word - 1];
    }
    return NULL;
}

void ledger_gen_prefetch(const struct ledger_gen *g, struct core_key idem, struct core_key id)
{
    __builtin_prefetch((char *)(uintptr_t)&g->unit_slots[idem.w[0] & g->mask], 1);
    __builtin_prefetch((char *)(uintptr_t)&g->entry_slots[id.w[0] & g->mask], 1);
}
