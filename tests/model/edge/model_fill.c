/*
 * The work queue and single flight under all interleavings.
 *
 *   work_queue      1 producer, queue of 2, 1 consumer, shutdown watch: no deadlock, no missed shutdown, and after the shutdown
 *                   the consumer drains at most what the queue holds
 *   single_flight   2 requesters for one name, 1 worker: exactly one GET, everybody answered exactly once. The order of steps is
 *                   that of fills.c: look into the store, join or insert under the lock, the inserter looks once more, only then
 *                   queues; the worker publishes, then takes the fill out of the table and answers
 *   full_queue      2 requesters, a queue that is full: whoever joined the refused fill is refused with it
 */
#include "base/check.h"
#include "model.h"
#include "rt/chan.h"
#include "rt/lock.h"
#include "rt/os.h"
#include "rt/watch.h"
#include "services/edge/core/fill_state.h"

static void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
}

/* ---- the work queue ---- */

enum { CAPACITY = 2, ITEMS = 3 };

struct desk {
    struct rt_chan *work;
    struct rt_watch *shutdown;
    struct os_a32 sent, got, busy;
    struct os_a32 down; /* set before the queue is closed */
    uint32_t drained;   /* received after the consumer saw the shutdown */
};

static void produce(void *arg)
{
    struct desk *d = arg;
    static int item;
    for (int i = 0; i < ITEMS; i++) {
        enum err e = rt_chan_try_send(d->work, &item);
        if (e == ERR_OK)
            os_a32_add(&d->sent, 1, memory_order_relaxed);
        else {
            CHECK(e == ERR_BUSY || e == ERR_CLOSED);
            model_cover(e == ERR_BUSY ? 0 : 1);
            os_a32_add(&d->busy, 1, memory_order_relaxed);
        }
    }
}

RT_BLOCKS
static void consume(void *arg)
{
    struct desk *d = arg;
    for (;;) {
        void *item;
        uint64_t version;
        bool down = rt_watch_get(d->shutdown, &version) != NULL;
        enum err e = rt_chan_recv(d->work, deadline_never(), &item);
        if (e == ERR_CLOSED) {
            CHECK(rt_watch_get(d->shutdown, &version) != NULL); /* the shutdown was not missed */
            return;
        }
        CHECK(e == ERR_OK);
        os_a32_add(&d->got, 1, memory_order_relaxed);
        d->drained += down;
    }
}

static void shut_down(void *arg)
{
    struct desk *d = arg;
    rt_watch_publish(d->shutdown, d);
    rt_chan_close(d->work);
}

RT_BLOCKS
static void work_queue(void)
{
    struct desk d = {.work = rt_chan_create(
                         &(struct rt_chan_spec){.name = "work", .capacity = CAPACITY, .policy = RT_REJECT}),
                     .shutdown = rt_watch_create(&(struct rt_watch_spec){.name = "shutdown"})};
    struct os_thread p, c, s;
    CHECK(d.work && d.shutdown);
    start(&p, "producer", produce, &d);
    start(&c, "consumer", consume, &d);
    start(&s, "supervisor", shut_down, &d);
    os_thread_join(&p);
    os_thread_join(&s);
    os_thread_join(&c);
    CHECK(d.drained <= CAPACITY + 1); /* the queue, and one that was sent between the look and the close */
    CHECK(os_a32_load(&d.sent, memory_order_relaxed) == os_a32_load(&d.got, memory_order_relaxed));
    CHECK(os_a32_load(&d.sent, memory_order_relaxed) + os_a32_load(&d.busy, memory_order_relaxed) == ITEMS);
    rt_chan_destroy(d.work, NULL, NULL);
    rt_watch_destroy(d.shutdown);
}

/* ---- single flight ---- */

enum { REQUESTERS = 2 };

struct flight {
    struct rt_lock lock; /* guards fill, state, joined */
    struct rt_chan *work;
    bool fill; /* an entry is in the table */
    enum edge_fill_state state;
    unsigned joined; /* bits of requesters waiting */
    struct os_a32 stored;
    struct os_a32 gets;
    struct os_a32 answered; /* bits; twice is noticed */
    bool refuse;            /* the queue takes nothing */
};

struct requester {
    struct flight *f;
    unsigned bit;
};

static void answer(struct flight *f, unsigned bits)
{
    CHECK((os_a32_or(&f->answered, bits, memory_order_relaxed) & bits) == 0);
}

static unsigned detach(struct flight *f)
{
    rt_lock_take(&f->lock);
    unsigned bits = f->joined;
    CHECK(f->fill);
    f->fill = false;
    f->joined = 0;
    rt_lock_release(&f->lock);
    return bits;
}

static void ask(void *arg)
{
    struct requester *r = arg;
    struct flight *f = r->f;
    if (os_a32_load(&f->stored, memory_order_acquire)) {
        model_cover(1);
        answer(f, r->bit);
        return;
    }
    rt_lock_take(&f->lock);
    bool inserted = !f->fill;
    if (inserted)
        f->state = EDGE_FILL_RESERVED;
    f->fill = true;
    f->joined |= r->bit;
    rt_lock_release(&f->lock);
    if (!inserted) {
        model_cover(0);
        return;
    }
    if (os_a32_load(&f->stored, memory_order_acquire)) { /* filled meanwhile */
        model_cover(2);
        answer(f, detach(f));
        return;
    }
    rt_lock_take(&f->lock);
    edge_fill_move(&f->state, EDGE_FILL_QUEUED);
    rt_lock_release(&f->lock);
    if (f->refuse || rt_chan_try_send(f->work, f) != ERR_OK)
        answer(f, detach(f));
}

RT_BLOCKS
static void fill(void *arg)
{
    struct flight *f = arg;
    void *item;
    while (rt_chan_recv(f->work, deadline_never(), &item) == ERR_OK) {
        os_a32_add(&f->gets, 1, memory_order_relaxed);
        os_a32_store(&f->stored, 1, memory_order_release); /* durable and published */
        answer(f, detach(f));
    }
}

RT_BLOCKS
static void fly(bool refuse)
{
    struct flight f = {
        .work = rt_chan_create(&(struct rt_chan_spec){.name = "work", .capacity = 2, .policy = RT_REJECT}),
        .refuse = refuse};
    struct requester r[REQUESTERS];
    struct os_thread t[REQUESTERS], w;
    CHECK(f.work != NULL);
    rt_lock_init(&f.lock, "fills", 22);
    start(&w, "worker", fill, &f);
    for (unsigned i = 0; i < REQUESTERS; i++) {
        r[i] = (struct requester){&f, 1u << i};
        start(&t[i], "requester", ask, &r[i]);
    }
    for (unsigned i = 0; i < REQUESTERS; i++)
        os_thread_join(&t[i]);
    rt_chan_close(f.work);
    os_thread_join(&w);
    CHECK(os_a32_load(&f.answered, memory_order_relaxed) == (1u << REQUESTERS) - 1);
    CHECK(os_a32_load(&f.gets, memory_order_relaxed) == (refuse ? 0 : 1));
    CHECK(!f.fill);
    rt_chan_destroy(f.work, NULL, NULL);
    rt_lock_fini(&f.lock);
}

RT_BLOCKS
static void single_flight(void)
{
    fly(false);
}

RT_BLOCKS
static void full_queue(void)
{
    fly(true);
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "work_queue", .body = work_queue, .preemptions = 2, .covers = 2},
        {.name = "single_flight", .body = single_flight, .preemptions = 3, .covers = 3},
        {.name = "full_queue", .body = full_queue, .preemptions = 3, .covers = 1},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
