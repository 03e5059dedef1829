/*
 * The checker checked: over random little programs, the reduced searches reach exactly the outcomes that trying every
 * interleaving reaches, and notice what is wrong with programs that are wrong.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "model.h"
#include "rt/os.h"

enum { THREADS = 3, OPS_MAX = 4, VARS = 3 };

enum { LOAD, STORE, ADD, CAS, LOCKED_ADD, AWAIT, NAP, WAKE, KINDS };

/* The program under test: fixed during an exploration. */
static struct {
    unsigned threads, ops[THREADS];
    struct {
        unsigned kind, var;
    } op[THREADS][OPS_MAX];
} program;

struct world {
    struct os_a32 var[VARS];
    struct os_mutex m[VARS];
    uint64_t seen[THREADS]; /* what each thread observed */
};

struct actor {
    struct world *w;
    unsigned id;
};

static void act(void *arg)
{
    const struct actor *me = arg;
    struct world *w = me->w;
    uint64_t seen = me->id + 1;
    for (unsigned i = 0; i < program.ops[me->id]; i++) {
        unsigned v = program.op[me->id][i].var;
        uint32_t got = 0;
        switch (program.op[me->id][i].kind) {
        case LOAD:
            got = os_a32_load(&w->var[v], memory_order_relaxed);
            break;
        case STORE:
            os_a32_store(&w->var[v], me->id * 16 + i, memory_order_relaxed);
            break;
        case ADD:
            got = os_a32_add(&w->var[v], 3, memory_order_relaxed);
            break;
        case CAS:
            os_a32_cas(&w->var[v], &got, 7, memory_order_relaxed);
            break;
        case LOCKED_ADD:
            os_mutex_lock(&w->m[v]);
            got = os_a32_add(&w->var[v], 5, memory_order_relaxed);
            os_mutex_unlock(&w->m[v]);
            break;
        case AWAIT: /* may never end; that is an outcome too */
            got = os_a32_spin(&w->var[v], 0);
            break;
        case NAP:
            got = os_sleep_on(&w->var[v], 0, os_now_ns() + 1000);
            break;
        case WAKE:
            os_wake_one(&w->var[v]);
            break;
        default:
            break;
        }
        seen = seen * 31 + got;
    }
    w->seen[me->id] = seen;
}

static void body(void)
{
    struct world w = {0};
    struct actor actors[THREADS];
    struct os_thread t[THREADS];
    for (unsigned i = 0; i < program.threads; i++) {
        actors[i] = (struct actor){&w, i};
        CHECK(os_thread_start(&t[i], "actor", act, &actors[i]) == ERR_OK);
    }
    for (unsigned i = 0; i < program.threads; i++)
        os_thread_join(&t[i]);
    uint64_t h = 17;
    for (unsigned i = 0; i < VARS; i++)
        h = h * 1000003 + w.var[i].v;
    for (unsigned i = 0; i < program.threads; i++)
        h = h * 1000003 + w.seen[i];
    model_outcome(h);
}

enum { OUTCOMES_MAX = 4096 };
struct outcomes {
    uint64_t v[OUTCOMES_MAX];
    size_t n;
};
static struct outcomes *collecting;

