#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/disk_faulty.h"
#include "store/journal.h"
#include "store/sink.h"

enum { SEGMENT = 32768, FRAME_MAX = 12288 };

struct fixture {
    struct store_disk *disk;
    struct store_journal_config cfg;
    struct store_journal *j;
    struct store_journal_report report;
    uint64_t replayed, replayed_bytes;
    uint32_t sealed[16];
    size_t n_sealed;
};

static enum err on_frame(void *ctx, const struct store_frame *f, struct store_pos at)
{
    struct fixture *x = ctx;
    assert_true(at.offset >= 4096);
    x->replayed++;
    x->replayed_bytes += f->payload.n;
    for (size_t i = 0; i < f->payload.n; i++)
        assert_int_equal(f->payload.p[i], 'a' + f->group_no % 26);
    return ERR_OK;
}

static void on_sealed(void *ctx, const struct store_segment *s)
{
    struct fixture *x = ctx;
    assert_true(s->sealed);
    x->sealed[x->n_sealed++] = s->segment_no;
}

static void setup_with(struct fixture *x, struct store_disk *disk, const char *dir)
{
    memset(x, 0, sizeof *x);
    x->disk = disk;
    x->cfg = (struct store_journal_config){
        .disk = disk,
        .dir = dir,
        .layout = {.align = 4096, .segment_bytes = SEGMENT},
        .epoch = 1,
        .frame_bytes_max = FRAME_MAX,
        .clock = clock_real(),
        .on_sealed = on_sealed,
        .sealed_ctx = x,
    };
    memset(x->cfg.stream_id, 7, 16);
}

RT_BLOCKS
static void setup_faulty(struct fixture *x)
{
    struct store_disk *d;
    assert_int_equal(store_disk_faulty(1, NULL, &d), ERR_OK);
    assert_int_equal(store_disk_mkdir(d, "j"), ERR_OK);
    assert_int_equal(store_disk_sync_dir(d, "."), ERR_OK);
    setup_with(x, d, "j");
}

RT_BLOCKS
static enum err reopen(struct fixture *x)
{
    store_journal_close(x->j);
    x->j = NULL;
    x->replayed = x->replayed_bytes = 0;
    return store_journal_open(&x->cfg, on_frame, x, &x->report, &x->j);
}

RT_BLOCKS
static void teardown(struct fixture *x)
{
    store_journal_close(x->j);
    store_disk_destroy(x->disk);
}

RT_BLOCKS
static enum err append(struct fixture *x, size_t n, struct store_pos *out)
{
    struct store_head h;
    uint8_t payload[FRAME_MAX];
    store_journal_head(x->j, &h);
    struct store_frame f = {
        .group_no = h.last_group + 1, .first_seq = h.next_seq, .count = 2, .count2 = 1, .ms = 5};
    f.prev_root = h.root;
    memset(payload, (int)('a' + f.group_no % 26), sizeof payload);
    memset(f.new_root.b, (int)f.group_no, 32);
    struct bytes part = {payload, n};
    return store_journal_append(x->j, &f, &part, 1, out);
}

RT_BLOCKS
static void spare(struct fixture *x)
{
    assert_int_equal(store_journal_prepare_spare(x->j), ERR_OK);
}

RT_BLOCKS
static void open_faulty(struct fixture *x)
{
    setup_faulty(x);
    assert_int_equal(reopen(x), ERR_OK);
}

/* With room: a spare is made before each. */
RT_BLOCKS
static void append_many(struct fixture *x, int times, size_t n)
{
    for (int i = 0; i < times; i++) {
        struct store_pos pos;
        spare(x);
        assert_int_equal(append(x, n, &pos), ERR_OK);
    }
}

RT_BLOCKS
static void what_was_appended_is_replayed_in_order(void **state)
{
    (void)state;
    struct fixture x;
    struct store_pos pos;
    open_faulty(&x);
    spare(&x);
    for (int i = 0; i < 5; i++)
        assert_int_equal(append(&x, 100, &pos), ERR_OK);
    assert_int_equal(pos.segment, 1);
    assert_int_equal(pos.offset, 4096 * 5);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_int_equal(x.replayed, 5);
    assert_int_equal(x.report.torn_bytes, 0);
    struct store_head h;
    store_journal_head(x.j, &h);
    assert_int_equal(h.last_group, 5);
    assert_int_equal(h.next_seq, 11);
    assert_int_equal(h.root.b[0], 5);
    assert_int_equal(append(&x, 100, &pos), ERR_OK);
    assert_int_equal(pos.offset, 4096 * 6);
    teardown(&x);
}

