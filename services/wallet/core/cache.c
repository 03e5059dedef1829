#include "services/wallet/core/cache.h"

#include <stdlib.h>

#include "base/check.h"

struct wallet_holding *wallet_account_holdings(const struct wallet_account *a)
{
    return (struct wallet_holding *)(uintptr_t)(((uintptr_t)(a + 1) + 15) & ~(uintptr_t)15);
}

struct wallet_lane *wallet_account_lanes(const struct wallet_account *a)
{
    return (struct wallet_lane *)(wallet_account_holdings(a) + a->n_holdings);
}

static struct str account_name(const struct wallet_account *a)
{
    return str_of((const char *)(wallet_account_lanes(a) + a->n_lanes), a->name_n);
}

static size_t account_bytes(const struct wallet_account *a)
{
    return sizeof *a + 16 + a->n_holdings * sizeof(struct wallet_holding) +
           a->n_lanes * sizeof(struct wallet_lane) + a->name_n;
}

struct wallet_holding wallet_account_holding(const struct wallet_account *a, struct str asset)
{
    const struct wallet_holding *h = wallet_account_holdings(a);
    for (size_t i = 0; i < a->n_holdings; i++)
        if (str_eq_c(asset, h[i].asset))
            return h[i];
    return (struct wallet_holding){.available = MONEY_ZERO};
}

void wallet_freshness(const struct wallet_account *a, uint64_t touched, const struct wallet_feed *feed,
                      int64_t now_ns, struct wallet_freshness *out)
{
    bool clean = a->as_of_seq >= touched && a->as_of_seq >= feed->floor_seq;
    bool vouched = clean && feed->feed_seq >= a->as_of_seq;
    int64_t known_ns = vouched && feed->feed_ns > a->fetched_ns ? feed->feed_ns : a->fetched_ns;
    out->clean = clean;
    out->age_ns = now_ns > known_ns ? now_ns - known_ns : 0;
    out->seq = vouched ? feed->feed_seq : a->as_of_seq;
}

enum err wallet_cache_init(struct wallet_cache *c, size_t bytes_max)
{
    *c = (struct wallet_cache){.bytes_max = bytes_max};
    return map_init(&c->by_name, 64);
}

static void lru_remove(struct wallet_cache *c, struct wallet_account *a)
{
    *(a->newer ? &a->newer->older : &c->newest) = a->older;
    *(a->older ? &a->older->newer : &c->oldest) = a->newer;
    a->newer = a->older = NULL;
}

static void lru_push(struct wallet_cache *c, struct wallet_account *a)
{
    a->older = c->newest;
    a->newer = NULL;
    *(c->newest ? &c->newest->newer : &c->oldest) = a;
    c->newest = a;
}

static void forget(struct wallet_cache *c, struct wallet_account *a)
{
    CHECK(map_remove(&c->by_name, bytes_of_str(account_name(a))) == a);
    lru_remove(c, a);
    c->bytes -= account_bytes(a);
    free(a);
}

void wallet_cache_clear(struct wallet_cache *c)
{
    while (c->oldest)
        forget(c, c->oldest);
}

void wallet_cache_fini(struct wallet_cache *c)
{
    wallet_cache_clear(c);
    map_fini(&c->by_name);
}

struct wallet_account *wallet_account_new(struct str name, size_t holdings, size_t lanes)
{
    struct wallet_account shape = {
        .n_holdings = (uint32_t)holdings, .n_lanes = (uint32_t)lanes, .name_n = (uint32_t)name.n};
    struct wallet_account *a = calloc(1, account_bytes(&shape));
    if (!a)
        return NULL;
    *a = shape;
    memcpy((char *)(wallet_account_lanes(a) + lanes), name.p, name.n);
    return a;
}

void wallet_cache_put(struct wallet_cache *c, struct wallet_account *a)
{
    struct wallet_account *old = map_get(&c->by_name, bytes_of_str(account_name(a)));
    /* Two reads may come back in another order than they were sent. */
    if (old && (old->as_of_seq > a->as_of_seq ||
                (old->as_of_seq == a->as_of_seq && old->fetched_ns > a->fetched_ns))) {
        free(a);
        return;
    }
    if (old)
        forget(c, old);
    if (map_add(&c->by_name, bytes_of_str(account_name(a)), a) != ERR_OK) {
        free(a);
        return;
    }
    lru_push(c, a);
    c->bytes += account_bytes(a);
    while (c->bytes > c->bytes_max && c->oldest != a)
        forget(c, c->oldest);
}

struct wallet_account *wallet_cache_find(struct wallet_cache *c, struct str name)
{
    struct wallet_account *a = map_get(&c->by_name, bytes_of_str(name));
    if (a) {
        lru_remove(c, a);
        lru_push(c, a);
    }
    return a;
}
