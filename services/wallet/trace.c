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
    struct obs_trace caller = caller_of(rq);
    return obs_tracer_draw(svc_tracer(w->svc), &caller) ? wallet_now_ns(w) : 0;
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

/* A span that is over: it began then and ends now, or when the next one began. */
static void begin_at(struct obs_span *s, int64_t at_ns)
{
    s->start_unix_ns -= s->start_mono_ns - at_ns;
    s->start_mono_ns = at_ns;
}

static void part(const struct wallet_job *j, const char *name, int64_t from_ns, int64_t to_ns,
                 uint64_t tries, uint64_t batch)
{
    struct obs_tracer *tracer = svc_tracer(j->w->svc);
    struct obs_span s;
    obs_span_begin(tracer, &j->trace.self, name, &s);
    /* Ends now by the clock: shifted so that it lies where it was. */
    begin_at(&s, s.start_mono_ns - (to_ns - from_ns));
    s.start_unix_ns -= wallet_now_ns(j->w) - to_ns;
    if (tries)
        obs_span_u64(&s, "tries", tries);
    if (batch)
        obs_span_u64(&s, "batch", batch);
    obs_span_end(tracer, &s, ERR_OK);
}

void wallet_trace_end(struct wallet_job *j)
{
    struct wallet_trace *t = &j->trace;
    struct obs_tracer *tracer = svc_tracer(j->w->svc);
    struct obs_span root;
    if (!t->self.sampled)
        return;
    int64_t now = wallet_now_ns(j->w), answered = t->answered_ns ? t->answered_ns : now,
            sent = t->sent_ns ? t->sent_ns : now;
    part(j, "wallet.auth", t->began_ns, t->verified_ns, 0, 0);
    part(j, "wallet.claim", t->verified_ns, t->claimed_ns, 0, 0);
    part(j, "wallet.queue", t->claimed_ns, sent, 0, 0);
    if (t->sent_ns) {
        part(j, "wallet.ledger", sent, answered, j->tries, t->batch);
        part(j, "wallet.settle", answered, now, 0, 0);
    }
    t->settled_ns = now;
    obs_span_begin(tracer, &t->self, "wallet.request", &root);
    root.self = t->self;
    memcpy(root.parent_id, t->parent_id, sizeof root.parent_id);
    begin_at(&root, t->began_ns);
    obs_span_text(&root, "op", str_from_c(wallet_kind_name(j->op.kind)));
    obs_span_text(&root, "txid", str_from_c(j->txid));
    obs_span_text(&root, "outcome",
                  str_from_c(j->answer.no.err == ERR_OK ? "committed" : err_code(j->answer.no.err)));
    obs_span_end(tracer, &root, j->answer.no.err);
}

void wallet_trace_replied(const struct wallet_job *j)
{
    if (j->trace.self.sampled)
        part(j, "wallet.reply", j->trace.settled_ns, wallet_now_ns(j->w), 0, 0);
}
