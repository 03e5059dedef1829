/*
 * Tracking: each chunk holds the cache's bytes and the device's, with one dirty bit per sector. A flush copies
 * dirty sectors over; a power cut copies the ones that happened to get there and then throws the cache away.
 * Names work the same way: `now` is what callers see, `durable` what a reboot would see, and the list of
 * changes leads from one to the other in order.
 */
#include "store/memfs.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { SECTORS = STORE_PAGE / STORE_SECTOR };

struct memfs_chunk {
    uint8_t dirty; /* bit i: sector i differs from what the device has, or may */
    uint8_t cache[STORE_PAGE];
    uint8_t device[]; /* STORE_PAGE bytes when tracking */
};

/* --- names --- */

struct memfs_name {
    struct memfs_inode *inode;
    char path[];
};

static struct bytes path_key(const char *path)
{
    return bytes_of(path, strlen(path));
}

static enum err names_put(struct memfs *fs, struct map *names, const char *path, struct memfs_inode *inode)
{
    size_t n = strlen(path);
    struct memfs_name *name = malloc(sizeof *name + n + 1);
    if (!name)
        return ERR_NO_MEMORY;
    memcpy(name->path, path, n + 1);
    name->inode = inode;
    void *old = NULL;
    enum err e = map_put(names, path_key(name->path), name, &old);
    if (e) {
        free(name);
        return e;
    }
    memfs_ref(inode);
    if (old) {
        memfs_unref(fs, ((struct memfs_name *)old)->inode);
        free(old);
    }
    return ERR_OK;
}

static bool names_drop(struct memfs *fs, struct map *names, const char *path)
{
    struct memfs_name *name = map_remove(names, path_key(path));
    if (!name)
        return false;
    memfs_unref(fs, name->inode);
    free(name);
    return true;
}

struct memfs_inode *memfs_find(const struct memfs *fs, const char *path)
{
    struct memfs_name *name = map_get(&fs->now, path_key(path));
    return name ? name->inode : NULL;
}

bool memfs_is_child(const char *path, const char *dir, const char **out_name)
{
    const char *slash = strrchr(path, '/');
    size_t dir_n = strlen(dir);
    if (!slash) {
        *out_name = path;
        return strcmp(dir, ".") == 0;
    }
    *out_name = slash + 1;
    if (slash == path)
        return strcmp(dir, "/") == 0;
    return (size_t)(slash - path) == dir_n && memcmp(path, dir, dir_n) == 0;
}

static enum err note_change(struct memfs *fs, enum memfs_change_kind kind, const char *path,
                            const char *from, struct memfs_inode *inode)
{
    if (!fs->track)
        return ERR_OK;
    struct memfs_change *c = calloc(1, sizeof *c);
    if (!c)
        return ERR_NO_MEMORY;
    c->kind = kind;
    c->path = strdup(path);
    c->from = from ? strdup(from) : NULL;
    CHECK(c->path && (!from || c->from)); /* tracking is for tests: no point in going on without memory */
    c->inode = inode;
    if (inode)
        memfs_ref(inode);
    *fs->tail = c;
    fs->tail = &c->next;
    return ERR_OK;
}

static void change_free(struct memfs *fs, struct memfs_change *c)
{
    if (c->inode)
        memfs_unref(fs, c->inode);
    free(c->path);
    free(c->from);
    free(c);
}

static void change_apply(struct memfs *fs, const struct memfs_change *c)
{
    if (c->kind == MEMFS_RENAME)
        names_drop(fs, &fs->durable, c->from);
    if (c->kind == MEMFS_REMOVE) {
        names_drop(fs, &fs->durable, c->path);
    } else {
        enum err e = names_put(fs, &fs->durable, c->path, c->inode);
        CHECK(e == ERR_OK);
    }
}

