/* ingress_tx → validate → preval_tx. A full preval_tx drops its oldest job, whose caller is told at once. */
#include "base/check.h"
#include "rt/task.h"
#include "services/ledger/providers.h"
#include "services/ledger/service.h"
#include "services/ledger/trace.h"

enum { TAKE = 4 }; /* few at a time: the other workers want some too */

static void pass_on(struct ledger *l, struct ledger_job *job)
{
    void *dropped = NULL;
    enum err err = rt_chan_push_drop_oldest(l->preval, job, &dropped);
    if (err != ERR_OK) { /* closed: the sequencer is gone */
        ledger_job_refuse(job, ERR_DRAINING, NULL, NULL);
        ledger_answer(l, job);
        return;
    }
    if (dropped != NULL) {
        struct ledger_job *oldest = dropped;
        obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_drops], "preval"));
        obs_log(l->deps.log, OBS_WARN, "drop_oldest", OBS_CORR(oldest->corr_id), OBS_END);
        ledger_job_refuse(oldest, ERR_BUSY, "queue", "preval");
        ledger_answer(l, oldest);
    }
}

void ledger_prevalidator_next(struct ledger_service *s, struct ledger_job *job)
{
    struct ledger *l = s->l;
    int64_t began = l->deps.clock->mono_ns(l->deps.clock->ctx);
    enum ledger_step step = job->err != ERR_OK ? STEP_REFUSED : ledger_prevalidate_step(l, job);
    if (step != STEP_ASK)
        ledger_trace_stage(l, job, "prevalidator", "ingress", 1, began, job->err);
    if (step == STEP_ASK && ledger_providers_park(l->providers, job) == ERR_OK)
        return;
    if (step == STEP_ASK)
        ledger_job_refuse(job, ERR_BUSY, "queue", "provider");
    if (step == STEP_PASS)
        pass_on(l, job);
    else
        ledger_answer(l, job);
}

static enum err run(struct rt_task *self, struct ledger_service *s) RT_BLOCKS
{
    struct ledger *l = s->l;
    const struct clock *c = l->deps.clock;
    for (;;) {
        void *jobs[TAKE];
        size_t n = 0;
        enum err err = rt_chan_recv_batch(l->ingress, jobs, TAKE, deadline_in_ms(1000), &n);
        if (err == ERR_TIMEOUT) {
            rt_task_beat(self);
            continue;
        }
        if (err == ERR_CLOSED)
            return ERR_OK;
        if (err != ERR_OK) /* cancelled: nothing is in our hands */
            return rt_task_stopping(self) ? ERR_OK : err;
        for (size_t i = 0; i < n; i++) {
            struct ledger_job *job = jobs[i];
            int64_t began = c->mono_ns(c->ctx);
            ledger_prevalidator_next(s, job);
            obs_hist_observe(obs_hist(l->m[LEDGER_M_prevalidator_seconds]),
                             (double)(c->mono_ns(c->ctx) - began) / 1e9);
            rt_task_beat(self);
        }
    }
}

/* Their number tells the provider task when no more questions can come. */
enum err ledger_prevalidator_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    atomic_fetch_add(&s->prevalidating, 1);
    enum err err = run(self, s);
    atomic_fetch_sub(&s->prevalidating, 1);
    return err;
}
