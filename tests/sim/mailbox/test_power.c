/*
 * A shard and its log on a disk that loses power, fails writes and runs full, in virtual time: thousands of short lives per run,
 * every one with its own seed. An observer remembers each answer; the outside checker of the contract (core/trace) and the heads
 * of the chains say whether a restart told another story. MAILBOX_SEED replays one, MAILBOX_SEEDS says how many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "services/mailbox/core/trace.h"
#include "services/mailbox/log.h"
#include "world.h"

enum { TOPICS = 3, KEYS = 12, IDS = 4096, LAZY_MS = 50, SEGMENT = 4 << 20, MAX_ATTEMPTS = 4 };
#define DIR "/mb"

struct known {
    struct uuid id;
    int topic, key;
    uint64_t seq;
    struct sha256 chain;
    bool answered, told; /* told: the checker knows it */
    uint16_t attempt;
    bool held;
    int64_t sent_ms;
};

struct sim {
    uint64_t seed, step;
    struct rng rng;
    struct store_disk *disk;
    struct clock_manual clock;
    struct mailbox_rules rules;
    struct mailbox_shard *shard;
    struct mailbox_log log;
    void *group;
    uint8_t *buffer;
    uint8_t instance[16];
    struct known known[IDS];
    size_t known_n;
    uint64_t head[TOPICS];
    struct sha256 hash[TOPICS];
    struct mailbox_trace trace;
    int restarts, failures;
    bool open;
};

static const char *const names[TOPICS] = {"alpha", "beta", "gamma"};

static struct mailbox_now now_of(struct sim *s)
{
    return (struct mailbox_now){clock_mono_ns(&s->clock.clock) / 1000,
                                (uint64_t)clock_wall_ms(&s->clock.clock)};
}

static void feed(struct sim *s, struct mailbox_trace_event ev)
{
    if (!ev.at_ms)
        ev.at_ms = clock_wall_ms(&s->clock.clock);
    if (getenv("MAILBOX_TRACE")) { /* the history, for reading */
        char id[UUID_CHARS];
        uuid_format(&ev.id, id);
        print_message("%llu %lld %s %s seq %llu attempt %u until %lld group %zu\n",
                      (unsigned long long)s->step, (long long)ev.at_ms, mailbox_trace_kind_name(ev.kind),
                      id, (unsigned long long)ev.seq, ev.attempt, (long long)ev.until_ms,
                      s->shard ? s->shard->group.n : 0);
    }
    if (mailbox_trace_feed(&s->trace, &ev) != ERR_OK)
        fail_msg("seed %llu step %llu: %s", (unsigned long long)s->seed, (unsigned long long)s->step,
                 s->trace.why);
}

static struct known *find(struct sim *s, const struct uuid *id)
{
    for (size_t i = 0; i < s->known_n; i++)
        if (mailbox_id_eq(&s->known[i].id, id))
            return &s->known[i];
    return NULL;
}

/* A send whose answer was lost turned out to have happened. */
static void tell(struct sim *s, struct known *k)
{
    char key[16];
    if (k->told)
        return;
    snprintf(key, sizeof key, "k%d", k->key);
    feed(s, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_SENT,
                                         .id = k->id,
                                         .topic = str_from_c(names[k->topic]),
                                         .key = str_from_c(key),
                                         .seq = k->seq,
                                         .at_ms = k->sent_ms});
    k->told = true;
}

