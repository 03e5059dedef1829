/*
 * Topology is data: every task, queue, lock and time-out of a service is one row of its topology.def, from which
 * this registry, the documentation and the checks are made.
 *
 *     TASK(name, count_expr, on_fail, drain_step, heartbeat_ms, "what it does")
 *     QUEUE(name, kind, capacity_expr, policy, "from,from", "to,to", "what happens when full")
 *     LOCK(name, rank, "guards")
 *     TIMEOUT(name, ms_expr, "then")
 *
 * The expressions may use `cfg`. A service turns its table into a registry like this:
 *
 *     void ledger_topology(const struct ledger_config *cfg, struct rt_topology *topology)
 *     {
 *         rt_topology_init(topology, "ledger");
 *     #include "rt/topology_rows.h"
 *     #include "services/ledger/topology.def"
 *     #include "rt/topology_rows_end.h"
 *     }
 *
 * Ownership   Rows borrow their strings (literals of the table).
 * Threads     Built by one thread, then only read.
 */
#ifndef RON_RT_TOPOLOGY_H
#define RON_RT_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "rt/chan.h"
#include "rt/task.h"

/* A semaphore's items are permits: what it holds is what nobody has taken, and who finds none waits. */
enum rt_queue_kind { RT_MPSC, RT_BROADCAST, RT_WATCH, RT_INTERVAL, RT_SEMAPHORE };

struct rt_topology_task {
    const char *name, *text;
    unsigned count;
    enum rt_on_fail on_fail;
    unsigned drain_step;
    int64_t heartbeat_ms;
};

struct rt_topology_queue {
    const char *name, *from, *to, *on_full; /* from and to: task names, comma separated */
    enum rt_queue_kind kind;
    uint64_t capacity;
    enum rt_policy policy;
};

struct rt_topology_lock {
    const char *name, *guards;
    unsigned rank;
};

struct rt_topology_timeout {
    const char *name, *then;
    int64_t ms;
};

enum { RT_TOPOLOGY_ROWS_MAX = 96 }; /* of each kind */

struct rt_topology {
    const char *service;
    struct rt_topology_task tasks[RT_TOPOLOGY_ROWS_MAX];
    struct rt_topology_queue queues[RT_TOPOLOGY_ROWS_MAX];
    struct rt_topology_lock locks[RT_TOPOLOGY_ROWS_MAX];
    struct rt_topology_timeout timeouts[RT_TOPOLOGY_ROWS_MAX];
    size_t tasks_n, queues_n, locks_n, timeouts_n;
};

void rt_topology_init(struct rt_topology *t, const char *service);
void rt_topology_add_task(struct rt_topology *t, struct rt_topology_task row);
void rt_topology_add_queue(struct rt_topology *t, struct rt_topology_queue row);
void rt_topology_add_lock(struct rt_topology *t, struct rt_topology_lock row);
void rt_topology_add_timeout(struct rt_topology *t, struct rt_topology_timeout row);

const struct rt_topology_task *rt_topology_find_task(const struct rt_topology *t, const char *name);
const struct rt_topology_queue *rt_topology_find_queue(const struct rt_topology *t, const char *name);

void rt_topology_json(const struct rt_topology *t, struct buf *out);
void rt_topology_mermaid(const struct rt_topology *t, struct buf *out);
void rt_topology_markdown(const struct rt_topology *t, struct buf *out);

/*
 * What the table must satisfy; each violation is one line in `out_why`, and the answer is ERR_CONFLICT.
 *   names       unique per kind of row; every consumer is a task of the table (or "all")
 *   bounded     every queue has a capacity of at least 1; a watch has exactly 1; intervals hold nothing
 *   policy      fits the kind: broadcasts lag, watches keep the last, queues reject, drop, wait or retry
 *   no cycle    of tasks that wait (RT_WAIT) for each other's queues
 *   drain       no task waits for one of an earlier drain step, which would be gone
 *   locks       ranks are unique: there is one order
 */
NODISCARD enum err rt_topology_check(const struct rt_topology *t, struct buf *out_why);

const char *rt_queue_kind_name(enum rt_queue_kind k); /* "mpsc" … */
const char *rt_policy_name(enum rt_policy p);         /* "reject" … */
const char *rt_on_fail_name(enum rt_on_fail f);       /* "restart" … */

#endif
