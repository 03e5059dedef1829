/*
 * Index of entries by a key (msg_id, or what is kept of a dedup digest), in buckets that split.
 *
 * A slot is a u32: the entry in its low bits, and above it bits of the key's hash, so that a search touches entries (each a cache
 * miss) only where the key is all but certain to be. The first 12 bits of the hash choose one of 4096 parts, the next ones
 * a bucket of the part's directory; a bucket knows how many of them (its depth) brought a key here, and its slots hold the bits
 * that come next:
 *
 *   hash   [ part 12 | directory: depth | mark ................. ]
 *   slot   [ mark: as many bits as are known, from the top | 0 | entry: as many bits as the largest needs ]
 *
 * A full bucket splits by the top bit of its marks, which then moves from the slots into the directory: no entry is read, and
 * nothing but one bucket and one directory of some kilobytes is touched, however large the index is. A bucket whose marks are
 * used up reads its entries once and has full ones again.
 *
 * Threads     One writer.
 * Memory      Buckets of 128 bytes, a little under 70 % full on average, in chunks of 2 MiB; a directory of 4 bytes per bucket
 *             or so. Both grow on demand and are given back by fini only: about 13 bytes per entry for two indexes.
 */
#ifndef RON_MAILBOX_CORE_INDEX_H
#define RON_MAILBOX_CORE_INDEX_H

#include "services/mailbox/core/entry.h"

enum { MAILBOX_INDEX_PARTS = 4096, MAILBOX_BUCKET_SLOTS = 31, MAILBOX_INDEX_DEPTH_MAX = 16 };

struct mailbox_bucket {
    uint8_t n, depth;
    uint8_t bits;  /* of the entry, in every slot */
    uint8_t marks; /* bits of the hash, in every slot */
    uint32_t slot[MAILBOX_BUCKET_SLOTS];
};
_Static_assert(sizeof(struct mailbox_bucket) == 128, "a bucket is two cache lines");

struct mailbox_index_part {
    uint32_t *directory; /* 2^depth buckets; NULL at depth 0 */
    uint32_t only;       /* the bucket at depth 0; 0 = none yet */
    uint32_t depth;
};

struct mailbox_index {
    const struct mailbox_slabs *slabs;
    size_t key_offset, key_bytes; /* of the key inside an entry; its last eight bytes are uniform */
    uint64_t factor;              /* odd and secret: nobody can choose keys that meet in one bucket */
    size_t n;
    struct mailbox_bucket **chunk;
    uint32_t chunks, buckets,
        directories; /* buckets: number 0 is not used; directories: their slots together */
    struct mailbox_index_part part[MAILBOX_INDEX_PARTS];
};

void mailbox_index_init(struct mailbox_index *x, const struct mailbox_slabs *slabs, size_t key_offset,
                        size_t key_bytes, uint64_t secret);
void mailbox_index_fini(struct mailbox_index *x);
uint32_t mailbox_index_find(const struct mailbox_index *x, const uint8_t *key); /* 0 = absent */
/*
 * Hints: fetch what find will look at. The directory's place first, some sixteen operations ahead; then, half way, the bucket that
 * it names.
 */
void mailbox_index_prefetch_place(const struct mailbox_index *x, const uint8_t *key);
void mailbox_index_prefetch(const struct mailbox_index *x, const uint8_t *key);
/* The key must be absent. ERR_NO_MEMORY: nothing changed that find could see. */
NODISCARD enum err mailbox_index_add(struct mailbox_index *x, uint32_t entry);
void mailbox_index_remove(struct mailbox_index *x, uint32_t entry); /* must be present */
/* n keys will come: makes directories for them, so that buckets need not split on the way. */
NODISCARD enum err mailbox_index_reserve(struct mailbox_index *x, size_t n);
size_t mailbox_index_bytes(const struct mailbox_index *x);

#endif
