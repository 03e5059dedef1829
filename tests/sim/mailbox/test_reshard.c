/*
 * The number of shards changes again and again, in virtual time, on a disk that loses power, fails a call or runs full anywhere in
 * between. An observer remembers each answer; the outside checker of the contract (core/trace) follows every message over all
 * changes, leases that go on included, and a change that came to its end must have moved the state and nothing else.
 * MAILBOX_SEED replays one life, MAILBOX_SEEDS says how many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "services/mailbox/core/trace.h"
#include "services/mailbox/idx.h"
#include "services/mailbox/reshard.h"
#include "store/file_replace.h"
#include "world.h"

enum {
    TOPICS = 12,
    KEYS = 12,
    IDS = 2048,
    SHARDS = 5,
    SEGMENT = 4 << 20,
    LARGE = 300 << 10,
    MAX_ATTEMPTS = 4,
    REPLAY_MS = 600
};
#define DIR "/mb"

struct known {
    struct uuid id;
    int topic, key;
    uint64_t seq;
    struct sha256 chain;
    uint16_t attempt;
    bool held;
};

struct part {
    struct mailbox_shard *shard;
    struct mailbox_log log;
    void *group;
    uint32_t indexed_to;
};

struct sim {
    uint64_t seed, step;
    struct rng rng;
    struct store_disk *disk;
    struct clock_manual clock;
    struct mailbox_rules rules;
    struct mailbox_routing routing;
    struct part part[SHARDS];
    uint8_t *buffer, *payload;
    uint8_t instance[16];
    char name[TOPICS][8];
    struct sha256 hash[TOPICS];
    struct known known[IDS];
    size_t known_n;
    struct mailbox_lease_held held[IDS];
    size_t held_n;
    struct mailbox_trace trace;
};

struct tally {
    unsigned changed, cut, failed, strips;
    uint64_t messages, keys, leases, dead;
};

static const struct store_fault_plan none;

static struct mailbox_now now_of(struct sim *s)
{
    return (struct mailbox_now){clock_mono_ns(&s->clock.clock) / 1000,
                                (uint64_t)clock_wall_ms(&s->clock.clock)};
}

static void feed(struct sim *s, struct mailbox_trace_event ev)
{
    ev.at_ms = clock_wall_ms(&s->clock.clock);
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

static struct part *part_of(struct sim *s, uint16_t bucket)
{
    return &s->part[s->routing.of[bucket]];
}

/* ---- opening and closing all shards ---- */

static enum err put_leases_back(void *ctx, struct mailbox_log *g)
{
    struct sim *s = ctx;
    for (size_t i = 0; i < s->held_n; i++)
        mailbox_replay_lease_held(g->shard, &s->held[i]);
    return ERR_OK;
}

static void close_all(struct sim *s) RT_BLOCKS
{
    for (int i = 0; i < SHARDS; i++) {
        struct part *p = &s->part[i];
        if (!p->shard)
            continue;
        mailbox_log_close(&p->log);
        mailbox_shard_fini(p->shard);
        free(p->shard);
        free(p->group);
        *p = (struct part){0};
    }
}

