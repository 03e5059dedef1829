/*
 * The work queue, and the fills of fills.c themselves, under all interleavings.
 *
 *   work_queue      1 producer, queue of 2, 1 consumer, shutdown watch: no deadlock, no missed shutdown, and after the shutdown
 *                   the consumer drains at most what the queue holds
 *   single_flight   2 requesters for one name, 1 worker: exactly one GET, everybody served exactly once
 *   full_queue      2 requesters, a queue that takes nothing: whoever joined the refused fill is refused with it
 *   promised        somebody who asked for a promise is told 202 or served, never both, and the fill goes on
 *   given_up        whoever waited for a queued fill left before a worker had time for it, and another asks for the same name just then: he is
 *                   served, by this fill or by one of his own
 *   hand_back       a worker fails with the fill in hand, once or twice, while the queue may be closed: the fill is not lost, and
 *                   its requester is answered once
 */
#include "rt/lock.h"
#include "rt/watch.h"
#include "world.h"

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
    struct os_a32 down; /* set once the queue is closed */
    uint32_t drained;   /* received after that */
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
        bool down = os_a32_load(&d->down, memory_order_acquire) != 0;
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
    os_a32_store(&d->down, 1, memory_order_release);
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
    CHECK(d.drained <= CAPACITY);
    model_cover(2 + (d.drained == CAPACITY));
    CHECK(os_a32_load(&d.sent, memory_order_relaxed) == os_a32_load(&d.got, memory_order_relaxed));
    CHECK(os_a32_load(&d.sent, memory_order_relaxed) + os_a32_load(&d.busy, memory_order_relaxed) == ITEMS);
    rt_chan_destroy(d.work, NULL, NULL);
    rt_watch_destroy(d.shutdown);
}

/* ---- fills ---- */

enum { REQUESTERS = 2, COVER_GIVEN_UP = 0, COVER_JOINED };

struct site {
    struct edge e;
    struct edge_route route;
    struct request rq[REQUESTERS];
    struct os_a32 gets;
    struct os_a32 fail; /* the drill: who holds the fill now fails */
};

static void site_open(struct site *s, size_t capacity)
{
    *s = (struct site){.e = {.clock = &world_clock}, .route = {.label = "origin", .max_age_ms = 1000}};
    world.config = (struct edge_config){.breaker_failures = 5, .breaker_open = 5000};
    world.skipped_ns = 0;
    os_a32_store(&world.stored, 0, memory_order_relaxed);
    os_a32_store(&world.draining, 0, memory_order_relaxed);
    s->e.work =
        rt_chan_create(&(struct rt_chan_spec){.name = "work", .capacity = capacity, .policy = RT_REJECT});
    CHECK(s->e.work && edge_fills_create(&s->e, &s->e.fills) == ERR_OK);
    for (unsigned i = 0; i < REQUESTERS; i++)
        arena_init(&s->rq[i].arena, 256, 4096);
}

static void site_close(struct site *s)
{
    CHECK(map_count(&s->e.fills->by_name) == 0); /* nothing is left in the table */
    edge_fills_destroy(s->e.fills);
    for (unsigned i = 0; i < REQUESTERS; i++)
        arena_fini(&s->rq[i].arena);
}

/* As api/assets.c does: a look into the store, then the table. */
static void ask_for(struct site *s, struct request *r)
{
    struct edge_hit hit;
    struct net_req *rq = (struct net_req *)(void *)r;
    if (edge_store_find(s->e.store, STR("x"), &hit))
        edge_serve_hit(&s->e, rq, &hit, EDGE_FROM_CAS, false);
    else
        edge_fill_ask(&s->e, rq, STR("x"), STR("x"), (struct str){NULL, 0}, &s->route, NULL);
}

static void ask_first(void *arg)
{
    struct site *s = arg;
    ask_for(s, &s->rq[0]);
}

static void ask_second(void *arg)
{
    struct site *s = arg;
    ask_for(s, &s->rq[1]);
}

static bool fails(struct site *s, struct edge_fill *f) RT_BLOCKS
{
    if (!os_a32_load(&s->fail, memory_order_relaxed))
        return false;
    edge_fill_hand_back(&s->e, f);
    return true;
}

/* As tasks/worker.c does, with a GET that always succeeds unless the drill hits. */
RT_BLOCKS
static void work(void *arg)
{
    struct site *s = arg;
    void *item;
    while (rt_chan_recv(s->e.work, deadline_never(), &item) == ERR_OK) {
        struct edge_fill *f = item;
        if (edge_fill_give_up(&s->e, f)) {
            model_cover(COVER_GIVEN_UP);
            edge_fill_end(&s->e, f, &(struct edge_outcome){.err = ERR_CANCELED});
            continue;
        }
        edge_fill_to(&s->e, f, EDGE_FILL_FETCHING);
        if (fails(s, f))
            continue; /* restarted by the supervisor */
        os_a32_add(&s->gets, 1, memory_order_relaxed);
        edge_fill_to(&s->e, f, EDGE_FILL_COMMITTING);
        if (fails(s, f))
            continue;
        os_a32_store(&world.stored, 1, memory_order_release); /* durable, and found by its name */
        edge_fill_end(&s->e, f, &(struct edge_outcome){.err = ERR_OK});
    }
}

