/*
 * Leaf directories of archives too large to keep whole: decoded when they are first needed, kept in one least-recently-used
 * cache for all packs, 24 bytes an entry.
 *
 * Ownership   A leaf is reference-counted: who got one may use it after it left the cache.
 * Threads     Everything from any thread; the lock `dirs` guards the cache.
 */
#ifndef RON_EDGE_DIRS_H
#define RON_EDGE_DIRS_H

#include "rt/lock.h"
#include "services/edge/core/pmtiles.h"

struct edge_dirs;

struct edge_leaf {
    _Atomic uint32_t refs;
    struct edge_dir dir;
};

NODISCARD enum err edge_dirs_create(struct edge_dirs **out);
void edge_dirs_destroy(struct edge_dirs *d); /* NULL is fine */

/* serial names the mounted pack, offset the leaf in it. A reference, or NULL: nobody decoded it lately. */
struct edge_leaf *edge_dirs_get(struct edge_dirs *d, uint64_t serial, uint64_t offset);
/* Takes over dir.list. A reference to what is in the cache now, which may be somebody else's of the same leaf; NULL: no
 * memory (dir.list is freed). bytes_max is what all leaves together may take. */
struct edge_leaf *edge_dirs_put(struct edge_dirs *d, uint64_t serial, uint64_t offset, struct edge_dir dir,
                                size_t bytes_max);
void edge_leaf_unref(struct edge_leaf *l);
size_t edge_dirs_bytes(struct edge_dirs *d);

#endif