static void open_all(struct sim *s) RT_BLOCKS
{
    assert_int_equal(mailbox_routing_settle(s->disk, DIR, &s->routing), ERR_OK);
    assert_int_equal(mailbox_reshard_sweep(s->disk, DIR, s->routing.shards), ERR_OK);
    for (uint16_t i = 0; i < s->routing.shards; i++) {
        struct part *p = &s->part[i];
        struct store_journal_report report = {0};
        char dir[STORE_PATH_MAX];
        mailbox_log_shard_dir(dir, DIR, i);
        enum err e = store_disk_mkdirs(s->disk, dir);
        assert_true(e == ERR_OK || e == ERR_EXISTS);
        p->shard = calloc(1, sizeof *p->shard);
        p->group = malloc(MAILBOX_GROUP_MEMORY);
        CHECK(p->shard && p->group);
        assert_int_equal(mailbox_shard_init(p->shard, i, &s->rules, rng_u64(&s->rng), now_of(s), p->group),
                         ERR_OK);
        assert_int_equal(mailbox_log_open(&p->log, p->shard,
                                          &(struct mailbox_log_config){.disk = s->disk,
                                                                       .dir = dir,
                                                                       .instance = s->instance,
                                                                       .routing = s->routing.of,
                                                                       .segment_bytes = SEGMENT,
                                                                       .tail_bytes = 64 << 10,
                                                                       .trust_idx = s->seed % 2,
                                                                       .clock = &s->clock.clock,
                                                                       .now = now_of(s),
                                                                       .catch_up = put_leases_back,
                                                                       .catch_up_ctx = s},
                                          &report),
                         ERR_OK);
        if (report.damaged)
            fail_msg("seed %llu step %llu: shard %u looks damaged: %s byte %llu: %s",
                     (unsigned long long)s->seed, (unsigned long long)s->step, i, report.bad_file,
                     (unsigned long long)report.bad_offset,
                     report.bad_reason ? report.bad_reason : "contents");
        mailbox_shard_check(p->shard);
        p->indexed_to = p->log.indexed_to;
    }
    s->held_n = 0;
}

/* What was answered is there as it was answered, in the shard that the routing names and in no other. */
static void check_answers(struct sim *s) RT_BLOCKS
{
    for (size_t i = 0; i < s->known_n; i++) {
        struct known *k = &s->known[i];
        uint16_t bucket = mailbox_id_bucket(&k->id);
        struct part *p = part_of(s, bucket);
        struct mailbox_rec r;
        for (uint16_t n = 0; n < s->routing.shards; n++)
            assert_true(n == s->routing.of[bucket] || !mailbox_shard_find(s->part[n].shard, &k->id));
        struct mailbox_topic *t =
            mailbox_topics_find(&p->shard->topics, &s->hash[k->topic], str_from_c(s->name[k->topic]));
        if (!t || t->topic_seq < k->seq)
            fail_msg("seed %llu step %llu: topic %s went back from %llu", (unsigned long long)s->seed,
                     (unsigned long long)s->step, s->name[k->topic], (unsigned long long)k->seq);
        uint32_t e = mailbox_shard_find(p->shard, &k->id);
        const struct mailbox_entry *en = e ? mailbox_shard_entry(p->shard, e) : NULL;
        if (!e || en->state == MAILBOX_DONE)
            continue; /* the checker of the contract says whether it may be gone */
        assert_true(en->attempt >= k->attempt);
        assert_int_equal(mailbox_log_read(&p->log, en->segment, en->offset8, en->length64, s->buffer, &r),
                         ERR_OK);
        assert_true(sha256_eq(&r.enq.chain, &k->chain));
    }
}

/* ---- the state, to compare ---- */

struct seen {
    struct uuid id;
    uint8_t digest[MAILBOX_DIGEST_KEPT];
    uint32_t reserved;
    uint64_t seq;
    int64_t due;
    uint16_t attempt;
    uint8_t state, tries, causes;
};

struct snapshot {
    struct seen *seen;
    size_t n;
    struct {
        struct uuid chain_id;
        struct sha256 chain;
        uint64_t seq;
        char tenant[16];
    } topic[TOPICS];
};

static struct mailbox_topic *topic_of(struct sim *s, int topic)
{
    return mailbox_topics_find(&part_of(s, mailbox_bucket(&s->hash[topic]))->shard->topics, &s->hash[topic],
                               str_from_c(s->name[topic]));
}

