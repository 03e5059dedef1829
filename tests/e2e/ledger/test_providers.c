/*
 * Providers elsewhere, and everything they may do to the ledger: say yes, say no, refuse with 4xx, fail with 5xx, talk rubbish, not
 * answer at all, be away. Each row: what the caller hears, how often the provider was asked, what the breaker and counters say.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "ledger_rig.h"
#include "waiting.h"

/* ---- a provider ---- */

enum mood { ALLOW, DENY, DENY_401, BAD_REQUEST, FAIL, RUBBISH, TOO_FEW, SILENT };

struct fake {
    int fd;
    pthread_t thread;
    _Atomic int mood;
    _Atomic unsigned asked;
    _Atomic bool stop;
    char last[8192]; /* the last body */
    char path[128];
};

static size_t count_of(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        n++;
    return n;
}

static void say(int peer, int status, const char *body)
{
    char out[16384];
    int n = snprintf(out, sizeof out, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
                     status, strlen(body), body);
    (void)!write(peer, out, (size_t)n);
}

static void answer(struct fake *f, int peer)
{
    char in[16384];
    size_t n = 0, want = 0;
    const char *body = NULL;
    while (body == NULL || n < want) {
        ssize_t got = recv(peer, in + n, sizeof in - 1 - n, 0);
        if (got <= 0)
            return;
        n += (size_t)got;
        in[n] = 0;
        body = strstr(in, "\r\n\r\n");
        const char *length = strcasestr(in, "content-length:");
        if (body != NULL)
            want = (size_t)(body + 4 - in) + (length == NULL ? 0 : (size_t)atol(length + 15));
    }
    snprintf(f->last, sizeof f->last, "%s", body + 4);
    size_t questions = strstr(f->last, "\"checks\"") != NULL ? count_of(f->last, "\"op\"")
                                                             : count_of(f->last, "\"idem_id\"");
    atomic_fetch_add(&f->asked, 1);
    char out[8192] = "{\"verdicts\":[";
    enum mood mood = (enum mood)atomic_load(&f->mood);
    for (size_t i = 0; i < questions; i++) {
        strcat(out, i == 0 ? "" : ",");
        strcat(out, mood == ALLOW      ? "{\"allow\":true}"
                    : mood == DENY_401 ? "{\"allow\":false,\"status\":401}"
                                       : "{\"allow\":false,\"why\":\"no such luck\",\"status\":403}");
    }
    strcat(out, "]}");
    switch (mood) {
    case ALLOW:
    case DENY:
    case DENY_401:
        say(peer, 200, out);
        break;
    case BAD_REQUEST:
        say(peer, 400, "{}");
        break;
    case FAIL:
        say(peer, 503, "{}");
        break;
    case RUBBISH:
        say(peer, 200, "{\"verdicts\":\"yes\"}");
        break;
    case TOO_FEW:
        say(peer, 200, "{\"verdicts\":[]}");
        break;
    case SILENT:
        while (!atomic_load(&f->stop) && recv(peer, in, sizeof in, 0) > 0)
            ;
        break;
    }
}

static void *serve(void *arg)
{
    struct fake *f = arg;
    while (!atomic_load(&f->stop)) {
        int peer = accept(f->fd, NULL, NULL);
        if (peer < 0)
            break;
        answer(f, peer);
        close(peer);
    }
    return NULL;
}

static void fake_open(struct fake *f, const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memset(f, 0, sizeof *f);
    snprintf(f->path, sizeof f->path, "/tmp/ron-provider-%d-%s", (int)getpid(), name);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", f->path);
    unlink(f->path);
    f->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(f->fd, 64), 0);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
}

static void fake_close(struct fake *f)
{
    atomic_store(&f->stop, true);
    shutdown(f->fd, SHUT_RDWR);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    close(f->fd);
    unlink(f->path);
}

/* ---- the ledger that asks it ---- */

static struct ledger_rig rig;
static struct rig_client client;
static struct fake fake;
static int serial;

enum { PATIENT_MS = 20000, HASTY_MS = 150 };

/* timeout_ms: what the provider is given to answer. */
static void open_with(const char *provider, int timeout_ms)
{
    char mode[64], url[192], timeout[64];
    const char *flags[] = {mode, url, timeout, "breakers.open_for=2s"};
    fake_open(&fake, provider);
    snprintf(mode, sizeof mode, "providers.%s.mode=http", provider);
    snprintf(url, sizeof url, "providers.%s.url=unix:%s", provider, fake.path);
    snprintf(timeout, sizeof timeout, "timeouts.%s_ms=%d", provider, timeout_ms);
    ledger_rig_open(&rig, true, flags, sizeof flags / sizeof *flags);
    rig_client_open(&rig, RIG_OAP_UNIX, &client);
}

static void close_all(void)
{
    rig_client_close(&client);
    ledger_rig_close(&rig);
    fake_close(&fake);
}

