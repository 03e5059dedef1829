/*
 * Ingest of the direct client. The request is copied into a job, which enters at ingress_tx like any other. The caller hears
 * exactly once: from the job, or, when the job is not back in time, from the clock (ledger_direct_tick).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/hex.h"
#include "services/ledger/api/api.h"
#include "services/ledger/direct_internal.h"

/* Answered once: by the job, or by the clock when the job is not back in time. Whoever takes it off the list calls back. */
struct direct_ingest {
    struct direct *d;
    ledger_ingest_fn *fn;
    void *ctx;
    int64_t until_ns;
    enum err late; /* what it is told then: whether its own time or the ledger's was up */
    bool waiting;  /* on the list */
    struct direct_ingest *next, *prev;
};

static void wait_begin(struct direct *d, struct direct_ingest *call)
{
    rt_lock_take(&d->s->direct_lock);
    call->waiting = true;
    call->next = d->first_open;
    if (call->next != NULL)
        call->next->prev = call;
    d->first_open = call;
    rt_lock_release(&d->s->direct_lock);
}

/* With the lock. */
static void wait_unlink(struct direct *d, struct direct_ingest *call)
{
    call->waiting = false;
    if (call->prev != NULL)
        call->prev->next = call->next;
    else
        d->first_open = call->next;
    if (call->next != NULL)
        call->next->prev = call->prev;
}

/* True: the caller still waits, and is ours to tell. */
static bool wait_end(struct direct *d, struct direct_ingest *call)
{
    rt_lock_take(&d->s->direct_lock);
    bool waiting = call->waiting;
    if (waiting)
        wait_unlink(d, call);
    rt_lock_release(&d->s->direct_lock);
    return waiting;
}

/* One call whose time is up, off the list; its client is kept open until the caller has been told. */
static struct direct *take_late(struct ledger_service *s, int64_t now_ns, ledger_ingest_fn **out_fn,
                                void **out_ctx, enum err *out_why)
{
    struct direct *found = NULL;
    rt_lock_take(&s->direct_lock);
    for (struct direct *d = s->directs; d != NULL && found == NULL; d = d->next)
        for (struct direct_ingest *call = d->first_open; call != NULL; call = call->next)
            if (call->until_ns <= now_ns) {
                wait_unlink(d, call);
                *out_fn = call->fn;
                *out_ctx = call->ctx;
                *out_why = call->late;
                atomic_fetch_add(&d->open_calls, 1);
                atomic_fetch_add_explicit(&d->owed, 1, memory_order_relaxed);
                found = d;
                break;
            }
    rt_lock_release(&s->direct_lock);
    return found;
}

void ledger_direct_tick(struct ledger_service *s)
{
    ledger_ingest_fn *fn;
    void *ctx;
    struct direct *d;
    enum err why;
    while ((d = take_late(s, os_now_ns(), &fn, &ctx, &why)) != NULL) {
        struct ledger_ingest_reply late = {.a = ledger_direct__refused(why)};
        late.a.outcome = LEDGER_UNKNOWN;
        fn(ctx, &late);
        atomic_fetch_sub(&d->open_calls, 1);
    }
}

static struct str details_text(struct ledger_job *job, const struct ledger_reject *r)
{
    struct buf b;
    struct json_w w;
    struct str out = {NULL, 0};
    buf_init(&b, 4096);
    json_w_init(&w, &b);
    ledger_json_reject_details(&w, r, 0);
    if (b.err == ERR_OK && !arena_str(&job->arena, buf_str(&b), &out))
        out = (struct str){NULL, 0};
    buf_fini(&b);
    return out;
}

static void balances_out(struct ledger_job *job, const struct ledger_job_unit *u, struct ledger_result *r)
{
    struct ledger_balance *v = arena_array(&job->arena, u->n_fx, sizeof *v);
    size_t n = 0;
    for (uint32_t i = 0; v != NULL && i < u->n_fx; i++) {
        const struct ledger_effect *fx = &u->fx[i];
        bool last = fx->type == FX_ROW;
        for (uint32_t k = i + 1; last && k < u->n_fx; k++)
            last = u->fx[k].type != FX_ROW || u->fx[k].index != fx->index;
        if (last)
            v[n++] = (struct ledger_balance){ledger_state_row_account(job->ledger->state, fx->index),
                                             ledger_state_row_asset(job->ledger->state, fx->index),
                                             {(unsigned __int128)fx->new_a.hi << 64 | fx->new_a.lo},
                                             {(unsigned __int128)fx->new_b.hi << 64 | fx->new_b.lo}};
    }
    r->balances = v;
    r->n_balances = n;
}

