/* The inventory of tasks, queues, limits and numbers is the one that was promised, and holds together. */
#include "inventory.h"

extern const struct svc_def mailbox_svc;

static const struct inventory promised = {
    .service = &mailbox_svc,
    .queues =
        {
            {"work_tx", "listener,reprocessor", "worker", RT_MPSC, 4096, RT_REJECT},
            {"requeue_tx", "scanner", "worker", RT_MPSC, 512, RT_REJECT},
            {"events_tx", "worker", "exporter", RT_BROADCAST, 1024, RT_LAG},
            {"shutdown_rx", "supervisor", "all", RT_WATCH, 1, RT_LAST_WINS},
            {"reproc_tx", "listener", "reprocessor", RT_MPSC, 256, RT_REJECT},
        },
    .tasks =
        {
            {"listener", .drain = 1},
            {"worker", .drain = 2},
            {"scanner", .drain = 3, .most = 1},
            {"reprocessor", .drain = 3, .most = 1},
            {"rebalancer", .drain = 3, .most = 1},
            {"shard_keeper", .drain = 3, .most = 1},
            {"cap_refresher", .drain = 4, .most = 1},
            {"exporter", .drain = 4, .most = 1},
            {"traces", .drain = 4, .most = 1},
        },
    .locks_outer_first = {"state_meta", "routing_table", "counters"},
    .timeouts = {{"read", 5000},
                 {"write", 5000},
                 {"idle", 60000},
                 {"send", 5000},
                 {"settle", 5000},
                 {"recv", 23000},
                 {"gather", 5},
                 {"operator", 10000},
                 {"replica", 5000},
                 {"lease", 5000},
                 {"visibility", 5000},
                 {"drain", 5000}},
    .metrics = {{"queue_depth", ""},
                {"saturation", ""},
                {"queue_dropped_total", ""},
                {"busy_rejections_total", ""},
                {"request_latency_seconds", ""},
                {"scanner_wake_jitter_ms", ""},
                {"backoff_retries_total", ""},
                {"requeue_backoff_total", ""},
                {"reorder_depth_max", ""},
                {"io_timeouts_total", ""},
                {"bus_lagged_total", ""},
                {"integrity_fail_total", ""},
                {"mailbox_attempts", ""},
                {"mailbox_oldest_ready_seconds", ""}},
};

int main(void)
{
    return inventory_run();
}
