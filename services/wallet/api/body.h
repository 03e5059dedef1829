/*
 * The body of a POST: members to operation. Pure, so that it can be fuzzed.
 *
 * Ownership   Text of *out lives in the arena.
 */
#ifndef RON_WALLET_API_BODY_H
#define RON_WALLET_API_BODY_H

#include "base/arena.h"
#include "base/json_read.h"
#include "services/wallet/core/op.h"

struct wallet_body_limits {
    uint64_t max_lane;
    int64_t hold_max_ttl_ms;
};

/* ERR_BAD_REQUEST with the member and what is wrong with it. `kind` is the route's; a simulation names its own in "op". */
NODISCARD enum err wallet_body_read(struct bytes body, enum wallet_kind kind, bool simulated,
                                    const struct wallet_body_limits *limits, struct arena *a,
                                    struct wallet_op *out, struct json_error *out_why);

#endif