static void proofs_out(struct ledger_job *job, const struct ledger_job_unit *u,
                       struct ledger_result *r) RT_BLOCKS
{
    struct ledger_proof_path *v = arena_array(&job->arena, u->n, sizeof *v);
    for (uint32_t i = 0; v != NULL && i < u->n; i++) {
        struct ledger_proven *p = arena_alloc(&job->arena, sizeof *p);
        if (p == NULL || ledger_prove_inclusion(job->ledger, u->seq + i, r->tree_size, p) != ERR_OK)
            return;
        v[i] = (struct ledger_proof_path){u->late->leaves[i], p->path, p->n};
    }
    r->proofs = v;
    r->n_proofs = v == NULL ? 0 : u->n;
    char *envelope = arena_alloc(&job->arena, CANON_ENVELOPE_MAX);
    if (envelope != NULL)
        r->envelope = str_of(envelope, ledger_canon_envelope(&u->late->unit, &u->late->who,
                                                             &u->late->read.record.fp, envelope));
    r->checkpoint = ledger_note_text(job->ledger->shell, r->tree_size, &job->arena);
}

static void result_out(struct ledger_job *job, const struct ledger_job_unit *u,
                       struct ledger_result *r) RT_BLOCKS
{
    *r = (struct ledger_result){.idem_id = u->u.idem_id};
    if (u->verdict == VERDICT_REJECTED) {
        r->status = LEDGER_REJECTED;
        r->reason = u->reject.reason;
        r->reason_text = str_from_c(err_code(r->reason));
        r->retryable = err_retryable(r->reason);
        r->details = details_text(job, &u->reject);
        return;
    }
    bool dup = u->verdict == VERDICT_DUPLICATE;
    r->status = dup ? LEDGER_DUPLICATE : LEDGER_COMMITTED;
    r->seq_start = u->seq;
    r->seq_end = u->seq + u->n - 1;
    r->tree_size = dup && u->late != NULL ? u->late->group.last_seq : job->tree_size;
    r->root = dup && u->late != NULL ? u->late->group.root : job->root;
    struct sha256 *hashes = arena_array(&job->arena, u->n, sizeof *hashes);
    struct str *ids = dup ? arena_array(&job->arena, u->n, sizeof *ids) : NULL;
    for (uint32_t i = 0; hashes != NULL && i < u->n; i++) {
        if (!dup)
            hashes[i] = u->p.entries[i].leaf_hash;
        else if (u->late != NULL)
            hashes[i] = u->late->leaf_hashes[i];
        if (ids != NULL && u->late != NULL)
            ids[i] = u->late->entries[i].id;
    }
    r->leaf_hashes = hashes;
    r->n_leaf_hashes = hashes == NULL ? 0 : u->n;
    r->ids = ids;
    r->n_ids = ids == NULL || u->late == NULL ? 0 : u->n;
    if (job->want_balances && !dup)
        balances_out(job, u, r);
    if (job->want_proof && u->late != NULL)
        proofs_out(job, u, r);
}

static void ingest_answer(struct ledger_job *job) RT_BLOCKS
{
    struct direct_ingest *call = job->door;
    struct direct *d = call->d;
    if (!wait_end(d, call)) { /* it was told that nobody knows */
        atomic_fetch_sub_explicit(&d->owed, 1, memory_order_relaxed);
        free(call);
        ledger_job_free(job);
        atomic_fetch_sub(&d->open_calls, 1);
        return;
    }
    struct ledger_ingest_reply reply = {.a = ledger_direct__answered};
    if (job->err != ERR_OK) {
        reply.a = ledger_direct__refused(job->err);
        if (job->err == ERR_OUTCOME_UNKNOWN)
            reply.a.outcome = LEDGER_UNKNOWN;
    } else {
        struct ledger_result *v = arena_alloc(&job->arena, job->n_units * sizeof *v);
        for (uint32_t i = 0; v != NULL && i < job->n_units; i++)
            result_out(job, &job->units[i], &v[i]);
        reply.results = v;
        reply.n_results = v == NULL ? 0 : job->n_units;
        if (v == NULL) {
            reply.a = ledger_direct__refused(ERR_OUTCOME_UNKNOWN);
            reply.a.outcome = LEDGER_UNKNOWN;
        }
    }
    call->fn(call->ctx, &reply);
    free(call);
    ledger_job_free(job);
    atomic_fetch_sub(&d->open_calls, 1);
}

static const struct ledger_job_ops direct_ops = {NULL, ingest_answer};

static bool text_in(struct arena *a, struct str s, struct str *out)
{
    *out = (struct str){NULL, 0};
    return s.n == 0 || arena_str(a, s, out);
}

