/*
 * Ranked mutex for short critical sections over small shared metadata.
 *
 * Rules       Never two at once. Nothing that can wait, send, call out or do I/O while one is held.
 *             Locks are taken in rising rank where two cannot be avoided (the analysis must then be told).
 * Proof       With clang the rules are compile errors: every lock also acquires the role `rt_any_lock`, and
 *             whatever may wait is marked RT_BLOCKS, i.e. needs that role *not* held. Function pointers are
 *             not followed, so with RON_DEBUG_LOCKS the same rules abort at run time.
 * Ownership   The lock lives in the caller's structure; `name` must outlive it.
 * Threads     Released by the thread that took it.
 */
#ifndef RON_RT_LOCK_H
#define RON_RT_LOCK_H

#include "rt/os.h"

#ifdef __clang__
#define RT_ATTRIBUTE(x) __attribute__((x))
#else
#define RT_ATTRIBUTE(x)
#endif

struct RT_ATTRIBUTE(capability("role")) rt_role {
    int unused;
};
extern struct rt_role *rt_any_lock; /* a pointer, so that !rt_any_lock is legal C; never dereferenced */

#define RT_ACQUIRES(l) RT_ATTRIBUTE(acquire_capability(l, rt_any_lock))
#define RT_RELEASES(l) RT_ATTRIBUTE(release_capability(l, rt_any_lock))
#define RT_REQUIRES(l) RT_ATTRIBUTE(requires_capability(l))
#define RT_BLOCKS      RT_ATTRIBUTE(requires_capability(!rt_any_lock))
#define RT_UNCHECKED   RT_ATTRIBUTE(no_thread_safety_analysis)

struct RT_ATTRIBUTE(capability("mutex")) rt_lock {
    struct os_mutex m;
    const char *name;
    unsigned rank; /* 1 and up, one per lock of a service, declared in its topology.def */
};

void rt_lock_init(struct rt_lock *l, const char *name, unsigned rank);
void rt_lock_fini(struct rt_lock *l);
void rt_lock_take(struct rt_lock *l) RT_ACQUIRES(l);
void rt_lock_release(struct rt_lock *l) RT_RELEASES(l);

/* Aborts when the calling thread holds a lock; free unless RON_DEBUG_LOCKS. `what` says what it was about to do. */
#ifdef RON_DEBUG_LOCKS
void rt_lock_check_none(const char *what);
#else
static inline void rt_lock_check_none(const char *what)
{
    (void)what;
}
#endif

#endif
