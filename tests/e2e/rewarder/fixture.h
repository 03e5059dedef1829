/* The service in this process over real sockets and files, with a ledger that can be made to fail; what tests of it do. */
#ifndef RON_TESTS_E2E_REWARDER_FIXTURE_H
#define RON_TESTS_E2E_REWARDER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "auth/mint.h"
#include "base/check.h"
#include "fake_ledger.h"
#include "net/http_client.h"
#include "services/rewarder/rewarder.h"
#include "svc/data.h"
#include "svc/svc.h"

extern const struct svc_def rewarder_svc;

enum { PATIENCE_MS = 30000 };

struct fixture {
    char dir[64], root[80], policy[96], token[8192];
    struct svc_data *data;
    struct svc *svc;
    struct fake_ledger *ledger;
    const char *flags[16];
    size_t flag_n;
    struct store_disk *disk; /* NULL: the real one */
    bool amnesia;
    int log_fd;                          /* 0: warnings and worse to stderr; else everything there */
    char policy_flag[128], text[4][128]; /* room for flags that a test makes */
};

struct answer {
    int status;
    struct buf body;
    char location[200], retry_after[16], etag[96];
};

static const char policies[] =
    "{\"assets\":[\"ron\"],\"reward_policies\":["
    "{\"v\":1,\"id\":\"weekly\",\"asset\":\"ron\",\"funding_account\":\"pool:rewards\",\"dust_account\":"
    "\"pool:dust\","
    "\"pool\":\"1000\",\"rounding\":\"largest_remainder\",\"weights\":[{\"dim\":\"points\",\"num\":1,"
    "\"den\":1}]},"
    "{\"v\":1,\"id\":\"floored\",\"asset\":\"ron\",\"funding_account\":\"pool:rewards\",\"dust_account\":"
    "\"pool:dust\","
    "\"pool\":\"1000\",\"rounding\":\"floor\",\"weights\":[{\"dim\":\"points\",\"num\":1,\"den\":1}]},"
    "{\"v\":1,\"id\":\"all\",\"asset\":\"ron\",\"funding_account\":\"pool:rewards\",\"dust_account\":"
    "\"pool:dust\","
    "\"pool\":\"balance\",\"rounding\":\"webster\",\"weights\":[{\"dim\":\"points\",\"num\":1,\"den\":1}]},"
    "{\"v\":1,\"id\":\"huge\",\"asset\":\"ron\",\"funding_account\":\"pool:rewards\",\"dust_account\":"
    "\"pool:dust\","
    "\"pool\":\"1000\",\"rounding\":\"floor\",\"weights\":[{\"dim\":\"points\",\"num\":1000000000,\"den\":"
    "1},"
    "{\"dim\":\"more\",\"num\":1,\"den\":999999937}]}]}";

/* ---- the service ---- */

static inline void keep(void *arg, enum err e, const struct net_http_response *r)
{
    struct answer *a = arg;
    a->status = e == ERR_OK ? r->status : -(int)e;
    if (e != ERR_OK)
        return;
    buf_put_bytes(&a->body, r->body);
    snprintf(a->location, sizeof a->location, "%.*s", STR_ARG(net_http_header(r, "location")));
    snprintf(a->etag, sizeof a->etag, "%.*s", STR_ARG(net_http_header(r, "etag")));
    snprintf(a->retry_after, sizeof a->retry_after, "%.*s", STR_ARG(net_http_header(r, "retry-after")));
}

static inline void call(struct fixture *f, const char *method, const char *path, const char *body,
                        const char *type, const char *token, struct answer *a) RT_BLOCKS
{
    char url[512], bearer[8300], content[80];
    snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", token ? token : f->token);
    snprintf(content, sizeof content, "Content-Type: %s", type ? type : "application/json");
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", svc_port(f->svc), path);
    const char *headers[] = {bearer, content, NULL};
    memset(a, 0, sizeof *a);
    buf_init(&a->body, 64 << 20);
    struct net_http_request rq = {.method = method,
                                  .url = url,
                                  .headers = headers,
                                  .body = body ? bytes_of(body, strlen(body)) : (struct bytes){NULL, 0},
                                  .by = deadline_in_ms(PATIENCE_MS),
                                  .response_max = 64 << 20};
    enum err e = net_http_once(&rq, NULL, keep, a);
    assert_int_equal(e, ERR_OK);
}

