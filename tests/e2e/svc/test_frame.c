/* The frame end to end: a tiny service started, used, disturbed and drained in this process, over real sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "net/http_client.h"
#include "svc/feed.h"
#include "tiny.h"

struct fixture {
    char dir[64], root[80], config[80], token[4096];
    struct svc_data *data;
    struct svc *svc;
};

struct answer {
    int status;
    char body[65536];
    char retry_after[16];
};

static void keep(void *arg, enum err e, const struct net_http_response *r)
{
    struct answer *a = arg;
    a->status = e == ERR_OK ? r->status : -(int)e;
    if (e != ERR_OK)
        return;
    size_t n = r->body.n < sizeof a->body - 1 ? r->body.n : sizeof a->body - 1;
    if (n > 0) /* nothing may be nowhere */
        memcpy(a->body, r->body.p, n);
    a->body[n] = 0;
    struct str retry = net_http_header(r, "retry-after");
    snprintf(a->retry_after, sizeof a->retry_after, "%.*s", STR_ARG(retry));
}

/* header: one more, or NULL; uds: instead of TCP, or NULL. */
RT_BLOCKS
static struct answer *call_with(struct fixture *f, const char *method, const char *path, const char *token,
                                const char *body, const char *header, const char *uds)
{
    static _Thread_local struct answer a;
    char url[256], bearer[4200];
    const char *headers[3] = {NULL, NULL, NULL};
    size_t n = 0;
    if (token) {
        snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", token);
        headers[n++] = bearer;
    }
    if (header)
        headers[n++] = header;
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", svc_port(f->svc), path);
    memset(&a, 0, sizeof a);
    struct net_http_request rq = {.method = method,
                                  .url = url,
                                  .uds = uds,
                                  .headers = headers,
                                  .body = bytes_of_str(str_from_c(body)),
                                  .by = deadline_in_ms(10000)};
    enum err e = net_http_once(&rq, NULL, keep, &a);
    if (e != ERR_OK && a.status == 0)
        a.status = -(int)e;
    return &a;
}

RT_BLOCKS
static struct answer *call(struct fixture *f, const char *method, const char *path, const char *token,
                           const char *body)
{
    return call_with(f, method, path, token, body, NULL, NULL);
}

static int open_as(struct fixture *f, const struct svc_def *def, const char *const *flags, size_t n)
{
    struct svc_options opt = {.data = f->data,
                              .flags = flags,
                              .flag_count = n,
                              .quiet = true,
                              .config_file = f->config[0] ? f->config : NULL};
    enum err e = svc_open(def, &opt, &f->svc);
    return e == ERR_OK ? (int)svc_start(f->svc) : (int)e;
}

static int open_with(struct fixture *f, const char *const *flags, size_t n)
{
    return open_as(f, &tiny_svc, flags, n);
}

/* The service's section of the file that it reads, also when it is opened next. */
static void configure(struct fixture *f, const char *lines)
{
    snprintf(f->config, sizeof f->config, "%s/ron.toml", f->dir);
    FILE *file = fopen(f->config, "w");
    assert_non_null(file);
    fprintf(file, "[tiny]\n%s\n", lines);
    assert_int_equal(fclose(file), 0);
}

static enum err reload(struct fixture *f)
{
    struct buf diff;
    buf_init(&diff, 1 << 16);
    enum err e = svc_reload(f->svc, &diff);
    buf_fini(&diff);
    return e;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const char *why = "";
    struct buf token;
    strcpy(f->dir, "/tmp/ron-frame-XXXXXX");
    CHECK(mkdtemp(f->dir));
    snprintf(f->root, sizeof f->root, "%s/ron-data", f->dir);
    assert_int_equal(svc_data_open(f->root, false, SVC_DATA_SHARED, &f->data, &why), ERR_OK);
    buf_init_fixed(&token, f->token, sizeof f->token - 1);
    assert_int_equal(svc_data_operator_token(f->data, &token), ERR_OK);
    f->token[token.n] = 0;
    *state = f;
    return 0;
}

