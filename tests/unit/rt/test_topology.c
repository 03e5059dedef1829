#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "rt/topology.h"

struct config {
    unsigned workers;
    size_t q_work;
};

/* A table as a service writes it. */
static void build(const struct config *cfg, struct rt_topology *topology)
{
    rt_topology_init(topology, "shop");
#include "rt/topology_rows.h"
    TASK(listener, 1, RT_RESTART, 1, 1000, "takes requests")
    TASK(worker, cfg->workers, RT_RESTART, 2, 2000, "does them")
    TASK(writer, 1, RT_ABORT, 3, 0, "writes \"results\"")
    QUEUE(work, RT_MPSC, cfg->q_work, RT_REJECT, "listener", "worker", "429")
    QUEUE(results, RT_MPSC, 8, RT_WAIT, "worker", "writer", "workers wait")
    QUEUE(events, RT_BROADCAST, 1024, RT_LAG, "worker, writer", "all", "lag counter")
    QUEUE(shutdown, RT_WATCH, 1, RT_LAST_WINS, "supervisor", "all", "-")
    LOCK(meta, 1, "names")
    LOCK(counters, 2, "numbers")
    TIMEOUT(request, 5000, "408")
#include "rt/topology_rows_end.h"
}

static struct rt_topology t;
static struct buf out;

static int setup(void **state)
{
    (void)state;
    build(&(struct config){.workers = 4, .q_work = 512}, &t);
    buf_init(&out, 1 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_fini(&out);
    return 0;
}

static bool says(const char *text)
{
    return strstr(buf_cstr(&out), text) != NULL;
}

static void sound_table_passes_every_check(void **state)
{
    (void)state;
    assert_int_equal(rt_topology_check(&t, &out), ERR_OK);
    assert_int_equal(out.n, 0);
}

static void expressions_are_evaluated_over_the_configuration(void **state)
{
    (void)state;
    assert_int_equal(rt_topology_find_task(&t, "worker")->count, 4);
    assert_int_equal(rt_topology_find_queue(&t, "work")->capacity, 512);
    assert_null(rt_topology_find_queue(&t, "nothing"));
}

static void unbounded_queue_is_found(void **state)
{
    (void)state;
    t.queues[0].capacity = 0;
    assert_int_equal(rt_topology_check(&t, &out), ERR_CONFLICT);
    assert_true(says("queue work"));
}

static void wait_cycle_is_found(void **state)
{
    (void)state;
    rt_topology_add_queue(&t, (struct rt_topology_queue){.name = "back",
                                                         .kind = RT_MPSC,
                                                         .capacity = 1,
                                                         .policy = RT_WAIT,
                                                         .from = "writer",
                                                         .to = "worker",
                                                         .on_full = ""});
    t.tasks[1].drain_step = 3;
    assert_int_equal(rt_topology_check(&t, &out), ERR_CONFLICT);
    assert_true(says("wait cycle"));
}

static void waiting_for_a_task_that_ends_earlier_is_found(void **state)
{
    (void)state;
    t.tasks[2].drain_step = 1;
    assert_int_equal(rt_topology_check(&t, &out), ERR_CONFLICT);
    assert_true(says("drain: worker (step 2) waits for writer (step 1)"));
}

static void consumer_that_is_no_task_is_found(void **state)
{
    (void)state;
    t.queues[0].to = "wroker";
    assert_int_equal(rt_topology_check(&t, &out), ERR_CONFLICT);
    assert_true(says("wroker is no task"));
}

static void two_locks_of_one_rank_are_found(void **state)
{
    (void)state;
    t.locks[1].rank = 1;
    assert_int_equal(rt_topology_check(&t, &out), ERR_CONFLICT);
    assert_true(says("locks meta and counters"));
}

static void policy_that_does_not_fit_the_kind_is_found(void **state)
{
    (void)state;
    t.queues[2].policy = RT_WAIT;
    assert_int_equal(rt_topology_check(&t, &out), ERR_CONFLICT);
    assert_true(says("queue events"));
}

static void every_row_is_in_every_output(void **state)
{
    (void)state;
    rt_topology_json(&t, &out);
    assert_true(says(
        "{\"service\":\"shop\",\"tasks\":[{\"name\":\"listener\",\"count\":1,\"on_fail\":\"restart\""));
    assert_true(says("\"does\":\"writes \\\"results\\\"\""));
    assert_true(says("{\"name\":\"events\",\"kind\":\"broadcast\",\"capacity\":1024,\"policy\":\"lag\","
                     "\"from\":[\"worker\","
                     "\"writer\"],\"to\":[\"all\"],\"on_full\":\"lag counter\"}"));
    assert_true(says("{\"name\":\"request\",\"ms\":5000,\"then\":\"408\"}]}"));
    buf_reset(&out);
    rt_topology_mermaid(&t, &out);
    assert_true(says("listener -->|\"work mpsc(512) reject\"| worker"));
    assert_true(says("writer -.->|\"events broadcast(1024) lag\"| all"));
    buf_reset(&out);
    rt_topology_markdown(&t, &out);
    assert_true(says("| `results` | mpsc | 8 | worker | writer | wait | workers wait |"));
    assert_true(says("| `counters` | 2 | numbers |"));
    assert_int_equal(out.err, ERR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sound_table_passes_every_check, setup, teardown),
        cmocka_unit_test_setup_teardown(expressions_are_evaluated_over_the_configuration, setup, teardown),
        cmocka_unit_test_setup_teardown(unbounded_queue_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(wait_cycle_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(waiting_for_a_task_that_ends_earlier_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(consumer_that_is_no_task_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(two_locks_of_one_rank_are_found, setup, teardown),
        cmocka_unit_test_setup_teardown(policy_that_does_not_fit_the_kind_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(every_row_is_in_every_output, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
