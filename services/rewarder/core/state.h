/*
 * The life of a run as a table: which event may happen in which state and where it leads. What is not in the table is
 * refused, so an illegal move is an error and never a silent change.
 */
#ifndef RON_REWARDER_CORE_STATE_H
#define RON_REWARDER_CORE_STATE_H

#include "base/bytes.h"
#include "base/err.h"

#define REWARDER_STATES(X)                                                                                 \
    X(SEALING, "sealing")                                                                                  \
    X(QUEUED, "queued")                                                                                    \
    X(COMPUTING, "computing")                                                                              \
    X(SEALED, "sealed")                                                                                    \
    X(EMITTING, "emitting")                                                                                \
    X(HELD, "held")                                                                                        \
    X(SETTLED, "settled")                                                                                  \
    X(QUARANTINED, "quarantined")                                                                          \
    X(FAILED, "failed")                                                                                    \
    X(DISCARDED, "discarded")

enum rewarder_state {
#define X(name, text) REWARDER_##name,
    REWARDER_STATES(X)
#undef X
        REWARDER_STATE_COUNT
};

enum rewarder_event {
    REWARDER_EV_INPUTS_STORED, /* fetched, verified, in the store */
    REWARDER_EV_TAKEN,         /* a worker takes the lead */
    REWARDER_EV_FAIL,          /* fetch, digest, snapshot, storage, deadline, cancel, worker failed twice */
    REWARDER_EV_SEAL,          /* artifacts durable */
    REWARDER_EV_BREACH,        /* conservation or overflow */
    REWARDER_EV_EMIT,          /* taken by the emitter */
    REWARDER_EV_HOLD,          /* ledger, funds, lane, switch */
    REWARDER_EV_SETTLE,        /* every chunk placed, bijection checked */
    REWARDER_EV_QUARANTINE,    /* operator, settlement, duplicate_entry, artifact, emit_unavailable */
    REWARDER_EV_RESUME,        /* admin release */
    REWARDER_EV_DISCARD,       /* admin release */
    REWARDER_EV_RECHECK,       /* emit again although settled */
    REWARDER_EVENT_COUNT
};

const char *rewarder_state_name(enum rewarder_state s);
bool rewarder_state_parse(struct str s, enum rewarder_state *out);
/* ERR_CONFLICT when the event is not allowed in this state. */
NODISCARD enum err rewarder_state_step(enum rewarder_state from, enum rewarder_event ev,
                                       enum rewarder_state *out);
/* The run's files exist: GETs of manifest, payouts and proofs are answered. */
bool rewarder_state_has_files(enum rewarder_state s);
bool rewarder_state_claims_epoch(enum rewarder_state s);

#endif
