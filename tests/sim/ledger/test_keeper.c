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
    service = (struct ledger_service){.l = rig.l};
}

static void start_keeper(void)
{
    sup = rt_supervisor_create(&(struct rt_supervisor_spec){.name = "test"});
    assert_non_null(sup);
    struct rt_task_spec task = {
        .name = "segment_keeper", .run = ledger_segment_keeper_run, .arg = &service};
    assert_int_equal(rt_supervisor_add(sup, &task), ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
}

static void end(void) RT_BLOCKS
{
    struct rt_drain_report report;
    rt_supervisor_drain(sup);
    assert_int_equal(rt_supervisor_join(sup, deadline_in_ms(AWAIT_MS), &report), ERR_OK);
    assert_int_equal(report.aborted + report.leaked, 0);
    rt_supervisor_destroy(sup);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_keeper_follows_a_writer_that_uses_spare_after_spare),
        cmocka_unit_test(a_spare_that_is_wanted_comes_before_the_rest_of_a_packing),
        cmocka_unit_test(a_spare_that_is_wanted_comes_before_the_rest_of_a_scrub),
        cmocka_unit_test(what_is_sealed_is_read_again_and_counted),
        cmocka_unit_test(rot_in_a_sealed_segment_is_found_and_named),
        cmocka_unit_test(a_disk_without_room_for_a_spare_is_told_and_heals_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
