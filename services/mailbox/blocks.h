/*
 * Old bodies in RAM: pieces of a journal that somebody is working through.
 *
 * Consumers of a backlog do not read it in the order it was written: every topic has its own place in it, and the further they come
 * the further these places drift apart. What is read lies in the same region all the same, so the bytes are kept in blocks at
 * fixed places; each block of a segment has one place in the table, and neighbours never share one. A block is small enough that
 * reading it whole costs little more than reading the one message somebody asked for: where reads are scattered nothing is lost,
 * and where they follow one another there is one read per block.
 *
 * Threads     The shard's worker.
 * Memory      MAILBOX_BLOCKS blocks, when the first one is read.
 */
#ifndef RON_MAILBOX_BLOCKS_H
#define RON_MAILBOX_BLOCKS_H

#include "base/bytes.h"
#include "base/err.h"
#include "rt/lock.h"

enum { MAILBOX_BLOCK_BYTES = 8 << 10, MAILBOX_BLOCKS = 64 };

struct mailbox_blocks {
    uint8_t *bytes; /* of all blocks; NULL before the first */
    struct mailbox_block {
        uint32_t segment, no; /* no: in the segment */
        uint32_t n;           /* bytes held; 0 = none */
    } block[MAILBOX_BLOCKS];
};

/* Where the bytes come from. */
struct mailbox_blocks_source {
    enum err (*read)(void *ctx, uint32_t segment, uint64_t offset, uint8_t *into, size_t n);
    void *ctx;
};

/*
 * n bytes of the segment at offset. Only bytes before `settled` are kept: those behind it may still change. On failure `into` holds
 * anything, and nothing that was read is kept.
 */
NODISCARD enum err mailbox_blocks_read(struct mailbox_blocks *b, const struct mailbox_blocks_source *from,
                                       uint32_t segment, uint64_t offset, uint64_t settled, uint8_t *into,
                                       size_t n) RT_BLOCKS;
void mailbox_blocks_fini(struct mailbox_blocks *b);

#endif
