/*
 * Randomness: struct rng is seeded and repeatable (tests, jitter, simulations); rng_secure is the kernel's.
 *
 * Threads     A struct rng belongs to one thread at a time; rng_secure from anywhere, also after fork.
 */
#ifndef RON_BASE_RNG_H
#define RON_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t s[4]; /* xoshiro256** */
};

void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_u64(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n);                 /* 0..n-1, unbiased; n > 0 */
int64_t rng_between(struct rng *r, int64_t low, int64_t high); /* both inclusive */
double rng_unit(struct rng *r);                                /* [0, 1) */
void rng_bytes(struct rng *r, void *p, size_t n);

void rng_secure(void *p, size_t n); /* never fails: a kernel without randomness aborts us */
uint64_t rng_secure_u64(void);

#endif
