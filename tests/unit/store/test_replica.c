/* The replicated sink against real servers: a primary and two standbys, started once for the whole program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pg_rig.h"
#include "store/disk_memory.h"
#include "store/pg_stream.h"
#include "store/sink_replica.h"
#include "waiting.h"

enum { SEGMENT = 1 << 20, FRAME_MAX = 65536, WAIT_MS = 5000 };

static struct pg_rig rig;
static unsigned stream_no;

struct fixture {
    char stream[32];
    struct store_disk *disk;
    struct store_journal_config cfg;
    struct store_pg *db; /* a second connection, to look with */
    struct store_sink *sink;
    struct store_frame last;
    uint64_t epoch;
};

static struct deadline soon(void)
{
    return deadline_in_ms(WAIT_MS);
}

/* Until the primary has answered: on a busy machine it may be slower than one attempt waits for it. */
static enum err connect_to(struct store_pg *p) RT_BLOCKS
{
    enum err e;
    AWAIT((e = store_pg_connect(p, soon())) == ERR_OK || e == ERR_UNAVAILABLE);
    return e;
}

static struct store_sink *open_sink(struct fixture *x) RT_BLOCKS
{
    struct store_journal_report report;
    struct store_sink *local, *out;
    struct store_pg *pg;
    assert_int_equal(store_sink_local(&x->cfg, NULL, NULL, &report, &local), ERR_OK);
    assert_int_equal(store_sink_prepare(local), ERR_OK);
    assert_int_equal(store_pg_stream_create(rig.dsn, "test", 1, &pg), ERR_OK);
    struct store_sink_replica_config cfg = {
        .local = local, .pg = pg, .stream = x->stream, .timeout_ms = WAIT_MS};
    assert_int_equal(store_sink_replica(&cfg, &out), ERR_OK);
    return out;
}

static void setup(struct fixture *x) RT_BLOCKS
{
    memset(x, 0, sizeof *x);
    snprintf(x->stream, sizeof x->stream, "test-%u", ++stream_no);
    assert_int_equal(store_disk_memory(0, &x->disk), ERR_OK);
    assert_int_equal(store_disk_mkdir(x->disk, "j"), ERR_OK);
    x->cfg = (struct store_journal_config){.disk = x->disk,
                                           .dir = "j",
                                           .layout = {.align = 4096, .segment_bytes = SEGMENT},
                                           .epoch = 1,
                                           .frame_bytes_max = FRAME_MAX,
                                           .clock = clock_real()};
    sha256_of("", 0, &x->cfg.resume.root);
    x->last.new_root = x->cfg.resume.root;
    assert_int_equal(store_pg_stream_create(rig.dsn, "look", 1, &x->db), ERR_OK);
    if (connect_to(x->db) != ERR_OK)
        fail_msg("%s", store_pg_why(x->db));
    struct store_lease lease;
    assert_int_equal(store_pg_lease_found(x->db, x->stream, "me", soon(), &lease), ERR_OK);
    assert_int_equal(lease.epoch, 0);
    assert_string_equal(lease.identity, "me");
    x->sink = open_sink(x);
}

static void teardown(struct fixture *x) RT_BLOCKS
{
    store_sink_close(x->sink);
    store_pg_destroy(x->db);
    store_disk_destroy(x->disk);
}

static struct store_frame next_frame(const struct fixture *x, char fill)
{
    struct store_frame f = {.group_no = x->last.group_no + 1,
                            .first_seq = x->last.first_seq + x->last.count,
                            .count = 3,
                            .count2 = 2,
                            .ms = 77,
                            .prev_root = x->last.new_root};
    if (f.first_seq == 0)
        f.first_seq = 1;
    char text[100];
    int n = snprintf(text, sizeof text, "%llu%c", (unsigned long long)f.group_no, fill);
    sha256_of(text, (size_t)n, &f.new_root);
    return f;
}

static enum err append(struct fixture *x, char fill, size_t bytes) RT_BLOCKS
{
    static char payload[60000];
    memset(payload, fill, bytes);
    struct bytes parts[2] = {bytes_of(payload, bytes / 2),
                             bytes_of(payload + bytes / 2, bytes - bytes / 2)};
    struct store_frame f = next_frame(x, fill);
    struct store_pos pos;
    enum err e = store_sink_append(x->sink, &f, parts, 2, &pos);
    if (e == ERR_OK)
        x->last = f;
    return e;
}

struct seen {
    unsigned n;
    struct store_frame last;
    char first_byte;
    size_t bytes;
};

