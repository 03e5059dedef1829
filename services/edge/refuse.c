/* Saying no: one problem body, the reason as a header, a member and a counter, and the CORS lines every answer needs. */
#include <stdio.h>
#include <string.h>

#include "services/edge/edge.h"

static const char *const reasons[] = {"amnesia",      "not_allowed", "decompress_cap", "body_cap",
                                      "timeout",      "rate_limit",  "invalid_range",  "etag_invalid",
                                      "client_limit", "inflight",    "conns",          "busy",
                                      "draining",     "upstream",    "fill_cap",       "digest_mismatch",
                                      "pack",         "cas",         "bad_request",    ""};

const char *edge_reason_name(enum edge_reason r)
{
    return reasons[r];
}

enum edge_endpoint edge_endpoint(const struct net_req *rq)
{
    const struct net_route *route = net_req_route(rq);
    return route ? (enum edge_endpoint)route->tag : EDGE_AT_ADMIN;
}

void edge_shed(struct edge *e)
{
    atomic_store_explicit(&e->shed_ns, edge_now_ns(e), memory_order_relaxed);
}

static bool origin_listed(const struct edge_settings *s, struct str origin)
{
    for (size_t i = 0; i < s->cors_n; i++)
        if (str_eq(s->cors[i], origin))
            return true;
    return false;
}

bool edge_cors(struct edge *e, struct net_req *rq, struct buf *out)
{
    struct edge_settings *s = edge_settings(e);
    struct str origin = net_req_header(rq, "origin");
    if (s->cors_n)
        buf_puts(out, "Vary: Origin\r\n");
    bool listed = origin.p && origin_listed(s, origin);
    if (!listed && !(origin.p && s->cors_any))
        return false;
    buf_puts(out, "Access-Control-Allow-Origin: ");
    buf_put_str(out, listed ? origin : STR("*"));
    buf_puts(out, "\r\nAccess-Control-Expose-Headers: ETag, Content-Range, Content-Length, Accept-Ranges, "
                  "Last-Modified, "
                  "Repr-Digest, Retry-After, X-Cache, X-Corr-ID, X-Reason\r\n");
    return true;
}

void edge_count_reject(struct edge *e, const struct net_req *rq, enum err err, enum edge_reason reason)
{
    const struct net_route *route = net_req_route(rq);
    obs_counter_inc(obs_counter_nth(e->m[EDGE_M_rejects], reason));
    obs_log(svc_log(e->svc), OBS_INFO, "reject", OBS_STR("reason", reasons[reason]),
            OBS_STR("route", !route         ? "none"
                             : route->label ? route->label
                                            : route->pattern),
            OBS_ERR(err), OBS_CORR(net_req_corr_id(rq)), OBS_END);
}

void edge_refuse_after(struct edge *e, struct net_req *rq, enum err err, enum edge_reason reason,
                       const char *detail, unsigned retry_s)
{
    char raw[1024], details[64];
    struct buf lines;
    buf_init_fixed(&lines, raw, sizeof raw);
    struct net_headers headers = {0};
    int n = 0;
    edge_cors(e, rq, &lines);
    if (reason != EDGE_R_NONE) {
        edge_count_reject(e, rq, err, reason);
        buf_printf(&lines, "X-Reason: %s\r\n", reasons[reason]);
        n = snprintf(details, sizeof details, "{\"reason\":\"%s\"}", reasons[reason]);
    }
    headers.raw = buf_str(&lines);
    if (err == ERR_DRAINING && !retry_s)
        retry_s = svc_drain_left_s(e->svc);
    net_reply_problem_full(rq, &(struct net_problem){.err = err,
                                                     .detail = str_from_c(detail),
                                                     .details_json = bytes_of(details, (size_t)n),
                                                     .retry_after_s = retry_s,
                                                     .headers = &headers});
}

void edge_refuse(struct edge *e, struct net_req *rq, enum err err, enum edge_reason reason,
                 const char *detail)
{
    edge_refuse_after(e, rq, err, reason, detail, 0);
}

