/*
 * 256-bit products and quotients for the allocation: a * b / c with every operand a u128, exactly.
 *
 * Memory      Values only; everything is inline and branch-light because it runs once per recipient.
 * Limits      wide_divmod() needs n.hi < d, so that the quotient fits 128 bits; callers have s <= S, hence floor(P*s/S) <= P.
 */
#ifndef RON_REWARDER_CORE_WIDE_H
#define RON_REWARDER_CORE_WIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"

typedef unsigned __int128 wide_u128;

struct wide {
    wide_u128 hi, lo;
};

static inline wide_u128 wide_u128_of(uint64_t hi, uint64_t lo)
{
    return ((wide_u128)hi << 64) | lo;
}

static inline bool wide_add_overflows(wide_u128 a, wide_u128 b, wide_u128 *out_sum)
{
    return __builtin_add_overflow(a, b, out_sum);
}

static inline struct wide wide_mul(wide_u128 a, wide_u128 b)
{
    uint64_t a0 = (uint64_t)a, a1 = (uint64_t)(a >> 64);
    uint64_t b0 = (uint64_t)b, b1 = (uint64_t)(b >> 64);
    wide_u128 p00 = (wide_u128)a0 * b0, p01 = (wide_u128)a0 * b1;
    wide_u128 p10 = (wide_u128)a1 * b0, p11 = (wide_u128)a1 * b1;
    wide_u128 mid = (p00 >> 64) + (uint64_t)p01 + (uint64_t)p10;
    struct wide r;
    r.lo = (mid << 64) | (uint64_t)p00;
    r.hi = p11 + (p01 >> 64) + (p10 >> 64) + (mid >> 64);
    return r;
}

static inline int wide_cmp(struct wide a, struct wide b)
{
    if (a.hi != b.hi)
        return a.hi < b.hi ? -1 : 1;
    return a.lo == b.lo ? 0 : a.lo < b.lo ? -1 : 1;
}

static inline int wide_clz(wide_u128 v)
{
    uint64_t hi = (uint64_t)(v >> 64);
    return hi ? __builtin_clzll(hi) : 64 + __builtin_clzll((uint64_t)v);
}

/* One digit of Knuth's algorithm D: (r1 r0 n0) / (d1 d0) with d1's top bit set and (r1 r0) < (d1 d0). */
static inline uint64_t wide_digit(wide_u128 *rem, uint64_t n0, wide_u128 d)
{
    uint64_t d1 = (uint64_t)(d >> 64), d0 = (uint64_t)d;
    uint64_t r1 = (uint64_t)(*rem >> 64), r0 = (uint64_t)*rem;
    wide_u128 top = *rem, qhat, rhat;
    if (r1 >= d1) {
        /* The estimate would need 65 bits; the true digit is at most 2^64-1. */
        qhat = UINT64_MAX;
        rhat = top - qhat * d1;
    } else {
        qhat = top / d1;
        rhat = top % d1;
    }
    while (rhat <= UINT64_MAX && qhat * d0 > ((rhat << 64) | n0)) {
        qhat--;
        rhat += d1;
    }
    /* All arithmetic modulo 2^128 is exact here: the result is the new remainder, below d. */
    wide_u128 low = ((wide_u128)r0 << 64) | n0;
    *rem = low - qhat * d;
    return (uint64_t)qhat;
}

/* floor(n / d) and n mod d. */
static inline wide_u128 wide_divmod(struct wide n, wide_u128 d, wide_u128 *out_rem)
{
    CHECK(n.hi < d);
    if (n.hi == 0) {
        *out_rem = n.lo % d;
        return n.lo / d;
    }
    if ((d >> 64) == 0) {
        /* n.hi < d < 2^64: two short divisions, each with a quotient below 2^64. */
        uint64_t d64 = (uint64_t)d;
        wide_u128 part = (n.hi << 64) | (uint64_t)(n.lo >> 64);
        uint64_t q1 = (uint64_t)(part / d64);
        part = ((wide_u128)(uint64_t)(part % d64) << 64) | (uint64_t)n.lo;
        *out_rem = part % d64;
        return wide_u128_of(q1, (uint64_t)(part / d64));
    }
    int shift = wide_clz(d);
    if (shift) {
        n.hi = (n.hi << shift) | (n.lo >> (128 - shift));
        n.lo <<= shift;
        d <<= shift;
    }
    wide_u128 rem = n.hi;
    uint64_t q1 = wide_digit(&rem, (uint64_t)(n.lo >> 64), d);
    uint64_t q0 = wide_digit(&rem, (uint64_t)n.lo, d);
    *out_rem = rem >> shift;
    return wide_u128_of(q1, q0);
}

/* floor(p * s / total) and the remainder; s <= total, total > 0. The narrow paths give the same bits, faster. */
static inline wide_u128 wide_share(wide_u128 p, wide_u128 s, wide_u128 total, wide_u128 *out_rem)
{
    if (((p | s) >> 64) == 0) {
        wide_u128 n = (wide_u128)(uint64_t)p * (uint64_t)s;
        wide_u128 q = n / total;
        *out_rem = n - q * total;
        return q;
    }
    return wide_divmod(wide_mul(p, s), total, out_rem);
}

#endif
