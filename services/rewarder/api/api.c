#include "services/rewarder/api/api.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json_read.h"
#include "base/json_write.h"
#include "net/http_range.h"

static void remember(const struct auth_cap *cap, struct api_caller *out)
{
    snprintf(out->tenant, sizeof out->tenant, "%.*s", STR_ARG(auth_cap_tenant(cap)));
    snprintf(out->kid, sizeof out->kid, "%s", auth_cap_kid(cap));
}

static unsigned lacks(const struct auth_want *w)
{
    unsigned bits = AUTH_BIT(AUTH_CV_TO) | AUTH_BIT(AUTH_CV_TOPIC);
    if (!w->account.p)
        bits |= AUTH_BIT(AUTH_CV_ACCOUNT);
    if (!w->asset.p)
        bits |= AUTH_BIT(AUTH_CV_ASSET);
    if (!w->amount)
        bits |= AUTH_BIT(AUTH_CV_MAX_AMOUNT);
    return bits;
}

static bool refuse_rate(struct rewarder *r, struct net_req *rq, const char *scope, int64_t wait_ms)
{
    REWARDER_COUNT(r, rate, scope);
    net_reply_problem_full(rq, &(struct net_problem){.err = ERR_RATE_LIMITED,
                                                     .detail = STR("too many requests per second"),
                                                     .retry_after_s = (unsigned)(wait_ms / 1000) + 1});
    return false;
}

static bool within_rate(struct rewarder *r, struct net_req *rq)
{
    int64_t wait_ms;
    return rewarder_rates_take(&r->rates, os_now_ns(), &wait_ms) || refuse_rate(r, rq, "all", wait_ms);
}

static bool within_tenant_rate(struct rewarder *r, struct net_req *rq, const struct api_caller *who)
{
    int64_t wait_ms;
    return rewarder_rates_take_tenant(&r->rates, str_from_c(who->tenant), os_now_ns(), &wait_ms) ||
           refuse_rate(r, rq, "tenant", wait_ms);
}

static bool allow(struct rewarder *r, struct net_req *rq, const char *op, struct auth_want *want,
                  struct api_caller *out)
{
    struct auth_want none = {.bytes = 0};
    struct auth_cap *cap;
    if (!want)
        want = &none;
    want->op = str_from_c(op);
    want->lacks = lacks(want);
    if (svc_authorize(r->svc, rq, want, &cap) != ERR_OK)
        return false;
    remember(cap, out);
    auth_cap_release(cap);
    return within_tenant_rate(r, rq, out);
}

bool api_allow_op(struct rewarder *r, struct net_req *rq, const char *op, struct api_caller *out,
                  struct auth_cap **out_cap)
{
    struct auth_want want = {.op = str_from_c(op), .lacks = lacks(&(struct auth_want){.bytes = 0})};
    struct auth_cap *cap;
    if (!within_rate(r, rq) || svc_authorize(r->svc, rq, &want, &cap) != ERR_OK)
        return false;
    remember(cap, out);
    if (!within_tenant_rate(r, rq, out)) {
        auth_cap_release(cap);
        return false;
    }
    *out_cap = cap;
    return true;
}

static void from_whom(struct rewarder *r, struct net_req *rq, struct auth_want *want)
{
    const struct net_peer *peer = net_req_peer(rq);
    want->peer_ip = peer->kind == NET_PEER_UNIX ? NULL : peer->addr;
    want->now_ms = rewarder_now_ms(r);
}

bool api_covers(struct rewarder *r, struct net_req *rq, const struct auth_cap *cap, const char *op,
                struct auth_want *want)
{
    struct auth_deny why = {.reason = NULL};
    char details[64];
    want->op = str_from_c(op);
    want->lacks = lacks(want);
    from_whom(r, rq, want);
    enum err e = auth_allows(cap, want, &why);
    if (e == ERR_OK)
        return true;
    int n = snprintf(details, sizeof details, "{\"reason\":\"%s\"}", why.reason ? why.reason : "caveat");
    net_reply_problem_details(rq, e, "the capability does not cover this", bytes_of(details, (size_t)n));
    return false;
}

