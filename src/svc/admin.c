/*
 * The routes every service has. Health, readiness, metrics and version are open to whoever reaches the port; admin
 * routes need a loopback or Unix-socket peer and a capability that spells out `op in admin`.
 */
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "svc/host.h"
#include "svc/internal.h"
#include "svc/version.h"

enum { BODY_MAX = 4 << 20 };

static void get_healthz(struct net_req *rq, void *ctx)
{
    (void)ctx;
    static const char body[] = "{\"status\":\"ok\"}";
    net_reply_json(rq, 200, bytes_of(body, sizeof body - 1));
}

static void readiness_extra(void *ctx, struct buf *out)
{
    struct svc *s = ctx;
    if (s->def->hooks.readiness_members)
        s->def->hooks.readiness_members(s->state, out);
}

static void get_readyz(struct net_req *rq, void *ctx)
{
    struct svc *s = ctx;
    struct obs_health_view view;
    struct buf b;
    buf_init(&b, BODY_MAX);
    obs_health_read(s->health, &view);
    obs_health_render(s->health, readiness_extra, s, &b);
    net_reply_json(rq, view.ready ? 200 : 503, buf_bytes(&b));
    buf_fini(&b);
}

void svc_reply_metrics(struct svc *s, struct net_req *rq)
{
    struct buf b;
    buf_init(&b, BODY_MAX);
    obs_metrics_render(s->metrics, &b);
    if (b.err != ERR_OK)
        net_reply_problem(rq, ERR_INTERNAL, "metrics do not fit");
    else
        net_reply(rq, 200, &(struct net_headers){.type = "text/plain; version=0.0.4; charset=utf-8"},
                  buf_bytes(&b));
    buf_fini(&b);
}

static void get_metrics(struct net_req *rq, void *ctx)
{
    struct svc *s = ctx;
    if (s->def->hooks.scrape)
        s->def->hooks.scrape(s, s->state, rq);
    else
        svc_reply_metrics(s, rq);
}

static void get_version(struct net_req *rq, void *ctx)
{
    struct svc *s = ctx;
    char room[256];
    struct buf b;
    struct json_w w;
    buf_init_fixed(&b, room, sizeof room);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "service");
    json_str(&w, str_from_c(s->def->title));
    json_key(&w, "version");
    json_str(&w, STR(SVC_VERSION));
    json_obj_end(&w);
    net_reply_json(rq, 200, buf_bytes(&b));
}

bool svc_allow_admin(struct svc *s, struct net_req *rq)
{
    struct auth_cap *cap;
    struct auth_want want = {.op = STR("admin"), .lacks = SVC_LACKS_ALL};
    if (svc_authorize(s, rq, &want, &cap) != ERR_OK)
        return false;
    obs_log(s->log, OBS_INFO, "admin_call", OBS_STR("route", net_req_route(rq)->pattern),
            OBS_STR("kid", auth_cap_kid(cap)), OBS_CORR(net_req_corr_id(rq)), OBS_END);
    auth_cap_release(cap);
    return true;
}

static void reply_buf(struct net_req *rq, int status, const char *type, struct buf *b)
{
    if (b->err != ERR_OK)
        net_reply_problem(rq, ERR_INTERNAL, "the answer does not fit");
    else
        net_reply(rq, status, &(struct net_headers){.type = type}, buf_bytes(b));
    buf_fini(b);
}

static void get_topology(struct net_req *rq, void *ctx)
{
    struct svc *s = ctx;
    struct str format = STR("json");
    struct buf b;
    if (!svc_allow_admin(s, rq))
        return;
    if (net_req_query(rq, "format", &format) == ERR_OK && !str_eq(format, STR("json")) &&
        !str_eq(format, STR("mermaid"))) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "format is json or mermaid");
        return;
    }
    bool json = str_eq(format, STR("json"));
    buf_init(&b, BODY_MAX);
    if (json)
        svc__topology_json(s, &b);
    else
        rt_topology_mermaid(&s->topology, &b);
    reply_buf(rq, 200, json ? NULL : "text/plain; charset=utf-8", &b);
}

static void get_tasks(struct net_req *rq, void *ctx)
{
    struct svc *s = ctx;
    struct buf b;
    if (!svc_allow_admin(s, rq))
        return;
    buf_init(&b, BODY_MAX);
    svc__tasks_json(s, &b);
    reply_buf(rq, 200, NULL, &b);
}