RT_UNCHECKED static int tear_down(void **state)
{
    struct fixture *f = *state;
    char command[128];
    svc_close(f->svc);
    svc_data_close(f->data);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    int status = system(command);
    free(f);
    return status;
}

static const char *const drills[] = {"--drills.enabled=true"};

RT_UNCHECKED static void first_start_makes_private_keys_and_a_token_that_works(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    char path[128];
    assert_int_equal(stat(f->root, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    snprintf(path, sizeof path, "%s/operator.token", f->root);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(open_with(f, NULL, 0), ERR_OK);
    struct answer *a = call(f, "POST", "/v1/echo", f->token, "hello");
    assert_int_equal(a->status, 200);
    assert_string_equal(a->body, "hello");
}

RT_UNCHECKED static void without_a_capability_nothing_is_done(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(open_with(f, NULL, 0), ERR_OK);
    struct answer *a = call(f, "POST", "/v1/echo", NULL, "hello");
    assert_int_equal(a->status, 401);
    assert_non_null(strstr(a->body, "\"code\":\"unauthenticated\""));
    assert_int_equal(call(f, "POST", "/v1/echo", "forged", "hello")->status, 401);
    assert_int_equal(call(f, "GET", "/admin/topology", NULL, "")->status, 401);
    a = call(f, "GET", "/metrics", NULL, "");
    assert_int_equal(a->status, 200);
    assert_non_null(strstr(a->body, "tiny_answered_total{service=\"tiny\"} 0"));
}

RT_UNCHECKED static void health_readiness_version_and_topology_are_there(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(open_with(f, NULL, 0), ERR_OK);
    assert_int_equal(call(f, "GET", "/healthz", NULL, "")->status, 200);
    struct answer *a = call(f, "GET", "/readyz", NULL, "");
    assert_int_equal(a->status, 200);
    assert_non_null(strstr(a->body, "\"ready\":true"));
    assert_non_null(strstr(call(f, "GET", "/version", NULL, "")->body, "\"version\""));
    a = call(f, "GET", "/admin/topology", f->token, "");
    assert_int_equal(a->status, 200);
    assert_non_null(strstr(a->body, "\"capacity\":4"));
    assert_non_null(strstr(call(f, "GET", "/metrics", NULL, "")->body,
                           "queue_capacity{service=\"tiny\",queue=\"work\"} 4"));
    assert_int_equal(call(f, "GET", "/nothing", NULL, "")->status, 404);
    assert_int_equal(call(f, "POST", "/healthz", NULL, "")->status, 405);
}

enum { PATIENCE_MS = 30000 };

struct caller {
    struct fixture *f;
    int status;
    char retry_after[16];
};

RT_UNCHECKED static void *echo_once(void *arg)
{
    struct caller *c = arg;
    struct answer *a = call(c->f, "POST", "/v1/echo", c->f->token, "x");
    c->status = a->status;
    strcpy(c->retry_after, a->retry_after);
    return NULL;
}

/* 2 workers stand at the gate with one request each, 4 fit the queue: of 9, at least 3 are refused at once. */
RT_UNCHECKED static void a_full_queue_answers_429_at_once_and_counts_it(void **state)
{
    enum { CALLERS = 9, ROOM = 4 };
    struct fixture *f = *state;
    struct caller callers[CALLERS];
    pthread_t threads[CALLERS];
    int ok = 0, busy = 0;
    assert_int_equal(open_with(f, NULL, 0), ERR_OK);
    tiny_gate(f->svc, false);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.f = f};
        assert_int_equal(pthread_create(&threads[i], NULL, echo_once, &callers[i]), 0);
    }
    /* All 5 that do not fit the queue, when they come faster than the workers take theirs. */
    for (struct deadline by = deadline_in_ms(PATIENCE_MS); !deadline_passed(by);) {
        struct answer *a = call(f, "GET", "/metrics", NULL, "");
        const char *at = strstr(a->body, "busy_rejections_total{service=\"tiny\",endpoint=\"echo\"} ");
        assert_non_null(at);
        if (atoi(strchr(at, '}') + 2) >= CALLERS - ROOM - 2)
            break;
    }
    tiny_gate(f->svc, true);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        ok += callers[i].status == 200;
        busy += callers[i].status == 429;
        if (callers[i].status == 429)
            assert_true(atoi(callers[i].retry_after) >= 1);
    }
    assert_int_equal(ok + busy, CALLERS);
    assert_in_range(busy, CALLERS - ROOM - 2, CALLERS - ROOM);
}

