/*
 * A disk in memory. Every call takes the one lock, asks the gate (the faulty disk's; the plain one has none),
 * and works on memfs. Nothing under the lock can wait.
 */
#include "store/disk_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

enum { MEMDISK_LOCK_RANK = 990 };

static struct memdisk *disk_of(struct store_disk *d)
{
    return (struct memdisk *)d;
}

static struct memdisk_file *file_of(struct store_file *f)
{
    return (struct memdisk_file *)f;
}

static enum memdisk_verdict ask(struct memdisk *d, enum memdisk_call call, enum err *out_err)
{
    *out_err = ERR_IO;
    if (d->down)
        return MEMDISK_FAIL;
    return d->gate ? d->gate(d, call, out_err) : MEMDISK_GO;
}

static enum memdisk_verdict ask_file(struct memdisk *d, struct memdisk_file *f, enum memdisk_call call,
                                     enum err *out_err)
{
    *out_err = ERR_IO;
    if (f->generation != d->generation)
        return MEMDISK_FAIL;
    return ask(d, call, out_err);
}

static bool room_for(const struct memdisk *d, uint64_t more)
{
    return d->bytes_max == 0 || d->fs.bytes_used + more <= d->bytes_max;
}

/* --- opening --- */

static bool parent_exists(struct memdisk *d, const char *path)
{
    char dir[STORE_PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return true;
    size_t n = (size_t)(slash - path);
    CHECK(n < sizeof dir);
    memcpy(dir, path, n);
    dir[n] = '\0';
    struct memfs_inode *inode = memfs_find(&d->fs, dir);
    return inode && inode->is_dir;
}

static enum err find_or_create(struct memdisk *d, const char *path, unsigned flags,
                               struct memfs_inode **out)
{
    struct memfs_inode *inode = memfs_find(&d->fs, path);
    if (inode && inode->is_dir)
        return ERR_IO;
    if (inode && (flags & STORE_EXCL))
        return ERR_EXISTS;
    if (inode) {
        *out = inode;
        return flags & STORE_TRUNC ? memfs_resize(&d->fs, inode, 0) : ERR_OK;
    }
    if (!(flags & STORE_CREATE) || !parent_exists(d, path))
        return ERR_NOT_FOUND;
    return memfs_create(&d->fs, path, false, out);
}

static enum err open_locked(struct memdisk *d, const char *path, unsigned flags, struct memdisk_file *f)
{
    enum err e;
    if ((flags & STORE_DIRECT) && d->no_direct)
        return ERR_RANGE;
    bool makes = (flags & STORE_CREATE) && !memfs_find(&d->fs, path);
    enum memdisk_call call = makes ? MEMDISK_GROW : flags & STORE_TRUNC ? MEMDISK_NAME : MEMDISK_READ;
    enum memdisk_verdict v = ask(d, call, &e);
    if (v == MEMDISK_FAIL || v == MEMDISK_HALF)
        return e;
    e = find_or_create(d, path, flags, &f->inode);
    if (v == MEMDISK_CUT) {
        d->cut(d);
        return ERR_IO;
    }
    if (e == ERR_OK) {
        memfs_ref(f->inode);
        f->generation = d->generation;
    }
    return e;
}

static enum err mem_open(struct store_disk *sd, const char *path, unsigned flags, struct store_file **out)
{
    struct memdisk *d = disk_of(sd);
    struct memdisk_file *f = calloc(1, sizeof *f);
    if (!f)
        return ERR_NO_MEMORY;
    f->base.disk = sd;
    f->dsync = flags & STORE_DSYNC;
    f->writable = flags & STORE_WRITE;
    rt_lock_take(&d->lock);
    enum err e = open_locked(d, path, flags, f);
    rt_lock_release(&d->lock);
    if (e)
        free(f);
    else
        *out = &f->base;
    return e;
}

static enum err mem_close(struct store_file *sf)
{
    struct memdisk *d = disk_of(sf->disk);
    struct memdisk_file *f = file_of(sf);
    rt_lock_take(&d->lock);
    if (f->holds_lock && f->generation == d->generation)
        f->inode->locked = false;
    memfs_unref(&d->fs, f->inode);
    rt_lock_release(&d->lock);
    free(f);
    return ERR_OK;
}

static enum err mem_lock(struct store_disk *sd, const char *path, struct store_file **out)
{
    struct memdisk *d = disk_of(sd);
    struct store_file *f;
    enum err e = mem_open(sd, path, STORE_WRITE | STORE_CREATE, &f);
    if (e)
        return e;
    rt_lock_take(&d->lock);
    bool taken = file_of(f)->inode->locked;
    if (!taken)
        file_of(f)->inode->locked = file_of(f)->holds_lock = true;
    rt_lock_release(&d->lock);
    if (taken) {
        e = mem_close(f);
        return ERR_LOCKED;
    }
    *out = f;
    return ERR_OK;
}

/* --- contents --- */

/* Whether a read of this file goes ahead. */
static bool read_goes(struct memdisk *d, struct memdisk_file *f, enum err *out_err)
{
    enum memdisk_verdict v = ask_file(d, f, MEMDISK_READ, out_err);
    if (v == MEMDISK_CUT)
        d->cut(d);
    if (v == MEMDISK_GO)
        *out_err = ERR_OK;
    return v == MEMDISK_GO;
}

static enum err mem_pread(struct store_file *sf, void *p, size_t n, uint64_t at, size_t *out_n)
{
    struct memdisk *d = disk_of(sf->disk);
    enum err e;
    rt_lock_take(&d->lock);
    if (read_goes(d, file_of(sf), &e))
        *out_n = memfs_read(file_of(sf)->inode, p, n, at);
    rt_lock_release(&d->lock);
    return e;
}

/* Some sectors of a write, as a device does it that fails in the middle. */
static void write_half(struct memdisk *d, struct memfs_inode *inode, const uint8_t *p, size_t n,
                       uint64_t at)
{
    for (size_t done = 0; done < n;) {
        size_t part = STORE_SECTOR - (size_t)((at + done) % STORE_SECTOR);
        if (part > n - done)
            part = n - done;
        if (rng_below(&d->rng, 2)) {
            enum err e = memfs_write(&d->fs, inode, p + done, part, at + done);
            CHECK(e == ERR_OK);
        }
        done += part;
    }
}

static enum err write_locked(struct memdisk *d, struct memdisk_file *f, const void *p, size_t n,
                             uint64_t at)
{
    CHECK(f->writable);
    uint64_t end = at + n, more = end > f->inode->size ? end - f->inode->size : 0;
    enum err e;
    switch (ask_file(d, f, more ? MEMDISK_GROW : MEMDISK_WRITE, &e)) {
    case MEMDISK_FAIL:
        return e;
    case MEMDISK_HALF:
        write_half(d, f->inode, p, n, at);
        return e;
    case MEMDISK_CUT:
        e = memfs_write(&d->fs, f->inode, p, n, at);
        d->cut(d);
        return ERR_IO;
    case MEMDISK_GO:
        break;
    }
    if (!room_for(d, more))
        return ERR_NO_SPACE;
    e = memfs_write(&d->fs, f->inode, p, n, at);
    if (e == ERR_OK && f->dsync && d->fs.track)
        memfs_sync_range(f->inode, at, n);
    f->inode->modified_ms = clock_wall_ms(clock_real());
    return e;
}

static enum err mem_pwrite(struct store_file *sf, const void *p, size_t n, uint64_t at)
{
    struct memdisk *d = disk_of(sf->disk);
    rt_lock_take(&d->lock);
    enum err e = write_locked(d, file_of(sf), p, n, at);
    rt_lock_release(&d->lock);
    return e;
}

static enum err mem_append(struct store_file *sf, const void *p, size_t n)
{
    struct memdisk *d = disk_of(sf->disk);
    rt_lock_take(&d->lock);
    enum err e = write_locked(d, file_of(sf), p, n, file_of(sf)->inode->size);
    rt_lock_release(&d->lock);
    return e;
}

static enum err sync_locked(struct memdisk *d, struct memdisk_file *f)
{
    enum err e;
    switch (ask_file(d, f, MEMDISK_SYNC, &e)) {
    case MEMDISK_HALF:
        memfs_sync_failed(f->inode, &d->rng);
        return e;
    case MEMDISK_FAIL:
        return e;
    case MEMDISK_CUT:
        d->cut(d);
        return ERR_IO;
    case MEMDISK_GO:
        break;
    }
    if (d->fs.track)
        memfs_sync(f->inode);
    return ERR_OK;
}

static enum err mem_sync(struct store_file *sf)
{
    struct memdisk *d = disk_of(sf->disk);
    rt_lock_take(&d->lock);
    enum err e = sync_locked(d, file_of(sf));
    rt_lock_release(&d->lock);
    return e;
}

static enum err resize_locked(struct memdisk *d, struct memdisk_file *f, uint64_t bytes)
{
    uint64_t more = bytes > f->inode->size ? bytes - f->inode->size : 0;
    enum err e;
    enum memdisk_verdict v = ask_file(d, f, more ? MEMDISK_GROW : MEMDISK_WRITE, &e);
    if (v == MEMDISK_FAIL || v == MEMDISK_HALF)
        return e;
    e = room_for(d, more) ? memfs_resize(&d->fs, f->inode, bytes) : ERR_NO_SPACE;
    if (v == MEMDISK_CUT) {
        d->cut(d);
        return ERR_IO;
    }
    return e;
}

static enum err mem_truncate(struct store_file *sf, uint64_t bytes)
{
    struct memdisk *d = disk_of(sf->disk);
    rt_lock_take(&d->lock);
    enum err e = resize_locked(d, file_of(sf), bytes);
    rt_lock_release(&d->lock);
    return e;
}

static enum err mem_allocate(struct store_file *sf, uint64_t bytes)
{
    struct memdisk *d = disk_of(sf->disk);
    rt_lock_take(&d->lock);
    enum err e = bytes > file_of(sf)->inode->size ? resize_locked(d, file_of(sf), bytes) : ERR_OK;
    rt_lock_release(&d->lock);
    return e;
}

static enum err mem_size(struct store_file *sf, uint64_t *out)
{
    struct memdisk *d = disk_of(sf->disk);
    enum err e;
    rt_lock_take(&d->lock);
    if (read_goes(d, file_of(sf), &e))
        *out = file_of(sf)->inode->size;
    rt_lock_release(&d->lock);
    return e;
}

static int mem_fd(struct store_file *f)
{
    (void)f;
    return -1;
}

/* --- names --- */

enum name_op { OP_SYNC_DIR, OP_RENAME, OP_UNLINK, OP_MKDIR };

static enum err name_op_apply(struct memdisk *d, enum name_op op, const char *path, const char *to)
{
    struct memfs_inode *made;
    switch (op) {
    case OP_SYNC_DIR:
        return d->fs.track ? memfs_sync_dir(&d->fs, path) : ERR_OK;
    case OP_RENAME:
        return parent_exists(d, to) ? memfs_rename(&d->fs, path, to) : ERR_NOT_FOUND;
    case OP_UNLINK:
        return memfs_remove(&d->fs, path);
    case OP_MKDIR:
        if (memfs_find(&d->fs, path) || strcmp(path, "/") == 0 || strcmp(path, ".") == 0)
            return ERR_EXISTS;
        return parent_exists(d, path) ? memfs_create(&d->fs, path, true, &made) : ERR_NOT_FOUND;
    }
    UNREACHABLE();
}

static enum err name_op(struct store_disk *sd, enum name_op op, const char *path, const char *to)
{
    static const enum memdisk_call calls[] = {MEMDISK_SYNC, MEMDISK_NAME, MEMDISK_NAME, MEMDISK_GROW};
    struct memdisk *d = disk_of(sd);
    enum err e;
    rt_lock_take(&d->lock);
    enum memdisk_verdict v = ask(d, calls[op], &e);
    if (v == MEMDISK_GO) {
        e = name_op_apply(d, op, path, to);
    } else if (v == MEMDISK_CUT) {
        if (op != OP_SYNC_DIR)
            e = name_op_apply(d, op, path, to);
        d->cut(d);
        e = ERR_IO;
    }
    rt_lock_release(&d->lock);
    return e;
}

static enum err mem_sync_dir(struct store_disk *d, const char *dir)
{
    return name_op(d, OP_SYNC_DIR, dir, NULL);
}

static enum err mem_rename(struct store_disk *d, const char *from, const char *to)
{
    return name_op(d, OP_RENAME, from, to);
}

static enum err mem_unlink(struct store_disk *d, const char *path)
{
    return name_op(d, OP_UNLINK, path, NULL);
}

static enum err mem_mkdir(struct store_disk *d, const char *path)
{
    return name_op(d, OP_MKDIR, path, NULL);
}

struct name_list {
    size_t n, cap;
    char **name;
};

static bool list_add(struct name_list *l, const char *name)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 16;
        char **grown = realloc(l->name, cap * sizeof(char *));
        if (!grown)
            return false;
        l->name = grown;
        l->cap = cap;
    }
    l->name[l->n] = strdup(name);
    return l->name[l->n] && ++l->n;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names are collected under the lock and reported without it; sorted, so that runs can be repeated. */
