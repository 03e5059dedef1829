#include "services/wallet/api/request.h"

#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "services/wallet/api/body.h"

static enum err read_body(struct wallet_post *p)
{
    const struct wallet_config *cfg = wallet_config(p->w);
    struct wallet_body_limits limits = {cfg->max_lane, cfg->hold_max_ttl};
    struct json_error why = {0};
    enum err e = wallet_body_read(net_req_body(p->rq), (enum wallet_kind)net_req_route(p->rq)->tag,
                                  p->simulated, &limits, net_req_arena(p->rq), &p->op, &why);
    if (e != ERR_OK)
        wallet_refuse_details(p->w, p->rq, ERR_BAD_REQUEST, "the body is not what this operation takes",
                              "{\"member\":\"%s\",\"reason\":\"%s\"}", why.path,
                              json_reason_name(why.reason));
    p->settles_hold = p->op.kind == WALLET_CAPTURE || p->op.kind == WALLET_RELEASE;
    return e;
}

/* ---- head ---- */

static bool is_json(struct str type)
{
    static const char json[] = "application/json";
    size_t n = sizeof json - 1;
    return type.n >= n && strncasecmp(type.p, json, n) == 0 &&
           (type.n == n || type.p[n] == ';' || type.p[n] == ' ');
}

static enum err read_key(struct wallet_post *p)
{
    struct str key = net_req_header(p->rq, "idempotency-key");
    if (!key.p) {
        wallet_refuse(p->w, p->rq, ERR_IDEMPOTENCY_KEY_MISSING,
                      "every POST needs an Idempotency-Key of its own");
        return ERR_BAD_REQUEST;
    }
    if (wallet_key_parse(key, &p->key) != ERR_OK || net_req_header_count(p->rq, "idempotency-key") > 1) {
        wallet_refuse(p->w, p->rq, ERR_BAD_REQUEST,
                      "the Idempotency-Key is not 1 to 128 of [A-Za-z0-9._:/+=-]");
        return ERR_BAD_REQUEST;
    }
    return ERR_OK;
}

static void name_it(struct wallet_post *p)
{
    char text[WALLET_REQUEST_MAX];
    struct buf canonical;
    buf_init_fixed(&canonical, text, sizeof text);
    wallet_request_canonical(&p->op, &canonical);
    CHECK(canonical.err == ERR_OK); /* every member has its limit */
    wallet_txid_hash(p->tenant, p->key, buf_str(&canonical), &p->txid_hash);
    p->name = wallet_idem_name_of(&p->idem_hash, &p->txid_hash);
    p->named = true;
}

void wallet_post_spell(struct wallet_post *p)
{
    wallet_txid_write(&p->txid_hash, p->txid);
    wallet_idem_id_write(&p->idem_hash, p->idem_id);
}

/* ---- who may ---- */

struct str wallet_post_actor(const struct wallet_post *p)
{
    if (p->settles_hold)
        return p->hold.payee;
    return p->op.from.p ? p->op.from : p->op.to;
}

struct money wallet_post_amount(const struct wallet_post *p)
{
    return p->op.has_amount ? p->op.amount : p->hold.amount;
}

enum err wallet_post_allow(struct wallet_post *p)
{
    struct money amount = wallet_post_amount(p);
    struct auth_want want = {.op = str_from_c(wallet_kind_name(p->op.kind)),
                             .account = wallet_post_actor(p),
                             .asset = p->settles_hold ? p->hold.asset : p->op.asset,
                             .amount = &amount,
                             .lacks = AUTH_BIT(AUTH_CV_TOPIC)};
    switch (p->op.kind) {
    case WALLET_ISSUE:
    case WALLET_TRANSFER:
    case WALLET_HOLD:
        want.to = p->op.to;
        break;
    case WALLET_CAPTURE:
        want.to = p->hold.payee;
        break;
    case WALLET_RELEASE: /* nobody is paid */
        want.amount = NULL;
        want.lacks |= AUTH_BIT(AUTH_CV_TO) | AUTH_BIT(AUTH_CV_MAX_AMOUNT);
        break;
    case WALLET_BURN: /* a token bound to payees cannot burn: the payee is not stated, and not lacking either */
    case WALLET_KIND_COUNT:
        break;
    }
    return wallet_api_allow(p->w, p->rq, p->cap, &want);
}

/* ---- the hold that is settled ---- */

