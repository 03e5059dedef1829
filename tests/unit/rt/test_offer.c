#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/offer.h"

/* Each reading is one offer later: that is how long it was taken. */
struct taken {
    struct clock clock;
    int64_t now_ns, for_ns;
    int offers;
};

static int64_t after_the_offer(void *ctx)
{
    struct taken *t = ctx;
    t->offers++;
    return t->now_ns += t->for_ns;
}

static struct taken *begin(struct taken *t)
{
    t->clock = (struct clock){.mono_ns = after_the_offer, .ctx = t};
    return t;
}

static void who_has_something_short_to_do_is_offered_the_core_again_and_again(void **state)
{
    (void)state;
    struct taken t = {.now_ns = 5, .for_ns = RT_OFFER_TAKEN_NS};
    struct rt_offer o = {0};
    int64_t now = begin(&t)->now_ns;
    for (int i = 0; i < 100; i++)
        now = rt_offer_core(&o, &t.clock, now);
    assert_int_equal(t.offers, 100);
    assert_int_equal(now, t.now_ns);
}

static void who_keeps_it_is_not_asked_again_for_a_while(void **state)
{
    (void)state;
    struct taken t = {.now_ns = 5, .for_ns = RT_OFFER_TAKEN_NS + 1};
    struct rt_offer o = {0};
    int64_t now = rt_offer_core(&o, &begin(&t)->clock, t.now_ns), later = now + RT_OFFER_PAUSE_NS;
    assert_int_equal(t.offers, 1);
    assert_false(rt_offer_allowed(&o, now));
    assert_int_equal(rt_offer_core(&o, &t.clock, later - 1), later - 1);
    assert_int_equal(t.offers, 1);
    assert_true(rt_offer_allowed(&o, later));
    rt_offer_core(&o, &t.clock, later);
    assert_int_equal(t.offers, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_has_something_short_to_do_is_offered_the_core_again_and_again),
        cmocka_unit_test(who_keeps_it_is_not_asked_again_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
