#include "store/file_replace.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

bool store_path_dir(const char *path, char out[STORE_PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= STORE_PATH_MAX)
        return false;
    if (!slash)
        strcpy(out, ".");
    else if (n == 0)
        strcpy(out, "/");
    else {
        memcpy(out, path, n);
        out[n] = '\0';
    }
    return true;
}

void store_path_join(char out[STORE_PATH_MAX], const char *dir, const char *name)
{
    int n = snprintf(out, STORE_PATH_MAX, "%s/%s", dir, name);
    CHECK(n > 0 && n < STORE_PATH_MAX);
}

void store_path_absolute(char out[STORE_PATH_MAX], const char *path)
{
    char here[STORE_PATH_MAX];
    int n = STORE_PATH_MAX;
    if (*path && *path != '/' && getcwd(here, sizeof here))
        n = snprintf(out, STORE_PATH_MAX, "%s/%s", here, path);
    if (n >= STORE_PATH_MAX)
        snprintf(out, STORE_PATH_MAX, "%s", path);
}

static enum err write_flushed(struct store_disk *d, const char *path, struct bytes contents) RT_BLOCKS
{
    struct store_file *f;
    enum err e = store_file_open(d, path, STORE_WRITE | STORE_CREATE | STORE_TRUNC, &f);
    if (e)
        return e;
    if (contents.n)
        e = store_file_pwrite(f, contents.p, contents.n, 0);
    if (e == ERR_OK)
        e = store_file_sync(f);
    store_file_close(f);
    return e;
}

enum err store_file_replace(struct store_disk *d, const char *path, struct bytes contents)
{
    char temp[STORE_PATH_MAX], dir[STORE_PATH_MAX];
    int n = snprintf(temp, sizeof temp, "%s.tmp", path);
    if (n < 0 || (size_t)n >= sizeof temp || !store_path_dir(path, dir))
        return ERR_TOO_LARGE;
    enum err e = write_flushed(d, temp, contents);
    if (e) {
        enum err ignored = store_disk_unlink(d, temp); /* the first error is the one to report */
        (void)ignored;
        return e;
    }
    e = store_disk_rename(d, temp, path);
    return e ? e : store_disk_sync_dir(d, dir);
}

enum err store_file_slurp(struct store_disk *d, const char *path, struct buf *out)
{
    struct store_file *f;
    uint64_t size;
    enum err e = store_file_open(d, path, STORE_READ, &f);
    if (e)
        return e;
    e = store_file_size(f, &size);
    if (e == ERR_OK && size > SIZE_MAX / 2)
        e = ERR_TOO_LARGE;
    if (e == ERR_OK && size > 0) {
        uint8_t *p = buf_reserve(out, (size_t)size);
        e = p ? store_file_read_all(f, p, (size_t)size, 0) : out->err;
        if (e == ERR_OK)
            buf_commit(out, (size_t)size);
    }
    store_file_close(f);
    return e;
}

enum err store_file_remove(struct store_disk *d, const char *path)
{
    char dir[STORE_PATH_MAX];
    if (!store_path_dir(path, dir))
        return ERR_TOO_LARGE;
    enum err e = store_disk_unlink(d, path);
    if (e == ERR_NOT_FOUND)
        return ERR_OK;
    return e ? e : store_disk_sync_dir(d, dir);
}
