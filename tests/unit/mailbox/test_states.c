/*
 * What may happen to a message: one test for each row of its table of states, then the rules of the fence, the key, the order and the
 * clock. The property test meets all of them in combination; here each can be read, and fails alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "services/mailbox/core/shard.h"

enum {
    SECOND = 1000000,
    MAX_ATTEMPTS = 3,
    T_REPLAY_MS = 60000,
    RETENTION_MS = 3600000,
    BACKOFF_MS = 100,
    BACKOFF_MOST_MS = 300
};

static struct mailbox_shard *s;
static struct mailbox_rules rules;
static struct mailbox_now now;
static uint8_t *group, *journal; /* everything written so far, as a start would read it */
static size_t journal_n;
static struct sha256 hash;

static const struct str TOPIC = {"orders", 6};

static int begin(void **state)
{
    (void)state;
    s = calloc(1, sizeof *s);
    group = malloc(MAILBOX_GROUP_MEMORY);
    journal = malloc(1 << 20);
    journal_n = 0;
    now = (struct mailbox_now){1000 * SECOND, UINT64_C(1760292161000)};
    rules = (struct mailbox_rules){.index_max = 1000,
                                   .max_topics = 10,
                                   .backoff_base_ms = BACKOFF_MS,
                                   .backoff_max_ms = BACKOFF_MOST_MS,
                                   .retention_ready_ms = RETENTION_MS,
                                   .retention_dlq_ms = RETENTION_MS};
    rules.policies.n = 1;
    rules.policies.p[0] = (struct mailbox_policy){
        .class_name = "default", .t_replay_ms = T_REPLAY_MS, .max_attempts = MAX_ATTEMPTS};
    mailbox_topic_hash(TOPIC, &hash);
    return s && group && journal && mailbox_shard_init(s, 0, &rules, 7, now, group) == ERR_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    mailbox_shard_check(s);
    mailbox_shard_fini(s);
    free(s);
    free(group);
    free(journal);
    return 0;
}

/* ---- events ---- */

/* Types of the records in the group being built, then it is written. */
static const char *written(void)
{
    static char types[64];
    size_t at = 0, n = 0;
    memset(types, 0, sizeof types);
    if (s->group.n == 0)
        return types;
    mailbox_rec_seal(&s->group);
    struct mailbox_rec r;
    while (mailbox_rec_next(bytes_of(s->group.p, s->group.n), &at, &r) == ERR_OK)
        types[n++] =
            "-TEMLSFRDGA"[r.type]; /* topic, enq, move, lease, settle, fail, reproc, dedup, forget, adopt */
    memcpy(journal + journal_n, s->group.p, s->group.n);
    size_t wrote = s->group.n;
    mailbox_shard_committed(s, 1, 4096 + journal_n);
    journal_n += wrote;
    return types;
}

static enum err send_key(const char *key, uint64_t delay_ms, struct mailbox_sent *out)
{
    static const uint8_t attrs[4];
    struct mailbox_send in = {.topic = TOPIC,
                              .idem_key = str_from_c(key),
                              .corr_id = STR("c"),
                              .topic_hash = &hash,
                              .tenant = STR("default"),
                              .attrs = bytes_of(attrs, 4),
                              .payload = bytes_of("x", 1),
                              .delay_ms = delay_ms};
    mailbox_dedup_digest(in.topic, in.idem_key, &in.digest);
    sha256_of("x", 1, &in.payload_hash);
    sha256_of(attrs, 4, &in.attrs_hash);
    *out = (struct mailbox_sent){0};
    return mailbox_shard_send(s, now, &in, out);
}

static struct uuid sent(const char *key)
{
    struct mailbox_sent out;
    assert_int_equal(send_key(key, 0, &out), ERR_OK);
    assert_false(out.duplicate);
    written();
    return out.msg_id;
}

static struct mailbox_topic *topic(void)
{
    return mailbox_topics_find(&s->topics, &hash, TOPIC);
}

static const struct mailbox_entry *entry(struct uuid id)
{
    uint32_t i = mailbox_shard_find(s, &id);
    assert_int_not_equal(i, 0);
    return mailbox_shard_entry(s, i);
}

static void is(struct uuid id, enum mailbox_state state, uint16_t attempt, uint8_t tries)
{
    const struct mailbox_entry *e = entry(id);
    assert_int_equal(e->state, state);
    assert_int_equal(e->attempt, attempt);
    assert_int_equal(e->tries, tries);
    mailbox_shard_check(s);
}

static uint32_t lease(int64_t visibility_us)
{
    uint32_t got[8];
    struct mailbox_want w = {topic(), visibility_us, 1, INT64_MAX, 0, false};
    return mailbox_shard_lease(s, now, &w, got);
}

static void taken(int64_t visibility_us)
{
    assert_int_equal(lease(visibility_us), 1);
    written();
}

static void pass_us(int64_t us)
{
    now.mono_us += us;
    now.wall_ms += (uint64_t)us / 1000;
    while (mailbox_shard_tick(s, now))
        ;
}

static enum err ack(struct uuid id, uint16_t attempt, struct mailbox_settled *out)
{
    *out = (struct mailbox_settled){0};
    return mailbox_shard_ack(s, now, &(struct mailbox_fence){.msg_id = id, .attempt = attempt}, out);
}

static enum err nack(struct uuid id, uint16_t attempt, struct mailbox_nack n, struct mailbox_settled *out)
{
    *out = (struct mailbox_settled){0};
    return mailbox_shard_nack(s, now, &(struct mailbox_fence){.msg_id = id, .attempt = attempt}, &n, out);
}

static enum err extend(struct uuid id, uint16_t attempt, int64_t us, struct mailbox_settled *out)
{
    *out = (struct mailbox_settled){0};
    return mailbox_shard_extend(s, now, &(struct mailbox_fence){.msg_id = id, .attempt = attempt}, us, out);
}

static const struct mailbox_nack plain, dead = {.dead = true};

