/* Parts dealt out to threads, on the real crew.c: each runs exactly once, and what it wrote is there when the caller goes on. */
#include "base/check.h"
#include "model.h"
#include "ron/crew.h"
#include "rt/os.h"

enum { PARTS = 3 };

struct rig {
    struct os_a32 runs[PARTS];
    struct os_a32 running;
};

static void part(void *arg, uint64_t i)
{
    struct rig *g = arg;
    CHECK(i < PARTS);
    os_a32_add(&g->running, 1, memory_order_relaxed);
    CHECK(os_a32_add(&g->runs[i], 1, memory_order_relaxed) == 0);
    os_a32_add(&g->running, (uint32_t)-1, memory_order_relaxed);
}

static void run(unsigned threads)
{
    struct rig *g = os_alloc(sizeof *g);
    crew_run(threads, PARTS, part, g);
    CHECK(os_a32_load(&g->running, memory_order_relaxed) == 0);
    for (int i = 0; i < PARTS; i++)
        CHECK(os_a32_load(&g->runs[i], memory_order_relaxed) == 1);
    os_free(g);
}

static void two_threads_run_every_part_once(void)
{
    run(2);
}

static void more_threads_than_parts_run_every_part_once(void)
{
    run(5);
}

static void one_thread_does_it_alone(void)
{
    run(1);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "two_threads_run_every_part_once", .body = two_threads_run_every_part_once},
        {.name = "more_threads_than_parts_run_every_part_once",
         .body = more_threads_than_parts_run_every_part_once,
         .preemptions = 2},
        {.name = "one_thread_does_it_alone", .body = one_thread_does_it_alone},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
