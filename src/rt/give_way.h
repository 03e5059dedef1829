/*
 * Lets other threads of this core run first, if there are any; on a core of one's own it costs a system call and changes nothing.
 *
 * For a task that has just answered many and would otherwise go on with the few that came meanwhile. Never to wait for something:
 * nobody promises that the other thread ran.
 */
#ifndef RON_RT_GIVE_WAY_H
#define RON_RT_GIVE_WAY_H

#include <sched.h>

static inline void rt_give_way(void)
{
    sched_yield();
}

#endif
