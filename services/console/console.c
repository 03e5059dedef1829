/*
 * The console: pages for a browser, and one origin for it to talk to.
 *
 * Pages come from the table of assets. /api/<service>/<path> is carried to that service as it is: method, path, body and
 * the headers that mean something there, the caller's capability among them. The console itself holds no token and
 * grants nothing: what a call may do is decided by the service it reaches.
 */
#include "services/console/console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "net/http_client.h"
#include "net/loop.h"
#include "obs/metrics_def.h"
#include "services/console/assets.h"

struct console_config {
#define CONF CONF_AS_MEMBER
#include "services/console/config.def"
#undef CONF
};
SVC_CONFIG_IS_PREFIX(struct console_config);

#define CONF_STRUCT struct console_config
static const struct conf_key config_keys[] = {
#define CONF CONF_AS_KEY
#include "services/console/config.def"
#undef CONF
};

static const struct conf_table config_table = {.service = "console",
                                               .keys = config_keys,
                                               .keys_n = sizeof config_keys / sizeof config_keys[0],
                                               .config_bytes = sizeof(struct console_config)};

enum console_metric {
#define OBS_DEF(id) CONSOLE_M_##id,
#include "obs/metrics_ids.h"
#include "services/console/metrics.def"
#include "obs/metrics_end.h"
    CONSOLE_M_COUNT
};

static const struct obs_metric_def metrics[] = {
#include "obs/metrics_rows.h"
#include "services/console/metrics.def"
#include "obs/metrics_end.h"
};

enum { TARGETS = 5, URL_MAX = 4096, RESPONSE_MAX = 8 << 20, FORWARDED_MAX = 12 };

struct target {
    const char *name;
    int port_offset;
    char base[256];
};

struct console {
    struct svc *svc;
    struct target targets[TARGETS];
    struct obs_family *calls_total;
    struct rt_chan *calls; /* http -> proxy */
    struct net_loop *loop; /* the proxy's */
    struct net_http_client *client;
    struct net_msg wake;
    _Atomic bool wake_posted;
};

/* ---- pages ---- */

static const char *type_of(const char *path)
{
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".mjs", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".svg", "image/svg+xml"},
        {".json", "application/json"},
        {".png", "image/png"},
        {".woff2", "font/woff2"},
        {".ico", "image/x-icon"},
    };
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(dot, types[i][0]) == 0)
            return types[i][1];
    return "application/octet-stream";
}

static const struct console_asset *find_asset(struct str path)
{
    for (const struct console_asset *a = console_assets; a->path; a++)
        if (str_eq_c(path, a->path))
            return a;
    return NULL;
}

static void keep_asset(void *arg, enum err result)
{
    (void)arg; /* part of the program: nothing to release */
    (void)result;
}

/* Scripts and styles only from here, no plug-ins, no framing: a page that can move money must not be dressed up. */
#define PAGE_HEADERS                                                                                       \
    "Content-Security-Policy: default-src 'self'; img-src 'self' data: blob:; object-src 'none'; "         \
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'\r\n"                                      \
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"

static void reply_asset(struct net_req *rq, const struct console_asset *a)
{
    bool hashed = strncmp(a->path, "assets/", 7) == 0; /* the build puts a digest into the name */
    net_reply_pinned(rq, 200,
                     &(struct net_headers){
                         .type = type_of(a->path),
                         .raw = hashed ? STR(PAGE_HEADERS "Cache-Control: max-age=31536000, immutable\r\n")
                                       : STR(PAGE_HEADERS "Cache-Control: no-cache\r\n")},
                     bytes_of(a->start, (size_t)(a->end - a->start)), keep_asset, NULL);
}

static void get_index(struct net_req *rq, void *ctx)
{
    (void)ctx;
    const struct console_asset *index = find_asset(STR("index.html"));
    if (index)
        reply_asset(rq, index);
    else
        net_reply(
            rq, 200, &(struct net_headers){.type = "text/plain"},
            bytes_of_str(STR(
                "RON is running. This build has no browser console; see `ron status` and `ron top`.\n")));
}

static void get_page(struct net_req *rq, void *ctx)
{
    const struct console_asset *a = find_asset(net_req_param(rq, "path"));
    if (a)
        reply_asset(rq, a);
    else if (memchr(net_req_path(rq).p, '.', net_req_path(rq).n))
        net_reply_problem(rq, ERR_NOT_FOUND, "no such file");
    else
        get_index(rq, ctx); /* a view of the console: its router shows it */
}

/* ---- calls ---- */

static const struct target *target_of(const struct console *c, struct str name)
{
    for (int i = 0; i < TARGETS; i++)
        if (str_eq_c(name, c->targets[i].name))
            return &c->targets[i];
    return NULL;
}

static void drain_calls(struct net_msg *m);

