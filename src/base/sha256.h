/*
 * SHA-256, and its text form sha256:<64 lower-case hex>.
 *
 * Threads     A context belongs to one thread at a time; the rest is pure.
 * Memory      Nothing allocates: the context is the caller's storage.
 */
#ifndef RON_BASE_SHA256_H
#define RON_BASE_SHA256_H

#include "base/bytes.h"
#include "base/err.h"

struct sha256 {
    uint8_t b[32];
};

struct sha256_ctx {
    uint64_t opaque[14]; /* a copy is a fork of the running hash */
};

enum { SHA256_TEXT_CHARS = 72, SHA256_HEX_CHARS = 65 }; /* with terminator */

void sha256_of(const void *p, size_t n, struct sha256 *out_hash);
/* Of the concatenation of count parts. */
void sha256_of_parts(const struct bytes *parts, size_t count, struct sha256 *out_hash);
/* Of one prefix byte and two hashes: the inner node of a Merkle tree (RFC 9162 uses prefix 1). */
void sha256_of_pair(uint8_t prefix, const struct sha256 *left, const struct sha256 *right,
                    struct sha256 *out_hash);

/*
 * Many hashes that do not wait for each other: about half the time of one after the other where the processor has instructions for
 * SHA. Neighbours are hashed together, so put messages of like length next to each other. No output may lie in another's message.
 */
struct sha256_job {
    struct bytes message;
    struct sha256 *out;
};
void sha256_of_many(const struct sha256_job *jobs, size_t n);
/* sha256_of_pair() of nodes 0 and 1, 2 and 3, …: n hashes of 2n nodes. `out` may be `nodes` itself, or one further. */
void sha256_of_pairs(uint8_t prefix, const struct sha256 *nodes, size_t n, struct sha256 *out);
/* The fallbacks, for tests to compare with. */
void sha256_of_many_portable(const struct sha256_job *jobs, size_t n);
void sha256_of_pairs_portable(uint8_t prefix, const struct sha256 *nodes, size_t n, struct sha256 *out);

void sha256_init(struct sha256_ctx *c);
void sha256_update(struct sha256_ctx *c, const void *p, size_t n);
void sha256_final(struct sha256_ctx *c, struct sha256 *out_hash);

void sha256_hmac(struct bytes key, struct bytes message, struct sha256 *out_mac);

static inline bool sha256_eq(const struct sha256 *a, const struct sha256 *b)
{
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

size_t sha256_format(const struct sha256 *h, char out[SHA256_TEXT_CHARS]); /* "sha256:<hex>", terminated */
NODISCARD enum err sha256_parse(struct str s, struct sha256 *out_hash);    /* ERR_SYNTAX */

#endif
