/*
 * Files in memory: contents by 4 KiB chunks (what is zero takes no room), names by whole path, and, when
 * tracking is on, what of both has reached the device.
 *
 * Ownership   Inodes are counted: one per name, per durable name, per pending change and per open file.
 * Threads     None of its own: the disk above locks.
 * Memory      A chunk is allocated by the first write that is not zero; twice the size when tracking.
 */
#ifndef RON_STORE_MEMFS_H
#define RON_STORE_MEMFS_H

#include "base/map.h"
#include "base/rng.h"
#include "store/disk.h"

struct memfs_chunk;

struct memfs_inode {
    unsigned refs;
    bool is_dir, locked;
    uint64_t size, durable_size;
    int64_t modified_ms;
    size_t n_chunks;
    struct memfs_chunk **chunk;
    struct memfs_inode *next, **link; /* all inodes of the file system */
};

enum memfs_change_kind { MEMFS_ADD, MEMFS_REMOVE, MEMFS_RENAME };

/* A change of names that has not reached the device. */
struct memfs_change {
    enum memfs_change_kind kind;
    char *path, *from; /* from: renames only */
    struct memfs_inode *inode;
    struct memfs_change *next;
};

struct memfs {
    bool track;
    uint64_t bytes_used; /* sum of all sizes */
    struct map now, durable;
    struct memfs_inode *inodes;
    struct memfs_change *first, **tail;
};

NODISCARD enum err memfs_init(struct memfs *fs, bool track);
void memfs_fini(struct memfs *fs); /* zeroises what it frees */

struct memfs_inode *memfs_find(const struct memfs *fs, const char *path); /* borrowed; NULL when absent */
NODISCARD enum err memfs_create(struct memfs *fs, const char *path, bool is_dir, struct memfs_inode **out);
NODISCARD enum err memfs_remove(struct memfs *fs, const char *path);
NODISCARD enum err memfs_rename(struct memfs *fs, const char *from, const char *to);
NODISCARD enum err memfs_sync_dir(struct memfs *fs, const char *dir);
bool memfs_is_child(const char *path, const char *dir, const char **out_name);

void memfs_ref(struct memfs_inode *inode);
void memfs_unref(struct memfs *fs, struct memfs_inode *inode);

size_t memfs_read(const struct memfs_inode *inode, void *p, size_t n, uint64_t at);
NODISCARD enum err memfs_write(struct memfs *fs, struct memfs_inode *inode, const void *p, size_t n,
                               uint64_t at);
NODISCARD enum err memfs_resize(struct memfs *fs, struct memfs_inode *inode, uint64_t size);

/* Durability; tracking only. */
void memfs_sync(struct memfs_inode *inode);
void memfs_sync_range(struct memfs_inode *inode, uint64_t at, size_t n);
void memfs_sync_failed(struct memfs_inode *inode, struct rng *rng);
/* Power fails: keep decides, sector by sector, what of the unflushed is there afterwards. */
typedef bool memfs_keep_fn(void *ctx);
void memfs_cut(struct memfs *fs, memfs_keep_fn *keep, void *ctx);
NODISCARD enum err memfs_flip(struct memfs *fs, struct memfs_inode *inode, uint64_t byte, unsigned bit);

#endif
