#include "services/mailbox/core/entry.h"

#include <stdlib.h>

#include "base/check.h"

void mailbox_slabs_init(struct mailbox_slabs *s)
{
    *s = (struct mailbox_slabs){.used = 1}; /* index 0 means none */
}

void mailbox_slabs_fini(struct mailbox_slabs *s)
{
    for (uint32_t i = 0; i < s->slabs; i++)
        free(s->slab[i]);
    free(s->slab);
    *s = (struct mailbox_slabs){0};
}

static enum err grow(struct mailbox_slabs *s)
{
    struct mailbox_entry **dir = realloc(s->slab, (s->slabs + 1) * sizeof *dir);
    if (!dir)
        return ERR_NO_MEMORY;
    s->slab = dir;
    struct mailbox_entry *slab = malloc(MAILBOX_SLAB_ENTRIES * sizeof *slab);
    if (!slab)
        return ERR_NO_MEMORY;
    s->slab[s->slabs++] = slab;
    return ERR_OK;
}

enum err mailbox_slabs_alloc(struct mailbox_slabs *s, uint32_t *out_index)
{
    uint32_t index = s->free_head;
    if (index) {
        s->free_head = mailbox_entry_at(s, index)->right;
    } else {
        if (s->used == INT32_MAX) /* an index slot keeps at least one bit for its mark */
            return ERR_NO_MEMORY;
        if (s->used / MAILBOX_SLAB_ENTRIES == s->slabs) {
            enum err e = grow(s);
            if (e != ERR_OK)
                return e;
        }
        index = s->used++;
    }
    memset(mailbox_entry_at(s, index), 0, sizeof(struct mailbox_entry));
    s->live++;
    *out_index = index;
    return ERR_OK;
}

void mailbox_slabs_free(struct mailbox_slabs *s, uint32_t index)
{
    struct mailbox_entry *e = mailbox_entry_at(s, index);
    CHECK(e->state != MAILBOX_FREE && s->live > 0);
    e->state = MAILBOX_FREE;
    uint32_t *head = s->hold_free ? &s->held_head : &s->free_head;
    e->right = *head;
    *head = index;
    s->live--;
}

void mailbox_slabs_release_held(struct mailbox_slabs *s)
{
    s->hold_free = false;
    while (s->held_head) {
        uint32_t index = s->held_head;
        struct mailbox_entry *e = mailbox_entry_at(s, index);
        s->held_head = e->right;
        e->right = s->free_head;
        s->free_head = index;
    }
}

void mailbox_index_init(struct mailbox_index *x, const struct mailbox_slabs *slabs, size_t key_offset)
{
    memset(x, 0, sizeof *x);
    x->slabs = slabs;
    x->key_offset = key_offset;
}

void mailbox_index_fini(struct mailbox_index *x)
{
    for (size_t i = 0; i < MAILBOX_INDEX_PARTS; i++)
        free(x->part[i].slot);
    memset(x->part, 0, sizeof x->part);
    x->n = 0;
}

/* The last eight bytes of both keys are uniform: 62 random bits of an id, half of a SHA-256. */
static uint64_t key_hash(const uint8_t *key)
{
    return le64_get(key + 8) * UINT64_C(0x9E3779B97F4A7C15);
}

static const uint8_t *key_of(const struct mailbox_index *x, uint32_t entry)
{
    return (const uint8_t *)mailbox_entry_at(x->slabs, entry) + x->key_offset;
}

static uint32_t part_of(uint64_t h)
{
    return (uint32_t)(h >> 52);
}

static uint32_t home_of(uint64_t h, uint32_t cap)
{
    return (uint32_t)(((h & 0xffffffffu) * cap) >> 32);
}

static uint32_t entry_mask(const struct mailbox_index_part *p)
{
    return (uint32_t)((UINT64_C(1) << p->bits) - 1);
}

/* The hash bits that share a slot with the entry: neither those that chose the partition nor those that chose the home. */
static uint32_t mark_of(uint64_t h, const struct mailbox_index_part *p)
{
    return (uint32_t)(h >> 32) << p->bits & ~entry_mask(p);
}

uint32_t mailbox_index_find(const struct mailbox_index *x, const uint8_t key[16])
{
    uint64_t h = key_hash(key);
    const struct mailbox_index_part *p = &x->part[part_of(h)];
    if (p->cap == 0)
        return 0;
    uint32_t mask = entry_mask(p), mark = mark_of(h, p);
    for (uint32_t i = home_of(h, p->cap);; i = i + 1 == p->cap ? 0 : i + 1) {
        uint32_t slot = p->slot[i];
        if (slot == 0)
            return 0;
        if ((slot & ~mask) == mark && memcmp(key_of(x, slot & mask), key, 16) == 0)
            return slot & mask;
    }
}

