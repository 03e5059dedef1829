#include "outside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model.h"
#include "services/wallet/audit.h"

static struct world *the_world; /* one at a time */

/* ---- clock, configuration, metrics, logs ---- */

static int64_t mono(void *ctx)
{
    (void)ctx;
    return os_now_ns();
}
static int64_t wall(void *ctx)
{
    (void)ctx;
    return 1772443800123;
}
const struct clock *svc_clock(const struct svc *s)
{
    static const struct clock c = {mono, wall, NULL};
    (void)s;
    return &c;
}
const void *svc_config(const struct svc *s)
{
    (void)s;
    return &the_world->config;
}
struct obs_log *svc_log(const struct svc *s)
{
    (void)s;
    return NULL;
}
struct obs_health *svc_health(const struct svc *s)
{
    (void)s;
    return NULL;
}
bool svc_draining(const struct svc *s)
{
    (void)s;
    return false;
}
struct auth *svc_auth(const struct svc *s)
{
    (void)s;
    return NULL;
}
bool obs_health_set(struct obs_health *h, size_t cause, bool ok)
{
    (void)h;
    (void)cause;
    return ok;
}
void wallet_trace_begin(struct wallet_job *j, const struct net_req *rq, int64_t decided_ns)
{
    (void)j;
    (void)rq;
    (void)decided_ns;
}
void wallet_trace_sent(struct wallet_job *j)
{
    (void)j;
}
void wallet_trace_answered(struct wallet_job *j)
{
    (void)j;
}
void wallet_trace_replied(const struct wallet_job *j)
{
    (void)j;
}
void wallet_trace_end(struct wallet_job *j)
{
    (void)j;
}
const struct wallet_job *wallet_trace_speaker(struct wallet_job *const *jobs, size_t n)
{
    (void)n;
    return jobs[0];
}
void obs_traceparent_format(const struct obs_trace *t, char out[OBS_TRACEPARENT_CHARS])
{
    (void)t;
    out[0] = 0;
}
void wallet_audit_settled(struct wallet *w, const struct wallet_job *j)
{
    (void)w;
    (void)j;
}
void wallet_tell_refused(struct wallet *w, const struct net_req *rq, enum err e)
{
    (void)w;
    (void)rq;
    (void)e;
}
bool wallet_daily_ready(struct wallet *w, int64_t day)
{
    (void)w;
    (void)day;
    return true;
}

/* ---- requests ---- */

/* A message may arrive as soon as it is posted: the orders that holding it back allows are among those tried. */
void net_loop_cork(void)
{
}
void net_loop_uncork(void)
{
}
void net_loop_post(struct net_loop *loop, struct net_msg *m)
{
    CHECK(rt_chan_try_send(loop->inbox, m) == ERR_OK);
}
void net_timer_set(struct net_loop *loop, struct net_timer *t, int64_t at_ns)
{
    struct net_req *rq = (struct net_req *)(void *)loop;
    (void)at_ns;
    rq->timer = t;
}
void net_timer_cancel(struct net_loop *loop, struct net_timer *t)
{
    struct net_req *rq = (struct net_req *)(void *)loop;
    (void)t;
    rq->timer = NULL;
}
struct net_loop *net_req_loop(const struct net_req *rq)
{
    return &((struct net_req *)(uintptr_t)rq)->loop;
}
struct arena *net_req_arena(struct net_req *rq)
{
    return &rq->arena;
}
struct bytes net_req_body(const struct net_req *rq)
{
    (void)rq;
    return bytes_of("{}", 2);
}
int64_t net_req_started_ns(const struct net_req *rq)
{
    (void)rq;
    return os_now_ns();
}
struct deadline net_req_deadline(const struct net_req *rq)
{
    (void)rq;
    return deadline_never();
}
struct str net_req_corr_id(const struct net_req *rq)
{
    (void)rq;
    return STR("c");
}
const struct net_route *net_req_route(const struct net_req *rq)
{
    static const struct net_route route = {.tag = WALLET_CAPTURE}; /* not answered from the kept body */
    (void)rq;
    return &route;
}

