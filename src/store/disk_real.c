/*
 * The real disk: thin over system calls. Directories are 0700, files 0600. Locks are open-file-description
 * locks, so that two instances in one process exclude each other too.
 */
#include "store/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.h"

enum { ZERO_BYTES = 1 << 20 };

struct real_file {
    struct store_file base;
    int fd;
};

static int fd_of(struct store_file *f)
{
    return ((struct real_file *)f)->fd;
}

static enum err real_open(struct store_disk *d, const char *path, unsigned flags, struct store_file **out)
{
    int os = O_CLOEXEC | (flags & STORE_WRITE ? O_RDWR : O_RDONLY);
    os |= flags & STORE_CREATE ? O_CREAT : 0;
    os |= flags & STORE_EXCL ? O_EXCL : 0;
    os |= flags & STORE_TRUNC ? O_TRUNC : 0;
    os |= flags & STORE_DIRECT ? O_DIRECT : 0;
    os |= flags & STORE_DSYNC ? O_DSYNC : 0;
    struct real_file *f = malloc(sizeof *f);
    if (!f)
        return ERR_NO_MEMORY;
    do
        f->fd = open(path, os, 0600);
    while (f->fd < 0 && errno == EINTR);
    if (f->fd < 0) {
        int errnum = errno;
        free(f);
        /* EINVAL with O_DIRECT is how a file system says that it has no direct I/O (open(2)). */
        return errnum == EINVAL && (flags & STORE_DIRECT) ? ERR_RANGE : err_from_errno(errnum);
    }
    f->base.disk = d;
    *out = &f->base;
    return ERR_OK;
}

static enum err real_close(struct store_file *f)
{
    int fd = fd_of(f);
    free(f);
    return close(fd) == 0 ? ERR_OK : err_from_errno(errno);
}

static enum err real_pread(struct store_file *f, void *p, size_t n, uint64_t at, size_t *out_n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd_of(f), (uint8_t *)p + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_from_errno(errno);
        if (got == 0)
            break;
        done += (size_t)got;
    }
    *out_n = done;
    return ERR_OK;
}

/* A disk that is nearly full takes what fits, and says that it is full only when it is asked for the rest; and no call takes more than
 * 2 GiB. */
