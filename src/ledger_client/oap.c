/*
 * The oap transport: frames on a few connections of net/oap_client, all on the loop that the owner's "ledger-io" task runs. Calls
 * go round the connections; each carries 64 at once and lets more wait.
 *
 * Definite or unknown? An answer is definite whatever its status (but for the ledger's own outcome_unknown). So is a connection
 * that could not be made, and a call whose time ran out before it was sent. A connection that breaks, or a deadline that passes,
 * once the frame has left is unknown for ingest, and a refusal for reads. While a connection is down, calls are refused at once
 * instead of waiting for the next attempt: the caller has a queue of its own and better use for the time.
 *
 * Several addresses (targets.h): each has its connections, which are opened when it is asked for the first time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/str.h"
#include "ledger_client/json.h"
#include "ledger_client/oap_codec.h"
#include "ledger_client/remote.h"
#include "ledger_client/targets.h"
#include "net/oap_client.h"

enum {
    CONNS_MAX = 4,
    PER_CONN = 64, /* what the server takes at once from one connection */
    QUEUE_DEFAULT = 256,
    REQUEST_MAX = NET_OAP_FRAME_MAX,
    ARENA_MAX = 64 << 20,
    EVENT_ARENA_MAX = 16 << 20,
    ADDRESS_MAX = 256,
};

struct oap_target {
    struct ledger_oap *o;
    struct net_oap_client *conns[CONNS_MAX];
    size_t n_conns;
};

struct ledger_oap {
    struct ledger_remote remote;
    struct oap_target targets[LEDGER_TARGETS_MAX];
    struct ledger_targets to;
    _Atomic unsigned turn; /* relaxed: only spreads calls over connections */
};

struct call {
    void *ctx;
    struct arena arena;
    struct ledger_oap *o;
    net_oap_answer_fn *done;
    enum ledger_oap_op op;
    struct bytes payload; /* kept only when there is another address to send it to */
    struct deadline by;
    uint32_t target, attempts;
    struct bytes
        said; /* by an address that was there and would not do it; kept when there is another one to ask */
    union ledger_remote_fn fn;
    bool one; /* entries: exactly one was asked for; proof: of consistency */
};

static struct ledger_oap *of(struct ledger_client *c)
{
    return (struct ledger_oap *)c;
}

/* Nothing of the call reached the ledger: it was not sent, or the ledger would not have the connection. */
static bool never_left(enum err e)
{
    return e == ERR_REFUSED || e == ERR_BUSY || e == ERR_UNAVAILABLE || e == ERR_SYNTAX;
}

static bool copy(struct arena *a, struct str in, struct str *out)
{
    *out = (struct str){NULL, 0};
    return in.n == 0 || arena_str(a, in, out);
}

/* The head of a reply. *out_extra: what the problem carries beside itself. */
static struct ledger_answer answer_of(enum err e, uint16_t status, struct bytes payload, struct arena *a,
                                      bool write, struct bytes *out_extra)
{
    struct ledger_answer out = {.outcome = LEDGER_ANSWERED, .status = status};
    struct net_oap_problem_view p;
    *out_extra = bytes_of(NULL, 0);
    if (e != ERR_OK)
        return ledger_remote__failed(e, !write || never_left(e));
    if (status < 400)
        return out;
    out.outcome = LEDGER_REFUSED;
    out.err = ERR_INTERNAL;
    if (net_oap_problem_get(payload, &p) == ERR_OK && copy(a, p.code, &out.code) &&
        copy(a, p.detail, &out.detail) && copy(a, p.details_json, &out.details)) {
        out.err = ledger_reason_from(out.code);
        out.retry_after_s = p.retry_after_s;
        *out_extra = p.extra;
    }
    if (out.err == ERR_OUTCOME_UNKNOWN || (write && out.code.n == 0))
        out.outcome = LEDGER_UNKNOWN;
    return out;
}

static void unreadable(struct ledger_answer *a, bool write)
{
    a->outcome = write ? LEDGER_UNKNOWN : LEDGER_REFUSED;
    a->err = ERR_CORRUPT;
}

static struct call *call_new(void *ctx)
{
    struct call *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->ctx = ctx;
    arena_init(&c->arena, 4096, ARENA_MAX);
    return c;
}

static void call_end(struct call *c)
{
    arena_fini(&c->arena);
    free(c);
}

