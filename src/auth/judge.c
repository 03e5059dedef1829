/*
 * Whether a capability covers a request. Every caveat is asked, the first that says no is the reason.
 * What is not stated in the request is refused, never assumed; see `lacks` in the header.
 */
#include <string.h>

#include "auth/cap.h"
#include "auth/cap_internal.h"
#include "base/check.h"

#define NS_PER_MS INT64_C(1000000)

static const struct auth_deny allowed = {AUTH_CV_UNKNOWN, NULL, {0}};

static struct auth_deny deny(enum auth_cv kind, const char *reason)
{
    return (struct auth_deny){kind, reason, {0}};
}

static struct auth_deny judge_list(const struct auth_caveat *c, const struct auth_want *w, struct str value,
                                   const char *reason)
{
    if (value.p == NULL)
        return (w->lacks & AUTH_BIT(c->kind)) ? allowed : deny(c->kind, reason);
    return auth_list_covers(c->list, value) ? allowed : deny(c->kind, reason);
}

static struct auth_deny judge_amount(const struct auth_caveat *c, const struct auth_want *w)
{
    if (w->amount == NULL && (w->lacks & AUTH_BIT(c->kind)))
        return allowed;
    if (w->amount != NULL && money_cmp(*w->amount, c->amount) <= 0)
        return allowed;
    return (struct auth_deny){c->kind, "amount", c->amount};
}

static bool op_is_explicit(const struct auth *a, struct str op)
{
    if (str_eq(op, STR("admin")))
        return true;
    for (const char *const *o = a->cfg.explicit_ops; o != NULL && *o != NULL; o++)
        if (str_eq_c(op, *o))
            return true;
    return false;
}

static struct auth_deny judge_caveat(const struct auth_cap *cap, const struct auth_caveat *c,
                                     const struct auth_want *w, bool explicit_op)
{
    bool ok = true;
    switch (c->kind) {
    case AUTH_CV_EXP:   /* judged on the sum of all, in auth_allows */
    case AUTH_CV_NBF:   /* likewise */
    case AUTH_CV_DAILY: /* counted by the service */
    case AUTH_CV_RATE:  /* auth_rate_take */
        return allowed;
    case AUTH_CV_AUD:
        ok = w->aud.p != NULL ? auth_list_covers(c->list, w->aud) : !cap->not_ours;
        return ok ? allowed : deny(c->kind, "aud");
    case AUTH_CV_OP:
        ok = explicit_op ? auth_list_spells(c->list, w->op) : auth_list_covers(c->list, w->op);
        return ok ? allowed : deny(c->kind, "op");
    case AUTH_CV_ACCOUNT:
        return judge_list(c, w, w->account, "account");
    case AUTH_CV_TO:
        return judge_list(c, w, w->to, "payee");
    case AUTH_CV_ASSET:
        return judge_list(c, w, w->asset, "asset");
    case AUTH_CV_TOPIC:
        return judge_list(c, w, w->topic, "topic");
    case AUTH_CV_MAX_AMOUNT:
        return judge_amount(c, w);
    case AUTH_CV_IP:
        return auth_ip_list_covers(c->list, w->peer_ip) ? allowed : deny(c->kind, "ip");
    case AUTH_CV_BYTES:
        return w->bytes <= c->n ? allowed : (struct auth_deny){c->kind, "bytes", money_from_u64(c->n)};
    case AUTH_CV_TENANT:
        ok = w->tenant.p == NULL || str_eq(w->tenant, c->list);
        return ok ? allowed : deny(c->kind, "tenant");
    case AUTH_CV_UNKNOWN:
    case AUTH_CV_COUNT:
        break;
    }
    return deny(c->kind, "caveat");
}

static struct auth_deny judge(const struct auth_cap *cap, const struct auth_want *w)
{
    if (cap->broken != NULL)
        return deny(AUTH_CV_UNKNOWN, cap->broken);
    bool explicit_op = op_is_explicit(cap->auth, w->op);
    if (explicit_op && !cap->ops_granted)
        return deny(AUTH_CV_OP, "op");
    for (size_t i = 0; i < cap->n; i++) {
        if (w->judged & AUTH_BIT(cap->caveats[i].kind))
            continue;
        struct auth_deny d = judge_caveat(cap, &cap->caveats[i], w, explicit_op);
        if (d.reason != NULL)
            return d;
    }
    return allowed;
}

enum err auth_allows(const struct auth_cap *cap, const struct auth_want *w, struct auth_deny *out_why)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    CHECK(w->op.n > 0);
    struct auth_deny why;
    enum err e = ERR_UNAUTHENTICATED;
    if (w->now_ms >= cap->exp_ms) {
        why = deny(AUTH_CV_EXP, "expired");
    } else if (w->now_ms <= cap->nbf_ms) {
        why = deny(AUTH_CV_NBF, "not_yet");
    } else {
        why = judge(cap, w);
        e = why.reason == NULL ? ERR_OK : ERR_FORBIDDEN;
    }
    if (e != ERR_OK && out_why != NULL)
        *out_why = why;
    return e;
}

bool auth_covers(const struct auth_cap *cap, enum auth_cv kind, struct str value)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    for (size_t i = 0; i < cap->n; i++)
        if (cap->caveats[i].kind == kind && !auth_list_covers(cap->caveats[i].list, value))
            return false;
    return true;
}

/* One caveat lifts it to what the next must cover, too; every lift ends at a pattern of the token, so there are few. */
bool auth_covers_next(const struct auth_cap *cap, enum auth_cv kind, struct str from, struct str *out)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    for (size_t agree = 0, i = 0; agree < cap->n; agree++, i = i + 1 < cap->n ? i + 1 : 0) {
        struct str next = from;
        if (cap->caveats[i].kind == kind && !auth_list_next(cap->caveats[i].list, from, &next))
            return false;
        if (!str_eq(next, from))
            agree = 0;
        from = next;
    }
    *out = from;
    return true;
}

enum err auth_rate_take(struct auth_cap *cap, int64_t *out_retry_ms)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    if (cap->nrate == 0)
        return ERR_OK;
    struct auth *a = cap->auth;
    int64_t now_ns = clock_mono_ns(a->cfg.clock), wait_ns = 0;
    for (size_t i = 0; i < cap->nrate; i++) {
        if (auth_rate_charge(a->rates, &cap->rate[i].name, cap->rate[i].per_s, now_ns, &wait_ns) == ERR_OK)
            continue;
        /* A refused request costs nothing: the buckets charged before get it back. */
        while (i-- > 0)
            auth_rate_refund(a->rates, &cap->rate[i].name, cap->rate[i].per_s);
        atomic_fetch_add_explicit(&a->rate_limited, 1, memory_order_relaxed);
        *out_retry_ms = (wait_ns + NS_PER_MS - 1) / NS_PER_MS;
        return ERR_RATE_LIMITED;
    }
    return ERR_OK;
}
