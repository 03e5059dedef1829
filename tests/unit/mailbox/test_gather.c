/*
 * When a group waits for others, in a small world with a clock of its own: one disk, whose write takes so long, and callers who come
 * back some time after they were answered, one behind the other, because they share a core.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "services/mailbox/core/gather.h"

enum { CALLERS_MAX = 64, GROUPS = 2000, WARM = 100 };

struct world {
    struct mailbox_gather gather;
    bool gathers;
    int64_t now, write_us;
    int64_t step_us, core_free; /* between two who come back: their core is busy so long with each */
    size_t callers;
    int64_t comes[CALLERS_MAX]; /* when each asks next */
    bool wrote_it[CALLERS_MAX];
    struct rng rng;
    int64_t open_mean_us; /* > 0: who is answered comes back whenever it likes, about so much later */
    uint64_t groups, answered, in_crowds, waited_us;
};

static uint32_t here(const struct world *w)
{
    uint32_t n = 0;
    for (size_t i = 0; i < w->callers; i++)
        n += w->comes[i] <= w->now;
    return n;
}

static int64_t next_to_come(const struct world *w)
{
    int64_t at = INT64_MAX;
    for (size_t i = 0; i < w->callers; i++)
        if (w->comes[i] > w->now && w->comes[i] < at)
            at = w->comes[i];
    return at;
}

static void one_group(struct world *w)
{
    if (here(w) == 0)
        w->now = next_to_come(w);
    int64_t began = w->now;
    while (w->gathers && mailbox_gather_waits(&w->gather, w->now, here(w))) {
        int64_t next = next_to_come(w);
        w->now = next < w->gather.until_us ? next : w->gather.until_us;
    }
    uint32_t n = here(w);
    for (size_t i = 0; i < w->callers; i++)
        w->wrote_it[i] = w->comes[i] <= w->now;
    w->waited_us += (uint64_t)(w->now - began);
    w->now += w->write_us;
    mailbox_gather_wrote(&w->gather, w->now, w->write_us, n, here(w) - n);
    if (w->core_free < w->now)
        w->core_free = w->now;
    for (size_t i = 0; i < w->callers; i++)
        if (w->wrote_it[i])
            w->comes[i] = w->open_mean_us
                              ? w->now + 1 + (int64_t)rng_below(&w->rng, (uint64_t)(2 * w->open_mean_us))
                              : (w->core_free += w->step_us);
    w->groups++;
    w->answered += n;
    w->in_crowds += n == w->callers;
}

/* Answers per second. */
static double run(struct world *w)
{
    for (size_t i = 0; i < w->callers; i++)
        w->comes[i] = (int64_t)(i + 1) * w->step_us;
    for (int i = 0; i < WARM; i++)
        one_group(w);
    w->groups = w->answered = w->in_crowds = w->waited_us = 0;
    int64_t began = w->now;
    for (int i = 0; i < GROUPS; i++)
        one_group(w);
    return (double)w->answered * 1e6 / (double)(w->now - began);
}

static double rate(size_t callers, int64_t write_us, int64_t step_us, bool gathers)
{
    struct world w = {.callers = callers, .write_us = write_us, .step_us = step_us, .gathers = gathers};
    return run(&w);
}

static void callers_in_step_become_one_crowd(void **state)
{
    (void)state;
    struct world w = {.callers = 64, .write_us = 5000, .step_us = 20, .gathers = true};
    double with = run(&w), without = rate(64, 5000, 20, false);
    assert_int_equal(w.in_crowds, GROUPS);
    assert_true(with > 1.5 * without);
    assert_true(rate(64, 1600, 16, true) > 1.2 * rate(64, 1600, 16, false));
}

static void a_fast_disk_is_not_kept_waiting(void **state)
{
    static const int64_t writes[] = {20, 50, 100, 200, 250, 400, 500, 800, 1000};
    (void)state;
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++)
        for (int64_t step = 1; step <= 40; step *= 2)
            assert_true(rate(64, writes[i], step, true) > 0.98 * rate(64, writes[i], step, false));
}

static void one_caller_never_waits(void **state)
{
    (void)state;
    struct world w = {.callers = 1, .write_us = 3000, .step_us = 10, .gathers = true};
    run(&w);
    assert_int_equal(w.waited_us, 0);
}

/* Who comes back late, or not at all, costs others a small part of their time. */
static void callers_who_stay_away_are_soon_not_waited_for(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world w = {
            .callers = 32, .write_us = 1000, .step_us = 10, .gathers = true, .open_mean_us = 20000};
        rng_seed(&w.rng, seed);
        run(&w);
        assert_true(w.waited_us < w.groups * 1000 / 40);
    }
}

static void no_wait_is_longer_than_its_bound(void **state)
{
    (void)state;
    struct mailbox_gather g = {0};
    mailbox_gather_wrote(&g, 1000000, 60000000, 8, 8); /* a write that hung for a minute */
    assert_true(mailbox_gather_waits(&g, 1000000, 15));
    assert_int_equal(g.until_us, 1000000 + MAILBOX_GATHER_MS * 1000);
    assert_false(mailbox_gather_waits(&g, g.until_us, 15));
    mailbox_gather_wrote(&g, 2000000, 1000, 8, 8); /* that was in vain: the next does not wait */
    assert_false(mailbox_gather_waits(&g, 2000000, 1));
    mailbox_gather_wrote(&g, 3000000, 1000, 8, 8); /* the one behind it does */
    assert_true(mailbox_gather_waits(&g, 3000000, 15));
    assert_false(mailbox_gather_waits(&g, 3000010, 16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_in_step_become_one_crowd),
        cmocka_unit_test(a_fast_disk_is_not_kept_waiting),
        cmocka_unit_test(one_caller_never_waits),
        cmocka_unit_test(callers_who_stay_away_are_soon_not_waited_for),
        cmocka_unit_test(no_wait_is_longer_than_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
