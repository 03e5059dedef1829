/* A hundred thousand topics in one shard: sent to, found, listed in order, and all there after a start; and one whose lease ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "services/mailbox/log.h"

enum { TOPICS = 100000, SEGMENT = 32 << 20 };

struct rig {
    struct store_disk *disk;
    struct clock_manual clock;
    struct mailbox_rules rules;
    struct mailbox_shard *shard;
    struct mailbox_log log;
    void *group;
};

static struct mailbox_now now_of(struct rig *r)
{
    return (struct mailbox_now){clock_mono_ns(&r->clock.clock) / 1000,
                                (uint64_t)clock_wall_ms(&r->clock.clock)};
}

static void open_rig(struct rig *r) RT_BLOCKS
{
    static const uint8_t instance[16] = "many topics....";
    struct store_journal_report report = {0};
    r->shard = calloc(1, sizeof *r->shard);
    CHECK(r->shard != NULL);
    assert_int_equal(mailbox_shard_init(r->shard, 0, &r->rules, 7, now_of(r), r->group), ERR_OK);
    assert_int_equal(mailbox_log_open(&r->log, r->shard,
                                      &(struct mailbox_log_config){.disk = r->disk,
                                                                   .dir = "/mb",
                                                                   .instance = instance,
                                                                   .segment_bytes = SEGMENT,
                                                                   .trust_idx = true,
                                                                   .clock = &r->clock.clock,
                                                                   .now = now_of(r)},
                                      &report),
                     ERR_OK);
    assert_false(report.damaged);
}

static void close_rig(struct rig *r) RT_BLOCKS
{
    mailbox_log_close(&r->log);
    mailbox_shard_fini(r->shard);
    free(r->shard);
}

static void commit(struct rig *r) RT_BLOCKS
{
    if (store_journal_wants_spare(r->log.journal))
        assert_int_equal(store_journal_prepare_spare(r->log.journal), ERR_OK);
    assert_int_equal(mailbox_log_commit(&r->log, now_of(r)), ERR_OK);
}

static void send_to(struct rig *r, int i) RT_BLOCKS
{
    char name[32];
    uint8_t attrs[4] = {0};
    struct mailbox_sent out;
    struct sha256 hash;
    int n = snprintf(name, sizeof name, "user/%06d/inbox", i);
    struct mailbox_send in = {.topic = str_of(name, (size_t)n),
                              .idem_key = STR("k"),
                              .topic_hash = &hash,
                              .attrs = bytes_of(attrs, 4)};
    mailbox_topic_hash(in.topic, &hash);
    mailbox_dedup_digest(in.topic, in.idem_key, &in.digest);
    sha256_of("", 0, &in.payload_hash);
    sha256_of(attrs, 4, &in.attrs_hash);
    if (mailbox_shard_group_full(r->shard))
        commit(r);
    assert_int_equal(mailbox_shard_send(r->shard, now_of(r), &in, &out), ERR_OK);
    assert_int_equal(out.topic_seq, 1);
}

static void all_are_there_in_order(const struct rig *r)
{
    char name[32];
    struct mailbox_topic *t = mailbox_topics_after(&r->shard->topics, STR(""), true);
    for (int i = 0; i < TOPICS; i++) {
        int n = snprintf(name, sizeof name, "user/%06d/inbox", i);
        assert_non_null(t);
        assert_true(str_eq(mailbox_topic_name(t), str_of(name, (size_t)n)));
        assert_int_equal(t->count[MAILBOX_READY], 1);
        t = mailbox_topics_after(&r->shard->topics, mailbox_topic_name(t), false);
    }
    assert_null(t);
}

static struct rig *new_rig(void) RT_BLOCKS
{
    struct rig *r = calloc(1, sizeof *r);
    CHECK(r != NULL);
    r->group = malloc(MAILBOX_GROUP_MEMORY);
    CHECK(r->group != NULL);
    clock_manual_init(&r->clock, INT64_C(1760292161000));
    r->rules = (struct mailbox_rules){.index_max = TOPICS * 2,
                                      .max_topics = TOPICS,
                                      .retention_ready_ms = 1000000,
                                      .retention_dlq_ms = 1000000};
    r->rules.policies.n = 1;
    r->rules.policies.p[0] = (struct mailbox_policy){
        .class_name = "default", .t_replay_ms = 1000, .default_visibility_ms = 200, .max_attempts = 5};
    assert_int_equal(store_disk_memory(512 << 20, &r->disk), ERR_OK);
    assert_int_equal(store_disk_mkdirs(r->disk, "/mb"), ERR_OK);
    open_rig(r);
    return r;
}

static void free_rig(struct rig *r) RT_BLOCKS
{
    close_rig(r);
    store_disk_destroy(r->disk);
    free(r->group);
    free(r);
}

static void a_hundred_thousand_topics_are_kept_and_found_again(void **state) RT_BLOCKS
{
    (void)state;
    struct rig *r = new_rig();
    for (int i = 0; i < TOPICS; i++)
        send_to(r,
                (int)((unsigned)i * 7919u % TOPICS)); /* in no order; 7919 shares no factor with 100 000 */
    commit(r);
    all_are_there_in_order(r);
    close_rig(r);
    open_rig(r);
    all_are_there_in_order(r);
    mailbox_shard_check(r->shard);
    free_rig(r);
}

static void a_message_whose_lease_ended_is_ready_after_a_start_and_not_taken_for_old(void **state) RT_BLOCKS
{
    (void)state;
    struct rig *r = new_rig();
    uint32_t got[1];
    send_to(r, 1);
    commit(r);
    struct mailbox_topic *t = mailbox_topics_after(&r->shard->topics, STR(""), true);
    struct mailbox_want want = {.topic = t, .visibility_us = 200000, .max = 1, .max_bytes = 1 << 20};
    assert_int_equal(mailbox_shard_lease(r->shard, now_of(r), &want, got), 1);
    commit(r);
    clock_manual_advance_ms(&r->clock, 300);
    while (mailbox_shard_tick(r->shard, now_of(r)))
        continue;
    assert_int_equal(t->count[MAILBOX_READY], 1);
    commit(r);
    close_rig(r);
    open_rig(r);
    t = mailbox_topics_after(&r->shard->topics, STR(""), true);
    mailbox_shard_retention(r->shard, now_of(r), 10);
    assert_int_equal(t->count[MAILBOX_READY], 1);
    assert_int_equal(t->count[MAILBOX_DLQ], 0);
    mailbox_shard_check(r->shard);
    free_rig(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_thousand_topics_are_kept_and_found_again),
        cmocka_unit_test(a_message_whose_lease_ended_is_ready_after_a_start_and_not_taken_for_old)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
