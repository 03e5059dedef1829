#include "wallet_rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/mint.h"
#include "base/check.h"
#include "metric_sum.h"
#include "net/http_client.h"
#include "waiting.h"

extern const struct svc_def wallet_svc;

static void keep(void *arg, enum err e, const struct net_http_response *r)
{
    struct rig_answer *a = arg;
    a->status = e == ERR_OK ? r->status : -(int)e;
    if (e != ERR_OK)
        return;
    CHECK(r->body.n < sizeof a->body);
    if (r->body.n)
        memcpy(a->body, r->body.p, r->body.n);
    a->body[r->body.n] = 0;
    struct str h = net_http_header(r, "retry-after");
    snprintf(a->retry_after, sizeof a->retry_after, "%.*s", STR_ARG(h));
    h = net_http_header(r, "idempotency-replayed");
    snprintf(a->replayed, sizeof a->replayed, "%.*s", STR_ARG(h));
    h = net_http_header(r, "location");
    snprintf(a->location, sizeof a->location, "%.*s", STR_ARG(h));
}

void rig_call(struct wallet_rig *r, const char *method, const char *path, const char *key,
              const char *token, const char *body, struct rig_answer *out)
{
    char url[512], bearer[4200], idem[300];
    const char *headers[4] = {NULL};
    size_t n = 0;
    if (!token)
        token = r->token;
    if (*token) {
        snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", token);
        headers[n++] = bearer;
    }
    if (key) {
        snprintf(idem, sizeof idem, "Idempotency-Key: %s", key);
        headers[n++] = idem;
    }
    if (body)
        headers[n++] = "Content-Type: application/json";
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", svc_port(r->svc), path);
    memset(out, 0, sizeof *out);
    struct net_http_request rq = {.method = method,
                                  .url = url,
                                  .headers = headers,
                                  .body = bytes_of_str(str_from_c(body)),
                                  .by = deadline_in_ms(20000)};
    enum err e = net_http_once(&rq, NULL, keep, out);
    if (e != ERR_OK && out->status == 0)
        out->status = -(int)e;
}