RT_UNCHECKED static void a_listener_that_is_restarted_serves_on(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(open_with(f, NULL, 0), 0);
    for (int round = 1; round <= 2; round++) {
        char want[100];
        snprintf(want, sizeof want, "service_restarts_total{service=\"tiny\",task=\"listener\"} %d", round);
        assert_int_equal(call(f, "POST", "/admin/tasks/listener/restart", f->token, "")->status, 202);
        bool restarted = false;
        struct deadline by = deadline_in_ms(PATIENCE_MS);
        while (!restarted &&
               !deadline_passed(by)) /* a listener that is gone makes the call fail, not this test hang */
            restarted = strstr(call(f, "GET", "/metrics", NULL, "")->body, want) != NULL;
        assert_true(restarted);
        assert_int_equal(call(f, "POST", "/v1/echo", f->token, "still here")->status, 200);
    }
}

RT_UNCHECKED static void a_failed_task_comes_back_and_a_drill_needs_permission(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(open_with(f, drills, 1), ERR_OK);
    assert_int_equal(call(f, "POST", "/admin/tasks/worker/fail", f->token, "")->status, 202);
    assert_int_equal(call(f, "POST", "/admin/tasks/nobody/fail", f->token, "")->status, 404);
    assert_int_equal(call(f, "POST", "/v1/echo", f->token, "still here")->status, 200);
    bool restarted = false;
    for (struct deadline by = deadline_in_ms(PATIENCE_MS); !restarted && !deadline_passed(by);)
        restarted = strstr(call(f, "GET", "/metrics", NULL, "")->body,
                           "service_restarts_total{service=\"tiny\",task=\"worker\"} 1") != NULL;
    assert_true(restarted);
}

RT_UNCHECKED static void drills_are_refused_unless_configured(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(open_with(f, NULL, 0), ERR_OK);
    assert_int_equal(call(f, "POST", "/admin/tasks/worker/fail", f->token, "")->status, 403);
}

RT_UNCHECKED static void a_wrong_configuration_is_refused_with_its_key_and_range(void **state)
{
    struct fixture *f = *state;
    static const char *const flags[] = {"--workers=99"};
    assert_int_not_equal(open_with(f, flags, 1), ERR_OK);
    assert_non_null(strstr(svc_last_error(), "workers"));
    assert_non_null(strstr(svc_last_error(), "8"));
}

RT_UNCHECKED static void a_public_address_needs_tls_or_an_explicit_yes(void **state)
{
    struct fixture *f = *state;
    static const char *const flags[] = {"--bind=0.0.0.0:0"};
    assert_int_equal(open_with(f, flags, 1), ERR_PERMISSION);
    assert_non_null(strstr(svc_last_error(), "allow_plaintext"));
}

static void no_oap(struct net_oap_req *rq, void *state)
{
    (void)state;
    net_oap_reply_problem(rq, ERR_NOT_FOUND, "nothing");
}

/* It has no TLS, and tokens travel with it. */
RT_UNCHECKED static void a_public_address_for_oap_needs_an_explicit_yes(void **state)
{
    struct fixture *f = *state;
    static struct svc_def def; /* until it is closed */
    def = tiny_svc;
    def.oap = no_oap;
    def.oap_app = 0x7777;
    static const char *const flags[] = {"--oap.bind=0.0.0.0:0", "--allow_plaintext=true"};
    assert_int_equal(open_as(f, &def, flags, 1), ERR_PERMISSION);
    assert_non_null(strstr(svc_last_error(), "oap.bind"));
    assert_non_null(strstr(svc_last_error(), "allow_plaintext"));
    svc_close(f->svc);
    assert_int_equal(open_as(f, &def, flags, 2), ERR_OK);
    assert_true(svc_oap_port(f->svc) > 0);
}

