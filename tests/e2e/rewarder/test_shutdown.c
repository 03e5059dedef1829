/* What the service says when it ends: what was still written, what was canceled or lost, and what goes on at the next start. */
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#include "fixture.h"

static void log_to_file(struct fixture *f) RT_BLOCKS
{
    char path[96];
    assert_int_equal(stop(f), 0);
    snprintf(path, sizeof path, "%s/log", f->dir);
    f->log_fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(f->log_fd > 0);
}

/* The last report in the log; the service is stopped. */
static json_t *report_of(struct fixture *f)
{
    struct stat st;
    json_error_t why;
    json_t *last = NULL;
    assert_int_equal(fstat(f->log_fd, &st), 0);
    char *all = calloc(1, (size_t)st.st_size + 1);
    assert_int_equal(pread(f->log_fd, all, (size_t)st.st_size, 0), st.st_size);
    for (char *line = strtok(all, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *o = json_loads(line, 0, &why);
        if (o && !strcmp(text(o, "event"), "shutdown.report")) {
            json_decref(last);
            last = json_incref(o);
        }
        json_decref(o);
    }
    free(all);
    assert_non_null(last);
    return last;
}

static json_int_t number(const json_t *o, const char *name)
{
    assert_true(json_is_integer(json_object_get(o, name)));
    return json_integer_value(json_object_get(o, name));
}

static void start_again(struct fixture *f) RT_BLOCKS
{
    close(f->log_fd);
    f->log_fd = 0;
    start(f);
}

static void a_clean_end_loses_nothing_and_names_what_stays(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80];
    log_to_file(f);
    f->flags[f->flag_n++] = "settlement.hold=true";
    start(f);
    put_inputs(f, "e1", 10, cid);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "held"));
    assert_int_equal(stop(f), 0);
    json_t *o = report_of(f);
    assert_int_equal(number(o, "dropped"), 0);
    assert_int_equal(number(o, "aborted"), 0);
    assert_int_equal(number(o, "canceled"), 0);
    assert_int_equal(number(o, "unsettled"), 1);
    assert_string_equal(text(o, "level"), "info");
    json_decref(o);
    f->flag_n--;
    start_again(f);
    json_decref(await_state(f, "e1", "settled"));
}

/* How many lines of registry.log speak of the epoch `gone`. */
static json_int_t lines_written(struct fixture *f)
{
    char path[128], all[16384];
    json_int_t n = 0;
    snprintf(path, sizeof path, "%s/rewarder/registry.log", f->root);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    size_t got = fread(all, 1, sizeof all, in);
    fclose(in);
    for (const char *p = all; (p = memmem(p, got - (size_t)(p - all), "\"gone\"", 6)); p += 6)
        n++;
    return n;
}

static void send_line(struct rewarder *r)
{
    struct rewarder_run *run = rewarder_run_create(STR("default"), STR("gone"), false);
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_NOTE, run);
    rewarder_note_quarantined(
        run,
        &(struct rewarder_quarantine){.n = 1, .kind = "overflow", .reason = "a line to count", .now_ms = 1},
        &o->line);
    rewarder_run_unref(run);
    assert_int_equal(rt_chan_try_send(r->results, o), ERR_OK);
}

/* The writer has failed: whether it is back in time or not, each result is either written or counted. */
static void every_result_is_written_or_counted(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    enum { RESULTS = 5 };
    log_to_file(f);
    start(f);
    struct rewarder *r = svc_state(f->svc);
    take_down(f, "artifact");
    for (unsigned i = 0; i < RESULTS; i++)
        send_line(r);
    (void)stop(f);
    json_t *o = report_of(f);
    json_int_t drained = number(o, "drained"), dropped = number(o, "dropped"), written = lines_written(f);
    assert_int_equal(written + dropped, RESULTS);
    assert_true(drained <= written); /* those before the drain began are not the report's */
    assert_string_equal(text(o, "level"), dropped || number(o, "aborted") ? "warn" : "info");
    json_decref(o);
    start_again(f);
}

/* A disk whose flushes, once it is stuck, end only when whoever waits for them has been given up. */
static struct {
    struct store_disk_ops ops;
    enum err (*sync)(struct store_file *f);
    atomic_bool stuck;
    atomic_uint waiting;
} disk;

static enum err stuck_sync(struct store_file *f)
{
    struct rt_task *self = rt_task_current();
    if (atomic_load(&disk.stuck) && self) {
        atomic_fetch_add(&disk.waiting, 1);
        while (!rt_task_canceled(self))
            sched_yield();
        atomic_fetch_sub(&disk.waiting, 1);
    }
    return disk.sync(f);
}

/* A writer that hangs in a flush: what it held is written, what was queued behind it is counted, and the end says so. */
static void a_stuck_writer_is_given_up_and_what_it_did_not_write_is_counted(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    enum { BEHIND = 4 };
    struct store_disk *memory;
    log_to_file(f);
    assert_int_equal(store_disk_memory(0, &memory), ERR_OK);
    disk.ops = *memory->ops;
    disk.sync = disk.ops.sync;
    disk.ops.sync = stuck_sync;
    memory->ops = &disk.ops;
    f->disk = memory;
    f->flags[f->flag_n++] = "drain_deadline=1s";
    start(f);
    struct rewarder *r = svc_state(f->svc);
    atomic_store(&disk.stuck, true);
    send_line(r);
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    while (atomic_load(&disk.waiting) == 0 && !deadline_passed(by))
        sched_yield();
    assert_int_equal(atomic_load(&disk.waiting), 1);
    for (unsigned i = 0; i < BEHIND; i++)
        send_line(r);
    assert_int_equal(stop(f), 1);
    json_t *o = report_of(f);
    assert_int_equal(number(o, "drained"), 1);
    assert_int_equal(number(o, "dropped"), BEHIND);
    assert_true(number(o, "aborted") >= 1);
    assert_string_equal(text(o, "level"), "warn");
    json_decref(o);
    atomic_store(&disk.stuck, false);
    store_disk_destroy(memory);
    f->disk = NULL;
    f->flag_n--;
    start_again(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_clean_end_loses_nothing_and_names_what_stays), TEST(every_result_is_written_or_counted),
        TEST(a_stuck_writer_is_given_up_and_what_it_did_not_write_is_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
