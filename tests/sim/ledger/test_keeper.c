/*
 * The segment keeper at work beside a writer: the writer finds a spare whenever it needs one, whatever else the keeper is doing; a
 * full disk is told and heals; what is sealed is read again, and rot in it is found.
 *
 * The keeper runs as its own task on a disk in memory that can be watched: what it opens is noted, and it can be held there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "rig.h"
#include "rt/supervisor.h"
#include "services/ledger/files.h"
#include "services/ledger/service.h"
#include "waiting.h"

enum { OPENED_MAX = 64, FIRST_FRAMES = 4096 };

static struct rig rig;
static struct ledger_service service;
static struct rt_supervisor *sup;
static uint64_t next_id;

/* ---- the watched disk ---- */

static const struct store_disk_ops *plain;
static struct store_disk_ops watched;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    const char *hold; /* the keeper is held when it opens a path with this in it */
    bool held;
    unsigned n;
    struct opened {
        char path[64];
        uint64_t scrubbed; /* counted by then */
    } v[OPENED_MAX];
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static uint64_t counted(enum ledger_metric m)
{
    return obs_counter_value(obs_counter(rig.l->m[m]));
}

static enum err watched_open(struct store_disk *d, const char *path, unsigned flags,
                             struct store_file **out)
{
    if (rt_task_current() != NULL) {
        pthread_mutex_lock(&watch.lock);
        if (watch.n < OPENED_MAX) {
            struct opened *o = &watch.v[watch.n++];
            snprintf(o->path, sizeof o->path, "%s", path);
            o->scrubbed = counted(LEDGER_M_scrub_bytes);
        }
        while (watch.hold != NULL && strstr(path, watch.hold) != NULL) {
            watch.held = true;
            pthread_cond_broadcast(&watch.moved);
            pthread_cond_wait(&watch.moved, &watch.lock);
        }
        pthread_mutex_unlock(&watch.lock);
    }
    return plain->open(d, path, flags, out);
}

static void hold_at(const char *path)
{
    pthread_mutex_lock(&watch.lock);
    watch.hold = path;
    watch.held = false;
    watch.n = 0;
    pthread_cond_broadcast(&watch.moved);
    pthread_mutex_unlock(&watch.lock);
}

static void await_held(void)
{
    pthread_mutex_lock(&watch.lock);
    while (!watch.held)
        pthread_cond_wait(&watch.moved, &watch.lock);
    pthread_mutex_unlock(&watch.lock);
}

/* Lets the keeper go on; what it opens is still noted. */
static void let_go(void)
{
    pthread_mutex_lock(&watch.lock);
    watch.hold = NULL;
    pthread_cond_broadcast(&watch.moved);
    pthread_mutex_unlock(&watch.lock);
}

/* The first path with this in it that the keeper has opened; OPENED_MAX: none yet. */
static unsigned opened(const char *what)
{
    unsigned at = OPENED_MAX;
    pthread_mutex_lock(&watch.lock);
    for (unsigned i = watch.n; i-- > 0;)
        if (strstr(watch.v[i].path, what) != NULL)
            at = i;
    pthread_mutex_unlock(&watch.lock);
    return at;
}

/* ---- a ledger and its keeper ---- */

static void open_ledger(uint64_t capacity) RT_BLOCKS
{
    struct store_fault_plan plan = {.capacity = capacity};
    struct store_disk *disk;
    assert_int_equal(store_disk_faulty(5, &plan, &disk), ERR_OK);
    plain = disk->ops;
    watched = *plain;
    watched.open = watched_open;
    disk->ops = &watched;
    rig_init(&rig, disk);
    rig.set.scrub_rate = 0;
    rig.set.compress = false;
    rig.set.checkpoint_entries = 65536; /* nobody writes generations here */
    next_id = 0;
    let_go();
    assert_int_equal(obs_metrics_create("ledger", &rig.metrics), ERR_OK);
    assert_int_equal(rig_open(&rig), ERR_OK);
}

