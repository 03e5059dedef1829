/*
 * A deterministic scheduler and its search.
 *
 * Threads are stacks in this one thread; each os_* call announces what it is about to do (struct op) and hands
 * control to schedule(), which picks who goes on. Exactly one step, the announced one, is taken each time a thread is
 * picked, so a run is described completely by the sequence of picks: the schedule.
 *
 * The search is stateless: a run is repeated from the start with a different pick at the deepest node of the last run
 * that still has an alternative. Which alternatives are worth trying is decided by source-set dynamic partial-order
 * reduction (Abdulla, Aronsson, Jonsson, Sagonas, POPL 2014): vector clocks tell which earlier steps a step is ordered
 * after. When it races with an earlier one, i.e. they conflict and nothing orders them, then the steps in between that
 * do not depend on the earlier one, and the later one itself, could have come first; a thread that can begin that
 * sequence becomes an alternative at the earlier step's node. Sleep sets cut runs that would only repeat a class of
 * schedules already seen. (The older rule, "make the later step's thread an alternative", is unsound together with
 * sleep sets; the self-test found that within seconds.)
 *
 * With a bound on preemptions every schedule within the bound is tried; only switches right before a step that
 * touches nothing shared are left out.
 *
 * tests/model/rt/model_sched.c compares the reduced with the naive search over random programs.
 */
#ifndef RON_MODEL
#define RON_MODEL 1 /* for tools that read this file alone */
#endif

#include "model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "rt/os.h"

enum {
    THREADS_MAX = 8,
    STEPS_MAX = 4000, /* a longer run is taken for one that does not end */
    STACK_BYTES = 128 * 1024,
    ARENA_BYTES = 1 << 20,
    LINE = OS_CACHE_LINE,
    OBJECTS_MAX = 1024,
    COVERS_MAX = 32,
};

enum op_kind {
    OP_BEGIN,
    OP_READ,
    OP_WRITE,
    OP_LOCK,
    OP_UNLOCK,
    OP_SLEEP,
    OP_TIMEOUT,
    OP_RESUME,
    OP_WAKE,
    OP_SPIN32,
    OP_SPIN64,
    OP_JOIN,
    OP_CLOCK,
    OP_SPAWN,
    OP_FREE
};

static const char *const op_names[] = {"begin",  "read",    "write",  "lock",  "unlock",
                                       "sleep",  "timeout", "resume", "wake",  "spin32",
                                       "spin64", "join",    "clock",  "spawn", "free"};

struct op {
    enum op_kind kind;
    const void *addr;
    uint64_t seen; /* spins: the value that does not end it; join: the thread; free: bytes */
};

/* How many steps of each thread are known to come before. */
struct vclock {
    uint16_t of[THREADS_MAX];
};

/* A step of the current run. */
struct step {
    uint8_t thread;
    struct vclock clock; /* what it is ordered after, itself included */
};

struct object {
    const void *addr;
    uint64_t run; /* valid in this run only */
    struct vclock writes, reads;
    int write;             /* depth of the last one, for a mutex of the last lock; -1: none */
    int read[THREADS_MAX]; /* the last of each thread since that write */
};

struct thread {
    void *sp;
    void (*fn)(void *);
    void *arg;
    char name[OS_THREAD_NAME];
    bool started, finished, joined, parked, woken;
    int64_t deadline_ns;
    struct op op;
    struct vclock clock;
    _Alignas(16) char self[OS_SELF_BYTES];
};

struct node {
    uint8_t pick, before;                     /* thread picked; thread that ran before */
    uint8_t enabled, backtrack, done, asleep; /* sets of threads */
    uint8_t preemptions;                      /* spent before this node */
};

enum run_end { RUN_DONE, RUN_CUT, RUN_FAILED };

/* The exploration, and the current run within it. */
static struct {
    const struct model *model;
    bool naive, bounded;
    unsigned bound;
    struct node nodes[STEPS_MAX + 1];
    struct step steps[STEPS_MAX];
    int fixed;          /* nodes below this depth keep their pick */
    const char *replay; /* picks to follow, or NULL */
    bool trace;