static void open_log(struct sim *s, bool must_be_whole) RT_BLOCKS
{
    struct store_journal_report report = {0};
    s->shard = calloc(1, sizeof *s->shard);
    CHECK(s->shard != NULL);
    assert_int_equal(mailbox_shard_init(s->shard, 0, &s->rules, rng_u64(&s->rng), now_of(s), s->group),
                     ERR_OK);
    enum err e = mailbox_log_open(&s->log, s->shard,
                                  &(struct mailbox_log_config){.disk = s->disk,
                                                               .dir = DIR,
                                                               .instance = s->instance,
                                                               .segment_bytes = SEGMENT,
                                                               .tail_bytes = 64 << 10,
                                                               .direct = s->seed % 2,
                                                               .clock = &s->clock.clock,
                                                               .now = now_of(s)},
                                  &report);
    if (e != ERR_OK) { /* power failed again while starting */
        assert_true(store_disk_faulty_fired(s->disk));
        mailbox_log_close(&s->log);
        mailbox_shard_fini(s->shard);
        free(s->shard);
        s->shard = NULL;
        return;
    }
    if (must_be_whole && report.damaged)
        fail_msg("seed %llu step %llu: a power cut looks like corruption: %s byte %llu: %s",
                 (unsigned long long)s->seed, (unsigned long long)s->step, report.bad_file,
                 (unsigned long long)report.bad_offset, report.bad_reason ? report.bad_reason : "contents");
    mailbox_shard_check(s->shard);
    s->open = true;
}

static void close_log(struct sim *s) RT_BLOCKS
{
    if (!s->shard)
        return;
    mailbox_log_close(&s->log);
    mailbox_shard_fini(s->shard);
    free(s->shard);
    s->shard = NULL;
    s->open = false;
}

/* What was answered must be there as it was answered. */
static void check_answers(struct sim *s) RT_BLOCKS
{
    for (int t = 0; t < TOPICS; t++) {
        struct mailbox_topic *topic =
            mailbox_topics_find(&s->shard->topics, &s->hash[t], str_from_c(names[t]));
        if (s->head[t] && (!topic || topic->topic_seq < s->head[t]))
            fail_msg("seed %llu step %llu: topic %s went back from seq %llu", (unsigned long long)s->seed,
                     (unsigned long long)s->step, names[t], (unsigned long long)s->head[t]);
    }
    for (size_t i = 0; i < s->known_n; i++) {
        struct known *k = &s->known[i];
        uint32_t e = mailbox_shard_find(s->shard, &k->id);
        struct mailbox_rec r;
        if (!e || mailbox_shard_entry(s->shard, e)->state == MAILBOX_DONE)
            continue;
        struct mailbox_entry *en = mailbox_shard_entry(s->shard, e);
        assert_true(en->attempt >= k->attempt);
        assert_int_equal(mailbox_log_read(&s->log, en->segment, en->offset8, en->length64, s->buffer, &r),
                         ERR_OK);
        assert_true(sha256_eq(&r.enq.chain, &k->chain));
        assert_int_equal(r.enq.topic_seq, k->seq);
    }
}

static void restart(struct sim *s, bool orderly) RT_BLOCKS
{
    static const struct store_fault_plan none;
    feed(s, (struct mailbox_trace_event){.kind = orderly ? MAILBOX_TRACE_RESTART : MAILBOX_TRACE_CRASH});
    close_log(s);
    do {
        if (!orderly) {
            store_disk_faulty_cut(s->disk);
            store_disk_faulty_reboot(s->disk);
        }
        struct store_fault_plan plan = none;
        if (!orderly && rng_below(&s->rng, 4) == 0)
            plan.crash_at = 1 + rng_below(&s->rng, 60); /* fails again while it recovers */
        store_disk_faulty_plan(s->disk, &plan);
        clock_manual_advance_ms(&s->clock, (int64_t)rng_below(&s->rng, 100));
        open_log(s, true);
        orderly = false;
    } while (!s->shard);
    check_answers(s);
    struct store_fault_plan plan = none;
    switch (rng_below(&s->rng, 4)) {
    case 0:
        plan.crash_at = 1 + rng_below(&s->rng, 120);
        break;
    case 1:
        plan.eio_at = 1 + rng_below(&s->rng, 120);
        break;
    case 2:
        plan.short_at = 1 + rng_below(&s->rng, 120);
        break;
    default:
        break;
    }
    store_disk_faulty_plan(s->disk, &plan);
    for (size_t i = 0; i < s->known_n; i++)
        s->known[i].held = false;
    s->restarts++;
}

