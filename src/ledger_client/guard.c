#include "ledger_client/guard.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "ledger_client/remote.h"
#include "rt/lock.h"

enum { GUARD_RANK = 930, AUDIT_MS = 5000, COPY_MAX = 4 << 20 };

/* TRUSTED: calls pass. SUSPECT: the next call begins an audit and waits. AUDITED: one is under way, calls wait. FORKED: no more. */
enum trust { TRUSTED, SUSPECT, AUDITED, FORKED };

struct seen {
    uint64_t size; /* 0: nothing */
    struct sha256 root;
};

enum op {
    OP_INGEST,
    OP_UNIT,
    OP_ACCOUNT,
    OP_ENTRY,
    OP_ENTRIES,
    OP_ROOTS,
    OP_PROOF,
    OP_CONSISTENCY,
    OP_HEAD
};

struct guard;

/* A call of the caller's, on its way or parked. */
struct call {
    struct guard *g;
    struct call *next;
    enum op op;
    struct deadline by;
    void *ctx;
    union ledger_remote_fn fn;
    struct str text;
    uint64_t a, b;
    const struct ledger_ingest *ingest;
    struct arena arena; /* what a parked call needs later */
    uint64_t floor;     /* the head was here when it was sent: it must not be told less */
};

struct guard {
    struct ledger_client base;
    struct ledger_client *inner;
    struct rt_lock lock; /* guards all below */
    enum trust trust;
    uint64_t
        doubts; /* how often it became suspect: an audit that began before the last time says nothing */
    struct seen newest, proven;
    struct call *first, *last;
    size_t parked;
};

static struct guard *of(struct ledger_client *c)
{
    return (struct guard *)c;
}

static void issue(struct call *c);

/* ---- what was seen ---- */

static bool clashes(const struct seen *s, uint64_t size, const struct sha256 *root)
{
    return s->size != 0 && s->size == size && !sha256_eq(&s->root, root);
}

/* False: it contradicts what was seen; nobody is to be trusted any more. */
static bool note(struct guard *g, uint64_t size, const struct sha256 *root)
{
    if (size == 0)
        return true;
    rt_lock_take(&g->lock);
    bool ok = g->trust != FORKED && !clashes(&g->newest, size, root) && !clashes(&g->proven, size, root);
    if (!ok)
        g->trust = FORKED;
    else if (size > g->newest.size)
        g->newest = (struct seen){size, *root};
    rt_lock_release(&g->lock);
    return ok;
}

static void set_forked(struct guard *g)
{
    rt_lock_take(&g->lock);
    g->trust = FORKED;
    rt_lock_release(&g->lock);
}

void ledger_guard_suspect(void *guard)
{
    struct guard *g = guard;
    rt_lock_take(&g->lock);
    if (g->trust != FORKED && g->newest.size != 0) {
        g->trust = SUSPECT;
        g->doubts++;
    }
    rt_lock_release(&g->lock);
}

/* An answer that did not come because the line is gone: whoever is there next has to show that it is the same. */
static void look_at_failure(struct guard *g, const struct ledger_answer *a)
{
    if (a->outcome != LEDGER_ANSWERED && a->status == 0 &&
        (a->err == ERR_REFUSED || a->err == ERR_DISCONNECTED || a->err == ERR_CORRUPT || a->err == ERR_IO))
        ledger_guard_suspect(g);
}

static const struct ledger_answer forked = {
    .outcome = LEDGER_REFUSED, .err = ERR_LEDGER_FORKED, .code = {"ledger_forked", 13}};

/* ---- calls ---- */

static void call_free(struct call *c)
{
    arena_fini(&c->arena);
    free(c);
}

