#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rt/chan.h"
#include "rt/lock.h"

/* The cases break the rules on purpose, which the compiler would refuse. */
RT_UNCHECKED static void take_two_in_order(void)
{
    struct rt_lock a, b;
    rt_lock_init(&a, "a", 1);
    rt_lock_init(&b, "b", 2);
    rt_lock_take(&a);
    rt_lock_take(&b);
    rt_lock_release(&b);
    rt_lock_release(&a);
    rt_lock_fini(&a);
    rt_lock_fini(&b);
}

RT_UNCHECKED static void take_two_out_of_order(void)
{
    struct rt_lock a, b;
    rt_lock_init(&a, "a", 1);
    rt_lock_init(&b, "b", 2);
    rt_lock_take(&b);
    rt_lock_take(&a);
}

RT_UNCHECKED static void take_one_twice(void)
{
    struct rt_lock a;
    rt_lock_init(&a, "a", 1);
    rt_lock_take(&a);
    rt_lock_take(&a);
}

RT_UNCHECKED static void release_what_is_not_held(void)
{
    struct rt_lock a;
    rt_lock_init(&a, "a", 1);
    rt_lock_release(&a);
}

RT_UNCHECKED static void receive_while_holding(void)
{
    struct rt_chan *ch = rt_chan_create(&(struct rt_chan_spec){.name = "test", .capacity = 1});
    struct rt_lock a;
    void *item;
    rt_lock_init(&a, "a", 1);
    rt_lock_take(&a);
    if (rt_chan_recv(ch, deadline_in_ms(0), &item) != ERR_TIMEOUT)
        exit(2);
}

RT_UNCHECKED static void send_while_holding(void)
{
    struct rt_chan *ch = rt_chan_create(&(struct rt_chan_spec){.name = "test", .capacity = 1});
    struct rt_lock a;
    rt_lock_init(&a, "a", 1);
    rt_lock_take(&a);
    if (rt_chan_try_send(ch, &a) != ERR_OK)
        exit(2);
}

/* Runs fn in a child; the signal that ended it, or 0. */
static int signal_of(void (*fn)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(STDERR_FILENO); /* the message is expected */
        signal(SIGABRT, SIG_DFL);
        fn();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void rising_ranks_are_fine(void **state)
{
    (void)state;
    assert_int_equal(signal_of(take_two_in_order), 0);
}

#ifdef RON_DEBUG_LOCKS
static void breaking_the_rules_aborts(void **state)
{
    (void)state;
    assert_int_equal(signal_of(take_two_out_of_order), SIGABRT);
    assert_int_equal(signal_of(take_one_twice), SIGABRT);
    assert_int_equal(signal_of(release_what_is_not_held), SIGABRT);
}

static void waiting_or_sending_with_a_lock_held_aborts(void **state)
{
    (void)state;
    assert_int_equal(signal_of(receive_while_holding), SIGABRT);
    assert_int_equal(signal_of(send_while_holding), SIGABRT);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rising_ranks_are_fine),
#ifdef RON_DEBUG_LOCKS
        cmocka_unit_test(breaking_the_rules_aborts),
        cmocka_unit_test(waiting_or_sending_with_a_lock_held_aborts),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
