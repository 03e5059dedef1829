/*
 * Index files under power cuts: segments fill up, are indexed, stripped and dropped while the disk loses power anywhere in between;
 * every start from index files must make the state that reading the segments makes, and keep every answer that was given.
 * MAILBOX_SEED replays one life, MAILBOX_SEEDS says how many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "services/mailbox/idx.h"
#include "services/mailbox/log.h"
#include "store/file_replace.h"
#include "world.h"

enum { TOPICS = 3, IDS = 2048, SEGMENT = 4 << 20, PAYLOAD_MAX = 400 << 10 };
#define DIR "/mb"

enum fate { WAITING, ACKING, ACKED }; /* ACKING: answered, not yet durable */

struct known {
    struct uuid id;
    int topic;
    uint64_t seq;
    struct sha256 chain;
    uint16_t attempt;
    enum fate fate;
    bool held;
};

struct shard_on_disk {
    struct mailbox_shard *shard;
    struct mailbox_log log;
    void *group;
};

struct life {
    uint64_t seed;
    struct rng rng;
    struct store_disk *disk;
    struct clock_manual clock;
    struct mailbox_rules rules;
    struct shard_on_disk now;
    uint8_t *buffer, *payload;
    uint8_t instance[16];
    struct sha256 hash[TOPICS];
    struct known known[IDS];
    size_t known_n;
    uint32_t key;
    uint32_t indexed_to, topics_of;
    uint32_t from_idx; /* starts that used an index */
    uint32_t strips, drops, cuts, collected, moved;
};

static const char *const names[TOPICS] = {"alpha", "beta/b", "gamma"};

static struct mailbox_now now_of(struct life *s)
{
    return (struct mailbox_now){clock_mono_ns(&s->clock.clock) / 1000,
                                (uint64_t)clock_wall_ms(&s->clock.clock)};
}

static enum err open_shard(struct life *s, struct shard_on_disk *o, bool trust_idx, bool read_only,
                           struct store_journal_report *report) RT_BLOCKS
{
    o->shard = calloc(1, sizeof *o->shard);
    o->group = malloc(MAILBOX_GROUP_MEMORY);
    CHECK(o->shard && o->group);
    *report = (struct store_journal_report){0};
    assert_int_equal(mailbox_shard_init(o->shard, 3, &s->rules, s->seed, now_of(s), o->group), ERR_OK);
    return mailbox_log_open(&o->log, o->shard,
                            &(struct mailbox_log_config){.disk = s->disk,
                                                         .dir = DIR,
                                                         .instance = s->instance,
                                                         .segment_bytes = SEGMENT,
                                                         .tail_bytes = 1 << 20,
                                                         .trust_idx = trust_idx,
                                                         .build_idx = s->seed % 2 == 0,
                                                         .read_only = read_only,
                                                         .clock = &s->clock.clock,
                                                         .now = now_of(s)},
                            report);
}

static void close_shard(struct shard_on_disk *o) RT_BLOCKS
{
    if (!o->shard)
        return;
    mailbox_log_close(&o->log);
    mailbox_shard_fini(o->shard);
    free(o->shard);
    free(o->group);
    *o = (struct shard_on_disk){0};
}

static void same_state(const struct mailbox_shard *a, const struct mailbox_shard *b)
{
    for (int st = MAILBOX_READY; st < MAILBOX_STATES; st++)
        assert_int_equal(a->count[st], b->count[st]);
    assert_int_equal(a->topics.count, b->topics.count);
    assert_int_equal(a->last_ts_ms, b->last_ts_ms);
    for (uint32_t i = 1; i < a->slabs.used; i++) {
        const struct mailbox_entry *x = mailbox_shard_entry(a, i);
        if (x->state == MAILBOX_FREE)
            continue;
        uint32_t k = mailbox_shard_find(b, &x->msg_id);
        assert_true(k != 0);
        const struct mailbox_entry *y = mailbox_shard_entry(b, k);
        assert_memory_equal(x->digest, y->digest, MAILBOX_DIGEST_KEPT);
        assert_int_equal(x->topic_seq, y->topic_seq);
        assert_int_equal(x->state, y->state);
        assert_int_equal(x->attempt, y->attempt);
        assert_int_equal(x->tries, y->tries);
        assert_int_equal(mailbox_entry_due(x), mailbox_entry_due(y));
        assert_int_equal(x->segment, y->segment);
        assert_int_equal(x->offset8, y->offset8);
        assert_int_equal(x->length64, y->length64);
    }
    for (uint32_t k = 1; k < a->topics.slots; k++) {
        const struct mailbox_topic *t = a->topics.slot[k];
        const struct mailbox_topic *u = t ? mailbox_topics_by_id(&b->topics, t->id) : NULL;
        if (!t)
            continue;
        assert_non_null(u);
        assert_int_equal(t->topic_seq, u->topic_seq);
        assert_true(sha256_eq(&t->chain, &u->chain));
        assert_int_equal(t->count[MAILBOX_READY], u->count[MAILBOX_READY]);
    }
}

