/*
 * The real outbox over the real channel, between loops that keep to the rules of net/loop.h and a task: whatever the order of
 * steps, each request is taken or refused, once, in its loop's order, and no loop sleeps on one that it still holds.
 */
#include "base/check.h"
#include "model.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/outbox.h"
#include "rt/os.h"

enum { LOOPS = 2, REQUESTS = 2 };

struct request {
    unsigned loop, number;
    bool taken, refused;
};

/* ---- the least of a loop and a server ---- */

struct net_loop {
    struct net_batch *batches;
    bool ending, again;
};

struct net_server {
    unsigned loops_n;
    struct net_loop loops[LOOPS];
};

unsigned net_server_threads(const struct net_server *s)
{
    return s->loops_n;
}

struct net_loop *net_server_loop(struct net_server *s, unsigned index)
{
    return &s->loops[index];
}

void net_loop_at_batch_end(struct net_loop *loop, struct net_batch *b)
{
    b->next = loop->batches;
    loop->batches = b;
}

void net_loop_forget_batch(struct net_loop *loop, struct net_batch *b)
{
    CHECK(loop->batches == b);
    loop->batches = b->next;
}

void net_loop_again(struct net_loop *loop)
{
    if (loop->ending)
        loop->again = true;
}

static void end_iteration(struct net_loop *loop)
{
    loop->ending = true;
    for (struct net_batch *b = loop->batches; b; b = b->next)
        b->fn(b);
    loop->ending = false;
}

/* ---- the house ---- */

struct house {
    struct net_server server;
    struct net_outbox *outbox;
    struct rt_chan *jobs;
    struct request requests[LOOPS][REQUESTS];
    struct os_a32 answers;
    unsigned taken, busy, closed;
    /* of the model with one loop: the server's own end of an iteration, where a request begins once the one before was answered */
    struct net_batch output;
    unsigned begun;
};

static void answer(struct house *h)
{
    os_a32_add(&h->answers, 1, memory_order_relaxed);
    os_wake_one(&h->answers);
}

static void refused(void *item, enum err why, void *ctx)
{
    struct house *h = ctx;
    struct request *rq = item;
    CHECK(!rq->taken && !rq->refused);
    rq->refused = true;
    if (why == ERR_BUSY)
        h->busy++;
    else
        h->closed++;
    CHECK(why == ERR_BUSY || why == ERR_CLOSED);
    answer(h);
}

RT_BLOCKS
static void task(void *arg)
{
    struct house *h = arg;
    void *items[LOOPS * REQUESTS];
    unsigned next[LOOPS] = {0};
    size_t n;
    while (rt_chan_recv_batch(h->jobs, items, LOOPS * REQUESTS, deadline_never(), &n) == ERR_OK)
        for (size_t i = 0; i < n; i++) {
            struct request *rq = items[i];
            CHECK(!rq->taken && !rq->refused);
            CHECK(rq->number >= next[rq->loop]);
            next[rq->loop] = rq->number + 1;
            rq->taken = true;
            h->taken++;
            answer(h);
        }
}

static struct house *house_open(unsigned loops, unsigned capacity, enum rt_policy policy)
{
    struct house *h = os_alloc(sizeof *h);
    CHECK(h != NULL);
    h->server.loops_n = loops;
    for (unsigned l = 0; l < LOOPS; l++)
        for (unsigned i = 0; i < REQUESTS; i++)
            h->requests[l][i] = (struct request){.loop = l, .number = i};
    h->jobs =
        rt_chan_create(&(struct rt_chan_spec){.name = "jobs", .capacity = capacity, .policy = policy});
    CHECK(h->jobs != NULL);
    return h;
}

static void house_close(struct house *h)
{
    unsigned loops = h->server.loops_n;
    net_outbox_destroy(h->outbox);
    for (unsigned l = 0; l < loops; l++)
        for (unsigned i = 0; i < REQUESTS; i++)
            CHECK(h->requests[l][i].taken != h->requests[l][i].refused);
    CHECK(h->taken + h->busy + h->closed == loops * REQUESTS);
    rt_chan_destroy(h->jobs, NULL, NULL);
    os_free(h);
}