static uint8_t cause_of(struct uuid id)
{
    const struct mailbox_failures *h = mailbox_history_get(&s->history, mailbox_shard_find(s, &id));
    assert_non_null(h);
    return h->f[h->n - 1].cause;
}

static struct uuid a_dead_letter(const char *key)
{
    struct mailbox_settled out;
    struct uuid id = sent(key);
    taken(SECOND);
    assert_int_equal(nack(id, 1, dead, &out), ERR_OK);
    written();
    is(id, MAILBOX_DLQ, 1, 1);
    return id;
}

static void start_again(void)
{
    struct mailbox_rec r;
    mailbox_shard_fini(s);
    assert_int_equal(mailbox_shard_init(s, 0, &rules, 8, now, group), ERR_OK);
    mailbox_replay_begin(s);
    for (size_t at = 0, was = 0; mailbox_rec_next(bytes_of(journal, journal_n), &at, &r) == ERR_OK;
         was = at)
        assert_int_equal(mailbox_replay_record(
                             s, &r, &(struct mailbox_replay_at){1, 4096 + was, true, now.wall_ms}, NULL),
                         ERR_OK);
    assert_int_equal(mailbox_replay_end(s, now), ERR_OK);
    mailbox_shard_check(s);
}

/* ---- the table, row by row ---- */

static void a_send_is_flushed_and_ready(void **state)
{
    (void)state;
    struct mailbox_sent out;
    assert_int_equal(send_key("k", 0, &out), ERR_OK);
    assert_true(s->must_flush);
    assert_string_equal(written(), "TE");
    is(out.msg_id, MAILBOX_READY, 0, 0);
}

static void a_send_with_a_delay_is_delayed_and_ready_when_due(void **state)
{
    (void)state;
    struct mailbox_sent out;
    assert_int_equal(send_key("k", 500, &out), ERR_OK);
    assert_string_equal(written(), "TE");
    is(out.msg_id, MAILBOX_DELAYED, 0, 0);
    pass_us(499999);
    assert_int_equal(lease(SECOND), 0);
    pass_us(1);
    is(out.msg_id, MAILBOX_READY, 0, 0);
    assert_string_equal(written(), ""); /* time needs no record */
}

static void a_receive_leases_and_the_lease_is_flushed(void **state)
{
    (void)state;
    struct uuid id = sent("k");
    assert_false(s->must_flush);
    assert_int_equal(lease(SECOND), 1);
    assert_true(s->must_flush);
    assert_string_equal(written(), "L");
    is(id, MAILBOX_LEASED, 1, 1);
    assert_int_equal(lease(SECOND), 0); /* one lease at a time */
}

static void a_receive_passes_over_what_has_had_its_tries(void **state)
{
    (void)state;
    struct uuid worn = sent("worn"), next = sent("next");
    for (int i = 1; i < MAX_ATTEMPTS; i++) {
        taken(SECOND);
        assert_int_equal(mailbox_shard_release(s, now, &worn, (uint16_t)i), ERR_OK);
    }
    rules.policies.p[0].max_attempts = MAX_ATTEMPTS - 1; /* a reload lets fewer */
    taken(SECOND);
    is(worn, MAILBOX_DLQ, MAX_ATTEMPTS - 1, MAX_ATTEMPTS - 1);
    is(next, MAILBOX_LEASED, 1, 1);
}

static void an_ack_of_a_lease_is_lazy_and_final(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid id = sent("k");
    taken(SECOND);
    assert_int_equal(ack(id, 1, &out), ERR_OK);
    assert_false(out.already);
    assert_false(s->must_flush);
    assert_string_equal(written(), "S");
    is(id, MAILBOX_DONE, 1, 1);
    pass_us(10 * SECOND);
    assert_int_equal(lease(SECOND), 0);
}

static void late_work_counts_as_long_as_nobody_has_a_newer_token(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid ready = sent("ready");
    taken(SECOND);
    pass_us(SECOND);
    is(ready, MAILBOX_READY, 1, 1);
    assert_int_equal(ack(ready, 1, &out), ERR_OK);
    is(ready, MAILBOX_DONE, 1, 1);
    struct uuid delayed = sent("delayed");
    taken(SECOND);
    assert_int_equal(nack(delayed, 1, (struct mailbox_nack){.use_delay = true, .delay_ms = 5000}, &out),
                     ERR_OK);
    is(delayed, MAILBOX_DELAYED, 1, 1);
    assert_int_equal(ack(delayed, 1, &out), ERR_OK);
    is(delayed, MAILBOX_DONE, 1, 1);
    pass_us(10 * SECOND);
    assert_int_equal(lease(SECOND), 0);
}

static void a_nack_delays_and_the_last_one_kills(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid id = sent("k");
    for (uint8_t tries = 1; tries < MAX_ATTEMPTS; tries++) {
        taken(SECOND);
        assert_int_equal(nack(id, tries, (struct mailbox_nack){.use_delay = true, .delay_ms = 50}, &out),
                         ERR_OK);
        assert_false(out.dead);
        assert_int_equal(out.delay_ms, 50);
        assert_false(s->must_flush);
        assert_string_equal(written(), "F");
        is(id, MAILBOX_DELAYED, tries, tries);
        pass_us(50000);
        is(id, MAILBOX_READY, tries, tries);
    }
    taken(SECOND);
    assert_int_equal(nack(id, MAX_ATTEMPTS, plain, &out), ERR_OK);
    assert_true(out.dead);
    is(id, MAILBOX_DLQ, MAX_ATTEMPTS, MAX_ATTEMPTS);
    assert_int_equal(cause_of(id), MAILBOX_CAUSE_NACK);
}

static void a_nack_that_says_dead_kills_at_once(void **state)
{
    (void)state;
    assert_int_equal(cause_of(a_dead_letter("k")), MAILBOX_CAUSE_DEAD);
}

static void an_extension_counts_from_now_and_leaves_no_record(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid id = sent("k");
    taken(SECOND);
    pass_us(SECOND / 2);
    assert_int_equal(extend(id, 1, SECOND, &out), ERR_OK);
    assert_string_equal(written(), "");
    pass_us(SECOND - 1);
    is(id, MAILBOX_LEASED, 1, 1);
    pass_us(1);
    is(id, MAILBOX_READY, 1, 1);
}

