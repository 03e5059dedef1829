/*
 * The ledger's HTTP bodies, read and written: what the http transport, and the reads that oap lacks, have in common.
 *
 * Ownership   Everything read lives in the arena.
 * Threads     Pure.
 */
#ifndef RON_LEDGER_CLIENT_JSON_H
#define RON_LEDGER_CLIENT_JSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "ledger_client/ledger_client.h"

void ledger_json_put_units(struct buf *b, const struct ledger_ingest *rq); /* {"units":[…]} */

/* A problem body; fields stay empty when it is none. */
void ledger_json_problem(struct bytes body, int status, struct arena *a, struct ledger_answer *out);

/* All: ERR_CORRUPT when the body is not what the ledger would say. */
NODISCARD enum err ledger_json_results(struct bytes body, struct arena *a, const struct ledger_result **out,
                                       size_t *out_n);
NODISCARD enum err ledger_json_unit_result(struct bytes body, struct arena *a, struct ledger_result *out);
NODISCARD enum err ledger_json_account(struct bytes body, struct arena *a,
                                       struct ledger_account_reply *out);
NODISCARD enum err ledger_json_entry_one(struct bytes body, struct arena *a,
                                         struct ledger_entries_reply *out);
NODISCARD enum err ledger_json_entry_list(struct bytes body, struct arena *a,
                                          struct ledger_entries_reply *out);
NODISCARD enum err ledger_json_roots(struct bytes body, struct arena *a, struct ledger_roots_reply *out);
NODISCARD enum err ledger_json_inclusion(struct bytes body, struct arena *a,
                                         struct ledger_proof_reply *out);
NODISCARD enum err ledger_json_consistency(struct bytes body, struct arena *a,
                                           struct ledger_proof_reply *out);
NODISCARD enum err ledger_json_ready(struct bytes body, struct arena *a, struct ledger_head_reply *out);
NODISCARD enum err ledger_json_event(struct bytes body, struct arena *a, struct ledger_commit_event *out);
/* ledger_ms in the details of a 404. */
uint64_t ledger_json_ledger_ms(struct str details, struct arena *a);
/* The results inside a problem's details, if there are. */
bool ledger_json_problem_results(struct str details, struct arena *a, const struct ledger_result **out,
                                 size_t *out_n);

#endif
