#include "ledger_rig.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "auth/mint.h"
#include "base/check.h"
#include "base/rng.h"
#include "ledger_client/remote.h"
#include "metric_sum.h"
#include "net/http_client.h"
#include "rt/oneshot.h"
#include "services/ledger/direct.h"
#include "waiting.h"

extern const struct svc_def ledger_svc;

/* ---- the service ---- */

int rig_quiet_port(void)
{
    enum { FROM = 10000, TO = 32000 };
    for (;;) {
        int port = FROM + (int)(rng_secure_u64() % (TO - FROM)), fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        bool got = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
        close(fd);
        if (got)
            return port;
    }
}

void ledger_rig_start(struct ledger_rig *r)
{
    struct svc_options opt = {
        .data = r->data, .flags = r->flag_list, .flag_count = r->n_flags, .quiet = true, .clock = r->clock};
    enum err e = svc_open(&ledger_svc, &opt, &r->svc);
    if (e == ERR_OK)
        e = svc_start(r->svc);
    if (e != ERR_OK)
        fprintf(stderr, "the ledger did not start: %s\n", svc_last_error());
    CHECK(e == ERR_OK);
    struct obs_health_view view;
    AWAIT((obs_health_read(svc_health(r->svc), &view), view.ready));
}

void ledger_rig_open(struct ledger_rig *r, bool amnesia, const char *const *flags, size_t n)
{
    ledger_rig_open_at(r, amnesia, flags, n, NULL);
}

void ledger_rig_open_at(struct ledger_rig *r, bool amnesia, const char *const *flags, size_t n,
                        const struct clock *clock)
{
    static const char *const always[] = {"bind=127.0.0.1:0", "oap.bind=127.0.0.1:0"};
    const char *why = "";
    struct buf token;
    memset(r, 0, sizeof *r);
    r->amnesia = amnesia;
    r->clock = clock;
    strcpy(r->dir, "/tmp/ron-ledger-XXXXXX");
    CHECK(mkdtemp(r->dir));
    snprintf(r->root, sizeof r->root, "%s/ron-data", r->dir);
    CHECK(svc_data_open(r->root, amnesia, SVC_DATA_SHARED, &r->data, &why) == ERR_OK);
    buf_init_fixed(&token, r->token, sizeof r->token - 1);
    CHECK(svc_data_operator_token(r->data, &token) == ERR_OK);
    r->token[token.n] = 0;
    for (size_t i = 0; i < 2; i++)
        snprintf(r->flags[r->n_flags++], sizeof r->flags[0], "%s", always[i]);
    if (amnesia) { /* which makes no run/ for sockets */
        char dir[sizeof r->dir];
        memcpy(dir, r->dir, sizeof dir);
        snprintf(r->flags[r->n_flags++], sizeof r->flags[0], "uds=%s/l.sock", dir);
        snprintf(r->flags[r->n_flags++], sizeof r->flags[0], "oap.uds=%s/lo.sock", dir);
    }
    for (size_t i = 0; i < n; i++) {
        CHECK(r->n_flags < sizeof r->flags / sizeof r->flags[0]);
        snprintf(r->flags[r->n_flags++], sizeof r->flags[0], "%s", flags[i]);
    }
    for (size_t i = 0; i < r->n_flags; i++)
        r->flag_list[i] = r->flags[i];
    ledger_rig_start(r);
}

int ledger_rig_stop(struct ledger_rig *r)
{
    int code = svc_drain(r->svc);
    svc_close(r->svc);
    r->svc = NULL;
    return code;
}

void ledger_rig_close(struct ledger_rig *r)
{
    char command[128];
    if (r->svc != NULL)
        (void)ledger_rig_stop(r);
    svc_data_close(r->data);
    snprintf(command, sizeof command, "rm -rf %s", r->dir);
    CHECK(system(command) == 0);
}

void ledger_rig_narrow(struct ledger_rig *r, const char *caveat, char out[4096])
{
    struct str text = str_from_c(caveat);
    struct buf b;
    size_t bad;
    buf_init_fixed(&b, out, 4095);
    CHECK(auth_narrow(str_from_c(r->token), &text, 1, &b, &bad) == ERR_OK);
    out[b.n] = 0;
}

struct http_answer {
    int status;
    struct buf *body;
};