/* A request that waits for its run to be opened runs its handler twice, and counts twice: rare and harmless. */
bool api_allow(struct rewarder *r, struct net_req *rq, const char *op, struct auth_want *want,
               struct api_caller *out)
{
    return within_rate(r, rq) && allow(r, rq, op, want, out);
}

bool api_allow_either(struct rewarder *r, struct net_req *rq, const char *op, const char *other,
                      struct auth_want *want, struct api_caller *out)
{
    struct str token;
    struct auth_cap *cap;
    struct auth_want trial = *want;
    if (!within_rate(r, rq))
        return false;
    trial.op = str_from_c(op);
    trial.lacks = lacks(&trial);
    from_whom(r, rq, &trial);
    if (auth_bearer(net_req_header(rq, "authorization"), &token) == ERR_OK &&
        svc_authorize_token(r->svc, token, &trial, &cap, NULL) == ERR_OK) {
        remember(cap, out);
        auth_cap_release(cap);
        return within_tenant_rate(r, rq, out);
    }
    return allow(r, rq, other, want, out);
}

bool api_epoch(struct net_req *rq, struct str *out)
{
    *out = net_req_param(rq, "id");
    if (rewarder_is_epoch(*out))
        return true;
    net_reply_problem(rq, ERR_BAD_REQUEST,
                      "the epoch id does not match ^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$");
    return false;
}

bool api_is_dry(struct net_req *rq)
{
    struct str v;
    return net_req_query(rq, "dry_run", &v) == ERR_OK && str_eq(v, STR("true"));
}

struct rewarder_run *api_run(struct rewarder *r, struct net_req *rq, const struct api_caller *who)
{
    struct str epoch;
    if (!api_epoch(rq, &epoch))
        return NULL;
    struct rewarder_run *run =
        rewarder_registry_find(&r->registry, str_from_c(who->tenant), epoch, api_is_dry(rq));
    if (!run)
        net_reply_problem(rq, ERR_NOT_FOUND, "no run of this epoch");
    return run;
}

struct rewarder_view *api_view(struct rewarder *r, struct net_req *rq, struct rewarder_run *run,
                               void (*again)(struct net_req *rq, void *ctx))
{
    struct rewarder_run_info info = rewarder_run_read(&r->registry, run);
    if (info.state == REWARDER_QUARANTINED) {
        rewarder_reply_conflict(r, rq, run);
        return NULL;
    }
    if (info.swept) {
        net_reply_problem(rq, ERR_NOT_FOUND, "the run was settled long ago and its files were removed");
        return NULL;
    }
    if (!rewarder_state_has_files(info.state)) {
        rewarder_reply_not_sealed(rq, info.state);
        return NULL;
    }
    struct rewarder_view *v = rewarder_run_view(&r->registry, run);
    if (v)
        return v;
    struct rewarder_item *it = rewarder_item_create(REWARDER_READ, rq);
    if (!it) {
        net_reply_problem(rq, ERR_UNAVAILABLE, "out of memory");
        return NULL;
    }
    it->run = rewarder_run_ref(run);
    it->again = again;
    (void)!api_enqueue(r, it, "compute");
    return NULL;
}

bool api_enqueue(struct rewarder *r, struct rewarder_item *it, const char *endpoint)
{
    enum err e = rt_chan_try_send(r->work_req, it);
    if (e == ERR_OK)
        return true;
    if (e == ERR_BUSY)
        REWARDER_COUNT(r, busy, endpoint);
    net_reply_problem(it->rq, e == ERR_BUSY ? ERR_BUSY : ERR_DRAINING,
                      e == ERR_BUSY ? "the request queue is full" : "the service is shutting down");
    it->rq = NULL;
    rewarder_item_destroy(r, it);
    return false;
}