static void any_api(struct net_req *rq, void *ctx)
{
    struct console *c = ctx;
    const struct target *t = target_of(c, net_req_param(rq, "service"));
    if (!t) {
        net_reply_problem(rq, ERR_NOT_FOUND, "no such service");
        return;
    }
    obs_counter_inc(obs_counter_nth(c->calls_total, (size_t)(t - c->targets)));
    enum err e = rt_chan_try_send(c->calls, rq);
    if (e != ERR_OK)
        net_reply_problem(rq, e == ERR_BUSY ? ERR_BUSY : ERR_DRAINING, "too many calls at once");
    else if (!atomic_exchange(&c->wake_posted, true)) /* one message until the proxy has looked */
        net_loop_post(c->loop, &c->wake);
}

struct carried {
    struct net_req *rq;
    bool streaming;
};

static bool is_event_stream(const struct net_http_response *r)
{
    return str_starts(net_http_header(r, "content-type"), STR("text/event-stream"));
}

static bool carry_head(void *arg, const struct net_http_response *r)
{
    struct carried *call = arg;
    if (is_event_stream(r)) {
        call->streaming = true;
        net_stream_begin(call->rq, r->status, &(struct net_headers){.type = "text/event-stream"});
    }
    return true;
}

static bool carry_piece(void *arg, struct bytes piece)
{
    struct carried *call = arg;
    return net_stream_write(call->rq, piece) == ERR_OK; /* a reader that cannot keep up reconnects */
}

static void carry_answer(void *arg, enum err e, const struct net_http_response *r)
{
    static const char *const kept[] = {"etag",          "location",  "retry-after", "idempotency-replayed",
                                       "cache-control", "x-corr-id", "simulated",   "content-range"};
    struct carried *call = arg;
    if (call->streaming)
        net_stream_end(call->rq);
    else if (e != ERR_OK)
        net_reply_problem(call->rq, e == ERR_TIMEOUT ? ERR_TIMEOUT : ERR_UNAVAILABLE,
                          "the service does not answer");
    else {
        struct net_header list[sizeof kept / sizeof kept[0]];
        char type[128];
        size_t n = 0;
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
            struct str value = net_http_header(r, kept[i]);
            if (value.p && !str_eq_c(str_from_c(kept[i]), "x-corr-id"))
                list[n++] = (struct net_header){str_from_c(kept[i]), value};
        }
        snprintf(type, sizeof type, "%.*s", STR_ARG(net_http_header(r, "content-type")));
        net_reply(call->rq, r->status, &(struct net_headers){.type = type, .list = list, .count = n},
                  r->body);
    }
    free(call);
}

/* "/api/wallet/v1/tx/…?x=y" -> "<base>/v1/tx/…?x=y", byte for byte */
static void target_url(const struct console *c, struct net_req *rq, char out[URL_MAX])
{
    const struct target *t = target_of(c, net_req_param(rq, "service"));
    struct str raw = net_req_target(rq);
    size_t skip = sizeof "/api/" - 1 + strlen(t->name);
    snprintf(out, URL_MAX, "%s%.*s", t->base, (int)(raw.n - skip), raw.p + skip);
}

static void carry(struct console *c, struct net_req *rq)
{
    static const char *const forwarded[] = {"authorization", "content-type",  "idempotency-key",
                                            "accept",        "last-event-id", "if-none-match",
                                            "range"};
    char url[URL_MAX], method[16], lines[FORWARDED_MAX][4608];
    const char *headers[FORWARDED_MAX + 1];
    size_t n = 0;
    struct carried *call = calloc(1, sizeof *call);
    if (!call) {
        net_reply_problem(rq, ERR_BUSY, "no memory");
        return;
    }
    call->rq = rq;
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++) {
        struct str value = net_req_header(rq, forwarded[i]);
        if (value.p && value.n < 4500) {
            snprintf(lines[n], sizeof lines[n], "%s: %.*s", forwarded[i], STR_ARG(value));
            headers[n] = lines[n];
            n++;
        }
    }
    headers[n] = NULL;
    target_url(c, rq, url);
    snprintf(method, sizeof method, "%.*s", STR_ARG(net_req_method(rq)));
    bool events = str_starts(net_req_header(rq, "accept"), STR("text/event-stream"));
    enum err e = net_http_send(
        c->client,
        &(struct net_http_request){.method = method,
                                   .url = url,
                                   .headers = headers,
                                   .body = net_req_body(rq),
                                   .by = events ? deadline_in_ms(3600000) : net_req_deadline(rq),
                                   .response_max = events ? (size_t)1 << 40 : RESPONSE_MAX,
                                   .http_allowed = true,
                                   .on_head = events ? carry_head : NULL,
                                   .on_body = events ? carry_piece : NULL},
        carry_answer, call, NULL);
    if (e != ERR_OK) {
        net_reply_problem(rq, e == ERR_BUSY ? ERR_BUSY : ERR_UNAVAILABLE, "the call cannot be carried");
        free(call);
    }
}