static void told(struct net_req *rq, enum err e)
{
    CHECK(rq->answers++ == 0); /* exactly one answer */
    rq->told = e;
}
void net_reply(struct net_req *rq, int status, const struct net_headers *headers, struct bytes body)
{
    if (status == 200) {
        rq->replayed = headers && headers->raw.n > 0;
        memcpy(rq->body, body.p, body.n);
        rq->body[body.n] = 0;
    }
    told(rq, status == 200 ? ERR_OK : ERR_NONCE_CONFLICT); /* the only other one written by hand */
}
void net_reply_problem(struct net_req *rq, enum err e, const char *fmt, ...)
{
    (void)fmt;
    told(rq, e);
}
void net_reply_problem_details(struct net_req *rq, enum err e, const char *detail, struct bytes details)
{
    (void)detail;
    (void)details;
    told(rq, e);
}
void net_reply_problem_full(struct net_req *rq, const struct net_problem *p)
{
    told(rq, p->err);
}

/* ---- what stands before the claim ---- */

struct wallet_post *wallet_post_head(struct wallet *w, struct net_req *rq)
{
    (void)w;
    return &rq->post;
}
void wallet_post_body(struct wallet_post *p, void (*go)(struct wallet_post *p),
                      void (*replay)(struct wallet_post *p, struct str receipt))
{
    (void)replay; /* nothing is refused by a policy here */
    go(p);
}
enum err wallet_post_allow(struct wallet_post *p)
{
    (void)p;
    return ERR_OK;
}
enum wallet_limits wallet_post_limits(struct wallet_post *p)
{
    p->now_ms = wall(NULL);
    p->day = p->now_ms / 86400000;
    return WALLET_LIMITS_OK;
}
void wallet_post_free(struct wallet_post *p)
{
    (void)p;
}
void wallet_post_spell(struct wallet_post *p)
{
    wallet_txid_write(&p->txid_hash, p->txid);
    wallet_idem_id_write(&p->idem_hash, p->idem_id);
}
struct money wallet_post_amount(const struct wallet_post *p)
{
    return p->op.amount;
}

void world_request(struct world *x, int i, const char *account, const char *key, uint64_t nonce)
{
    struct net_req *rq = &x->rq[i];
    struct wallet_post *p = &rq->post;
    char text[WALLET_REQUEST_MAX];
    struct buf canonical;
    *p = (struct wallet_post){.w = &x->w, .rq = rq, .tenant = STR("default"), .key = str_from_c(key)};
    p->op = (struct wallet_op){.kind = WALLET_TRANSFER,
                               .from = str_from_c(account),
                               .to = STR("acct:b"),
                               .asset = STR("ron"),
                               .amount = money_from_u64(1),
                               .has_amount = true,
                               .nonce = nonce};
    buf_init_fixed(&canonical, text, sizeof text);
    wallet_request_canonical(&p->op, &canonical);
    wallet_txid_hash(p->tenant, p->key, buf_str(&canonical), &p->txid_hash);
    wallet_idem_hash(p->tenant, p->key, &p->idem_hash);
    p->name = wallet_idem_name_of(&p->idem_hash, &p->txid_hash);
}

/* ---- the ledger ---- */

static struct world_call *find_unit(struct world *x, struct str idem_id)
{
    for (size_t i = 0; i < x->n_units; i++)
        if (str_eq(x->units[i]->unit.idem_id, idem_id))
            return x->units[i];
    return NULL;
}

/* In order, atomically, and never what arrives too late. Ledger's lock held. */
static void carry_out(struct world *x, struct world_call *call, struct ledger_result *r)
{
    *r = (struct ledger_result){.idem_id = call->unit.idem_id,
                                .status = LEDGER_REJECTED,
                                .reason = ERR_EXPIRED,
                                .details = STR("{}")};
    if (find_unit(x, call->unit.idem_id))
        r->status = LEDGER_DUPLICATE;
    else if (x->late_is_refused)
        return;
    else if (call->entries[0].nonce != x->last + 1)
        r->reason = ERR_NONCE_CONFLICT;
    else {
        x->last++;
        x->commits++;
        x->units[x->n_units++] = call;
        r->status = LEDGER_COMMITTED;
        r->seq_start = r->seq_end = r->tree_size = x->n_units;
    }
}

