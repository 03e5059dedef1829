/* The wallet's own part of the admin plane: what is in doubt, the audit stream, emptying the balance cache. */
#include <string.h>

#include "services/wallet/api/api.h"
#include "services/wallet/audit.h"

enum { SHOWN_MAX = 256 };

struct doubt {
    char txid[WALLET_TXID_CHARS];
    enum wallet_kind kind;
    int64_t since_ms;
    unsigned tries;
};

/* Shard lock held by the caller. */
static size_t doubts_of(const struct wallet_idem *idem, struct doubt *out, size_t max)
{
    size_t at = 0, n = 0;
    void *value;
    while (n < max && map128_next(&idem->by_key, &at, NULL, &value)) {
        const struct wallet_idem_entry *e = value;
        const struct wallet_job *j = e->owner;
        if (!j || j->phase != WALLET_IN_DOUBT)
            continue;
        out[n].kind = j->op.kind;
        out[n].since_ms = j->doubt_since_ms;
        out[n].tries = j->tries;
        memcpy(out[n++].txid, j->txid, sizeof j->txid);
    }
    return n;
}

void wallet_api_in_doubt(struct net_req *rq, void *ctx)
{
    struct wallet *w = ctx;
    struct buf b;
    struct json_w json;
    if (!svc_allow_admin(w->svc, rq))
        return;
    struct doubt *found = arena_array(net_req_arena(rq), SHOWN_MAX, sizeof *found);
    if (!found) {
        wallet_refuse(w, rq, ERR_BUSY, "no memory for it");
        return;
    }
    size_t n = 0;
    for (size_t i = 0; i <= w->shard_mask && n < SHOWN_MAX; i++) {
        struct wallet_shard *s = &w->shards[i];
        rt_lock_take(&s->idem_lock);
        n += doubts_of(&s->idem, found + n, SHOWN_MAX - n);
        rt_lock_release(&s->idem_lock);
    }
    buf_init(&b, 256 << 10);
    json_w_init(&json, &b);
    json_obj_begin(&json);
    json_key(&json, "items");
    json_arr_begin(&json);
    for (size_t i = 0; i < n; i++) {
        json_obj_begin(&json);
        json_put_cstr(&json, "txid", found[i].txid);
        json_put_cstr(&json, "op", wallet_kind_name(found[i].kind));
        json_put_time_ms(&json, "since", found[i].since_ms);
        json_put_u64(&json, "tries", found[i].tries);
        json_obj_end(&json);
    }
    json_arr_end(&json);
    json_obj_end(&json);
    net_reply_json(rq, 200, buf_bytes(&b));
    buf_fini(&b);
}

void wallet_api_audit(struct net_req *rq, void *ctx)
{
    struct wallet *w = ctx;
    if (!svc_allow_admin(w->svc, rq))
        return;
    if (!wallet_audit_subscribe(w, rq))
        wallet_refuse(w, rq, ERR_BUSY, "eight others read the audit stream already");
}

void wallet_api_cache_flush(struct net_req *rq, void *ctx)
{
    struct wallet *w = ctx;
    if (!svc_allow_admin(w->svc, rq))
        return;
    for (size_t i = 0; i <= w->shard_mask; i++) {
        struct wallet_shard *s = &w->shards[i];
        rt_lock_take(&s->cache_lock);
        wallet_cache_clear(&s->cache);
        rt_lock_release(&s->cache_lock);
    }
    obs_log(svc_log(w->svc), OBS_INFO, "cache.flush", OBS_STR("by", "admin"), OBS_END);
    net_reply_json(rq, 200, bytes_of("{}", 2));
}
