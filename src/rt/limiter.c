#include "rt/limiter.h"

#include "base/check.h"

enum { NS_PER_S = 1000000000 };

void rt_bucket_init(struct rt_bucket *b, uint64_t per_second, uint64_t burst)
{
    os_a64_store(&b->full_at_ns, 0, memory_order_relaxed);
    rt_bucket_configure(b, per_second, burst);
}

void rt_bucket_configure(struct rt_bucket *b, uint64_t per_second, uint64_t burst)
{
    CHECK(per_second <= NS_PER_S && burst <= UINT32_MAX);
    os_a64_store(&b->burst, burst > 0 ? burst : 1, memory_order_relaxed);
    os_a64_store(&b->per_second, per_second, memory_order_relaxed);
}

/* How long n tokens take to flow in. */
static uint64_t flow_ns(uint64_t n, uint64_t per_second)
{
    return (uint64_t)((unsigned __int128)n * NS_PER_S / per_second);
}

/* By how much a take of n would overdraw the bucket; *out_full_at is where it would move. */
static uint64_t overdraft_ns(const struct rt_bucket *b, uint64_t per_second, uint64_t full_at, uint64_t n,
                             uint64_t now, uint64_t *out_full_at)
{
    uint64_t from = full_at > now ? full_at : now;
    uint64_t to = from + flow_ns(n, per_second);
    uint64_t most = now + flow_ns(os_a64_load(&b->burst, memory_order_relaxed), per_second);
    *out_full_at = to;
    return to > most ? to - most : 0;
}

bool rt_bucket_take(struct rt_bucket *b, uint64_t n, int64_t now_ns)
{
    CHECK(now_ns >= 0);
    uint64_t per_second = os_a64_load(&b->per_second, memory_order_relaxed);
    if (per_second == 0)
        return true;
    uint64_t full_at = os_a64_load(&b->full_at_ns, memory_order_relaxed);
    for (;;) {
        uint64_t to;
        if (overdraft_ns(b, per_second, full_at, n, (uint64_t)now_ns, &to) > 0)
            return false;
        if (os_a64_cas(&b->full_at_ns, &full_at, to, memory_order_relaxed))
            return true;
    }
}

int64_t rt_bucket_wait_ms(const struct rt_bucket *b, uint64_t n, int64_t now_ns)
{
    uint64_t per_second = os_a64_load(&b->per_second, memory_order_relaxed);
    if (per_second == 0)
        return 0;
    uint64_t to, full_at = os_a64_load(&b->full_at_ns, memory_order_relaxed);
    uint64_t over_ns = overdraft_ns(b, per_second, full_at, n, (uint64_t)now_ns, &to);
    return (int64_t)((over_ns + 999999) / 1000000);
}

void rt_inflight_init(struct rt_inflight *f, uint64_t max)
{
    os_a64_store(&f->now, 0, memory_order_relaxed);
    rt_inflight_configure(f, max);
}

void rt_inflight_configure(struct rt_inflight *f, uint64_t max)
{
    CHECK(max > 0);
    os_a64_store(&f->max, max, memory_order_relaxed);
}

bool rt_inflight_take(struct rt_inflight *f)
{
    uint64_t now = os_a64_load(&f->now, memory_order_relaxed);
    do {
        if (now >= os_a64_load(&f->max, memory_order_relaxed))
            return false;
    } while (!os_a64_cas(&f->now, &now, now + 1, memory_order_acq_rel));
    return true;
}

void rt_inflight_release(struct rt_inflight *f)
{
    CHECK(os_a64_add(&f->now, (uint64_t)-1, memory_order_acq_rel) > 0);
}

uint64_t rt_inflight_now(const struct rt_inflight *f)
{
    return os_a64_load(&f->now, memory_order_relaxed);
}