static bool commit(struct sim *s) RT_BLOCKS
{
    if (store_journal_wants_spare(s->log.journal) && store_journal_prepare_spare(s->log.journal) != ERR_OK)
        return false;
    enum err e = mailbox_log_commit(&s->log, now_of(s));
    if (e != ERR_OK)
        s->failures++;
    return e == ERR_OK;
}

static bool do_send(struct sim *s) RT_BLOCKS
{
    int topic = (int)rng_below(&s->rng, TOPICS), key = (int)rng_below(&s->rng, KEYS);
    char text[16], payload[64];
    uint8_t attrs[4] = {0};
    struct mailbox_sent out = {0};
    snprintf(text, sizeof text, "k%d", key);
    int n = snprintf(payload, sizeof payload, "payload of %s/%s", names[topic], text);
    struct mailbox_send in = {.topic = str_from_c(names[topic]),
                              .idem_key = str_from_c(text),
                              .topic_hash = &s->hash[topic],
                              .tenant = topic % 2 ? STR("acme") : STR("default"),
                              .attrs = bytes_of(attrs, 4),
                              .payload = bytes_of(payload, (size_t)n)};
    mailbox_dedup_digest(in.topic, in.idem_key, &in.digest);
    sha256_of(in.payload.p, in.payload.n, &in.payload_hash);
    sha256_of(attrs, 4, &in.attrs_hash);
    if (s->known_n == IDS || mailbox_shard_send(s->shard, now_of(s), &in, &out) != ERR_OK)
        return true;
    if (out.duplicate) {
        struct known *k = find(s, &out.msg_id);
        assert_non_null(k);
        tell(s, k);
        feed(s,
             (struct mailbox_trace_event){
                 .kind = MAILBOX_TRACE_DUPLICATE, .id = out.msg_id, .topic = in.topic, .key = in.idem_key});
        return true;
    }
    struct known *k = &s->known[s->known_n++];
    *k = (struct known){.id = out.msg_id,
                        .topic = topic,
                        .key = key,
                        .seq = out.topic_seq,
                        .chain = out.chain,
                        .sent_ms = clock_wall_ms(&s->clock.clock)};
    if (!commit(s))
        return false;
    k->answered = true;
    s->head[topic] = out.topic_seq;
    tell(s, k);
    return true;
}

static bool do_recv(struct sim *s, int64_t visibility_ms) RT_BLOCKS
{
    int topic = (int)rng_below(&s->rng, TOPICS);
    struct mailbox_topic *t =
        mailbox_topics_find(&s->shard->topics, &s->hash[topic], str_from_c(names[topic]));
    uint32_t got[8];
    if (!t)
        return true;
    struct mailbox_want w = {t,    visibility_ms * 1000, 1 + (uint32_t)rng_below(&s->rng, 8), INT64_MAX, 0,
                             false};
    uint32_t n = mailbox_shard_lease(s->shard, now_of(s), &w, got);
    if (!commit(s))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct mailbox_entry *e = mailbox_shard_entry(s->shard, got[i]);
        struct known *k = find(s, &e->msg_id);
        struct mailbox_rec r;
        assert_non_null(k);
        enum err err = mailbox_log_read(&s->log, e->segment, e->offset8, e->length64, s->buffer, &r);
        if (err == ERR_IO) /* the disk died between the group and the read: nobody got it */
            return false;
        assert_int_equal(err, ERR_OK);
        tell(s, k);
        k->attempt = e->attempt;
        k->held = true;
        feed(s, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_DELIVERED,
                                             .id = e->msg_id,
                                             .attempt = e->attempt,
                                             .until_ms = clock_wall_ms(&s->clock.clock) + visibility_ms});
    }
    return true;
}

