#include "services/wallet/api/request.h"

#include <strings.h>

#include "base/check.h"
#include "base/str.h"

/* ---- members ---- */

struct body {
    struct str from, to, asset, memo, hold, op;
    struct money amount;
    uint64_t nonce, lane, expires_in;
    bool has_amount, has_memo, has_expires_in;
};

#define F_TO     JSON_REQ(struct body, to, JSON_KIND_STR, .check = str_is_account)
#define F_FROM   JSON_REQ(struct body, from, JSON_KIND_STR, .check = str_is_account)
#define F_ASSET  JSON_REQ(struct body, asset, JSON_KIND_STR, .check = str_is_asset)
#define F_AMOUNT JSON_REQ(struct body, amount, JSON_KIND_MONEY, .min = 1)
#define F_NONCE  JSON_REQ(struct body, nonce, JSON_KIND_U64, .min = 1, .max = WALLET_NONCE_MAX)
#define F_LANE   JSON_DEF(struct body, lane, JSON_KIND_U64, .max = 65535)
#define F_MEMO   JSON_OPT(struct body, memo, JSON_KIND_STR, .check = wallet_is_memo)
#define F_HOLD   JSON_REQ(struct body, hold, JSON_KIND_STR, .check = wallet_is_txid)
#define F_OP     JSON_REQ(struct body, op, JSON_KIND_STR)

static const struct json_field issue_fields[] = {F_TO, F_ASSET, F_AMOUNT, F_MEMO, JSON_END};
static const struct json_field transfer_fields[] = {F_FROM,  F_TO,   F_ASSET, F_AMOUNT,
                                                    F_NONCE, F_LANE, F_MEMO,  JSON_END};
static const struct json_field burn_fields[] = {F_FROM, F_ASSET, F_AMOUNT, F_NONCE,
                                                F_LANE, F_MEMO,  JSON_END};
static const struct json_field hold_fields[] = {
    F_FROM,  F_TO,   F_ASSET, F_AMOUNT,
    F_NONCE, F_LANE, F_MEMO,  JSON_OPT(struct body, expires_in, JSON_KIND_U64, .min = 1, .max = 100000000),
    JSON_END};
static const struct json_field capture_fields[] = {
    F_HOLD, JSON_OPT(struct body, amount, JSON_KIND_MONEY, .min = 1), F_MEMO, JSON_END};
static const struct json_field release_fields[] = {F_HOLD, F_MEMO, JSON_END};

static const struct json_field *const fields_of[WALLET_KIND_COUNT] = {
    [WALLET_ISSUE] = issue_fields, [WALLET_TRANSFER] = transfer_fields, [WALLET_BURN] = burn_fields,
    [WALLET_HOLD] = hold_fields,   [WALLET_CAPTURE] = capture_fields,   [WALLET_RELEASE] = release_fields,
};

/* A simulation's body is the operation's with one more member. */
struct op_only {
    struct str op;
};
static const struct json_field op_only_fields[] = {JSON_REQ(struct op_only, op, JSON_KIND_STR), JSON_END};

static void bad_body(struct wallet_post *p, const struct json_error *why)
{
    wallet_refuse_details(p->w, p->rq, ERR_BAD_REQUEST, "the body is not what this operation takes",
                          "{\"member\":\"%s\",\"reason\":\"%s\"}", why->path,
                          json_reason_name(why->reason));
}

/* Which operation a simulation is about, and the table with "op" added to it. */
static enum err simulated_fields(struct wallet_post *p, struct json_field room[16],
                                 enum wallet_kind *out_kind)
{
    struct op_only head = {0};
    struct json_error why;
    enum err e = json_read_dto_lax(net_req_body(p->rq), op_only_fields, &head, net_req_arena(p->rq), &why);
    if (e != ERR_OK) {
        bad_body(p, &why);
        return ERR_BAD_REQUEST;
    }
    if (wallet_kind_parse(head.op, out_kind) != ERR_OK) {
        wallet_api_bad(p->w, p->rq, "op", "pattern");
        return ERR_BAD_REQUEST;
    }
    static const struct json_field op_field = F_OP;
    size_t n = 0;
    for (const struct json_field *f = fields_of[*out_kind]; f->kind != JSON_KIND_END; f++)
        room[n++] = *f;
    room[n++] = op_field;
    room[n] = (struct json_field)JSON_END;
    return ERR_OK;
}

static enum err read_body(struct wallet_post *p)
{
    const struct wallet_config *cfg = wallet_config(p->w);
    enum wallet_kind kind = (enum wallet_kind)net_req_route(p->rq)->tag;
    struct json_field room[16];
    const struct json_field *fields = fields_of[kind];
    struct json_error why;
    struct body b = {0};
    if (p->simulated) {
        if (simulated_fields(p, room, &kind) != ERR_OK)
            return ERR_BAD_REQUEST;
        fields = room;
    }
    if (json_read_dto(net_req_body(p->rq), fields, &b, net_req_arena(p->rq), &why) != ERR_OK) {
        bad_body(p, &why);
        return ERR_BAD_REQUEST;
    }
    if (b.lane > cfg->max_lane) {
        wallet_api_bad(p->w, p->rq, "lane", "range");
        return ERR_BAD_REQUEST;
    }
    if (b.has_expires_in && (int64_t)b.expires_in * 1000 > cfg->hold_max_ttl) {
        wallet_api_bad(p->w, p->rq, "expires_in", "range");
        return ERR_BAD_REQUEST;
    }
    p->settles_hold = kind == WALLET_CAPTURE || kind == WALLET_RELEASE;
    p->op = (struct wallet_op){.kind = kind,
                               .from = b.from,
                               .to = b.to,
                               .asset = b.asset,
                               .amount = b.amount,
                               .has_amount = kind == WALLET_CAPTURE ? b.has_amount : kind != WALLET_RELEASE,
                               .nonce = b.nonce,
                               .lane = (uint32_t)b.lane,
                               .expires_in_s = b.expires_in,
                               .has_expires_in = b.has_expires_in,
                               .hold = b.hold,
                               .memo = b.has_memo ? b.memo : str_of(NULL, 0)};
    return ERR_OK;
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
    p->simulated = net_req_route(rq)->fn == wallet_api_simulate;
    if (wallet_api_verify(w, rq, &p->cap) != ERR_OK)
        return NULL;
    struct str none[1];
    if (wallet_api_query(w, rq, NULL, none, 0) != ERR_OK || read_key(p) != ERR_OK) {
        wallet_post_free(p);
        return NULL;
    }
    p->tenant = auth_cap_tenant(p->cap);
    wallet_idem_hash(p->tenant, p->key, &p->idem_hash);
    return p;
}