static void check_answers(struct life *s) RT_BLOCKS
{
    for (size_t i = 0; i < s->known_n; i++) {
        struct known *k = &s->known[i];
        uint32_t e = mailbox_shard_find(s->now.shard, &k->id);
        struct mailbox_rec r;
        if (k->fate == ACKED) {
            assert_true(!e || mailbox_shard_entry(s->now.shard, e)->state == MAILBOX_DONE);
            continue;
        }
        if (k->fate == ACKING) { /* the cut decided */
            k->fate = !e || mailbox_shard_entry(s->now.shard, e)->state == MAILBOX_DONE ? ACKED : WAITING;
            continue;
        }
        if (!e)
            fail_msg("seed %llu: message %zu (seq %llu) is lost", (unsigned long long)s->seed, i,
                     (unsigned long long)k->seq);
        const struct mailbox_entry *en = mailbox_shard_entry(s->now.shard, e);
        assert_int_not_equal(en->state, MAILBOX_DONE);
        assert_true(en->attempt >= k->attempt);
        assert_int_equal(
            mailbox_log_read(&s->now.log, en->segment, en->offset8, en->length64, s->buffer, &r), ERR_OK);
        assert_true(sha256_eq(&r.enq.chain, &k->chain));
    }
}

/* Reading every segment must come to the same state; a stripped one can only be read through its index. */
static void check_against_segments(struct life *s) RT_BLOCKS
{
    struct shard_on_disk other;
    struct store_journal_report report;
    assert_int_equal(open_shard(s, &other, false, true, &report), ERR_OK);
    if (report.damaged)
        fail_msg("seed %llu: %s byte %llu: %s", (unsigned long long)s->seed, report.bad_file,
                 (unsigned long long)report.bad_offset, report.bad_reason ? report.bad_reason : "contents");
    same_state(s->now.shard, other.shard);
    same_state(other.shard, s->now.shard);
    close_shard(&other);
}

static void start(struct life *s) RT_BLOCKS
{
    static const struct store_fault_plan none;
    struct store_journal_report report;
    close_shard(&s->now);
    store_disk_faulty_cut(s->disk);
    store_disk_faulty_reboot(s->disk);
    store_disk_faulty_plan(s->disk, &none);
    s->cuts++;
    assert_int_equal(open_shard(s, &s->now, true, false, &report), ERR_OK);
    if (report.damaged)
        fail_msg("seed %llu: a power cut looks like corruption: %s byte %llu: %s",
                 (unsigned long long)s->seed, report.bad_file, (unsigned long long)report.bad_offset,
                 report.bad_reason ? report.bad_reason : "contents");
    mailbox_shard_check(s->now.shard);
    s->from_idx += s->now.log.indexed_to != 0;
    s->indexed_to = s->now.log.indexed_to;
    s->topics_of = 0;
    check_against_segments(s);
    check_answers(s);
    for (size_t i = 0; i < s->known_n; i++)
        s->known[i].held = false;
    /* Seldom enough, every other life, that whole segments are written between two cuts. */
    struct store_fault_plan plan = {.crash_at = 1 + rng_below(&s->rng, s->seed % 2 ? 150 : 1500)};
    store_disk_faulty_plan(s->disk, &plan);
}

static bool commit(struct life *s) RT_BLOCKS
{
    struct store_journal *j = s->now.log.journal;
    if (store_journal_wants_spare(j) && store_journal_prepare_spare(j) != ERR_OK)
        return false;
    if (mailbox_log_commit(&s->now.log, now_of(s)) != ERR_OK)
        return false;
    for (size_t i = 0; i < s->known_n; i++)
        if (s->known[i].fate == ACKING)
            s->known[i].fate = ACKED;
    return true;
}