enum err memfs_create(struct memfs *fs, const char *path, bool is_dir, struct memfs_inode **out)
{
    struct memfs_inode *inode = calloc(1, sizeof *inode);
    if (!inode)
        return ERR_NO_MEMORY;
    inode->refs = 1; /* ours, until the name holds it */
    inode->is_dir = is_dir;
    inode->link = &fs->inodes;
    inode->next = fs->inodes;
    if (inode->next)
        inode->next->link = &inode->next;
    fs->inodes = inode;
    enum err e = names_put(fs, &fs->now, path, inode);
    if (e == ERR_OK)
        e = note_change(fs, MEMFS_ADD, path, NULL, inode);
    if (e == ERR_OK)
        *out = inode;
    memfs_unref(fs, inode);
    return e;
}

enum err memfs_remove(struct memfs *fs, const char *path)
{
    if (!names_drop(fs, &fs->now, path))
        return ERR_NOT_FOUND;
    return note_change(fs, MEMFS_REMOVE, path, NULL, NULL);
}

enum err memfs_rename(struct memfs *fs, const char *from, const char *to)
{
    struct memfs_inode *inode = memfs_find(fs, from);
    if (!inode)
        return ERR_NOT_FOUND;
    enum err e = names_put(fs, &fs->now, to, inode);
    if (e)
        return e;
    names_drop(fs, &fs->now, from);
    return note_change(fs, MEMFS_RENAME, to, from, inode);
}

enum err memfs_sync_dir(struct memfs *fs, const char *dir)
{
    const char *ignored;
    for (struct memfs_change **at = &fs->first; *at;) {
        struct memfs_change *c = *at;
        if (!memfs_is_child(c->path, dir, &ignored)) {
            at = &c->next;
            continue;
        }
        change_apply(fs, c);
        *at = c->next;
        change_free(fs, c);
    }
    fs->tail = &fs->first;
    while (*fs->tail)
        fs->tail = &(*fs->tail)->next;
    return ERR_OK;
}

/* --- inodes --- */

void memfs_ref(struct memfs_inode *inode)
{
    CHECK(inode->refs > 0);
    inode->refs++;
}

static void chunks_free(struct memfs_inode *inode)
{
    for (size_t i = 0; i < inode->n_chunks; i++)
        if (inode->chunk[i]) {
            explicit_bzero(inode->chunk[i]->cache, STORE_PAGE); /* amnesia keeps no trace */
            free(inode->chunk[i]);
        }
    free(inode->chunk);
}

void memfs_unref(struct memfs *fs, struct memfs_inode *inode)
{
    CHECK(inode->refs > 0);
    if (--inode->refs > 0)
        return;
    fs->bytes_used -= inode->size;
    *inode->link = inode->next;
    if (inode->next)
        inode->next->link = inode->link;
    chunks_free(inode);
    free(inode);
}

size_t memfs_read(const struct memfs_inode *inode, void *p, size_t n, uint64_t at)
{
    if (at >= inode->size)
        return 0;
    if (n > inode->size - at)
        n = (size_t)(inode->size - at);
    for (size_t done = 0; done < n;) {
        size_t i = (size_t)((at + done) / STORE_PAGE), off = (size_t)((at + done) % STORE_PAGE);
        size_t part = n - done < STORE_PAGE - off ? n - done : STORE_PAGE - off;
        if (i < inode->n_chunks && inode->chunk[i])
            memcpy((uint8_t *)p + done, inode->chunk[i]->cache + off, part);
        else
            memset((uint8_t *)p + done, 0, part);
        done += part;
    }
    return n;
}

static struct memfs_chunk *chunk_at(struct memfs *fs, struct memfs_inode *inode, size_t i)
{
    if (i >= inode->n_chunks) {
        size_t n = inode->n_chunks ? inode->n_chunks : 4;
        while (n <= i)
            n *= 2;
        struct memfs_chunk **grown = realloc(inode->chunk, n * sizeof(struct memfs_chunk *));
        if (!grown)
            return NULL;
        memset(grown + inode->n_chunks, 0, (n - inode->n_chunks) * sizeof(struct memfs_chunk *));
        inode->chunk = grown;
        inode->n_chunks = n;
    }
    if (!inode->chunk[i])
        inode->chunk[i] = calloc(1, sizeof(struct memfs_chunk) + (fs->track ? STORE_PAGE : 0));
    return inode->chunk[i];
}

