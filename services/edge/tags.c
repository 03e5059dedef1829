#include "services/edge/tags.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

static bool same_pack(const struct edge_tag_header *a, const struct edge_tag_header *b)
{
    return a->kind == b->kind && a->buckets == b->buckets && edge_file_id_eq(&a->file, &b->file) &&
           sha256_eq(&a->head, &b->head);
}

RT_BLOCKS
static enum err reuse(struct edge_tags *t, struct store_disk *disk, const char *path)
{
    uint8_t page[EDGE_TAG_PAGE];
    struct edge_tag_header found;
    uint64_t size;
    enum err e = store_file_open(disk, path, STORE_WRITE, &t->file);
    if (e != ERR_OK)
        return e;
    e = store_file_read_all(t->file, page, sizeof page, 0);
    if (e == ERR_OK)
        e = edge_tag_header_decode(page, &found);
    if (e == ERR_OK)
        e = store_file_size(t->file, &size);
    if (e == ERR_OK && (!same_pack(&found, &t->header) || size != (found.buckets + 1) * EDGE_TAG_PAGE))
        e = ERR_CONFLICT;
    if (e == ERR_OK) {
        t->header = found;
        return ERR_OK;
    }
    store_file_close(t->file);
    t->file = NULL;
    return e;
}

RT_BLOCKS
static enum err make(struct edge_tags *t, struct store_disk *disk, const char *path)
{
    uint8_t page[EDGE_TAG_PAGE];
    enum err e = store_file_open(disk, path, STORE_WRITE | STORE_CREATE | STORE_TRUNC, &t->file);
    if (e != ERR_OK)
        return e;
    e = store_file_allocate(t->file, (t->header.buckets + 1) * EDGE_TAG_PAGE);
    edge_tag_header_encode(&t->header, page);
    if (e == ERR_OK)
        e = store_file_pwrite(t->file, page, sizeof page, 0);
    if (e != ERR_OK) {
        store_file_close(t->file);
        t->file = NULL;
        return e;
    }
    t->written =
        calloc(t->header.buckets / 64 + 1, sizeof *t->written); /* without memory every page is read */
    return ERR_OK;
}

enum err edge_tags_open(struct edge_tags *t, struct store_disk *disk, const char *path,
                        const struct edge_tag_header *want, uint64_t contents, uint64_t bytes_max)
{
    *t = (struct edge_tags){.header = *want};
    t->header.buckets = edge_tag_buckets(contents);
    if ((t->header.buckets + 1) * EDGE_TAG_PAGE > bytes_max)
        return ERR_TOO_LARGE;
    enum err e = reuse(t, disk, path);
    return e == ERR_OK ? e : make(t, disk, path);
}

void edge_tags_close(struct edge_tags *t)
{
    store_file_close(t->file);
    t->file = NULL;
    free(t->written);
    t->written = NULL;
}

static bool may_hold(const struct edge_tags *t, uint64_t key)
{
    if (!t->file || !t->written)
        return t->file != NULL;
    uint64_t bucket = edge_tag_bucket(key, t->header.buckets);
    return atomic_load_explicit(&t->written[bucket / 64], memory_order_acquire) >> (bucket & 63) & 1;
}

static void now_holds(struct edge_tags *t, uint64_t key)
{
    uint64_t bucket = edge_tag_bucket(key, t->header.buckets);
    if (t->written)
        atomic_fetch_or_explicit(&t->written[bucket / 64], (uint64_t)1 << (bucket & 63),
                                 memory_order_release);
}

static uint64_t page_of(const struct edge_tags *t, uint64_t key)
{
    return (edge_tag_bucket(key, t->header.buckets) + 1) * EDGE_TAG_PAGE;
}

enum err edge_tags_find(const struct edge_tags *t, uint64_t key, struct edge_tag *out)
{
    uint8_t page[EDGE_TAG_PAGE];
    if (!may_hold(t, key))
        return ERR_NOT_FOUND;
    enum err e = store_file_read_all(t->file, page, sizeof page, page_of(t, key));
    return e != ERR_OK ? e : edge_tag_find(page, key, out) < 0 ? ERR_NOT_FOUND : ERR_OK;
}

enum err edge_tags_find_now(const struct edge_tags *t, uint64_t key, struct edge_tag *out) RT_UNCHECKED
{
    uint8_t page[EDGE_TAG_PAGE];
    if (!may_hold(t, key))
        return ERR_NOT_FOUND;
    int fd = store_file_fd(t->file);
    if (fd < 0) /* in memory: reading does not wait */
        return edge_tags_find(t, key, out);
    struct iovec v = {page, sizeof page};
    ssize_t got = preadv2(fd, &v, 1, (off_t)page_of(t, key), RWF_NOWAIT);
    if (got < 0 && errno == EOPNOTSUPP)
        got = pread(fd, page, sizeof page, (off_t)page_of(t, key));
    if (got != sizeof page)
        return ERR_BUSY;
    return edge_tag_find(page, key, out) < 0 ? ERR_NOT_FOUND : ERR_OK;
}

