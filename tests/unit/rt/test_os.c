/* What the process is told about the machine it runs on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>

#include "rt/os.h"

static void processors_are_those_the_caller_may_run_on(void **state)
{
    cpu_set_t before, one;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(os_cpus(), CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(os_cpus(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(os_cpus(), CPU_COUNT(&before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processors_are_those_the_caller_may_run_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