RT_BLOCKS
static void a_frame_that_does_not_fit_goes_into_the_spare_and_seals(void **state)
{
    (void)state;
    struct fixture x;
    struct store_pos pos;
    open_faulty(&x);
    assert_int_equal(append(&x, 10, &pos), ERR_NO_SPACE); /* not even a first segment */
    assert_true(store_journal_wants_spare(x.j));
    spare(&x);
    assert_false(store_journal_wants_spare(x.j));
    for (int i = 0; i < 7; i++)
        assert_int_equal(append(&x, 10, &pos), ERR_OK);
    assert_int_equal(store_journal_room(x.j).active, 0);
    assert_int_equal(store_journal_room(x.j).spare, 0);
    assert_false(store_journal_fits(x.j, 10));
    assert_int_equal(append(&x, 10, &pos), ERR_NO_SPACE);
    spare(&x);
    assert_int_equal(store_journal_room(x.j).spare, SEGMENT - 4096);
    assert_true(store_journal_fits(x.j, 10));
    assert_int_equal(x.n_sealed, 0);
    assert_int_equal(append(&x, 5000, &pos), ERR_OK);
    assert_int_equal(pos.segment, 2);
    assert_int_equal(pos.offset, 4096);
    assert_int_equal(x.n_sealed, 1);
    assert_int_equal(x.sealed[0], 1);
    struct store_segment seg[4];
    assert_int_equal(store_journal_segments(x.j, seg, 4), 2);
    assert_true(seg[0].sealed && !seg[1].sealed);
    assert_int_equal(seg[1].first_group, 8);
    assert_int_equal(seg[1].bytes_used, 4096 + 8192);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_int_equal(x.replayed, 8);
    teardown(&x);
}

RT_BLOCKS
static void a_frame_that_is_too_large_is_refused_before_any_byte(void **state)
{
    (void)state;
    struct fixture x;
    struct store_pos pos;
    open_faulty(&x);
    spare(&x);
    store_disk_faulty_plan(x.disk, NULL);
    assert_int_equal(append(&x, FRAME_MAX - 143, &pos), ERR_TOO_LARGE);
    assert_int_equal(store_disk_faulty_writes(x.disk), 0);
    assert_int_equal(append(&x, FRAME_MAX - 144, &pos), ERR_OK);
    teardown(&x);
}

RT_BLOCKS
static void an_append_is_one_write_and_one_flush(void **state)
{
    (void)state;
    struct fixture x;
    struct store_pos pos;
    open_faulty(&x);
    spare(&x);
    assert_int_equal(append(&x, 10, &pos), ERR_OK);
    store_disk_faulty_plan(x.disk, NULL);
    assert_int_equal(append(&x, 10, &pos), ERR_OK);
    assert_int_equal(store_disk_faulty_calls(x.disk), 2);
    x.cfg.direct = true; /* O_DSYNC: the write is the flush */
    assert_int_equal(reopen(&x), ERR_OK);
    store_disk_faulty_plan(x.disk, NULL);
    assert_int_equal(append(&x, 10, &pos), ERR_OK);
    assert_int_equal(store_disk_faulty_calls(x.disk), 1);
    store_disk_faulty_plan(x.disk, &(struct store_fault_plan){.no_direct = true});
    assert_int_equal(reopen(&x), ERR_OK); /* refused direct I/O falls back to buffered */
    struct store_journal_stats stats;
    store_journal_stats(x.j, &stats);
    assert_false(stats.direct);
    assert_int_equal(append(&x, 10, &pos), ERR_OK);
    teardown(&x);
}