static void answer_with(struct call *c, struct ledger_answer a)
{
    switch (c->op) {
    case OP_INGEST:
        c->fn.ingest(c->ctx, &(struct ledger_ingest_reply){.a = a});
        break;
    case OP_UNIT:
        c->fn.unit(c->ctx, &(struct ledger_unit_reply){.a = a});
        break;
    case OP_ACCOUNT:
        c->fn.account(c->ctx, &(struct ledger_account_reply){.a = a});
        break;
    case OP_ENTRY:
    case OP_ENTRIES:
        c->fn.entries(c->ctx, &(struct ledger_entries_reply){.a = a});
        break;
    case OP_ROOTS:
        c->fn.roots(c->ctx, &(struct ledger_roots_reply){.a = a});
        break;
    case OP_PROOF:
    case OP_CONSISTENCY:
        c->fn.proof(c->ctx, &(struct ledger_proof_reply){.a = a});
        break;
    case OP_HEAD:
        c->fn.head(c->ctx, &(struct ledger_head_reply){.a = a});
        break;
    }
}

/* Answers a call that is not sent. */
static void refuse(struct call *c, struct ledger_answer a)
{
    answer_with(c, a);
    call_free(c);
}

static void on_ingest(void *ctx, const struct ledger_ingest_reply *r)
{
    struct call *c = ctx;
    struct ledger_ingest_reply out = *r;
    bool ok = true;
    for (size_t i = 0; i < r->n_results; i++)
        if (r->results[i].status == LEDGER_COMMITTED || r->results[i].status == LEDGER_DUPLICATE)
            ok = note(c->g, r->results[i].tree_size, &r->results[i].root) && ok;
    look_at_failure(c->g, &r->a);
    if (!ok) { /* it was taken in, but by whom? */
        out = (struct ledger_ingest_reply){.a = forked};
        out.a.outcome = LEDGER_UNKNOWN;
    }
    c->fn.ingest(c->ctx, &out);
    call_free(c);
}

static void on_unit(void *ctx, const struct ledger_unit_reply *r)
{
    struct call *c = ctx;
    bool ok = !r->found || r->result.status != LEDGER_COMMITTED ||
              note(c->g, r->result.tree_size, &r->result.root);
    look_at_failure(c->g, &r->a);
    c->fn.unit(c->ctx, ok ? r : &(struct ledger_unit_reply){.a = forked});
    call_free(c);
}

static void on_account(void *ctx, const struct ledger_account_reply *r)
{
    struct call *c = ctx;
    bool ok = r->a.outcome != LEDGER_ANSWERED || note(c->g, r->as_of_seq, &r->root);
    if (ok && r->a.outcome == LEDGER_ANSWERED && r->as_of_seq < c->floor) {
        set_forked(c->g);
        ok = false;
    }
    look_at_failure(c->g, &r->a);
    c->fn.account(c->ctx, ok ? r : &(struct ledger_account_reply){.a = forked});
    call_free(c);
}

static void on_entries(void *ctx, const struct ledger_entries_reply *r)
{
    struct call *c = ctx;
    look_at_failure(c->g, &r->a);
    c->fn.entries(c->ctx, r);
    call_free(c);
}

static void on_roots(void *ctx, const struct ledger_roots_reply *r)
{
    struct call *c = ctx;
    bool ok = true;
    for (size_t i = 0; r->a.outcome == LEDGER_ANSWERED && i < r->n_roots; i++)
        ok = note(c->g, r->roots[i].seq, &r->roots[i].root) && ok;
    look_at_failure(c->g, &r->a);
    c->fn.roots(c->ctx, ok ? r : &(struct ledger_roots_reply){.a = forked});
    call_free(c);
}

/* Sizes inside a group have roots too, so a proof may name one that was never a head; it clashes all the same. */
static void on_proof(void *ctx, const struct ledger_proof_reply *r)
{
    struct call *c = ctx;
    bool ok = r->a.outcome != LEDGER_ANSWERED || note(c->g, r->tree_size, &r->root);
    look_at_failure(c->g, &r->a);
    c->fn.proof(c->ctx, ok ? r : &(struct ledger_proof_reply){.a = forked});
    call_free(c);
}

/* ---- the audit ---- */