static inline json_t *json_of(struct answer *a)
{
    json_error_t why;
    json_t *o = json_loadb((const char *)a->body.p, a->body.n, 0, &why);
    assert_non_null(o);
    buf_fini(&a->body);
    return o;
}

static inline json_t *get(struct fixture *f, const char *path, int status) RT_BLOCKS
{
    struct answer a;
    call(f, "GET", path, NULL, NULL, NULL, &a);
    if (a.status != status)
        fail_msg("GET %s: %d %s", path, a.status, buf_cstr(&a.body));
    return json_of(&a);
}

static inline json_t *post(struct fixture *f, const char *path, const char *body, int status) RT_BLOCKS
{
    struct answer a;
    call(f, "POST", path, body, NULL, NULL, &a);
    if (a.status != status)
        fail_msg("POST %s: %d %s", path, a.status, buf_cstr(&a.body));
    return json_of(&a);
}

static inline const char *text(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

static inline void start(struct fixture *f) RT_BLOCKS
{
    const char *why = "";
    struct buf token;
    assert_int_equal(svc_data_open(f->root, f->amnesia, SVC_DATA_WHOLE, &f->data, &why), ERR_OK);
    struct svc_options opt = {.data = f->data,
                              .flags = f->flags,
                              .flag_count = f->flag_n,
                              .quiet = f->log_fd == 0,
                              .log_fd = f->log_fd,
                              .disk = f->disk,
                              .wiring = f->ledger ? &f->ledger->client : NULL};
    if (svc_open(&rewarder_svc, &opt, &f->svc) != ERR_OK || svc_start(f->svc) != ERR_OK)
        fail_msg("%s", svc_last_error());
    buf_init_fixed(&token, f->token, sizeof f->token - 1);
    assert_int_equal(svc_data_operator_token(f->data, &token), ERR_OK);
    f->token[token.n] = '\0';
}

static inline int stop(struct fixture *f) RT_BLOCKS
{
    int code = svc_drain(f->svc);
    svc_close(f->svc);
    svc_data_close(f->data);
    return code;
}

/* On a busy machine a flush may take half a minute: what is tested here is the service, not the disk. */
static inline bool roomy_memory(void)
{
    struct statvfs st;
    return statvfs("/dev/shm", &st) == 0 && st.f_bavail * st.f_frsize > (uint64_t)1 << 30;
}

static inline void fixture_open(struct fixture *f)
{
    static const char *const flags[] = {
        "bind=127.0.0.1:0",
        "uds=",
        "concurrency.compute_workers=3",
        "concurrency.partition_rows=1024", /* epochs of 2,000 rows have a lead and a helper */
        "limits.rps=1000000000",           /* tests look without pausing */
        "limits.burst=1000000000",
        "limits.tenant_rps=1000000000",
    };
    snprintf(f->dir, sizeof f->dir, "%s/ron-rewarder-XXXXXX", roomy_memory() ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->root, sizeof f->root, "%s/data", f->dir);
    snprintf(f->policy, sizeof f->policy, "%s/policy.json", f->dir);
    FILE *p = fopen(f->policy, "w");
    assert_non_null(p);
    fputs(policies, p);
    fclose(p);
    snprintf(f->policy_flag, sizeof f->policy_flag, "policy.file=%s", f->policy);
    f->flags[f->flag_n++] = f->policy_flag;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        f->flags[f->flag_n++] = flags[i];
    f->ledger = malloc(sizeof *f->ledger);
    fake_ledger_init(f->ledger, 1);
}

static inline int set_up(void **state) RT_BLOCKS
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    fixture_open(f);
    start(f);
    *state = f;
    return 0;
}

static inline int tear_down(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char command[128];
    (void)stop(f);
    fake_ledger_fini(f->ledger);
    free(f->ledger);
    snprintf(command, sizeof command, "rm -rf '%s'", f->dir);
    int rc = system(command);
    free(f);
    return rc;
}

/* ---- what tests do ---- */

