/*
 * Pool of equal objects, all allocated at start: an empty pool is the caller's ERR_BUSY, not growth.
 *
 * Ownership   What pool_get returned belongs to the caller until pool_put.
 * Threads     The caller locks.
 * Memory      One allocation in pool_init, none after. Objects are aligned to 16 and keep their bytes
 * between uses (zero the first time). Giving back twice, or something foreign, aborts.
 */
#ifndef RON_BASE_POOL_H
#define RON_BASE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pool {
    uint8_t *slab;
    uint8_t *taken; /* one flag per object */
    uint32_t *free; /* stack of free indices */
    size_t object_bytes, count, free_n;
};

NODISCARD enum err pool_init(struct pool *p, size_t object_bytes, size_t count);
void pool_fini(struct pool *p);
void *pool_get(struct pool *p); /* NULL when empty */
void pool_put(struct pool *p, void *object);
size_t pool_free_count(const struct pool *p);
size_t pool_index(const struct pool *p, const void *object); /* 0..count-1 */
void *pool_at(const struct pool *p, size_t index);

#endif
