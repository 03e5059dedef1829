/*
 * How long a fill waits before its next try: sleep_n = min(max, base * 2^n) + U[0, base], saturating.
 *
 * Threads     Pure.
 */
#ifndef RON_EDGE_RETRY_H
#define RON_EDGE_RETRY_H

#include <stdbool.h>
#include <stdint.h>

struct edge_retry {
    uint64_t base_ms, max_ms;
    unsigned max_retries;
    bool jitter;
};

/* random: any 64 bits; ignored without jitter. n counts from 0. */
uint64_t edge_retry_sleep_ms(const struct edge_retry *r, unsigned n, uint64_t random);
/* The most all tries and sleeps of one job can take together. */
uint64_t edge_retry_job_ms(const struct edge_retry *r, uint64_t timeout_ms);

/* Upstream answers worth another try: 503 and 504; timeouts are the caller's to tell. */
static inline bool edge_retry_status(int status)
{
    return status == 503 || status == 504;
}

#endif
