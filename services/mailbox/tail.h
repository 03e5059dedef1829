/*
 * Bodies in RAM: the newest bytes of a journal in a ring.
 *
 * Threads     The shard's worker.
 * Memory      What init or resize were told, no more.
 */
#ifndef RON_MAILBOX_TAIL_H
#define RON_MAILBOX_TAIL_H

#include <stdbool.h>

#include "base/bytes.h"
#include "base/err.h"

struct mailbox_tail {
    uint8_t *ring;
    size_t cap, at;
    struct mailbox_tail_part {
        uint32_t segment;
        uint64_t offset;
        size_t n, at;
    } * part; /* circular, in journal order */
    uint32_t first, n, parts_cap;
};

NODISCARD enum err mailbox_tail_init(struct mailbox_tail *t, size_t cap);
/* Another size, and empty: what is asked for is read from the file until new bytes have come. ERR_NO_MEMORY: as it was. */
NODISCARD enum err mailbox_tail_resize(struct mailbox_tail *t, size_t cap);
void mailbox_tail_fini(struct mailbox_tail *t);
void mailbox_tail_put(struct mailbox_tail *t, uint32_t segment, uint64_t offset, const uint8_t *p,
                      size_t n);
/* Up to n bytes from there, the rest zero; false when it does not hold them. */
bool mailbox_tail_get(const struct mailbox_tail *t, uint32_t segment, uint64_t offset, uint8_t *into,
                      size_t n);

#endif