static struct seen see(const struct mailbox_shard *sh, uint32_t i)
{
    const struct mailbox_entry *e = mailbox_shard_entry(sh, i);
    const struct mailbox_failures *f = mailbox_history_get(&sh->history, i);
    bool timed = e->state == MAILBOX_LEASED || e->state == MAILBOX_DELAYED || e->state == MAILBOX_DLQ;
    struct seen v = {.id = e->msg_id,
                     .seq = e->topic_seq,
                     .due = timed ? mailbox_entry_due(e) : 0,
                     .attempt = e->state == MAILBOX_DONE ? 0 : e->attempt,
                     .state = e->state,
                     .tries = e->state == MAILBOX_DONE ? 0 : e->tries,
                     .causes = f && e->state != MAILBOX_DONE ? f->n : 0};
    memcpy(v.digest, e->digest, sizeof v.digest);
    return v;
}

static void snap(struct sim *s, struct snapshot *out)
{
    *out = (struct snapshot){.seen = calloc(IDS, sizeof *out->seen)};
    CHECK(out->seen != NULL);
    for (uint16_t n = 0; n < s->routing.shards; n++)
        for (uint32_t i = 1; i < s->part[n].shard->slabs.used; i++) {
            const struct mailbox_entry *e = mailbox_shard_entry(s->part[n].shard, i);
            bool over = e->state == MAILBOX_DONE && mailbox_id_ts_ms(&e->msg_id) + REPLAY_MS <=
                                                        now_of(s).wall_ms; /* may be forgotten */
            if (e->state != MAILBOX_FREE && !over)
                out->seen[out->n++] = see(s->part[n].shard, i);
        }
    for (int k = 0; k < TOPICS; k++) {
        const struct mailbox_topic *t = topic_of(s, k);
        if (!t)
            continue;
        out->topic[k].chain_id = t->chain_id;
        out->topic[k].chain = t->chain;
        out->topic[k].seq = t->topic_seq;
        struct str tenant = mailbox_tenant_name(t->tenant);
        memcpy(out->topic[k].tenant, tenant.p, tenant.n);
    }
}

/*
 * Nothing but the place changed. A due in the future is written down in whole milliseconds; one that is over comes with the first
 * tick.
 */
static void same(struct sim *s, const struct snapshot *was)
{
    struct snapshot is;
    for (uint16_t i = 0; i < s->routing.shards; i++)
        while (mailbox_shard_tick(s->part[i].shard, now_of(s)))
            ;
    snap(s, &is);
    assert_memory_equal(was->topic, is.topic, sizeof is.topic);
    if (is.n != was->n)
        fail_msg("seed %llu step %llu: %zu entries became %zu", (unsigned long long)s->seed,
                 (unsigned long long)s->step, was->n, is.n);
    for (size_t k = 0; k < was->n; k++) {
        const struct seen *a = &was->seen[k];
        const struct mailbox_shard *sh = part_of(s, mailbox_id_bucket(&a->id))->shard;
        uint32_t i = mailbox_shard_find(sh, &a->id);
        assert_true(i != 0);
        struct seen b = see(sh, i);
        if (a->due - b.due < -1000 || a->due - b.due > 1000)
            fail_msg("seed %llu step %llu: state %d: due %lld became %lld in state %d",
                     (unsigned long long)s->seed, (unsigned long long)s->step, a->state, (long long)a->due,
                     (long long)b.due, b.state);
        b.due = a->due;
        assert_memory_equal(a, &b, offsetof(struct seen, causes) + 1);
    }
    free(is.seen);
}

/* ---- what happens ---- */

static void commit(struct sim *s, struct part *p) RT_BLOCKS
{
    if (store_journal_wants_spare(p->log.journal))
        assert_int_equal(store_journal_prepare_spare(p->log.journal), ERR_OK);
    assert_int_equal(mailbox_log_commit(&p->log, now_of(s)), ERR_OK);
}

