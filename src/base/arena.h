/*
 * Arena: many small allocations, one end. A request, a parsed file or a process owns one.
 *
 * Ownership   The arena owns what it handed out; arena_reset and arena_fini end all of it at once.
 * Threads     One at a time; the caller arranges it.
 * Memory      Chunks of chunk_bytes from malloc, and one of its own for whatever is larger, together never more than
 * max_bytes. Reset keeps the first chunk, so an arena that is reused does not call malloc once warm.
 */
#ifndef RON_BASE_ARENA_H
#define RON_BASE_ARENA_H

#include "base/bytes.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *first, *current;
    uint8_t *at, *end; /* free part of the current chunk */
    size_t chunk_bytes, max_bytes, reserved_bytes;
};

void arena_init(struct arena *a, size_t chunk_bytes, size_t max_bytes); /* allocates nothing yet */
void arena_fini(struct arena *a);
void arena_reset(struct arena *a);

/* Aligned to 16, not zeroed. NULL when max_bytes is reached or the system has no memory. n may be 0. */
void *arena_alloc(struct arena *a, size_t n);
void *arena_zalloc(struct arena *a, size_t n);                  /* zeroed */
void *arena_array(struct arena *a, size_t count, size_t size);  /* zeroed; NULL on overflow too */
char *arena_strdup(struct arena *a, struct str s);              /* terminated copy */
bool arena_str(struct arena *a, struct str s, struct str *out); /* copy; false when full */
size_t arena_reserved_bytes(const struct arena *a);

#endif
