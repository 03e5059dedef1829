#include "services/mailbox/core/index.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/huge.h"
#include "base/prefetch.h"

enum {
    CHUNK_BUCKETS = HUGE_BYTES / sizeof(struct mailbox_bucket),
    FIRST_BITS = 12,
    MARKS_LOW = 4, /* a bucket with fewer reads its entries before it splits */
};

void mailbox_index_init(struct mailbox_index *x, const struct mailbox_slabs *slabs, size_t key_offset,
                        size_t key_bytes, uint64_t secret)
{
    memset(x, 0, sizeof *x);
    x->slabs = slabs;
    x->key_offset = key_offset;
    x->key_bytes = key_bytes;
    x->factor = secret | 1;
    x->buckets = 1;
}

void mailbox_index_fini(struct mailbox_index *x)
{
    for (uint32_t i = 0; i < x->chunks; i++)
        huge_free(x->chunk[i]);
    free(x->chunk);
    for (size_t i = 0; i < MAILBOX_INDEX_PARTS; i++)
        free(x->part[i].directory);
    memset(x->part, 0, sizeof x->part);
    x->chunk = NULL;
    x->chunks = x->directories = 0;
    x->n = 0;
}

/* ---- where a key belongs ---- */

/* The last eight bytes of both keys are uniform: 62 random bits of an id, a piece of a SHA-256. */
static uint64_t key_hash(const struct mailbox_index *x, const uint8_t *key)
{
    return le64_get(key + x->key_bytes - 8) * x->factor;
}

static uint32_t part_of(uint64_t h)
{
    return (uint32_t)(h >> 52);
}

/* The 32 bits behind those of the part. */
static uint32_t path_of(uint64_t h)
{
    return (uint32_t)(h >> 20);
}

static uint32_t step(uint32_t path, uint32_t depth)
{
    return depth ? path >> (32 - depth) : 0;
}

static struct mailbox_bucket *bucket_at(const struct mailbox_index *x, uint32_t no)
{
    return &x->chunk[no / CHUNK_BUCKETS][no % CHUNK_BUCKETS];
}

static uint32_t *place_in_part(struct mailbox_index_part *p, uint32_t path)
{
    return p->depth ? &p->directory[step(path, p->depth)] : &p->only;
}

static uint32_t bucket_no(const struct mailbox_index *x, uint64_t h)
{
    const struct mailbox_index_part *p = &x->part[part_of(h)];
    return p->depth ? p->directory[step(path_of(h), p->depth)] : p->only;
}

static uint32_t entry_mask(uint32_t bits)
{
    return (uint32_t)((UINT64_C(1) << bits) - 1);
}

static uint32_t marks_mask(uint32_t marks)
{
    return marks ? ~entry_mask(32 - marks) : 0;
}

static uint32_t mark_of(const struct mailbox_bucket *b, uint32_t path)
{
    return path << b->depth & marks_mask(b->marks);
}

static const uint8_t *key_of(const struct mailbox_index *x, uint32_t entry)
{
    return (const uint8_t *)mailbox_entry_at(x->slabs, entry) + x->key_offset;
}

/* ---- searching ---- */

/* Four slots at a time; the first "slot" is the bucket's head, and those behind the last hold what was there once. */
typedef uint32_t four __attribute__((vector_size(16)));

static bool may_hold(const struct mailbox_bucket *b, uint32_t want, uint32_t marks)
{
    const four *p = (const four *)(const void *)b, wants = {want, want, want, want},
               masks = {marks, marks, marks, marks};
    four same = {0};
    for (size_t i = 0; i < sizeof *b / sizeof *p; i++)
        same |= (four)((p[i] & masks) == wants);
    return (same[0] | same[1] | same[2] | same[3]) != 0;
}

uint32_t mailbox_index_find(const struct mailbox_index *x, const uint8_t *key)
{
    uint64_t h = key_hash(x, key);
    uint32_t no = bucket_no(x, h);
    if (no == 0)
        return 0;
    const struct mailbox_bucket *b = bucket_at(x, no);
    uint32_t want = mark_of(b, path_of(h)), marks = marks_mask(b->marks), mask = entry_mask(b->bits);
    if (!may_hold(b, want, marks))
        return 0;
    for (uint32_t i = 0; i < b->n; i++)
        if ((b->slot[i] & marks) == want && memcmp(key_of(x, b->slot[i] & mask), key, x->key_bytes) == 0)
            return b->slot[i] & mask;
    return 0;
}

void mailbox_index_prefetch_place(const struct mailbox_index *x, const uint8_t *key)
{
    uint64_t h = key_hash(x, key);
    const struct mailbox_index_part *p = &x->part[part_of(h)];
    if (p->depth)
        prefetch_line(&p->directory[step(path_of(h), p->depth)]);
}

void mailbox_index_prefetch(const struct mailbox_index *x, const uint8_t *key)
{
    uint32_t no = bucket_no(x, key_hash(x, key));
    if (no == 0)
        return;
    const struct mailbox_bucket *b = bucket_at(x, no);
    prefetch_line(b);
    prefetch_line((const uint8_t *)b + 64);
}

/* ---- growing ---- */

static enum err new_bucket(struct mailbox_index *x, uint32_t depth, uint32_t *out_no)
{
    if (x->buckets / CHUNK_BUCKETS == x->chunks) {
        struct mailbox_bucket **wider = realloc(x->chunk, (x->chunks + 1) * sizeof *wider);
        if (!wider)
            return ERR_NO_MEMORY;
        x->chunk = wider;
        if (!(x->chunk[x->chunks] = huge_alloc(mailbox_slabs_whole(x->slabs, x->chunks))))
            return ERR_NO_MEMORY;
        x->chunks++;
    }
    struct mailbox_bucket *b = bucket_at(x, x->buckets);
    b->n = 0;
    b->depth = (uint8_t)depth;
    b->bits = FIRST_BITS;
    b->marks = 32 - FIRST_BITS;
    *out_no = x->buckets++;
    return ERR_OK;
}

