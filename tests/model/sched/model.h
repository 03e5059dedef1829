/*
 * The model checker: runs a small concurrent program through every interleaving of its threads.
 *
 * A model is a function. It may start threads (os_thread_start, or a supervisor), must join them, and states what
 * must hold with CHECK. It is run again and again, each time under another schedule, so it keeps no state of its
 * own between runs (locals and os_alloc only). A run fails when
 *
 *     a CHECK fails                               nobody can go on (deadlock, lost wake-up)
 *     a thread is not joined, memory not freed    a mutex is unlocked by who does not hold it, or dies locked
 *     freed memory or a dead stack frame is used  it does not end (livelock)
 *
 * and the schedule that led there is printed; `--replay SCHEDULE --model NAME` runs just that one and prints every
 * step.
 *
 * Time        A virtual clock that stands still while any thread can run; when none can, it jumps to the next
 *             deadline. Besides, up to `timeouts` timed waits per run end early, at any moment, so that races with
 *             time-outs are explored without unbounded waiting.
 * Reduction   Without `preemptions`: dynamic partial-order reduction with sleep sets, i.e. one schedule out of each
 *             class that differs only in the order of independent steps; exhaustive. With `preemptions`: only
 *             schedules with at most so many preemptions, for models too large for that.
 */
#ifndef RON_TESTS_MODEL_SCHED_MODEL_H
#define RON_TESTS_MODEL_SCHED_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model {
    const char *name;
    void (*body)(void);
    unsigned timeouts;    /* early time-outs per run */
    unsigned preemptions; /* at most so many; 0: exhaustive */
    unsigned
        covers; /* places 0 .. covers-1 that some run must reach (model_cover), or the model proves nothing */
};

/* In a model: this place was reached. */
void model_cover(unsigned place);

/* In a model: what this run ended with; model_explore() collects them (self-test of the reduction). */
void model_outcome(uint64_t value);

#define MODEL_PREEMPTIONS_NONE 255 /* as .preemptions: bounded to none at all */

enum model_search {
    MODEL_REDUCED, /* as the model says */
    MODEL_NAIVE,   /* every interleaving, for the self-test */
};

struct model_result {
    bool failed;
    bool complete;      /* nothing was left out but by the bounds of the model itself */
    uint64_t runs, cut; /* complete runs; runs cut short because an equivalent one was done */
    unsigned steps_max;
    double seconds;
    unsigned covered; /* bits */
    char why[256];
    char schedule[4096];
};

/* runs_max 0: until done. `outcomes` may be NULL, else called for each model_outcome(). */
void model_explore(const struct model *m, enum model_search how, uint64_t runs_max,
                   void (*outcomes)(uint64_t value), struct model_result *out);

/*
 * main() of a model program. Options: --model NAME, --replay SCHEDULE, --expect-failure, --runs N. With
 * RON_MODEL_SECONDS=n in the environment each bounded model goes on without its bound for n seconds.
 */
int model_main(int argc, char **argv, const struct model *models, size_t n);

#endif
