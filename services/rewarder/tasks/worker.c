/*
 * Workers: snapshot parsing, computations (as lead or helper), shadow runs, and everything else that takes time but no
 * single owner. A worker that is told to fail gives its job back once; the second time the job fails.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_write.h"
#include "net/http_client.h"
#include "services/rewarder/core/snapshot.h"
#include "services/rewarder/rewarder.h"
#include "services/rewarder/tasks/job.h"
#include "services/rewarder/tasks/worker.h"

enum { TICK_MS = 1000, FETCH_TRIES = 3 };

/* One worker's turn with one item. */
struct turn {
    struct rewarder *r;
    struct rt_task *self;
    struct rewarder_item *it;
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
        r->readers[i] = rewarder_settler_create(&(struct rewarder_settler_spec){
            .ledger = r->ledger, .breaker = &r->ledger_breaker, .lane = 0, .lanes = 1, .seed = i});
    return r->readers[i];
}

/* ---- snapshots ---- */

static void snapshot_details(enum err e, const struct rewarder_snapshot_error *why, uint64_t rows_max,
                             struct buf *b)
{
    struct json_w w;
    json_w_init(&w, b);
    json_obj_begin(&w);
    if (e == ERR_TOO_MANY_ROWS) {
        json_put_u64(&w, "max", rows_max);
    } else {
        json_put_u64(&w, "line", why->line);
        if (e == ERR_DUPLICATE_ACCOUNT) {
            json_put_u64(&w, "other_line", why->other_line);
        } else {
            if (why->member[0])
                json_put_cstr(&w, "member", why->member);
            json_put_cstr(&w, "reason", why->reason);
        }
    }
    json_obj_end(&w);
}

static void describe_input(const struct rewarder_snapshot *s, struct rewarder_input *in)
{
    struct buf b;
    snprintf(in->tenant, sizeof in->tenant, "%.*s", STR_ARG(s->rows.tenant));
    snprintf(in->epoch, sizeof in->epoch, "%.*s", STR_ARG(s->rows.epoch));
    in->digest = s->rows.digest;
    in->rows = s->rows.count;
    buf_init_fixed(&b, in->dims, sizeof in->dims - 1);
    buf_putc(&b, '[');
    for (unsigned d = 0; d < s->rows.dim_count; d++)
        buf_printf(&b, "%s\"%.*s\"", d ? "," : "", STR_ARG(s->rows.dims[d]));
    buf_putc(&b, ']');
    in->dims[b.n] = '\0';
}

static enum err send_result(struct rewarder *r, struct rewarder_outcome *o) RT_BLOCKS
{
    enum err e = rt_chan_send(r->results, o, deadline_in_ms(REWARDER_SEND_MS));
    if (e != ERR_OK)
        obs_counter_inc(obs_counter(r->metrics[REWARDER_M_dropped_results]));
    return e;
}

static void ingest(struct turn *t) RT_BLOCKS
{
    struct rewarder *r = t->r;
    struct rewarder_item *it = t->it;
    struct rewarder_file raw;
    struct rewarder_snapshot snap;
    struct rewarder_snapshot_error why = {.reason = ""};
    char storage[512];
    struct buf details;
    uint64_t rows_max = rewarder_config(r)->max_rows;
    buf_init_fixed(&details, storage, sizeof storage);
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
    } else {
        int64_t began = os_now_ns();
        e = rewarder_snapshot_parse(raw.bytes, it->ndjson ? REWARDER_NDJSON : REWARDER_JSON, rows_max,
                                    &snap, &why);
        obs_hist_observe(OBS_HIST_OF(r->metrics[REWARDER_M_phase], "parse"),
                         (double)(os_now_ns() - began) / 1e9);
    }
    uint64_t bytes = raw.bytes.n;
    rewarder_file_unload(&raw);
    if (e == ERR_OK && !str_eq_c(snap.rows.tenant, it->tenant)) {
        rewarder_snapshot_fini(&snap);
        e = ERR_FORBIDDEN;
    }
    if (e != ERR_OK) {
        if (e == ERR_BAD_SNAPSHOT || e == ERR_DUPLICATE_ACCOUNT || e == ERR_TOO_MANY_ROWS)
            snapshot_details(e, &why, rows_max, &details);
        answer(it, e, e == ERR_FORBIDDEN ? "the snapshot is another tenant's" : why.reason,
               buf_bytes(&details));
        if (o)
            rewarder_outcome_destroy(r, o);
        return;
    }
    describe_input(&snap, &o->input);
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

