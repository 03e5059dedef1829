/*
 * Which steps are ordered, and what could have come in another order.
 *
 * Every object (an atomic, a mutex, a word slept on, the clock) remembers its last write and the reads since; vector clocks tell
 * whether a step is ordered after those. Where it is not, the two race, and the node of the earlier one gets an alternative
 * (explore.c says which and why).
 *
 * In the part of a schedule that is the same as in the run before, clocks are those of the run before and races are known:
 * only the objects are brought up to date.
 */
#include "exploration.h"

#include <stdlib.h>
#include <string.h>

enum { OBJECTS_MAX = 1024 };

struct object {
    const void *addr;
    uint64_t run; /* valid in this run only */
    struct vclock writes, reads;
    int write;             /* depth of the last one, for a mutex of the last lock; -1: none */
    int read[THREADS_MAX]; /* the last of each thread since that write */
};

static struct object objects[OBJECTS_MAX];
static struct object *known[OBJECTS_MAX]; /* those of this run, in the order in which they appeared */
static unsigned known_n;
static const char clock_object; /* its address stands for the clock */

void model__order_begin(void)
{
    known_n = 0;
}

static struct object *object_new(struct object *o, const void *addr)
{
    if (known_n == OBJECTS_MAX - 1)
        model__fail("more than %d things are shared", OBJECTS_MAX - 1);
    known[known_n++] = o;
    memset(o, 0, sizeof *o);
    o->addr = addr;
    o->run = ex.run;
    o->write = -1;
    for (unsigned t = 0; t < THREADS_MAX; t++)
        o->read[t] = -1;
    return o;
}

static struct object *object_of(const void *addr)
{
    size_t i = (size_t)(((uintptr_t)addr >> 2) * 0x9e3779b97f4a7c15u >> 54);
    for (;; i = (i + 1) % OBJECTS_MAX) {
        struct object *o = &objects[i];
        if (o->run != ex.run)
            return object_new(o, addr);
        if (o->addr == addr)
            return o;
    }
}

void model__clock_join(struct vclock *a, const struct vclock *b)
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

bool model__touches_nothing(const struct op *op)
{
    struct touch ignored[2];
    return op->kind != OP_FREE && op_touches(op, ignored) == 0;
}

/* Is `addr` inside what the step frees? */
static bool in_block(const struct op *op, const void *addr)
{
    return op->kind == OP_FREE && (const char *)addr >= (const char *)op->addr &&
           (const char *)addr < (const char *)op->addr + op->seen;
}

bool model__independent(const struct op *a, const struct op *b)
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

/* The same, with the objects themselves. */
struct touched {
    struct object *object[2];
    bool write[2];
    unsigned n;
};

static void objects_touched(const struct op *op, struct touched *out)
{
    struct touch touches[2];
    out->n = op_touches(op, touches);
    for (unsigned i = 0; i < out->n; i++) {
        out->object[i] = object_of(touches[i].addr);
        out->write[i] = touches[i].write;
    }
}

/* Is the step at `depth` ordered before whatever has this clock? */
static bool before(int depth, const struct vclock *clock)
{
    const struct step *s = &ex.steps[depth];
    return clock->of[s->thread] >= s->clock.of[s->thread];
}

/* Earlier steps that conflict with one being taken: at most the last write and reads of each object it touches. */
struct conflicts {
    int depth[THREADS_MAX * 8];
    unsigned n;
};

static void conflict_add(struct conflicts *c, unsigned t, int depth)
{
    if (depth < 0 || ex.steps[depth].thread == t || before(depth, &threads[t].clock) ||
        c->n == sizeof c->depth / sizeof *c->depth)
        return;
    c->depth[c->n++] = depth;
}

static void conflicts_with(struct conflicts *c, unsigned t, const struct object *o, bool write)
{
    conflict_add(c, t, o->write);
    for (unsigned r = 0; write && r < ex.threads_n; r++)
        conflict_add(c, t, o->read[r]);
}

static void find_conflicts(struct conflicts *c, unsigned t, const struct op *op, const struct touched *at)
{
    c->n = 0;
    if (op->kind == OP_UNLOCK)
        return; /* only the holder unlocks: nothing could come in between */
    for (unsigned i = 0; i < at->n; i++)
        conflicts_with(c, t, at->object[i], at->write[i]);
    for (unsigned i = 0; op->kind == OP_FREE && i < known_n; i++) {
        if (in_block(op, known[i]->addr))
            conflicts_with(c, t, known[i], true);
    }
}

/* A race: no other conflicting step lies between the two. */
static bool is_race(const struct conflicts *c, unsigned i)
{
    for (unsigned k = 0; k < c->n; k++) {
        if (c->depth[k] > c->depth[i] && before(c->depth[i], &ex.steps[c->depth[k]].clock))
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
    for (int d = early + 1; d <= ex.depth; d++) {
        const struct vclock *clock = d < ex.depth ? &ex.steps[d].clock : late;
        unsigned u = d < ex.depth ? ex.steps[d].thread : t;
        if ((d < ex.depth && before(early, clock)) || (seen & BIT(u)))
            continue;
        bool depends = false;
        for (unsigned w = 0; w < ex.threads_n; w++)
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
        struct node *n = &ex.nodes[c->depth[i]];
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
static struct vclock clock_after(unsigned t, const struct touched *at)
{
    struct vclock clock = threads[t].clock;
    clock.of[t]++;
    for (unsigned i = 0; i < at->n; i++) {
        model__clock_join(&clock, &at->object[i]->writes);
        if (at->write[i])
            model__clock_join(&clock, &at->object[i]->reads);
    }
    return clock;
}

static void look_for_races(unsigned t, const struct op *op, const struct touched *at,
                           const struct vclock *late)
{
    struct conflicts c;
    find_conflicts(&c, t, op, at);
    note_races(&c, t, late);
}

static void object_note(struct object *o, bool write, unsigned t, const struct op *op,
                        const struct vclock *clock)
{
    if (!write) {
        model__clock_join(&o->reads, clock);
        o->read[t] = ex.depth;
        return;
    }
    o->writes = *clock;
    if (op->kind == OP_UNLOCK)
        return; /* races of locks are with locks */
    o->write = ex.depth;
    for (unsigned r = 0; r < THREADS_MAX; r++)
        o->read[r] = -1;
}

void model__take_step(unsigned t, const struct op *op)
{
    struct touched at;
    objects_touched(op, &at);
    struct step *s = &ex.steps[ex.depth];
    if (ex.depth + 1 >= ex.fixed) {
        struct vclock late = clock_after(t, &at);
        look_for_races(t, op, &at, &late);
        *s = (struct step){(uint8_t)t, late};
    }
    threads[t].clock = s->clock;
    for (unsigned i = 0; i < at.n; i++)
        object_note(at.object[i], at.write[i], t, op, &s->clock);
}

void model__note_stuck_races(void)
{
    for (unsigned t = 0; t < ex.threads_n && !ex.naive; t++) {
        if (!threads[t].started || threads[t].finished)
            continue;
        struct touched at;
        objects_touched(&threads[t].op, &at);
        struct vclock late = clock_after(t, &at);
        look_for_races(t, &threads[t].op, &at, &late);
    }
}
