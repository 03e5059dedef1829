/* What follows from the configuration: how much a queue holds, how journals fit into memory, what holds for a topic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "services/mailbox/mailbox.h"

static void the_requeue_queue_follows_the_shard_capacity(void **state)
{
    (void)state;
    static const uint64_t cases[][2] = {{1, 1},      {4, 1},      {100, 25},
                                        {2048, 512}, {4096, 512}, {1048576, 512}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(MAILBOX_REQUEUE_CAPACITY(cases[i][0]), cases[i][1]);
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
    static const char *const bad[] = {
        "orders/* max_attempts=0", "x colour=red", "x t_replay=soon", "", "x default_visibility=249ms",
        "x default_visibility=13h"};
    struct mailbox_config cfg = {.t_replay = 300000,
                                 .max_attempts = 5,
                                 .visibility_ms_min = 250,
                                 .default_visibility = 5000,
                                 .visibility_max = 43200000,
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
        cmocka_unit_test(the_requeue_queue_follows_the_shard_capacity),
        cmocka_unit_test(journals_in_memory_fit_into_what_they_may_use),
        cmocka_unit_test(a_topic_policy_is_read_from_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
