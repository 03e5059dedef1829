/*
 * Capabilities: who may do what. A token is verified once and cached; whether it covers a request is
 * judged every time.
 *
 *     struct auth_cap *cap;
 *     e = auth_verify(auth, token, &cap);            401: bad, forged, expired, revoked, no aud or no exp
 *     e = auth_rate_take(cap, &retry_ms);            429: over a `rate` caveat; once per request
 *     e = auth_allows(cap, &want, &why);             403: good, but does not cover this; 401: just expired
 *     auth_cap_release(cap);
 *
 * Rules that no caller can get around: caveats are ANDed; a caveat nobody knows, or that this service
 * did not declare in `understands`, denies; a caveat about something the request does not state denies
 * unless the request says in `lacks` that such a thing does not exist for it; `admin` and the service's
 * explicit_ops are covered only when every `op` caveat spells them out, and one of them stands before the first `aud` or the first `exp`.
 * Whoever has a token has both in it and can only add behind them: a caveat that he adds never allows what was not. For the same reason a
 * tenant that stands behind both, where none was before, is `default` or denies, unless the token up to there covers `admin`.
 *
 * Ownership   auth_verify hands out a reference; give it back with auth_cap_release, from any thread,
 *             before auth_close. Everything a cap hands out lives as long as the reference.
 * Threads     Every function from any thread. auth_reload reads files and may wait for the disk; the
 *             rest never waits.
 * Memory      The cache and the rate buckets are allocated by auth_open. A hit allocates nothing; a
 *             miss allocates the cap.
 */
#ifndef RON_AUTH_CAP_H
#define RON_AUTH_CAP_H

#include <stdbool.h>
#include <stdint.h>

#include "auth/caveat.h"
#include "auth/keyring.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/money.h"
#include "base/sha256.h"
#include "rt/lock.h"

struct auth;
struct auth_cap;
struct rt_task;

enum {
    AUTH_DAILY_MAX = 4, /* `daily` caveats per token; more deny */
    AUTH_REF_CHARS = 17,
    AUTH_TENANT_ID_BYTES = 16,
};

struct auth_config {
    const char *aud;      /* this service: "svc-wallet" */
    unsigned understands; /* AUTH_BIT()s beyond AUTH_BASIC */
    const char *const
        *explicit_ops;    /* NULL-terminated, besides "admin"; NULL: only that. Must outlive the auth */
    const char *key_file; /* NULL: `keyring` is used and auth_reload keeps it */
    const char *revocation_file;  /* NULL: no list */
    struct auth_keyring *keyring; /* auth takes its own reference */
    unsigned cache_entries;       /* 0: 4096 */
    int64_t cache_ttl_ms;         /* 0: 30 s; 5 s to 120 s */
    unsigned rate_buckets;        /* 0: 4096 */
    const struct clock *clock;    /* NULL: clock_real() */
};

/* ERR_RANGE for numbers out of bounds; else as auth_keyring_load. out_where may be NULL. */
NODISCARD enum err auth_open(const struct auth_config *config, struct auth **out,
                             struct auth_file_error *out_where);
void auth_close(struct auth *a); /* NULL is fine */
/* Reads key and revocation file again and empties the cache. On failure everything stays as it was. */
NODISCARD enum err auth_reload(struct auth *a, struct auth_file_error *out_where);
NODISCARD enum err auth_set_cache_ttl(struct auth *a,
                                      int64_t ttl_ms); /* for what is cached from now on; ERR_RANGE */

/* "Bearer <token>" of an Authorization header. ERR_UNAUTHENTICATED for anything else. */
NODISCARD enum err auth_bearer(struct str authorization, struct str *out_token);

NODISCARD enum err auth_verify(struct auth *a, struct str token, struct auth_cap **out_cap);
/* The same, and for a token that is one of ours but out of its time what auth_allows would say: its holder may know. */
struct auth_deny;
NODISCARD enum err auth_verify_why(struct auth *a, struct str token, struct auth_cap **out_cap,
                                   struct auth_deny *out_why);
struct auth_cap *auth_cap_hold(struct auth_cap *cap); /* one more reference */
void auth_cap_release(struct auth_cap *cap);          /* NULL is fine */

/* One request, or one entry of one. p NULL = not stated; an empty string is stated and covered by nothing.
 */
