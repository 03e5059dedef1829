/*
 * A computation shared by a lead and helpers, on the real job.c: every part of every phase runs exactly once, no part runs
 * while a phase is closed or after the lead has gone on, and nobody waits for ever; also when the job is told to stop half way
 * and when a helper comes late.
 */
#include "base/check.h"
#include "model.h"
#include "rt/os.h"
#include "rt/task_internal.h"
#include "services/rewarder/tasks/job.h"

enum { PARTS_MAX = 2 };

/* Stands in for the calculus: counts, and aborts when it is used in the wrong order. */
struct rewarder_calc {
    struct os_a32 runs[REWARDER_PHASES][PARTS_MAX];
    struct os_a32 running;
    struct os_a32 phase;      /* the one that is open */
    struct os_a32 stop_after; /* stop() says yes after so many questions; 0: never */
    struct os_a32 asked;
};

/* Two phases with parts; the others are empty, as ranking is for a floor policy. */
uint64_t rewarder_calc_parts(const struct rewarder_calc *c, enum rewarder_phase phase)
{
    (void)c;
    return phase == REWARDER_SCORES ? 2 : phase == REWARDER_COMMIT ? 1 : 0;
}

enum err rewarder_calc_part(struct rewarder_calc *c, enum rewarder_phase phase, uint64_t part)
{
    os_a32_add(&c->running, 1, memory_order_acq_rel);
    CHECK(os_a32_load(&c->phase, memory_order_acquire) == (uint32_t)phase);
    CHECK(part < rewarder_calc_parts(c, phase));
    CHECK(os_a32_add(&c->runs[phase][part], 1, memory_order_acq_rel) == 0);
    os_a32_add(&c->running, (uint32_t)-1, memory_order_acq_rel);
    return ERR_OK;
}

enum err rewarder_calc_close(struct rewarder_calc *c, enum rewarder_phase phase)
{
    CHECK(os_a32_load(&c->running, memory_order_acquire) == 0);
    for (uint64_t p = 0; p < rewarder_calc_parts(c, phase); p++)
        CHECK(os_a32_load(&c->runs[phase][p], memory_order_acquire) == 1);
    os_a32_store(&c->phase, (uint32_t)phase + 1, memory_order_release);
    return ERR_OK;
}

static bool stop(void *ctx)
{
    struct rewarder_calc *c = ctx;
    uint32_t after = os_a32_load(&c->stop_after, memory_order_relaxed);
    return after && os_a32_add(&c->asked, 1, memory_order_relaxed) + 1 >= after;
}

static void note_phase(void *ctx, enum rewarder_phase phase, uint64_t parts)
{
    (void)ctx;
    (void)phase;
    (void)parts;
}

static void note_progress(void *ctx, uint64_t done)
{
    (void)ctx;
    (void)done;
}

static void note_took(void *ctx, enum rewarder_phase phase, int64_t ns)
{
    (void)ctx;
    (void)phase;
    (void)ns;
}

struct rig {
    struct rewarder_calc calc;
    struct rewarder_job *job;
    struct rt_task self; /* only its heartbeat is used */
};

static void rig_open(struct rig *g, uint32_t stop_after)
{
    *g = (struct rig){.job = NULL};
    os_a32_store(&g->calc.stop_after, stop_after, memory_order_relaxed);
    g->job = rewarder_job_create(
        &g->calc, &(struct rewarder_job_hooks){&g->calc, stop, note_phase, note_progress, note_took});
    CHECK(g->job);
}

RT_BLOCKS
static void help(void *arg)
{
    struct rig *g = arg;
    rewarder_job_help(g->job, &g->self);
    rewarder_job_unref(g->job);
}

static void start(struct os_thread *t, struct rig *g)
{
    rewarder_job_ref(g->job);
    CHECK(os_thread_start(t, "helper", help, g) == ERR_OK);
}

static void check_all_ran(const struct rig *g)
{
    for (enum rewarder_phase ph = REWARDER_SCORES; ph < REWARDER_PHASES; ph++)
        for (uint64_t p = 0; p < rewarder_calc_parts(&g->calc, ph); p++)
            CHECK(os_a32_load(&g->calc.runs[ph][p], memory_order_acquire) == 1);
}

RT_BLOCKS
static void a_lead_and_a_helper_run_every_part_once(void)
{
    static struct rig g;
    struct os_thread helper;
    rig_open(&g, 0);
    start(&helper, &g);
    CHECK(rewarder_job_lead(g.job) == ERR_OK);
    check_all_ran(&g);
    rewarder_job_unref(g.job);
    os_thread_join(&helper);
}

/* The lead stops at any question; what a helper has claimed is finished before the lead returns. */
RT_BLOCKS
static void a_stopped_job_has_no_part_running_when_the_lead_is_back(void)
{
    static struct rig g;
    struct os_thread helper;
    rig_open(&g, 2);
    start(&helper, &g);
    enum err e = rewarder_job_lead(g.job);
    CHECK(os_a32_load(&g.calc.running, memory_order_acquire) == 0);
    CHECK(e == ERR_CANCELED);
    uint32_t ran = os_a32_load(&g.calc.runs[REWARDER_SCORES][0], memory_order_acquire) +
                   os_a32_load(&g.calc.runs[REWARDER_SCORES][1], memory_order_acquire);
    model_cover(ran == 2 ? 0 : 1);
    rewarder_job_unref(g.job);
    os_thread_join(&helper);
    CHECK(os_a32_load(&g.calc.runs[REWARDER_SCORES][0], memory_order_acquire) +
              os_a32_load(&g.calc.runs[REWARDER_SCORES][1], memory_order_acquire) ==
          ran); /* nothing ran behind the lead's back */
}

RT_BLOCKS
static void a_late_ticket_returns_at_once(void)
{
    static struct rig g;
    struct os_thread helper;
    rig_open(&g, 0);
    CHECK(rewarder_job_lead(g.job) == ERR_OK);
    start(&helper, &g);
    rewarder_job_unref(g.job);
    os_thread_join(&helper);
    check_all_ran(&g);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "a_lead_and_a_helper_run_every_part_once",
         .body = a_lead_and_a_helper_run_every_part_once,
         .preemptions = 2},
        {.name = "a_stopped_job_has_no_part_running_when_the_lead_is_back",
         .body = a_stopped_job_has_no_part_running_when_the_lead_is_back,
         .preemptions = 3,
         .covers = 1},
        {.name = "a_late_ticket_returns_at_once", .body = a_late_ticket_returns_at_once},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
