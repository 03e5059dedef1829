/* Reads that may touch the disk, and the administrator's slower wishes: each is a small closure that answers by itself. */
#include "rt/task.h"
#include "services/ledger/service.h"

static enum err serve(struct rt_task *self, struct ledger_service *s, struct rt_chan *from) RT_BLOCKS
{
    for (;;) {
        void *item = NULL;
        enum err err = rt_chan_recv(from, deadline_in_ms(1000), &item);
        rt_task_beat(self);
        if (err == ERR_TIMEOUT)
            continue;
        /* Out of time: what was taken in answers by itself, and no way else; each is short. */
        if (err != ERR_OK && !(rt_chan_is_closed(from) && rt_chan_try_recv(from, &item) == ERR_OK))
            return err == ERR_CLOSED || rt_task_stopping(self) ? ERR_OK : err;
        struct ledger_read *r = item;
        r->run(s, r);
    }
}

enum err ledger_reader_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    return serve(self, s, s->l->read);
}

enum err ledger_admin_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    return serve(self, s, s->l->admin);
}
