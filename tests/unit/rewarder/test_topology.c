/* The inventory of tasks, queues, limits and numbers is the one that was promised, and holds together. */
#include "inventory.h"

extern const struct svc_def rewarder_svc;

static int load(void **state)
{
    (void)state;
    return inventory_load(&rewarder_svc);
}

static void queues_have_their_kinds_capacities_and_policies(void **state)
{
    static const struct inventory_queue promised[] = {
        {"work_req", "http", "scheduler", RT_MPSC, 512, RT_REJECT},
        {"work", "scheduler", "worker", RT_MPSC, 512, RT_RETRY_ONCE},
        {"results", "worker", "artifact", RT_MPSC, 512, RT_WAIT},
        {"intents", "worker", "emitter", RT_MPSC, 512, RT_WAIT},
        {"events", "supervisor,scheduler,worker,artifact,emitter", "health", RT_BROADCAST, 1024, RT_LAG},
        {"shutdown", "supervisor", "all", RT_WATCH, 1, RT_LAST_WINS},
        {"notes", "emitter", "artifact", RT_MPSC, 512, RT_WAIT},
        {"io_permits", "worker", "worker", RT_MPSC, 64, RT_REJECT},
    };
    (void)state;
    inventory_queues(promised, INVENTORY_N(promised));
}

static void tasks_are_there_and_drain_in_their_order(void **state)
{
    static const struct inventory_task promised[] = {{"http", 1},      {"scheduler", 2}, {"worker", 3},
                                                     {"emitter", 4},   {"artifact", 5},  {"health", 6},
                                                     {"ledger_io", 7}, {"traces", 6},    {"caps", 6}};
    (void)state;
    inventory_tasks(promised, INVENTORY_N(promised));
}

static void locks_nest_in_the_promised_order(void **state)
{
    static const char *const outer_first[] = {"cfg_snapshot", "run_registry", "metrics_counters"};
    (void)state;
    inventory_locks(outer_first, INVENTORY_N(outer_first));
}

static void every_wait_has_its_promised_limit(void **state)
{
    static const struct inventory_timeout promised[] = {
        {"verdict", 5000},    {"results_send", 30000}, {"intents_send", 30000},
        {"seal_wait", 30000}, {"ledger_read", 1000},   {"ledger_ingest", 5000},
        {"io_permit", 60000}, {"sweep", 60000},        {"accounting_get", 60000}};
    (void)state;
    inventory_timeouts(promised, INVENTORY_N(promised));
}

static void defaults_are_the_promised_ones(void **state)
{
    static const char *const promised[][2] = {{"read_timeout", "\"5s\""},
                                              {"write_timeout", "\"5s\""},
                                              {"idle_timeout", "\"1m\""},
                                              {"limits.max_body_bytes", "\"1MiB\""},
                                              {"drain_deadline", "\"3s\""}};
    (void)state;
    inventory_defaults(promised, INVENTORY_N(promised));
}

static void the_promised_numbers_are_declared(void **state)
{
    static const char *const promised[][2] = {
        {"queue_depth", "queue=work_req|work|results|intents"},
        {"queue_dropped_total", "queue=work_req|work|results|intents"},
        {"dropped_results_total", ""},
        {"busy_rejections_total", "endpoint=compute"},
        {"io_timeouts_total", "op=read|write|"},
        {"backoff_retries_total", "op=read|ingest|fetch|work"},
        {"bus_lagged_total", "bus=events"},
        {"readyz_degraded", "cause="},
        {"rejected_total", "reason"},
        {"reward_runs_total", "state=settled|quarantined|failed|dry"},
        {"reward_runs_held", "cause=ledger|funds|lane|switch"},
        {"settlement_units_total", "result=committed|duplicate|refused|error"},
        {"settlement_resync_total", "reason=restart|nonce|idem|timeout"},
        {"quarantine_total", "epoch"}};
    (void)state;
    inventory_metrics(&rewarder_svc, promised, INVENTORY_N(promised));
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
