/* The part of OpenSSL's header that src/base/sha256.c uses, for processors whose OpenSSL is not installed. */
#ifndef RON_TESTS_OPENSSL_AGAIN_SHA_H
#define RON_TESTS_OPENSSL_AGAIN_SHA_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t h[8];
    uint64_t bytes;
    uint8_t data[64];
} SHA256_CTX;

int SHA256_Init(SHA256_CTX *c);
int SHA256_Update(SHA256_CTX *c, const void *data, size_t n);
int SHA256_Final(unsigned char *out, SHA256_CTX *c);
void SHA256_Transform(SHA256_CTX *c, const unsigned char *block);

#endif
