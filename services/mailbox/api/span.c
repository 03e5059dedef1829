#include "services/mailbox/api/span.h"

#include "services/mailbox/mailbox.h"

static const char *const names[MAILBOX_OP_COUNT] = {
    [MAILBOX_OP_SEND] = "mailbox.send",     [MAILBOX_OP_RECV] = "mailbox.recv",
    [MAILBOX_OP_STREAM] = "mailbox.stream", [MAILBOX_OP_ACK] = "mailbox.ack",
    [MAILBOX_OP_NACK] = "mailbox.nack",     [MAILBOX_OP_EXTEND] = "mailbox.extend",
    [MAILBOX_OP_DLQ] = "mailbox.dlq",       [MAILBOX_OP_TOPICS] = "mailbox.topics",
    [MAILBOX_OP_CHAIN] = "mailbox.chain"};

void mailbox_span_begin(struct mailbox_call *c, struct str traceparent)
{
    struct obs_trace caller = {0};
    struct obs_span root;
    if (!traceparent.p || obs_traceparent_parse(traceparent, &caller) != ERR_OK)
        caller = (struct obs_trace){0};
    obs_span_begin(svc_tracer(c->mb->svc), &caller, names[c->op], &root);
    c->trace = root.self;
    memcpy(c->trace_parent, root.parent_id, sizeof c->trace_parent);
}

void mailbox_span_submitted(struct mailbox_call *c)
{
    if (c->trace.sampled)
        c->submitted_ns = clock_mono_ns(c->mb->clock);
}

/* A span that is over. */
static void part(struct mailbox_call *c, const char *name, int64_t from_ns, int64_t to_ns)
{
    struct obs_tracer *tracer = svc_tracer(c->mb->svc);
    struct obs_span s;
    if (to_ns < from_ns)
        to_ns = from_ns; /* the worker's clock was read before the handler's */
    obs_span_begin(tracer, &c->trace, name, &s);
    int64_t now = s.start_mono_ns, length = to_ns - from_ns;
    s.start_mono_ns = now - length; /* it ends now, by the clock: shifted to where it was */
    s.start_unix_ns -= now - from_ns;
    obs_span_end(tracer, &s, ERR_OK);
}

void mailbox_span_end(struct mailbox_call *c, struct str corr_id, enum err e)
{
    struct obs_tracer *tracer = svc_tracer(c->mb->svc);
    struct obs_span root;
    if (!c->trace.sampled)
        return;
    int64_t now = clock_mono_ns(c->mb->clock), taken = 0;
    for (size_t i = 0; i < c->jobs_n; i++)
        if (c->jobs[i].taken_ns && (!taken || c->jobs[i].taken_ns < taken))
            taken = c->jobs[i].taken_ns;
    if (c->submitted_ns) {
        part(c, "mailbox.parse", c->started_ns, c->submitted_ns);
        part(c, "mailbox.queue", c->submitted_ns, taken ? taken : now);
    }
    if (taken)
        part(c, "mailbox.commit", taken, now);
    obs_span_begin(tracer, &c->trace, names[c->op], &root);
    root.self = c->trace;
    memcpy(root.parent_id, c->trace_parent, sizeof root.parent_id);
    root.start_unix_ns -= root.start_mono_ns - c->started_ns;
    root.start_mono_ns = c->started_ns;
    obs_span_text(&root, "corr_id", corr_id);
    if (c->op == MAILBOX_OP_SEND)
        obs_span_u64(&root, "messages", c->send.n);
    obs_span_end(tracer, &root, e);
}
