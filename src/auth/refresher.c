#include "auth/cap.h"
#include "rt/deadline.h"
#include "rt/task.h"

enum { REFRESH_EVERY_MS = 1000 };

enum err auth_refresher_run(struct rt_task *self, void *arg)
{
    struct auth *a = arg;
    while (!rt_task_stopping(self)) {
        rt_task_beat(self);
        auth_refresh(a);
        enum err e = rt_task_sleep(self, deadline_in_ms(REFRESH_EVERY_MS));
        if (e == ERR_CANCELED)
            break;
    }
    return ERR_OK;
}