static bool copy(struct wallet_post *p, struct str s, struct str *out)
{
    return arena_str(net_req_arena(p->rq), s, out);
}

static bool take_hold(struct wallet_post *p, struct str receipt, const struct wallet_sides *sides)
{
    p->hold.amount = sides->amount;
    return copy(p, wallet_side(receipt, sides->from, sides->from_n), &p->hold.payer) &&
           copy(p, wallet_side(receipt, sides->to, sides->to_n), &p->hold.payee) &&
           copy(p, wallet_side(receipt, sides->asset, sides->asset_n), &p->hold.asset);
}

static void proceed(struct wallet_post *p)
{
    if (wallet_post_allow(p) == ERR_OK)
        p->go(p);
    else
        wallet_post_free(p);
}

static void hold_known(struct wallet_post *p, struct str receipt, const struct wallet_sides *sides)
{
    if (sides->kind != WALLET_HOLD) {
        wallet_refuse_details(p->w, p->rq, ERR_HOLD_UNKNOWN, "that is not a hold", "{\"hold\":\"%.*s\"}",
                              STR_ARG(p->op.hold));
        wallet_post_free(p);
    } else if (!take_hold(p, receipt, sides)) {
        wallet_refuse(p->w, p->rq, ERR_BUSY, "no memory for it");
        wallet_post_free(p);
    } else
        proceed(p);
}

static void hold_read(struct wallet_read *r)
{
    struct wallet_post *p = r->arg;
    if (r->err == ERR_OK) {
        hold_known(p, str_of(r->receipt, r->receipt_n), &r->sides);
        return;
    }
    if (r->err == ERR_NOT_FOUND)
        wallet_refuse_details(p->w, p->rq, ERR_HOLD_UNKNOWN, "there is no such hold", "{\"hold\":\"%.*s\"}",
                              STR_ARG(p->op.hold));
    else
        wallet_api_down(p->w, p->rq, r->err);
    wallet_post_free(p);
}

/* A replay is judged by what its operation knew: the hold may have left memory since, and the ledger may be away. */
static bool settled_before(struct wallet_post *p)
{
    size_t index;
    struct wallet_idem_entry *e = NULL;
    bool known = false;
    struct wallet_shard *s = wallet_shard_of(p->w, &p->name, &index);
    rt_lock_take(&s->idem_lock);
    if (wallet_idem_look(&s->idem, &p->name, &e) == WALLET_CLAIM_DONE) {
        struct str receipt = str_of(e->receipt, e->n), payee = wallet_idem_asked(e);
        if (!payee.n) /* read back from the ledger */
            payee = wallet_side(receipt, e->sides.to, e->sides.to_n);
        known = payee.n && take_hold(p, receipt, &e->sides) && copy(p, payee, &p->hold.payee);
    }
    rt_lock_release(&s->idem_lock);
    return known;
}

static void find_hold(struct wallet_post *p)
{
    char receipt[WALLET_BODY_MAX];
    struct wallet_sides sides;
    size_t n = 0;
    int64_t since;
    if (wallet_api_find_tx(p->w, p->op.hold, receipt, &n, &sides, &since) == WALLET_TX_DONE) {
        hold_known(p, str_of(receipt, n), &sides);
        return;
    }
    struct wallet_read *r = wallet_read_new(p->w, WALLET_READ_TX, p->op.hold, p->rq);
    if (r) {
        r->done = hold_read;
        r->arg = p;
        if (wallet_read_submit(r) == ERR_OK)
            return;
        wallet_read_free(r);
    }
    wallet_refuse_busy(p->w, p->rq, p->simulated ? WALLET_EP_SIMULATE : (unsigned)p->op.kind, "read_queue");
    wallet_post_free(p);
}

struct wallet_post *wallet_post_head(struct wallet *w, struct net_req *rq)
{
    if (!is_json(net_req_header(rq, "content-type"))) {
        wallet_refuse(w, rq, ERR_UNSUPPORTED_MEDIA_TYPE, "the body must be application/json");
        return NULL;
    }
    struct wallet_post *p = arena_zalloc(net_req_arena(rq), sizeof *p);
    if (!p) {
        wallet_refuse(w, rq, ERR_BUSY, "no memory for it");
        return NULL;
    }
    p->w = w;
    p->rq = rq;
    net_req_set_user(rq, p);
    p->simulated = net_req_route(rq)->fn == wallet_api_simulate;
    if (wallet_api_verify(w, rq, &p->cap) != ERR_OK)
        return NULL;
    p->traced_ns = wallet_trace_decide(w, rq);
    struct str none[1];
    if (wallet_api_query(w, rq, NULL, none, 0) != ERR_OK || read_key(p) != ERR_OK) {
        wallet_post_free(p);
        return NULL;
    }
    p->tenant = auth_cap_tenant(p->cap);
    wallet_idem_hash(p->tenant, p->key, &p->idem_hash);
    return p;
}