static struct net_oap_client *next_conn(struct ledger_oap *o, uint32_t target)
{
    const struct oap_target *t = &o->targets[target];
    return t->conns[atomic_fetch_add_explicit(&o->turn, 1, memory_order_relaxed) % t->n_conns];
}

static void called(void *arg, enum err e, uint16_t status, struct bytes payload);

static enum err dispatch(struct call *c, struct bytes payload)
{
    struct net_oap_call call = {
        .app = NET_OAP_LEDGER, .code = (uint16_t)c->op, .payload = payload, .by = c->by};
    c->target = ledger_targets_now(&c->o->to);
    return net_oap_call(next_conn(c->o, c->target), &call, called, c);
}

/* What came back from this address; true: nothing was done there, or the call only reads: it may be sent again. */
static bool turned_away(struct call *c, enum err e, uint16_t status, struct bytes payload)
{
    struct net_oap_problem_view p;
    if (e != ERR_OK)
        return ledger_targets_failed(&c->o->to, c->target, c->op == LEDGER_OAP_INGEST, e);
    if (status != 503)
        return false;
    ledger_targets_leave(&c->o->to, c->target);
    return net_oap_problem_get(payload, &p) == ERR_OK &&
           ledger_targets_turned_away(ledger_reason_from(p.code));
}

static void keep_said(struct call *c, enum err e, struct bytes payload)
{
    uint8_t *copied = e == ERR_OK && c->said.n == 0 ? arena_alloc(&c->arena, payload.n) : NULL;
    if (copied != NULL)
        c->said = bytes_of(memcpy(copied, payload.p, payload.n), payload.n);
}

/*
 * With several addresses, what was surely not done at one is sent to the next, once per address. When nobody takes it, what one that
 * was there said is worth more than that another was not.
 */
static void called(void *arg, enum err e, uint16_t status, struct bytes payload)
{
    struct call *c = arg;
    if (c->o->to.n > 1 && turned_away(c, e, status, payload) && ++c->attempts < c->o->to.n &&
        !deadline_passed(c->by)) {
        keep_said(c, e, payload);
        if (dispatch(c, c->payload) == ERR_OK)
            return;
    }
    if (c->said.n != 0 && never_left(e))
        c->done(c, ERR_OK, 503, c->said);
    else
        c->done(c, e, status, payload);
}

/* Sends what b holds and frees it; when it cannot, `done` hears at once. */
static void request(struct ledger_oap *o, struct call *c, enum ledger_oap_op op, struct buf *b,
                    struct deadline by, net_oap_answer_fn *done)
{
    c->o = o;
    c->op = op;
    c->by = by;
    c->done = done;
    enum err e = b->err != ERR_OK ? ERR_TOO_LARGE : ERR_OK;
    if (e == ERR_OK && o->to.n > 1 && b->n > 0) {
        uint8_t *copied = arena_alloc(&c->arena, b->n);
        e = copied == NULL ? ERR_BUSY : ERR_OK;
        if (e == ERR_OK)
            c->payload = bytes_of(memcpy(copied, b->p, b->n), b->n);
    }
    if (e == ERR_OK)
        e = dispatch(c, buf_bytes(b));
    buf_fini(b);
    if (e != ERR_OK)
        done(c, e == ERR_TOO_LARGE ? ERR_SYNTAX : ERR_BUSY, 0, bytes_of(NULL, 0));
}

/* ---- ingest ---- */

static void ingest_done(void *arg, enum err e, uint16_t status, struct bytes payload)
{
    struct call *c = arg;
    struct bytes extra;
    struct ledger_ingest_reply r = {.a = answer_of(e, status, payload, &c->arena, true, &extra)};
    if (r.a.outcome == LEDGER_ANSWERED) {
        if (ledger_oap_results(payload, &c->arena, &r.results, &r.n_results) != ERR_OK)
            unreadable(&r.a, true);
    } else if (extra.n != 0 && ledger_oap_results(extra, &c->arena, &r.results, &r.n_results) == ERR_OK) {
        r.a.outcome = LEDGER_ANSWERED; /* refused as a whole for one reason: every unit has its result */
        r.a.err = ERR_OK;
    }
    c->fn.ingest(c->ctx, &r);
    call_end(c);
}