/* Twice the directory: every bucket is in it twice as often. */
static enum err deepen(struct mailbox_index *x, struct mailbox_index_part *p)
{
    if (p->depth == MAILBOX_INDEX_DEPTH_MAX)
        return ERR_NO_MEMORY; /* four thousand million keys, or a hash that is none */
    uint32_t n = UINT32_C(1) << p->depth;
    uint32_t *wider = malloc(2 * (size_t)n * sizeof *wider);
    if (!wider)
        return ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++)
        wider[2 * i] = wider[2 * i + 1] = p->depth ? p->directory[i] : p->only;
    free(p->directory);
    x->directories += p->depth ? n : 2;
    p->directory = wider;
    p->depth++;
    return ERR_OK;
}

static void remark(const struct mailbox_index *x, struct mailbox_bucket *b)
{
    b->marks = (uint8_t)(32 - b->bits);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t entry = b->slot[i] & entry_mask(b->bits);
        b->slot[i] = mark_of(b, path_of(key_hash(x, key_of(x, entry)))) | entry;
    }
}

/* The bucket on this path is full: the slots whose next bit is 1 move to a new one. */
static enum err split(struct mailbox_index *x, struct mailbox_index_part *p, uint32_t path)
{
    uint32_t old_no = *place_in_part(p, path), new_no;
    struct mailbox_bucket *b = bucket_at(x, old_no);
    enum err e = b->depth == p->depth ? deepen(x, p) : ERR_OK;
    if (e == ERR_OK)
        e = new_bucket(x, b->depth + 1u, &new_no);
    if (e != ERR_OK)
        return e;
    struct mailbox_bucket *other = bucket_at(x, new_no);
    if (b->marks < MARKS_LOW)
        remark(x, b);
    uint32_t marks = marks_mask(b->marks), mask = entry_mask(b->bits), kept = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t slot = (b->slot[i] & marks) << 1 | (b->slot[i] & mask);
        if (b->slot[i] >> 31)
            other->slot[other->n++] = slot;
        else
            b->slot[kept++] = slot;
    }
    other->bits = b->bits;
    other->marks = --b->marks;
    b->n = (uint8_t)kept;
    b->depth++;
    uint32_t wide = UINT32_C(1) << (p->depth - b->depth); /* places of each half in the directory */
    uint32_t first = (step(path, b->depth) | 1) * wide;
    for (uint32_t i = 0; i < wide; i++)
        p->directory[first + i] = new_no;
    return ERR_OK;
}

/* The entry needs more bits than the slots have for it: marks give theirs up. */
static void widen_entries(struct mailbox_bucket *b, uint32_t entry)
{
    uint32_t bits = b->bits;
    while (entry >> bits)
        bits++;
    if (b->marks > 32 - bits)
        b->marks = (uint8_t)(32 - bits);
    uint32_t keep = marks_mask(b->marks) | entry_mask(b->bits);
    for (uint32_t i = 0; i < b->n; i++)
        b->slot[i] &= keep;
    b->bits = (uint8_t)bits;
}

enum err mailbox_index_add(struct mailbox_index *x, uint32_t entry)
{
    uint64_t h = key_hash(x, key_of(x, entry));
    struct mailbox_index_part *p = &x->part[part_of(h)];
    uint32_t path = path_of(h), *no = place_in_part(p, path);
    enum err e = ERR_OK;
    if (*no == 0) /* of a directory that was reserved, or the first of its part */
        e = new_bucket(x, p->depth, no);
    while (e == ERR_OK && bucket_at(x, *no)->n == MAILBOX_BUCKET_SLOTS) {
        e = split(x, p, path);
        no = place_in_part(p, path);
    }
    if (e != ERR_OK)
        return e;
    struct mailbox_bucket *b = bucket_at(x, *no);
    if (entry >> b->bits)
        widen_entries(b, entry);
    b->slot[b->n++] = mark_of(b, path) | entry;
    x->n++;
    return ERR_OK;
}

void mailbox_index_remove(struct mailbox_index *x, uint32_t entry)
{
    uint32_t no = bucket_no(x, key_hash(x, key_of(x, entry)));
    CHECK(no != 0);
    struct mailbox_bucket *b = bucket_at(x, no);
    uint32_t i = 0, mask = entry_mask(b->bits);
    while (i < b->n && (b->slot[i] & mask) != entry)
        i++;
    CHECK(i < b->n);
    b->slot[i] = b->slot[--b->n];
    x->n--;
}

enum err mailbox_index_reserve(struct mailbox_index *x, size_t n)
{
    uint32_t depth = 0;
    while (depth < MAILBOX_INDEX_DEPTH_MAX &&
           n / MAILBOX_INDEX_PARTS >> depth > MAILBOX_BUCKET_SLOTS * 3 / 4)
        depth++;
    for (size_t i = 0; i < MAILBOX_INDEX_PARTS; i++) {
        struct mailbox_index_part *p = &x->part[i];
        while (p->depth < depth) {
            enum err e = deepen(x, p);
            if (e != ERR_OK)
                return e;
        }
    }
    return ERR_OK;
}

size_t mailbox_index_bytes(const struct mailbox_index *x)
{
    return sizeof *x + (size_t)x->buckets * sizeof(struct mailbox_bucket) +
           (size_t)x->directories * sizeof(uint32_t);
}