static enum err copy_units(struct ledger_job *job, const struct ledger_ingest *rq)
{
    size_t total = 0;
    for (size_t i = 0; i < rq->n_units; i++)
        total += rq->units[i].n_entries;
    if (rq->n_units == 0 || rq->n_units > CORE_UNIT_ENTRIES_MAX || total > job->ledger->set.max_entries)
        return rq->n_units == 0 ? ERR_BAD_REQUEST : ERR_TOO_LARGE;
    struct core_entry *e = arena_array(&job->arena, total, sizeof *e);
    job->units = arena_array(&job->arena, rq->n_units, sizeof *job->units);
    if (e == NULL || job->units == NULL)
        return ERR_BUSY;
    for (size_t i = 0; i < rq->n_units; i++) {
        const struct ledger_unit *u = &rq->units[i];
        struct core_unit *c = &job->units[i].u;
        *c = (struct core_unit){.not_after = u->not_after_ms, .entries = e, .n = (uint32_t)u->n_entries};
        char meta[CORE_META_TEXT_MAX + 1];
        if (u->meta.n > CORE_META_MAX)
            return ERR_BAD_REQUEST;
        size_t n = u->meta.n == 0 ? 0 : base64_encode(u->meta.p, u->meta.n, meta);
        bool ok = text_in(&job->arena, u->idem_id, &c->idem_id) &&
                  text_in(&job->arena, str_of(meta, n), &c->meta);
        for (size_t k = 0; ok && k < u->n_entries; k++, e++) {
            const struct ledger_entry *in = &u->entries[k];
            *e = (struct core_entry){.ts = in->ts_ms,
                                     .kind = (enum core_kind)in->kind,
                                     .amount = in->amount,
                                     .nonce = in->nonce,
                                     .hold_until = in->hold_until_ms};
            ok = text_in(&job->arena, in->id, &e->id) && text_in(&job->arena, in->account, &e->account) &&
                 text_in(&job->arena, in->to, &e->to) && text_in(&job->arena, in->asset, &e->asset) &&
                 text_in(&job->arena, in->ref_id, &e->ref_id);
        }
        if (!ok)
            return ERR_BUSY;
    }
    job->n_units = (uint32_t)rq->n_units;
    job->n_entries = (uint32_t)total;
    return ERR_OK;
}

void ledger_direct__ingest(struct ledger_client *c, const struct ledger_ingest *rq, struct deadline by,
                           ledger_ingest_fn *fn, void *ctx)
{
    struct direct *d = ledger_direct__of(c);
    struct ledger *l = d->s->l;
    struct auth_cap *cap = NULL;
    struct direct_ingest *call = malloc(sizeof *call);
    struct ledger_job *job = NULL;
    enum err err = call == NULL              ? ERR_BUSY
                   : atomic_load(&d->closed) ? ERR_CLOSED
                                             : ledger_direct__cap(d, &cap);
    if (err == ERR_OK && (job = ledger_job_take(&l->jobs, l)) == NULL) {
        obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_busy_rejections], "inflight"));
        err = ERR_BUSY;
    }
    if (err == ERR_OK) {
        job->cap = cap;
        cap = NULL;
        job->ops = &direct_ops;
        job->door = call;
        job->who.kid = str_from_c(auth_cap_kid(job->cap));
        CHECK(hex_decode(str_of(auth_cap_ref(job->cap), 16), job->who.cap, 8) == ERR_OK);
        job->want_balances = rq->balances;
        job->want_proof = rq->proof;
        job->by = deadline_min(by, deadline_in_ms(l->set.request_ms));
        snprintf(job->corr_id, sizeof job->corr_id, "%.*s", STR_ARG(rq->corr_id));
        if (obs_traceparent_parse(rq->traceparent, &job->trace) != ERR_OK)
            job->trace = (struct obs_trace){0}; /* a trace of its own */
        struct deadline answer_by = ledger_answer_by(l, job->by);
        *call = (struct direct_ingest){
            .d = d,
            .fn = fn,
            .ctx = ctx,
            .until_ns = deadline_min(by, answer_by).at_ns,
            .late = by.at_ns < answer_by.at_ns ? ERR_TIMEOUT : ERR_OUTCOME_UNKNOWN,
        };
        err = copy_units(job, rq);
    }
    if (err != ERR_OK && err != ERR_CLOSED)
        ledger_refused(l, err);
    if (err == ERR_OK) {
        atomic_fetch_add(&d->open_calls, 1);
        wait_begin(d, call);
        err = ledger_submit(l, job);
        if (err != ERR_OK) {
            atomic_fetch_sub(&d->open_calls, 1);
            if (!wait_end(d, call)) { /* the clock was faster, and has told the caller */
                ledger_job_free(job);
                free(call);
                return;
            }
        }
    }
    if (err == ERR_OK)
        return;
    auth_cap_release(cap);
    if (job != NULL)
        ledger_job_free(job);
    free(call);
    struct ledger_ingest_reply reply = {.a = ledger_direct__refused(err)};
    fn(ctx, &reply);
}