static bool send_bytes(struct life *s, size_t n) RT_BLOCKS
{
    int topic = (int)rng_below(&s->rng, TOPICS);
    char key[16];
    uint8_t attrs[4] = {0};
    struct mailbox_sent out = {0};
    if (s->known_n == IDS)
        return true;
    snprintf(key, sizeof key, "k%u", s->key++);
    struct mailbox_send in = {.topic = str_from_c(names[topic]),
                              .idem_key = str_from_c(key),
                              .topic_hash = &s->hash[topic],
                              .tenant = topic % 2 ? STR("acme") : STR("default"),
                              .attrs = bytes_of(attrs, 4),
                              .payload = bytes_of(s->payload, n),
                              .delay_ms = rng_below(&s->rng, 8) ? 0 : 1 + rng_below(&s->rng, 50)};
    mailbox_dedup_digest(in.topic, in.idem_key, &in.digest);
    sha256_of(in.payload.p, in.payload.n, &in.payload_hash);
    sha256_of(attrs, 4, &in.attrs_hash);
    assert_int_equal(mailbox_shard_send(s->now.shard, now_of(s), &in, &out), ERR_OK);
    struct known k = {out.msg_id, topic, out.topic_seq, out.chain, 0, WAITING, false};
    if (!commit(s))
        return false; /* not answered: it may be there or not */
    s->known[s->known_n++] = k;
    return true;
}

static bool send(struct life *s) RT_BLOCKS
{
    return send_bytes(s, rng_below(&s->rng, 3) ? rng_below(&s->rng, 300) : rng_below(&s->rng, PAYLOAD_MAX));
}

static struct known *find(struct life *s, const struct uuid *id)
{
    for (size_t i = 0; i < s->known_n; i++)
        if (mailbox_id_eq(&s->known[i].id, id))
            return &s->known[i];
    return NULL;
}

static bool receive(struct life *s) RT_BLOCKS
{
    int topic = (int)rng_below(&s->rng, TOPICS);
    struct mailbox_topic *t =
        mailbox_topics_find(&s->now.shard->topics, &s->hash[topic], str_from_c(names[topic]));
    uint32_t got[16];
    if (!t)
        return true;
    struct mailbox_want w = {t, 100000, 1 + (uint32_t)rng_below(&s->rng, 16), INT64_MAX, 0, false};
    uint32_t n = mailbox_shard_lease(s->now.shard, now_of(s), &w, got);
    if (!commit(s))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct mailbox_entry *e = mailbox_shard_entry(s->now.shard, got[i]);
        struct known *k = find(s, &e->msg_id);
        if (!k)
            continue; /* a send that was cut off after it was durable */
        k->attempt = e->attempt;
        k->held = true;
    }
    return true;
}

static void settle(struct life *s)
{
    for (size_t i = 0; i < s->known_n; i++) {
        struct known *k = &s->known[i];
        struct mailbox_settled out = {0};
        struct mailbox_fence f = {.msg_id = k->id, .attempt = k->attempt};
        if (!k->held || rng_below(&s->rng, 4) == 0)
            continue;
        struct mailbox_nack n = {.reason = STR("sim"), .dead = rng_below(&s->rng, 20) == 0};
        k->held = false;
        if (rng_below(&s->rng, 6) == 0) {
            if (mailbox_shard_nack(s->now.shard, now_of(s), &f, &n, &out) != ERR_OK)
                continue;
        } else if (mailbox_shard_ack(s->now.shard, now_of(s), &f, &out) == ERR_OK) {
            k->fate = ACKING;
        }
    }
}

/* What is left in a segment goes to the journal's end, some of it: messages, and the keys of one that is stripped. */
static bool move_some(struct life *s, uint32_t segment, bool keys) RT_BLOCKS
{
    struct mailbox_shard *sh = s->now.shard;
    for (uint32_t i = 1, n = 0; i < sh->slabs.used && n < 8; i++) {
        const struct mailbox_entry *e = mailbox_shard_entry(sh, i);
        struct mailbox_rec body;
        if (e->state == MAILBOX_FREE || e->segment != segment || (e->state == MAILBOX_DONE && !keys))
            continue;
        enum err err =
            keys ? mailbox_log_read_key(&s->now.log, e, &body)
                 : mailbox_log_read(&s->now.log, e->segment, e->offset8, e->length64, s->buffer, &body);
        if (err != ERR_OK || mailbox_shard_group_full(sh))
            break; /* the power is gone, or the rest comes later */
        assert_int_equal(mailbox_shard_reappend(sh, now_of(s), i, &body), ERR_OK);
        s->moved++;
        n++;
    }
    return commit(s);
}