static void send_two(struct rig_reply *a)
{
    char names[2][32];
    struct rig_unit u[2];
    for (int i = 0; i < 2; i++) {
        snprintf(names[i], sizeof names[i], "p-%d", serial++);
        rig_mint(&u[i], names[i], "acct:alice", 7);
    }
    struct ledger_unit units[2] = {u[0].u, u[1].u};
    struct ledger_ingest rq = {.units = units, .n_units = 2};
    rig_ingest(&client, &rq, 60000, a);
}

static void expect_committed(void)
{
    struct rig_reply a;
    send_two(&a);
    assert_int_equal(a.outcome, LEDGER_ANSWERED);
    assert_int_equal(a.n, 2);
    assert_int_equal(a.v[0].status, LEDGER_COMMITTED);
    assert_int_equal(a.v[1].status, LEDGER_COMMITTED);
}

static void mood(enum mood m)
{
    atomic_store(&fake.mood, (int)m);
    atomic_store(&fake.asked, 0);
}

static const struct {
    const char *name;
    enum err denied;
    unsigned tries;
} rows[] = {{"kms", ERR_FORBIDDEN, 3}, {"policy", ERR_POLICY_DENIED, 2}, {"wallet", ERR_POLICY_DENIED, 2}};

static void await_breaker_half_open(const char *name)
{
    char labels[64];
    snprintf(labels, sizeof labels, "target=\"%s\"", name);
    AWAIT(ledger_rig_metric(&rig, "breaker_state", labels) <= 1.5);
}

static void a_provider_that_answers_decides_unit_by_unit(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct rig_reply a;
        open_with(rows[i].name, PATIENT_MS);
        expect_committed();
        assert_int_equal(atomic_load(&fake.asked), 1);
        assert_non_null(strstr(fake.last, i == 0 ? "\"aud\":\"ron-ledger\"" : "\"kid\":\""));
        assert_non_null(strstr(fake.last, "\"amount\":\"7\""));
        mood(DENY);
        send_two(&a);
        assert_int_equal(a.outcome, LEDGER_ANSWERED);
        assert_int_equal(a.v[0].status, LEDGER_REJECTED);
        assert_int_equal(a.v[0].reason, rows[i].denied);
        assert_non_null(strstr(a.v[0].details, "no such luck"));
        assert_int_equal(atomic_load(&fake.asked), 1); /* a no is not asked again */
        mood(BAD_REQUEST);
        send_two(&a);
        assert_int_equal(a.outcome, LEDGER_ANSWERED);
        assert_int_equal(a.v[0].reason, rows[i].denied);
        assert_int_equal(atomic_load(&fake.asked), 1);
        mood(ALLOW);
        expect_committed(); /* no breaker opened */
        close_all();
    }
}

static void
a_provider_that_fails_is_tried_again_then_its_breaker_opens_and_closes_after_a_success(void **state)
{
    (void)state;
    static const enum mood bad[] = {FAIL, RUBBISH, TOO_FEW};
    for (size_t i = 0; i < 3; i++) {
        struct rig_reply a;
        char labels[64], want[64];
        snprintf(labels, sizeof labels, "target=\"%s\"", rows[i].name);
        snprintf(want, sizeof want, "\"provider\":\"%s\"", rows[i].name);
        open_with(rows[i].name, PATIENT_MS);
        mood(bad[i]);
        send_two(&a);
        assert_int_equal(a.outcome, LEDGER_REFUSED);
        assert_int_equal(a.err, ERR_UNAVAILABLE);
        assert_non_null(strstr(a.details, want));
        assert_int_equal(atomic_load(&fake.asked), rows[i].tries);
        assert_int_equal((int)ledger_rig_metric(&rig, "breaker_open_total", labels), 1);
        ledger_rig_await_metric(&rig, "breaker_state", labels, 2);
        assert_int_equal(ledger_rig_http(&rig, "GET", "/readyz", NULL, NULL), 503);
        mood(ALLOW);
        send_two(&a); /* open: refused without a question */
        assert_int_equal(a.err, ERR_UNAVAILABLE);
        assert_int_equal(atomic_load(&fake.asked), 0);
        await_breaker_half_open(rows[i].name);
        expect_committed();
        expect_committed();
        close_all();
    }
}

static void a_provider_that_does_not_answer_is_a_timeout_and_counted(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct rig_reply a;
        char labels[64], want[64];
        snprintf(labels, sizeof labels, "op=\"%s\"", rows[i].name);
        snprintf(want, sizeof want, "\"op\":\"%s\"", rows[i].name);
        open_with(rows[i].name, HASTY_MS);
        mood(SILENT);
        send_two(&a);
        assert_int_equal(a.outcome, LEDGER_REFUSED);
        assert_string_equal(a.code, "timeout");
        assert_int_equal(a.status, 503);
        assert_non_null(strstr(a.details, want));
        assert_true(a.took_ms >= (HASTY_MS - 10) * (int)rows[i].tries);
        assert_int_equal((int)ledger_rig_metric(&rig, "io_timeouts_total", labels), rows[i].tries);
        close_all();
    }
}

