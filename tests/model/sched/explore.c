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
#include "exploration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COVERS_MAX = 32 };

struct exploration ex;

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
        return t->deadline_ns != OS_NEVER && (t->deadline_ns <= ex.now_ns || ex.timeouts_left > 0);
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
    for (unsigned t = 0; t < ex.threads_n; t++) {
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
    for (unsigned t = 0; t < ex.threads_n; t++) {
        if (threads[t].parked && !threads[t].woken && threads[t].deadline_ns < next_ns)
            next_ns = threads[t].deadline_ns;
        model__clock_join(&all, &threads[t].clock);
    }
    if (next_ns == OS_NEVER)
        return false;
    ex.now_ns = next_ns;
    for (unsigned t = 0; t < ex.threads_n; t++)
        threads[t].clock = all;
    return true;
}

static void fail_stuck(void)
{
    if (ex.outcomes) { /* the self-test's programs may */
        ex.outcomes(0);
        model__leave(RUN_DONE);
    }
    char text[200] = "";
    for (unsigned t = 0; t < ex.threads_n; t++) {
        if (threads[t].started && !threads[t].finished) {
            size_t n = strlen(text);
            snprintf(text + n, sizeof text - n, "%s%s in %s", n ? ", " : "", threads[t].name,
                     threads[t].parked ? "sleep" : model__op_names[threads[t].op.kind]);
        }
    }
    model__fail("nobody can go on: %s", text);
}

static unsigned cost(const struct node *n, unsigned pick)
{
    return pick != n->before && (n->enabled & BIT(n->before)) ? 1 : 0;
}

static bool affordable(const struct node *n, unsigned pick)
{
    return !ex.bounded || n->preemptions + cost(n, pick) <= ex.bound;
}

/* A node not seen before: who goes first? Rather no preemption. */
static void node_fresh(struct node *n, uint8_t enabled)
{
    *n = (struct node){.before = (uint8_t)ex.current,
                       .enabled = enabled,
                       .asleep = ex.bounded || ex.naive ? 0 : ex.asleep,
                       .preemptions = ex.preemptions};
    uint8_t awake = enabled & (uint8_t)~n->asleep;
    if (!awake)
        model__leave(RUN_CUT);
    n->pick = (uint8_t)(awake & BIT(ex.current) ? ex.current : (unsigned)__builtin_ctz(awake));
    n->backtrack = BIT(n->pick);
    if (ex.naive ||
        (ex.bounded && !(n->pick == ex.current && model__touches_nothing(&threads[n->pick].op))))
        n->backtrack = enabled;
}

/* The next pick of a written schedule: "a" is one step of thread 0, "a7" seven; -1 at its end. */
static int pick_from_replay(uint8_t enabled)
{
    static unsigned left;
    static char who;
    if (ex.depth == 0)
        left = 0;
    if (left == 0) {
        if (!*ex.replay)
            return -1;
        who = *ex.replay++;
        for (; *ex.replay >= '0' && *ex.replay <= '9'; ex.replay++)
            left = left * 10 + (unsigned)(*ex.replay - '0');
        left = left ? left : 1;
    }
    left--;
    if (who < 'a' || who >= 'a' + THREADS_MAX || !(enabled & BIT(who - 'a')))
        model__fail("the schedule does not fit this program");
    return who - 'a';
}

/* Those of the set whose step is a time-out. */
static uint8_t timeouts_in(uint8_t set)
{
    uint8_t found = 0;
    for (unsigned t = 0; t < ex.threads_n; t++) {
        if ((set & BIT(t)) && threads[t].op.kind == OP_TIMEOUT)
            found |= BIT(t);
    }
    return found;
}

static void trace_step(unsigned t)
{
    const struct op *op = &threads[t].op;
    printf("%5d  %c %-12s %-8s %p\n", ex.depth, 'a' + (int)t, threads[t].name, model__op_names[op->kind],
           op->addr);
}

