/* Inputs that were not uploaded: fetched by content id from an accounting server that is right, wrong, slow, gone or sly. */
#include <arpa/inet.h>
#include <sys/socket.h>

#include "fixture.h"

enum mode { RIGHT, WRONG, ABSENT, BUSY_TWICE, DOWN, SILENT, SILENT_ONCE, MOVED };

/* One thread, one connection at a time; counts what it was asked for. */
static struct server {
    int fd, port, kept;
    pthread_t thread;
    pthread_mutex_t mutex;
    enum mode mode;
    unsigned asked, elsewhere;
    char path[256], auth[64];
    struct buf body;
} server = {.mutex = PTHREAD_MUTEX_INITIALIZER, .kept = -1};

static void send_text(int fd, const char *head, struct bytes body)
{
    char line[256];
    int n = snprintf(line, sizeof line, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                     head, body.n);
    if (send(fd, line, (size_t)n, MSG_NOSIGNAL) == n && body.n)
        (void)!send(fd, body.p, body.n, MSG_NOSIGNAL);
}

static void answer_one(int fd, const char *request)
{
    const struct bytes none = {NULL, 0};
    char moved[160];
    pthread_mutex_lock(&server.mutex);
    if (strstr(request, "GET /elsewhere")) {
        server.elsewhere++;
        send_text(fd, "200 OK", buf_bytes(&server.body));
    } else {
        enum mode m = server.mode;
        server.asked++;
        if ((m == BUSY_TWICE && server.asked > 2) || (m == SILENT_ONCE && server.asked > 1))
            m = RIGHT;
        (void)!sscanf(request, "GET %255s", server.path);
        const char *auth = strstr(request, "Authorization: ");
        snprintf(server.auth, sizeof server.auth, "%.*s", auth ? (int)strcspn(auth, "\r") : 0,
                 auth ? auth : "");
        snprintf(moved, sizeof moved, "302 Found\r\nLocation: http://127.0.0.1:%d/elsewhere", server.port);
        if (m == RIGHT)
            send_text(fd, "200 OK", buf_bytes(&server.body));
        else if (m == WRONG)
            send_text(fd, "200 OK", bytes_of("other bytes", 11));
        else if (m == ABSENT)
            send_text(fd, "404 Not Found", none);
        else if (m == MOVED)
            send_text(fd, moved, none);
        else if (m == SILENT || m == SILENT_ONCE) {
            if (server.kept >= 0)
                close(server.kept);
            server.kept = dup(fd); /* never answered */
        } else
            send_text(fd, "503 Service Unavailable", none);
    }
    pthread_mutex_unlock(&server.mutex);
}

static void *serve(void *arg)
{
    (void)arg;
    for (;;) {
        char request[8192];
        size_t n = 0;
        int fd = accept(server.fd, NULL, NULL);
        if (fd < 0)
            return NULL;
        while (n < sizeof request - 1) {
            ssize_t k = recv(fd, request + n, sizeof request - 1 - n, 0);
            if (k <= 0)
                break;
            n += (size_t)k;
            request[n] = '\0';
            if (strstr(request, "\r\n\r\n")) {
                answer_one(fd, request);
                break;
            }
        }
        close(fd);
    }
}

static int set_up_server(void **state) RT_BLOCKS
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    server.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(server.fd >= 0 && bind(server.fd, (struct sockaddr *)&a, n) == 0 &&
                listen(server.fd, 64) == 0);
    assert_int_equal(getsockname(server.fd, (struct sockaddr *)&a, &n), 0);
    server.port = ntohs(a.sin_port);
    server.asked = server.elsewhere = 0;
    server.mode = RIGHT;
    assert_int_equal(pthread_create(&server.thread, NULL, serve, NULL), 0);
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    fixture_open(f);
    snprintf(f->text[0], sizeof f->text[0], "inputs.accounting_base_url=http://127.0.0.1:%d", server.port);
    snprintf(f->text[1], sizeof f->text[1], "inputs.token_file=%s/token", f->dir);
    char path[128];
    snprintf(path, sizeof path, "%s/token", f->dir);
    FILE *t = fopen(path, "w");
    assert_non_null(t);
    fputs("secret\n", t);
    fclose(t);
    f->flags[f->flag_n++] = f->text[0];
    f->flags[f->flag_n++] = f->text[1];
    start(f);
    *state = f;
    return 0;
}

static int tear_down_server(void **state) RT_BLOCKS
{
    int rc = tear_down(state);
    shutdown(server.fd, SHUT_RDWR);
    close(server.fd);
    pthread_join(server.thread, NULL);
    if (server.kept >= 0)
        close(server.kept);
    server.kept = -1;
    buf_fini(&server.body);
    return rc;
}