RT_BLOCKS
static void frames_are_read_back_by_position_and_checked(void **state)
{
    (void)state;
    struct fixture x;
    struct store_pos pos[20];
    struct buf b;
    struct store_frame f;
    buf_init(&b, SEGMENT);
    open_faulty(&x);
    for (int i = 0; i < 20; i++) {
        spare(&x);
        assert_int_equal(append(&x, 300, &pos[i]), ERR_OK);
    }
    for (int i = 0; i < 20; i++) {
        assert_int_equal(store_journal_read(x.j, pos[i], &b, &f), ERR_OK);
        assert_int_equal(f.group_no, i + 1);
        assert_int_equal(f.payload.n, 300);
    }
    uint8_t p[10];
    assert_int_equal(
        store_journal_pread(x.j, (struct store_pos){pos[3].segment, pos[3].offset + 128}, p, 10), ERR_OK);
    assert_memory_equal(p, "eeeeeeeeee", 10);
    assert_int_equal(store_journal_pread(x.j, (struct store_pos){99, 0}, p, 10), ERR_NOT_FOUND);
    assert_int_equal(store_journal_pread(x.j, (struct store_pos){1, SEGMENT - 5}, p, 10), ERR_RANGE);
    assert_int_equal(store_disk_faulty_flip(x.disk, "j/00000001.seg", pos[2].offset + 200, 3), ERR_OK);
    assert_int_equal(store_journal_read(x.j, pos[2], &b, &f), ERR_CORRUPT);
    struct store_journal_report r;
    assert_int_equal(store_journal_scan(x.j, 1, NULL, NULL, &r), ERR_CORRUPT);
    assert_string_equal(r.bad_file, "00000001.seg");
    assert_int_equal(r.bad_offset, pos[2].offset);
    assert_int_equal(store_journal_scan(x.j, 2, NULL, NULL, &r), ERR_OK);
    assert_int_equal(store_journal_scan(x.j, 3, NULL, NULL, &r), ERR_OK);
    buf_fini(&b);
    teardown(&x);
}

RT_BLOCKS
static void replay_from_a_group_gives_that_group_and_all_after_it(void **state)
{
    (void)state;
    struct fixture x;
    open_faulty(&x);
    assert_int_equal(store_journal_replay(x.j, 1, on_frame, &x), ERR_OK);
    assert_int_equal(x.replayed, 0);
    append_many(&x, 20, 300);
    for (uint64_t from = 1; from <= 21; from++) {
        x.replayed = 0;
        assert_int_equal(store_journal_replay(x.j, from, on_frame, &x), ERR_OK);
        assert_int_equal(x.replayed, 21 - from);
    }
    teardown(&x);
}

RT_BLOCKS
static void opening_resumes_behind_a_checkpoint(void **state)
{
    (void)state;
    struct fixture x;
    struct store_pos pos;
    struct store_resume at[20];
    open_faulty(&x);
    for (int i = 0; i < 20; i++) {
        struct store_head h;
        spare(&x);
        assert_int_equal(append(&x, 300, &pos), ERR_OK);
        store_journal_head(x.j, &h);
        at[i] = (struct store_resume){h.end, h.last_group + 1, h.next_seq, h.root};
    }
    for (int i = 0; i < 20; i++) {
        x.cfg.resume = at[i];
        assert_int_equal(reopen(&x), ERR_OK);
        assert_int_equal(x.replayed, 19 - i);
        struct store_head h;
        store_journal_head(x.j, &h);
        assert_int_equal(h.last_group, 20);
    }
    x.cfg.resume = at[5];
    x.cfg.resume.root.b[0] ^= 1;
    assert_int_equal(reopen(&x), ERR_CORRUPT);
    x.cfg.resume = (struct store_resume){{9, 4096}, 1, 1, {{0}}};
    assert_int_equal(reopen(&x), ERR_CORRUPT);
    teardown(&x);
}

RT_BLOCKS
static void the_oldest_segment_can_be_dropped_and_a_gap_is_corruption(void **state)
{
    (void)state;
    struct fixture x;
    open_faulty(&x);
    append_many(&x, 25, 300);
    assert_int_equal(store_journal_drop(x.j, 2, false), ERR_BUSY);
    assert_int_equal(store_journal_drop(x.j, 4, false), ERR_BUSY); /* active */
    assert_int_equal(store_journal_drop(x.j, 1, false), ERR_OK);
    uint8_t p[4];
    assert_int_equal(store_journal_pread(x.j, (struct store_pos){1, 4096}, p, 4), ERR_NOT_FOUND);
    assert_int_equal(store_journal_pread(x.j, (struct store_pos){2, 4096}, p, 4), ERR_OK);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_int_equal(x.replayed, 18);
    assert_int_equal(store_disk_unlink(x.disk, "j/00000003.seg"), ERR_OK);
    assert_int_equal(reopen(&x), ERR_CORRUPT);
    assert_string_equal(x.report.bad_file, "00000003.seg");
    teardown(&x);
}

