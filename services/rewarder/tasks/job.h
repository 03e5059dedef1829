/*
 * One computation shared by a lead and its helpers.
 *
 * The lead opens a phase by publishing (phase, part 0) in one word; everybody claims the next part from that word, so a
 * claim always belongs to the phase it was made in. Whoever finishes the last part tells the lead, who closes the phase
 * (serially) and opens the next. The lead alone can finish: helpers only make it faster.
 *
 * Ownership   Counted; the lead and each ticket hold one reference.
 * Threads     rewarder_job_lead() by the lead, rewarder_job_help() by any number of helpers.
 */
#ifndef RON_REWARDER_TASKS_JOB_H
#define RON_REWARDER_TASKS_JOB_H

#include "rt/task.h"
#include "services/rewarder/core/calc.h"

struct rewarder_job;

struct rewarder_job_hooks {
    void *ctx;
    bool (*stop)(void *ctx); /* asked by the lead between parts: deadline, cancellation */
    void (*phase)(void *ctx, enum rewarder_phase phase, uint64_t parts); /* a phase begins */
    void (*progress)(void *ctx, uint64_t done);                          /* from any thread */
    void (*took)(void *ctx, enum rewarder_phase phase, int64_t ns);
};

struct rewarder_job *rewarder_job_create(struct rewarder_calc *calc,
                                         const struct rewarder_job_hooks *hooks);
struct rewarder_job *rewarder_job_ref(struct rewarder_job *j);
void rewarder_job_unref(struct rewarder_job *j);

/* All phases. ERR_CANCELED when stop() said so; else as rewarder_calc_part() and rewarder_calc_close(). */
NODISCARD enum err rewarder_job_lead(struct rewarder_job *j) RT_BLOCKS;
/* Returns when the job is over, or when the calling task is to stop. */
void rewarder_job_help(struct rewarder_job *j, struct rt_task *self) RT_BLOCKS;

#endif
