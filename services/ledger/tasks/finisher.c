/* Committed jobs whose answer needs the journal: duplicates want the first outcome, proof=1 wants leaves and paths. */
#include "base/check.h"
#include "rt/task.h"
#include "services/ledger/reads.h"
#include "services/ledger/service.h"

static void complete(struct ledger *l, struct ledger_job *job) RT_BLOCKS
{
    for (uint32_t i = 0; i < job->n_units; i++) {
        struct ledger_job_unit *u = &job->units[i];
        bool dup = u->verdict == VERDICT_DUPLICATE;
        if (!dup && !(job->want_proof && u->verdict == VERDICT_COMMITTED))
            continue;
        struct ledger_unit_facts *f = arena_zalloc(&job->arena, sizeof *f);
        enum err err = f == NULL ? ERR_NO_MEMORY : ERR_OK;
        if (err == ERR_OK && !u->place_known)
            err = ledger_find_unit(l, u->u.idem_id, &job->arena, f);
        else if (err == ERR_OK)
            err = ledger_read_facts(l, u->place, u->seq, NULL, &job->arena, f);
        if (err == ERR_OK)
            u->late = f;
    }
}

enum err ledger_finisher_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    struct ledger *l = s->l;
    for (;;) {
        void *item = NULL;
        enum err err = rt_chan_recv(l->late, deadline_in_ms(1000), &item);
        rt_task_beat(self);
        if (err == ERR_TIMEOUT)
            continue;
        if (err != ERR_OK &&
            rt_chan_is_closed(
                l->late)) /* durable, but there is no time left to read what the answer needs */
            ledger_answer_queued(l, l->late, ERR_OUTCOME_UNKNOWN);
        if (err != ERR_OK)
            return err == ERR_CLOSED || rt_task_stopping(self) ? ERR_OK : err;
        complete(l, item);
        ledger_answer(l, item);
    }
}
