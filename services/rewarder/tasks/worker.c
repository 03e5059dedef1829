/*
 * Workers: snapshot parsing, computations (as lead or helper), shadow runs, and everything else that takes time but no
 * single owner. A worker that is told to fail gives its job back once; the second time the job fails.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "services/rewarder/core/snapshot.h"
#include "services/rewarder/rewarder.h"
#include "services/rewarder/tasks/job.h"
#include "services/rewarder/tasks/worker.h"
#include "services/rewarder/trace.h"

enum { TICK_MS = 1000 };

/* One worker's turn with one item. */
struct turn {
    struct rewarder *r;
    struct rt_task *self;
    struct rewarder_item *it;
    bool given_back;      /* the item goes to another worker */
    struct obs_span span; /* of its computation */
};

static void answer(struct rewarder_item *it, enum err e, const char *detail, struct bytes details)
{
    if (it->rq)
        net_reply_problem_details(it->rq, e, detail, details);
    it->rq = NULL;
}

struct rewarder_settler *rewarder_worker_reader(struct rewarder *r, struct rt_task *self)
{
    unsigned i = rt_task_index(self);
    CHECK(i < sizeof r->readers / sizeof *r->readers);
    if (!r->readers[i])
        r->readers[i] = rewarder_open_settler(r, 0, 1, i);
    return r->readers[i];
}

/* ---- snapshots ---- */

static enum err send_result(struct rewarder *r, struct rewarder_outcome *o) RT_BLOCKS
{
    enum err e = rt_chan_send(r->results, o, rewarder_send_deadline(r));
    if (e != ERR_OK)
        obs_counter_inc(obs_counter(r->metrics[REWARDER_M_dropped_results]));
    return e;
}

void rewarder_worker_still_reading(void *ctx, uint64_t done, uint64_t of)
{
    (void)done;
    (void)of;
    rt_task_beat(ctx);
}

static void ingest(struct turn *t) RT_BLOCKS
{
    struct rewarder *r = t->r;
    struct rewarder_item *it = t->it;
    struct rewarder_file raw;
    struct rewarder_snapshot snap;
    struct rewarder_snapshot_error why = {.reason = ""};
    struct rewarder_trouble trouble = {.detail = NULL};
    uint64_t rows_max = rewarder_config(r)->max_rows;
    enum err e = rewarder_file_load(&r->files, it->spool, &raw);
    if (e != ERR_OK) {
        answer(it, ERR_UNAVAILABLE, "the spooled upload cannot be read", (struct bytes){NULL, 0});
        return;
    }
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_SNAPSHOT, NULL);
    if (o)
        sha256_of(raw.bytes.p, raw.bytes.n, &o->input.cid);
    if (!o) {
        e = ERR_NO_MEMORY;
    } else if (it->has_expected && !sha256_eq(&it->expected, &o->input.cid)) {
        e = ERR_DIGEST_MISMATCH;
        rewarder_worker_tell_digest(&it->expected, &o->input.cid, &trouble);
    } else {
        int64_t began = os_now_ns();
        e = rewarder_snapshot_parse_watched(
            raw.bytes, it->ndjson ? REWARDER_NDJSON : REWARDER_JSON, rows_max,
            &(struct rewarder_watcher){rewarder_worker_still_reading, t->self}, &snap, &why);
        obs_hist_observe(OBS_HIST_OF(r->metrics[REWARDER_M_phase], "parse"),
                         (double)(os_now_ns() - began) / 1e9);
        if (e != ERR_OK)
            rewarder_worker_tell_snapshot(e, &why, rows_max, &trouble);
    }
    uint64_t bytes = raw.bytes.n;
    rewarder_file_unload(&raw);
    if (e == ERR_OK && !str_eq_c(snap.rows.tenant, it->tenant)) {
        rewarder_snapshot_fini(&snap);
        e = ERR_FORBIDDEN;
        trouble.detail = "the snapshot is another tenant's";
    }
    if (e != ERR_OK) {
        answer(it, e, trouble.detail ? trouble.detail : err_title(e),
               bytes_of(trouble.details, strlen(trouble.details)));
        if (o)
            rewarder_outcome_destroy(r, o);
        return;
    }
    rewarder_worker_describe(&snap, &o->input);
    o->input.bytes = bytes;
    o->input.ndjson = it->ndjson;
    memcpy(o->spool, it->spool, sizeof o->spool);
    it->spool[0] = '\0'; /* the artifact writer's now */
    o->rows = snap.canonical;
    o->rows_n = snap.canonical_bytes;
    o->rq = it->rq;
    it->rq = NULL;
    if (send_result(r, o) != ERR_OK) {
        net_reply_problem(o->rq, ERR_UNAVAILABLE, "the result could not be written in time");
        o->rq = NULL;
        rewarder_outcome_destroy(r, o);
    }
}

