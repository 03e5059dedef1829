/*
 * Sequencer, commit_tx, committer and the drain: the real task loops over the real channels and supervisor, with rules and disk
 * replaced by the least that can be wrong. Whatever the order of steps: every job is answered exactly once, seqs are committed in
 * order without gap, a refused job takes none, a failed flush commits nothing after it, and everything is joined. A sequencer that
 * fails with groups in flight is followed by one that goes on exactly behind them. A generation that ends is handed over when all of
 * it is durable, and before anything behind it is.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model.h"
#include "rt/os.h"
#include "rt/supervisor.h"
#include "services/ledger/service.h"
#include "services/ledger/trace.h"

enum { JOBS = 3 };

/* What this run is about; one run at a time. */
static struct shop {
    struct ledger *l;
    struct ledger_service service;
    struct ledger_job job[JOBS], turn; /* turn: ends a generation behind the first entry */
    unsigned n_jobs, answered[JOBS];
    uint64_t committed, fails_at; /* the commit that fails, counted from 1; 0: none */
    unsigned commits, resets, turns, turned;
    struct os_a64 device; /* a flush takes its time: others run meanwhile */
} * shop;

/* ---- the least of a ledger ---- */

static int64_t mono_ns(void *ctx)
{
    (void)ctx;
    return os_now_ns();
}

static int64_t wall_ms(void *ctx)
{
    (void)ctx;
    return 0;
}

static const struct clock model_clock = {mono_ns, wall_ms, NULL};

uint64_t ledger_now_ms(struct ledger *l)
{
    (void)l;
    return 1;
}

uint64_t ledger_state_next_expiry(struct ledger_state *s)
{
    (void)s;
    return UINT64_MAX;
}

void ledger_state_reset_ahead(struct ledger_state *s)
{
    (void)s;
    shop->resets++;
}

bool ledger_has_room(struct ledger *l)
{
    (void)l;
    return true;
}

/* Answers do not travel here. */
void net_loop_cork(void)
{
}

void net_loop_uncork(void)
{
}

void ledger_trace_stage(struct ledger *l, const struct ledger_job *job, const char *stage,
                        const char *queue, uint64_t batch, int64_t began_ns, enum err err)
{
    (void)l, (void)job, (void)stage, (void)queue, (void)batch, (void)began_ns, (void)err;
}

bool obs_log_enabled(const struct obs_log *lg, enum obs_level level)
{
    (void)lg, (void)level;
    return false;
}

void obs_log_write(struct obs_log *lg, enum obs_level level, const char *event,
                   const struct obs_field *fields)
{
    (void)lg, (void)level, (void)event, (void)fields;
}

bool ledger_enter_safe_mode(struct ledger *l, enum ledger_cause cause, const char *detail)
{
    (void)detail;
    int none = CAUSE_NONE;
    return atomic_compare_exchange_strong(&l->cause, &none, (int)cause);
}

bool ledger_group_takes(const struct ledger *l, struct ledger_group_size *g, const struct ledger_job *job)
{
    (void)l, (void)job;
    return g->entries++ == 0; /* one job per group: the most hand-overs */
}

void ledger_sequence(struct ledger *l, struct ledger_round *r, uint32_t slots)
{
    r->n_out = r->n_refused = 0;
    if (l->next_seq > 1 && slots > 0 && atomic_exchange(&l->want_gen, false)) {
        shop->turn =
            (struct ledger_job){.magic = LEDGER_JOB_MAGIC, .own = true, .tree_size = l->next_seq - 1};
        r->out[r->n_out++] = &shop->turn;
        shop->turns++;
        slots--;
    }
    for (uint32_t i = 0; i < r->n; i++) {
        struct ledger_job *job = r->jobs[i];
        if (slots == 0 || ledger_safe_cause(l) != CAUSE_NONE) {
            job->err = slots == 0 ? ERR_BUSY : ERR_SAFE_MODE;
            r->refused[r->n_refused++] = job;
            continue;
        }
        slots--;
        job->new_entries = 1;
        job->tree_size = l->next_seq++;
        atomic_fetch_add(&l->inflight_bytes, 1);
        r->out[r->n_out++] = job;
    }
}