static void do_send(struct sim *s) RT_BLOCKS
{
    int topic = (int)rng_below(&s->rng, TOPICS), key = (int)rng_below(&s->rng, KEYS);
    struct part *p = part_of(s, mailbox_bucket(&s->hash[topic]));
    char text[16];
    uint8_t attrs[4] = {0};
    struct mailbox_sent out = {0};
    size_t n = s->seed % 3 ? 64 : LARGE / 2 + rng_below(&s->rng, LARGE / 2);
    snprintf(text, sizeof text, "k%d", key);
    struct mailbox_send in = {.topic = str_from_c(s->name[topic]),
                              .idem_key = str_from_c(text),
                              .topic_hash = &s->hash[topic],
                              .tenant = topic % 2 ? STR("acme") : STR("default"),
                              .attrs = bytes_of(attrs, 4),
                              .payload = bytes_of(s->payload, n),
                              .delay_ms = rng_below(&s->rng, 6) ? 0 : 1 + rng_below(&s->rng, 80)};
    mailbox_dedup_digest(in.topic, in.idem_key, &in.digest);
    sha256_of(in.payload.p, in.payload.n, &in.payload_hash);
    sha256_of(attrs, 4, &in.attrs_hash);
    if (s->known_n == IDS)
        return;
    assert_int_equal(mailbox_shard_send(p->shard, now_of(s), &in, &out), ERR_OK);
    if (out.duplicate) {
        assert_non_null(find(s, &out.msg_id));
        feed(s,
             (struct mailbox_trace_event){
                 .kind = MAILBOX_TRACE_DUPLICATE, .id = out.msg_id, .topic = in.topic, .key = in.idem_key});
        return;
    }
    commit(s, p);
    s->known[s->known_n++] = (struct known){
        .id = out.msg_id, .topic = topic, .key = key, .seq = out.topic_seq, .chain = out.chain};
    feed(s, (struct mailbox_trace_event){
                .kind = MAILBOX_TRACE_SENT,
                .id = out.msg_id,
                .topic = in.topic,
                .key = in.idem_key,
                .seq = out.topic_seq,
                .until_ms = in.delay_ms ? clock_wall_ms(&s->clock.clock) + (int64_t)in.delay_ms : 0});
}

static void do_recv(struct sim *s, int64_t visibility_ms) RT_BLOCKS
{
    int topic = (int)rng_below(&s->rng, TOPICS);
    struct part *p = part_of(s, mailbox_bucket(&s->hash[topic]));
    struct mailbox_topic *t = topic_of(s, topic);
    uint32_t got[8];
    if (!t)
        return;
    struct mailbox_want w = {t,    visibility_ms * 1000, 1 + (uint32_t)rng_below(&s->rng, 8), INT64_MAX, 0,
                             false};
    uint32_t n = mailbox_shard_lease(p->shard, now_of(s), &w, got);
    commit(s, p);
    for (uint32_t i = 0; i < n; i++) {
        struct mailbox_entry *e = mailbox_shard_entry(p->shard, got[i]);
        struct known *k = find(s, &e->msg_id);
        CHECK(k != NULL);
        k->attempt = e->attempt;
        k->held = true;
        feed(s, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_DELIVERED,
                                             .id = e->msg_id,
                                             .attempt = e->attempt,
                                             .until_ms = clock_wall_ms(&s->clock.clock) + visibility_ms});
    }
}

static void settle(struct sim *s, struct known *k, bool ack)
{
    struct mailbox_shard *sh = part_of(s, mailbox_id_bucket(&k->id))->shard;
    struct mailbox_settled out = {0};
    struct mailbox_fence f = {.msg_id = k->id, .attempt = k->attempt};
    struct mailbox_nack n = {.reason = STR("sim"), .dead = rng_below(&s->rng, 6) == 0};
    if (ack && mailbox_shard_ack(sh, now_of(s), &f, &out) == ERR_OK && !out.already)
        feed(s,
             (struct mailbox_trace_event){.kind = MAILBOX_TRACE_ACKED, .id = k->id, .attempt = k->attempt});
    else if (!ack && mailbox_shard_nack(sh, now_of(s), &f, &n, &out) == ERR_OK)
        feed(s, (struct mailbox_trace_event){
                    .kind = MAILBOX_TRACE_NACKED, .id = k->id, .attempt = k->attempt});
    k->held = false;
}

