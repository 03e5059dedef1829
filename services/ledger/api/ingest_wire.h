/*
 * Ingest as protobuf (IngestRequest, IngestResponse), straight between the bytes and the job: no message objects in between.
 *
 * Ownership   Decoded texts point into job->body, which outlives the job's answer.
 * Threads     Decoding on the prevalidator that has the job, encoding on the loop that answers it.
 */
#ifndef RON_LEDGER_API_INGEST_WIRE_H
#define RON_LEDGER_API_INGEST_WIRE_H

#include "services/ledger/job.h"

/* What a request says about who asked, when it says so before its units; empty otherwise. Views into the body. */
void ledger_ingest_origin(struct bytes body, struct str *out_corr_id, struct str *out_traceparent);

/* Fills units and options from job->body. ERR_BAD_REQUEST with job->fault or job->why, ERR_TOO_LARGE, ERR_BUSY (arena). */
NODISCARD enum err ledger_ingest_decode(struct ledger_job *job, uint32_t max_entries);

/* Whether this result is only what every committed unit has, and so can be written by ledger_result_put(). */
bool ledger_result_is_plain(const struct ledger_job *job, const struct ledger_job_unit *u);
/* One element of IngestResponse.results, with its key and length. */
size_t ledger_result_size(const struct ledger_job *job, const struct ledger_job_unit *u);
uint8_t *ledger_result_put(uint8_t *p, const struct ledger_job *job, const struct ledger_job_unit *u);

#endif