static void fail_task(struct svc *s, struct net_req *rq)
{
    char name[64];
    struct str given = net_req_param(rq, "name");
    if (given.n >= sizeof name) {
        net_reply_problem(rq, ERR_NOT_FOUND, "no such task");
        return;
    }
    memcpy(name, given.p, given.n);
    name[given.n] = 0;
    if (rt_supervisor_fail(s->supervisor, name) != ERR_OK) {
        net_reply_problem(rq, ERR_NOT_FOUND, "no such task");
        return;
    }
    net_reply_json(rq, 202, bytes_of_str(STR("{\"accepted\":true}")));
}

static void post_task_fail(struct net_req *rq, void *ctx)
{
    struct svc *s = ctx;
    if (!svc_allow_admin(s, rq))
        return;
    if (!svc_common(s)->drills_enabled)
        net_reply_problem(rq, ERR_FORBIDDEN, "drills are off; set drills.enabled = true");
    else
        fail_task(s, rq);
}

static void post_task_restart(struct net_req *rq, void *ctx)
{
    if (svc_allow_admin(ctx, rq))
        fail_task(ctx, rq);
}

static void post_drain(struct net_req *rq, void *ctx)
{
    struct svc *s = ctx;
    if (!svc_allow_admin(s, rq))
        return;
    net_reply_json(rq, 202, bytes_of_str(STR("{\"draining\":true}")));
    svc_host_request_drain(NULL);
}

static void post_reload(struct net_req *rq, void *ctx)
{
    struct svc *s = ctx;
    struct buf b;
    if (!svc_allow_admin(s, rq))
        return;
    buf_init(&b, BODY_MAX);
    enum err e = svc_reload(s, &b);
    if (e == ERR_OK) {
        reply_buf(rq, 200, "text/plain; charset=utf-8", &b);
        return;
    }
    net_reply_problem(rq, e == ERR_LOCKED ? ERR_BUSY : ERR_UNPROCESSABLE, "%s", svc_last_error());
    buf_fini(&b);
}

static void reply_level(struct net_req *rq, struct svc *s)
{
    char text[64];
    int n = snprintf(text, sizeof text, "{\"level\":\"%s\"}", obs_level_name(obs_log_level(s->log)));
    net_reply_json(rq, 200, bytes_of(text, (size_t)n));
}

static void get_log_level(struct net_req *rq, void *ctx)
{
    if (svc_allow_admin(ctx, rq))
        reply_level(rq, ctx);
}

static void put_log_level(struct net_req *rq, void *ctx)
{
    struct svc *s = ctx;
    struct str level;
    enum obs_level parsed;
    if (!svc_allow_admin(s, rq))
        return;
    if (net_req_query(rq, "level", &level) != ERR_OK || obs_level_parse(level, &parsed) != ERR_OK) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "level is debug, info, warn, error or off");
        return;
    }
    obs_log_set_level(s->log, parsed);
    reply_level(rq, s);
}

static void get_config(struct net_req *rq, void *ctx)
{
    struct svc *s = ctx;
    struct buf b;
    if (!svc_allow_admin(s, rq))
        return;
    buf_init(&b, BODY_MAX);
    svc__config_print(s, &b);
    reply_buf(rq, 200, "text/plain; charset=utf-8", &b);
}

#define OPEN  (NET_NO_ADMISSION | NET_WHILE_DRAINING)
#define ADMIN (NET_NO_ADMISSION | NET_WHILE_DRAINING)

const struct net_route svc__routes[] = {
    {.method = "GET", .pattern = "/healthz", .fn = get_healthz, .flags = OPEN},
    {.method = "GET", .pattern = "/readyz", .fn = get_readyz, .flags = OPEN},
    {.method = "GET", .pattern = "/metrics", .fn = get_metrics, .flags = OPEN},
    {.method = "GET", .pattern = "/version", .fn = get_version, .flags = OPEN},
    {.method = "GET", .pattern = "/admin/topology", .fn = get_topology, .flags = ADMIN},
    {.method = "GET", .pattern = "/admin/tasks", .fn = get_tasks, .flags = ADMIN},
    {.method = "POST", .pattern = "/admin/tasks/{name}/fail", .fn = post_task_fail, .flags = ADMIN},
    {.method = "POST", .pattern = "/admin/tasks/{name}/restart", .fn = post_task_restart, .flags = ADMIN},
    {.method = "POST", .pattern = "/admin/drain", .fn = post_drain, .flags = ADMIN},
    {.method = "POST", .pattern = "/admin/reload", .fn = post_reload, .flags = ADMIN},
    {.method = "GET", .pattern = "/admin/log-level", .fn = get_log_level, .flags = ADMIN},
    {.method = "PUT", .pattern = "/admin/log-level", .fn = put_log_level, .flags = ADMIN},
    {.method = "GET", .pattern = "/admin/config", .fn = get_config, .flags = ADMIN},
};

size_t svc__route_count(void)
{
    return sizeof svc__routes / sizeof svc__routes[0];
}