enum err ledger_commit(struct ledger *l, struct ledger_job *const *jobs, uint32_t n)
{
    if (jobs[0]->own) { /* alone in its group */
        if (ledger_safe_cause(l) != CAUSE_NONE)
            return ERR_SAFE_MODE;
        CHECK(n == 1 &&
              shop->committed == jobs[0]->tree_size); /* all of it is durable, and nothing behind it */
        shop->turned++;
        return ERR_OK;
    }
    if (ledger_safe_cause(l) != CAUSE_NONE) {
        atomic_fetch_sub(&l->inflight_bytes, n);
        return ERR_SAFE_MODE;
    }
    atomic_store(&l->commit_began_ns, 1);
    os_a64_add(&shop->device, 1, memory_order_relaxed);
    bool fails = ++shop->commits == shop->fails_at;
    for (uint32_t i = 0; !fails && i < n; i++) {
        CHECK(jobs[i]->tree_size == shop->committed + 1); /* in order, no gap, never twice */
        shop->committed++;
        atomic_store(&l->head_seq, shop->committed);
    }
    if (fails)
        ledger_enter_safe_mode(l, CAUSE_IO_ERROR, "");
    atomic_fetch_sub(&l->inflight_bytes, n);
    atomic_store(&l->commit_began_ns, 0);
    return fails ? ERR_IO : ERR_OK;
}

void ledger_answer(struct ledger *l, struct ledger_job *job)
{
    (void)l;
    if (job == &shop->turn)
        return; /* nobody waits */
    size_t i = (size_t)(job - shop->job);
    CHECK(i < shop->n_jobs && shop->answered[i]++ == 0);
    if (job->err == ERR_OK)
        CHECK(job->tree_size != 0 && job->tree_size <= shop->committed); /* acknowledged means durable */
}

/* ---- the shop ---- */

static void close_preval(void *ctx)
{
    rt_chan_close(((struct ledger *)ctx)->preval);
}

static void close_commit(void *ctx)
{
    rt_chan_close(((struct ledger *)ctx)->commit);
}

RT_BLOCKS
static void run_shop(unsigned n_jobs, size_t commit_slots, uint64_t fails_at, bool second_signal,
                     bool sequencer_fails, bool generation_ends)
{
    struct shop *s = shop = os_alloc(sizeof *s);
    struct ledger *l = os_alloc(sizeof *l);
    CHECK(s != NULL && l != NULL);
    memset(s, 0, sizeof *s);
    memset(l, 0, sizeof *l);
    s->l = s->service.l = l;
    s->fails_at = fails_at;
    s->n_jobs = n_jobs;
    l->deps.clock = &model_clock;
    l->next_seq = 1;
    l->set.q_commit = (uint32_t)commit_slots;
    atomic_store(&l->want_gen, generation_ends);
    l->preval = rt_chan_create(
        &(struct rt_chan_spec){.name = "preval", .capacity = JOBS, .policy = RT_DROP_OLDEST});
    l->commit = rt_chan_create(&(struct rt_chan_spec){.name = "commit", .capacity = commit_slots});
    l->late = rt_chan_create(&(struct rt_chan_spec){.name = "late", .capacity = 1});
    struct rt_drain_step steps[] = {{.step = 2, .name = "sequencer", .begin = close_preval, .ctx = l},
                                    {.step = 3, .name = "committer", .begin = close_commit, .ctx = l}};
    struct rt_supervisor *sup =
        rt_supervisor_create(&(struct rt_supervisor_spec){.name = "model", .steps = steps, .steps_n = 2});
    CHECK(l->preval && l->commit && l->late && sup);
    CHECK(rt_supervisor_add(sup, &(struct rt_task_spec){.name = "sequencer",
                                                        .run = ledger_sequencer_run,
                                                        .arg = &s->service,
                                                        .drain_step = 2}) == ERR_OK);
    CHECK(rt_supervisor_add(sup, &(struct rt_task_spec){.name = "committer",
                                                        .run = ledger_committer_run,
                                                        .arg = &s->service,
                                                        .on_fail = RT_ABORT,
                                                        .drain_step = 3}) == ERR_OK);
    CHECK(rt_supervisor_start(sup) == ERR_OK);
    size_t sent = 0;
    for (; sent < n_jobs; sent++) {
        void *dropped = NULL;
        s->job[sent].magic = LEDGER_JOB_MAGIC;
        CHECK(rt_chan_push_drop_oldest(l->preval, &s->job[sent], &dropped) == ERR_OK && dropped == NULL);
        if (sequencer_fails && sent == 1)
            CHECK(rt_supervisor_fail(sup, "sequencer") == ERR_OK);
    }
    rt_supervisor_drain(sup);
    if (second_signal)
        rt_supervisor_drain(sup);
    struct rt_drain_report report;
    CHECK(rt_supervisor_join(sup, deadline_never(), &report) == ERR_OK);
    CHECK(report.leaked == 0);
    rt_supervisor_destroy(sup);
    CHECK(second_signal || report.aborted == 0);
    CHECK(rt_chan_depth(l->preval) == 0 && rt_chan_depth(l->commit) == 0);
    for (size_t i = 0; i < n_jobs; i++)
        CHECK(s->answered[i] == 1); /* however short the time was */
    uint64_t ok = 0, busy = 0;
    for (size_t i = 0; i < n_jobs; i++) {
        ok += s->answered[i] == 1 && s->job[i].err == ERR_OK;
        busy += s->job[i].err == ERR_BUSY;
    }
    CHECK(ok == s->committed && l->next_seq - 1 >= s->committed);
    if (commit_slots == n_jobs && fails_at == 0 && !second_signal && !sequencer_fails)
        CHECK(ok == n_jobs);
    if (fails_at != 0 && !second_signal && s->commits >= fails_at)
        CHECK(s->committed == fails_at - 1); /* nothing after the failed flush */
    if (fails_at == 0)
        CHECK(s->resets == 0); /* nothing ahead was lost */
    CHECK(s->turned == s->turns || fails_at != 0 || second_signal);
    model_cover(generation_ends ? s->turned : busy != 0 ? 1 : 0);
    rt_chan_destroy(l->preval, NULL, NULL);
    rt_chan_destroy(l->commit, NULL, NULL);
    rt_chan_destroy(l->late, NULL, NULL);
    os_free(l);
    os_free(s);
}