/* ---- computing ---- */

/* Asked by the lead between two parts: a phase of many may take longer than a worker may be silent. */
static bool must_stop(void *ctx)
{
    struct turn *t = ctx;
    rt_task_beat(t->self);
    return rt_task_canceled(t->self) || deadline_passed(deadline_at_ns(t->it->run->deadline_ns)) ||
           (svc_draining(t->r->svc) && rt_task_stopping(t->self));
}

static void note_phase(void *ctx, enum rewarder_phase phase, uint64_t parts)
{
    struct turn *t = ctx;
    struct rewarder_run *run = t->it->run;
    rt_task_beat(t->self);
    atomic_store_explicit(&run->phase, phase, memory_order_relaxed);
    atomic_store_explicit(&run->done, 0, memory_order_relaxed);
    atomic_store_explicit(&run->of, parts, memory_order_relaxed);
}

static void note_progress(void *ctx, uint64_t done)
{
    struct turn *t = ctx;
    atomic_store_explicit(&t->it->run->done, done, memory_order_relaxed);
}

static void note_took(void *ctx, enum rewarder_phase phase, int64_t ns)
{
    struct turn *t = ctx;
    obs_hist_observe(OBS_HIST_OF(t->r->metrics[REWARDER_M_phase], rewarder_phase_name(phase)),
                     (double)ns / 1e9);
    rewarder_trace_part(t->r, &t->span,
                        &(struct rewarder_trace_part){.name = "rewarder.phase",
                                                      .key = "phase",
                                                      .text = str_from_c(rewarder_phase_name(phase)),
                                                      .took_ns = ns});
}

static void send_tickets(struct turn *t, struct rewarder_job *job, uint64_t parts)
{
    uint64_t helpers = rewarder_workers(rewarder_config(t->r));
    if (helpers > parts)
        helpers = parts;
    for (uint64_t i = 1; i < helpers; i++) {
        struct rewarder_item *ticket = rewarder_item_create(REWARDER_HELP, NULL);
        if (!ticket)
            return;
        ticket->job = rewarder_job_ref(job);
        if (rt_chan_try_send(t->r->work, ticket) != ERR_OK) {
            rewarder_item_destroy(t->r, ticket);
            return;
        }
    }
}

static enum err compute_with(struct turn *t, struct rewarder_calc *calc) RT_BLOCKS
{
    struct rewarder_job *job = rewarder_job_create(
        calc, &(struct rewarder_job_hooks){t, must_stop, note_phase, note_progress, note_took});
    if (!job)
        return ERR_NO_MEMORY;
    send_tickets(t, job, rewarder_calc_parts(calc, REWARDER_SCORES));
    enum err e = rewarder_job_lead(job);
    rewarder_job_unref(job);
    return e;
}

static struct rewarder_outcome *pack(struct turn *t, struct rewarder_calc *calc,
                                     const struct rewarder_rows *rows, const struct rewarder_pool *pool)
{
    struct rewarder_run *run = t->it->run;
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_RUN, run);
    if (!o)
        return NULL;
    o->result = *rewarder_calc_result(calc);
    struct rewarder_manifest m = {.tenant = str_from_c(run->tenant),
                                  .epoch = str_from_c(run->epoch),
                                  .policy = run->policy->policy,
                                  .rows = rows,
                                  .pool = *pool,
                                  .result = &o->result};
    rewarder_manifest_write(&m, &o->manifest);
    rewarder_commitment_write(&o->result, &o->commitment);
    o->tree_n = rewarder_tree_bytes(rewarder_calc_tree(calc));
    o->tree = malloc(o->tree_n);
    if (!o->tree || o->manifest.err != ERR_OK || o->commitment.err != ERR_OK) {
        rewarder_outcome_destroy(t->r, o);
        return NULL;
    }
    rewarder_tree_encode(rewarder_calc_tree(calc), o->tree);
    o->payouts = rewarder_calc_take_file(calc, &o->payouts_n);
    return o;
}

/*
 * The emitter does not take handles: nothing of this run may leave before somebody has looked. `halt` stops it at once; the
 * quarantine follows the result through the same queue, so it is written after the seal. (In a drain the run just stays
 * sealed and goes on at the next start.)
 */
