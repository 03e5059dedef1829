/*
 * What is said of a request besides its answer: its log line, and what the server itself refused. Accounts are named by a
 * hash, so that lines about the same one can be found and none tells whose it is.
 */
#include "base/hex.h"
#include "services/wallet/api/request.h"
#include "services/wallet/audit.h"

enum { ACCOUNT_HASH_BYTES = 8, ACCOUNT_HASH_CHARS = 2 * ACCOUNT_HASH_BYTES };

/* The capability's word for what a request of /v1 asks for; NULL: it is none of them. */
static const char *op_of(const struct net_req *rq)
{
    const struct net_route *route = net_req_route(rq);
    if (!route || !route->fn)
        return NULL;
    if (route->fn == wallet_api_post)
        return wallet_kind_name((enum wallet_kind)route->tag);
    if (route->fn == wallet_api_simulate)
        return "simulate";
    if (route->fn == wallet_api_balance || route->fn == wallet_api_accounts ||
        route->fn == wallet_api_nonce || route->fn == wallet_api_tx || route->fn == wallet_api_proof)
        return "read";
    return NULL;
}

/* Whom it concerns: who acts, or who is asked about. */
static struct str account_of(struct net_req *rq)
{
    const struct wallet_post *p = net_req_user(rq);
    struct str account = {NULL, 0};
    if (p)
        return wallet_post_actor(p);
    if (net_req_route(rq)->fn == wallet_api_accounts)
        return net_req_param(rq, "account");
    if (net_req_query(rq, "account", &account) != ERR_OK)
        return (struct str){NULL, 0};
    return account;
}

static struct str txid_of(struct net_req *rq)
{
    void (*fn)(struct net_req *, void *) = net_req_route(rq)->fn;
    struct wallet_post *p = net_req_user(rq);
    if (fn == wallet_api_tx || fn == wallet_api_proof)
        return net_req_param(rq, "txid");
    if (!p || !p->named)
        return (struct str){NULL, 0};
    wallet_post_spell(p);
    return str_of(p->txid, WALLET_TXID_CHARS - 1);
}

size_t wallet_request_fields(void *wallet, struct net_req *rq, struct obs_field *out)
{
    const char *op = op_of(rq);
    size_t n = 0;
    (void)wallet;
    if (!op)
        return 0;
    out[n++] = OBS_STR("op", op);
    struct str txid = txid_of(rq), account = account_of(rq);
    if (txid.n && wallet_is_txid(txid)) /* what is no txid may be anything */
        out[n++] = OBS_STR("txid", txid);
    char *hash = account.n ? arena_alloc(net_req_arena(rq), ACCOUNT_HASH_CHARS + 1) : NULL;
    if (hash) {
        struct sha256 h;
        sha256_of(account.p, account.n, &h);
        hex_encode(h.b, ACCOUNT_HASH_BYTES, hash);
        out[n++] = OBS_STR("account_hash", str_of(hash, ACCOUNT_HASH_CHARS));
    }
    return n;
}

void wallet_tell_refused(struct wallet *w, const struct net_req *rq, enum err e)
{
    const char *op = op_of(rq);
    if (op)
        wallet_audit_refused(w, op, e, net_req_corr_id(rq));
}

void wallet_refusing(struct svc *s, void *wallet, struct net_req *rq, enum net_reject why,
                     struct net_problem *p)
{
    (void)s;
    (void)why;
    wallet_refused(wallet, rq, p->err);
}

void wallet_answered_no(struct svc *s, void *wallet, const struct net_done *d)
{
    const struct wallet *w = wallet;
    (void)s;
    if (d->status == 429)
        obs_hist_observe(obs_hist(w->m[WALLET_M_refusal_seconds]), (double)d->duration_ns / 1e9);
}

void wallet_refuse_draining(struct svc *s, struct net_req *rq)
{
    wallet_refuse(svc_state(s), rq, ERR_DRAINING, "the service is shutting down");
}
