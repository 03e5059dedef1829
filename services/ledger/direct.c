#include "services/ledger/direct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/hex.h"
#include "services/ledger/api/api.h"
#include "services/ledger/stream.h"

struct direct_ingest;

struct direct {
    struct ledger_client base;
    struct ledger_service *s;
    char *token;
    _Atomic uint32_t open_calls; /* not answered yet: close waits for them to be none */
    _Atomic bool closed;
    struct direct *next;              /* of the service; under its direct_lock, like the next */
    struct direct_ingest *first_open; /* whose caller waits */
    _Atomic uint32_t owed;            /* whose caller was told that nobody knows; relaxed: a gauge */
};

static struct direct *of(struct ledger_client *c)
{
    return (struct direct *)c;
}

static struct ledger_answer refused(enum err err)
{
    const char *code = err_code(err);
    return (struct ledger_answer){LEDGER_REFUSED, err,       err_http_status(err),        str_from_c(code),
                                  {NULL, 0},      {NULL, 0}, err_retryable(err) ? 1u : 0u};
}

static const struct ledger_answer answered = {LEDGER_ANSWERED, ERR_OK,    200, {NULL, 0},
                                              {NULL, 0},       {NULL, 0}, 0};

static enum err cap_of(struct direct *d, struct auth_cap **out)
{
    return auth_verify(svc_auth(d->s->svc), str_from_c(d->token), out);
}

/* ---- ingest ---- */