RT_UNCHECKED static void a_unix_socket_is_for_those_who_are_named(void **state)
{
    struct fixture *f = *state;
    char flag[64], uds[128];
    const char *flags[] = {flag};
    snprintf(uds, sizeof uds, "%s/run/tiny.sock", f->root);
    snprintf(flag, sizeof flag, "--uds_allow_uids=%u", (unsigned)geteuid());
    assert_int_equal(open_with(f, flags, 1), ERR_OK);
    assert_int_equal(call_with(f, "GET", "/healthz", NULL, "", NULL, uds)->status, 200);
    svc_close(f->svc);
    snprintf(flag, sizeof flag, "--uds_allow_uids=%u", (unsigned)geteuid() + 1);
    assert_int_equal(open_with(f, flags, 1), ERR_OK);
    assert_true(call_with(f, "GET", "/healthz", NULL, "", NULL, uds)->status < 0);
    assert_int_equal(call(f, "GET", "/healthz", NULL, "")->status, 200);
    svc_close(f->svc);
    static const char *const nobody[] = {"--uds_allow_uids=4294967296", "--uds_allow_uids=4294967295",
                                         "--uds_allow_uids=-1"};
    for (size_t i = 0; i < 3; i++) { /* the first would be root */
        assert_int_equal(open_with(f, &nobody[i], 1), ERR_BAD_REQUEST);
        assert_non_null(strstr(svc_last_error(), "uds_allow_uids"));
        svc_close(f->svc);
    }
    f->svc = NULL;
}

static void trust_this_machine(const void *config, struct net_limits *limits)
{
    (void)config;
    static const struct net_cidr here = {.addr = {[10] = 0xff, [11] = 0xff, [12] = 127}, .bits = 104};
    limits->trusted_proxies = &here;
    limits->trusted_proxies_count = 1;
}

RT_UNCHECKED static void admin_calls_are_not_for_those_behind_a_proxy_on_this_machine(void **state)
{
    struct fixture *f = *state;
    static struct svc_def def; /* until it is closed */
    def = tiny_svc;
    def.hooks.limits = trust_this_machine;
    assert_int_equal(open_as(f, &def, NULL, 0), ERR_OK);
    static const char admin[] = "/admin/topology";
    assert_int_equal(call(f, "GET", admin, f->token, "")->status, 200);
    assert_int_equal(call_with(f, "GET", admin, f->token, "", "X-Forwarded-For: 127.0.0.1", NULL)->status,
                     200);
    assert_int_equal(
        call_with(f, "GET", admin, f->token, "", "X-Forwarded-For: 127.0.0.1, 203.0.113.9", NULL)->status,
        403);
    assert_int_equal(
        call_with(f, "POST", "/v1/echo", f->token, "x", "X-Forwarded-For: 203.0.113.9", NULL)->status, 200);
}

RT_BLOCKS
static enum err run_stubborn(struct rt_task *self, void *arg)
{
    (void)arg;
    while (!rt_task_canceled(self)) {
        if (rt_task_pause(self, deadline_in_ms(1000)) == ERR_OK)
            rt_task_beat(self);
    }
    return ERR_CANCELED;
}

static enum err start_stubborn(struct svc *s, void *state)
{
    enum err e = svc_add_task(s, "worker", run_stubborn, state);
    return e == ERR_OK ? svc_add_task(s, "health", svc_health_task, s) : e;
}

RT_UNCHECKED static void a_drain_has_the_time_that_the_last_reload_said(void **state)
{
    struct fixture *f = *state;
    static struct svc_def def; /* until it is closed */
    def = tiny_svc;
    def.hooks.start = start_stubborn;
    configure(f, "drain_deadline = \"10m\"");
    assert_int_equal(open_as(f, &def, NULL, 0), ERR_OK);
    configure(f, "drain_deadline = \"50ms\"");
    assert_int_equal(reload(f), ERR_OK);
    assert_int_equal(svc_drain(f->svc), 1);
    assert_int_equal(rt_supervisor_state(svc_supervisor(f->svc)), RT_DRAIN_STOPPED);
}

