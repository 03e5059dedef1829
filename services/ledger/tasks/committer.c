/*
 * commit_tx → one group per flush → answers. The single writer. What arrives while a flush runs becomes the next group, so
 * the group grows with the load by itself; an idle committer starts at once.
 *
 * A failure to write is never retried: safe mode, the group's outcome is unknown, everything behind it was not written.
 */
#include <string.h>

#include "base/check.h"
#include "rt/offer.h"
#include "rt/task.h"
#include "services/ledger/service.h"
#include "services/ledger/trace.h"

enum { TAKE = 1024 };

struct backlog {
    struct ledger_job *jobs[TAKE];
    uint32_t n;
    struct rt_offer core;
};

static void finish(struct ledger *l, struct ledger_job *job)
{
    bool late = job->want_proof;
    for (uint32_t i = 0; !late && i < job->n_units; i++)
        late = job->units[i].verdict == VERDICT_DUPLICATE;
    if (late && rt_chan_try_send(l->late, job) == ERR_OK)
        return;
    ledger_answer(l, job);
}

static void fail(struct ledger *l, struct ledger_job *job, enum err err)
{
    job->err = job->new_entries > 0 ? err : ERR_SAFE_MODE;
    ledger_answer(l, job);
}

static uint32_t group_of(const struct ledger *l, const struct backlog *b)
{
    struct ledger_group_size size = {0};
    uint32_t n = 0;
    while (n < b->n && ledger_group_takes(l, &size, b->jobs[n]))
        n++;
    return n;
}

static void commit_backlog(struct rt_task *self, struct ledger *l, struct backlog *b) RT_BLOCKS
{
    while (b->n > 0) {
        uint32_t n = group_of(l, b);
        int64_t began_ns = l->deps.clock->mono_ns(l->deps.clock->ctx);
        enum err err = ledger_commit(l, b->jobs, n);
        rt_task_beat(self);
        net_loop_cork(); /* one wake-up per door for all answers of the group */
        for (uint32_t i = 0; i < n; i++) {
            ledger_trace_stage(l, b->jobs[i], "committer", "commit", n, began_ns, err);
            if (err == ERR_OK)
                finish(l, b->jobs[i]);
            else
                fail(l, b->jobs[i], err == ERR_SAFE_MODE ? ERR_SAFE_MODE : ERR_OUTCOME_UNKNOWN);
        }
        net_loop_uncork();
        /* Who was answered asks again, and comes through tasks that may share this core: the next group is the larger for it. */
        rt_offer_core(&b->core, l->deps.clock, clock_mono_ns(l->deps.clock));
        b->n -= n;
        memmove(b->jobs, b->jobs + n, b->n * sizeof b->jobs[0]);
        if (b->n > 0 && b->n < TAKE) { /* more may have come while we flushed */
            size_t more = 0;
            if (rt_chan_try_recv_batch(l->commit, (void **)(b->jobs + b->n), TAKE - b->n, &more) == ERR_OK)
                b->n += (uint32_t)more;
        }
    }
}

enum err ledger_committer_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    struct ledger *l = s->l;
    struct backlog b = {.n = 0};
    for (;;) {
        size_t n = 0;
        enum err err = rt_chan_recv_batch(l->commit, (void **)b.jobs, TAKE, deadline_in_ms(1000), &n);
        rt_task_beat(self);
        if (err == ERR_TIMEOUT)
            continue;
        if (err == ERR_CLOSED) {
            s->committer_done = ledger_safe_cause(l) == CAUSE_NONE;
            return ERR_OK;
        }
        if (err != ERR_OK) { /* hard cancel: the drain ran out of time */
            ledger_enter_safe_mode(l, CAUSE_DRAIN_TIMEOUT, "committer was cancelled");
            ledger_answer_queued(l, l->commit, ERR_SAFE_MODE); /* sequenced, but not written */
            return ERR_OK;
        }
        b.n = (uint32_t)n;
        commit_backlog(self, l, &b);
    }
}
