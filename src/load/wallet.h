/*
 * Many wallet clients in one thread. Each connection is a strand of payments: one payer, one lane, nonces 1, 2, 3 ...;
 * what is refused or cut is asked for again with the same key, so that in the end the ledger's last nonce of a strand and
 * what was acknowledged to it can be compared. Some requests are duplicates on purpose.
 *
 *   rate 0      closed loop: every connection keeps `depth` requests under way
 *   rate r      open loop: r arrivals a second whatever comes back; latency counts from the arrival. An arrival that finds
 *               no connection free is not sent, and counted
 *
 * Threads     load_wallet_run in one thread; `stop` may be set by another.
 */
#ifndef RON_LOAD_WALLET_H
#define RON_LOAD_WALLET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "load/http.h"
#include "load/mill.h"

struct load_wallet_spec {
    struct load_addr addr;
    const char *token, *asset;
    const char *payer_head; /* "acct:payer-" */
    const char *run;        /* prefix of its keys */
    unsigned conns;         /* strands */
    unsigned payers; /* strand i pays from <payer_head><first_payer + i % payers> in lane i / payers */
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

struct load_wallet_result {
    uint64_t sent, ok, replayed, busy, draining, pending, unavailable, conflict, other;
    uint64_t cut;            /* connections that ended with a request under way: no answer */
    uint64_t unsent;         /* arrivals without a free connection */
    uint64_t no_retry_after; /* refusals that did not say when to come back */
    uint64_t wrong;          /* a repeated request with other bytes, or a thief with a 200 */
    double seconds;
    struct load_times good, refused;
    uint64_t *acked; /* per strand: the last nonce acknowledged; free() it */
    char first_odd[512];
};

/* ERR_REFUSED: nobody is there. out->acked is the caller's in any case. */
NODISCARD enum err load_wallet_run(const struct load_wallet_spec *spec, struct load_wallet_result *out);

/* What the wallet says afterwards of the payers of a load that nobody else debits. */
struct load_wallet_books {
    uint64_t acknowledged; /* transfers */
    uint64_t
        found; /* nonces that the ledger has taken; the answer to the last one of a strand may be lost */
    uint64_t lost;    /* acknowledged, but not taken */
    uint64_t doubled; /* units of value that left a payer without a nonce */
};

/* Issues load_wallet_fund_amount to every payer; ERR_REFUSED with the complaint, ERR_TIMEOUT. */
extern const uint64_t load_wallet_fund_amount;
NODISCARD enum err load_wallet_fund(const struct load_wallet_spec *spec, struct load_complaint *out_why);
/* Reads nonces and balances until they agree with each other and with what was acknowledged, for wait_ms at most: reads may be
 * behind. */
NODISCARD enum err load_wallet_check(const struct load_wallet_spec *spec, const uint64_t *acked,
                                     int64_t wait_ms, struct load_wallet_books *out,
                                     struct load_complaint *out_why);

#endif