/* What the rebalancer and the worker do between them, one step of it. */
static bool keep_house(struct life *s) RT_BLOCKS
{
    struct store_journal *j = s->now.log.journal;
    struct mailbox_idx_place at = {s->disk, DIR, s->instance, 3};
    struct store_segment oldest[1];
    struct store_journal_report report;
    struct mailbox_idx_files f;
    uint64_t bytes;
    size_t n = store_journal_segments(j, oldest, 1);
    if (n == 0 || s->now.shard->group.n)
        return true;
    if (s->indexed_to + 1 < oldest->segment_no)
        s->indexed_to = oldest->segment_no - 1;
    if (s->indexed_to + 2 < oldest->segment_no + n && rng_below(&s->rng, 2)) {
        struct mailbox_idx_builder *b = atomic_exchange(&s->now.log.built, NULL);
        bool collected = b && mailbox_idx_builder_segment(b) == s->indexed_to + 1;
        enum err e = collected ? mailbox_idx_builder_save(b, &at, &bytes)
                               : mailbox_idx_write(&at, j, s->indexed_to + 1, &report, &bytes);
        mailbox_idx_builder_destroy(b);
        s->collected += collected;
        if (e != ERR_OK)
            return false;
        s->indexed_to++;
        return true;
    }
    const struct mailbox_segment_use *u = mailbox_shard_segment_use(s->now.shard, oldest->segment_no);
    if (oldest->sealed && n > 1 && oldest->segment_no <= s->indexed_to && u->waiting == 0) {
        s->strips++;
        return store_journal_drop(j, oldest->segment_no, false) == ERR_OK;
    }
    if (oldest->sealed && n > 1 && s->seed % 3 == 0 && rng_below(&s->rng, 2))
        return move_some(s, oldest->segment_no, false);
    if (mailbox_idx_list(s->disk, DIR, &f) != ERR_OK)
        return false;
    u = mailbox_shard_segment_use(s->now.shard, f.first_idx);
    if (!f.first_idx || f.first_idx >= oldest->segment_no)
        return true;
    if (u->waiting + u->keys)
        return s->seed % 3 || move_some(s, f.first_idx, true);
    for (uint32_t k = 1; k < s->now.shard->topics.slots; k++)
        if (s->now.shard->topics.slot[k])
            mailbox_shard_reappend_topic(s->now.shard, s->now.shard->topics.slot[k], f.first_idx);
    if (!commit(s))
        return false;
    char path[STORE_PATH_MAX];
    mailbox_idx_path(path, DIR, f.first_idx);
    s->drops++;
    return store_file_remove(s->disk, path) == ERR_OK;
}

static void life_init(struct life *s, uint64_t seed) RT_BLOCKS
{
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->disk = world_begin(seed, DIR, &s->rng, &s->clock);
    rng_bytes(&s->rng, s->instance, 16);
    s->rules = world_rules(200, 50);
    for (int t = 0; t < TOPICS; t++)
        mailbox_topic_hash(str_from_c(names[t]), &s->hash[t]);
    s->buffer = malloc(MAILBOX_REC_BYTES_MAX + 64);
    s->payload = malloc(PAYLOAD_MAX);
    CHECK(s->buffer && s->payload);
    rng_bytes(&s->rng, s->payload, PAYLOAD_MAX);
}

static void life_fini(struct life *s) RT_BLOCKS
{
    close_shard(&s->now);
    store_disk_destroy(s->disk);
    free(s->buffer);
    free(s->payload);
}

static void run(struct life *s, int steps) RT_BLOCKS
{
    for (int step = 0; step < steps; step++) {
        uint64_t what = rng_below(&s->rng, 10);
        bool ok = true;
        clock_manual_advance_ms(&s->clock, (int64_t)rng_below(&s->rng, 10));
        while (mailbox_shard_tick(s->now.shard, now_of(s)))
            ;
        if (what < 4)
            ok = send(s);
        else if (what < 6)
            ok = receive(s);
        else if (what < 8)
            settle(s);
        else if (what < 9)
            ok = commit(s);
        if (ok)
            ok = keep_house(s);
        if (!ok || store_disk_faulty_is_down(s->disk))
            start(s);
    }
    start(s);
}

