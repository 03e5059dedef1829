/*
 * Between the ledger's words and the wallet's: units out, verdicts and receipts in.
 *
 * Threads     Pure, but for wallet_words_touched (atomics). Callbacks of the ledger client use them.
 */
#ifndef RON_WALLET_TASKS_LEDGER_WORDS_H
#define RON_WALLET_TASKS_LEDGER_WORDS_H

#include "services/wallet/core/verdict.h"
#include "services/wallet/wallet.h"

void wallet_words_entry(const struct wallet_entry *e, struct ledger_entry *out);
/* result NULL: the request was refused, or its answer cannot be read. */
void wallet_words_ingest(struct wallet_said *said, const struct ledger_answer *a,
                         const struct ledger_result *result);
struct wallet_verdict wallet_words_verdict(const struct wallet_said *said, size_t n_entries);

/* A unit as read back: ERR_CORRUPT when it is not a wallet's. The receipt's text goes to `out` (WALLET_BODY_MAX). */
NODISCARD enum err wallet_words_rebuild(const struct ledger_result *r, struct wallet_rebuilt *out);

/* Both sides' cached balances are older than the job's commit now. */
void wallet_words_touched(struct wallet *w, const struct wallet_job *j);

#endif