void mailbox_index_prefetch(const struct mailbox_index *x, const uint8_t key[16])
{
    uint64_t h = key_hash(key);
    const struct mailbox_index_part *p = &x->part[part_of(h)];
    if (p->cap)
        __builtin_prefetch(&p->slot[home_of(h, p->cap)], 1);
}

static void place(struct mailbox_index_part *p, uint64_t h, uint32_t entry)
{
    uint32_t i = home_of(h, p->cap);
    while (p->slot[i] != 0)
        i = i + 1 == p->cap ? 0 : i + 1;
    p->slot[i] = mark_of(h, p) | entry;
}

static enum err resize_part(const struct mailbox_index *x, struct mailbox_index_part *p, uint32_t cap)
{
    struct mailbox_index_part wider = {.cap = cap, .n = p->n, .bits = p->bits};
    wider.slot = calloc(wider.cap, sizeof *wider.slot);
    if (!wider.slot)
        return ERR_NO_MEMORY;
    uint32_t mask = entry_mask(p);
    for (uint32_t i = 0; i < p->cap; i++) {
        if (i + 8 < p->cap && p->slot[i + 8])
            __builtin_prefetch(key_of(x, p->slot[i + 8] & mask));
        if (p->slot[i])
            place(&wider, key_hash(key_of(x, p->slot[i] & mask)), p->slot[i] & mask);
    }
    free(p->slot);
    *p = wider;
    return ERR_OK;
}

static void widen_entries(struct mailbox_index_part *p, uint32_t entry)
{
    uint32_t bits = p->bits ? p->bits : 12, old = entry_mask(p);
    while (entry >> bits)
        bits++;
    for (uint32_t i = 0; i < p->cap; i++) { /* the marks move up; their highest bits go */
        uint32_t slot = p->slot[i];
        p->slot[i] = (slot & ~old) >> p->bits << bits | (slot & old);
    }
    p->bits = bits & 63;
}

enum err mailbox_index_add(struct mailbox_index *x, uint32_t entry)
{
    uint64_t h = key_hash(key_of(x, entry));
    struct mailbox_index_part *p = &x->part[part_of(h)];
    if ((uint64_t)(p->n + 1) * 5 > (uint64_t)p->cap * 4) {
        enum err e = resize_part(x, p, p->cap < 16 ? 16 : p->cap + p->cap / 2);
        if (e != ERR_OK)
            return e;
    }
    if (p->bits == 0 || entry > entry_mask(p))
        widen_entries(p, entry);
    place(p, h, entry);
    p->n = (p->n + 1) & 0x3ffffff;
    x->n++;
    return ERR_OK;
}

enum err mailbox_index_reserve(struct mailbox_index *x, size_t n)
{
    size_t each = n / MAILBOX_INDEX_PARTS;
    uint32_t cap = (uint32_t)(each + each / 3 + 16);
    for (size_t i = 0; i < MAILBOX_INDEX_PARTS; i++) {
        enum err e = x->part[i].cap < cap ? resize_part(x, &x->part[i], cap) : ERR_OK;
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

/* Is slot i strictly after `from` and not after `to`, walking forward around the table? */
static bool between(uint32_t from, uint32_t i, uint32_t to)
{
    return from <= to ? (from < i && i <= to) : (from < i || i <= to);
}

void mailbox_index_remove(struct mailbox_index *x, uint32_t entry)
{
    uint64_t h = key_hash(key_of(x, entry));
    struct mailbox_index_part *p = &x->part[part_of(h)];
    CHECK(p->cap > 0);
    uint32_t i = home_of(h, p->cap), mask = entry_mask(p);
    while ((p->slot[i] & mask) != entry) {
        CHECK(p->slot[i] != 0);
        i = i + 1 == p->cap ? 0 : i + 1;
    }
    for (uint32_t j = i;;) { /* close the gap: pull back what may not stand behind an empty slot */
        j = j + 1 == p->cap ? 0 : j + 1;
        if (p->slot[j] == 0)
            break;
        uint32_t home = home_of(key_hash(key_of(x, p->slot[j] & mask)), p->cap);
        if (!between(i, home, j)) {
            p->slot[i] = p->slot[j];
            i = j;
        }
    }
    p->slot[i] = 0;
    p->n = (p->n - 1) & 0x3ffffff;
    x->n--;
}

size_t mailbox_index_bytes(const struct mailbox_index *x)
{
    size_t bytes = sizeof *x;
    for (size_t i = 0; i < MAILBOX_INDEX_PARTS; i++)
        bytes += x->part[i].cap * sizeof(uint32_t);
    return bytes;
}
