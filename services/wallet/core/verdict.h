/*
 * What the ledger's words mean to the wallet: one table from reason to action. Pure.
 *
 * COMMIT    it is in the log
 * LOOK_UP   the key is known there: read the unit, whose id decides between a replay and a mismatch
 * REFUSE    definite, and the client's: tell it with `err`
 * RETRY     definite, nothing was sequenced: the same bytes again after a back-off
 * EXPIRED   definite, and nothing will move any more: it came after its not_after
 * FAULT     definite, but we must not have sent that: unavailable, and an error in the log
 * UNKNOWN   it may or may not be in the log
 */
#ifndef RON_WALLET_CORE_VERDICT_H
#define RON_WALLET_CORE_VERDICT_H

#include <stdbool.h>

#include "base/err.h"

enum wallet_verdict_kind {
    WALLET_V_COMMIT,
    WALLET_V_LOOK_UP,
    WALLET_V_REFUSE,
    WALLET_V_RETRY,
    WALLET_V_EXPIRED,
    WALLET_V_FAULT,
    WALLET_V_UNKNOWN,
};

struct wallet_verdict {
    enum wallet_verdict_kind kind;
    enum err err;       /* REFUSE: what the client is told */
    const char *reason; /* the `reason` of its details, or NULL */
};

/* For a unit that was rejected (or a request refused as a whole) with this reason. hold_expired: "why" of hold_closed. */
struct wallet_verdict wallet_verdict_of(enum err reason, bool hold_expired);

#endif
