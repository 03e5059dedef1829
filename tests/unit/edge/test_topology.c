/* The inventory of tasks, queues, limits and numbers is the one that was promised, and holds together. */
#include "inventory.h"

extern const struct svc_def edge_svc;

static int load(void **state)
{
    (void)state;
    return inventory_load(&edge_svc);
}

static void queues_have_their_kinds_capacities_and_policies(void **state)
{
    static const struct inventory_queue promised[] = {
        {"work_tx", "listener", "worker", RT_MPSC, 512, RT_REJECT},
        {"shutdown_rx", "supervisor", "all", RT_WATCH, 1, RT_LAST_WINS},
        {"events_tx", "worker,cas_writer,pack_verifier", "metrics", RT_BROADCAST, 1024, RT_LAG},
        {"read", "listener", "reader", RT_MPSC, 256, RT_REJECT},
        {"commit", "worker", "cas_writer", RT_MPSC, 64, RT_WAIT},
        {"store_ops", "listener,reader,scrub,pack_verifier", "cas_writer", RT_MPSC, 64, RT_REJECT},
        {"pack_ops", "listener,metrics", "pack_verifier", RT_MPSC, 4, RT_REJECT},
        {"scrub_ops", "listener", "scrub", RT_MPSC, 1, RT_REJECT},
        {"tags", "listener,reader", "pack_verifier", RT_MPSC, 1024, RT_DROP_OLDEST},
    };
    (void)state;
    inventory_queues(promised, INVENTORY_N(promised));
}

static void tasks_are_there_and_drain_in_their_order(void **state)
{
    static const struct inventory_task promised[] = {{"listener", 1},   {"worker", 2},        {"reader", 3},
                                                     {"cas_writer", 4}, {"pack_verifier", 5}, {"scrub", 5},
                                                     {"metrics", 6},    {"traces", 6}};
    (void)state;
    inventory_tasks(promised, INVENTORY_N(promised));
}

static void locks_nest_in_the_promised_order(void **state)
{
    static const char *const outer_first[] = {"state_meta", "routing_table", "fills",   "refs",
                                              "objects",    "dirs",          "counters"};
    (void)state;
    inventory_locks(outer_first, INVENTORY_N(outer_first));
}

static void every_wait_has_its_promised_limit(void **state)
{
    static const struct inventory_timeout promised[] = {
        {"read", 5000},    {"write", 5000}, {"idle", 60000},  {"request", 5000},
        {"connect", 2000}, {"fill", 5000},  {"commit", 1000}, {"drain", 3000}};
    (void)state;
    inventory_timeouts(promised, INVENTORY_N(promised));
}

static void defaults_are_the_promised_ones(void **state)
{
    static const char *const promised[][2] = {{"ingress.timeout_secs", "5"},
                                              {"ingress.idle_secs", "60"},
                                              {"ingress.max_inflight", "512"},
                                              {"ingress.rps_limit", "500"},
                                              {"ingress.body_bytes", "\"1MiB\""},
                                              {"ingress.decompress_max_ratio", "10"},
                                              {"ingress.decompress_abs_bytes", "\"10MiB\""},
                                              {"retry.live_fill.base_ms", "50"},
                                              {"retry.live_fill.max_ms", "800"},
                                              {"retry.live_fill.max_retries", "2"},
                                              {"retry.live_fill.jitter", "true"},
                                              {"work.queue_cap", "512"},
                                              {"drain_deadline", "\"3s\""}};
    (void)state;
    inventory_defaults(promised, INVENTORY_N(promised));
}

static void the_promised_numbers_are_declared(void **state)
{
    static const char *const promised[][2] = {
        {"queue_depth", "queue=work|"},
        {"queue_dropped_total", "queue=work|"},
        {"busy_rejections_total", "endpoint=/edge/assets"},
        {"io_timeouts_total", "op=read|write|connect|fill"},
        {"backoff_retries_total", "op=live_fill"},
        {"bus_lagged_total", ""},
        {"edge_rejects_total", "reason=amnesia|not_allowed|decompress_cap|body_cap|timeout|rate_limit|"
                               "invalid_range|etag_invalid|"}};
    (void)state;
    inventory_metrics(&edge_svc, promised, INVENTORY_N(promised));
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
        cmocka_unit_test(tasks_are_there_and_drain_in_their_order),
        cmocka_unit_test(locks_nest_in_the_promised_order),
        cmocka_unit_test(every_wait_has_its_promised_limit),
        cmocka_unit_test(defaults_are_the_promised_ones),
        cmocka_unit_test(the_promised_numbers_are_declared),
        cmocka_unit_test(no_cycle_no_unbounded_queue_and_an_order_to_drain_in),
    };
    return cmocka_run_group_tests(tests, load, inventory_unload);
}
