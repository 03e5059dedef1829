/* Schoolbook arithmetic on 64-bit limbs; the division is Knuth's algorithm D (TAOCP 2, 4.3.1) for a
 * two-limb divisor. */
#include "base/u256.h"

#include "base/check.h"

typedef unsigned __int128 u128; /* local shorthand for a compiler type */

struct u256 u256_from_u128(u128 v)
{
    return (struct u256){{(uint64_t)v, (uint64_t)(v >> 64), 0, 0}};
}

struct u256 u256_mul(u128 a, u128 b)
{
    uint64_t a0 = (uint64_t)a, a1 = (uint64_t)(a >> 64), b0 = (uint64_t)b, b1 = (uint64_t)(b >> 64);
    u128 low = (u128)a0 * b0, mid1 = (u128)a0 * b1, mid2 = (u128)a1 * b0, high = (u128)a1 * b1;
    u128 carry = (low >> 64) + (uint64_t)mid1 + (uint64_t)mid2;
    high += (mid1 >> 64) + (mid2 >> 64) + (carry >> 64);
    return (struct u256){{(uint64_t)low, (uint64_t)carry, (uint64_t)high, (uint64_t)(high >> 64)}};
}

enum err u256_add(struct u256 a, struct u256 b, struct u256 *out_sum)
{
    struct u256 sum;
    u128 carry = 0;
    for (int i = 0; i < 4; i++) {
        carry += (u128)a.w[i] + b.w[i];
        sum.w[i] = (uint64_t)carry;
        carry >>= 64;
    }
    if (carry)
        return ERR_OVERFLOW;
    *out_sum = sum;
    return ERR_OK;
}

/* a - b over n limbs, in place; returns the borrow. */
static uint64_t limbs_sub(uint64_t *a, const uint64_t *b, int n)
{
    uint64_t borrow = 0;
    for (int i = 0; i < n; i++) {
        u128 t = (u128)a[i] - b[i] - borrow;
        a[i] = (uint64_t)t;
        borrow = (uint64_t)(t >> 64) & 1;
    }
    return borrow;
}

enum err u256_sub(struct u256 a, struct u256 b, struct u256 *out_rest)
{
    if (limbs_sub(a.w, b.w, 4))
        return ERR_UNDERFLOW;
    *out_rest = a;
    return ERR_OK;
}

int u256_cmp(struct u256 a, struct u256 b)
{
    for (int i = 3; i >= 0; i--)
        if (a.w[i] != b.w[i])
            return a.w[i] < b.w[i] ? -1 : 1;
    return 0;
}

bool u256_fits_u128(struct u256 a)
{
    return a.w[2] == 0 && a.w[3] == 0;
}

u128 u256_low_u128(struct u256 a)
{
    return (u128)a.w[1] << 64 | a.w[0];
}

static u128 div_by_one_limb(struct u256 a, uint64_t d, struct u256 *out_quotient)
{
    u128 rest = 0;
    for (int i = 3; i >= 0; i--) {
        u128 part = rest << 64 | a.w[i];
        out_quotient->w[i] = (uint64_t)(part / d);
        rest = part % d;
    }
    return rest;
}

/* The next quotient digit of u[2..0] / v[1..0], where v is normalised; u becomes the rest. */
static uint64_t quotient_digit(uint64_t *u, const uint64_t v[2])
{
    u128 top = (u128)u[2] << 64 | u[1];
    u128 digit = top / v[1], rest = top % v[1];
    while (digit >> 64 || digit * v[0] > (rest << 64 | u[0])) {
        digit--;
        rest += v[1];
        if (rest >> 64)
            break;
    }
    u128 p0 = digit * v[0], p1 = digit * v[1] + (p0 >> 64);
    const uint64_t product[3] = {(uint64_t)p0, (uint64_t)p1, (uint64_t)(p1 >> 64)};
    /* With two limbs the loop above has seen the whole divisor: the digit is exact, not one too high as in general. */
    CHECK(limbs_sub(u, product, 3) == 0);
    return (uint64_t)digit;
}

static u128 div_by_two_limbs(struct u256 a, u128 d, struct u256 *out_quotient)
{
    unsigned shift = (unsigned)__builtin_clzll((uint64_t)(d >> 64));
    u128 norm = d << shift;
    const uint64_t v[2] = {(uint64_t)norm, (uint64_t)(norm >> 64)};
    uint64_t u[5];
    u[4] = shift ? a.w[3] >> (64 - shift) : 0;
    for (int i = 3; i > 0; i--)
        u[i] = shift ? a.w[i] << shift | a.w[i - 1] >> (64 - shift) : a.w[i];
    u[0] = a.w[0] << shift;
    out_quotient->w[3] = 0;
    for (int j = 2; j >= 0; j--)
        out_quotient->w[j] = quotient_digit(u + j, v);
    return ((u128)u[1] << 64 | u[0]) >> shift;
}

enum err u256_div(struct u256 a, u128 d, struct u256 *out_quotient, u128 *out_remainder)
{
    if (d == 0)
        return ERR_RANGE;
    struct u256 quotient;
    *out_remainder =
        d >> 64 ? div_by_two_limbs(a, d, &quotient) : div_by_one_limb(a, (uint64_t)d, &quotient);
    *out_quotient = quotient;
    return ERR_OK;
}