    uint64_t run;
    int depth;
    unsigned threads_n, current, timeouts_left;
    uint8_t asleep; /* of the next fresh node */
    uint8_t preemptions;
    int64_t now_ns;
    enum run_end end;
    void *main_sp;
    size_t arena_used;
    size_t live_bytes;
    double stop_at; /* seconds(); 0: never */
    struct model_result *result;
    void (*outcomes)(uint64_t);
} x;

static struct thread threads[THREADS_MAX];
static _Alignas(64) char stacks[THREADS_MAX][STACK_BYTES];
static _Alignas(LINE) char arena[ARENA_BYTES];
static uint8_t arena_lives[ARENA_BYTES / LINE]; /* per line: handed out and not freed */
static uint32_t arena_sizes[ARENA_BYTES / LINE];
static struct object objects[OBJECTS_MAX];
static const char clock_object; /* its address stands for the clock */

#define BIT(t) ((uint8_t)(1u << (t)))

/* ---- stacks ---- */

void model_switch(void **save_sp, void *load_sp);
__asm__(".text\n.globl model_switch\n.type model_switch,@function\nmodel_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
        ".size model_switch, .-model_switch\n");

static void thread_entry(void);

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

__attribute__((noreturn)) static void run_leave(enum run_end end)
{
    x.end = end;
    void *gone;
    model_switch(&gone, x.main_sp);
    abort();
}

__attribute__((noreturn, format(printf, 1, 2))) static void run_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(x.result->why, sizeof x.result->why, format, args);
    va_end(args);
    run_leave(RUN_FAILED);
}

/* Takes the place of base/check.c in model programs. */
void check_failed(const char *expr, const char *file, int line, const char *func)
{
    if (!x.main_sp) {
        fprintf(stderr, "CHECK failed: %s at %s:%d in %s\n", expr, file, line, func);
        abort();
    }
    run_fail("CHECK failed: %s at %s:%d in %s", expr, file, line, func);
}

/* ---- memory ---- */

static void announce(enum op_kind kind, const void *addr, uint64_t seen);

void *os_alloc(size_t bytes)
{
    size_t rounded = (bytes + LINE - 1) / LINE * LINE;
    if (rounded == 0)
        rounded = LINE;
    if (x.arena_used + rounded > ARENA_BYTES)
        return NULL;
    char *p = arena + x.arena_used;
    size_t line = x.arena_used / LINE;
    arena_sizes[line] = (uint32_t)rounded;
    memset(arena_lives + line, 1, rounded / LINE);
    memset(p, 0, rounded);
    x.arena_used += rounded; /* never reused within a run, so that a late access is noticed */
    x.live_bytes += rounded;
    return p;
}

void os_free(void *p)
{
    if (!p)
        return;
    size_t line = (size_t)((char *)p - arena) / LINE;
    if ((char *)p < arena || (char *)p >= arena + x.arena_used || !arena_lives[line])
        run_fail("memory freed twice, or never allocated");
    announce(OP_FREE, p, arena_sizes[line]);
    memset(arena_lives + line, 0, arena_sizes[line] / LINE);
    x.live_bytes -= arena_sizes[line];
}

/* Is `p` memory that some thread may still use? */
static void check_alive(const void *p)
{
    const char *c = p;
    if (c >= arena && c < arena + ARENA_BYTES) {
        if (!arena_lives[(size_t)(c - arena) / LINE])
            run_fail("freed memory is used by %s", threads[x.current].name);
    } else if (c >= stacks[0] && c < stacks[0] + sizeof stacks) {
        unsigned owner = (unsigned)((size_t)(c - stacks[0]) / STACK_BYTES);
        if (owner != x.current && (threads[owner].finished || c < (char *)threads[owner].sp))
            run_fail("%s uses a dead stack frame of %s", threads[x.current].name, threads[owner].name);
    }
}

/* ---- order between steps ---- */

static struct object *object_of(const void *addr)
{
    size_t i = (size_t)(((uintptr_t)addr >> 2) * 0x9e3779b97f4a7c15u >> 54);
    for (;; i = (i + 1) % OBJECTS_MAX) {
        struct object *o = &objects[i];
        if (o->run == x.run && o->addr == addr)
            return o;
        if (o->run != x.run) {
            memset(o, 0, sizeof *o);
            o->addr = addr;
            o->run = x.run;
            o->write = -1;
            for (unsigned t = 0; t < THREADS_MAX; t++)
                o->read[t] = -1;
            return o;
        }
    }
}

