/*
 * How a task is told to end (internal). Each task has one; its waits look at it and register here while they
 * sleep, so that the request reaches a sleeper.
 *
 * RT_STOP_SOFT   finish: sleeps, watch and broadcast waits end; channels go on until they are closed and empty.
 * RT_STOP_HARD   end now: every wait ends with ERR_CANCELED.
 */
#ifndef RON_RT_STOP_H
#define RON_RT_STOP_H

#include "rt/os.h"
#include "rt/self.h"

#define RT_STOP_SOFT 1u
#define RT_STOP_HARD 2u
#define RT_STOP_ANY  (RT_STOP_SOFT | RT_STOP_HARD)

struct rt_waiter;

struct rt_stop {
    struct os_mutex m;         /* guards sleeper; flags change under it */
    struct os_a32 flags;       /* release under m in rt_stop_request(); acquire in rt_stop_asked() */
    struct rt_waiter *sleeper; /* the task's thread, while it sleeps */

    /* Heartbeat. Sleeping in rt is no silence: `asleep` says so, and waking up is a beat. */
    bool beats;
    struct os_count asleep, beat_ns;
};

void rt_stop_init(struct rt_stop *s);
void rt_stop_fini(struct rt_stop *s);
void rt_stop_request(struct rt_stop *s, uint32_t flags);

/* Which of `flags` were asked of the calling task; 0 for a thread that is no task. */
static inline uint32_t rt_stop_asked(uint32_t flags)
{
    const struct rt_stop *s = rt_self()->stop;
    return s ? os_a32_load(&s->flags, memory_order_acquire) & flags : 0;
}

#endif
