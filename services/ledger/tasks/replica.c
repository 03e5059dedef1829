/* Follows another ledger, takes over, renews the lease (replica.h). Without replica.dsn it has nothing to do. */
#include "services/ledger/replica.h"

#include "rt/task.h"
#include "services/ledger/service.h"

enum { IDLE_MS = 60000 };

enum err ledger_replica_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    struct ledger *l = s->l;
    for (;;) {
        int64_t rest_ms = l->replica == NULL ? IDLE_MS : ledger_replica_step(l);
        rt_task_beat(self);
        if (rt_task_stopping(self) ||
            (rest_ms > 0 && rt_task_sleep(self, deadline_in_ms(rest_ms)) != ERR_OK))
            break;
    }
    if (l->replica != NULL && !rt_task_canceled(self))
        ledger_replica_release(l);
    return ERR_OK;
}