/* ---- getting inputs and pool ---- */

/* Fetches what was not uploaded, and has it stored like an upload. */
struct fetched {
    struct buf body;
    int status;
};

static enum err fetch_inputs(struct turn *t, struct rewarder_snapshot *out_snap,
                             const char **out_detail) RT_BLOCKS
{
    struct rewarder *r = t->r;
    const struct rewarder_config *cfg = rewarder_config(r);
    char url[1024], cid[SHA256_TEXT_CHARS], auth[4200] = "";
    struct buf body, token;
    int status = 0;
    *out_detail = "the accounting server cannot be reached";
    if (!rt_breaker_allow(&r->accounting_breaker, os_now_ns()))
        return ERR_INPUTS_UNAVAILABLE;
    sha256_format(&t->it->cid, cid);
    snprintf(url, sizeof url, "%s/v1/snapshots/%s", cfg->accounting_base_url, cid);
    buf_init(&token, 4096);
    if (*cfg->accounting_token_file) {
        struct store_file *f;
        if (store_file_open(store_disk_real(), cfg->accounting_token_file, STORE_READ, &f) == ERR_OK) {
            char text[4096];
            size_t n = 0;
            if (store_file_pread(f, text, sizeof text, 0, &n) == ERR_OK) {
                while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
                    n--;
                snprintf(auth, sizeof auth, "Authorization: Bearer %.*s", (int)n, text);
            }
            store_file_close(f);
        }
    }
    const char *headers[] = {*auth ? auth : NULL, NULL};
    buf_init(&body, cfg->max_input_bytes);
    enum err e =
        rewarder_worker_fetch(url, headers, cfg->fetch_timeout, cfg->max_input_bytes, &status, &body);
    if (e == ERR_OK && status < 500)
        rt_breaker_success(&r->accounting_breaker, os_now_ns());
    else
        rt_breaker_failure(&r->accounting_breaker, os_now_ns());
    buf_fini(&token);
    struct sha256 got;
    struct rewarder_snapshot_error why;
    if (e != ERR_OK || status >= 500 || status == 429) {
        e = ERR_INPUTS_UNAVAILABLE;
    } else if (status != 200) {
        e = ERR_INPUTS_NOT_FOUND;
        *out_detail = "neither here nor at the accounting server";
    } else {
        sha256_of(body.p, body.n, &got); /* before anything is parsed */
        e = sha256_eq(&got, &t->it->cid) ? ERR_OK : ERR_DIGEST_MISMATCH;
        *out_detail = "the accounting server sent other bytes";
    }
    if (e == ERR_OK) {
        const uint8_t *nl = memchr(body.p, '\n', body.n);
        bool ndjson = nl && memmem(body.p, (size_t)(nl - body.p), "\"rows\"", 6) == NULL;
        e = rewarder_snapshot_parse(buf_bytes(&body), ndjson ? REWARDER_NDJSON : REWARDER_JSON,
                                    cfg->max_rows, out_snap, &why);
        *out_detail = e == ERR_OK ? "" : why.reason;
    }
    buf_fini(&body);
    return e;
}

struct key_change {
    struct sha256 digest, run_key;
};

static void set_key(struct rewarder_run_info *i, void *arg)
{
    const struct key_change *k = arg;
    i->digest = k->digest;
    i->run_key = k->run_key;
    i->has_key = true;
}

/* The inputs of a computation: mapped from the store, or fetched. */
struct inputs {
    struct rewarder_file file;
    struct rewarder_snapshot snap;
    struct rewarder_rows rows;
    bool fetched;
};