static void vclock_join(struct vclock *a, const struct vclock *b)
{
    for (unsigned t = 0; t < THREADS_MAX; t++)
        a->of[t] = a->of[t] > b->of[t] ? a->of[t] : b->of[t];
}

/* What a step touches: up to two objects, each read or written. */
struct touch {
    const void *addr;
    bool write;
};

static unsigned op_touches(const struct op *op, struct touch out[2])
{
    switch (op->kind) {
    case OP_READ:
    case OP_SPIN32:
    case OP_SPIN64:
        out[0] = (struct touch){op->addr, false};
        return 1;
    case OP_WRITE:
    case OP_LOCK:
    case OP_UNLOCK:
    case OP_SLEEP:
    case OP_WAKE:
        out[0] = (struct touch){op->addr, true};
        return 1;
    case OP_TIMEOUT:
        out[0] = (struct touch){op->addr, true};
        out[1] = (struct touch){&clock_object, true};
        return 2;
    case OP_CLOCK:
        out[0] = (struct touch){&clock_object, false};
        return 1;
    case OP_FREE: /* touches a range; see in_block() */
    case OP_BEGIN:
    case OP_RESUME:
    case OP_JOIN:
    case OP_SPAWN:
        return 0;
    }
    abort();
}

/* Is `addr` inside what the step frees? */
static bool in_block(const struct op *op, const void *addr)
{
    return op->kind == OP_FREE && (const char *)addr >= (const char *)op->addr &&
           (const char *)addr < (const char *)op->addr + op->seen;
}

static bool independent(const struct op *a, const struct op *b)
{
    if (in_block(a, b->addr) || in_block(b, a->addr))
        return false;
    struct touch ta[2], tb[2];
    unsigned na = op_touches(a, ta), nb = op_touches(b, tb);
    for (unsigned i = 0; i < na; i++) {
        for (unsigned k = 0; k < nb; k++) {
            if (ta[i].addr == tb[k].addr && (ta[i].write || tb[k].write))
                return false;
        }
    }
    return true;
}

/* Is the step at `depth` ordered before whatever has this clock? */
static bool before(int depth, const struct vclock *clock)
{
    const struct step *s = &x.steps[depth];
    return clock->of[s->thread] >= s->clock.of[s->thread];
}

/* Earlier steps that conflict with one being taken: at most the last write and reads of each object it touches. */
struct conflicts {
    int depth[THREADS_MAX * 8];
    unsigned n;
};

static void conflict_add(struct conflicts *c, unsigned t, int depth)
{
    if (depth < 0 || x.steps[depth].thread == t || before(depth, &threads[t].clock) ||
        c->n == sizeof c->depth / sizeof *c->depth)
        return;
    c->depth[c->n++] = depth;
}

static void conflicts_with(struct conflicts *c, unsigned t, const struct object *o, bool write)
{
    conflict_add(c, t, o->write);
    for (unsigned r = 0; write && r < x.threads_n; r++)
        conflict_add(c, t, o->read[r]);
}

static void find_conflicts(struct conflicts *c, unsigned t, const struct op *op)
{
    c->n = 0;
    if (op->kind == OP_UNLOCK)
        return; /* only the holder unlocks: nothing could come in between */
    struct touch touches[2];
    unsigned n = op_touches(op, touches);
    for (unsigned i = 0; i < n; i++)
        conflicts_with(c, t, object_of(touches[i].addr), touches[i].write);
    for (unsigned i = 0; op->kind == OP_FREE && i < OBJECTS_MAX; i++) {
        if (objects[i].run == x.run && in_block(op, objects[i].addr))
            conflicts_with(c, t, &objects[i], true);
    }
}

/* A race: no other conflicting step lies between the two. */
static bool is_race(const struct conflicts *c, unsigned i)
{
    for (unsigned k = 0; k < c->n; k++) {
        if (c->depth[k] > c->depth[i] && before(c->depth[i], &x.steps[c->depth[k]].clock))
            return false;
    }
    return true;
}

/*
 * The threads that can begin the sequence of all steps after the one at `early` that do not depend on it, and of the
 * racing step of thread t, whose clock will be `late`.
 */
