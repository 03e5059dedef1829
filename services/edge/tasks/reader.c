/* reader: does for a request what may wait for a disk, then answers it. */
#include "services/edge/edge.h"

/* Aborted while draining: what is still queued is refused, not forgotten. */
static void refuse_queued(struct edge *e)
{
    void *item;
    while (rt_chan_try_recv(e->read, &item) == ERR_OK) {
        struct edge_job *job = item;
        struct net_req *rq = job->rq;
        if (job->drop)
            job->drop(job->arg);
        if (rq)
            edge_refuse(e, rq, ERR_DRAINING, EDGE_R_DRAINING, "the service is shutting down");
    }
}

enum err edge_reader_run(struct rt_task *self, void *arg)
{
    struct edge *e = arg;
    for (;;) {
        void *item;
        enum err err = rt_chan_recv(e->read, deadline_in_ms(1000), &item);
        if (err == ERR_OK) {
            struct edge_job *job = item;
            job->run(e, job->rq, job->arg, rt_task_index(self));
        } else if (err != ERR_TIMEOUT) {
            if (svc_draining(e->svc))
                refuse_queued(e);
            return err == ERR_CLOSED || rt_task_stopping(self) ? ERR_OK : err;
        }
        rt_task_beat(self);
    }
}