static enum err mem_list(struct store_disk *sd, const char *dir, store_list_fn *fn, void *ctx)
{
    struct memdisk *d = disk_of(sd);
    struct name_list l = {0};
    enum err e;
    rt_lock_take(&d->lock);
    enum memdisk_verdict v = ask(d, MEMDISK_READ, &e);
    if (v == MEMDISK_CUT)
        d->cut(d);
    if (v == MEMDISK_GO) {
        struct memfs_inode *inode = memfs_find(&d->fs, dir);
        e = (inode && inode->is_dir) || strcmp(dir, ".") == 0 || strcmp(dir, "/") == 0 ? ERR_OK
                                                                                       : ERR_NOT_FOUND;
        size_t at = 0;
        struct bytes key;
        const char *name;
        while (e == ERR_OK && map_next(&d->fs.now, &at, &key, NULL))
            if (memfs_is_child((const char *)key.p, dir, &name) && !list_add(&l, name))
                e = ERR_NO_MEMORY;
    }
    rt_lock_release(&d->lock);
    if (l.n)
        qsort(l.name, l.n, sizeof(char *), by_text);
    for (size_t i = 0; i < l.n; i++) {
        if (e == ERR_OK)
            e = fn(ctx, l.name[i]);
        free(l.name[i]);
    }
    free(l.name);
    return e;
}