static void http_keep(void *arg, enum err e, const struct net_http_response *r)
{
    struct http_answer *a = arg;
    a->status = e == ERR_OK ? r->status : -(int)e;
    if (e == ERR_OK && a->body != NULL)
        buf_put_bytes(a->body, r->body);
}

int ledger_rig_http(struct ledger_rig *r, const char *method, const char *path, const char *body,
                    struct buf *body_out)
{
    char url[512], bearer[4200];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", svc_port(r->svc), path);
    snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", r->token);
    const char *headers[] = {bearer, body != NULL ? "Content-Type: application/json" : NULL, NULL};
    struct http_answer a = {0, body_out};
    struct net_http_request rq = {.method = method,
                                  .url = url,
                                  .headers = headers,
                                  .body = bytes_of_str(str_from_c(body)),
                                  .by = deadline_in_ms(20000)};
    enum err e = net_http_once(&rq, NULL, http_keep, &a);
    return e != ERR_OK && a.status == 0 ? -(int)e : a.status;
}

double ledger_rig_metric(struct ledger_rig *r, const char *name, const char *labels)
{
    struct buf b;
    buf_init(&b, 4 << 20);
    CHECK(ledger_rig_http(r, "GET", "/metrics", NULL, &b) == 200);
    double sum = metric_sum(buf_cstr(&b), name, labels);
    buf_fini(&b);
    return sum;
}

void ledger_rig_await_metric(struct ledger_rig *r, const char *name, const char *labels, double at_least)
{
    AWAIT(ledger_rig_metric(r, name, labels) >= at_least);
}

/* ---- the gate ---- */

static pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_cond = PTHREAD_COND_INITIALIZER;
static char gate_task[16]; /* empty: open */
static unsigned gate_stopped;
static bool gate_lets_canceled;
static _Atomic bool gate_shut;

static int64_t gate_mono_ns(void *ctx)
{
    (void)ctx;
    if (atomic_load(&gate_shut)) {
        char name[16] = "";
        pthread_getname_np(pthread_self(), name, sizeof name);
        pthread_mutex_lock(&gate_mutex);
        if (gate_task[0] != 0 && strncmp(name, gate_task, strlen(gate_task)) == 0) {
            gate_stopped++;
            pthread_cond_broadcast(&gate_cond);
            while (gate_task[0] != 0 && !(gate_lets_canceled && rt_task_canceled(rt_task_current()))) {
                struct timespec soon; /* nobody tells of a cancellation: look again */
                clock_gettime(CLOCK_REALTIME, &soon);
                soon.tv_nsec += 1000000;
                if (soon.tv_nsec >= 1000000000)
                    soon = (struct timespec){soon.tv_sec + 1, soon.tv_nsec - 1000000000};
                pthread_cond_timedwait(&gate_cond, &gate_mutex, &soon);
            }
            gate_stopped--;
        }
        pthread_mutex_unlock(&gate_mutex);
    }
    return os_now_ns();
}

static int64_t gate_wall_ms(void *ctx)
{
    (void)ctx;
    return clock_real()->wall_ms(clock_real()->ctx);
}

const struct clock *gate_clock(void)
{
    static const struct clock c = {gate_mono_ns, gate_wall_ms, NULL};
    return &c;
}

void gate_close(const char *task)
{
    pthread_mutex_lock(&gate_mutex);
    snprintf(gate_task, sizeof gate_task, "%s", task);
    atomic_store(&gate_shut, true);
    pthread_mutex_unlock(&gate_mutex);
}

void gate_await(unsigned stopped)
{
    pthread_mutex_lock(&gate_mutex);
    while (gate_stopped < stopped)
        pthread_cond_wait(&gate_cond, &gate_mutex);
    pthread_mutex_unlock(&gate_mutex);
}

void gate_open_to_canceled(void)
{
    pthread_mutex_lock(&gate_mutex);
    gate_lets_canceled = true;
    pthread_mutex_unlock(&gate_mutex);
}

void gate_open(void)
{
    pthread_mutex_lock(&gate_mutex);
    gate_lets_canceled = false;
    gate_task[0] = 0;
    atomic_store(&gate_shut, false);
    pthread_cond_broadcast(&gate_cond);
    pthread_mutex_unlock(&gate_mutex);
}