/* Decides who takes the next step, and accounts for it. */
static unsigned pick_next(void)
{
    if (ex.depth >= STEPS_MAX)
        model__fail("still running after %d steps: it does not end", STEPS_MAX);
    uint8_t enabled = enabled_set();
    if (!enabled && advance_time())
        enabled = enabled_set();
    if (!enabled) {
        model__note_stuck_races();
        fail_stuck();
    }
    struct node *n = &ex.nodes[ex.depth];
    if (ex.depth >= ex.fixed)
        node_fresh(n, enabled);
    if (ex.replay) {
        int pick = pick_from_replay(enabled);
        n->pick = (uint8_t)(pick >= 0 ? (unsigned)pick : n->pick);
    }
    unsigned t = n->pick;
    if (!(enabled & BIT(t)))
        model__fail("the model is not deterministic: it keeps state between runs");
    if (ex.trace)
        trace_step(t);
    ex.asleep = 0;
    uint8_t sleepers = (uint8_t)((n->asleep | n->done) & ~BIT(t));
    for (unsigned q = 0; sleepers && q < ex.threads_n; q++) {
        if ((sleepers & BIT(q)) && model__independent(&threads[q].op, &threads[t].op))
            ex.asleep |= BIT(q);
    }
    ex.preemptions = (uint8_t)(n->preemptions + cost(n, t));
    if (threads[t].op.kind == OP_TIMEOUT)
        n->backtrack |= timeouts_in(n->enabled); /* it may use up what the others need */
    if (!ex.naive && !ex.bounded)
        model__take_step(t, &threads[t].op);
    ex.depth++;
    return t;
}

void model__schedule(void)
{
    unsigned from = ex.current, to = pick_next();
    ex.current = to;
    if (from != to)
        model__switch(&threads[from].sp, threads[to].sp);
}

/* ---- the search ---- */

void model_cover(unsigned place)
{
    ex.result->covered |= 1u << (place % COVERS_MAX);
}

void model_outcome(uint64_t value)
{
    if (ex.outcomes)
        ex.outcomes(value);
}

static void main_thread(void *arg)
{
    (void)arg;
    ex.model->body();
}

void model__run_once(void)
{
    ex.run++;
    ex.depth = 0;
    ex.threads_n = 1;
    ex.current = 0;
    ex.timeouts_left = ex.model->timeouts;
    ex.asleep = 0;
    ex.preemptions = 0;
    ex.now_ns = 1000000000;
    model__order_begin();
    model__world_begin(main_thread);
    model__switch(&ex.main_sp, threads[0].sp);
    ex.main_sp = NULL;
    if ((unsigned)ex.depth > ex.result->steps_max)
        ex.result->steps_max = (unsigned)ex.depth;
}

/* Changes the deepest pick that has an untried alternative; false: none left. */
static bool next_schedule(void)
{
    for (int d = ex.depth - 1; d >= 0; d--) {
        struct node *n = &ex.nodes[d];
        n->done |= BIT(n->pick);
        uint8_t left = n->backtrack & (uint8_t) ~(n->done | n->asleep);
        for (unsigned t = 0; t < THREADS_MAX; t++) {
            if ((left & BIT(t)) && affordable(n, t)) {
                n->pick = (uint8_t)t;
                ex.fixed = d + 1;
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
    for (int d = 0; d < ex.depth && n + 8 < max;) {
        int same = 1;
        while (d + same < ex.depth && ex.nodes[d + same].pick == ex.nodes[d].pick)
            same++;
        n += (size_t)snprintf(out + n, max - n, same > 1 ? "%c%d" : "%c", 'a' + ex.nodes[d].pick, same);
        d += same;
    }
}

double model__seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void model__search_begin(const struct model *m, enum model_search how, struct model_result *out)
{
    memset(out, 0, sizeof *out);
    ex.model = m;
    ex.naive = how == MODEL_NAIVE;
    ex.bounded = m->preemptions > 0;
    ex.bound = m->preemptions == MODEL_PREEMPTIONS_NONE ? 0 : m->preemptions;
    ex.fixed = 0;
    ex.replay = NULL;
    ex.trace = false;
    ex.result = out;
}

void model_explore(const struct model *m, enum model_search how, uint64_t runs_max,
                   void (*outcomes)(uint64_t value), struct model_result *out)
{
    model__search_begin(m, how, out);
    ex.outcomes = outcomes;
    double start = model__seconds();
    do {
        model__run_once();
        if (ex.end == RUN_CUT)
            out->cut++;
        else
            out->runs++;
        if (ex.end == RUN_FAILED) {
            out->failed = true;
            write_schedule(out->schedule, sizeof out->schedule);
        }
        out->complete = !out->failed && !next_schedule();
        bool late = ex.stop_at > 0 && (out->runs & 1023) == 0 && model__seconds() > ex.stop_at;
        if (late || (runs_max > 0 && out->runs + out->cut >= runs_max))
            break;
    } while (!out->failed && !out->complete);
    out->seconds = model__seconds() - start;
}
