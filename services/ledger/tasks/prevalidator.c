/*
 * ingress_tx → validate → preval_tx. A full preval_tx drops its oldest job, whose caller is told at once.
 *
 * A worker that runs out of memory answers that job, finishes what else it has in hand and fails: the supervisor starts it again after
 * a pause, in which others may give memory back. Nothing it shares is left half done.
 */
#include "base/check.h"
#include "rt/task.h"
#include "services/ledger/providers.h"
#include "services/ledger/service.h"
#include "services/ledger/trace.h"

/*
 * Few large jobs at a time, since the other workers want some too; of small ones a fair share of what waits, so that one wake-up of
 * the sequencer, and one flush behind it, serves them all.
 */
enum { TAKE = 4, TAKE_SMALL = 64, SMALL_BYTES = 1024, HOLD_ENTRIES = 64 };

static void pass_on(struct ledger *l, struct ledger_job *const *jobs, size_t n)
{
    void *dropped[TAKE_SMALL];
    size_t n_dropped = 0;
    if (n == 0)
        return;
    enum err err = rt_chan_push_drop_oldest_batch(l->preval, (void *const *)jobs, n, dropped, &n_dropped);
    for (size_t i = 0; err != ERR_OK && i < n; i++) { /* closed: the sequencer is gone */
        ledger_job_refuse(jobs[i], ERR_DRAINING, NULL, NULL);
        ledger_answer(l, jobs[i]);
    }
    for (size_t i = 0; i < n_dropped; i++) {
        struct ledger_job *oldest = dropped[i];
        obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_drops], "preval"));
        obs_log(l->deps.log, OBS_WARN, "drop_oldest", OBS_CORR(oldest->corr_id), OBS_END);
        ledger_job_refuse(oldest, ERR_BUSY, "queue", "preval");
        ledger_answer(l, oldest);
    }
}

/* STEP_PASS: it goes to the sequencer. Otherwise it is parked or answered, and no longer ours. */
static enum ledger_step judge(struct ledger *l, struct ledger_job *job) RT_BLOCKS
{
    int64_t began = l->deps.clock->mono_ns(l->deps.clock->ctx);
    enum ledger_step step = job->err != ERR_OK ? STEP_REFUSED : ledger_prevalidate_step(l, job);
    if (step != STEP_ASK)
        ledger_trace_stage(l, job, "prevalidator", "ingress", 1, began, job->err);
    if (step == STEP_PASS || (step == STEP_ASK && ledger_providers_park(l->providers, job) == ERR_OK))
        return step;
    if (step == STEP_ASK)
        ledger_job_refuse(job, ERR_BUSY, "queue", "provider");
    ledger_answer(l, job);
    return step;
}

void ledger_prevalidator_next(struct ledger_service *s, struct ledger_job *job)
{
    if (judge(s->l, job) == STEP_PASS)
        pass_on(s->l, &job, 1);
}

/* Whether more may be taken on top of these. */
static bool all_small(void *const *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((const struct ledger_job *)jobs[i])->body.n > SMALL_BYTES)
            return false;
    return true;
}

static size_t take_more(struct ledger_service *s, void **jobs, size_t n)
{
    struct ledger *l = s->l;
    uint32_t workers = atomic_load_explicit(&s->prevalidating, memory_order_relaxed);
    size_t share = rt_chan_depth(l->ingress) / (workers > 0 ? workers : 1), more = 0;
    share = share < TAKE_SMALL - n ? share : TAKE_SMALL - n;
    if (share == 0 || !all_small(jobs, n) ||
        rt_chan_try_recv_batch(l->ingress, jobs + n, share, &more) != ERR_OK)
        return n;
    return n + more;
}

static enum err work_through(struct rt_task *self, struct ledger *l, void *const *jobs, size_t n) RT_BLOCKS
{
    const struct clock *c = l->deps.clock;
    struct ledger_job *passed[TAKE_SMALL];
    size_t held = 0, held_entries = 0;
    enum err err = ERR_OK;
    for (size_t i = 0; i < n; i++) {
        struct ledger_job *job = jobs[i];
        int64_t began = c->mono_ns(c->ctx);
        enum ledger_step step = judge(l, job);
        if (step == STEP_NO_MEMORY)
            err = ERR_NO_MEMORY;
        if (step == STEP_PASS) {
            passed[held++] = job;
            held_entries += job->n_entries;
        }
        if (held_entries >= HOLD_ENTRIES || i + 1 == n) {
            pass_on(l, passed, held);
            held = held_entries = 0;
        }
        obs_hist_observe(obs_hist(l->m[LEDGER_M_prevalidator_seconds]),
                         (double)(c->mono_ns(c->ctx) - began) / 1e9);
        rt_task_beat(self);
    }
    return err;
}

static enum err run(struct rt_task *self, struct ledger_service *s) RT_BLOCKS
{
    struct ledger *l = s->l;
    for (;;) {
        void *jobs[TAKE_SMALL];
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
        err = work_through(self, l, jobs, take_more(s, jobs, n));
        if (err != ERR_OK)
            return err;
    }
}

/* Their number tells the provider task when no more questions can come. */
enum err ledger_prevalidator_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    atomic_fetch_add(&s->prevalidating, 1);
    enum err err = run(self, s);
    if (rt_chan_is_closed(s->l->ingress)) /* out of time: what nobody took was not sequenced */
        ledger_answer_queued(s->l, s->l->ingress, ERR_DRAINING);
    atomic_fetch_sub(&s->prevalidating, 1);
    return err;
}
