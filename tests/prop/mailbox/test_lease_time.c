/*
 * When a lease ends, on a clock that only the test moves: never before its deadline, and at the latest 50 ms after it, for a worker
 * that sleeps as long as the core lets it. Wall clock steps change nothing. The seed is printed and can be given back (MAILBOX_SEED).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "services/mailbox/core/shard.h"

enum { MESSAGES = 1000, LATE_US = 50000, VISIBILITY_MIN_US = 50000 };

struct world {
    struct mailbox_shard *s;
    struct mailbox_rules rules;
    void *group;
    struct mailbox_now now;
    struct rng rng;
    uint32_t entry[MESSAGES];
    int64_t ends_us[MESSAGES]; /* INT64_MAX: not leased */
    struct sha256 hash;
    uint64_t ended;
};

static void settle_group(struct world *w)
{
    mailbox_shard_committed(w->s, 1, 4096);
}

static void send(struct world *w, int i)
{
    static const uint8_t attrs[4];
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    struct mailbox_send in = {.topic = STR("t"),
                              .idem_key = str_from_c(key),
                              .corr_id = STR("c"),
                              .topic_hash = &w->hash,
                              .attrs = bytes_of(attrs, 4)};
    struct mailbox_sent out = {0};
    mailbox_dedup_digest(in.topic, in.idem_key, &in.digest);
    sha256_of(NULL, 0, &in.payload_hash);
    sha256_of(attrs, 4, &in.attrs_hash);
    assert_int_equal(mailbox_shard_send(w->s, w->now, &in, &out), ERR_OK);
    w->entry[i] = out.entry;
    w->ends_us[i] = INT64_MAX;
    settle_group(w);
}

/* From the shortest lease to twelve hours, as many short as long ones. */
static int64_t any_visibility(struct world *w)
{
    int64_t most = INT64_C(1) << rng_between(&w->rng, 16, 35);
    return VISIBILITY_MIN_US + (int64_t)rng_below(&w->rng, (uint64_t)most);
}

static int index_of(const struct world *w, uint32_t entry)
{
    for (int i = 0; i < MESSAGES; i++)
        if (w->entry[i] == entry)
            return i;
    fail_msg("an entry nobody sent");
    return -1;
}

static void lease_one(struct world *w)
{
    struct mailbox_topic *t = mailbox_shard_topic_of(w->s, w->entry[0]);
    int64_t visibility = any_visibility(w);
    uint32_t got;
    struct mailbox_want want = {.topic = t, .visibility_us = visibility, .max = 1, .max_bytes = 1 << 20};
    if (mailbox_shard_lease(w->s, w->now, &want, &got) == 1)
        w->ends_us[index_of(w, got)] = w->now.mono_us + visibility;
    settle_group(w);
}

static void extend_one(struct world *w)
{
    int i = (int)rng_below(&w->rng, MESSAGES);
    int64_t visibility = any_visibility(w);
    struct mailbox_settled out;
    if (w->ends_us[i] == INT64_MAX)
        return;
    struct mailbox_fence f = {.msg_id = mailbox_shard_entry(w->s, w->entry[i])->msg_id};
    assert_int_equal(mailbox_shard_extend(w->s, w->now, &f, visibility, &out), ERR_OK);
    w->ends_us[i] = w->now.mono_us + visibility;
}

static int64_t earliest(const struct world *w)
{
    int64_t at = INT64_MAX;
    for (int i = 0; i < MESSAGES; i++)
        at = w->ends_us[i] < at ? w->ends_us[i] : at;
    return at;
}

/* The state of every message after a tick at this time, whatever the order. */
static void check(struct world *w)
{
    for (int i = 0; i < MESSAGES; i++) {
        bool leased = mailbox_shard_entry(w->s, w->entry[i])->state == MAILBOX_LEASED;
        if (w->ends_us[i] == INT64_MAX)
            assert_false(leased);
        else if (w->ends_us[i] > w->now.mono_us)
            assert_true(leased); /* never early */
        else
            assert_false(leased);
        if (w->ends_us[i] <= w->now.mono_us) {
            w->ends_us[i] = INT64_MAX;
            w->ended++;
        }
    }
}

/* Sleeps as a worker does: until the core's next due, or until something else wakes it. */
static void sleep_and_tick(struct world *w, bool disturbed)
{
    int64_t due = mailbox_shard_next_due(w->s), first = earliest(w);
    assert_true(due <= first); /* it never sleeps past a deadline */
    int64_t until = w->now.mono_us + (int64_t)rng_below(&w->rng, 2000000);
    if (due <= w->now.mono_us) /* its slot has begun: the worker looks again after a millisecond */
        due = w->now.mono_us + 1000;
    if (due < until || (due != INT64_MAX && !disturbed))
        until = due;
    if (until > w->now.mono_us) {
        w->now.wall_ms += (uint64_t)(until - w->now.mono_us) / 1000;
        w->now.mono_us = until;
    }
    if (rng_below(&w->rng, 50) == 0) /* the wall clock is set, a day or two minutes this way or that */
        w->now.wall_ms += rng_below(&w->rng, 2) ? 86400000 : (uint64_t)-120000;
    assert_true(first == INT64_MAX || w->now.mono_us - first <= LATE_US);
    while (mailbox_shard_tick(w->s, w->now))
        settle_group(w);
    settle_group(w);
    check(w);
}

static void a_lease_ends_at_its_deadline_and_at_most_fifty_milliseconds_later(void **state)
{
    (void)state;
    const char *given = getenv("MAILBOX_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : rng_secure_u64() % 1000000;
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    print_message("seed %llu\n", (unsigned long long)seed);
    rng_seed(&w->rng, seed);
    w->now = (struct mailbox_now){5000000, UINT64_C(1760292161000)};
    w->rules = (struct mailbox_rules){.index_max = 100000,
                                      .max_topics = 10,
                                      .backoff_base_ms = 20,
                                      .backoff_max_ms = 400,
                                      .retention_ready_ms = UINT64_C(1) << 45,
                                      .retention_dlq_ms = UINT64_C(1) << 45};
    w->rules.policies.n = 1;
    w->rules.policies.p[0] =
        (struct mailbox_policy){.class_name = "default", .t_replay_ms = 3000, .max_attempts = UINT8_MAX};
    w->group = malloc(MAILBOX_GROUP_MEMORY);
    w->s = calloc(1, sizeof *w->s);
    assert_true(w->group && w->s);
    mailbox_topic_hash(STR("t"), &w->hash);
    assert_int_equal(mailbox_shard_init(w->s, 0, &w->rules, seed, w->now, w->group), ERR_OK);
    for (int i = 0; i < MESSAGES; i++)
        send(w, i);
    for (int step = 0; step < 6000; step++) {
        for (uint64_t k = rng_below(&w->rng, 4); k > 0; k--)
            lease_one(w);
        if (rng_below(&w->rng, 3) == 0)
            extend_one(w);
        sleep_and_tick(w, rng_below(&w->rng, 4) != 0);
    }
    while (earliest(w) != INT64_MAX) /* the longest ones, hours later */
        sleep_and_tick(w, false);
    assert_true(w->ended > MESSAGES && w->now.mono_us > INT64_C(3600000000));
    mailbox_shard_check(w->s);
    mailbox_shard_fini(w->s);
    free(w->s);
    free(w->group);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_ends_at_its_deadline_and_at_most_fifty_milliseconds_later)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
