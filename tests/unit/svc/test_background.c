/* What the system is told about work that nobody waits for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <linux/ioprio.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rt/os.h"
#include "svc/background.h"

struct seen {
    int policy, io_on, io_off;
};

static int io_class(void)
{
    return IOPRIO_PRIO_CLASS((int)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0));
}

static void step_back(void *arg)
{
    struct seen *s = arg;
    svc_background_cpu();
    s->policy = sched_getscheduler(0);
    svc_background_io(true);
    s->io_on = io_class();
    svc_background_io(false);
    s->io_off = io_class();
}

static void a_thread_steps_back_alone_and_its_disk_work_may_come_forward_again(void **state)
{
    (void)state;
    struct seen s = {-1, -1, -1};
    struct os_thread t;
    int policy = sched_getscheduler(0), io = io_class();
    assert_int_equal(os_thread_start(&t, "background", step_back, &s), ERR_OK);
    os_thread_join(&t);
    assert_int_equal(s.policy, SCHED_BATCH);
    assert_int_equal(s.io_on, IOPRIO_CLASS_IDLE);
    assert_int_not_equal(s.io_off, IOPRIO_CLASS_IDLE);
    assert_int_equal(sched_getscheduler(0), policy);
    assert_int_equal(io_class(), io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_steps_back_alone_and_its_disk_work_may_come_forward_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
