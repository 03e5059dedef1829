/* What cap.c, judge.c and refresh.c share. */
#ifndef RON_AUTH_CAP_INTERNAL_H
#define RON_AUTH_CAP_INTERNAL_H

#include <stdatomic.h>

#include "auth/cap.h"
#include "auth/cap_cache.h"
#include "auth/rate.h"
#include "rt/lock.h"

enum { AUTH_MAGIC = 0x61757468, AUTH_CAP_MAGIC = 0x63617021, AUTH_RATES_MAX = 4, AUTH_FAIL_SAMPLES = 32 };

struct auth_fail_sample {
    int64_t at_ns;
    uint64_t total;
};

struct auth {
    uint32_t magic;
    struct auth_config cfg;
    char *key_file, *revocation_file; /* own copies; NULL: none */
    struct auth_cap_cache *cache;
    struct auth_rate *rates;
    _Atomic int64_t ttl_ns;

    struct rt_lock keys_lock; /* guards the two below */
    struct auth_keyring *keys;
    struct auth_revoked *revoked;
    /* Raised (release) after new keys are in place; read (acquire) before they are taken, so that what was
     * verified with old keys is stored under the old number. */
    _Atomic uint64_t generation;

    atomic_uint_fast64_t failures, emptied, rate_limited; /* counters: relaxed */

    struct rt_lock upkeep_lock; /* guards the rest */
    struct auth_fail_sample samples[AUTH_FAIL_SAMPLES];
    size_t nsamples, next_sample;
    int64_t trimmed_ns;
};

struct auth_cap_rate {
    struct sha256 name;
    uint64_t per_s;
};

/* Immutable once made; one block together with its texts. */
struct auth_cap {
    uint32_t magic;
    atomic_uint refs; /* the last release (acq_rel) sees what the others did */
    struct auth *auth;
    struct str token; /* what it was made from; wiped before it is freed */
    struct sha256 id;
    char kid[AUTH_KID_MAX + 1];
    char ref[AUTH_REF_CHARS];
    int64_t exp_ms, nbf_ms; /* of all caveats together, and of the key */
    unsigned kinds;         /* AUTH_BIT()s that occur */
    const char *broken;     /* reason why no request is ever covered, or NULL */
    bool not_ours;          /* an `aud` caveat leaves this service out */
    bool ops_granted;       /* an `op` caveat is older than the first token that was good: see auth_mint */
    bool not_admin;         /* an `op` caveat does not spell it */
    struct str tenant;
    size_t ndaily, nrate, n;
    struct auth_daily daily[AUTH_DAILY_MAX];
    struct auth_cap_rate rate[AUTH_RATES_MAX];
    struct auth_caveat caveats[];
};

#endif