static uint8_t initials(int early, unsigned t, const struct vclock *late)
{
    uint8_t seen = 0, first = 0;
    uint16_t nth[THREADS_MAX];
    for (int d = early + 1; d <= x.depth; d++) {
        const struct vclock *clock = d < x.depth ? &x.steps[d].clock : late;
        unsigned u = d < x.depth ? x.steps[d].thread : t;
        if ((d < x.depth && before(early, clock)) || (seen & BIT(u)))
            continue;
        bool depends = false;
        for (unsigned w = 0; w < x.threads_n; w++)
            depends = depends || ((seen & BIT(w)) && clock->of[w] >= nth[w]);
        if (!depends)
            first |= BIT(u);
        seen |= BIT(u);
        nth[u] = clock->of[u];
    }
    return first;
}

static void note_races(const struct conflicts *c, unsigned t, const struct vclock *late)
{
    for (unsigned i = 0; i < c->n; i++) {
        if (!is_race(c, i))
            continue;
        struct node *n = &x.nodes[c->depth[i]];
        uint8_t first = initials(c->depth[i], t, late);
        if (first & (n->backtrack | n->asleep))
            continue;
        first &= n->enabled;
        if (!first)
            n->backtrack |= n->enabled; /* a step that only the earlier one made possible: be careful */
        else
            n->backtrack |= first & BIT(t) ? BIT(t) : (uint8_t)(first & -first);
    }
}

/* The clock that t has once it took the step: ordered after what it conflicts with. */
static struct vclock clock_after(unsigned t, const struct op *op)
{
    struct vclock clock = threads[t].clock;
    clock.of[t]++;
    struct touch touches[2];
    unsigned n = op_touches(op, touches);
    for (unsigned i = 0; i < n; i++) {
        const struct object *o = object_of(touches[i].addr);
        vclock_join(&clock, &o->writes);
        if (touches[i].write)
            vclock_join(&clock, &o->reads);
    }
    return clock;
}

static void note_step(unsigned t, const struct op *op, const struct vclock *clock)
{
    threads[t].clock = *clock;
    x.steps[x.depth] = (struct step){(uint8_t)t, *clock};
    struct touch touches[2];
    unsigned n = op_touches(op, touches);
    for (unsigned i = 0; i < n; i++) {
        struct object *o = object_of(touches[i].addr);
        if (!touches[i].write) {
            vclock_join(&o->reads, clock);
            o->read[t] = x.depth;
            continue;
        }
        o->writes = *clock;
        if (op->kind == OP_UNLOCK)
            continue; /* races of locks are with locks */
        o->write = x.depth;
        for (unsigned r = 0; r < THREADS_MAX; r++)
            o->read[r] = -1;
    }
}

/* Thread t takes the step. Those of the unchanged part of the schedule had their races noted in an earlier run. */
static void take_step(unsigned t, const struct op *op)
{
    struct vclock late = clock_after(t, op);
    if (x.depth + 1 >= x.fixed) {
        struct conflicts c;
        find_conflicts(&c, t, op);
        note_races(&c, t, &late);
    }
    note_step(t, op, &late);
}

/* ---- picking ---- */

static bool can_step(const struct thread *t)
{
    if (!t->started || t->finished)
        return false;
    switch (t->op.kind) {
    case OP_LOCK:
        return ((const struct os_mutex *)t->op.addr)->owner == 0;
    case OP_SPIN32:
        return *(const uint32_t *)t->op.addr != (uint32_t)t->op.seen;
    case OP_SPIN64:
        return *(const uint64_t *)t->op.addr != t->op.seen;
    case OP_JOIN:
        return threads[t->op.seen].finished;
    case OP_TIMEOUT:
        return t->deadline_ns != OS_NEVER && (t->deadline_ns <= x.now_ns || x.timeouts_left > 0);
    case OP_BEGIN:
    case OP_READ:
    case OP_WRITE:
    case OP_UNLOCK:
    case OP_SLEEP:
    case OP_RESUME:
    case OP_WAKE:
    case OP_CLOCK:
    case OP_SPAWN:
    case OP_FREE:
        return true;
    }
    abort();
}

static uint8_t enabled_set(void)
{
    uint8_t set = 0;
    for (unsigned t = 0; t < x.threads_n; t++) {
        if (can_step(&threads[t]))
            set |= BIT(t);
    }
    return set;
}

