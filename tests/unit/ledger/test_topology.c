/* The inventory of tasks, queues, limits and defaults is the one that was promised, and holds together. */
#include "inventory.h"

extern const struct svc_def ledger_svc;

static const struct inventory promised = {
    .service = &ledger_svc,
    .queues =
        {
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
        },
    .tasks =
        {
            {"ingress", .drain = 0},
            {"prevalidator", .drain = 1, .least = 2},
            {"provider", .drain = 1},
            {"sequencer", .drain = 2, .most = 1},
            {"committer", .drain = 3, .on_fail = RT_ABORT, .silent = true,
             .most = 1}, /* the single writer is never started again */
            {"finisher", .drain = 4},
            {"reader", .drain = 5},
            {"replica", .drain = 5, .silent = true},
            {"roots_publisher", .drain = 5},
            {"checkpointer", .drain = 6, .silent = true},
            {"segment_keeper", .drain = 6, .silent = true},
            {"health", .drain = 8},
            {"metrics", .drain = 8},
            {"admin", .drain = 8},
            {"cap_refresher", .drain = 8},
        },
    .locks_outer_first = {"config", "metrics", "snapshot_pointer"},
    .timeouts =
        {
            {"kms", 1000},
            {"policy", 800},
            {"wallet", 1000},
            {"request", 5000},
            {"commit_wait", 5000},
            {"replica", 5000},
            {"lease", 5000},
            {"drain", 3000},
            {"drain_commit", 5000},
        },
    .defaults = {{"timeouts.kms_ms", "1000"},
                 {"timeouts.policy_ms", "800"},
                 {"timeouts.wallet_ms", "1000"},
                 {"timeouts.request_ms", "5000"},
                 {"timeouts.commit_wait_ms", "5000"},
                 {"shutdown.drain_ms", "3000"},
                 {"shutdown.commit_ms", "5000"}},
};

int main(void)
{
    return inventory_run();
}
