/*
 * The scheduler: one run per (tenant, epoch). It joins equal requests, refuses different ones, charges memory and feeds
 * the workers. It never waits for the disk, the ledger or the network; it may wait 50-150 ms once for room in `work`.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "services/rewarder/rewarder.h"
#include "services/rewarder/trace.h"

enum { DEFERRED_MAX = 64, TICK_MS = 1000, DEFERRED_TICK_MS = 20 };

/* A job that can never fit is refused, one that does not fit now waits its turn. */
static const uint64_t job_base_bytes = 32u << 20, job_row_bytes = 320;

struct scheduler {
    struct rewarder *r;
    struct rewarder_item *deferred[DEFERRED_MAX]; /* admitted, waiting for memory; oldest first */
    size_t deferred_n;
};

static void done(struct rewarder *r, struct rewarder_item *it)
{
    it->rq = NULL;
    rewarder_item_destroy(r, it);
}

/* `details` is a JSON object or "". */
static void refuse_with(struct rewarder *r, struct rewarder_item *it, enum err e, const char *detail,
                        const char *details) RT_BLOCKS
{
    if (it->rq)
        net_reply_problem_details(it->rq, e, detail, bytes_of(details, strlen(details)));
    it->rq = NULL;
    rewarder_item_abandon(r, it);
}

static void refuse(struct rewarder *r, struct rewarder_item *it, enum err e, const char *detail) RT_BLOCKS
{
    refuse_with(r, it, e, detail, "");
}

/* Into `work`, with the one retry its policy allows. */
static enum err enqueue(struct rewarder *r, struct rewarder_item *it) RT_BLOCKS
{
    struct rt_chan_stats s = rt_chan_stats(r->work);
    if (s.depth == s.capacity) /* nobody else sends: it is tried again, or room comes just now */
        REWARDER_COUNT(r, retries, "work");
    enum err e = rt_chan_send(r->work, it, deadline_in_ms(1000));
    if (e == ERR_BUSY)
        REWARDER_COUNT(r, queue_dropped, "work");
    return e;
}

static bool charge(struct rewarder *r, struct rewarder_item *it, uint64_t rows)
{
    uint64_t need = job_base_bytes + job_row_bytes * rows;
    uint64_t used = atomic_load_explicit(&r->memory_used, memory_order_relaxed);
    if (used && used + need > rewarder_config(r)->compute_memory)
        return false; /* an idle service may run any job that was admitted */
    atomic_fetch_add_explicit(&r->memory_used, need, memory_order_relaxed);
    it->charged = need;
    return true;
}

struct admission {
    const struct rewarder_item *it;
    const struct rewarder_input *in; /* NULL: to be fetched */
    struct rewarder *r;
};

static struct rewarder_run *new_run(const struct admission *a)
{
    struct rewarder_run *run =
        rewarder_run_create(str_from_c(a->it->tenant), str_from_c(a->it->epoch), a->it->dry);
    if (!run)
        return NULL;
    const struct rewarder_policy *p = a->it->policy->policy;
    run->policy = rewarder_policy_ref(a->it->policy);
    run->began_ns = os_now_ns();
    struct deadline by = deadline_in_ms(rewarder_config(a->r)->epoch_duration / 2);
    run->deadline_ns = deadline_min(by, a->it->by).at_ns;
    if (a->it->rq)
        snprintf(run->corr_id, sizeof run->corr_id, "%.*s", STR_ARG(net_req_corr_id(a->it->rq)));
    run->info.state = a->in ? REWARDER_QUEUED : REWARDER_SEALING;
    run->info.inputs_cid = a->it->cid;
    run->info.policy_hash = p->hash;
    snprintf(run->info.policy_id, sizeof run->info.policy_id, "%s", p->id);
    snprintf(run->info.funding, sizeof run->info.funding, "%s", p->funding);
    snprintf(run->info.asset, sizeof run->info.asset, "%s", p->asset);
    if (a->in) {
        run->info.digest = a->in->digest;
        run->info.run_key =
            rewarder_run_key(str_from_c(a->it->tenant), str_from_c(a->it->epoch), &p->hash, &a->in->digest);
        run->info.has_key = true;
    }
    return run;
}

static bool same_run(const struct rewarder_run_info *held, const struct rewarder_run *mine)
{
    if (held->has_key && mine->info.has_key)
        return sha256_eq(&held->run_key, &mine->info.run_key);
    return sha256_eq(&held->inputs_cid, &mine->info.inputs_cid) &&
           sha256_eq(&held->policy_hash, &mine->info.policy_hash);
}

