/* The inventory of tasks, queues and limits is the one that was promised, and holds together. That the limits hold is shown by
 * tests/e2e/wallet/test_deadlines.c, drain by test_numbers.c. */
#include "inventory.h"

extern const struct svc_def wallet_svc;

static const struct inventory promised = {
    .service = &wallet_svc,
    .queues =
        {
            {"work_tx", "http", "worker", RT_MPSC, 512, RT_REJECT},
            {"events_tx", "worker,http", "audit", RT_BROADCAST, 1024, RT_LAG},
            {"shutdown_rx", "supervisor", "all", RT_WATCH, 1, RT_LAST_WINS},
            {"ledger_bus", "ledger_feed", "invalidator", RT_BROADCAST, 1024, RT_LAG},
            {"metrics_tick", "timer", "metrics", RT_INTERVAL, 0, RT_LAST_WINS},
            {"read_tx", "http,ledger_io", "reader", RT_MPSC, 512, RT_REJECT},
            {"doubt_tx", "worker", "resolver", RT_MPSC, 2048, RT_REJECT},
            {"commit_done", "ledger_io", "worker", RT_MPSC, 68, RT_REJECT},
            {"ready", "prober", "http,worker", RT_WATCH, 1, RT_LAST_WINS},
            {"resolved", "resolver", "worker", RT_MPSC, 2048, RT_REJECT},
            {"looked_up", "ledger_io", "resolver", RT_MPSC, 2048, RT_REJECT},
            {"reply", "worker,reader", "http", RT_MPSC, 512, RT_REJECT},
        },
    .tasks = {{"http", .drain = 1},
              {"worker", .drain = 2},
              {"resolver", .drain = 3},
              {"reader", .drain = 3},
              {"ledger_feed", .drain = 4},
              {"invalidator", .drain = 4},
              {"prober", .drain = 4},
              {"janitor", .drain = 4},
              {"audit", .drain = 4},
              {"metrics", .drain = 4},
              {"cap_refresher", .drain = 4},
              {"health", .drain = 4},
              {"ledger_io", .drain = 5}},
    .locks_outer_first = {"cfg_snapshot", "balance_cache", "metrics_state"},
    .timeouts = {{"client_read", 5000},
                 {"client_write", 5000},
                 {"client_idle", 60000},
                 {"request", 5000},
                 {"ledger_rpc", 1000},
                 {"refresh", 200},
                 {"probe", 80},
                 {"drain", 3000}},
};

int main(void)
{
    return inventory_run();
}