void wallet_post_body(struct wallet_post *p, void (*go)(struct wallet_post *p))
{
    p->go = go;
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
    if (p->settles_hold)
        find_hold(p);
    else
        proceed(p);
}

void wallet_post_free(struct wallet_post *p)
{
    auth_cap_release(p->cap);
    p->cap = NULL;
}

/* ---- policy and allowances ---- */

static enum err refuse_limit(struct wallet_post *p, const char *limit, struct money max)
{
    char text[MONEY_CHARS];
    money_format(max, text);
    wallet_refuse_details(p->w, p->rq, ERR_LIMIT_EXCEEDED, "more than a limit allows",
                          "{\"limit\":\"%s\",\"max\":\"%s\"}", limit, text);
    return ERR_LIMIT_EXCEEDED;
}

static enum err reserve(struct wallet_post *p, struct bytes name, struct money limit, const char *which)
{
    struct wallet *w = p->w;
    struct money amount = wallet_post_amount(p);
    struct str asset = p->settles_hold ? p->hold.asset : p->op.asset;
    struct key128 key = wallet_daily_name(name, wallet_post_actor(p), asset);
    unsigned stripe = (unsigned)(key.lo % WALLET_DAILY_STRIPES);
    struct wallet_stripe *s = &w->daily[stripe];
    struct money before =
        wallet_daily_before(w, p->op.kind == WALLET_ISSUE, wallet_post_actor(p), asset, p->day);
    CHECK(p->n_daily < WALLET_RESERVATIONS_MAX);
    rt_lock_take(&s->lock);
    enum err e = wallet_daily_reserve(&s->daily, key, p->day, limit, before, amount);
    if (e == ERR_OK && p->simulated)
        wallet_daily_give_back(&s->daily, key, p->day, amount);
    rt_lock_release(&s->lock);
    if (e == ERR_OK && !p->simulated)
        p->daily[p->n_daily++] = (struct wallet_reservation){key, stripe};
    if (e == ERR_LIMIT_EXCEEDED)
        return refuse_limit(p, which, limit);
    if (e != ERR_OK)
        wallet_refuse_busy(w, p->rq, p->simulated ? WALLET_EP_SIMULATE : (unsigned)p->op.kind, "unsettled");
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
    if (e == ERR_UNKNOWN_ASSET)
        wallet_refuse_details(p->w, p->rq, e, "the policy knows no such asset", "{\"member\":\"asset\"}");
    else
        wallet_refuse_details(p->w, p->rq, e, "the policy does not allow it", "{\"reason\":\"%s\"}",
                              no.reason);
    return e;
}

enum err wallet_post_limits(struct wallet_post *p)
{
    const struct wallet_config *cfg = wallet_config(p->w);
    struct money amount = wallet_post_amount(p);
    struct wallet_rule rule;
    struct auth_daily daily;
    enum err e;
    p->now_ms = clock_wall_ms(svc_clock(p->w->svc));
    p->day = p->now_ms / 86400000;
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
    if ((e = judge(p, &rule)) != ERR_OK)
        return e;
    if (money_cmp(amount, cfg->max_amount_per_op) > 0)
        return refuse_limit(p, "max_amount_per_op", cfg->max_amount_per_op);
    if (p->settles_hold)
        return ERR_OK;
    bool limited = rule.has_daily || auth_cap_daily(p->cap, 0, &daily);
    if (limited && !wallet_daily_ready(p->w)) {
        wallet_refuse_details(p->w, p->rq, ERR_UNAVAILABLE, "what was spent today is still being added up",
                              "{\"svc\":\"ledger\",\"reason\":\"limits_loading\"}");
        return ERR_UNAVAILABLE;
    }
    for (size_t i = 0; i < AUTH_DAILY_MAX && auth_cap_daily(p->cap, i, &daily); i++)
        if ((e = reserve(p, bytes_of(daily.counter.b, sizeof daily.counter.b), daily.limit, "cap_daily")) !=
            ERR_OK)
            goto back;
    if (rule.has_daily) {
        struct str name = p->op.kind == WALLET_ISSUE ? STR("policy/issue") : STR("policy/spend");
        if ((e = reserve(p, bytes_of_str(name), rule.daily, "policy_daily")) != ERR_OK)
            goto back;
    }
    return ERR_OK;
back:
    wallet_reservations_back(p->w, p->daily, p->n_daily, p->day, amount, false);
    p->n_daily = 0;
    return e;
}
