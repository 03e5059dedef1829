#include "base/hex.h"

void hex_encode(const void *p, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[b[i] >> 4];
        out[2 * i + 1] = digits[b[i] & 15];
    }
    out[2 * n] = '\0';
}

static int hex_value(char c, bool any_case)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (any_case && c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static enum err decode(struct str s, void *out_bytes, size_t n, bool any_case)
{
    if (s.n % 2 != 0 || s.n / 2 != n)
        return ERR_SYNTAX;
    for (size_t i = 0; i < s.n; i++) /* look first: the result is untouched on failure */
        if (hex_value(s.p[i], any_case) < 0)
            return ERR_SYNTAX;
    uint8_t *b = out_bytes;
    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)((unsigned)hex_value(s.p[2 * i], any_case) << 4 |
                         (unsigned)hex_value(s.p[2 * i + 1], any_case));
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
