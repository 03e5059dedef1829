/* ingress_tx → validate → preval_tx. A full preval_tx drops its oldest job, whose caller is told at once. */
#include "base/check.h"
#include "rt/task.h"
#include "services/ledger/service.h"

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

enum err ledger_prevalidator_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
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
            bool ok = ledger_prevalidate(l, job);
            obs_hist_observe(obs_hist(l->m[LEDGER_M_prevalidator_seconds]),
                             (double)(c->mono_ns(c->ctx) - began) / 1e9);
            if (ok)
                pass_on(l, job);
            else
                ledger_answer(l, job);
            rt_task_beat(self);
        }
    }
}