static bool all_zero(const uint8_t *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static enum err write_part(struct memfs *fs, struct memfs_inode *inode, const uint8_t *p, size_t n,
                           size_t i, size_t off)
{
    if ((i >= inode->n_chunks || !inode->chunk[i]) && all_zero(p, n))
        return ERR_OK;
    struct memfs_chunk *c = chunk_at(fs, inode, i);
    if (!c)
        return ERR_NO_MEMORY;
    memcpy(c->cache + off, p, n);
    for (size_t s = off / STORE_SECTOR; s * STORE_SECTOR < off + n; s++)
        c->dirty |= (uint8_t)(1u << s);
    return ERR_OK;
}

enum err memfs_write(struct memfs *fs, struct memfs_inode *inode, const void *p, size_t n, uint64_t at)
{
    if (n == 0)
        return ERR_OK; /* does not extend the file, as pwrite(2) does not */
    for (size_t done = 0; done < n;) {
        size_t i = (size_t)((at + done) / STORE_PAGE), off = (size_t)((at + done) % STORE_PAGE);
        size_t part = n - done < STORE_PAGE - off ? n - done : STORE_PAGE - off;
        enum err e = write_part(fs, inode, (const uint8_t *)p + done, part, i, off);
        if (e)
            return e;
        done += part;
    }
    if (at + n > inode->size) {
        fs->bytes_used += at + n - inode->size;
        inode->size = at + n;
    }
    return ERR_OK;
}

enum err memfs_resize(struct memfs *fs, struct memfs_inode *inode, uint64_t size)
{
    /* What is cut off must read as zero when the file grows again. */
    static const uint8_t zeros[STORE_PAGE];
    for (uint64_t at = size; at < inode->size;) {
        size_t part = STORE_PAGE - (size_t)(at % STORE_PAGE);
        if (part > inode->size - at)
            part = (size_t)(inode->size - at);
        enum err e =
            write_part(fs, inode, zeros, part, (size_t)(at / STORE_PAGE), (size_t)(at % STORE_PAGE));
        if (e)
            return e;
        at += part;
    }
    fs->bytes_used = fs->bytes_used - inode->size + size;
    inode->size = size;
    return ERR_OK;
}

/* --- durability --- */

static void sector_to_device(struct memfs_chunk *c, unsigned s)
{
    memcpy(c->device + s * STORE_SECTOR, c->cache + s * STORE_SECTOR, STORE_SECTOR);
    c->dirty &= (uint8_t) ~(1u << s);
}

void memfs_sync_range(struct memfs_inode *inode, uint64_t at, size_t n)
{
    uint64_t first = at / STORE_SECTOR, end = (at + n + STORE_SECTOR - 1) / STORE_SECTOR;
    for (uint64_t s = first; s < end; s++) {
        size_t i = (size_t)(s / SECTORS);
        struct memfs_chunk *c = i < inode->n_chunks ? inode->chunk[i] : NULL;
        if (c && (c->dirty & (1u << (s % SECTORS))))
            sector_to_device(c, (unsigned)(s % SECTORS));
    }
    inode->durable_size = inode->size;
}

void memfs_sync(struct memfs_inode *inode)
{
    for (size_t i = 0; i < inode->n_chunks; i++)
        for (unsigned s = 0; inode->chunk[i] && s < SECTORS; s++)
            if (inode->chunk[i]->dirty & (1u << s))
                sector_to_device(inode->chunk[i], s);
    inode->durable_size = inode->size;
}

void memfs_sync_failed(struct memfs_inode *inode, struct rng *rng)
{
    for (size_t i = 0; i < inode->n_chunks; i++)
        for (unsigned s = 0; inode->chunk[i] && s < SECTORS; s++)
            if (inode->chunk[i]->dirty & (1u << s)) {
                if (rng_below(rng, 2))
                    sector_to_device(inode->chunk[i], s);
                else
                    inode->chunk[i]->dirty &= (uint8_t) ~(1u << s); /* clean for the kernel, lost for us */
            }
    if (rng_below(rng, 2))
        inode->durable_size = inode->size;
}

static void inode_cut(struct memfs *fs, struct memfs_inode *inode, memfs_keep_fn *keep, void *ctx)
{
    for (size_t i = 0; i < inode->n_chunks; i++) {
        struct memfs_chunk *c = inode->chunk[i];
        for (unsigned s = 0; c && s < SECTORS; s++)
            if ((c->dirty & (1u << s)) && keep(ctx))
                sector_to_device(c, s);
        if (c) {
            memcpy(c->cache, c->device, STORE_PAGE);
            c->dirty = 0;
        }
    }
    uint64_t size = inode->size != inode->durable_size && keep(ctx) ? inode->size : inode->durable_size;
    enum err e = memfs_resize(fs, inode, size);
    CHECK(e == ERR_OK);
    memfs_sync(inode);
    inode->locked = false;
}

static void names_clear(struct memfs *fs, struct map *names)
{
    size_t at = 0;
    void *value;
    while (map_next(names, &at, NULL, &value)) {
        memfs_unref(fs, ((struct memfs_name *)value)->inode);
        free(value);
    }
    map_clear(names);
}

static void changes_clear(struct memfs *fs)
{
    for (struct memfs_change *c = fs->first, *next; c; c = next) {
        next = c->next;
        change_free(fs, c);
    }
    fs->first = NULL;
    fs->tail = &fs->first;
}

void memfs_cut(struct memfs *fs, memfs_keep_fn *keep, void *ctx)
{
    CHECK(fs->track);
    size_t pending = 0, kept = 0;
    for (struct memfs_change *c = fs->first; c; c = c->next)
        pending++;
    /* A journaling file system writes its metadata in order: a prefix survives. */
    while (kept < pending && keep(ctx))
        kept++;
    for (struct memfs_change *c = fs->first; c && kept > 0; c = c->next, kept--)
        change_apply(fs, c);
    changes_clear(fs);
    names_clear(fs, &fs->now);
    size_t at = 0;
    void *value;
    while (map_next(&fs->durable, &at, NULL, &value)) {
        struct memfs_name *name = value;
        enum err e = names_put(fs, &fs->now, name->path, name->inode);
        CHECK(e == ERR_OK);
    }
    for (struct memfs_inode *inode = fs->inodes; inode; inode = inode->next)
        inode_cut(fs, inode, keep, ctx);
}

enum err memfs_flip(struct memfs *fs, struct memfs_inode *inode, uint64_t byte, unsigned bit)
{
    CHECK(fs->track && bit < 8);
    struct memfs_chunk *c = chunk_at(fs, inode, (size_t)(byte / STORE_PAGE));
    if (!c)
        return ERR_NO_MEMORY;
    c->cache[byte % STORE_PAGE] ^= (uint8_t)(1u << bit);
    c->device[byte % STORE_PAGE] ^= (uint8_t)(1u << bit);
    return ERR_OK;
}

enum err memfs_init(struct memfs *fs, bool track)
{
    memset(fs, 0, sizeof *fs);
    fs->track = track;
    fs->tail = &fs->first;
    enum err e = map_init(&fs->now, 16);
    if (e)
        return e;
    e = map_init(&fs->durable, 16);
    if (e)
        map_fini(&fs->now);
    return e;
}

void memfs_fini(struct memfs *fs)
{
    changes_clear(fs);
    names_clear(fs, &fs->now);
    names_clear(fs, &fs->durable);
    CHECK(fs->inodes == NULL); /* a file is still open */
    map_fini(&fs->now);
    map_fini(&fs->durable);
}
