/*
 * Power cuts, failing calls and rot against long append histories on the faulty disk.
 *
 * An observer remembers what was acknowledged. After every cut the journal is opened again and must hold exactly a
 * prefix of what was ever attempted, at least all that was acknowledged and at most one group more; a torn tail is
 * never called corruption. RON_SEEDS sets how many seeds run (default 60), RON_SEED runs a single one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "store/disk_faulty.h"
#include "store/journal.h"

enum { SEGMENT = 16384, GROUPS_MAX = 4096, PAYLOAD_MAX = 6000 };

/* What the world knows: the hash of each group ever attempted, and how many were acknowledged. */
struct observer {
    struct sha256 attempted[GROUPS_MAX]; /* [group_no] = its new_root */
    uint64_t acked;
};

struct world {
    uint64_t seed;
    struct rng rng;
    struct store_disk *disk;
    struct store_journal_config cfg;
    struct store_journal *j;
    struct store_journal_report report;
    struct observer seen;
    uint64_t replayed;
    uint8_t payload[PAYLOAD_MAX];
};

static struct store_layout layout_of(uint64_t seed)
{
    struct store_layout l = {.align = seed % 2 ? 512 : 4096, .segment_bytes = SEGMENT};
    l.count_zero_sectors = l.crc_at_end = seed / 2 % 2;
    return l;
}

static void root_after(const struct sha256 *prev, struct bytes payload, struct sha256 *out)
{
    struct bytes parts[2] = {{prev->b, 32}, payload};
    sha256_of_parts(parts, 2, out);
}

static enum err on_frame(void *ctx, const struct store_frame *f, struct store_pos at)
{
    (void)at;
    struct world *w = ctx;
    struct sha256 root;
    w->replayed++;
    assert_int_equal(f->group_no, w->replayed);
    root_after(&f->prev_root, f->payload, &root);
    return sha256_eq(&root, &f->new_root) ? ERR_OK : ERR_CORRUPT;
}

RT_BLOCKS
static struct world *world_create(uint64_t seed, bool direct)
{
    struct world *w = calloc(1, sizeof *w);
    w->seed = seed;
    rng_seed(&w->rng, seed);
    assert_int_equal(store_disk_faulty(seed, NULL, &w->disk), ERR_OK);
    assert_int_equal(store_disk_mkdir(w->disk, "j"), ERR_OK);
    assert_int_equal(store_disk_sync_dir(w->disk, "."), ERR_OK);
    w->cfg = (struct store_journal_config){
        .disk = w->disk,
        .dir = "j",
        .layout = layout_of(seed),
        .epoch = 1,
        .frame_bytes_max = 8192,
        .direct = direct,
        .clock = clock_real(),
    };
    return w;
}

RT_BLOCKS
static void world_destroy(struct world *w)
{
    store_journal_close(w->j);
    store_disk_destroy(w->disk);
    free(w);
}

RT_BLOCKS
static enum err world_open(struct world *w)
{
    store_journal_close(w->j);
    w->j = NULL;
    w->replayed = 0;
    return store_journal_open(&w->cfg, on_frame, w, &w->report, &w->j);
}

/* Random sizes; with counted zero sectors also long runs of zeros, which must not look lost; else none, as in text. */
static struct bytes random_payload(struct world *w)
{
    size_t n =
        rng_below(&w->rng, 3) ? (size_t)rng_below(&w->rng, 700) : (size_t)rng_below(&w->rng, PAYLOAD_MAX);
    rng_bytes(&w->rng, w->payload, n);
    for (size_t i = 0; i < n && !w->cfg.layout.count_zero_sectors; i++)
        w->payload[i] |= 1;
    if (w->cfg.layout.count_zero_sectors && n > 600 && rng_below(&w->rng, 2)) {
        size_t from = (size_t)rng_below(&w->rng, n - 512),
               len = 512 + (size_t)rng_below(&w->rng, n - from - 511);
        memset(w->payload + from, 0, len);
    }
    return bytes_of(w->payload, n);
}

RT_BLOCKS
static enum err append_one(struct world *w)
{
    struct store_head h;
    struct store_pos pos;
    store_journal_head(w->j, &h);
    struct bytes payload = random_payload(w);
    struct store_frame f = {
        .group_no = h.last_group + 1, .first_seq = h.next_seq, .count = 1, .prev_root = h.root};
    root_after(&f.prev_root, payload, &f.new_root);
    assert_true(f.group_no < GROUPS_MAX);
    if (!store_journal_failed(w->j)) /* a closed journal writes nothing: what counts was attempted before */
        w->seen.attempted[f.group_no] = f.new_root;
    enum err e = store_journal_append(w->j, &f, &payload, 1, &pos);
    if (e == ERR_OK)
        w->seen.acked = f.group_no;
    return e;
}

