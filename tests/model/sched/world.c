/*
 * What a model runs in. Its threads are stacks in one real thread; its memory is handed out once per run and never reused, so
 * that a late access is noticed; every os_* call announces its step to the scheduler and takes it when it is picked.
 */
#include "exploration.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { STACK_BYTES = 128 * 1024, ARENA_BYTES = 1 << 20, LINE = OS_CACHE_LINE };

const char *const model__op_names[] = {"begin",  "read",    "write",  "lock",  "unlock",
                                       "sleep",  "timeout", "resume", "wake",  "spin32",
                                       "spin64", "join",    "clock",  "spawn", "free"};

struct thread threads[THREADS_MAX];
static _Alignas(64) char stacks[THREADS_MAX][STACK_BYTES];
static _Alignas(LINE) char arena[ARENA_BYTES];
static uint8_t arena_lives[ARENA_BYTES / LINE]; /* per line: handed out and not freed */
static uint32_t arena_sizes[ARENA_BYTES / LINE];
static size_t arena_used, live_bytes; /* in this run */

/* ---- stacks ---- */

__asm__(".text\n.globl model__switch\n.type model__switch,@function\nmodel__switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
        ".size model__switch, .-model__switch\n");

static void thread_entry(void);

/* Cut when it does not fit. Not by printf: it would be a part of every run. */
static void thread_name(struct thread *t, const char *name)
{
    size_t n = strnlen(name, sizeof t->name - 1);
    memcpy(t->name, name, n);
    t->name[n] = '\0';
}

static void thread_prepare(unsigned id)
{
    uintptr_t top = (uintptr_t)&stacks[id][STACK_BYTES] & ~(uintptr_t)15;
    void **sp = (void **)top;
    *--sp = NULL; /* the entry's return address: it has none */
    *--sp = (void *)(uintptr_t)thread_entry;
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    threads[id].sp = sp;
}

void model__world_begin(void (*main_thread)(void *))
{
    memset(arena_lives, 0, (arena_used + LINE - 1) / LINE);
    arena_used = live_bytes = 0;
    memset(&threads[0], 0, sizeof threads[0]);
    thread_name(&threads[0], "main");
    threads[0].fn = main_thread;
    threads[0].started = true;
    thread_prepare(0);
}

void model__leave(enum run_end end)
{
    ex.end = end;
    void *gone;
    model__switch(&gone, ex.main_sp);
    abort();
}

void model__fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(ex.result->why, sizeof ex.result->why, format, args);
    va_end(args);
    model__leave(RUN_FAILED);
}

/* Takes the place of base/check.c in model programs. */
void check_failed(const char *expr, const char *file, int line, const char *func)
{
    if (!ex.main_sp) {
        fprintf(stderr, "CHECK failed: %s at %s:%d in %s\n", expr, file, line, func);
        abort();
    }
    model__fail("CHECK failed: %s at %s:%d in %s", expr, file, line, func);
}

/* ---- memory ---- */

static void announce(enum op_kind kind, const void *addr, uint64_t seen);

void *os_alloc(size_t bytes)
{
    size_t rounded = (bytes + LINE - 1) / LINE * LINE;
    if (rounded == 0)
        rounded = LINE;
    if (arena_used + rounded > ARENA_BYTES)
        return NULL;
    char *p = arena + arena_used;
    size_t line = arena_used / LINE;
    arena_sizes[line] = (uint32_t)rounded;
    memset(arena_lives + line, 1, rounded / LINE);
    memset(p, 0, rounded);
    arena_used += rounded; /* never reused within a run, so that a late access is noticed */
    live_bytes += rounded;
    return p;
}

void os_free(void *p)
{
    if (!p)
        return;
    size_t line = (size_t)((char *)p - arena) / LINE;
    if ((char *)p < arena || (char *)p >= arena + arena_used || !arena_lives[line])
        model__fail("memory freed twice, or never allocated");
    announce(OP_FREE, p, arena_sizes[line]);
    memset(arena_lives + line, 0, arena_sizes[line] / LINE);
    live_bytes -= arena_sizes[line];
}

