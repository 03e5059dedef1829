/*
 * Single flight per epoch and the one retry of `work`, on the real scheduler and registry: two requests for one epoch at any
 * moment of each other and of a shutdown, a work queue that is full, a worker that takes from it. Every caller is answered
 * exactly once, an epoch has one run, a different request is a conflict, and what was refused claims nothing.
 */
#include "world.h"

/* Nothing is spooled, shadowed or halted in a model. */
void rewarder_item_abandon(struct rewarder *r, struct rewarder_item *it)
{
    rewarder_item_destroy(r, it);
}

struct rig {
    struct rewarder r;
    struct rt_task self;
    struct rewarder_policy_ref policy;
    struct caller callers[2];
    struct os_a32 computed;
};

static struct rewarder_policy *policy_bytes(void)
{
    struct rewarder_policy *p = calloc(1, sizeof *p);
    CHECK(p);
    return p;
}

static void rig_open(struct rig *g, size_t work_capacity)
{
    struct rewarder_input in = {.rows = 1};
    *g = (struct rig){.computed = {0}};
    world_config = (struct rewarder_config){
        .compute_memory = (uint64_t)1 << 40, .max_unsettled_runs = 10, .epoch_duration = 3600000};
    os_a32_store(&world_draining, 0, memory_order_relaxed);
    CHECK(rewarder_registry_init(&g->r.registry) == ERR_OK);
    g->policy.policy = policy_bytes();
    g->r.work_req = world_chan("work_req", 4, RT_REJECT);
    g->r.work = world_chan("work", work_capacity, RT_RETRY_ONCE);
    memcpy(in.tenant, "t", 2);
    memcpy(in.epoch, "e", 2);
    for (uint8_t i = 1; i <= 2; i++) {
        in.cid.b[0] = in.digest.b[0] = i;
        CHECK(rewarder_registry_add_input(&g->r.registry, &in) == ERR_OK);
    }
}

static void drop(void *item, void *arg)
{
    struct rewarder_item *it = item;
    it->rq = NULL;
    rewarder_item_destroy(arg, it);
}

static void rig_close(struct rig *g)
{
    rt_chan_destroy(g->r.work_req, drop, &g->r);
    rt_chan_destroy(g->r.work, drop, &g->r);
    rewarder_registry_fini(&g->r.registry);
    free(g->policy.policy);
}

static struct rewarder_item *item_of(struct rig *g, unsigned caller, uint8_t cid)
{
    struct rewarder_item *it =
        rewarder_item_create(REWARDER_COMPUTE, (struct net_req *)(void *)&g->callers[caller]);
    CHECK(it);
    memcpy(it->tenant, "t", 2);
    memcpy(it->epoch, "e", 2);
    it->cid.b[0] = cid;
    it->policy = &g->policy;
    return it;
}

/* What the listener does with a request that it cannot answer itself. */
static void request(struct rig *g, unsigned caller, uint8_t cid)
{
    struct rewarder_item *it = item_of(g, caller, cid);
    enum err e = rt_chan_try_send(g->r.work_req, it);
    if (e == ERR_OK)
        return;
    net_reply_problem(it->rq, e == ERR_BUSY ? ERR_BUSY : ERR_DRAINING, "refused");
    it->rq = NULL;
    rewarder_item_destroy(&g->r, it);
}

RT_BLOCKS
static void schedule(void *arg)
{
    struct rig *g = arg;
    CHECK(rewarder_scheduler_run(&g->self, &g->r) == ERR_OK);
}

RT_BLOCKS
static void work(void *arg)
{
    struct rig *g = arg;
    void *item;
    while (rt_chan_recv(g->r.work, deadline_never(), &item) == ERR_OK) {
        struct rewarder_item *it = item;
        CHECK(!it->rq); /* the verdict is the scheduler's */
        if (it->run) {
            os_a32_add(&g->computed, 1, memory_order_relaxed);
            CHECK(rewarder_run_move(&g->r.registry, it->run, REWARDER_EV_TAKEN, NULL, NULL) == ERR_OK);
            CHECK(rewarder_run_move(&g->r.registry, it->run, REWARDER_EV_SEAL, NULL, NULL) == ERR_OK);
        }
        rewarder_item_destroy(&g->r, it);
    }
}

struct second {
    struct rig *g;
    uint8_t cid;
};

static void ask_second(void *arg)
{
    struct second *s = arg;
    request(s->g, 1, s->cid);
}

static void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
}