/* Some appends, with spares made as a keeper would; ends at the first error that is not a full disk. */
RT_BLOCKS
static enum err run(struct world *w, int groups)
{
    for (int i = 0; i < groups; i++) {
        enum err e = store_journal_wants_spare(w->j) ? store_journal_prepare_spare(w->j) : ERR_OK;
        if (e && e != ERR_NO_SPACE)
            return e;
        e = append_one(w);
        if (e && e != ERR_NO_SPACE)
            return e;
    }
    return ERR_OK;
}

/* The state after an opening is one that the observer can accept. */
static void judge(struct world *w)
{
    struct store_head h;
    store_journal_head(w->j, &h);
    assert_int_equal(h.last_group, w->replayed);
    assert_true(h.last_group >= w->seen.acked);
    assert_true(h.last_group <= w->seen.acked + 1);
    if (h.last_group)
        assert_memory_equal(h.root.b, w->seen.attempted[h.last_group].b, 32);
    w->seen.acked = h.last_group; /* a complete group that was not acknowledged counts from now on */
}

static void for_seeds(uint64_t seeds, void (*test)(uint64_t seed))
{
    const char *one = getenv("RON_SEED"), *many = getenv("RON_SEEDS");
    if (one) {
        test(strtoull(one, NULL, 10));
        return;
    }
    if (many)
        seeds = strtoull(many, NULL, 10);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        char label[64];
        snprintf(label, sizeof label, "RON_SEED=%llu", (unsigned long long)seed);
        setenv("RON_SIM_RUNNING", label, 1); /* visible in a core dump */
        test(seed);
    }
}

/* One history per call number: run until power fails at call k, reopen, go on, be cut again, and so on. */
RT_BLOCKS
static void cut_at_every_call(uint64_t seed)
{
    for (uint64_t k = 1;; k++) {
        struct world *w = world_create(seed, seed / 4 % 2);
        store_disk_faulty_plan(w->disk, &(struct store_fault_plan){.crash_at = k});
        if (world_open(w) == ERR_OK)
            (void)run(w, 12);
        bool fired = store_disk_faulty_fired(w->disk);
        for (int life = 0; life < 3; life++) {
            store_disk_faulty_plan(w->disk, NULL);
            store_disk_faulty_reboot(w->disk);
            enum err e = world_open(w);
            if (e != ERR_OK)
                print_error("seed %llu call %llu life %d: %s at %s:%llu: %s\n", (unsigned long long)seed,
                            (unsigned long long)k, life, err_name(e), w->report.bad_file,
                            (unsigned long long)w->report.bad_offset,
                            w->report.bad_reason ? w->report.bad_reason : "");
            assert_int_equal(e, ERR_OK);
            judge(w);
            /* The next cut comes soon, often while the torn tail is being wiped. */
            store_disk_faulty_plan(w->disk,
                                   &(struct store_fault_plan){.crash_at = 1 + rng_below(&w->rng, 30)});
            if (world_open(w) == ERR_OK)
                (void)run(w, 4);
        }
        world_destroy(w);
        if (!fired)
            break;
    }
}

static void what_was_acknowledged_survives_a_cut_at_every_call(void **state)
{
    (void)state;
    for_seeds(60, cut_at_every_call);
}

/* Long lives: hundreds of groups, a cut after a random number of calls, over and over in one directory. */
RT_BLOCKS
static void live_long(uint64_t seed)
{
    struct world *w = world_create(seed, seed % 3 == 0);
    for (int life = 0; life < 40; life++) {
        enum store_keep keep = (enum store_keep)rng_below(&w->rng, 3);
        store_disk_faulty_plan(
            w->disk, &(struct store_fault_plan){.crash_at = 1 + rng_below(&w->rng, 200), .keep = keep});
        if (world_open(w) == ERR_OK)
            (void)run(w, 60);
        store_disk_faulty_plan(w->disk, &(struct store_fault_plan){.keep = keep});
        store_disk_faulty_reboot(w->disk);
        assert_int_equal(world_open(w), ERR_OK);
        judge(w);
    }
    assert_true(w->seen.acked > 40);
    world_destroy(w);
}

static void long_histories_survive_any_number_of_cuts(void **state)
{
    (void)state;
    for_seeds(60, live_long);
}

