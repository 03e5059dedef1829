/*
 * POST /v1/simulate: every check of the operation against a fresh reading of the ledger; nothing is claimed, reserved or
 * committed. Step by step, each reading coming back to the request's loop:
 *
 *     key known here? -> policy and limits -> key known to the ledger? -> the hold -> payer -> payee -> judge
 *
 * A refusal is the one the operation would get. Between the readings the world goes on: it is a forecast.
 */
#include <string.h>

#include "base/check.h"
#include "services/wallet/api/request.h"

struct side {
    struct str account;
    struct money available, held;
};

struct sim {
    struct wallet_post *p;
    struct side payer, payee; /* account.n 0: there is none */
    uint64_t last;            /* nonce of the payer's lane */
    uint64_t as_of_seq;
};

static void ask(struct sim *s, enum wallet_read_kind kind, struct str name,
                void (*done)(struct wallet_read *r))
{
    struct wallet_post *p = s->p;
    struct wallet_read *r = wallet_read_new(p->w, kind, name, p->rq);
    if (r) {
        r->done = done;
        r->arg = s;
        if (wallet_read_submit(r) == ERR_OK)
            return;
        wallet_read_free(r);
    }
    wallet_refuse_busy(p->w, p->rq, WALLET_EP_SIMULATE, "read_queue");
    wallet_post_free(p);
}

static void would_replay(struct wallet_post *p, struct str receipt)
{
    struct buf b;
    char room[WALLET_BODY_MAX + 64];
    buf_init_fixed(&b, room, sizeof room);
    buf_puts(&b, "{\"would\":\"replay\",\"receipt\":");
    buf_put_str(&b, receipt);
    buf_putc(&b, '}');
    net_reply_json(p->rq, 200, buf_bytes(&b));
    wallet_post_free(p);
}

/* ---- the forecast ---- */

/* What each side has afterwards. False: it does not go. */
static bool apply(const struct wallet_post *p, struct money amount, struct money rest, struct side *payer,
                  struct side *payee, enum err *out_err)
{
    enum err e = ERR_OK;
    *out_err = ERR_INSUFFICIENT_FUNDS;
    switch (p->op.kind) {
    case WALLET_ISSUE:
        e = ERR_OK;
        break;
    case WALLET_TRANSFER:
    case WALLET_BURN:
        e = money_sub(payer->available, amount, &payer->available);
        break;
    case WALLET_HOLD:
        e = money_sub(payer->available, amount, &payer->available);
        if (e == ERR_OK)
            e = money_add(payer->held, amount, &payer->held);
        return e == ERR_OK;
    case WALLET_CAPTURE:
        *out_err = ERR_HOLD_SETTLED;
        e = money_sub(payer->held, amount, &payer->held);
        if (e == ERR_OK)
            e = money_sub(payer->held, rest, &payer->held);
        if (e == ERR_OK)
            e = money_add(payer->available, rest, &payer->available);
        break;
    case WALLET_RELEASE:
        *out_err = ERR_HOLD_SETTLED;
        e = money_sub(payer->held, amount, &payer->held);
        if (e == ERR_OK)
            e = money_add(payer->available, amount, &payer->available);
        return e == ERR_OK;
    case WALLET_KIND_COUNT:
        UNREACHABLE();
    }
    if (e != ERR_OK)
        return false;
    if (payee->account.n && money_add(payee->available, amount, &payee->available) != ERR_OK) {
        *out_err = ERR_UNPROCESSABLE;
        return false;
    }
    return true;
}

static void write_side(struct json_w *json, struct str asset, const struct side *before,
                       const struct side *after)
{
    if (!before->account.n)
        return;
    json_obj_begin(json);
    json_put_str(json, "account", before->account);
    json_put_str(json, "asset", asset);
    json_put_money(json, "available_before", before->available);
    json_put_money(json, "available_after", after->available);
    json_put_money(json, "held_before", before->held);
    json_put_money(json, "held_after", after->held);
    json_obj_end(json);
}

