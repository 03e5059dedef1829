/*
 * The low-level functions of OpenSSL are called "deprecated" since 3.0 in favour of EVP, which allocates a
 * context and looks up a provider for every hash: several times the cost of a short hash. They still choose
 * the SHA extensions of the processor at run time, which is what we want.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <openssl/sha.h>

#include "base/hex.h"

_Static_assert(sizeof(struct sha256_ctx) >= sizeof(SHA256_CTX), "our storage holds OpenSSL's context");
_Static_assert(_Alignof(struct sha256_ctx) >= _Alignof(SHA256_CTX), "and aligns it");

static SHA256_CTX *inner(struct sha256_ctx *c)
{
    return (SHA256_CTX *)(void *)c;
}

void sha256_init(struct sha256_ctx *c)
{
    SHA256_Init(inner(c));
}

void sha256_update(struct sha256_ctx *c, const void *p, size_t n)
{
    SHA256_Update(inner(c), p, n);
}

void sha256_final(struct sha256_ctx *c, struct sha256 *out_hash)
{
    SHA256_Final(out_hash->b, inner(c));
}

static void put_words(const SHA256_CTX *c, struct sha256 *out_hash)
{
    for (size_t i = 0; i < 8; i++)
        be32_put(out_hash->b + 4 * i, c->h[i]);
}

enum { BLOCK = 64, SHORT_MAX = 2 * BLOCK - 9 }; /* 0x80 and eight bytes of length close the last block */

/* What is short is padded here: one pass over at most two blocks, without the bookkeeping of a stream. */
static void hash_padded(uint8_t block[2 * BLOCK], size_t n, struct sha256 *out_hash)
{
    size_t total = n <= BLOCK - 9 ? BLOCK : 2 * BLOCK;
    block[n] = 0x80;
    memset(block + n + 1, 0, total - 8 - (n + 1));
    be64_put(block + total - 8, (uint64_t)n * 8);
    SHA256_CTX c;
    SHA256_Init(&c);
    SHA256_Transform(&c, block);
    if (total > BLOCK)
        SHA256_Transform(&c, block + BLOCK);
    put_words(&c, out_hash);
}

void sha256_of(const void *p, size_t n, struct sha256 *out_hash)
{
    if (n <= SHORT_MAX) {
        uint8_t block[2 * BLOCK];
        if (n)
            memcpy(block, p, n);
        hash_padded(block, n, out_hash);
        return;
    }
    SHA256_CTX c;
    SHA256_Init(&c);
    SHA256_Update(&c, p, n);
    SHA256_Final(out_hash->b, &c);
}

/* Puts short parts into one piece; false: they are not short. Keys of requests are. */
static bool gathered(const struct bytes *parts, size_t count, uint8_t block[2 * BLOCK], size_t *out_n)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (parts[i].n > SHORT_MAX - n)
            return false;
        if (parts[i].n)
            memcpy(block + n, parts[i].p, parts[i].n);
        n += parts[i].n;
    }
    *out_n = n;
    return true;
}

void sha256_of_parts(const struct bytes *parts, size_t count, struct sha256 *out_hash)
{
    uint8_t block[2 * BLOCK];
    size_t n;
    if (gathered(parts, count, block, &n)) {
        hash_padded(block, n, out_hash);
        return;
    }
    SHA256_CTX c;
    SHA256_Init(&c);
    for (size_t i = 0; i < count; i++)
        if (parts[i].n)
            SHA256_Update(&c, parts[i].p, parts[i].n);
    SHA256_Final(out_hash->b, &c);
}

void sha256_of_pair(uint8_t prefix, const struct sha256 *left, const struct sha256 *right,
                    struct sha256 *out_hash)
{
    uint8_t block[2 * BLOCK];
    block[0] = prefix;
    memcpy(block + 1, left->b, sizeof left->b);
    memcpy(block + 33, right->b, sizeof right->b);
    hash_padded(block, 65, out_hash);
}

void sha256_hmac(struct bytes key, struct bytes message, struct sha256 *out_mac)
{
    uint8_t pad[BLOCK] = {0};
    struct sha256 short_key;
    if (key.n > BLOCK) {
        sha256_of(key.p, key.n, &short_key);
        key = bytes_of(short_key.b, sizeof short_key.b);
    }
    if (key.n)
        memcpy(pad, key.p, key.n);
    for (size_t i = 0; i < BLOCK; i++)
        pad[i] ^= 0x36;
    struct sha256 inside;
    sha256_of_parts((const struct bytes[]){{pad, BLOCK}, message}, 2, &inside);
    for (size_t i = 0; i < BLOCK; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    sha256_of_parts((const struct bytes[]){{pad, BLOCK}, {inside.b, sizeof inside.b}}, 2, out_mac);
}

static const char text_prefix[] = "sha256:";
enum { PREFIX_CHARS = sizeof text_prefix - 1 };

size_t sha256_format(const struct sha256 *h, char out[SHA256_TEXT_CHARS])
{
    memcpy(out, text_prefix, PREFIX_CHARS);
    hex_encode(h->b, sizeof h->b, out + PREFIX_CHARS);
    return SHA256_TEXT_CHARS - 1;
}

enum err sha256_parse(struct str s, struct sha256 *out_hash)
{
    if (!str_starts(s, str_of(text_prefix, PREFIX_CHARS)))
        return ERR_SYNTAX;
    return hex_decode(str_of(s.p + PREFIX_CHARS, s.n - PREFIX_CHARS), out_hash->b, sizeof out_hash->b);
}
