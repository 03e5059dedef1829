/* What a process that hosts services does with signals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/resource.h>

#include "svc/host.h"

static void a_signal_to_end_is_not_kept_waiting_by_those_to_reload(void **state)
{
    (void)state;
    svc_host_block_signals();
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(svc_host_wait(0), SVC_HOST_DRAIN);
    assert_int_equal(svc_host_wait(0), SVC_HOST_NOTHING);
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(svc_host_wait(0), SVC_HOST_RELOAD);
    assert_int_equal(raise(SIGINT), 0);
    assert_int_equal(svc_host_wait(0), SVC_HOST_DRAIN);
    assert_int_equal(svc_host_wait(0), SVC_HOST_NOTHING);
}

static void all_descriptors_that_may_be_had_are_taken(void **state)
{
    (void)state;
    struct rlimit was, few, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    svc_host_raise_limits();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_true(now.rlim_cur == was.rlim_max && now.rlim_max == was.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_to_end_is_not_kept_waiting_by_those_to_reload),
        cmocka_unit_test(all_descriptors_that_may_be_had_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
