/*
 * One span per stage that a job passes: ingress, prevalidator, sequencer, committer, all of one trace.
 *
 * Threads     Whoever owns the job. A job whose trace is not sampled costs one look.
 */
#ifndef RON_LEDGER_TRACE_H
#define RON_LEDGER_TRACE_H

#include "services/ledger/ledger.h"

/* A stage that began at began_ns (the ledger's clock) ends now for this job. `queue`: where it came from; batch: how many with it. */
void ledger_trace_stage(struct ledger *l, const struct ledger_job *job, const char *stage,
                        const char *queue, uint64_t batch, int64_t began_ns, enum err err);

#endif
