/*
 * Timer wheel over entries: 1024 slots of 10 ms, 1024 of 10.24 s, 256 of 2.9 h; what lies beyond waits in the last slot
 * and is put in again. An entry's due time (microseconds, monotonic) is exact: a slot only says where to look.
 *
 * Threads     One writer. mailbox_wheel_next_due() may be asked by the owner only; it publishes what others need.
 * Memory      Lists run through the entries' left and right; the wheel itself is fixed.
 * Work        advance() handles at most `budget` entries and says whether it stopped short, so that a million timers on one
 *             tick never hold up the shard: call it again.
 */
#ifndef RON_MAILBOX_CORE_WHEEL_H
#define RON_MAILBOX_CORE_WHEEL_H

#include "services/mailbox/core/entry.h"

enum { MAILBOX_WHEEL_TICK_US = 10000, MAILBOX_WHEEL_SLOTS = 1024 + 1024 + 256 };

struct mailbox_wheel {
    struct mailbox_slabs *slabs;
    int64_t tick; /* every slot before this tick is empty */
    uint64_t count;
    uint32_t head[MAILBOX_WHEEL_SLOTS];
    uint64_t occupied[MAILBOX_WHEEL_SLOTS / 64];
    bool cascaded; /* the coarse slots of this tick have been emptied */
};

void mailbox_wheel_init(struct mailbox_wheel *w, struct mailbox_slabs *slabs, int64_t now_us);
void mailbox_wheel_add(struct mailbox_wheel *w, uint32_t entry); /* by entry->due */
void mailbox_wheel_remove(struct mailbox_wheel *w, uint32_t entry);
/*
 * Calls due() for entries with due <= now, each already taken out; due() may add entries but remove none. True when the
 * budget ran out before now was reached.
 */
bool mailbox_wheel_advance(struct mailbox_wheel *w, int64_t now_us, uint32_t budget,
                           void (*due)(void *ctx, uint32_t entry), void *ctx);
int64_t mailbox_wheel_next_due(
    const struct mailbox_wheel *w); /* never later than the earliest due; INT64_MAX = empty */
/* The earliest due of a topic's entries, exactly; INT64_MAX: none, or not found among the `most` that are looked at. */
int64_t mailbox_wheel_next_due_of(const struct mailbox_wheel *w, uint32_t topic, uint32_t most);

#endif
