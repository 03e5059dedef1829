/*
 * The way to the ledger: direct in one process, else a connection of our own; and the capability shown there, which a reload reads
 * again. The address stays as long as the service does (docs/design/0016).
 */
#ifndef RON_REWARDER_LEDGER_H
#define RON_REWARDER_LEDGER_H

#include "services/rewarder/rewarder.h"

/* r->ledger is NULL when there is none: the service still computes, and holds. */
void rewarder_ledger_open(struct rewarder *r);
NODISCARD enum err rewarder_ledger_add_task(struct rewarder *r);
/* Presented from the next call on. A file that cannot be read leaves the one in use; the log says so. */
void rewarder_ledger_reloaded(struct rewarder *r);

#endif
