/*
 * Making, narrowing and looking at tokens: what `ron cap` and the first start need.
 *
 * Threads     Pure, apart from the two file functions, which may wait for the disk.
 * Memory      Tokens are appended to the caller's buffer; use a fixed one when no copy may be left in
 *             freed memory.
 */
#ifndef RON_AUTH_MINT_H
#define RON_AUTH_MINT_H

#include "auth/caveat.h"
#include "auth/keyring.h"
#include "auth/macaroon.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/sha256.h"

#define AUTH_LOCATION "ron"

/*
 * kid empty: the key that lives longest. Every caveat must parse, and aud and exp must be among them: a
 * token that no service would accept is not made. ERR_NOT_FOUND (no such kid), ERR_SYNTAX (*out_bad names
 * the caveat), ERR_UNPROCESSABLE (no aud, no exp).
 *
 * `op` and `tenant` come first, the others in their order: behind aud and exp they could be whoever's the token was given to, and would
 * not grant what has to be spelled out, nor make it another tenant's.
 */
NODISCARD enum err auth_mint(const struct auth_keyring *k, struct str kid, const struct str *caveats,
                             size_t n, struct buf *out_token, size_t *out_bad);

/* Adds caveats, no key needed. ERR_SYNTAX for a token or caveat that cannot be read (*out_bad == n: the
 * token). */
NODISCARD enum err auth_narrow(struct str token, const struct str *caveats, size_t n, struct buf *out_token,
                               size_t *out_bad);

/* What a token says; nothing in it is verified. */
struct auth_token_info {
    struct auth_macaroon m;                       /* kid, location, caveats, version */
    struct auth_caveat caveats[AUTH_CAVEATS_MAX]; /* parsed; kind AUTH_CV_UNKNOWN for the others */
    struct sha256 id;                             /* for the revocation file */
    char ref[17];                                 /* as in logs */
};
NODISCARD enum err auth_inspect(struct str token, struct auth_token_info *out);

/* The chain of names behind token ids and daily counters: start with the identifier, add caveat by caveat.
 */
void auth_token_id_start(struct str kid, struct sha256 *out);
void auth_token_id_add(struct sha256 *id, struct str caveat);

/* A file with one token, 0600. Reading appends the token without its newline. */
NODISCARD enum err auth_token_file_read(const char *path, struct buf *out_token);
/*
 * Makes sure that path holds a token that `k` verifies, that lives beyond now_ms and whose ops are granted: keeps a good one,
 * replaces any other by one minted with these caveats.
 */
NODISCARD enum err auth_token_file_ensure(const char *path, const struct auth_keyring *k,
                                          const struct str *caveats, size_t n, int64_t now_ms);

#endif
