/* Shadow runs: who would gain and lose under a candidate policy. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hex.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "services/rewarder/api/api.h"
#include "services/rewarder/api/routes.h"

struct shadow_body {
    struct sha256 inputs_cid;
    struct str policy, against;
};
static const struct json_field shadow_fields[] = {
    JSON_REQ(struct shadow_body, inputs_cid, JSON_KIND_HASH),
    JSON_REQ(struct shadow_body, policy, JSON_KIND_RAW),
    JSON_DEF(struct shadow_body, against, JSON_KIND_STR, .min = 1, .max = 64),
    JSON_END,
};

static bool is_done(struct rewarder_shadow *s)
{
    return atomic_load_explicit(&s->state, memory_order_acquire) == REWARDER_SHADOW_DONE;
}

static void reply_file(struct rewarder *r, struct net_req *rq, const struct rewarder_shadow *s,
                       const char *name, const char *type) RT_BLOCKS
{
    struct rewarder_file file;
    char path[STORE_PATH_MAX];
    rewarder_path_shadow(&r->files, &s->id, name, path);
    if (rewarder_file_load(&r->files, path, &file) == ERR_OK)
        api_reply_file(rq, type, NULL, false, &file);
    else
        net_reply_problem(rq, ERR_NOT_FOUND, "no such shadow run");
}

static void reply_shadow(struct rewarder *r, struct net_req *rq, int status,
                         struct rewarder_shadow *s) RT_BLOCKS
{
    char id[SHA256_HEX_CHARS], location[128];
    struct buf b;
    if (status == 200 && is_done(s)) {
        reply_file(r, rq, s, "shadow.json", "application/json");
        return;
    }
    hex_encode(s->id.b, 32, id);
    snprintf(location, sizeof location, "/rewarder/shadow/%s", id);
    struct net_header list[] = {{STR("Location"), str_from_c(location)}};
    buf_init(&b, 1 << 20);
    rewarder_shadow_write(s, false, &b);
    net_reply(rq, status, &(struct net_headers){.list = list, .count = 1}, buf_bytes(&b));
    buf_fini(&b);
}

/* Takes both references over; NULL: no memory. */
static struct rewarder_shadow *make_shadow(struct rewarder *r, const struct rewarder_input *in,
                                           struct rewarder_policy_ref *base,
                                           struct rewarder_policy_ref *candidate)
{
    struct rewarder_shadow *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    atomic_init(&s->refs, 1);
    s->id = rewarder_shadow_id(&base->policy->hash, &candidate->policy->hash, &in->digest);
    s->digest = in->digest;
    memcpy(s->tenant, in->tenant, sizeof s->tenant);
    s->base = rewarder_policy_ref(base);
    s->candidate = rewarder_policy_ref(candidate);
    s->made_ms = rewarder_now_ms(r);
    buf_init(&s->top, 1 << 20);
    buf_init(&s->csv, (size_t)4 << 30);
    return s;
}

static void start_shadow(struct rewarder *r, struct net_req *rq, const struct api_caller *who,
                         const struct rewarder_input *in, struct rewarder_policy_ref *base,
                         struct rewarder_policy_ref *candidate) RT_BLOCKS
{
    struct sha256 id = rewarder_shadow_id(&base->policy->hash, &candidate->policy->hash, &in->digest);
    struct rewarder_shadow *s = rewarder_shadow_find(r, &id);
    if (s && atomic_load_explicit(&s->state, memory_order_acquire) != REWARDER_SHADOW_FAILED) {
        reply_shadow(r, rq, 200, s);
        rewarder_shadow_unref(s);
        return;
    }
    rewarder_shadow_unref(s);
    s = make_shadow(r, in, base, candidate);
    struct rewarder_item *it = s ? api_item(r, NULL, REWARDER_SHADOW, who) : NULL;
    if (!it) {
        net_reply_problem(rq, ERR_UNAVAILABLE, "out of memory");
    } else {
        it->cid = in->cid;
        it->expected = s->id;
        rewarder_shadow_add(r, s);
        if (rt_chan_try_send(r->work_req, it) == ERR_OK) {
            reply_shadow(r, rq, 202, s);
        } else {
            REWARDER_COUNT(r, busy, "shadow");
            s->failure = ERR_BUSY;
            atomic_store_explicit(&s->state, REWARDER_SHADOW_FAILED, memory_order_release);
            net_reply_problem(rq, ERR_BUSY, "the request queue is full");
            rewarder_item_destroy(r, it);
        }
    }
    rewarder_shadow_unref(s);
}