static enum err on_row(void *ctx, const struct store_frame *f)
{
    struct seen *s = ctx;
    s->n++;
    s->last = *f;
    s->bytes = f->payload.n;
    s->first_byte = f->payload.n ? (char)f->payload.p[0] : 0;
    return ERR_OK;
}

static struct seen rows_of(struct fixture *x) RT_BLOCKS
{
    struct seen s = {0};
    unsigned n = 1;
    bool rest = false;
    if (!store_pg_connected(x->db))
        assert_int_equal(connect_to(x->db), ERR_OK);
    while (n > 0)
        assert_int_equal(store_pg_frames(x->db, x->stream, s.n + 1, 4, soon(), on_row, &s, &n, &rest),
                         ERR_OK);
    return s;
}

static void writer(struct fixture *x) RT_BLOCKS
{
    setup(x);
    assert_int_equal(store_pg_lease_take(x->db, x->stream, "a", "http://a", 60000, true, soon(), &x->epoch),
                     ERR_OK);
    store_sink_replica_epoch(x->sink, x->epoch);
}

RT_BLOCKS
static void only_a_quorum_of_a_list_is_enough(void **state)
{
    (void)state;
    unsigned k = 0;
    assert_true(store_pg_sync_names_ok("ANY 1 (s1,s2)", &k));
    assert_int_equal(k, 1);
    assert_true(store_pg_sync_names_ok("  any 2 (a, b, c)", &k));
    assert_int_equal(k, 2);
    assert_false(store_pg_sync_names_ok("", &k));
    assert_false(store_pg_sync_names_ok("*", &k));
    assert_false(store_pg_sync_names_ok("s1,s2", &k));
    assert_false(store_pg_sync_names_ok("FIRST 1 (s1,s2)", &k));
    assert_false(store_pg_sync_names_ok("ANY 0 (s1)", &k));
    assert_false(store_pg_sync_names_ok("ANY (s1)", &k));
}

