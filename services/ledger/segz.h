/*
 * Packed segments: a sealed segment compressed in pieces, so that every offset stays what it was.
 *
 *   0 "RONLSGZ1" | 8 segment_no u32 | 12 chunk u32 = 65536 | 16 n_chunks u32 | 20 zero u32 | 24 image_sha256[32]
 *   56 n_chunks × length u32 of the zstd frame (0: the chunk is all zero) | CRC-32C of all before | zstd frames
 *
 * Packing writes beside, reads back, compares the whole image, and only then removes the segment. That takes seconds on a busy
 * machine; who packs has other duties, and is asked after every chunk (struct ledger_pace).
 *
 * Threads     pack: the segment keeper. pread: any.
 */
#ifndef RON_LEDGER_SEGZ_H
#define RON_LEDGER_SEGZ_H

#include "base/buf.h"
#include "services/ledger/ledger.h"

enum { SEGZ_CHUNK = 65536, SEGZ_HEADER = 56 };

/* Called after every chunk that was read, compressed or compared. */
struct ledger_pace {
    void (*fn)(void *ctx);
    void *ctx;
};

struct ledger_segz {
    uint32_t segment_no, n_chunks;
    struct sha256 image;
    const uint8_t *lengths;
    uint64_t data_at;
};
/* The header with its table, from the first bytes of the file. ERR_CORRUPT. */
NODISCARD enum err ledger_segz_parse(struct bytes head, struct ledger_segz *out);
/* One chunk of a packed file into `out` (SEGZ_CHUNK bytes). */
NODISCARD enum err ledger_segz_chunk(const struct ledger_segz *z, struct bytes file, uint32_t chunk,
                                     uint8_t *out);

void ledger_segz_path(const struct ledger *l, uint32_t segment_no, char out[STORE_PATH_MAX]);
/* Packs a sealed segment and removes its .seg. ERR_CORRUPT when what was written does not read back. */
NODISCARD enum err ledger_segz_pack(struct ledger *l, uint32_t segment_no,
                                    struct ledger_pace pace) RT_BLOCKS;

#endif