static void arrives(struct world *x, struct world_call *call)
{
    struct ledger_result r;
    os_mutex_lock(&x->m);
    carry_out(x, call, &r);
    bool tell = x->fate[call - x->call] == ANSWERED;
    os_mutex_unlock(&x->m);
    if (tell)
        call->fn(call->ctx, &(struct ledger_ingest_reply){.a = {.outcome = LEDGER_ANSWERED, .status = 200},
                                                          .results = &r,
                                                          .n_results = 1});
}

static void ledger_ingest(struct ledger_client *c, const struct ledger_ingest *rq, struct deadline by,
                          ledger_ingest_fn *fn, void *ctx)
{
    struct world *x = the_world;
    (void)c;
    (void)by;
    CHECK(rq->n_units == 1); /* batch_units = 1 */
    os_mutex_lock(&x->m);
    size_t i = x->n_calls++;
    CHECK(i < CALLS_MAX);
    struct world_call *call = &x->call[i];
    *call = (struct world_call){.fn = fn, .ctx = ctx, .unit = rq->units[0]};
    memcpy(call->entries, rq->units[0].entries, rq->units[0].n_entries * sizeof call->entries[0]);
    call->unit.entries = call->entries;
    CHECK(rq->units[0].idem_id.n == sizeof call->idem_id - 1);
    memcpy(call->idem_id, rq->units[0].idem_id.p, sizeof call->idem_id - 1);
    call->unit.idem_id = str_of(call->idem_id, sizeof call->idem_id - 1);
    enum fate fate = x->fate[i];
    os_mutex_unlock(&x->m);
    /* LOST: the answer does not come in time, whatever the ledger does with the request, now or later. */
    if (x->at_once)
        arrives(x, call);
    else if (fate != LOST_BEFORE)
        CHECK(rt_chan_try_send(x->calls, call) == ERR_OK);
    if (fate != ANSWERED)
        fn(ctx, &(struct ledger_ingest_reply){.a = {.outcome = LEDGER_UNKNOWN, .err = ERR_TIMEOUT}});
}

void world_ledger(void *world)
{
    struct world *x = world;
    void *item;
    while (rt_chan_recv(x->calls, deadline_never(), &item) == ERR_OK)
        arrives(x, item);
}

/* Whoever looks, looks when the ledger's time is past every not_after: from then on nothing that is late is carried out. Unless it
 * looks too early: then what is on its way still may be. */
static void ledger_unit(struct ledger_client *c, struct str idem_id, uint32_t wait_ms, struct deadline by,
                        ledger_unit_fn *fn, void *ctx)
{
    struct world *x = the_world;
    struct ledger_unit_reply r = {.a = {.outcome = LEDGER_ANSWERED, .status = 200}};
    (void)c;
    (void)wait_ms;
    (void)by;
    os_mutex_lock(&x->m);
    x->late_is_refused = x->early_looks == 0;
    x->early_looks -= x->late_is_refused ? 0 : 1;
    r.ledger_ms = x->late_is_refused ? UINT64_MAX : 0;
    struct world_call *u = find_unit(x, idem_id);
    if (u) {
        size_t seq = 1;
        while (x->units[seq - 1] != u)
            seq++;
        r.found = true;
        r.result = (struct ledger_result){.status = LEDGER_COMMITTED,
                                          .idem_id = u->unit.idem_id,
                                          .entries = u->entries,
                                          .n_entries = u->unit.n_entries,
                                          .meta = u->unit.meta,
                                          .seq_start = seq,
                                          .seq_end = seq,
                                          .tree_size = seq};
    }
    os_mutex_unlock(&x->m);
    fn(ctx, &r);
}

/* ---- opening and closing ---- */

static bool doubt_sooner(const struct heap_node *a, const struct heap_node *b)
{
    return heap_entry(a, struct wallet_job, doubt)->look_at_ns <
           heap_entry(b, struct wallet_job, doubt)->look_at_ns;
}

