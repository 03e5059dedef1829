/*
 * preval_tx → rounds → commit_tx. Its state lies in the engine: when this task fails, the next one waits until what was sent is
 * committed, sets ahead back to committed and goes on with the next seq.
 */
#include "base/check.h"
#include "rt/task.h"
#include "services/ledger/service.h"
#include "services/ledger/trace.h"

enum { ROOM_WAIT_MS = 2000 };

/* What was sent and is not settled yet, in commit_tx or in the committer's hands, has bytes in flight (ledger_sequence adds them,
 * ledger_commit takes them off): until they are gone the committed state is not yet what was given out. */
static enum err catch_up(struct rt_task *self, struct ledger *l) RT_BLOCKS
{
    while (rt_chan_depth(l->commit) > 0 ||
           atomic_load_explicit(&l->inflight_bytes, memory_order_acquire) != 0) {
        enum err err = rt_task_pause(self, deadline_in_ms(1));
        if (err != ERR_OK)
            return err;
        rt_task_beat(self);
    }
    if (l->next_seq != ledger_head_seq(l) + 1) { /* a flush failed: what was ahead of it never came to be */
        ledger_state_reset_ahead(l->state);
        l->next_seq = ledger_head_seq(l) + 1;
    }
    return ERR_OK;
}

static void send_round(struct ledger *l, struct ledger_round *r, int64_t began_ns)
{
    for (uint32_t i = 0; i < r->n_out; i++)
        ledger_trace_stage(l, r->out[i], "sequencer", "preval", r->n, began_ns, ERR_OK);
    for (uint32_t i = 0; i < r->n_refused; i++)
        ledger_trace_stage(l, r->refused[i], "sequencer", "preval", r->n, began_ns, r->refused[i]->err);
    size_t n = 0;
    if (r->n_out > 0) /* every slot was counted before its job was judged */
        CHECK(rt_chan_try_send_batch(l->commit, (void *const *)r->out, r->n_out, &n) == ERR_OK &&
              n == r->n_out);
    for (uint32_t i = 0; i < r->n_refused; i++)
        ledger_answer(l, r->refused[i]);
}

/*
 * The keeper makes the next segment while we fill the last one. When it is behind, and not because the disk is full, waiting a
 * little is better than refusing: callers meet the backpressure of the queues instead.
 */
static void wait_for_room(struct rt_task *self, struct ledger *l) RT_BLOCKS
{
    for (unsigned i = 0; i < ROOM_WAIT_MS && !ledger_has_room(l) && !atomic_load(&l->disk_pressure) &&
                         ledger_safe_cause(l) == CAUSE_NONE;
         i++) {
        if (rt_task_pause(self, deadline_in_ms(1)) != ERR_OK)
            return;
        rt_task_beat(self);
    }
}

static struct deadline next_wake(struct ledger *l)
{
    uint64_t expiry = ledger_state_next_expiry(l->state), now = ledger_now_ms(l);
    if (expiry == UINT64_MAX || expiry > now + 1000)
        return deadline_in_ms(1000);
    return deadline_in_ms(expiry > now ? (int64_t)(expiry - now) : 1);
}

static enum err run(struct rt_task *self, struct ledger *l) RT_BLOCKS
{
    /* A standby's state belongs to the replica task until it has taken over. */
    while (atomic_load_explicit(&l->phase, memory_order_acquire) == PHASE_FOLLOWING) {
        rt_task_beat(self);
        if (rt_task_sleep(self, deadline_in_ms(5)) != ERR_OK)
            break;
    }
    if (atomic_load_explicit(&l->phase, memory_order_acquire) == PHASE_FOLLOWING)
        return ERR_OK;
    enum err err = catch_up(self, l);
    if (err != ERR_OK)
        return err;
    struct ledger_round *r = &l->round;
    int64_t full_since = 0;
    for (;;) {
        size_t n = 0;
        r->n = 0;
        err = rt_chan_recv_batch(l->preval, (void **)r->jobs, ROUND_JOBS_MAX, next_wake(l), &n);
        rt_task_beat(self);
        if (err == ERR_CLOSED)
            return ERR_OK;
        if (err != ERR_OK && err != ERR_TIMEOUT)
            return rt_task_stopping(self) ? ERR_OK : err;
        r->n = (uint32_t)n;
        size_t depth = rt_chan_depth(l->commit);
        uint32_t slots = depth < l->set.q_commit ? l->set.q_commit - (uint32_t)depth : 0;
        if (slots == 0 && full_since == 0)
            full_since = l->deps.clock->mono_ns(l->deps.clock->ctx);
        if (slots > 0)
            full_since = 0;
        if (full_since != 0 && l->deps.clock->mono_ns(l->deps.clock->ctx) - full_since > 1000000000)
            obs_log(l->deps.log, OBS_WARN, "commit_backpressure", OBS_U64("depth", depth), OBS_END);
        if (r->n > 0)
            wait_for_room(self, l);
        int64_t began_ns = l->deps.clock->mono_ns(l->deps.clock->ctx);
        ledger_sequence(l, r, slots);
        send_round(l, r, began_ns);
    }
}

enum err ledger_sequencer_run(struct rt_task *self, void *arg)
{
    struct ledger *l = ((struct ledger_service *)arg)->l;
    enum err err = run(self, l);
    if (rt_chan_is_closed(l->preval)) /* out of time: what is left has no seq */
        ledger_answer_queued(l, l->preval, ERR_DRAINING);
    return err;
}
