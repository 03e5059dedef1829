/* Ten thousand connections that begin a request and never end it: what they cost, and whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "raw_http.h"
#include "wallet_rig.h"
#include "waiting.h"

enum {
    CROWD = 10000,
    WAVE = 500,
    MAX_CONNS = 1024,
    TOLD = 64,         /* beyond the limit, so many more may be there to be told so */
    OTHER_FILES = 512, /* of the process: listeners, logs, what the tests use */
    GROWTH_MIB =
        96, /* a connection that waits has a buffer of 17 KiB; and the crowd's own side lives here too */
};

static struct wallet_rig rig;
static struct raw_conn crowd[CROWD];

/* As many as the process may have: both ends of those let in, one of the others. */
static size_t crowd_size(void)
{
    struct rlimit l;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &l), 0);
    l.rlim_cur = l.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &l), 0);
    rlim_t most = l.rlim_cur - MAX_CONNS - TOLD - OTHER_FILES;
    size_t n = most < CROWD ? (size_t)most : CROWD;
    if (n < CROWD)
        print_message("only %zu connections: the limit of open files is %lu\n", n,
                      (unsigned long)l.rlim_cur);
    assert_true(n > 2 * MAX_CONNS);
    return n;
}

/* A caller who was there before, on the connection it has. */
static void ask(struct raw_conn *c, const char *path, struct raw_response *out)
{
    char request[5000];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
             path, rig.token);
    raw_puts(c, request);
    raw_read(c, false, out);
}

static void assert_served(struct raw_conn *c)
{
    struct raw_response r;
    ask(c, "/v1/balance?account=acct:alice&asset=ron", &r);
    assert_int_equal(r.status, 200);
    raw_free(&r);
}

static double connections(struct raw_conn *c)
{
    struct raw_response r;
    ask(c, "/metrics", &r);
    assert_int_equal(r.status, 200);
    const char *at = strstr(r.body, "\nhttp_connections{");
    assert_non_null(at);
    double n = strtod(strchr(at, '}') + 1, NULL);
    raw_free(&r);
    return n;
}

static bool newcomer_served(void)
{
    struct raw_response r;
    raw_once((uint16_t)svc_port(rig.svc), "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
             &r);
    bool served = r.status == 200;
    raw_free(&r);
    return served;
}

RT_UNCHECKED static void ten_thousand_slow_connections_cost_no_more_than_the_limit_lets_in(void **state)
{
    struct raw_conn before;
    size_t n = crowd_size(), cut = 0, told = 0, closed = 0;
    (void)state;
    wallet_rig_open(&rig, NULL, 0);
    raw_connect(&before, (uint16_t)svc_port(rig.svc));
    assert_served(&before);
    size_t rss = rig_rss_kib() / 1024;
    const char *half = "POST /v1/transfer HTTP/1.1\r\nHost: x\r\nContent-Le";
    for (size_t i = 0; i < n; i++) {
        raw_connect(&crowd[i], (uint16_t)svc_port(rig.svc));
        raw_try_send(&crowd[i], half, strlen(half));
        if (i % WAVE == WAVE - 1) {
            assert_served(&before); /* and the server has seen the wave */
            assert_true(connections(&before) <= MAX_CONNS + TOLD);
        }
    }
    long grown = (long)rig_rss_kib() / 1024 - (long)rss;
    print_message("%zu slow connections: %ld MiB more\n", n, grown);
    assert_true(grown < GROWTH_MIB);
    /* Each ends: with 408 when its time is over, with 429 because there is no room, or without a word. */
    for (size_t i = 0; i < n; i++) {
        struct raw_response r;
        raw_read(&crowd[i], false, &r);
        cut += r.status == 408;
        told += r.status == 429;
        closed += r.status == 0;
        raw_free(&r);
        raw_close(&crowd[i]);
    }
    print_message("%zu timed out, %zu were told there is no room, %zu were closed\n", cut, told, closed);
    assert_int_equal(cut + told + closed, n);
    assert_true(cut > 0 && told > 0);
    assert_served(&before);
    AWAIT(newcomer_served());
    raw_close(&before);
    assert_int_equal(wallet_rig_stop(&rig), 0);
    wallet_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_slow_connections_cost_no_more_than_the_limit_lets_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
