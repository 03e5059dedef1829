#include "base/pool.h"

#include <stdlib.h>

#include "base/check.h"

NODISCARD enum err pool_init(struct pool *p, size_t object_bytes, size_t count)
{
    CHECK(object_bytes > 0 && count > 0 && count <= UINT32_MAX);
    *p = (struct pool){0};
    size_t size = (object_bytes + 15) & ~(size_t)15;
    p->slab = calloc(count, size); /* zero pages: an object costs memory from its first use on */
    p->taken = calloc(count, 1);
    p->free = calloc(count, sizeof *p->free);
    if (!p->slab || !p->taken || !p->free) {
        pool_fini(p);
        return ERR_NO_MEMORY;
    }
    p->object_bytes = size;
    p->count = p->free_n = count;
    /* Highest index at the bottom, so that objects are first handed out in address order. */
    for (size_t i = 0; i < count; i++)
        p->free[i] = (uint32_t)(count - 1 - i);
    return ERR_OK;
}

void pool_fini(struct pool *p)
{
    free(p->slab);
    free(p->taken);
    free(p->free);
    *p = (struct pool){0};
}

void *pool_get(struct pool *p)
{
    if (p->free_n == 0)
        return NULL;
    uint32_t i = p->free[--p->free_n];
    p->taken[i] = 1;
    return p->slab + (size_t)i * p->object_bytes;
}

size_t pool_index(const struct pool *p, const void *object)
{
    const uint8_t *at = object;
    CHECK(at >= p->slab && at < p->slab + p->count * p->object_bytes);
    size_t offset = (size_t)(at - p->slab);
    CHECK(offset % p->object_bytes == 0);
    return offset / p->object_bytes;
}

void *pool_at(const struct pool *p, size_t index)
{
    CHECK(index < p->count);
    return p->slab + index * p->object_bytes;
}

void pool_put(struct pool *p, void *object)
{
    size_t i = pool_index(p, object);
    CHECK(p->taken[i]); /* given back twice */
    p->taken[i] = 0;
    p->free[p->free_n++] = (uint32_t)i;
}

size_t pool_free_count(const struct pool *p)
{
    return p->free_n;
}