static struct rt_chan *chan(const char *name, size_t capacity, struct rt_bell *bell)
{
    struct rt_chan *c = rt_chan_create(&(struct rt_chan_spec){.name = name,
                                                              .capacity = capacity,
                                                              .policy = RT_REJECT,
                                                              .on_ready = bell ? rt_bell_ring : NULL,
                                                              .on_ready_arg = bell});
    CHECK(c);
    return c;
}

static void open_worker(struct world *x, unsigned i, size_t queue)
{
    struct wallet_worker *k = &x->workers[i];
    *k = (struct wallet_worker){.w = &x->w, .index = i};
    rt_bell_init(&k->bell);
    rng_seed(&k->rng, 1);
    k->work = chan("work_tx", queue, &k->bell);
    k->done = chan("commit_done", 2, &k->bell);
    k->resolved = chan("resolved", 4, &k->bell);
    k->batches = k->spare = calloc(1, sizeof *k->batches);
    k->built = calloc(1, sizeof *k->built);
    k->units = calloc(1, sizeof *k->units);
    k->entries = calloc(WALLET_UNIT_ENTRIES_MAX, sizeof *k->entries);
    k->taken = calloc(512, sizeof(void *));
    CHECK(k->batches && k->built && k->units && k->entries && k->taken);
    k->batches->worker = k;
    CHECK(wallet_chains_init(&k->chains, 4) == ERR_OK);
}

struct world *world_open(unsigned workers, size_t queue)
{
    static const struct ledger_client_ops ops = {.ingest = ledger_ingest, .unit = ledger_unit};
    struct world *x = the_world = calloc(1, sizeof *x);
    CHECK(x);
    struct wallet *w = &x->w;
    x->config = (struct wallet_config){.request_timeout = 5000,
                                       .waiters_per_key = 16,
                                       .queue_work = queue,
                                       .batch_units = 1,
                                       .inflight_requests = 1,
                                       .ledger_rpc_timeout = 1000,
                                       .retry_base = 50,
                                       .retry_max = 1000,
                                       .retry_factor = 2,
                                       .retry_max_tries = 1,
                                       .hold_default_ttl = 1000};
    w->svc = (struct svc *)(void *)x; /* only handed around */
    x->client.ops = &ops;
    w->ledger = &x->client;
    atomic_store(&w->ledger_offset_ms, 1000);
    atomic_store(&w->ledger_up, true);
    rt_lock_init(&w->jobs_lock, "jobs", 44);
    rt_lock_init(&w->tomb_lock, "tombstones", 45);
    rt_lock_init(&w->roots_lock, "roots", 43);
    struct rt_breaker_spec breaker = {
        .window_ms = 10000, .in_window = 20, .open_ms = 5000, .probes = 10, .successes = 10, .seed = 1};
    rt_breaker_init(&w->breaker, &breaker);
    w->touched = calloc(WALLET_TOUCHED_SLOTS, sizeof *w->touched);
    w->unsettled = calloc(WALLET_TOUCHED_SLOTS, sizeof *w->unsettled);
    w->shards = calloc(1, sizeof *w->shards);
    CHECK(w->touched && w->unsettled && w->shards);
    rt_lock_init(&w->shards->idem_lock, "idem", 40);
    CHECK(wallet_idem_init(&w->shards->idem, 100000) == ERR_OK);
    CHECK(pool_init(&w->jobs, sizeof(struct wallet_job), REQUESTS_MAX) == ERR_OK);
    CHECK(wallet_tombs_init(&w->tombs, 4, 4096) == ERR_OK && wallet_roots_init(&w->roots) == ERR_OK);
    rt_inflight_init(&w->work_slots, queue);
    w->workers = x->workers;
    w->n_workers = workers;
    for (unsigned i = 0; i < workers; i++)
        open_worker(x, i, queue);
    rt_bell_init(&w->resolver.bell);
    w->resolver.doubt = chan("doubt_tx", 4, &w->resolver.bell);
    w->resolver.done = chan("looked_up", 4, &w->resolver.bell);
    CHECK(heap_init(&w->resolver.waiting, 4, 4, doubt_sooner) == ERR_OK);
    os_mutex_init(&x->m);
    x->calls = chan("calls", CALLS_MAX, NULL);
    for (int i = 0; i < REQUESTS_MAX; i++) {
        x->rq[i].loop.inbox = chan("reply", 2, NULL);
        arena_init(&x->rq[i].arena, 4096, 65536);
    }
    return x;
}

