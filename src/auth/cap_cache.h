/*
 * Bounded cache of verified capabilities, keyed by the token text.
 *
 * Sixteen shards with a lock each; a shard is a table of sets with eight ways. Shard and set come from a keyed hash of the
 * token's end: there stands the signature, which is as good as random. A hit needs the whole text to be equal. Who does not
 * know a signature does not get as far as that comparison, so its time tells nothing. A full set gives up the way that would
 * expire first. Nothing grows after init.
 *
 * Ownership   The cache holds one reference per entry; find hands out another.
 * Memory      A capability holds its token (at most AUTH_TOKEN_MAX) and its caveats (fewer): entries times both is the bound.
 * Threads     Any. Locks are held for a few comparisons; capabilities are freed outside of them.
 * Order       An entry carries the generation it was verified in. Raising the generation makes every
 *             older entry a miss at once, also one that a slow verifier stores later.
 */
#ifndef RON_AUTH_CAP_CACHE_H
#define RON_AUTH_CAP_CACHE_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"

struct auth_cap;
struct auth_cap_cache;

struct auth_cap_cache_stats {
    uint64_t hits, misses, evicted, expired, entries;
};

NODISCARD enum err auth_cap_cache_create(unsigned entries, struct auth_cap_cache **out);
void auth_cap_cache_destroy(struct auth_cap_cache *c); /* NULL is fine */
struct auth_cap *auth_cap_cache_find(struct auth_cap_cache *c, struct str token, uint64_t generation,
                                     int64_t now_ns); /* NULL: a miss */
/* Under the token it was made from; takes its own reference. */
void auth_cap_cache_store(struct auth_cap_cache *c, uint64_t generation, int64_t until_ns, int64_t now_ns,
                          struct auth_cap *cap);
/* Drops what is older than now or than the generation. */
void auth_cap_cache_trim(struct auth_cap_cache *c, uint64_t generation, int64_t now_ns);
void auth_cap_cache_stats(struct auth_cap_cache *c, struct auth_cap_cache_stats *out);

#endif