static inline void snapshot(const char *tenant, const char *epoch, unsigned rows, struct buf *b)
{
    buf_init(b, 16 << 20);
    buf_printf(b,
               "{\"snapshot\":1,\"tenant\":\"%s\",\"epoch\":\"%s\",\"dims\":[\"points\"],\"count\":%u}\n",
               tenant, epoch, rows);
    for (unsigned i = 0; i < rows; i++)
        buf_printf(b, "[\"acct:%05u\",%u]\n", i, 1 + i % 9);
}

static inline void put_inputs(struct fixture *f, const char *epoch, unsigned rows, char cid[80]) RT_BLOCKS
{
    struct buf b;
    struct answer a;
    snapshot("default", epoch, rows, &b);
    call(f, "PUT", "/rewarder/inputs", buf_cstr(&b), "application/x-ndjson", NULL, &a);
    assert_in_range(a.status, 200, 201);
    json_t *o = json_of(&a);
    snprintf(cid, 80, "%s", text(o, "cid"));
    assert_int_equal(json_integer_value(json_object_get(o, "rows")), rows);
    json_decref(o);
    buf_fini(&b);
}

static inline json_t *compute(struct fixture *f, const char *epoch, const char *cid, const char *policy,
                              int status) RT_BLOCKS
{
    char path[128], body[256];
    snprintf(path, sizeof path, "/rewarder/epochs/%s/compute", epoch);
    snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"%s\"}", cid, policy);
    return post(f, path, body, status);
}

/* A capability with these caveats (NULL ends them), beside who it is for and until when. */
static inline void mint(struct fixture *f, const char *const *more, char out[8192])
{
    struct auth_keyring *keys;
    struct buf token;
    size_t bad, n = 2;
    struct str caveats[8] = {STR("aud = svc-rewarder"), STR("exp < 2036-01-01T00:00:00Z")};
    for (; *more; more++)
        caveats[n++] = str_from_c(*more);
    assert_int_equal(auth_keyring_load(svc_data_key_file(f->data), &keys, NULL), ERR_OK);
    buf_init_fixed(&token, out, 8191);
    assert_int_equal(auth_mint(keys, (struct str){NULL, 0}, caveats, n, &token, &bad), ERR_OK);
    out[token.n] = '\0';
    auth_keyring_unref(keys);
}

/* Looks until the run is in the state; the service's own deadlines bound the wait. */
static inline json_t *await_state(struct fixture *f, const char *epoch, const char *state) RT_BLOCKS
{
    char path[128];
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    snprintf(path, sizeof path, "/rewarder/epochs/%s", epoch);
    for (;;) {
        json_t *o = get(f, path, 200);
        if (!strcmp(text(o, "state"), state))
            return o;
        if (deadline_passed(by))
            fail_msg("%s is %s, not %s", epoch, text(o, "state"), state);
        json_decref(o);
    }
}

static inline void settle(struct fixture *f, const char *epoch, unsigned rows, const char *policy) RT_BLOCKS
{
    char cid[80];
    put_inputs(f, epoch, rows, cid);
    json_decref(compute(f, epoch, cid, policy, 202));
    json_decref(await_state(f, epoch, "settled"));
}

static inline uint64_t paid_in(struct fake_ledger *l)
{
    uint64_t n = 0;
    for (size_t i = 0; i < l->n_units; i++)
        n += l->units[i].n;
    return n;
}

struct seen_task {
    const char *name;
    enum rt_task_state state;
    uint64_t spawned;
};

static inline void see_task(void *ctx, const struct rt_task_info *info)
{
    struct seen_task *s = ctx;
    if (strcmp(info->name, s->name) == 0) {
        s->state = info->state;
        s->spawned = info->spawned;
    }
}

/* Fails the only task of that name and returns once its thread is gone, until its back-off is over. If that was so soon that nobody
 * saw it gone, it fails again. */
static inline void take_down(struct fixture *f, const char *name)
{
    struct rt_supervisor *sup = svc_supervisor(f->svc);
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    struct seen_task s = {.name = name};
    do {
        rt_supervisor_each(sup, see_task, &s);
        uint64_t before = s.spawned;
        (void)!rt_supervisor_fail(sup, name);
        do
            rt_supervisor_each(sup, see_task, &s);
        while (s.state != RT_TASK_BACKOFF && s.spawned == before && !deadline_passed(by));
    } while (s.state != RT_TASK_BACKOFF && !deadline_passed(by));
    assert_int_equal(s.state, RT_TASK_BACKOFF);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