/* A call fails once: from then on not a byte is written, and a restart finds everything that was acknowledged. */
RT_BLOCKS
static void fail_at_every_call(uint64_t seed)
{
    for (uint64_t k = 1;; k++)
        for (int is_short = 0; is_short < 2; is_short++) {
            struct world *w = world_create(seed, seed % 2);
            assert_int_equal(world_open(w), ERR_OK);
            store_disk_faulty_plan(w->disk, is_short ? &(struct store_fault_plan){.short_at = k}
                                                     : &(struct store_fault_plan){.eio_at = k});
            enum err e = run(w, 10);
            if (!store_disk_faulty_fired(w->disk)) {
                world_destroy(w);
                if (is_short)
                    return;
                continue;
            }
            assert_int_not_equal(e, ERR_OK);
            assert_true(store_journal_failed(w->j));
            uint64_t writes = store_disk_faulty_writes(w->disk);
            for (int i = 0; i < 3; i++) {
                assert_int_equal(append_one(w), ERR_CLOSED);
                assert_int_equal(store_journal_prepare_spare(w->j), ERR_CLOSED);
                assert_int_equal(store_journal_room(w->j).active + store_journal_room(w->j).spare, 0);
            }
            assert_int_equal(store_disk_faulty_writes(w->disk), writes);
            store_disk_faulty_plan(w->disk, NULL);
            if (rng_below(&w->rng, 2))
                store_disk_faulty_reboot(w->disk); /* else only the process restarts */
            assert_int_equal(world_open(w), ERR_OK);
            judge(w);
            if (rng_below(&w->rng, 2)) {
                enum err e2 = append_one(w); /* the writer may be faster than the keeper */
                assert_true(e2 == ERR_OK || e2 == ERR_NO_SPACE);
            } else {
                assert_int_equal(run(w, 3), ERR_OK);
            }
            /* What the page cache had answered after the failed flush must be on the device by now. */
            store_disk_faulty_reboot(w->disk);
            assert_int_equal(world_open(w), ERR_OK);
            judge(w);
            world_destroy(w);
        }
}

static void one_failed_call_closes_the_journal_for_ever(void **state)
{
    (void)state;
    for_seeds(30, fail_at_every_call);
}

/* A call fails while a torn tail is being judged and wiped; the process restarts, works on, and then power fails. */
RT_BLOCKS
static void fail_while_opening(uint64_t seed)
{
    for (uint64_t k = 1;; k++) {
        struct world *w = world_create(seed, false);
        assert_int_equal(world_open(w), ERR_OK);
        store_disk_faulty_plan(w->disk,
                               &(struct store_fault_plan){.crash_at = 20 + rng_below(&w->rng, 20)});
        (void)run(w, 12);
        store_disk_faulty_plan(w->disk, &(struct store_fault_plan){.eio_at = k});
        store_disk_faulty_reboot(w->disk);
        enum err e = world_open(w);
        bool fired = store_disk_faulty_fired(w->disk);
        assert_true(e == ERR_OK || (fired && e == ERR_IO));
        if (e) {
            assert_int_equal(world_open(w), ERR_OK);
            judge(w);
        } else {
            judge(w);
        }
        (void)run(w, 4);
        store_disk_faulty_plan(w->disk, NULL);
        store_disk_faulty_reboot(w->disk);
        e = world_open(w);
        if (e)
            print_error("seed %llu call %llu: %s\n", (unsigned long long)seed, (unsigned long long)k,
                        w->report.bad_reason);
        assert_int_equal(e, ERR_OK);
        judge(w);
        world_destroy(w);
        if (!fired)
            break;
    }
}

static void a_failed_call_while_opening_loses_nothing_later(void **state)
{
    (void)state;
    for_seeds(60, fail_while_opening);
}

/* The disk is full at every call that needs space: refused before any byte, nothing closed, and it goes on later. */
RT_BLOCKS
static void full_at_every_allocation(uint64_t seed)
{
    for (uint64_t k = 1;; k++) {
        struct world *w = world_create(seed, seed % 2);
        assert_int_equal(world_open(w), ERR_OK);
        store_disk_faulty_plan(w->disk, &(struct store_fault_plan){.enospc_at = k});
        for (int i = 0; i < 30 && !store_disk_faulty_fired(w->disk); i++) {
            enum err e = store_journal_wants_spare(w->j) ? store_journal_prepare_spare(w->j) : ERR_OK;
            assert_true(e == ERR_OK || e == ERR_NO_SPACE);
            uint64_t writes = store_disk_faulty_writes(w->disk);
            e = append_one(w);
            assert_true(e == ERR_OK || e == ERR_NO_SPACE);
            if (e == ERR_NO_SPACE)
                assert_int_equal(store_disk_faulty_writes(w->disk), writes);
        }
        bool fired = store_disk_faulty_fired(w->disk);
        assert_false(store_journal_failed(w->j));
        store_disk_faulty_plan(w->disk, NULL);
        uint64_t before = w->seen.acked;
        assert_int_equal(run(w, 8), ERR_OK);
        assert_int_equal(w->seen.acked, before + 8); /* space is back: no restart needed */
        assert_int_equal(world_open(w), ERR_OK);
        judge(w);
        world_destroy(w);
        if (!fired)
            break;
    }
}

