/*
 * Hash maps from a key to a pointer: struct map (byte strings), map64 (u64), map128 (two u64).
 * Open addressing, linear probing, deletion by shifting back (no tombstones), keyed SipHash-1-3.
 *
 * Ownership   Values are the caller's and never NULL. struct map borrows the key bytes too: they must live,
 * unchanged, as long as the entry (usually inside the value). map64 and map128 copy their keys. Threads
 * Reads may run together; a write needs everyone else out. The caller locks. Memory      One table, doubled
 * at 3/4 full; expect = entries to make room for at once. Once the table is large enough nothing allocates.
 * *_put fails with ERR_NO_MEMORY only when it had to grow. Order       Iteration order is unspecified and
 * differs between processes. No insertion or removal between *_next calls; to remove while walking use
 * *_sweep.
 */
#ifndef RON_BASE_MAP_H
#define RON_BASE_MAP_H

#include "base/bytes.h"
#include "base/err.h"

struct map_slot;
struct map {
    struct map_slot *slots;
    size_t n, mask; /* mask is 0 and slots NULL until the first put */
};

NODISCARD enum err map_init(struct map *m, size_t expect);
NODISCARD enum err map_reserve(struct map *m, size_t expect); /* room for as many in all */
void map_fini(struct map *m);
void map_clear(struct map *m);
size_t map_count(const struct map *m);
void *map_get(const struct map *m, struct bytes key); /* NULL when absent */
/* Adds; ERR_EXISTS when the key is there already. */
NODISCARD enum err map_add(struct map *m, struct bytes key, void *value);
/* Adds or replaces (key view and value); *out_old (may be NULL) gets the replaced value or NULL. */
NODISCARD enum err map_put(struct map *m, struct bytes key, void *value, void **out_old);
void *map_remove(struct map *m, struct bytes key); /* the value that was there, or NULL */
/* For who looks up many one after the other: asks for the key's place, and a little later for the key that lies there and what
 * begins behind it. */
void map_prefetch_place(const struct map *m, struct bytes key);
void map_prefetch(const struct map *m, struct bytes key);
/* size_t at = 0; while (map_next(&m, &at, &key, &value)) ...; key and value may be NULL pointers. */
bool map_next(const struct map *m, size_t *at, struct bytes *out_key, void **out_value);
/* Removes every entry for which gone() says true; returns how many. gone() may free the value. */
size_t map_sweep(struct map *m, bool (*gone)(struct bytes key, void *value, void *arg), void *arg);

struct map64_slot;
struct map64 {
    struct map64_slot *slots;
    size_t n, mask;
};

NODISCARD enum err map64_init(struct map64 *m, size_t expect);
NODISCARD enum err map64_reserve(struct map64 *m, size_t expect);
void map64_fini(struct map64 *m);
void map64_clear(struct map64 *m);
size_t map64_count(const struct map64 *m);
void *map64_get(const struct map64 *m, uint64_t key);
NODISCARD enum err map64_add(struct map64 *m, uint64_t key, void *value);
NODISCARD enum err map64_put(struct map64 *m, uint64_t key, void *value, void **out_old);
void *map64_remove(struct map64 *m, uint64_t key);
bool map64_next(const struct map64 *m, size_t *at, uint64_t *out_key, void **out_value);
size_t map64_sweep(struct map64 *m, bool (*gone)(uint64_t key, void *value, void *arg), void *arg);

struct key128 {
    uint64_t lo, hi;
};

static inline struct key128 key128_of(const void *sixteen_bytes)
{
    return (struct key128){le64_get(sixteen_bytes), le64_get((const uint8_t *)sixteen_bytes + 8)};
}

struct map128_slot;
struct map128 {
    struct map128_slot *slots;
    size_t n, mask;
};

NODISCARD enum err map128_init(struct map128 *m, size_t expect);
NODISCARD enum err map128_reserve(struct map128 *m, size_t expect);
void map128_fini(struct map128 *m);
void map128_clear(struct map128 *m);
size_t map128_count(const struct map128 *m);
void *map128_get(const struct map128 *m, struct key128 key);
NODISCARD enum err map128_add(struct map128 *m, struct key128 key, void *value);
NODISCARD enum err map128_put(struct map128 *m, struct key128 key, void *value, void **out_old);
void *map128_remove(struct map128 *m, struct key128 key);
bool map128_next(const struct map128 *m, size_t *at, struct key128 *out_key, void **out_value);
size_t map128_sweep(struct map128 *m, bool (*gone)(struct key128 key, void *value, void *arg), void *arg);

#endif
