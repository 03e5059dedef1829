#include "services/ledger/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/cap.h"
#include "base/check.h"
#include "services/ledger/replica.h"
#include "store/file_replace.h"

void ledger_settings_default(struct ledger_settings *s)
{
    *s = (struct ledger_settings){
        .q_ingress = 2000,
        .q_preval = 2000,
        .q_commit = 1000,
        .q_read = 512,
        .limits = {.max_accounts = 10000000,
                   .max_open_holds = 1000000,
                   .max_reversals = 1000000,
                   .max_assets = 65535,
                   .max_lanes = 256,
                   .max_hold_ms = UINT64_C(8760) * 3600 * 1000},
        .max_entries = 1024,
        .max_body_bytes = 1 << 20,
        .max_inflight_bytes = 64 << 20,
        .max_jobs = 512 + 4096 + 512, /* HTTP + OAP + in-process */
        .max_subscribers = 64,
        .request_ms = 5000,
        .commit_wait_ms = 5000,
        .commit_max_entries = 8192,
        .commit_max_bytes = 4 << 20,
        .direct_io = true,
        .segment_bytes = 64 << 20,
        .align = 4096,
        .compress = true,
        .scrub_rate = 8 << 20,
        .checkpoint_entries = 262144,
        .checkpoint_retain = 3,
        .merge_slice_bytes = 1 << 20,
        .checkpoint_interval_ms = 60000,
        .public_roots = true,
        .amnesia_max_entries = 1000000,
        .replica_stream = "ledger",
        .replica_lease_ms = 5000,
        .replica_timeout_ms = 5000,
        .replica_poll_ms = 10,
        .replica_quorum = 1,
        .replica_auto = true,
        .replica_rejoin = true,
        .replica_local = true,
    };
}

static const char *const cause_names[] = {
    [CAUSE_NONE] = "none",
    [CAUSE_IO_ERROR] = "io_error",
    [CAUSE_CORRUPT] = "corrupt",
    [CAUSE_CLEAN_MISMATCH] = "clean_mismatch",
    [CAUSE_BEHIND_CHECKPOINT] = "behind_checkpoint",
    [CAUSE_INVARIANT] = "invariant",
    [CAUSE_FENCED] = "fenced",
    [CAUSE_DRAIN_TIMEOUT] = "drain_timeout",
    [CAUSE_SCRUB] = "scrub",
    [CAUSE_OPERATOR] = "operator",
};

const char *ledger_cause_name(enum ledger_cause c)
{
    CHECK((size_t)c < sizeof cause_names / sizeof cause_names[0]);
    return cause_names[c];
}

enum err ledger_refuse(struct ledger *l, enum err err, const char *why)
{
    obs_log(l->deps.log, OBS_ERROR, "open_refused", OBS_STR("why", why), OBS_END);
    if (l->deps.why != NULL)
        snprintf(l->deps.why, LEDGER_WHY_MAX, "ledger: %s", why);
    return err;
}

void ledger_head_read(const struct ledger *l, struct ledger_head *out)
{
    uint64_t w[6], before, after;
    do {
        before = atomic_load_explicit(&l->head_version, memory_order_acquire);
        out->seq = atomic_load_explicit(&l->head_seq, memory_order_relaxed);
        for (size_t i = 0; i < 6; i++)
            w[i] = atomic_load_explicit(&l->head_words[i], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire); /* pairs with publish's release fence */
        after = atomic_load_explicit(&l->head_version, memory_order_relaxed);
    } while (before != after || (before & 1));
    out->group_no = w[0];
    out->ledger_ms = w[1];
    memcpy(out->root.b, &w[2], 32);
}

void ledger_head_publish(struct ledger *l, const struct ledger_head *h)
{
    uint64_t v = atomic_load_explicit(&l->head_version, memory_order_relaxed),
             w[6] = {h->group_no, h->ledger_ms};
    memcpy(&w[2], h->root.b, 32);
    atomic_store_explicit(&l->head_version, v + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < 6; i++)
        atomic_store_explicit(&l->head_words[i], w[i], memory_order_relaxed);
    atomic_store_explicit(&l->head_seq, h->seq,
                          memory_order_release); /* everything below it was written before */
    atomic_store_explicit(&l->head_version, v + 2, memory_order_release);
}

