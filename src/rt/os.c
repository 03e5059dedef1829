#include "rt/os.h"

#ifndef RON_MODEL

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

_Thread_local char os_self_block[OS_SELF_BYTES] __attribute__((aligned(16)));

void *os_alloc(size_t bytes)
{
    size_t rounded = (bytes + OS_CACHE_LINE - 1) / OS_CACHE_LINE * OS_CACHE_LINE;
    if (rounded < bytes)
        return NULL;
    void *p = aligned_alloc(OS_CACHE_LINE, rounded);
    if (p)
        memset(p, 0, rounded);
    return p;
}

void os_free(void *p)
{
    free(p);
}

int64_t os_now_ns(void)
{
    struct timespec ts;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &ts) == 0);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

unsigned os_cpus(void)
{
    cpu_set_t may;
    if (sched_getaffinity(0, sizeof may, &may) == 0)
        return (unsigned)CPU_COUNT(&may);     /* never none */
    long all = sysconf(_SC_NPROCESSORS_ONLN); /* more of them than the set has room for */
    return all < 1 ? 1 : (unsigned)all;
}

/* What a new thread needs to know; it owns and frees this. */
struct start {
    void (*fn)(void *);
    void *arg;
    char name[OS_THREAD_NAME];
};

static void *thread_main(void *p)
{
    struct start s = *(struct start *)p;
    free(p);
    pthread_setname_np(pthread_self(), s.name);
    s.fn(s.arg);
    return NULL;
}

enum err os_thread_start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    struct start *s = malloc(sizeof *s);
    if (!s)
        return ERR_NO_MEMORY;
    s->fn = fn;
    s->arg = arg;
    size_t n = strnlen(name, OS_THREAD_NAME - 1);
    memcpy(s->name, name, n);
    s->name[n] = '\0';
    int rc = pthread_create(&t->id, NULL, thread_main, s);
    if (rc != 0) {
        free(s);
        return err_from_errno(rc);
    }
    return ERR_OK;
}

void os_thread_join(struct os_thread *t)
{
    CHECK(pthread_join(t->id, NULL) == 0);
}

void os_thread_forget(struct os_thread *t)
{
    CHECK(pthread_detach(t->id) == 0);
}

void os_mutex_init(struct os_mutex *m)
{
    CHECK(pthread_mutex_init(&m->m, NULL) == 0);
}

void os_mutex_fini(struct os_mutex *m)
{
    CHECK(pthread_mutex_destroy(&m->m) == 0);
}

/* FUTEX_WAIT_BITSET takes an absolute monotonic time; plain FUTEX_WAIT would take a relative one. */
bool os_sleep_on(struct os_a32 *word, uint32_t expected, int64_t by_ns)
{
    struct timespec ts = {.tv_sec = by_ns / 1000000000, .tv_nsec = by_ns % 1000000000};
    const struct timespec *until = by_ns == OS_NEVER ? NULL : &ts;
    if (until && by_ns <= 0)
        return false;
    long rc = syscall(SYS_futex, &word->v, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected, until, NULL,
                      FUTEX_BITSET_MATCH_ANY);
    return rc == 0 || errno != ETIMEDOUT;
}

void os_wake_one(struct os_a32 *word)
{
    syscall(SYS_futex, &word->v, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

enum { PAUSES_BEFORE_YIELD = 64 };

uint32_t os_a32_spin(const struct os_a32 *a, uint32_t seen)
{
    for (int i = 0;; i++) {
        uint32_t v = os_a32_load(a, memory_order_acquire);
        if (v != seen)
            return v;
        if (i < PAUSES_BEFORE_YIELD)
            os_pause();
        else
            sched_yield();
    }
}

uint64_t os_a64_spin(const struct os_a64 *a, uint64_t seen)
{
    for (int i = 0;; i++) {
        uint64_t v = os_a64_load(a, memory_order_acquire);
        if (v != seen)
            return v;
        if (i < PAUSES_BEFORE_YIELD)
            os_pause();
        else
            sched_yield();
    }
}

#endif /* RON_MODEL */
