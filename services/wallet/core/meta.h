/*
 * What a unit carries for the wallet, opaque to the ledger, under its tree: all that the entries do not say and a
 * receipt needs. Version 1:
 *
 *     0        version = 1
 *     1        flags: 1 = the hold named expires_in, 2 = the capture named an amount; others 0
 *     2        tenant length 1-64, tenant
 *     …        key length 1-128, key
 *     …        memo length 0-160, memo
 *     …        payee length (0; hold: 1-128), payee
 *
 * Anything else (other version or flag, wrong length, a byte too many) is not ours: ERR_CORRUPT.
 */
#ifndef RON_WALLET_CORE_META_H
#define RON_WALLET_CORE_META_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"

enum { WALLET_META_MAX = 486, WALLET_META_EXPIRES_IN = 1, WALLET_META_AMOUNT = 2 };

struct wallet_meta {
    uint8_t flags;
    struct str tenant, key, memo, payee; /* memo, payee: n 0 when absent */
};

size_t wallet_meta_encode(const struct wallet_meta *m, uint8_t out[WALLET_META_MAX]);
NODISCARD enum err wallet_meta_decode(struct bytes b, struct wallet_meta *out); /* borrows from b */

#endif
