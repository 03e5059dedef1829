/*
 * One message in memory: 72 bytes, whatever its body weighs; the body stays in the journal.
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
 * Three things are kept shorter than they are elsewhere. Of a key's digest twelve bytes: two keys of a thousand million meet in
 * them with a chance of 10^-11, and who wants a key that meets another's has to try 2^96; whatever leaves memory (journal, index files)
 * has all sixteen. due has 48 bits, four years either way of now in microseconds, and what lies beyond is never. topic_seq has
 * 48: nine years at a million messages a second to one topic.
 *
 * An entry acked while READY cannot be taken out of the middle of a heap: it becomes DONE and GHOST, stays where it is,
 * and moves to the forget wheel when the heap gives it up.
 *
 * Threads     One writer, no readers.
 * Memory      Slabs of 2 MiB on demand, given back only by fini. A free entry is reused first. Large pages are asked for while
 *             replaying only, see mailbox_slabs_whole.
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
    MAILBOX_F_LATE =
        8, /* not DONE: sent with a delay, or reprocessed; its acceptance says nothing about how long it waits */
    MAILBOX_F_KEYLESS = 16, /* its key's window ended while it was a GHOST; no longer in the digest index */
};

enum { MAILBOX_SEGMENT_PENDING = 0 }; /* body is in the group being built; offset8 counts from its start */

enum { MAILBOX_DIGEST_KEPT = 12 };
#define MAILBOX_SEQ_MAX ((UINT64_C(1) << 48) - 1)

struct mailbox_entry {
    struct uuid msg_id;
    uint64_t topic_seq : 48; /* at most MAILBOX_SEQ_MAX */
    uint64_t length64 : 16;  /* record length, rounded up to 64 bytes */
    uint64_t due48 : 48;     /* see mailbox_entry_due */
    uint64_t stream : 16;    /* slot of the stream that holds the lease, 0 = none */
    uint8_t digest[MAILBOX_DIGEST_KEPT];
    uint32_t segment;
    uint32_t offset8;
    uint32_t topic; /* slot in the topic table */
    uint32_t left, right;
    uint32_t accept_ms32; /* monotonic ms of acceptance, modulo 2^32 */
    uint16_t attempt;
    uint8_t state : 3, flags : 5;
    uint8_t tries;
};
_Static_assert(sizeof(struct mailbox_entry) == 72, "an entry is 72 bytes");

enum { MAILBOX_SLAB_ENTRIES = HUGE_BYTES / sizeof(struct mailbox_entry) };

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

enum { MAILBOX_SMALL_PIECES = 8 };

/*
 * Whether the next 2 MiB of a table (a slab, or a chunk of an index on them) are to be one large page. Clearing one takes 0.3 ms, and
 * tens of milliseconds where memory has to be made free first or a host has to find it for its guest. A start wins by them what its
 * page faults would cost; whoever waits for an answer would wait for all of it at once. The first pieces are never: a large page that is half empty weighs most
 * in a small table.
 */
static inline bool mailbox_slabs_whole(const struct mailbox_slabs *s, uint32_t pieces)
{
    return s->hold_free && pieces >= MAILBOX_SMALL_PIECES;
}

static inline struct mailbox_entry *mailbox_entry_at(const struct mailbox_slabs *s, uint32_t index)
{
    return &s->slab[index / MAILBOX_SLAB_ENTRIES][index % MAILBOX_SLAB_ENTRIES];
}

#define MAILBOX_DUE_MAX ((INT64_C(1) << 47) - 1)

/* When something happens to it, by the state above; INT64_MAX = never. */
static inline int64_t mailbox_entry_due(const struct mailbox_entry *e)
{
    int64_t due = (int64_t)((uint64_t)e->due48 << 16) >> 16;
    return due == MAILBOX_DUE_MAX ? INT64_MAX : due;
}

static inline void mailbox_entry_set_due(struct mailbox_entry *e, int64_t due)
{
    if (due > MAILBOX_DUE_MAX)
        due = MAILBOX_DUE_MAX;
    if (due < -MAILBOX_DUE_MAX)
        due = -MAILBOX_DUE_MAX;
    e->due48 = (uint64_t)due & ((UINT64_C(1) << 48) - 1);
}

#endif
