/*
 * Numbers that move only when something happens: who listens, who is too slow, where a key was found, a clock that is behind, a disk
 * that hangs or fails under the committer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ledger_rig.h"
#include "raw_http.h"
#include "rt/os.h"
#include "rt/task.h"
#include "store/disk.h"
#include "waiting.h"

static struct ledger_rig rig;
static struct rig_client direct;

static _Atomic int64_t wall_off_ms;

static int64_t off_mono_ns(void *ctx)
{
    (void)ctx;
    return os_now_ns();
}

static int64_t off_wall_ms(void *ctx)
{
    (void)ctx;
    return clock_real()->wall_ms(clock_real()->ctx) + atomic_load(&wall_off_ms);
}

static const struct clock off_clock = {off_mono_ns, off_wall_ms, NULL};

static void open_rig_on(bool amnesia, const char *const *flags, size_t n)
{
    ledger_rig_open_at(&rig, amnesia, flags, n, &off_clock);
    rig_client_open(&rig, RIG_DIRECT, &direct);
}

static void open_rig(const char *const *flags, size_t n)
{
    open_rig_on(true, flags, n);
}

static void close_rig(void)
{
    rig_client_close(&direct);
    assert_int_equal(ledger_rig_stop(&rig), 0);
    ledger_rig_close(&rig);
}

static void await_exactly(const char *name, const char *labels, double value)
{
    AWAIT(ledger_rig_metric(&rig, name, labels) == value);
}

static void subscribers_are_counted_while_they_listen(void **state)
{
    (void)state;
    open_rig(NULL, 0);
    struct ledger_feed *a = ledger_client_feed(direct.c, 0, &rig_deaf_sink, NULL);
    assert_non_null(a);
    await_exactly("subscribers", "stream=\"events\"", 1);
    ledger_client_feed_stop(direct.c, a);
    await_exactly("subscribers", "stream=\"events\"", 0);
    close_rig();
}

static void a_request_that_does_not_come_in_time_is_counted_as_a_timeout_of_reading(void **state)
{
    (void)state;
    const char *flags[] = {"read_timeout=500ms"};
    open_rig(flags, 1);
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, (uint16_t)svc_port(rig.svc));
    raw_puts(&c, "POST /v1/ingest HTTP/1.1\r\nHost: x\r\n");
    raw_read(&c, false, &r);
    assert_int_equal(r.status, 408);
    raw_close(&c);
    raw_free(&r);
    ledger_rig_await_metric(&rig, "io_timeouts_total", "op=\"read\"", 1);
    close_rig();
}

static void look_ups_say_where_the_answer_came_from(void **state)
{
    (void)state;
    struct rig_unit u;
    struct rig_reply reply;
    open_rig(NULL, 0);
    rig_mint(&u, "g-1", "acct:alice", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&direct, &rq, 20000, &reply);
    assert_int_equal(reply.v[0].status, LEDGER_COMMITTED);
    assert_int_equal((int)ledger_rig_metric(&rig, "index_lookups_total", "result=\"filtered\""), 1);
    assert_int_equal((int)ledger_rig_metric(&rig, "index_lookups_total", "result=\"hot\""), 0);
    rig_ingest(&direct, &rq, 20000, &reply);
    assert_int_equal(reply.v[0].status, LEDGER_DUPLICATE);
    assert_int_equal((int)ledger_rig_metric(&rig, "index_lookups_total", "result=\"hot\""), 1);
    close_rig();
}

static void await_clock_is_missing(bool missing)
{
    struct deadline by = deadline_in_ms(20000);
    for (;;) {
        struct buf b;
        buf_init(&b, 65536);
        int status = ledger_rig_http(&rig, "GET", "/readyz", NULL, &b);
        bool found = strstr(buf_cstr(&b), "\"clock\"") != NULL;
        buf_fini(&b);
        assert_int_equal(status, 200); /* degraded, but it serves */
        if (found == missing)
            return;
        assert_false(deadline_passed(by));
        usleep(20000);
    }
}

static void a_wall_clock_far_behind_ledger_time_degrades_readiness(void **state)
{
    (void)state;
    open_rig(NULL, 0);
    await_clock_is_missing(false);
    atomic_store(&wall_off_ms,
                 -INT64_C(400000)); /* ledger time goes on: now it is ahead by more than five minutes */
    await_clock_is_missing(true);
    atomic_store(&wall_off_ms, 0);
    await_clock_is_missing(false);
    close_rig();
}

