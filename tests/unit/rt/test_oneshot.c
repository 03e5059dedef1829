#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/oneshot.h"

static int answer;

RT_BLOCKS
static void first_answer_wins(void **state)
{
    (void)state;
    struct rt_oneshot o;
    rt_oneshot_init(&o);
    assert_int_equal(rt_oneshot_send(&o, &answer), ERR_OK);
    assert_int_equal(rt_oneshot_send(&o, NULL), ERR_EXISTS);
    void *value = NULL;
    assert_int_equal(rt_oneshot_recv(&o, deadline_never(), &value), ERR_OK);
    assert_ptr_equal(value, &answer);
    rt_oneshot_fini(&o);
}

RT_BLOCKS
static void abandoned_slot_leaves_the_answer_with_the_sender(void **state)
{
    (void)state;
    struct rt_oneshot o;
    void *value = NULL;
    rt_oneshot_init(&o);
    assert_int_equal(rt_oneshot_recv(&o, deadline_in_ms(1), &value), ERR_TIMEOUT);
    assert_false(rt_oneshot_abandon(&o, &value));
    assert_int_equal(rt_oneshot_send(&o, &answer), ERR_CLOSED);
    assert_null(value);
    rt_oneshot_fini(&o);
}

static void answer_that_came_before_giving_up_is_handed_over(void **state)
{
    (void)state;
    struct rt_oneshot o;
    void *value = NULL;
    rt_oneshot_init(&o);
    assert_int_equal(rt_oneshot_send(&o, &answer), ERR_OK);
    assert_true(rt_oneshot_abandon(&o, &value));
    assert_ptr_equal(value, &answer);
    rt_oneshot_fini(&o);
}

static void send_answer(void *arg)
{
    struct rt_oneshot *o = arg;
    if (rt_oneshot_send(o, &answer) != ERR_OK)
        answer = -1;
}

RT_BLOCKS
static void slot_may_die_as_soon_as_the_answer_is_there(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct rt_oneshot *o = os_alloc(sizeof *o);
        struct os_thread t;
        void *value;
        rt_oneshot_init(o);
        assert_int_equal(os_thread_start(&t, "answer", send_answer, o), ERR_OK);
        assert_int_equal(rt_oneshot_recv(o, deadline_never(), &value), ERR_OK);
        rt_oneshot_fini(o);
        os_free(o);
        os_thread_join(&t);
    }
    assert_int_equal(answer, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_answer_wins),
        cmocka_unit_test(abandoned_slot_leaves_the_answer_with_the_sender),
        cmocka_unit_test(answer_that_came_before_giving_up_is_handed_over),
        cmocka_unit_test(slot_may_die_as_soon_as_the_answer_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
