/*
 * What readers share with the one who replaces it, under all interleavings.
 *
 *   generations   2 readers pin, 1 publisher replaces twice: nothing is used after it was freed, everything is freed once, and who
 *                 begins after a publish returned never sees what it replaced (pack.c: pin under the lock, count, unpin)
 *   objects       commit, evict, quarantine and open of one digest: no name without an object, nothing that is known to be damaged
 *                 is served by who begins afterwards (store.c, store_write.c: the record before the file, the file before the name)
 *   hand_back     a worker fails with its job in hand: it goes back once, is done or refused, and is answered exactly once
 *                 (fills.c: edge_fill_hand_back)
 */
#include "base/check.h"
#include "model.h"
#include "rt/chan.h"
#include "rt/lock.h"
#include "rt/os.h"
#include "services/edge/core/fill_state.h"

static void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
}

/* ---- generations ---- */

enum { GENERATIONS = 3 };

struct generation {
    struct os_a32 refs;
    struct os_a32 freed;
};

struct shelf {
    struct rt_lock lock; /* guards current */
    unsigned current;
    struct generation g[GENERATIONS];
    struct os_a32 published; /* number of the newest whose publish has returned */
};

static unsigned pin(struct shelf *s)
{
    rt_lock_take(&s->lock);
    unsigned n = s->current;
    os_a32_add(&s->g[n].refs, 1, memory_order_relaxed);
    rt_lock_release(&s->lock);
    return n;
}

static void unpin(struct shelf *s, unsigned n)
{
    if (os_a32_add(&s->g[n].refs, (uint32_t)-1, memory_order_acq_rel) == 1)
        CHECK(os_a32_or(&s->g[n].freed, 1, memory_order_relaxed) == 0);
}

static void read_tile(void *arg)
{
    struct shelf *s = arg;
    uint32_t promised = os_a32_load(&s->published, memory_order_acquire);
    unsigned n = pin(s);
    CHECK(n >= promised); /* never an older one than was promised */
    model_cover(n);
    CHECK(os_a32_load(&s->g[n].freed, memory_order_relaxed) == 0);
    unpin(s, n);
}

static void publish(void *arg)
{
    struct shelf *s = arg;
    for (unsigned n = 1; n < GENERATIONS; n++) {
        os_a32_store(&s->g[n].refs, 1, memory_order_relaxed);
        rt_lock_take(&s->lock);
        unsigned old = s->current;
        s->current = n;
        rt_lock_release(&s->lock);
        unpin(s, old);
        os_a32_store(&s->published, n, memory_order_release);
    }
}

static void generations(void)
{
    struct shelf s = {0};
    struct os_thread r[2], p;
    rt_lock_init(&s.lock, "state_meta", 10);
    os_a32_store(&s.g[0].refs, 1, memory_order_relaxed);
    start(&r[0], "reader", read_tile, &s);
    start(&r[1], "reader", read_tile, &s);
    start(&p, "publisher", publish, &s);
    os_thread_join(&r[0]);
    os_thread_join(&r[1]);
    os_thread_join(&p);
    for (unsigned n = 0; n + 1 < GENERATIONS; n++)
        CHECK(os_a32_load(&s.g[n].freed, memory_order_relaxed) == 1);
    CHECK(os_a32_load(&s.g[GENERATIONS - 1].freed, memory_order_relaxed) == 0);
    rt_lock_fini(&s.lock);
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

/* ---- a worker that fails ---- */

struct job {
    enum edge_fill_state state;
    bool handed_back;
    struct os_a32 answered;
};

struct bench {
    struct rt_chan *work;
    struct rt_lock lock; /* guards the job's state */
    struct job job;
    struct os_a32 fail; /* the drill: who holds the job now fails */
};

static void to(struct bench *b, enum edge_fill_state s)
{
    rt_lock_take(&b->lock);
    edge_fill_move(&b->job.state, s);
    rt_lock_release(&b->lock);
}

static void end(struct bench *b, enum edge_fill_state s)
{
    to(b, s);
    CHECK(os_a32_add(&b->job.answered, 1, memory_order_relaxed) == 0); /* exactly once */
}

static void hand_back_job(struct bench *b)
{
    bool again = !b->job.handed_back;
    b->job.handed_back = true;
    if (again) {
        to(b, EDGE_FILL_QUEUED);
        if (rt_chan_try_send(b->work, &b->job) == ERR_OK) {
            model_cover(0);
            return;
        }
    }
    model_cover(1);
    end(b, EDGE_FILL_FAILED);
}

RT_BLOCKS
static void work(void *arg)
{
    struct bench *b = arg;
    void *item;
    while (rt_chan_recv(b->work, deadline_never(), &item) == ERR_OK) {
        to(b, EDGE_FILL_FETCHING);
        if (os_a32_load(&b->fail, memory_order_relaxed)) {
            hand_back_job(b);
            continue; /* restarted by the supervisor */
        }
        to(b, EDGE_FILL_COMMITTING);
        if (os_a32_load(&b->fail, memory_order_relaxed)) {
            hand_back_job(b);
            continue;
        }
        model_cover(2);
        end(b, EDGE_FILL_DONE);
    }
}

static void drill(void *arg)
{
    struct bench *b = arg;
    os_a32_store(&b->fail, 1, memory_order_relaxed);
    os_a32_store(&b->fail, 0, memory_order_relaxed);
}

static void close_work(void *arg)
{
    rt_chan_close(((struct bench *)arg)->work);
}

RT_BLOCKS
static void hand_back(void)
{
    struct bench b = {
        .work = rt_chan_create(&(struct rt_chan_spec){.name = "work", .capacity = 1, .policy = RT_REJECT})};
    struct os_thread w, d, c;
    CHECK(b.work != NULL);
    rt_lock_init(&b.lock, "fills", 22);
    to(&b, EDGE_FILL_QUEUED);
    CHECK(rt_chan_try_send(b.work, &b.job) == ERR_OK);
    start(&w, "worker", work, &b);
    start(&d, "drill", drill, &b);
    start(&c, "drain", close_work, &b);
    os_thread_join(&d);
    os_thread_join(&c);
    os_thread_join(&w);
    CHECK(os_a32_load(&b.job.answered, memory_order_relaxed) == 1); /* not lost either */
    rt_chan_destroy(b.work, NULL, NULL);
    rt_lock_fini(&b.lock);
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "generations", .body = generations, .preemptions = 2, .covers = 3},
        {.name = "objects", .body = objects, .preemptions = 3, .covers = 4},
        {.name = "hand_back", .body = hand_back, .preemptions = 2, .covers = 3},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
