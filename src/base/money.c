#include "base/money.h"

#include "base/u256.h"

enum err money_add(struct money a, struct money b, struct money *out_sum)
{
    unsigned __int128 sum;
    if (__builtin_add_overflow(a.units, b.units, &sum))
        return ERR_OVERFLOW;
    out_sum->units = sum;
    return ERR_OK;
}

enum err money_sub(struct money a, struct money b, struct money *out_rest)
{
    if (b.units > a.units)
        return ERR_UNDERFLOW;
    out_rest->units = a.units - b.units;
    return ERR_OK;
}

enum err money_mul(struct money a, uint64_t times, struct money *out_product)
{
    struct u256 product = u256_mul(a.units, times);
    if (!u256_fits_u128(product))
        return ERR_OVERFLOW;
    out_product->units = u256_low_u128(product);
    return ERR_OK;
}

enum err money_mul_div(struct money a, struct money b, struct money c, struct money *out_quotient,
                       struct money *out_remainder)
{
    struct u256 quotient;
    unsigned __int128 remainder;
    enum err e = u256_div(u256_mul(a.units, b.units), c.units, &quotient, &remainder);
    if (e != ERR_OK)
        return e;
    if (!u256_fits_u128(quotient))
        return ERR_OVERFLOW;
    out_quotient->units = u256_low_u128(quotient);
    out_remainder->units = remainder;
    return ERR_OK;
}

enum err money_parse(struct str s, struct money *out_money)
{
    if (s.n == 0 || s.n > MONEY_CHARS - 1)
        return ERR_SYNTAX;
    if (s.p[0] == '0' && s.n > 1)
        return ERR_SYNTAX;
    unsigned __int128 units = 0;
    bool over = false;
    for (size_t i = 0; i < s.n; i++) {
        unsigned digit = (unsigned)(unsigned char)s.p[i] - '0';
        if (digit > 9)
            return ERR_SYNTAX;
        /* Go on after an overflow: "340…x" is a syntax error, not a range error. */
        over |= __builtin_mul_overflow(units, (unsigned __int128)10, &units);
        over |= __builtin_add_overflow(units, (unsigned __int128)digit, &units);
    }
    if (over)
        return ERR_RANGE;
    out_money->units = units;
    return ERR_OK;
}

size_t money_format(struct money m, char out[MONEY_CHARS])
{
    char reversed[MONEY_CHARS];
    size_t n = 0;
    unsigned __int128 left = m.units;
    while (left >> 64) { /* 128-bit division is slow: as soon as it fits, go on with 64 bits */
        reversed[n++] = (char)('0' + (char)(left % 10));
        left /= 10;
    }
    uint64_t low = (uint64_t)left;
    do {
        reversed[n++] = (char)('0' + (char)(low % 10));
        low /= 10;
    } while (low);
    for (size_t i = 0; i < n; i++)
        out[i] = reversed[n - 1 - i];
    out[n] = '\0';
    return n;
}

void money_encode(struct money m, uint8_t out[MONEY_BYTES])
{
    be128_put(out, m.units);
}

struct money money_decode(const uint8_t in[MONEY_BYTES])
{
    return (struct money){be128_get(in)};
}