/* One slot between the two: some jobs are refused before they have a seq, in some schedules none. */
RT_BLOCKS
static void a_full_commit_queue_refuses_before_a_seq_and_the_drain_answers_everybody(void)
{
    run_shop(2, 1, 0, false, false, false);
}

RT_BLOCKS
static void with_room_for_all_the_drain_commits_all_in_order(void)
{
    run_shop(2, 2, 0, false, false, false);
}

RT_BLOCKS
static void after_a_failed_flush_nothing_is_committed_and_everybody_is_answered(void)
{
    run_shop(2, 2, 2, false, false, false);
}

RT_BLOCKS
static void a_drain_without_time_answers_everybody_exactly_once(void)
{
    run_shop(2, 2, 0, true, false, false);
}

RT_BLOCKS
static void a_sequencer_that_fails_with_groups_in_flight_is_followed_without_gap_or_repeat(void)
{
    run_shop(JOBS, JOBS, 0, false, true, false);
}

/* Whether it was asked for before, between or behind the jobs. */
RT_BLOCKS
static void a_generation_that_ends_is_handed_over_behind_its_last_entry(void)
{
    run_shop(2, JOBS, 0, false, false, true);
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "a_full_commit_queue_refuses_before_a_seq_and_the_drain_answers_everybody",
         .body = a_full_commit_queue_refuses_before_a_seq_and_the_drain_answers_everybody,
         .preemptions = 1,
         .covers = 2},
        {.name = "with_room_for_all_the_drain_commits_all_in_order",
         .body = with_room_for_all_the_drain_commits_all_in_order,
         .preemptions = 1,
         .covers = 1},
        {.name = "after_a_failed_flush_nothing_is_committed_and_everybody_is_answered",
         .body = after_a_failed_flush_nothing_is_committed_and_everybody_is_answered,
         .preemptions = 1,
         .covers = 1},
        {.name = "a_drain_without_time_answers_everybody_exactly_once",
         .body = a_drain_without_time_answers_everybody_exactly_once,
         .preemptions = 1,
         .covers = 1},
        {.name = "a_sequencer_that_fails_with_groups_in_flight_is_followed_without_gap_or_repeat",
         .body = a_sequencer_that_fails_with_groups_in_flight_is_followed_without_gap_or_repeat,
         .preemptions = 1,
         .covers = 1},
        {.name = "a_generation_that_ends_is_handed_over_behind_its_last_entry",
         .body = a_generation_that_ends_is_handed_over_behind_its_last_entry,
         .preemptions = 1,
         .covers = 2},
    };
    return model_main(argc, argv, models, sizeof models / sizeof models[0]);
}