void rig_post(struct wallet_rig *r, const char *path, const char *key, struct rig_answer *out,
              const char *fmt, ...)
{
    char body[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(body, sizeof body, fmt, args);
    va_end(args);
    rig_call(r, "POST", path, key, NULL, body, out);
}

void rig_get(struct wallet_rig *r, const char *path, struct rig_answer *out)
{
    rig_call(r, "GET", path, NULL, NULL, NULL, out);
}

static void start(struct wallet_rig *r, const char *const *flags, size_t n)
{
    struct svc_options opt = {.data = r->data,
                              .flags = flags,
                              .flag_count = n,
                              .quiet = true,
                              .clock = r->driven ? &r->clock.clock : NULL,
                              .wiring = mem_ledger_client(r->ledger)};
    enum err e = svc_open(&wallet_svc, &opt, &r->svc);
    if (e == ERR_OK)
        e = svc_start(r->svc);
    if (e != ERR_OK)
        fprintf(stderr, "wallet did not start: %s\n", svc_last_error());
    CHECK(e == ERR_OK);
}

static void ask_ready(struct wallet_rig *r, struct rig_answer *a) RT_BLOCKS
{
    rig_call(r, "GET", "/readyz", NULL, "", NULL, a);
}

void rig_await_ready(struct wallet_rig *r, bool ready)
{
    struct rig_answer *a = malloc(sizeof *a);
    CHECK(a);
    AWAIT((ask_ready(r, a), (a->status == 200) == ready));
    free(a);
}

void rig_await_readyz(struct wallet_rig *r, const char *says)
{
    struct rig_answer *a = malloc(sizeof *a);
    CHECK(a);
    AWAIT((ask_ready(r, a), strstr(a->body, says) != NULL));
    free(a);
}

static void prepare(struct wallet_rig *r)
{
    const char *why = "";
    struct buf token;
    memset(r, 0, sizeof *r);
    strcpy(r->dir, "/tmp/ron-wallet-XXXXXX");
    CHECK(mkdtemp(r->dir));
    snprintf(r->root, sizeof r->root, "%s/ron-data", r->dir);
    CHECK(svc_data_open(r->root, false, SVC_DATA_SHARED, &r->data, &why) == ERR_OK);
    buf_init_fixed(&token, r->token, sizeof r->token - 1);
    CHECK(svc_data_operator_token(r->data, &token) == ERR_OK);
    r->token[token.n] = 0;
    r->ledger = mem_ledger_create();
}

void wallet_rig_open(struct wallet_rig *r, const char *const *flags, size_t n)
{
    prepare(r);
    start(r, flags, n);
    rig_await_ready(r, true);
}

void wallet_rig_open_driven(struct wallet_rig *r, const char *const *flags, size_t n)
{
    const char *all[8] = {"http.threads=1"};
    CHECK(n < 8);
    for (size_t i = 0; i < n; i++)
        all[1 + i] = flags[i];
    prepare(r);
    clock_manual_init(&r->clock, clock_wall_ms(clock_real()));
    r->clock.mono_ns = clock_mono_ns(clock_real());
    r->driven = true;
    mem_ledger_drive(r->ledger, &r->clock.clock);
    start(r, all, 1 + n);
    rig_await_ready(r, true);
}

int64_t rig_now_ns(const struct wallet_rig *r)
{
    return clock_mono_ns(&r->clock.clock);
}

/* Two answers: what was due when the first was asked for has happened when the second came. One loop serves all. */
void rig_settle(struct wallet_rig *r)
{
    for (int i = 0; i < 2; i++) {
        struct raw_response x;
        raw_once((uint16_t)svc_port(r->svc),
                 "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &x);
        CHECK(x.status == 200);
        raw_free(&x);
    }
}

void rig_move_to(struct wallet_rig *r, int64_t since_ns, int64_t ms)
{
    clock_manual_advance_ns(&r->clock, since_ns + ms * 1000000 - rig_now_ns(r));
    rig_settle(r);
    mem_ledger_due(r->ledger);
}

int wallet_rig_stop(struct wallet_rig *r)
{
    int code = svc_drain(r->svc);
    svc_close(r->svc);
    r->svc = NULL;
    return code;
}

void wallet_rig_restart(struct wallet_rig *r, const char *const *flags, size_t n)
{
    if (r->svc)
        wallet_rig_stop(r);
    start(r, flags, n);
    rig_await_ready(r, true);
}

void wallet_rig_close(struct wallet_rig *r)
{
    char command[128];
    if (r->driven) { /* nobody moves the clock any more */
        mem_ledger_ingest_fault(r->ledger, MEM_OK, 0);
        mem_ledger_unit_fault(r->ledger, MEM_OK, 0);
        mem_ledger_account_fault(r->ledger, MEM_OK, 0);
        mem_ledger_read_fault(r->ledger, MEM_OK);
        mem_ledger_drive(r->ledger, NULL);
    }
    if (r->svc)
        svc_close(r->svc);
    mem_ledger_destroy(r->ledger);
    svc_data_close(r->data);
    snprintf(command, sizeof command, "rm -rf %s", r->dir);
    CHECK(system(command) == 0);
}

int wallet_rig_set_up(void **state)
{
    wallet_rig_open(*state, NULL, 0);
    return 0;
}

int wallet_rig_tear_down(void **state)
{
    wallet_rig_close(*state);
    return 0;
}

void rig_narrow(struct wallet_rig *r, const char *const *caveats, size_t n, char out[4096])
{
    struct str texts[8];
    struct buf b;
    size_t bad;
    CHECK(n <= 8);
    for (size_t i = 0; i < n; i++)
        texts[i] = str_from_c(caveats[i]);
    buf_init_fixed(&b, out, 4095);
    CHECK(auth_narrow(str_from_c(r->token), texts, n, &b, &bad) == ERR_OK);
    out[b.n] = 0;
}

struct text {
    char *p;
};

static void keep_text(void *arg, enum err e, const struct net_http_response *r)
{
    struct text *t = arg;
    CHECK(e == ERR_OK && r->status == 200);
    t->p = malloc(r->body.n + 1);
    CHECK(t->p);
    memcpy(t->p, r->body.p, r->body.n);
    t->p[r->body.n] = 0;
}

double rig_metric(struct wallet_rig *r, const char *name, const char *labels)
{
    char url[128];
    struct text t = {NULL};
    snprintf(url, sizeof url, "http://127.0.0.1:%d/metrics", svc_port(r->svc));
    struct net_http_request rq = {.url = url, .by = deadline_in_ms(30000)};
    CHECK(net_http_once(&rq, NULL, keep_text, &t) == ERR_OK && t.p);
    double sum = metric_sum(t.p, name, labels);
    free(t.p);
    return sum;
}

void rig_await_metric(struct wallet_rig *r, const char *name, const char *labels, double at_least)
{
    struct deadline by = deadline_in_ms(30000);
    double last;
    while ((last = rig_metric(r, name, labels)) < at_least)
        if (deadline_passed(by)) {
            fprintf(stderr, "%s{%s} is %g, not %g\n", name, labels, last, at_least);
            abort();
        }
}

void rig_ask(struct wallet_rig *r, struct raw_conn *c, const char *method, const char *path,
             const char *key, const char *body)
{
    char text[8192];
    raw_connect(c, (uint16_t)svc_port(r->svc));
    int n = snprintf(text, sizeof text,
                     "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s%s%s"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     method, path, r->token, key ? "Idempotency-Key: " : "", key ? key : "",
                     key ? "\r\n" : "", strlen(body), body);
    CHECK(n > 0 && (size_t)n < sizeof text);
    raw_send(c, text, (size_t)n);
}

void rig_answered(struct raw_conn *c, int status, const char *says)
{
    struct raw_response r;
    raw_read(c, false, &r);
    if (r.status != status || !strstr(r.body, says))
        fprintf(stderr, "not %d with %s but %d %s\n", status, says, r.status, r.body);
    CHECK(r.status == status && strstr(r.body, says));
    raw_free(&r);
    raw_close(c);
}

const char *rig_member(const struct rig_answer *a, const char *name, char out[256])
{
    char quoted[64];
    int n = snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(a->body, quoted);
    out[0] = 0;
    if (!at)
        return out;
    at += n;
    size_t len = *at == '"' ? strcspn(++at, "\"") : strcspn(at, ",}]");
    if (len > 255)
        len = 255;
    memcpy(out, at, len);
    out[len] = 0;
    return out;
}

size_t rig_rss_kib(void)
{
    char line[256];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtoul(line + 6, NULL, 10);
    fclose(f);
    CHECK(kib > 0); /* or every bound holds */
    return kib;
}