/* ---- a disk that the committer cannot rely on: the real one, but for its writes ---- */

static const struct store_disk_ops *plain;
static struct store_disk_ops unreliable;
enum { WRITES_WORK, WRITES_HANG, WRITES_FAIL };
static _Atomic int writes_do;

static bool is_committer(void)
{
    struct rt_task *self = rt_task_current();
    return self != NULL && strcmp(rt_task_name(self), "committer") == 0;
}

static enum err unreliable_pwrite(struct store_file *f, const void *p, size_t n, uint64_t at)
{
    AWAIT(!is_committer() || atomic_load(&writes_do) != WRITES_HANG);
    if (is_committer() && atomic_load(&writes_do) == WRITES_FAIL)
        return ERR_IO;
    return plain->pwrite(f, p, n, at);
}

static int with_an_unreliable_disk(void **state)
{
    (void)state;
    plain = store_disk_real()->ops;
    unreliable = *plain;
    unreliable.pwrite = unreliable_pwrite;
    store_disk_real()->ops = &unreliable;
    atomic_store(&writes_do, WRITES_WORK);
    return 0;
}

static int with_the_real_disk(void **state)
{
    (void)state;
    atomic_store(&writes_do, WRITES_WORK);
    store_disk_real()->ops = plain;
    return 0;
}

static void a_write_that_hangs_is_seen_as_the_committers_lag(void **state)
{
    (void)state;
    const char *flags[] = {"timeouts.commit_wait_ms=1"};
    struct rig_unit u;
    struct rig_reply reply;
    open_rig_on(false, flags, 1);
    await_exactly("committer_lag_seconds", "", 0);
    atomic_store(&writes_do, WRITES_HANG);
    rig_mint(&u, "lag-1", "acct:alice", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&direct, &rq, 20000, &reply);
    assert_int_equal(reply.err, ERR_OUTCOME_UNKNOWN);
    ledger_rig_await_metric(&rig, "committer_lag_seconds", "", 0.001);
    AWAIT(ledger_rig_http(&rig, "GET", "/readyz", NULL, NULL) ==
          503); /* beyond readiness.max_committer_lag_ms */
    atomic_store(&writes_do, WRITES_WORK);
    await_exactly("committer_lag_seconds", "", 0);
    rig_unit(&direct, u.idem, 5000, &reply);
    assert_true(reply.found);
    assert_int_equal(reply.v[0].status, LEDGER_COMMITTED);
    close_rig();
}

static void a_write_that_fails_is_counted_once_and_never_tried_again(void **state)
{
    (void)state;
    struct rig_unit u;
    struct rig_reply reply;
    open_rig_on(false, NULL, 0);
    atomic_store(&writes_do, WRITES_FAIL);
    rig_mint(&u, "fail-1", "acct:alice", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&direct, &rq, 20000, &reply);
    assert_int_equal(reply.err, ERR_OUTCOME_UNKNOWN);
    atomic_store(&writes_do, WRITES_WORK);
    await_exactly("ledger_safe_mode", "", 1);
    rig_ingest(&direct, &rq, 20000, &reply);
    assert_int_equal(reply.err, ERR_SAFE_MODE);
    assert_int_equal((int)ledger_rig_metric(&rig, "journal_flush_fail_total", ""), 1);
    rig_client_close(&direct);
    (void)ledger_rig_stop(&rig);
    ledger_rig_start(&rig); /* reads again what is there: nothing of it */
    rig_client_open(&rig, RIG_DIRECT, &direct);
    rig_ingest(&direct, &rq, 20000, &reply);
    assert_int_equal(reply.v[0].status, LEDGER_COMMITTED);
    assert_int_equal(reply.v[0].seq_start, 1);
    close_rig();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subscribers_are_counted_while_they_listen),
        cmocka_unit_test(a_request_that_does_not_come_in_time_is_counted_as_a_timeout_of_reading),
        cmocka_unit_test(look_ups_say_where_the_answer_came_from),
        cmocka_unit_test(a_wall_clock_far_behind_ledger_time_degrades_readiness),
        cmocka_unit_test_setup_teardown(a_write_that_hangs_is_seen_as_the_committers_lag,
                                        with_an_unreliable_disk, with_the_real_disk),
        cmocka_unit_test_setup_teardown(a_write_that_fails_is_counted_once_and_never_tried_again,
                                        with_an_unreliable_disk, with_the_real_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