/* Somebody has the epoch: the same run is joined or shown, another one is a conflict. */
static void answer_holder(struct rewarder *r, struct rewarder_item *it, struct rewarder_run *mine,
                          struct rewarder_run *holder)
{
    struct rewarder_run_info held = rewarder_run_read(&r->registry, holder);
    if (held.state == REWARDER_QUARANTINED || !same_run(&held, mine)) {
        rewarder_log_run(r, OBS_INFO, "run.conflict", holder, NULL);
        if (it->rq)
            rewarder_reply_conflict(r, it->rq, holder);
    } else {
        rewarder_log_run(r, OBS_DEBUG, "run.joined", holder, NULL);
        if (it->rq)
            rewarder_reply_run(r, it->rq, rewarder_state_has_files(held.state) ? 200 : 202, holder);
    }
    rewarder_run_unref(holder);
}

static void start_or_defer(struct scheduler *s, struct rewarder_item *it, uint64_t rows) RT_BLOCKS
{
    struct rewarder *r = s->r;
    struct net_req *rq = it->rq;
    struct rewarder_run *run = rewarder_run_ref(it->run);
    enum err e = ERR_OK;
    it->rq = NULL; /* the verdict is ours; the worker answers nobody */
    rewarder_log_run(r, OBS_INFO, "run.admitted", run, NULL); /* before a worker can have news of it */
    if (s->deferred_n == 0 && charge(r, it, rows)) {
        e = enqueue(r, it);
    } else if (s->deferred_n < DEFERRED_MAX) {
        it->bytes = rows;
        s->deferred[s->deferred_n++] = it;
    } else {
        e = ERR_BUSY;
    }
    if (e != ERR_OK) {
        rewarder_run_fail(r, run, ERR_UNAVAILABLE, "the work queue is full", NULL);
        if (rq)
            net_reply_problem(rq, ERR_UNAVAILABLE, "the work queue is full");
        rewarder_item_destroy(r, it);
    } else if (rq) {
        rewarder_reply_run(r, rq, 202, run);
    }
    rewarder_run_unref(run);
}

static void admit(struct scheduler *s, struct rewarder_item *it, const struct rewarder_input *in) RT_BLOCKS
{
    struct rewarder *r = s->r;
    struct rewarder_run *holder = NULL;
    struct rewarder_run *run = new_run(&(struct admission){it, in, r});
    struct obs_span span;
    if (!run) {
        refuse(r, it, ERR_UNAVAILABLE, "out of memory");
        return;
    }
    rewarder_trace_admit(r, it->rq, run, &span);
    enum err e = rewarder_registry_claim(&r->registry, run, &holder);
    if (e == ERR_EXISTS) {
        answer_holder(r, it, run, holder);
        rewarder_run_unref(run);
        done(r, it);
    } else if (e != ERR_OK) {
        rewarder_run_unref(run);
        refuse(r, it, ERR_UNAVAILABLE, "out of memory");
    } else {
        it->run = run;
        start_or_defer(s, it, in ? in->rows : rewarder_config(r)->max_rows);
    }
    rewarder_trace_end(r, &span, e);
}

static void refuse_mismatch(struct rewarder *r, struct rewarder_item *it,
                            const struct rewarder_input *in) RT_BLOCKS
{
    char detail[REWARDER_TEXT_CHARS];
    if (strcmp(in->tenant, it->tenant) != 0) /* whose it is, is not told */
        snprintf(detail, sizeof detail, "the snapshot is of another tenant");
    else
        snprintf(detail, sizeof detail, "the snapshot is of epoch %s, not %s", in->epoch, it->epoch);
    refuse(r, it, ERR_EPOCH_MISMATCH, detail);
}

static uint64_t rows_that_fit(const struct rewarder_config *cfg)
{
    return (cfg->compute_memory - job_base_bytes) / job_row_bytes;
}

/* What a look at the policy and the snapshot's heading tells. ERR_OK: nothing speaks against it yet. */
static enum err fits(const struct rewarder_policy *p, const struct rewarder_input *in,
                     const struct rewarder_config *cfg, const char **out_detail, char details[64])
{
    char dim[REWARDER_DIM_MAX + 3];
    *out_detail = "the computation would not fit limits.compute_memory";
    snprintf(details, 64, "{\"max\":%llu}", (unsigned long long)rows_that_fit(cfg));
    if (in->rows > rows_that_fit(cfg))
        return ERR_TOO_MANY_ROWS;
    *out_detail = "the policy weighs what the snapshot does not have";
    for (unsigned i = 0; i < p->weight_count; i++) {
        snprintf(dim, sizeof dim, "\"%s\"", p->weights[i].dim);
        snprintf(details, 64, "{\"dim\":%s}", dim);
        if (!strstr(in->dims, dim))
            return ERR_DIMENSION_MISSING;
    }
    *out_detail = "webster cannot split a pool of 2^127 or more";
    details[0] = '\0';
    return p->rounding == REWARDER_WEBSTER && p->pool >> 127 ? ERR_POOL_TOO_LARGE : ERR_OK;
}

