#include "services/wallet/api/api.h"

#include <string.h>

#include "base/check.h"

enum err wallet_api_verify(struct wallet *w, struct net_req *rq, struct auth_cap **out_cap)
{
    struct str token;
    struct auth_cap *cap;
    struct auth_deny why = {0};
    int64_t retry_ms;
    enum err e = auth_bearer(net_req_header(rq, "authorization"), &token);
    if (e == ERR_OK)
        e = auth_verify_why(svc_auth(w->svc), token, &cap, &why);
    if (e == ERR_OK && (e = auth_rate_take(cap, &retry_ms)) != ERR_OK)
        auth_cap_release(cap);
    if (e == ERR_OK) {
        *out_cap = cap;
        return ERR_OK;
    }
    obs_counter_inc(obs_counter_nth(w->auth_failures, e == ERR_RATE_LIMITED ? 2 : 0));
    svc_log_refused(w->svc, rq, e, why.reason);
    if (e == ERR_RATE_LIMITED)
        wallet_refuse(w, rq, e, "the capability's rate is used up");
    else {
        wallet_refused(w, rq, ERR_UNAUTHENTICATED);
        svc_reply_unauthenticated(rq, why.reason);
    }
    return e;
}

enum err wallet_api_allow(struct wallet *w, struct net_req *rq, const struct auth_cap *cap,
                          struct auth_want *want)
{
    struct auth_deny why = {0};
    const struct net_peer *peer = net_req_peer(rq);
    char max[MONEY_CHARS];
    want->peer_ip = peer->kind == NET_PEER_UNIX ? NULL : peer->addr;
    want->now_ms = clock_wall_ms(svc_clock(w->svc));
    want->bytes = net_req_body(rq).n;
    enum err e = auth_allows(cap, want, &why);
    if (e == ERR_OK)
        return ERR_OK;
    obs_counter_inc(obs_counter_nth(w->auth_failures, e == ERR_FORBIDDEN ? 1 : 0));
    svc_log_refused(w->svc, rq, e, why.reason);
    if (e != ERR_FORBIDDEN)
        wallet_refuse(w, rq, ERR_UNAUTHENTICATED, "the capability is not valid now");
    else if (why.kind == AUTH_CV_MAX_AMOUNT) {
        money_format(why.limit, max);
        wallet_refuse_details(w, rq, ERR_LIMIT_EXCEEDED, "more than the capability allows at once",
                              "{\"limit\":\"cap_max_amount\",\"max\":\"%s\"}", max);
    } else
        wallet_refuse_details(w, rq, ERR_FORBIDDEN, "the capability does not cover this",
                              "{\"reason\":\"%s\"}", why.reason ? why.reason : "caveat");
    return e;
}

enum { READ_LACKS = AUTH_BIT(AUTH_CV_TO) | AUTH_BIT(AUTH_CV_MAX_AMOUNT) | AUTH_BIT(AUTH_CV_TOPIC) };

enum err wallet_api_reader(struct wallet *w, struct net_req *rq, struct str account, struct str asset,
                           struct auth_cap **out_cap)
{
    struct auth_cap *cap;
    struct auth_want want = {.op = STR("read"), .account = account, .asset = asset, .lacks = READ_LACKS};
    if (!account.p)
        want.lacks |= AUTH_BIT(AUTH_CV_ACCOUNT);
    if (!asset.p)
        want.lacks |= AUTH_BIT(AUTH_CV_ASSET);
    enum err e = wallet_api_verify(w, rq, &cap);
    if (e != ERR_OK)
        return e;
    e = wallet_api_allow(w, rq, cap, &want);
    if (e == ERR_OK)
        *out_cap = cap;
    else
        auth_cap_release(cap);
    return e;
}

bool wallet_api_sees(const struct auth_cap *cap, struct str receipt, const struct wallet_sides *sides)
{
    struct str from = wallet_side(receipt, sides->from, sides->from_n),
               to = wallet_side(receipt, sides->to, sides->to_n);
    struct str asset = wallet_side(receipt, sides->asset, sides->asset_n);
    return auth_covers(cap, AUTH_CV_ASSET, asset) && ((from.n && auth_covers(cap, AUTH_CV_ACCOUNT, from)) ||
                                                      (to.n && auth_covers(cap, AUTH_CV_ACCOUNT, to)));
}

void wallet_api_bad(struct wallet *w, struct net_req *rq, const char *member, const char *reason)
{
    wallet_refuse_details(w, rq, ERR_BAD_REQUEST, "the request is not well-formed",
                          "{\"member\":\"%s\",\"reason\":\"%s\"}", member, reason);
}