static void do_settle(struct sim *s)
{
    for (size_t i = 0; i < s->known_n; i++)
        if (s->known[i].held && rng_below(&s->rng, 3) == 0)
            settle(s, &s->known[i], rng_below(&s->rng, 3) != 0);
}

static void pass_time(struct sim *s, int64_t ms) RT_BLOCKS
{
    clock_manual_advance_ms(&s->clock, ms);
    for (uint16_t i = 0; i < s->routing.shards; i++) {
        while (mailbox_shard_tick(s->part[i].shard, now_of(s)))
            ;
        commit(s, &s->part[i]);
    }
}

/* Sealed segments get an index and, when nothing in them waits, lose their bodies: keys are all that is left to move. */
static void keep_house(struct sim *s, struct tally *t) RT_BLOCKS
{
    for (uint16_t i = 0; i < s->routing.shards; i++) {
        struct part *p = &s->part[i];
        struct store_segment oldest[1];
        struct store_journal_report report = {0};
        uint64_t bytes;
        char dir[STORE_PATH_MAX];
        size_t n = store_journal_segments(p->log.journal, oldest, 1);
        mailbox_log_shard_dir(dir, DIR, i);
        struct mailbox_idx_place at = {s->disk, dir, s->instance, i};
        if (n < 2)
            continue;
        if (p->indexed_to + 1 < oldest->segment_no)
            p->indexed_to = oldest->segment_no - 1;
        if (p->indexed_to + 2 < oldest->segment_no + n) {
            assert_int_equal(mailbox_idx_write(&at, p->log.journal, ++p->indexed_to, &report, &bytes),
                             ERR_OK);
        } else if (oldest->sealed && oldest->segment_no <= p->indexed_to &&
                   mailbox_shard_segment_use(p->shard, oldest->segment_no)->waiting == 0) {
            assert_int_equal(store_journal_drop(p->log.journal, oldest->segment_no, false), ERR_OK);
            t->strips++;
        }
    }
}

static void remember_leases(struct sim *s, struct tally *t)
{
    s->held_n = 0;
    for (uint16_t n = 0; n < s->routing.shards; n++)
        for (uint32_t i = 1; i < s->part[n].shard->slabs.used; i++) {
            const struct mailbox_entry *e = mailbox_shard_entry(s->part[n].shard, i);
            t->dead += e->state == MAILBOX_DLQ;
            if (e->state == MAILBOX_LEASED)
                s->held[s->held_n++] =
                    (struct mailbox_lease_held){e->msg_id, mailbox_entry_due(e), e->attempt};
        }
    t->leases += s->held_n;
}

/* The power comes back: leases are void. */
static void power_cut(struct sim *s) RT_BLOCKS
{
    store_disk_faulty_cut(s->disk);
    store_disk_faulty_reboot(s->disk);
    store_disk_faulty_plan(s->disk, &none);
    feed(s, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_CRASH});
    s->held_n = 0;
    for (size_t i = 0; i < s->known_n; i++)
        s->known[i].held = false;
}

static struct store_fault_plan fate(struct sim *s)
{
    uint64_t at = 1 + rng_below(&s->rng, s->seed % 2 ? 40 : 200);
    switch (rng_below(&s->rng, 6)) {
    case 0:
    case 1:
        return (struct store_fault_plan){.crash_at = at};
    case 2:
        return (struct store_fault_plan){.eio_at = at};
    case 3:
        return (struct store_fault_plan){.enospc_at = at};
    default:
        return none;
    }
}

