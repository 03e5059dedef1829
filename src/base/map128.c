#include "base/map.h"

#include "base/siphash.h"

struct map128_slot {
    struct key128 key;
    void *value;
};

static uint64_t key_hash(struct key128 key)
{
    return siphash13_u128(siphash_process_key(), key.lo, key.hi);
}

static uint64_t slot_hash(const struct map128_slot *s)
{
    return key_hash(s->key);
}

static bool slot_is(const struct map128_slot *s, struct key128 key, uint64_t hash)
{
    (void)hash;
    return s->key.lo == key.lo && s->key.hi == key.hi;
}

static void slot_set(struct map128_slot *s, struct key128 key, uint64_t hash, void *value)
{
    (void)hash;
    *s = (struct map128_slot){key, value};
}

static struct key128 slot_key(const struct map128_slot *s)
{
    return s->key;
}

#define MAP      map128
#define MAP_SLOT map128_slot
#define MAP_KEY  struct key128
#include "base/map_template.h"
