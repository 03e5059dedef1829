#include "services/rewarder/trace.h"

#include "services/rewarder/rewarder.h"

static void begin_at(struct obs_span *s, int64_t at_ns)
{
    s->start_unix_ns -= s->start_mono_ns - at_ns;
    s->start_mono_ns = at_ns;
}

void rewarder_trace_admit(struct rewarder *r, struct net_req *rq, struct rewarder_run *run,
                          struct obs_span *out)
{
    struct obs_trace caller;
    struct str header = rq ? net_req_traceparent(rq) : (struct str){NULL, 0};
    if (!header.p || obs_traceparent_parse(header, &caller) != ERR_OK)
        caller = (struct obs_trace){0};
    obs_span_begin(svc_tracer(r->svc), &caller, "rewarder.admit", out);
    if (rq)
        begin_at(out, net_req_started_ns(rq));
    obs_span_text(out, "epoch", str_from_c(run->epoch));
    obs_span_text(out, "corr_id", str_from_c(run->corr_id));
    run->trace = out->self;
}

void rewarder_trace_begin(struct rewarder *r, const struct rewarder_run *run, const char *name,
                          struct obs_span *out)
{
    obs_span_begin(svc_tracer(r->svc), &run->trace, name, out);
    obs_span_text(out, "epoch", str_from_c(run->epoch));
}

void rewarder_trace_end(struct rewarder *r, struct obs_span *s, enum err err)
{
    obs_span_end(svc_tracer(r->svc), s, err);
}

void rewarder_trace_part(struct rewarder *r, const struct obs_span *s,
                         const struct rewarder_trace_part *part)
{
    struct obs_span child;
    if (!s->self.sampled)
        return;
    obs_span_begin(svc_tracer(r->svc), &s->self, part->name, &child);
    begin_at(&child, child.start_mono_ns - part->took_ns);
    obs_span_text(&child, part->key, part->text);
    obs_span_end(svc_tracer(r->svc), &child, part->err);
}
