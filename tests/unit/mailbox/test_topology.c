/* The declared tasks, queues and metrics are those the mailbox promises: capacities, policies and who talks to whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "services/mailbox/mailbox.h"

static void make(uint64_t capacity, struct rt_topology *t)
{
    struct mailbox_config cfg = {.shard_capacity = capacity, .ready_shards = 4, .http_threads = 2};
    mailbox_topology(&cfg, t);
}

static void every_queue_has_its_capacity_and_policy(void **state)
{
    (void)state;
    static const struct {
        const char *name, *to;
        enum rt_queue_kind kind;
        uint64_t capacity;
        enum rt_policy policy;
    } want[] = {{"work_tx", "worker", RT_MPSC, 4096, RT_REJECT},
                {"requeue_tx", "worker", RT_MPSC, 512, RT_REJECT},
                {"events_tx", "exporter", RT_BROADCAST, 1024, RT_LAG},
                {"shutdown_rx", "all", RT_WATCH, 1, RT_LAST_WINS},
                {"reproc_tx", "reprocessor", RT_MPSC, 256, RT_REJECT}};
    struct rt_topology *t = malloc(sizeof *t);
    assert_non_null(t);
    make(4096, t);
    assert_int_equal(t->queues_n, sizeof want / sizeof *want);
    for (size_t i = 0; i < t->queues_n; i++) {
        const struct rt_topology_queue *q = rt_topology_find_queue(t, want[i].name);
        assert_non_null(q);
        assert_int_equal(q->capacity, want[i].capacity);
        assert_int_equal(q->policy, want[i].policy);
        assert_int_equal(q->kind, want[i].kind);
        assert_string_equal(q->to, want[i].to);
    }
    free(t);
}

static void the_requeue_queue_follows_the_shard_capacity(void **state)
{
    (void)state;
    static const uint64_t cases[][2] = {{1, 1},      {4, 1},      {100, 25},
                                        {2048, 512}, {4096, 512}, {1048576, 512}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(MAILBOX_REQUEUE_CAPACITY(cases[i][0]), cases[i][1]);
}

static void the_tasks_are_the_promised_ones_and_the_table_is_sound(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned count, step;
    } want[] = {{"listener", 2, 1},    {"worker", 4, 2},       {"scanner", 1, 3},
                {"reprocessor", 1, 3}, {"rebalancer", 1, 3},   {"cap_refresher", 1, 4},
                {"exporter", 1, 4},    {"shard_keeper", 1, 3}, {"traces", 1, 4}};
    struct rt_topology *t = malloc(sizeof *t);
    struct buf why;
    assert_non_null(t);
    make(4096, t);
    assert_int_equal(t->tasks_n, sizeof want / sizeof *want);
    for (size_t i = 0; i < t->tasks_n; i++) {
        const struct rt_topology_task *k = rt_topology_find_task(t, want[i].name);
        assert_non_null(k);
        assert_int_equal(k->count, want[i].count);
        assert_int_equal(k->drain_step, want[i].step);
        assert_true(k->heartbeat_ms > 0);
    }
    buf_init(&why, 4096);
    if (rt_topology_check(t, &why) != ERR_OK)
        fail_msg("%s", buf_cstr(&why));
    buf_fini(&why);
    free(t);
}

static void the_promised_metrics_are_declared(void **state)
{
    (void)state;
    static const char *const want[] = {"queue_depth",
                                       "saturation",
                                       "queue_dropped_total",
                                       "busy_rejections_total",
                                       "request_latency_seconds",
                                       "scanner_wake_jitter_ms",
                                       "backoff_retries_total",
                                       "requeue_backoff_total",
                                       "reorder_depth_max",
                                       "io_timeouts_total",
                                       "bus_lagged_total",
                                       "integrity_fail_total",
                                       "mailbox_attempts",
                                       "mailbox_oldest_ready_seconds"};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        bool found = false;
        for (size_t k = 0; k < mailbox_svc.metric_count; k++)
            found = found || strcmp(mailbox_svc.metrics[k].name, want[i]) == 0;
        if (!found)
            fail_msg("%s is missing", want[i]);
    }
}

static void journals_in_memory_fit_into_what_they_may_use(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    static const struct {
        uint64_t mib, shards, segment_mib, want_shards, want_segment_mib;
    } cases[] = {{256, 8, 32, 8, 4}, {256, 2, 32, 2, 16}, {1024, 8, 32, 8, 16}, {16, 8, 32, 1, 4},
                 {128, 8, 32, 8, 4}, {100, 8, 32, 6, 4},  {4096, 1, 32, 1, 32}, {256, 64, 4, 16, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mailbox_config cfg = {.ready_shards = cases[i].shards,
                                     .segment_bytes = cases[i].segment_mib * MIB};
        struct mailbox_layout x = mailbox_layout_in(cases[i].mib * MIB, &cfg);
        assert_int_equal(x.shards, cases[i].want_shards);
        assert_int_equal(x.segment_bytes, cases[i].want_segment_mib * MIB);
        assert_true((uint64_t)x.shards * x.segment_bytes * 4 <= cases[i].mib * MIB);
        assert_int_equal(x.segment_bytes % 4096, 0);
    }
    struct mailbox_config cfg = {.ready_shards = 8, .segment_bytes = 32 * MIB};
    struct mailbox_layout x = mailbox_layout_in(UINT64_MAX, &cfg); /* on a disk: as configured */
    assert_int_equal(x.shards, 8);
    assert_int_equal(x.segment_bytes, 32 * MIB);
}

static void a_topic_policy_is_read_from_its_line(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "orders/* class=orders t_replay=unlimited max_attempts=3 ordered=true default_visibility=10s",
        "mail t_replay=2h"};
    static const char *const bad[] = {"orders/* max_attempts=0", "x colour=red", "x t_replay=soon", ""};
    struct mailbox_config cfg = {.t_replay = 300000,
                                 .max_attempts = 5,
                                 .default_visibility = 5000,
                                 .index_max = 1024,
                                 .max_topics = 10};
    struct mailbox_rules *r = malloc(sizeof *r);
    char why[200];
    assert_non_null(r);
    cfg.topic_policies = (struct conf_strs){lines, 2};
    assert_int_equal(mailbox_rules_make(&cfg, 1, r, why), ERR_OK);
    uint8_t i = mailbox_policy_match(&r->policies, STR("orders/eu"));
    assert_string_equal(r->policies.p[i].class_name, "orders");
    assert_true(r->policies.p[i].t_replay_ms == MAILBOX_UNLIMITED && r->policies.p[i].ordered);
    assert_int_equal(r->policies.p[i].max_attempts, 3);
    assert_int_equal(r->policies.p[i].default_visibility_ms, 10000);
    assert_int_equal(r->policies.p[mailbox_policy_match(&r->policies, STR("mail"))].t_replay_ms, 7200000);
    assert_int_equal(mailbox_policy_match(&r->policies, STR("mailbox")), 0);
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        cfg.topic_policies = (struct conf_strs){&bad[k], 1};
        assert_int_equal(mailbox_rules_make(&cfg, 1, r, why), ERR_BAD_REQUEST);
        assert_true(strlen(why) > 10);
    }
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_queue_has_its_capacity_and_policy),
        cmocka_unit_test(the_requeue_queue_follows_the_shard_capacity),
        cmocka_unit_test(the_tasks_are_the_promised_ones_and_the_table_is_sound),
        cmocka_unit_test(the_promised_metrics_are_declared),
        cmocka_unit_test(journals_in_memory_fit_into_what_they_may_use),
        cmocka_unit_test(a_topic_policy_is_read_from_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
