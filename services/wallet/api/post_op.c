/*
 * POST /v1/{issue,transfer,burn,hold,capture,release}: look the key up, claim it, queue the operation.
 *
 * Nothing here waits. A key that is settled is answered from memory, whatever the state of the ledger; one that is on
 * its way is joined; anything else is checked against policy and limits and handed to the worker of its account.
 */
#include <string.h>

#include "base/check.h"
#include "services/wallet/api/request.h"

/* ---- what is known about the key ---- */

/* Shard lock held. */
static void join(struct wallet_job *j, struct wallet_ticket *t)
{
    struct wallet_ticket **at = &j->tickets;
    while (*at)
        at = &(*at)->next;
    *at = t;
    t->next = NULL;
    t->job = j;
    t->linked = true;
    j->n_tickets++;
}

enum known { KNOWN_NOT, KNOWN_DONE, KNOWN_OPEN, KNOWN_FULL, KNOWN_OTHER };

/* Shard lock held: what a request with this name meets. */
static enum known meet(struct wallet *w, enum wallet_claim claim, struct wallet_idem_entry *e,
                       struct wallet_ticket *t, char receipt[WALLET_BODY_MAX], size_t *out_n)
{
    switch (claim) {
    case WALLET_CLAIM_DONE:
        CHECK(e->n <= WALLET_BODY_MAX);
        memcpy(receipt, e->receipt, e->n);
        *out_n = e->n;
        return KNOWN_DONE;
    case WALLET_CLAIM_OPEN: {
        struct wallet_job *j = e->owner;
        if (j->n_tickets > wallet_config(w)->waiters_per_key)
            return KNOWN_FULL;
        t->waiter = true;
        join(j, t);
        return KNOWN_OPEN;
    }
    case WALLET_CLAIM_OTHER:
        return KNOWN_OTHER;
    case WALLET_CLAIM_OWNER:
    case WALLET_CLAIM_ABSENT:
        break;
    }
    return KNOWN_NOT;
}

enum { FROM_RAM = 0, FROM_LEDGER = 2 }; /* of wallet_idem_replays_total */

static void replayed(struct wallet_post *p, size_t from, struct str receipt)
{
    struct wallet *w = p->w;
    obs_counter_inc(obs_counter_nth(w->m[WALLET_M_idem_replays], from));
    obs_counter_inc(
        obs_counter_nth(w->m[WALLET_M_ops], (size_t)p->op.kind * WALLET_O_COUNT + WALLET_O_REPLAYED));
    wallet_post_free(p);
    net_reply(p->rq, 200, &(struct net_headers){.raw = STR("Idempotency-Replayed: true\r\n")},
              bytes_of_str(receipt));
}

static void replay(struct wallet_post *p, struct str receipt)
{
    replayed(p, FROM_LEDGER, receipt);
}

/* Answers (or lets wait) a request whose key is known. */
static void known(struct wallet_post *p, enum known k, struct wallet_ticket *t, struct str receipt)
{
    struct wallet *w = p->w;
    switch (k) {
    case KNOWN_DONE:
        replayed(p, FROM_RAM, receipt);
        return;
    case KNOWN_OPEN:
        wallet_post_free(p);
        wallet_ticket_arm(t, wallet_deadline(w, t->rq));
        return;
    case KNOWN_FULL:
        wallet_post_spell(p);
        wallet_refuse_details(w, p->rq, ERR_IN_FLIGHT, "others wait for this key already",
                              "{\"txid\":\"%s\"}", p->txid);
        break;
    case KNOWN_OTHER:
        wallet_refuse(w, p->rq, ERR_IDEMPOTENCY_MISMATCH, "this key was used for another request");
        break;
    case KNOWN_NOT:
        UNREACHABLE();
    }
    wallet_post_free(p);
}

/* ---- a new operation ---- */

static struct str keep(struct wallet_job *j, size_t *at, struct str s)
{
    if (!s.p)
        return s;
    CHECK(*at + s.n <= sizeof j->text);
    memcpy(j->text + *at, s.p, s.n);
    struct str kept = str_of(j->text + *at, s.n);
    *at += s.n;
    return kept;
}