static void escalate(struct turn *t) RT_BLOCKS
{
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_UNANNOUNCED, t->it->run);
    atomic_store(&t->it->run->halt, true);
    if (o && send_result(t->r, o) != ERR_OK)
        rewarder_outcome_destroy(t->r, o);
}

/* Our thread failed, not the job: it is given back, once, and somebody else leads it. */
static bool give_back(struct turn *t, enum err e)
{
    struct rewarder_item *it = t->it;
    if (e != ERR_CANCELED || !rt_task_canceled(t->self) || svc_draining(t->r->svc) || it->attempts > 0)
        return false;
    it->attempts = 1;
    t->given_back = true;
    return true;
}

/* The job is over without a result because its thread had to stop: for the second time, or for a reason of its own. */
static void fail_interrupted(struct turn *t)
{
    struct rewarder_run *run = t->it->run;
    bool late = deadline_passed(deadline_at_ns(run->deadline_ns));
    const char *why = late                      ? "the deadline passed"
                      : svc_draining(t->r->svc) ? "the service is shutting down"
                      : t->it->attempts > 0 && rt_task_canceled(t->self)
                          ? "two workers failed while they had it"
                          : "the computation was interrupted";
    rewarder_run_fail(t->r, run, late ? ERR_TIMEOUT : ERR_CANCELED, why, NULL);
}

/* The result is on its way to the writer; the emitter is told, and waits for the seal. */
static void hand_over(struct turn *t, struct rewarder_outcome *o) RT_BLOCKS
{
    struct rewarder *r = t->r;
    struct rewarder_run *run = t->it->run;
    atomic_store_explicit(&run->phase, REWARDER_PHASES, memory_order_relaxed);
    bool emit = !run->dry;
    enum err e = send_result(r, o);
    if (e != ERR_OK) {
        rewarder_outcome_destroy(r, o);
        if (give_back(t, e))
            return;
        if (e == ERR_CANCELED)
            fail_interrupted(t);
        else
            rewarder_run_fail(r, run, ERR_UNAVAILABLE, "the result could not be written in time", NULL);
        return;
    }
    if (!emit)
        return;
    e = rt_chan_send(r->intents, rewarder_run_ref(run), rewarder_send_deadline(r));
    if (e == ERR_CANCELED) /* may not wait any more, but need not if there is room */
        e = rt_chan_try_send(r->intents, run);
    if (e != ERR_OK) {
        rewarder_run_unref(run);
        if (!svc_draining(r->svc))
            escalate(t);
    }
}

static void breach(struct turn *t, enum err e) RT_BLOCKS
{
    struct rewarder *r = t->r;
    const char *kind = e == ERR_OVERFLOW ? "overflow" : "conservation";
    REWARDER_COUNT(r, invariant, kind);
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_BREACH, t->it->run);
    if (o)
        rewarder_note_quarantined(t->it->run,
                                  &(struct rewarder_quarantine){
                                      .n = rewarder_run_read(&r->registry, t->it->run).n,
                                      .kind = kind,
                                      .reason = "the computation broke an invariant; nothing was emitted",
                                      .now_ms = rewarder_now_ms(r)},
                                  &o->line);
    if (!o || send_result(r, o) != ERR_OK) {
        if (o)
            rewarder_outcome_destroy(r, o);
        rewarder_run_fail(r, t->it->run, e, "the computation broke an invariant", NULL);
    }
}

static void explain_refusal(const struct rewarder_calc *calc, const struct rewarder_policy *p, enum err e,
                            unsigned index, char *out, size_t cap)
{
    out[0] = '\0';
    if (e == ERR_DIMENSION_MISSING)
        snprintf(out, cap, "{\"dim\":\"%s\"}", p->weights[index].dim);
    else if (e == ERR_RESERVED_ACCOUNT)
        snprintf(out, cap, "{\"role\":\"%s\"}", rewarder_calc_reserved_role(calc));
}

