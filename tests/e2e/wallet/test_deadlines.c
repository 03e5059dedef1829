/*
 * Every time limit of the listener and of a request holds within ten per cent, on a clock that only the test moves: shortly
 * before the limit nothing has happened, shortly after it has. Nothing here measures how long anything took.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "raw_http.h"
#include "wallet_rig.h"

/* ---- the clock ---- */

/* It begins at the real time, for deadlines that tasks compare with the system's own clock, and stands still. */
static struct {
    int64_t mono_ns, wall_ms;
    _Atomic int64_t ahead_ns;
} driven;

static int64_t driven_mono(void *ctx)
{
    (void)ctx;
    return driven.mono_ns + atomic_load(&driven.ahead_ns);
}
static int64_t driven_wall(void *ctx)
{
    (void)ctx;
    return driven.wall_ms + atomic_load(&driven.ahead_ns) / 1000000;
}
static const struct clock driven_clock = {driven_mono, driven_wall, NULL};

static struct wallet_rig rig;

/* Two answers: whatever was due when the first was asked for has happened when the second came. One loop serves all. */
static void settle(void)
{
    for (int i = 0; i < 2; i++) {
        struct raw_response r;
        raw_once((uint16_t)svc_port(rig.svc),
                 "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &r);
        assert_int_equal(r.status, 200);
        raw_free(&r);
    }
}

/* To this many ms after `since_ns` on the driven clock. */
static void move_to(int64_t since_ns, int64_t ms)
{
    int64_t at = since_ns + ms * 1000000 - driven.mono_ns;
    assert_true(at >= atomic_load(&driven.ahead_ns));
    atomic_store(&driven.ahead_ns, at);
    settle();
}

static int64_t now(void)
{
    return driven_mono(NULL);
}

/* ---- connections ---- */

static void assert_silent(const struct raw_conn *c)
{
    char byte;
    assert_int_equal(recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

static void ask(struct raw_conn *c, const char *method, const char *path, const char *key, const char *body)
{
    char text[8192];
    raw_connect(c, (uint16_t)svc_port(rig.svc));
    int n = snprintf(text, sizeof text,
                     "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s%s%s"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     method, path, rig.token, key ? "Idempotency-Key: " : "", key ? key : "",
                     key ? "\r\n" : "", strlen(body), body);
    assert_true(n > 0 && (size_t)n < sizeof text);
    raw_send(c, text, (size_t)n);
}

static void assert_answer(struct raw_conn *c, int status, const char *says)
{
    struct raw_response r;
    raw_read(c, false, &r);
    assert_int_equal(r.status, status);
    assert_non_null(strstr(r.body, says));
    raw_free(&r);
    raw_close(c);
}

RT_BLOCKS
static void await_metric(const char *name, const char *labels, double at_least)
{
    struct deadline by = deadline_in_ms(30000);
    while (rig_metric(&rig, name, labels) < at_least)
        assert_false(deadline_passed(by));
}

/* ---- limits of the listener ---- */

RT_UNCHECKED
static void a_request_that_does_not_arrive_is_told_408_after_read_timeout(void **state)
{
    (void)state;
    struct raw_conn c;
    raw_connect(&c, (uint16_t)svc_port(rig.svc));
    raw_puts(&c, "POST /v1/transfer HTTP/1.1\r\nHost: x\r\n");
    settle();
    int64_t since = now();
    move_to(since, 4500);
    assert_silent(&c);
    raw_puts(&c, "X-More: of it\r\n"); /* bytes do not buy time */
    move_to(since, 5500);
    assert_answer(&c, 408, "took too long to arrive");
    await_metric("io_timeouts_total", "op=\"read\"", 1);
}

RT_UNCHECKED
static void a_connection_without_requests_is_closed_after_idle_timeout(void **state)
{
    (void)state;
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, (uint16_t)svc_port(rig.svc));
    raw_puts(&c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_int_equal(r.status, 200);
    raw_free(&r);
    settle();
    int64_t since = now();
    move_to(since, 54000);
    assert_silent(&c);
    move_to(since, 66000);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
}

/* ---- limits of a request ---- */

static const char pay[] =
    "{\"from\":\"acct:alice\",\"to\":\"acct:bob\",\"asset\":\"ron\",\"amount\":\"1\",\"nonce\":%d}";

RT_UNCHECKED
static void
an_operation_whose_answer_is_lost_is_pending_after_request_timeout_and_the_one_behind_it_never_sent(
    void **state)
{
    (void)state;
    struct raw_conn sent, behind;
    char body[256];
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL_AFTER, -1);
    int64_t since = now();
    snprintf(body, sizeof body, pay, 1);
    ask(&sent, "POST", "/v1/transfer", "sent", body);
    struct deadline by = deadline_in_ms(30000);
    while (rig_metric(&rig, "worker_inflight", "") < 1)
        assert_false(deadline_passed(by));
    snprintf(body, sizeof body, pay, 2);
    ask(&behind, "POST", "/v1/transfer", "behind", body);
    await_metric("inflight_requests", "route=\"/v1/transfer\"", 2);
    move_to(since, 4500);
    assert_silent(&sent);
    assert_silent(&behind);
    move_to(since, 5500);
    assert_answer(&sent, 503, "outcome_pending");
    assert_answer(&behind, 503, "timeout");
    mem_ledger_ingest_fault(rig.ledger, MEM_OK, -1);
}

RT_UNCHECKED
static void the_callers_own_shorter_time_holds_too(void **state)
{
    (void)state;
    struct raw_conn c;
    char text[8192], body[] = "{\"to\":\"acct:carol\",\"asset\":\"ron\",\"amount\":\"1\"}";
    mem_ledger_ingest_fault(rig.ledger, MEM_STALL_AFTER, -1);
    int64_t since = now();
    raw_connect(&c, (uint16_t)svc_port(rig.svc));
    snprintf(text, sizeof text,
             "POST /v1/issue HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: short\r\n"
             "Request-Timeout: 2.0\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             rig.token, strlen(body), body);
    raw_puts(&c, text);
    struct deadline by = deadline_in_ms(30000);
    while (rig_metric(&rig, "worker_inflight", "") < 1)
        assert_false(deadline_passed(by));
    move_to(since, 1800);
    assert_silent(&c);
    move_to(since, 2200);
    assert_answer(&c, 503, "outcome_pending");
    mem_ledger_ingest_fault(rig.ledger, MEM_OK, -1);
}

RT_UNCHECKED
static void a_balance_that_cannot_be_refreshed_is_shown_with_its_age_after_refresh_wait(void **state)
{
    (void)state;
    static const char path[] = "/v1/balance?account=acct:alice&asset=ron";
    struct rig_answer *a = calloc(1, sizeof *a);
    assert_non_null(a);
    rig_get(&rig, path, a);
    assert_int_equal(a->status, 200);
    mem_ledger_feed(rig.ledger, false); /* nobody vouches for what is known */
    mem_ledger_account_fault(rig.ledger, MEM_STALL, -1);
    struct deadline by = deadline_in_ms(30000);
    do {
        rig_get(&rig, "/readyz", a);
        assert_false(deadline_passed(by));
    } while (!strstr(a->body, "\"feed\":false"));
    free(a);
    /* The ledger's own second runs on the system's clock: on a machine that is too slow for it, once more. */
    for (bool in_time = false; !in_time;) {
        struct raw_conn c;
        struct deadline real = deadline_in_ms(2000);
        assert_false(deadline_passed(by));
        atomic_fetch_add(&driven.ahead_ns, 300000000); /* older than the staleness window */
        settle();
        int64_t since = now();
        ask(&c, "GET", path, NULL, "");
        settle();
        move_to(since, 180);
        char byte;
        bool silent = recv(c.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
        move_to(since, 220);
        in_time = !deadline_passed(real);
        assert_true(silent || !in_time);
        assert_answer(&c, 200, "\"degraded\":true");
    }
    mem_ledger_account_fault(rig.ledger, MEM_OK, -1);
}

RT_UNCHECKED
static int open_all(void **state)
{
    (void)state;
    static const char *const flags[] = {"http.threads=1"};
    struct rig_answer *a = calloc(1, sizeof *a);
    assert_non_null(a);
    driven.mono_ns = clock_mono_ns(clock_real());
    driven.wall_ms = clock_wall_ms(clock_real());
    wallet_rig_open_at(&rig, flags, 1, &driven_clock);
    rig_post(&rig, "/v1/issue", "fund", a, "{\"to\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"1000\"}");
    assert_int_equal(a->status, 200);
    free(a);
    return 0;
}

RT_UNCHECKED
static int close_all(void **state)
{
    (void)state;
    wallet_rig_close(&rig);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_that_does_not_arrive_is_told_408_after_read_timeout,
                                        open_all, close_all),
        cmocka_unit_test_setup_teardown(a_connection_without_requests_is_closed_after_idle_timeout,
                                        open_all, close_all),
        cmocka_unit_test_setup_teardown(
            an_operation_whose_answer_is_lost_is_pending_after_request_timeout_and_the_one_behind_it_never_sent,
            open_all, close_all),
        cmocka_unit_test_setup_teardown(the_callers_own_shorter_time_holds_too, open_all, close_all),
        cmocka_unit_test_setup_teardown(
            a_balance_that_cannot_be_refreshed_is_shown_with_its_age_after_refresh_wait, open_all,
            close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
