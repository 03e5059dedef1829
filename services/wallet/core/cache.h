/*
 * Balances as last seen, and the rule for how old they may be called. One shard of the cache; the shell has several,
 * each under its lock.
 *
 * A value read at `fetched_ns` was true then. It is *clean* while nothing that happened since touched the account as far
 * as is known: its slot of `touched` (highest seq that touched any account of that slot) and `floor_seq` (everything
 * before it is suspect, because events were lost) are not past it. While clean it stays true for as long as the feed of
 * the ledger vouches for it: up to feed_seq, heard (or confirmed by a probe) at feed_ns.
 *
 * Ownership   The shard owns its entries; what look-ups return is valid until the next call that adds.
 * Threads     None: the caller locks.
 * Memory      One allocation per entry, within bytes_max; the least recently used goes first.
 */
#ifndef RON_WALLET_CORE_CACHE_H
#define RON_WALLET_CORE_CACHE_H

#include "base/map.h"
#include "base/money.h"

enum { WALLET_LANES_MAX = 256, WALLET_ASSET_CHARS = 33 };

struct wallet_holding {
    char asset[WALLET_ASSET_CHARS];
    struct money available, held;
};

struct wallet_lane {
    uint32_t lane;
    uint64_t last; /* counter */
};

struct wallet_account {
    struct wallet_account *newer, *older;
    int64_t fetched_ns; /* when the read was sent */
    int64_t as_of_ms;   /* the same on the wall clock */
    uint64_t as_of_seq;
    uint32_t n_holdings, n_lanes, name_n;
    bool lanes_cut; /* it has more than these */
    /* Behind the struct: n_holdings struct wallet_holding, n_lanes struct wallet_lane, the account's name. */
};

struct wallet_holding *wallet_account_holdings(const struct wallet_account *a);
struct wallet_lane *wallet_account_lanes(const struct wallet_account *a);
/* Zero for an asset it does not hold. */
struct wallet_holding wallet_account_holding(const struct wallet_account *a, struct str asset);

struct wallet_feed {
    uint64_t feed_seq;
    int64_t feed_ns;
    uint64_t floor_seq;
};

struct wallet_freshness {
    bool clean;
    int64_t age_ns;
    uint64_t seq; /* as of which it is known to hold */
};

void wallet_freshness(const struct wallet_account *a, uint64_t touched, const struct wallet_feed *feed,
                      int64_t now_ns, struct wallet_freshness *out);

struct wallet_cache {
    struct map by_name;
    struct wallet_account *newest, *oldest;
    size_t bytes, bytes_max;
};

NODISCARD enum err wallet_cache_init(struct wallet_cache *c, size_t bytes_max);
void wallet_cache_fini(struct wallet_cache *c);
void wallet_cache_clear(struct wallet_cache *c);
/* An account with room for so many of each; fill it, then put it (or free it). NULL: no memory. */
struct wallet_account *wallet_account_new(struct str name, size_t holdings, size_t lanes);
/* Takes it over. An entry that is already newer stays. */
void wallet_cache_put(struct wallet_cache *c, struct wallet_account *a);
struct wallet_account *wallet_cache_find(struct wallet_cache *c,
                                         struct str name); /* NULL; counts as used */

#endif
