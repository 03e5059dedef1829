#include "services/ledger/trace.h"

#include "base/hex.h"

static uint64_t first_seq(const struct ledger_job *job)
{
    for (uint32_t i = 0; i < job->n_units; i++)
        if (job->units[i].verdict == VERDICT_COMMITTED || job->units[i].verdict == VERDICT_DUPLICATE)
            return job->units[i].seq;
    return 0;
}

void ledger_trace_stage(struct ledger *l, const struct ledger_job *job, const char *stage,
                        const char *queue, uint64_t batch, int64_t began_ns, enum err err)
{
    if (!job->trace.sampled || l->tracer == NULL)
        return;
    struct obs_span s;
    char cap[17];
    uint64_t seq = first_seq(job);
    struct obs_moment now = obs_tracer_now(l->tracer);
    obs_span_begin_at(l->tracer, &job->trace, stage, &now, began_ns, &s);
    hex_encode(job->who.cap, 8, cap);
    obs_span_text(&s, "corr_id", str_from_c(job->corr_id));
    obs_span_text(&s, "kid", job->who.kid);
    obs_span_text(&s, "capability_ref", str_from_c(cap));
    obs_span_text(&s, "queue", str_from_c(queue));
    obs_span_u64(&s, "batch_size", batch);
    if (job->n_units != 0 && job->units[0].u.n != 0)
        obs_span_text(&s, "entry_id", job->units[0].u.entries[0].id);
    if (seq != 0)
        obs_span_u64(&s, "seq", seq);
    obs_span_end_at(l->tracer, &s, now.mono_ns, err);
}