static void oap_ingest(struct ledger_client *base, const struct ledger_ingest *rq, struct deadline by,
                       ledger_ingest_fn *fn, void *ctx)
{
    struct call *c = call_new(ctx);
    if (c == NULL) {
        struct ledger_ingest_reply busy = {.a = ledger_remote__failed(ERR_BUSY, true)};
        fn(ctx, &busy);
        return;
    }
    struct buf b;
    c->fn.ingest = fn;
    buf_init(&b, REQUEST_MAX);
    ledger_oap_put_ingest(&b, rq);
    request(of(base), c, LEDGER_OAP_INGEST, &b, by, ingest_done);
}

/* ---- reads ---- */

static void unit_done(void *arg, enum err e, uint16_t status, struct bytes payload)
{
    struct call *c = arg;
    struct bytes extra;
    struct ledger_unit_reply r = {.a = answer_of(e, status, payload, &c->arena, false, &extra)};
    if (r.a.outcome == LEDGER_ANSWERED) {
        r.found = ledger_oap_unit_result(payload, &c->arena, &r.result) == ERR_OK;
        if (!r.found)
            unreadable(&r.a, false);
    } else if (status == 404) {
        ledger_remote__absent(&r, &c->arena);
    }
    c->fn.unit(c->ctx, &r);
    call_end(c);
}

static void oap_unit(struct ledger_client *base, struct str idem_id, uint32_t wait_ms, struct deadline by,
                     ledger_unit_fn *fn, void *ctx)
{
    struct call *c = call_new(ctx);
    if (c == NULL) {
        struct ledger_unit_reply busy = {.a = ledger_remote__failed(ERR_BUSY, true)};
        fn(ctx, &busy);
        return;
    }
    struct buf b;
    c->fn.unit = fn;
    buf_init(&b, REQUEST_MAX);
    ledger_oap_put_text(&b, idem_id, wait_ms > 5000 ? 5000 : wait_ms);
    request(of(base), c, LEDGER_OAP_UNIT, &b, by, unit_done);
}

static void account_done(void *arg, enum err e, uint16_t status, struct bytes payload)
{
    struct call *c = arg;
    struct bytes extra;
    struct ledger_account_reply r = {.a = answer_of(e, status, payload, &c->arena, false, &extra)};
    if (r.a.outcome == LEDGER_ANSWERED && ledger_oap_account(payload, &c->arena, &r) != ERR_OK)
        unreadable(&r.a, false);
    c->fn.account(c->ctx, &r);
    call_end(c);
}

static void oap_account(struct ledger_client *base, struct str account, uint64_t min_seq,
                        struct deadline by, ledger_account_fn *fn, void *ctx)
{
    struct call *c = call_new(ctx);
    if (c == NULL) {
        struct ledger_account_reply busy = {.a = ledger_remote__failed(ERR_BUSY, true)};
        fn(ctx, &busy);
        return;
    }
    struct buf b;
    c->fn.account = fn;
    buf_init(&b, REQUEST_MAX);
    ledger_oap_put_text(&b, account, min_seq);
    request(of(base), c, LEDGER_OAP_ACCOUNT, &b, by, account_done);
}

static void entries_done(void *arg, enum err e, uint16_t status, struct bytes payload)
{
    struct call *c = arg;
    struct bytes extra;
    struct ledger_entries_reply r = {.a = answer_of(e, status, payload, &c->arena, false, &extra)};
    if (r.a.outcome == LEDGER_ANSWERED &&
        (ledger_oap_entries(payload, &c->arena, &r) != ERR_OK || (c->one && r.n_entries != 1)))
        unreadable(&r.a, false);
    c->fn.entries(c->ctx, &r);
    call_end(c);
}

static struct call *entries_call(bool one, ledger_entries_fn *fn, void *ctx)
{
    struct call *c = call_new(ctx);
    if (c == NULL) {
        struct ledger_entries_reply busy = {.a = ledger_remote__failed(ERR_BUSY, true)};
        fn(ctx, &busy);
        return NULL;
    }
    c->fn.entries = fn;
    c->one = one;
    return c;
}

static void oap_entry(struct ledger_client *base, struct str id, struct deadline by, ledger_entries_fn *fn,
                      void *ctx)
{
    struct call *c = entries_call(true, fn, ctx);
    struct buf b;
    if (c == NULL)
        return;
    buf_init(&b, REQUEST_MAX);
    ledger_oap_put_text(&b, id, 0);
    request(of(base), c, LEDGER_OAP_ENTRIES, &b, by, entries_done);
}

