/* The inventory of tasks, queues, limits and numbers is the one that was promised, and holds together. */
#include "inventory.h"

extern const struct svc_def edge_svc;

static const struct inventory promised = {
    .service = &edge_svc,
    .queues =
        {
            {"work_tx", "listener", "worker", RT_MPSC, 512, RT_REJECT},
            {"shutdown_rx", "supervisor", "all", RT_WATCH, 1, RT_LAST_WINS},
            {"events_tx", "worker,cas_writer,pack_verifier", "metrics", RT_BROADCAST, 1024, RT_LAG},
            {"read", "listener", "reader", RT_MPSC, 256, RT_REJECT},
            {"commit", "worker", "cas_writer", RT_MPSC, 64, RT_WAIT},
            {"store_ops", "listener,reader,scrub,pack_verifier", "cas_writer", RT_MPSC, 64, RT_REJECT},
            {"pack_ops", "listener,metrics", "pack_verifier", RT_MPSC, 4, RT_REJECT},
            {"scrub_ops", "listener", "scrub", RT_MPSC, 1, RT_REJECT},
            {"scrape", "listener", "metrics", RT_MPSC, 8, RT_REJECT},
            {"tags", "listener,reader", "pack_verifier", RT_MPSC, 1024, RT_DROP_OLDEST},
        },
    .tasks = {{"listener", .drain = 1},
              {"worker", .drain = 2},
              {"reader", .drain = 3},
              {"cas_writer", .drain = 4},
              {"pack_verifier", .drain = 5},
              {"scrub", .drain = 5},
              {"metrics", .drain = 6},
              {"traces", .drain = 6}},
    .locks_outer_first = {"state_meta", "routing_table", "fills", "refs", "objects", "dirs", "counters"},
    .timeouts = {{"read", 5000},
                 {"write", 5000},
                 {"idle", 60000},
                 {"request", 5000},
                 {"connect", 2000},
                 {"fill", 5000},
                 {"commit", 1000},
                 {"drain", 3000}},
    .defaults = {{"ingress.timeout_secs", "5"},
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
                 {"drain_deadline", "\"3s\""}},
    .metrics = {{"queue_depth", "queue=work|"},
                {"queue_dropped_total", "queue=work|"},
                {"busy_rejections_total", "endpoint=/edge/assets"},
                {"io_timeouts_total", "op=read|write|connect|fill"},
                {"backoff_retries_total", "op=live_fill"},
                {"bus_lagged_total", ""},
                {"edge_rejects_total",
                 "reason=amnesia|not_allowed|decompress_cap|body_cap|timeout|rate_limit|"
                 "invalid_range|etag_invalid|"}},
};

int main(void)
{
    return inventory_run();
}
