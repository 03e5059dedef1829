#include "services/ledger/providers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/http_client.h"
#include "rt/backoff.h"
#include "rt/breaker.h"
#include "services/ledger/api/api.h"
#include "services/ledger/verdicts.h"

enum { ANSWER_MAX = 1 << 20, FIRST_BACKOFF_MS = 50, RANK_PROVIDERS = 36 };

static const char *const names[] = {"kms", "policy", "wallet"};
static const char *const drill_names[] = {"off", "timeout", "5xx", "deny"};

struct provider {
    struct rt_breaker breaker;
    uint64_t opened;   /* how often we said so; the task's */
    bool broken;       /* we said that it opened, and not yet that it closed; the task's */
    _Atomic int drill; /* enum ledger_drill */
    _Atomic bool http; /* settings.http, for the fast look */
    _Atomic uint64_t calls, denied, failures;
};

struct ledger_providers {
    struct ledger *l;
    struct net_loop *loop;
    struct net_http_client *http;
    struct rt_lock lock; /* guards set */
    struct ledger_providers_settings set;
    struct provider of[PROVIDER_COUNT];
    _Atomic size_t parked;
    struct rng rng; /* the task's, like the next */
    struct ledger_job *settled, *settled_last;
};

/* One question on its way; in the job's arena. */
struct question {
    struct net_msg msg;
    struct net_timer timer; /* back-off, or a time-out that is played */
    struct ledger_providers *p;
    struct ledger_job *job;
    enum ledger_provider which;
    struct ledger_provider_settings set; /* as it was when it began */
    unsigned tries;
    bool plays_timeout;
    size_t n; /* verdicts expected */
};

const char *ledger_provider_name(enum ledger_provider which)
{
    CHECK((unsigned)which < PROVIDER_COUNT);
    return names[which];
}

enum ledger_provider ledger_provider_from(struct str name)
{
    for (unsigned i = 0; i < PROVIDER_COUNT; i++)
        if (str_eq_c(name, names[i]))
            return (enum ledger_provider)i;
    return PROVIDER_NONE;
}

static int64_t now_ns(const struct ledger_providers *p)
{
    return net_loop_now_ns(p->loop);
}

/* ---- the body of a question ---- */

static size_t put_checks(struct json_w *w, const struct ledger_job *job)
{
    size_t n = 0;
    json_put_str(w, "token", job->token);
    json_put_cstr(w, "aud", "ron-ledger");
    json_put_cstr(w, "peer", job->has_ip ? "ip" : "unix");
    json_key(w, "checks");
    json_arr_begin(w);
    for (uint32_t i = 0; i < job->n_units; i++)
        for (uint32_t k = 0; ledger_verdict_due(&job->units[i]) && k < job->units[i].u.n; k++, n++) {
            const struct core_entry *e = &job->units[i].u.entries[k];
            json_obj_begin(w);
            json_put_cstr(w, "op", ledger_kind_text(e->kind));
            json_put_str(w, "account", e->account);
            json_put_str(w, "asset", e->asset);
            json_put_money(w, "amount", e->amount);
            json_obj_end(w);
        }
    json_arr_end(w);
    return n;
}

static size_t put_units(struct json_w *w, const struct ledger_job *job)
{
    size_t n = 0;
    json_put_str(w, "kid", job->who.kid);
    json_key(w, "units");
    json_arr_begin(w);
    for (uint32_t i = 0; i < job->n_units; i++) {
        const struct ledger_job_unit *u = &job->units[i];
        if (!ledger_verdict_due(u))
            continue;
        n++;
        json_obj_begin(w);
        json_put_str(w, "idem_id", u->u.idem_id);
        json_key(w, "entries");
        json_arr_begin(w);
        for (uint32_t k = 0; k < u->u.n; k++)
            ledger_json_entry(w, &u->u.entries[k]);
        json_arr_end(w);
        json_obj_end(w);
    }
    json_arr_end(w);
    return n;
}

static size_t put_question(struct buf *b, const struct question *q)
{
    struct json_w w;
    json_w_init(&w, b);
    json_obj_begin(&w);
    size_t n = q->which == PROVIDER_KMS ? put_checks(&w, q->job) : put_units(&w, q->job);
    json_obj_end(&w);
    return n;
}

/* ---- ends ---- */