static void oap_entries(struct ledger_client *base, uint64_t from, uint32_t limit, struct deadline by,
                        ledger_entries_fn *fn, void *ctx)
{
    struct call *c = entries_call(false, fn, ctx);
    struct buf b;
    if (c == NULL)
        return;
    buf_init(&b, REQUEST_MAX);
    ledger_oap_put_numbers(&b, 2, from == 0 ? 1 : from, limit);
    request(of(base), c, LEDGER_OAP_ENTRIES, &b, by, entries_done);
}

static void roots_done(void *arg, enum err e, uint16_t status, struct bytes payload)
{
    struct call *c = arg;
    struct bytes extra;
    struct ledger_roots_reply r = {.a = answer_of(e, status, payload, &c->arena, false, &extra)};
    if (r.a.outcome == LEDGER_ANSWERED && ledger_oap_roots(payload, &c->arena, &r) != ERR_OK)
        unreadable(&r.a, false);
    c->fn.roots(c->ctx, &r);
    call_end(c);
}

static void oap_roots(struct ledger_client *base, uint64_t since, uint32_t limit, struct deadline by,
                      ledger_roots_fn *fn, void *ctx)
{
    struct call *c = call_new(ctx);
    if (c == NULL) {
        struct ledger_roots_reply busy = {.a = ledger_remote__failed(ERR_BUSY, true)};
        fn(ctx, &busy);
        return;
    }
    struct buf b;
    c->fn.roots = fn;
    buf_init(&b, REQUEST_MAX);
    ledger_oap_put_numbers(&b, 1, since, limit);
    request(of(base), c, LEDGER_OAP_ROOTS, &b, by, roots_done);
}

static void proof_done(void *arg, enum err e, uint16_t status, struct bytes payload)
{
    struct call *c = arg;
    struct bytes extra;
    struct ledger_proof_reply r = {.a = answer_of(e, status, payload, &c->arena, false, &extra)};
    if (r.a.outcome == LEDGER_ANSWERED && (c->one ? ledger_oap_consistency(payload, &c->arena, &r)
                                                  : ledger_oap_inclusion(payload, &c->arena, &r)) != ERR_OK)
        unreadable(&r.a, false);
    c->fn.proof(c->ctx, &r);
    call_end(c);
}

static void proof_ask(struct ledger_oap *o, enum ledger_oap_op op, uint64_t a, uint64_t b_number,
                      struct deadline by, ledger_proof_fn *fn, void *ctx)
{
    struct call *c = call_new(ctx);
    if (c == NULL) {
        struct ledger_proof_reply busy = {.a = ledger_remote__failed(ERR_BUSY, true)};
        fn(ctx, &busy);
        return;
    }
    struct buf b;
    c->fn.proof = fn;
    c->one = op == LEDGER_OAP_CONSISTENCY;
    buf_init(&b, REQUEST_MAX);
    ledger_oap_put_numbers(&b, 1, a, b_number);
    request(o, c, op, &b, by, proof_done);
}

static void oap_proof(struct ledger_client *base, uint64_t seq, uint64_t size, struct deadline by,
                      ledger_proof_fn *fn, void *ctx)
{
    proof_ask(of(base), LEDGER_OAP_INCLUSION, seq, size, by, fn, ctx);
}

static void oap_consistency(struct ledger_client *base, uint64_t from, uint64_t to, struct deadline by,
                            ledger_proof_fn *fn, void *ctx)
{
    proof_ask(of(base), LEDGER_OAP_CONSISTENCY, from, to, by, fn, ctx);
}

static void head_done(void *arg, enum err e, uint16_t status, struct bytes payload)
{
    struct call *c = arg;
    struct bytes extra;
    struct ledger_head_reply r = {.a = answer_of(e, status, payload, &c->arena, false, &extra)};
    if (r.a.outcome == LEDGER_ANSWERED && ledger_oap_head(payload, &c->arena, &r) != ERR_OK)
        unreadable(&r.a, false);
    c->fn.head(c->ctx, &r);
    call_end(c);
}

static void oap_head(struct ledger_client *base, struct deadline by, ledger_head_fn *fn, void *ctx)
{
    struct call *c = call_new(ctx);
    if (c == NULL) {
        struct ledger_head_reply busy = {.a = ledger_remote__failed(ERR_BUSY, true)};
        fn(ctx, &busy);
        return;
    }
    struct buf b;
    c->fn.head = fn;
    buf_init(&b, 16);
    request(of(base), c, LEDGER_OAP_HEAD, &b, by, head_done);
}

