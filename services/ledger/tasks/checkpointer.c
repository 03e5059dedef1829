/* Complete generations to disk. Never reads live state: what it writes was logged by the committer, value by value. */
#include "base/check.h"
#include "rt/task.h"
#include "services/ledger/checkpoint.h"
#include "services/ledger/service.h"
#include "svc/background.h"

enum { RETRY_MS = 1000, SAFE_MODE_MS = 50 };

/* In safe mode nothing is written; an operator's ends, and then what is complete is still to be. False: told to stop meanwhile. */
static bool writes_are_on(struct rt_task *self, const struct ledger *l) RT_BLOCKS
{
    while (ledger_safe_cause(l) != CAUSE_NONE)
        if (rt_task_stopping(self) || rt_task_sleep(self, deadline_in_ms(SAFE_MODE_MS)) != ERR_OK)
            return false;
    return true;
}

/*
 * A generation that cannot be written is given up only when the service ends: the journal has it all, and opening reads it there. None
 * is written behind one that was given up, because a manifest must not cover what no run holds.
 */
static void write_one(struct rt_task *self, struct ledger *l, struct ledger_gen_log *log) RT_BLOCKS
{
    const struct clock *c = l->deps.clock;
    int64_t began = c->mono_ns(c->ctx);
    uint64_t entries = ledger_gen_last_seq(log->gen);
    for (;;) {
        if (log->gen->first_seq != atomic_load(&l->checkpoint_seq) + 1 || !writes_are_on(self, l)) {
            ledger_gen_log_free(log);
            return;
        }
        enum err err = ledger_checkpoint_write(l, log);
        if (err == ERR_OK)
            break;
        atomic_store(&l->checkpoint_failing, true);
        obs_counter_inc(ledger_m_counter(l, LEDGER_M_checkpoint_fail));
        obs_log(l->deps.log, OBS_WARN, "checkpoint_failed", OBS_ERR(err), OBS_END);
        if (rt_task_stopping(self) || rt_task_sleep(self, deadline_in_ms(RETRY_MS)) != ERR_OK) {
            ledger_gen_log_free(log);
            return;
        }
    }
    atomic_store(&l->checkpoint_failing, false);
    double took = (double)(c->mono_ns(c->ctx) - began) / 1e9;
    obs_hist_observe(obs_hist(l->m[LEDGER_M_checkpoint_seconds]), took);
    obs_log(l->deps.log, OBS_INFO, "checkpoint_done", OBS_U64("seq", entries), OBS_F64("seconds", took),
            OBS_END);
}

static bool at_once(void *ctx, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    return true;
}

/* One slice. True: there is more to do. */
static bool merge_some(struct ledger *l) RT_BLOCKS
{
    bool more = false;
    enum err err = ledger_safe_cause(l) == CAUSE_NONE ? ledger_checkpoint_merge(l, &more) : ERR_OK;
    if (err == ERR_CORRUPT && ledger_checkpoint_reread(l, (struct ledger_reread){at_once, NULL}) != ERR_OK)
        more = false;    /* which one it was is known, and nothing is written any more */
    if (err != ERR_OK) { /* more runs than need be, nothing else; tried again after the next generation */
        obs_counter_inc(ledger_m_counter(l, LEDGER_M_checkpoint_fail));
        obs_log(l->deps.log, OBS_WARN, "checkpoint_failed", OBS_STR("step", "merge"), OBS_ERR(err),
                OBS_END);
    }
    return more;
}

enum err ledger_checkpointer_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    struct ledger *l = s->l;
    int64_t asked_ns = l->deps.clock->mono_ns(l->deps.clock->ctx);
    bool merging = !l->set.amnesia;
    svc_background_cpu();
    svc_background_io(true);
    for (;;) {
        void *item = NULL;
        bool owed = merging && ledger_checkpoint_merge_owed(l) && !rt_task_stopping(self);
        enum err err = rt_task_canceled(self) ? ERR_CANCELED /* merging waits for nothing that would tell */
                       : owed                 ? ERR_EMPTY
                       : merging              ? rt_chan_try_recv(l->gen_tx, &item)
                                              : rt_chan_recv(l->gen_tx, deadline_in_ms(200), &item);
        int64_t now = l->deps.clock->mono_ns(l->deps.clock->ctx);
        if (err == ERR_OK) {
            write_one(self, l, item);
            asked_ns = now;
            merging = true;
        } else if (err == ERR_EMPTY) {
            merging = merge_some(l);
        } else if (err == ERR_TIMEOUT) {
            /* Old enough? Then the sequencer ends the open generation. */
            if (!l->set.amnesia && now - asked_ns > l->set.checkpoint_interval_ms * 1000000 &&
                ledger_head_seq(l) > atomic_load(&l->checkpoint_seq)) {
                atomic_store(&l->want_gen, true);
                asked_ns = now;
            }
        } else {
            break;
        }
    }
    /* The committer has ended: what is left is complete. A last checkpoint makes the next start short. */
    if (!rt_task_canceled(self) && !l->set.amnesia && l->gen_log_last != NULL &&
        ledger_safe_cause(l) == CAUSE_NONE &&
        ledger_gen_last_seq(l->gen_log_last->gen) == ledger_head_seq(l) &&
        ledger_gen_last_seq(l->gen_log_last->gen) >= l->gen_log_last->gen->first_seq) {
        struct ledger_gen_log *log = l->gen_log_last;
        l->gen_log_last = NULL;
        write_one(self, l, log);
    }
    return ERR_OK;
}