static void start_keeper(void)
{
    service = (struct ledger_service){.l = rig.l};
    sup = rt_supervisor_create(&(struct rt_supervisor_spec){.name = "test"});
    assert_non_null(sup);
    struct rt_task_spec task = {
        .name = "segment_keeper", .run = ledger_segment_keeper_run, .arg = &service};
    assert_int_equal(rt_supervisor_add(sup, &task), ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
}

static void stop_keeper(void) RT_BLOCKS
{
    struct rt_drain_report report;
    rt_supervisor_drain(sup);
    assert_int_equal(rt_supervisor_join(sup, deadline_in_ms(AWAIT_MS), &report), ERR_OK);
    assert_int_equal(report.aborted + report.leaked, 0);
    rt_supervisor_destroy(sup);
}

static void end(void) RT_BLOCKS
{
    stop_keeper();
    ledger_close(rig.l, false);
    rig.disk->ops = plain;
    store_disk_destroy(rig.disk);
    obs_metrics_destroy(rig.metrics);
}

/* One group; false: refused before it had a seq, because the journal has no room. */
static bool write_one(void) RT_BLOCKS
{
    char id[24];
    struct rig_outcome out;
    snprintf(id, sizeof id, "k%llu", (unsigned long long)next_id);
    struct core_entry e = {.id = str_from_c(id),
                           .ts = 1,
                           .kind = CORE_MINT,
                           .account = STR("acct:a"),
                           .asset = STR("ron"),
                           .amount = {1}};
    struct core_unit u = {str_from_c(id), {NULL, 0}, 0, &e, 1};
    uint64_t seq = rig.l->next_seq;
    rig_one(&rig, &u, &out);
    if (out.verdict == VERDICT_COMMITTED) {
        next_id++;
        return true;
    }
    assert_int_equal(out.err, ERR_UNAVAILABLE);
    assert_int_equal(rig.l->next_seq, seq);
    return false;
}

static size_t segments(void)
{
    return store_journal_segments(rig.l->sink->journal, NULL, 0);
}

/* Without the keeper: each spare is made by hand. */
static void fill(size_t n) RT_BLOCKS
{
    while (segments() < n) {
        assert_true(write_one());
        assert_int_equal(store_sink_prepare(rig.l->sink), ERR_OK);
    }
}

/* Writes until the spare is used. */
static void use_the_spare(void) RT_BLOCKS
{
    while (!store_journal_wants_spare(rig.l->sink->journal))
        assert_true(write_one());
}

static bool under_pressure(void)
{
    return obs_gauge_value(obs_gauge(rig.l->m[LEDGER_M_disk_pressure])) == 1;
}

/* ---- what it promises ---- */

/* Were it not rung for each, it would look once a second: that many segments would take longer than anybody waits here. */
static void the_keeper_follows_a_writer_that_uses_spare_after_spare(void **state) RT_BLOCKS
{
    (void)state;
    enum { SEGMENTS = 150 };
    open_ledger(0);
    start_keeper();
    struct deadline by = deadline_in_ms(AWAIT_MS);
    while (segments() < SEGMENTS) {
        while (write_one())
            ;
        AWAIT(!store_journal_wants_spare(rig.l->sink->journal));
        assert_false(deadline_passed(by));
    }
    end();
}

/* A checkpoint behind the segments that may be packed. */
static void with_segments_to_pack(size_t n) RT_BLOCKS
{
    open_ledger(0);
    rig.set.compress = true;
    rig.l->set.compress = true;
    fill(n);
    atomic_store(&rig.l->want_gen, true);
    assert_true(write_one());
    assert_int_equal(rig_checkpoint(&rig), ERR_OK);
}

static void a_spare_that_is_wanted_comes_before_the_rest_of_a_packing(void **state) RT_BLOCKS
{
    (void)state;
    with_segments_to_pack(6);
    hold_at("00000001.seg"); /* it begins to read what it is going to pack */
    start_keeper();
    await_held();
    use_the_spare();
    let_go();
    AWAIT(opened("00000001.segz") != OPENED_MAX);
    assert_true(opened("spare") < opened("00000001.segz"));
    end();
}

static void a_spare_that_is_wanted_comes_before_the_rest_of_a_scrub(void **state) RT_BLOCKS
{
    (void)state;
    open_ledger(0);
    rig.l->set.scrub_rate = UINT32_MAX; /* so fast that it never rests */
    fill(3);
    hold_at("00000001.seg");
    start_keeper();
    await_held();
    use_the_spare();
    let_go();
    AWAIT(opened("spare") != OPENED_MAX);
    assert_true(watch.v[opened("spare")].scrubbed < FIRST_FRAMES);
    end();
}

static void what_is_sealed_is_read_again_and_counted(void **state) RT_BLOCKS
{
    (void)state;
    open_ledger(0);
    rig.l->set.scrub_rate = UINT32_MAX;
    fill(3);
    assert_int_equal(counted(LEDGER_M_scrub_bytes), 0);
    start_keeper();
    AWAIT(counted(LEDGER_M_scrub_bytes) > 0);
    assert_int_equal(ledger_safe_cause(rig.l), CAUSE_NONE);
    end();
}

static void rot_in_a_sealed_segment_is_found_and_named(void **state) RT_BLOCKS
{
    (void)state;
    open_ledger(0);
    rig.l->set.scrub_rate = UINT32_MAX;
    fill(3);
    assert_int_equal(store_disk_faulty_flip(rig.disk, "led/journal/00000001.seg", 4096 + 200, 3), ERR_OK);
    start_keeper();
    AWAIT(ledger_safe_cause(rig.l) != CAUSE_NONE);
    assert_int_equal(ledger_safe_cause(rig.l), CAUSE_SCRUB);
    assert_string_equal(rig.l->bad_file, "00000001.seg");
    end();
}

static void a_disk_without_room_for_a_spare_is_told_and_heals_by_itself(void **state) RT_BLOCKS
{
    (void)state;
    open_ledger(1200 << 10);
    start_keeper();
    assert_false(under_pressure());
    AWAIT(!write_one() && under_pressure());
    assert_int_equal(ledger_safe_cause(rig.l), CAUSE_NONE);
    struct store_fault_plan roomy = {0};
    store_disk_faulty_plan(rig.disk, &roomy);
    AWAIT(!under_pressure());
    assert_true(write_one());
    end();
}

/* Places and times of groups stand in no tree; the frames have them. */
static void a_group_table_that_differs_from_the_journal_is_found(void **state) RT_BLOCKS
{
    (void)state;
    with_segments_to_pack(4);
    rig.l->set.compress = false;
    rig.l->set.scrub_rate = UINT32_MAX;
    assert_int_equal(store_disk_faulty_flip(rig.disk, "led/groups", 64 + 18, 3), ERR_OK);
    start_keeper();
    AWAIT(ledger_safe_cause(rig.l) != CAUSE_NONE);
    assert_int_equal(ledger_safe_cause(rig.l), CAUSE_SCRUB);
    assert_string_equal(rig.l->bad_file, "groups");
    end();
}

/* ---- files that are gone ---- */

static bool begun_is(uint32_t want) RT_BLOCKS
{
    uint32_t got = 0;
    assert_int_equal(ledger_begun_read(rig.l, &got), ERR_OK);
    return got == want;
}

static void copy_file(const char *from, const char *to) RT_BLOCKS
{
    struct buf b;
    buf_init(&b, 1 << 20);
    assert_int_equal(store_file_slurp(rig.disk, from, &b), ERR_OK);
    assert_int_equal(store_file_replace(rig.disk, to, buf_bytes(&b)), ERR_OK);
    buf_fini(&b);
}

static void cut_last_byte(const char *path) RT_BLOCKS
{
    struct store_file *f;
    uint64_t n;
    assert_int_equal(store_file_open(rig.disk, path, STORE_WRITE, &f), ERR_OK);
    assert_int_equal(store_file_size(f, &n), ERR_OK);
    assert_int_equal(store_file_truncate(f, n - 1), ERR_OK);
    store_file_close(f);
}

/* Opens it again: nothing can be written, the file is named, and what lies before it can be read. */
static void assert_closed_at(const char *file, uint64_t head) RT_BLOCKS
{
    assert_int_equal(rig_open(&rig), ERR_OK);
    assert_int_equal(ledger_safe_cause(rig.l), CAUSE_CORRUPT);
    assert_string_equal(rig.l->bad_file, file);
    assert_int_equal(ledger_head_seq(rig.l), head);
    assert_int_equal(rig_mint(&rig, 99).err, ERR_SAFE_MODE);
    ledger_close(rig.l, false);
}

/* A kill, no checkpoint, no CLEAN: the files of the journal alone say what was there, and BEGUN that there was more. */
static void a_journal_that_lost_segments_is_not_one_that_ends_there(void **state) RT_BLOCKS
{
    (void)state;
    enum { SEGMENTS = 4 };
    char path[SEGMENTS + 1][40], name[16];
    uint64_t before[SEGMENTS + 1] = {0}; /* entries before each segment */
    open_ledger(0);
    start_keeper();
    for (uint32_t no = 1; no <= SEGMENTS; no++) {
        before[no] = ledger_head_seq(rig.l);
        while (segments() < no) {
            before[no] = ledger_head_seq(rig.l);
            if (!write_one())
                AWAIT(!store_journal_wants_spare(rig.l->sink->journal));
        }
        snprintf(path[no], sizeof path[no], "led/journal/%08u.seg", no);
    }
    AWAIT(begun_is(SEGMENTS));
    uint64_t head = ledger_head_seq(rig.l);
    stop_keeper();
    ledger_close(rig.l, false);
    for (uint32_t no = 1; no <= SEGMENTS; no++) {
        snprintf(name, sizeof name, "%08u.seg", no);
        assert_int_equal(store_disk_rename(rig.disk, path[no], "led/aside"), ERR_OK);
        if (no < SEGMENTS) { /* its name may be that of a packed one */
            char packed[24];
            snprintf(packed, sizeof packed, "%sz", name);
            assert_closed_at(packed, before[no]);
        } else {
            assert_closed_at(name, before[no]);
        }
        copy_file("led/aside", path[no]); /* too short: the same */
        cut_last_byte(path[no]);
        assert_closed_at(name, before[no]);
        assert_int_equal(store_disk_rename(rig.disk, "led/aside", path[no]), ERR_OK);
    }
    for (uint32_t no = 1; no <= SEGMENTS; no++)
        assert_int_equal(store_file_remove(rig.disk, path[no]), ERR_OK);
    assert_closed_at("00000001.seg", 0);
    assert_int_equal(rig_open(&rig), ERR_OK);
    start_keeper();
    end();
    assert_true(head > before[SEGMENTS]);
}

static void a_packed_segment_that_is_gone_or_another_is_damage(void **state) RT_BLOCKS
{
    (void)state;
    static const char one[] = "led/journal/00000001.segz", two[] = "led/journal/00000002.segz";
    with_segments_to_pack(6);
    start_keeper();
    struct store_stat st;
    AWAIT(store_disk_stat(rig.disk, two, &st) == ERR_OK &&
          store_disk_stat(rig.disk, "led/journal/00000002.seg", &st) == ERR_NOT_FOUND);
    stop_keeper();
    uint64_t head = ledger_head_seq(rig.l);
    ledger_close(rig.l, false);
    assert_int_equal(store_disk_rename(rig.disk, one, "led/aside"), ERR_OK);
    assert_closed_at("00000001.segz", head);
    copy_file(two, one); /* whole, and of another segment */
    assert_closed_at("00000001.segz", head);
    assert_int_equal(store_disk_rename(rig.disk, "led/aside", one), ERR_OK);

    assert_int_equal(rig_open(&rig), ERR_OK); /* and while it runs */
    assert_int_equal(ledger_safe_cause(rig.l), CAUSE_NONE);
    rig.l->set.scrub_rate = UINT32_MAX;
    cut_last_byte(two);
    start_keeper();
    AWAIT(ledger_safe_cause(rig.l) != CAUSE_NONE);
    assert_int_equal(ledger_safe_cause(rig.l), CAUSE_SCRUB);
    assert_string_equal(rig.l->bad_file, "00000002.segz");
    end();
}

static void a_ledger_is_not_founded_where_another_was(void **state) RT_BLOCKS
{
    (void)state;
    struct store_stat st;
    open_ledger(0);
    rig.set.origin[0] = 0;
    fill(2);
    ledger_close(rig.l, false);
    assert_int_equal(store_disk_rename(rig.disk, "led/SUPERBLOCK", "led/aside"), ERR_OK);
    assert_int_equal(rig_open(&rig), ERR_CORRUPT);          /* it is gone, and the journal is there */
    snprintf(rig.set.dir, sizeof rig.set.dir, "elsewhere"); /* as if another disk should be mounted there */
    assert_int_equal(rig_open(&rig), ERR_CONFLICT);
    assert_int_equal(store_disk_stat(rig.disk, "led/SUPERBLOCK", &st), ERR_NOT_FOUND);
    assert_int_equal(store_disk_stat(rig.disk, "elsewhere/SUPERBLOCK", &st), ERR_NOT_FOUND);
    snprintf(rig.set.dir, sizeof rig.set.dir, "led");
    assert_int_equal(store_disk_rename(rig.disk, "led/aside", "led/SUPERBLOCK"), ERR_OK);
    assert_int_equal(rig_open(&rig), ERR_OK);
    assert_int_equal(ledger_safe_cause(rig.l), CAUSE_NONE);
    start_keeper();
    end();
}

static void pressure_that_was_there_at_the_start_is_told(void **state) RT_BLOCKS
{
    (void)state;
    open_ledger(1200 << 10);
    start_keeper();
    AWAIT(!write_one() && under_pressure());
    stop_keeper();
    ledger_close(rig.l, false);
    obs_metrics_destroy(rig.metrics);
    assert_int_equal(obs_metrics_create("ledger", &rig.metrics), ERR_OK);
    assert_int_equal(rig_open(&rig), ERR_OK);
    assert_int_equal(ledger_safe_cause(rig.l), CAUSE_NONE);
    assert_true(atomic_load(&rig.l->disk_pressure));
    start_keeper();
    AWAIT(under_pressure());
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_keeper_follows_a_writer_that_uses_spare_after_spare),
        cmocka_unit_test(a_spare_that_is_wanted_comes_before_the_rest_of_a_packing),
        cmocka_unit_test(a_spare_that_is_wanted_comes_before_the_rest_of_a_scrub),
        cmocka_unit_test(what_is_sealed_is_read_again_and_counted),
        cmocka_unit_test(rot_in_a_sealed_segment_is_found_and_named),
        cmocka_unit_test(a_disk_without_room_for_a_spare_is_told_and_heals_by_itself),
        cmocka_unit_test(pressure_that_was_there_at_the_start_is_told),
        cmocka_unit_test(a_group_table_that_differs_from_the_journal_is_found),
        cmocka_unit_test(a_journal_that_lost_segments_is_not_one_that_ends_there),
        cmocka_unit_test(a_packed_segment_that_is_gone_or_another_is_damage),
        cmocka_unit_test(a_ledger_is_not_founded_where_another_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
