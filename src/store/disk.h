/*
 * The disk as RON sees it: a small set of calls that can be real, in memory, or broken on purpose.
 *
 * A write either happens whole or is an error: a short write is ERR_IO, because nobody above can do
 * anything better with half of one. Nothing here retries except EINTR.
 *
 * Ownership   A struct store_disk outlives its files. store_file_close frees the file whatever it returns.
 *             Paths are copied or used at once.
 * Threads     Any number of threads may use one disk, and one file too (positioned calls).
 *             Every call may wait for the device: hold no lock.
 * Memory      Real files allocate their handle only. The memory disk keeps what is not zero.
 * Order       Nothing is durable before store_file_sync (contents and length) and store_disk_sync_dir
 *             (names). A file opened with STORE_DSYNC makes each write durable before it returns.
 */
#ifndef RON_STORE_DISK_H
#define RON_STORE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "rt/lock.h"

enum { STORE_SECTOR = 512, STORE_PAGE = 4096, STORE_PATH_MAX = 512 };

enum store_open_flags {
    STORE_READ = 0,
    STORE_WRITE = 1,  /* read and write */
    STORE_CREATE = 2, /* make it when it is not there */
    STORE_EXCL = 4,   /* with CREATE: ERR_EXISTS when it is there */
    STORE_TRUNC = 8,
    STORE_DIRECT = 16, /* buffer, offset and length aligned; ERR_RANGE when the file system refuses */
    STORE_DSYNC = 32,
};

struct store_stat {
    uint64_t bytes;
    int64_t modified_ms;
    bool is_dir;
};

struct store_disk;
struct store_file;

/* One entry of a directory: a bare name, without "." and "..". Returning anything but ERR_OK ends the listing. */
typedef enum err store_list_fn(void *ctx, const char *name);

/* What a kind of disk implements; users call the functions below. */
struct store_disk_ops {
    enum err (*open)(struct store_disk *d, const char *path, unsigned flags, struct store_file **out);
    enum err (*close)(struct store_file *f);
    enum err (*pread)(struct store_file *f, void *p, size_t n, uint64_t at, size_t *out_n);
    enum err (*pwrite)(struct store_file *f, const void *p, size_t n, uint64_t at);
    enum err (*append)(struct store_file *f, const void *p, size_t n);
    enum err (*sync)(struct store_file *f);
    enum err (*write_out)(struct store_file *f, uint64_t at, size_t n); /* NULL: nothing to do */
    enum err (*truncate)(struct store_file *f, uint64_t bytes);
    enum err (*allocate)(struct store_file *f, uint64_t bytes);
    enum err (*size)(struct store_file *f, uint64_t *out);
    int (*fd)(struct store_file *f);
    enum err (*sync_dir)(struct store_disk *d, const char *dir);
    enum err (*rename)(struct store_disk *d, const char *from, const char *to);
    enum err (*unlink)(struct store_disk *d, const char *path);
    enum err (*link)(struct store_disk *d, const char *from, const char *to); /* NULL: it cannot */
    enum err (*mkdir)(struct store_disk *d, const char *path);
    enum err (*list)(struct store_disk *d, const char *dir, store_list_fn *fn, void *ctx);
    enum err (*stat)(struct store_disk *d, const char *path, struct store_stat *out);
    enum err (*lock)(struct store_disk *d, const char *path, struct store_file **out);
    enum err (*free_bytes)(struct store_disk *d, const char *dir, uint64_t *out);
    void (*destroy)(struct store_disk *d);
};

/* Each implementation's struct starts with this one. */
struct store_disk {
    const struct store_disk_ops *ops;
};
struct store_file {
    struct store_disk *disk;
};

struct store_disk *store_disk_real(void); /* one for the process; destroying it does nothing */
/* Keeps everything in memory and forgets it: amnesia. ERR_NO_SPACE beyond bytes_max (0: no bound). */
NODISCARD enum err store_disk_memory(uint64_t bytes_max, struct store_disk **out);
void store_disk_destroy(struct store_disk *d); /* every file must be closed */

/* ERR_NOT_FOUND, ERR_EXISTS, ERR_PERMISSION, ERR_NO_SPACE, ERR_IO */
NODISCARD enum err store_file_open(struct store_disk *d, const char *path, unsigned flags,
                                   struct store_file **out) RT_BLOCKS;
void store_file_close(struct store_file *f) RT_BLOCKS; /* NULL is fine; flushes nothing */
/* Up to n bytes; fewer only at the end of the file. */
NODISCARD enum err store_file_pread(struct store_file *f, void *p, size_t n, uint64_t at,
                                    size_t *out_n) RT_BLOCKS;
/* Exactly n bytes; ERR_RANGE when the file ends before. */
NODISCARD enum err store_file_read_all(struct store_file *f, void *p, size_t n, uint64_t at) RT_BLOCKS;
NODISCARD enum err store_file_pwrite(struct store_file *f, const void *p, size_t n, uint64_t at) RT_BLOCKS;
NODISCARD enum err store_file_append(struct store_file *f, const void *p,
                                     size_t n) RT_BLOCKS;           /* one appender */
NODISCARD enum err store_file_sync(struct store_file *f) RT_BLOCKS; /* fdatasync */
/*
 * Has a stretch written by the device and waits for that, so that little is left for the sync to come. Promises nothing: it may be
 * lost until then. Unlike sync it leaves the rest of the file alone, say a part that is mapped and being written.
 */
NODISCARD enum err store_file_write_out(struct store_file *f, uint64_t at, size_t n) RT_BLOCKS;
NODISCARD enum err store_file_truncate(struct store_file *f, uint64_t bytes) RT_BLOCKS;
/* Grows the file to this size with zeros that are really written, and fills its holes: writing into it never needs space. */
NODISCARD enum err store_file_allocate(struct store_file *f, uint64_t bytes) RT_BLOCKS;
NODISCARD enum err store_file_size(struct store_file *f, uint64_t *out) RT_BLOCKS;
int store_file_fd(struct store_file *f); /* for sendfile and mmap; -1 when there is none */

NODISCARD enum err store_disk_sync_dir(struct store_disk *d, const char *dir) RT_BLOCKS;
NODISCARD enum err store_disk_rename(struct store_disk *d, const char *from,
                                     const char *to) RT_BLOCKS; /* replaces */
NODISCARD enum err store_disk_unlink(struct store_disk *d, const char *path) RT_BLOCKS;
/* A second name for the same file. ERR_EXISTS, ERR_NOT_FOUND; ERR_REFUSED: not on this disk, copy it. */
NODISCARD enum err store_disk_link(struct store_disk *d, const char *from, const char *to) RT_BLOCKS;
NODISCARD enum err store_disk_mkdir(struct store_disk *d,
                                    const char *path) RT_BLOCKS; /* 0700; ERR_EXISTS */
NODISCARD enum err store_disk_mkdirs(struct store_disk *d,
                                     const char *path) RT_BLOCKS; /* and its parents */
NODISCARD enum err store_disk_list(struct store_disk *d, const char *dir, store_list_fn *fn,
                                   void *ctx) RT_BLOCKS;
NODISCARD enum err store_disk_stat(struct store_disk *d, const char *path,
                                   struct store_stat *out) RT_BLOCKS;
/* Holds the file (made when absent) until it is closed or the process ends; ERR_LOCKED when another does. */
NODISCARD enum err store_disk_lock(struct store_disk *d, const char *path,
                                   struct store_file **out) RT_BLOCKS;
NODISCARD enum err store_disk_free_bytes(struct store_disk *d, const char *dir, uint64_t *out) RT_BLOCKS;

#endif
