/* The reader: puts questions to the ledger in the order they came. Answers come back on the ledger client's threads. */
#include "services/wallet/read.h"

enum { TAKE = 64, BEAT_MS = 500 };

enum err wallet_reader_run(struct rt_task *self, void *arg)
{
    struct wallet *w = arg;
    void *items[TAKE];
    size_t n;
    for (;;) {
        rt_task_beat(self);
        enum err e = rt_chan_recv_batch(w->read_tx, items, TAKE, deadline_in_ms(BEAT_MS), &n);
        if (e == ERR_OK) {
            for (size_t i = 0; i < n; i++)
                wallet_read_run(items[i]);
        } else if (e != ERR_TIMEOUT)
            return e == ERR_CLOSED ? ERR_OK : e;
    }
}
