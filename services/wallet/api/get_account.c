/*
 * GET /v1/balance, /v1/accounts/{account}, /v1/nonce.
 *
 * Balances are served from memory while they are known to be current (core/cache.h), else fetched, all who ask for an
 * account sharing one fetch. When the ledger does not answer in time the last value is shown with its true age and
 * degraded:true, as long as it is not too old and meets min_seq. Nonces are never cached.
 */
#include <string.h>

#include "base/check.h"
#include "base/str.h"
#include "services/wallet/api/api.h"

enum { BODY_MAX = 64 << 10, ASSETS_SHOWN = 256 };

enum served { SERVED, STALE, BEHIND, NOTHING };

/* A balance as it stood in the cache. */
struct seen {
    struct wallet_freshness fresh;
    uint64_t as_of_seq;
    int64_t as_of_ms;
};

static void freshness_members(struct json_w *json, const struct wallet *w, const struct seen *s,
                              bool degraded)
{
    (void)w;
    json_put_u64(json, "as_of_seq", s->fresh.seq);
    json_put_time_ms(json, "as_of", s->as_of_ms);
    json_put_i64(json, "stale_ms", s->fresh.age_ns / 1000000);
    json_put_bool(json, "degraded", degraded);
}

static void write_balance(struct json_w *json, const struct wallet_wish *q, const struct wallet_account *a)
{
    struct wallet_holding h = wallet_account_holding(a, q->asset);
    json_put_str(json, "account", q->account);
    json_put_str(json, "asset", q->asset);
    json_put_money(json, "available", h.available);
    json_put_money(json, "held", h.held);
}

static void write_account(struct json_w *json, const struct wallet_wish *q, const struct wallet_account *a)
{
    const struct wallet_holding *h = wallet_account_holdings(a);
    const struct wallet_lane *lanes = wallet_account_lanes(a);
    size_t assets = 0;
    json_put_str(json, "account", q->account);
    json_key(json, "assets");
    json_arr_begin(json);
    for (size_t i = 0; i < a->n_holdings; i++) {
        if (!auth_covers(q->cap, AUTH_CV_ASSET, str_from_c(h[i].asset)) || assets++ >= ASSETS_SHOWN)
            continue;
        json_obj_begin(json);
        json_put_cstr(json, "asset", h[i].asset);
        json_put_money(json, "available", h[i].available);
        json_put_money(json, "held", h[i].held);
        json_obj_end(json);
    }
    json_arr_end(json);
    json_key(json, "nonces");
    json_arr_begin(json);
    for (size_t i = 0; i < a->n_lanes; i++) {
        json_obj_begin(json);
        json_put_u64(json, "lane", lanes[i].lane);
        json_put_u64(json, "last", lanes[i].last);
        json_obj_end(json);
    }
    json_arr_end(json);
    if (assets > ASSETS_SHOWN || a->lanes_cut)
        json_put_bool(json, "truncated", true);
}

/*
 * Writes the answer into `body` if what is in memory may be shown. `fetched`: this request waited for a fetch, so a
 * value that young is current whatever was heard meanwhile. `degraded`: it may be older, and says so.
 */
static enum served serve(const struct wallet_wish *q, bool fetched, bool degraded, struct buf *body,
                         struct seen *seen)
{
    struct wallet *w = q->w;
    const struct wallet_config *cfg = wallet_config(w);
    struct wallet_shard *s = &w->shards[wallet_slot(q->account) & w->shard_mask];
    struct wallet_feed feed;
    struct json_w json;
    enum served out = NOTHING;
    int64_t now = wallet_now_ns(w);
    uint64_t touched = wallet_moved(w, q->account, &feed);
    rt_lock_take(&s->cache_lock);
    struct wallet_account *a = wallet_cache_find(&s->cache, q->account);
    if (a) {
        wallet_freshness(a, touched, &feed, now, &seen->fresh);
        seen->as_of_seq = a->as_of_seq;
        seen->as_of_ms = a->as_of_ms;
        int64_t limit_ms = degraded ? cfg->degraded_max : cfg->staleness_window;
        if (seen->fresh.seq < q->min_seq)
            out = BEHIND;
        else if ((seen->fresh.clean || fetched || degraded) && seen->fresh.age_ns <= limit_ms * 1000000)
            out = SERVED;
        else
            out = STALE;
    }
    if (out == SERVED) {
        json_w_init(&json, body);
        json_obj_begin(&json);
        if (q->all)
            write_account(&json, q, a);
        else
            write_balance(&json, q, a);
        freshness_members(&json, w, seen, degraded);
        json_obj_end(&json);
    }
    rt_lock_release(&s->cache_lock);
    return out;
}

