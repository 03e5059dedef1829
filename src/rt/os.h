/*
 * The operating system as rt sees it: memory, clock, threads, mutexes, atomics, and one way to sleep.
 *
 * This is the only header of rt that knows pthreads and futexes. Compiled with RON_MODEL the same names are
 * the operations of a deterministic scheduler (tests/model/sched), which runs the unchanged sources of rt
 * through every interleaving. Hence the rule: rt and whatever is to be model-checked touch shared state only
 * through these functions or under an os_mutex, and keep no static variables.
 *
 * Sleeping    os_sleep_on() is a futex: it sleeps while a 32-bit word holds an expected value. There is no
 *             condition variable. A wake-up may be spurious, so callers loop on the word.
 * Spinning    os_a64_spin() waits for another thread that is known to be about to store; the model turns it
 *             into a real wait, so a spin that nobody ends is reported as a deadlock.
 * Counting    struct os_count is for statistics that nobody decides on: relaxed, and no scheduling point.
 */
#ifndef RON_RT_OS_H
#define RON_RT_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>

#include "base/err.h"

#define OS_CACHE_LINE  64
#define OS_NEVER       INT64_MAX /* a point in time that does not come */
#define OS_THREAD_NAME 16        /* bytes with the final NUL; Linux cuts longer names */

struct os_count {
    _Atomic uint64_t v;
};

static inline void os_count_add(struct os_count *c, uint64_t n)
{
    atomic_fetch_add_explicit(&c->v, n, memory_order_relaxed);
}

static inline void os_count_set(struct os_count *c, uint64_t v)
{
    atomic_store_explicit(&c->v, v, memory_order_relaxed);
}

static inline void os_count_max(struct os_count *c, uint64_t v)
{
    uint64_t old = atomic_load_explicit(&c->v, memory_order_relaxed);
    while (old < v && !atomic_compare_exchange_weak_explicit(&c->v, &old, v, memory_order_relaxed,
                                                             memory_order_relaxed))
        continue;
}

static inline uint64_t os_count_get(const struct os_count *c)
{
    return atomic_load_explicit(&c->v, memory_order_relaxed);
}

#ifdef RON_MODEL
#include <os_model.h>
#else

#include <pthread.h>
#include <sched.h>
#include <time.h>

struct os_mutex {
    pthread_mutex_t m; /* all-zero bytes are an unlocked mutex (glibc) */
};

struct os_thread {
    pthread_t id;
};

struct os_a32 {
    _Atomic uint32_t v;
};

struct os_a64 {
    _Atomic uint64_t v;
};

/* Memory: zeroed, aligned to a cache line; NULL when there is none. */
void *os_alloc(size_t bytes);
void os_free(void *p);

/* Monotonic nanoseconds. */
int64_t os_now_ns(void);
/* Processors that the caller may run on, at least 1: not all of the machine's when it was given only some (taskset, a
 * container's cpuset). */
unsigned os_cpus(void);

/* `name` is cut to OS_THREAD_NAME. Every started thread is joined exactly once. */
NODISCARD enum err os_thread_start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg);
void os_thread_join(struct os_thread *t);
/* Only for a thread that is known to be stuck: gives up the right to join it. */
void os_thread_forget(struct os_thread *t);

/* A block of OS_SELF_BYTES that belongs to the calling thread, all zero at its start. */
#define OS_SELF_BYTES 128
extern _Thread_local char os_self_block[OS_SELF_BYTES] __attribute__((tls_model("initial-exec")));
static inline void *os_self(void)
{
    return os_self_block;
}

/* Sleeps while *word == expected, at most until by_ns (monotonic; OS_NEVER). False: the time came. */
bool os_sleep_on(struct os_a32 *word, uint32_t expected, int64_t by_ns);
/* Wakes the thread asleep on `word`. Uses the address only: the word itself may be gone already. */
void os_wake_one(struct os_a32 *word);

void os_mutex_init(struct os_mutex *m);
void os_mutex_fini(struct os_mutex *m);

static inline void os_mutex_lock(struct os_mutex *m)
{
    pthread_mutex_lock(&m->m);
}

static inline void os_mutex_unlock(struct os_mutex *m)
{
    pthread_mutex_unlock(&m->m);
}

static inline void os_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Others who can run on this core do so first. */
static inline void os_yield(void)
{
    sched_yield();
}

/*
 * How a waiter looks before it sleeps (chan.c): up to OS_LOOKS_MAX times, so many pauses apart. Looking too often
 * takes the cache line away from who is about to write it; after a few microseconds there are many items instead of
 * one. Who takes many at a time is done sooner, so it looks sooner. All of it costs about what a sleep and a wake-up
 * would, so it is given up while nothing comes of it. Measured with bench.chan.
 */
#define OS_LOOKS_MAX         8
#define OS_LOOK_AGAIN        16 /* once it was of no use: one wait in so many tries again */
#define OS_LOOK_PAUSES_ONE   256
#define OS_LOOK_PAUSES_BATCH 64

/* Asks for a cache line that will soon be needed, to write or to read. */
static inline void os_will_write(const void *p)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1);
#endif
}

static inline void os_will_read(const void *p)
{
    __builtin_prefetch(p, 0);
}

static inline uint32_t os_a32_load(const struct os_a32 *a, memory_order mo)
{
    return atomic_load_explicit(&a->v, mo);
}
static inline void os_a32_store(struct os_a32 *a, uint32_t v, memory_order mo)
{
    atomic_store_explicit(&a->v, v, mo);
}
static inline uint32_t os_a32_swap(struct os_a32 *a, uint32_t v, memory_order mo)
{
    return atomic_exchange_explicit(&a->v, v, mo);
}
static inline uint32_t os_a32_add(struct os_a32 *a, uint32_t v, memory_order mo)
{
    return atomic_fetch_add_explicit(&a->v, v, mo);
}
static inline uint32_t os_a32_or(struct os_a32 *a, uint32_t v, memory_order mo)
{
    return atomic_fetch_or_explicit(&a->v, v, mo);
}
static inline bool os_a32_cas(struct os_a32 *a, uint32_t *expected, uint32_t v, memory_order mo)
{
    return atomic_compare_exchange_strong_explicit(&a->v, expected, v, mo, memory_order_relaxed);
}

static inline uint64_t os_a64_load(const struct os_a64 *a, memory_order mo)
{
    return atomic_load_explicit(&a->v, mo);
}
static inline void os_a64_store(struct os_a64 *a, uint64_t v, memory_order mo)
{
    atomic_store_explicit(&a->v, v, mo);
}
static inline uint64_t os_a64_add(struct os_a64 *a, uint64_t v, memory_order mo)
{
    return atomic_fetch_add_explicit(&a->v, v, mo);
}
static inline uint64_t os_a64_or(struct os_a64 *a, uint64_t v, memory_order mo)
{
    return atomic_fetch_or_explicit(&a->v, v, mo);
}
static inline uint64_t os_a64_and(struct os_a64 *a, uint64_t v, memory_order mo)
{
    return atomic_fetch_and_explicit(&a->v, v, mo);
}
static inline bool os_a64_cas(struct os_a64 *a, uint64_t *expected, uint64_t v, memory_order mo)
{
    return atomic_compare_exchange_strong_explicit(&a->v, expected, v, mo, memory_order_relaxed);
}

/* Returns the word's value once it is no longer `seen`: pauses first, then gives the core away. */
uint32_t os_a32_spin(const struct os_a32 *a, uint32_t seen);
uint64_t os_a64_spin(const struct os_a64 *a, uint64_t seen);

#endif /* RON_MODEL */
#endif
