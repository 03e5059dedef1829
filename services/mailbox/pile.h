/*
 * A pile: items of one size that only come, are read once in order, and go all together.
 *
 * Ownership   The pile owns its pieces; what add returns is to be filled by the caller before the next call.
 * Threads     One at a time.
 * Memory      Pieces of 2 MiB that no item straddles: growing copies nothing, and fini gives every byte back to the system, which
 *             a heap that is shared with small things does not. A piece takes memory as it fills, page by page: it is written once
 *             in order and read once, so large pages would save little and take a megabyte more on average.
 */
#ifndef RON_MAILBOX_PILE_H
#define RON_MAILBOX_PILE_H

#include "base/bytes.h"

struct mailbox_pile {
    uint8_t **piece;
    size_t pieces, item_bytes, n; /* n: items */
};

void mailbox_pile_init(struct mailbox_pile *p, size_t item_bytes);
void mailbox_pile_fini(struct mailbox_pile *p);
uint8_t *mailbox_pile_add(struct mailbox_pile *p); /* room for one item, zeroed; NULL: no memory */
struct bytes mailbox_pile_piece(const struct mailbox_pile *p, size_t i);

#endif
