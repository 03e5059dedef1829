/*
 * Chains: the operations of one (account, lane) in the order of their nonces, at most one request of them with the
 * ledger at a time. Operations without a nonce have a chain of their own (named by their txid).
 *
 *     put -> PARKED -- take --> OUT -- settled -------> gone; when none is out the chain is free again
 *              ^                 `---- again(due) --.
 *              `-------------------------------------'    tried again, in order, not before `due`
 *
 * The chain orders and never judges: gaps and repetitions go to the ledger like everything else.
 *
 * Ownership   Links are embedded in the caller's jobs. Chains are owned here and recycled.
 * Threads     One owner at a time (a worker); the structure outlives its thread.
 * Memory      A chain is allocated when more are in use than ever before.
 */
#ifndef RON_WALLET_CORE_CHAIN_H
#define RON_WALLET_CORE_CHAIN_H

#include "base/heap.h"
#include "base/map.h"

enum { WALLET_CHAIN_NAME_MAX = 128 + 1 + 5 };

struct wallet_chain;

struct wallet_link {
    struct wallet_link *next;
    struct wallet_chain *chain; /* NULL: in none */
    uint64_t nonce, arrival;
    bool out;
};

struct wallet_chains {
    struct map by_name;
    struct wallet_chain *ready_first, *ready_last, *spare;
    struct heap waiting; /* free, with links, not yet due */
    uint64_t arrivals;
    size_t parked, out, count;
};

NODISCARD enum err wallet_chains_init(struct wallet_chains *cs, size_t expect);
void wallet_chains_fini(struct wallet_chains *cs); /* links are the caller's */

/* name: account and lane (or txid), at most WALLET_CHAIN_NAME_MAX bytes, copied. ERR_NO_MEMORY. */
NODISCARD enum err wallet_chains_put(struct wallet_chains *cs, struct str name, uint64_t nonce,
                                     struct wallet_link *link);
/* Takes up to max links of free chains, each chain's in order and next to each other. */
size_t wallet_chains_take(struct wallet_chains *cs, int64_t now_ns, struct wallet_link **out, size_t max);
/* Whether something of its chain is with the ledger, or waits for its turn there. */
bool wallet_link_waits(const struct wallet_link *link);
void wallet_chains_settled(struct wallet_chains *cs, struct wallet_link *link); /* out, or parked */
void wallet_chains_again(struct wallet_chains *cs, struct wallet_link *link, int64_t due_ns);
int64_t wallet_chains_next_ns(const struct wallet_chains *cs,
                              int64_t now_ns); /* when take would find something; INT64_MAX: never */
/* Every link in any state, for a caller that must answer them all. fn must not change the chains. */
void wallet_chains_each(const struct wallet_chains *cs, void (*fn)(struct wallet_link *link, void *arg),
                        void *arg);

#endif
