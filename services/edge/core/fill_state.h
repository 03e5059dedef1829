/*
 * The life of one fill job, as a table: Reserved -> Queued -> Fetching -> (Backoff -> Fetching)* -> Committing -> Done,
 * with Failed and Canceled as the other ends. A move that is not in the table is a bug.
 *
 * Threads     Pure; the holder of the job calls.
 */
#ifndef RON_EDGE_FILL_STATE_H
#define RON_EDGE_FILL_STATE_H

#include <stdbool.h>

enum edge_fill_state {
    EDGE_FILL_RESERVED, /* in the table of fills, not queued yet */
    EDGE_FILL_QUEUED,
    EDGE_FILL_FETCHING,
    EDGE_FILL_BACKOFF, /* waiting for the next try */
    EDGE_FILL_COMMITTING,
    EDGE_FILL_DONE,
    EDGE_FILL_FAILED,
    EDGE_FILL_CANCELED,
    EDGE_FILL_STATES
};

const char *edge_fill_state_name(enum edge_fill_state s);
bool edge_fill_may(enum edge_fill_state from, enum edge_fill_state to);
bool edge_fill_ended(enum edge_fill_state s);
void edge_fill_move(enum edge_fill_state *s, enum edge_fill_state to); /* CHECKs edge_fill_may */

#endif