RT_BLOCKS
static void race(struct rig *g, uint8_t second_cid, bool filled)
{
    struct os_thread scheduler, worker, other;
    struct second s = {g, second_cid};
    if (filled) { /* somebody else's job fills the queue */
        struct rewarder_item *it = rewarder_item_create(REWARDER_EMIT, NULL);
        CHECK(it && rt_chan_try_send(g->r.work, it) == ERR_OK);
    }
    start(&scheduler, "scheduler", schedule, g);
    start(&other, "http-1", ask_second, &s);
    start(&worker, "worker", work, g);
    request(g, 0, 1);
    os_thread_join(&other);
    rt_chan_close(g->r.work_req);
    os_thread_join(&scheduler);
    rt_chan_close(g->r.work);
    os_thread_join(&worker);
    for (unsigned i = 0; i < 2; i++)
        CHECK(os_a32_load(&g->callers[i].answers, memory_order_acquire) == 1);
}

static bool accepted(const struct caller *c)
{
    return c->status == 202 || c->status == 200;
}

RT_BLOCKS
static void equal_requests_are_one_run(void)
{
    static struct rig g;
    rig_open(&g, 1);
    race(&g, 1, false);
    CHECK(accepted(&g.callers[0]) && accepted(&g.callers[1]));
    CHECK(os_a32_load(&g.computed, memory_order_acquire) == 1);
    model_cover(g.callers[0].status == 200 || g.callers[1].status == 200 ? 0 : 1);
    rig_close(&g);
}

RT_BLOCKS
static void different_requests_are_one_run_and_a_conflict(void)
{
    static struct rig g;
    rig_open(&g, 1);
    race(&g, 2, false);
    CHECK(accepted(&g.callers[0]) != accepted(&g.callers[1]));
    CHECK(g.callers[accepted(&g.callers[0])].status == 409);
    CHECK(os_a32_load(&g.computed, memory_order_acquire) == 1);
    model_cover(accepted(&g.callers[0]) ? 0 : 1);
    rig_close(&g);
}

RT_BLOCKS
static void a_full_work_queue_is_tried_once_more_then_refused_without_a_claim(void)
{
    static struct rig g;
    rig_open(&g, 1);
    race(&g, 2, true);
    unsigned in = accepted(&g.callers[0]) + accepted(&g.callers[1]);
    CHECK(in <= 1 && os_a32_load(&g.computed, memory_order_acquire) == in);
    for (unsigned i = 0; i < 2; i++) {
        int s = g.callers[i].status;
        CHECK(accepted(&g.callers[i]) || s == 503 || s == 409);
        if (s == 409)
            CHECK(in == 1 || g.callers[1 - i].status == 503);
    }
    struct rewarder_run *run = rewarder_registry_find(&g.r.registry, STR("t"), STR("e"), false);
    CHECK(run);
    enum rewarder_state end = rewarder_run_read(&g.r.registry, run).state;
    CHECK(in ? end == REWARDER_SEALED : end == REWARDER_FAILED);
    rewarder_run_unref(run);
    model_cover(in == 1 && g.callers[0].status != 503 && g.callers[1].status != 503 ? 0 : in ? 1 : 2);
    rig_close(&g);
}

/* A shutdown at any moment: what is not admitted is told so, and nothing is left behind. */
RT_BLOCKS
static void a_shutdown_answers_everybody(void)
{
    static struct rig g;
    struct os_thread scheduler, worker, other;
    rig_open(&g, 1);
    struct second s = {&g, 1};
    start(&scheduler, "scheduler", schedule, &g);
    start(&other, "http-1", ask_second, &s);
    start(&worker, "worker", work, &g);
    os_a32_store(&world_draining, 1, memory_order_release);
    rt_chan_close(g.r.work_req);
    request(&g, 0, 1);
    os_thread_join(&other);
    os_thread_join(&scheduler);
    rt_chan_close(g.r.work);
    os_thread_join(&worker);
    CHECK(g.callers[0].status == 503);
    CHECK(os_a32_load(&g.callers[1].answers, memory_order_acquire) == 1);
    model_cover(accepted(&g.callers[1]) ? 0 : 1);
    rig_close(&g);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "equal_requests_are_one_run",
         .body = equal_requests_are_one_run,
         .preemptions = 1,
         .covers = 2},
        {.name = "different_requests_are_one_run_and_a_conflict",
         .body = different_requests_are_one_run_and_a_conflict,
         .preemptions = 1,
         .covers = 2},
        {.name = "a_full_work_queue_is_tried_once_more_then_refused_without_a_claim",
         .body = a_full_work_queue_is_tried_once_more_then_refused_without_a_claim,
         .preemptions = 1,
         .timeouts = 2,
         .covers = 3},
        {.name = "a_shutdown_answers_everybody",
         .body = a_shutdown_answers_everybody,
         .preemptions = 2,
         .covers = 2},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
