/* Random tests print their seed and take it back: RON_SEED=7 t.prop.base.map */
#ifndef RON_TESTS_PROP_BASE_SEED_H
#define RON_TESTS_PROP_BASE_SEED_H

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"

static inline struct rng seed_rng(const char *what)
{
    const char *given = getenv("RON_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : rng_secure_u64() >> 1;
    printf("%s: RON_SEED=%llu\n", what, (unsigned long long)seed);
    struct rng r;
    rng_seed(&r, seed);
    return r;
}

#endif