static _Atomic int held; /* 1: the next reload is to stop in its hook; 2: it has; 0: it may go on */

static void hold_reload(struct svc *s, void *state)
{
    (void)s;
    (void)state;
    int next = 1;
    if (!atomic_compare_exchange_strong(&held, &next, 2))
        return;
    while (atomic_load(&held) == 2)
        usleep(1000);
}

static void *reload_once(void *arg)
{
    return (void *)(intptr_t)reload(arg);
}

/* Two at once could put the older of two key files in force last. */
RT_UNCHECKED static void reloads_come_one_after_the_other(void **state)
{
    struct fixture *f = *state;
    static struct svc_def def; /* until it is closed */
    def = tiny_svc;
    pthread_t first;
    void *result;
    def.hooks.reloaded = hold_reload;
    assert_int_equal(open_as(f, &def, NULL, 0), ERR_OK);
    atomic_store(&held, 1);
    assert_int_equal(pthread_create(&first, NULL, reload_once, f), 0);
    for (struct deadline by = deadline_in_ms(PATIENCE_MS); atomic_load(&held) == 1;) {
        assert_false(deadline_passed(by));
        usleep(1000);
    }
    enum err second = reload(f);
    struct answer *a = call(f, "POST", "/admin/reload", f->token, "");
    atomic_store(&held, 0);
    pthread_join(first, &result);
    assert_int_equal((intptr_t)result, ERR_OK);
    assert_int_equal(second, ERR_LOCKED);
    assert_int_equal(a->status, 429);
    assert_non_null(strstr(a->body, "under way"));
    assert_int_equal(reload(f), ERR_OK);
    assert_int_equal(call(f, "POST", "/admin/reload", f->token, "")->status, 200);
}

