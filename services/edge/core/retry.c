#include "services/edge/core/retry.h"

static uint64_t step_ms(const struct edge_retry *r, unsigned n)
{
    uint64_t v = n < 63 && r->base_ms <= (UINT64_MAX >> 1) >> n ? r->base_ms << n : UINT64_MAX;
    return v < r->max_ms ? v : r->max_ms;
}

uint64_t edge_retry_sleep_ms(const struct edge_retry *r, unsigned n, uint64_t random)
{
    uint64_t more = r->jitter ? random % (r->base_ms + 1) : 0, sum;
    return __builtin_add_overflow(step_ms(r, n), more, &sum) ? UINT64_MAX : sum;
}

uint64_t edge_retry_job_ms(const struct edge_retry *r, uint64_t timeout_ms)
{
    uint64_t sum;
    if (__builtin_mul_overflow(timeout_ms, (uint64_t)r->max_retries + 1, &sum))
        return UINT64_MAX;
    for (unsigned n = 0; n < r->max_retries; n++)
        if (__builtin_add_overflow(sum, step_ms(r, n) + (r->jitter ? r->base_ms : 0), &sum))
            return UINT64_MAX;
    return sum;
}
