/*
 * The ledger client of the same process: ledger_client.h served by direct calls. Ingest enters at ingress_tx like any request,
 * under a capability that is judged like any other; reads that may touch the disk go through read_tx.
 *
 * Ownership   The caller closes it (ledger_client_close) before the ledger's svc is closed.
 * Threads     As ledger_client.h. Callbacks run on the ledger's threads.
 */
#ifndef RON_LEDGER_DIRECT_H
#define RON_LEDGER_DIRECT_H

#include "ledger_client/ledger_client.h"

struct svc;

NODISCARD enum err ledger_direct_open(struct svc *ledger, struct str token,
                                      struct ledger_client **out_client);

#endif