/* Head, then a proof from each memory to it. `call` is the head() that asked; NULL: the guard itself wants to know. */
struct audit {
    struct guard *g;
    struct call *call;
    struct deadline by;
    struct seen from[2]; /* as remembered when it began */
    uint64_t doubts;     /* likewise */
    unsigned step;
    struct ledger_head_reply head;
};

static void let_go(struct call *list, enum trust trust, struct ledger_answer why_not)
{
    for (struct call *c = list, *next; c != NULL; c = next) {
        next = c->next;
        if (trust == TRUSTED)
            issue(c);
        else
            refuse(c, trust == FORKED ? forked : why_not);
    }
}

/* With the lock: what this verdict makes of our trust. */
static enum trust judge(const struct guard *g, const struct audit *at, const struct ledger_answer *verdict)
{
    if (g->trust == FORKED || verdict->err == ERR_LEDGER_FORKED)
        return FORKED;
    if (verdict->outcome == LEDGER_ANSWERED && at->doubts == g->doubts)
        return TRUSTED;
    return g->trust == TRUSTED ? TRUSTED : SUSPECT;
}

static void audit_end(struct audit *at, struct ledger_answer verdict)
{
    struct guard *g = at->g;
    bool passed = verdict.outcome == LEDGER_ANSWERED;
    rt_lock_take(&g->lock);
    enum trust trust = g->trust = judge(g, at, &verdict);
    if (passed && trust != FORKED) {
        struct seen head = {at->head.head_seq, at->head.root};
        if (head.size > g->proven.size)
            g->proven = head;
        if (head.size > g->newest.size)
            g->newest = head;
    }
    struct call *parked = g->first;
    g->first = g->last = NULL;
    g->parked = 0;
    rt_lock_release(&g->lock);
    let_go(parked, trust, passed ? ledger_remote__failed(ERR_UNAVAILABLE, true) : verdict);
    if (at->call != NULL) {
        struct ledger_head_reply none = {.a = trust == FORKED ? forked : verdict};
        at->call->fn.head(at->call->ctx, passed && trust != FORKED ? &at->head : &none);
        call_free(at->call);
    }
    free(at);
}

static void audit_next(struct audit *at);

static void on_audit_proof(void *ctx, const struct ledger_proof_reply *r)
{
    struct audit *at = ctx;
    const struct seen *from = &at->from[at->step];
    look_at_failure(at->g, &r->a);
    if (r->a.outcome != LEDGER_ANSWERED) {
        audit_end(at, ledger_remote__failed(r->a.err, true));
    } else if (r->tree_size != at->head.head_seq ||
               !ledger_consistency_holds(from->size, at->head.head_seq, &from->root, &at->head.root,
                                         r->path, r->n_path)) {
        audit_end(at, forked);
    } else {
        at->step++;
        audit_next(at);
    }
}

static void audit_next(struct audit *at)
{
    for (; at->step < 2; at->step++) {
        const struct seen *from = &at->from[at->step];
        if (from->size > at->head.head_seq && at->head.follows) {
            audit_end(at, ledger_remote__failed(ERR_UNAVAILABLE,
                                                true)); /* a copy that has not heard of it yet: later */
            return;
        }
        if (from->size > at->head.head_seq || clashes(from, at->head.head_seq, &at->head.root)) {
            audit_end(at, forked); /* it went back, or has another root */
            return;
        }
        if (from->size != 0 && from->size != at->head.head_seq) {
            ledger_client_consistency(at->g->inner, from->size, at->head.head_seq, at->by, on_audit_proof,
                                      at);
            return;
        }
    }
    audit_end(at, (struct ledger_answer){.outcome = LEDGER_ANSWERED, .status = 200});
}

static void on_audit_head(void *ctx, const struct ledger_head_reply *r)
{
    struct audit *at = ctx;
    look_at_failure(at->g, &r->a);
    if (r->a.outcome != LEDGER_ANSWERED) {
        audit_end(at, ledger_remote__failed(r->a.err, true));
        return;
    }
    at->head = *r;
    at->head.a.code = at->head.a.detail = at->head.a.details = (struct str){NULL, 0};
    audit_next(at);
}

