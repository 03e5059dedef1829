/*
 * A run in a trace. Everything that happens to a run lies below the span of the request that had it admitted:
 *
 *   rewarder.admit      from the request's first byte to the verdict; epoch
 *     rewarder.seal       its inputs are fetched if need be, and hashed
 *     rewarder.compute    rows, and below it a rewarder.phase for each phase
 *     rewarder.write      until it is sealed
 *     rewarder.emit       one settlement pass; committed, duplicate, and below it a rewarder.request for each call of the ledger
 *
 * A run known from the disk has no such request: its spans begin traces of their own.
 *
 * Threads     begin and end by the task that does the work; the run's place in the trace is set before it is shared.
 */
#ifndef RON_REWARDER_TRACE_H
#define RON_REWARDER_TRACE_H

#include "obs/span.h"

struct net_req;
struct rewarder;
struct rewarder_run;

/* rq may be NULL. Also notes in the run where it belongs. */
void rewarder_trace_admit(struct rewarder *r, struct net_req *rq, struct rewarder_run *run,
                          struct obs_span *out);
void rewarder_trace_begin(struct rewarder *r, const struct rewarder_run *run, const char *name,
                          struct obs_span *out);
void rewarder_trace_end(struct rewarder *r, struct obs_span *s, enum err err);

/* Something below s that took so long and is over now. */
struct rewarder_trace_part {
    const char *name, *key;
    struct str text; /* of the attribute */
    int64_t took_ns;
    enum err err;
};
void rewarder_trace_part(struct rewarder *r, const struct obs_span *s,
                         const struct rewarder_trace_part *part);

#endif