static void a_lease_that_ends_gives_back_at_once_and_the_last_one_kills(void **state)
{
    (void)state;
    struct uuid id = sent("k");
    for (uint8_t tries = 1; tries <= MAX_ATTEMPTS; tries++) {
        taken(SECOND);
        pass_us(SECOND - 1);
        is(id, MAILBOX_LEASED, tries, tries); /* never back before the deadline */
        pass_us(1);
        is(id, tries < MAX_ATTEMPTS ? MAILBOX_READY : MAILBOX_DLQ, tries, tries);
        assert_false(s->must_flush);
        assert_string_equal(written(), "F");
    }
    assert_int_equal(cause_of(id), MAILBOX_CAUSE_LEASE_EXPIRED);
}

static void a_release_gives_back_at_once_and_the_last_one_kills(void **state)
{
    (void)state;
    struct uuid id = sent("k");
    for (uint8_t tries = 1; tries <= MAX_ATTEMPTS; tries++) {
        taken(SECOND);
        assert_int_equal(mailbox_shard_release(s, now, &id, tries), ERR_OK);
        is(id, tries < MAX_ATTEMPTS ? MAILBOX_READY : MAILBOX_DLQ, tries, tries);
        assert_int_equal(mailbox_shard_release(s, now, &id, tries), ERR_NOT_LEASED);
    }
}

static void bad_bytes_count_as_a_delivery_and_then_as_a_nack(void **state)
{
    (void)state;
    struct uuid id = sent("k");
    for (uint8_t tries = 1; tries <= MAX_ATTEMPTS; tries++) {
        taken(SECOND);
        mailbox_shard_integrity(s, now, mailbox_shard_find(s, &id));
        assert_false(s->must_flush);
        assert_string_equal(written(), "F");
        is(id, tries < MAX_ATTEMPTS ? MAILBOX_DELAYED : MAILBOX_DLQ, tries, tries);
        pass_us(BACKOFF_MOST_MS * 1000);
    }
    assert_int_equal(cause_of(id), MAILBOX_CAUSE_INTEGRITY);
}

static void what_nobody_takes_is_dead_lettered_by_a_receive_and_by_looking(void **state)
{
    (void)state;
    struct uuid old = sent("old"), delayed;
    struct mailbox_sent out;
    pass_us((int64_t)RETENTION_MS * 1000);
    mailbox_shard_retention(s, now, 10);
    is(old, MAILBOX_READY, 0, 0); /* not before */
    pass_us(1);
    assert_int_equal(lease(SECOND), 0);
    is(old, MAILBOX_DLQ, 0, 0);
    assert_int_equal(cause_of(old), MAILBOX_CAUSE_RETENTION);
    assert_int_equal(send_key("delayed", RETENTION_MS, &out), ERR_OK);
    delayed = out.msg_id;
    written();
    pass_us((int64_t)RETENTION_MS * 1000 + 1);
    mailbox_shard_retention(s, now, 10);
    is(delayed, MAILBOX_READY, 0, 0); /* its time counts from when it was due */
    pass_us((int64_t)RETENTION_MS * 1000);
    mailbox_shard_retention(s, now, 10);
    is(delayed, MAILBOX_DLQ, 0, 0);
}

static void a_dead_letter_that_is_reprocessed_is_ready_with_new_tries_and_its_token_goes_on(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid first = sent("first"), id, later = sent("later");
    taken(SECOND);
    assert_int_equal(nack(first, 1, dead, &out), ERR_OK);
    id = first;
    written();
    assert_int_equal(mailbox_shard_reprocess(s, now, &id, 0), ERR_OK);
    assert_true(s->must_flush);
    assert_string_equal(written(), "R");
    is(id, MAILBOX_READY, 1, 0);
    taken(SECOND); /* at its old place in the order */
    is(id, MAILBOX_LEASED, 2, 1);
    is(later, MAILBOX_READY, 0, 0);
    assert_int_equal(nack(id, 2, dead, &out), ERR_OK);
    assert_int_equal(mailbox_shard_reprocess(s, now, &id, 100), ERR_OK);
    is(id, MAILBOX_DELAYED, 2, 0);
    pass_us(100000);
    is(id, MAILBOX_READY, 2, 0);
    assert_int_equal(mailbox_shard_reprocess(s, now, &id, 0), ERR_NOT_FOUND); /* it is none any more */
}

static void a_purge_is_flushed_and_the_end_of_its_time_is_lazy(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid purged = a_dead_letter("purged"), old = a_dead_letter("old");
    assert_int_equal(mailbox_shard_purge(s, now, &purged), ERR_OK);
    assert_true(s->must_flush);
    assert_string_equal(written(), "S");
    is(purged, MAILBOX_DONE, 1, 1);
    assert_int_equal(ack(purged, 1, &out), ERR_NOT_FOUND); /* it was not acked */
    rules.policies.p[0].t_replay_ms = MAILBOX_UNLIMITED;   /* so that it can be looked at afterwards */
    pass_us((int64_t)RETENTION_MS * 1000);
    mailbox_shard_retention(s, now, 10);
    is(old, MAILBOX_DLQ, 1, 1);
    pass_us(1000);
    mailbox_shard_retention(s, now, 10);
    assert_false(s->must_flush);
    assert_string_equal(written(), "S");
    is(old, MAILBOX_DONE, 1, 1);
}

static void a_window_that_is_over_is_forgotten(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct mailbox_sent again;
    struct uuid id = sent("k");
    taken(SECOND);
    assert_int_equal(ack(id, 0, &out), ERR_OK);
    written();
    pass_us((int64_t)T_REPLAY_MS * 1000 - 1);
    assert_int_equal(send_key("k", 0, &again), ERR_OK);
    assert_true(again.duplicate);
    assert_memory_equal(&again.msg_id, &id, sizeof id);
    pass_us(1);
    assert_int_equal(mailbox_shard_find(s, &id), 0);
    assert_int_equal(send_key("k", 0, &again), ERR_OK);
    assert_false(again.duplicate);
    assert_memory_not_equal(&again.msg_id, &id, sizeof id);
    written();
}

