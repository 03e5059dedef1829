/*
 * A client that remembers what the ledger told it, and refuses one that goes back or tells another story.
 *
 * It stands before any transport. Two memories: the newest (size, root) any answer showed, and the newest that was proven to be a
 * prefix of what came later. Every head() is an audit: the head must not lie below what was seen when it was asked, and both
 * memories must be consistent with it, by proofs checked here (RFC 9162 2.1.4.2). A transport that lost its connection is
 * suspect: calls wait until one audit has passed. A copy that says that it follows may be behind: that is no answer yet, and no
 * reason for trust. A ledger that fails an audit is refused for good with ERR_LEDGER_FORKED;
 * that is for an operator to look into, and ends with the process.
 *
 * Ownership   The guard owns the transport behind it: closing the one closes the other.
 * Threads     As ledger_client.h.
 * Memory      One object per call; at most GUARD_PARKED_MAX calls wait for an audit, more are REFUSED with ERR_BUSY.
 */
#ifndef RON_LEDGER_CLIENT_GUARD_H
#define RON_LEDGER_CLIENT_GUARD_H

#include "ledger_client/ledger_client.h"

enum { GUARD_PARKED_MAX = 4096 };

/* On failure the caller still owns `inner`. */
NODISCARD enum err ledger_client_guard(struct ledger_client *inner, struct ledger_client **out_client);
/* For a transport that notices it: the next ledger may be another one. */
void ledger_guard_suspect(void *guard);

/* RFC 9162 2.1.4.2: is the tree of `from` entries a prefix of the one of `to`? */
bool ledger_consistency_holds(uint64_t from, uint64_t to, const struct sha256 *from_root,
                              const struct sha256 *to_root, const struct sha256 *path, size_t n);

#endif