static void audit_begin(struct guard *g, struct call *call, struct deadline by)
{
    struct audit *at = calloc(1, sizeof *at);
    CHECK(at != NULL);
    at->g = g;
    at->call = call;
    at->by = by;
    rt_lock_take(&g->lock);
    at->doubts = g->doubts;
    at->from[0] = g->proven;
    at->from[1] = g->newest;
    rt_lock_release(&g->lock);
    ledger_client_head(g->inner, by, on_audit_head, at);
}

/* ---- in and out ---- */

static void issue(struct call *c)
{
    struct ledger_client *in = c->g->inner;
    rt_lock_take(&c->g->lock);
    c->floor = c->g->newest.size;
    rt_lock_release(&c->g->lock);
    switch (c->op) {
    case OP_INGEST:
        ledger_client_ingest(in, c->ingest, c->by, on_ingest, c);
        break;
    case OP_UNIT:
        ledger_client_unit(in, c->text, (uint32_t)c->a, c->by, on_unit, c);
        break;
    case OP_ACCOUNT:
        ledger_client_account(in, c->text, c->a, c->by, on_account, c);
        break;
    case OP_ENTRY:
        ledger_client_entry(in, c->text, c->by, on_entries, c);
        break;
    case OP_ENTRIES:
        ledger_client_entries(in, c->a, (uint32_t)c->b, c->by, on_entries, c);
        break;
    case OP_ROOTS:
        ledger_client_roots(in, c->a, (uint32_t)c->b, c->by, on_roots, c);
        break;
    case OP_PROOF:
        ledger_client_proof(in, c->a, c->b, c->by, on_proof, c);
        break;
    case OP_CONSISTENCY:
        ledger_client_consistency(in, c->a, c->b, c->by, on_proof, c);
        break;
    case OP_HEAD:
        audit_begin(c->g, c, c->by);
        break;
    }
}

static bool keep(struct arena *a, struct str *s)
{
    struct str in = *s;
    return in.n == 0 || arena_str(a, in, s);
}

static const struct ledger_ingest *ingest_copy(struct arena *a, const struct ledger_ingest *in)
{
    struct ledger_ingest *out = arena_alloc(a, sizeof *out);
    struct ledger_unit *u = arena_array(a, in->n_units + 1, sizeof *u);
    if (out == NULL || u == NULL)
        return NULL;
    *out = *in;
    out->units = u;
    bool ok = keep(a, &out->corr_id) && keep(a, &out->traceparent);
    for (size_t i = 0; ok && i < in->n_units; i++) {
        struct ledger_entry *e = arena_array(a, in->units[i].n_entries + 1, sizeof *e);
        struct str meta = str_of((const char *)in->units[i].meta.p, in->units[i].meta.n);
        u[i] = in->units[i];
        u[i].entries = e;
        ok = e != NULL && keep(a, &u[i].idem_id) && keep(a, &meta);
        u[i].meta = bytes_of(meta.p, meta.n);
        for (size_t k = 0; ok && k < u[i].n_entries; k++) {
            e[k] = in->units[i].entries[k];
            ok = keep(a, &e[k].id) && keep(a, &e[k].account) && keep(a, &e[k].to) && keep(a, &e[k].asset) &&
                 keep(a, &e[k].ref_id);
        }
    }
    return ok ? out : NULL;
}

/* Puts it behind the audit under way; the trust there is otherwise. */
static enum trust park(struct guard *g, struct call *c)
{
    rt_lock_take(&g->lock);
    enum trust trust = g->trust;
    if (trust == AUDITED) {
        if (g->last != NULL)
            g->last->next = c;
        else
            g->first = c;
        g->last = c;
        g->parked++;
    }
    rt_lock_release(&g->lock);
    return trust;
}