static void a_start_gives_leases_back_and_keeps_tokens_and_tries(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct mailbox_sent later, again;
    struct uuid leased = sent("leased"), gone;
    taken(SECOND);
    pass_us(SECOND);
    taken(SECOND);
    gone = a_dead_letter("dead");
    assert_int_equal(send_key("later", 5000, &later), ERR_OK);
    written();
    start_again();
    is(leased, MAILBOX_READY, 2, 2);
    is(gone, MAILBOX_DLQ, 1, 1);
    assert_int_equal(cause_of(gone), MAILBOX_CAUSE_DEAD);
    is(later.msg_id, MAILBOX_DELAYED, 0, 0);
    assert_int_equal(send_key("leased", 0, &again), ERR_OK);
    assert_true(again.duplicate);
    taken(SECOND);
    is(leased, MAILBOX_LEASED, 3, 3); /* the token goes on, it does not come again */
    assert_int_equal(ack(leased, 2, &out), ERR_STALE_ATTEMPT);
}

/* ---- the fence ---- */

static void a_stale_token_changes_nothing_and_learns_the_current_one(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid id = sent("k");
    taken(SECOND);
    pass_us(SECOND);
    taken(SECOND);
    written();
    static const uint16_t wrong[] = {1, 3, UINT16_MAX};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ack(id, wrong[i], &out), ERR_STALE_ATTEMPT);
        assert_int_equal(out.attempt, 2);
        assert_int_equal(nack(id, wrong[i], dead, &out), ERR_STALE_ATTEMPT);
        assert_int_equal(extend(id, wrong[i], 9 * SECOND, &out), ERR_STALE_ATTEMPT);
        assert_int_equal(mailbox_shard_release(s, now, &id, wrong[i]), ERR_NOT_LEASED);
    }
    assert_string_equal(written(), "");
    is(id, MAILBOX_LEASED, 2, 2);
    pass_us(SECOND);
    is(id, MAILBOX_READY, 2, 2); /* not extended */
}

static void no_token_means_the_current_lease(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid id = sent("k");
    taken(SECOND);
    assert_int_equal(extend(id, 0, 2 * SECOND, &out), ERR_OK);
    assert_int_equal(nack(id, 0, (struct mailbox_nack){.use_delay = true}, &out), ERR_OK);
    pass_us(1);
    taken(SECOND);
    assert_int_equal(ack(id, 0, &out), ERR_OK);
    is(id, MAILBOX_DONE, 2, 2);
}

static void a_dead_letter_cannot_be_settled(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid id = a_dead_letter("k");
    for (uint16_t attempt = 0; attempt <= 1; attempt++) {
        assert_int_equal(ack(id, attempt, &out), ERR_DEAD_LETTERED);
        assert_int_equal(nack(id, attempt, plain, &out), ERR_DEAD_LETTERED);
        assert_int_equal(extend(id, attempt, SECOND, &out), ERR_DEAD_LETTERED);
    }
    is(id, MAILBOX_DLQ, 1, 1);
}

static void what_is_not_leased_cannot_be_given_back_or_kept(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid id = sent("k");
    assert_int_equal(ack(id, 0, &out), ERR_NOT_LEASED); /* never delivered */
    assert_int_equal(nack(id, 0, plain, &out), ERR_NOT_LEASED);
    assert_int_equal(extend(id, 0, SECOND, &out), ERR_NOT_LEASED);
    taken(SECOND);
    pass_us(SECOND);
    assert_int_equal(nack(id, 1, plain, &out), ERR_NOT_LEASED); /* delivered once, but its lease is over */
    assert_int_equal(extend(id, 1, SECOND, &out), ERR_NOT_LEASED);
    is(id, MAILBOX_READY, 1, 1);
}

static void an_ack_again_is_told_so_while_the_token_fits(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid id = sent("k");
    taken(SECOND);
    assert_int_equal(ack(id, 1, &out), ERR_OK);
    for (uint16_t attempt = 0; attempt <= 1; attempt++) {
        assert_int_equal(ack(id, attempt, &out), ERR_OK);
        assert_true(out.already);
    }
    assert_int_equal(ack(id, 2, &out), ERR_STALE_ATTEMPT);
    assert_int_equal(nack(id, 1, plain, &out), ERR_NOT_LEASED);
}

static bool covers_nothing(const void *ctx, struct str name)
{
    (void)ctx, (void)name;
    return false;
}

static void an_id_of_a_topic_that_is_not_covered_looks_unknown(void **state)
{
    (void)state;
    struct mailbox_settled out = {0};
    struct uuid id = sent("k"), unknown = {{1, 2, 3}};
    taken(SECOND);
    struct mailbox_fence f = {.msg_id = id, .attempt = 1, .covers = covers_nothing};
    assert_int_equal(mailbox_shard_ack(s, now, &f, &out), ERR_NOT_FOUND);
    assert_int_equal(mailbox_shard_nack(s, now, &f, &dead, &out), ERR_NOT_FOUND);
    assert_int_equal(mailbox_shard_extend(s, now, &f, SECOND, &out), ERR_NOT_FOUND);
    assert_int_equal(out.attempt, 0); /* nothing is told about it */
    assert_int_equal(ack(unknown, 0, &out), ERR_NOT_FOUND);
    is(id, MAILBOX_LEASED, 1, 1);
}

static void a_token_never_begins_anew(void **state)
{
    (void)state;
    struct uuid id = sent("k");
    mailbox_shard_entry(s, mailbox_shard_find(s, &id))->attempt = UINT16_MAX;
    assert_int_equal(lease(SECOND), 0);
    is(id, MAILBOX_DLQ, UINT16_MAX, 0);
}

/* ---- back-off, order, time ---- */

