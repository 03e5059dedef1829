/*
 * Money: unsigned 128-bit minor units. Checked everywhere: overflow is a refusal, never a wrap.
 * A decimal string outside the process, ^(0|[1-9][0-9]{0,38})$ and below 2^128; never a float.
 *
 * Threads     Pure.
 */
#ifndef RON_BASE_MONEY_H
#define RON_BASE_MONEY_H

#include "base/bytes.h"
#include "base/err.h"

struct money {
    unsigned __int128 units;
};

enum { MONEY_CHARS = 40, MONEY_BYTES = 16 }; /* longest text with its terminator; encoded size */

#define MONEY_ZERO ((struct money){0})
#define MONEY_MAX  ((struct money){~(unsigned __int128)0})

static inline struct money money_from_u64(uint64_t units)
{
    return (struct money){units};
}

static inline int money_cmp(struct money a, struct money b)
{
    return a.units < b.units ? -1 : a.units > b.units;
}

static inline bool money_is_zero(struct money m)
{
    return m.units == 0;
}

NODISCARD enum err money_add(struct money a, struct money b, struct money *out_sum); /* ERR_OVERFLOW */
NODISCARD enum err money_sub(struct money a, struct money b,
                             struct money *out_rest); /* ERR_UNDERFLOW when b > a */
NODISCARD enum err money_mul(struct money a, uint64_t times, struct money *out_product); /* ERR_OVERFLOW */
NODISCARD enum err money_parse(struct str s,
                               struct money *out_money);     /* ERR_SYNTAX; ERR_RANGE from 2^128 up */
size_t money_format(struct money m, char out[MONEY_CHARS]);  /* terminated; returns the length */
void money_encode(struct money m, uint8_t out[MONEY_BYTES]); /* big-endian */
struct money money_decode(const uint8_t in[MONEY_BYTES]);

/* floor(a * b / c) and the remainder over 256 bits: ERR_RANGE when c is 0, ERR_OVERFLOW when the quotient
 * does not fit. */
NODISCARD enum err money_mul_div(struct money a, struct money b, struct money c, struct money *out_quotient,
                                 struct money *out_remainder);

#endif
