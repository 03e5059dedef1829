/*
 * One commit of the ledger as it travels over ledger_bus: which slots it touched and up to which seq.
 *
 * Ownership   Counted; the bus and each reader hold references.
 */
#ifndef RON_WALLET_TASKS_FEED_H
#define RON_WALLET_TASKS_FEED_H

#include "services/wallet/wallet.h"

struct wallet_commit {
    struct os_a32 refs;
    uint64_t seq_start, seq_end;
    int64_t heard_ns;
    size_t n;
    uint32_t slots[];
};

void wallet_commit_ref(void *commit);
void wallet_commit_unref(void *commit);

#endif
