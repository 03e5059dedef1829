#include "services/mailbox/blocks.h"

#include <stdlib.h>
#include <string.h>

void mailbox_blocks_fini(struct mailbox_blocks *b)
{
    free(b->bytes);
    *b = (struct mailbox_blocks){0};
}

/* The bytes of block `no` that are settled, into its place; ERR_OK with fewer than all of them at the end of what is. */
static enum err load(struct mailbox_blocks *b, const struct mailbox_blocks_source *from, uint32_t segment,
                     uint32_t no, uint64_t settled) RT_BLOCKS
{
    struct mailbox_block *k = &b->block[no % MAILBOX_BLOCKS];
    uint64_t begin = (uint64_t)no * MAILBOX_BLOCK_BYTES, left = settled - begin;
    uint32_t n = left < MAILBOX_BLOCK_BYTES ? (uint32_t)left : MAILBOX_BLOCK_BYTES;
    if (!b->bytes && !(b->bytes = malloc((size_t)MAILBOX_BLOCKS * MAILBOX_BLOCK_BYTES)))
        return ERR_NO_MEMORY;
    k->n = 0;
    enum err e = from->read(from->ctx, segment, begin,
                            b->bytes + (size_t)(no % MAILBOX_BLOCKS) * MAILBOX_BLOCK_BYTES, n);
    if (e == ERR_OK)
        *k = (struct mailbox_block){segment, no, n};
    return e;
}

/* A piece that lies inside one block. */
static enum err read_piece(struct mailbox_blocks *b, const struct mailbox_blocks_source *from,
                           uint32_t segment, uint64_t offset, uint64_t settled, uint8_t *into,
                           size_t n) RT_BLOCKS
{
    uint32_t no = (uint32_t)(offset / MAILBOX_BLOCK_BYTES);
    size_t at = (size_t)(offset % MAILBOX_BLOCK_BYTES);
    const struct mailbox_block *k = &b->block[no % MAILBOX_BLOCKS];
    bool held = k->segment == segment && k->no == no && at + n <= k->n;
    if (!held && (offset + n > settled || load(b, from, segment, no, settled) != ERR_OK))
        return from->read(from->ctx, segment, offset, into,
                          n); /* it may still be readable, or says what is wrong with it */
    memcpy(into, b->bytes + (size_t)(no % MAILBOX_BLOCKS) * MAILBOX_BLOCK_BYTES + at, n);
    return ERR_OK;
}

enum err mailbox_blocks_read(struct mailbox_blocks *b, const struct mailbox_blocks_source *from,
                             uint32_t segment, uint64_t offset, uint64_t settled, uint8_t *into, size_t n)
{
    if (n > MAILBOX_BLOCK_BYTES) /* a large body would push others out for one use */
        return from->read(from->ctx, segment, offset, into, n);
    enum err e = ERR_OK;
    while (n > 0 && e == ERR_OK) {
        size_t room = MAILBOX_BLOCK_BYTES - (size_t)(offset % MAILBOX_BLOCK_BYTES),
               piece = n < room ? n : room;
        e = read_piece(b, from, segment, offset, settled, into, piece);
        offset += piece;
        into += piece;
        n -= piece;
    }
    return e;
}
