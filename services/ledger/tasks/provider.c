/*
 * Jobs that wait for a verdict from elsewhere. Its state lies in the engine (providers.h): when this task fails, the next one goes
 * on with what is parked. It ends when the prevalidators have and nothing is parked any more; what is left at the hard end of a
 * drain is refused.
 */
#include "rt/task.h"
#include "services/ledger/providers.h"
#include "services/ledger/service.h"

enum { WAIT_MS = 1000, DRAIN_LOOK_MS = 10 };

static void go_on(void *ctx, struct ledger_job *job) RT_BLOCKS
{
    ledger_prevalidator_next(ctx, job);
}

static void refuse(void *ctx, struct ledger_job *job)
{
    struct ledger_service *s = ctx;
    if (job->err == ERR_OK)
        ledger_job_refuse(job, ERR_DRAINING, NULL, NULL);
    ledger_answer(s->l, job);
}

enum err ledger_provider_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    struct ledger_providers *p = s->l->providers;
    while (!rt_task_canceled(self)) {
        bool stopping = rt_task_stopping(self);
        if (stopping && atomic_load(&s->prevalidating) == 0 && ledger_providers_parked(p) == 0)
            return ERR_OK;
        ledger_providers_turn(p, stopping ? DRAIN_LOOK_MS : WAIT_MS, go_on, s);
        rt_task_beat(self);
    }
    for (int i = 0; i < 2 * LEDGER_PARKED_MAX && ledger_providers_parked(p) != 0; i++)
        ledger_providers_turn(p, DRAIN_LOOK_MS, refuse, s); /* calls end by their own time-outs */
    return rt_task_stopping(self) ? ERR_OK : ERR_CANCELED;
}

void ledger_provider_wake(struct rt_task *self, void *arg)
{
    (void)self;
    ledger_providers_wake(((struct ledger_service *)arg)->l->providers);
}
