#include "base/crc32c.h"

#include "base/bytes.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

/* One table per byte of a word ("slicing by 8"), built before main: 8 KiB. Polynomial 0x1EDC6F41,
 * reflected. */
static uint32_t tables[8][256];

__attribute__((constructor)) static void crc32c_build_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        tables[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xff];
}

uint32_t crc32c_portable(uint32_t seed, const void *p, size_t n)
{
    const uint8_t *b = p;
    uint32_t c = ~seed;
    for (; n >= 8; n -= 8, b += 8) {
        uint64_t w = le64_get(b) ^ c;
        c = 0;
        for (int i = 0; i < 8; i++)
            c ^= tables[7 - i][w >> (8 * i) & 0xff];
    }
    for (; n; n--, b++)
        c = c >> 8 ^ tables[0][(c ^ *b) & 0xff];
    return ~c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t seed, const void *p, size_t n)
{
    const uint8_t *b = p;
    uint64_t c = (uint32_t)~seed;
    for (; n >= 8; n -= 8, b += 8)
        c = _mm_crc32_u64(c, le64_get(b));
    uint32_t d = (uint32_t)c;
    for (; n; n--, b++)
        d = _mm_crc32_u8(d, *b);
    return ~d;
}

uint32_t crc32c(uint32_t seed, const void *p, size_t n)
{
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(seed, p, n) : crc32c_portable(seed, p, n);
}
#else
uint32_t crc32c(uint32_t seed, const void *p, size_t n)
{
    return crc32c_portable(seed, p, n);
}
#endif