RT_BLOCKS
static void segments_that_lost_all_their_bytes_are_corruption(void **state)
{
    (void)state;
    for (uint32_t no = 1; no <= 3; no++) {
        struct fixture x;
        struct store_pos pos;
        setup_faulty(&x);
        assert_int_equal(reopen(&x), ERR_OK);
        for (int i = 0; i < 25; i++) {
            spare(&x);
            assert_int_equal(append(&x, 300, &pos), ERR_OK);
        }
        char path[STORE_PATH_MAX];
        struct store_file *f;
        store_journal_segment_path(path, "j", no);
        assert_int_equal(store_file_open(x.disk, path, STORE_WRITE, &f), ERR_OK);
        assert_int_equal(store_file_truncate(f, 0), ERR_OK);
        assert_int_equal(store_file_allocate(f, SEGMENT), ERR_OK);
        store_file_close(f);
        assert_int_equal(reopen(&x), ERR_CORRUPT);
        assert_string_equal(x.report.bad_file, path + 2);
        assert_true(x.report.group_missing);
        teardown(&x);
    }
}

RT_BLOCKS
static void a_foreign_stream_and_a_newer_epoch_are_refused(void **state)
{
    (void)state;
    struct fixture x;
    struct store_pos pos;
    setup_faulty(&x);
    x.cfg.epoch = 5;
    assert_int_equal(reopen(&x), ERR_OK);
    spare(&x);
    assert_int_equal(append(&x, 300, &pos), ERR_OK);
    x.cfg.epoch = 4;
    assert_int_equal(reopen(&x), ERR_CORRUPT);
    x.cfg.epoch = 6;
    assert_int_equal(reopen(&x), ERR_OK);
    x.cfg.stream_id[0]++;
    assert_int_equal(reopen(&x), ERR_CORRUPT);
    teardown(&x);
}

RT_BLOCKS
static void damage_can_be_opened_for_reading_only(void **state)
{
    (void)state;
    struct fixture x;
    struct store_pos pos, first;
    open_faulty(&x);
    spare(&x);
    assert_int_equal(append(&x, 300, &first), ERR_OK);
    assert_int_equal(append(&x, 300, &pos), ERR_OK);
    assert_int_equal(append(&x, 300, &pos), ERR_OK);
    assert_int_equal(store_disk_faulty_flip(x.disk, "j/00000001.seg", 8192 + 300, 0), ERR_OK);
    x.cfg.accept_damage = true;
    store_disk_faulty_plan(x.disk, NULL);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_int_equal(store_disk_faulty_writes(x.disk), 0);
    assert_true(x.report.damaged && x.report.group_missing);
    assert_int_equal(x.report.bad_offset, 8192);
    assert_int_equal(x.replayed, 1);
    assert_true(store_journal_failed(x.j));
    assert_int_equal(append(&x, 300, &pos), ERR_CLOSED);
    assert_int_equal(store_journal_prepare_spare(x.j), ERR_CLOSED);
    struct buf b;
    struct store_frame f;
    buf_init(&b, SEGMENT);
    assert_int_equal(store_journal_read(x.j, first, &b, &f), ERR_OK);
    buf_fini(&b);
    teardown(&x);
}

static enum err packed_from_copy(void *ctx, uint32_t no, void *p, size_t n, uint64_t at)
{
    uint8_t **copies = ctx;
    if (!copies[no])
        return ERR_NOT_FOUND;
    memcpy(p, copies[no] + at, n);
    return ERR_OK;
}

RT_BLOCKS
static void packed_segments_are_read_and_replayed_through_their_owner(void **state)
{
    (void)state;
    struct fixture x;
    struct store_pos pos, first;
    uint8_t *copies[8] = {NULL};
    setup_faulty(&x);
    x.cfg.packed_pread = packed_from_copy;
    x.cfg.packed_ctx = copies;
    x.cfg.first_segment = 1;
    assert_int_equal(reopen(&x), ERR_OK);
    for (int i = 0; i < 25; i++) {
        spare(&x);
        assert_int_equal(append(&x, 300, i ? &pos : &first), ERR_OK);
    }
    for (uint32_t no = 1; no <= 2; no++) {
        copies[no] = malloc(SEGMENT);
        assert_int_equal(store_journal_pread(x.j, (struct store_pos){no, 0}, copies[no], SEGMENT), ERR_OK);
        assert_int_equal(store_journal_drop(x.j, no, true), ERR_OK);
    }
    struct buf b;
    struct store_frame f;
    buf_init(&b, SEGMENT);
    assert_int_equal(store_journal_read(x.j, first, &b, &f), ERR_OK);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_int_equal(x.replayed, 25);
    assert_int_equal(store_journal_read(x.j, first, &b, &f), ERR_OK);
    buf_fini(&b);
    free(copies[1]);
    free(copies[2]);
    teardown(&x);
}

