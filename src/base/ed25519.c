#include "base/ed25519.h"

#include <openssl/evp.h>
#include <stdlib.h>

#include "base/check.h"

struct ed25519_key {
    EVP_PKEY *pkey;
    uint8_t pub[ED25519_PUBLIC_BYTES];
    bool private;
};

static struct ed25519_key *wrap(EVP_PKEY *pkey, bool private)
{
    struct ed25519_key *key = pkey ? calloc(1, sizeof *key) : NULL;
    size_t n = sizeof key->pub;
    if (!key || EVP_PKEY_get_raw_public_key(pkey, key->pub, &n) != 1) {
        free(key);
        EVP_PKEY_free(pkey);
        return NULL;
    }
    key->pkey = pkey;
    key->private = private;
    return key;
}

struct ed25519_key *ed25519_key_from_seed(const uint8_t seed[ED25519_SEED_BYTES])
{
    return wrap(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, ED25519_SEED_BYTES), true);
}

struct ed25519_key *ed25519_key_from_public(const uint8_t pub[ED25519_PUBLIC_BYTES])
{
    return wrap(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, pub, ED25519_PUBLIC_BYTES), false);
}

void ed25519_key_destroy(struct ed25519_key *key)
{
    if (!key)
        return;
    EVP_PKEY_free(key->pkey); /* OpenSSL wipes private keys */
    free(key);
}

void ed25519_public(const struct ed25519_key *key, uint8_t out_pub[ED25519_PUBLIC_BYTES])
{
    memcpy(out_pub, key->pub, sizeof key->pub);
}

enum err ed25519_sign(const struct ed25519_key *key, struct bytes message,
                      uint8_t out_signature[ED25519_SIGNATURE_BYTES])
{
    if (!key->private)
        return ERR_PERMISSION;
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    uint8_t signature[ED25519_SIGNATURE_BYTES];
    size_t n = sizeof signature;
    bool ok = c && EVP_DigestSignInit(c, NULL, NULL, NULL, key->pkey) == 1 &&
              EVP_DigestSign(c, signature, &n, message.p, message.n) == 1 && n == sizeof signature;
    EVP_MD_CTX_free(c);
    if (!ok)
        return ERR_NO_MEMORY;
    memcpy(out_signature, signature, sizeof signature);
    return ERR_OK;
}

enum err ed25519_verify(const struct ed25519_key *key, struct bytes message,
                        const uint8_t signature[ED25519_SIGNATURE_BYTES])
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (!c || EVP_DigestVerifyInit(c, NULL, NULL, NULL, key->pkey) != 1) {
        EVP_MD_CTX_free(c);
        return ERR_NO_MEMORY;
    }
    int verdict = EVP_DigestVerify(c, signature, ED25519_SIGNATURE_BYTES, message.p, message.n);
    EVP_MD_CTX_free(c);
    return verdict == 1 ? ERR_OK : ERR_UNAUTHENTICATED;
}
