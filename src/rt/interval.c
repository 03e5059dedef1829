#include "rt/interval.h"

#include "base/check.h"
#include "rt/deadline.h"
#include "rt/task.h"

void rt_interval_init(struct rt_interval *i, int64_t period_ms, int64_t now_ns)
{
    CHECK(period_ms > 0);
    i->period_ns = period_ms * 1000000;
    i->next_ns = now_ns + i->period_ns;
    i->missed = 0;
}

bool rt_interval_due(struct rt_interval *i, int64_t now_ns)
{
    if (now_ns < i->next_ns)
        return false;
    int64_t ticks = (now_ns - i->next_ns) / i->period_ns + 1;
    i->missed += (uint64_t)ticks - 1;
    i->next_ns += ticks * i->period_ns;
    return true;
}

enum err rt_interval_wait(struct rt_interval *i, struct rt_task *self)
{
    while (!rt_interval_due(i, os_now_ns())) {
        enum err e = rt_task_sleep(self, deadline_at_ns(i->next_ns));
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}