/* The server will hold this snapshot; its content id. */
static void offer(const char *epoch, unsigned rows, enum mode mode, char cid[SHA256_TEXT_CHARS])
{
    struct sha256 h;
    pthread_mutex_lock(&server.mutex);
    buf_fini(&server.body);
    snapshot("default", epoch, rows, &server.body);
    sha256_of(server.body.p, server.body.n, &h);
    sha256_format(&h, cid);
    server.mode = mode;
    server.asked = 0;
    pthread_mutex_unlock(&server.mutex);
}

static unsigned asked(void)
{
    pthread_mutex_lock(&server.mutex);
    unsigned n = server.asked;
    pthread_mutex_unlock(&server.mutex);
    return n;
}

static void expect_failure(struct fixture *f, const char *epoch, const char *cid,
                           const char *code) RT_BLOCKS
{
    json_decref(compute(f, epoch, cid, "weekly", 202));
    json_t *o = await_state(f, epoch, "failed");
    assert_string_equal(text(json_object_get(o, "failure"), "code"), code);
    json_decref(o);
    assert_int_equal(paid_in(f->ledger), 0);
}

static void what_is_not_here_is_fetched_verified_stored_and_paid(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[SHA256_TEXT_CHARS], path[128], want[160];
    struct answer a;
    offer("e1", 700, RIGHT, cid);
    json_t *o = compute(f, "e1", cid, "weekly", 202);
    json_decref(o);
    json_decref(await_state(f, "e1", "settled"));
    snprintf(want, sizeof want, "/v1/snapshots/%s", cid);
    assert_string_equal(server.path, want);
    assert_string_equal(server.auth, "Authorization: Bearer secret");
    assert_int_equal(asked(), 1);
    /* it lies in the store like an upload, and is not fetched again */
    snprintf(path, sizeof path, "/rewarder/inputs/%s", cid);
    call(f, "GET", path, NULL, NULL, NULL, &a);
    assert_int_equal(a.status, 200);
    assert_true(bytes_eq(buf_bytes(&a.body), buf_bytes(&server.body)));
    buf_fini(&a.body);
    json_decref(compute(f, "e1", cid, "weekly", 200));
    assert_int_equal(stop(f), 0);
    start(f);
    json_decref(compute(f, "e1", cid, "weekly", 200));
    assert_int_equal(asked(), 1);
    /* while it is fetched, other inputs are a conflict (afterwards too) */
    offer("e1", 701, RIGHT, cid);
    json_decref(compute(f, "e1", cid, "weekly", 409));
}

static void other_bytes_another_epoch_and_absence_are_refused_and_pay_nothing(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[SHA256_TEXT_CHARS];
    offer("e1", 5, WRONG, cid);
    expect_failure(f, "e1", cid, "digest_mismatch");
    offer("e2", 5, ABSENT, cid);
    expect_failure(f, "e2", cid, "inputs_not_found");
    offer("e3", 5, RIGHT, cid);
    expect_failure(f, "e4", cid, "epoch_mismatch");
    offer("e5", 5, MOVED, cid); /* a redirect is not followed */
    expect_failure(f, "e5", cid, "inputs_not_found");
    assert_int_equal(server.elsewhere, 0);
}

/* Its bytes may be refused like an upload's, and the failure says as much. */
static void a_failed_fetch_says_what_was_wrong_with_the_bytes(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[SHA256_TEXT_CHARS];
    struct sha256 h;
    offer("e1", 5, WRONG, cid);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_t *o = await_state(f, "e1", "failed");
    const json_t *details = json_object_get(json_object_get(o, "failure"), "details");
    assert_string_equal(text(details, "expected"), cid);
    assert_true(*text(details, "actual") && strcmp(text(details, "actual"), cid) != 0);
    json_decref(o);
    pthread_mutex_lock(&server.mutex);
    buf_fini(&server.body);
    buf_init(&server.body, 1 << 16);
    buf_puts(&server.body, "{\"snapshot\":1,\"tenant\":\"default\",\"epoch\":\"e2\",\"dims\":[\"points\"],"
                           "\"count\":2}\n[\"acct:a\",1]\n[\"acct:a\",2]\n");
    sha256_of(server.body.p, server.body.n, &h);
    sha256_format(&h, cid);
    server.mode = RIGHT;
    pthread_mutex_unlock(&server.mutex);
    json_decref(compute(f, "e2", cid, "weekly", 202));
    o = await_state(f, "e2", "failed");
    assert_string_equal(text(json_object_get(o, "failure"), "code"), "duplicate_account");
    details = json_object_get(json_object_get(o, "failure"), "details");
    assert_int_equal(json_integer_value(json_object_get(details, "line")) +
                         json_integer_value(json_object_get(details, "other_line")),
                     5);
    json_decref(o);
    /* and more than may be taken is not taken */
    assert_int_equal(stop(f), 0);
    f->flags[f->flag_n++] = "limits.max_input_bytes=4KiB";
    start(f);
    offer("e3", 1000, RIGHT, cid);
    expect_failure(f, "e3", cid, "too_large");
    assert_int_equal(paid_in(f->ledger), 0);
}

