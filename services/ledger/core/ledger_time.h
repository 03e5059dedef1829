/*
 * Ledger time: unix milliseconds that never go back, whatever the wall clock does. It runs on the monotonic clock from an
 * anchor and is led towards the wall clock by at most one second a minute, so that a stepped clock expires nothing early.
 *
 * Threads     Belongs to one thread (the sequencer).
 */
#ifndef RON_LEDGER_CORE_LEDGER_TIME_H
#define RON_LEDGER_CORE_LEDGER_TIME_H

#include <stdint.h>

struct ledger_time {
    uint64_t anchor_ms, last_ms;
    int64_t anchor_ns, led_ns; /* monotonic */
};

#define LEDGER_TIME_LEAD_MS       UINT64_C(1000)
#define LEDGER_TIME_LEAD_EVERY_NS (INT64_C(60) * 1000000000)

/* `floor_ms`: the newest time in the log. */
static inline void ledger_time_start(struct ledger_time *t, int64_t mono_ns, uint64_t wall_ms,
                                     uint64_t floor_ms)
{
    t->anchor_ms = t->last_ms = wall_ms > floor_ms ? wall_ms : floor_ms;
    t->anchor_ns = t->led_ns = mono_ns;
}

static inline uint64_t ledger_time_now(struct ledger_time *t, int64_t mono_ns, uint64_t wall_ms)
{
    uint64_t now = t->anchor_ms + (uint64_t)(mono_ns - t->anchor_ns) / 1000000;
    if (mono_ns - t->led_ns >= LEDGER_TIME_LEAD_EVERY_NS) {
        t->led_ns = mono_ns;
        uint64_t gap = wall_ms > now ? wall_ms - now : now - wall_ms;
        if (gap > LEDGER_TIME_LEAD_MS)
            gap = LEDGER_TIME_LEAD_MS;
        now = wall_ms > now ? now + gap : now - gap;
        t->anchor_ms = now;
        t->anchor_ns = mono_ns;
    }
    if (now < t->last_ms)
        now = t->last_ms;
    t->last_ms = now;
    return now;
}

#endif
