/*
 * The way down: a state machine without threads, clocks or locks; the supervisor carries out what it says.
 *
 *     RUNNING --begin--> DRAINING --last step empty--> STOPPED
 *                            |                            ^
 *                            '--a deadline, or hurry--> ABORTING
 *
 * Steps are entered in rising order. Entering one runs its hook (which stops intake, or closes the queue that
 * feeds it) and asks its tasks to finish. A step that is not empty by its deadline has its tasks cancelled, which
 * makes the drain ABORTING; tasks that ignore even that for `grace_ms` are given up as leaked. Later steps are
 * still entered, so that what earlier stages passed on is not lost. Hurrying (a second signal, or the overall
 * deadline) gives every step left no time at all.
 *
 * Ownership   Steps are copied in; their names and contexts are borrowed until STOPPED.
 * Threads     One at a time: the supervisor's. Hooks are called by it, not from here.
 * Memory      Allocates nothing.
 */
#ifndef RON_RT_DRAIN_H
#define RON_RT_DRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rt_drain_state { RT_DRAIN_RUNNING, RT_DRAIN_DRAINING, RT_DRAIN_ABORTING, RT_DRAIN_STOPPED };

const char *rt_drain_state_name(enum rt_drain_state s); /* "running" … */

/* Declared by a service; `step` is what TASK() of its topology.def names. */
struct rt_drain_step {
    unsigned step;
    const char *name;
    int64_t deadline_ms; /* 0: the overall one */
    int64_t (*deadline_for)(
        void *ctx);           /* instead of deadline_ms, asked when the step is entered; may be NULL */
    void (*begin)(void *ctx); /* may be NULL; must not wait */
    void *ctx;
};

enum { RT_DRAIN_STEPS_MAX = 32 };

enum rt_drain_action {
    RT_DRAIN_WAIT,    /* nothing before rt_drain_next_ns() or until a task ends */
    RT_DRAIN_ENTER,   /* run the current step's hook, ask its tasks to finish */
    RT_DRAIN_CANCEL,  /* cancel what is left of the current step */
    RT_DRAIN_GIVE_UP, /* count what is left of it as leaked */
    RT_DRAIN_FINISH,  /* STOPPED */
};

struct rt_drain {
    enum rt_drain_state state;
    struct rt_drain_step steps[RT_DRAIN_STEPS_MAX]; /* rising */
    size_t steps_n, at;
    int64_t overall_ms, grace_ms;
    int64_t overall_by_ns, step_by_ns, grace_by_ns;
    bool entered, canceled, hurry;
};

void rt_drain_init(struct rt_drain *d, int64_t overall_ms, int64_t grace_ms);
void rt_drain_add(struct rt_drain *d,
                  const struct rt_drain_step *step);     /* a step declared before stays as it was */
void rt_drain_begin(struct rt_drain *d, int64_t now_ns); /* a second time: hurry */
void rt_drain_hurry(struct rt_drain *d);

/* What to do now; `left` is how many tasks of the current step have not ended. Call again until RT_DRAIN_WAIT. */
enum rt_drain_action rt_drain_next(struct rt_drain *d, int64_t now_ns, unsigned left);
const struct rt_drain_step *rt_drain_current(const struct rt_drain *d); /* not after STOPPED */
int64_t rt_drain_next_ns(const struct rt_drain *d);                     /* INT64_MAX: no time-out pending */

#endif
