/*
 * Grow-only arrays in chunks, and a hash directory over them that grows one bucket at a time.
 *
 * A slab hands out indices 1, 2, 3, … (0 is "none") of fixed-size records that never move, so an index or a pointer stays
 * good for ever and growing never copies. A directory is linear hashing: bucket heads in segments, chains through a `next`
 * that lives in the records. One insert splits at most one bucket, so there is no pause at any size.
 *
 * Threads     One writer. Readers may walk chains at any time: a reader that finds nothing must read the directory's
 *             version before and after and look again when it moved (a split or an unlink may have led it astray).
 * Memory      A slab allocates a chunk at a time and never gives one back before fini.
 */
#ifndef RON_LEDGER_CORE_SLAB_H
#define RON_LEDGER_CORE_SLAB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

enum { SLAB_CHUNK = 4096, SLAB_CHUNKS_MAX = 1 << 20 };

struct ledger_slab {
    size_t record;
    _Atomic uint32_t n; /* records handed out: one writer, relaxed; gauges read it from elsewhere */
    void **chunks;
};

void ledger_slab_init(struct ledger_slab *s, size_t record);
void ledger_slab_fini(struct ledger_slab *s);
uint32_t ledger_slab_take(struct ledger_slab *s);                  /* zeroed; 0 when memory is out */
void ledger_slab_give_back(struct ledger_slab *s, uint32_t index); /* only the last one taken */

static inline void *ledger_slab_at(const struct ledger_slab *s, uint32_t index)
{
    uint32_t i = index - 1;
    return (char *)s->chunks[i / SLAB_CHUNK] + (size_t)(i % SLAB_CHUNK) * s->record;
}

struct ledger_dir {
    _Atomic(_Atomic uint32_t *) segments[1 << 16]; /* 4096 heads each */
    _Atomic uint64_t buckets;                      /* in use; grows by one */
    _Atomic uint64_t version;                      /* odd while chains are being changed */
    uint64_t items;
    uint64_t (*hash_of)(void *ctx, uint32_t index);
    _Atomic uint32_t *(*next_of)(void *ctx, uint32_t index);
    void *ctx;
};

/* `d` is zeroed memory (calloc), of which only what is used gets touched. */
void ledger_dir_init(struct ledger_dir *d, uint64_t (*hash_of)(void *, uint32_t),
                     _Atomic uint32_t *(*next_of)(void *, uint32_t), void *ctx);
void ledger_dir_fini(struct ledger_dir *d);
/* Makes an empty directory as large as `items` will need, so that putting them in splits nothing. Before any reader. */
void ledger_dir_reserve(struct ledger_dir *d, uint64_t items);
void ledger_dir_insert(struct ledger_dir *d, uint64_t hash, uint32_t index);
void ledger_dir_remove(struct ledger_dir *d, uint64_t hash, uint32_t index); /* CHECKs that it is there */

/* Brings the bucket of `hash` nearer, for an insert that follows soon. */
void ledger_dir_prefetch(struct ledger_dir *d, uint64_t hash);

static inline uint32_t ledger_dir_first(const struct ledger_dir *d, uint64_t hash)
{
    uint64_t buckets =
        atomic_load_explicit(&d->buckets, memory_order_acquire); /* pairs with the split's release */
    uint64_t top = UINT64_C(1) << (63 - __builtin_clzll(buckets));
    uint64_t b = hash & (2 * top - 1);
    if (b >= buckets)
        b -= top;
    _Atomic uint32_t *seg = atomic_load_explicit(&d->segments[b >> 12], memory_order_acquire);
    return atomic_load_explicit(&seg[b & 4095], memory_order_acquire); /* pairs with insert's release */
}

#endif
