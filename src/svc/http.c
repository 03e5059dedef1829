/*
 * The service's listeners: TCP (TLS when configured) and a Unix socket, the shared routes before its own, and the
 * hooks that turn what the server sees into metrics and log lines.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "net/loop.h"
#include "svc/internal.h"

/* The answers worth telling apart in a dashboard; the rest by class. The first row is what is none of them. */
static const struct {
    int status; /* 1..5: a class */
    const char *text;
} statuses[SVC_STATUSES] = {{0, "0"},     {1, "1xx"},   {2, "2xx"},   {3, "3xx"},   {4, "4xx"},
                            {5, "5xx"},   {200, "200"}, {202, "202"}, {206, "206"}, {304, "304"},
                            {400, "400"}, {401, "401"}, {403, "403"}, {404, "404"}, {409, "409"},
                            {413, "413"}, {422, "422"}, {429, "429"}, {500, "500"}, {503, "503"}};

static size_t status_index(int status)
{
    for (size_t i = 6; i < SVC_STATUSES; i++)
        if (statuses[i].status == status)
            return i;
    return status >= 100 && status < 600 ? (size_t)status / 100 : 0;
}

static const char *method_text(struct str method)
{
    static const char *const known[] = {"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (str_eq_c(method, known[i]))
            return known[i];
    return "other";
}

/* A route answers its own method; one for GET also HEAD, and nothing else. */
static bool answers_head(const struct net_done *d)
{
    return d->method.n == 4 && d->method.p[0] == 'H' && d->route->method[0] == 'G';
}

/*
 * Series are found by their labels once per route and status; afterwards the handles kept beside the route are used.
 * Only for the route's own method: HEAD on a GET is rare enough to be looked up.
 */
static struct svc_series *series_of_route(struct svc *s, const struct net_route *route)
{
    const struct net_routes *r = s->routes;
    size_t before = 0;
    if (route < r->list || route >= r->list + r->count)
        before = (r++)->count;
    CHECK(route >= r->list && route < r->list + r->count);
    return &s->series[before + (size_t)(route - r->list)];
}

static struct svc_series *series_of(struct svc *s, const struct net_done *d)
{
    return d->route && !answers_head(d) ? series_of_route(s, d->route) : NULL;
}

static const char *route_label(const struct net_route *route)
{
    return route->label ? route->label : route->pattern;
}

static struct obs_counter *requests_of(struct svc *s, struct svc_series *kept, const char *route,
                                       const char *method, size_t status)
{
    /* release and acquire on the same slot: who finds the handle finds the series behind it */
    struct obs_counter *c =
        kept ? atomic_load_explicit(&kept->requests[status], memory_order_acquire) : NULL;
    if (!c) {
        c = OBS_COUNTER_OF(s->families[SVC_M_http_requests], route, method, statuses[status].text);
        if (kept)
            atomic_store_explicit(&kept->requests[status], c, memory_order_release);
    }
    return c;
}

static struct obs_hist *latency_of(struct svc *s, struct svc_series *kept, const char *route,
                                   const char *method)
{
    struct obs_hist *h = kept ? atomic_load_explicit(&kept->latency, memory_order_acquire) : NULL;
    if (!h) {
        h = OBS_HIST_OF(s->families[SVC_M_http_latency], route, method);
        if (kept)
            atomic_store_explicit(&kept->latency, h, memory_order_release);
    }
    return h;
}

static void log_request(struct svc *s, const struct net_done *d, const char *route, const char *method)
{
    int failed_from = s->def->info_from_status ? s->def->info_from_status : 500;
    enum obs_level level = d->status >= failed_from ? OBS_INFO : OBS_DEBUG;
    if (!obs_log_enabled(s->log, level))
        return;
    struct obs_field own[SVC_REQUEST_FIELDS], line[7 + SVC_REQUEST_FIELDS + 1];
    size_t n = 0,
           n_own = s->def->hooks.request_fields ? s->def->hooks.request_fields(s->state, d->rq, own) : 0;
    line[n++] = OBS_STR("route", route);
    line[n++] = OBS_STR("method", method);
    line[n++] = OBS_I64("status", d->status);
    line[n++] = OBS_F64("ms", (double)d->duration_ns / 1e6);
    for (size_t i = 0; i < n_own; i++)
        line[n++] = own[i];
    if (d->problem != ERR_OK) { /* the error also counts apart when there are too many lines */
        line[n++] = OBS_STR("reason", err_code(d->problem));
        line[n++] = OBS_ERR(d->problem);
    }
    line[n++] = OBS_CORR(d->corr_id);
    line[n] = OBS_END;
    obs_log_write(s->log, level, "request", line);
}

static void on_done(void *ctx, const struct net_done *d)
{
    struct svc *s = ctx;
    struct svc_series *kept = series_of(s, d);
    const char *route = d->route ? route_label(d->route) : "none";
    const char *method = kept ? d->route->method : method_text(d->method);
    obs_counter_inc(requests_of(s, kept, route, method, status_index(d->status)));
    if (d->problem != ERR_OK && s->def->hooks.refused)
        s->def->hooks.refused(s, s->state, d);
    if (s->families[SVC_M_http_latency])
        obs_hist_observe(latency_of(s, kept, route, method), (double)d->duration_ns / 1e9);
    log_request(s, d, route, method);
}

static void on_reject(void *ctx, enum net_reject why)
{
    struct svc *s = ctx;
    obs_counter_inc(obs_counter_nth(s->families[SVC_M_http_rejects], (size_t)why));
    bool late = why == NET_REJECT_READ_TIMEOUT || why == NET_REJECT_WRITE_TIMEOUT;
    if (late && s->def->hooks.client_late)
        s->def->hooks.client_late(s, s->state, why == NET_REJECT_READ_TIMEOUT ? "read" : "write");
}

static void on_conn(void *ctx, int delta)
{
    struct svc *s = ctx;
    obs_gauge_add(obs_gauge(s->families[SVC_M_http_conns]), delta);
}

static void on_inflight(void *ctx, const struct net_route *route, int delta)
{
    obs_gauge_add(series_of_route(ctx, route)->inflight, delta);
}

/* Every route that is admitted is there at zero. */
static void open_inflight(struct svc *s)
{
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < s->routes[t].count; i++) {
            const struct net_route *route = &s->routes[t].list[i];
            if (!(route->flags & NET_NO_ADMISSION))
                series_of_route(s, route)->inflight =
                    OBS_GAUGE_OF(s->families[SVC_M_http_inflight], route_label(route));
        }
}