static void collect(uint64_t v)
{
    for (size_t i = 0; i < collecting->n; i++) {
        if (collecting->v[i] == v)
            return;
    }
    if (collecting->n == OUTCOMES_MAX)
        abort();
    collecting->v[collecting->n++] = v;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static bool same(struct outcomes *a, struct outcomes *b)
{
    qsort(a->v, a->n, sizeof a->v[0], compare);
    qsort(b->v, b->n, sizeof b->v[0], compare);
    return a->n == b->n && memcmp(a->v, b->v, a->n * sizeof a->v[0]) == 0;
}

static void make_program(struct rng *rng, bool naps)
{
    memset(&program, 0, sizeof program);
    program.threads = 2 + (unsigned)rng_below(rng, 2);
    for (unsigned t = 0; t < program.threads; t++) {
        program.ops[t] = 1 + (unsigned)rng_below(rng, program.threads == 2 ? 4 : 2);
        for (unsigned i = 0; i < program.ops[t]; i++) {
            program.op[t][i].kind = (unsigned)rng_below(rng, naps ? KINDS : NAP);
            program.op[t][i].var = (unsigned)rng_below(rng, VARS);
        }
    }
}

static uint64_t runs_naive, runs_reduced;

static bool outcomes_agree(struct model m, uint64_t runs_max)
{
    static struct outcomes naive, reduced;
    static struct model_result r;
    naive.n = reduced.n = 0;
    collecting = &naive;
    model_explore(&m, MODEL_NAIVE, runs_max, collect, &r);
    if (!r.complete)
        return true; /* too large to try everything */
    runs_naive += r.runs;
    collecting = &reduced;
    model_explore(&m, MODEL_REDUCED, 0, collect, &r);
    runs_reduced += r.runs + r.cut;
    return same(&naive, &reduced);
}

static int check_reduction(uint64_t seed, unsigned programs)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (unsigned i = 0; i < programs; i++) {
        make_program(&rng, i % 3 == 0);
        struct model m = {.name = "random", .body = body, .timeouts = i % 6 == 0};
        if (!outcomes_agree(m, 20000)) {
            printf("program %u of seed %" PRIu64 ": the reduction loses outcomes\n", i, seed);
            return 1;
        }
        m.preemptions = 1 + i % 2;
        if (!outcomes_agree(m, 20000)) {
            printf("program %u of seed %" PRIu64 ": the bounded reduction loses outcomes\n", i, seed);
            return 1;
        }
    }
    printf("%u random programs: the same outcomes from %" PRIu64 " naive and %" PRIu64 " reduced runs\n",
           programs, runs_naive, runs_reduced);
    return 0;
}

/* Programs that are wrong, each in its own way. */

static struct os_mutex *lock_of(struct os_mutex *m, int i)
{
    return &m[i];
}

static void lock_both(void *arg)
{
    struct os_mutex *m = arg;
    os_mutex_lock(lock_of(m, 0));
    os_mutex_lock(lock_of(m, 1));
    os_mutex_unlock(lock_of(m, 1));
    os_mutex_unlock(lock_of(m, 0));
}

static void wrong_lock_order(void)
{
    struct os_mutex m[2] = {0};
    struct os_thread t;
    CHECK(os_thread_start(&t, "other", lock_both, m) == ERR_OK);
    os_mutex_lock(&m[1]);
    os_mutex_lock(&m[0]);
    os_mutex_unlock(&m[0]);
    os_mutex_unlock(&m[1]);
    os_thread_join(&t);
}

struct cell {
    struct os_a32 full;
    struct os_a64 sum;
};

static void fill(void *arg)
{
    struct cell *c = arg;
    os_a32_store(&c->full, 1, memory_order_release);
}

static void wrong_lost_wakeup(void) /* nobody wakes it */
{
    struct cell c = {0};
    struct os_thread t;
    CHECK(os_thread_start(&t, "other", fill, &c) == ERR_OK);
    while (!os_a32_load(&c.full, memory_order_acquire))
        os_sleep_on(&c.full, 0, OS_NEVER);
    os_thread_join(&t);
}

static void count_badly(void *arg)
{
    struct cell *c = arg;
    uint64_t v = os_a64_load(&c->sum, memory_order_relaxed);
    os_a64_store(&c->sum, v + 1, memory_order_relaxed);
}

static void wrong_lost_update(void)
{
    struct cell c = {0};
    struct os_thread t;
    CHECK(os_thread_start(&t, "other", count_badly, &c) == ERR_OK);
    count_badly(&c);
    os_thread_join(&t);
    CHECK(os_a64_load(&c.sum, memory_order_relaxed) == 2);
}

static void use_late(void *arg)
{
    struct cell *c = arg;
    os_a32_store(&c->full, 1, memory_order_release);
    os_a64_add(&c->sum, 1, memory_order_relaxed);
}