static void settle(struct question *q)
{
    struct ledger_providers *p = q->p;
    struct ledger_job *job = q->job;
    job->next = NULL;
    if (p->settled_last != NULL)
        p->settled_last->next = job;
    else
        p->settled = job;
    p->settled_last = job;
}

static void refuse(struct question *q, enum err err)
{
    ledger_job_refuse(q->job, err, err == ERR_TIMEOUT ? "op" : "provider", names[q->which]);
    settle(q);
}

/* A call that got an answer, whatever it says. */
static void worked(struct question *q)
{
    struct provider *of = &q->p->of[q->which];
    rt_breaker_success(&of->breaker, now_ns(q->p));
    if (of->broken && rt_breaker_state(&of->breaker, now_ns(q->p)) == RT_BREAKER_CLOSED) {
        of->broken = false;
        obs_log(q->p->l->deps.log, OBS_INFO, "breaker_close", OBS_STR("provider", names[q->which]),
                OBS_END);
    }
}

static void tell_denied(struct question *q, size_t denied)
{
    if (denied == 0)
        return;
    atomic_fetch_add(&q->p->of[q->which].denied, denied);
    obs_log(q->p->l->deps.log, OBS_INFO, "provider_denied", OBS_STR("provider", names[q->which]),
            OBS_U64("units", denied), OBS_CORR(q->job->corr_id), OBS_END);
}

static void denied_all(struct question *q, const char *why)
{
    worked(q);
    tell_denied(q, ledger_verdicts_deny(q->job, q->which == PROVIDER_KMS, why));
    settle(q);
}

static void ask(struct question *q);

static void count_timeout(struct question *q)
{
    struct obs_family *m = q->p->l->m[LEDGER_M_io_timeouts];
    if (m != NULL)
        obs_counter_inc(OBS_COUNTER_OF(m, names[q->which]));
}

/* A try that got no usable answer. */
static void failed(struct question *q, enum err err)
{
    struct ledger_providers *p = q->p;
    struct provider *of = &p->of[q->which];
    if (err == ERR_TIMEOUT)
        count_timeout(q);
    if (q->tries <= q->set.max_retries && !deadline_passed(q->job->by)) {
        struct rt_backoff_spec spec = {.first_min_ms = 1,
                                       .first_max_ms = FIRST_BACKOFF_MS < q->set.max_backoff_ms
                                                           ? FIRST_BACKOFF_MS
                                                           : q->set.max_backoff_ms,
                                       .cap_ms = q->set.max_backoff_ms};
        q->plays_timeout = false;
        net_timer_set(p->loop, &q->timer,
                      now_ns(p) + rt_backoff_delay_ms(&spec, q->tries - 1, &p->rng) * 1000000);
        return;
    }
    atomic_fetch_add(&of->failures, 1);
    rt_breaker_failure(&of->breaker, now_ns(p));
    if (rt_breaker_opened(&of->breaker) != of->opened) {
        of->opened = rt_breaker_opened(&of->breaker);
        of->broken = true;
        if (p->l->m[LEDGER_M_breaker_open] != NULL)
            obs_counter_inc(OBS_COUNTER_OF(p->l->m[LEDGER_M_breaker_open], names[q->which]));
        obs_log(p->l->deps.log, OBS_WARN, "breaker_open", OBS_STR("provider", names[q->which]),
                OBS_ERR(err), OBS_END);
    }
    refuse(q, err == ERR_TIMEOUT ? ERR_TIMEOUT : ERR_UNAVAILABLE);
}

static void on_answer(void *arg, enum err e, const struct net_http_response *r)
{
    struct question *q = arg;
    size_t denied = 0;
    if (e == ERR_OK && r->status >= 400 && r->status < 500) {
        denied_all(q, r->status == 401 ? "unauthenticated" : "refused by the provider");
        return;
    }
    if (e == ERR_OK)
        e = r->status == 200
                ? ledger_verdicts_read(q->job, q->which == PROVIDER_KMS, r->body, q->n, &denied)
                : ERR_UNAVAILABLE;
    if (e != ERR_OK && e != ERR_UNAUTHENTICATED) {
        failed(q, e);
        return;
    }
    worked(q);
    tell_denied(q, denied);
    if (e == ERR_OK)
        settle(q);
    else
        refuse(q, e);
}