/* ---- clients ---- */

const char *rig_transport_name(enum rig_transport t)
{
    static const char *const names[] = {"http", "http over a Unix socket", "oap", "oap over a Unix socket",
                                        "direct"};
    return names[t];
}

static void *io(void *client)
{
    enum err e = ledger_client_io_run(NULL, client);
    CHECK(e == ERR_OK || e == ERR_CANCELED);
    return NULL;
}

void rig_client_open_url(const char *url, const char *token, size_t inflight_max, struct rig_client *out)
{
    struct ledger_client_conf conf = {.url = url, .token = token, .inflight_max = inflight_max};
    *out = (struct rig_client){.c = NULL};
    CHECK(ledger_client_open(&conf, &out->c) == ERR_OK);
    CHECK(pthread_create(&out->thread, NULL, io, out->c) == 0);
    out->has_thread = true;
}

void rig_client_open(struct ledger_rig *r, enum rig_transport t, struct rig_client *out)
{
    char url[256];
    const char *run = r->amnesia ? r->dir : r->root;
    *out = (struct rig_client){.c = NULL};
    switch (t) {
    case RIG_HTTP:
        snprintf(url, sizeof url, "http://127.0.0.1:%d", svc_port(r->svc));
        break;
    case RIG_HTTP_UNIX:
        snprintf(url, sizeof url, "unix:%s/%s", run, r->amnesia ? "l.sock" : "run/ledger.sock");
        break;
    case RIG_OAP:
        snprintf(url, sizeof url, "oap://127.0.0.1:%d", svc_oap_port(r->svc));
        break;
    case RIG_OAP_UNIX:
        snprintf(url, sizeof url, "oap+unix:%s/%s", run, r->amnesia ? "lo.sock" : "run/ledger-oap.sock");
        break;
    case RIG_DIRECT:
    case RIG_TRANSPORTS:
        CHECK(ledger_direct_open(r->svc, str_from_c(r->token), &out->c) == ERR_OK);
        return;
    }
    rig_client_open_url(url, r->token, 64, out);
}

void rig_client_close(struct rig_client *c)
{
    if (c->has_thread) {
        net_loop_stop(c->c->io->loop); /* no task: nobody else tells it */
        CHECK(pthread_join(c->thread, NULL) == 0);
    }
    ledger_client_close(c->c);
    c->c = NULL;
}

/* ---- calls that wait ---- */

struct waiting {
    struct rig_reply *out;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool done;
    int64_t began_ns;
};

static void wait_begin(struct waiting *w, struct rig_reply *out)
{
    memset(out, 0, sizeof *out);
    *w = (struct waiting){.out = out, .began_ns = os_now_ns()};
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->cond, NULL);
}

static void wait_end(struct waiting *w)
{
    pthread_mutex_lock(&w->mutex);
    while (!w->done)
        pthread_cond_wait(&w->cond, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
    w->out->took_ms = (os_now_ns() - w->began_ns) / 1000000;
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->cond);
}

static void told(struct waiting *w)
{
    pthread_mutex_lock(&w->mutex);
    CHECK(!w->done);
    w->done = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mutex);
}

static void text_to(char *out, size_t max, struct str s)
{
    CHECK(s.n < max);
    if (s.n != 0)
        memcpy(out, s.p, s.n);
    out[s.n] = 0;
}

static void head_to(struct rig_reply *out, const struct ledger_answer *a)
{
    out->outcome = a->outcome;
    out->err = a->err;
    out->status = a->status;
    out->retry_after_s = a->retry_after_s;
    text_to(out->code, sizeof out->code, a->code);
    if (a->details.n < sizeof out->details)
        text_to(out->details, sizeof out->details, a->details);
}

