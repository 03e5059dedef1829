/*
 * What readers share with the one who replaces it, under all interleavings.
 *
 *   generations   2 readers pin, 1 publisher replaces twice, all by generation.c itself: nothing is used after it was freed,
 *                 everything is freed once, and who begins after a publish returned never sees what it replaced
 *   remembered    requests of one loop that remember an answer and what it is as of, 1 publisher: what is answered from memory was
 *                 not replaced before its request began
 */
#include <stdlib.h>

#include "base/check.h"
#include "model.h"
#include "rt/lock.h"
#include "rt/os.h"
#include "services/edge/pack.h"

static void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
}

/* ---- generations ---- */

enum { GENERATIONS = 3 };

/* A generation's only pack: dropped by whoever frees the generation. */
struct tracked {
    struct edge_pack pack;
    struct os_a32 freed;
};

struct shelf {
    struct edge e;
    struct tracked packs[GENERATIONS];
    struct os_a32 published; /* number of the newest whose publish has returned */
};

void edge_pack_unref(struct edge_pack *p)
{
    struct tracked *t = (struct tracked *)(void *)p;
    CHECK(os_a32_or(&t->freed, 1, memory_order_relaxed) == 0);
}

static struct edge_generation *generation(struct shelf *s, unsigned number)
{
    struct edge_generation *g = calloc(1, sizeof *g + sizeof g->slots[0]);
    CHECK(g && map_init(&g->by_name, 0) == ERR_OK);
    os_a32_store(&g->refs, 1, memory_order_relaxed);
    g->number = number;
    g->n = 1;
    g->slots[0].pack = &s->packs[number].pack;
    return g;
}

static bool is_freed(struct shelf *s, uint64_t number)
{
    return os_a32_load(&s->packs[number].freed, memory_order_relaxed) != 0;
}

static void read_tile(void *arg)
{
    struct shelf *s = arg;
    uint32_t promised = os_a32_load(&s->published, memory_order_acquire);
    struct edge_generation *g = edge_pin(&s->e);
    uint64_t n = g->number;
    CHECK(n >= promised); /* never an older one than was promised */
    model_cover((unsigned)n);
    CHECK(!is_freed(s, n));
    edge_unpin(g);
}

static void publish(void *arg)
{
    struct shelf *s = arg;
    for (unsigned n = 1; n < GENERATIONS; n++) {
        edge_generation_publish(&s->e, generation(s, n));
        os_a32_store(&s->published, n, memory_order_release);
    }
}

static void generations(void)
{
    struct shelf s;
    struct os_thread r[2], p;
    memset(&s, 0, sizeof s);
    rt_lock_init(&s.e.state_meta, "state_meta", 10);
    s.e.generation = generation(&s, 0);
    start(&r[0], "reader", read_tile, &s);
    start(&r[1], "reader", read_tile, &s);
    start(&p, "publisher", publish, &s);
    os_thread_join(&r[0]);
    os_thread_join(&r[1]);
    os_thread_join(&p);
    for (unsigned n = 0; n + 1 < GENERATIONS; n++)
        CHECK(is_freed(&s, n));
    CHECK(!is_freed(&s, GENERATIONS - 1));
    edge_unpin(s.e.generation);
    rt_lock_fini(&s.e.state_meta);
}

/* ---- answers that are remembered ---- */

uint64_t edge_file_changes(void)
{
    return 0;
}

struct memory {
    struct shelf s;
    uint64_t as_of, number; /* the loop's: both requests are its own, one after the other */
};

static void ask(struct memory *m)
{
    uint32_t promised = os_a32_load(&m->s.published, memory_order_acquire);
    uint64_t as_of = edge_as_of(&m->s.e);
    if (m->as_of == as_of) {
        CHECK(m->number >= promised);
        model_cover(0);
        return;
    }
    struct edge_generation *g = edge_pin(&m->s.e);
    CHECK(g->number >= promised);
    m->number = g->number;
    m->as_of = as_of;
    model_cover(1 + (unsigned)g->number);
    edge_unpin(g);
}

static void ask_again(void *arg)
{
    for (int i = 0; i < 3; i++)
        ask(arg);
}

static void remembered(void)
{
    struct memory m;
    struct os_thread loop, p;
    memset(&m, 0, sizeof m);
    rt_lock_init(&m.s.e.state_meta, "state_meta", 10);
    m.s.e.generation = generation(&m.s, 0);
    start(&loop, "loop", ask_again, &m);
    start(&p, "publisher", publish, &m.s);
    os_thread_join(&loop);
    os_thread_join(&p);
    edge_unpin(m.s.e.generation);
    rt_lock_fini(&m.s.e.state_meta);
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "generations", .body = generations, .preemptions = 3, .covers = 3},
        {.name = "remembered", .body = remembered, .preemptions = 4, .covers = 4},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