enum { HIT = 0, REFRESH = 1, DEGRADED = 2, MISS = 3 };

static void reply(struct wallet_wish *q, struct buf *body, const struct seen *seen, int result)
{
    struct wallet *w = q->w;
    struct net_req *rq = q->rq;
    obs_counter_inc(obs_counter_nth(w->m[WALLET_M_cache], (size_t)result));
    obs_hist_observe(obs_hist(w->m[WALLET_M_cache_age]), (double)seen->fresh.age_ns / 1e9);
    auth_cap_release(q->cap);
    if (body->err != ERR_OK)
        wallet_refuse(w, rq, ERR_UNAVAILABLE, "no memory for it");
    else
        net_reply_json(rq, 200, buf_bytes(body));
}

static void refuse(struct wallet_wish *q, enum served why, const struct seen *seen, enum err e)
{
    struct wallet *w = q->w;
    struct net_req *rq = q->rq;
    uint64_t min_seq = q->min_seq;
    auth_cap_release(q->cap);
    obs_counter_inc(obs_counter_nth(w->m[WALLET_M_cache], MISS));
    if (why == BEHIND && e == ERR_OK)
        wallet_refuse_details(w, rq, ERR_READ_BEHIND, "the ledger has not come that far",
                              "{\"min_seq\":%llu,\"as_of_seq\":%llu}", (unsigned long long)min_seq,
                              (unsigned long long)seen->fresh.seq);
    else if (e == ERR_BUSY)
        wallet_refuse_busy(w, rq, q->all ? WALLET_EP_ACCOUNTS : WALLET_EP_BALANCE, "read_queue");
    else
        wallet_api_down(w, rq, e);
}

/* The last value with its age, or what is the matter. */
static void serve_degraded(struct wallet_wish *q, struct buf *body, enum err e)
{
    struct seen seen = {0};
    enum served s = serve(q, false, true, body, &seen);
    if (s == SERVED)
        reply(q, body, &seen, DEGRADED);
    else
        refuse(q, s, &seen, e);
}

static void body_init(const struct wallet_wish *q, struct buf *body, char small[1024])
{
    if (q->all)
        buf_init(body, BODY_MAX);
    else
        buf_init_fixed(body, small, 1024);
}

static void fetched(struct wallet_wish *q)
{
    char small[1024];
    struct buf body;
    struct seen seen = {0};
    body_init(q, &body, small);
    if (q->err != ERR_OK)
        serve_degraded(q, &body, q->err);
    else {
        enum served s = serve(q, true, false, &body, &seen);
        if (s == SERVED)
            reply(q, &body, &seen, REFRESH);
        else if (s == BEHIND)
            refuse(q, BEHIND, &seen, ERR_OK);
        else
            serve_degraded(q, &body, ERR_UNAVAILABLE);
    }
    buf_fini(&body);
}

static void ask(struct wallet_wish *q)
{
    struct wallet *w = q->w;
    char small[1024];
    struct buf body;
    struct seen seen = {0};
    body_init(q, &body, small);
    if (serve(q, false, false, &body, &seen) == SERVED)
        reply(q, &body, &seen, HIT);
    else if (wallet_cannot_read(w))
        serve_degraded(q, &body, ERR_UNAVAILABLE);
    else {
        q->done = fetched;
        if (wallet_wish_make(q, wallet_config(w)->refresh_wait) != ERR_OK)
            serve_degraded(q, &body, ERR_BUSY);
    }
    buf_fini(&body);
}

static bool min_seq_of(struct wallet *w, struct net_req *rq, struct str text, uint64_t *out)
{
    *out = 0;
    if (!text.p || str_parse_u64(text, out) == ERR_OK)
        return true;
    wallet_api_bad(w, rq, "min_seq", "pattern");
    return false;
}

static void begin(struct wallet *w, struct net_req *rq, struct str account, struct str asset,
                  uint64_t min_seq, bool all)
{
    struct auth_cap *cap;
    if (wallet_api_reader(w, rq, account, asset, &cap) != ERR_OK)
        return;
    struct wallet_wish *q = arena_zalloc(net_req_arena(rq), sizeof *q);
    if (!q) {
        auth_cap_release(cap);
        wallet_refuse(w, rq, ERR_BUSY, "no memory for it");
        return;
    }
    q->w = w;
    q->rq = rq;
    q->account = account;
    q->asset = asset;
    q->min_seq = min_seq;
    q->all = all;
    q->cap = cap;
    ask(q);
}