/* Answered once: by the job, or by the clock when the job is not back in time. Whoever takes it off the list calls back. */
struct direct_ingest {
    struct direct *d;
    ledger_ingest_fn *fn;
    void *ctx;
    int64_t until_ns;
    bool waiting; /* on the list */
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
                                void **out_ctx)
{
    struct direct *found = NULL;
    rt_lock_take(&s->direct_lock);
    for (struct direct *d = s->directs; d != NULL && found == NULL; d = d->next)
        for (struct direct_ingest *call = d->first_open; call != NULL; call = call->next)
            if (call->until_ns <= now_ns) {
                wait_unlink(d, call);
                *out_fn = call->fn;
                *out_ctx = call->ctx;
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
    while ((d = take_late(s, os_now_ns(), &fn, &ctx)) != NULL) {
        struct ledger_ingest_reply late = {.a = refused(ERR_OUTCOME_UNKNOWN)};
        late.a.outcome = LEDGER_UNKNOWN;
        fn(ctx, &late);
        atomic_fetch_sub(&d->open_calls, 1);
    }
}

static struct ledger_entry entry_out(const struct core_entry *e)
{
    return (struct ledger_entry){e->id,        e->ts,    (enum ledger_kind)e->kind,
                                 e->account,   e->to,    e->asset,
                                 e->amount,    e->nonce, e->ref_id,
                                 e->hold_until};
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
    struct ledger_node_source nodes = ledger_nodes(job->ledger);
    struct ledger_proof_path *v = arena_array(&job->arena, u->n, sizeof *v);
    for (uint32_t i = 0; v != NULL && i < u->n; i++) {
        struct sha256 *path = arena_alloc(&job->arena, MERKLE_PATH_MAX * sizeof *path);
        size_t n = 0;
        if (path == NULL ||
            ledger_merkle_inclusion(&nodes, u->seq - 1 + i, r->tree_size, path, &n) != ERR_OK)
            return;
        v[i] = (struct ledger_proof_path){u->late->leaves[i], path, n};
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
    struct ledger_ingest_reply reply = {.a = answered};
    if (job->err != ERR_OK) {
        reply.a = refused(job->err);
        if (job->err == ERR_OUTCOME_UNKNOWN)
            reply.a.outcome = LEDGER_UNKNOWN;
    } else {
        struct ledger_result *v = arena_array(&job->arena, job->n_units, sizeof *v);
        for (uint32_t i = 0; v != NULL && i < job->n_units; i++)
            result_out(job, &job->units[i], &v[i]);
        reply.results = v;
        reply.n_results = v == NULL ? 0 : job->n_units;
        if (v == NULL) {
            reply.a = refused(ERR_OUTCOME_UNKNOWN);
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

static void direct_ingest(struct ledger_client *c, const struct ledger_ingest *rq, struct deadline by,
                          ledger_ingest_fn *fn, void *ctx)
{
    struct direct *d = of(c);
    struct ledger *l = d->s->l;
    struct auth_cap *cap = NULL;
    struct direct_ingest *call = malloc(sizeof *call);
    struct ledger_job *job = NULL;
    enum err err = call == NULL ? ERR_BUSY : atomic_load(&d->closed) ? ERR_CLOSED : cap_of(d, &cap);
    if (err == ERR_OK && (job = ledger_job_take(&l->jobs, l)) == NULL)
        err = ERR_BUSY;
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
        *call = (struct direct_ingest){
            .d = d,
            .fn = fn,
            .ctx = ctx,
            .until_ns = deadline_min(by, ledger_answer_by(l, job->by)).at_ns,
        };
        err = copy_units(job, rq);
    }
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
    struct ledger_ingest_reply reply = {.a = refused(err)};
    fn(ctx, &reply);
}

/* ---- reads ---- */

/* One read on its way through read_tx. */
struct direct_read {
    struct ledger_read read;
    struct direct *d;
    void *fn; /* of the kind that `read.run` knows */
    void *ctx;
    uint64_t a, b;
    int64_t until_ns;
    char text[CORE_ID_MAX + 1];
    size_t n;
    union {
        ledger_unit_fn *unit;
        ledger_entries_fn *entries;
        ledger_roots_fn *roots;
        ledger_proof_fn *proof;
    } to;
};

static void read_over(struct direct_read *r)
{
    struct direct *d = r->d;
    free(r);
    atomic_fetch_sub(&d->open_calls, 1);
}

static struct direct_read *read_new(struct direct *d, struct str text, uint64_t a, uint64_t b, void *ctx)
{
    struct direct_read *r = calloc(1, sizeof *r);
    if (r == NULL || text.n > CORE_ID_MAX)
        return free(r), NULL;
    r->d = d;
    r->ctx = ctx;
    r->a = a;
    r->b = b;
    r->n = text.n;
    memcpy(r->text, text.n == 0 ? "" : text.p, text.n);
    return r;
}

/* ERR_OK: it is on its way. */
static enum err read_send(struct direct_read *r, void (*run)(struct ledger_service *, struct ledger_read *))
{
    if (r == NULL)
        return ERR_BUSY;
    r->read.run = run;
    atomic_fetch_add(&r->d->open_calls, 1);
    enum err err = atomic_load(&r->d->closed) ? ERR_CLOSED : ledger_read_submit(r->d->s, &r->read);
    if (err != ERR_OK)
        read_over(r);
    return err;
}

static void run_unit(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct ledger *l = s->l;
    struct arena a;
    struct ledger_unit_facts f;
    struct ledger_unit_reply reply = {.a = answered};
    struct str id = str_of(r->text, r->n);
    arena_init(&a, 64 << 10, 64 << 20);
    /* Time before the look: "not found, and past its not_after" must not miss one that commits in between. */
    reply.ledger_ms = atomic_load(&l->ledger_ms);
    bool pending = ledger_jobs_is_pending(&l->jobs, ledger_canon_idem_key(id));
    enum err err = ledger_find_unit(l, id, &a, &f);
    int64_t now = l->deps.clock->mono_ns(l->deps.clock->ctx);
    if (err == ERR_NOT_FOUND && pending && now < r->until_ns) {
        ledger_nap();
        if (ledger_read_submit(s, read) == ERR_OK) { /* to the end of the queue: it is looked at again */
            arena_fini(&a);
            return;
        }
    }
    if (err == ERR_OK) {
        struct ledger_entry *e = arena_array(&a, f.n, sizeof *e);
        uint8_t *meta = arena_alloc(&a, CORE_META_MAX);
        char *envelope = arena_alloc(&a, CANON_ENVELOPE_MAX);
        size_t n = 0;
        for (uint32_t i = 0; e != NULL && i < f.n; i++)
            e[i] = entry_out(&f.entries[i]);
        if (meta != NULL && f.unit.meta.n != 0 &&
            base64_decode(f.unit.meta, meta, CORE_META_MAX, &n) != ERR_OK)
            n = 0;
        reply.found = true;
        reply.result = (struct ledger_result){.idem_id = f.unit.idem_id,
                                              .status = LEDGER_COMMITTED,
                                              .seq_start = f.seq,
                                              .seq_end = f.seq + f.n - 1,
                                              .tree_size = f.group.last_seq,
                                              .ledger_ms = f.group.ledger_ms,
                                              .root = f.group.root,
                                              .leaf_hashes = f.leaf_hashes,
                                              .n_leaf_hashes = f.n,
                                              .entries = e,
                                              .n_entries = e == NULL ? 0 : f.n,
                                              .meta = bytes_of(meta, n),
                                              .kid = f.who.kid};
        if (envelope != NULL)
            reply.result.envelope =
                str_of(envelope, ledger_canon_envelope(&f.unit, &f.who, &f.read.record.fp, envelope));
    } else if (err == ERR_NOT_FOUND && pending) {
        reply.found = true;
        reply.result = (struct ledger_result){.idem_id = id, .status = LEDGER_PENDING};
    } else if (err != ERR_NOT_FOUND) {
        reply.a = refused(ERR_UNAVAILABLE);
    }
    r->to.unit(r->ctx, &reply);
    arena_fini(&a);
    read_over(r);
}

static void direct_unit(struct ledger_client *c, struct str idem_id, uint32_t wait_ms, struct deadline by,
                        ledger_unit_fn *fn, void *ctx)
{
    struct direct *d = of(c);
    if (!ledger_id_ok(idem_id)) {
        struct ledger_unit_reply reply = {.a = refused(ERR_BAD_REQUEST)};
        fn(ctx, &reply);
        return;
    }
    struct direct_read *r = read_new(d, idem_id, 0, 0, ctx);
    if (r != NULL) {
        r->to.unit = fn;
        int64_t until = d->s->l->deps.clock->mono_ns(d->s->l->deps.clock->ctx) + (int64_t)wait_ms * 1000000;
        r->until_ns = until < by.at_ns ? until : by.at_ns;
    }
    enum err err = read_send(r, run_unit);
    if (err != ERR_OK) {
        struct ledger_unit_reply reply = {.a = refused(err)};
        fn(ctx, &reply);
    }
}

static void direct_account(struct ledger_client *c, struct str account, uint64_t min_seq,
                           struct deadline by, ledger_account_fn *fn, void *ctx)
{
    struct direct *d = of(c);
    struct ledger *l = d->s->l;
    struct ledger_head head;
    struct ledger_account_read read = {0};
    struct ledger_account_reply reply = {.a = answered, .account = account};
    enum err err = ERR_BUSY;
    while (err == ERR_BUSY && !deadline_passed(by)) {
        ledger_head_read(l, &head);
        err = ledger_state_read_account(l->state, account, head.seq, &read);
    }
    struct ledger_balance *b = err == ERR_OK ? calloc(read.n_balances + 1, sizeof *b) : NULL;
    struct ledger_lane *lanes = err == ERR_OK ? calloc(read.n_lanes + 1, sizeof *lanes) : NULL;
    if (err != ERR_OK || b == NULL || lanes == NULL) {
        reply.a = refused(ERR_TIMEOUT);
    } else if (head.seq < min_seq) {
        reply.a = refused(ERR_BEHIND);
        reply.as_of_seq = head.seq;
    } else {
        for (size_t i = 0; i < read.n_balances; i++)
            b[i] = (struct ledger_balance){account, read.balances[i].asset, read.balances[i].available,
                                           read.balances[i].held};
        for (size_t i = 0; i < read.n_lanes; i++)
            lanes[i] =
                (struct ledger_lane){read.lanes[i].lane, (uint64_t)read.lanes[i].lane << CORE_LANE_SHIFT |
                                                             read.lanes[i].counter};
        reply.balances = b;
        reply.n_balances = read.n_balances;
        reply.lanes = lanes;
        reply.n_lanes = read.n_lanes;
        reply.as_of_seq = head.seq;
        reply.root = head.root;
    }
    fn(ctx, &reply);
    free(b);
    free(lanes);
    ledger_account_read_fini(&read);
}

static void info_out(struct ledger *l, const struct ledger_unit_facts *f, uint32_t i,
                     struct ledger_entry_info *out)
{
    *out = (struct ledger_entry_info){.seq = f->seq + i,
                                      .ledger_ms = f->group.ledger_ms,
                                      .unit_seq_start = f->seq,
                                      .unit_seq_end = f->seq + f->n - 1,
                                      .leaf_hash = f->leaf_hashes[i],
                                      .leaf = f->leaves[i],
                                      .idem_id = f->unit.idem_id,
                                      .entry = entry_out(&f->entries[i])};
    if (f->entries[i].kind == CORE_HOLD)
        out->open =
            ledger_state_read_hold(l->state, ledger_canon_id_key(f->entries[i].id), &out->remaining) &&
            out->remaining.units != 0;
    else
        out->reversed = ledger_state_read_reversed(l->state, out->seq);
}

static void run_entry(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct arena a;
    struct ledger_unit_facts f;
    struct ledger_entry_info info;
    struct ledger_entries_reply reply = {.a = answered};
    uint32_t i = 0;
    arena_init(&a, 64 << 10, 64 << 20);
    enum err err = ledger_find_entry(s->l, str_of(r->text, r->n), &a, &f, &i);
    if (err == ERR_OK) {
        info_out(s->l, &f, i, &info);
        reply.entries = &info;
        reply.n_entries = 1;
        reply.as_of_seq = ledger_head_seq(s->l);
    } else {
        reply.a = refused(err == ERR_NOT_FOUND ? ERR_NOT_FOUND : ERR_UNAVAILABLE);
    }
    r->to.entries(r->ctx, &reply);
    arena_fini(&a);
    read_over(r);
}

static void run_entries(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct arena a;
    struct ledger_entries_reply reply = {.a = answered, .as_of_seq = ledger_head_seq(s->l)};
    arena_init(&a, 256 << 10, 256 << 20);
    struct ledger_entry_info *v = arena_array(&a, r->b, sizeof *v);
    uint64_t seq = r->a;
    enum err err = v == NULL ? ERR_NO_MEMORY : ERR_OK;
    while (err == ERR_OK && reply.n_entries < r->b && seq <= reply.as_of_seq) {
        struct ledger_unit_facts f;
        uint32_t i = 0;
        err = ledger_find_seq(s->l, seq, &a, &f, &i);
        for (; err == ERR_OK && i < f.n && reply.n_entries < r->b; i++, seq++)
            info_out(s->l, &f, i, &v[reply.n_entries++]);
    }
    reply.entries = v;
    reply.next = seq <= reply.as_of_seq ? seq : 0;
    if (err != ERR_OK)
        reply = (struct ledger_entries_reply){.a = refused(ERR_UNAVAILABLE)};
    r->to.entries(r->ctx, &reply);
    arena_fini(&a);
    read_over(r);
}

static void entries_send(struct direct *d, struct str id, uint64_t from, uint32_t limit,
                         ledger_entries_fn *fn, void *ctx,
                         void (*run)(struct ledger_service *, struct ledger_read *))
{
    struct direct_read *r = read_new(d, id, from, limit, ctx);
    if (r != NULL)
        r->to.entries = fn;
    enum err err = read_send(r, run);
    if (err != ERR_OK) {
        struct ledger_entries_reply reply = {.a = refused(err)};
        fn(ctx, &reply);
    }
}

static void direct_entry(struct ledger_client *c, struct str id, struct deadline by, ledger_entries_fn *fn,
                         void *ctx)
{
    (void)by;
    entries_send(of(c), id, 0, 0, fn, ctx, run_entry);
}

static void direct_entries(struct ledger_client *c, uint64_t from, uint32_t limit, struct deadline by,
                           ledger_entries_fn *fn, void *ctx)
{
    (void)by;
    entries_send(of(c), (struct str){NULL, 0}, from == 0 ? 1 : from,
                 limit == 0     ? 100
                 : limit > 1000 ? 1000
                                : limit,
                 fn, ctx, run_entries);
}

static void run_roots(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct ledger_head head;
    struct ledger_group_row g;
    struct ledger_roots_reply reply = {.a = answered, .next_since = r->a};
    ledger_head_read(s->l, &head);
    uint64_t index = head.group_no;
    struct ledger_root *v = calloc(r->b, sizeof *v);
    enum err err = v == NULL          ? ERR_NO_MEMORY
                   : r->a >= head.seq ? ERR_OK
                                      : ledger_group_of(s->l, r->a + 1, &g, &index);
    for (; err == ERR_OK && reply.n_roots < r->b && index < head.group_no; index++) {
        err = ledger_group_at(s->l, index, &g);
        if (err != ERR_OK)
            break;
        v[reply.n_roots++] = (struct ledger_root){g.last_seq, g.group_no, g.ledger_ms, g.root};
        reply.next_since = g.last_seq;
    }
    reply.roots = v;
    if (err != ERR_OK)
        reply = (struct ledger_roots_reply){.a = refused(ERR_UNAVAILABLE)};
    r->to.roots(r->ctx, &reply);
    free(v);
    read_over(r);
}

static void direct_roots(struct ledger_client *c, uint64_t since, uint32_t limit, struct deadline by,
                         ledger_roots_fn *fn, void *ctx)
{
    (void)by;
    struct direct_read *r = read_new(of(c), (struct str){NULL, 0}, since,
                                     limit == 0      ? 1000
                                     : limit > 10000 ? 10000
                                                     : limit,
                                     ctx);
    if (r != NULL)
        r->to.roots = fn;
    enum err err = read_send(r, run_roots);
    if (err != ERR_OK) {
        struct ledger_roots_reply reply = {.a = refused(err)};
        fn(ctx, &reply);
    }
}

static void run_proof(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct ledger_node_source nodes = ledger_nodes(s->l);
    struct sha256 path[MERKLE_PATH_MAX];
    struct arena a;
    uint64_t head = ledger_head_seq(s->l), size = r->b == 0 ? head : r->b;
    struct ledger_proof_reply reply = {.a = answered, .seq = r->a, .tree_size = size, .path = path};
    arena_init(&a, 4096, 65536);
    enum err err = r->a == 0 || r->a > size || size > head
                       ? ERR_NOT_FOUND
                       : ledger_column_get(&s->l->levels[0], r->a - 1, &reply.leaf_hash);
    if (err == ERR_OK)
        err = ledger_merkle_inclusion(&nodes, r->a - 1, size, path, &reply.n_path);
    if (err == ERR_OK)
        err = ledger_merkle_root(&nodes, size, &reply.root);
    if (err == ERR_OK)
        reply.checkpoint = ledger_note_text(s, size, &a);
    else
        reply = (struct ledger_proof_reply){.a = refused(err == ERR_NOT_FOUND ? err : ERR_UNAVAILABLE)};
    r->to.proof(r->ctx, &reply);
    arena_fini(&a);
    read_over(r);
}

static void run_consistency(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct ledger_node_source nodes = ledger_nodes(s->l);
    struct sha256 path[MERKLE_PATH_MAX];
    uint64_t head = ledger_head_seq(s->l), to = r->b == 0 ? head : r->b;
    struct ledger_proof_reply reply = {.a = answered, .seq = r->a, .tree_size = to, .path = path};
    enum err err = r->a == 0 || r->a > to || to > head
                       ? ERR_NOT_FOUND
                       : ledger_merkle_consistency(&nodes, r->a, to, path, &reply.n_path);
    if (err == ERR_OK)
        err = ledger_merkle_root(&nodes, r->a, &reply.from_root);
    if (err == ERR_OK)
        err = ledger_merkle_root(&nodes, to, &reply.root);
    if (err != ERR_OK)
        reply = (struct ledger_proof_reply){.a = refused(err == ERR_NOT_FOUND ? err : ERR_UNAVAILABLE)};
    r->to.proof(r->ctx, &reply);
    read_over(r);
}

static void proof_send(struct ledger_client *c, uint64_t a, uint64_t b, ledger_proof_fn *fn, void *ctx,
                       void (*run)(struct ledger_service *, struct ledger_read *))
{
    struct direct_read *r = read_new(of(c), (struct str){NULL, 0}, a, b, ctx);
    if (r != NULL)
        r->to.proof = fn;
    enum err err = read_send(r, run);
    if (err != ERR_OK) {
        struct ledger_proof_reply reply = {.a = refused(err)};
        fn(ctx, &reply);
    }
}

static void direct_proof(struct ledger_client *c, uint64_t seq, uint64_t size, struct deadline by,
                         ledger_proof_fn *fn, void *ctx)
{
    (void)by;
    proof_send(c, seq, size, fn, ctx, run_proof);
}

static void direct_consistency(struct ledger_client *c, uint64_t from, uint64_t to, struct deadline by,
                               ledger_proof_fn *fn, void *ctx)
{
    (void)by;
    proof_send(c, from, to, fn, ctx, run_consistency);
}

static void direct_head(struct ledger_client *c, struct deadline by, ledger_head_fn *fn, void *ctx)
{
    (void)by;
    struct direct *d = of(c);
    struct ledger_head head;
    struct obs_health_view view;
    ledger_head_read(d->s->l, &head);
    obs_health_read(svc_health(d->s->svc), &view);
    struct ledger_head_reply reply = {.a = answered,
                                      .ready = view.ready && !svc_draining(d->s->svc),
                                      .head_seq = head.seq,
                                      .group_no = head.group_no,
                                      .ledger_ms = atomic_load(&d->s->l->ledger_ms),
                                      .root = head.root};
    fn(ctx, &reply);
}

/* ---- feed ---- */

struct ledger_feed {
    struct ledger_stream st;
    struct direct *d;
    const struct ledger_feed_sink *sink;
    void *ctx;
    _Atomic bool stop;  /* the owner wants no more */
    _Atomic bool ended; /* the publisher has let go */
    bool opened, lagged;
};

static enum err feed_send(struct ledger_stream *st, const struct ledger_stream_event *ev)
{
    struct ledger_feed *f = (struct ledger_feed *)st;
    if (atomic_load(&f->stop))
        return ERR_CLOSED;
    struct ledger_commit_event out = {ev->seq_start, ev->seq_end,  ev->tree_size,
                                      ev->root,      ev->accounts, ev->n_accounts};
    f->sink->on_commit(f->ctx, &out);
    return ERR_OK;
}

static enum err feed_idle(struct ledger_stream *st)
{
    return atomic_load(&((struct ledger_feed *)st)->stop) ? ERR_CLOSED : ERR_OK;
}

static void feed_lagged(struct ledger_stream *st, uint64_t next_since)
{
    (void)next_since;
    ((struct ledger_feed *)st)->lagged = true;
}

static void feed_end(struct ledger_stream *st)
{
    struct ledger_feed *f = (struct ledger_feed *)st;
    if (!atomic_load(&f->stop))
        f->sink->on_end(f->ctx, f->lagged ? ERR_LAGGED : ERR_CLOSED);
    atomic_store(&f->ended, true); /* from here on it is the owner's */
}

static bool feed_gone(struct ledger_stream *st)
{
    struct ledger_feed *f = (struct ledger_feed *)st;
    if (!f->opened && !atomic_load(&f->stop)) {
        f->opened = true;
        if (f->sink->on_open != NULL)
            f->sink->on_open(f->ctx);
    }
    return atomic_load(&f->stop);
}

static const struct ledger_stream_ops feed_ops = {feed_send, feed_idle, feed_lagged, feed_end, feed_gone};

static struct ledger_feed *direct_feed(struct ledger_client *c, uint64_t since,
                                       const struct ledger_feed_sink *sink, void *ctx)
{
    struct direct *d = of(c);
    struct ledger_feed *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->st = (struct ledger_stream){.ops = &feed_ops, .commits = true, .since = since};
    f->d = d;
    f->sink = sink;
    f->ctx = ctx;
    if (ledger_stream_submit(d->s, &f->st) != ERR_OK) {
        free(f);
        return NULL;
    }
    return f;
}

/* The publisher looks at every stream at least ten times a second; it must have let go before we free. */
static void direct_feed_stop(struct ledger_feed *f)
{
    atomic_store(&f->stop, true);
    while (!atomic_load(&f->ended))
        ledger_nap();
    free(f);
}

static void direct_close(struct ledger_client *c)
{
    struct direct *d = of(c);
    atomic_store(&d->closed, true);
    while (atomic_load(&d->open_calls) != 0) /* every job ends */
        ledger_nap();
    rt_lock_take(&d->s->direct_lock);
    struct direct **at = &d->s->directs;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    rt_lock_release(&d->s->direct_lock);
    explicit_bzero(d->token, strlen(d->token));
    free(d->token);
    free(d);
}

/* There is one connection, so to speak. */
static size_t direct_owing(struct ledger_client *c)
{
    return atomic_load_explicit(&of(c)->owed, memory_order_relaxed) > 0;
}

static const struct ledger_client_ops client_ops = {
    .ingest = direct_ingest,
    .unit = direct_unit,
    .account = direct_account,
    .entry = direct_entry,
    .entries = direct_entries,
    .roots = direct_roots,
    .proof = direct_proof,
    .consistency = direct_consistency,
    .head = direct_head,
    .feed = direct_feed,
    .feed_stop = direct_feed_stop,
    .close = direct_close,
    .owing = direct_owing,
};

enum err ledger_direct_open(struct svc *ledger, struct str token, struct ledger_client **out_client)
{
    struct direct *d = calloc(1, sizeof *d);
    if (d == NULL)
        return ERR_NO_MEMORY;
    d->base = (struct ledger_client){.ops = &client_ops, .transport = "direct"};
    d->s = svc_state(ledger);
    d->token = strndup(token.p, token.n);
    if (d->token == NULL) {
        free(d);
        return ERR_NO_MEMORY;
    }
    struct auth_cap *cap;
    enum err err = cap_of(d, &cap);
    if (err != ERR_OK) {
        free(d->token);
        free(d);
        return err;
    }
    auth_cap_release(cap);
    rt_lock_take(&d->s->direct_lock);
    d->next = d->s->directs;
    d->s->directs = d;
    rt_lock_release(&d->s->direct_lock);
    *out_client = &d->base;
    return ERR_OK;
}
