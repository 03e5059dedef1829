/*
 * Digests of tiles: a tag file per pack (core/tag_file.h), and a small cache per event loop in front of all of them.
 *
 * Ownership   The pack owns its tags. The cache belongs to one loop's thread.
 * Threads     find_now from any thread; put and seal by pack_verifier alone.
 */
#ifndef RON_EDGE_TAGS_H
#define RON_EDGE_TAGS_H

#include <stdatomic.h>

#include "rt/lock.h"
#include "services/edge/core/tag_file.h"
#include "store/disk.h"

struct edge_tags {
    struct store_file *file; /* NULL: there is none, digests are computed on demand */
    struct edge_tag_header header;
    bool full; /* told once */
    /* A bit per bucket of a file made now: clear means that nothing was written there, so there is nothing to look for. NULL: any
     * bucket may hold something. Set with release after the slot was written, read with acquire. */
    _Atomic uint64_t *written;
};

/* Opens the tag file at path if it is of this pack, else makes a new one. Failing is harmless: file stays NULL. */
NODISCARD enum err edge_tags_open(struct edge_tags *t, struct store_disk *disk, const char *path,
                                  const struct edge_tag_header *want, uint64_t contents,
                                  uint64_t bytes_max) RT_BLOCKS;
void edge_tags_close(struct edge_tags *t) RT_BLOCKS;

/* ERR_NOT_FOUND; ERR_BUSY when it would have to wait for the disk. */
NODISCARD enum err edge_tags_find_now(const struct edge_tags *t, uint64_t key, struct edge_tag *out);
NODISCARD enum err edge_tags_find(const struct edge_tags *t, uint64_t key, struct edge_tag *out) RT_BLOCKS;
/* ERR_TOO_LARGE: the bucket is full. */
NODISCARD enum err edge_tags_put(struct edge_tags *t, const struct edge_tag *tag) RT_BLOCKS;
NODISCARD enum err edge_tags_seal(struct edge_tags *t, const struct sha256 *archive,
                                  uint64_t now_ms) RT_BLOCKS;

/* A digest on its way from whoever computed it to the verifier. */
struct edge_tag_note {
    struct edge_pack *pack; /* a reference */
    struct edge_tag tag;
};

struct edge_tag_cache *edge_tag_cache_create(size_t bytes);
void edge_tag_cache_destroy(struct edge_tag_cache *c);
/* serial names the mounted pack, so that a new pack never sees the digests of an old one. */
bool edge_tag_cache_get(const struct edge_tag_cache *c, uint64_t serial, uint64_t key, struct sha256 *out);
void edge_tag_cache_put(struct edge_tag_cache *c, uint64_t serial, uint64_t key,
                        const struct sha256 *digest);

/*
 * Digests of tiles that had to be inflated for a client, by the stored tile they came from: 16,384, one for all threads, so
 * that the same tile is not hashed for every client that takes no gzip.
 */
struct edge_variants;
NODISCARD enum err edge_variants_create(struct edge_variants **out);
void edge_variants_destroy(struct edge_variants *v); /* NULL is fine */
bool edge_variants_get(struct edge_variants *v, uint64_t serial, uint64_t key, struct sha256 *out);
void edge_variants_put(struct edge_variants *v, uint64_t serial, uint64_t key, const struct sha256 *digest);

#endif
