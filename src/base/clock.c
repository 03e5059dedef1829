#include "base/clock.h"

#include <stddef.h>
#include <time.h>

#include "base/check.h"

static int64_t real_mono_ns(void *ctx)
{
    (void)ctx;
    struct timespec t;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t real_wall_ms(void *ctx)
{
    (void)ctx;
    struct timespec t;
    CHECK(clock_gettime(CLOCK_REALTIME, &t) == 0);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

const struct clock *clock_real(void)
{
    static const struct clock real = {real_mono_ns, real_wall_ms, NULL};
    return &real;
}

/* Relaxed everywhere: a reader needs some recent value, and orders nothing by it. */
static int64_t manual_mono_ns(void *ctx)
{
    struct clock_manual *m = ctx;
    return __atomic_load_n(&m->mono_ns, __ATOMIC_RELAXED);
}

static int64_t manual_wall_ms(void *ctx)
{
    struct clock_manual *m = ctx;
    return __atomic_load_n(&m->wall_ms, __ATOMIC_RELAXED);
}

void clock_manual_init(struct clock_manual *m, int64_t wall_ms)
{
    *m = (struct clock_manual){{manual_mono_ns, manual_wall_ms, m}, 1000000000, wall_ms};
}

void clock_manual_advance_ns(struct clock_manual *m, int64_t ns)
{
    CHECK(ns >= 0);
    int64_t after = __atomic_add_fetch(&m->mono_ns, ns, __ATOMIC_RELAXED);
    __atomic_add_fetch(&m->wall_ms, after / 1000000 - (after - ns) / 1000000, __ATOMIC_RELAXED);
}

void clock_manual_advance_ms(struct clock_manual *m, int64_t ms)
{
    clock_manual_advance_ns(m, ms * 1000000);
}

void clock_manual_set_wall_ms(struct clock_manual *m, int64_t wall_ms)
{
    __atomic_store_n(&m->wall_ms, wall_ms, __ATOMIC_RELAXED);
}
