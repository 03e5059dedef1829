#include "rt/lock.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "rt/self.h"

struct rt_role *rt_any_lock;

void rt_lock_init(struct rt_lock *l, const char *name, unsigned rank)
{
    CHECK(name != NULL && rank > 0);
    os_mutex_init(&l->m);
    l->name = name;
    l->rank = rank;
}

void rt_lock_fini(struct rt_lock *l)
{
    os_mutex_fini(&l->m);
    l->rank = 0;
}

#ifdef RON_DEBUG_LOCKS

__attribute__((noreturn, cold)) static void lock_broken(const char *what, const char *name)
{
    const struct rt_self *self = rt_self();
    char text[256];
    snprintf(text, sizeof text, "lock rule broken: %s '%s' while holding '%s'", what, name,
             self->locks ? self->held[self->locks - 1]->name : "nothing");
    check_failed(text, __FILE__, __LINE__, __func__);
}

static void lock_note_take(const struct rt_lock *l)
{
    struct rt_self *self = rt_self();
    CHECK(l->rank > 0);
    if (self->locks > 0 && self->held[self->locks - 1]->rank >= l->rank)
        lock_broken("taking", l->name);
    CHECK(self->locks < RT_SELF_LOCKS_MAX);
    self->held[self->locks++] = l;
}

static void lock_note_release(const struct rt_lock *l)
{
    struct rt_self *self = rt_self();
    if (self->locks == 0 || self->held[self->locks - 1] != l)
        lock_broken("releasing", l->name);
    self->locks--;
}

void rt_lock_check_none(const char *what)
{
    if (rt_self()->locks > 0)
        lock_broken(what, "-");
}

#else
#define lock_note_take(l)    ((void)(l))
#define lock_note_release(l) ((void)(l))
#endif

RT_UNCHECKED void rt_lock_take(struct rt_lock *l)
{
    lock_note_take(l); /* before the mutex: a self-deadlock aborts instead of hanging */
    os_mutex_lock(&l->m);
}

RT_UNCHECKED void rt_lock_release(struct rt_lock *l)
{
    lock_note_release(l);
    os_mutex_unlock(&l->m);
}
