#include "base/base64.h"

static const char std_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static size_t encode(const uint8_t *b, size_t n, const char *digits, bool pad, char *out)
{
    char *at = out;
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

static enum err decode(const char *p, size_t n, const uint8_t values[256], uint8_t *out, size_t max,
                       size_t *out_n)
{
    static const uint8_t tail_bytes[4] = {0, 255, 1, 2};
    size_t tail = n % 4;
    if (tail == 1)
        return ERR_SYNTAX;
    for (size_t i = 0; i < n; i++)
        if (values[(unsigned char)p[i]] > 63)
            return ERR_SYNTAX;
    if (tail && values[(unsigned char)p[n - 1]] & (tail == 2 ? 15 : 3))
        return ERR_SYNTAX; /* bits that would be thrown away: a second spelling of the same bytes */
    size_t bytes = n / 4 * 3 + tail_bytes[tail];
    if (bytes > max)
        return ERR_TOO_LARGE;
    uint32_t w = 0;
    for (size_t i = 0, o = 0; i < n; i++) {
        w = w << 6 | values[(unsigned char)p[i]];
        if (i % 4 != 0)
            out[o++] = (uint8_t)(w >> (6 - 2 * (i % 4)));
    }
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
