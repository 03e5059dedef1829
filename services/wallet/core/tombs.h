/*
 * Tombstones: what surely did not commit, so that somebody who was told "pending" learns why. A ring: the oldest makes
 * room, for one more as for its text. Who paid whom stays with it: only who may see the operation may see that it failed.
 *
 * Threads     None: the caller locks.
 * Memory      The ring is one allocation at start; a tombstone's text is its own, at most text_max bytes in all.
 */
#ifndef RON_WALLET_CORE_TOMBS_H
#define RON_WALLET_CORE_TOMBS_H

#include "base/map.h"
#include "services/wallet/core/idem.h"

struct wallet_tomb {
    struct key128 txid;
    enum err why; /* ERR_OK: empty */
    int64_t at_ns;
    struct wallet_sides sides; /* in text */
    char *text;
    size_t text_n;
};

struct wallet_tombs {
    struct wallet_tomb *ring;
    struct map128 by_txid;
    size_t max, next, oldest; /* next and oldest count on; the slot is modulo max */
    size_t text_bytes, text_max;
};

NODISCARD enum err wallet_tombs_init(struct wallet_tombs *t, size_t max, size_t text_max);
void wallet_tombs_fini(struct wallet_tombs *t);
/* `sides` lie in `text`, which is copied. Without memory it is forgotten: the answer is then a plain 404. */
void wallet_tombs_add(struct wallet_tombs *t, struct key128 txid, enum err why, struct str text,
                      const struct wallet_sides *sides, int64_t now_ns);
/* A later attempt under the same txid is on its way, or has committed. */
void wallet_tombs_remove(struct wallet_tombs *t, struct key128 txid);
/* NULL: none younger than max_age_ns. Valid until the next add or remove. */
const struct wallet_tomb *wallet_tombs_find(const struct wallet_tombs *t, struct key128 txid,
                                            int64_t now_ns, int64_t max_age_ns);

#endif