static void fill(struct wallet_job *j, struct wallet_post *p)
{
    struct wallet *w = p->w;
    size_t at = 0;
    wallet_post_spell(p);
    j->op = p->op;
    j->settles_hold = p->settles_hold;
    j->hold.amount = p->hold.amount;
    j->hold.payer = keep(j, &at, p->hold.payer);
    j->hold.payee = keep(j, &at, p->hold.payee);
    j->hold.asset = keep(j, &at, p->hold.asset);
    j->op.from = keep(j, &at, p->op.from);
    j->op.to = keep(j, &at, p->op.to);
    j->op.asset = keep(j, &at, p->op.asset);
    j->op.hold = keep(j, &at, p->op.hold);
    j->op.memo = keep(j, &at, p->op.memo);
    j->tenant = keep(j, &at, p->tenant);
    j->key = keep(j, &at, p->key);
    j->corr_id = keep(j, &at, net_req_corr_id(p->rq));
    struct bytes asked = p->settles_hold ? bytes_of_str(p->hold.payee) : net_req_body(p->rq);
    j->asked_n = asked.n <= sizeof j->asked ? asked.n : 0;
    memcpy(j->asked, asked.p, j->asked_n);
    memcpy(j->txid, p->txid, sizeof j->txid);
    memcpy(j->idem_id, p->idem_id, sizeof j->idem_id);
    j->name = p->name;
    j->accepted_ms = p->now_ms;
    j->day = p->day;
    j->by = wallet_deadline(w, p->rq);
    j->hold_ttl_s = wallet_config(w)->hold_default_ttl / 1000;
    j->amount = wallet_post_amount(p);
    memcpy(j->daily, p->daily, sizeof j->daily);
    j->n_daily = p->n_daily;
    wallet_trace_begin(j, p->rq, p->traced_ns);
    j->account_slot = wallet_slot(wallet_job_account(j));
    j->worker = (unsigned)(j->account_slot % w->n_workers);
}

/* Too many of this account are on their way? */
static bool enter_account(struct wallet_job *j)
{
    _Atomic uint16_t *n = &j->w->unsettled[j->account_slot];
    if (atomic_fetch_add_explicit(n, 1, memory_order_relaxed) < WALLET_UNSETTLED_PER_ACCOUNT)
        return true;
    atomic_fetch_sub_explicit(n, 1, memory_order_relaxed);
    return false;
}

/* Everything is allowed: claim the key and hand the job over. The request belongs to its ticket from then on. */
static void submit(struct wallet_post *p, struct wallet_job *j, struct wallet_ticket *t)
{
    struct wallet *w = p->w;
    struct wallet_shard *s = &w->shards[t->shard];
    char receipt[WALLET_BODY_MAX];
    size_t n = 0;
    enum wallet_claim claim = WALLET_CLAIM_ABSENT;
    struct wallet_idem_entry *entry = NULL;
    j->shard = t->shard;
    rt_lock_take(&s->idem_lock);
    enum err e = wallet_idem_claim(&s->idem, &j->name, j, &claim, &entry);
    enum known k = e == ERR_OK ? meet(w, claim, entry, t, receipt, &n) : KNOWN_NOT;
    if (e == ERR_OK && claim == WALLET_CLAIM_OWNER) {
        j->phase = WALLET_QUEUED;
        join(j, t);
    }
    rt_lock_release(&s->idem_lock);
    if (e != ERR_OK || claim != WALLET_CLAIM_OWNER) { /* somebody was faster, or there is no memory */
        atomic_fetch_sub_explicit(&w->unsettled[j->account_slot], 1, memory_order_relaxed);
        wallet_reservations_back(w, j->daily, j->n_daily, j->day, j->amount, false);
        wallet_job_unref(j);
        if (e == ERR_OK)
            known(p, k, t, str_of(receipt, n));
        else {
            wallet_post_free(p);
            wallet_refuse_busy(w, t->rq, (unsigned)p->op.kind, "unsettled");
        }
        return;
    }
    wallet_post_free(p);
    wallet_ticket_arm(t, j->by);
    unsigned kind = (unsigned)j->op.kind;
    e = wallet_job_queue(j);
    if (e == ERR_OK)
        return;
    obs_counter_inc(obs_counter_nth(w->m[WALLET_M_busy_rejections], kind));
    obs_counter_add(obs_counter_nth(w->m[WALLET_M_queue_dropped], 0), e == ERR_BUSY);
    wallet_answer_problem(&j->answer, e == ERR_BUSY ? ERR_BUSY : ERR_DRAINING,
                          e == ERR_BUSY ? "the work queue is full" : "the service is shutting down");
    if (e == ERR_BUSY)
        wallet_answer_details(&j->answer, "{\"reason\":\"queue\"}");
    wallet_job_settle(j, false);
}

