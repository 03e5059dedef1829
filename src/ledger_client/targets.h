/*
 * Several addresses of copies of one ledger, and which of them to ask: the one that answered last, until it cannot be reached or
 * says that another writes. Each transport keeps what an address is to it.
 *
 * Threads     Any; a wrong choice costs one more answer.
 */
#ifndef RON_LEDGER_CLIENT_TARGETS_H
#define RON_LEDGER_CLIENT_TARGETS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { LEDGER_TARGETS_MAX = 8 };

struct ledger_targets {
    uint32_t n;
    _Atomic uint32_t current; /* relaxed: a wrong one is corrected by its answer */
};

uint32_t ledger_targets_now(const struct ledger_targets *t);
void ledger_targets_go(struct ledger_targets *t, uint32_t to);
/* On to the next one, unless somebody has left `from` already. */
void ledger_targets_leave(struct ledger_targets *t, uint32_t from);

/* No answer came from `from`. True: nothing was done there, or the call only reads: it may be sent again. */
bool ledger_targets_failed(struct ledger_targets *t, uint32_t from, bool write, enum err e);
/* A 503 of that kind: nothing was done there. */
bool ledger_targets_turned_away(enum err problem);

#endif