void ledger_note_spare(struct ledger *l)
{
    if (l->sink->journal != NULL && store_journal_wants_spare(l->sink->journal))
        rt_bell_ring(&l->segment_want);
}

void ledger_listen(struct ledger *l)
{
    atomic_fetch_add_explicit(&l->listeners, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with ledger_is_heard */
}

void ledger_unlisten(struct ledger *l)
{
    CHECK(atomic_fetch_sub_explicit(&l->listeners, 1, memory_order_relaxed) > 0);
}

bool ledger_is_heard(const struct ledger *l)
{
    atomic_thread_fence(memory_order_seq_cst); /* pairs with ledger_listen */
    return atomic_load_explicit(&l->listeners, memory_order_relaxed) > 0;
}

bool ledger_enter_safe_mode(struct ledger *l, enum ledger_cause cause, const char *detail)
{
    int none = CAUSE_NONE;
    if (!atomic_compare_exchange_strong(&l->cause, &none, (int)cause))
        return false;
    if (l->m[LEDGER_M_safe_mode] != NULL)
        obs_gauge_set(obs_gauge(l->m[LEDGER_M_safe_mode]), 1);
    obs_log(l->deps.log, OBS_ERROR, "safe_mode_enter", OBS_STR("cause", ledger_cause_name(cause)),
            OBS_STR("detail", detail == NULL ? "" : detail), OBS_U64("head_seq", ledger_head_seq(l)),
            OBS_END);
    return true;
}

void ledger_group_event_ref(void *ev)
{
    atomic_fetch_add_explicit(&((struct ledger_group_event *)ev)->refs, 1, memory_order_relaxed);
}

void ledger_group_event_unref(void *ev)
{
    if (atomic_fetch_sub_explicit(&((struct ledger_group_event *)ev)->refs, 1, memory_order_acq_rel) == 1)
        free(ev);
}

/* ---- intake ---- */

static enum err may_write(const struct ledger *l)
{
    if (ledger_safe_cause(l) != CAUSE_NONE)
        return ledger_safe_cause(l) == CAUSE_FENCED ? ERR_NOT_WRITER : ERR_SAFE_MODE;
    int phase = atomic_load_explicit(&l->phase, memory_order_acquire);
    if (phase == PHASE_DRAINING || phase == PHASE_STOPPED)
        return ERR_DRAINING;
    if (phase == PHASE_FOLLOWING)
        return ERR_NOT_WRITER;
    return phase == PHASE_REPLAYING ? ERR_SAFE_MODE : ERR_OK;
}

static void auth_failed(struct ledger *l, const char *reason)
{
    if (l->auth_failures != NULL)
        obs_counter_inc(OBS_COUNTER_OF(l->auth_failures, reason));
}

void ledger_refused(struct ledger *l, enum err err)
{
    if (l->m[0] != NULL)
        obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_rejected], err_code(err)));
    if (err == ERR_UNAUTHENTICATED || err == ERR_RATE_LIMITED)
        auth_failed(l, err == ERR_RATE_LIMITED ? "rate" : "unauthenticated");
}

/* Where to go instead. */
static void name_writer(struct ledger *l, struct ledger_job *job)
{
    char url[STORE_LEASE_URL_MAX + 1];
    struct str copy;
    ledger_replica_writer(l, url);
    if (strcmp(url, l->set.replica_url) == 0)
        return; /* just fenced, and not yet told by whom */
    if (url[0] == 0 || !arena_str(&job->arena, str_from_c(url), &copy))
        return;
    job->why_key = "writer";
    job->why = copy.p;
}

static enum err admit(struct ledger *l, struct ledger_job *job)
{
    enum err err = may_write(l);
    if (err == ERR_NOT_WRITER)
        name_writer(l, job);
    if (err != ERR_OK) {
        ledger_refused(l, err);
        return err;
    }
    if (atomic_fetch_add_explicit(&l->body_bytes, job->body.n, memory_order_relaxed) + job->body.n >
        l->set.max_inflight_bytes) {
        atomic_fetch_sub_explicit(&l->body_bytes, job->body.n, memory_order_relaxed);
        job->why_key = "queue";
        job->why = "inflight";
        if (l->m[LEDGER_M_busy_rejections] != NULL)
            obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_busy_rejections], "inflight"));
        ledger_refused(l, ERR_BUSY);
        return ERR_BUSY;
    }
    job->counted = true;
    atomic_fetch_add_explicit(&l->jobs_inflight, 1, memory_order_relaxed);
    job->admitted_ns = l->deps.clock->mono_ns(l->deps.clock->ctx);
    return ERR_OK;
}