static void a_back_off_doubles_up_to_its_bound_and_is_drawn_from_all_of_it(void **state)
{
    (void)state;
    static const uint64_t most[] = {BACKOFF_MS, 2 * BACKOFF_MS, BACKOFF_MOST_MS, BACKOFF_MOST_MS};
    struct mailbox_settled out;
    rules.policies.p[0].max_attempts = 100;
    rules.index_max = 1u << 20;
    for (uint8_t tries = 1; tries <= 4; tries++) {
        uint64_t low = UINT64_MAX, high = 0;
        for (int i = 0; i < 2000; i++) {
            char key[32];
            snprintf(key, sizeof key, "%u-%d", tries, i);
            struct uuid id = sent(key);
            mailbox_shard_entry(s, mailbox_shard_find(s, &id))->tries = (uint8_t)(tries - 1);
            assert_int_equal(lease(SECOND), 1);
            assert_int_equal(nack(id, 0, plain, &out), ERR_OK);
            low = out.delay_ms < low ? out.delay_ms : low;
            high = out.delay_ms > high ? out.delay_ms : high;
            assert_int_equal(ack(id, 0, &out), ERR_OK);
            journal_n = 0; /* nobody reads it here */
            written();
        }
        assert_in_range(low, 0, most[tries - 1] / 20);
        assert_in_range(high, most[tries - 1] * 19 / 20, most[tries - 1]);
    }
}

static void an_ordered_topic_waits_for_what_is_out_and_for_what_failed(void **state)
{
    (void)state;
    struct mailbox_settled out;
    rules.policies.p[0].ordered = true;
    struct uuid one = sent("one"), two = sent("two");
    taken(SECOND);
    assert_int_equal(lease(SECOND), 0);
    assert_int_equal(nack(one, 1, (struct mailbox_nack){.use_delay = true, .delay_ms = 100}, &out), ERR_OK);
    assert_int_equal(lease(SECOND), 0); /* it is delayed, and goes before the second all the same */
    pass_us(100000);
    taken(SECOND);
    is(one, MAILBOX_LEASED, 2, 2);
    assert_int_equal(ack(one, 2, &out), ERR_OK);
    taken(SECOND);
    is(two, MAILBOX_LEASED, 1, 1);
}

static void what_came_back_goes_before_what_was_never_out(void **state)
{
    (void)state;
    struct uuid one = sent("one"), two = sent("two"), three = sent("three");
    taken(SECOND);
    taken(2 * SECOND);
    pass_us(SECOND);
    taken(9 * SECOND);
    is(one, MAILBOX_LEASED, 2, 2);
    is(two, MAILBOX_LEASED, 1, 1);
    taken(9 * SECOND);
    is(three, MAILBOX_LEASED, 1, 1);
    assert_int_equal(s->reorder_depth_max, 0);
}

/* Invariant 15: the wall clock may be set, by two minutes or a day, either way, at any moment. */
static void i15_a_step_of_the_wall_clock_moves_no_lease_delay_or_window(void **state)
{
    (void)state;
    static const int64_t steps_ms[] = {120000, -120000, 86400000, -86400000};
    for (size_t i = 0; i < 4; i++) {
        char leased[16], delayed[16], settled[16];
        struct mailbox_sent later, again;
        struct mailbox_settled out;
        snprintf(leased, sizeof leased, "l%zu", i);
        snprintf(delayed, sizeof delayed, "d%zu", i);
        snprintf(settled, sizeof settled, "s%zu", i);
        struct uuid done = sent(settled);
        taken(SECOND);
        assert_int_equal(ack(done, 1, &out), ERR_OK);
        struct uuid held = sent(leased);
        taken(10 * SECOND);
        assert_int_equal(send_key(delayed, 10000, &later), ERR_OK);
        written();
        now.wall_ms += (uint64_t)steps_ms[i];
        pass_us(10 * SECOND - 1);
        mailbox_shard_retention(s, now, 10);
        is(held, MAILBOX_LEASED, 1, 1);
        is(later.msg_id, MAILBOX_DELAYED, 0, 0);
        pass_us(1);
        is(held, MAILBOX_READY, 1, 1);
        is(later.msg_id, MAILBOX_READY, 0, 0);
        pass_us((int64_t)T_REPLAY_MS * 1000 - 10 * SECOND - 1);
        assert_int_equal(send_key(settled, 0, &again), ERR_OK);
        assert_true(again.duplicate);
        pass_us(1);
        assert_int_equal(mailbox_shard_find(s, &done), 0);
        assert_int_equal(ack(held, 1, &out), ERR_OK);
        taken(SECOND);
        assert_int_equal(ack(later.msg_id, 1, &out), ERR_OK);
        written();
    }
    for (struct mailbox_sent a = {0}, b = {0};
         b.topic_seq < 12;) { /* and times that are written down never go back */
        char key[24];
        snprintf(key, sizeof key, "w%llu", (unsigned long long)now.mono_us);
        assert_int_equal(send_key(key, 0, &b), ERR_OK);
        written();
        assert_true(b.ts_ms >= a.ts_ms);
        a = b;
        pass_us(1000);
        now.wall_ms -= 5000;
    }
}

static void what_was_delayed_or_reprocessed_has_all_its_tries_when_it_comes_back(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct mailbox_sent far;
    struct uuid old = a_dead_letter("old");
    assert_int_equal(send_key("far", RETENTION_MS, &far), ERR_OK); /* as far ahead as may be */
    written();
    pass_us((int64_t)RETENTION_MS * 1000 + SECOND);
    assert_int_equal(mailbox_shard_reprocess(s, now, &old, 0), ERR_OK);
    written();
    taken(SECOND);
    taken(SECOND);
    is(old, MAILBOX_LEASED, 2, 1);
    is(far.msg_id, MAILBOX_LEASED, 1, 1);
    pass_us(
        SECOND); /* both were accepted longer ago than a message may wait, but neither has waited so long */
    written();
    taken(SECOND);
    taken(SECOND);
    is(old, MAILBOX_LEASED, 3, 2);
    is(far.msg_id, MAILBOX_LEASED, 2, 2);
    assert_int_equal(nack(far.msg_id, 2, (struct mailbox_nack){.use_delay = true, .delay_ms = 50}, &out),
                     ERR_OK);
    assert_int_equal(mailbox_shard_release(s, now, &old, 3), ERR_OK);
    written();
    start_again();
    pass_us(50000);
    taken(SECOND);
    taken(SECOND);
    is(old, MAILBOX_LEASED, 4, 3);
    is(far.msg_id, MAILBOX_LEASED, 3, 3);
    assert_int_equal(ack(old, 4, &out), ERR_OK);
    assert_int_equal(ack(far.msg_id, 3, &out), ERR_OK);
    assert_int_equal(mailbox_shard_find(s, &old), 0); /* its window was over long ago */
}