/* The admin plane is for this machine, whatever the bind and whoever wrote the handler. */
static bool on_gate(void *ctx, struct net_req *rq)
{
    (void)ctx;
    /* Both: the connection, and whom a trusted proxy at its other end speaks for. */
    const struct net_peer *peer = net_req_peer(rq);
    if ((peer->loopback && net_addr_is_loopback(peer->addr)) ||
        strncmp(net_req_route(rq)->pattern, "/admin/", 7) != 0)
        return true;
    net_reply_problem(rq, ERR_FORBIDDEN, "admin calls are answered on loopback and Unix sockets only");
    return false;
}

static void on_draining(void *ctx, struct net_req *rq)
{
    struct svc *s = ctx;
    if (s->def->hooks.refuse_draining)
        s->def->hooks.refuse_draining(s, rq);
    else
        net_reply_problem(rq, ERR_DRAINING, "the service is shutting down");
}

static void on_refusing(void *ctx, struct net_req *rq, enum net_reject why, struct net_problem *p)
{
    struct svc *s = ctx;
    if (s->def->hooks.refusing)
        s->def->hooks.refusing(s, s->state, rq, why, p);
}

static bool is_loopback(const char *bind)
{
    return strncmp(bind, "127.", 4) == 0 || strncmp(bind, "[::1]", 5) == 0 ||
           strncmp(bind, "localhost:", 10) == 0;
}

/* What travels beyond this machine is not for everybody's eyes: tokens are in it. OAP knows no TLS. */
static enum err check_plaintext(const struct svc *s, const struct svc_config *c)
{
    if (c->allow_plaintext)
        return ERR_OK;
    if (!is_loopback(s->bind) && !*c->tls_cert) {
        svc__set_error("%s: bind %s is reachable from outside and has no TLS; set tls.cert and tls.key, or "
                       "allow_plaintext = true",
                       s->def->name, s->bind);
        return ERR_PERMISSION;
    }
    if (*s->oap_bind && !is_loopback(s->oap_bind)) {
        svc__set_error(
            "%s: oap.bind %s is reachable from outside, and OAP has no TLS; set it to an address of "
            "this machine's own, or allow_plaintext = true",
            s->def->name, s->oap_bind);
        return ERR_PERMISSION;
    }
    return ERR_OK;
}

unsigned svc__http_threads(const struct svc *s)
{
    unsigned cores = os_cpus();
    if (svc_common(s)->http_threads)
        return (unsigned)svc_common(s)->http_threads;
    return cores > 3 ? (cores / 2 < 16 ? cores / 2 : 16) : 1;
}