/* Token before grammar: nobody learns what is well-formed without one. */
static bool token_first(struct wallet *w, struct net_req *rq)
{
    struct auth_cap *cap;
    if (wallet_api_verify(w, rq, &cap) != ERR_OK)
        return false;
    auth_cap_release(cap);
    return true;
}

void wallet_api_balance(struct net_req *rq, void *ctx)
{
    static const char *const names[] = {"account", "asset", "min_seq"};
    struct wallet *w = ctx;
    struct str q[3];
    uint64_t min_seq;
    if (net_req_query_count(rq) < 2 && !token_first(w, rq))
        return;
    if (wallet_api_query(w, rq, names, q, 3) != ERR_OK)
        return;
    if (!q[0].p || !str_is_account(q[0]))
        wallet_api_bad(w, rq, "account", q[0].p ? "pattern" : "missing");
    else if (!q[1].p || !str_is_asset(q[1]))
        wallet_api_bad(w, rq, "asset", q[1].p ? "pattern" : "missing");
    else if (min_seq_of(w, rq, q[2], &min_seq))
        begin(w, rq, q[0], q[1], min_seq, false);
}

void wallet_api_accounts(struct net_req *rq, void *ctx)
{
    static const char *const names[] = {"min_seq"};
    struct wallet *w = ctx;
    struct str q[1], account = net_req_param(rq, "account");
    uint64_t min_seq;
    if (wallet_api_query(w, rq, names, q, 1) != ERR_OK)
        return;
    if (!str_is_account(account))
        wallet_api_bad(w, rq, "account", "pattern");
    else if (min_seq_of(w, rq, q[0], &min_seq))
        begin(w, rq, account, str_of(NULL, 0), min_seq, true);
}

/* ---- nonce ---- */

struct nonce_ask {
    struct wallet *w;
    struct net_req *rq;
    uint64_t lane;
};

static void nonce_read(struct wallet_read *r)
{
    struct nonce_ask *q = r->arg;
    if (r->err != ERR_OK) {
        wallet_api_down(q->w, q->rq, r->err);
        return;
    }
    char room[512];
    struct buf body;
    struct json_w json;
    uint64_t last = 0;
    for (size_t i = 0; i < r->account->n_lanes; i++)
        if (wallet_account_lanes(r->account)[i].lane == q->lane)
            last = wallet_account_lanes(r->account)[i].last;
    struct str account = str_of(r->name, r->name_n);
    buf_init_fixed(&body, room, sizeof room);
    json_w_init(&json, &body);
    json_obj_begin(&json);
    json_put_str(&json, "account", account);
    json_put_u64(&json, "lane", q->lane);
    json_put_u64(&json, "last", last);
    json_put_u64(&json, "next", last + 1);
    json_put_u64(&json, "pending",
                 atomic_load_explicit(&q->w->unsettled[wallet_slot(account)], memory_order_relaxed));
    json_put_u64(&json, "as_of_seq", r->account->as_of_seq);
    json_obj_end(&json);
    net_reply_json(q->rq, 200, buf_bytes(&body));
}

void wallet_api_nonce(struct net_req *rq, void *ctx)
{
    static const char *const names[] = {"account", "lane"};
    struct wallet *w = ctx;
    struct str q[2];
    struct auth_cap *cap;
    uint64_t lane = 0;
    if (wallet_api_query(w, rq, names, q, 2) != ERR_OK)
        return;
    if (!q[0].p || !str_is_account(q[0])) {
        wallet_api_bad(w, rq, "account", q[0].p ? "pattern" : "missing");
        return;
    }
    if (q[1].p && (str_parse_u64(q[1], &lane) != ERR_OK || lane > wallet_config(w)->max_lane)) {
        wallet_api_bad(w, rq, "lane", "range");
        return;
    }
    if (wallet_api_reader(w, rq, q[0], str_of(NULL, 0), &cap) != ERR_OK)
        return;
    auth_cap_release(cap);
    struct nonce_ask *ask_nonce = arena_alloc(net_req_arena(rq), sizeof *ask_nonce);
    struct wallet_read *r = ask_nonce ? wallet_read_new(w, WALLET_READ_FRESH, q[0], rq) : NULL;
    if (r) {
        *ask_nonce = (struct nonce_ask){w, rq, lane};
        r->done = nonce_read;
        r->arg = ask_nonce;
        if (wallet_read_submit(r) == ERR_OK)
            return;
        wallet_read_free(r);
    }
    wallet_refuse_busy(w, rq, WALLET_EP_NONCE, "read_queue");
}
