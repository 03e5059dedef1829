#include "services/wallet/core/tombs.h"

#include <stdlib.h>
#include <string.h>

enum err wallet_tombs_init(struct wallet_tombs *t, size_t max, size_t text_max)
{
    *t = (struct wallet_tombs){.ring = calloc(max, sizeof *t->ring), .max = max, .text_max = text_max};
    return t->ring ? map128_init(&t->by_txid, 64) : ERR_NO_MEMORY;
}

static void empty(struct wallet_tombs *t, struct wallet_tomb *tomb)
{
    t->text_bytes -= tomb->text_n;
    free(tomb->text);
    *tomb = (struct wallet_tomb){.why = ERR_OK};
}

void wallet_tombs_fini(struct wallet_tombs *t)
{
    for (size_t i = 0; t->ring && i < t->max; i++)
        empty(t, &t->ring[i]);
    free(t->ring);
    map128_fini(&t->by_txid);
}

void wallet_tombs_remove(struct wallet_tombs *t, struct key128 txid)
{
    struct wallet_tomb *old = map128_remove(&t->by_txid, txid);
    if (old)
        empty(t, old);
}

static void drop_oldest(struct wallet_tombs *t)
{
    struct wallet_tomb *tomb = &t->ring[t->oldest++ % t->max];
    if (tomb->why == ERR_OK)
        return;
    map128_remove(&t->by_txid, tomb->txid);
    empty(t, tomb);
}

void wallet_tombs_add(struct wallet_tombs *t, struct key128 txid, enum err why, struct str text,
                      const struct wallet_sides *sides, int64_t now_ns)
{
    wallet_tombs_remove(t, txid);
    if (text.n > t->text_max)
        return;
    while (t->next - t->oldest == t->max || t->text_bytes + text.n > t->text_max)
        drop_oldest(t);
    char *copy = malloc(text.n ? text.n : 1);
    struct wallet_tomb *slot = &t->ring[t->next % t->max];
    if (!copy || map128_add(&t->by_txid, txid, slot) != ERR_OK) {
        free(copy);
        return;
    }
    if (text.n)
        memcpy(copy, text.p, text.n);
    *slot = (struct wallet_tomb){txid, why, now_ns, *sides, copy, text.n};
    t->text_bytes += text.n;
    t->next++;
}

const struct wallet_tomb *wallet_tombs_find(const struct wallet_tombs *t, struct key128 txid,
                                            int64_t now_ns, int64_t max_age_ns)
{
    const struct wallet_tomb *tomb = map128_get(&t->by_txid, txid);
    return tomb && now_ns - tomb->at_ns <= max_age_ns ? tomb : NULL;
}