static void a_server_that_is_busy_is_asked_three_times(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[SHA256_TEXT_CHARS];
    offer("e1", 5, BUSY_TWICE, cid);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "settled"));
    assert_int_equal(asked(), 3);
}

static void a_server_that_stays_down_is_left_alone_by_the_breaker(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct rewarder *r = svc_state(f->svc);
    char cid[SHA256_TEXT_CHARS], epoch[16];
    for (unsigned i = 0; i < 5; i++) {
        snprintf(epoch, sizeof epoch, "e%u", i);
        offer(epoch, 5, DOWN, cid);
        expect_failure(f, epoch, cid, "inputs_unavailable");
        assert_int_equal(asked(), 3);
    }
    assert_int_not_equal(rt_breaker_state(&r->accounting_breaker, os_now_ns()), 0);
    offer("e9", 5, DOWN, cid);
    expect_failure(f, "e9", cid, "inputs_unavailable");
    assert_true(asked() < 3); /* none, or the one probe of a breaker that is half open */
    /* readiness says so, softly; when the server is back so is it */
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    for (bool degraded = false; !degraded && !deadline_passed(by);) {
        json_t *o = get(f, "/readyz", 200);
        degraded = json_array_size(json_object_get(o, "missing")) == 1 &&
                   json_is_true(json_object_get(o, "degraded"));
        json_decref(o);
    }
    for (unsigned i = 10; rt_breaker_state(&r->accounting_breaker, os_now_ns()) != RT_BREAKER_CLOSED; i++) {
        assert_false(deadline_passed(by));
        snprintf(epoch, sizeof epoch, "e%u", i);
        offer(epoch, 5, RIGHT, cid);
        json_decref(compute(f, epoch, cid, "weekly", 202));
        for (json_t *o = NULL;; json_decref(o)) {
            char path[64];
            snprintf(path, sizeof path, "/rewarder/epochs/%s", epoch);
            o = get(f, path, 200);
            bool over = !strcmp(text(o, "state"), "failed") || !strcmp(text(o, "state"), "settled");
            if (over) {
                json_decref(o);
                break;
            }
        }
    }
}

/* The server takes the request and says nothing: the caller's deadline ends the job, not the minute of fetch_timeout. */
static void a_silent_server_ends_the_job_at_the_callers_deadline(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[SHA256_TEXT_CHARS], url[160], bearer[8300], body[256];
    struct answer a;
    offer("e1", 5, SILENT, cid);
    snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", f->token);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/rewarder/epochs/e1/compute", svc_port(f->svc));
    snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"weekly\"}", cid);
    const char *headers[] = {bearer, "Content-Type: application/json", "Request-Timeout: 800ms", NULL};
    memset(&a, 0, sizeof a);
    buf_init(&a.body, 1 << 20);
    struct net_http_request rq = {.method = "POST",
                                  .url = url,
                                  .headers = headers,
                                  .body = bytes_of(body, strlen(body)),
                                  .by = deadline_in_ms(PATIENCE_MS),
                                  .response_max = 1 << 20};
    int64_t began = os_now_ns();
    assert_int_equal(net_http_once(&rq, NULL, keep, &a), ERR_OK);
    assert_int_equal(a.status, 202);
    buf_fini(&a.body);
    json_t *o = await_state(f, "e1", "failed");
    int64_t ms = (os_now_ns() - began) / 1000000;
    assert_true(ms >= 750 && ms < 5000);
    const char *code = text(json_object_get(o, "failure"), "code");
    assert_true(!strcmp(code, "inputs_unavailable") || !strcmp(code, "timeout"));
    json_decref(o);
    struct rewarder *r = svc_state(f->svc);
    assert_int_equal(
        obs_counter_value(OBS_COUNTER_OF(r->metrics[REWARDER_M_io_timeouts], "fetch", "accounting")), 1);
    assert_int_equal(paid_in(f->ledger), 0);
}

/* Its five seconds are over long before the minute it has in all, and the next try brings it. */
static void a_fetch_that_stalls_is_tried_again(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[SHA256_TEXT_CHARS];
    offer("e1", 5, SILENT_ONCE, cid);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "settled"));
    assert_int_equal(asked(), 2);
}

#define SERVED(name) cmocka_unit_test_setup_teardown(name, set_up_server, tear_down_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(what_is_not_here_is_fetched_verified_stored_and_paid),
        SERVED(other_bytes_another_epoch_and_absence_are_refused_and_pay_nothing),
        SERVED(a_failed_fetch_says_what_was_wrong_with_the_bytes),
        SERVED(a_server_that_is_busy_is_asked_three_times),
        SERVED(a_server_that_stays_down_is_left_alone_by_the_breaker),
        SERVED(a_fetch_that_stalls_is_tried_again),
        SERVED(a_silent_server_ends_the_job_at_the_callers_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