/* Is `p` memory that some thread may still use? */
static void check_alive(const void *p)
{
    const char *c = p;
    if (c >= arena && c < arena + ARENA_BYTES) {
        if (!arena_lives[(size_t)(c - arena) / LINE])
            model__fail("freed memory is used by %s", threads[ex.current].name);
    } else if (c >= stacks[0] && c < stacks[0] + sizeof stacks) {
        unsigned owner = (unsigned)((size_t)(c - stacks[0]) / STACK_BYTES);
        if (owner != ex.current && (threads[owner].finished || c < (char *)threads[owner].sp))
            model__fail("%s uses a dead stack frame of %s", threads[ex.current].name, threads[owner].name);
    }
}

static void announce(enum op_kind kind, const void *addr, uint64_t seen)
{
    if (addr)
        check_alive(addr);
    model__self()->op = (struct op){kind, addr, seen};
    model__schedule();
    if (addr && kind != OP_WAKE)
        check_alive(addr);
}

static void thread_entry(void)
{
    struct thread *t = model__self();
    t->fn(t->arg);
    t->finished = true;
    if (t == &threads[0]) {
        for (unsigned i = 1; i < ex.threads_n; i++) {
            if (!threads[i].joined)
                model__fail("thread %s was not joined", threads[i].name);
        }
        if (live_bytes > 0)
            model__fail("%zu bytes were not freed", live_bytes);
        model__leave(RUN_DONE);
    }
    /* Its stack is never used again: model__schedule() only leaves. */
    model__schedule();
    abort();
}

/* ---- the operating system ---- */

int64_t os_now_ns(void)
{
    announce(OP_CLOCK, NULL, 0);
    return ex.now_ns;
}

void *os_self(void)
{
    return model__self()->self;
}

enum err os_thread_start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    announce(OP_SPAWN, NULL, 0);
    if (ex.threads_n == THREADS_MAX)
        model__fail("more than %d threads", THREADS_MAX);
    unsigned id = ex.threads_n++;
    struct thread *child = &threads[id];
    memset(child, 0, sizeof *child);
    thread_name(child, name);
    child->fn = fn;
    child->arg = arg;
    child->op = (struct op){.kind = OP_BEGIN};
    child->clock = model__self()->clock;
    child->clock.of[id] = 0;
    child->started = true;
    thread_prepare(id);
    t->id = id;
    return ERR_OK;
}

void os_thread_join(struct os_thread *t)
{
    if (t->id >= ex.threads_n || threads[t->id].joined)
        model__fail("a thread is joined twice");
    announce(OP_JOIN, NULL, t->id);
    model__clock_join(&model__self()->clock, &threads[t->id].clock);
    threads[t->id].joined = true;
}

void os_thread_forget(struct os_thread *t)
{
    model__fail("thread %s was given up", threads[t->id].name);
}

bool os_sleep_on(struct os_a32 *word, uint32_t expected, int64_t by_ns)
{
    announce(OP_SLEEP, word, 0);
    if (word->v != expected)
        return true;
    struct thread *t = model__self();
    t->parked = true;
    t->woken = false;
    t->deadline_ns = by_ns;
    t->op = (struct op){OP_TIMEOUT, word, 0};
    model__schedule();
    t->parked = false;
    if (t->woken)
        return true;
    if (t->deadline_ns > ex.now_ns) {
        ex.now_ns = t->deadline_ns;
        ex.timeouts_left--;
    }
    return false;
}

void os_wake_one(struct os_a32 *word)
{
    /* Only the address counts; the memory may be gone. */
    model__self()->op = (struct op){OP_WAKE, word, 0};
    model__schedule();
    for (unsigned i = 0; i < ex.threads_n; i++) {
        struct thread *t = &threads[i];
        if (t->parked && !t->woken && t->op.addr == word) {
            struct node *n = &ex.nodes[ex.depth - 1];
            n->backtrack |=
                n->enabled & BIT(i); /* its time-out could have come first; now it cannot come at all */
            t->woken = true;
            t->op = (struct op){.kind = OP_RESUME};
            model__clock_join(&t->clock, &model__self()->clock);
            return;
        }
    }
}

