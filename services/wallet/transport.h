/* How the wallet reaches the ledger: the client it was wired with, or one of its own over HTTP. */
#ifndef RON_WALLET_TRANSPORT_H
#define RON_WALLET_TRANSPORT_H

#include "services/wallet/wallet.h"

NODISCARD enum err wallet_transport_open(struct wallet *w);
NODISCARD enum err wallet_transport_start(struct wallet *w);
void wallet_transport_reloaded(struct wallet *w); /* the capability shown to the ledger is read again */
void wallet_transport_close(struct wallet *w);

#endif
