/* The inventory of queues and tasks is the one that was promised, and holds together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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
        {"ready", RT_WATCH, 1, RT_LAST_WINS},
    };
    (void)state;
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
    static const char *const promised[] = {"http",     "worker",  "invalidator", "metrics", "reader",
                                           "resolver", "janitor", "ledger_feed", "prober",  "audit"};
    (void)state;
    for (size_t i = 0; i < sizeof promised / sizeof promised[0]; i++)
        assert_non_null(rt_topology_find_task(&topology, promised[i]));
    assert_true(rt_topology_find_task(&topology, "worker")->count >= 1);
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
        cmocka_unit_test(no_cycle_no_unbounded_queue_and_an_order_to_drain_in),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