RT_BLOCKS
static void a_body_comes_back_and_every_flipped_bit_is_found(void **state)
{
    (void)state;
    struct buf a, b, c;
    buf_init(&a, 1 << 20);
    buf_init(&b, 1 << 20);
    buf_init(&c, 1 << 20);
    static char text[5000];
    for (size_t n = 0; n < sizeof text; n = n * 3 + 1) {
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + i * i % 7);
        struct bytes part = bytes_of(text, n);
        struct store_frame f = {.ms = 12345678901, .count2 = 9}, g = {0};
        assert_int_equal(store_pg_body_encode(&f, &part, 1, &a, &b), ERR_OK);
        assert_int_equal(store_pg_body_decode(buf_bytes(&b), &c, &g), ERR_OK);
        assert_true(g.ms == f.ms && g.count2 == 9 && g.payload.n == n);
        assert_memory_equal(g.payload.p, text, n);
        if (n > 600)
            assert_true(b.n < n); /* packed */
        for (size_t bit = 0; bit < b.n * 8; bit += 1 + bit / 64) {
            b.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(store_pg_body_decode(buf_bytes(&b), &c, &g), ERR_CORRUPT);
            b.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
    buf_fini(&a);
    buf_fini(&b);
    buf_fini(&c);
}

RT_BLOCKS
static void an_appended_group_is_in_both_places(void **state)
{
    (void)state;
    struct fixture x;
    writer(&x);
    for (int i = 0; i < 9; i++)
        assert_int_equal(append(&x, (char)('a' + i), i == 4 ? 50000 : 700), ERR_OK);
    struct seen s = rows_of(&x);
    struct store_head local;
    store_journal_head(x.sink->journal, &local);
    assert_int_equal(s.n, 9);
    assert_int_equal(local.last_group, 9);
    assert_true(sha256_eq(&s.last.new_root, &local.root));
    assert_true(s.last.epoch == x.epoch && s.last.count == 3 && s.last.count2 == 2 && s.last.ms == 77);
    assert_true(s.first_byte == 'i' && s.bytes == 700);
    struct store_pg_head head;
    assert_int_equal(store_pg_stream_head(x.db, x.stream, soon(), &head), ERR_OK);
    assert_true(head.group_no == 9 && head.next_seq == 28 && head.epoch == x.epoch);
    teardown(&x);
}

RT_BLOCKS
static void an_old_epoch_adds_nothing_and_is_told_who_writes(void **state)
{
    (void)state;
    struct fixture x;
    writer(&x);
    assert_int_equal(append(&x, 'a', 10), ERR_OK);
    uint64_t epoch;
    assert_int_equal(store_pg_lease_take(x.db, x.stream, "thief", "http://b", 1000, true, soon(), &epoch),
                     ERR_OK);
    assert_int_equal(epoch, x.epoch + 1);
    assert_int_equal(append(&x, 'b', 10), ERR_FENCED);
    assert_non_null(strstr(store_sink_replica_why(x.sink), "thief writes in epoch"));
    assert_int_equal(append(&x, 'c', 10), ERR_FENCED);
    assert_true(store_sink_failed(x.sink));
    assert_int_equal(rows_of(&x).n, 1);
    teardown(&x);
}

RT_BLOCKS
static void a_group_that_continues_another_root_is_refused_and_both_roots_are_named(void **state)
{
    (void)state;
    struct fixture x;
    writer(&x);
    assert_int_equal(append(&x, 'a', 10), ERR_OK);
    char sql[200];
    snprintf(sql, sizeof sql, "update ron_frame set new_root = sha256('x') where stream = '%s'", x.stream);
    pg_rig_sql(&rig, "p", sql);
    assert_int_equal(append(&x, 'b', 10), ERR_FENCED);
    const char *why = store_sink_replica_why(x.sink);
    assert_non_null(strstr(why, "group 2 follows root "));
    assert_non_null(strstr(why, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"));
    assert_int_equal(rows_of(&x).n, 1);
    teardown(&x);
}

RT_BLOCKS
static void a_lease_is_one_holders_until_the_databases_clock_says_otherwise(void **state)
{
    (void)state;
    struct fixture x;
    setup(&x);
    uint64_t e1, e2;
    struct store_lease lease;
    assert_int_equal(store_pg_lease_take(x.db, x.stream, "a", "http://a", 60000, false, soon(), &e1),
                     ERR_OK);
    assert_int_equal(store_pg_lease_take(x.db, x.stream, "b", "http://b", 60000, false, soon(), &e2),
                     ERR_LOCKED);
    assert_int_equal(store_pg_lease_take(x.db, x.stream, "a", "http://a", 60000, false, soon(), &e2),
                     ERR_OK); /* its own, after a restart */
    assert_int_equal(e2, e1 + 1);
    assert_int_equal(store_pg_lease_renew(x.db, x.stream, e1, 60000, soon()), ERR_FENCED);
    assert_int_equal(store_pg_lease_renew(x.db, x.stream, e2, 100, soon()), ERR_OK);
    assert_int_equal(store_pg_lease_read(x.db, x.stream, soon(), &lease), ERR_OK);
    assert_true(lease.left_ms <= 100 && lease.epoch == e2);
    assert_string_equal(lease.holder, "a");
    assert_string_equal(lease.url, "http://a");
    enum err e = ERR_LOCKED;
    for (struct deadline by = soon(); e == ERR_LOCKED && !deadline_passed(by);)
        e = store_pg_lease_take(x.db, x.stream, "b", "http://b", 60000, false, soon(), &e1);
    assert_int_equal(e, ERR_OK);
    assert_int_equal(store_pg_lease_renew(x.db, x.stream, e1, 0, soon()), ERR_OK); /* given back */
    assert_int_equal(store_pg_lease_take(x.db, x.stream, "a", "", 60000, false, soon(), &e2), ERR_OK);
    teardown(&x);
}

RT_BLOCKS
static void a_broken_connection_is_resolved_by_looking(void **state)
{
    (void)state;
    struct fixture x;
    writer(&x);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(append(&x, (char)('a' + i), 300), ERR_OK);
        pg_rig_sql(
            &rig, "p",
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'test'");
    }
    struct seen s = rows_of(&x);
    assert_int_equal(s.n, 6);
    assert_true(sha256_eq(&s.last.new_root, &x.last.new_root));
    teardown(&x);
}

RT_BLOCKS
static void a_row_that_was_stored_but_not_acknowledged_is_found_and_not_doubled(void **state)
{
    (void)state;
    struct fixture x;
    writer(&x);
    assert_int_equal(append(&x, 'a', 300), ERR_OK);
    /* The next group is already there, as if its acknowledgement had been lost on the way. */
    struct store_frame f = next_frame(&x, 'b');
    struct buf a, b;
    buf_init(&a, 1 << 20);
    buf_init(&b, 1 << 20);
    f.epoch = x.epoch;
    struct bytes part = bytes_of("bbbb", 4);
    assert_int_equal(store_pg_body_encode(&f, &part, 1, &a, &b), ERR_OK);
    assert_int_equal(store_pg_append_send(x.db, x.stream, &f, buf_bytes(&b), soon()), ERR_OK);
    assert_int_equal(store_pg_append_finish(x.db, soon()), ERR_OK);
    assert_int_equal(append(&x, 'b', 4), ERR_OK);
    assert_int_equal(append(&x, 'c', 4), ERR_OK);
    assert_int_equal(rows_of(&x).n, 3);
    /* Another group under its number is a fork. */
    f = next_frame(&x, 'z');
    f.epoch = x.epoch;
    assert_int_equal(store_pg_append_send(x.db, x.stream, &f, buf_bytes(&b), soon()), ERR_OK);
    assert_int_equal(store_pg_append_finish(x.db, soon()), ERR_OK);
    assert_int_equal(append(&x, 'd', 4), ERR_FENCED);
    buf_fini(&a);
    buf_fini(&b);
    teardown(&x);
}

struct appending {
    struct fixture *x;
    pthread_t thread;
    _Atomic bool done;
    enum err err;
};

RT_BLOCKS
static void *append_b(void *arg)
{
    struct appending *a = arg;
    a->err = append(a->x, 'b', 300);
    atomic_store(&a->done, true);
    return NULL;
}

/* Until a session of the sink waits for the standbys. False: the append has ended instead, or a minute has passed. */
static bool await_waiting(struct appending *a)
{
    struct deadline by = deadline_in_ms(60000);
    long n;
    while ((n = pg_rig_number(&rig, "p",
                              "select count(*) from pg_stat_activity where wait_event = 'SyncRep' and "
                              "application_name = 'test'")) <= 0 &&
           !atomic_load(&a->done) && !deadline_passed(by))
        ;
    return n > 0;
}

static bool await_row(struct fixture *x, struct appending *a) RT_BLOCKS
{
    struct deadline by = deadline_in_ms(60000);
    struct sha256 root;
    uint64_t epoch;
    enum err e;
    while ((e = store_pg_frame_root(x->db, x->stream, 2, soon(), &root, &epoch)) == ERR_NOT_FOUND &&
           !atomic_load(&a->done) && !deadline_passed(by))
        ;
    return e == ERR_OK;
}

/*
 * A commit whose wait for the standbys was cut off is there for everybody to see, on one server. Whoever looks must not take that for
 * an answer: it could still be lost with the server.
 */
RT_BLOCKS
static void wait_is_cut_off_by(const char *sql)
{
    struct fixture x;
    writer(&x);
    assert_int_equal(append(&x, 'a', 300), ERR_OK);
    struct appending a = {.x = &x};
    pg_rig_do(&rig, "freeze s1");
    pg_rig_do(&rig, "freeze s2");
    assert_int_equal(pthread_create(&a.thread, NULL, append_b, &a), 0);
    bool sent = await_waiting(&a);
    pg_rig_sql(&rig, "p", sql);
    bool there = await_row(&x, &a);
    bool waits = await_waiting(&a); /* looking ends in a wait for the standbys, not in an answer */
    bool answered = atomic_load(&a.done);
    pg_rig_do(&rig, "thaw s1");
    pg_rig_do(&rig, "thaw s2");
    assert_int_equal(pthread_join(a.thread, NULL), 0);
    assert_true(sent && there);
    assert_true(waits && !answered);
    assert_int_equal(a.err, ERR_OK);
    assert_int_equal(rows_of(&x).n, 2);
    teardown(&x);
}

RT_BLOCKS
static void a_row_that_only_the_primary_has_is_not_acknowledged(void **state)
{
    (void)state;
    wait_is_cut_off_by(
        "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'SyncRep' and "
        "application_name = 'test'");
}

/* The server says that it was done, with a warning. */
RT_BLOCKS
static void a_commit_whose_wait_was_cancelled_is_not_acknowledged(void **state)
{
    (void)state;
    wait_is_cut_off_by(
        "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep' and "
        "application_name = 'test'");
}

/* ---- the local half ---- */

static enum err refuse(struct store_sink *s, const struct store_frame *f, const struct bytes *parts,
                       size_t n_parts, struct store_pos *out_pos)
{
    (void)s, (void)f, (void)parts, (void)n_parts, (void)out_pos;
    return ERR_IO;
}

RT_BLOCKS
static void a_group_that_the_local_disk_refused_is_not_acknowledged_though_the_quorum_has_it(void **state)
{
    (void)state;
    struct fixture x;
    writer(&x);
    assert_int_equal(append(&x, 'a', 300), ERR_OK);
    struct store_sink *local = store_sink_replica_local(x.sink);
    const struct store_sink_ops *whole = local->ops;
    struct store_sink_ops broken = *whole;
    broken.append = refuse;
    local->ops = &broken;
    assert_int_equal(append(&x, 'b', 300), ERR_IO);
    local->ops = whole;
    teardown(&x);
}

static enum err no_room(struct store_sink *s, const struct store_frame *f, const struct bytes *parts,
                        size_t n_parts, struct store_pos *out_pos)
{
    (void)s, (void)f, (void)parts, (void)n_parts, (void)out_pos;
    return ERR_NO_SPACE;
}

/* One group is refused by a full local disk while its row reaches the quorum; then there is room. */
static void full_for_one_group(struct fixture *x, char fill) RT_BLOCKS
{
    struct store_sink *local = store_sink_replica_local(x->sink);
    const struct store_sink_ops *whole = local->ops;
    struct store_sink_ops full = *whole;
    full.append = no_room;
    local->ops = &full;
    assert_int_equal(append(x, fill, 300), ERR_NO_SPACE);
    local->ops = whole;
    AWAIT(rows_of(x).n == 2);
}

RT_BLOCKS
static void the_answer_to_a_refused_group_is_not_read_as_the_next_ones(void **state)
{
    (void)state;
    struct fixture x;
    struct store_frame stored;
    writer(&x);
    assert_int_equal(append(&x, 'a', 300), ERR_OK);
    stored = next_frame(&x, 'b');
    full_for_one_group(&x, 'b');
    assert_int_equal(append(&x, 'c', 300), ERR_FENCED); /* PostgreSQL has another group of this number */
    struct seen s = rows_of(&x);
    assert_int_equal(s.n, 2);
    assert_true(sha256_eq(&s.last.new_root, &stored.new_root));
    teardown(&x);
}

RT_BLOCKS
static void a_group_that_was_refused_for_want_of_room_counts_once_when_it_comes_again(void **state)
{
    (void)state;
    struct fixture x;
    writer(&x);
    assert_int_equal(append(&x, 'a', 300), ERR_OK);
    full_for_one_group(&x, 'b');
    assert_int_equal(append(&x, 'b', 300), ERR_OK);
    assert_int_equal(append(&x, 'c', 300), ERR_OK);
    assert_int_equal(rows_of(&x).n, 3);
    teardown(&x);
}

static struct seen local_of(struct fixture *x) RT_BLOCKS
{
    struct seen s = {0};
    struct store_head h;
    store_journal_head(x->sink->journal, &h);
    s.n = (unsigned)h.last_group;
    return s;
}

static enum err remember(void *ctx, const struct store_frame *f, struct store_pos at)
{
    (void)f;
    *(struct store_pos *)ctx = at;
    return ERR_OK;
}

RT_BLOCKS
static void an_orphan_is_set_aside_and_the_journal_goes_on_before_it(void **state)
{
    (void)state;
    struct fixture x;
    writer(&x);
    for (int i = 0; i < 3; i++)
        assert_int_equal(append(&x, (char)('a' + i), 5000), ERR_OK);
    for (int orphan = 0; orphan < 3; orphan++) { /* the last one is also the segment's first */
        struct store_pos at = {0, 0};
        struct store_head before, after;
        struct store_stat st;
        assert_int_equal(store_sink_replay(x.sink, 1, remember, &at), ERR_OK);
        store_journal_head(x.sink->journal, &before);
        assert_int_equal(store_journal_set_aside(x.sink->journal, at, "j/x.orphan"), ERR_OK);
        assert_true(store_sink_failed(x.sink));
        assert_int_equal(store_disk_stat(x.disk, "j/x.orphan", &st), ERR_OK);
        assert_true(st.bytes >= 5000);
        store_sink_close(x.sink);
        x.cfg.epoch = x.epoch;
        x.sink = open_sink(&x);
        store_journal_head(x.sink->journal, &after);
        assert_int_equal(after.last_group, before.last_group - 1);
        assert_int_equal(local_of(&x).n, 2 - orphan);
    }
    teardown(&x);
}

struct listing {
    unsigned n;
    char last[64];
    uint64_t epoch;
};

static void on_lease(void *ctx, const char *stream, const struct store_lease *lease)
{
    struct listing *x = ctx;
    x->n++;
    snprintf(x->last, sizeof x->last, "%s", stream);
    x->epoch = lease->epoch;
}

RT_BLOCKS
static void leases_are_listed_by_the_beginning_of_their_streams(void **state)
{
    (void)state;
    struct fixture x;
    struct store_lease lease;
    char shard[64];
    struct listing got = {0};
    setup(&x);
    snprintf(shard, sizeof shard, "%s/07", x.stream);
    assert_int_equal(store_pg_lease_found(x.db, shard, "", soon(), &lease), ERR_OK);
    uint64_t epoch;
    assert_int_equal(store_pg_lease_take(x.db, shard, "a", "http://a", 60000, false, soon(), &epoch),
                     ERR_OK);
    assert_int_equal(store_pg_leases(x.db, x.stream, soon(), on_lease, &got), ERR_OK);
    assert_int_equal(got.n, 2);
    assert_string_equal(got.last, shard);
    assert_int_equal(got.epoch, epoch);
    got.n = 0;
    assert_int_equal(store_pg_leases(x.db, "nobody", soon(), on_lease, &got), ERR_OK);
    assert_int_equal(got.n, 0);
    teardown(&x);
}

static enum store_pg_verdict verdict(struct fixture *x, struct store_pg_ours ours) RT_BLOCKS
{
    struct store_pg_compared c;
    assert_int_equal(store_pg_compare(x->db, x->stream, &ours, soon(), &c), ERR_OK);
    return c.verdict;
}

RT_BLOCKS
static void a_journals_end_is_compared_and_only_its_last_frame_may_be_an_orphan(void **state)
{
    (void)state;
    struct fixture x;
    struct store_frame f[7];
    struct store_pg_head first;
    setup(&x);
    uint64_t epoch;
    assert_int_equal(store_pg_lease_take(x.db, x.stream, "a", "", 60000, false, soon(), &epoch), ERR_OK);
    store_sink_replica_epoch(x.sink, epoch);
    for (int i = 1; i <= 5; i++) {
        assert_int_equal(append(&x, 'a', 100), ERR_OK);
        f[i] = x.last;
    }
    f[6] = next_frame(&x, 'z'); /* written by us alone, never answered */
    struct sha256 other = {{1}};
    struct store_pg_ours ours = {.last_group = 5, .root = f[5].new_root, .prev_root = f[4].new_root};
    assert_int_equal(verdict(&x, (struct store_pg_ours){0}), STORE_PG_SAME);
    assert_int_equal(verdict(&x, ours), STORE_PG_SAME);
    ours.epoch = epoch;
    assert_int_equal(verdict(&x, ours), STORE_PG_SAME);
    ours.epoch = epoch + 1; /* the same units under the same root, but the row is another writer's */
    assert_int_equal(verdict(&x, ours), STORE_PG_ORPHAN);
    ours.acknowledged = true;
    assert_int_equal(verdict(&x, ours), STORE_PG_SAME);
    ours.acknowledged = false;
    ours.root = other; /* ours differs in the last frame alone */
    assert_int_equal(verdict(&x, ours), STORE_PG_ORPHAN);
    ours.acknowledged = true;
    assert_int_equal(verdict(&x, ours), STORE_PG_DIFFERS);
    ours = (struct store_pg_ours){.last_group = 6, .root = f[6].new_root, .prev_root = f[5].new_root};
    assert_int_equal(verdict(&x, ours), STORE_PG_ORPHAN);
    ours.prev_root = other;
    assert_int_equal(verdict(&x, ours), STORE_PG_DIFFERS);
    ours.last_group = 7;
    assert_int_equal(verdict(&x, ours), STORE_PG_DIFFERS);

    assert_int_equal(store_pg_trim(x.db, x.stream, epoch + 1, 3, soon()),
                     ERR_OK); /* not our epoch: nothing goes */
    assert_int_equal(rows_of(&x).n, 5);
    assert_int_equal(store_pg_trim(x.db, x.stream, epoch, 3, soon()), ERR_OK);
    assert_int_equal(store_pg_stream_first(x.db, x.stream, soon(), &first), ERR_OK);
    assert_int_equal(first.group_no, 4);
    assert_true(sha256_eq(&first.root, &f[3].new_root)); /* what it continues */
    ours = (struct store_pg_ours){.last_group = 3, .root = f[3].new_root, .prev_root = f[2].new_root};
    assert_int_equal(verdict(&x, ours), STORE_PG_SAME);
    ours = (struct store_pg_ours){.last_group = 2, .root = f[2].new_root, .prev_root = f[1].new_root};
    assert_int_equal(verdict(&x, ours), STORE_PG_STALE);
    ours = (struct store_pg_ours){.last_group = 4, .root = other, .prev_root = f[3].new_root};
    assert_int_equal(verdict(&x, ours), STORE_PG_ORPHAN);
    ours.prev_root = other;
    assert_int_equal(verdict(&x, ours), STORE_PG_DIFFERS);
    assert_int_equal(append(&x, 'b', 100), ERR_OK); /* the stream goes on */
    teardown(&x);
}

static bool server_has(const char *setting, bool on)
{
    char sql[100];
    snprintf(sql, sizeof sql, "select count(*) from pg_settings where name = '%s' and setting = '%s'",
             setting, on ? "on" : "off");
    return pg_rig_number(&rig, "p", sql) == 1;
}

/* A setting of the whole server, which takes effect when it has read its files again. */
static void refused_without(const char *setting) RT_BLOCKS
{
    struct store_pg *p;
    char sql[100], why[100];
    snprintf(sql, sizeof sql, "alter system set %s = off", setting);
    pg_rig_sql(&rig, "p", sql);
    pg_rig_sql(&rig, "p", "select pg_reload_conf()");
    AWAIT(server_has(setting, false));
    assert_int_equal(store_pg_stream_create(rig.dsn, "test", 1, &p), ERR_OK);
    assert_int_equal(connect_to(p), ERR_UNAVAILABLE);
    snprintf(why, sizeof why, "PostgreSQL must have %s = on, not: off", setting);
    assert_string_equal(store_pg_why(p), why);
    snprintf(sql, sizeof sql, "alter system reset %s", setting);
    pg_rig_sql(&rig, "p", sql);
    pg_rig_sql(&rig, "p", "select pg_reload_conf()");
    AWAIT(server_has(setting, true));
    assert_int_equal(connect_to(p), ERR_OK);
    store_pg_destroy(p);
}

RT_BLOCKS
static void a_server_that_does_not_keep_its_word_is_refused_with_a_sentence(void **state)
{
    (void)state;
    struct store_pg *p;
    assert_int_equal(store_pg_stream_create(rig.dsn, "test", 1, &p), ERR_OK);
    pg_rig_sql(&rig, "p", "alter role ron set synchronous_commit = off");
    assert_int_equal(connect_to(p), ERR_UNAVAILABLE);
    assert_string_equal(store_pg_why(p), "PostgreSQL must have synchronous_commit = on, not: off");
    pg_rig_sql(&rig, "p", "alter role ron reset synchronous_commit");
    assert_int_equal(connect_to(p), ERR_OK);
    store_pg_destroy(p);
    refused_without("fsync");
    refused_without("full_page_writes");
    assert_int_equal(store_pg_stream_create(rig.dsn, "test", 2, &p), ERR_OK);
    assert_int_equal(connect_to(p), ERR_UNAVAILABLE);
    assert_string_equal(store_pg_why(p),
                        "PostgreSQL must have synchronous_standby_names = 'ANY k (...)' with "
                        "k >= 2, not 'ANY 1 (s1,s2)'");
    store_pg_destroy(p);
    assert_int_equal(store_pg_stream_create("host=/nowhere-at-all", "test", 1, &p), ERR_OK);
    assert_int_equal(store_pg_connect(p, soon()), ERR_REFUSED);
    store_pg_destroy(p);
    assert_int_equal(store_pg_stream_create("what=ever", "test", 1, &p), ERR_SYNTAX);
}

RT_BLOCKS
static void a_frozen_server_costs_no_more_than_the_deadline(void **state)
{
    (void)state;
    struct fixture x;
    setup(&x);
    struct store_lease lease;
    pg_rig_do(&rig, "freeze p");
    struct deadline by = deadline_in_ms(300);
    assert_int_equal(store_pg_lease_read(x.db, x.stream, by, &lease), ERR_TIMEOUT);
    assert_false(store_pg_connected(x.db));
    assert_int_not_equal(store_pg_connect(x.db, deadline_in_ms(300)), ERR_OK);
    assert_true(deadline_left_ms(deadline_at_ns(by.at_ns + INT64_C(3000000000))) > 0);
    pg_rig_do(&rig, "thaw p");
    assert_int_equal(connect_to(x.db), ERR_OK);
    assert_int_equal(store_pg_lease_read(x.db, x.stream, soon(), &lease), ERR_OK);
    teardown(&x);
}

/* A listener whose connections nobody takes: the kernel greets, and that is all. */
static int silent_server(int *out_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 && listen(fd, 64) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    *out_port = ntohs(at.sin_port);
    return fd;
}

RT_BLOCKS
static void a_silent_host_first_in_the_list_does_not_take_the_time_of_the_others_for_ever(void **state)
{
    (void)state;
    char dsn[700];
    const char *hosts = strstr(rig.dsn, "host=") + 5, *ports = strstr(rig.dsn, "port=") + 5;
    int port, fd = silent_server(&port);
    struct store_pg *pg;
    snprintf(dsn, sizeof dsn, "host=127.0.0.1,%.*s port=%d,%.*s dbname=ron user=ron",
             (int)strcspn(hosts, " "), hosts, port, (int)strcspn(ports, " "), ports);
    assert_int_equal(store_pg_stream_create(dsn, "test", 1, &pg), ERR_OK);
    assert_int_equal(store_pg_connect(pg, deadline_in_ms(100)), ERR_TIMEOUT);
    /* As many attempts as a busy machine needs, none of them longer than the silent one is waited for. */
    enum err e = ERR_TIMEOUT;
    for (int i = 0; i < 40 && e != ERR_OK; i++)
        e = store_pg_connect(pg, deadline_in_ms(900));
    if (e != ERR_OK)
        fail_msg("%s", store_pg_why(pg));
    store_pg_destroy(pg);
    close(fd);
}

/* Last: it leaves the cluster without p. */
RT_BLOCKS
static void when_the_primary_dies_the_group_waits_for_the_promoted_one(void **state)
{
    (void)state;
    struct fixture x;
    writer(&x);
    for (int i = 0; i < 5; i++)
        assert_int_equal(append(&x, (char)('a' + i), 900), ERR_OK);
    pg_rig_do(&rig, "kill p");
    pg_rig_do(&rig, "promote");
    assert_int_equal(append(&x, 'f', 900), ERR_OK);
    store_pg_drop(x.db);
    struct seen s = rows_of(&x);
    assert_int_equal(s.n, 6);
    assert_true(sha256_eq(&s.last.new_root, &x.last.new_root));
    teardown(&x);
}

RT_BLOCKS
static int start(void **state)
{
    (void)state;
    return pg_rig_start(&rig) ? 0 : -1;
}

RT_BLOCKS
static int stop(void **state)
{
    (void)state;
    pg_rig_stop(&rig);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_quorum_of_a_list_is_enough),
        cmocka_unit_test(a_body_comes_back_and_every_flipped_bit_is_found),
        cmocka_unit_test(an_appended_group_is_in_both_places),
        cmocka_unit_test(an_old_epoch_adds_nothing_and_is_told_who_writes),
        cmocka_unit_test(a_group_that_continues_another_root_is_refused_and_both_roots_are_named),
        cmocka_unit_test(a_lease_is_one_holders_until_the_databases_clock_says_otherwise),
        cmocka_unit_test(leases_are_listed_by_the_beginning_of_their_streams),
        cmocka_unit_test(a_journals_end_is_compared_and_only_its_last_frame_may_be_an_orphan),
        cmocka_unit_test(a_broken_connection_is_resolved_by_looking),
        cmocka_unit_test(a_row_that_was_stored_but_not_acknowledged_is_found_and_not_doubled),
        cmocka_unit_test(a_row_that_only_the_primary_has_is_not_acknowledged),
        cmocka_unit_test(a_commit_whose_wait_was_cancelled_is_not_acknowledged),
        cmocka_unit_test(a_group_that_the_local_disk_refused_is_not_acknowledged_though_the_quorum_has_it),
        cmocka_unit_test(the_answer_to_a_refused_group_is_not_read_as_the_next_ones),
        cmocka_unit_test(a_group_that_was_refused_for_want_of_room_counts_once_when_it_comes_again),
        cmocka_unit_test(an_orphan_is_set_aside_and_the_journal_goes_on_before_it),
        cmocka_unit_test(a_server_that_does_not_keep_its_word_is_refused_with_a_sentence),
        cmocka_unit_test(a_frozen_server_costs_no_more_than_the_deadline),
        cmocka_unit_test(a_silent_host_first_in_the_list_does_not_take_the_time_of_the_others_for_ever),
        cmocka_unit_test(when_the_primary_dies_the_group_waits_for_the_promoted_one),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
