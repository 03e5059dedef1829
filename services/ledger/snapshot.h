/*
 * A copy of a running ledger in a folder of its own: superblock, signed note of a durable head, and the journal up to that head or
 * later. Sealed segments are linked, since nobody writes to them any more; the active one is copied. A torn frame at its end is
 * possible and harmless: it was not acknowledged when the head was.
 *
 * With `derived` also the newest manifest and all it names: tree and group table cut to its lengths, runs linked. What comes back from
 * such a copy need not be rebuilt.
 *
 * Threads     One at a time (the admin task), while everything else goes on.
 */
#ifndef RON_LEDGER_SNAPSHOT_H
#define RON_LEDGER_SNAPSHOT_H

#include "services/ledger/ledger.h"

/* ERR_EXISTS when `dir` has been used before. What was made stays after a failure, for the caller to remove. */
NODISCARD enum err ledger_snapshot(struct ledger *l, const char *dir, const struct ledger_head *head,
                                   bool derived) RT_BLOCKS;

#endif