static enum err real_pwrite(struct store_file *f, const void *p, size_t n, uint64_t at)
{
    const uint8_t *from = p;
    while (n) {
        ssize_t put = pwrite(fd_of(f), from, n, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return err_from_errno(errno);
        if (put == 0)
            return ERR_IO;
        from += put;
        at += (uint64_t)put;
        n -= (size_t)put;
    }
    return ERR_OK;
}

static enum err real_size(struct store_file *f, uint64_t *out)
{
    struct stat st;
    if (fstat(fd_of(f), &st) < 0)
        return err_from_errno(errno);
    *out = (uint64_t)st.st_size;
    return ERR_OK;
}

static enum err real_append(struct store_file *f, const void *p, size_t n)
{
    uint64_t at;
    enum err e = real_size(f, &at);
    return e ? e : real_pwrite(f, p, n, at);
}

static enum err real_sync(struct store_file *f)
{
    /* Never retried, not even on EINTR: after a failure the kernel may have dropped the dirty pages. */
    return fdatasync(fd_of(f)) == 0 ? ERR_OK : err_from_errno(errno);
}

static enum err real_write_out(struct store_file *f, uint64_t at, size_t n)
{
    int r =
        sync_file_range(fd_of(f), (off_t)at, (off_t)n,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    return r == 0 ? ERR_OK : err_from_errno(errno);
}

static enum err real_truncate(struct store_file *f, uint64_t bytes)
{
    return ftruncate(fd_of(f), (off_t)bytes) == 0 ? ERR_OK : err_from_errno(errno);
}

static enum err write_zeros(struct store_file *f, uint64_t at, uint64_t end)
{
    static _Alignas(STORE_PAGE) const uint8_t zeros[ZERO_BYTES];
    enum err e = ERR_OK;
    while (at < end && e == ERR_OK) {
        size_t n = end - at < ZERO_BYTES ? (size_t)(end - at) : ZERO_BYTES;
        e = real_pwrite(f, zeros, n, at);
        at += n;
    }
    return e;
}

/*
 * fallocate first, so that a full disk says so before a byte is written; then the zeros, so that the blocks
 * are no longer "unwritten" and a later write needs no metadata of its own. Zeros bypass the page cache where
 * that is possible: a journal under load spent a fifth of its CPU time copying them there.
 */
static enum err real_allocate(struct store_file *f, uint64_t bytes)
{
    uint64_t at;
    enum err e = real_size(f, &at);
    if (e || bytes == 0)
        return e;
    int errnum = posix_fallocate(fd_of(f), 0, (off_t)bytes);
    if (errnum)
        return err_from_errno(errnum);
    if (at >= bytes)
        return ERR_OK;
    int flags = fcntl(fd_of(f), F_GETFL);
    bool direct = at % STORE_PAGE == 0 && bytes % STORE_PAGE == 0 && flags >= 0 &&
                  fcntl(fd_of(f), F_SETFL, flags | O_DIRECT) == 0;
    if (direct) {
        e = write_zeros(f, at, bytes);
        if (fcntl(fd_of(f), F_SETFL, flags) != 0 && e == ERR_OK)
            e = err_from_errno(errno);
        if (e == ERR_OK || e == ERR_NO_SPACE)
            return e; /* any other error may be the file system's way to refuse; a real one comes again */
    }
    return write_zeros(f, at, bytes);
}

static enum err real_sync_dir(struct store_disk *d, const char *dir)
{
    (void)d;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_from_errno(errno);
    enum err e = fsync(fd) == 0 ? ERR_OK : err_from_errno(errno);
    close(fd);
    return e;
}

static enum err real_rename(struct store_disk *d, const char *from, const char *to)
{
    (void)d;
    return rename(from, to) == 0 ? ERR_OK : err_from_errno(errno);
}

static enum err real_unlink(struct store_disk *d, const char *path)
{
    (void)d;
    return unlink(path) == 0 ? ERR_OK : err_from_errno(errno);
}

static enum err real_link(struct store_disk *d, const char *from, const char *to)
{
    (void)d;
    if (link(from, to) == 0)
        return ERR_OK;
    bool cannot =
        errno == EXDEV || errno == EPERM || errno == EMLINK || errno == ENOTSUP || errno == ENOSYS;
    return cannot ? ERR_REFUSED : err_from_errno(errno);
}

static enum err real_mkdir(struct store_disk *d, const char *path)
{
    (void)d;
    return mkdir(path, 0700) == 0 ? ERR_OK : err_from_errno(errno);
}

static enum err real_list(struct store_disk *d, const char *dir, store_list_fn *fn, void *ctx)
{
    (void)d;
    DIR *open_dir = opendir(dir);
    if (!open_dir)
        return err_from_errno(errno);
    enum err e = ERR_OK;
    while (e == ERR_OK) {
        errno = 0;
        struct dirent *entry = readdir(open_dir);
        if (!entry) {
            e = err_from_errno(errno);
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            e = fn(ctx, entry->d_name);
    }
    closedir(open_dir);
    return e;
}

static enum err real_stat(struct store_disk *d, const char *path, struct store_stat *out)
{
    (void)d;
    struct stat st;
    if (stat(path, &st) < 0)
        return err_from_errno(errno);
    out->bytes = (uint64_t)st.st_size;
    out->modified_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    out->is_dir = S_ISDIR(st.st_mode);
    return ERR_OK;
}

static enum err real_lock(struct store_disk *d, const char *path, struct store_file **out)
{
    struct store_file *f;
    enum err e = real_open(d, path, STORE_WRITE | STORE_CREATE, &f);
    if (e)
        return e;
    struct flock lk = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd_of(f), F_OFD_SETLK, &lk) < 0) {
        e = errno == EAGAIN || errno == EACCES ? ERR_LOCKED : err_from_errno(errno);
        enum err ignored = real_close(f);
        (void)ignored;
        return e;
    }
    *out = f;
    return ERR_OK;
}

static enum err real_free_bytes(struct store_disk *d, const char *dir, uint64_t *out)
{
    (void)d;
    struct statvfs fs;
    if (statvfs(dir, &fs) < 0)
        return err_from_errno(errno);
    *out = (uint64_t)fs.f_bavail * fs.f_frsize;
    return ERR_OK;
}

static void real_destroy(struct store_disk *d)
{
    (void)d;
}

struct store_disk *store_disk_real(void)
{
    static const struct store_disk_ops ops = {
        .open = real_open,
        .close = real_close,
        .pread = real_pread,
        .pwrite = real_pwrite,
        .append = real_append,
        .sync = real_sync,
        .write_out = real_write_out,
        .truncate = real_truncate,
        .allocate = real_allocate,
        .size = real_size,
        .fd = fd_of,
        .sync_dir = real_sync_dir,
        .rename = real_rename,
        .unlink = real_unlink,
        .link = real_link,
        .mkdir = real_mkdir,
        .list = real_list,
        .stat = real_stat,
        .lock = real_lock,
        .free_bytes = real_free_bytes,
        .destroy = real_destroy,
    };
    static struct store_disk disk = {&ops};
    return &disk;
}
