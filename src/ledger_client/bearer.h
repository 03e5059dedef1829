/*
 * The capability a client presents, which may be replaced while others present it.
 *
 * Ownership   Copies the token. What was presented before stays until ledger_bearer_fini: somebody may still be reading it. One
 *             per change, so as many as an operator makes.
 * Threads     line and token from any thread; set by one at a time; fini when nobody reads any more.
 */
#ifndef RON_LEDGER_CLIENT_BEARER_H
#define RON_LEDGER_CLIENT_BEARER_H

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/err.h"

struct ledger_bearer_text;

struct ledger_bearer {
    _Atomic(struct ledger_bearer_text *) now; /* release in set, acquire in line and token */
};

/* ERR_NO_MEMORY, ERR_TOO_LARGE: the one before stays. The same again changes nothing. */
NODISCARD enum err ledger_bearer_set(struct ledger_bearer *b, struct str token);
const char *
ledger_bearer_line(struct ledger_bearer *b); /* "Authorization: Bearer <token>"; set has been called */
const char *ledger_bearer_token(struct ledger_bearer *b); /* likewise */
void ledger_bearer_fini(struct ledger_bearer *b);

#endif