/* To so many shards, the disk doing as planned; whether the plan came to something. */
static bool change(struct sim *s, uint16_t want, struct store_fault_plan plan, struct tally *t) RT_BLOCKS
{
    struct mailbox_routing to;
    struct snapshot was;
    for (uint16_t i = 0; i < s->routing.shards; i++)
        commit(s, &s->part[i]);
    remember_leases(s, t);
    snap(s, &was);
    struct mailbox_routing from = s->routing;
    close_all(s);
    store_disk_faulty_plan(s->disk, &plan);
    struct mailbox_reshard r = {.disk = s->disk,
                                .dir = DIR,
                                .instance = s->instance,
                                .segment_bytes = SEGMENT,
                                .rules = &s->rules,
                                .clock = &s->clock.clock,
                                .now = now_of(s)};
    mailbox_routing_change(&from, want, &to);
    enum err e = mailbox_reshard(&r, &from, &to);
    bool fired = store_disk_faulty_fired(s->disk);
    assert_true(e == ERR_OK || fired);
    bool down = store_disk_faulty_is_down(s->disk);
    store_disk_faulty_plan(s->disk, &none);
    bool cut = down || rng_below(&s->rng, 4) == 0;
    if (cut)
        power_cut(s);
    open_all(s);
    check_answers(s);
    assert_true(s->routing.shards == from.shards || s->routing.shards == want);
    assert_true(e != ERR_OK || s->routing.shards == want);
    if (e == ERR_OK && !down) {
        for (size_t i = 0; cut && i < was.n; i++)
            if (was.seen[i].state == MAILBOX_LEASED) { /* nobody holds a lease after a cut */
                was.seen[i].state = MAILBOX_READY;
                was.seen[i].due = 0;
            }
        same(s, &was);
        t->messages += r.messages;
        t->keys += r.keys;
    }
    t->changed += e == ERR_OK;
    t->cut += down;
    t->failed += e != ERR_OK && !down;
    free(was.seen);
    return fired;
}

/* ---- lives ---- */

static void sim_init(struct sim *s, uint64_t seed, uint16_t shards) RT_BLOCKS
{
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->disk = world_begin(seed, DIR, &s->rng, &s->clock);
    rng_bytes(&s->rng, s->instance, 16);
    s->rules = world_rules(REPLAY_MS, MAX_ATTEMPTS);
    for (int t = 0; t < TOPICS; t++) {
        snprintf(s->name[t], sizeof s->name[t], "t%d", t);
        mailbox_topic_hash(str_from_c(s->name[t]), &s->hash[t]);
    }
    s->buffer = malloc(MAILBOX_REC_BYTES_MAX + 64);
    s->payload = calloc(1, LARGE);
    CHECK(s->buffer && s->payload);
    struct mailbox_trace_rules tr = {
        .max_attempts = MAX_ATTEMPTS, .t_replay_ms = REPLAY_MS, .lazy_ms = 50, .slack_ms = 3};
    assert_int_equal(mailbox_trace_init(&s->trace, &tr), ERR_OK);
    mailbox_routing_first(&s->routing, shards);
    assert_int_equal(mailbox_routing_save(s->disk, DIR, &s->routing), ERR_OK);
    open_all(s);
}

static void sim_fini(struct sim *s) RT_BLOCKS
{
    close_all(s);
    store_disk_destroy(s->disk);
    free(s->buffer);
    free(s->payload);
    mailbox_trace_fini(&s->trace);
    free(s);
}

