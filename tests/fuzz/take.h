/*
 * What a structure-aware fuzzer makes its choices from: the input, byte by byte, and zeros when it has come to its end, so that every
 * input is a whole plan.
 */
#ifndef RON_TESTS_FUZZ_TAKE_H
#define RON_TESTS_FUZZ_TAKE_H

#include <stddef.h>
#include <stdint.h>

struct take {
    const uint8_t *p;
    size_t n;
};

/* Big-endian; fewer bytes when fewer are left. */
static inline uint64_t take_number(struct take *t, unsigned bytes)
{
    uint64_t v = 0;
    while (bytes-- && t->n) {
        v = v << 8 | *t->p++;
        t->n--;
    }
    return v;
}

/* At most 256 choices: one byte. */
static inline unsigned take_below(struct take *t, unsigned below)
{
    return (unsigned)take_number(t, 1) % below;
}

#endif
