/*
 * An operation in a trace: wallet.request with what it waited for below it. Whether it is sampled is decided first; one that is
 * not costs a random number. Spans are written when it is settled, from the times noted on the way.
 *
 *   wallet.request   from the first byte to the settlement; op, txid, outcome
 *     wallet.queue     from the claim until it was first sent
 *     wallet.ledger    from then until the ledger's word (or the resolver's); tries
 *     (what the ledger did for it, under its own names)
 *
 * Threads     begin: the listener; sent: its worker; end: who settles it. One after the other.
 */
#ifndef RON_WALLET_TRACE_H
#define RON_WALLET_TRACE_H

#include <stddef.h>

#include "obs/span.h"

struct net_req;
struct wallet;
struct wallet_job;

struct wallet_trace {
    struct obs_trace self;
    uint8_t parent_id[8];
    int64_t began_ns, verified_ns, claimed_ns, sent_ns, answered_ns, settled_ns;
    uint64_t batch; /* operations in the request that carried it last */
};

/* Once it is known whose request it is: that time, or 0 when it is not sampled. */
int64_t wallet_trace_decide(struct wallet *w, const struct net_req *rq);
void wallet_trace_begin(struct wallet_job *j, const struct net_req *rq, int64_t decided_ns);
void wallet_trace_sent(struct wallet_job *j);     /* the first time counts */
void wallet_trace_answered(struct wallet_job *j); /* the last time counts */
void wallet_trace_end(struct wallet_job *j);
void wallet_trace_replied(
    const struct wallet_job *j); /* on the listener, which has it from who settled it */
/* Whose name a request to the ledger goes by, of the operations it carries: the first that is sampled, else the first. */
const struct wallet_job *wallet_trace_speaker(struct wallet_job *const *jobs, size_t n);

#endif