static void settle_all(struct sim *s) RT_BLOCKS
{
    for (int round = 0; round < 4000; round++) {
        uint32_t left = 0;
        for (uint16_t i = 0; i < s->routing.shards; i++)
            left += s->part[i].shard->count[MAILBOX_READY] + s->part[i].shard->count[MAILBOX_DELAYED] +
                    s->part[i].shard->count[MAILBOX_LEASED];
        if (!left)
            break;
        do_recv(s, 200);
        for (size_t i = 0; i < s->known_n; i++)
            if (s->known[i].held)
                settle(s, &s->known[i], true);
        pass_time(s, (int64_t)rng_below(&s->rng, 20));
    }
    for (size_t i = 0; i < s->known_n; i++) {
        const struct mailbox_shard *sh = part_of(s, mailbox_id_bucket(&s->known[i].id))->shard;
        uint32_t e = mailbox_shard_find(sh, &s->known[i].id);
        if (e && mailbox_shard_entry(sh, e)->state == MAILBOX_DLQ)
            feed(s, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_DEAD, .id = s->known[i].id});
    }
    if (mailbox_trace_end(&s->trace) != ERR_OK)
        fail_msg("seed %llu: %s", (unsigned long long)s->seed, s->trace.why);
}

static void live(uint64_t seed, struct tally *t) RT_BLOCKS
{
    struct sim *s = malloc(sizeof *s);
    CHECK(s != NULL);
    sim_init(s, seed, (uint16_t)(1 + seed % SHARDS));
    for (s->step = 0; s->step < 160; s->step++) {
        pass_time(s, (int64_t)rng_below(&s->rng, 20));
        uint64_t what = rng_below(&s->rng, 12);
        uint16_t want;
        if (what < 5)
            do_send(s);
        else if (what < 7)
            do_recv(s, 50 + (int64_t)rng_below(&s->rng, 300));
        else if (what < 10)
            do_settle(s);
        else if (what == 10)
            keep_house(s, t);
        else if ((want = (uint16_t)(1 + rng_below(&s->rng, SHARDS))) != s->routing.shards)
            (void)change(s, want, fate(s), t);
    }
    settle_all(s);
    sim_fini(s);
}

static void no_change_of_the_number_of_shards_breaks_the_contract(void **state) RT_BLOCKS
{
    (void)state;
    const char *seed = getenv("MAILBOX_SEED"), *seeds = getenv("MAILBOX_SEEDS");
    struct tally t = {0};
    if (seed) {
        live(strtoull(seed, NULL, 10), &t);
        return;
    }
    uint64_t n = seeds ? strtoull(seeds, NULL, 10) : 8;
    for (uint64_t k = 1; k <= n; k++)
        live(k, &t);
    print_message(
        "%llu lives: %u changes, %u cut by the power, %u failed; moved: %llu messages, %llu keys; "
        "%llu leases went on, %llu dead letters; %u segments stripped\n",
        (unsigned long long)n, t.changed, t.cut, t.failed, (unsigned long long)t.messages,
        (unsigned long long)t.keys, (unsigned long long)t.leases, (unsigned long long)t.dead, t.strips);
    assert_true(n < 8 || (t.changed && t.cut && t.failed && t.messages && t.keys && t.leases && t.dead));
}

/*
 * The same change, with an error at the first call to the disk, the second, and so on to the last, or the power gone at every third.
 * What is accepted after it has to survive the next power cut, too: a routing that can be seen is not yet one that is there.
 */
static void a_change_may_end_at_any_call(void **state) RT_BLOCKS
{
    (void)state;
    struct tally t = {0};
    for (int way = 0; way < 4; way++) {
        bool fired = true;
        for (uint64_t call = 1; fired; call += way & 2 ? 3 : 1) {
            struct sim *s = malloc(sizeof *s);
            CHECK(s != NULL);
            uint16_t from = way & 1 ? 3 : 2, to = way & 1 ? 2 : 3;
            sim_init(s, 7, from);
            for (int i = 0; i < 20; i++)
                do_send(s);
            do_recv(s, 500);
            do_settle(s);
            fired = change(s, to,
                           way & 2 ? (struct store_fault_plan){.crash_at = call}
                                   : (struct store_fault_plan){.eio_at = call},
                           &t);
            for (int i = 0; i < 5; i++)
                do_send(s);
            close_all(s);
            power_cut(s);
            open_all(s);
            check_answers(s);
            settle_all(s);
            sim_fini(s);
        }
    }
    print_message("%u changes, %u cut by the power, %u failed\n", t.changed, t.cut, t.failed);
    assert_true(t.cut > 20 && t.failed > 20);
}

