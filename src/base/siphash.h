/*
 * SipHash-1-3 under one random key per process: what peers choose as keys cannot be aimed at our tables.
 *
 * Threads     The process key is set before main; siphash_set_process_key is for tests and simulations that
 * need the same table order every time, before any map exists.
 */
#ifndef RON_BASE_SIPHASH_H
#define RON_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
    uint64_t k0, k1;
};

uint64_t siphash13(const struct siphash_key *key, const void *p, size_t n);
uint64_t siphash13_u64(const struct siphash_key *key, uint64_t v); /* = of its 8 little-endian bytes */
uint64_t siphash13_u128(const struct siphash_key *key, uint64_t lo,
                        uint64_t hi); /* = of lo then hi, 16 bytes */

const struct siphash_key *siphash_process_key(void);
void siphash_set_process_key(struct siphash_key key);

#endif
