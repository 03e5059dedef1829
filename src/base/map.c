#include "base/map.h"

#include "base/prefetch.h"
#include "base/siphash.h"

struct map_slot {
    const uint8_t *p;
    uint32_t n;
    uint32_t hash; /* low half: enough for 2^32 slots, and saves most comparisons */
    void *value;
};

static uint64_t key_hash(struct bytes key)
{
    return (uint32_t)siphash13(siphash_process_key(), key.p, key.n);
}

static uint64_t slot_hash(const struct map_slot *s)
{
    return s->hash;
}

static bool slot_is(const struct map_slot *s, struct bytes key, uint64_t hash)
{
    return s->hash == hash && s->n == key.n && (key.n == 0 || memcmp(s->p, key.p, key.n) == 0);
}

static void slot_set(struct map_slot *s, struct bytes key, uint64_t hash, void *value)
{
    *s = (struct map_slot){key.p, (uint32_t)key.n, (uint32_t)hash, value};
}

static struct bytes slot_key(const struct map_slot *s)
{
    return (struct bytes){s->p, s->n};
}

#define MAP      map
#define MAP_SLOT map_slot
#define MAP_KEY  struct bytes
#include "base/map_template.h"

void map_prefetch_place(const struct map *m, struct bytes key)
{
    if (m->slots)
        prefetch_line(&m->slots[key_hash(key) & m->mask]);
}

void map_prefetch(const struct map *m, struct bytes key)
{
    if (!m->slots)
        return;
    const struct map_slot *s = &m->slots[key_hash(key) & m->mask];
    if (!s->p)
        return;
    prefetch_line(s->p);
    prefetch_line(s->p + s->n);
}
