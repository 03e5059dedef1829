/* Tokens for calls: as many as are wanted, whatever was taken when that changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "services/rewarder/permits.h"

enum { ROOM = 8 };

static int set_up(void **state)
{
    struct rewarder_permits *p = calloc(1, sizeof *p);
    p->free =
        rt_chan_create(&(struct rt_chan_spec){.name = "io_permits", .capacity = ROOM, .policy = RT_REJECT});
    assert_non_null(p->free);
    *state = p;
    return 0;
}

static void forget(void *item, void *arg)
{
    (void)item;
    (void)arg;
}

static int tear_down(void **state)
{
    struct rewarder_permits *p = *state;
    rt_chan_destroy(p->free, forget, NULL);
    free(p);
    return 0;
}

/* How many can be had now; they are taken. */
static unsigned take_all(struct rewarder_permits *p) RT_BLOCKS
{
    unsigned n = 0;
    while (rewarder_permits_take(p, deadline_in_ms(0)) == ERR_OK)
        n++;
    return n;
}

static void as_many_are_there_as_are_wanted(void **state) RT_BLOCKS
{
    struct rewarder_permits *p = *state;
    rewarder_permits_set(p, 3);
    assert_int_equal(take_all(p), 3);
    rewarder_permits_give(p);
    assert_int_equal(take_all(p), 1);
    rewarder_permits_set(p, ROOM); /* three are out */
    assert_int_equal(take_all(p), ROOM - 3);
}

static void fewer_are_fewer_at_once_or_when_they_come_back(void **state) RT_BLOCKS
{
    struct rewarder_permits *p = *state;
    rewarder_permits_set(p, ROOM);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(rewarder_permits_take(p, deadline_in_ms(0)), ERR_OK);
    rewarder_permits_set(p, 4); /* two lay there and are gone; of the six that are out two too many */
    assert_int_equal(take_all(p), 0);
    for (unsigned i = 0; i < 6; i++)
        rewarder_permits_give(p);
    assert_int_equal(take_all(p), 4);
    for (unsigned i = 0; i < 4; i++)
        rewarder_permits_give(p);
    rewarder_permits_set(p, 4);
    assert_int_equal(take_all(p), 4);
}

static void a_closed_queue_is_a_cancelled_wait(void **state) RT_BLOCKS
{
    struct rewarder_permits *p = *state;
    rewarder_permits_set(p, 1);
    assert_int_equal(take_all(p), 1);
    rt_chan_close(p->free);
    assert_int_equal(rewarder_permits_take(p, deadline_in_ms(60000)), ERR_CANCELED);
    rewarder_permits_give(p); /* comes to nothing, and does no harm */
    rewarder_permits_set(p, 5);
}

static void as_a_queue_it_is_as_deep_as_many_are_taken(void **state) RT_BLOCKS
{
    struct rewarder_permits *p = *state;
    rewarder_permits_set(p, 4);
    struct rt_chan_stats s = rewarder_permits_stats(p);
    assert_true(s.depth == 0 && s.capacity == 4 && s.high_water == 0 && s.sent == 0);
    assert_int_equal(take_all(p), 4);
    rewarder_permits_give(p);
    s = rewarder_permits_stats(p);
    assert_true(s.depth == 3 && s.capacity == 4 && s.high_water == 4 && s.sent == 4 && s.received == 1);
    assert_int_equal(s.rejected, 1); /* take_all asked once more */
    rewarder_permits_set(p, 2);      /* three are out: deeper than it should be, until they come back */
    s = rewarder_permits_stats(p);
    assert_true(s.depth == 3 && s.capacity == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(as_many_are_there_as_are_wanted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fewer_are_fewer_at_once_or_when_they_come_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(as_a_queue_it_is_as_deep_as_many_are_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_closed_queue_is_a_cancelled_wait, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