/* Nobody can go on: let time pass to the next deadline. All that follows is ordered after all that was. */
static bool advance_time(void)
{
    int64_t next_ns = OS_NEVER;
    struct vclock all = {{0}};
    for (unsigned t = 0; t < x.threads_n; t++) {
        if (threads[t].parked && !threads[t].woken && threads[t].deadline_ns < next_ns)
            next_ns = threads[t].deadline_ns;
        vclock_join(&all, &threads[t].clock);
    }
    if (next_ns == OS_NEVER)
        return false;
    x.now_ns = next_ns;
    for (unsigned t = 0; t < x.threads_n; t++)
        threads[t].clock = all;
    return true;
}

static void fail_stuck(void)
{
    if (x.outcomes) { /* the self-test's programs may */
        x.outcomes(0);
        run_leave(RUN_DONE);
    }
    char text[200] = "";
    for (unsigned t = 0; t < x.threads_n; t++) {
        if (threads[t].started && !threads[t].finished) {
            size_t n = strlen(text);
            snprintf(text + n, sizeof text - n, "%s%s in %s", n ? ", " : "", threads[t].name,
                     threads[t].parked ? "sleep" : op_names[threads[t].op.kind]);
        }
    }
    run_fail("nobody can go on: %s", text);
}

/* Races of steps that nobody will take any more. */
static void note_stuck_races(void)
{
    for (unsigned t = 0; t < x.threads_n && !x.naive; t++) {
        if (!threads[t].started || threads[t].finished)
            continue;
        struct vclock late = clock_after(t, &threads[t].op);
        struct conflicts c;
        find_conflicts(&c, t, &threads[t].op);
        note_races(&c, t, &late);
    }
}

static unsigned cost(const struct node *n, unsigned pick)
{
    return pick != n->before && (n->enabled & BIT(n->before)) ? 1 : 0;
}

static bool affordable(const struct node *n, unsigned pick)
{
    return !x.bounded || n->preemptions + cost(n, pick) <= x.bound;
}

static bool touches_nothing(const struct op *op)
{
    struct touch ignored[2];
    return op->kind != OP_FREE && op_touches(op, ignored) == 0;
}

/* A node not seen before: who goes first? Rather no preemption. */
static void node_fresh(struct node *n, uint8_t enabled)
{
    *n = (struct node){.before = (uint8_t)x.current,
                       .enabled = enabled,
                       .asleep = x.bounded || x.naive ? 0 : x.asleep,
                       .preemptions = x.preemptions};
    uint8_t awake = enabled & (uint8_t)~n->asleep;
    if (!awake)
        run_leave(RUN_CUT);
    n->pick = (uint8_t)(awake & BIT(x.current) ? x.current : (unsigned)__builtin_ctz(awake));
    n->backtrack = BIT(n->pick);
    if (x.naive || (x.bounded && !(n->pick == x.current && touches_nothing(&threads[n->pick].op))))
        n->backtrack = enabled;
}

/* The next pick of a written schedule: "a" is one step of thread 0, "a7" seven; -1 at its end. */
static int pick_from_replay(uint8_t enabled)
{
    static unsigned left;
    static char who;
    if (x.depth == 0)
        left = 0;
    if (left == 0) {
        if (!*x.replay)
            return -1;
        who = *x.replay++;
        for (; *x.replay >= '0' && *x.replay <= '9'; x.replay++)
            left = left * 10 + (unsigned)(*x.replay - '0');
        left = left ? left : 1;
    }
    left--;
    if (who < 'a' || who >= 'a' + THREADS_MAX || !(enabled & BIT(who - 'a')))
        run_fail("the schedule does not fit this program");
    return who - 'a';
}

/* Those of the set whose step is a time-out. */
static uint8_t timeouts_in(uint8_t set)
{
    uint8_t found = 0;
    for (unsigned t = 0; t < x.threads_n; t++) {
        if ((set & BIT(t)) && threads[t].op.kind == OP_TIMEOUT)
            found |= BIT(t);
    }
    return found;
}

static void trace_step(unsigned t)
{
    const struct op *op = &threads[t].op;
    printf("%5d  %c %-12s %-8s %p\n", x.depth, 'a' + (int)t, threads[t].name, op_names[op->kind], op->addr);
}

