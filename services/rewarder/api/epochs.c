/* Computing an epoch, looking at runs, emitting, quarantine and release. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json_read.h"
#include "base/json_write.h"
#include "base/str.h"
#include "services/rewarder/api/api.h"
#include "services/rewarder/api/routes.h"

enum { LIST_MAX = 200, LIST_DEFAULT = 50, LIST_BODY_MAX = 1 << 20, RUN_BODY_MAX = 4 << 20 };

struct compute_body {
    struct sha256 inputs_cid;
    struct str policy_id;
    bool dry_run;
};

static const struct json_field compute_fields[] = {
    JSON_REQ(struct compute_body, inputs_cid, JSON_KIND_HASH),
    JSON_DEF(struct compute_body, policy_id, JSON_KIND_STR, .min = 1, .max = 64),
    JSON_DEF(struct compute_body, dry_run, JSON_KIND_BOOL),
    JSON_END,
};

/* What is not sealed yet may still be joined: only the scheduler decides. What is sealed is answered here, at once. */
static bool answer_existing(struct rewarder *r, struct net_req *rq, const struct api_caller *who,
                            struct str epoch, const struct compute_body *body,
                            const struct rewarder_policy *policy)
{
    if (body->dry_run)
        return false;
    struct rewarder_run *run = rewarder_registry_find(&r->registry, str_from_c(who->tenant), epoch, false);
    if (!run)
        return false;
    struct rewarder_run_info info = rewarder_run_read(&r->registry, run);
    bool same = rewarder_state_has_files(info.state) && sha256_eq(&info.inputs_cid, &body->inputs_cid) &&
                sha256_eq(&info.policy_hash, &policy->hash);
    struct rewarder_view *v = same ? rewarder_run_view(&r->registry, run) : NULL;
    if (v)
        rewarder_reply_run(r, rq, 200, run);
    rewarder_view_unref(v);
    rewarder_run_unref(run);
    return v != NULL;
}

/* A pool that is the account's balance is not known before the run: no `max_amount` covers it. */
static bool may_spend(struct rewarder *r, struct net_req *rq, const struct auth_cap *cap,
                      const struct rewarder_policy *p)
{
    struct money pool = {p->pool_is_balance ? ~(wide_u128)0 : p->pool};
    struct auth_want want = {
        .account = str_from_c(p->funding), .asset = str_from_c(p->asset), .amount = &pool};
    return api_covers(r, rq, cap, "compute", &want);
}

/* A reference to the policy this caller may compute with; NULL: the problem has been sent. */
static struct rewarder_policy_ref *policy_of(struct rewarder *r, struct net_req *rq,
                                             const struct auth_cap *cap, const struct api_caller *who,
                                             struct str id)
{
    struct rewarder_policy_ref *policy = rewarder_policies_find(&r->policies, id);
    if (!policy) {
        net_reply_problem(rq, ERR_POLICY_NOT_FOUND, "there is no policy %.*s; see GET /rewarder/policies",
                          STR_ARG(id));
        return NULL;
    }
    if (!rewarder_policy_for_tenant(policy->policy, str_from_c(who->tenant)))
        net_reply_problem(rq, ERR_POLICY_FORBIDDEN, "the policy is not for this tenant");
    else if (may_spend(r, rq, cap, policy->policy))
        return policy;
    rewarder_policy_unref(policy);
    return NULL;
}

void rewarder_api_compute(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct str epoch;
    struct api_caller who;
    struct auth_cap *cap;
    struct compute_body body = {.policy_id = str_from_c(rewarder_config(r)->policy_id)};
    if (!api_allow_op(r, rq, "compute", &who, &cap))
        return;
    struct rewarder_policy_ref *policy = api_body(rq, compute_fields, &body, false) && api_epoch(rq, &epoch)
                                             ? policy_of(r, rq, cap, &who, body.policy_id)
                                             : NULL;
    auth_cap_release(cap);
    if (!policy)
        return;
    struct rewarder_item *it = NULL;
    if (!answer_existing(r, rq, &who, epoch, &body, policy->policy)) {
        if (rewarder_refuses_more(r)) {
            REWARDER_COUNT(r, busy, "compute");
            net_reply_problem(rq, ERR_BUSY, "the memory for files is full");
        } else {
            it = api_item(r, rq, REWARDER_COMPUTE, &who);
        }
    }
    if (!it) {
        rewarder_policy_unref(policy);
        return;
    }
    memcpy(it->epoch, epoch.p, epoch.n);
    it->cid = body.inputs_cid;
    it->dry = body.dry_run;
    it->policy = policy;
    it->by = net_req_caller_deadline(rq);
    (void)!api_enqueue(r, it, "compute");
}