void wallet_post_body(struct wallet_post *p, void (*go)(struct wallet_post *p),
                      void (*replay)(struct wallet_post *p, struct str receipt))
{
    p->go = go;
    p->replay = replay;
    if (read_body(p) != ERR_OK) {
        wallet_post_free(p);
        return;
    }
    if (!wallet_is_tenant(p->tenant)) {
        wallet_refuse_details(p->w, p->rq, ERR_FORBIDDEN, "the capability names no usable tenant",
                              "{\"reason\":\"tenant\"}");
        wallet_post_free(p);
        return;
    }
    name_it(p);
    if (p->settles_hold && !settled_before(p))
        find_hold(p);
    else
        proceed(p);
}

void wallet_post_free(struct wallet_post *p)
{
    auth_cap_release(p->cap);
    p->cap = NULL;
}

/* ---- what memory does not know ---- */

static void unit_read(struct wallet_read *r)
{
    struct wallet_post *p = r->arg;
    p->asking = false;
    if (r->err == ERR_OK && strcmp(r->txid, p->txid) == 0) {
        p->replay(p, str_of(r->receipt, r->receipt_n));
        return;
    }
    if (r->err == ERR_NOT_FOUND) {
        p->fresh = false;
        p->go(p);
        return;
    }
    if (r->err == ERR_OK)
        wallet_refuse(p->w, p->rq, ERR_IDEMPOTENCY_MISMATCH, "this key was used for another request");
    else
        wallet_api_down(p->w, p->rq, r->err);
    wallet_post_free(p);
}

/*
 * A key never expires, and memory forgets: what a policy or a limit would refuse now may have been done already, under a policy that
 * was, or as part of what has used up the allowance. The ledger is asked once, before the first such refusal. True: this is under way, or
 * the refusal that it cannot be has been sent.
 */
static bool ask_ledger_first(struct wallet_post *p)
{
    if (p->asked)
        return false;
    p->asked = true;
    wallet_post_spell(p);
    struct wallet_read *r =
        wallet_read_new(p->w, WALLET_READ_UNIT, str_of(p->idem_id, WALLET_IDEM_ID_CHARS - 1), p->rq);
    if (r) {
        r->done = unit_read;
        r->arg = p;
        if (wallet_read_submit(r) == ERR_OK) {
            p->asking = true;
            return true;
        }
        wallet_read_free(r);
    }
    wallet_refuse_busy(p->w, p->rq, p->simulated ? WALLET_EP_SIMULATE : (unsigned)p->op.kind, "read_queue");
    return true;
}

/* ---- policy and allowances ---- */

static enum err refuse_limit(struct wallet_post *p, const char *limit, struct money max)
{
    char text[MONEY_CHARS];
    if (ask_ledger_first(p))
        return ERR_LIMIT_EXCEEDED;
    money_format(max, text);
    wallet_refuse_details(p->w, p->rq, ERR_LIMIT_EXCEEDED, "more than a limit allows",
                          "{\"limit\":\"%s\",\"max\":\"%s\"}", limit, text);
    return ERR_LIMIT_EXCEEDED;
}

static void refuse_unsettled(struct wallet_post *p)
{
    wallet_refuse_busy(p->w, p->rq, p->simulated ? WALLET_EP_SIMULATE : (unsigned)p->op.kind, "unsettled");
}

static void date(struct wallet_post *p)
{
    p->now_ms = clock_wall_ms(svc_clock(p->w->svc));
    p->day = p->now_ms / 86400000;
}

/* What a limit counts. */
struct counted {
    bool issue, spend;
};

/*
 * The i-th daily caveat counts what the caveats up to it allow, whoever holds what was narrowed from there. Issuing has to be spelled out:
 * without any op nobody can. With one behind it only, others may have it in another way.
 */