/* On the proxy's loop. */
static void drain_calls(struct net_msg *m)
{
    struct console *c = (struct console *)((char *)m - offsetof(struct console, wake));
    void *rq;
    atomic_store(&c->wake_posted, false); /* before looking: what is sent from now on posts again */
    while (rt_chan_try_recv(c->calls, &rq) == ERR_OK)
        carry(c, rq);
}

RT_BLOCKS
static enum err run_proxy(struct rt_task *self, void *arg)
{
    struct console *c = arg;
    enum err e = net_loop_run(c->loop, self);
    if (svc_draining(c->svc)) { /* for good; a task that failed is started anew with all its calls */
        net_http_client_stop(c->client);
        for (int i = 0; i < 100 && !rt_task_canceled(self); i++)
            net_loop_once(c->loop, 1); /* what is under way is answered now */
    }
    return e;
}

static void wake_proxy(struct rt_task *self, void *arg)
{
    struct console *c = arg;
    (void)self;
    net_loop_wake(c->loop);
}

/* ---- the service ---- */

static void console_topology(const void *config, struct rt_topology *topology)
{
    const struct console_config *cfg = config;
    rt_topology_init(topology, "console");
#include "rt/topology_rows.h"
#include "services/console/topology.def"
#include "rt/topology_rows_end.h"
}

static void set_targets(struct console *c, int base_port)
{
    const struct console_config *cfg = svc_config(c->svc);
    const char *const urls[TARGETS] = {cfg->ledger_url, cfg->wallet_url, cfg->mailbox_url,
                                       cfg->rewarder_url, cfg->edge_url};
    static const char *const names[TARGETS] = {"ledger", "wallet", "mailbox", "rewarder", "edge"};
    for (int i = 0; i < TARGETS; i++) {
        struct target *t = &c->targets[i];
        t->name = names[i];
        t->port_offset = 10 * (i + 1);
        if (*urls[i])
            snprintf(t->base, sizeof t->base, "%s", urls[i]);
        else
            snprintf(t->base, sizeof t->base, "http://127.0.0.1:%d", base_port + t->port_offset);
    }
}

static enum err console_open(struct svc *s, void **out_state)
{
    struct console *c = calloc(1, sizeof *c);
    if (!c)
        return ERR_NO_MEMORY;
    *out_state = c;
    c->svc = s;
    c->wake.fn = drain_calls;
    c->calls_total = obs_family_find(svc_metrics(s), "console_calls_total");
    set_targets(c, svc_base_port(s));
    enum err e = svc_add_queue(s, "calls", "calls", &c->calls);
    if (e == ERR_OK)
        e = net_loop_create(NULL, &c->loop);
    if (e == ERR_OK)
        e = net_http_client_create(&(struct net_http_client_config){.loop = c->loop}, &c->client);
    return e;
}

static enum err console_start(struct svc *s, void *state)
{
    enum err e = svc_add_loop_task(s, "proxy", run_proxy, state, wake_proxy);
    return e == ERR_OK ? svc_add_task(s, "health", svc_health_task, s) : e;
}

static void refuse_left(void *item, void *arg)
{
    (void)arg;
    net_reply_problem(item, ERR_DRAINING, "the console is shutting down");
}

static void console_drain_step(struct svc *s, void *state, int step)
{
    struct console *c = state;
    (void)s;
    if (step == 2)
        rt_chan_close(c->calls);
}

static void console_close(struct svc *s, void *state)
{
    struct console *c = state;
    (void)s;
    net_http_client_destroy(c->client);
    if (c->calls)
        rt_chan_destroy(c->calls, refuse_left, NULL);
    net_loop_destroy(c->loop);
    free(c);
}

static const struct net_route routes[] = {
    {.method = "GET", .pattern = "/", .fn = get_index},
    {.method = "GET", .pattern = "/{path*}", .fn = get_page, .label = "/{page}"},
    {.method = "GET", .pattern = "/api/{service}/{path*}", .fn = any_api, .flags = NET_NO_DEADLINE},
    {.method = "POST", .pattern = "/api/{service}/{path*}", .fn = any_api},
    {.method = "PUT", .pattern = "/api/{service}/{path*}", .fn = any_api},
    {.method = "DELETE", .pattern = "/api/{service}/{path*}", .fn = any_api},
    {.method = NULL},
};

const struct svc_def console_svc = {
    .name = "console",
    .title = "ron",
    .summary = "pages for a browser: what runs, what moves, proofs",
    .port_offset = 0,
    .config = &config_table,
    .topology = console_topology,
    .listener_task = "http",
    .metrics = metrics,
    .metric_count = CONSOLE_M_COUNT,
    .routes = routes,
    .hooks = {.open = console_open,
              .start = console_start,
              .drain_step = console_drain_step,
              .close = console_close},
};
