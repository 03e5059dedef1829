#include "services/ledger/core/slab.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

/* Whole pages, straight from the system: a word of malloc's before each chunk would cost a page. Touched as records are taken. */
static void *chunk_new(size_t record)
{
    void *p = mmap(NULL, SLAB_CHUNK * record, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void ledger_slab_init(struct ledger_slab *s, size_t record)
{
    s->record = record;
    s->n = 0;
    s->chunks = calloc(SLAB_CHUNKS_MAX, sizeof *s->chunks); /* touched page by page, as chunks come */
    CHECK(s->chunks != NULL);
}

void ledger_slab_fini(struct ledger_slab *s)
{
    for (uint32_t i = 0; i < SLAB_CHUNKS_MAX && s->chunks[i] != NULL; i++)
        CHECK(munmap(s->chunks[i], SLAB_CHUNK * s->record) == 0);
    free(s->chunks);
    s->chunks = NULL;
}

uint32_t ledger_slab_take(struct ledger_slab *s)
{
    uint32_t index = atomic_load_explicit(&s->n, memory_order_relaxed), chunk = index / SLAB_CHUNK;
    if (chunk >= SLAB_CHUNKS_MAX)
        return 0;
    if (s->chunks[chunk] == NULL) {
        void *fresh = chunk_new(s->record);
        if (fresh == NULL)
            return 0;
        s->chunks[chunk] = fresh;
    }
    atomic_store_explicit(&s->n, ++index, memory_order_relaxed);
    memset(ledger_slab_at(s, index), 0, s->record);
    return index;
}

void ledger_slab_give_back(struct ledger_slab *s, uint32_t index)
{
    CHECK(index == s->n && index > 0);
    atomic_store_explicit(&s->n, index - 1, memory_order_relaxed);
}

enum { SEGMENT = 4096, BUCKETS_MAX = 1 << 28 };

static _Atomic uint32_t *segment_new(void)
{
    _Atomic uint32_t *seg = calloc(SEGMENT, sizeof *seg);
    CHECK(seg != NULL); /* 16 KiB; without them nothing goes on */
    return seg;
}

void ledger_dir_init(struct ledger_dir *d, uint64_t (*hash_of)(void *, uint32_t),
                     _Atomic uint32_t *(*next_of)(void *, uint32_t), void *ctx)
{
    d->hash_of = hash_of;
    d->next_of = next_of;
    d->ctx = ctx;
    atomic_init(&d->segments[0], segment_new());
    atomic_init(&d->buckets, SEGMENT);
}

void ledger_dir_fini(struct ledger_dir *d)
{
    for (size_t i = 0; i < sizeof d->segments / sizeof d->segments[0]; i++)
        free(atomic_load_explicit(&d->segments[i], memory_order_relaxed));
}

void ledger_dir_reserve(struct ledger_dir *d, uint64_t items)
{
    CHECK(d->items == 0);
    uint64_t want = items < BUCKETS_MAX ? items : BUCKETS_MAX;
    if (want <= atomic_load_explicit(&d->buckets, memory_order_relaxed))
        return;
    for (uint64_t i = 0; i <= (want - 1) / SEGMENT; i++)
        if (atomic_load_explicit(&d->segments[i], memory_order_relaxed) == NULL)
            atomic_store_explicit(&d->segments[i], segment_new(), memory_order_relaxed);
    atomic_store_explicit(&d->buckets, want, memory_order_release); /* pairs with ledger_dir_first */
}

static _Atomic uint32_t *head_at(struct ledger_dir *d, uint64_t b)
{
    return &atomic_load_explicit(&d->segments[b >> 12], memory_order_relaxed)[b & (SEGMENT - 1)];
}

static void change_begin(struct ledger_dir *d)
{
    uint64_t v = atomic_load_explicit(&d->version, memory_order_relaxed);
    atomic_store_explicit(&d->version, v + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* the odd version is seen before any changed link */
}

static void change_end(struct ledger_dir *d)
{
    uint64_t v = atomic_load_explicit(&d->version, memory_order_relaxed);
    atomic_store_explicit(&d->version, v + 1, memory_order_release);
}

/* Adds bucket number `buckets` and moves to it what belongs there from the bucket it splits. */
static void split(struct ledger_dir *d)
{
    uint64_t n = atomic_load_explicit(&d->buckets, memory_order_relaxed);
    if (n >= BUCKETS_MAX)
        return; /* chains grow from here on */
    uint64_t top = UINT64_C(1) << (63 - __builtin_clzll(n));
    if ((n & (SEGMENT - 1)) == 0)
        atomic_store_explicit(&d->segments[n >> 12], segment_new(), memory_order_release);
    _Atomic uint32_t *from = head_at(d, n - top), *to = head_at(d, n);
    change_begin(d);
    uint32_t index = atomic_load_explicit(from, memory_order_relaxed);
    uint32_t stay = 0, move = 0;
    while (index != 0) {
        _Atomic uint32_t *link = d->next_of(d->ctx, index);
        uint32_t next = atomic_load_explicit(link, memory_order_relaxed);
        uint32_t *list = (d->hash_of(d->ctx, index) & (2 * top - 1)) == n ? &move : &stay;
        atomic_store_explicit(link, *list, memory_order_release);
        *list = index;
        index = next;
    }
    atomic_store_explicit(to, move, memory_order_release);
    atomic_store_explicit(from, stay, memory_order_release);
    atomic_store_explicit(&d->buckets, n + 1, memory_order_release);
    change_end(d);
}

static uint64_t bucket_of(struct ledger_dir *d, uint64_t hash)
{
    uint64_t n = atomic_load_explicit(&d->buckets, memory_order_relaxed);
    uint64_t top = UINT64_C(1) << (63 - __builtin_clzll(n));
    uint64_t b = hash & (2 * top - 1);
    return b >= n ? b - top : b;
}

void ledger_dir_prefetch(struct ledger_dir *d, uint64_t hash)
{
    __builtin_prefetch((char *)(uintptr_t)head_at(d, bucket_of(d, hash)), 1);
}

void ledger_dir_insert(struct ledger_dir *d, uint64_t hash, uint32_t index)
{
    if (++d->items > atomic_load_explicit(&d->buckets, memory_order_relaxed))
        split(d);
    _Atomic uint32_t *head = head_at(d, bucket_of(d, hash));
    atomic_store_explicit(d->next_of(d->ctx, index), atomic_load_explicit(head, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(head, index, memory_order_release); /* pairs with ledger_dir_first */
}

void ledger_dir_remove(struct ledger_dir *d, uint64_t hash, uint32_t index)
{
    _Atomic uint32_t *link = head_at(d, bucket_of(d, hash));
    uint32_t at;
    while ((at = atomic_load_explicit(link, memory_order_relaxed)) != index) {
        CHECK(at != 0);
        link = d->next_of(d->ctx, at);
    }
    change_begin(d);
    atomic_store_explicit(link, atomic_load_explicit(d->next_of(d->ctx, index), memory_order_relaxed),
                          memory_order_release);
    change_end(d);
    d->items--;
}