/* ---- feed ---- */

struct ledger_feed {
    struct ledger_oap *o;
    uint32_t target;
    const struct ledger_feed_sink *sink;
    void *ctx;
    struct net_oap_stream *stream;
    struct arena arena;
    _Atomic bool stop, done;
    bool opened;
    enum err end;
};

static void feed_end(struct ledger_feed *f, enum err e, uint16_t code)
{
    if (e == ERR_OK)
        e = code >= 400 ? ERR_UNAVAILABLE : ERR_DISCONNECTED;
    if (!atomic_load(&f->stop) && f->o->to.n > 1 && f->end != ERR_LAGGED)
        ledger_targets_leave(&f->o->to, f->target);
    if (!atomic_load(&f->stop))
        f->sink->on_end(f->ctx, f->end != ERR_OK ? f->end : e);
    atomic_store(&f->done, true);
}

static void feed_frame(void *arg, enum err e, uint16_t code, struct bytes payload, bool end)
{
    struct ledger_feed *f = arg;
    bool lagged = false;
    if (end) {
        feed_end(f, e, code);
        return;
    }
    if (atomic_load(&f->stop) || f->end != ERR_OK)
        return;
    if (!f->opened && f->sink->on_open != NULL)
        f->sink->on_open(f->ctx);
    f->opened = true;
    if (payload.n == 0)
        return; /* the subscription was accepted */
    struct ledger_commit_event ev;
    arena_reset(&f->arena);
    f->end = ledger_oap_event(payload, &f->arena, &ev, &lagged);
    if (f->end == ERR_OK && lagged)
        f->end = ERR_LAGGED;
    if (f->end == ERR_OK)
        f->sink->on_commit(f->ctx, &ev);
}

static struct ledger_feed *oap_feed(struct ledger_client *base, uint64_t since,
                                    const struct ledger_feed_sink *sink, void *ctx)
{
    struct ledger_oap *o = of(base);
    struct ledger_feed *f = calloc(1, sizeof *f);
    struct buf b;
    if (f == NULL)
        return NULL;
    *f = (struct ledger_feed){.o = o, .target = ledger_targets_now(&o->to), .sink = sink, .ctx = ctx};
    arena_init(&f->arena, 16 << 10, EVENT_ARENA_MAX);
    buf_init(&b, 64);
    ledger_oap_put_numbers(&b, 1, since, 0);
    struct net_oap_call call = {.app = NET_OAP_LEDGER,
                                .code = LEDGER_OAP_SUBSCRIBE,
                                .payload = buf_bytes(&b),
                                .by = deadline_never()};
    enum err e = net_oap_open(next_conn(o, f->target), &call, feed_frame, f, &f->stream);
    buf_fini(&b);
    if (e == ERR_OK)
        return f;
    arena_fini(&f->arena);
    free(f);
    return NULL;
}

static void oap_feed_stop(struct ledger_feed *f)
{
    atomic_store(&f->stop, true);
    net_oap_stream_close(f->stream);
    ledger_remote__await(&f->o->remote, &f->done);
    arena_fini(&f->arena);
    free(f);
}

/* ---- life ---- */

static void oap_close(struct ledger_client *base)
{
    struct ledger_oap *o = of(base);
    /* The owner's task has ended, or never ran: what is left is answered here. */
    for (uint32_t t = 0; t < LEDGER_TARGETS_MAX; t++)
        for (size_t i = 0; i < o->targets[t].n_conns; i++)
            net_oap_client_stop(o->targets[t].conns[i]);
    ledger_remote__settle(&o->remote);
    for (uint32_t t = 0; t < LEDGER_TARGETS_MAX; t++)
        for (size_t i = 0; i < o->targets[t].n_conns; i++)
            net_oap_client_destroy(o->targets[t].conns[i]);
    net_loop_destroy(o->remote.loop);
    free(o);
}

static size_t oap_owing(struct ledger_client *base)
{
    struct ledger_oap *o = of(base);
    size_t n = 0;
    for (uint32_t t = 0; t < LEDGER_TARGETS_MAX; t++)
        for (size_t i = 0; i < o->targets[t].n_conns; i++)
            n += net_oap_client_owed(o->targets[t].conns[i]) > 0;
    return n;
}

