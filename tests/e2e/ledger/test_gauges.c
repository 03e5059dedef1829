/* Numbers that move only when something happens: who listens, who is too slow, where a key was found, a clock that is behind. */
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

static void open_rig(const char *const *flags, size_t n)
{
    ledger_rig_open_at(&rig, true, flags, n, &off_clock);
    rig_client_open(&rig, RIG_DIRECT, &direct);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subscribers_are_counted_while_they_listen),
        cmocka_unit_test(a_request_that_does_not_come_in_time_is_counted_as_a_timeout_of_reading),
        cmocka_unit_test(look_ups_say_where_the_answer_came_from),
        cmocka_unit_test(a_wall_clock_far_behind_ledger_time_degrades_readiness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
