#include "base/map.h"

#include "base/siphash.h"

struct map64_slot {
    uint64_t key;
    void *value;
};

static uint64_t key_hash(uint64_t key)
{
    return siphash13_u64(siphash_process_key(), key);
}

static uint64_t slot_hash(const struct map64_slot *s)
{
    return key_hash(s->key);
}

static bool slot_is(const struct map64_slot *s, uint64_t key, uint64_t hash)
{
    (void)hash;
    return s->key == key;
}

static void slot_set(struct map64_slot *s, uint64_t key, uint64_t hash, void *value)
{
    (void)hash;
    *s = (struct map64_slot){key, value};
}

static uint64_t slot_key(const struct map64_slot *s)
{
    return s->key;
}

#define MAP      map64
#define MAP_SLOT map64_slot
#define MAP_KEY  uint64_t
#include "base/map_template.h"