static enum err mem_stat(struct store_disk *sd, const char *path, struct store_stat *out)
{
    struct memdisk *d = disk_of(sd);
    enum err e;
    rt_lock_take(&d->lock);
    enum memdisk_verdict v = ask(d, MEMDISK_READ, &e);
    if (v == MEMDISK_CUT)
        d->cut(d);
    if (v == MEMDISK_GO) {
        struct memfs_inode *inode = memfs_find(&d->fs, path);
        e = inode ? ERR_OK : ERR_NOT_FOUND;
        if (inode)
            *out = (struct store_stat){inode->size, inode->modified_ms, inode->is_dir};
    }
    rt_lock_release(&d->lock);
    return e;
}

static enum err mem_free_bytes(struct store_disk *sd, const char *dir, uint64_t *out)
{
    (void)dir;
    struct memdisk *d = disk_of(sd);
    rt_lock_take(&d->lock);
    *out = d->bytes_max ? (d->bytes_max > d->fs.bytes_used ? d->bytes_max - d->fs.bytes_used : 0)
                        : UINT64_MAX / 2;
    rt_lock_release(&d->lock);
    return ERR_OK;
}

static void mem_destroy(struct store_disk *sd)
{
    memdisk_fini(disk_of(sd));
    free(sd);
}

enum err memdisk_init(struct memdisk *d, bool track, uint64_t bytes_max)
{
    static const struct store_disk_ops ops = {
        .open = mem_open,
        .close = mem_close,
        .pread = mem_pread,
        .pwrite = mem_pwrite,
        .append = mem_append,
        .sync = mem_sync,
        .truncate = mem_truncate,
        .allocate = mem_allocate,
        .size = mem_size,
        .fd = mem_fd,
        .sync_dir = mem_sync_dir,
        .rename = mem_rename,
        .unlink = mem_unlink,
        .mkdir = mem_mkdir,
        .list = mem_list,
        .stat = mem_stat,
        .lock = mem_lock,
        .free_bytes = mem_free_bytes,
        .destroy = mem_destroy,
    };
    memset(d, 0, sizeof *d);
    d->base.ops = &ops;
    d->bytes_max = bytes_max;
    enum err e = memfs_init(&d->fs, track);
    if (e == ERR_OK)
        rt_lock_init(&d->lock, "memdisk", MEMDISK_LOCK_RANK);
    return e;
}

void memdisk_fini(struct memdisk *d)
{
    memfs_fini(&d->fs);
    rt_lock_fini(&d->lock);
}

enum err store_disk_memory(uint64_t bytes_max, struct store_disk **out)
{
    struct memdisk *d = malloc(sizeof *d);
    if (!d)
        return ERR_NO_MEMORY;
    enum err e = memdisk_init(d, false, bytes_max);
    if (e)
        free(d);
    else
        *out = &d->base;
    return e;
}
