/*
 * The worker's part of reclaiming segments (tasks/reclaim.c) on a lane of its own: a real log on a disk in memory, and this test in
 * the rebalancer's place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "services/mailbox/tasks/worker_internal.h"
#include "world.h"

enum { SEGMENT = 4 << 20, LARGE = 700 << 10 };
#define DIR "/mb"

static const struct obs_metric_def metrics[] = {
#include "obs/metrics_rows.h"
#include "services/mailbox/metrics.def"
#include "obs/metrics_end.h"
};

struct place {
    struct rng rng;
    struct clock_manual clock;
    struct store_disk *disk;
    struct obs_metrics *registry;
    struct mailbox mb;
    struct mailbox_lane *l;
    uint8_t *payload;
    struct sha256 topic;
    unsigned key;
};

static struct mailbox_now now_of(struct place *p)
{
    return (struct mailbox_now){clock_mono_ns(&p->clock.clock) / 1000,
                                (uint64_t)clock_wall_ms(&p->clock.clock)};
}

static int set_up(void **state) RT_BLOCKS
{
    struct place *p = calloc(1, sizeof *p);
    struct mailbox_lane *l = calloc(1, sizeof *l);
    struct store_journal_report report;
    static const uint8_t instance[16];
    CHECK(p && l);
    p->disk = world_begin(1, DIR, &p->rng, &p->clock);
    p->l = l;
    p->payload = calloc(1, LARGE);
    assert_int_equal(obs_metrics_create("svc-mailbox", &p->registry), ERR_OK);
    assert_int_equal(obs_metrics_add(p->registry, metrics, MAILBOX_M_COUNT, p->mb.m), ERR_OK);
    mailbox_topic_hash(STR("t"), &p->topic);
    p->mb.segment_bytes = SEGMENT;
    p->mb.clock = &p->clock.clock;
    l->mb = &p->mb;
    l->rules = world_rules(INT64_C(1000000), 5);
    l->rules.index_max = 1000000;
    l->group_memory = malloc(MAILBOX_GROUP_MEMORY);
    l->read_buffer = malloc(MAILBOX_REC_BYTES_MAX + 64);
    CHECK(p->payload && l->group_memory && l->read_buffer);
    assert_int_equal(mailbox_shard_init(&l->shard, 0, &l->rules, 1, now_of(p), l->group_memory), ERR_OK);
    assert_int_equal(mailbox_log_open(&l->log, &l->shard,
                                      &(struct mailbox_log_config){.disk = p->disk,
                                                                   .dir = DIR,
                                                                   .instance = instance,
                                                                   .segment_bytes = SEGMENT,
                                                                   .clock = &p->clock.clock,
                                                                   .now = now_of(p)},
                                      &report),
                     ERR_OK);
    *state = p;
    return 0;
}

static int tear_down(void **state) RT_BLOCKS
{
    struct place *p = *state;
    mailbox_shard_check(&p->l->shard);
    mailbox_log_close(&p->l->log);
    mailbox_shard_fini(&p->l->shard);
    obs_metrics_destroy(p->registry);
    store_disk_destroy(p->disk);
    free(p->l->group_memory);
    free(p->l->read_buffer);
    free(p->l);
    free(p->payload);
    free(p);
    return 0;
}

static void commit(struct place *p) RT_BLOCKS
{
    struct store_journal *j = p->l->log.journal;
    if (store_journal_wants_spare(j))
        assert_int_equal(store_journal_prepare_spare(j), ERR_OK);
    assert_int_equal(mailbox_log_commit(&p->l->log, now_of(p)), ERR_OK);
}

static void send(struct place *p, size_t bytes)
{
    static const uint8_t attrs[4];
    char key[16];
    struct mailbox_sent out = {0};
    snprintf(key, sizeof key, "%u", p->key++);
    struct mailbox_send in = {.topic = STR("t"),
                              .idem_key = str_from_c(key),
                              .topic_hash = &p->topic,
                              .tenant = STR("default"),
                              .attrs = bytes_of(attrs, 4),
                              .payload = bytes_of(p->payload, bytes)};
    mailbox_dedup_digest(in.topic, in.idem_key, &in.digest);
    sha256_of(in.payload.p, bytes, &in.payload_hash);
    sha256_of(attrs, sizeof attrs, &in.attrs_hash);
    assert_int_equal(mailbox_shard_send(&p->l->shard, now_of(p), &in, &out), ERR_OK);
}

static void settle(struct place *p, uint32_t most) RT_BLOCKS
{
    struct mailbox_topic *t = mailbox_topics_find(&p->l->shard.topics, &p->topic, STR("t"));
    struct mailbox_want want = {t, 1000000, most, INT64_MAX, 0, false};
    uint32_t *got = malloc(most * sizeof *got), n;
    CHECK(got != NULL);
    n = mailbox_shard_lease(&p->l->shard, now_of(p), &want, got);
    assert_int_equal(n, most);
    commit(p);
    for (uint32_t k = 0; k < n; k++) {
        struct mailbox_settled out;
        struct mailbox_fence f = {.msg_id = mailbox_shard_entry(&p->l->shard, got[k])->msg_id};
        assert_int_equal(mailbox_shard_ack(&p->l->shard, now_of(p), &f, &out), ERR_OK);
    }
    free(got);
    commit(p);
}

/* A turn of the worker that found nothing else to do. */
static void turn(struct place *p) RT_BLOCKS
{
    clock_manual_advance_ms(&p->clock, 100);
    mailbox_worker__reclaim(p->l, now_of(p));
}

