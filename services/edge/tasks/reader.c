/* reader: does for a request what may wait for a disk, then answers it. */
#include "services/edge/edge.h"

enum err edge_reader_run(struct rt_task *self, void *arg)
{
    struct edge *e = arg;
    for (;;) {
        void *item;
        enum err err = rt_chan_recv(e->read, deadline_in_ms(1000), &item);
        if (err == ERR_OK) {
            struct edge_job *job = item;
            job->run(e, job->rq, job->arg, rt_task_index(self));
        } else if (err != ERR_TIMEOUT)
            return err == ERR_CLOSED || rt_task_stopping(self) ? ERR_OK : err;
        rt_task_beat(self);
    }
}
