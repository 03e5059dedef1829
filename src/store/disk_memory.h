/* What the memory disk and the faulty one share: the calls over memfs, with one place that may say no. */
#ifndef RON_STORE_DISK_MEMORY_H
#define RON_STORE_DISK_MEMORY_H

#include "store/disk.h"
#include "store/memfs.h"

enum memdisk_call { MEMDISK_READ, MEMDISK_NAME, MEMDISK_SYNC, MEMDISK_WRITE, MEMDISK_GROW };

/* What the gate decides about a call: go on, fail with err, do half of it and fail, or do it and lose power. */
enum memdisk_verdict { MEMDISK_GO, MEMDISK_FAIL, MEMDISK_HALF, MEMDISK_CUT };

struct memdisk {
    struct store_disk base;
    struct rt_lock lock; /* guards everything below; a leaf */
    struct memfs fs;
    uint64_t bytes_max;  /* 0: no bound */
    uint64_t generation; /* of power: files of an older one are dead */
    bool down, no_direct;
    struct rng rng; /* sectors of half writes */
    /* NULL: always go. Called with the lock held. */
    enum memdisk_verdict (*gate)(struct memdisk *d, enum memdisk_call call, enum err *out_err);
    void (*cut)(struct memdisk *d);
};

struct memdisk_file {
    struct store_file base;
    struct memfs_inode *inode;
    uint64_t generation;
    bool dsync, holds_lock, writable;
};

NODISCARD enum err memdisk_init(struct memdisk *d, bool track, uint64_t bytes_max);
void memdisk_fini(struct memdisk *d);

#endif