static void wrong_use_after_free(void)
{
    struct cell *c = os_alloc(sizeof *c);
    struct os_thread t;
    CHECK(os_thread_start(&t, "other", use_late, c) == ERR_OK);
    uint32_t full = os_a32_load(&c->full, memory_order_acquire);
    if (!full)
        os_a32_spin(&c->full, 0);
    os_free(c);
    os_thread_join(&t);
}

static void wrong_unlock_twice(void)
{
    struct os_mutex m = {0};
    os_mutex_lock(&m);
    os_mutex_unlock(&m);
    os_mutex_unlock(&m);
}

static void wrong_not_joined(void)
{
    static struct cell c;
    c = (struct cell){0};
    struct os_thread t;
    CHECK(os_thread_start(&t, "other", fill, &c) == ERR_OK);
}

static void wrong_not_freed(void)
{
    CHECK(os_alloc(1) != NULL);
}

static void wrong_endless(void)
{
    struct cell c = {0};
    while (!os_a32_load(&c.full, memory_order_relaxed))
        continue;
}

struct slot {
    struct os_a64 frame; /* address of a cell on the other thread's stack */
};

__attribute__((noinline)) static void lend_frame(struct slot *s)
{
    struct cell mine = {0};
    os_a64_store(&s->frame, (uint64_t)(uintptr_t)&mine, memory_order_release);
}

static void lend(void *arg)
{
    lend_frame(arg);
}

static void wrong_dead_frame(void)
{
    struct slot s = {0};
    struct os_thread t;
    CHECK(os_thread_start(&t, "other", lend, &s) == ERR_OK);
    uint64_t frame = os_a64_load(&s.frame, memory_order_acquire);
    if (!frame)
        frame = os_a64_spin(&s.frame, 0);
    os_a32_load(&((struct cell *)(uintptr_t)frame)->full, memory_order_relaxed);
    os_thread_join(&t);
}

static void nap_or_not(void *arg)
{
    struct cell *c = arg;
    if (!os_sleep_on(&c->full, 0, os_now_ns() + 5))
        os_a64_add(&c->sum, 1, memory_order_relaxed);
}

static void wrong_only_with_an_early_timeout(void)
{
    struct cell c = {0};
    struct os_thread t;
    CHECK(os_thread_start(&t, "other", nap_or_not, &c) == ERR_OK);
    os_a32_store(&c.full, 1, memory_order_release);
    os_wake_one(&c.full);
    os_thread_join(&t);
    CHECK(os_a64_load(&c.sum, memory_order_relaxed) == 0);
}

static int check_wrong_programs(void)
{
    const struct model wrong[] = {
        {.name = "locks in two orders", .body = wrong_lock_order},
        {.name = "lost wake-up", .body = wrong_lost_wakeup},
        {.name = "lost update", .body = wrong_lost_update},
        {.name = "use after free", .body = wrong_use_after_free},
        {.name = "unlocked twice", .body = wrong_unlock_twice},
        {.name = "thread not joined", .body = wrong_not_joined},
        {.name = "memory not freed", .body = wrong_not_freed},
        {.name = "endless loop", .body = wrong_endless},
        {.name = "dead stack frame", .body = wrong_dead_frame},
        {.name = "early time-out", .body = wrong_only_with_an_early_timeout, .timeouts = 1},
    };
    static struct model_result r;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        model_explore(&wrong[i], MODEL_REDUCED, 0, NULL, &r);
        if (!r.failed) {
            printf("%s: not noticed\n", wrong[i].name);
            return 1;
        }
        printf("%-24s noticed after %" PRIu64 " runs: %s\n", wrong[i].name, r.runs, r.why);
    }
    const struct model right = {.name = "no early time-out", .body = wrong_only_with_an_early_timeout};
    model_explore(&right, MODEL_REDUCED, 0, NULL, &r);
    return r.failed;
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    return check_wrong_programs() || check_reduction(seed, 400);
}
