/*
 * Follows another ledger, takes over, renews the lease (replica.h). Without replica.dsn it has nothing to do.
 *
 * A writer that was fenced has a frame that may not count, on its disk and in its memory, and only opening knows how to set that
 * aside. So it asks to be opened again once all that was under way is answered, and comes back as a standby.
 */
#include "services/ledger/replica.h"

#include "rt/task.h"
#include "services/ledger/service.h"

enum { IDLE_MS = 60000 };

static bool settled(const struct ledger *l)
{
    return rt_chan_depth(l->commit) == 0 &&
           atomic_load_explicit(&l->inflight_bytes, memory_order_acquire) == 0;
}

/* True once it was asked for, or is in vain. */
static bool rejoin(struct ledger_service *s)
{
    struct ledger *l = s->l;
    if (!l->set.replica_rejoin || ledger_replica_role(l) != ROLE_FENCED || !settled(l))
        return false;
    bool heard = svc_ask_reopen(s->svc);
    obs_log(l->deps.log, heard ? OBS_INFO : OBS_WARN, "rejoin",
            OBS_STR("how", heard ? "opening again as a standby" : "restart the process: nobody in it can"),
            OBS_END);
    return true;
}

enum err ledger_replica_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    struct ledger *l = s->l;
    bool asked = false;
    for (;;) {
        int64_t rest_ms = l->replica == NULL ? IDLE_MS : ledger_replica_step(l);
        rt_task_beat(self);
        if (l->replica != NULL && !asked)
            asked = rejoin(s);
        if (rt_task_stopping(self) ||
            (rest_ms > 0 && rt_task_sleep(self, deadline_in_ms(rest_ms)) != ERR_OK))
            break;
    }
    if (l->replica != NULL && !rt_task_canceled(self))
        ledger_replica_release(l);
    return ERR_OK;
}
