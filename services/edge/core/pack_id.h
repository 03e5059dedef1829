/*
 * What a pack is, as 32 bytes: a file by its place, size, times and first bytes; a directory by its files and their
 * digests. Equal ids mean that a reload may keep what is mounted.
 *
 * Threads     Pure.
 */
#ifndef RON_EDGE_PACK_ID_H
#define RON_EDGE_PACK_ID_H

#include "base/bytes.h"
#include "base/sha256.h"

enum { EDGE_PACK_HEAD = 16384 }; /* so many first bytes count */

enum edge_pack_kind { EDGE_PACK_PMTILES = 1, EDGE_PACK_MBTILES = 2, EDGE_PACK_DIR = 3 };

/* All zero but size for a pack that is not a file. */
struct edge_file_id {
    uint64_t dev, ino, size, mtime_ns, ctime_ns;
};

static inline bool edge_file_id_eq(const struct edge_file_id *a, const struct edge_file_id *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns;
}

/* head: the first min(EDGE_PACK_HEAD, size) bytes. */
void edge_pack_id(enum edge_pack_kind kind, const struct edge_file_id *file, struct bytes head,
                  struct sha256 *out);

/* Of a directory: begin, add every file in bytewise order of its path, end. */
void edge_dir_id_begin(struct sha256_ctx *c);
void edge_dir_id_add(struct sha256_ctx *c, struct str path, const struct sha256 *digest);

#endif
