#include "base/hex.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Eight digits at once: every nibble gets a byte of its own, the upper one first, and those over nine move on to 'a'. */
static uint64_t digits_of(uint32_t four)
{
    const uint64_t nibbles = 0x000f000f000f000f, ones = 0x0101010101010101;
    uint64_t x = four;
    x = (x | x << 16) & 0x0000ffff0000ffff;
    x = (x | x << 8) & 0x00ff00ff00ff00ff;
    x = (x >> 4 & nibbles) | (x & nibbles) << 8;
    uint64_t letters = (x + 6 * ones) >> 4 & ones;
    return x + '0' * ones + letters * ('a' - '0' - 10);
}

#ifdef __SSE2__
static __m128i letters_of(__m128i nibbles)
{
    __m128i over_nine = _mm_cmpgt_epi8(nibbles, _mm_set1_epi8(9));
    __m128i from =
        _mm_add_epi8(_mm_set1_epi8('0'), _mm_and_si128(over_nine, _mm_set1_epi8('a' - '0' - 10)));
    return _mm_add_epi8(nibbles, from);
}

/* Thirty-two digits at once: a digest is two of these, an id one. */
static void sixteen(const uint8_t *b, char *out)
{
    const __m128i low_four = _mm_set1_epi8(15);
    __m128i v = _mm_loadu_si128((const void *)b);
    __m128i high = _mm_and_si128(_mm_srli_epi16(v, 4), low_four), low = _mm_and_si128(v, low_four);
    _mm_storeu_si128((void *)out, letters_of(_mm_unpacklo_epi8(high, low)));
    _mm_storeu_si128((void *)(out + 16), letters_of(_mm_unpackhi_epi8(high, low)));
}
#endif

void hex_encode(const void *p, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *b = p;
#ifdef __SSE2__
    for (; n >= 16; n -= 16, b += 16, out += 32)
        sixteen(b, out);
#endif
    for (size_t fours = n / 4; fours > 0; fours--, b += 4, out += 8)
        le64_put((uint8_t *)out, digits_of(le32_get(b)));
    for (size_t rest = n % 4; rest > 0; rest--, b++, out += 2) {
        out[0] = digits[*b >> 4];
        out[1] = digits[*b & 15];
    }
    *out = '\0';
}

enum { CAPITAL = 0x10, DIGIT = 0x20 };

/* By table, without a branch per digit: those of a digest are as good as random, and no processor foresees which comes. */
static const uint8_t value_of[256] = {
    ['0'] = DIGIT,        ['1'] = DIGIT | 1,    ['2'] = DIGIT | 2,    ['3'] = DIGIT | 3,
    ['4'] = DIGIT | 4,    ['5'] = DIGIT | 5,    ['6'] = DIGIT | 6,    ['7'] = DIGIT | 7,
    ['8'] = DIGIT | 8,    ['9'] = DIGIT | 9,    ['a'] = DIGIT | 10,   ['b'] = DIGIT | 11,
    ['c'] = DIGIT | 12,   ['d'] = DIGIT | 13,   ['e'] = DIGIT | 14,   ['f'] = DIGIT | 15,
    ['A'] = CAPITAL | 10, ['B'] = CAPITAL | 11, ['C'] = CAPITAL | 12, ['D'] = CAPITAL | 13,
    ['E'] = CAPITAL | 14, ['F'] = CAPITAL | 15,
};

static enum err decode(struct str s, void *out_bytes, size_t n, bool any_case)
{
    unsigned known = any_case ? DIGIT | CAPITAL : DIGIT, bad = 0;
    if (s.n % 2 != 0 || s.n / 2 != n)
        return ERR_SYNTAX;
    for (size_t i = 0; i < s.n; i++) /* look first: the result is untouched on failure */
        bad |= !(value_of[(uint8_t)s.p[i]] & known);
    if (bad)
        return ERR_SYNTAX;
    uint8_t *b = out_bytes;
    for (size_t i = 0; i < n; i++)
        b[i] =
            (uint8_t)((value_of[(uint8_t)s.p[2 * i]] & 15) << 4 | (value_of[(uint8_t)s.p[2 * i + 1]] & 15));
    return ERR_OK;
}

enum err hex_decode(struct str s, void *out_bytes, size_t n)
{
    return decode(s, out_bytes, n, false);
}

enum err hex_decode_any_case(struct str s, void *out_bytes, size_t n)
{
    return decode(s, out_bytes, n, true);
}
