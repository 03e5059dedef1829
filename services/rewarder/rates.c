#include "services/rewarder/rates.h"

#include "base/siphash.h"

/* A tenant may send a second's worth at once. */
void rewarder_rates_init(struct rewarder_rates *r, uint64_t rps, uint64_t burst, uint64_t tenant_rps)
{
    rt_bucket_init(&r->all, rps, burst);
    for (size_t i = 0; i < REWARDER_RATE_SLOTS; i++)
        rt_bucket_init(&r->tenant[i], tenant_rps, tenant_rps);
}

void rewarder_rates_configure(struct rewarder_rates *r, uint64_t rps, uint64_t burst, uint64_t tenant_rps)
{
    rt_bucket_configure(&r->all, rps, burst);
    for (size_t i = 0; i < REWARDER_RATE_SLOTS; i++)
        rt_bucket_configure(&r->tenant[i], tenant_rps, tenant_rps);
}

static bool take(struct rt_bucket *b, int64_t now_ns, int64_t *out_wait_ms)
{
    if (rt_bucket_take(b, 1, now_ns))
        return true;
    *out_wait_ms = rt_bucket_wait_ms(b, 1, now_ns);
    return false;
}

bool rewarder_rates_take(struct rewarder_rates *r, int64_t now_ns, int64_t *out_wait_ms)
{
    return take(&r->all, now_ns, out_wait_ms);
}

bool rewarder_rates_take_tenant(struct rewarder_rates *r, struct str tenant, int64_t now_ns,
                                int64_t *out_wait_ms)
{
    uint64_t slot = siphash13(siphash_process_key(), tenant.p, tenant.n) % REWARDER_RATE_SLOTS;
    return take(&r->tenant[slot], now_ns, out_wait_ms);
}
