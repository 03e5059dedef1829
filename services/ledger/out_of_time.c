/*
 * The end of a drain that ran out of time. A task that is cancelled leaves the queue before it as it is; who waits there must not
 * wait for ever, so the task's last act is to answer them. The queue is closed by then: nothing comes after.
 */
#include "base/check.h"
#include "services/ledger/ledger.h"

void ledger_answer_queued(struct ledger *l, struct rt_chan *closed, enum err why)
{
    void *item;
    while (rt_chan_try_recv(closed, &item) == ERR_OK) {
        struct ledger_job *job = item;
        CHECK_MAGIC(job, LEDGER_JOB_MAGIC);
        job->err = why;
        job->why = job->why_key = NULL;
        ledger_answer(l, job);
    }
}
