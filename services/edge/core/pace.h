/*
 * How work in the background shares a core with those who answer: in short turns, with a rest after each.
 *
 * A kernel without preemption gives the core to whoever holds it until its next tick, milliseconds later; so a turn ends by itself
 * long before that. How long the rest is depends on what can be seen from here: a task that got its core whenever it wanted it, or
 * while nobody was served, rests a moment, just long enough for somebody who waits to step in; one that had to stand in line
 * while requests were answered takes a sixteenth of the core, and keeps to that for a while after it last stood.
 *
 * Threads     Pure; one owner each.
 */
#ifndef RON_EDGE_PACE_H
#define RON_EDGE_PACE_H

#include <stdint.h>

enum {
    EDGE_PACE_TURN_NS = 250000,
    EDGE_PACE_REST_NS = 100000,
    EDGE_PACE_CROWDED_REST_NS = 15 * EDGE_PACE_TURN_NS,
    EDGE_PACE_STOOD_NS = 500000, /* in line during one turn: others want the core (or the disk) */
    EDGE_PACE_REMEMBER_NS = 200000000,
};

struct edge_pace {
    int64_t cpu_ns, wall_ns; /* when the present turn began */
    int64_t crowded_until_ns;
    uint64_t bytes;  /* done in it */
    uint64_t served; /* requests until it began */
};

struct edge_pace_now {
    int64_t cpu_ns;  /* what this thread has used of its core */
    int64_t wall_ns; /* the monotonic clock */
    uint64_t served; /* requests answered so far, by anybody */
};

void edge_pace_begin(struct edge_pace *p, struct edge_pace_now now);
/* A turn begins anew; what was learnt stays. */
void edge_pace_fresh(struct edge_pace *p, struct edge_pace_now now);
/* After a small piece of work of that many bytes. 0: go on; else until when to rest, and the next turn begins then. rate: bytes a
 * second at most, 0: as many as it likes. */
int64_t edge_pace_turn(struct edge_pace *p, struct edge_pace_now now, uint64_t bytes, uint64_t rate);

#endif
