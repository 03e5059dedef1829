#include "services/wallet/job.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "net/problem.h"
#include "services/wallet/audit.h"
#include "services/wallet/wallet.h"

/* ---- the pool ---- */

_Static_assert(sizeof(struct wallet_job) <= 4224, "docs/design/0018");

struct wallet_job *wallet_job_new(struct wallet *w)
{
    rt_lock_take(&w->jobs_lock);
    struct wallet_job *j = pool_get(&w->jobs);
    rt_lock_release(&w->jobs_lock);
    if (!j)
        return NULL;
    memset(j, 0, offsetof(struct wallet_job, text));
    memset(&j->sides, 0, sizeof *j - offsetof(struct wallet_job, sides));
    j->answer.no.details_n = j->answer.body_n = j->kept.details_n = 0;
    j->magic = WALLET_JOB_MAGIC;
    j->w = w;
    os_a32_store(&j->refs, 1, memory_order_relaxed);
    return j;
}

void wallet_job_ref(struct wallet_job *j)
{
    os_a32_add(&j->refs, 1, memory_order_relaxed);
}

void wallet_job_unref(struct wallet_job *j)
{
    struct wallet *w = j->w;
    CHECK_MAGIC(j, WALLET_JOB_MAGIC);
    /* acq_rel: whoever frees has seen what the others did before they let go */
    if (os_a32_add(&j->refs, (uint32_t)-1, memory_order_acq_rel) != 1)
        return;
    j->magic = 0;
    rt_lock_take(&w->jobs_lock);
    pool_put(&w->jobs, j);
    rt_lock_release(&w->jobs_lock);
}

struct str wallet_job_account(const struct wallet_job *j)
{
    if (j->settles_hold)
        return j->hold.payer;
    return j->op.from.p ? j->op.from : j->op.to;
}

void wallet_job_sides(const struct wallet_job *j, char text[WALLET_BODY_MAX], size_t *out_n,
                      struct wallet_sides *out)
{
    const struct str sides[] = {j->settles_hold ? j->hold.payer : j->op.from,
                                j->settles_hold ? j->hold.payee : j->op.to,
                                j->settles_hold ? j->hold.asset : j->op.asset};
    uint16_t at[3];
    size_t n = 0;
    for (size_t i = 0; i < 3; i++) {
        CHECK(n + sides[i].n <= WALLET_BODY_MAX);
        at[i] = (uint16_t)n;
        if (sides[i].n)
            memcpy(text + n, sides[i].p, sides[i].n);
        n += sides[i].n;
    }
    *out_n = n;
    *out = (struct wallet_sides){.kind = j->op.kind,
                                 .from = at[0],
                                 .from_n = (uint16_t)sides[0].n,
                                 .to = at[1],
                                 .to_n = (uint16_t)sides[1].n,
                                 .asset = at[2],
                                 .asset_n = (uint16_t)sides[2].n,
                                 .amount = j->amount};
}

struct wallet_shard *wallet_shard_of(struct wallet *w, const struct wallet_idem_name *name,
                                     size_t *out_index)
{
    size_t i = (size_t)(name->key.lo >> 7) & w->shard_mask;
    *out_index = i;
    return &w->shards[i];
}

enum err wallet_job_queue(struct wallet_job *j)
{
    struct wallet *w = j->w;
    if (!rt_inflight_take(&w->work_slots))
        return ERR_BUSY;
    enum err e = rt_chan_try_send(w->workers[j->worker].work, j);
    if (e != ERR_OK)
        rt_inflight_release(&w->work_slots);
    return e;
}

/* ---- answers ---- */

void wallet_answer_problem(struct wallet_answer *a, enum err e, const char *detail)
{
    a->no.err = e;
    a->no.detail = detail;
    a->replayed = a->no.retryable_says = a->no.retryable = false;
    a->no.details_n = a->body_n = 0;
}

void wallet_answer_details(struct wallet_answer *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(a->no.details, sizeof a->no.details, fmt, args);
    va_end(args);
    CHECK(n >= 0 && (size_t)n < sizeof a->no.details);
    a->no.details_n = (size_t)n;
}