static uint64_t moved(struct place *p)
{
    return obs_counter_value(obs_counter(p->mb.m[MAILBOX_M_moved_bytes]));
}

/* It shares the group with what callers sent, and leaves when that is full. */
static void a_group_that_is_nearly_full_takes_what_fits_and_the_next_the_rest(void **state) RT_BLOCKS
{
    struct place *p = *state;
    struct mailbox_shard *s = &p->l->shard;
    for (int k = 0; k < 5; k++) {
        send(p, LARGE);
        commit(p);
    }
    settle(p, 5);
    for (int k = 0; k < 600; k++)
        send(p, 1);
    commit(p);
    while (p->l->log.active_segment == 1) {
        send(p, LARGE);
        commit(p);
    }
    atomic_store(&p->l->strip_wish, 1);
    while (s->pending_n < MAILBOX_GROUP_MESSAGES - 10)
        send(p, 1);
    turn(p);
    assert_int_equal(s->pending_n, MAILBOX_GROUP_MESSAGES);
    commit(p);
    send(p, LARGE);
    send(p, MAILBOX_GROUP_BYTES - LARGE - 2000);
    assert_false(mailbox_shard_group_full(s));
    turn(p);
    assert_true(mailbox_shard_group_full(s) && s->group.n < MAILBOX_GROUP_BYTES + 2000);
    for (int k = 0; k < 100 && mailbox_shard_segment_use(s, 1)->waiting; k++) {
        commit(p);
        turn(p);
    }
    commit(p);
    mailbox_worker__reclaimed(p->l);
    assert_int_equal(atomic_load(&p->l->strip_ok), 1);
}

/* Until everything that was done for it is durable, and every topic has a name in a later segment, a file stays. */
static void a_worker_agrees_when_nothing_depends_on_the_file_any_more(void **state) RT_BLOCKS
{
    struct place *p = *state;
    struct mailbox_lane *l = p->l;
    struct mailbox_shard *s = &l->shard;
    struct mailbox_topic *t;
    struct mailbox_settled out;
    uint32_t got[6];
    while (l->log.active_segment < 2) {
        send(p, LARGE);
        commit(p);
    }
    t = mailbox_topics_find(&s->topics, &p->topic, STR("t"));
    struct mailbox_want want = {t, 1000000, 6, INT64_MAX, 0, false};
    uint32_t n = mailbox_shard_lease(s, now_of(p), &want, got);
    commit(p);
    atomic_store(&l->strip_wish, 1);
    for (uint32_t k = 0; k < n; k++) {
        struct mailbox_fence f = {.msg_id = mailbox_shard_entry(s, got[k])->msg_id};
        mailbox_worker__reclaimed(l);
        assert_int_equal(atomic_load(&l->strip_ok), 0);
        assert_int_equal(mailbox_shard_ack(s, now_of(p), &f, &out), ERR_OK);
    }
    assert_int_equal(mailbox_shard_segment_use(s, 1)->waiting, 0);
    mailbox_worker__reclaimed(l); /* settled and answered, not written */
    assert_int_equal(atomic_load(&l->strip_ok), 0);
    commit(p);
    mailbox_worker__reclaimed(l);
    assert_int_equal(atomic_load(&l->strip_ok), 1);

    atomic_store(&l->drop_wish, 1);
    clock_manual_advance_ms(&p->clock, 1000000); /* the windows of all keys are over */
    while (mailbox_shard_tick(s, now_of(p)))
        ;
    assert_int_equal(mailbox_shard_segment_use(s, 1)->keys, 0);
    t->scope = UINT64_C(1) << 32; /* as if only the first segment named it */
    mailbox_worker__reclaimed(l);
    assert_int_equal(atomic_load(&l->drop_ok), 0);
    turn(p);
    assert_true(s->group.n > 0);
    mailbox_worker__reclaimed(l);
    assert_int_equal(atomic_load(&l->drop_ok), 0);
    commit(p);
    mailbox_worker__reclaimed(l);
    assert_int_equal(atomic_load(&l->drop_ok), 1);
}

/* A segment that is gone is no reason to move what lives in another. */
static void a_long_life_does_not_make_living_segments_move(void **state) RT_BLOCKS
{
    struct place *p = *state;
    struct mailbox_log *g = &p->l->log;
    struct store_segment oldest[1];
    while (g->active_segment <= (256 << 20) / SEGMENT + 8) {
        for (int k = 0; k < 5; k++) {
            send(p, LARGE);
            commit(p);
        }
        settle(p, 5);
        while (store_journal_segments(g->journal, oldest, 1) > 1 &&
               mailbox_shard_segment_use(&p->l->shard, oldest->segment_no)->waiting == 0)
            assert_int_equal(store_journal_drop(g->journal, oldest->segment_no, false), ERR_OK);
    }
    uint32_t living = g->active_segment + 1;
    while (g->active_segment <= living) {
        send(p, LARGE);
        commit(p);
    }
    atomic_store(&p->l->strip_wish, living);
    turn(p);
    commit(p);
    assert_int_equal(moved(p), 0);
    atomic_store(&p->l->idx_bytes,
                 UINT64_C(1) << 30); /* but files that are there are, when they are large enough */
    turn(p);
    commit(p);
    assert_true(moved(p) > 0);
}

int main(void)
{
#define EACH(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(a_group_that_is_nearly_full_takes_what_fits_and_the_next_the_rest),
        EACH(a_worker_agrees_when_nothing_depends_on_the_file_any_more),
        EACH(a_long_life_does_not_make_living_segments_move),
    };
#undef EACH
    return cmocka_run_group_tests(tests, NULL, NULL);
}
