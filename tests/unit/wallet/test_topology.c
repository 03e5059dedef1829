/* The inventory of queues and tasks is the one that was promised, and holds together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "services/wallet/wallet.h"

static struct rt_topology topology;
static struct conf *conf;

static int load(void **state)
{
    struct conf_error why;
    (void)state;
    if (conf_load(wallet_svc.config, &(struct conf_sources){.file_name = NULL}, &conf, &why) != ERR_OK) {
        print_error("%s\n", why.text);
        return -1;
    }
    wallet_svc.topology(conf_values(conf), &topology);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    conf_destroy(conf);
    return 0;
}

static void queues_have_their_kinds_capacities_and_policies(void **state)
{
    static const struct {
        const char *name;
        enum rt_queue_kind kind;
        uint64_t capacity;
        enum rt_policy policy;
    } promised[] = {
        {"work_tx", RT_MPSC, 512, RT_REJECT},           {"events_tx", RT_BROADCAST, 1024, RT_LAG},
        {"shutdown_rx", RT_WATCH, 1, RT_LAST_WINS},     {"ledger_bus", RT_BROADCAST, 1024, RT_LAG},
        {"metrics_tick", RT_INTERVAL, 0, RT_LAST_WINS}, {"read_tx", RT_MPSC, 512, RT_REJECT},
        {"doubt_tx", RT_MPSC, 2048, RT_REJECT},         {"commit_done", RT_MPSC, 68, RT_REJECT},
        {"ready", RT_WATCH, 1, RT_LAST_WINS},           {"resolved", RT_MPSC, 2048, RT_REJECT},
        {"looked_up", RT_MPSC, 2048, RT_REJECT},        {"reply", RT_MPSC, 512, RT_REJECT},
    };
    (void)state;
    assert_int_equal(topology.queues_n, sizeof promised / sizeof promised[0]);
    for (size_t i = 0; i < sizeof promised / sizeof promised[0]; i++) {
        const struct rt_topology_queue *q = rt_topology_find_queue(&topology, promised[i].name);
        assert_non_null(q);
        assert_int_equal(q->kind, promised[i].kind);
        assert_int_equal(q->capacity, promised[i].capacity);
        assert_int_equal(q->policy, promised[i].policy);
    }
}

static void every_promised_task_is_there(void **state)
{
    static const char *const promised[] = {"http",      "worker",        "invalidator", "metrics", "reader",
                                           "resolver",  "janitor",       "ledger_feed", "prober",  "audit",
                                           "ledger_io", "cap_refresher", "health"};
    (void)state;
    assert_int_equal(topology.tasks_n, sizeof promised / sizeof promised[0]);
    for (size_t i = 0; i < sizeof promised / sizeof promised[0]; i++)
        assert_non_null(rt_topology_find_task(&topology, promised[i]));
    assert_true(rt_topology_find_task(&topology, "worker")->count >= 1);
}

static void locks_nest_in_the_promised_order(void **state)
{
    static const char *const outer_first[] = {"cfg_snapshot", "balance_cache", "metrics_state"};
    unsigned rank = 0;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        size_t at = 0;
        while (at < topology.locks_n && strcmp(topology.locks[at].name, outer_first[i]) != 0)
            at++;
        assert_true(at < topology.locks_n);
        assert_true(topology.locks[at].rank > rank);
        rank = topology.locks[at].rank;
    }
}

/* That they hold is shown by tests/e2e/wallet/test_deadlines.c; drain by test_numbers.c. */
static void every_wait_has_its_promised_limit(void **state)
{
    static const struct {
        const char *name;
        int64_t ms;
    } promised[] = {
        {"client_read", 5000}, {"client_write", 5000}, {"client_idle", 60000}, {"request", 5000},
        {"ledger_rpc", 1000},  {"refresh", 200},       {"probe", 80},          {"drain", 3000},
    };
    (void)state;
    assert_int_equal(topology.timeouts_n, sizeof promised / sizeof promised[0]);
    for (size_t i = 0; i < sizeof promised / sizeof promised[0]; i++) {
        assert_string_equal(topology.timeouts[i].name, promised[i].name);
        assert_int_equal(topology.timeouts[i].ms, promised[i].ms);
    }
}

static void no_cycle_no_unbounded_queue_and_an_order_to_drain_in(void **state)
{
    struct buf why;
    (void)state;
    buf_init(&why, 4096);
    enum err e = rt_topology_check(&topology, &why);
    if (e != ERR_OK)
        print_error("%s\n", buf_cstr(&why));
    assert_int_equal(e, ERR_OK);
    buf_fini(&why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_have_their_kinds_capacities_and_policies),
        cmocka_unit_test(every_promised_task_is_there),
        cmocka_unit_test(locks_nest_in_the_promised_order),
        cmocka_unit_test(every_wait_has_its_promised_limit),
        cmocka_unit_test(no_cycle_no_unbounded_queue_and_an_order_to_drain_in),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