struct net_limits svc__limits(const struct svc *s)
{
    const struct svc_config *c = svc_common(s);
    struct net_limits limits = {
        .body_max = c->max_body_bytes,
        .read_timeout_ms = c->read_timeout,
        .write_timeout_ms = c->write_timeout,
        .idle_timeout_ms = c->idle_timeout,
        .request_timeout_ms = c->request_timeout,
        .max_conns = c->max_conns,
        .max_inflight = c->max_inflight,
        .rate_per_peer = c->rate_limit,
    };
    if (s->def->hooks.limits)
        s->def->hooks.limits(svc_config(s), &limits);
    return limits;
}

static enum err open_tls(struct svc *s, const struct svc_config *c)
{
    if (!*c->tls_cert)
        return ERR_OK;
    enum err e = net_tls_create(
        &(struct net_tls_config){c->tls_cert, c->tls_key, *c->tls_client_ca ? c->tls_client_ca : NULL},
        &s->tls);
    if (e != ERR_OK)
        svc__set_error("%s: cannot use tls.cert %s with tls.key %s (%s)", s->def->name, c->tls_cert,
                       c->tls_key, err_title(e));
    return e;
}

enum err svc__http_open(struct svc *s)
{
    const struct svc_config *c = svc_common(s);
    struct net_listen listen[2];
    size_t n = 0;

    enum err e = check_plaintext(s, c);
    if (e == ERR_OK)
        e = open_tls(s, c);
    if (e != ERR_OK)
        return e;
    listen[n++] = (struct net_listen){.bind = s->bind, .tls = s->tls};
    if (*s->uds)
        listen[n++] = (struct net_listen){.uds = s->uds,
                                          .allow_uids = c->uds_allow_uids.n ? s->allow_uids : NULL,
                                          .allow_uids_count = c->uds_allow_uids.n};
    s->routes[0] = (struct net_routes){svc__routes, svc__route_count(), s};
    size_t own = 0;
    while (s->def->routes && s->def->routes[own].method)
        own++;
    s->routes[1] = (struct net_routes){s->def->routes, own, s->state};
    s->series = calloc(s->routes[0].count + own, sizeof *s->series);
    if (!s->series)
        return ERR_NO_MEMORY;
    open_inflight(s);

    struct net_server_config config = {
        .threads = svc__http_threads(s),
        .listen = listen,
        .listen_count = n,
        .routes = s->routes,
        .routes_count = own ? 2 : 1,
        .limits = svc__limits(s),
        .headers = s->def->headers,
        .hooks = {.ctx = s,
                  .conn = on_conn,
                  .inflight = on_inflight,
                  .done = on_done,
                  .reject = on_reject,
                  .gate = on_gate,
                  .draining = on_draining,
                  .refusing = on_refusing},
        .clock = s->clock,
    };
    e = net_server_create(&config, &s->server);
    if (e == ERR_EXISTS)
        svc__set_error(
            "%s: %s is in use by another program; stop that one, or move all ports with --base-port",
            s->def->name, s->bind);
    else if (e != ERR_OK)
        svc__set_error("%s: cannot listen on %s (%s)", s->def->name, s->bind, err_title(e));
    return e;
}

enum err svc_authorize_token(struct svc *s, struct str token, struct auth_want *want,
                             struct auth_cap **out_cap, struct auth_deny *out_why)
{
    struct auth_cap *cap;
    struct auth_deny ignored;
    int64_t retry_ms;
    enum err e = auth_verify_why(s->auth, token, &cap, out_why != NULL ? out_why : &ignored);
    if (e == ERR_OK) {
        if (want->now_ms == 0)
            want->now_ms = clock_wall_ms(s->clock);
        e = want->judged & AUTH_BIT(AUTH_CV_RATE) ? ERR_OK : auth_rate_take(cap, &retry_ms);
        if (e == ERR_OK)
            e = auth_allows(cap, want, out_why);
        if (e == ERR_OK)
            *out_cap = cap;
        else
            auth_cap_release(cap);
    }
    if (e != ERR_OK)
        obs_counter_inc(obs_counter_nth(s->families[SVC_M_auth_failures], e == ERR_RATE_LIMITED ? 2
                                                                          : e == ERR_FORBIDDEN  ? 1
                                                                                                : 0));
    return e;
}

