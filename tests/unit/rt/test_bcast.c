#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/bcast.h"

static int refs;

static void ref(void *item)
{
    (void)item;
    refs++;
}

static void unref(void *item)
{
    (void)item;
    refs--;
}

static int items[64];

RT_BLOCKS
static void every_subscriber_sees_every_item(void **state)
{
    (void)state;
    struct rt_bcast *b = rt_bcast_create(&(struct rt_bcast_spec){.name = "test", .capacity = 4});
    struct rt_bcast_sub *early = rt_bcast_subscribe(b, NULL, NULL);
    rt_bcast_publish(b, &items[0]);
    struct rt_bcast_sub *late = rt_bcast_subscribe(b, NULL, NULL);
    rt_bcast_publish(b, &items[1]);
    void *item = NULL;
    assert_int_equal(rt_bcast_try_recv(early, &item), ERR_OK);
    assert_ptr_equal(item, &items[0]);
    assert_int_equal(rt_bcast_recv(early, deadline_never(), &item), ERR_OK);
    assert_ptr_equal(item, &items[1]);
    assert_int_equal(rt_bcast_try_recv(early, &item), ERR_EMPTY);
    assert_int_equal(rt_bcast_recv(early, deadline_in_ms(1), &item), ERR_TIMEOUT);
    assert_int_equal(rt_bcast_try_recv(late, &item), ERR_OK);
    assert_ptr_equal(item, &items[1]);
    rt_bcast_close(b);
    assert_int_equal(rt_bcast_recv(late, deadline_never(), &item), ERR_CLOSED);
    rt_bcast_unsubscribe(early);
    rt_bcast_unsubscribe(late);
    rt_bcast_destroy(b);
}

static void slow_reader_learns_how_much_it_lost_and_goes_on_with_the_oldest_left(void **state)
{
    (void)state;
    refs = 0;
    struct rt_bcast *b =
        rt_bcast_create(&(struct rt_bcast_spec){.name = "test", .capacity = 4, .ref = ref, .unref = unref});
    struct rt_bcast_sub *s = rt_bcast_subscribe(b, NULL, NULL);
    for (int i = 0; i < 10; i++) {
        refs++;
        rt_bcast_publish(b, &items[i]);
    }
    assert_int_equal(refs, 4);
    void *item = NULL;
    assert_int_equal(rt_bcast_try_recv(s, &item), ERR_LAGGED);
    assert_int_equal(rt_bcast_take_lost(s), 6);
    assert_int_equal(rt_bcast_take_lost(s), 0);
    for (int i = 6; i < 10; i++) {
        assert_int_equal(rt_bcast_try_recv(s, &item), ERR_OK);
        assert_ptr_equal(item, &items[i]);
        unref(item);
    }
    assert_int_equal(rt_bcast_try_recv(s, &item), ERR_EMPTY);
    struct rt_bcast_stats st = rt_bcast_stats(b);
    assert_int_equal(st.published, 10);
    assert_int_equal(st.lagged, 6);
    assert_int_equal(st.subscribers, 1);
    rt_bcast_unsubscribe(s);
    rt_bcast_destroy(b);
    assert_int_equal(refs, 0);
}

static void a_reader_that_can_take_nothing_still_learns_what_passes_by(void **state)
{
    (void)state;
    refs = 0;
    struct rt_bcast *b =
        rt_bcast_create(&(struct rt_bcast_spec){.name = "test", .capacity = 4, .ref = ref, .unref = unref});
    struct rt_bcast_sub *s = rt_bcast_subscribe(b, NULL, NULL);
    void *item = NULL;
    rt_bcast_note_lost(s);
    assert_int_equal(rt_bcast_take_lost(s), 0);
    for (int i = 0; i < 10; i++) {
        refs++;
        rt_bcast_publish(b, &items[i]);
        rt_bcast_note_lost(s);
    }
    assert_int_equal(rt_bcast_take_lost(s), 6);
    assert_int_equal(rt_bcast_stats(b).lagged, 6);
    assert_int_equal(rt_bcast_try_recv(s, &item), ERR_OK); /* it knows already */
    assert_ptr_equal(item, &items[6]);
    unref(item);
    rt_bcast_unsubscribe(s);
    rt_bcast_destroy(b);
    assert_int_equal(refs, 0);
}

static void count_call(void *arg)
{
    ++*(int *)arg;
}

static void hook_is_called_once_per_emptiness(void **state)
{
    (void)state;
    int calls = 0;
    struct rt_bcast *b = rt_bcast_create(&(struct rt_bcast_spec){.name = "test", .capacity = 4});
    struct rt_bcast_sub *s = rt_bcast_subscribe(b, count_call, &calls);
    rt_bcast_publish(b, &items[0]);
    rt_bcast_publish(b, &items[1]);
    assert_int_equal(calls, 1);
    void *item;
    while (rt_bcast_try_recv(s, &item) == ERR_OK)
        continue;
    rt_bcast_publish(b, &items[2]);
    assert_int_equal(calls, 2);
    rt_bcast_unsubscribe(s);
    rt_bcast_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_subscriber_sees_every_item),
        cmocka_unit_test(slow_reader_learns_how_much_it_lost_and_goes_on_with_the_oldest_left),
        cmocka_unit_test(a_reader_that_can_take_nothing_still_learns_what_passes_by),
        cmocka_unit_test(hook_is_called_once_per_emptiness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