void os_mutex_init(struct os_mutex *m)
{
    *m = (struct os_mutex){0};
}

void os_mutex_fini(struct os_mutex *m)
{
    announce(OP_WRITE, m, 0);
    if (m->owner || m->dead)
        model__fail("a mutex dies locked, or twice");
    m->dead = 1;
}

void os_mutex_lock(struct os_mutex *m)
{
    if (m->owner == ex.current + 1)
        model__fail("%s locks a mutex that it holds", model__self()->name);
    announce(OP_LOCK, m, 0);
    if (m->dead)
        model__fail("%s locks a dead mutex", model__self()->name);
    m->owner = ex.current + 1;
}

void os_mutex_unlock(struct os_mutex *m)
{
    if (m->owner != ex.current + 1)
        model__fail("%s unlocks a mutex that it does not hold", model__self()->name);
    announce(OP_UNLOCK, m, 0);
    m->owner = 0;
}

#define DEFINE_ATOMICS(bits)                                                                               \
    uint##bits##_t os_a##bits##_load(const struct os_a##bits *a, memory_order mo)                          \
    {                                                                                                      \
        (void)mo;                                                                                          \
        announce(OP_READ, a, 0);                                                                           \
        return a->v;                                                                                       \
    }                                                                                                      \
    void os_a##bits##_store(struct os_a##bits *a, uint##bits##_t v, memory_order mo)                       \
    {                                                                                                      \
        (void)mo;                                                                                          \
        announce(OP_WRITE, a, 0);                                                                          \
        a->v = v;                                                                                          \
    }                                                                                                      \
    uint##bits##_t os_a##bits##_add(struct os_a##bits *a, uint##bits##_t v, memory_order mo)               \
    {                                                                                                      \
        (void)mo;                                                                                          \
        announce(OP_WRITE, a, 0);                                                                          \
        uint##bits##_t old = a->v;                                                                         \
        a->v = old + v;                                                                                    \
        return old;                                                                                        \
    }                                                                                                      \
    uint##bits##_t os_a##bits##_or(struct os_a##bits *a, uint##bits##_t v, memory_order mo)                \
    {                                                                                                      \
        (void)mo;                                                                                          \
        announce(OP_WRITE, a, 0);                                                                          \
        uint##bits##_t old = a->v;                                                                         \
        a->v = old | v;                                                                                    \
        return old;                                                                                        \
    }                                                                                                      \
    bool os_a##bits##_cas(struct os_a##bits *a, uint##bits##_t *expected, uint##bits##_t v,                \
                          memory_order mo)                                                                 \
    {                                                                                                      \
        (void)mo;                                                                                          \
        announce(OP_WRITE, a, 0);                                                                          \
        if (a->v == *expected) {                                                                           \
            a->v = v;                                                                                      \
            return true;                                                                                   \
        }                                                                                                  \
        *expected = a->v;                                                                                  \
        return false;                                                                                      \
    }                                                                                                      \
    uint##bits##_t os_a##bits##_spin(const struct os_a##bits *a, uint##bits##_t seen)                      \
    {                                                                                                      \
        announce(OP_SPIN##bits, a, seen);                                                                  \
        return a->v;                                                                                       \
    }

DEFINE_ATOMICS(32)
DEFINE_ATOMICS(64)

uint32_t os_a32_swap(struct os_a32 *a, uint32_t v, memory_order mo)
{
    (void)mo;
    announce(OP_WRITE, a, 0);
    uint32_t old = a->v;
    a->v = v;
    return old;
}

uint64_t os_a64_and(struct os_a64 *a, uint64_t v, memory_order mo)
{
    (void)mo;
    announce(OP_WRITE, a, 0);
    uint64_t old = a->v;
    a->v = old & v;
    return old;
}
