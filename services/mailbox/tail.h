/*
 * Bodies in RAM: the newest bytes of a journal in a ring (tail), and a window over old ones that reads ahead.
 *
 * The window reads exactly what is asked for until reads follow one another; then it reads MAILBOX_WINDOW_BYTES at a time, so that
 * a consumer of a long backlog costs one read per hundred messages. It is only used on bytes that can no longer change.
 *
 * Threads     The shard's worker.
 * Memory      tail_bytes by init; the window's bytes when it first reads ahead.
 */
#ifndef RON_MAILBOX_TAIL_H
#define RON_MAILBOX_TAIL_H

#include "store/journal.h"

enum { MAILBOX_WINDOW_BYTES = 64 << 10 };

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
void mailbox_tail_fini(struct mailbox_tail *t);
void mailbox_tail_put(struct mailbox_tail *t, uint32_t segment, uint64_t offset, const uint8_t *p,
                      size_t n);
/* Up to n bytes from there, the rest zero; false when it does not hold them. */
bool mailbox_tail_get(const struct mailbox_tail *t, uint32_t segment, uint64_t offset, uint8_t *into,
                      size_t n);

struct mailbox_window {
    uint8_t *p;
    uint32_t segment;
    uint64_t offset;
    size_t n; /* bytes held */
};

/* n bytes at offset, at most up to end; what is behind end is left as it was. */
NODISCARD enum err mailbox_window_read(struct mailbox_window *w, struct store_journal *j, uint32_t segment,
                                       uint64_t offset, uint64_t end, uint8_t *into, size_t n) RT_BLOCKS;
void mailbox_window_fini(struct mailbox_window *w);

#endif