/* As compaction does it: these are written again, and what was written before is stripped and dropped. The types of the copies. */
static const char *moved(const struct uuid *ids, size_t n)
{
    static uint32_t segment = 1;
    mailbox_shard_scope(s, ++segment, 0);
    for (size_t k = 0; k < n; k++) {
        struct mailbox_rec body = {0}, r;
        for (size_t at = 0; mailbox_rec_next(bytes_of(journal, journal_n), &at, &r) == ERR_OK;)
            if ((r.type == MAILBOX_REC_ENQ || r.type == MAILBOX_REC_MOVE) &&
                mailbox_id_eq(&r.enq.msg_id, &ids[k]))
                body = r;
        assert_int_not_equal(body.type, 0);
        assert_int_equal(mailbox_shard_reappend(s, now, mailbox_shard_find(s, &ids[k]), &body), ERR_OK);
    }
    size_t before = journal_n;
    const char *types = written();
    memmove(journal, journal + before, journal_n -= before);
    return types;
}

/* What compaction leaves of a settled message is its key: the attempt is not among it. */
static void an_ack_again_is_told_so_when_only_the_key_is_left(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid id = sent("k");
    taken(SECOND);
    assert_int_equal(ack(id, 1, &out), ERR_OK);
    written();
    assert_string_equal(moved(&id, 1), "TD");
    start_again();
    is(id, MAILBOX_DONE, 0, 0);
    assert_int_equal(ack(id, 1, &out), ERR_OK);
    assert_true(out.already);
}

/* A message acked while it was back in the queue stays in there until it comes to its head, perhaps longer than its key lasts. */
static void a_key_that_is_anothers_by_now_is_not_written_again(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct uuid first = sent("first"), id = sent("k"), later;
    taken(SECOND);
    taken(SECOND);
    pass_us(SECOND); /* both are back, `first` at the head */
    assert_int_equal(ack(id, 1, &out), ERR_OK);
    written();
    pass_us((int64_t)T_REPLAY_MS * 1000);
    later = sent("k");
    assert_string_equal(moved((struct uuid[]){first, id, later}, 3), "TMFM");
    start_again();
    is(first, MAILBOX_READY, 1, 1);
    is(later, MAILBOX_READY, 0, 0);
    assert_int_equal(mailbox_shard_find(s, &id), 0);
}

/* Copies say all that the records said which are gone with their segment. */
static void what_was_written_again_is_as_it_was(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct mailbox_sent again;
    struct uuid early = sent("early"), never;
    taken(SECOND);
    assert_int_equal(nack(early, 1, dead, &out), ERR_OK);
    written();
    assert_int_equal(mailbox_shard_reprocess(s, now, &early, 5000), ERR_OK);
    never = sent("never");
    assert_string_equal(moved((struct uuid[]){early, never}, 2), "TMFM");
    start_again();
    is(early, MAILBOX_DELAYED, 1, 0); /* its delay goes on */
    is(never, MAILBOX_READY, 0, 0);
    pass_us((int64_t)RETENTION_MS * 1000 + SECOND);
    taken(SECOND);
    assert_int_equal(ack(early, 2, &out), ERR_OK);
    mailbox_shard_retention(s, now, 10);
    written();
    is(never, MAILBOX_DLQ, 0, 0);
    assert_int_equal(mailbox_shard_reprocess(s, now, &never, 0), ERR_OK);
    written();
    moved(&never, 1);
    start_again(); /* reprocessed before it was ever delivered: it has not waited since it was sent */
    taken(SECOND);
    is(never, MAILBOX_LEASED, 1, 1);
    moved(&never, 1);
    start_again();
    pass_us(SECOND);
    taken(SECOND);
    is(never, MAILBOX_LEASED, 2, 2);
    assert_int_equal(ack(never, 2, &out), ERR_OK);
    written();

    struct uuid key = sent("key");
    taken(SECOND);
    assert_int_equal(ack(key, 1, &out), ERR_OK);
    written();
    moved(&key, 1);
    now.wall_ms -= 3600000; /* the clock is set back between two starts */
    start_again();
    assert_int_equal(send_key("next", 0, &again), ERR_OK);
    written();
    assert_true(again.ts_ms >= mailbox_id_ts_ms(&key));
}

/* It was sent in the future, as far as the clock says: then the window of its key begins with the start. */
static void a_clock_set_back_before_a_start_stretches_no_window(void **state)
{
    (void)state;
    struct mailbox_settled out;
    struct mailbox_sent again;
    struct uuid id = sent("k");
    now.wall_ms -= 3600000;
    start_again();
    pass_us((int64_t)T_REPLAY_MS * 500);
    taken(SECOND);
    assert_int_equal(ack(id, 1, &out), ERR_OK);
    written();
    pass_us((int64_t)T_REPLAY_MS * 500 - 2000);
    assert_int_equal(send_key("k", 0, &again), ERR_OK);
    assert_true(again.duplicate);
    pass_us(2000);
    assert_int_equal(mailbox_shard_find(s, &id), 0);
}