/* ---- tries ---- */

static bool play_drill(struct question *q)
{
    switch ((enum ledger_drill)atomic_load(&q->p->of[q->which].drill)) {
    case DRILL_TIMEOUT:
        q->plays_timeout = true;
        net_timer_set(q->p->loop, &q->timer, now_ns(q->p) + q->set.timeout_ms * 1000000);
        return true;
    case DRILL_5XX:
        failed(q, ERR_UNAVAILABLE);
        return true;
    case DRILL_DENY:
        denied_all(q, "drill");
        return true;
    case DRILL_OFF:
        break;
    }
    return false;
}

static void ask(struct question *q)
{
    struct ledger_providers *p = q->p;
    q->tries++;
    atomic_fetch_add(&p->of[q->which].calls, 1);
    if (play_drill(q))
        return;
    if (!q->set.http) { /* it was a drill, and is over */
        worked(q);
        settle(q);
        return;
    }
    struct buf b;
    buf_init(&b, 4 << 20);
    q->n = put_question(&b, q);
    bool uds = strncmp(q->set.url, "unix:", 5) == 0;
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    struct net_http_request rq = {.method = "POST",
                                  .url = uds ? "http://localhost/" : q->set.url,
                                  .uds = uds ? q->set.url + 5 : NULL,
                                  .headers = headers,
                                  .body = buf_bytes(&b),
                                  .by = deadline_min(q->job->by, deadline_in_ms(q->set.timeout_ms)),
                                  .response_max = ANSWER_MAX};
    enum err e = b.err != ERR_OK ? ERR_TOO_LARGE : net_http_send(p->http, &rq, on_answer, q, NULL);
    buf_fini(&b);
    if (e != ERR_OK)
        failed(q, ERR_UNAVAILABLE);
}

static void on_timer(struct net_timer *t)
{
    struct question *q = (struct question *)((char *)t - offsetof(struct question, timer));
    if (q->plays_timeout)
        failed(q, ERR_TIMEOUT);
    else
        ask(q);
}

static void on_posted(struct net_msg *m)
{
    struct question *q = (struct question *)((char *)m - offsetof(struct question, msg));
    if (!rt_breaker_allow(&q->p->of[q->which].breaker, now_ns(q->p)))
        refuse(q, ERR_UNAVAILABLE);
    else
        ask(q);
}

bool ledger_provider_is_http(const struct ledger_providers *p, enum ledger_provider which)
{
    return p != NULL && atomic_load_explicit(&p->of[which].http, memory_order_relaxed);
}

bool ledger_provider_asked(const struct ledger_providers *p, enum ledger_provider which)
{
    return p != NULL && (atomic_load_explicit(&p->of[which].http, memory_order_relaxed) ||
                         atomic_load_explicit(&p->of[which].drill, memory_order_relaxed) != DRILL_OFF);
}

enum err ledger_providers_park(struct ledger_providers *p, struct ledger_job *job)
{
    struct question *q = arena_zalloc(&job->arena, sizeof *q);
    if (q == NULL || atomic_fetch_add(&p->parked, 1) >= LEDGER_PARKED_MAX) {
        if (q != NULL)
            atomic_fetch_sub(&p->parked, 1);
        if (p->l->m[LEDGER_M_busy_rejections] != NULL)
            obs_counter_inc(OBS_COUNTER_OF(p->l->m[LEDGER_M_busy_rejections], "provider"));
        return ERR_BUSY;
    }
    q->p = p;
    q->job = job;
    q->which = (enum ledger_provider)job->asks;
    q->msg.fn = on_posted;
    q->timer.fn = on_timer;
    rt_lock_take(&p->lock);
    q->set = p->set.of[q->which];
    rt_lock_release(&p->lock);
    net_loop_post(p->loop, &q->msg);
    return ERR_OK;
}

size_t ledger_providers_parked(const struct ledger_providers *p)
{
    return atomic_load(&p->parked);
}

void ledger_providers_turn(struct ledger_providers *p, int wait_ms,
                           void (*settled)(void *ctx, struct ledger_job *job), void *ctx)
{
    net_loop_once(p->loop, wait_ms);
    while (p->settled != NULL) {
        struct ledger_job *job = p->settled;
        p->settled = job->next;
        if (p->settled == NULL)
            p->settled_last = NULL;
        settled(ctx, job);
        atomic_fetch_sub(&p->parked, 1);
    }
}

