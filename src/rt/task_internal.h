/* What supervisor.c and task.c share. A task belongs to its supervisor; fields say who else touches them. */
#ifndef RON_RT_TASK_INTERNAL_H
#define RON_RT_TASK_INTERNAL_H

#include "rt/backoff.h"
#include "rt/os.h"
#include "rt/stop.h"
#include "rt/supervisor.h"
#include "rt/task.h"
#include "rt/word.h"

#define RT_SUPERVISOR_EVENT 2u /* one step of the supervisor's event word */

enum { RT_TASK_MAGIC = 0x6b736174, RT_TASK_NAME_MAX = 48, RT_TASK_RESTARTS_MAX = 32 };

struct rt_task {
    uint32_t magic;
    struct rt_task *next;
    struct rt_task_spec spec;
    char name[RT_TASK_NAME_MAX];
    unsigned index;

    struct rt_stop stop;        /* supervisor asks, the task's waits obey */
    struct rt_word nap;         /* never changes: sleeping is waiting for it in vain */
    struct rt_word *ended_word; /* the supervisor's; counted up as the thread's last act */
    struct os_a32 ended;        /* release by the thread, acquire by the supervisor: `result` is there */
    enum err result;
    struct os_a32 drill; /* set by anybody, taken by the supervisor */

    /* The supervisor's own. */
    struct os_thread thread;
    bool failing;   /* cancelled because of a drill or a missed beat: whatever it returns is a failure */
    bool finishing; /* its drain step was entered */
    bool escalated;
    struct rt_backoff backoff;
    int64_t restart_at_ns, started_ns;
    int64_t failures_ns[RT_TASK_RESTARTS_MAX]; /* ring of the last ones */
    unsigned failures_n;

    /* For anybody to read. */
    struct os_count state, last_result, is_escalated;
    struct os_count spawned, canceled, aborted, leaked;
};

struct rt_task *rt_task__create(const struct rt_task_spec *spec, unsigned index,
                                struct rt_word *ended_word);
void rt_task__destroy(struct rt_task *t);
NODISCARD enum err rt_task__start(struct rt_task *t);
int64_t rt_task__silent_ns(const struct rt_task *t,
                           int64_t now_ns); /* 0 while asleep, or without heartbeat */

#endif
