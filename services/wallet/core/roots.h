/*
 * The tripwire against a ledger that tells different people different things: every (tree size, root) that was ever seen
 * lately is kept, and a second root for a size that is known is a fork.
 *
 * Threads     None: the caller locks.
 * Memory      One allocation at start.
 */
#ifndef RON_WALLET_CORE_ROOTS_H
#define RON_WALLET_CORE_ROOTS_H

#include "base/sha256.h"

enum { WALLET_ROOTS = 4096 };

struct wallet_root_seen {
    uint64_t size;
    struct sha256 root;
};

/* Direct-mapped by size: neighbours in time are neighbours in size. */
struct wallet_roots {
    struct wallet_root_seen *seen;
};

NODISCARD enum err wallet_roots_init(struct wallet_roots *r);
void wallet_roots_fini(struct wallet_roots *r);
/* ERR_CORRUPT: this size had another root. */
NODISCARD enum err wallet_roots_see(struct wallet_roots *r, uint64_t size, const struct sha256 *root);

#endif