static void a_start_from_indexes_is_a_start_from_segments(void **state) RT_BLOCKS
{
    (void)state;
    const char *seed = getenv("MAILBOX_SEED"), *seeds = getenv("MAILBOX_SEEDS");
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 1, n = seed    ? 1
                                                              : seeds ? strtoull(seeds, NULL, 10)
                                                                      : 16;
    uint32_t from_idx = 0, strips = 0, drops = 0, cuts = 0, collected = 0, moved = 0;
    for (uint64_t k = first; k < first + n; k++) {
        struct life *s = malloc(sizeof *s);
        CHECK(s != NULL);
        life_init(s, k);
        start(s);
        run(s, 250);
        from_idx += s->from_idx;
        strips += s->strips;
        drops += s->drops;
        cuts += s->cuts;
        collected += s->collected;
        moved += s->moved;
        life_fini(s);
        free(s);
    }
    print_message(
        "%llu lives: %u power cuts, %u starts from an index, %u strips, %u drops, %u collected, %u moved\n",
        (unsigned long long)n, cuts, from_idx, strips, drops, collected, moved);
    assert_true(seed || (from_idx > n && strips > 0 && drops > 0 && collected > 0 && moved > 0));
}

/*
 * The power is cut while a segment begins: what is written to it afterwards has to name its topics, as if it had begun then. Else the
 * segment could not be read once the one before it is gone.
 */
static void a_segment_that_had_begun_names_its_topics(void **state) RT_BLOCKS
{
    static const struct store_fault_plan none;
    (void)state;
    unsigned begun = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct store_fault_plan plan = {.crash_at = 1 + seed % 5};
        struct store_head head;
        struct store_file *f;
        uint8_t type = 0;
        struct life *s = malloc(sizeof *s);
        CHECK(s != NULL);
        life_init(s, seed);
        start(s);
        store_disk_faulty_plan(s->disk, &none);
        do
            assert_true(send_bytes(s, PAYLOAD_MAX));
        while (store_journal_room(s->now.log.journal).active > PAYLOAD_MAX);
        assert_int_equal(s->now.log.active_segment, 1);
        store_disk_faulty_plan(s->disk, &plan);
        (void)send_bytes(s, PAYLOAD_MAX);
        start(s);
        store_disk_faulty_plan(s->disk, &none);
        store_journal_head(s->now.log.journal, &head);
        begun += head.end.segment == 2 && head.end.offset == STORE_SEGMENT_HEADER;
        assert_true(send_bytes(s, PAYLOAD_MAX));
        assert_int_equal(store_file_open(s->disk, DIR "/00000002.seg", STORE_READ, &f), ERR_OK);
        assert_int_equal(store_file_read_all(f, &type, 1, STORE_SEGMENT_HEADER + STORE_FRAME_HEADER + 8),
                         ERR_OK);
        store_file_close(f);
        assert_int_equal(type, MAILBOX_REC_TOPIC);
        life_fini(s);
        free(s);
    }
    assert_true(begun > 0); /* that is what it is about */
}

/* Any bit of an index file: the segment is read instead, or, when that is gone, the shard says so and stays shut. */
static void a_flipped_bit_in_an_index_is_found(void **state) RT_BLOCKS
{
    static const struct store_fault_plan none;
    (void)state;
    int rebuilt = 0, refused = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        struct life *s = malloc(sizeof *s);
        struct store_journal_report report;
        struct mailbox_idx_files f = {0};
        struct store_stat st;
        char path[STORE_PATH_MAX];
        CHECK(s != NULL);
        life_init(s, seed);
        start(s);
        do {
            store_disk_faulty_plan(s->disk, &none);
            assert_true(send(s));
            for (int i = 0; i < 6; i++) {
                assert_true(receive(s));
                settle(s);
            }
            assert_true(commit(s) && keep_house(s));
            clock_manual_advance_ms(&s->clock, 5);
            while (mailbox_shard_tick(s->now.shard, now_of(s)))
                ;
            assert_int_equal(mailbox_idx_list(s->disk, DIR, &f), ERR_OK);
        } while (!f.first_idx || (seed % 2 && f.first_idx >= f.first_seg && s->known_n < 400));
        bool stripped = f.first_idx < f.first_seg;
        close_shard(&s->now);
        mailbox_idx_path(path, DIR, f.first_idx);
        assert_int_equal(store_disk_stat(s->disk, path, &st), ERR_OK);
        assert_int_equal(store_disk_faulty_flip(s->disk, path, rng_below(&s->rng, st.bytes),
                                                (unsigned)rng_below(&s->rng, 8)),
                         ERR_OK);
        assert_int_equal(open_shard(s, &s->now, true, false, &report), ERR_OK);
        if (stripped) {
            assert_true(report.damaged && s->now.shard->readonly);
            refused++;
        } else {
            assert_false(report.damaged);
            check_answers(s);
            rebuilt++;
        }
        life_fini(s);
        free(s);
    }
    print_message("24 flips: %d times the segment was read, %d times the shard was refused\n", rebuilt,
                  refused);
    assert_true(rebuilt > 0 && refused > 0);
}