/* A candidate comes from the caller: with a pool of "balance" it would show what any account has. */
static bool may_look_into(struct rewarder *r, const struct api_caller *who,
                          const struct rewarder_policy *candidate)
{
    struct rewarder_policy_ref *list[REWARDER_POLICIES_MAX];
    bool ours = !candidate->pool_is_balance;
    size_t n = rewarder_policies_list(&r->policies, str_from_c(who->tenant), list);
    for (size_t i = 0; i < n; i++) {
        ours = ours || !strcmp(list[i]->policy->funding, candidate->funding);
        rewarder_policy_unref(list[i]);
    }
    return ours;
}

void rewarder_api_post_shadow(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    struct shadow_body body = {.against = str_from_c(rewarder_config(r)->policy_id)};
    struct rewarder_input in;
    struct rewarder_policy *candidate;
    const char *member = "";
    if (!api_allow(r, rq, "compute", NULL, &who) || !api_body(rq, shadow_fields, &body, false))
        return;
    if (!rewarder_registry_input(&r->registry, &body.inputs_cid, &in) || strcmp(in.tenant, who.tenant)) {
        net_reply_problem(rq, ERR_INPUTS_NOT_FOUND, "no such inputs");
        return;
    }
    struct rewarder_policy_ref *base = rewarder_policies_find(&r->policies, body.against);
    if (!base || !rewarder_policy_for_tenant(base->policy, str_from_c(who.tenant))) {
        net_reply_problem(rq, base ? ERR_POLICY_FORBIDDEN : ERR_POLICY_NOT_FOUND,
                          base ? "the policy is not for this tenant" : "no policy of this id");
        rewarder_policy_unref(base);
        return;
    }
    enum err e = rewarder_policy_create(bytes_of_str(body.policy), &candidate, &member);
    if (e == ERR_OK && !rewarder_policies_know_asset(&r->policies, candidate->asset)) {
        rewarder_policy_destroy(candidate); /* as in the policy file: nothing could ever be paid in it */
        member = "asset";
        e = ERR_BAD_POLICY;
    }
    struct rewarder_policy_ref *ref = e == ERR_OK ? rewarder_policy_ref_create(candidate) : NULL;
    if (!ref) {
        char details[64];
        int n = snprintf(details, sizeof details, "{\"member\":\"%s\"}", member);
        net_reply_problem_details(rq, ERR_BAD_POLICY, "the candidate policy is not valid",
                                  bytes_of(details, (size_t)n));
    } else if (!may_look_into(r, &who, ref->policy)) {
        net_reply_problem(rq, ERR_POLICY_FORBIDDEN,
                          "no policy of this tenant is funded by the account whose balance is asked for");
    } else {
        start_shadow(r, rq, &who, &in, base, ref);
    }
    rewarder_policy_unref(ref);
    rewarder_policy_unref(base);
}

static struct rewarder_shadow *find(struct rewarder *r, struct net_req *rq)
{
    struct api_caller who;
    struct sha256 id;
    if (!api_allow(r, rq, "read", &(struct auth_want){.account = API_EVERY_ACCOUNT}, &who))
        return NULL;
    struct rewarder_shadow *s =
        hex_decode(net_req_param(rq, "sid"), id.b, 32) == ERR_OK ? rewarder_shadow_find(r, &id) : NULL;
    if (s && !strcmp(s->tenant, who.tenant))
        return s;
    rewarder_shadow_unref(s);
    net_reply_problem(rq, ERR_NOT_FOUND, "no such shadow run");
    return NULL;
}

void rewarder_api_get_shadow(struct net_req *rq, void *ctx)
{
    struct rewarder_shadow *s = find(ctx, rq);
    if (s)
        reply_shadow(ctx, rq, 200, s);
    rewarder_shadow_unref(s);
}

void rewarder_api_get_diff(struct net_req *rq, void *ctx)
{
    struct rewarder_shadow *s = find(ctx, rq);
    if (!s)
        return;
    if (is_done(s))
        reply_file(ctx, rq, s, "diff.csv", "text/csv");
    else
        net_reply_problem(rq, ERR_NOT_SEALED, "the shadow run has no result yet");
    rewarder_shadow_unref(s);
}