static void schedule_compute(struct scheduler *s, struct rewarder_item *it) RT_BLOCKS
{
    struct rewarder *r = s->r;
    const struct rewarder_config *cfg = rewarder_config(r);
    struct rewarder_input in;
    size_t held[4];
    const char *detail = NULL;
    char details[64] = "";
    bool known = rewarder_registry_input(&r->registry, &it->cid, &in);
    enum err e = known ? fits(it->policy->policy, &in, cfg, &detail, details) : ERR_OK;
    struct rewarder_run *holder =
        rewarder_registry_find(&r->registry, str_from_c(it->tenant), str_from_c(it->epoch), it->dry);
    rewarder_run_unref(holder);
    if (it->rq && net_req_gone(it->rq))
        refuse(r, it, ERR_TIMEOUT, "no verdict in time");
    else if (atomic_load(&r->seals_off))
        refuse(r, it, ERR_SAFE_MODE, "a flush to disk failed; restart the service");
    else if (!known && !*cfg->accounting_base_url)
        refuse(r, it, ERR_INPUTS_NOT_FOUND, "no such inputs here, and no accounting server is configured");
    else if (known && (strcmp(in.tenant, it->tenant) || strcmp(in.epoch, it->epoch)))
        refuse_mismatch(r, it, &in);
    else if (e != ERR_OK)
        refuse_with(r, it, e, detail, details);
    else if (!holder && !it->dry &&
             rewarder_registry_count_unsettled(&r->registry, held) >= cfg->max_unsettled_runs)
        refuse(r, it, ERR_UNAVAILABLE, "too many runs wait for the ledger");
    else
        admit(s, it, known ? &in : NULL);
}

/* Jobs that need a worker but no registry: passed on as they are. */
static void pass_on(struct scheduler *s, struct rewarder_item *it) RT_BLOCKS
{
    enum err e = enqueue(s->r, it);
    if (e != ERR_OK)
        refuse(s->r, it, e == ERR_CLOSED ? ERR_DRAINING : ERR_UNAVAILABLE,
               e == ERR_CLOSED ? "the service is shutting down" : "the work queue is full");
}

static void start_deferred(struct scheduler *s) RT_BLOCKS
{
    while (s->deferred_n) {
        struct rewarder_item *it = s->deferred[0];
        if (!charge(s->r, it, it->bytes))
            return;
        memmove(s->deferred, s->deferred + 1, (s->deferred_n - 1) * sizeof *s->deferred);
        s->deferred_n--;
        if (enqueue(s->r, it) == ERR_OK)
            continue;
        rewarder_run_fail(s->r, it->run, ERR_UNAVAILABLE, "the work queue is full", NULL);
        rewarder_item_destroy(s->r, it);
    }
}

static void drop_deferred(struct scheduler *s)
{
    for (size_t i = 0; i < s->deferred_n; i++) {
        rewarder_run_fail(s->r, s->deferred[i]->run, ERR_CANCELED, "the service is shutting down", NULL);
        rewarder_item_destroy(s->r, s->deferred[i]);
    }
    s->deferred_n = 0;
}

static void schedule(struct scheduler *s, struct rewarder_item *it) RT_BLOCKS
{
    if (svc_draining(s->r->svc) && it->kind != REWARDER_READ) { /* who reads is answered to the end */
        atomic_fetch_add_explicit(&s->r->drain.refused, 1, memory_order_relaxed);
        refuse(s->r, it, ERR_DRAINING, "the service is shutting down");
    } else if (it->kind == REWARDER_COMPUTE)
        schedule_compute(s, it);
    else
        pass_on(s, it);
}

enum err rewarder_scheduler_run(struct rt_task *self, void *arg)
{
    struct scheduler s = {.r = arg};
    for (;;) {
        void *item;
        rt_task_beat(self);
        enum err e =
            rt_chan_recv(s.r->work_req, deadline_in_ms(s.deferred_n ? DEFERRED_TICK_MS : TICK_MS), &item);
        if (e == ERR_OK)
            schedule(&s, item);
        else if (e != ERR_TIMEOUT) {
            drop_deferred(&s);
            return e == ERR_CLOSED ? ERR_OK : e;
        }
        start_deferred(&s);
    }
}
