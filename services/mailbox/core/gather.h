/*
 * When to write a group that others are about to join.
 *
 * Who is answered mostly asks again. If writing began with whoever asks first, callers would fall into two crowds, each waiting for the
 * other's write. So a group waits until as many are there as the last write answered and left waiting, but only for three quarters of
 * what that write took: if it takes callers longer to come back, it is better that one crowd comes while the other is written. A wait
 * was vain when they did not come, or so slowly that all of them would not have; then the next groups do not wait, twice as many each
 * time. One caller never waits for another: with one there, one is expected.
 *
 * Pure. The worker's alone; it outlives its thread.
 */
#ifndef RON_MAILBOX_CORE_GATHER_H
#define RON_MAILBOX_CORE_GATHER_H

#include <stdbool.h>
#include <stdint.h>

enum { MAILBOX_GATHER_MS = 5, MAILBOX_GATHER_SKIPS_MAX = 64 };

struct mailbox_gather {
    uint32_t
        expected; /* answered by the last write, or waiting behind it; 0: the next group does not wait */
    uint32_t answered;          /* those of them who have to come back */
    int64_t since_us, until_us; /* the end of that write, and of the wait */
    bool waited;                /* it did, already */
    uint32_t skip;              /* so many groups do not wait */
    uint32_t skips;             /* half of how many will not after the next vain wait */
};

/* A write has ended that took so long and answered so many, while others came. */
void mailbox_gather_wrote(struct mailbox_gather *g, int64_t now_us, int64_t took_us, uint32_t answered,
                          uint32_t waiting);
/* Whether a group of so many should wait, until g->until_us at most. */
bool mailbox_gather_waits(struct mailbox_gather *g, int64_t now_us, uint32_t here);

#endif