static enum edge_reason reason_of(enum net_reject why, const struct net_problem *p)
{
    switch (why) {
    case NET_REJECT_CONNS:
        return EDGE_R_CONNS;
    case NET_REJECT_FRAMING:
    case NET_REJECT_HEADERS:
        return EDGE_R_BAD_REQUEST;
    case NET_REJECT_BODY:
        return p->err == ERR_TOO_LARGE ? EDGE_R_BODY_CAP : EDGE_R_BAD_REQUEST;
    case NET_REJECT_INFLATE:
        return p->err == ERR_TOO_LARGE ? EDGE_R_DECOMPRESS_CAP : EDGE_R_BAD_REQUEST;
    case NET_REJECT_RATE:
        return p->own_limit ? EDGE_R_CLIENT_LIMIT : EDGE_R_RATE_LIMIT;
    case NET_REJECT_INFLIGHT:
        return p->own_limit ? EDGE_R_CLIENT_LIMIT : EDGE_R_INFLIGHT;
    case NET_REJECT_READ_TIMEOUT:
    case NET_REJECT_DEADLINE:
        return EDGE_R_TIMEOUT;
    case NET_REJECT_DRAINING:
        return EDGE_R_DRAINING;
    case NET_REJECT_UID:
    case NET_REJECT_ROUTE:
    case NET_REJECT_WRITE_TIMEOUT:
    case NET_REJECT_COUNT:
        break;
    }
    return EDGE_R_NONE;
}

void edge_refusing(struct svc *s, void *edge, struct net_req *rq, enum net_reject why,
                   struct net_problem *p)
{
    struct edge *e = edge;
    enum edge_reason reason = reason_of(why, p);
    const struct net_route *route = net_req_route(rq);
    (void)s;
    if (!route && str_starts(net_req_path(rq), STR("/edge/"))) { /* no such path, or not this method */
        char raw[1024];
        struct buf always;
        buf_init_fixed(&always, raw, sizeof raw);
        buf_puts(&always, EDGE_SAFE_HEADERS);
        if (reason == EDGE_R_NONE)
            edge_cors(e, rq, &always);
        net_req_answer_with(rq, buf_str(&always));
    }
    if (reason == EDGE_R_NONE || p->headers || (route && route->tag == EDGE_AT_ADMIN))
        return;
    edge_count_reject(e, rq, p->err, reason);
    if (why ==
        NET_REJECT_DEADLINE) /* who takes too long to send its head or body is the frame's to count */
        obs_counter_inc(obs_counter_nth(e->m[EDGE_M_io_timeouts], 0));
    if (why == NET_REJECT_CONNS || why == NET_REJECT_INFLIGHT)
        edge_shed(e);
    struct net_headers *h = arena_zalloc(net_req_arena(rq), sizeof *h);
    char *text = arena_alloc(net_req_arena(rq), 128 + 1024);
    if (!h || !text)
        return;
    struct buf lines;
    int n = snprintf(text, 128, "{\"reason\":\"%s\"}", reasons[reason]);
    buf_init_fixed(&lines, text + 128, 1024);
    buf_printf(&lines, "X-Reason: %s\r\n", reasons[reason]);
    edge_cors(e, rq, &lines);
    h->raw = buf_str(&lines);
    p->headers = h;
    p->details_json = bytes_of(text, (size_t)n);
}

void edge_defer(struct edge *e, struct net_req *rq, edge_job_fn *run, void (*drop)(void *arg), void *arg)
{
    struct edge_job *job = arena_alloc(net_req_arena(rq), sizeof *job);
    enum err err = ERR_BUSY;
    if (job) {
        *job = (struct edge_job){rq, run, drop, arg};
        err = rt_chan_try_send(e->read, job);
    }
    if (err == ERR_OK)
        return;
    enum edge_endpoint at = edge_endpoint(rq);
    if (drop)
        drop(arg);
    if (err == ERR_CLOSED) {
        edge_refuse(e, rq, ERR_DRAINING, EDGE_R_DRAINING, "the service is shutting down");
        return;
    }
    obs_counter_inc(obs_counter_nth(e->m[EDGE_M_busy], at));
    edge_count_dropped(e, "read");
    edge_shed(e);
    edge_refuse(e, rq, ERR_BUSY, EDGE_R_BUSY, "read queue is full");
}