/* Decides who takes the next step, and accounts for it. */
static unsigned pick_next(void)
{
    if (x.depth >= STEPS_MAX)
        run_fail("still running after %d steps: it does not end", STEPS_MAX);
    uint8_t enabled = enabled_set();
    if (!enabled && advance_time())
        enabled = enabled_set();
    if (!enabled) {
        note_stuck_races();
        fail_stuck();
    }
    struct node *n = &x.nodes[x.depth];
    if (x.depth >= x.fixed)
        node_fresh(n, enabled);
    if (x.replay) {
        int pick = pick_from_replay(enabled);
        n->pick = (uint8_t)(pick >= 0 ? (unsigned)pick : n->pick);
    }
    unsigned t = n->pick;
    if (!(enabled & BIT(t)))
        run_fail("the model is not deterministic: it keeps state between runs");
    if (x.trace)
        trace_step(t);
    x.asleep = 0;
    uint8_t sleepers = (uint8_t)((n->asleep | n->done) & ~BIT(t));
    for (unsigned q = 0; sleepers && q < x.threads_n; q++) {
        if ((sleepers & BIT(q)) && independent(&threads[q].op, &threads[t].op))
            x.asleep |= BIT(q);
    }
    x.preemptions = (uint8_t)(n->preemptions + cost(n, t));
    if (threads[t].op.kind == OP_TIMEOUT)
        n->backtrack |= timeouts_in(n->enabled); /* it may use up what the others need */
    if (!x.naive && !x.bounded)
        take_step(t, &threads[t].op);
    x.depth++;
    return t;
}

/* The current thread has announced its step in .op; returns when it may take it. */
static void schedule(void)
{
    unsigned from = x.current, to = pick_next();
    x.current = to;
    if (from != to)
        model_switch(&threads[from].sp, threads[to].sp);
}

static struct thread *self(void)
{
    return &threads[x.current];
}

static void announce(enum op_kind kind, const void *addr, uint64_t seen)
{
    if (addr)
        check_alive(addr);
    self()->op = (struct op){kind, addr, seen};
    schedule();
    if (addr && kind != OP_WAKE)
        check_alive(addr);
}

static void thread_entry(void)
{
    struct thread *t = self();
    t->fn(t->arg);
    t->finished = true;
    if (t == &threads[0]) {
        for (unsigned i = 1; i < x.threads_n; i++) {
            if (!threads[i].joined)
                run_fail("thread %s was not joined", threads[i].name);
        }
        if (x.live_bytes > 0)
            run_fail("%zu bytes were not freed", x.live_bytes);
        run_leave(RUN_DONE);
    }
    /* Its stack is never used again: schedule() only leaves. */
    schedule();
    abort();
}

/* ---- the operating system ---- */

int64_t os_now_ns(void)
{
    announce(OP_CLOCK, NULL, 0);
    return x.now_ns;
}

void *os_self(void)
{
    return self()->self;
}

enum err os_thread_start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    announce(OP_SPAWN, NULL, 0);
    if (x.threads_n == THREADS_MAX)
        run_fail("more than %d threads", THREADS_MAX);
    unsigned id = x.threads_n++;
    struct thread *child = &threads[id];
    memset(child, 0, sizeof *child);
    snprintf(child->name, sizeof child->name, "%s", name);
    child->fn = fn;
    child->arg = arg;
    child->op = (struct op){.kind = OP_BEGIN};
    child->clock = self()->clock;
    child->clock.of[id] = 0;
    child->started = true;
    thread_prepare(id);
    t->id = id;
    return ERR_OK;
}

void os_thread_join(struct os_thread *t)
{
    if (t->id >= x.threads_n || threads[t->id].joined)
        run_fail("a thread is joined twice");
    announce(OP_JOIN, NULL, t->id);
    vclock_join(&self()->clock, &threads[t->id].clock);
    threads[t->id].joined = true;
}

void os_thread_forget(struct os_thread *t)
{
    run_fail("thread %s was given up", threads[t->id].name);
}

