/*
 * Circuit breaker: stops calling what keeps failing, and probes whether it is back.
 *
 *     CLOSED --too many failures--> OPEN --open_ms passed--> HALF_OPEN --successes--> CLOSED
 *                                    ^-----------any failure----'
 *
 * Each call that rt_breaker_allow() lets through reports back exactly once: success, failure, or neither (an
 * answer that says nothing about the peer's health, such as 429). Time is passed in.
 *
 * Threads     Every function from any thread; none waits.
 */
#ifndef RON_RT_BREAKER_H
#define RON_RT_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "rt/os.h"

enum rt_breaker_state {
    RT_BREAKER_CLOSED = 0,
    RT_BREAKER_HALF_OPEN = 1,
    RT_BREAKER_OPEN = 2
}; /* as the gauge */

/* A rule whose number is 0 is off; any of the others opens. */
struct rt_breaker_spec {
    unsigned in_a_row;                 /* so many failures without a success between */
    int64_t window_ms;                 /* for the two rolling rules */
    unsigned in_window;                /* so many failures */
    unsigned rate_calls, rate_percent; /* so many calls at least, this share of them failed */
    int64_t open_ms;
    int64_t open_max_ms; /* > open_ms: each re-opening doubles, up to this */
    int64_t jitter_ms;   /* added to each, uniformly */
    unsigned probes;     /* calls at once while half open; 0 is 1 */
    unsigned successes;  /* that close it; 0 is 1 */
    uint64_t seed;
};

enum { RT_BREAKER_BUCKETS = 10 };

struct rt_breaker {
    struct os_mutex m; /* guards all below */
    struct rt_breaker_spec spec;
    struct rng rng;
    enum rt_breaker_state state;
    unsigned row, probing, succeeded, reopened;
    int64_t open_until_ns;
    int64_t bucket_at; /* number of the newest bucket, in tenths of the window */
    struct {
        unsigned calls, failures;
    } buckets[RT_BREAKER_BUCKETS];
    struct os_count opened;
};

void rt_breaker_init(struct rt_breaker *b, const struct rt_breaker_spec *spec);
void rt_breaker_fini(struct rt_breaker *b);
void rt_breaker_configure(struct rt_breaker *b, const struct rt_breaker_spec *spec); /* keeps the state */

bool rt_breaker_allow(struct rt_breaker *b, int64_t now_ns);
void rt_breaker_success(struct rt_breaker *b, int64_t now_ns);
void rt_breaker_failure(struct rt_breaker *b, int64_t now_ns);
void rt_breaker_neither(struct rt_breaker *b, int64_t now_ns);

enum rt_breaker_state rt_breaker_state(struct rt_breaker *b, int64_t now_ns);
int64_t rt_breaker_retry_ms(struct rt_breaker *b,
                            int64_t now_ns);            /* until it half-opens; 0 when it is not open */
uint64_t rt_breaker_opened(const struct rt_breaker *b); /* how often since the start */

#endif