static void would_commit(struct sim *s, const struct wallet_unit *u, const struct side *payer,
                         const struct side *payee)
{
    struct wallet_post *p = s->p;
    char room[4096], draft[WALLET_BODY_MAX];
    struct buf b, d;
    struct json_w json;
    buf_init_fixed(&d, draft, sizeof draft);
    wallet_receipt_write_draft(&u->receipt, &d);
    buf_init_fixed(&b, room, sizeof room);
    json_w_init(&json, &b);
    json_obj_begin(&json);
    json_put_cstr(&json, "would", "commit");
    json_put_cstr(&json, "txid", p->txid);
    json_put_raw(&json, "receipt", buf_str(&d));
    json_key(&json, "balances");
    json_arr_begin(&json);
    write_side(&json, u->receipt.asset, &s->payer, payer);
    write_side(&json, u->receipt.asset, &s->payee, payee);
    json_arr_end(&json);
    json_put_u64(&json, "as_of_seq", s->as_of_seq);
    json_obj_end(&json);
    CHECK(b.err == ERR_OK && d.err == ERR_OK);
    net_reply_json(p->rq, 200, buf_bytes(&b));
    wallet_post_free(p);
}

static void refuse_nonce(struct sim *s)
{
    struct wallet_post *p = s->p;
    struct wallet_answer a;
    wallet_answer_problem(&a, ERR_NONCE_CONFLICT, "the nonce is not the next one of its lane");
    a.no.retryable_says = true;
    a.no.retryable = p->op.nonce > s->last + 1;
    wallet_answer_details(&a, "{\"account\":\"%.*s\",\"lane\":%u,\"expected\":%llu}", STR_ARG(p->op.from),
                          p->op.lane, (unsigned long long)s->last + 1);
    wallet_reply_answer(p->w, p->rq, &a, p->txid, false);
    wallet_post_free(p);
}

static void judge(struct sim *s)
{
    struct wallet_post *p = s->p;
    struct wallet_unit u;
    struct side payer = s->payer, payee = s->payee;
    enum err e;
    struct wallet_frame frame = {p->tenant, p->key, p->now_ms, wallet_config(p->w)->hold_default_ttl / 1000,
                                 p->idem_id};
    if (wallet_kind_has_nonce(p->op.kind) && p->op.nonce != s->last + 1) {
        refuse_nonce(s);
        return;
    }
    CHECK(wallet_unit_build(&p->op, &frame, p->settles_hold ? &p->hold : NULL, p->txid, &u) ==
          ERR_OK); /* limits passed */
    if (apply(p, u.receipt.amount, u.receipt.released, &payer, &payee, &e)) {
        would_commit(s, &u, &payer, &payee);
        return;
    }
    if (e == ERR_INSUFFICIENT_FUNDS)
        wallet_refuse_details(p->w, p->rq, e, "the account does not have that much available",
                              "{\"account\":\"%.*s\",\"asset\":\"%.*s\"}", STR_ARG(s->payer.account),
                              STR_ARG(u.receipt.asset));
    else if (e == ERR_UNPROCESSABLE)
        wallet_refuse_details(p->w, p->rq, e, "a balance would grow too large",
                              "{\"member\":\"amount\",\"reason\":\"overflow\"}");
    else
        wallet_refuse_details(p->w, p->rq, e, "the hold is settled", "{\"hold\":\"%.*s\"}",
                              STR_ARG(p->op.hold));
    wallet_post_free(p);
}

/* ---- the readings ---- */

static bool failed(struct sim *s, const struct wallet_read *r)
{
    if (r->err == ERR_OK)
        return false;
    wallet_api_down(s->p->w, s->p->rq, r->err);
    wallet_post_free(s->p);
    return true;
}

static void take_side(struct sim *s, struct side *side, const struct wallet_read *r)
{
    struct wallet_post *p = s->p;
    struct wallet_holding h =
        wallet_account_holding(r->account, p->settles_hold ? p->hold.asset : p->op.asset);
    side->available = h.available;
    side->held = h.held;
    s->as_of_seq = r->account->as_of_seq;
}

static void got_payee(struct wallet_read *r)
{
    struct sim *s = r->arg;
    if (failed(s, r))
        return;
    take_side(s, &s->payee, r);
    judge(s);
}

static void ask_payee(struct sim *s)
{
    if (s->payee.account.n)
        ask(s, WALLET_READ_FRESH, s->payee.account, got_payee);
    else
        judge(s);
}

