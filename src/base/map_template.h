/*
 * The table behind map.h, written once. A .c file defines MAP (struct tag and prefix), MAP_SLOT, MAP_KEY
 * and the five static functions below over them, then includes this. An empty slot is one whose value is
 * NULL.
 *
 *   uint64_t key_hash(MAP_KEY);  uint64_t slot_hash(const MAP_SLOT *);  bool slot_is(const MAP_SLOT *,
 * MAP_KEY, uint64_t); void slot_set(MAP_SLOT *, MAP_KEY, uint64_t, void *);  MAP_KEY slot_key(const
 * MAP_SLOT *);
 *
 * Lookup walks from the home slot (hash & mask) to the first empty one. Removal pulls later members of the
 * run back into the hole whenever the hole lies between their home and their place, so runs never hold gaps
 * and need no tombstones.
 */
#include <stdlib.h>

#include "base/check.h"

#define MAP_PASTE2(a, b) a##b
#define MAP_PASTE(a, b)  MAP_PASTE2(a, b)
#define MAP_FN(name)     MAP_PASTE(MAP, name)

enum { MAP_FIRST_SLOTS = 16 };

static bool table_alloc(struct MAP *m, size_t slots)
{
    m->slots = calloc(slots, sizeof *m->slots);
    m->mask = m->slots ? slots - 1 : 0;
    return m->slots != NULL;
}

/* Place of the key, or of the empty slot where it would go. The table has at least one empty slot. */
static size_t table_find(const struct MAP *m, MAP_KEY key, uint64_t hash)
{
    size_t i = (size_t)hash & m->mask;
    while (m->slots[i].value && !slot_is(&m->slots[i], key, hash))
        i = (i + 1) & m->mask;
    return i;
}

static enum err table_grow(struct MAP *m, size_t slots)
{
    struct MAP bigger = {.n = m->n};
    if (!table_alloc(&bigger, slots))
        return ERR_NO_MEMORY;
    for (size_t i = 0; m->slots && i <= m->mask; i++) {
        if (!m->slots[i].value)
            continue;
        size_t at = (size_t)slot_hash(&m->slots[i]) & bigger.mask;
        while (bigger.slots[at].value)
            at = (at + 1) & bigger.mask;
        bigger.slots[at] = m->slots[i];
    }
    free(m->slots);
    *m = bigger;
    return ERR_OK;
}

/* Puts what is not there yet; at is the empty slot where it would go, as long as there is room. */
static enum err table_insert(struct MAP *m, size_t at, MAP_KEY key, uint64_t hash, void *value)
{
    size_t slots = m->slots ? m->mask + 1 : 0;
    if (m->n + 1 > slots / 4 * 3) {
        enum err e = table_grow(m, slots ? slots * 2 : MAP_FIRST_SLOTS);
        if (e != ERR_OK)
            return e;
        at = table_find(m, key, hash);
    }
    slot_set(&m->slots[at], key, hash, value);
    m->n++;
    return ERR_OK;
}

static void table_delete(struct MAP *m, size_t hole)
{
    size_t at = hole;
    for (;;) {
        at = (at + 1) & m->mask;
        if (!m->slots[at].value)
            break;
        size_t home = (size_t)slot_hash(&m->slots[at]) & m->mask;
        if (((at - home) & m->mask) >= ((at - hole) & m->mask)) {
            m->slots[hole] = m->slots[at];
            hole = at;
        }
    }
    m->slots[hole].value = NULL;
    m->n--;
}

enum err MAP_FN(_init)(struct MAP *m, size_t expect)
{
    *m = (struct MAP){0};
    return MAP_FN(_reserve)(m, expect);
}

enum err MAP_FN(_reserve)(struct MAP *m, size_t expect)
{
    size_t slots = MAP_FIRST_SLOTS;
    while (expect > slots / 4 * 3)
        slots *= 2;
    return expect == 0 || (m->slots && slots <= m->mask + 1) ? ERR_OK : table_grow(m, slots);
}

void MAP_FN(_fini)(struct MAP *m)
{
    free(m->slots);
    *m = (struct MAP){0};
}

void MAP_FN(_clear)(struct MAP *m)
{
    if (m->slots)
        memset(m->slots, 0, (m->mask + 1) * sizeof *m->slots);
    m->n = 0;
}

size_t MAP_FN(_count)(const struct MAP *m)
{
    return m->n;
}

void *MAP_FN(_get)(const struct MAP *m, MAP_KEY key)
{
    if (m->n == 0)
        return NULL;
    return m->slots[table_find(m, key, key_hash(key))].value;
}

enum err MAP_FN(_add)(struct MAP *m, MAP_KEY key, void *value)
{
    CHECK(value != NULL);
    uint64_t hash = key_hash(key);
    size_t at = m->slots ? table_find(m, key, hash) : 0;
    if (m->slots && m->slots[at].value)
        return ERR_EXISTS;
    return table_insert(m, at, key, hash, value);
}

enum err MAP_FN(_put)(struct MAP *m, MAP_KEY key, void *value, void **out_old)
{
    CHECK(value != NULL);
    uint64_t hash = key_hash(key);
    size_t at = m->slots ? table_find(m, key, hash) : 0;
    void *old = m->slots ? m->slots[at].value : NULL;
    if (old)
        slot_set(&m->slots[at], key, hash, value);
    else {
        enum err e = table_insert(m, at, key, hash, value);
        if (e != ERR_OK)
            return e;
    }
    if (out_old)
        *out_old = old;
    return ERR_OK;
}

void *MAP_FN(_remove)(struct MAP *m, MAP_KEY key)
{
    if (m->n == 0)
        return NULL;
    size_t at = table_find(m, key, key_hash(key));
    void *value = m->slots[at].value;
    if (value)
        table_delete(m, at);
    return value;
}

bool MAP_FN(_next)(const struct MAP *m, size_t *at, MAP_KEY *out_key, void **out_value)
{
    for (size_t i = *at; m->slots && i <= m->mask; i++) {
        if (!m->slots[i].value)
            continue;
        *at = i + 1;
        if (out_key)
            *out_key = slot_key(&m->slots[i]);
        if (out_value)
            *out_value = m->slots[i].value;
        return true;
    }
    return false;
}

size_t MAP_FN(_sweep)(struct MAP *m, bool (*gone)(MAP_KEY key, void *value, void *arg), void *arg)
{
    if (m->n == 0)
        return 0;
    /* Begin behind an empty slot: then no run straddles the start, and a deletion only moves what is still
     * ahead. */
    size_t start = 0;
    while (m->slots[start].value)
        start++;
    size_t removed = 0;
    for (size_t step = 1; step <= m->mask;) {
        size_t i = (start + step) & m->mask;
        struct MAP_SLOT slot = m->slots[i];
        if (slot.value && gone(slot_key(&slot), slot.value, arg)) {
            table_delete(m, i); /* look at the same place again: the next of the run has moved here */
            removed++;
        } else {
            step++;
        }
    }
    return removed;
}