/* The run as it is now; whoever has seen exactly this is told so. */
static void show_run(struct rewarder *r, struct net_req *rq, struct rewarder_run *run)
{
    struct buf b;
    struct sha256 digest;
    buf_init(&b, RUN_BODY_MAX);
    rewarder_write_run(r, run, &b);
    sha256_of(b.p, b.n, &digest);
    if (b.err != ERR_OK)
        net_reply_problem(rq, ERR_INTERNAL, "the answer is too large");
    else if (!api_not_modified(rq, &digest))
        api_reply_json(rq, &digest, buf_bytes(&b));
    buf_fini(&b);
}

void rewarder_api_get_epoch(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    if (!api_allow(r, rq, "read", NULL, &who))
        return;
    struct rewarder_run *run = api_run(r, rq, &who);
    if (!run)
        return;
    struct rewarder_run_info info = rewarder_run_read(&r->registry, run);
    if (rewarder_state_has_files(info.state) && !info.swept) {
        struct rewarder_view *v = api_view(r, rq, run, rewarder_api_get_epoch);
        if (v)
            show_run(r, rq, run);
        rewarder_view_unref(v);
    } else {
        show_run(r, rq, run);
    }
    rewarder_run_unref(run);
}

static void put_listed(struct json_w *w, const struct rewarder_run *run, const struct rewarder_run_info *i)
{
    json_obj_begin(w);
    json_put_u64(w, "n", i->n);
    json_put_cstr(w, "epoch", run->epoch);
    json_put_cstr(w, "state", rewarder_state_name(i->state));
    if (i->has_key)
        json_put_hash(w, "run_key", &i->run_key);
    json_put_cstr(w, "policy_id", i->policy_id);
    if (i->sealed_at_ms) {
        json_put_money(w, "pool", (struct money){i->amount});
        json_put_money(w, "payouts", (struct money){i->payouts});
        json_put_money(w, "dust", (struct money){i->dust});
        json_put_u64(w, "paid", i->paid);
        json_put_time_ms(w, "sealed_at", i->sealed_at_ms);
    }
    if (i->settled_at_ms)
        json_put_time_ms(w, "settled_at", i->settled_at_ms);
    json_obj_end(w);
}

static bool number_query(struct net_req *rq, const char *name, uint64_t max, uint64_t *out)
{
    struct str v;
    if (net_req_query(rq, name, &v) != ERR_OK)
        return true;
    if (str_parse_u64(v, out) == ERR_OK && *out >= 1 && *out <= max)
        return true;
    net_reply_problem(rq, ERR_BAD_REQUEST, "%s must be a number from 1 to %llu", name,
                      (unsigned long long)max);
    return false;
}

void rewarder_api_list_epochs(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    struct rewarder_run *runs[LIST_MAX];
    uint64_t limit = LIST_DEFAULT, before = UINT64_MAX, last = 0;
    struct str state;
    enum rewarder_state wanted = REWARDER_STATE_COUNT;
    if (!api_allow(r, rq, "read", NULL, &who) || !number_query(rq, "limit", LIST_MAX, &limit) ||
        !number_query(rq, "before", UINT64_MAX, &before))
        return;
    if (net_req_query(rq, "state", &state) == ERR_OK && !rewarder_state_parse(state, &wanted)) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "no such state");
        return;
    }
    struct buf b;
    struct json_w w;
    buf_init(&b, LIST_BODY_MAX);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "epochs");
    json_arr_begin(&w);
    size_t n = rewarder_registry_list(
        &r->registry, &(struct rewarder_listing){str_from_c(who.tenant), wanted, before}, runs, limit);
    for (size_t i = 0; i < n; i++) {
        struct rewarder_run_info info = rewarder_run_read(&r->registry, runs[i]);
        put_listed(&w, runs[i], &info);
        last = info.n;
        rewarder_run_unref(runs[i]);
    }
    json_arr_end(&w);
    if (n == limit)
        json_put_u64(&w, "next", last);
    json_obj_end(&w);
    net_reply_json(rq, 200, buf_bytes(&b));
    buf_fini(&b);
}

struct emit_body {
    bool recheck;
};
static const struct json_field emit_fields[] = {JSON_DEF(struct emit_body, recheck, JSON_KIND_BOOL),
                                                JSON_END};

