/*
 * Four digits are three bytes. Where the processor has SSSE3 the standard alphabet goes sixteen digits at a time: a digit's class
 * (its high half) selects what is added to it to get its value, and two tables of allowed halves, one by the low and one by the
 * high half, have a bit in common exactly when the byte is no digit. The rest, and the URL alphabet, goes digit by digit.
 */
#include "base/base64.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const char std_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Both return how much of the input they took, in whole steps; the caller does the rest. */
#if defined(__x86_64__)
static bool wide(void)
{
    return __builtin_cpu_supports("ssse3");
}

/* Twelve bytes a step; reads sixteen. */
__attribute__((target("ssse3"))) static size_t encode_wide(const uint8_t *b, size_t n, char *out)
{
    const __m128i spread = _mm_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10);
    const __m128i shift =
        _mm_setr_epi8('a' - 26, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
                      '0' - 52, '0' - 52, '0' - 52, '+' - 62, '/' - 63, 'A', 0, 0);
    size_t i = 0;
    for (; n - i >= 16; i += 12, out += 16) {
        __m128i w = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(b + i)), spread);
        __m128i odd =
            _mm_mulhi_epu16(_mm_and_si128(w, _mm_set1_epi32(0x0fc0fc00)), _mm_set1_epi32(0x04000040));
        __m128i even =
            _mm_mullo_epi16(_mm_and_si128(w, _mm_set1_epi32(0x003f03f0)), _mm_set1_epi32(0x01000010));
        __m128i value = _mm_or_si128(odd, even);
        __m128i capital = _mm_cmpgt_epi8(_mm_set1_epi8(26), value);
        __m128i kind = _mm_or_si128(_mm_subs_epu8(value, _mm_set1_epi8(51)),
                                    _mm_and_si128(capital, _mm_set1_epi8(13)));
        _mm_storeu_si128((__m128i *)(void *)out, _mm_add_epi8(value, _mm_shuffle_epi8(shift, kind)));
    }
    return i;
}

/* Sixteen digits a step, twelve bytes; writes sixteen. Stops before a step that holds something else. */
__attribute__((target("ssse3"))) static size_t decode_wide(const char *p, size_t n, uint8_t *out,
                                                           size_t bytes)
{
    const __m128i by_low = _mm_setr_epi8(0x15, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x13,
                                         0x1a, 0x1b, 0x1b, 0x1b, 0x1a);
    const __m128i by_high = _mm_setr_epi8(0x10, 0x10, 0x01, 0x02, 0x04, 0x08, 0x04, 0x08, 0x10, 0x10, 0x10,
                                          0x10, 0x10, 0x10, 0x10, 0x10);
    const __m128i shift = _mm_setr_epi8(0, 16, 19, 4, -65, -65, -71, -71, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i together = _mm_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1);
    const __m128i half = _mm_set1_epi8(0x0f), slash = _mm_set1_epi8('/');
    size_t i = 0, o = 0;
    for (; n - i >= 16 && bytes - o >= 16; i += 16, o += 12) {
        __m128i w = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
        __m128i high = _mm_and_si128(_mm_srli_epi32(w, 4), half), low = _mm_and_si128(w, half);
        __m128i wrong = _mm_and_si128(_mm_shuffle_epi8(by_low, low), _mm_shuffle_epi8(by_high, high));
        if (_mm_movemask_epi8(_mm_cmpgt_epi8(wrong, _mm_setzero_si128())))
            break;
        __m128i kind = _mm_add_epi8(_mm_cmpeq_epi8(w, slash), high);
        w = _mm_add_epi8(w, _mm_shuffle_epi8(shift, kind));
        w = _mm_madd_epi16(_mm_maddubs_epi16(w, _mm_set1_epi32(0x01400140)), _mm_set1_epi32(0x00011000));
        _mm_storeu_si128((__m128i *)(void *)(out + o), _mm_shuffle_epi8(w, together));
    }
    return i;
}
#else
static bool wide(void)
{
    return false;
}

static size_t encode_wide(const uint8_t *b, size_t n, char *out)
{
    (void)b, (void)n, (void)out;
    return 0;
}