static void a_full_disk_refuses_before_any_byte_and_recovers_by_itself(void **state)
{
    (void)state;
    for_seeds(30, full_at_every_allocation);
}

RT_BLOCKS
static void a_small_disk_fills_up_in_an_orderly_way(void **state)
{
    (void)state;
    struct world *w = world_create(2, false);
    assert_int_equal(world_open(w), ERR_OK);
    store_disk_faulty_plan(w->disk, &(struct store_fault_plan){.capacity = 3 * SEGMENT + 100});
    assert_int_equal(run(w, 200), ERR_OK);
    assert_false(store_journal_failed(w->j));
    struct store_segment seg[8];
    assert_int_equal(store_journal_segments(w->j, seg, 8), 3);
    store_disk_faulty_reboot(w->disk);
    assert_int_equal(world_open(w), ERR_OK);
    judge(w);
    world_destroy(w);
}

/* Any bit of a frame or of a segment header that replay reads: reported, with its file, and nothing is written. */
RT_BLOCKS
static void flip_any_bit(uint64_t seed)
{
    for (int round = 0; round < 40; round++) {
        struct world *w = world_create(seed * 1000 + (uint64_t)round, false);
        assert_int_equal(world_open(w), ERR_OK);
        assert_int_equal(run(w, 10), ERR_OK);
        struct store_segment seg[16];
        size_t n = store_journal_segments(w->j, seg, 16);
        const struct store_segment *s = &seg[rng_below(&w->rng, n)];
        uint64_t byte = rng_below(&w->rng, s->bytes_used);
        char path[STORE_PATH_MAX];
        store_journal_segment_path(path, "j", s->segment_no);
        assert_int_equal(store_disk_faulty_flip(w->disk, path, byte, (unsigned)rng_below(&w->rng, 8)),
                         ERR_OK);
        store_disk_faulty_plan(w->disk, NULL);
        enum err e = world_open(w);
        if (e != ERR_CORRUPT)
            print_error("seed %llu round %d: byte %llu of %s was not missed\n", (unsigned long long)seed,
                        round, (unsigned long long)byte, path);
        assert_int_equal(e, ERR_CORRUPT);
        assert_string_equal(w->report.bad_file, path + 2);
        assert_true(w->report.bad_offset <= byte);
        assert_int_equal(store_disk_faulty_writes(w->disk), 0);
        world_destroy(w);
    }
}

static void a_flipped_bit_in_a_replayed_frame_is_always_reported(void **state)
{
    (void)state;
    for_seeds(60, flip_any_bit);
}

/* A whole frame wiped out in the middle (a lost write) is corruption, never a torn tail. */
RT_BLOCKS
static void a_lost_group_in_the_middle_is_corruption(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world *w = world_create(seed, false);
        assert_int_equal(world_open(w), ERR_OK);
        assert_int_equal(run(w, 12), ERR_OK);
        struct store_file *f;
        uint8_t zeros[512] = {0};
        assert_int_equal(store_file_open(w->disk, "j/00000001.seg", STORE_WRITE, &f), ERR_OK);
        assert_int_equal(store_file_pwrite(f, zeros, 512, 4096), ERR_OK); /* the first frame's header */
        store_file_close(f);
        assert_int_equal(world_open(w), ERR_CORRUPT);
        assert_true(w->report.damaged);
        world_destroy(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_acknowledged_survives_a_cut_at_every_call),
        cmocka_unit_test(long_histories_survive_any_number_of_cuts),
        cmocka_unit_test(one_failed_call_closes_the_journal_for_ever),
        cmocka_unit_test(a_failed_call_while_opening_loses_nothing_later),
        cmocka_unit_test(a_full_disk_refuses_before_any_byte_and_recovers_by_itself),
        cmocka_unit_test(a_small_disk_fills_up_in_an_orderly_way),
        cmocka_unit_test(a_flipped_bit_in_a_replayed_frame_is_always_reported),
        cmocka_unit_test(a_lost_group_in_the_middle_is_corruption),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
