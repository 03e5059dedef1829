/* The inventory of tasks, queues, limits and numbers is the one that was promised, and holds together. */
#include "inventory.h"

extern const struct svc_def rewarder_svc;

static const struct inventory promised = {
    .service = &rewarder_svc,
    .queues =
        {
            {"work_req", "http", "scheduler", RT_MPSC, 512, RT_REJECT},
            {"work", "scheduler", "worker", RT_MPSC, 512, RT_RETRY_ONCE},
            {"results", "worker", "artifact", RT_MPSC, 512, RT_WAIT},
            {"intents", "worker", "emitter", RT_MPSC, 512, RT_WAIT},
            {"events", "supervisor,scheduler,worker,artifact,emitter", "health", RT_BROADCAST, 1024,
             RT_LAG},
            {"shutdown", "supervisor", "all", RT_WATCH, 1, RT_LAST_WINS},
            {"notes", "emitter", "artifact", RT_MPSC, 512, RT_WAIT},
            {"io_permits", "worker", "worker", RT_SEMAPHORE, 512, RT_WAIT},
        },
    .tasks = {{"http", .drain = 1},
              {"scheduler", .drain = 2},
              {"worker", .drain = 3},
              {"emitter", .drain = 4},
              {"artifact", .drain = 5},
              {"health", .drain = 6},
              {"ledger_io", .drain = 7},
              {"traces", .drain = 6},
              {"caps", .drain = 6}},
    .locks_outer_first = {"cfg_snapshot", "run_registry", "metrics_counters"},
    .timeouts = {{"verdict", 5000},
                 {"results_send", 30000},
                 {"intents_send", 30000},
                 {"seal_wait", 30000},
                 {"ledger_read", 1000},
                 {"ledger_ingest", 5000},
                 {"io_permit", 60000},
                 {"sweep", 60000},
                 {"accounting_get", 60000},
                 {"accounting_connect", 2000},
                 {"accounting_stall", 5000},
                 {"lane_still", 5000}},
    .defaults = {{"read_timeout", "\"5s\""},
                 {"write_timeout", "\"5s\""},
                 {"idle_timeout", "\"1m\""},
                 {"limits.max_body_bytes", "\"1MiB\""},
                 {"drain_deadline", "\"3s\""}},
    .metrics = {{"queue_depth", "queue=work_req|work|results|intents"},
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
                {"quarantine_total", "epoch"}},
};

int main(void)
{
    return inventory_run();
}