static void compute_rows(struct turn *t, const struct rewarder_rows *rows) RT_BLOCKS
{
    struct rewarder *r = t->r;
    struct rewarder_run *run = t->it->run;
    const struct rewarder_policy *p = run->policy->policy;
    struct rewarder_pool pool;
    struct rewarder_calc *calc = NULL;
    unsigned index = 0;
    char details[128];
    rewarder_trace_begin(r, run, "rewarder.compute", &t->span);
    enum err e = rewarder_worker_pool(r, t->self, t->it, &pool);
    if (e == ERR_OK)
        e = rewarder_calc_create(rows, p, pool.declared, rewarder_config(r)->partition_rows, &calc, &index);
    if (e == ERR_OK)
        e = compute_with(t, calc);
    obs_span_u64(&t->span, "rows", rows->count);
    rewarder_trace_end(r, &t->span, e);
    if (e == ERR_OK) {
        obs_counter_add(obs_counter(r->metrics[REWARDER_M_rows]), rows->count);
        struct rewarder_outcome *o = pack(t, calc, rows, &pool);
        if (o)
            hand_over(t, o);
        else
            rewarder_run_fail(r, run, ERR_UNAVAILABLE, "out of memory", NULL);
    } else if (e == ERR_OVERFLOW || e == ERR_CONSERVATION) {
        breach(t, e);
    } else if (give_back(t, e)) {
        ;
    } else if (e == ERR_CANCELED) {
        fail_interrupted(t);
    } else {
        explain_refusal(calc, p, e, index, details, sizeof details);
        rewarder_run_fail(r, run, e, NULL, details);
    }
    rewarder_calc_destroy(calc);
}

/* Returns false when the item was given back to the queue. */
static bool compute(struct turn *t) RT_BLOCKS
{
    struct rewarder *r = t->r;
    struct rewarder_item *it = t->it;
    struct rewarder_inputs in = {.file = {.mapping = NULL}};
    struct rewarder_trouble trouble = {.detail = NULL};
    rewarder_trace_begin(r, it->run, "rewarder.seal", &t->span);
    enum err e = rewarder_worker_inputs(r, t->self, it, &in, &trouble);
    rewarder_trace_end(r, &t->span, e);
    if (e == ERR_OK)
        e = rewarder_run_move(&r->registry, it->run, REWARDER_EV_TAKEN, NULL, NULL);
    if (e == ERR_OK)
        compute_rows(t, &in.rows);
    else if (give_back(t, e))
        ;
    else if (e == ERR_CANCELED)
        fail_interrupted(t);
    else
        rewarder_run_fail(r, it->run, e, trouble.detail, trouble.details);
    rewarder_file_unload(&in.file);
    if (!t->given_back)
        return true;
    if (rt_chan_try_send(r->work, it) == ERR_OK)
        return false;
    rewarder_run_fail(r, it->run, ERR_CANCELED, "its worker failed", NULL);
    return true;
}

static void work_on(struct turn *t) RT_BLOCKS
{
    struct rewarder *r = t->r;
    struct rewarder_item *it = t->it;
    bool ours = true;
    switch (it->kind) {
    case REWARDER_COMPUTE:
        ours = compute(t);
        break;
    case REWARDER_HELP:
        rewarder_job_help(it->job, t->self);
        break;
    case REWARDER_INGEST:
        ingest(t);
        if (it->spool[0])
            (void)!store_disk_unlink(r->files.disk, it->spool);
        atomic_fetch_sub_explicit(&r->spool_used, it->bytes, memory_order_relaxed);
        break;
    case REWARDER_EMIT:
    case REWARDER_READ:
    case REWARDER_ADMIN:
        rewarder_worker_errand(r, t->self, it);
        break;
    case REWARDER_SHADOW:
        rewarder_worker_shadow(r, t->self, it);
        break;
    }
    if (ours)
        rewarder_item_destroy(r, it);
}

/* What is left in `work` when the drain's deadline passes. */
static void cancel_item(struct rewarder *r, struct rewarder_item *it) RT_BLOCKS
{
    if (it->kind == REWARDER_COMPUTE)
        rewarder_run_fail(r, it->run, ERR_CANCELED, "the service is shutting down", NULL);
    answer(it, ERR_DRAINING, "the service is shutting down", (struct bytes){NULL, 0});
    rewarder_item_abandon(r, it);
}

enum err rewarder_worker_run(struct rt_task *self, void *arg)
{
    struct rewarder *r = arg;
    for (;;) {
        void *item;
        rt_task_beat(self);
        enum err e = rt_chan_recv(r->work, deadline_in_ms(TICK_MS), &item);
        if (e == ERR_OK && rt_task_canceled(self) && svc_draining(r->svc))
            cancel_item(r, item);
        else if (e == ERR_OK)
            work_on(&(struct turn){.r = r, .self = self, .it = item});
        else if (e != ERR_TIMEOUT)
            return e == ERR_CLOSED ? ERR_OK : e;
    }
}