static size_t decode_wide(const char *p, size_t n, uint8_t *out, size_t bytes)
{
    (void)p, (void)n, (void)out, (void)bytes;
    return 0;
}
#endif

static size_t encode(const uint8_t *b, size_t n, const char *digits, bool pad, char *out)
{
    char *at = out;
    if (n && digits == std_digits && wide()) { /* nothing may be nowhere */
        size_t done = encode_wide(b, n, at);
        at += done / 3 * 4;
        b += done;
        n -= done;
    }
    for (; n >= 3; n -= 3, b += 3) {
        uint32_t w = (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
        *at++ = digits[w >> 18];
        *at++ = digits[w >> 12 & 63];
        *at++ = digits[w >> 6 & 63];
        *at++ = digits[w & 63];
    }
    if (n) {
        uint32_t w = (uint32_t)b[0] << 16 | (n == 2 ? (uint32_t)b[1] << 8 : 0);
        *at++ = digits[w >> 18];
        *at++ = digits[w >> 12 & 63];
        if (n == 2)
            *at++ = digits[w >> 6 & 63];
        for (size_t i = n; pad && i < 3; i++)
            *at++ = '=';
    }
    *at = '\0';
    return (size_t)(at - out);
}

/* Value of a digit by its code, or 255. Built before main. */
static uint8_t std_values[256], url_values[256];

__attribute__((constructor)) static void base64_build_tables(void)
{
    memset(std_values, 255, sizeof std_values);
    memset(url_values, 255, sizeof url_values);
    for (unsigned i = 0; i < 64; i++) {
        std_values[(unsigned char)std_digits[i]] = (uint8_t)i;
        url_values[(unsigned char)url_digits[i]] = (uint8_t)i;
    }
}

/* The digits p[0..n), n a multiple of 4 less at most 2; out has room for them. */
static bool decode_narrow(const char *p, size_t n, const uint8_t values[256], uint8_t *out)
{
    uint32_t w = 0;
    for (size_t i = 0, o = 0; i < n; i++) {
        uint8_t v = values[(unsigned char)p[i]];
        if (v > 63)
            return false;
        w = w << 6 | v;
        if (i % 4 != 0)
            out[o++] = (uint8_t)(w >> (6 - 2 * (i % 4)));
    }
    return true;
}

static bool all_digits(const char *p, size_t n, const uint8_t values[256])
{
    for (size_t i = 0; i < n; i++)
        if (values[(unsigned char)p[i]] > 63)
            return false;
    return true;
}

static enum err decode(const char *p, size_t n, const uint8_t values[256], uint8_t *out, size_t max,
                       size_t *out_n)
{
    static const uint8_t tail_bytes[4] = {0, 255, 1, 2};
    size_t tail = n % 4, done = 0;
    if (tail == 1)
        return ERR_SYNTAX;
    if (tail && values[(unsigned char)p[n - 1]] & (tail == 2 ? 15 : 3))
        return ERR_SYNTAX; /* bits that would be thrown away: a second spelling of the same bytes */
    size_t bytes = n / 4 * 3 + tail_bytes[tail];
    if (bytes > max)
        return all_digits(p, n, values) ? ERR_TOO_LARGE : ERR_SYNTAX;
    if (values == std_values && wide())
        done = decode_wide(p, n, out, bytes);
    if (!decode_narrow(p + done, n - done, values, out + done / 4 * 3))
        return ERR_SYNTAX;
    *out_n = bytes;
    return ERR_OK;
}

size_t base64_encode(const void *p, size_t n, char *out)
{
    return encode(p, n, std_digits, true, out);
}

size_t base64url_encode(const void *p, size_t n, char *out)
{
    return encode(p, n, url_digits, false, out);
}

enum err base64_decode(struct str s, void *out_bytes, size_t max, size_t *out_n)
{
    if (s.n % 4 != 0)
        return ERR_SYNTAX;
    size_t n = s.n;
    if (n && s.p[n - 1] == '=')
        n--;
    if (n && n < s.n && s.p[n - 1] == '=')
        n--;
    return decode(s.p, n, std_values, out_bytes, max, out_n);
}

enum err base64url_decode(struct str s, void *out_bytes, size_t max, size_t *out_n)
{
    return decode(s.p, s.n, url_values, out_bytes, max, out_n);
}