enum err edge_tags_put(struct edge_tags *t, const struct edge_tag *tag)
{
    uint8_t page[EDGE_TAG_PAGE] = {0}, slot[EDGE_TAG_SLOT];
    if (!t->file)
        return ERR_OK;
    enum err e = may_hold(t, tag->key)
                     ? store_file_read_all(t->file, page, sizeof page, page_of(t, tag->key))
                     : ERR_OK;
    if (e != ERR_OK)
        return e;
    int at = edge_tag_place(page, tag->key);
    if (at < 0)
        return ERR_TOO_LARGE;
    edge_tag_encode(tag, slot);
    e = store_file_pwrite(t->file, slot, sizeof slot,
                          page_of(t, tag->key) + EDGE_TAG_FIRST + (uint64_t)at * EDGE_TAG_SLOT);
    if (e == ERR_OK)
        now_holds(t, tag->key);
    return e;
}

enum err edge_tags_seal(struct edge_tags *t, const struct sha256 *archive, uint64_t now_ms)
{
    uint8_t page[EDGE_TAG_PAGE];
    if (!t->file)
        return ERR_OK;
    enum err e = store_file_sync(t->file); /* every slot before the word that they are there */
    if (e != ERR_OK)
        return e;
    t->header.archive = *archive;
    t->header.sealed_ms = now_ms;
    edge_tag_header_encode(&t->header, page);
    e = store_file_pwrite(t->file, page, sizeof page, 0);
    return e == ERR_OK ? store_file_sync(t->file) : e;
}

/* ---- cache ---- */

struct entry {
    uint64_t serial, key; /* serial 0: empty */
    struct sha256 digest;
};

struct edge_tag_cache {
    size_t n;
    struct entry slots[];
};

struct edge_tag_cache *edge_tag_cache_create(size_t bytes)
{
    size_t n = bytes / sizeof(struct entry);
    struct edge_tag_cache *c = calloc(1, sizeof *c + n * sizeof c->slots[0]);
    if (c)
        c->n = n;
    return c;
}

void edge_tag_cache_destroy(struct edge_tag_cache *c)
{
    free(c);
}

static size_t place(const struct edge_tag_cache *c, uint64_t serial, uint64_t key)
{
    uint64_t hash = (key + serial * 0xff51afd7ed558ccdu) * 0x9E3779B97F4A7C15u;
    return (size_t)(((unsigned __int128)hash * c->n) >> 64);
}

bool edge_tag_cache_get(const struct edge_tag_cache *c, uint64_t serial, uint64_t key, struct sha256 *out)
{
    const struct entry *s = &c->slots[place(c, serial, key)];
    if (s->serial != serial || s->key != key)
        return false;
    *out = s->digest;
    return true;
}

void edge_tag_cache_put(struct edge_tag_cache *c, uint64_t serial, uint64_t key,
                        const struct sha256 *digest)
{
    c->slots[place(c, serial, key)] = (struct entry){serial, key, *digest};
}

/* ---- inflated variants ---- */

enum { VARIANTS = 16384 };

struct edge_variants {
    struct rt_lock lock; /* guards the cache */
    struct edge_tag_cache *cache;
};

enum err edge_variants_create(struct edge_variants **out)
{
    struct edge_variants *v = calloc(1, sizeof *v);
    if (!v)
        return ERR_NO_MEMORY;
    rt_lock_init(&v->lock, "variants", 29);
    v->cache = edge_tag_cache_create(VARIANTS * sizeof(struct entry));
    if (!v->cache) {
        edge_variants_destroy(v);
        return ERR_NO_MEMORY;
    }
    *out = v;
    return ERR_OK;
}

void edge_variants_destroy(struct edge_variants *v)
{
    if (!v)
        return;
    edge_tag_cache_destroy(v->cache);
    rt_lock_fini(&v->lock);
    free(v);
}

bool edge_variants_get(struct edge_variants *v, uint64_t serial, uint64_t key, struct sha256 *out)
{
    rt_lock_take(&v->lock);
    bool found = edge_tag_cache_get(v->cache, serial, key, out);
    rt_lock_release(&v->lock);
    return found;
}

void edge_variants_put(struct edge_variants *v, uint64_t serial, uint64_t key, const struct sha256 *digest)
{
    rt_lock_take(&v->lock);
    edge_tag_cache_put(v->cache, serial, key, digest);
    rt_lock_release(&v->lock);
}