RT_BLOCKS
static void a_real_disk_keeps_it_with_and_without_direct_io(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        char dir[] = "/var/tmp/ron-journal-XXXXXX", command[64];
        assert_non_null(mkdtemp(dir));
        struct fixture x;
        struct store_pos pos;
        setup_with(&x, store_disk_real(), dir);
        x.cfg.direct = direct;
        assert_int_equal(reopen(&x), ERR_OK);
        for (int i = 0; i < 30; i++) {
            spare(&x);
            assert_int_equal(append(&x, 300, &pos), ERR_OK);
            struct buf b;
            struct store_frame f;
            buf_init(&b, SEGMENT);
            assert_int_equal(store_journal_read(x.j, pos, &b, &f), ERR_OK);
            buf_fini(&b);
        }
        assert_int_equal(reopen(&x), ERR_OK);
        assert_int_equal(x.replayed, 30);
        assert_int_equal(store_journal_room(x.j).spare, SEGMENT - 4096); /* the spare was kept */
        teardown(&x);
        snprintf(command, sizeof command, "rm -rf %s", dir);
        assert_int_equal(system(command), 0);
    }
}

RT_BLOCKS
static void a_spare_that_is_not_zero_is_thrown_away(void **state)
{
    (void)state;
    struct fixture x;
    open_faulty(&x);
    spare(&x);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_false(store_journal_wants_spare(x.j));
    assert_int_equal(store_disk_faulty_flip(x.disk, "j/spare.seg", 20000, 5), ERR_OK);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_true(store_journal_wants_spare(x.j));
    teardown(&x);
}

RT_BLOCKS
static void spares_left_for_later_are_taken_when_asked_for_and_only_if_blank(void **state)
{
    (void)state;
    struct fixture x;
    setup_faulty(&x);
    x.cfg.spares_later = true;
    assert_int_equal(store_journal_open(&x.cfg, on_frame, &x, &x.report, &x.j), ERR_OK);
    assert_int_equal(store_journal_prepare_spares(x.j, 2), ERR_OK);
    assert_int_equal(store_journal_prepare_spares(x.j, 2), ERR_OK);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_int_equal(store_journal_spares(x.j), 0);
    assert_int_equal(store_journal_adopt_spares(x.j), ERR_OK);
    assert_int_equal(store_journal_spares(x.j), 2);
    assert_int_equal(store_journal_adopt_spares(x.j), ERR_OK); /* once more does no harm */
    assert_int_equal(store_disk_faulty_flip(x.disk, "j/spare.seg", 20000, 5), ERR_OK);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_int_equal(store_journal_adopt_spares(x.j), ERR_OK);
    assert_int_equal(store_journal_spares(x.j), 1);
    teardown(&x);
}

RT_BLOCKS
static void two_spares_are_used_one_after_the_other_and_survive_a_restart(void **state)
{
    (void)state;
    struct fixture x;
    struct store_pos pos;
    open_faulty(&x);
    spare(&x);
    spare(&x); /* one is enough for who asks for one */
    assert_int_equal(store_journal_spares(x.j), 1);
    assert_int_equal(store_journal_prepare_spares(x.j, 2), ERR_OK);
    assert_int_equal(store_journal_spares(x.j), 2);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_int_equal(store_journal_spares(x.j), 2);
    for (int i = 0; i < 14; i++) /* two segments of seven frames, and nobody makes a spare meanwhile */
        assert_int_equal(append(&x, 10, &pos), ERR_OK);
    assert_int_equal(pos.segment, 2);
    assert_int_equal(store_journal_spares(x.j), 0);
    assert_int_equal(append(&x, 10, &pos), ERR_NO_SPACE);
    assert_int_equal(store_journal_prepare_spares(x.j, 2), ERR_OK);
    assert_int_equal(append(&x, 10, &pos), ERR_OK);
    assert_int_equal(pos.segment, 3);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_int_equal(x.replayed, 15);
    teardown(&x);
}

