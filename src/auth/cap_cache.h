/*
 * Bounded cache of verified capabilities, keyed by SHA-256 of the token text.
 *
 * Sixteen shards with a lock each; a shard is a table of sets with eight ways. A key is already a good
 * hash, so its bytes pick shard and set. A full set gives up the way that would expire first. Nothing
 * grows after init.
 *
 * Ownership   The cache holds one reference per entry; find hands out another.
 * Threads     Any. Locks are held for a few comparisons; capabilities are freed outside of them.
 * Order       An entry carries the generation it was verified in. Raising the generation makes every
 *             older entry a miss at once, also one that a slow verifier stores later.
 */
#ifndef RON_AUTH_CAP_CACHE_H
#define RON_AUTH_CAP_CACHE_H

#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"

struct auth_cap;
struct auth_cap_cache;

struct auth_cap_cache_stats {
    uint64_t hits, misses, evicted, expired, entries;
};

NODISCARD enum err auth_cap_cache_create(unsigned entries, struct auth_cap_cache **out);
void auth_cap_cache_destroy(struct auth_cap_cache *c); /* NULL is fine */
struct auth_cap *auth_cap_cache_find(struct auth_cap_cache *c, const struct sha256 *key,
                                     uint64_t generation, int64_t now_ns); /* NULL: a miss */
void auth_cap_cache_store(struct auth_cap_cache *c, const struct sha256 *key, uint64_t generation,
                          int64_t until_ns, int64_t now_ns,
                          struct auth_cap *cap); /* takes its own reference */
/* Drops what is older than now or than the generation. */
void auth_cap_cache_trim(struct auth_cap_cache *c, uint64_t generation, int64_t now_ns);
void auth_cap_cache_stats(struct auth_cap_cache *c, struct auth_cap_cache_stats *out);

#endif