enum err svc_authorize_again(struct svc *s, const struct net_peer *peer, struct str token,
                             struct auth_want *want, struct auth_cap **out_cap)
{
    want->peer_ip = peer->kind == NET_PEER_UNIX ? NULL : peer->addr;
    want->judged |= AUTH_BIT(AUTH_CV_RATE);
    return svc_authorize_token(s, token, want, out_cap, NULL);
}

static int64_t next_look_ns(const struct svc *s)
{
    return clock_mono_ns(s->clock) + svc_common(s)->auth_cache_ttl * 1000000;
}

struct str svc_bearer(const struct net_req *rq)
{
    struct str token;
    return auth_bearer(net_req_header(rq, "authorization"), &token) == ERR_OK ? token : str_of(NULL, 0);
}

struct svc_hearing svc_hearing_begin(struct svc *s, const struct net_peer *peer, struct str token)
{
    return (struct svc_hearing){.peer = peer, .token = token, .judge_at_ns = next_look_ns(s)};
}

bool svc_hearing_goes_on(struct svc *s, struct svc_hearing *h, const char *op)
{
    struct auth_want want = {.op = str_from_c(op), .lacks = SVC_LACKS_ALL};
    struct auth_cap *cap;
    if (!h->token.p || clock_mono_ns(s->clock) < h->judge_at_ns)
        return true;
    h->judge_at_ns = next_look_ns(s);
    if (svc_authorize_again(s, h->peer, h->token, &want, &cap) != ERR_OK)
        return false;
    auth_cap_release(cap);
    return true;
}

/* Debug: anybody can make as many of these as they like; auth_failures_total counts them all. */
void svc_log_refused(struct svc *s, struct net_req *rq, enum err e, const char *reason)
{
    struct str token;
    struct sha256 hash;
    char ref[17] = "";
    if (!obs_log_enabled(s->log, OBS_DEBUG))
        return;
    if (auth_bearer(net_req_header(rq, "authorization"), &token) == ERR_OK) {
        sha256_of(token.p, token.n, &hash);
        hex_encode(hash.b, (sizeof ref - 1) / 2, ref);
    }
    obs_log(s->log, OBS_DEBUG, "auth_failed", OBS_STR("route", net_req_route(rq)->pattern),
            OBS_STR("cap", ref), OBS_STR("reason", reason ? reason : ""), OBS_ERR(e),
            OBS_CORR(net_req_corr_id(rq)), OBS_END);
}

enum err svc_authorize(struct svc *s, struct net_req *rq, struct auth_want *want, struct auth_cap **out_cap)
{
    struct str token;
    struct auth_deny why = {0};
    const struct net_peer *peer = net_req_peer(rq);
    want->peer_ip = peer->kind == NET_PEER_UNIX ? NULL : peer->addr;
    want->now_ms = net_loop_wall_ms(net_req_loop(rq));
    enum err e = auth_bearer(net_req_header(rq, "authorization"), &token);
    if (e == ERR_OK)
        e = svc_authorize_token(s, token, want, out_cap, &why);
    else
        obs_counter_inc(obs_counter_nth(s->families[SVC_M_auth_failures], 0));
    if (e == ERR_OK)
        return ERR_OK;
    svc_log_refused(s, rq, e, why.reason);
    if (e == ERR_FORBIDDEN) {
        char details[64];
        int n =
            snprintf(details, sizeof details, "{\"reason\":\"%s\"}", why.reason ? why.reason : "caveat");
        net_reply_problem_details(rq, e, "the capability does not cover this",
                                  bytes_of(details, (size_t)n));
    } else if (e == ERR_RATE_LIMITED)
        net_reply_problem(rq, e, "the capability's rate is used up");
    else
        svc_reply_unauthenticated(rq, why.reason);
    return e;
}

void svc_reply_unauthenticated(struct net_req *rq, const char *reason)
{
    struct net_problem p = {.err = ERR_UNAUTHENTICATED,
                            .detail = STR("a valid capability is needed: Authorization: Bearer <token>"),
                            .headers = &(struct net_headers){.raw = STR("WWW-Authenticate: Bearer\r\n")}};
    if (reason != NULL && strcmp(reason, "expired") == 0) {
        p.detail = STR("the capability has expired");
        p.details_json = bytes_of_str(STR("{\"reason\":\"expired\"}"));
    } else if (reason != NULL && strcmp(reason, "not_yet") == 0) {
        p.detail = STR("the capability is not valid yet");
        p.details_json = bytes_of_str(STR("{\"reason\":\"not_yet\"}"));
    }
    net_reply_problem_full(rq, &p);
}
