/*
 * What rt keeps per thread (internal). Threads that no supervisor started have an all-zero block: no task,
 * nobody can cancel them, their waits end on a deadline or a close.
 */
#ifndef RON_RT_SELF_H
#define RON_RT_SELF_H

#include "rt/os.h"

struct rt_lock;
struct rt_task;
struct rt_stop;

enum { RT_SELF_LOCKS_MAX = 4 };

struct rt_self {
    struct rt_task *task;
    struct rt_stop *stop; /* inside *task */
    unsigned locks;
    const struct rt_lock *held[RT_SELF_LOCKS_MAX]; /* RON_DEBUG_LOCKS only */
};

_Static_assert(sizeof(struct rt_self) <= OS_SELF_BYTES, "the thread's block holds it");

static inline struct rt_self *rt_self(void)
{
    return os_self();
}

#endif
