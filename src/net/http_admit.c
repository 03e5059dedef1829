/*
 * What a complete head is told: may this request come in, and who answers it.
 *
 * In this order, so that the cheapest and surest reason to refuse comes first: the expectation, the route, draining, the body's
 * size and coding, admission (rate, in flight), the deadline. A request that passes goes to its handler, at once or when its
 * body is there.
 */
#include "net/http_internal.h"

static void dispatch(struct net_conn *c, struct net_req *rq)
{
    struct net_worker *w = c->w;
    const struct net_hooks *hooks = &w->s->hooks;
    net__count(&w->requests);
    rq->phase = NET_PHASE_HANDLER;
    if (hooks->gate && !hooks->gate(hooks->ctx, rq))
        return;
    const struct net_route_leaf *leaf = rq->match.leaf;
    leaf->route->fn(rq, leaf->ctx);
}

/* May it come in? Otherwise *out says what it is told. */
static bool admission(struct net_conn *c, struct net_req *rq, struct net_problem *out)
{
    struct net_worker *w = c->w;
    const struct net_limits *l = &w->limits;
    if (rq->match.leaf->route->flags & NET_NO_ADMISSION)
        return true;
    struct net_admission_limits al = {l->rate, l->rate_per_peer, l->max_inflight, l->max_inflight_per_peer,
                                      l->burst};
    struct net_admission_refusal why = {0};
    enum err e =
        net_admission_enter(w->s->admission, &al, rq->peer.addr, net_conn__now_ns(c), &rq->permit, &why);
    if (e == ERR_OK) {
        rq->counted = true;
        if (w->s->hooks.inflight)
            w->s->hooks.inflight(w->s->hooks.ctx, rq->match.leaf->route, 1);
        return true;
    }
    bool rate = e == ERR_RATE_LIMITED;
    *out = (struct net_problem){
        .err = e,
        .detail = rate ? STR("too many requests per second") : STR("too many requests in flight"),
        .details_json =
            bytes_of_str(rate ? STR("{\"reason\":\"rate\"}") : STR("{\"reason\":\"inflight\"}")),
        .retry_after_s = why.wait_s,
        .own_limit = why.own};
    return false;
}

static enum net_reject admission_reject(const struct net_problem *p)
{
    return p->err == ERR_RATE_LIMITED ? NET_REJECT_RATE : NET_REJECT_INFLIGHT;
}

static bool has_body(const struct net_req *rq)
{
    return rq->head.chunked || rq->head.length > 0;
}

static bool admitted_late(const struct net_req *rq)
{
    return has_body(rq) && (rq->match.leaf->route->flags & NET_ADMIT_LATE);
}

static const struct net_problem too_late = {.err = ERR_TIMEOUT,
                                            .detail = STR_INIT("the deadline has passed already")};

static bool admitted(struct net_conn *c, struct net_req *rq)
{
    struct net_problem p;
    if (admitted_late(rq) || admission(c, rq, &p))
        return true;
    net_refuse__keep(c, rq, admission_reject(&p), &p);
    return false;
}

static bool routed(struct net_conn *c, struct net_req *rq)
{
    if (rq->match.leaf)
        return true;
    if (!rq->match.allow.p) {
        net_refuse__keep(c, rq, NET_REJECT_ROUTE,
                         &(struct net_problem){.err = ERR_NOT_FOUND, .detail = STR("no such path")});
        return false;
    }
    struct net_header allow = {STR("Allow"), rq->match.allow};
    struct net_headers h = {.list = &allow, .count = 1};
    net_refuse__keep(c, rq, NET_REJECT_ROUTE,
                     &(struct net_problem){.err = ERR_METHOD_NOT_ALLOWED,
                                           .detail = STR("the path has other methods"),
                                           .headers = &h});
    return false;
}