__attribute__((format(printf, 1, 2))) static void shell(const char *fmt, ...)
{
    char command[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

static void configure_tls(struct fixture *f, bool shout)
{
    char lines[512];
    snprintf(lines, sizeof lines, "tls.cert = \"%s/cert\"\ntls.key = \"%s/key\"\nshout = %s", f->dir,
             f->dir, shout ? "true" : "false");
    configure(f, lines);
}

/* A certificate that cannot be used is as good a reason to keep everything as a key that is wrong. */
RT_UNCHECKED static void a_reload_with_a_broken_certificate_changes_nothing(void **state)
{
    struct fixture *f = *state;
    shell(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost "
        "-keyout %s/key -out %s/cert 2>/dev/null",
        f->dir, f->dir);
    configure_tls(f, false);
    assert_int_equal(open_with(f, NULL, 0), ERR_OK);
    configure_tls(f, true);
    shell("mv %s/cert %s/cert.kept", f->dir, f->dir);
    assert_int_not_equal(reload(f), ERR_OK);
    assert_non_null(strstr(svc_last_error(), "tls.cert"));
    struct buf shown;
    buf_init(&shown, 1 << 16);
    shell("mv %s/cert.kept %s/cert", f->dir, f->dir);
    assert_int_equal(svc_reload(f->svc, &shown), ERR_OK);
    assert_non_null(strstr(buf_cstr(&shown), "shout: false -> true")); /* so it was not in force before */
    buf_fini(&shown);
}

static struct svc_feed *feed;

static void get_feed(struct net_req *rq, void *ctx)
{
    (void)ctx;
    if (!svc_feed_follow(feed, rq))
        net_reply_problem(rq, ERR_BUSY, "too many");
}

/* Nobody would end its stream: the request would hold up the drain, and the end of the feed find a listener. */
RT_UNCHECKED static void who_follows_a_feed_after_its_last_words_is_told_the_end(void **state)
{
    struct fixture *f = *state;
    static const struct net_route routes[] = {
        {.method = "GET", .pattern = "/v1/feed", .fn = get_feed, .flags = NET_NO_DEADLINE},
        {.method = NULL}};
    static struct svc_def def; /* until it is closed */
    def = tiny_svc;
    def.routes = routes;
    assert_int_equal(open_as(f, &def, NULL, 0), ERR_OK);
    struct svc_feed_spec spec = {
        .service = "tiny", .queue = "feed", .lock_rank = 20, .svc = f->svc, .log = svc_log(f->svc)};
    assert_int_equal(svc_feed_create(&spec, &feed), ERR_OK);
    svc_feed_tick(feed, true);
    struct answer *a = call(f, "GET", "/v1/feed", NULL, "");
    assert_int_equal(a->status, 200);
    assert_string_equal(a->body, "");
    assert_int_equal(svc_drain(f->svc), 0);
    svc_feed_destroy(feed);
}

RT_UNCHECKED static void drain_answers_what_was_accepted_and_exits_clean(void **state)
{
    struct fixture *f = *state;
    struct caller c = {.f = f};
    pthread_t thread;
    assert_int_equal(open_with(f, NULL, 0), ERR_OK);
    tiny_gate(f->svc, false);
    assert_int_equal(pthread_create(&thread, NULL, echo_once, &c), 0);
    static const char inflight[] = "inflight_requests{service=\"tiny\",route=\"/v1/echo\"} ";
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    const char *at;
    do {
        assert_false(deadline_passed(by));
        at = strstr(call(f, "GET", "/metrics", NULL, "")->body, inflight);
        assert_non_null(at); /* from the start */
    } while (at[sizeof inflight - 1] != '1');
    assert_int_equal(svc_drain(f->svc), 0);
    pthread_join(thread, NULL);
    assert_int_equal(c.status, 200);
    struct buf page;
    buf_init(&page, 1 << 20);
    obs_metrics_render(svc_metrics(f->svc), &page);
    at = strstr(buf_cstr(&page), inflight);
    assert_non_null(at);
    assert_memory_equal(at + sizeof inflight - 1, "0\n", 2); /* answered, and over */
    buf_fini(&page);
}

RT_UNCHECKED static void
the_data_directory_is_refused_when_open_to_others_and_locked_when_whole(void **state)
{
    struct fixture *f = *state;
    struct svc_data *second = NULL;
    const char *why = "";
    assert_int_equal(svc_data_open(f->root, false, SVC_DATA_WHOLE, &second, &why), ERR_LOCKED);
    assert_non_null(strstr(why, "--data"));
    assert_int_equal(chmod(f->root, 0755), 0);
    assert_int_equal(svc_data_open(f->root, false, SVC_DATA_SHARED, &second, &why), ERR_PERMISSION);
    assert_int_equal(chmod(f->root, 0700), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(first_start_makes_private_keys_and_a_token_that_works),
        TEST(without_a_capability_nothing_is_done),
        TEST(health_readiness_version_and_topology_are_there),
        TEST(a_full_queue_answers_429_at_once_and_counts_it),
        TEST(a_listener_that_is_restarted_serves_on),
        TEST(a_failed_task_comes_back_and_a_drill_needs_permission),
        TEST(drills_are_refused_unless_configured),
        TEST(a_wrong_configuration_is_refused_with_its_key_and_range),
        TEST(a_public_address_needs_tls_or_an_explicit_yes),
        TEST(a_public_address_for_oap_needs_an_explicit_yes),
        TEST(a_unix_socket_is_for_those_who_are_named),
        TEST(admin_calls_are_not_for_those_behind_a_proxy_on_this_machine),
        TEST(a_drain_has_the_time_that_the_last_reload_said),
        TEST(reloads_come_one_after_the_other),
        TEST(a_reload_with_a_broken_certificate_changes_nothing),
        TEST(who_follows_a_feed_after_its_last_words_is_told_the_end),
        TEST(drain_answers_what_was_accepted_and_exits_clean),
        TEST(the_data_directory_is_refused_when_open_to_others_and_locked_when_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
