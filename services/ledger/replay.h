/*
 * Frames through the core: every rule of the domain is applied again, and what the log says is recomputed, not believed. Opening
 * replays the journal with it; a standby applies what another ledger wrote.
 *
 * Threads     One at a time, and nobody else may sequence or commit meanwhile. While opening three full generations
 *             stay in memory, and a fourth has the oldest written down in place; afterwards (gen_tx is there) they go to the
 *             checkpointer, and a frame waits while three are on their way.
 */
#ifndef RON_LEDGER_REPLAY_H
#define RON_LEDGER_REPLAY_H

#include "services/ledger/ledger.h"

struct ledger_replay {
    struct ledger *l;
    struct ledger_gen *gen;
    struct arena arena;
    struct ledger_limits limits;
    uint64_t entries;
    const char *why; /* after ERR_CORRUPT: what is wrong */
    enum err node_err;
};

void ledger_replay_init(struct ledger_replay *r, struct ledger *l);
void ledger_replay_fini(struct ledger_replay *r);
/* Waits until the open generation takes n more entries. ERR_CANCELED when the task is told to stop. */
NODISCARD enum err ledger_replay_room(struct ledger_replay *r, uint32_t n) RT_BLOCKS;
/* A checkpoint was asked for: the open generation ends, with however little is in it, and goes to the checkpointer. */
NODISCARD enum err ledger_replay_turn(struct ledger_replay *r) RT_BLOCKS;
/* A store_replay_fn. Publishes the head when the frame is right; ERR_CORRUPT otherwise. */
NODISCARD enum err ledger_replay_frame(void *replay, const struct store_frame *f,
                                       struct store_pos at) RT_BLOCKS;

#endif
