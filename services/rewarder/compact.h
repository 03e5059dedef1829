/*
 * registry.log without the lines that no longer say anything.
 *
 * The log is folded from its own frames, not written from memory: what the tasks know may be ahead of the log, and a rewrite
 * must never make durable what nobody has been told. Of each run stay, in the order in which runs first appear:
 *
 *   the line that made it          `sealed`, or `quarantined` for a breach that never was sealed
 *   the last `settled`
 *   the last `quarantined` or `released`, when no `settled` follows it (a `released` that only undoes is not needed)
 *   `swept`
 *
 * Of a discarded run nothing stays, except that the highest number ever given out must not be given out again: when the run
 * that had it is gone, its `discarded` line is kept for the number.
 *
 * Replaying the folded log gives the registry that replaying the whole log gives.
 */
#ifndef RON_REWARDER_COMPACT_H
#define RON_REWARDER_COMPACT_H

#include "services/rewarder/files.h"

/* Frames of the folded log; `frames` must be whole. ERR_CORRUPT: a line is not one of ours. */
NODISCARD enum err rewarder_log_fold(struct bytes frames, struct buf *out);

/*
 * Rewrites the log when it is worth it: above f->compact_above and at least twice what a fold leaves. Between two looks the
 * log has to double, so the work is a constant per line and the log never exceeds max(compact_above, twice what is alive at
 * the last look) by more than a line. *out_saved: bytes gained, 0 when nothing was done.
 */
NODISCARD enum err rewarder_log_compact(struct rewarder_files *f, uint64_t *out_saved) RT_BLOCKS;

#endif