/* Who is refused leaves a span too: in safe mode there are no others. */
enum err ledger_admit(struct ledger *l, struct ledger_job *job)
{
    CHECK_MAGIC(job, LEDGER_JOB_MAGIC);
    struct obs_span span;
    obs_span_begin(l->tracer, &job->trace, "ingress", &span);
    obs_span_text(&span, "corr_id", str_from_c(job->corr_id));
    obs_span_text(&span, "kid", job->who.kid);
    obs_span_text(&span, "queue", STR("ingress"));
    job->trace = span.self;
    enum err err = admit(l, job);
    obs_span_end(l->tracer, &span, err);
    return err;
}

static void count_out(struct ledger *l, struct ledger_job *job)
{
    if (!job->counted)
        return;
    job->counted = false;
    atomic_fetch_sub_explicit(&l->body_bytes, job->body.n, memory_order_relaxed);
    atomic_fetch_sub_explicit(&l->jobs_inflight, 1, memory_order_relaxed);
}

enum err ledger_not_taken(struct ledger *l, struct ledger_job *job, enum err why)
{
    count_out(l, job);
    job->why_key = "queue";
    job->why = "ingress";
    if (why == ERR_BUSY && l->m[LEDGER_M_busy_rejections] != NULL)
        obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_busy_rejections], "ingress"));
    enum err err = why == ERR_CLOSED ? ERR_DRAINING : why;
    ledger_refused(l, err);
    return err;
}

enum err ledger_submit(struct ledger *l, struct ledger_job *job)
{
    enum err err = ledger_admit(l, job);
    if (err != ERR_OK)
        return err;
    err = rt_chan_try_send(l->ingress, job);
    return err == ERR_OK ? ERR_OK : ledger_not_taken(l, job, err);
}

static void count_answer(struct ledger *l, const struct ledger_job *job)
{
    if (l->m[0] == NULL)
        return;
    if (job->err != ERR_OK) {
        ledger_refused(l, job->err);
        return;
    }
    uint64_t by[4] = {0};
    for (uint32_t i = 0; i < job->n_units; i++) {
        const struct ledger_job_unit *u = &job->units[i];
        by[u->verdict]++;
        if (u->verdict == VERDICT_REJECTED)
            obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_rejected], err_code(u->reject.reason)));
        if (u->verdict == VERDICT_REJECTED && u->reject.reason == ERR_FORBIDDEN)
            auth_failed(l, "forbidden");
    }
    for (size_t i = 0; i < 3; i++)
        if (by[i + 1] != 0)
            obs_counter_add(obs_counter_nth(l->m[LEDGER_M_units], i), by[i + 1]);
    if (job->admitted_ns != 0)
        obs_hist_observe(obs_hist(l->m[LEDGER_M_commit_seconds]),
                         (double)(l->deps.clock->mono_ns(l->deps.clock->ctx) - job->admitted_ns) / 1e9);
}

void ledger_answer(struct ledger *l, struct ledger_job *job)
{
    CHECK_MAGIC(job, LEDGER_JOB_MAGIC);
    ledger_job_unpend(&l->jobs, job);
    count_answer(l, job);
    count_out(l, job);
    job->ops->answer(job);
}

void ledger_job_free(struct ledger_job *job)
{
    CHECK_MAGIC(job, LEDGER_JOB_MAGIC);
    struct ledger_jobs *js = &job->ledger->jobs;
    if (job->view != NULL)
        ledger_view_unpin(job->view);
    auth_cap_release(job->cap);
    arena_reset(&job->arena);
    job->magic = 0;
    rt_lock_take(&js->lock);
    job->next = js->free;
    js->free = job;
    rt_lock_release(&js->lock);
}