/* A key that is known is answered, or waited for, before anything else is judged. */
static bool met(struct wallet_post *p, struct wallet_ticket *t)
{
    struct wallet_shard *s = &p->w->shards[t->shard];
    char receipt[WALLET_BODY_MAX];
    size_t n = 0;
    struct wallet_idem_entry *entry = NULL;
    rt_lock_take(&s->idem_lock);
    enum wallet_claim claim = wallet_idem_look(&s->idem, &p->name, &entry);
    enum known k = meet(p->w, claim, entry, t, receipt, &n);
    rt_lock_release(&s->idem_lock);
    if (k != KNOWN_NOT)
        known(p, k, t, str_of(receipt, n));
    return k != KNOWN_NOT;
}

static void go(struct wallet_post *p)
{
    struct wallet *w = p->w;
    struct wallet_ticket *t = arena_alloc(net_req_arena(p->rq), sizeof *t);
    if (!t) {
        wallet_post_free(p);
        wallet_refuse_busy(w, p->rq, (unsigned)p->op.kind, "unsettled");
        return;
    }
    wallet_ticket_init(t, w, p->rq);
    wallet_shard_of(w, &p->name, &t->shard);
    if (!p->fresh && met(p, t)) /* who came between is met when the key is claimed */
        return;
    enum wallet_limits limits = wallet_post_limits(p);
    if (limits == WALLET_LIMITS_REFUSED)
        wallet_post_free(p);
    if (limits != WALLET_LIMITS_OK)
        return;
    const char *shed = wallet_shed(w);
    struct wallet_job *j = shed ? NULL : wallet_job_new(w);
    if (j) {
        fill(j, p);
        if (enter_account(j)) {
            submit(p, j, t);
            return;
        }
        wallet_job_unref(j);
    }
    wallet_reservations_back(w, p->daily, p->n_daily, p->day, wallet_post_amount(p), false);
    wallet_post_free(p);
    if (shed) {
        obs_counter_inc(obs_counter_nth(w->m[WALLET_M_upstream_fail], 0));
        wallet_refuse_shed(w, p->rq, shed);
    } else
        wallet_refuse_busy(w, p->rq, (unsigned)p->op.kind, "unsettled");
}

/*
 * The same bytes under the same key again need no reading: their receipt is here, and says what the capability is
 * judged by, on every call as ever. What settles a hold is not among them, its receipt does not name the payee.
 */
static bool again(struct wallet_post *p)
{
    struct wallet_idem_name name =
        wallet_idem_name_of(&p->idem_hash, &p->idem_hash); /* the key's half counts */
    enum wallet_kind kind = (enum wallet_kind)net_req_route(p->rq)->tag;
    struct bytes body = net_req_body(p->rq);
    char text[WALLET_BODY_MAX];
    struct wallet_sides sides;
    size_t n = 0, index;
    if (kind == WALLET_CAPTURE || kind == WALLET_RELEASE)
        return false;
    struct wallet_shard *s = wallet_shard_of(p->w, &name, &index);
    rt_lock_take(&s->idem_lock);
    struct wallet_idem_entry *e =
        wallet_idem_again(&s->idem, name.key, kind, str_of((const char *)body.p, body.n), &p->fresh);
    if (e) {
        sides = e->sides;
        memcpy(text, e->receipt, n = e->n);
    }
    rt_lock_release(&s->idem_lock);
    if (!e)
        return false;
    struct str receipt = str_of(text, n);
    p->op = (struct wallet_op){.kind = kind,
                               .from = wallet_side(receipt, sides.from, sides.from_n),
                               .to = wallet_side(receipt, sides.to, sides.to_n),
                               .asset = wallet_side(receipt, sides.asset, sides.asset_n),
                               .amount = sides.amount,
                               .has_amount = true};
    if (wallet_post_allow(p) == ERR_OK)
        known(p, KNOWN_DONE, NULL, receipt);
    else
        wallet_post_free(p);
    p->op = (struct wallet_op){
        .kind = kind}; /* its texts go with this frame, and p stays until the request ends */
    return true;
}

void wallet_api_post(struct net_req *rq, void *ctx)
{
    struct wallet_post *p = wallet_post_head(ctx, rq);
    if (p && !again(p))
        wallet_post_body(p, go, replay);
}
