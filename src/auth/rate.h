/*
 * Buckets for `rate <= n/s`: at most n requests at once, refilled evenly.
 *
 * A bucket is one number: the time at which it will be full again (the generic cell rate algorithm). A
 * bucket that is full is the same as none, so the table needs no upkeep: idle ways are simply taken over.
 * Only when all eight ways of a set are in use is the one nearest to full forgotten, in its holder's
 * favour.
 *
 * Threads     Any; one short lock per shard.
 * Memory      Allocated once.
 */
#ifndef RON_AUTH_RATE_H
#define RON_AUTH_RATE_H

#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"

struct auth_rate;

NODISCARD enum err auth_rate_create(unsigned buckets, struct auth_rate **out);
void auth_rate_destroy(struct auth_rate *r); /* NULL is fine */
/* ERR_RATE_LIMITED with the wait until the next one fits. */
NODISCARD enum err auth_rate_charge(struct auth_rate *r, const struct sha256 *name, uint64_t per_s,
                                    int64_t now_ns, int64_t *out_wait_ns);
/* Gives one back that was charged a moment ago. */
void auth_rate_refund(struct auth_rate *r, const struct sha256 *name, uint64_t per_s);

#endif