/* Of a key whose segment was stripped the index knows enough to take it along; a delay that an operator gave goes along, too. */
static void keys_without_bodies_and_delays_without_leases_move(void **state) RT_BLOCKS
{
    struct tally t = {0};
    struct sim *s = malloc(sizeof *s);
    (void)state;
    CHECK(s != NULL);
    sim_init(s, 3, 1); /* large messages, and starts from index files */
    for (int k = 0; k < REPLAY_MS && t.strips == 0; k++) {
        do_send(s);
        do_recv(s, 100);
        pass_time(s, 1);
        for (size_t i = 0; i < s->known_n; i++)
            if (s->known[i].held)
                settle(s, &s->known[i], true);
        commit(s, &s->part[0]);
        keep_house(s, &t);
    }
    uint32_t later = 0, keys = 0;
    struct mailbox_shard *sh = s->part[0].shard;
    struct mailbox_idx_files f;
    assert_int_equal(mailbox_idx_list(s->disk, DIR "/s00", &f), ERR_OK);
    for (uint32_t i = 1; i < sh->slabs.used; i++) {
        const struct mailbox_entry *e = mailbox_shard_entry(sh, i);
        keys += e->state == MAILBOX_DONE && e->segment < f.first_seg;
    }
    assert_true(keys > 0);
    for (int k = 0; k < 4000 && !later; k++) {
        do_send(s);
        do_recv(s, 100);
        for (size_t i = 0; i < s->known_n && !later; i++) {
            struct mailbox_fence fence = {.msg_id = s->known[i].id};
            struct mailbox_nack dead = {.dead = true};
            struct mailbox_settled out;
            if (!s->known[i].held)
                continue;
            assert_int_equal(mailbox_shard_nack(sh, now_of(s), &fence, &dead, &out), ERR_OK);
            assert_int_equal(mailbox_shard_reprocess(sh, now_of(s), &s->known[i].id, 60000), ERR_OK);
            s->known[i].held = false;
            later++;
        }
    }
    assert_int_equal(later, 1);
    change(s, 4, none, &t); /* compares */
    assert_true(t.changed == 1 && t.keys > 0);
    sim_fini(s);
}

static void a_new_number_of_shards_moves_as_few_buckets_as_can_be(void **state)
{
    (void)state;
    struct mailbox_routing a, b;
    for (uint16_t from = 1; from <= MAILBOX_SHARDS_MAX; from += 3)
        for (uint16_t want = 1; want <= MAILBOX_SHARDS_MAX; want++) {
            unsigned has[MAILBOX_SHARDS_MAX] = {0}, moved = 0, all = MAILBOX_BUCKETS;
            unsigned least = all / want, most = least + (all % want != 0);
            mailbox_routing_first(&a, from);
            mailbox_routing_change(&a, want, &b);
            for (int k = 0; k < MAILBOX_BUCKETS; k++) {
                assert_true(b.of[k] < want);
                has[b.of[k]]++;
                moved += a.of[k] != b.of[k];
            }
            for (uint16_t k = 0; k < want; k++)
                assert_true(has[k] == least || has[k] == most);
            unsigned kept =
                want < from ? want : from; /* as many shards keep what they had, or a share of it */
            assert_true(moved <= all - kept * (all / (want > from ? want : from)));
            assert_int_equal(b.generation, a.generation + 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_change_of_the_number_of_shards_breaks_the_contract),
        cmocka_unit_test(a_change_may_end_at_any_call),
        cmocka_unit_test(keys_without_bodies_and_delays_without_leases_move),
        cmocka_unit_test(a_new_number_of_shards_moves_as_few_buckets_as_can_be)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