static bool while_draining(struct net_conn *c, struct net_req *rq)
{
    struct net_server *s = c->w->s;
    if (!net_server__draining(s) || (rq->match.leaf->route->flags & NET_WHILE_DRAINING))
        return true;
    if (!s->hooks.draining) {
        net_refuse__keep(c, rq, NET_REJECT_DRAINING,
                         &(struct net_problem){.err = ERR_DRAINING, .detail = STR("shutting down")});
        return false;
    }
    if (s->hooks.reject)
        s->hooks.reject(s->hooks.ctx, NET_REJECT_DRAINING);
    net_refuse__last_words(c, rq);
    rq->phase = NET_PHASE_HANDLER;
    s->hooks.draining(s->hooks.ctx, rq);
    return false;
}

static bool body_welcome(struct net_conn *c, struct net_req *rq)
{
    const struct net_http_head *h = &rq->head;
    if (!h->chunked && h->length == 0)
        return true;
    if (h->length > net_body__max(rq)) {
        net_refuse__close(c, rq, NET_REJECT_BODY, ERR_TOO_LARGE, "the body is too large");
        return false;
    }
    if (h->encoding_other) {
        net_refuse__keep(c, rq, NET_REJECT_INFLATE,
                         &(struct net_problem){.err = ERR_UNSUPPORTED_MEDIA_TYPE,
                                               .detail = STR("the only content coding is gzip")});
        return false;
    }
    bool streams = rq->match.leaf->route->flags & NET_STREAM_BODY;
    enum err e = h->gzip && streams ? net_inflater_create(&rq->inflater) : ERR_OK;
    if (e == ERR_OK && rq->inflater)
        e = net_inflate_begin(rq->inflater);
    if (e != ERR_OK)
        net_refuse__close(c, rq, NET_REJECT_INFLIGHT, ERR_BUSY, "no memory to inflate the body");
    return e == ERR_OK;
}

static void body_begin(struct net_conn *c, struct net_req *rq)
{
    const struct net_http_head *h = &rq->head;
    net_http_body_init(&c->body, h, net_body__max(rq));
    c->reading = NET_READ_BODY;
    if (h->expect_continue && rq->head.minor == 1 && net_conn__in_n(c) == 0) {
        rq->want_100 = true;
        net_reply__emit(c);
        if (c->dead) /* a stream before it came to its end, and took the connection with it */
            return;
    }
    if (rq->match.leaf->route->flags & NET_STREAM_BODY)
        dispatch(c, rq);
}

static void request_complete(struct net_conn *c, struct net_req *rq)
{
    c->cur = NULL;
    c->reading = NET_READ_IDLE;
    if (!rq->want_keep)
        c->read_off = true;
    dispatch(c, rq);
}

void net_admit__head(struct net_conn *c, struct net_req *rq)
{
    net_req__read_head(rq, (const char *)c->in->data + c->in_from);
    net_conn__in_used(c, rq->head.head_bytes);
    const struct net_http_head *h = &rq->head;
    if (h->expect_other) {
        net_refuse__keep(c, rq, NET_REJECT_FRAMING,
                         &(struct net_problem){.err = ERR_EXPECTATION_FAILED,
                                               .detail = STR("the only expectation is 100-continue")});
        return;
    }
    if (!routed(c, rq) || !while_draining(c, rq) || !body_welcome(c, rq) || !admitted(c, rq))
        return;
    if (!admitted_late(rq) && rq->deadline_ns <= net_conn__now_ns(c)) {
        net_refuse__keep(c, rq, NET_REJECT_DEADLINE, &too_late);
        return;
    }
    net_conn__arm(c, rq->deadline_ns);
    if (has_body(rq)) {
        body_begin(c, rq);
        return;
    }
    if (rq->match.leaf->route->flags & NET_STREAM_BODY) {
        c->reading = NET_READ_BODY; /* the machine is at its end already and says so */
        net_http_body_init(&c->body, h, 0);
        dispatch(c, rq);
        return;
    }
    request_complete(c, rq);
}

void net_admit__whole(struct net_conn *c, struct net_req *rq)
{
    struct net_problem p;
    if (admitted_late(rq) && !admission(c, rq, &p))
        net_refuse__complete(c, rq, admission_reject(&p), &p);
    else if (rq->deadline_ns <= net_conn__now_ns(c))
        net_refuse__complete(c, rq, NET_REJECT_DEADLINE, &too_late);
    else
        request_complete(c, rq);
}