static void a_topic_nobody_uses_is_forgotten_and_begins_another_history(void **state)
{
    (void)state;
    enum { IDLE_MS = 3600000 };
    struct mailbox_settled out;
    struct mailbox_sent again;
    rules.topic_idle_ms = IDLE_MS;
    struct uuid id = sent("k");
    struct uuid chain_id = topic()->chain_id;
    taken(SECOND);
    assert_int_equal(ack(id, 1, &out), ERR_OK);
    written();
    pass_us((int64_t)T_REPLAY_MS * 1000); /* from here on it is idle */
    pass_us((int64_t)IDLE_MS * 1000);
    mailbox_shard_retention(s, now, 10);
    assert_non_null(topic());
    pass_us(1);
    mailbox_shard_retention(s, now, 10);
    assert_null(topic());
    assert_string_equal(written(), "G");
    start_again();
    assert_null(topic());
    assert_int_equal(send_key("k", 0, &again), ERR_OK);
    assert_int_equal(again.topic_seq, 1);
    assert_false(mailbox_id_eq(&topic()->chain_id, &chain_id)); /* it shows */
    written();
    rules.topic_idle_ms = 0; /* never */
    taken(SECOND);
    assert_int_equal(ack(again.msg_id, 1, &out), ERR_OK);
    written();
    pass_us(1000 * (int64_t)IDLE_MS * 1000);
    mailbox_shard_retention(s, now, 10);
    assert_non_null(topic());
}

static void of_many_causes_the_last_sixteen_are_kept_and_it_is_said(void **state)
{
    (void)state;
    struct mailbox_settled out;
    rules.policies.p[0].max_attempts = 20;
    struct uuid id = sent("k");
    for (uint16_t attempt = 1; attempt <= 17; attempt++) {
        taken(SECOND);
        assert_int_equal(nack(id, attempt, (struct mailbox_nack){.use_delay = true}, &out), ERR_OK);
        pass_us(0);
        const struct mailbox_failures *h = mailbox_history_get(&s->history, mailbox_shard_find(s, &id));
        assert_int_equal(h->n, attempt < 16 ? attempt : 16);
        assert_int_equal(h->truncated, attempt > 16);
        assert_int_equal(h->f[0].attempt, attempt > 16 ? attempt - 15 : 1);
        assert_int_equal(h->f[h->n - 1].attempt, attempt);
        written();
    }
}

/* ---- waiting ---- */

static struct uuid last_given;
static uint32_t given_n;

static void give(void *ctx, struct mailbox_waiter *w, uint32_t i)
{
    (void)ctx;
    (void)w;
    last_given = mailbox_shard_entry(s, i)->msg_id;
    given_n++;
}

static uint32_t served(void)
{
    given_n = 0;
    uint32_t n = mailbox_shard_serve(s, now, 1000, give, NULL);
    assert_int_equal(n, given_n);
    written();
    return n;
}

/* What is kept of a reason ends with a whole character, also after a start that reads all of it. */
static void a_reason_is_cut_between_two_characters(void **state)
{
    (void)state;
    static const char *const last[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t before = 60; before <= 64; before++)
        for (size_t k = 0; k < 4; k++) {
            char key[24], reason[80];
            struct mailbox_settled out;
            size_t n = strlen(last[k]), whole = before + n <= 64 ? before + n : before;
            snprintf(key, sizeof key, "%zu-%zu", before, k);
            memset(reason, 'r', before);
            snprintf(reason + before, sizeof reason - before, "%s%s", last[k], "\xe2\x82\xac");
            struct uuid id = sent(key);
            taken(SECOND);
            struct mailbox_nack why = {.dead = true, .reason = str_from_c(reason)};
            assert_int_equal(nack(id, 1, why, &out), ERR_OK);
            written();
            for (int starts = 0; starts < 2; starts++) {
                const struct mailbox_failures *h =
                    mailbox_history_get(&s->history, mailbox_shard_find(s, &id));
                assert_int_equal(h->f[0].reason_len, whole + (whole > before && whole + 3 <= 64 ? 3 : 0));
                assert_memory_equal(h->f[0].reason, reason, h->f[0].reason_len);
                start_again();
            }
        }
}

static void a_stream_never_holds_more_bytes_than_it_asked_for(void **state)
{
    (void)state;
    struct mailbox_settled out;
    int64_t each = (int64_t)entry(sent("k0"))->length64 * 64;
    for (const char *const *k = (const char *const[]){"k1", "k2", "k3", "k4", NULL}; *k; k++)
        sent(*k);
    struct mailbox_waiter w = {.room = 64, .room_bytes = 3 * each - 1, .visibility_us = 60 * SECOND};
    assert_int_equal(mailbox_shard_stream_open(s, &w), ERR_OK);
    mailbox_shard_wait(s, topic(), &w);
    assert_int_equal(served(), 2); /* the third does not fit */
    assert_int_equal(ack(last_given, 1, &out), ERR_OK);
    assert_int_equal(served(), 1);
    mailbox_shard_leave(s, &w);

    struct mailbox_waiter small = {.room = 64, .room_bytes = 1, .visibility_us = 60 * SECOND};
    assert_int_equal(mailbox_shard_stream_open(s, &small), ERR_OK);
    mailbox_shard_wait(s, topic(), &small);
    assert_int_equal(served(), 1); /* alone, the first always fits */
    assert_int_equal(served(), 0);
    assert_int_equal(ack(last_given, 1, &out), ERR_OK);
    assert_int_equal(served(), 1);
    mailbox_shard_leave(s, &small);
}

static void a_receive_that_waited_gets_no_more_bytes_than_it_asked_for(void **state)
{
    (void)state;
    int64_t each = (int64_t)entry(sent("k0"))->length64 * 64;
    taken(60 * SECOND);
    struct mailbox_waiter first = {.room = 64, .room_bytes = each + 1, .visibility_us = 60 * SECOND},
                          second = {.room = 64, .room_bytes = 1, .visibility_us = 60 * SECOND};
    mailbox_shard_wait(s, topic(), &first);
    mailbox_shard_wait(s, topic(), &second);
    for (const char *const *k = (const char *const[]){"k1", "k2", "k3", NULL}; *k; k++)
        sent(*k);
    assert_int_equal(served(), 2);
    assert_int_equal(first.given, 1);
    assert_int_equal(second.given, 1);
    mailbox_shard_leave(s, &first);
    mailbox_shard_leave(s, &second);
}