static void do_settle(struct sim *s)
{
    if (!s->known_n)
        return;
    struct known *k = &s->known[rng_below(&s->rng, s->known_n)];
    struct mailbox_settled out = {0};
    struct mailbox_fence f = {.msg_id = k->id, .attempt = k->attempt};
    if (!k->held)
        return;
    if (rng_below(&s->rng, 4)) {
        if (mailbox_shard_ack(s->shard, now_of(s), &f, &out) == ERR_OK && !out.already)
            feed(s, (struct mailbox_trace_event){
                        .kind = MAILBOX_TRACE_ACKED, .id = k->id, .attempt = k->attempt});
    } else {
        struct mailbox_nack n = {.reason = STR("sim"), .dead = rng_below(&s->rng, 10) == 0};
        if (mailbox_shard_nack(s->shard, now_of(s), &f, &n, &out) == ERR_OK)
            feed(s, (struct mailbox_trace_event){
                        .kind = MAILBOX_TRACE_NACKED, .id = k->id, .attempt = k->attempt});
    }
    k->held = false;
}

static bool pass_time(struct sim *s) RT_BLOCKS
{
    clock_manual_advance_ms(&s->clock, (int64_t)rng_below(&s->rng, 20));
    while (mailbox_shard_tick(s->shard, now_of(s)))
        ;
    if (s->shard->group.n && now_of(s).mono_us - s->shard->lazy_since_us >= LAZY_MS * 1000)
        return commit(s);
    return true;
}

static void sim_init(struct sim *s, uint64_t seed) RT_BLOCKS
{
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->disk = world_begin(seed, DIR, &s->rng, &s->clock);
    rng_bytes(&s->rng, s->instance, 16);
    s->rules = world_rules(300, MAX_ATTEMPTS);
    for (int t = 0; t < TOPICS; t++)
        mailbox_topic_hash(str_from_c(names[t]), &s->hash[t]);
    s->group = malloc(MAILBOX_GROUP_MEMORY);
    s->buffer = malloc(MAILBOX_REC_BYTES_MAX + 64);
    CHECK(s->group && s->buffer);
    struct mailbox_trace_rules tr = {
        .max_attempts = MAX_ATTEMPTS, .t_replay_ms = 300, .lazy_ms = LAZY_MS + 45, .slack_ms = 3};
    assert_int_equal(mailbox_trace_init(&s->trace, &tr), ERR_OK);
    open_log(s, true);
}

static void sim_fini(struct sim *s) RT_BLOCKS
{
    close_log(s);
    store_disk_destroy(s->disk);
    free(s->group);
    free(s->buffer);
    mailbox_trace_fini(&s->trace);
}

/* A working disk again: everything that was accepted must come out, or be dead. */
static void settle_all(struct sim *s) RT_BLOCKS
{
    static const struct store_fault_plan none;
    store_disk_faulty_plan(s->disk, &none);
    for (int round = 0; round < 4000; round++) {
        uint32_t left = s->shard->count[MAILBOX_READY] + s->shard->count[MAILBOX_DELAYED] +
                        s->shard->count[MAILBOX_LEASED];
        if (!left)
            break;
        assert_true(do_recv(s, 200));
        for (size_t i = 0; i < s->known_n; i++) {
            struct known *k = &s->known[i];
            struct mailbox_settled out = {0};
            struct mailbox_fence f = {.msg_id = k->id, .attempt = k->attempt};
            if (k->held && mailbox_shard_ack(s->shard, now_of(s), &f, &out) == ERR_OK && !out.already)
                feed(s, (struct mailbox_trace_event){
                            .kind = MAILBOX_TRACE_ACKED, .id = k->id, .attempt = k->attempt});
            k->held = false;
        }
        assert_true(pass_time(s));
    }
    assert_true(commit(s));
    for (size_t i = 0; i < s->known_n; i++) {
        uint32_t e = mailbox_shard_find(s->shard, &s->known[i].id);
        if (e && mailbox_shard_entry(s->shard, e)->state == MAILBOX_DLQ) {
            tell(s, &s->known[i]);
            feed(s, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_DEAD, .id = s->known[i].id});
        }
    }
    if (mailbox_trace_end(&s->trace) != ERR_OK)
        fail_msg("seed %llu: %s", (unsigned long long)s->seed, s->trace.why);
}

