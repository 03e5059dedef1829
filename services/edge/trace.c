#include "services/edge/trace.h"

#include "net/http_server.h"
#include "services/edge/edge.h"
#include "services/edge/fills.h"

static void begin_at(struct obs_span *s, int64_t at_ns)
{
    s->start_unix_ns -= s->start_mono_ns - at_ns;
    s->start_mono_ns = at_ns;
}

static struct obs_trace caller_of(struct net_req *rq)
{
    struct obs_trace caller;
    struct str header = net_req_traceparent(rq);
    return header.p && obs_traceparent_parse(header, &caller) == ERR_OK ? caller : (struct obs_trace){0};
}

bool edge_trace_begin(struct edge *e, struct net_req *rq, struct edge_trace *out)
{
    struct obs_trace caller = caller_of(rq);
    struct obs_tracer *tracer = svc_tracer(e->svc);
    if (!caller.sampled)
        return false;
    obs_span_begin(tracer, &caller, "svc.edge.http", &out->http);
    out->found_ns = out->http.start_mono_ns;
    begin_at(&out->http, net_req_started_ns(rq));
    return out->http.self.sampled;
}

void edge_trace_end(struct edge *e, struct edge_trace *t, const char *cache, int status, size_t parts)
{
    struct obs_tracer *tracer = svc_tracer(e->svc);
    struct obs_span s;
    int64_t composed_ns = edge_now_ns(e) - t->found_ns;
    obs_span_begin(tracer, &t->http.self, "svc.edge.cache", &s);
    begin_at(&s, t->http.start_mono_ns);
    s.start_unix_ns = t->http.start_unix_ns;
    obs_span_text(&s, "cache", str_from_c(cache));
    obs_span_end(tracer, &s, ERR_OK);
    if (parts) {
        obs_span_begin(tracer, &t->http.self, "svc.edge.range", &s);
        begin_at(&s, s.start_mono_ns - composed_ns);
        obs_span_u64(&s, "parts", parts);
        obs_span_end(tracer, &s, ERR_OK);
    }
    obs_span_text(&t->http, "cache", str_from_c(cache));
    obs_span_u64(&t->http, "status", (uint64_t)status);
    obs_span_end(tracer, &t->http, ERR_OK);
}

void edge_trace_fill(struct edge *e, struct net_req *rq, struct edge_fill *f)
{
    struct obs_trace caller = caller_of(rq);
    obs_span_begin(svc_tracer(e->svc), &caller, "svc.edge.fill", &f->span);
}

void edge_trace_filled(struct edge *e, struct edge_fill *f, enum err err)
{
    if (!f->span.self.sampled)
        return;
    obs_span_text(&f->span, "name", f->path);
    obs_span_text(&f->span, "origin", str_from_c(f->route->label));
    obs_span_text(&f->span, "corr_id", str_from_c(f->corr_id));
    obs_span_u64(&f->span, "tries", f->tries);
    obs_span_u64(&f->span, "bytes", atomic_load(&f->bytes));
    obs_span_end(svc_tracer(e->svc), &f->span, err);
}
