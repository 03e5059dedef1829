/* Policies the tenant may use, and the keys that verify signatures. */
#include "base/json_write.h"
#include "services/rewarder/api/api.h"
#include "services/rewarder/api/routes.h"

enum { BODY_MAX = 4 << 20 };

static void put_policy(struct json_w *w, const struct rewarder_policy *p)
{
    json_obj_begin(w);
    json_put_cstr(w, "policy_id", p->id);
    json_put_hash(w, "policy_hash", &p->hash);
    json_put_raw(w, "policy", str_of(p->canonical, p->canonical_n));
    json_obj_end(w);
}

void rewarder_api_policies(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    struct rewarder_policy_ref *list[REWARDER_POLICIES_MAX];
    struct buf b;
    struct json_w w;
    if (!api_allow(r, rq, "read", NULL, &who))
        return;
    buf_init(&b, BODY_MAX);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "policies");
    json_arr_begin(&w);
    size_t n = rewarder_policies_list(&r->policies, str_from_c(who.tenant), list);
    for (size_t i = 0; i < n; i++) {
        put_policy(&w, list[i]->policy);
        rewarder_policy_unref(list[i]);
    }
    json_arr_end(&w);
    json_obj_end(&w);
    net_reply_json(rq, 200, buf_bytes(&b));
    buf_fini(&b);
}

void rewarder_api_policy(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    struct buf b;
    struct json_w w;
    if (!api_allow(r, rq, "read", NULL, &who))
        return;
    struct rewarder_policy_ref *p = rewarder_policies_find(&r->policies, net_req_param(rq, "pid"));
    if (!p || !rewarder_policy_for_tenant(p->policy, str_from_c(who.tenant))) {
        net_reply_problem(rq, ERR_NOT_FOUND, "no policy of this id");
    } else {
        buf_init(&b, BODY_MAX);
        json_w_init(&w, &b);
        put_policy(&w, p->policy);
        net_reply_json(rq, 200, buf_bytes(&b));
        buf_fini(&b);
    }
    rewarder_policy_unref(p);
}

/* The current key first, then every other that ever signed here: old runs are verified with them. */
void rewarder_api_keys(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct rewarder_public *list = arena_array(net_req_arena(rq), REWARDER_KEYS_MAX, sizeof *list);
    struct buf b;
    struct json_w w;
    if (!list) {
        net_reply_problem(rq, ERR_UNAVAILABLE, "out of memory");
        return;
    }
    size_t n = rewarder_keys_list(&r->keys, list);
    buf_init(&b, BODY_MAX);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_cstr(&w, "current", n ? list[0].kid : "");
    json_key(&w, "keys");
    json_arr_begin(&w);
    for (size_t i = 0; i < n; i++) {
        json_obj_begin(&w);
        json_put_cstr(&w, "kid", list[i].kid);
        json_put_cstr(&w, "alg", "ed25519");
        json_put_cstr(&w, "pem", list[i].pem);
        json_obj_end(&w);
    }
    json_arr_end(&w);
    json_obj_end(&w);
    net_reply_json(rq, 200, buf_bytes(&b));
    buf_fini(&b);
}