static struct counted counted_by(const struct auth_cap *cap, size_t daily)
{
    struct counted out = {true, true};
    bool ops = false;
    for (size_t i = 0, n = 0; i < auth_cap_caveats(cap); i++) {
        const struct auth_caveat *c = auth_cap_caveat(cap, i);
        if (c->kind == AUTH_CV_DAILY && n++ == daily)
            break;
        if (c->kind != AUTH_CV_OP)
            continue;
        ops = true;
        out.issue = out.issue && auth_list_covers(c->list, STR("issue"));
        out.spend =
            out.spend && (auth_list_covers(c->list, STR("transfer")) ||
                          auth_list_covers(c->list, STR("burn")) || auth_list_covers(c->list, STR("hold")));
    }
    out.issue = out.issue && (ops || auth_cap_has(cap, AUTH_CV_OP));
    return out;
}

/* What of that was there before this process began. ERR_BUSY: nobody counted it. */
static enum err spent_before(struct wallet_post *p, struct counted what, struct str asset,
                             struct money *out)
{
    struct money issued = MONEY_ZERO, spent = MONEY_ZERO;
    enum err e = ERR_OK;
    if (what.issue)
        e = wallet_daily_before(p->w, true, wallet_post_actor(p), asset, p->day, &issued);
    if (e == ERR_OK && what.spend)
        e = wallet_daily_before(p->w, false, wallet_post_actor(p), asset, p->day, &spent);
    if (money_add(issued, spent, out) != ERR_OK)
        *out = MONEY_MAX;
    return e;
}

/* ERR_BEHIND: the day was over; nothing is answered yet. */
static enum err reserve(struct wallet_post *p, struct bytes name, struct counted what, struct money limit,
                        const char *which)
{
    struct wallet *w = p->w;
    struct money amount = wallet_post_amount(p);
    struct str asset = p->settles_hold ? p->hold.asset : p->op.asset;
    struct key128 key = wallet_daily_name(name, wallet_post_actor(p), asset);
    unsigned stripe = (unsigned)(key.lo % WALLET_DAILY_STRIPES);
    struct wallet_stripe *s = &w->daily[stripe];
    struct money before;
    enum err e = spent_before(p, what, asset, &before);
    CHECK(p->n_daily < WALLET_RESERVATIONS_MAX);
    rt_lock_take(&s->lock);
    if (e == ERR_OK)
        e = wallet_daily_reserve(&s->daily, key, p->day, limit, before, amount);
    if (e == ERR_OK && p->simulated)
        wallet_daily_give_back(&s->daily, key, p->day, amount);
    rt_lock_release(&s->lock);
    if (e == ERR_OK && !p->simulated)
        p->daily[p->n_daily++] = (struct wallet_reservation){key, stripe};
    if (e == ERR_LIMIT_EXCEEDED)
        return refuse_limit(p, which, limit);
    if (e == ERR_BUSY)
        refuse_unsettled(p);
    return e;
}

static enum err judge(struct wallet_post *p, struct wallet_rule *out_rule)
{
    struct wallet_ask ask = {.kind = p->op.kind,
                             .account = wallet_post_actor(p),
                             .from = p->settles_hold ? p->hold.payer : p->op.from,
                             .to = p->settles_hold ? p->hold.payee : p->op.to,
                             .asset = p->settles_hold ? p->hold.asset : p->op.asset,
                             .amount = wallet_post_amount(p)};
    struct wallet_denial no;
    struct wallet_policy_box *box = wallet_policy_get(p->w);
    enum err e = wallet_policy_judge(box->policy, &ask, out_rule, &no);
    wallet_policy_put(box);
    if (e == ERR_OK)
        return e;
    if (e == ERR_LIMIT_EXCEEDED)
        return refuse_limit(p, no.reason, no.max);
    if (ask_ledger_first(p))
        return e;
    if (e == ERR_UNKNOWN_ASSET)
        wallet_refuse_details(p->w, p->rq, e, "the policy knows no such asset", "{\"member\":\"asset\"}");
    else
        wallet_refuse_details(p->w, p->rq, e, "the policy does not allow it", "{\"reason\":\"%s\"}",
                              no.reason);
    return e;
}