/* ---- a request that begins at the end of an iteration ---- */

static void output_written(struct net_batch *b)
{
    struct house *h = (struct house *)(void *)((char *)b - offsetof(struct house, output));
    if (h->begun < REQUESTS && h->begun == os_a32_load(&h->answers, memory_order_relaxed))
        net_outbox_put(h->outbox, 0, &h->requests[0][h->begun++]);
}

static void one_loop(struct house *h)
{
    uint32_t answers = 0;
    while (answers < REQUESTS) {
        end_iteration(&h->server.loops[0]);
        bool sleeps = !h->server.loops[0].again;
        h->server.loops[0].again = false;
        while (sleeps && os_a32_load(&h->answers, memory_order_relaxed) == answers)
            os_sleep_on(&h->answers, answers, OS_NEVER);
        answers = os_a32_load(&h->answers, memory_order_relaxed);
    }
}

RT_BLOCKS
static void a_request_that_begins_at_the_end_of_an_iteration_is_not_slept_on(void)
{
    struct house *h = house_open(1, REQUESTS, RT_REJECT);
    struct os_thread t;
    h->output.fn = output_written;
    net_loop_at_batch_end(&h->server.loops[0], &h->output); /* first: it runs last, as a server's does */
    CHECK(net_outbox_create(&h->server, h->jobs, RT_REJECT, refused, h, &h->outbox) == ERR_OK);
    CHECK(os_thread_start(&t, "task", task, h) == ERR_OK);
    one_loop(h);
    rt_chan_close(h->jobs);
    os_thread_join(&t);
    CHECK(h->taken == REQUESTS);
    model_cover(0);
    house_close(h);
}

/* ---- two loops, and an end that comes at any moment ---- */

static void loop_run(struct house *h, unsigned l)
{
    for (unsigned i = 0; i < REQUESTS; i++)
        net_outbox_put(h->outbox, l, &h->requests[l][i]);
    end_iteration(&h->server.loops[l]);
}

static void first_loop(void *arg)
{
    loop_run(arg, 0);
}

RT_BLOCKS
static void run_two_loops(enum rt_policy policy)
{
    struct house *h = house_open(LOOPS, REQUESTS, policy);
    struct os_thread t, first;
    CHECK(net_outbox_create(&h->server, h->jobs, policy, refused, h, &h->outbox) == ERR_OK);
    CHECK(os_thread_start(&t, "task", task, h) == ERR_OK);
    CHECK(os_thread_start(&first, "first", first_loop, h) == ERR_OK);
    loop_run(h, 1);
    rt_chan_close(h->jobs);
    os_thread_join(&first);
    os_thread_join(&t);
    if (h->taken == LOOPS * REQUESTS)
        model_cover(0);
    if (h->busy > 0)
        model_cover(1);
    if (h->closed > 0)
        model_cover(2);
    house_close(h);
}

RT_BLOCKS
static void what_a_full_queue_does_not_take_is_refused_once(void)
{
    run_two_loops(RT_REJECT);
}

RT_BLOCKS
static void what_is_pushed_out_is_refused_once(void)
{
    run_two_loops(RT_DROP_OLDEST);
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "a_request_that_begins_at_the_end_of_an_iteration_is_not_slept_on",
         .body = a_request_that_begins_at_the_end_of_an_iteration_is_not_slept_on,
         .preemptions = 3,
         .covers = 1},
        {.name = "what_a_full_queue_does_not_take_is_refused_once",
         .body = what_a_full_queue_does_not_take_is_refused_once,
         .preemptions = 3,
         .covers = 3},
        {.name = "what_is_pushed_out_is_refused_once",
         .body = what_is_pushed_out_is_refused_once,
         .preemptions = 3,
         .covers = 3},
    };
    return model_main(argc, argv, models, sizeof models / sizeof models[0]);
}