bool os_sleep_on(struct os_a32 *word, uint32_t expected, int64_t by_ns)
{
    announce(OP_SLEEP, word, 0);
    if (word->v != expected)
        return true;
    struct thread *t = self();
    t->parked = true;
    t->woken = false;
    t->deadline_ns = by_ns;
    t->op = (struct op){OP_TIMEOUT, word, 0};
    schedule();
    t->parked = false;
    if (t->woken)
        return true;
    if (t->deadline_ns > x.now_ns) {
        x.now_ns = t->deadline_ns;
        x.timeouts_left--;
    }
    return false;
}

void os_wake_one(struct os_a32 *word)
{
    /* Only the address counts; the memory may be gone. */
    self()->op = (struct op){OP_WAKE, word, 0};
    schedule();
    for (unsigned i = 0; i < x.threads_n; i++) {
        struct thread *t = &threads[i];
        if (t->parked && !t->woken && t->op.addr == word) {
            struct node *n = &x.nodes[x.depth - 1];
            n->backtrack |=
                n->enabled & BIT(i); /* its time-out could have come first; now it cannot come at all */
            t->woken = true;
            t->op = (struct op){.kind = OP_RESUME};
            vclock_join(&t->clock, &self()->clock);
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
        run_fail("a mutex dies locked, or twice");
    m->dead = 1;
}

void os_mutex_lock(struct os_mutex *m)
{
    if (m->owner == x.current + 1)
        run_fail("%s locks a mutex that it holds", self()->name);
    announce(OP_LOCK, m, 0);
    if (m->dead)
        run_fail("%s locks a dead mutex", self()->name);
    m->owner = x.current + 1;
}

void os_mutex_unlock(struct os_mutex *m)
{
    if (m->owner != x.current + 1)
        run_fail("%s unlocks a mutex that it does not hold", self()->name);
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

/* ---- the search ---- */

void model_cover(unsigned place)
{
    x.result->covered |= 1u << (place % COVERS_MAX);
}

void model_outcome(uint64_t value)
{
    if (x.outcomes)
        x.outcomes(value);
}

static void main_thread(void *arg)
{
    (void)arg;
    x.model->body();
}

static void run_once(void)
{
    x.run++;
    x.depth = 0;
    x.threads_n = 1;
    x.current = 0;
    x.timeouts_left = x.model->timeouts;
    x.asleep = 0;
    x.preemptions = 0;
    x.now_ns = 1000000000;
    memset(arena_lives, 0, (x.arena_used + LINE - 1) / LINE);
    x.arena_used = x.live_bytes = 0;
    memset(&threads[0], 0, sizeof threads[0]);
    snprintf(threads[0].name, sizeof threads[0].name, "main");
    threads[0].fn = main_thread;
    threads[0].started = true;
    thread_prepare(0);
    model_switch(&x.main_sp, threads[0].sp);
    x.main_sp = NULL;
    if ((unsigned)x.depth > x.result->steps_max)
        x.result->steps_max = (unsigned)x.depth;
}

/* Changes the deepest pick that has an untried alternative; false: none left. */
static bool next_schedule(void)
{
    for (int d = x.depth - 1; d >= 0; d--) {
        struct node *n = &x.nodes[d];
        n->done |= BIT(n->pick);
        uint8_t left = n->backtrack & (uint8_t) ~(n->done | n->asleep);
        for (unsigned t = 0; t < THREADS_MAX; t++) {
            if ((left & BIT(t)) && affordable(n, t)) {
                n->pick = (uint8_t)t;
                x.fixed = d + 1;
                return true;
            }
        }
    }
    return false;
}

/* "a3bca2": three steps of thread 0, one of 1, one of 2, two of 0. */
static void write_schedule(char *out, size_t max)
{
    size_t n = 0;
    for (int d = 0; d < x.depth && n + 8 < max;) {
        int same = 1;
        while (d + same < x.depth && x.nodes[d + same].pick == x.nodes[d].pick)
            same++;
        n += (size_t)snprintf(out + n, max - n, same > 1 ? "%c%d" : "%c", 'a' + x.nodes[d].pick, same);
        d += same;
    }
}

static double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void search_begin(const struct model *m, enum model_search how, struct model_result *out)
{
    memset(out, 0, sizeof *out);
    x.model = m;
    x.naive = how == MODEL_NAIVE;
    x.bounded = m->preemptions > 0;
    x.bound = m->preemptions == MODEL_PREEMPTIONS_NONE ? 0 : m->preemptions;
    x.fixed = 0;
    x.replay = NULL;
    x.trace = false;
    x.result = out;
}

void model_explore(const struct model *m, enum model_search how, uint64_t runs_max,
                   void (*outcomes)(uint64_t value), struct model_result *out)
{
    search_begin(m, how, out);
    x.outcomes = outcomes;
    double start = seconds();
    do {
        run_once();
        if (x.end == RUN_CUT)
            out->cut++;
        else
            out->runs++;
        if (x.end == RUN_FAILED) {
            out->failed = true;
            write_schedule(out->schedule, sizeof out->schedule);
        }
        out->complete = !out->failed && !next_schedule();
        bool late = x.stop_at > 0 && (out->runs & 1023) == 0 && seconds() > x.stop_at;
        if (late || (runs_max > 0 && out->runs + out->cut >= runs_max))
            break;
    } while (!out->failed && !out->complete);
    out->seconds = seconds() - start;
}

/* ---- the program ---- */

static int replay(const struct model *m, const char *schedule)
{
    struct model_result r;
    search_begin(m, MODEL_REDUCED, &r);
    x.replay = schedule;
    x.trace = true;
    run_once();
    printf("%s: %s\n", m->name, x.end == RUN_FAILED ? r.why : "ended well");
    return x.end == RUN_FAILED;
}

static bool report(const struct model *m, const struct model_result *r)
{
    unsigned wanted = m->covers ? (1u << m->covers) - 1 : 0;
    bool covered = (r->covered & wanted) == wanted;
    double rate = r->seconds > 0 ? (double)(r->runs + r->cut) / r->seconds : 0;
    printf("%-40s %9" PRIu64 " runs %9" PRIu64 " cut  %4u steps  %7.2f s  %9.0f/s  %s\n", m->name, r->runs,
           r->cut, r->steps_max, r->seconds, rate,
           r->failed     ? "FAILED"
           : !covered    ? "UNCOVERED"
           : r->complete ? (m->preemptions ? "bounded" : "exhaustive")
                         : "stopped");
    if (r->failed)
        printf("  %s\n  --model %s --replay %s\n", r->why, m->name, r->schedule);
    if (!covered && !r->failed)
        printf("  places reached %x, wanted %x\n", r->covered, wanted);
    return !r->failed && covered;
}

/* Goes on without the bound on preemptions, as far as the time allows. */
static bool explore_deep(struct model m, double limit_seconds)
{
    static struct model_result r;
    m.preemptions = 0;
    x.stop_at = seconds() + limit_seconds;
    model_explore(&m, MODEL_REDUCED, 0, NULL, &r);
    x.stop_at = 0;
    return report(&m, &r);
}

int model_main(int argc, char **argv, const struct model *models, size_t n)
{
    const char *only = NULL, *schedule = NULL;
    bool expect_failure = false;
    uint64_t runs_max = 0;
    const char *deep = getenv("RON_MODEL_SECONDS");
    double deep_seconds = deep ? strtod(deep, NULL) : 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--expect-failure") == 0)
            expect_failure = true;
        else if (strcmp(argv[i], "--model") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "--replay") == 0 && i + 1 < argc)
            schedule = argv[++i];
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            runs_max = strtoull(argv[++i], NULL, 10);
        else {
            fprintf(stderr, "usage: %s [--model NAME] [--replay SCHEDULE] [--runs N] [--expect-failure]\n",
                    argv[0]);
            return 2;
        }
    }
    bool good = true, ran = false;
    for (size_t i = 0; i < n; i++) {
        if (only && strcmp(only, models[i].name) != 0)
            continue;
        ran = true;
        if (schedule)
            return replay(&models[i], schedule);
        static struct model_result r;
        model_explore(&models[i], MODEL_REDUCED, runs_max, NULL, &r);
        good = report(&models[i], &r) && good;
        if (good && deep_seconds > 0 && models[i].preemptions > 0)
            good = explore_deep(models[i], deep_seconds);
        if (expect_failure && !good)
            break;
    }
    if (!ran) {
        fprintf(stderr, "no such model\n");
        return 2;
    }
    return good == expect_failure;
}