enum err wallet_api_query(struct wallet *w, struct net_req *rq, const char *const *names, struct str *out,
                          size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = str_of(NULL, 0);
    for (size_t q = 0; q < net_req_query_count(rq); q++) {
        struct str name, value;
        size_t i = 0;
        net_req_query_at(rq, q, &name, &value);
        while (i < n && !str_eq_c(name, names[i]))
            i++;
        if (i == n || out[i].p) {
            wallet_api_bad(w, rq, i < n ? names[i] : "query", i < n ? "duplicate" : "unknown");
            return ERR_BAD_REQUEST;
        }
        out[i] = value.p ? value : STR("");
    }
    return ERR_OK;
}

void wallet_api_down(struct wallet *w, struct net_req *rq, enum err e)
{
    const char *why = wallet_cannot_read(w) ? wallet_shed(w) : NULL;
    if (e == ERR_BUSY)
        wallet_refuse_details(w, rq, ERR_UNAVAILABLE, "the ledger is busy",
                              "{\"svc\":\"ledger\",\"reason\":\"busy\"}");
    else
        wallet_refuse_details(w, rq, ERR_UNAVAILABLE, "the ledger cannot be reached",
                              "{\"svc\":\"ledger\",\"reason\":\"%s\"}", why ? why : "down");
}

enum wallet_tx wallet_api_find_tx(struct wallet *w, struct str txid, char receipt[WALLET_BODY_MAX],
                                  size_t *out_n, struct wallet_sides *out_sides, int64_t *out_since_ms)
{
    struct key128 key = wallet_txid_key(txid);
    enum wallet_tx found = WALLET_TX_ABSENT;
    for (size_t i = 0; i <= w->shard_mask && found == WALLET_TX_ABSENT; i++) {
        struct wallet_shard *s = &w->shards[i];
        rt_lock_take(&s->idem_lock);
        struct wallet_idem_entry *e = wallet_idem_find_tx(&s->idem, key);
        if (e && e->owner) {
            found = WALLET_TX_OPEN;
            *out_since_ms = ((const struct wallet_job *)e->owner)->accepted_ms;
            wallet_job_sides(e->owner, receipt, out_n, out_sides);
        } else if (e && e->n <= WALLET_BODY_MAX) {
            found = WALLET_TX_DONE;
            memcpy(receipt, e->receipt, e->n);
            *out_n = e->n;
            *out_sides = e->sides;
        }
        rt_lock_release(&s->idem_lock);
    }
    return found;
}

#define OP(kind, path)                                                                                     \
    {                                                                                                      \
        .method = "POST", .pattern = (path), .fn = wallet_api_post, .flags = NET_NO_DEADLINE,              \
        .tag = (kind)                                                                                      \
    }
#define READ(path, handler)                                                                                \
    {                                                                                                      \
        .method = "GET", .pattern = (path), .fn = (handler)                                                \
    }

const struct net_route wallet_routes[] = {
    OP(WALLET_ISSUE, "/v1/issue"),
    OP(WALLET_TRANSFER, "/v1/transfer"),
    OP(WALLET_BURN, "/v1/burn"),
    OP(WALLET_HOLD, "/v1/hold"),
    OP(WALLET_CAPTURE, "/v1/capture"),
    OP(WALLET_RELEASE, "/v1/release"),
    {.method = "POST",
     .pattern = "/v1/simulate",
     .fn = wallet_api_simulate,
     .headers = "Simulated: true\r\n"},
    READ("/v1/balance", wallet_api_balance),
    READ("/v1/accounts/{account}", wallet_api_accounts),
    READ("/v1/nonce", wallet_api_nonce),
    READ("/v1/tx/{txid}", wallet_api_tx),
    READ("/v1/tx/{txid}/proof", wallet_api_proof),
    {.method = "GET",
     .pattern = "/admin/in-doubt",
     .fn = wallet_api_in_doubt,
     .flags = NET_NO_ADMISSION | NET_WHILE_DRAINING},
    {.method = "GET",
     .pattern = "/admin/audit",
     .fn = wallet_api_audit,
     .flags = NET_NO_ADMISSION | NET_NO_DEADLINE},
    {.method = "POST",
     .pattern = "/admin/cache/flush",
     .fn = wallet_api_cache_flush,
     .flags = NET_NO_ADMISSION},
    {.method = NULL},
};
