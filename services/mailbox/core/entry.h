/*
 * One message in memory: 80 bytes, whatever its body weighs; the body stays in the journal.
 *
 * Entries live in slabs and are named by a u32 (0 = none), so links cost four bytes. left and right belong to whichever
 * single structure the state puts the entry into:
 *
 *   READY    the topic's FIFO of fresh messages (right = next), or its heap of returned ones (left, right = children);
 *            due = since when its retention counts
 *   DELAYED  timer wheel (left = previous, right = next);  due = when it becomes ready
 *   LEASED   timer wheel;                                  due = when the lease ends
 *   DLQ      the topic's dead-letter list;                 due = when it was moved (wall ms)
 *   DONE     forget wheel;                                 due = when the dedup window ends, INT64_MAX = never
 *   FREE     free list (right = next)
 *
 * An entry acked while READY cannot be taken out of the middle of a heap: it becomes DONE and GHOST, stays where it is,
 * and moves to the forget wheel when the heap gives it up.
 *
 * Threads     One writer, no readers.
 * Memory      Slabs of 2 MiB on demand, given back only by fini. A free entry is reused first.
 */
#ifndef RON_MAILBOX_CORE_ENTRY_H
#define RON_MAILBOX_CORE_ENTRY_H

#include "base/huge.h"
#include "services/mailbox/core/ids.h"

enum mailbox_state {
    MAILBOX_FREE,
    MAILBOX_READY,
    MAILBOX_DELAYED,
    MAILBOX_LEASED,
    MAILBOX_DLQ,
    MAILBOX_DONE,
    MAILBOX_STATES,
};

enum {
    MAILBOX_F_GHOST = 1,      /* DONE, still inside a heap */
    MAILBOX_F_AFTER_FAIL = 2, /* DELAYED by a failure: an ordered topic waits for it */
    MAILBOX_F_HISTORY = 4,    /* has causes in the side table */
    MAILBOX_F_ACKED = 8,      /* DONE by ack (not purge, not retention) */
    MAILBOX_F_KEYLESS = 16, /* its key's window ended while it was a GHOST; no longer in the digest index */
};

enum { MAILBOX_SEGMENT_PENDING = 0 }; /* body is in the group being built; offset8 counts from its start */

struct mailbox_entry {
    struct uuid msg_id;
    struct mailbox_digest digest;
    uint64_t topic_seq;
    int64_t due;
    uint32_t segment;
    uint32_t offset8;
    uint32_t topic; /* slot in the topic table */
    uint32_t left, right;
    uint32_t accept_ms32; /* monotonic ms of acceptance, modulo 2^32 */
    uint16_t length64;    /* record length, rounded up to 64 bytes */
    uint16_t attempt;
    uint8_t state : 3, flags : 5;
    uint8_t tries;
    uint16_t stream; /* slot of the stream that holds the lease, 0 = none */
};
_Static_assert(sizeof(struct mailbox_entry) == 80, "an entry is 80 bytes");

enum { MAILBOX_SLAB_ENTRIES = HUGE_BYTES / 80 };

struct mailbox_slabs {
    struct mailbox_entry **slab;
    uint32_t slabs, used, free_head, live;
    bool hold_free; /* while replaying, freed entries keep their place so that later ones stay in order */
    uint32_t held_head;
};

void mailbox_slabs_init(struct mailbox_slabs *s);
void mailbox_slabs_fini(struct mailbox_slabs *s);
NODISCARD enum err mailbox_slabs_alloc(struct mailbox_slabs *s,
                                       uint32_t *out_index); /* zeroed; ERR_NO_MEMORY */
void mailbox_slabs_free(struct mailbox_slabs *s, uint32_t index);
void mailbox_slabs_release_held(struct mailbox_slabs *s);

static inline struct mailbox_entry *mailbox_entry_at(const struct mailbox_slabs *s, uint32_t index)
{
    return &s->slab[index / MAILBOX_SLAB_ENTRIES][index % MAILBOX_SLAB_ENTRIES];
}

#endif
