/*
 * The policy: which assets exist, who is frozen, how much may move at once and in a day.
 *
 *     {"version":3,
 *      "assets":{"ron":{"decimals":2}},
 *      "frozen":["acct:mallory","acct:old-*"],
 *      "limits":[{"account":"acct:shop-*","asset":"ron","ops":["transfer","hold"],"max_amount":"5000","daily":"100000"}]}
 *
 * The first limit that matches counts; `*` matches everything, a trailing `*` any rest. Members of other services in
 * the same file are skipped; one that is nobody's is refused, here and in a row: a misspelt limit would be none. Without a
 * file there is one asset, ron.
 *
 * Ownership   A policy owns its memory and is immutable once read.
 * Threads     Pure.
 */
#ifndef RON_WALLET_CORE_POLICY_H
#define RON_WALLET_CORE_POLICY_H

#include "base/json_read.h"
#include "services/wallet/core/op.h"

struct wallet_policy;

struct wallet_policy *wallet_policy_default(void); /* NULL: no memory */
/* ERR_BAD_REQUEST with *out_err filled, ERR_NO_MEMORY. */
NODISCARD enum err wallet_policy_read(struct bytes json, struct wallet_policy **out,
                                      struct json_error *out_err);
void wallet_policy_free(struct wallet_policy *p); /* NULL is fine */
uint64_t wallet_policy_version(const struct wallet_policy *p);

struct wallet_ask {
    enum wallet_kind kind;
    struct str account;  /* the acting one */
    struct str from, to; /* n 0: none */
    struct str asset;
    struct money amount;
};

struct wallet_rule {
    bool has_daily;
    struct money daily;
};

struct wallet_denial {
    enum err err;       /* ERR_UNKNOWN_ASSET, ERR_FORBIDDEN, ERR_LIMIT_EXCEEDED */
    const char *reason; /* frozen; limit: policy_max_amount */
    struct money max;
};

bool wallet_policy_has_asset(const struct wallet_policy *p, struct str asset);
/* ERR_OK with what else is to be kept, or the denial's error. */
NODISCARD enum err wallet_policy_judge(const struct wallet_policy *p, const struct wallet_ask *ask,
                                       struct wallet_rule *out_rule, struct wallet_denial *out_denial);

#endif