RT_BLOCKS
static void the_memory_sink_is_the_same_journal_until_it_is_full(void **state)
{
    (void)state;
    struct fixture x;
    setup_with(&x, NULL, NULL);
    struct store_sink *s;
    assert_int_equal(store_sink_memory(&x.cfg, 3 * SEGMENT, &s), ERR_OK);
    assert_string_equal(s->kind, "memory");
    x.j = s->journal;
    uint64_t appended = 0;
    for (;;) {
        struct store_head h;
        struct store_pos pos;
        store_journal_head(x.j, &h);
        struct store_frame f = {
            .group_no = h.last_group + 1, .first_seq = h.next_seq, .count = 1, .prev_root = h.root};
        char text[100];
        memset(text, (int)('a' + f.group_no % 26), sizeof text);
        memset(f.new_root.b, (int)f.group_no, 32);
        struct bytes part = {(const uint8_t *)text, sizeof text};
        enum err e = store_sink_append(s, &f, &part, 1, &pos);
        if (e == ERR_NO_SPACE)
            break;
        assert_int_equal(e, ERR_OK);
        appended++;
    }
    assert_int_equal(appended, 21); /* three segments of seven frames */
    assert_int_equal(store_sink_room(s).active + store_sink_room(s).spare, 0);
    assert_int_equal(store_sink_replay(s, 1, on_frame, &x), ERR_OK);
    assert_int_equal(x.replayed, 21);
    assert_false(store_sink_failed(s));
    assert_int_equal(store_journal_drop(x.j, 1, false), ERR_OK);
    assert_int_equal(store_sink_prepare(s), ERR_OK); /* room again */
    assert_true(store_sink_room(s).spare > 0);
    store_sink_close(s);
}

RT_BLOCKS
static void *keep_spares(void *arg)
{
    struct fixture *x = arg;
    while (!store_journal_failed(x->j)) {
        if (store_journal_wants_spare(x->j))
            assert_int_equal(store_journal_prepare_spare(x->j), ERR_OK);
        sched_yield();
    }
    return NULL;
}

RT_BLOCKS
static void *read_along(void *arg)
{
    struct fixture *x = arg;
    struct fixture mine = {0};
    while (!store_journal_failed(x->j)) {
        mine.replayed = 0;
        assert_int_equal(store_journal_replay(x->j, 1, on_frame, &mine), ERR_OK);
    }
    return NULL;
}

RT_BLOCKS
static void writer_keeper_and_readers_work_side_by_side(void **state)
{
    (void)state;
    struct fixture x;
    struct store_pos pos;
    struct store_disk *d;
    assert_int_equal(store_disk_memory(0, &d), ERR_OK);
    assert_int_equal(store_disk_mkdir(d, "j"), ERR_OK);
    setup_with(&x, d, "j");
    x.cfg.on_sealed = NULL;
    assert_int_equal(reopen(&x), ERR_OK);
    pthread_t keeper, reader;
    assert_int_equal(pthread_create(&keeper, NULL, keep_spares, &x), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_along, &x), 0);
    for (int n = 0; n < 500;) {
        enum err e = append(&x, 300, &pos);
        assert_true(e == ERR_OK || e == ERR_NO_SPACE);
        n += e == ERR_OK;
        if (e)
            sched_yield();
    }
    store_journal_fail(x.j);
    pthread_join(keeper, NULL);
    pthread_join(reader, NULL);
    assert_int_equal(append(&x, 300, &pos), ERR_CLOSED);
    assert_int_equal(reopen(&x), ERR_OK);
    assert_int_equal(x.replayed, 500);
    teardown(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_appended_is_replayed_in_order),
        cmocka_unit_test(a_frame_that_does_not_fit_goes_into_the_spare_and_seals),
        cmocka_unit_test(a_frame_that_is_too_large_is_refused_before_any_byte),
        cmocka_unit_test(an_append_is_one_write_and_one_flush),
        cmocka_unit_test(frames_are_read_back_by_position_and_checked),
        cmocka_unit_test(replay_from_a_group_gives_that_group_and_all_after_it),
        cmocka_unit_test(opening_resumes_behind_a_checkpoint),
        cmocka_unit_test(the_oldest_segment_can_be_dropped_and_a_gap_is_corruption),
        cmocka_unit_test(segments_that_lost_all_their_bytes_are_corruption),
        cmocka_unit_test(a_foreign_stream_and_a_newer_epoch_are_refused),
        cmocka_unit_test(damage_can_be_opened_for_reading_only),
        cmocka_unit_test(packed_segments_are_read_and_replayed_through_their_owner),
        cmocka_unit_test(a_real_disk_keeps_it_with_and_without_direct_io),
        cmocka_unit_test(a_spare_that_is_not_zero_is_thrown_away),
        cmocka_unit_test(spares_left_for_later_are_taken_when_asked_for_and_only_if_blank),
        cmocka_unit_test(two_spares_are_used_one_after_the_other_and_survive_a_restart),
        cmocka_unit_test(the_memory_sink_is_the_same_journal_until_it_is_full),
        cmocka_unit_test(writer_keeper_and_readers_work_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
