/*
 * Many wallet clients in one thread. Each connection is a strand of payments: one payer, one lane, nonces 1, 2, 3 ...;
 * what is refused or cut is asked for again with the same key, so that in the end the ledger's last nonce of a strand and
 * what was acknowledged to it can be compared. Some requests are duplicates on purpose.
 *
 *   rate 0      closed loop: every connection keeps `depth` requests under way
 *   rate r      open loop: r arrivals a second whatever comes back; latency counts from the arrival. An arrival that finds
 *               no connection free is not sent, and counted
 *
 * Threads     wallet_load_run in one thread; `stop` may be set by another.
 */
#ifndef RON_TESTS_WALLET_LOAD_H
#define RON_TESTS_WALLET_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wallet_load_spec {
    uint16_t port;
    const char *token;
    const char *run; /* prefix of its keys */
    unsigned conns;  /* strands */
    unsigned payers; /* strand i pays from acct:payer-<first_payer + i % payers> in lane i / payers */
    unsigned first_payer;
    unsigned depth; /* requests of one connection under way (HTTP pipelining); 0: 1 */
    unsigned
        repeat_pct; /* so many of a hundred ask again for what was acknowledged: the same bytes must come */
    unsigned thief_pct; /* so many use a spent nonce under another key: must be refused */
    double rate;
    int64_t ms;
    bool balances;     /* read the payer's balance instead */
    atomic_bool *stop; /* ends it early; may be NULL */
};

enum { WALLET_LOAD_BUCKETS = 800 };
struct wallet_load_times {
    uint64_t n, bucket[WALLET_LOAD_BUCKETS];
};

struct wallet_load_result {
    uint64_t sent, ok, replayed, busy, draining, pending, unavailable, conflict, other;
    uint64_t cut;            /* connections that ended with a request under way: no answer */
    uint64_t unsent;         /* arrivals without a free connection */
    uint64_t no_retry_after; /* refusals that did not say when to come back */
    uint64_t wrong;          /* a repeated request with other bytes, or a thief with a 200 */
    double seconds;
    struct wallet_load_times good, refused;
    uint64_t *acked; /* per strand: the last nonce acknowledged; free() it */
    char first_odd[512];
};

void wallet_load_run(const struct wallet_load_spec *spec, struct wallet_load_result *out);
double wallet_load_ms(const struct wallet_load_times *t, double q); /* quantile, ms */

#endif