struct auth_want {
    struct str op;      /* required */
    struct str aud;     /* p NULL: the service's own */
    struct str account; /* the acting account */
    struct str to;      /* the payee */
    struct str asset;
    const struct money *amount; /* NULL = not stated */
    struct str topic;
    struct str tenant; /* what the request claims; p NULL: nothing */
    const uint8_t
        *peer_ip;   /* 16 bytes, IPv4 as ::ffff:a.b.c.d; NULL: not an IP peer, an `ip` caveat denies */
    uint64_t bytes; /* size of what is sent; 0 fits every `bytes` caveat */
    int64_t now_ms; /* wall time */
    unsigned
        lacks; /* AUTH_BIT()s of account, to, asset, max_amount, topic: this operation has no such thing */
    unsigned judged; /* AUTH_BIT()s that were asked for this very request before, and said yes */
};

struct auth_deny {
    enum auth_cv kind; /* the caveat that said no */
    const char
        *reason; /* expired not_yet aud op account payee asset amount topic ip bytes tenant caveat daily */
    struct money limit; /* with reason amount and bytes */
};

/* ERR_UNAUTHENTICATED (expired, not yet valid) or ERR_FORBIDDEN. out_why may be NULL. */
NODISCARD enum err auth_allows(const struct auth_cap *cap, const struct auth_want *w,
                               struct auth_deny *out_why);
/* Whether every list caveat of that kind covers value (true when there is none): for filtering what a token
 * may see. */
bool auth_covers(const struct auth_cap *cap, enum auth_cv kind, struct str value);
/*
 * The least value that is not below from and that every list caveat of that kind covers: from itself, or one out of the token. False:
 * there is none. Whoever walks something ordered can leave out what lies between, however much that is.
 */
bool auth_covers_next(const struct auth_cap *cap, enum auth_cv kind, struct str from, struct str *out);
/* Charges one request to every `rate` caveat; a bucket is shared by all tokens narrowed below its caveat.
 * ERR_RATE_LIMITED. */
NODISCARD enum err auth_rate_take(struct auth_cap *cap, int64_t *out_retry_ms);

const char *auth_cap_kid(const struct auth_cap *cap);
const char *auth_cap_ref(
    const struct auth_cap *cap); /* first 16 hex of SHA-256 of the token text: for logs and the ledger */
#define AUTH_TENANT_DEFAULT "default"
struct str auth_cap_tenant(const struct auth_cap *cap); /* AUTH_TENANT_DEFAULT without the caveat */
const struct sha256 *
auth_cap_id(const struct auth_cap *cap); /* identifier and caveats, whatever the encoding */
bool auth_cap_has(const struct auth_cap *cap, enum auth_cv kind);
int64_t auth_cap_expires_ms(const struct auth_cap *cap); /* the earliest `exp`, or the key's end */
size_t auth_cap_caveats(const struct auth_cap *cap);
const struct auth_caveat *auth_cap_caveat(const struct auth_cap *cap, size_t i);

/* The i-th `daily` caveat. Its counter is named by identifier and caveats up to it, so narrowing cannot
 * escape it. */
struct auth_daily {
    struct money limit;
    struct sha256 counter;
};
bool auth_cap_daily(const struct auth_cap *cap, size_t i, struct auth_daily *out); /* false past the last */

/* The 16 bytes that stand for a tenant in OAP frames. */
void auth_tenant_id(struct str tenant, uint8_t out[AUTH_TENANT_ID_BYTES]);
/* Zero fits always, else it must be the token's tenant. */
bool auth_cap_fits_tenant_id(const struct auth_cap *cap, const uint8_t id[AUTH_TENANT_ID_BYTES]);

/* ---- upkeep ---- */

/* Drops what is too old; empties everything when failures rise above 5 a second over 30 s. Cheap; call it
 * every second. */
void auth_refresh(struct auth *a);
void auth_empty_cache(struct auth *a);
/* Task body; arg is the struct auth. */
NODISCARD enum err auth_refresher_run(struct rt_task *self, void *arg) RT_BLOCKS;

struct auth_stats {
    uint64_t hits, misses, failures; /* failures: tokens refused by auth_verify */
    uint64_t evicted, expired, emptied;
    uint64_t rate_limited;
    uint64_t entries;
};
void auth_stats(struct auth *a, struct auth_stats *out);

#endif
