/*
 * Tombstones: what surely did not commit, so that somebody who was told "pending" learns why. A ring: the oldest makes
 * room.
 *
 * Threads     None: the caller locks.
 * Memory      One allocation at start.
 */
#ifndef RON_WALLET_CORE_TOMBS_H
#define RON_WALLET_CORE_TOMBS_H

#include "base/map.h"

struct wallet_tomb {
    struct key128 txid;
    enum err why;
    int64_t at_ns;
};

struct wallet_tombs {
    struct wallet_tomb *ring;
    struct map128 by_txid;
    size_t max, next;
};

NODISCARD enum err wallet_tombs_init(struct wallet_tombs *t, size_t max);
void wallet_tombs_fini(struct wallet_tombs *t);
void wallet_tombs_add(struct wallet_tombs *t, struct key128 txid, enum err why, int64_t now_ns);
/* A later attempt under the same txid is on its way, or has committed. */
void wallet_tombs_remove(struct wallet_tombs *t, struct key128 txid);
/* ERR_OK: none younger than max_age_ns. */
enum err wallet_tombs_find(const struct wallet_tombs *t, struct key128 txid, int64_t now_ns,
                           int64_t max_age_ns);

#endif
