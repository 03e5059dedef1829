/*
 * A reward policy: who pays, from what, by which weights, rounded how. Normalised when it is read, and known by the
 * SHA-256 of its canonical JSON, so two spellings of the same rules are the same policy.
 *
 * Ownership   rewarder_policy_create_*() returns one block; free it with rewarder_policy_destroy(). Immutable.
 * Threads     Immutable after creation, so any thread may read it.
 */
#ifndef RON_REWARDER_CORE_POLICY_H
#define RON_REWARDER_CORE_POLICY_H

#include "services/rewarder/core/ident.h"
#include "services/rewarder/core/wide.h"

enum { REWARDER_TENANTS_MAX = 64, REWARDER_WEIGHT_MAX = 1000000000 };

enum rewarder_rounding { REWARDER_FLOOR, REWARDER_LARGEST_REMAINDER, REWARDER_WEBSTER };

const char *rewarder_rounding_name(enum rewarder_rounding r);

struct rewarder_weight {
    char dim[REWARDER_DIM_MAX + 1];
    uint32_t num, den;
    uint64_t whole; /* num * lcm(all den) / den: what usage is multiplied with */
};

struct rewarder_policy {
    char id[REWARDER_NAME_MAX + 1];
    char asset[REWARDER_ASSET_MAX + 1];
    char funding[REWARDER_ACCOUNT_MAX + 1], dust[REWARDER_ACCOUNT_MAX + 1];
    bool pool_is_balance;
    wide_u128 pool; /* 0 when pool_is_balance */
    wide_u128 min_payout, max_payout;
    bool has_max;
    enum rewarder_rounding rounding;
    unsigned weight_count, tenant_count;
    struct rewarder_weight weights[REWARDER_DIMS_MAX]; /* by dim, ascending */
    char tenants[REWARDER_TENANTS_MAX][REWARDER_NAME_MAX + 1];
    struct sha256 hash;
    size_t canonical_n;
    char canonical[]; /* terminated */
};

/* ERR_BAD_POLICY with the offending member's name (static text), or ERR_NO_MEMORY. */
NODISCARD enum err rewarder_policy_create(struct bytes text, struct rewarder_policy **out,
                                          const char **out_member);
/* What there is without a policy file: `default`, the whole balance of pool:rewards by points. */
struct rewarder_policy *rewarder_policy_create_default(void);
void rewarder_policy_destroy(struct rewarder_policy *p);

bool rewarder_policy_for_tenant(const struct rewarder_policy *p, struct str tenant);

#endif
