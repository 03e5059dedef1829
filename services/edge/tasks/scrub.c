/*
 * scrub: reads every object again at a gentle rate and compares it with its name. A wrong one goes into quarantine through
 * cas_writer, and the next request fills it again.
 */
#include <stdlib.h>

#include "services/edge/scrub.h"

enum { PAUSE_MS = 1000 };

enum err edge_scrub_run(struct rt_task *self, void *arg)
{
    struct edge *e = arg;
    while (!rt_task_stopping(self)) {
        uint64_t rate = edge_config(e)->cas_scrub_rate;
        struct edge_scrub_report *r = calloc(1, sizeof *r);
        enum err err = r && rate ? edge_scrub_pass(e, self, rate, r) : ERR_OK;
        free(r);
        if (err != ERR_OK && err != ERR_CANCELED)
            obs_log(svc_log(e->svc), OBS_WARN, "scrub_failed", OBS_ERR(err), OBS_END);
        for (int i = 0; i < 10 && !rt_task_stopping(self); i++) {
            if (rt_task_sleep(self, deadline_in_ms(PAUSE_MS)) != ERR_OK)
                break;
            rt_task_beat(self);
        }
    }
    return rt_task_canceled(self) && !rt_task_stopping(self) ? ERR_CANCELED : ERR_OK;
}