static enum err open_inputs(struct turn *t, struct inputs *in, const char **out_detail) RT_BLOCKS
{
    struct rewarder *r = t->r;
    struct rewarder_run *run = t->it->run;
    char path[STORE_PATH_MAX];
    struct rewarder_run_info info = rewarder_run_read(&r->registry, run);
    if (info.state != REWARDER_SEALING) {
        rewarder_path_input(&r->files, &info.inputs_cid, ".rows", path);
        enum err e = rewarder_file_load(&r->files, path, &in->file);
        *out_detail = "the stored rows are gone";
        if (e == ERR_OK)
            e = rewarder_rows_open(in->file.bytes, &in->rows);
        if (e == ERR_OK && !sha256_eq(&in->rows.digest, &info.digest))
            e = ERR_CORRUPT;
        if (e == ERR_OK)
            return ERR_OK;
        REWARDER_COUNT(r, corrupt, "rows");
        *out_detail = "the stored rows are not the ones that were uploaded";
        return ERR_ARTIFACT_CORRUPT;
    }
    enum err e = fetch_inputs(t, &in->snap, out_detail);
    if (e != ERR_OK)
        return e;
    in->fetched = true;
    in->rows = in->snap.rows;
    if (!str_eq_c(in->rows.tenant, run->tenant) || !str_eq_c(in->rows.epoch, run->epoch)) {
        *out_detail = "the snapshot is of another tenant or epoch";
        return ERR_EPOCH_MISMATCH;
    }
    struct key_change k = {.digest = in->rows.digest};
    k.run_key = rewarder_run_key(in->rows.tenant, in->rows.epoch, &info.policy_hash, &k.digest);
    return rewarder_run_move(&r->registry, run, REWARDER_EV_INPUTS_STORED, set_key, &k);
}

static void close_inputs(struct inputs *in)
{
    if (in->fetched)
        rewarder_snapshot_fini(&in->snap);
    rewarder_file_unload(&in->file);
}

/* An amount is taken as it is; "balance" is what the funding account has and nobody else was promised. */
static enum err read_pool(struct turn *t, const struct rewarder_policy *p,
                          struct rewarder_pool *out) RT_BLOCKS
{
    *out = (struct rewarder_pool){.declared = p->pool};
    if (!p->pool_is_balance)
        return ERR_OK;
    struct rewarder_settler *reader = rewarder_worker_reader(t->r, t->self);
    struct rewarder_funds funds;
    if (!reader || !t->r->ledger)
        return ERR_LEDGER_UNAVAILABLE;
    enum err e =
        rewarder_settler_funds(reader, str_from_c(p->funding), str_from_c(p->asset), t->self, &funds);
    if (e != ERR_OK)
        return e == ERR_CANCELED ? e : ERR_LEDGER_UNAVAILABLE;
    wide_u128 owed = rewarder_registry_owed(&t->r->registry, t->it->run, str_from_c(p->funding));
    out->declared = funds.available.units > owed ? funds.available.units - owed : 0;
    out->from_balance = true;
    out->ledger_seq = funds.as_of_seq;
    return ERR_OK;
}

/* ---- computing ---- */

static bool must_stop(void *ctx)
{
    struct turn *t = ctx;
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
            rewarder_job_unref(ticket->job);
            rewarder_item_destroy(t->r, ticket);
            return;
        }
    }
}

