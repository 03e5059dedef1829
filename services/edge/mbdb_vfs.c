#include "services/edge/mbdb_vfs.h"

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char vfs_name[] = "ron-edge-mbtiles";

struct file {
    sqlite3_file base;
    struct edge_mbdb_file *of;
};

static struct edge_mbdb_file *of(sqlite3_file *f)
{
    return ((struct file *)(void *)f)->of;
}

static int on_close(sqlite3_file *f)
{
    (void)f; /* the descriptor is the handle's */
    return SQLITE_OK;
}

static ssize_t read_at(const struct edge_mbdb_file *f, void *to, size_t n, off_t at)
{
    struct iovec v = {to, n};
    if (!f->waits) {
        ssize_t got = preadv2(f->fd, &v, 1, at, RWF_NOWAIT);
        if (got >= 0 || errno != EOPNOTSUPP) /* tmpfs: always in memory */
            return got;
    }
    return pread(f->fd, to, n, at);
}

/* SQLite wants exactly n bytes, or zeros behind the end of the file. */
static int on_read(sqlite3_file *sf, void *to, int n, sqlite3_int64 at)
{
    struct edge_mbdb_file *f = of(sf);
    size_t done = 0, want = (size_t)n;
    while (done < want) {
        ssize_t got = read_at(f, (uint8_t *)to + done, want - done, (off_t)at + (off_t)done);
        if (got > 0) {
            done += (size_t)got;
            continue;
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0) {
            memset((uint8_t *)to + done, 0, want - done);
            return SQLITE_IOERR_SHORT_READ;
        }
        f->would_wait = f->would_wait || errno == EAGAIN;
        return SQLITE_IOERR_READ;
    }
    return SQLITE_OK;
}

static int on_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    (void)f;
    (void)p;
    (void)n;
    (void)at;
    return SQLITE_READONLY;
}

static int on_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    (void)f;
    (void)n;
    return SQLITE_READONLY;
}

static int on_flag(sqlite3_file *f, int flag)
{
    (void)f;
    (void)flag;
    return SQLITE_OK;
}

static int on_size(sqlite3_file *f, sqlite3_int64 *out)
{
    struct stat st;
    if (fstat(of(f)->fd, &st) != 0)
        return SQLITE_IOERR_FSTAT;
    *out = st.st_size;
    return SQLITE_OK;
}

static int on_reserved(sqlite3_file *f, int *out)
{
    (void)f;
    *out = 0;
    return SQLITE_OK;
}

static int on_control(sqlite3_file *f, int op, void *arg)
{
    (void)f;
    (void)op;
    (void)arg;
    return SQLITE_NOTFOUND;
}

static int on_sector(sqlite3_file *f)
{
    (void)f;
    return 4096;
}

static int on_device(sqlite3_file *f)
{
    (void)f;
    return SQLITE_IOCAP_IMMUTABLE;
}

static const sqlite3_io_methods methods = {.iVersion = 1,
                                           .xClose = on_close,
                                           .xRead = on_read,
                                           .xWrite = on_write,
                                           .xTruncate = on_truncate,
                                           .xSync = on_flag,
                                           .xFileSize = on_size,
                                           .xLock = on_flag,
                                           .xUnlock = on_flag,
                                           .xCheckReservedLock = on_reserved,
                                           .xFileControl = on_control,
                                           .xSectorSize = on_sector,
                                           .xDeviceCharacteristics = on_device};

/* There is one file, and it was open before: its address comes in the name. */
static int on_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out_flags)
{
    (void)v;
    f->pMethods = NULL;
    const char *text = name && (flags & SQLITE_OPEN_MAIN_DB) ? sqlite3_uri_parameter(name, "file") : NULL;
    if (!text)
        return SQLITE_CANTOPEN;
    ((struct file *)(void *)f)->of = (struct edge_mbdb_file *)(uintptr_t)strtoull(text, NULL, 16);
    f->pMethods = &methods;
    if (out_flags)
        *out_flags = SQLITE_OPEN_READONLY;
    return SQLITE_OK;
}

static int on_delete(sqlite3_vfs *v, const char *name, int sync)
{
    (void)v;
    (void)name;
    (void)sync;
    return SQLITE_READONLY;
}

static int on_access(sqlite3_vfs *v, const char *name, int flags, int *out)
{
    (void)v;
    (void)name;
    (void)flags;
    *out = 0;
    return SQLITE_OK;
}

static int on_full_name(sqlite3_vfs *v, const char *name, int n, char *out)
{
    (void)v;
    snprintf(out, (size_t)n, "%s", name);
    return SQLITE_OK;
}

static sqlite3_vfs vfs;

/* Randomness, sleeping and time stay the default's. */
static void make_vfs(void)
{
    const sqlite3_vfs *usual = sqlite3_vfs_find(NULL);
    if (!usual)
        return;
    vfs = *usual;
    vfs.iVersion = 1;
    vfs.pNext = NULL;
    vfs.zName = vfs_name;
    vfs.szOsFile = (int)sizeof(struct file);
    vfs.xOpen = on_open;
    vfs.xDelete = on_delete;
    vfs.xAccess = on_access;
    vfs.xFullPathname = on_full_name;
    sqlite3_vfs_register(&vfs, 0);
}

int edge_mbdb_vfs_open(struct edge_mbdb_file *f, struct sqlite3 **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char uri[96];
    pthread_once(&once, make_vfs);
    snprintf(uri, sizeof uri, "file:mbtiles?mode=ro&immutable=1&file=%llx",
             (unsigned long long)(uintptr_t)f);
    return sqlite3_open_v2(
        uri, out, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
        vfs_name);
}
