#include "services/rewarder/core/state.h"

#include "base/check.h"

static const char *const names[] = {
#define X(name, text) text,
    REWARDER_STATES(X)
#undef X
};

/* step[state][event] is the next state, one more so that 0 (not listed) means refused. */
#define TO(s) (REWARDER_##s + 1)
static const unsigned char step[REWARDER_STATE_COUNT][REWARDER_EVENT_COUNT] = {
    [REWARDER_SEALING] = {[REWARDER_EV_INPUTS_STORED] = TO(QUEUED), [REWARDER_EV_FAIL] = TO(FAILED)},
    [REWARDER_QUEUED] = {[REWARDER_EV_TAKEN] = TO(COMPUTING), [REWARDER_EV_FAIL] = TO(FAILED)},
    [REWARDER_COMPUTING] = {[REWARDER_EV_SEAL] = TO(SEALED),
                            [REWARDER_EV_BREACH] = TO(QUARANTINED),
                            [REWARDER_EV_FAIL] = TO(FAILED),
                            [REWARDER_EV_TAKEN] = TO(COMPUTING)}, /* the first lead died */
    [REWARDER_SEALED] = {[REWARDER_EV_EMIT] = TO(EMITTING),
                         [REWARDER_EV_HOLD] = TO(HELD),
                         [REWARDER_EV_QUARANTINE] = TO(QUARANTINED)},
    [REWARDER_EMITTING] = {[REWARDER_EV_EMIT] = TO(EMITTING), /* the emitter was restarted */
                           [REWARDER_EV_HOLD] = TO(HELD),
                           [REWARDER_EV_SETTLE] = TO(SETTLED),
                           [REWARDER_EV_QUARANTINE] = TO(QUARANTINED)},
    [REWARDER_HELD] = {[REWARDER_EV_EMIT] = TO(EMITTING),
                       [REWARDER_EV_HOLD] = TO(HELD), /* for another cause */
                       [REWARDER_EV_QUARANTINE] = TO(QUARANTINED)},
    [REWARDER_SETTLED] = {[REWARDER_EV_RECHECK] = TO(EMITTING)},
    [REWARDER_QUARANTINED] = {[REWARDER_EV_RESUME] = TO(SEALED), [REWARDER_EV_DISCARD] = TO(DISCARDED)},
    [REWARDER_FAILED] = {[REWARDER_EV_DISCARD] = TO(DISCARDED)},
};

const char *rewarder_state_name(enum rewarder_state s)
{
    CHECK(s < REWARDER_STATE_COUNT);
    return names[s];
}

bool rewarder_state_parse(struct str s, enum rewarder_state *out)
{
    for (unsigned i = 0; i < REWARDER_STATE_COUNT; i++) {
        if (str_eq_c(s, names[i])) {
            *out = (enum rewarder_state)i;
            return true;
        }
    }
    return false;
}

enum err rewarder_state_step(enum rewarder_state from, enum rewarder_event ev, enum rewarder_state *out)
{
    CHECK(from < REWARDER_STATE_COUNT && ev < REWARDER_EVENT_COUNT);
    unsigned to = step[from][ev];
    if (to == 0)
        return ERR_CONFLICT;
    *out = (enum rewarder_state)(to - 1);
    return ERR_OK;
}

bool rewarder_state_has_files(enum rewarder_state s)
{
    return s == REWARDER_SEALED || s == REWARDER_EMITTING || s == REWARDER_HELD || s == REWARDER_SETTLED;
}

bool rewarder_state_claims_epoch(enum rewarder_state s)
{
    return s != REWARDER_FAILED && s != REWARDER_DISCARDED;
}
