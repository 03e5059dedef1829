/* The calls that every kind of disk shares; each says out loud that it may wait. */
#include "store/disk.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum err store_file_open(struct store_disk *d, const char *path, unsigned flags, struct store_file **out)
{
    rt_lock_check_none("open a file");
    return d->ops->open(d, path, flags, out);
}

void store_file_close(struct store_file *f)
{
    if (!f)
        return;
    rt_lock_check_none("close a file");
    /* Whoever needs the contents has flushed them before: nothing can be done about an error here. */
    enum err ignored = f->disk->ops->close(f);
    (void)ignored;
}

enum err store_file_pread(struct store_file *f, void *p, size_t n, uint64_t at, size_t *out_n)
{
    rt_lock_check_none("read a file");
    return f->disk->ops->pread(f, p, n, at, out_n);
}

enum err store_file_read_all(struct store_file *f, void *p, size_t n, uint64_t at)
{
    size_t got;
    enum err e = store_file_pread(f, p, n, at, &got);
    if (e)
        return e;
    return got == n ? ERR_OK : ERR_RANGE;
}

enum err store_file_pwrite(struct store_file *f, const void *p, size_t n, uint64_t at)
{
    rt_lock_check_none("write a file");
    return f->disk->ops->pwrite(f, p, n, at);
}

enum err store_file_append(struct store_file *f, const void *p, size_t n)
{
    rt_lock_check_none("append to a file");
    return f->disk->ops->append(f, p, n);
}

enum err store_file_sync(struct store_file *f)
{
    rt_lock_check_none("flush a file");
    return f->disk->ops->sync(f);
}

enum err store_file_write_out(struct store_file *f, uint64_t at, size_t n)
{
    rt_lock_check_none("write a file out");
    return f->disk->ops->write_out == NULL ? ERR_OK : f->disk->ops->write_out(f, at, n);
}

enum err store_file_truncate(struct store_file *f, uint64_t bytes)
{
    rt_lock_check_none("truncate a file");
    return f->disk->ops->truncate(f, bytes);
}

enum err store_file_allocate(struct store_file *f, uint64_t bytes)
{
    rt_lock_check_none("allocate a file");
    return f->disk->ops->allocate(f, bytes);
}

enum err store_file_size(struct store_file *f, uint64_t *out)
{
    rt_lock_check_none("stat a file");
    return f->disk->ops->size(f, out);
}

int store_file_fd(struct store_file *f)
{
    return f->disk->ops->fd(f);
}

enum err store_disk_sync_dir(struct store_disk *d, const char *dir)
{
    rt_lock_check_none("flush a directory");
    return d->ops->sync_dir(d, dir);
}

enum err store_disk_rename(struct store_disk *d, const char *from, const char *to)
{
    rt_lock_check_none("rename a file");
    return d->ops->rename(d, from, to);
}

enum err store_disk_unlink(struct store_disk *d, const char *path)
{
    rt_lock_check_none("unlink a file");
    return d->ops->unlink(d, path);
}

enum err store_disk_link(struct store_disk *d, const char *from, const char *to)
{
    rt_lock_check_none("link a file");
    return d->ops->link == NULL ? ERR_REFUSED : d->ops->link(d, from, to);
}

enum err store_disk_mkdir(struct store_disk *d, const char *path)
{
    rt_lock_check_none("make a directory");
    return d->ops->mkdir(d, path);
}

enum err store_disk_mkdirs(struct store_disk *d, const char *path)
{
    char part[STORE_PATH_MAX];
    size_t n = strlen(path);
    CHECK(n > 0 && n < sizeof part);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        enum err e = store_disk_mkdir(d, part);
        if (e && e != ERR_EXISTS)
            return e;
    }
    return ERR_OK;
}

enum err store_disk_list(struct store_disk *d, const char *dir, store_list_fn *fn, void *ctx)
{
    rt_lock_check_none("list a directory");
    return d->ops->list(d, dir, fn, ctx);
}

enum err store_disk_stat(struct store_disk *d, const char *path, struct store_stat *out)
{
    rt_lock_check_none("stat a file");
    return d->ops->stat(d, path, out);
}

enum err store_disk_lock(struct store_disk *d, const char *path, struct store_file **out)
{
    rt_lock_check_none("lock a file");
    return d->ops->lock(d, path, out);
}

enum err store_disk_free_bytes(struct store_disk *d, const char *dir, uint64_t *out)
{
    rt_lock_check_none("ask for free space");
    return d->ops->free_bytes(d, dir, out);
}

void store_disk_destroy(struct store_disk *d)
{
    if (d)
        d->ops->destroy(d);
}