static void result_to(struct rig_result *out, const struct ledger_result *r)
{
    out->status = r->status;
    out->reason = r->reason;
    out->retryable = r->retryable;
    text_to(out->idem_id, sizeof out->idem_id, r->idem_id);
    text_to(out->details, sizeof out->details, r->details);
    text_to(out->checkpoint, sizeof out->checkpoint, r->checkpoint);
    text_to(out->meta, sizeof out->meta, str_of((const char *)r->meta.p, r->meta.n));
    out->seq_start = r->seq_start;
    out->seq_end = r->seq_end;
    out->tree_size = r->tree_size;
    out->root = r->root;
    out->n_leaf_hashes = r->n_leaf_hashes;
    out->n_balances = r->n_balances;
    out->n_proofs = r->n_proofs;
    out->n_entries = r->n_entries;
    if (r->n_leaf_hashes != 0)
        out->leaf0 = r->leaf_hashes[0];
    if (r->n_balances != 0)
        out->available0 = r->balances[0].available;
    if (r->n_ids != 0)
        text_to(out->id0, sizeof out->id0, r->ids[0]);
    else if (r->n_entries != 0)
        text_to(out->id0, sizeof out->id0, r->entries[0].id);
    if (r->n_proofs != 0)
        out->n_path0 = r->proofs[0].n_path;
}

static void on_ingest(void *ctx, const struct ledger_ingest_reply *r)
{
    struct waiting *w = ctx;
    head_to(w->out, &r->a);
    w->out->n = r->n_results;
    for (size_t i = 0; i < r->n_results && i < 8; i++)
        result_to(&w->out->v[i], &r->results[i]);
    told(w);
}

void rig_ingest(struct rig_client *c, const struct ledger_ingest *rq, int64_t ms, struct rig_reply *out)
{
    struct waiting w;
    wait_begin(&w, out);
    ledger_client_ingest(c->c, rq, deadline_in_ms(ms), on_ingest, &w);
    wait_end(&w);
}

static void on_unit(void *ctx, const struct ledger_unit_reply *r)
{
    struct waiting *w = ctx;
    head_to(w->out, &r->a);
    w->out->found = r->found;
    w->out->ledger_ms = r->ledger_ms;
    if (r->found)
        result_to(&w->out->v[0], &r->result);
    told(w);
}

void rig_unit(struct rig_client *c, const char *idem_id, uint32_t wait_ms, struct rig_reply *out)
{
    struct waiting w;
    wait_begin(&w, out);
    ledger_client_unit(c->c, str_from_c(idem_id), wait_ms, deadline_in_ms(10000), on_unit, &w);
    wait_end(&w);
}

static void on_account(void *ctx, const struct ledger_account_reply *r)
{
    struct waiting *w = ctx;
    head_to(w->out, &r->a);
    w->out->seq = r->as_of_seq;
    w->out->root = r->root;
    w->out->n = r->n_balances;
    w->out->n_lanes = r->n_lanes;
    if (r->n_balances != 0) {
        w->out->available = r->balances[0].available;
        w->out->held = r->balances[0].held;
    }
    if (r->n_lanes != 0)
        w->out->last_nonce = r->lanes[0].last;
    told(w);
}

void rig_account(struct rig_client *c, const char *account, uint64_t min_seq, struct rig_reply *out)
{
    struct waiting w;
    wait_begin(&w, out);
    ledger_client_account(c->c, str_from_c(account), min_seq, deadline_in_ms(10000), on_account, &w);
    wait_end(&w);
}

static void on_entries(void *ctx, const struct ledger_entries_reply *r)
{
    struct waiting *w = ctx;
    head_to(w->out, &r->a);
    w->out->n = r->n_entries;
    w->out->next = r->next;
    if (r->n_entries != 0) {
        const struct ledger_entry_info *e = &r->entries[0];
        w->out->seq = e->seq;
        w->out->hash = e->leaf_hash;
        w->out->open = e->open;
        w->out->held = e->remaining;
        w->out->available = e->entry.amount;
        text_to(w->out->leaf, sizeof w->out->leaf, e->leaf);
        text_to(w->out->v[0].idem_id, sizeof w->out->v[0].idem_id, e->idem_id);
        text_to(w->out->v[0].id0, sizeof w->out->v[0].id0, e->entry.id);
    }
    told(w);
}

void rig_entry(struct rig_client *c, const char *id, struct rig_reply *out)
{
    struct waiting w;
    wait_begin(&w, out);
    ledger_client_entry(c->c, str_from_c(id), deadline_in_ms(10000), on_entries, &w);
    wait_end(&w);
}

void rig_entries(struct rig_client *c, uint64_t from, uint32_t limit, struct rig_reply *out)
{
    struct waiting w;
    wait_begin(&w, out);
    ledger_client_entries(c->c, from, limit, deadline_in_ms(10000), on_entries, &w);
    wait_end(&w);
}

