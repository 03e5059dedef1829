#include "base/arena.h"

#include <stdlib.h>

#include "base/check.h"

enum { ARENA_ALIGN = 16 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t bytes; /* of data */
    _Alignas(ARENA_ALIGN) uint8_t data[];
};

void arena_init(struct arena *a, size_t chunk_bytes, size_t max_bytes)
{
    CHECK(chunk_bytes > 0 && max_bytes > 0);
    *a = (struct arena){.chunk_bytes = chunk_bytes, .max_bytes = max_bytes};
}

static void arena_free_after(struct arena *a, struct arena_chunk *keep)
{
    struct arena_chunk *c = keep ? keep->next : a->first;
    while (c) {
        struct arena_chunk *next = c->next;
        a->reserved_bytes -= c->bytes;
        free(c);
        c = next;
    }
    if (keep)
        keep->next = NULL;
}

void arena_fini(struct arena *a)
{
    arena_free_after(a, NULL);
    *a = (struct arena){.chunk_bytes = a->chunk_bytes, .max_bytes = a->max_bytes};
}

void arena_reset(struct arena *a)
{
    if (!a->first)
        return;
    arena_free_after(a, a->first);
    a->current = a->first;
    a->at = a->first->data;
    a->end = a->first->data + a->first->bytes;
}

/* Memory for `need` more. What is larger than a chunk gets one of its own, and the current one is filled further. */
static void *arena_grow(struct arena *a, size_t need)
{
    size_t left = a->max_bytes - a->reserved_bytes;
    size_t bytes = need > a->chunk_bytes ? need : a->chunk_bytes;
    if (bytes > left)
        bytes = left & ~(size_t)(ARENA_ALIGN - 1); /* the last chunk may be a short one */
    if (bytes < need)
        return NULL;
    struct arena_chunk *c = malloc(sizeof *c + bytes);
    if (!c)
        return NULL;
    bool own = a->current && need > a->chunk_bytes;
    struct arena_chunk **link = a->current ? &a->current->next : &a->first;
    c->next = *link;
    c->bytes = bytes;
    *link = c;
    a->reserved_bytes += bytes;
    if (!own) {
        a->current = c;
        a->at = c->data + need;
        a->end = c->data + bytes;
    }
    return c->data;
}

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > SIZE_MAX - ARENA_ALIGN)
        return NULL;
    size_t need = (n + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (need == 0)
        need = ARENA_ALIGN;
    /* at and end are both NULL before the first chunk. */
    if (need > (size_t)(a->end - a->at))
        return arena_grow(a, need);
    void *p = a->at;
    a->at += need;
    return p;
}

void *arena_zalloc(struct arena *a, size_t n)
{
    void *p = arena_alloc(a, n);
    if (p)
        memset(p, 0, n);
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return arena_zalloc(a, bytes);
}

char *arena_strdup(struct arena *a, struct str s)
{
    if (s.n == SIZE_MAX)
        return NULL;
    char *p = arena_alloc(a, s.n + 1);
    if (!p)
        return NULL;
    if (s.n)
        memcpy(p, s.p, s.n);
    p[s.n] = '\0';
    return p;
}

bool arena_str(struct arena *a, struct str s, struct str *out)
{
    char *p = arena_strdup(a, s);
    if (!p)
        return false;
    *out = (struct str){p, s.n};
    return true;
}

size_t arena_reserved_bytes(const struct arena *a)
{
    return a->reserved_bytes;
}
