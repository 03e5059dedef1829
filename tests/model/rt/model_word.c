/* The word that everything waits on: no order of waiting, waking, timing out and cancelling loses a wake-up. */
#include "base/check.h"
#include "model.h"
#include "rt/os.h"
#include "rt/self.h"
#include "rt/stop.h"
#include "rt/word.h"

#define STEP 2u

struct gate {
    struct rt_word w;
    struct rt_stop stop;
    struct os_a32 passed;
};

static void step(struct gate *g)
{
    if (os_a64_add(&g->w.v, STEP, memory_order_release) & RT_WORD_WAITED)
        rt_word_wake(&g->w, 1);
}

static void stepper(void *arg)
{
    step(arg);
}

RT_BLOCKS
static void waiter(void *arg)
{
    struct gate *g = arg;
    while (rt_word_load(&g->w) < STEP) {
        enum err e = rt_word_wait(&g->w, 0, ~(uint64_t)0, deadline_never(), 0);
        CHECK(e == ERR_OK);
    }
    os_a32_add(&g->passed, 1, memory_order_relaxed);
}

static void change_is_never_missed(void)
{
    struct gate g = {0};
    struct os_thread t;
    rt_word_init(&g.w, 0);
    CHECK(os_thread_start(&t, "waiter", waiter, &g) == ERR_OK);
    step(&g);
    os_thread_join(&t);
    CHECK(rt_word_load(&g.w) == STEP); /* WAITED is gone with the last waiter */
    rt_word_fini(&g.w);
}

/* Takes one unit, as a receiver takes an item. */
static bool take(struct gate *g)
{
    uint64_t v = rt_word_load(&g->w);
    while (v >= STEP) {
        if (os_a64_cas(&g->w.v, &v, v - STEP, memory_order_acquire))
            return true;
    }
    return false;
}

RT_BLOCKS
static enum err take_by(struct gate *g, struct deadline by, uint32_t stops)
{
    for (;;) {
        if (take(g))
            return ERR_OK;
        enum err e = rt_word_wait(&g->w, 0, ~(uint64_t)0, by, stops);
        if (e != ERR_OK)
            return e;
    }
}

RT_BLOCKS
static void taker(void *arg)
{
    enum err e = take_by(arg, deadline_never(), 0);
    CHECK(e == ERR_OK);
}

RT_BLOCKS
static void impatient_taker(void *arg)
{
    struct gate *g = arg;
    enum err e = take_by(g, deadline_at_ns(2000000000), 0);
    model_cover(e == ERR_OK ? 0 : 1);
    if (e != ERR_OK)
        step(
            g); /* somebody must bring what it did not take: else the patient one would wait for ever anyway */
    os_a32_add(&g->passed, e == ERR_OK, memory_order_relaxed);
}

/* One unit, two takers, of which one may give up: the unit must reach the other even if the first was picked. */
static void wakeup_is_passed_on_by_who_timed_out(void)
{
    struct gate g = {0};
    struct os_thread a, b;
    rt_word_init(&g.w, 0);
    CHECK(os_thread_start(&a, "impatient", impatient_taker, &g) == ERR_OK);
    CHECK(os_thread_start(&b, "patient", taker, &g) == ERR_OK);
    step(&g);
    os_thread_join(&a);
    if (os_a32_load(&g.passed, memory_order_relaxed)) /* it took the only unit */
        step(&g);
    os_thread_join(&b);
    rt_word_fini(&g.w);
}

RT_BLOCKS
static void cancelled_taker(void *arg)
{
    struct gate *g = arg;
    rt_self()->stop = &g->stop;
    enum err e = take_by(g, deadline_never(), RT_STOP_HARD);
    CHECK(e == ERR_OK || e == ERR_CANCELED);
    model_cover(e == ERR_OK ? 0 : 1);
}

static void cancelling_reaches_a_sleeper(void)
{
    struct gate g = {0};
    struct os_thread t;
    rt_word_init(&g.w, 0);
    rt_stop_init(&g.stop);
    CHECK(os_thread_start(&t, "sleeper", cancelled_taker, &g) == ERR_OK);
    rt_stop_request(&g.stop, RT_STOP_HARD);
    os_thread_join(&t);
    rt_stop_fini(&g.stop);
    rt_word_fini(&g.w);
    model_cover(0);
}

/* Cancelled and picked at once: the unit must not be lost between the two. */
static void cancelling_loses_no_wakeup(void)
{
    struct gate g = {0};
    struct os_thread a, b, c;
    rt_word_init(&g.w, 0);
    rt_stop_init(&g.stop);
    CHECK(os_thread_start(&a, "cancelled", cancelled_taker, &g) == ERR_OK);
    CHECK(os_thread_start(&b, "stepper", stepper, &g) == ERR_OK);
    CHECK(os_thread_start(&c, "patient", taker, &g) == ERR_OK);
    rt_stop_request(&g.stop, RT_STOP_HARD);
    os_thread_join(&a);
    os_thread_join(&b);
    if (rt_word_load(&g.w) < STEP) /* whoever took the first unit, there must be one for the patient */
        step(&g);
    os_thread_join(&c);
    rt_stop_fini(&g.stop);
    rt_word_fini(&g.w);
}

RT_BLOCKS
static void soft_sleeper(void *arg)
{
    struct gate *g = arg;
    rt_self()->stop = &g->stop;
    enum err e = take_by(g, deadline_never(), RT_STOP_HARD);
    CHECK(e == ERR_OK);
}

/* A soft stop must not end a wait that cares only for hard ones, nor make it deaf. */
static void soft_stop_leaves_a_hard_wait_asleep(void)
{
    struct gate g = {0};
    struct os_thread a, b;
    rt_word_init(&g.w, 0);
    rt_stop_init(&g.stop);
    CHECK(os_thread_start(&a, "sleeper", soft_sleeper, &g) == ERR_OK);
    CHECK(os_thread_start(&b, "stepper", stepper, &g) == ERR_OK);
    rt_stop_request(&g.stop, RT_STOP_SOFT);
    os_thread_join(&a);
    os_thread_join(&b);
    rt_stop_fini(&g.stop);
    rt_word_fini(&g.w);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "change_is_never_missed", .body = change_is_never_missed},
        {.name = "wakeup_is_passed_on_by_who_timed_out",
         .body = wakeup_is_passed_on_by_who_timed_out,
         .timeouts = 1,
         .covers = 2},
        {.name = "cancelling_reaches_a_sleeper", .body = cancelling_reaches_a_sleeper, .covers = 2},
        {.name = "cancelling_loses_no_wakeup", .body = cancelling_loses_no_wakeup, .covers = 2},
        {.name = "soft_stop_leaves_a_hard_wait_asleep", .body = soft_stop_leaves_a_hard_wait_asleep},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
