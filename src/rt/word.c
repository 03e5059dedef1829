/*
 * Waiting and waking. Each sleeping thread has one rt_waiter on its stack, in the list of the word it waits for
 * and, when it is a task, also in its task's rt_stop. Its `state` is the futex it sleeps on:
 *
 *     ASLEEP --rt_word_wake()--> PICKED        the waker unlinked it, then swapped the state
 *     ASLEEP --rt_stop_request()--> STOPPED    still linked; a waker may yet turn this into PICKED
 *
 * The swap to PICKED is the waker's last access to the waiter; the futex call after it uses only the address.
 * So a waiter leaves its stack frame only when it unlinked itself (under the word's mutex) or saw PICKED.
 */
#include "rt/word.h"

#include "base/check.h"
#include "rt/self.h"
#include "rt/stop.h"

enum { ASLEEP = 0, PICKED = 1, STOPPED = 2 };

struct rt_waiter {
    struct os_a32 state;
    bool linked; /* guarded by the word's mutex, as are next and prev until PICKED */
    struct rt_waiter *next, *prev;
};

void rt_word_init(struct rt_word *w, uint64_t value)
{
    CHECK((value & RT_WORD_WAITED) == 0);
    os_mutex_init(&w->m);
    os_a64_store(&w->v, value, memory_order_relaxed);
    w->first = w->last = NULL;
}

void rt_word_fini(struct rt_word *w)
{
    CHECK(w->first == NULL);
    os_mutex_fini(&w->m);
}

static void word_link(struct rt_word *w, struct rt_waiter *me)
{
    me->prev = w->last;
    *(w->last ? &w->last->next : &w->first) = me;
    w->last = me;
    me->linked = true;
}

static void word_unlink(struct rt_word *w, struct rt_waiter *me)
{
    *(me->prev ? &me->prev->next : &w->first) = me->next;
    *(me->next ? &me->next->prev : &w->last) = me->prev;
    me->linked = false;
}

/* Relaxed: only the bit matters here, and w->m orders those who set and clear it. */
static void word_clear_if_unwaited(struct rt_word *w)
{
    if (!w->first)
        os_a64_and(&w->v, ~(uint64_t)RT_WORD_WAITED, memory_order_relaxed);
}

/* Gets in line unless the word has changed since it was seen. */
static bool word_enlist(struct rt_word *w, struct rt_waiter *me, uint64_t seen, uint64_t mask)
{
    os_mutex_lock(&w->m);
    /* acquire: pairs with the changer's release RMW, whose change it may return */
    uint64_t now = os_a64_or(&w->v, RT_WORD_WAITED, memory_order_acquire);
    bool same = ((now ^ seen) & mask) == 0;
    if (same)
        word_link(w, me);
    else
        word_clear_if_unwaited(w);
    os_mutex_unlock(&w->m);
    return same;
}

/* True: out of the line, unpicked. False: a waker picked us first, and is done with us now. */
static bool word_withdraw(struct rt_word *w, struct rt_waiter *me)
{
    os_mutex_lock(&w->m);
    bool linked = me->linked;
    if (linked) {
        word_unlink(w, me);
        word_clear_if_unwaited(w);
    }
    os_mutex_unlock(&w->m);
    if (linked)
        return true;
    /* acquire: pairs with the swap in rt_word_wake() */
    uint32_t state = os_a32_load(&me->state, memory_order_acquire);
    while (state != PICKED)
        state = os_a32_spin(&me->state, state);
    return false;
}

/* Cuts the n oldest out of the line; they are then reachable only through the returned list. */
static struct rt_waiter *word_pick(struct rt_word *w, uint64_t n)
{
    struct rt_waiter *picked = w->first, *last = NULL;
    for (; w->first && n > 0; n--) {
        last = w->first;
        last->linked = false;
        w->first = last->next;
    }
    if (last)
        last->next = NULL;
    if (w->first)
        w->first->prev = NULL;
    else
        w->last = NULL;
    word_clear_if_unwaited(w);
    return last ? picked : NULL;
}