/* ---- more than a group holds ---- */

enum { MANY = 60000, GROUPS_MOST = 10 };

static void many_that_wait_too_long(void)
{
    struct mailbox_sent out;
    char key[16];
    rules.index_max = 2 * MANY;
    for (int i = 0; i < MANY; i++) {
        if (mailbox_shard_group_full(s))
            mailbox_shard_committed(s, 1, 4096);
        snprintf(key, sizeof key, "old-%d", i);
        assert_int_equal(send_key(key, 0, &out), ERR_OK);
    }
    mailbox_shard_committed(s, 1, 4096);
    now.mono_us += ((int64_t)RETENTION_MS + 1) * 1000;
    assert_int_equal(send_key("fresh", 0, &out), ERR_OK);
    mailbox_shard_committed(s, 1, 4096);
}

static void a_receive_that_finds_more_dead_letters_than_a_group_holds_goes_on_in_the_next(void **state)
{
    (void)state;
    int groups = 1;
    many_that_wait_too_long();
    for (; lease(SECOND) == 0; groups++) {
        assert_true(mailbox_shard_group_full(s) && mailbox_shard_has_ready(s, topic()));
        assert_true(groups < GROUPS_MOST);
        mailbox_shard_committed(s, 1, 4096);
    }
    assert_true(groups > 1);
    assert_int_equal(topic()->count[MAILBOX_DLQ], MANY);
    assert_int_equal(topic()->count[MAILBOX_LEASED], 1);
    mailbox_shard_committed(s, 1, 4096);
}

static void serve_behind_many(void)
{
    struct mailbox_waiter w = {.room = 64, .room_bytes = 1 << 20, .visibility_us = 60 * SECOND};
    int groups = 1;
    many_that_wait_too_long();
    mailbox_shard_wait(s, topic(), &w);
    for (; mailbox_shard_serve(s, now, 1000, give, NULL) == 0; groups++) {
        assert_true(mailbox_shard_group_full(s) && groups < GROUPS_MOST);
        mailbox_shard_committed(s, 1, 4096);
    }
    assert_true(groups > 1);
    mailbox_shard_committed(s, 1, 4096);
    mailbox_shard_leave(s, &w);
}

static void who_waits_behind_more_dead_letters_than_a_group_holds_is_served(void **state)
{
    (void)state;
    serve_behind_many();
}

static void who_waits_for_an_ordered_topic_behind_so_many_is_served_too(void **state)
{
    (void)state;
    rules.policies.p[0].ordered = true;
    serve_behind_many();
}

int main(void)
{
#define EACH(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        EACH(a_send_is_flushed_and_ready),
        EACH(a_send_with_a_delay_is_delayed_and_ready_when_due),
        EACH(a_receive_leases_and_the_lease_is_flushed),
        EACH(a_receive_passes_over_what_has_had_its_tries),
        EACH(an_ack_of_a_lease_is_lazy_and_final),
        EACH(late_work_counts_as_long_as_nobody_has_a_newer_token),
        EACH(a_nack_delays_and_the_last_one_kills),
        EACH(a_nack_that_says_dead_kills_at_once),
        EACH(an_extension_counts_from_now_and_leaves_no_record),
        EACH(a_lease_that_ends_gives_back_at_once_and_the_last_one_kills),
        EACH(a_release_gives_back_at_once_and_the_last_one_kills),
        EACH(bad_bytes_count_as_a_delivery_and_then_as_a_nack),
        EACH(what_nobody_takes_is_dead_lettered_by_a_receive_and_by_looking),
        EACH(a_dead_letter_that_is_reprocessed_is_ready_with_new_tries_and_its_token_goes_on),
        EACH(a_purge_is_flushed_and_the_end_of_its_time_is_lazy),
        EACH(a_window_that_is_over_is_forgotten),
        EACH(a_start_gives_leases_back_and_keeps_tokens_and_tries),
        EACH(a_stale_token_changes_nothing_and_learns_the_current_one),
        EACH(no_token_means_the_current_lease),
        EACH(a_dead_letter_cannot_be_settled),
        EACH(what_is_not_leased_cannot_be_given_back_or_kept),
        EACH(an_ack_again_is_told_so_while_the_token_fits),
        EACH(an_id_of_a_topic_that_is_not_covered_looks_unknown),
        EACH(a_token_never_begins_anew),
        EACH(a_back_off_doubles_up_to_its_bound_and_is_drawn_from_all_of_it),
        EACH(an_ordered_topic_waits_for_what_is_out_and_for_what_failed),
        EACH(what_came_back_goes_before_what_was_never_out),
        EACH(i15_a_step_of_the_wall_clock_moves_no_lease_delay_or_window),
        EACH(what_was_delayed_or_reprocessed_has_all_its_tries_when_it_comes_back),
        EACH(an_ack_again_is_told_so_when_only_the_key_is_left),
        EACH(a_key_that_is_anothers_by_now_is_not_written_again),
        EACH(what_was_written_again_is_as_it_was),
        EACH(a_clock_set_back_before_a_start_stretches_no_window),
        EACH(a_topic_nobody_uses_is_forgotten_and_begins_another_history),
        EACH(of_many_causes_the_last_sixteen_are_kept_and_it_is_said),
        EACH(a_reason_is_cut_between_two_characters),
        EACH(a_stream_never_holds_more_bytes_than_it_asked_for),
        EACH(a_receive_that_waited_gets_no_more_bytes_than_it_asked_for),
        EACH(a_receive_that_finds_more_dead_letters_than_a_group_holds_goes_on_in_the_next),
        EACH(who_waits_behind_more_dead_letters_than_a_group_holds_is_served),
        EACH(who_waits_for_an_ordered_topic_behind_so_many_is_served_too),
    };
#undef EACH
    return cmocka_run_group_tests(tests, NULL, NULL);
}