static void got_payer(struct wallet_read *r)
{
    struct sim *s = r->arg;
    if (failed(s, r))
        return;
    take_side(s, &s->payer, r);
    for (size_t i = 0; i < r->account->n_lanes; i++)
        if (wallet_account_lanes(r->account)[i].lane == s->p->op.lane)
            s->last = wallet_account_lanes(r->account)[i].last;
    ask_payee(s);
}

static void ask_payer(struct sim *s)
{
    if (s->payer.account.n)
        ask(s, WALLET_READ_FRESH, s->payer.account, got_payer);
    else
        ask_payee(s);
}

static void got_hold(struct wallet_read *r)
{
    struct sim *s = r->arg;
    struct wallet_post *p = s->p;
    if (failed(s, r))
        return;
    if (r->open) {
        ask_payer(s);
        return;
    }
    wallet_refuse_details(p->w, p->rq, money_is_zero(r->remaining) ? ERR_HOLD_SETTLED : ERR_HOLD_EXPIRED,
                          "the hold is not open any more", "{\"hold\":\"%.*s\"}", STR_ARG(p->op.hold));
    wallet_post_free(p);
}

static void got_unit(struct wallet_read *r)
{
    struct sim *s = r->arg;
    struct wallet_post *p = s->p;
    if (r->err == ERR_OK && strcmp(r->txid, p->txid) == 0)
        would_replay(p, str_of(r->receipt, r->receipt_n));
    else if (r->err == ERR_OK) {
        wallet_refuse(p->w, p->rq, ERR_IDEMPOTENCY_MISMATCH, "this key was used for another request");
        wallet_post_free(p);
    } else if (r->err != ERR_NOT_FOUND)
        failed(s, r);
    else if (p->settles_hold)
        ask(s, WALLET_READ_TX, p->op.hold, got_hold);
    else
        ask_payer(s);
}

static void go(struct wallet_post *p)
{
    struct wallet *w = p->w;
    char receipt[WALLET_BODY_MAX];
    size_t n = 0, index;
    struct wallet_idem_entry *entry = NULL;
    struct wallet_shard *shard = wallet_shard_of(w, &p->name, &index);
    wallet_post_spell(p);
    rt_lock_take(&shard->idem_lock);
    enum wallet_claim claim = wallet_idem_look(&shard->idem, &p->name, &entry);
    if (claim == WALLET_CLAIM_DONE) {
        n = entry->n;
        memcpy(receipt, entry->receipt, n);
    }
    rt_lock_release(&shard->idem_lock);
    if (claim == WALLET_CLAIM_DONE) {
        would_replay(p, str_of(receipt, n));
        return;
    }
    enum wallet_limits limits = WALLET_LIMITS_REFUSED;
    const char *shed = wallet_shed(w);
    struct sim *s = arena_zalloc(net_req_arena(p->rq), sizeof *s);
    if (claim == WALLET_CLAIM_OTHER)
        wallet_refuse(w, p->rq, ERR_IDEMPOTENCY_MISMATCH, "this key was used for another request");
    else if (claim == WALLET_CLAIM_OPEN)
        wallet_refuse_details(w, p->rq, ERR_IN_FLIGHT, "this key is on its way already",
                              "{\"txid\":\"%s\"}", p->txid);
    else if ((limits = wallet_post_limits(p)) != WALLET_LIMITS_OK) {
        if (limits == WALLET_LIMITS_WAITS)
            return;
    } /* else it has been told */
    else if (shed)
        wallet_refuse_shed(w, p->rq, shed);
    else if (!s)
        wallet_refuse_busy(w, p->rq, WALLET_EP_SIMULATE, "unsettled");
    else {
        s->p = p;
        s->payer.account = p->settles_hold ? p->hold.payer : p->op.from;
        /* Holds and releases pay nobody yet. */
        if (p->op.kind == WALLET_ISSUE || p->op.kind == WALLET_TRANSFER)
            s->payee.account = p->op.to;
        if (p->op.kind == WALLET_CAPTURE)
            s->payee.account = p->hold.payee;
        ask(s, WALLET_READ_UNIT, str_of(p->idem_id, WALLET_IDEM_ID_CHARS - 1), got_unit);
        return;
    }
    wallet_post_free(p);
}

void wallet_api_simulate(struct net_req *rq, void *ctx)
{
    struct wallet_post *p = wallet_post_head(ctx, rq);
    if (p)
        wallet_post_body(p, go, would_replay);
}