static enum err oap_set_token(struct ledger_client *base, struct str token)
{
    struct ledger_oap *o = of(base);
    if (token.n > NET_OAP_CAP_MAX)
        return ERR_TOO_LARGE;
    for (size_t i = 0; i < o->to.n; i++)
        for (size_t k = 0; k < o->targets[i].n_conns; k++)
            net_oap_client_set_token(o->targets[i].conns[k], token);
    return ERR_OK;
}

static const struct ledger_client_ops oap_ops = {
    .ingest = oap_ingest,
    .unit = oap_unit,
    .account = oap_account,
    .entry = oap_entry,
    .entries = oap_entries,
    .roots = oap_roots,
    .proof = oap_proof,
    .consistency = oap_consistency,
    .head = oap_head,
    .feed = oap_feed,
    .feed_stop = oap_feed_stop,
    .close = oap_close,
    .owing = oap_owing,
    .set_token = oap_set_token,
};

/* Whoever is there next has to show that it is the same; a copy that nobody talks to may come and go. */
static void on_state(void *ctx, enum err state)
{
    const struct oap_target *t = ctx;
    struct ledger_oap *o = t->o;
    if (state != ERR_OK && o->remote.on_lost != NULL &&
        (uint32_t)(t - o->targets) == ledger_targets_now(&o->to))
        o->remote.on_lost(o->remote.lost_ctx);
}

/* "oap://host:port" or "oap+unix:/path"; `text` holds it, terminated. */
static enum err address_of(struct str url, char text[ADDRESS_MAX], struct net_oap_client_config *out)
{
    url = str_trim(url);
    if (url.n >= ADDRESS_MAX)
        return ERR_SYNTAX;
    memcpy(text, url.p, url.n);
    text[url.n] = 0;
    out->uds = out->connect = NULL;
    if (str_starts(url, STR("oap+unix:")) && url.n > 9)
        out->uds = text + 9;
    else if (str_starts(url, STR("oap://")) && url.n > 6)
        out->connect = text + 6;
    else
        return ERR_SYNTAX;
    return ERR_OK;
}

static enum err target_open(struct ledger_oap *o, struct str url, struct net_oap_client_config cfg,
                            size_t conns)
{
    char text[ADDRESS_MAX];
    if (o->to.n == LEDGER_TARGETS_MAX)
        return ERR_SYNTAX;
    struct oap_target *t = &o->targets[o->to.n++];
    t->o = o;
    cfg.ctx = t;
    enum err e = address_of(url, text, &cfg);
    for (; e == ERR_OK && t->n_conns < conns; t->n_conns += e == ERR_OK)
        e = net_oap_client_create(&cfg, &t->conns[t->n_conns]);
    return e;
}

enum err ledger_client_oap_open(const struct ledger_client_conf *conf, struct ledger_client **out_client)
{
    size_t queue = conf->inflight_max == 0 ? QUEUE_DEFAULT : conf->inflight_max;
    size_t conns = (queue + PER_CONN - 1) / PER_CONN;
    struct net_oap_client_config cfg = {.token = str_from_c(conf->token == NULL ? "" : conf->token),
                                        .inflight_max = PER_CONN,
                                        .fail_fast = true,
                                        .on_state = on_state};
    struct ledger_oap *o = calloc(1, sizeof *o);
    if (o == NULL)
        return ERR_NO_MEMORY;
    o->remote.base = (struct ledger_client){.ops = &oap_ops, .transport = "oap", .io = &o->remote};
    conns = conns > CONNS_MAX ? CONNS_MAX : conns;
    cfg.queue_max = (queue + conns - 1) / conns + 2; /* and the feeds */
    enum err e = net_loop_create(NULL, &o->remote.loop);
    cfg.loop = o->remote.loop;
    struct str rest = str_from_c(conf->url), one;
    do {
        rest = str_cut(rest, ',', &one);
        if (e == ERR_OK)
            e = target_open(o, one, cfg, conns);
    } while (e == ERR_OK && rest.p != NULL);
    if (e != ERR_OK) {
        if (o->remote.loop != NULL)
            oap_close(&o->remote.base);
        else
            free(o);
        return e;
    }
    *out_client = &o->remote.base;
    return ERR_OK;
}