/* A problem whose `retryable` is not its error's own: a nonce that is too high may become the next one. */
static void reply_retryable(struct net_req *rq, const struct wallet_refusal *a)
{
    char room[1024];
    struct buf b;
    struct json_w w;
    buf_init_fixed(&b, room, sizeof room);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    char type[64];
    snprintf(type, sizeof type, "urn:ron:error:%s", err_code(a->err));
    json_put_cstr(&w, "type", type);
    json_put_cstr(&w, "title", err_title(a->err));
    json_put_u64(&w, "status", (uint64_t)err_http_status(a->err));
    json_put_cstr(&w, "detail", a->detail);
    json_put_cstr(&w, "code", err_code(a->err));
    json_put_bool(&w, "retryable", a->retryable);
    json_put_str(&w, "corr_id", net_req_corr_id(rq));
    if (a->details_n)
        json_put_raw(&w, "details", str_of(a->details, a->details_n));
    json_obj_end(&w);
    net_reply(rq, err_http_status(a->err), &(struct net_headers){.type = "application/problem+json"},
              buf_bytes(&b));
}

static void count_refusal(struct wallet *w, enum err e)
{
    obs_counter_inc(OBS_COUNTER_OF(w->m[WALLET_M_rejected], err_code(e)));
}

void wallet_reply_answer(struct wallet *w, struct net_req *rq, const struct wallet_answer *a,
                         const char *txid, bool replayed)
{
    if (a->no.err == ERR_OK) {
        struct net_headers headers = {.raw = replayed ? STR("Idempotency-Replayed: true\r\n") : STR("")};
        net_reply(rq, 200, &headers, bytes_of(a->body, a->body_n));
        return;
    }
    count_refusal(w, a->no.err);
    if (a->no.retryable_says) {
        reply_retryable(rq, &a->no);
        return;
    }
    char location[64];
    struct net_headers headers = {0};
    if (a->no.err == ERR_OUTCOME_PENDING) {
        int n = snprintf(location, sizeof location, "Location: /v1/tx/%s\r\n", txid);
        headers.raw = str_of(location, (size_t)n);
    }
    net_reply_problem_full(rq,
                           &(struct net_problem){.err = a->no.err,
                                                 .detail = str_from_c(a->no.detail),
                                                 .details_json = bytes_of(a->no.details, a->no.details_n),
                                                 .retry_after_s = a->no.err == ERR_OUTCOME_PENDING ? 1 : 0,
                                                 .headers = &headers});
}

void wallet_refused(struct wallet *w, struct net_req *rq, enum err e)
{
    count_refusal(w, e);
    wallet_tell_refused(w, rq, e);
}

void wallet_refuse(struct wallet *w, struct net_req *rq, enum err e, const char *detail)
{
    wallet_refused(w, rq, e);
    net_reply_problem(rq, e, "%s", detail);
}

