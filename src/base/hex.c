#include "base/hex.h"

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

void hex_encode(const void *p, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *b = p;
    for (size_t fours = n / 4; fours > 0; fours--, b += 4, out += 8)
        le64_put((uint8_t *)out, digits_of(le32_get(b)));
    for (size_t rest = n % 4; rest > 0; rest--, b++, out += 2) {
        out[0] = digits[*b >> 4];
        out[1] = digits[*b & 15];
    }
    *out = '\0';
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