/* What no amount of waiting changes: the same account twice, more than the hold, the policy, the ceiling. */
static enum err fixed_limits(struct wallet_post *p, struct wallet_rule *out_rule)
{
    const struct wallet_config *cfg = wallet_config(p->w);
    struct money amount = wallet_post_amount(p);
    enum err e;
    if (p->op.from.p && p->op.to.p && str_eq(p->op.from, p->op.to)) {
        wallet_refuse_details(p->w, p->rq, ERR_UNPROCESSABLE, "payer and payee are the same account",
                              "{\"member\":\"to\",\"reason\":\"same_account\"}");
        return ERR_UNPROCESSABLE;
    }
    if (p->settles_hold && money_cmp(amount, p->hold.amount) > 0) {
        wallet_refuse_details(p->w, p->rq, ERR_UNPROCESSABLE, "more than the hold",
                              "{\"member\":\"amount\",\"reason\":\"over_hold\"}");
        return ERR_UNPROCESSABLE;
    }
    if ((e = judge(p, out_rule)) != ERR_OK)
        return e;
    if (money_cmp(amount, cfg->max_amount_per_op) > 0)
        return refuse_limit(p, "max_amount_per_op", cfg->max_amount_per_op);
    return ERR_OK;
}

static enum err reserve_each(struct wallet_post *p, const struct wallet_rule *rule)
{
    struct auth_daily daily;
    enum err e = ERR_OK;
    for (size_t i = 0; e == ERR_OK && i < AUTH_DAILY_MAX && auth_cap_daily(p->cap, i, &daily); i++)
        e = reserve(p, bytes_of(daily.counter.b, sizeof daily.counter.b), counted_by(p->cap, i),
                    daily.limit, "cap_daily");
    if (e == ERR_OK && rule->has_daily) {
        bool issue = p->op.kind == WALLET_ISSUE;
        struct str name = issue ? STR("policy/issue") : STR("policy/spend");
        e = reserve(p, bytes_of_str(name), (struct counted){issue, !issue}, rule->daily, "policy_daily");
    }
    if (e != ERR_OK) {
        wallet_reservations_back(p->w, p->daily, p->n_daily, p->day, wallet_post_amount(p), false);
        p->n_daily = 0;
    }
    return e;
}

/* Midnight may pass between our look at the clock and the counter: then it is of the new day. */
static enum err reserve_all(struct wallet_post *p, const struct wallet_rule *rule)
{
    enum err e = reserve_each(p, rule);
    if (e == ERR_BEHIND) {
        date(p);
        e = reserve_each(p, rule);
    }
    if (e == ERR_BEHIND) { /* somebody took it to a day that our clock has not reached */
        wallet_daily_again(p->w);
        refuse_unsettled(p);
    }
    return e;
}

/* Everything may be different now: it begins again with the key. */
static void limits_known(struct wallet_patient *patient)
{
    struct wallet_post *p =
        (struct wallet_post *)(void *)((char *)patient - offsetof(struct wallet_post, patient));
    p->told_loading = !patient->loaded;
    p->fresh = false;
    p->go(p);
}

static enum wallet_limits await_limits(struct wallet_post *p)
{
    p->patient.rq = p->rq;
    p->patient.go = limits_known;
    if (!p->told_loading && wallet_daily_await(p->w, &p->patient, wallet_deadline(p->w, p->rq)))
        return WALLET_LIMITS_WAITS;
    if (wallet_daily_ready(p->w, p->day)) /* between two looks */
        return WALLET_LIMITS_OK;
    wallet_refuse_details(p->w, p->rq, ERR_UNAVAILABLE, "what was spent today is still being added up",
                          "{\"svc\":\"ledger\",\"reason\":\"limits_loading\"}");
    return WALLET_LIMITS_REFUSED;
}

static enum wallet_limits refused(const struct wallet_post *p)
{
    return p->asking ? WALLET_LIMITS_WAITS : WALLET_LIMITS_REFUSED;
}

enum wallet_limits wallet_post_limits(struct wallet_post *p)
{
    struct wallet_rule rule;
    struct auth_daily daily;
    date(p);
    if (fixed_limits(p, &rule) != ERR_OK)
        return refused(p);
    if (p->settles_hold || (!rule.has_daily && !auth_cap_daily(p->cap, 0, &daily)))
        return WALLET_LIMITS_OK;
    if (!wallet_daily_ready(p->w, p->day)) {
        enum wallet_limits known = await_limits(p);
        if (known != WALLET_LIMITS_OK)
            return known;
    }
    return reserve_all(p, &rule) == ERR_OK ? WALLET_LIMITS_OK : refused(p);
}