static void word_wake_picked(struct rt_waiter *picked)
{
    while (picked) {
        struct rt_waiter *next = picked->next;
        struct os_a32 *state = &picked->state;
        /* release: pairs with the acquire of the sleeper's state; after it *picked may be gone */
        os_a32_swap(state, PICKED, memory_order_release);
        os_wake_one(state);
        picked = next;
    }
}

void rt_word_wake(struct rt_word *w, uint64_t n)
{
    os_mutex_lock(&w->m);
    struct rt_waiter *picked = word_pick(w, n);
    os_mutex_unlock(&w->m);
    word_wake_picked(picked);
}

void rt_word_publish(struct rt_word *w, uint64_t change)
{
    os_mutex_lock(&w->m);
    os_a64_add(&w->v, change, memory_order_release);
    struct rt_waiter *picked = word_pick(w, UINT64_MAX);
    os_mutex_unlock(&w->m);
    word_wake_picked(picked);
}

void rt_word_settle(struct rt_word *w)
{
    os_mutex_lock(&w->m);
    os_mutex_unlock(&w->m);
}

/* False: one of `stops` has been asked already, the caller must not sleep. */
static bool stop_register(struct rt_stop *s, struct rt_waiter *me, uint32_t stops)
{
    os_mutex_lock(&s->m);
    bool go = (os_a32_load(&s->flags, memory_order_relaxed) & stops) == 0;
    if (go) {
        s->sleeper = me;
        os_count_set(&s->asleep, 1);
    }
    os_mutex_unlock(&s->m);
    return go;
}

static void stop_unregister(struct rt_stop *s)
{
    os_mutex_lock(&s->m);
    s->sleeper = NULL;
    if (s->beats)
        os_count_set(&s->beat_ns, (uint64_t)os_now_ns());
    os_count_set(&s->asleep, 0);
    os_mutex_unlock(&s->m);
}

/* A soft stop wakes a sleeper that does not care for it, too: it goes back to sleep. */
static enum err word_sleep(struct rt_waiter *me, struct deadline by, uint32_t stops)
{
    struct rt_stop *stop = rt_self()->stop;
    for (;;) {
        if (stop && !stop_register(stop, me, stops))
            return ERR_CANCELED;
        bool in_time = true;
        while (in_time && os_a32_load(&me->state, memory_order_acquire) == ASLEEP)
            in_time = os_sleep_on(&me->state, ASLEEP, by.at_ns);
        if (stop)
            stop_unregister(stop);
        uint32_t state = os_a32_load(&me->state, memory_order_acquire);
        if (state == PICKED)
            return ERR_OK;
        if (state == ASLEEP)
            return ERR_TIMEOUT;
        uint32_t stopped = STOPPED; /* lost to a waker? then we are PICKED, and the next round sees it */
        os_a32_cas(&me->state, &stopped, ASLEEP, memory_order_relaxed);
    }
}

enum err rt_word_wait(struct rt_word *w, uint64_t seen, uint64_t mask, struct deadline by, uint32_t stops)
{
    rt_lock_check_none("waiting");
    struct rt_waiter me = {0};
    if (!word_enlist(w, &me, seen, mask & ~(uint64_t)RT_WORD_WAITED))
        return ERR_OK;
    enum err e = word_sleep(&me, by, stops);
    if (e != ERR_OK && !word_withdraw(w, &me))
        return ERR_OK;
    return e;
}

void rt_stop_init(struct rt_stop *s)
{
    os_mutex_init(&s->m);
    os_a32_store(&s->flags, 0, memory_order_relaxed);
    s->sleeper = NULL;
}

void rt_stop_fini(struct rt_stop *s)
{
    CHECK(s->sleeper == NULL);
    os_mutex_fini(&s->m);
}

void rt_stop_request(struct rt_stop *s, uint32_t flags)
{
    os_mutex_lock(&s->m);
    os_a32_or(&s->flags, flags, memory_order_release);
    if (s->sleeper) {
        uint32_t asleep = ASLEEP; /* PICKED stays PICKED */
        if (os_a32_cas(&s->sleeper->state, &asleep, STOPPED, memory_order_relaxed))
            os_wake_one(&s->sleeper->state);
    }
    os_mutex_unlock(&s->m);
}