static uint32_t answers(const struct site *s, unsigned i)
{
    return os_a32_load(&s->rq[i].answers, memory_order_relaxed);
}

RT_BLOCKS
static void single_flight(void)
{
    struct site s;
    struct os_thread t[REQUESTERS], w;
    site_open(&s, 2);
    start(&w, "worker", work, &s);
    start(&t[0], "requester", ask_first, &s);
    start(&t[1], "requester", ask_second, &s);
    os_thread_join(&t[0]);
    os_thread_join(&t[1]);
    rt_chan_close(s.e.work);
    os_thread_join(&w);
    CHECK(os_a32_load(&s.gets, memory_order_relaxed) == 1);
    for (unsigned i = 0; i < REQUESTERS; i++)
        CHECK(answers(&s, i) == 1 && s.rq[i].how == SERVED);
    rt_chan_destroy(s.e.work, NULL, NULL);
    site_close(&s);
}

static void keep(void *item, void *arg)
{
    (void)item;
    (void)arg;
}

RT_BLOCKS
static void full_queue(void)
{
    struct site s;
    struct os_thread t[REQUESTERS];
    static int other;
    site_open(&s, 1);
    CHECK(rt_chan_try_send(s.e.work, &other) == ERR_OK);
    start(&t[0], "requester", ask_first, &s);
    start(&t[1], "requester", ask_second, &s);
    os_thread_join(&t[0]);
    os_thread_join(&t[1]);
    for (unsigned i = 0; i < REQUESTERS; i++)
        CHECK(answers(&s, i) == 1 && s.rq[i].how == REFUSED && s.rq[i].why == ERR_BUSY);
    rt_chan_destroy(s.e.work, keep, NULL);
    site_close(&s);
}

static void tick(void *arg)
{
    struct site *s = arg;
    world.skipped_ns = INT64_C(2000000000); /* what it was asked to wait is over */
    edge_fills_tick(&s->e);
}

RT_BLOCKS
static void promised(void)
{
    struct site s;
    struct os_thread w, t;
    site_open(&s, 1);
    s.rq[0].prefer = "respond-async, wait=1";
    ask_for(&s, &s.rq[0]);
    start(&w, "worker", work, &s);
    start(&t, "metrics", tick, &s);
    os_thread_join(&t);
    rt_chan_close(s.e.work);
    os_thread_join(&w);
    CHECK(answers(&s, 0) == 1 && (s.rq[0].how == PROMISED || s.rq[0].how == SERVED));
    CHECK(os_a32_load(&s.gets, memory_order_relaxed) == 1);
    model_cover(s.rq[0].how == PROMISED);
    rt_chan_destroy(s.e.work, NULL, NULL);
    site_close(&s);
}

RT_BLOCKS
static void given_up(void)
{
    struct site s;
    struct os_thread t, w;
    site_open(&s, 2);
    ask_for(&s, &s.rq[0]);
    s.rq[0].gone = true;
    start(&w, "worker", work, &s);
    start(&t, "requester", ask_second, &s);
    os_thread_join(&t);
    rt_chan_close(s.e.work);
    os_thread_join(&w);
    CHECK(answers(&s, 0) == 1);
    CHECK(answers(&s, 1) == 1 && s.rq[1].how == SERVED);
    CHECK(os_a32_load(&s.gets, memory_order_relaxed) == 1);
    if (s.rq[0].how == SERVED)
        model_cover(COVER_JOINED);
    rt_chan_destroy(s.e.work, NULL, NULL);
    site_close(&s);
}

static void drill(void *arg)
{
    struct site *s = arg;
    os_a32_store(&s->fail, 1, memory_order_relaxed);
    os_a32_store(&s->fail, 0, memory_order_relaxed);
}

static void drain(void *arg)
{
    struct site *s = arg;
    os_a32_store(&world.draining, 1, memory_order_release);
    rt_chan_close(s->e.work);
}

RT_BLOCKS
static void hand_back(void)
{
    struct site s;
    struct os_thread w, d, c;
    site_open(&s, 1);
    ask_for(&s, &s.rq[0]);
    start(&w, "worker", work, &s);
    start(&d, "drill", drill, &s);
    start(&c, "drain", drain, &s);
    os_thread_join(&d);
    os_thread_join(&c);
    os_thread_join(&w);
    CHECK(answers(&s, 0) == 1); /* not lost, and not answered twice */
    CHECK(s.rq[0].how == SERVED || s.rq[0].how == REFUSED);
    model_cover(s.rq[0].how == SERVED ? 0 : 1);
    if (s.rq[0].how == SERVED && os_a32_load(&s.gets, memory_order_relaxed) == 2)
        model_cover(2); /* by the worker after the one that failed */
    rt_chan_destroy(s.e.work, NULL, NULL);
    site_close(&s);
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "work_queue", .body = work_queue, .preemptions = 2, .covers = 4},
        {.name = "single_flight", .body = single_flight, .preemptions = 2},
        {.name = "full_queue", .body = full_queue, .preemptions = 3},
        {.name = "promised", .body = promised, .preemptions = 3, .covers = 2},
        {.name = "given_up", .body = given_up, .preemptions = 3, .covers = 2},
        {.name = "hand_back", .body = hand_back, .preemptions = 3, .covers = 3},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
