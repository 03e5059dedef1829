#include "services/edge/core/fill_state.h"

#include "base/check.h"

#define BIT(s) (1u << (s))

static const struct {
    const char *name;
    unsigned next;
} states[EDGE_FILL_STATES] = {
    [EDGE_FILL_RESERVED] = {"reserved", BIT(EDGE_FILL_QUEUED) | BIT(EDGE_FILL_FAILED)},
    [EDGE_FILL_QUEUED] = {"queued", BIT(EDGE_FILL_FETCHING) | BIT(EDGE_FILL_COMMITTING) |
                                        BIT(EDGE_FILL_CANCELED) | BIT(EDGE_FILL_FAILED)},
    [EDGE_FILL_FETCHING] = {"fetching", BIT(EDGE_FILL_BACKOFF) | BIT(EDGE_FILL_COMMITTING) |
                                            BIT(EDGE_FILL_FAILED) | BIT(EDGE_FILL_CANCELED) |
                                            BIT(EDGE_FILL_QUEUED)},
    [EDGE_FILL_BACKOFF] = {"backoff", BIT(EDGE_FILL_FETCHING) | BIT(EDGE_FILL_FAILED) |
                                          BIT(EDGE_FILL_CANCELED) | BIT(EDGE_FILL_QUEUED)},
    [EDGE_FILL_COMMITTING] = {"committing", BIT(EDGE_FILL_DONE) | BIT(EDGE_FILL_FAILED) |
                                                BIT(EDGE_FILL_QUEUED)}, /* its worker failed: handed back */
    [EDGE_FILL_DONE] = {"done", 0},
    [EDGE_FILL_FAILED] = {"failed", 0},
    [EDGE_FILL_CANCELED] = {"canceled", 0},
};

const char *edge_fill_state_name(enum edge_fill_state s)
{
    CHECK(s < EDGE_FILL_STATES);
    return states[s].name;
}

bool edge_fill_may(enum edge_fill_state from, enum edge_fill_state to)
{
    CHECK(from < EDGE_FILL_STATES && to < EDGE_FILL_STATES);
    return states[from].next & BIT(to);
}

bool edge_fill_ended(enum edge_fill_state s)
{
    CHECK(s < EDGE_FILL_STATES);
    return states[s].next == 0;
}

void edge_fill_move(enum edge_fill_state *s, enum edge_fill_state to)
{
    CHECK(edge_fill_may(*s, to));
    *s = to;
}
