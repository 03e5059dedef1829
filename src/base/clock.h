/*
 * Time comes in through this interface. Deadlines and leases use mono_ns; wall_ms is only for what is
 * written down.
 *
 * Threads     clock_real() from anywhere. A manual clock may be read from any thread while one thread moves
 * it.
 */
#ifndef RON_BASE_CLOCK_H
#define RON_BASE_CLOCK_H

#include <stdint.h>

struct clock {
    int64_t (*mono_ns)(void *ctx);
    int64_t (*wall_ms)(void *ctx);
    void *ctx;
};

const struct clock *clock_real(void);

static inline int64_t clock_mono_ns(const struct clock *c)
{
    return c->mono_ns(c->ctx);
}

static inline int64_t clock_wall_ms(const struct clock *c)
{
    return c->wall_ms(c->ctx);
}

/* A clock that moves only when told. It must stay where it was initialised. */
struct clock_manual {
    struct clock clock;
    int64_t mono_ns, wall_ms;
};

void clock_manual_init(struct clock_manual *m, int64_t wall_ms);
void clock_manual_advance_ms(struct clock_manual *m, int64_t ms); /* moves both */
void clock_manual_advance_ns(struct clock_manual *m, int64_t ns); /* wall moves by whole milliseconds */
void clock_manual_set_wall_ms(struct clock_manual *m, int64_t wall_ms); /* a step of wall time alone */

#endif
