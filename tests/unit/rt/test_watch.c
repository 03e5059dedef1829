#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/watch.h"

static int refs;

static void ref(void *value)
{
    (void)value;
    refs++;
}

static void unref(void *value)
{
    (void)value;
    refs--;
}

RT_BLOCKS
static void last_value_wins_and_versions_grow(void **state)
{
    (void)state;
    struct rt_watch *w = rt_watch_create(&(struct rt_watch_spec){.name = "test"});
    uint64_t version = 0;
    assert_null(rt_watch_get(w, &version));
    assert_int_equal(version, 1);
    rt_watch_publish(w, (void *)1);
    rt_watch_publish(w, (void *)2);
    void *value = NULL;
    assert_int_equal(rt_watch_wait(w, 1, deadline_never(), &value, &version), ERR_OK);
    assert_ptr_equal(value, (void *)2);
    assert_int_equal(version, 3);
    assert_int_equal(rt_watch_version(w), 3);
    assert_int_equal(rt_watch_wait(w, 3, deadline_in_ms(1), &value, &version), ERR_TIMEOUT);
    rt_watch_destroy(w);
}

RT_BLOCKS
static void closed_watch_ends_waits_but_keeps_its_value(void **state)
{
    (void)state;
    struct rt_watch *w = rt_watch_create(&(struct rt_watch_spec){.name = "test"});
    rt_watch_publish(w, (void *)7);
    rt_watch_close(w);
    void *value;
    uint64_t version;
    assert_int_equal(rt_watch_wait(w, 1, deadline_never(), &value, &version), ERR_OK);
    assert_int_equal(rt_watch_wait(w, version, deadline_never(), &value, &version), ERR_CLOSED);
    assert_ptr_equal(rt_watch_get(w, NULL), (void *)7);
    rt_watch_destroy(w);
}

static void every_reference_is_dropped(void **state)
{
    (void)state;
    static int a, b;
    refs = 1;
    struct rt_watch *w =
        rt_watch_create(&(struct rt_watch_spec){.name = "test", .initial = &a, .ref = ref, .unref = unref});
    unref(rt_watch_get(w, NULL));
    assert_int_equal(refs, 1);
    refs++;
    rt_watch_publish(w, &b);
    assert_int_equal(refs, 1);
    rt_watch_destroy(w);
    assert_int_equal(refs, 0);
}

RT_BLOCKS
static void follow(void *arg)
{
    struct rt_watch *w = arg;
    uint64_t version = 1;
    void *value = NULL;
    while (value != (void *)100 && rt_watch_wait(w, version, deadline_never(), &value, &version) == ERR_OK)
        continue;
}

static void waiting_reader_sees_the_last_value(void **state)
{
    (void)state;
    struct rt_watch *w = rt_watch_create(&(struct rt_watch_spec){.name = "test"});
    struct os_thread t[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(os_thread_start(&t[i], "follow", follow, w), ERR_OK);
    for (uintptr_t v = 1; v <= 100; v++)
        rt_watch_publish(w, (void *)v);
    for (int i = 0; i < 2; i++)
        os_thread_join(&t[i]);
    rt_watch_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_value_wins_and_versions_grow),
        cmocka_unit_test(closed_watch_ends_waits_but_keeps_its_value),
        cmocka_unit_test(every_reference_is_dropped),
        cmocka_unit_test(waiting_reader_sees_the_last_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