void wallet_refuse_details(struct wallet *w, struct net_req *rq, enum err e, const char *detail,
                           const char *fmt, ...)
{
    char details[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(details, sizeof details, fmt, args);
    va_end(args);
    CHECK(n >= 0 && (size_t)n < sizeof details);
    wallet_refused(w, rq, e);
    net_reply_problem_details(rq, e, detail, bytes_of(details, (size_t)n));
}

void wallet_refuse_shed(struct wallet *w, struct net_req *rq, const char *why)
{
    wallet_refuse_details(w, rq, ERR_UNAVAILABLE, "the ledger cannot be written to now",
                          "{\"svc\":\"ledger\",\"reason\":\"%s\"}", why);
}

void wallet_refuse_busy(struct wallet *w, struct net_req *rq, unsigned endpoint, const char *reason)
{
    obs_counter_inc(obs_counter_nth(w->m[WALLET_M_busy_rejections], endpoint));
    wallet_refuse_details(w, rq, ERR_BUSY, "too much is going on; come back", "{\"reason\":\"%s\"}",
                          reason);
}

/* ---- tickets ---- */

static void pending_answer(struct wallet_answer *a, const char *txid)
{
    wallet_answer_problem(a, ERR_OUTCOME_PENDING,
                          "it was sent and its outcome is not known yet; repeat it with the same key");
    wallet_answer_details(a, "{\"txid\":\"%s\"}", txid);
}

/* On the request's loop: the answer it was promised. */
static void ticket_answered(struct net_msg *m)
{
    struct wallet_ticket *t =
        (struct wallet_ticket *)(void *)((char *)m - offsetof(struct wallet_ticket, msg));
    struct wallet_job *j = t->job;
    net_timer_cancel(net_req_loop(t->rq), &t->timer);
    if (t->waiter && j->answer.no.err == ERR_OK)
        obs_counter_inc(obs_counter_nth(t->w->m[WALLET_M_idem_replays], 1));
    bool last = t->last; /* its memory goes with the request */
    wallet_reply_answer(t->w, t->rq, &j->answer, j->txid, t->waiter || j->answer.replayed);
    if (last)
        wallet_trace_replied(j);
    wallet_job_unref(j);
}

/* Answers every ticket of a list nobody else sees any more. */
static void answer_tickets(struct wallet_job *j, struct wallet_ticket *t)
{
    while (t) {
        struct wallet_ticket *next =
            t->next; /* once posted, the loop may answer it and its memory is gone */
        wallet_job_ref(j);
        net_loop_post(net_req_loop(t->rq), &t->msg);
        t = next;
    }
}

/* Shard lock held: takes the tickets off the job. */
static struct wallet_ticket *take_tickets(struct wallet_job *j)
{
    struct wallet_ticket *all = j->tickets;
    for (struct wallet_ticket *t = all; t; t = t->next)
        t->linked = false;
    j->tickets = NULL;
    j->n_tickets = 0;
    return all;
}

static void leave_account(struct wallet_job *j)
{
    atomic_fetch_sub_explicit(&j->w->unsettled[j->account_slot], 1, memory_order_relaxed);
}

/* Its time ran out before it was sent: nothing of it is left but the husk in its worker's chain. */
static void job_canceled(struct wallet_job *j, struct wallet_ticket *all)
{
    struct wallet *w = j->w;
    wallet_answer_problem(&j->answer, ERR_TIMEOUT, "it was never sent: its time ran out in the queue");
    wallet_answer_details(&j->answer, "{\"reason\":\"%s\"}",
                          atomic_load_explicit(&j->behind, memory_order_relaxed) ? "behind_pending"
                                                                                 : "queue");
    wallet_reservations_back(w, j->daily, j->n_daily, j->day, j->amount, false);
    leave_account(j);
    obs_counter_inc(
        obs_counter_nth(w->m[WALLET_M_ops], (size_t)j->op.kind * WALLET_O_COUNT + WALLET_O_REFUSED));
    wallet_audit_settled(w, j);
    answer_tickets(j, all);
    struct wallet_worker *worker = &w->workers[j->worker];
    atomic_fetch_add_explicit(&worker->canceled, 1,
                              memory_order_release); /* pairs with the sweep's acquire */
    rt_bell_ring(&worker->bell);
}

/* On the request's loop: it has waited long enough. */
static void ticket_late(struct net_timer *timer)
{
    struct wallet_ticket *t =
        (struct wallet_ticket *)(void *)((char *)timer - offsetof(struct wallet_ticket, timer));
    struct wallet *w = t->w;
    struct wallet_shard *s = &w->shards[t->shard];
    struct wallet_ticket *all = NULL;
    struct wallet_answer answer;
    rt_lock_take(&s->idem_lock);
    struct wallet_job *j = t->job;
    if (!t->linked) { /* its answer is on the way */
        rt_lock_release(&s->idem_lock);
        return;
    }
    bool cancel = j->phase < WALLET_SENT && !t->waiter;
    if (cancel) {
        j->phase = WALLET_CANCELED;
        wallet_idem_drop(&s->idem, &j->name, j);
        all = take_tickets(j);
        wallet_job_ref(j); /* the worker may let go of it at once */
    } else {
        struct wallet_ticket **at = &j->tickets;
        while (*at != t)
            at = &(*at)->next;
        *at = t->next;
        j->n_tickets--;
        t->linked = false;
        j->told_pending = true;
        pending_answer(&answer, j->txid);
    }
    char txid[WALLET_TXID_CHARS];
    memcpy(txid, j->txid, sizeof txid);
    enum wallet_kind kind = j->op.kind;
    rt_lock_release(&s->idem_lock);
    if (cancel) {
        job_canceled(j, all);
        wallet_job_unref(j);
        return;
    }
    obs_counter_inc(obs_counter_nth(w->m[WALLET_M_ops], (size_t)kind * WALLET_O_COUNT + WALLET_O_PENDING));
    wallet_reply_answer(w, t->rq, &answer, txid, false);
}

void wallet_ticket_init(struct wallet_ticket *t, struct wallet *w, struct net_req *rq)
{
    memset(t, 0, sizeof *t);
    t->msg.fn = ticket_answered;
    t->timer.fn = ticket_late;
    t->rq = rq;
    t->w = w;
}

void wallet_ticket_arm(struct wallet_ticket *t, struct deadline by)
{
    net_timer_set(net_req_loop(t->rq), &t->timer, by.at_ns);
}

/* The server would say "timeout" at the client's own deadline; we know better what to say and go first. */
struct deadline wallet_deadline(struct wallet *w, const struct net_req *rq)
{
    int64_t by = net_req_started_ns(rq) + wallet_config(w)->request_timeout * 1000000;
    struct deadline asked = net_req_deadline(rq);
    if (!deadline_is_never(asked) && asked.at_ns - 10000000 < by)
        by = asked.at_ns - 10000000;
    return deadline_at_ns(by);
}

/* ---- the end of a job ---- */

void wallet_job_settle(struct wallet_job *j, bool committed)
{
    struct wallet *w = j->w;
    struct wallet_shard *s = &w->shards[j->shard];
    struct key128 txid = j->name.txid;
    CHECK_MAGIC(j, WALLET_JOB_MAGIC);
    CHECK(committed == (j->answer.no.err == ERR_OK));

    rt_lock_take(&s->idem_lock);
    CHECK(j->phase != WALLET_CANCELED && j->phase != WALLET_SETTLED);
    bool doubted = j->phase == WALLET_IN_DOUBT;
    j->phase = WALLET_SETTLED;
    struct wallet_ticket *all = take_tickets(j);
    bool told = j->told_pending;
    if (committed)
        wallet_idem_done(&s->idem, &j->name, j, str_of(j->answer.body, j->answer.body_n),
                         str_of(j->asked, j->asked_n), &j->sides, wallet_now_ns(w));
    else
        wallet_idem_drop(&s->idem, &j->name, j);
    rt_lock_release(&s->idem_lock);

    bool moved = committed && !j->answer.replayed;
    wallet_reservations_back(w, j->daily, j->n_daily, j->day, j->amount, moved);
    leave_account(j);
    if (told) {
        char text[WALLET_BODY_MAX];
        struct wallet_sides sides;
        size_t text_n;
        wallet_job_sides(j, text, &text_n, &sides);
        rt_lock_take(&w->tomb_lock);
        if (committed)
            wallet_tombs_remove(&w->tombs, txid);
        else
            wallet_tombs_add(&w->tombs, txid, j->answer.no.err, str_of(text, text_n), &sides,
                             wallet_now_ns(w));
        rt_lock_release(&w->tomb_lock);
    }
    enum wallet_outcome outcome = moved       ? WALLET_O_COMMITTED
                                  : committed ? WALLET_O_REPLAYED
                                  : doubted   ? WALLET_O_NOT_COMMITTED
                                              : WALLET_O_REFUSED;
    obs_counter_inc(obs_counter_nth(w->m[WALLET_M_ops], (size_t)j->op.kind * WALLET_O_COUNT + outcome));
    if (committed && j->answer.replayed)
        obs_counter_inc(obs_counter_nth(w->m[WALLET_M_idem_replays], 2));
    wallet_audit_settled(w, j);
    wallet_trace_end(j);
    for (struct wallet_ticket *t = all; t; t = t->next)
        t->last = !t->waiter;
    answer_tickets(j, all);
    wallet_job_unref(j);
}

void wallet_job_tell_pending(struct wallet_job *j)
{
    struct wallet_shard *s = &j->w->shards[j->shard];
    rt_lock_take(&s->idem_lock);
    struct wallet_ticket *all = take_tickets(j);
    j->told_pending = true;
    rt_lock_release(&s->idem_lock);
    pending_answer(&j->answer, j->txid);
    answer_tickets(j, all);
}

void wallet_reservations_back(struct wallet *w, const struct wallet_reservation *r, size_t n, int64_t day,
                              struct money amount, bool used)
{
    for (size_t i = 0; i < n; i++) {
        struct wallet_stripe *s = &w->daily[r[i].stripe];
        rt_lock_take(&s->lock);
        if (used)
            wallet_daily_use(&s->daily, r[i].name, day, amount);
        else
            wallet_daily_give_back(&s->daily, r[i].name, day, amount);
        rt_lock_release(&s->lock);
    }
}
