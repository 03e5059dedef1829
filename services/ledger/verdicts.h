/*
 * What a provider says about a job: one verdict per question that was asked, in order. kms is asked about every entry of a unit that
 * nothing was decided about yet, policy and wallet about the unit.
 *
 *   {"verdicts":[{"allow":true} | {"allow":false,"why","status":401|403}]}
 *
 * Threads     Whoever owns the job.
 */
#ifndef RON_LEDGER_VERDICTS_H
#define RON_LEDGER_VERDICTS_H

#include "services/ledger/job.h"

bool ledger_verdict_due(const struct ledger_job_unit *u); /* nothing was decided about it */
/*
 * Takes the answer to n questions. ERR_UNAVAILABLE: it is none, and nothing happened. ERR_UNAUTHENTICATED: the token itself is refused,
 * and so is the job.
 */
NODISCARD enum err ledger_verdicts_read(struct ledger_job *job, bool per_entry, struct bytes answer,
                                        size_t n, size_t *out_denied);
/* Denies whatever was asked about; how many units. */
size_t ledger_verdicts_deny(struct ledger_job *job, bool per_entry, const char *why);

#endif
