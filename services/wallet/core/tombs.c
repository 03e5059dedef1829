#include "services/wallet/core/tombs.h"

#include <stdlib.h>

enum err wallet_tombs_init(struct wallet_tombs *t, size_t max)
{
    *t = (struct wallet_tombs){.ring = calloc(max, sizeof *t->ring), .max = max};
    return t->ring ? map128_init(&t->by_txid, 64) : ERR_NO_MEMORY;
}

void wallet_tombs_fini(struct wallet_tombs *t)
{
    free(t->ring);
    map128_fini(&t->by_txid);
}

void wallet_tombs_remove(struct wallet_tombs *t, struct key128 txid)
{
    struct wallet_tomb *old = map128_remove(&t->by_txid, txid);
    if (old)
        old->why = ERR_OK;
}

void wallet_tombs_add(struct wallet_tombs *t, struct key128 txid, enum err why, int64_t now_ns)
{
    struct wallet_tomb *slot = &t->ring[t->next++ % t->max];
    wallet_tombs_remove(t, txid);
    if (slot->why != ERR_OK)
        map128_remove(&t->by_txid, slot->txid);
    *slot = (struct wallet_tomb){txid, why, now_ns};
    if (map128_add(&t->by_txid, txid, slot) != ERR_OK)
        slot->why = ERR_OK; /* without memory it is forgotten: the answer is then a plain 404 */
}

enum err wallet_tombs_find(const struct wallet_tombs *t, struct key128 txid, int64_t now_ns,
                           int64_t max_age_ns)
{
    const struct wallet_tomb *tomb = map128_get(&t->by_txid, txid);
    return tomb && now_ns - tomb->at_ns <= max_age_ns ? tomb->why : ERR_OK;
}