/* Copies of messages and keys, in a segment that is started from its index: all they say is in there. */
static void copies_come_out_of_an_index_as_they_went_in(void **state) RT_BLOCKS
{
    static const struct store_fault_plan none;
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) { /* collected while written, or by reading */
        struct life *s = malloc(sizeof *s);
        CHECK(s != NULL);
        life_init(s, seed);
        start(s);
        store_disk_faulty_plan(s->disk, &none);
        for (int i = 0; i < 24; i++)
            assert_true(send_bytes(s, 100));
        for (int i = 0; i < 6; i++)
            assert_true(receive(s));
        settle(s);
        while (s->indexed_to < 1)
            assert_true(send_bytes(s, PAYLOAD_MAX) && keep_house(s));
        for (int keys = 0; keys < 2; keys++)
            for (int i = 0; i < 8; i++)
                assert_true(move_some(s, 1, keys));
        assert_int_equal(mailbox_shard_segment_use(s->now.shard, 1)->waiting, 0);
        assert_int_equal(mailbox_shard_segment_use(s->now.shard, 1)->keys, 0);
        assert_true(s->now.shard->count[MAILBOX_DONE] > 0);
        uint32_t held = s->now.log.active_segment;
        while (s->indexed_to < held)
            assert_true(send_bytes(s, PAYLOAD_MAX) && keep_house(s));
        start(s); /* compares */
        assert_true(s->now.log.indexed_to >= held);
        assert_true(s->now.shard->count[MAILBOX_DONE] > 0);
        life_fini(s);
        free(s);
    }
}

/* The files at the end of a journal are gone, all of them or the newest: their indexes remember that there was more. */
static void a_journal_whose_end_is_missing_is_not_one_that_ends_there(void **state) RT_BLOCKS
{
    static const struct store_fault_plan none;
    (void)state;
    for (int all = 0; all < 2; all++) {
        struct life *s = malloc(sizeof *s);
        struct store_journal_report report;
        struct mailbox_idx_files f;
        char path[STORE_PATH_MAX];
        CHECK(s != NULL);
        life_init(s, 3);
        start(s);
        store_disk_faulty_plan(s->disk, &none);
        do {
            assert_true(send_bytes(s, PAYLOAD_MAX) && keep_house(s));
            assert_int_equal(mailbox_idx_list(s->disk, DIR, &f), ERR_OK);
        } while (f.last_idx < 2);
        close_shard(&s->now);
        for (uint32_t no = f.last_seg; no >= (all ? f.first_seg : f.last_idx + 1); no--) {
            store_journal_segment_path(path, DIR, no);
            assert_int_equal(store_file_remove(s->disk, path), ERR_OK);
        }
        assert_int_equal(open_shard(s, &s->now, true, false, &report), ERR_OK);
        assert_true(report.damaged && s->now.shard->readonly);
        assert_string_equal(report.bad_file, all ? "00000001.seg" : "00000003.seg");
        life_fini(s);
        free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_from_indexes_is_a_start_from_segments),
        cmocka_unit_test(a_segment_that_had_begun_names_its_topics),
        cmocka_unit_test(a_flipped_bit_in_an_index_is_found),
        cmocka_unit_test(copies_come_out_of_an_index_as_they_went_in),
        cmocka_unit_test(a_journal_whose_end_is_missing_is_not_one_that_ends_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