static void live(uint64_t seed, int *restarts, int *failures, size_t *sent) RT_BLOCKS
{
    struct sim *s = malloc(sizeof *s);
    CHECK(s != NULL);
    sim_init(s, seed);
    restart(s, true);
    for (s->step = 0; s->step < 300; s->step++) {
        bool ok = pass_time(s);
        if (ok) {
            uint64_t what = rng_below(&s->rng, 10);
            if (what < 4)
                ok = do_send(s);
            else if (what < 7)
                ok = do_recv(s, 50 + (int64_t)rng_below(&s->rng, 300));
            else
                do_settle(s);
        }
        if (!ok || store_disk_faulty_is_down(s->disk))
            restart(s, false); /* a failed write is never retried: only a restart knows what is there */
        else if (rng_below(&s->rng, 100) == 0) {
            bool orderly = rng_below(&s->rng, 2) && commit(s);
            restart(s, orderly);
        }
    }
    restart(s, false);
    settle_all(s);
    *restarts += s->restarts;
    *failures += s->failures;
    *sent += s->trace.sent;
    sim_fini(s);
    free(s);
}

static void no_power_cut_breaks_the_contract(void **state) RT_BLOCKS
{
    (void)state;
    const char *seed = getenv("MAILBOX_SEED"), *seeds = getenv("MAILBOX_SEEDS");
    int restarts = 0, failures = 0;
    size_t sent = 0;
    if (seed) {
        live(strtoull(seed, NULL, 10), &restarts, &failures, &sent);
        return;
    }
    uint64_t n = seeds ? strtoull(seeds, NULL, 10) : 300;
    for (uint64_t k = 1; k <= n; k++)
        live(k, &restarts, &failures, &sent);
    print_message("%llu lives: %d restarts, %d failed writes, %zu messages\n", (unsigned long long)n,
                  restarts, failures, sent);
    assert_true(restarts > (int)n && failures > 0);
}

/* Any bit, anywhere in a segment: found at the next start, or in bytes that hold nothing. Never delivered. */
static void a_flipped_bit_is_never_delivered(void **state) RT_BLOCKS
{
    (void)state;
    int found = 0, harmless = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct sim *s = malloc(sizeof *s);
        CHECK(s != NULL);
        sim_init(s, seed);
        restart(s, true);
        static const struct store_fault_plan none;
        store_disk_faulty_plan(s->disk, &none);
        for (int i = 0; i < 30; i++)
            assert_true(do_send(s));
        assert_true(commit(s));
        uint64_t end =
            (uint64_t)s->log.next_group * 4096; /* the frames, and a little of the zeros behind them */
        close_log(s);
        assert_int_equal(store_disk_faulty_flip(s->disk, DIR "/00000001.seg",
                                                rng_below(&s->rng, end + 8192),
                                                (unsigned)rng_below(&s->rng, 8)),
                         ERR_OK);
        open_log(s, false);
        assert_non_null(s->shard);
        if (s->shard->readonly) {
            found++;
        } else {
            check_answers(s); /* every answered message, byte for byte */
            for (size_t i = 0; i < s->known_n; i++)
                assert_true(mailbox_shard_find(s->shard, &s->known[i].id) != 0);
            harmless++;
        }
        sim_fini(s);
        free(s);
    }
    print_message("200 flips: %d found, %d in unused bytes\n", found, harmless);
    assert_true(found > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_power_cut_breaks_the_contract),
                                       cmocka_unit_test(a_flipped_bit_is_never_delivered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
