/*
 * What readers share with the one who replaces it, under all interleavings.
 *
 *   generations   2 readers pin, 1 publisher replaces twice, all by generation.c itself: nothing is used after it was freed,
 *                 everything is freed once, and who begins after a publish returned never sees what it replaced
 *   objects       commit, evict, quarantine and open of one digest, in the order of store.c and store_write.c (the record before
 *                 the file, the file before the name): no name without an object, nothing that is known to be damaged is served
 *                 by who begins afterwards
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

/* ---- objects ---- */

struct store {
    struct rt_lock refs;    /* guards named and known */
    struct rt_lock objects; /* guards opened */
    bool named, known;      /* a name points to the object; the catalogue has it */
    bool opened;            /* in the cache of opened objects */
    struct os_a32 on_disk;
    struct os_a32 damaged;   /* its bytes are wrong */
    struct os_a32 condemned; /* the quarantine of it has returned */
    bool writer_gone;
};

static void forget(struct store *s)
{
    rt_lock_take(&s->objects);
    s->opened = false;
    rt_lock_release(&s->objects);
}

/* cas_writer: first a commit, then what scrub or eviction asked for. */
static void write_store(void *arg)
{
    struct store *s = arg;
    os_a32_store(&s->on_disk, 1, memory_order_release); /* object durable */
    rt_lock_take(&s->refs);
    s->known = s->named = true; /* then its name is seen */
    rt_lock_release(&s->refs);
    forget(s);
    rt_lock_take(&s->refs);
    s->known = s->named = false; /* the record: no name may point to it before it goes */
    rt_lock_release(&s->refs);
    forget(s); /* whoever opened it in between */
    os_a32_store(&s->on_disk, 0, memory_order_release);
    os_a32_store(&s->condemned, 1, memory_order_release);
}

static void rot(void *arg)
{
    struct store *s = arg;
    os_a32_store(&s->damaged, 1, memory_order_release);
}

/* A request: the name, then the object, hashed when it is opened for the first time. */
static void serve(void *arg)
{
    struct store *s = arg;
    bool late = os_a32_load(&s->condemned, memory_order_acquire);
    rt_lock_take(&s->refs);
    bool named = s->named;
    if (named)
        CHECK(s->known); /* a name never without its object */
    rt_lock_release(&s->refs);
    if (!named) {
        model_cover(0);
        return;
    }
    CHECK(!late); /* what was put aside before we began is not found any more */
    rt_lock_take(&s->objects);
    bool opened = s->opened;
    rt_lock_release(&s->objects);
    if (!opened) {
        if (!os_a32_load(&s->on_disk, memory_order_acquire)) {
            model_cover(1); /* removed meanwhile: 503, the next request fills it again */
            return;
        }
        if (os_a32_load(&s->damaged, memory_order_acquire)) {
            model_cover(2); /* seen when it was hashed: not served */
            return;
        }
        rt_lock_take(&s->objects);
        s->opened = true;
        rt_lock_release(&s->objects);
    }
    model_cover(3);
}

static void objects(void)
{
    struct store s = {0};
    struct os_thread w, r, x;
    rt_lock_init(&s.refs, "refs", 24);
    rt_lock_init(&s.objects, "objects", 25);
    start(&w, "cas_writer", write_store, &s);
    start(&r, "listener", serve, &s);
    start(&x, "rot", rot, &s);
    os_thread_join(&w);
    os_thread_join(&r);
    os_thread_join(&x);
    CHECK(!s.named && !s.known);
    rt_lock_fini(&s.refs);
    rt_lock_fini(&s.objects);
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "generations", .body = generations, .preemptions = 3, .covers = 3},
        {.name = "objects", .body = objects, .preemptions = 3, .covers = 4},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