struct rewarder_item *api_item(struct rewarder *r, struct net_req *rq, enum rewarder_kind kind,
                               const struct api_caller *who)
{
    (void)r;
    struct rewarder_item *it = rewarder_item_create(kind, rq);
    if (!it) {
        net_reply_problem(rq, ERR_UNAVAILABLE, "out of memory");
        return NULL;
    }
    memcpy(it->tenant, who->tenant, sizeof it->tenant);
    snprintf(it->actor, sizeof it->actor, "%s", who->kid);
    return it;
}

bool api_body(struct net_req *rq, const struct json_field *fields, void *out, bool may_be_empty)
{
    struct json_error why;
    struct bytes body = net_req_body(rq);
    struct str type = net_req_header(rq, "content-type");
    if (body.n == 0 && may_be_empty)
        return true;
    if (type.p && !str_starts(type, STR("application/json"))) {
        net_reply_problem(rq, ERR_UNSUPPORTED_MEDIA_TYPE, "the body must be application/json");
        return false;
    }
    enum err e = json_read_dto(body, fields, out, net_req_arena(rq), &why);
    if (e == ERR_OK)
        return true;
    char storage[512];
    struct buf b;
    struct json_w w;
    buf_init_fixed(&b, storage, sizeof storage);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_cstr(&w, "member", why.path);
    json_put_cstr(&w, "reason", json_reason_name(why.reason));
    json_obj_end(&w);
    net_reply_problem_details(rq, e, "the body is not what this operation takes", buf_bytes(&b));
    return false;
}

static void unload(void *arg, enum err result)
{
    struct rewarder_file *file = arg;
    (void)result;
    rewarder_file_unload(file);
    free(file);
}

static struct str quoted(const struct sha256 *digest, char out[SHA256_TEXT_CHARS + 2])
{
    out[0] = '"';
    sha256_format(digest, out + 1);
    size_t n = strlen(out);
    out[n] = '"';
    out[n + 1] = '\0';
    return str_of(out, n + 1);
}

bool api_not_modified(struct net_req *rq, const struct sha256 *digest)
{
    char tag[SHA256_TEXT_CHARS + 2];
    struct net_conditions asked;
    struct net_validator have = {.etag = {.tag = quoted(digest, tag)}, .modified_s = INT64_MIN};
    net_req_conditions(rq, &asked);
    if (net_conditions_check(&asked, &have, 0) != NET_CONDITION_NOT_MODIFIED)
        return false;
    struct net_header list[] = {{STR("ETag"), have.etag.tag}};
    net_reply(rq, 304, &(struct net_headers){.type = "", .list = list, .count = 1},
              (struct bytes){NULL, 0});
    return true;
}

void api_reply_json(struct net_req *rq, const struct sha256 *digest, struct bytes body)
{
    char tag[SHA256_TEXT_CHARS + 2];
    struct net_header list[] = {{STR("ETag"), quoted(digest, tag)}};
    net_reply(rq, 200, &(struct net_headers){.list = list, .count = 1}, body);
}

void api_reply_file(struct net_req *rq, const char *type, const struct sha256 *digest, bool immutable,
                    struct rewarder_file *file)
{
    char tag[SHA256_TEXT_CHARS + 2];
    struct net_header list[] = {{STR("ETag"), digest ? quoted(digest, tag) : STR("")},
                                {STR("Cache-Control"), STR("private, max-age=31536000, immutable")}};
    struct net_headers headers = {.type = type, .list = list, .count = digest ? (immutable ? 2 : 1) : 0};
    struct rewarder_file *kept = malloc(sizeof *kept);
    if (!kept) {
        rewarder_file_unload(file);
        net_reply_problem(rq, ERR_UNAVAILABLE, "out of memory");
        return;
    }
    *kept = *file;
    net_reply_pinned(rq, 200, &headers, kept->bytes, unload, kept);
}
