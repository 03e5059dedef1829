/*
 * SCHED_BATCH rather than a nice value or SCHED_IDLE: on a core that is never idle those would starve the work, on which somebody may
 * come to depend after all (a ledger's writers when three generations wait for the checkpointer); and without privilege there is no way
 * back from them.
 */
#include "svc/background.h"

#include <linux/ioprio.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

void svc_background_cpu(void)
{
    struct sched_param none = {.sched_priority = 0};
    (void)sched_setscheduler(0, SCHED_BATCH, &none);
}

void svc_background_io(bool on)
{
    int as = (int)IOPRIO_PRIO_VALUE(on ? IOPRIO_CLASS_IDLE : IOPRIO_CLASS_NONE, 0);
    (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, as);
}