void world_close(struct world *x)
{
    struct wallet *w = &x->w;
    CHECK(w->shards->idem.open == 0);       /* no key is stuck */
    CHECK(w->jobs.free_n == w->jobs.count); /* no job is left or kept twice */
    CHECK(atomic_load(&w->in_doubt) == 0);
    for (int i = 0; i < REQUESTS_MAX; i++)
        if (x->rq[i].post.op.from.p)
            CHECK(atomic_load(&w->unsettled[wallet_slot(x->rq[i].post.op.from)]) == 0);
    for (unsigned i = 0; i < w->n_workers; i++) {
        struct wallet_worker *k = &x->workers[i];
        CHECK(k->chains.parked == 0 && k->chains.out == 0 && k->outstanding == 0 &&
              !atomic_load(&k->canceled));
        rt_chan_destroy(k->work, NULL, NULL);
        rt_chan_destroy(k->done, NULL, NULL);
        rt_chan_destroy(k->resolved, NULL, NULL);
        wallet_chains_fini(&k->chains);
        rt_word_fini(&k->bell.word);
        free(k->batches);
        free(k->built);
        free(k->units);
        free(k->entries);
        free(k->taken);
    }
    rt_chan_destroy(w->resolver.doubt, NULL, NULL);
    rt_chan_destroy(w->resolver.done, NULL, NULL);
    heap_fini(&w->resolver.waiting);
    rt_word_fini(&w->resolver.bell.word);
    rt_chan_destroy(x->calls, NULL, NULL);
    for (int i = 0; i < REQUESTS_MAX; i++) {
        rt_chan_destroy(x->rq[i].loop.inbox, NULL, NULL);
        arena_fini(&x->rq[i].arena);
    }
    wallet_idem_fini(&w->shards->idem);
    wallet_tombs_fini(&w->tombs);
    wallet_roots_fini(&w->roots);
    pool_fini(&w->jobs);
    rt_breaker_fini(&w->breaker);
    rt_lock_fini(&w->shards->idem_lock);
    rt_lock_fini(&w->jobs_lock);
    rt_lock_fini(&w->tomb_lock);
    rt_lock_fini(&w->roots_lock);
    os_mutex_fini(&x->m);
    free(w->touched);
    free(w->unsettled);
    free(w->shards);
    free(x);
}

/* ---- bodies ---- */

void world_http(struct net_req *rq, struct wallet *w, bool its_time_runs_out)
{
    wallet_api_post(rq, w);
    if (its_time_runs_out && rq->timer && !rq->answers)
        rq->timer->fn(rq->timer);
    while (!rq->answers) {
        void *item;
        CHECK(rt_chan_recv(rq->loop.inbox, deadline_never(), &item) == ERR_OK);
        struct net_msg *m = item;
        m->fn(m);
    }
}

void world_worker(void *worker)
{
    struct wallet_worker *k = worker;
    for (;;) {
        uint64_t noted = rt_bell_note(&k->bell);
        if (wallet_worker_step(k))
            continue;
        if (wallet_worker_ended(k))
            return;
        CHECK(rt_bell_wait(&k->bell, noted, deadline_never()) == ERR_OK);
    }
}

void world_resolver(void *world)
{
    struct wallet *w = &((struct world *)world)->w;
    for (;;) {
        uint64_t noted = rt_bell_note(&w->resolver.bell);
        if (wallet_resolver_step(w))
            continue;
        if (rt_chan_is_closed(w->resolver.doubt) && w->resolver.outstanding == 0)
            return;
        struct heap_node *top = heap_top(&w->resolver.waiting);
        struct deadline by =
            top ? deadline_at_ns(heap_entry(top, struct wallet_job, doubt)->look_at_ns) : deadline_never();
        enum err e = rt_bell_wait(&w->resolver.bell, noted, by);
        CHECK(e == ERR_OK || e == ERR_TIMEOUT);
    }
}
