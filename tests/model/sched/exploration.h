/*
 * What the files of the model checker share: steps, threads, nodes of the search, the exploration.
 *
 *     order.c     which steps are ordered, which race, and what a race makes worth trying
 *     explore.c   who goes on, and the search over all schedules
 *     world.c     what a model runs in: stacks, memory, and os_* as announced steps
 *     program.c   main() of a model program
 */
#ifndef RON_TESTS_MODEL_SCHED_EXPLORATION_H
#define RON_TESTS_MODEL_SCHED_EXPLORATION_H

#ifndef RON_MODEL
#define RON_MODEL 1 /* for tools that read a file alone */
#endif

#include "model.h"
#include "rt/os.h"

enum {
    THREADS_MAX = 8,
    STEPS_MAX = 4000, /* a longer run is taken for one that does not end */
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
struct exploration {
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
    double stop_at; /* model__seconds(); 0: never */
    struct model_result *result;
    void (*outcomes)(uint64_t);
};

extern struct exploration ex;
extern struct thread threads[THREADS_MAX];

#define BIT(t) ((uint8_t)(1u << (t)))

static inline struct thread *model__self(void)
{
    return &threads[ex.current];
}

/* explore.c */
void model__schedule(
    void); /* the current thread has announced its step in .op; returns when it may take it */
void model__search_begin(const struct model *m, enum model_search how, struct model_result *out);
void model__run_once(void);
double model__seconds(void);

/* order.c */
void model__order_begin(void); /* a run begins */
void model__take_step(unsigned t, const struct op *op);
void model__note_stuck_races(void); /* of steps that nobody will take any more */
bool model__independent(const struct op *a, const struct op *b);
bool model__touches_nothing(const struct op *op);
void model__clock_join(struct vclock *a, const struct vclock *b);

/* world.c */
extern const char *const model__op_names[];
void model__world_begin(void (*main_thread)(void *)); /* an empty world with thread 0 */
void model__switch(void **save_sp, void *load_sp);
__attribute__((noreturn)) void model__leave(enum run_end end);
__attribute__((noreturn, format(printf, 1, 2))) void model__fail(const char *format, ...);

#endif