static void wait_for_audit(struct guard *g, struct call *c, bool room)
{
    if (!room || !keep(&c->arena, &c->text) ||
        (c->op == OP_INGEST && (c->ingest = ingest_copy(&c->arena, c->ingest)) == NULL)) {
        refuse(c, ledger_remote__failed(ERR_BUSY, true));
        return;
    }
    enum trust trust = park(g, c);
    if (trust != AUDITED) /* it ended while we copied */
        let_go(c, trust, ledger_remote__failed(ERR_UNAVAILABLE, true));
}

/* Sends it on, or lets it wait for the audit that the first such call begins. A head() is an audit of its own. */
static void enter(struct guard *g, struct call in)
{
    struct call *c = malloc(sizeof *c);
    if (c == NULL) {
        answer_with(&in, ledger_remote__failed(ERR_BUSY, true));
        return;
    }
    *c = in;
    c->g = g;
    arena_init(&c->arena, 1024, COPY_MAX);
    rt_lock_take(&g->lock);
    enum trust trust = g->trust;
    bool room = g->parked < GUARD_PARKED_MAX;
    if (trust == SUSPECT)
        g->trust = AUDITED;
    rt_lock_release(&g->lock);
    bool head = c->op == OP_HEAD;
    if (trust == FORKED)
        refuse(c, forked);
    else if (head || trust == TRUSTED)
        issue(c);
    else
        wait_for_audit(g, c, room);
    if (trust == SUSPECT && !head)
        audit_begin(g, NULL, deadline_in_ms(AUDIT_MS));
}

static void guard_ingest(struct ledger_client *c, const struct ledger_ingest *rq, struct deadline by,
                         ledger_ingest_fn *fn, void *ctx)
{
    enter(of(c), (struct call){.op = OP_INGEST, .ingest = rq, .by = by, .fn.ingest = fn, .ctx = ctx});
}

static void guard_unit(struct ledger_client *c, struct str idem_id, uint32_t wait_ms, struct deadline by,
                       ledger_unit_fn *fn, void *ctx)
{
    enter(of(c),
          (struct call){.op = OP_UNIT, .text = idem_id, .a = wait_ms, .by = by, .fn.unit = fn, .ctx = ctx});
}

static void guard_account(struct ledger_client *c, struct str account, uint64_t min_seq, struct deadline by,
                          ledger_account_fn *fn, void *ctx)
{
    enter(of(c),
          (struct call){
              .op = OP_ACCOUNT, .text = account, .a = min_seq, .by = by, .fn.account = fn, .ctx = ctx});
}

static void guard_entry(struct ledger_client *c, struct str id, struct deadline by, ledger_entries_fn *fn,
                        void *ctx)
{
    enter(of(c), (struct call){.op = OP_ENTRY, .text = id, .by = by, .fn.entries = fn, .ctx = ctx});
}

static void guard_entries(struct ledger_client *c, uint64_t from, uint32_t limit, struct deadline by,
                          ledger_entries_fn *fn, void *ctx)
{
    enter(of(c),
          (struct call){.op = OP_ENTRIES, .a = from, .b = limit, .by = by, .fn.entries = fn, .ctx = ctx});
}

static void guard_roots(struct ledger_client *c, uint64_t since, uint32_t limit, struct deadline by,
                        ledger_roots_fn *fn, void *ctx)
{
    enter(of(c),
          (struct call){.op = OP_ROOTS, .a = since, .b = limit, .by = by, .fn.roots = fn, .ctx = ctx});
}

static void guard_proof(struct ledger_client *c, uint64_t seq, uint64_t size, struct deadline by,
                        ledger_proof_fn *fn, void *ctx)
{
    enter(of(c), (struct call){.op = OP_PROOF, .a = seq, .b = size, .by = by, .fn.proof = fn, .ctx = ctx});
}

static void guard_consistency(struct ledger_client *c, uint64_t from, uint64_t to, struct deadline by,
                              ledger_proof_fn *fn, void *ctx)
{
    enter(of(c),
          (struct call){.op = OP_CONSISTENCY, .a = from, .b = to, .by = by, .fn.proof = fn, .ctx = ctx});
}

