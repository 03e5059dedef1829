/*
 * Ed25519 signatures (RFC 8032) over OpenSSL.
 *
 * Ownership   A key object belongs to whoever created it.
 * Threads     A key object may sign or verify from several threads at once.
 * Memory      Signing and verifying allocate inside OpenSSL; keep them off the hottest paths.
 */
#ifndef RON_BASE_ED25519_H
#define RON_BASE_ED25519_H

#include "base/bytes.h"
#include "base/err.h"

enum { ED25519_SEED_BYTES = 32, ED25519_PUBLIC_BYTES = 32, ED25519_SIGNATURE_BYTES = 64 };

struct ed25519_key; /* private, or public only */

struct ed25519_key *ed25519_key_from_seed(const uint8_t seed[ED25519_SEED_BYTES]);    /* NULL: no memory */
struct ed25519_key *ed25519_key_from_public(const uint8_t pub[ED25519_PUBLIC_BYTES]); /* NULL: no memory */
void ed25519_key_destroy(struct ed25519_key *key);
void ed25519_public(const struct ed25519_key *key, uint8_t out_pub[ED25519_PUBLIC_BYTES]);
NODISCARD enum err
ed25519_sign(const struct ed25519_key *key, struct bytes message,
             uint8_t out_signature[ED25519_SIGNATURE_BYTES]); /* ERR_PERMISSION: public key */
NODISCARD enum err
ed25519_verify(const struct ed25519_key *key, struct bytes message,
               const uint8_t signature[ED25519_SIGNATURE_BYTES]); /* ERR_UNAUTHENTICATED */

#endif
