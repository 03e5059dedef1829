/*
 * 256-bit unsigned integers: just enough to multiply two 128-bit amounts and divide again without losing a
 * unit.
 *
 * Threads     Pure.
 */
#ifndef RON_BASE_U256_H
#define RON_BASE_U256_H

#include "base/bytes.h"
#include "base/err.h"

struct u256 {
    uint64_t w[4]; /* least significant first */
};

struct u256 u256_from_u128(unsigned __int128 v);
struct u256 u256_mul(unsigned __int128 a, unsigned __int128 b);                   /* exact */
NODISCARD enum err u256_add(struct u256 a, struct u256 b, struct u256 *out_sum);  /* ERR_OVERFLOW */
NODISCARD enum err u256_sub(struct u256 a, struct u256 b, struct u256 *out_rest); /* ERR_UNDERFLOW */
int u256_cmp(struct u256 a, struct u256 b);
bool u256_fits_u128(struct u256 a);
unsigned __int128 u256_low_u128(struct u256 a);
/* a = quotient * d + remainder, remainder < d; ERR_RANGE when d is 0. */
NODISCARD enum err u256_div(struct u256 a, unsigned __int128 d, struct u256 *out_quotient,
                            unsigned __int128 *out_remainder);

#endif
