/*
 * A task: a thread with a name, an owner (the supervisor) and a way to be told to end. This is the side that the
 * task itself sees; supervisor.h is the owner's.
 *
 * Stopping    Softly: rt_task_stopping() turns true, sleeps and watch and broadcast waits end; the task empties
 *             its channels until they say ERR_CLOSED, then returns ERR_OK. Hard: every wait ends with
 *             ERR_CANCELED; the task answers what it holds and returns. State that must survive lies outside.
 * Failing     Returning an error while nobody asked it to stop; or missing its heartbeat while awake.
 * Ownership   The task is the supervisor's; `self` is good until run() returns.
 * Threads     Beating, sleeping and pausing by the task's own thread; questions about it by any.
 * Memory      Nothing here allocates.
 */
#ifndef RON_RT_TASK_H
#define RON_RT_TASK_H

#include <stdbool.h>

#include "base/err.h"
#include "rt/deadline.h"
#include "rt/lock.h"

/* What the supervisor does about a failure. */
enum rt_on_fail {
    RT_RESTART,  /* start it again after a back-off; too often: tell (escalate) and go on trying */
    RT_ESCALATE, /* tell, leave it down */
    RT_ABORT,    /* tell, and drain the whole service: it cannot go on without */
};

struct rt_task;

struct rt_task_spec {
    const char *name; /* as in topology.def; instances of several are name-0, name-1 … */
    const char *kind; /* label of the tasks_* counters; NULL: the name */
    unsigned count;   /* threads; 0 is 1 */
    enum err (*run)(struct rt_task *self, void *arg);
    void *arg;
    enum rt_on_fail on_fail;
    int64_t heartbeat_ms; /* silence allowed while awake; 0: none is due */
    unsigned drain_step;

    /* For a task that sleeps elsewhere (an event loop): called after each request to stop, from the supervisor's
     * thread; wakes it so that it looks at rt_task_stopping(). May be NULL. */
    void (*wake)(struct rt_task *self, void *arg);
};

struct rt_task *rt_task_current(void); /* NULL: this thread is no task */
const char *rt_task_name(const struct rt_task *t);
unsigned rt_task_index(const struct rt_task *t); /* 0 .. count-1 */

void rt_task_beat(struct rt_task *self);           /* alive; sleeping in rt counts as a beat */
bool rt_task_stopping(const struct rt_task *self); /* softly or hard */
bool rt_task_canceled(const struct rt_task *self); /* hard */
NODISCARD enum err rt_task_sleep(struct rt_task *self,
                                 struct deadline by) RT_BLOCKS; /* ERR_OK, ERR_CANCELED */
/* The same for waiting inside work that a soft stop lets finish: only a hard cancel ends it early. */
NODISCARD enum err rt_task_pause(struct rt_task *self, struct deadline by) RT_BLOCKS;

#endif
