#include "services/wallet/trace.h"

#include <string.h>

#include "services/wallet/wallet.h"

static struct obs_trace caller_of(const struct net_req *rq)
{
    struct obs_trace caller;
    struct str header = net_req_traceparent(rq);
    return header.p && obs_traceparent_parse(header, &caller) == ERR_OK ? caller : (struct obs_trace){0};
}

int64_t wallet_trace_decide(struct wallet *w, const struct net_req *rq)
{
    bool sampled;
    if (net_req_traceparent(rq).p) {
        struct obs_trace caller = caller_of(rq);
        sampled = obs_tracer_draw(svc_tracer(w->svc), &caller);
    } else
        sampled = obs_tracer_draw(svc_tracer(w->svc), NULL);
    return sampled ? wallet_now_ns(w) : 0;
}

void wallet_trace_begin(struct wallet_job *j, const struct net_req *rq, int64_t decided_ns)
{
    struct wallet_trace *t = &j->trace;
    if (decided_ns == 0)
        return; /* as clear as a new job is */
    struct obs_trace caller = caller_of(rq);
    struct obs_span root;
    obs_span_begin(svc_tracer(j->w->svc), &caller, "wallet.request", &root);
    t->self = root.self;
    t->self.sampled = true;
    memcpy(t->parent_id, root.parent_id, sizeof t->parent_id);
    t->began_ns = net_req_started_ns(rq);
    t->verified_ns = decided_ns;
    t->claimed_ns = wallet_now_ns(j->w);
}

void wallet_trace_sent(struct wallet_job *j)
{
    if (j->trace.self.sampled && !j->trace.sent_ns)
        j->trace.sent_ns = wallet_now_ns(j->w);
}

void wallet_trace_answered(struct wallet_job *j)
{
    if (j->trace.self.sampled)
        j->trace.answered_ns = wallet_now_ns(j->w);
}

const struct wallet_job *wallet_trace_speaker(struct wallet_job *const *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (jobs[i]->trace.self.sampled)
            return jobs[i];
    return jobs[0];
}

/* What the operation waited for: a span below its own, over by now. */
static void part(const struct wallet_job *j, const struct obs_moment *now, const char *name,
                 int64_t from_ns, int64_t to_ns, uint64_t tries, uint64_t batch)
{
    struct obs_tracer *tracer = svc_tracer(j->w->svc);
    struct obs_span s;
    obs_span_begin_at(tracer, &j->trace.self, name, now, from_ns, &s);
    if (tries)
        obs_span_u64(&s, "tries", tries);
    if (batch)
        obs_span_u64(&s, "batch", batch);
    obs_span_end_at(tracer, &s, to_ns, ERR_OK);
}

void wallet_trace_end(struct wallet_job *j)
{
    struct wallet_trace *t = &j->trace;
    struct obs_tracer *tracer = svc_tracer(j->w->svc);
    struct obs_span root;
    if (!t->self.sampled)
        return;
    struct obs_moment now = obs_tracer_now(tracer);
    int64_t answered = t->answered_ns ? t->answered_ns : now.mono_ns,
            sent = t->sent_ns ? t->sent_ns : now.mono_ns;
    part(j, &now, "wallet.auth", t->began_ns, t->verified_ns, 0, 0);
    part(j, &now, "wallet.claim", t->verified_ns, t->claimed_ns, 0, 0);
    part(j, &now, "wallet.queue", t->claimed_ns, sent, 0, 0);
    if (t->sent_ns) {
        part(j, &now, "wallet.ledger", sent, answered, j->tries, t->batch);
        part(j, &now, "wallet.settle", answered, now.mono_ns, 0, 0);
    }
    t->settled_ns = now.mono_ns;
    obs_span_begin_at(tracer, &t->self, "wallet.request", &now, t->began_ns, &root);
    root.self = t->self;
    memcpy(root.parent_id, t->parent_id, sizeof root.parent_id);
    obs_span_text(&root, "op", str_from_c(wallet_kind_name(j->op.kind)));
    obs_span_text(&root, "txid", str_from_c(j->txid));
    obs_span_text(&root, "outcome",
                  str_from_c(j->answer.no.err == ERR_OK ? "committed" : err_code(j->answer.no.err)));
    obs_span_end_at(tracer, &root, now.mono_ns, j->answer.no.err);
}

void wallet_trace_replied(const struct wallet_job *j)
{
    if (!j->trace.self.sampled)
        return;
    struct obs_moment now = obs_tracer_now(svc_tracer(j->w->svc));
    part(j, &now, "wallet.reply", j->trace.settled_ns, now.mono_ns, 0, 0);
}
