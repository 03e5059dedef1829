/*
 * The addresses of the copies of one ledger, and which of them to ask: the one that answered last, until it cannot be reached or
 * says that another writes.
 *
 * Threads     Any; a wrong choice costs one more answer.
 */
#ifndef RON_LEDGER_CLIENT_TARGETS_H
#define RON_LEDGER_CLIENT_TARGETS_H

#include "ledger_client/http_internal.h"

/* Addresses separated by commas, the first one is tried first. ERR_SYNTAX: none, too many, or too long. */
NODISCARD enum err ledger_targets_parse(struct ledger_http *h, const char *urls);
uint32_t ledger_target_now(const struct ledger_http *h);
/* On to the next one, unless somebody has left `from` already. */
void ledger_target_leave(struct ledger_http *h, uint32_t from);
/*
 * What came back from `from`. Turns to the next address (or to the writer that the answer names) when it is no use. True: nothing
 * was done there, or the call only reads: it may be sent again.
 */
bool ledger_target_answered(struct ledger_http *h, uint32_t from, bool write, enum err e,
                            const struct net_http_response *r);

#endif