enum err rewarder_worker_compute(struct rewarder *r, struct rt_task *self, struct rewarder_item *it,
                                 struct rewarder_calc *calc)
{
    struct turn t = {r, self, it};
    struct rewarder_job *job = rewarder_job_create(
        calc, &(struct rewarder_job_hooks){&t, must_stop, note_phase, note_progress, note_took});
    if (!job)
        return ERR_NO_MEMORY;
    send_tickets(&t, job, rewarder_calc_parts(calc, REWARDER_SCORES));
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

static void set_pool(struct rewarder_run_info *i, void *arg)
{
    i->pool = *(const struct rewarder_pool *)arg;
}

/* The result is on its way to the writer; the emitter is told, and waits for the seal. */
static void hand_over(struct turn *t, struct rewarder_outcome *o) RT_BLOCKS
{
    struct rewarder *r = t->r;
    struct rewarder_run *run = t->it->run;
    atomic_store_explicit(&run->phase, REWARDER_PHASES, memory_order_relaxed);
    bool emit = !run->dry;
    if (send_result(r, o) != ERR_OK) {
        rewarder_outcome_destroy(r, o);
        rewarder_run_fail(r, run, ERR_UNAVAILABLE, "the result could not be written in time", NULL);
        return;
    }
    if (!emit)
        return;
    /* On failure the registry still knows the run: once sealed the emitter finds it there. */
    if (rt_chan_send(r->intents, rewarder_run_ref(run), deadline_in_ms(REWARDER_SEND_MS)) != ERR_OK) {
        atomic_store(&run->halt, !svc_draining(r->svc));
        rewarder_run_unref(run);
    }
}

static void breach(struct turn *t, enum err e) RT_BLOCKS
{
    struct rewarder *r = t->r;
    const char *kind = e == ERR_OVERFLOW ? "overflow" : "conservation";
    REWARDER_COUNT(r, invariant, kind);
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_BREACH, t->it->run);
    if (o)
        rewarder_note_quarantined(t->it->run, rewarder_run_read(&r->registry, t->it->run).n, kind,
                                  "the computation broke an invariant; nothing was emitted",
                                  rewarder_now_ms(r), &o->line);
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
    enum err e = read_pool(t, p, &pool);
    if (e == ERR_OK) {
        rewarder_run_edit(&r->registry, run, set_pool, &pool);
        e = rewarder_calc_create(rows, p, pool.declared, rewarder_config(r)->partition_rows, &calc, &index);
    }
    if (e == ERR_OK)
        e = rewarder_worker_compute(r, t->self, t->it, calc);
    if (e == ERR_OK) {
        obs_counter_add(obs_counter(r->metrics[REWARDER_M_rows]), rows->count);
        struct rewarder_outcome *o = pack(t, calc, rows, &pool);
        if (o)
            hand_over(t, o);
        else
            rewarder_run_fail(r, run, ERR_UNAVAILABLE, "out of memory", NULL);
    } else if (e == ERR_OVERFLOW || e == ERR_CONSERVATION) {
        breach(t, e);
    } else if (e == ERR_CANCELED && rt_task_canceled(t->self) && !svc_draining(r->svc) &&
               t->it->attempts == 0) {
        t->it->attempts = 1; /* our thread failed, not the job: somebody else leads it */
    } else if (e == ERR_CANCELED) {
        bool late = deadline_passed(deadline_at_ns(run->deadline_ns));
        rewarder_run_fail(r, run, late ? ERR_TIMEOUT : ERR_CANCELED,
                          late ? "the deadline passed" : "the computation was interrupted", NULL);
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
    struct inputs in = {.fetched = false};
    const char *detail = NULL;
    enum err e = open_inputs(t, &in, &detail);
    if (e == ERR_OK)
        e = rewarder_run_move(&r->registry, it->run, REWARDER_EV_TAKEN, NULL, NULL);
    if (e == ERR_OK)
        compute_rows(t, &in.rows);
    else
        rewarder_run_fail(r, it->run, e, detail, NULL);
    close_inputs(&in);
    if (it->attempts == 1) {
        it->attempts = 2;
        if (rt_chan_try_send(r->work, it) == ERR_OK)
            return false;
        rewarder_run_fail(r, it->run, ERR_CANCELED, "its worker failed", NULL);
    }
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
        rewarder_job_unref(it->job);
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
static void cancel_item(struct rewarder *r, struct rewarder_item *it)
{
    if (it->kind == REWARDER_HELP)
        rewarder_job_unref(it->job);
    if (it->kind == REWARDER_COMPUTE)
        rewarder_run_fail(r, it->run, ERR_CANCELED, "the service is shutting down", NULL);
    answer(it, ERR_DRAINING, "the service is shutting down", (struct bytes){NULL, 0});
    rewarder_item_destroy(r, it);
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
            work_on(&(struct turn){r, self, item});
        else if (e != ERR_TIMEOUT)
            return e == ERR_CLOSED ? ERR_OK : e;
    }
}