static void guard_head(struct ledger_client *c, struct deadline by, ledger_head_fn *fn, void *ctx)
{
    enter(of(c), (struct call){.op = OP_HEAD, .by = by, .fn.head = fn, .ctx = ctx});
}

/* ---- feed ---- */

struct ledger_feed {
    struct guard *g;
    struct ledger_feed *inner;
    const struct ledger_feed_sink *sink;
    void *ctx;
    bool ended; /* the publisher's thread only */
};

static void feed_open(void *ctx)
{
    struct ledger_feed *f = ctx;
    if (f->sink->on_open != NULL)
        f->sink->on_open(f->ctx);
}

static void feed_end(void *ctx, enum err why)
{
    struct ledger_feed *f = ctx;
    if (why == ERR_DISCONNECTED || why == ERR_REFUSED)
        ledger_guard_suspect(f->g);
    if (!f->ended)
        f->sink->on_end(f->ctx, why);
    f->ended = true;
}

static void feed_commit(void *ctx, const struct ledger_commit_event *ev)
{
    struct ledger_feed *f = ctx;
    if (f->ended)
        return;
    if (note(f->g, ev->tree_size, &ev->root))
        f->sink->on_commit(f->ctx, ev);
    else
        feed_end(f, ERR_LEDGER_FORKED);
}

static const struct ledger_feed_sink feed_sink = {feed_open, feed_commit, feed_end};

static struct ledger_feed *guard_feed(struct ledger_client *c, uint64_t since,
                                      const struct ledger_feed_sink *sink, void *ctx)
{
    struct guard *g = of(c);
    rt_lock_take(&g->lock);
    bool trusted =
        g->trust == TRUSTED; /* else the owner asks again; some other call has the ledger audited */
    rt_lock_release(&g->lock);
    struct ledger_feed *f = trusted ? calloc(1, sizeof *f) : NULL;
    if (f == NULL)
        return NULL;
    *f = (struct ledger_feed){.g = g, .sink = sink, .ctx = ctx};
    f->inner = ledger_client_feed(g->inner, since, &feed_sink, f);
    if (f->inner == NULL) {
        free(f);
        return NULL;
    }
    return f;
}

static void guard_feed_stop(struct ledger_feed *f)
{
    ledger_client_feed_stop(f->g->inner, f->inner);
    free(f);
}

/* ---- life ---- */

static void guard_close(struct ledger_client *c)
{
    struct guard *g = of(c);
    ledger_client_close(g->inner); /* ends the audit, and with it what is parked */
    CHECK(g->first == NULL);
    rt_lock_fini(&g->lock);
    free(g);
}

static size_t guard_owing(struct ledger_client *c)
{
    return ledger_client_owing(of(c)->inner);
}

static enum err guard_set_token(struct ledger_client *c, struct str token)
{
    return ledger_client_set_token(of(c)->inner, token);
}

static const struct ledger_client_ops guard_ops = {
    .ingest = guard_ingest,
    .unit = guard_unit,
    .account = guard_account,
    .entry = guard_entry,
    .entries = guard_entries,
    .roots = guard_roots,
    .proof = guard_proof,
    .consistency = guard_consistency,
    .head = guard_head,
    .feed = guard_feed,
    .feed_stop = guard_feed_stop,
    .close = guard_close,
    .owing = guard_owing,
    .set_token = guard_set_token,
};

enum err ledger_client_guard(struct ledger_client *inner, struct ledger_client **out_client)
{
    struct guard *g = calloc(1, sizeof *g);
    if (g == NULL)
        return ERR_NO_MEMORY;
    g->base = (struct ledger_client){.ops = &guard_ops, .transport = inner->transport, .io = inner->io};
    g->inner = inner;
    rt_lock_init(&g->lock, "ledger_client.guard", GUARD_RANK);
    *out_client = &g->base;
    return ERR_OK;
}
