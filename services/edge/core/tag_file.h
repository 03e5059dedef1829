/*
 * The tag file: the digest of every tile of one pack, found by one page read.
 *
 *   page 0   0 "RONETAG1" · 8 u32 version 1 · 12 u32 kind · 16 u64 buckets · 24 u64 dev, ino, size, mtime_ns, ctime_ns ·
 *            64 SHA-256 of the pack's head · 96 digest of the whole archive (zero until sealed) · 128 u64 sealed_ms ·
 *            136 u32 0 · 140 u32 CRC32C of bytes 0-139 · zeros up to 4096
 *   bucket   16 zero bytes, then 85 slots of 48: u64 key+1 (0: empty) · u32 length · u32 CRC32C over (key+1, length,
 *            digest) · digest
 *
 * All integers little-endian. A slot whose CRC is wrong is empty: the worst a torn write can do is one hash more.
 * Key: offset of the content in the tile section (PMTiles), z<<58 | x<<29 | y (MBTiles).
 *
 * Threads     Pure.
 */
#ifndef RON_EDGE_TAG_FILE_H
#define RON_EDGE_TAG_FILE_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/sha256.h"
#include "services/edge/core/pack_id.h"

enum {
    EDGE_TAG_PAGE = 4096,
    EDGE_TAG_SLOT = 48,
    EDGE_TAG_SLOTS = 85, /* per bucket */
    EDGE_TAG_FIRST = 16, /* where the slots of a bucket begin */
    EDGE_TAG_FILL = 42,  /* contents per bucket that the size aims at */
};

struct edge_tag_header {
    uint32_t kind;
    uint64_t buckets;
    struct edge_file_id file;
    struct sha256 head;
    struct sha256 archive; /* valid when sealed_ms is not 0 */
    uint64_t sealed_ms;
};

uint64_t
edge_tag_buckets(uint64_t contents); /* a power of two, at least contents / EDGE_TAG_FILL, at least 1 */
uint64_t edge_tag_bucket(uint64_t key, uint64_t buckets);

void edge_tag_header_encode(const struct edge_tag_header *h, uint8_t out[EDGE_TAG_PAGE]);
NODISCARD enum err edge_tag_header_decode(const uint8_t page[EDGE_TAG_PAGE],
                                          struct edge_tag_header *out); /* ERR_CORRUPT, ERR_VERSION */

struct edge_tag {
    uint64_t key;
    uint32_t length;
    struct sha256 digest;
};

void edge_tag_encode(const struct edge_tag *t, uint8_t out[EDGE_TAG_SLOT]);
bool edge_tag_decode(const uint8_t slot[EDGE_TAG_SLOT], struct edge_tag *out); /* false: empty or damaged */

/* In a bucket's page: where the key is, or -1. */
int edge_tag_find(const uint8_t page[EDGE_TAG_PAGE], uint64_t key, struct edge_tag *out);
/* The slot to write for this key: its own, else the first empty or damaged one, else -1 (full). */
int edge_tag_place(const uint8_t page[EDGE_TAG_PAGE], uint64_t key);

#endif