static void on_roots(void *ctx, const struct ledger_roots_reply *r)
{
    struct waiting *w = ctx;
    head_to(w->out, &r->a);
    w->out->n = r->n_roots;
    w->out->next = r->next_since;
    if (r->n_roots != 0) {
        w->out->seq = r->roots[r->n_roots - 1].seq;
        w->out->group_no = r->roots[r->n_roots - 1].group_no;
        w->out->root = r->roots[r->n_roots - 1].root;
        w->out->ledger_ms = r->roots[r->n_roots - 1].ledger_ms;
    }
    told(w);
}

void rig_roots(struct rig_client *c, uint64_t since, uint32_t limit, struct rig_reply *out)
{
    struct waiting w;
    wait_begin(&w, out);
    ledger_client_roots(c->c, since, limit, deadline_in_ms(10000), on_roots, &w);
    wait_end(&w);
}

static void on_proof(void *ctx, const struct ledger_proof_reply *r)
{
    struct waiting *w = ctx;
    head_to(w->out, &r->a);
    w->out->seq = r->seq;
    w->out->size = r->tree_size;
    w->out->root = r->root;
    w->out->from_root = r->from_root;
    w->out->hash = r->leaf_hash;
    w->out->n_path = r->n_path;
    text_to(w->out->leaf, sizeof w->out->leaf, r->checkpoint);
    told(w);
}

void rig_proof(struct rig_client *c, uint64_t seq, uint64_t size, struct rig_reply *out)
{
    struct waiting w;
    wait_begin(&w, out);
    ledger_client_proof(c->c, seq, size, deadline_in_ms(10000), on_proof, &w);
    wait_end(&w);
}

void rig_consistency(struct rig_client *c, uint64_t from, uint64_t to, struct rig_reply *out)
{
    struct waiting w;
    wait_begin(&w, out);
    ledger_client_consistency(c->c, from, to, deadline_in_ms(10000), on_proof, &w);
    wait_end(&w);
}

static void on_head(void *ctx, const struct ledger_head_reply *r)
{
    struct waiting *w = ctx;
    head_to(w->out, &r->a);
    w->out->ready = r->ready;
    w->out->seq = r->head_seq;
    w->out->group_no = r->group_no;
    w->out->ledger_ms = r->ledger_ms;
    w->out->root = r->root;
    told(w);
}

void rig_head(struct rig_client *c, int64_t ms, struct rig_reply *out)
{
    struct waiting w;
    wait_begin(&w, out);
    ledger_client_head(c->c, deadline_in_ms(ms), on_head, &w);
    wait_end(&w);
}

/* ---- units ---- */

static void unit_of(struct rig_unit *u, const char *name)
{
    memset(u, 0, sizeof *u);
    snprintf(u->idem, sizeof u->idem, "t:%s", name);
    snprintf(u->id, sizeof u->id, "e-%s", name);
    u->e.id = str_from_c(u->id);
    u->e.ts_ms = 1760000000000;
    u->e.asset = STR("ron");
    u->u = (struct ledger_unit){.idem_id = str_from_c(u->idem), .entries = &u->e, .n_entries = 1};
}

void rig_mint(struct rig_unit *u, const char *name, const char *account, uint64_t amount)
{
    unit_of(u, name);
    u->e.kind = LEDGER_MINT;
    u->e.account = str_from_c(account);
    u->e.amount.units = amount;
}

void rig_pay(struct rig_unit *u, const char *name, const char *from, const char *to, uint64_t amount,
             uint64_t nonce)
{
    unit_of(u, name);
    u->e.kind = LEDGER_TRANSFER;
    u->e.account = str_from_c(from);
    u->e.to = str_from_c(to);
    u->e.amount.units = amount;
    u->e.nonce = nonce;
}

/* ---- who listens to nothing ---- */

static void deaf_begin(void *ctx)
{
    (void)ctx;
}

static void deaf_commit(void *ctx, const struct ledger_commit_event *ev)
{
    (void)ctx;
    (void)ev;
}

static void deaf_end(void *ctx, enum err why)
{
    (void)ctx;
    (void)why;
}

const struct ledger_feed_sink rig_deaf_sink = {deaf_begin, deaf_commit, deaf_end};
