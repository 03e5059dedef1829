/*
 * How many requests the service takes per second: all together, and each tenant.
 *
 * Threads     Any thread; the buckets are lock-free.
 * Memory      Fixed. Tenants share one of 512 slots, chosen by a keyed hash: two that collide share a rate, which can
 *             make one of them wait and never lets one through that should not be.
 */
#ifndef RON_REWARDER_RATES_H
#define RON_REWARDER_RATES_H

#include "base/bytes.h"
#include "rt/limiter.h"

enum { REWARDER_RATE_SLOTS = 512 };

struct rewarder_rates {
    struct rt_bucket all, tenant[REWARDER_RATE_SLOTS];
};

void rewarder_rates_init(struct rewarder_rates *r, uint64_t rps, uint64_t burst, uint64_t tenant_rps);
void rewarder_rates_configure(struct rewarder_rates *r, uint64_t rps, uint64_t burst, uint64_t tenant_rps);
/* False: *out_wait_ms until it would be true. */
bool rewarder_rates_take(struct rewarder_rates *r, int64_t now_ns, int64_t *out_wait_ms);
bool rewarder_rates_take_tenant(struct rewarder_rates *r, struct str tenant, int64_t now_ns,
                                int64_t *out_wait_ms);

#endif
