/*
 * The wire form of a capability: a macaroon, as text.
 *
 * Tokens come from strangers, so they are read by the strict decoder here and never by the library,
 * whose own reader asserts on lengths. What was decoded is written again in one canonical form (version
 * 1, base64url, no padding), and only that form is handed to libmacaroons, which owns the HMAC chain.
 *
 * Ownership   A struct auth_macaroon owns its bytes; the views in it point into itself, so it must not
 *             be copied.
 * Threads     Pure functions; no state is shared.
 * Memory      The struct is about 8 KiB and may live on the stack. libmacaroons allocates while it
 *             verifies.
 */
#ifndef RON_AUTH_MACAROON_H
#define RON_AUTH_MACAROON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"

enum {
    AUTH_TOKEN_MAX = 8192,   /* text; half of the largest header block of HTTP */
    AUTH_RAW_MAX = 6144,     /* AUTH_TOKEN_MAX as bytes */
    AUTH_KID_MAX = 64,       /* the ledger stores it with every unit */
    AUTH_LOCATION_MAX = 256, /* a hint, not signed */
    AUTH_CAVEATS_MAX = 64,
    AUTH_CAVEAT_MAX = 2048,
    AUTH_SIG_BYTES = 32,
};

struct auth_macaroon {
    int version; /* of the form it was read from: 1 or 2 */
    struct str location;
    struct str kid; /* the macaroon's identifier */
    size_t ncaveats;
    struct str caveats[AUTH_CAVEATS_MAX];
    size_t nthird_party; /* such a token cannot be verified here */
    uint8_t sig[AUTH_SIG_BYTES];
    size_t raw_n;
    uint8_t raw[AUTH_RAW_MAX];
};

/* Reads version 1 or 2 from base64 (either alphabet, padding optional). ERR_SYNTAX, ERR_TOO_LARGE; *out is
 * scratch then. */
NODISCARD enum err auth_macaroon_decode(struct str token, struct auth_macaroon *out);

/* Appends the canonical text. */
NODISCARD enum err auth_macaroon_encode(const struct auth_macaroon *m, struct buf *out);

/* ERR_UNAUTHENTICATED unless the signature is that of `key` over identifier and caveats. Third-party
 * caveats never verify. */
NODISCARD enum err auth_macaroon_verify(const struct auth_macaroon *m, struct bytes key);

/* A new macaroon without caveats. ERR_RANGE when a part is empty or over its bound. */
NODISCARD enum err auth_macaroon_create(struct str location, struct bytes key, struct str kid,
                                        struct auth_macaroon *out);

/* Adds one caveat, without any key: the signature so far is the key of the next link. ERR_RANGE,
 * ERR_TOO_LARGE. */
NODISCARD enum err auth_macaroon_append(struct auth_macaroon *m, struct str caveat);

/* Overwrites everything, the signature above all: it is the secret part of a token. */
void auth_macaroon_wipe(struct auth_macaroon *m);

#endif
