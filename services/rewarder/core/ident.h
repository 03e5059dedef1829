/*
 * Names and derived identities of the rewarder: the grammars of tenant, epoch, dimension, policy id and account,
 * and the hashes that make a run, a ledger entry and a settlement unit the same thing on every machine.
 *
 * Memory      Nothing allocates; results go into the caller's storage.
 * Order       Preimages are big-endian; lp(x) is one length byte followed by x.
 */
#ifndef RON_REWARDER_CORE_IDENT_H
#define RON_REWARDER_CORE_IDENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/sha256.h"

enum {
    REWARDER_NAME_MAX = 64,     /* tenant, epoch, policy id */
    REWARDER_DIM_MAX = 32,      /* one dimension's name */
    REWARDER_ACCOUNT_MAX = 128, /* one account */
    REWARDER_ASSET_MAX = 32,
    REWARDER_DIMS_MAX = 16,
    REWARDER_ENTRY_ID_LEN = 35, /* "rw_" + 32 hex */
    REWARDER_UNIT_ID_LEN = 34,  /* "r:" + 32 hex */
    REWARDER_KID_LEN = 16,
};

bool rewarder_is_tenant(struct str s);
bool rewarder_is_epoch(struct str s);
bool rewarder_is_dim(struct str s);
bool rewarder_is_policy_id(struct str s);

struct sha256 rewarder_run_key(struct str tenant, struct str epoch, const struct sha256 *policy_hash,
                               const struct sha256 *inputs_digest);
/* The id is the same for every run of an epoch, so a second, different run collides at the ledger. */
void rewarder_entry_id(struct str tenant, struct str epoch, struct str account,
                       char out[REWARDER_ENTRY_ID_LEN + 1]);
void rewarder_unit_id(struct str tenant, struct str epoch, const struct sha256 *run_key, uint32_t chunk,
                      char out[REWARDER_UNIT_ID_LEN + 1]);
void rewarder_kid(const uint8_t public_key[32], char out[REWARDER_KID_LEN + 1]);
struct sha256 rewarder_shadow_id(const struct sha256 *base_hash, const struct sha256 *candidate_hash,
                                 const struct sha256 *inputs_digest);

#endif