static void a_provider_that_is_away_is_unavailable_and_the_ledger_still_drains(void **state)
{
    (void)state;
    struct rig_reply a;
    open_with("policy", PATIENT_MS);
    fake_close(&fake);
    send_two(&a);
    assert_int_equal(a.err, ERR_UNAVAILABLE);
    rig_client_close(&client);
    assert_int_equal(ledger_rig_stop(&rig), 0);
    ledger_rig_close(&rig);
}

static void a_token_the_kms_does_not_know_is_401_and_the_keys_here_are_not_asked(void **state)
{
    (void)state;
    struct rig_reply a;
    struct rig_client stranger;
    char url[256];
    open_with("kms", PATIENT_MS);
    mood(DENY_401);
    send_two(&a);
    assert_int_equal(a.outcome, LEDGER_REFUSED);
    assert_int_equal(a.err, ERR_UNAUTHENTICATED);
    /* What is no token at all does not reach the kms. */
    mood(ALLOW);
    snprintf(url, sizeof url, "oap+unix:%s/lo.sock", rig.dir);
    rig_client_open_url(url, "nonsense", 4, &stranger);
    struct rig_unit u;
    rig_mint(&u, "stranger", "acct:alice", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&stranger, &rq, 30000, &a);
    assert_int_equal(a.err, ERR_UNAUTHENTICATED);
    assert_int_equal(atomic_load(&fake.asked), 0);
    rig_client_close(&stranger);
    close_all();
}

static void a_known_unit_is_answered_although_policy_has_changed(void **state)
{
    (void)state;
    struct rig_unit u;
    struct rig_reply a;
    open_with("policy", PATIENT_MS);
    rig_mint(&u, "known", "acct:alice", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&client, &rq, 30000, &a);
    assert_int_equal(a.v[0].status, LEDGER_COMMITTED);
    mood(DENY);
    rig_ingest(&client, &rq, 30000, &a);
    assert_int_equal(a.v[0].status, LEDGER_DUPLICATE);
    assert_int_equal(atomic_load(&fake.asked), 0);
    close_all();
}

static void drills_play_every_failure_and_are_reported(void **state)
{
    (void)state;
    const char *flags[] = {"drills.enabled=true", "breakers.open_for=2s", "timeouts.wallet_ms=100"};
    struct rig_reply a;
    struct buf b;
    ledger_rig_open(&rig, true, flags, 3);
    rig_client_open(&rig, RIG_OAP, &client);
    const char *path = "/admin/providers/wallet/fail";
    assert_int_equal(ledger_rig_http(&rig, "POST", path, "{\"mode\":\"deny\"}", NULL), 204);
    send_two(&a);
    assert_int_equal(a.v[0].reason, ERR_POLICY_DENIED);
    assert_int_equal(ledger_rig_http(&rig, "POST", path, "{\"mode\":\"5xx\"}", NULL), 204);
    send_two(&a);
    assert_int_equal(a.err, ERR_UNAVAILABLE);
    buf_init(&b, 65536);
    assert_int_equal(ledger_rig_http(&rig, "GET", "/admin/providers", NULL, &b), 200);
    assert_non_null(strstr(buf_cstr(&b), "\"name\":\"wallet\",\"mode\":\"local\""));
    assert_non_null(strstr(buf_cstr(&b), "\"drill\":\"5xx\""));
    buf_fini(&b);
    ledger_rig_await_metric(&rig, "breaker_state", "target=\"wallet\"", 2);
    await_breaker_half_open("wallet");
    assert_int_equal(ledger_rig_http(&rig, "POST", path, "{\"mode\":\"timeout\"}", NULL), 204);
    send_two(&a);
    assert_string_equal(a.code, "timeout");
    ledger_rig_await_metric(&rig, "breaker_state", "target=\"wallet\"", 2);
    assert_int_equal(ledger_rig_http(&rig, "POST", path, "{\"mode\":\"off\"}", NULL), 204);
    await_breaker_half_open("wallet");
    expect_committed();
    assert_int_equal(ledger_rig_http(&rig, "POST", path, "{\"mode\":\"boom\"}", NULL), 400);
    assert_int_equal(
        ledger_rig_http(&rig, "POST", "/admin/providers/nobody/fail", "{\"mode\":\"off\"}", NULL), 404);
    rig_client_close(&client);
    ledger_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_provider_that_answers_decides_unit_by_unit),
        cmocka_unit_test(
            a_provider_that_fails_is_tried_again_then_its_breaker_opens_and_closes_after_a_success),
        cmocka_unit_test(a_provider_that_does_not_answer_is_a_timeout_and_counted),
        cmocka_unit_test(a_provider_that_is_away_is_unavailable_and_the_ledger_still_drains),
        cmocka_unit_test(a_token_the_kms_does_not_know_is_401_and_the_keys_here_are_not_asked),
        cmocka_unit_test(a_known_unit_is_answered_although_policy_has_changed),
        cmocka_unit_test(drills_play_every_failure_and_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
