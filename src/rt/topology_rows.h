/* Turns the rows of a topology.def into calls; see topology.h. No include guard: included once per table. */
#define TASK(name_, count_, on_fail_, drain_step_, heartbeat_ms_, text_)                                   \
    rt_topology_add_task(topology, (struct rt_topology_task){.name = #name_,                               \
                                                             .text = text_,                                \
                                                             .count = (unsigned)(count_),                  \
                                                             .on_fail = on_fail_,                          \
                                                             .drain_step = (unsigned)(drain_step_),        \
                                                             .heartbeat_ms = (int64_t)(heartbeat_ms_)});
#define QUEUE(name_, kind_, capacity_, policy_, from_, to_, on_full_)                                      \
    rt_topology_add_queue(topology, (struct rt_topology_queue){.name = #name_,                             \
                                                               .from = from_,                              \
                                                               .to = to_,                                  \
                                                               .on_full = on_full_,                        \
                                                               .kind = kind_,                              \
                                                               .capacity = (uint64_t)(capacity_),          \
                                                               .policy = policy_});
#define LOCK(name_, rank_, guards_)                                                                        \
    rt_topology_add_lock(topology, (struct rt_topology_lock){                                              \
                                       .name = #name_, .guards = guards_, .rank = (unsigned)(rank_)});
#define TIMEOUT(name_, ms_, then_)                                                                         \
    rt_topology_add_timeout(                                                                               \
        topology, (struct rt_topology_timeout){.name = #name_, .then = then_, .ms = (int64_t)(ms_)});