static bool may_emit(struct rewarder *r, struct net_req *rq, const struct auth_cap *cap,
                     const struct rewarder_run *run)
{
    struct rewarder_run_info info = rewarder_run_read(&r->registry, run);
    struct money pool = {info.sealed_at_ms ? info.amount : ~(wide_u128)0};
    struct auth_want want = {
        .account = str_from_c(info.funding), .asset = str_from_c(info.asset), .amount = &pool};
    return api_covers(r, rq, cap, "compute", &want);
}

void rewarder_api_emit(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    struct auth_cap *cap;
    struct emit_body body = {false};
    if (!api_allow_op(r, rq, "compute", &who, &cap))
        return;
    struct rewarder_run *run = api_body(rq, emit_fields, &body, true) ? api_run(r, rq, &who) : NULL;
    bool covered = run && may_emit(r, rq, cap, run);
    auth_cap_release(cap);
    if (!covered) {
        rewarder_run_unref(run);
        return;
    }
    struct rewarder_run_info info = rewarder_run_read(&r->registry, run);
    if (info.state == REWARDER_QUARANTINED) {
        rewarder_reply_conflict(r, rq, run);
    } else if (info.swept) {
        rewarder_reply_run(r, rq, 200, run); /* settled, for ever */
    } else if (run->dry || info.state == REWARDER_FAILED) {
        net_reply_problem(rq, ERR_NOT_EMITTABLE, "a dry or failed run is never emitted");
    } else if (info.state < REWARDER_SEALED) {
        rewarder_reply_not_sealed(rq, info.state);
    } else {
        struct rewarder_item *it = api_item(r, rq, REWARDER_EMIT, &who);
        if (it) {
            it->run = rewarder_run_ref(run);
            it->recheck = body.recheck;
            (void)!api_enqueue(r, it, "emit");
        }
    }
    rewarder_run_unref(run);
}

struct admin_body {
    struct str reason, action;
};
static const struct json_field quarantine_fields[] = {
    JSON_REQ(struct admin_body, reason, JSON_KIND_STR, .min = 1, .max = 256), JSON_END};
static const struct json_field release_fields[] = {
    JSON_REQ(struct admin_body, action, JSON_KIND_STR, .min = 1, .max = 16),
    JSON_DEF(struct admin_body, reason, JSON_KIND_STR, .min = 1, .max = 256), JSON_END};

/* Admin capability, and only from this machine. */
static bool allow_admin(struct rewarder *r, struct net_req *rq, struct api_caller *who)
{
    if (!net_req_peer(rq)->loopback) {
        net_reply_problem(rq, ERR_FORBIDDEN, "only from this machine");
        return false;
    }
    return api_allow(r, rq, "admin", NULL, who);
}

static void administer(struct rewarder *r, struct net_req *rq, const struct api_caller *who,
                       const struct admin_body *body, bool release)
{
    struct rewarder_run *run = api_run(r, rq, who);
    if (!run)
        return;
    struct rewarder_item *it = api_item(r, rq, REWARDER_ADMIN, who);
    if (it) {
        it->run = rewarder_run_ref(run);
        it->release = release;
        it->discard = str_eq(body->action, STR("discard"));
        snprintf(it->reason, sizeof it->reason, "%.*s", STR_ARG(body->reason));
        /* Said before it takes effect, and by whom. */
        obs_log(r->log, OBS_WARN, "admin.asked", OBS_STR("action", body->action),
                OBS_STR("tenant", (const char *)run->tenant), OBS_STR("epoch", (const char *)run->epoch),
                OBS_STR("actor", (const char *)it->actor), OBS_STR("reason", (const char *)it->reason),
                OBS_CORR(net_req_corr_id(rq)), OBS_END);
        if (!release)
            atomic_store(&run->halt, true); /* before the next unit leaves */
        if (!api_enqueue(r, it, "emit") && !release)
            atomic_store(&run->halt, false); /* it was refused: the run goes on */
    }
    rewarder_run_unref(run);
}

void rewarder_api_quarantine(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    struct admin_body body = {.action = STR("quarantine")};
    if (allow_admin(r, rq, &who) && api_body(rq, quarantine_fields, &body, false))
        administer(r, rq, &who, &body, false);
}

void rewarder_api_release(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    struct admin_body body = {.reason = STR("")};
    if (!allow_admin(r, rq, &who) || !api_body(rq, release_fields, &body, false))
        return;
    if (str_eq(body.action, STR("resume")) || str_eq(body.action, STR("discard")))
        administer(r, rq, &who, &body, true);
    else
        net_reply_problem(rq, ERR_BAD_REQUEST, "action is resume or discard");
}
