#include "base/crc32c.h"

#include "base/bytes.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

/* One table per byte of a word ("slicing by 8"), built before main: 8 KiB. Polynomial 0x1EDC6F41,
 * reflected. */
static uint32_t tables[8][256];

#if defined(__x86_64__)
enum { LONG_LANE = 1024, SHORT_LANE = 128 };
static uint32_t long_zeros[4][256], short_zeros[4][256];
static void build_zeros(uint32_t table[4][256], size_t n);
#endif

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
#if defined(__x86_64__)
    build_zeros(long_zeros, LONG_LANE);
    build_zeros(short_zeros, SHORT_LANE);
#endif
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
/*
 * The instruction takes three cycles and one can start every cycle, so three lanes are summed side by side. A lane's sum is carried
 * over the bytes behind it by appending zeros, which is linear: one table per byte of the sum, for each of the two lane lengths.
 */
static void build_zeros(uint32_t table[4][256], size_t n)
{
    static const uint8_t zeros[LONG_LANE];
    for (uint32_t bit = 0; bit < 32; bit++) /* a raw sum: undo the two inversions */
        table[bit / 8][1u << bit % 8] = ~crc32c_portable(~(UINT32_C(1) << bit), zeros, n);
    for (int k = 0; k < 4; k++)
        for (uint32_t i = 1; i < 256; i++)
            table[k][i] = table[k][i & (i - 1)] ^ table[k][i & (~i + 1)];
}

static uint32_t carry(uint32_t table[4][256], uint32_t c)
{
    return table[0][c & 0xff] ^ table[1][c >> 8 & 0xff] ^ table[2][c >> 16 & 0xff] ^ table[3][c >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t three_lanes(uint32_t c, const uint8_t *b, size_t lane,
                                                              uint32_t table[4][256])
{
    uint64_t x = c, y = 0, z = 0;
    for (size_t i = 0; i < lane; i += 8) {
        x = _mm_crc32_u64(x, le64_get(b + i));
        y = _mm_crc32_u64(y, le64_get(b + lane + i));
        z = _mm_crc32_u64(z, le64_get(b + 2 * lane + i));
    }
    return carry(table, carry(table, (uint32_t)x) ^ (uint32_t)y) ^ (uint32_t)z;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t seed, const void *p, size_t n)
{
    const uint8_t *b = p;
    uint32_t d = ~seed;
    for (; n >= 3 * LONG_LANE; n -= 3 * LONG_LANE, b += 3 * LONG_LANE)
        d = three_lanes(d, b, LONG_LANE, long_zeros);
    for (; n >= 3 * SHORT_LANE; n -= 3 * SHORT_LANE, b += 3 * SHORT_LANE)
        d = three_lanes(d, b, SHORT_LANE, short_zeros);
    uint64_t c = d;
    for (; n >= 8; n -= 8, b += 8)
        c = _mm_crc32_u64(c, le64_get(b));
    d = (uint32_t)c;
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