void ledger_providers_wake(struct ledger_providers *p)
{
    net_loop_wake(p->loop);
}

/* ---- operators ---- */

int ledger_provider_breaker(struct ledger_providers *p, enum ledger_provider which)
{
    return (int)rt_breaker_state(&p->of[which].breaker, os_now_ns());
}

void ledger_provider_drill(struct ledger_providers *p, enum ledger_provider which, enum ledger_drill mode)
{
    atomic_store(&p->of[which].drill, (int)mode);
}

void ledger_providers_report(struct ledger_providers *p, struct json_w *w)
{
    static const char *const states[] = {"closed", "half_open", "open"};
    struct ledger_providers_settings set;
    rt_lock_take(&p->lock);
    set = p->set;
    rt_lock_release(&p->lock);
    json_arr_begin(w);
    for (unsigned i = 0; i < PROVIDER_COUNT; i++) {
        struct provider *of = &p->of[i];
        json_obj_begin(w);
        json_put_cstr(w, "name", names[i]);
        json_put_cstr(w, "mode", set.of[i].http ? "http" : "local");
        if (set.of[i].http)
            json_put_cstr(w, "url", set.of[i].url);
        json_put_cstr(w, "breaker", states[ledger_provider_breaker(p, (enum ledger_provider)i)]);
        json_put_cstr(w, "drill", drill_names[atomic_load(&of->drill)]);
        json_put_u64(w, "calls", atomic_load(&of->calls));
        json_put_u64(w, "denied", atomic_load(&of->denied));
        json_put_u64(w, "failures", atomic_load(&of->failures));
        json_put_u64(w, "opened", rt_breaker_opened(&of->breaker));
        json_obj_end(w);
    }
    json_arr_end(w);
}

/* ---- life ---- */

static struct rt_breaker_spec breaker_of(const struct ledger_providers_settings *set)
{
    return (struct rt_breaker_spec){.in_a_row = set->failures,
                                    .open_ms = set->open_ms,
                                    .successes = set->half_open_successes,
                                    .probes = set->half_open_successes,
                                    .seed = rng_secure_u64()};
}

void ledger_providers_configure(struct ledger_providers *p, const struct ledger_providers_settings *set)
{
    struct rt_breaker_spec spec = breaker_of(set);
    rt_lock_take(&p->lock);
    p->set = *set;
    rt_lock_release(&p->lock);
    for (unsigned i = 0; i < PROVIDER_COUNT; i++) {
        rt_breaker_configure(&p->of[i].breaker, &spec);
        atomic_store(&p->of[i].http, set->of[i].http);
    }
}

enum err ledger_providers_create(struct ledger *l, const struct ledger_providers_settings *set,
                                 struct ledger_providers **out)
{
    struct ledger_providers *p = calloc(1, sizeof *p);
    enum err e = p == NULL ? ERR_NO_MEMORY : net_loop_create(NULL, &p->loop);
    if (e != ERR_OK) {
        free(p);
        return e;
    }
    struct net_http_client_config cfg = {.loop = p->loop,
                                         .max_requests = LEDGER_PARKED_MAX,
                                         .max_per_host = LEDGER_PARKED_MAX,
                                         .user_agent = "ron-ledger"};
    e = net_http_client_create(&cfg, &p->http);
    if (e != ERR_OK) {
        net_loop_destroy(p->loop);
        free(p);
        return e;
    }
    struct rt_breaker_spec spec = breaker_of(set);
    p->l = l;
    rt_lock_init(&p->lock, "providers", RANK_PROVIDERS);
    rng_seed(&p->rng, rng_secure_u64());
    for (unsigned i = 0; i < PROVIDER_COUNT; i++)
        rt_breaker_init(&p->of[i].breaker, &spec);
    ledger_providers_configure(p, set);
    *out = p;
    return ERR_OK;
}

void ledger_providers_destroy(struct ledger_providers *p)
{
    if (p == NULL)
        return;
    net_http_client_destroy(p->http);
    net_loop_destroy(p->loop);
    for (unsigned i = 0; i < PROVIDER_COUNT; i++)
        rt_breaker_fini(&p->of[i].breaker);
    rt_lock_fini(&p->lock);
    free(p);
}
