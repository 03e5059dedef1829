/* The inventory of tasks, queues, limits and defaults is the one that was promised, and holds together. */
#include "inventory.h"

extern const struct svc_def ledger_svc;

static int load(void **state)
{
    (void)state;
    return inventory_load(&ledger_svc);
}

static void queues_have_their_kinds_capacities_and_policies(void **state)
{
    static const struct inventory_queue promised[] = {
        {"ingress_tx", "ingress", "prevalidator", RT_MPSC, 2000, RT_REJECT},
        {"preval_tx", "prevalidator", "sequencer", RT_MPSC, 2000, RT_DROP_OLDEST},
        {"commit_tx", "sequencer", "committer", RT_MPSC, 1000, RT_REJECT},
        {"root_pub_tx", "committer", "roots_publisher", RT_BROADCAST, 1024, RT_LAG},
        {"parked", "prevalidator", "provider", RT_MPSC, 64, RT_REJECT},
        {"gen_tx", "committer", "checkpointer", RT_MPSC, 4, RT_REJECT},
        {"late_tx", "committer", "finisher", RT_MPSC, 512 + 4096 + 512, RT_REJECT},
        {"read_tx", "ingress", "reader", RT_MPSC, 512, RT_REJECT},
        {"admin_tx", "ingress", "admin", RT_MPSC, 16, RT_REJECT},
        {"stream_tx", "ingress", "roots_publisher", RT_MPSC, 1024, RT_REJECT},
        {"segment_want", "committer,replica", "segment_keeper", RT_WATCH, 1, RT_LAST_WINS},
        {"shutdown", "supervisor", "all", RT_WATCH, 1, RT_LAST_WINS},
    };
    (void)state;
    inventory_queues(promised, INVENTORY_N(promised));
}

static void the_pipeline_drains_in_its_order_and_only_the_single_writer_is_never_started_again(void **state)
{
    static const struct inventory_task promised[] = {
        {"ingress", 0},         {"prevalidator", 1}, {"provider", 1},       {"sequencer", 2},
        {"committer", 3},       {"finisher", 4},     {"reader", 5},         {"replica", 5},
        {"roots_publisher", 5}, {"checkpointer", 6}, {"segment_keeper", 6}, {"health", 8},
        {"metrics", 8},         {"admin", 8},        {"cap_refresher", 8}};
    (void)state;
    for (size_t i = 0; i < INVENTORY_N(promised); i++) {
        const struct rt_topology_task *k = rt_topology_find_task(&inventory.t, promised[i].name);
        if (!k)
            fail_msg("no task %s", promised[i].name);
        bool writer = strcmp(k->name, "committer") == 0;
        assert_int_equal(k->drain_step, promised[i].drain_step);
        assert_int_equal(k->on_fail, writer ? RT_ABORT : RT_RESTART);
        assert_true(k->count >= 1);
    }
    assert_int_equal(inventory.t.tasks_n, INVENTORY_N(promised));
    assert_int_equal(rt_topology_find_task(&inventory.t, "sequencer")->count, 1);
    assert_int_equal(rt_topology_find_task(&inventory.t, "committer")->count, 1);
    assert_true(rt_topology_find_task(&inventory.t, "prevalidator")->count >= 2);
}

static void locks_nest_in_the_promised_order(void **state)
{
    static const char *const outer_first[] = {"config", "metrics", "snapshot_pointer"};
    (void)state;
    inventory_locks(outer_first, INVENTORY_N(outer_first));
}

static void every_wait_has_its_promised_limit(void **state)
{
    static const char *const promised[][2] = {
        {"timeouts.kms_ms", "1000"},         {"timeouts.policy_ms", "800"},
        {"timeouts.wallet_ms", "1000"},      {"timeouts.request_ms", "5000"},
        {"timeouts.commit_wait_ms", "5000"}, {"shutdown.drain_ms", "3000"},
        {"shutdown.commit_ms", "5000"}};
    (void)state;
    inventory_defaults(promised, INVENTORY_N(promised));
}

static void no_cycle_no_unbounded_queue_and_an_order_to_drain_in(void **state)
{
    (void)state;
    inventory_holds_together();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_have_their_kinds_capacities_and_policies),
        cmocka_unit_test(
            the_pipeline_drains_in_its_order_and_only_the_single_writer_is_never_started_again),
        cmocka_unit_test(locks_nest_in_the_promised_order),
        cmocka_unit_test(every_wait_has_its_promised_limit),
        cmocka_unit_test(no_cycle_no_unbounded_queue_and_an_order_to_drain_in),
    };
    return cmocka_run_group_tests(tests, load, inventory_unload);
}
