/* CRC-32C (Castagnoli). Start with seed 0; crc32c(crc32c(0, a), b) is the sum of a followed by b. Pure. */
#ifndef RON_BASE_CRC32C_H
#define RON_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(uint32_t seed, const void *p, size_t n);
uint32_t crc32c_portable(uint32_t seed, const void *p,
                         size_t n); /* the fallback, for tests to compare with */

#endif
