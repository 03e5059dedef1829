/*
 * The http transport: every call is one request of net/http_client on a loop that the owner's "ledger-io" task runs.
 *
 * Definite or unknown? A complete response is definite, whatever its status; so is a connection that was refused, a TLS failure
 * and a queue that was full. Everything else after the first byte is unknown for ingest, and a refusal for reads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/str.h"
#include "ledger_client/http_internal.h"
#include "ledger_client/json.h"

enum { ARENA_MAX = 64 << 20, RESPONSE_MAX = 32 << 20, FEED_LINE_MAX = 1 << 20 };

struct call {
    struct ledger_http *h;
    void *ctx;
    struct arena arena;
    union ledger_remote_fn fn;
    bool list;

    /* What is needed to send it again elsewhere. */
    net_http_done_fn *done;
    char *path;
    const char *corr, *trace; /* header lines, or NULL */
    struct bytes body;
    struct deadline by;
    uint32_t target, attempts;
    bool write;
    struct net_http_response said; /* by an address that was there and would not do it: status and body */
};

static void ingest_done(void *arg, enum err e, const struct net_http_response *r);

static struct ledger_http *of(struct ledger_client *c)
{
    return (struct ledger_http *)c;
}

static bool was_definite(enum err e)
{
    return e == ERR_REFUSED || e == ERR_BUSY || e == ERR_UNAVAILABLE || e == ERR_UNAUTHENTICATED ||
           e == ERR_FORBIDDEN || e == ERR_SYNTAX;
}

/* The head of a reply from what the transport says. */
static struct ledger_answer answer_of(enum err e, const struct net_http_response *r, struct arena *a,
                                      bool write)
{
    struct ledger_answer out = {.outcome = LEDGER_ANSWERED};
    if (e != ERR_OK)
        return ledger_remote__failed(e, !write || was_definite(e));
    out.status = r->status;
    if (r->status < 400)
        return out;
    out.outcome = LEDGER_REFUSED;
    ledger_json_problem(r->body, r->status, a, &out);
    uint64_t s;
    if (str_parse_u64(net_http_header(r, "retry-after"), &s) == ERR_OK && s < UINT32_MAX)
        out.retry_after_s = (uint32_t)s;
    if (out.err == ERR_OUTCOME_UNKNOWN || (write && out.code.n == 0))
        out.outcome = LEDGER_UNKNOWN;
    return out;
}

/* Of what is ANSWERED: then there is a response. */
static struct bytes body_of(const struct net_http_response *r)
{
    CHECK(r != NULL);
    return r->body;
}

static void unreadable(struct ledger_answer *a, bool write)
{
    a->outcome = write ? LEDGER_UNKNOWN : LEDGER_REFUSED;
    a->err = ERR_CORRUPT;
}

static struct call *call_new(struct ledger_http *h, void *ctx)
{
    struct call *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->h = h;
    c->ctx = ctx;
    arena_init(&c->arena, 4096, ARENA_MAX);
    return c;
}

static void call_end(struct call *c)
{
    arena_fini(&c->arena);
    free(c);
}

static void called(void *arg, enum err e, const struct net_http_response *r);

static enum err dispatch(struct call *c)
{
    struct ledger_http *h = c->h;
    char url[4096];
    const char *headers[5] = {ledger_bearer_line(&h->bearer)};
    size_t lines = 1;
    if (c->body.n != 0)
        headers[lines++] = "Content-Type: application/json";
    if (c->corr != NULL)
        headers[lines++] = c->corr;
    if (c->trace != NULL)
        headers[lines] = c->trace;
    c->target = ledger_targets_now(&h->to);
    const struct ledger_target *t = &h->targets[c->target];
    int n = snprintf(url, sizeof url, "%s%s", t->base_url, c->path);
    struct net_http_request rq = {.url = url,
                                  .uds = t->uds[0] != 0 ? t->uds : NULL,
                                  .headers = headers,
                                  .body = c->body,
                                  .by = c->by,
                                  .response_max = RESPONSE_MAX,
                                  .http_allowed = true};
    return n < 0 || (size_t)n >= sizeof url ? ERR_SYNTAX : net_http_send(h->http, &rq, called, c, NULL);
}

static void keep_said(struct call *c, enum err e, const struct net_http_response *r)
{
    uint8_t *copied = e == ERR_OK && c->said.status == 0 ? arena_alloc(&c->arena, r->body.n + 1) : NULL;
    if (copied != NULL)
        c->said = (struct net_http_response){
            .status = r->status, .body = bytes_of(memcpy(copied, r->body.p, r->body.n), r->body.n)};
}

/*
 * With several addresses: whoever cannot be reached or does not write is left for the next one, and what was surely not done
 * there is sent again, once per address. When nobody takes it, what one that was there said is worth more than that another was not.
 */
static void called(void *arg, enum err e, const struct net_http_response *r)
{
    struct call *c = arg;
    if (c->h->to.n > 1) {
        bool again = ledger_http_target_answered(c->h, c->target, c->write, e, r);
        if (again && ++c->attempts < c->h->to.n && !deadline_passed(c->by)) {
            keep_said(c, e, r);
            if (dispatch(c) == ERR_OK)
                return;
        }
    }
    if (c->said.status != 0 && e == ERR_REFUSED)
        c->done(c, ERR_OK, &c->said);
    else
        c->done(c, e, r);
}

/* Sends it; on failure the callback is called at once with the refusal. */
static void request(struct ledger_http *h, struct call *c, const char *path, struct bytes body,
                    struct deadline by, net_http_done_fn *done)
{
    struct str kept = {path, strlen(path)};
    c->done = done;
    c->by = by;
    c->body = body;
    c->write = done == ingest_done;
    bool ok = arena_str(&c->arena, kept, &kept);
    if (ok && h->to.n > 1 && body.n != 0) { /* alone, the client has copied it when the call returns */
        uint8_t *copy = arena_alloc(&c->arena, body.n);
        ok = copy != NULL;
        if (ok)
            c->body = bytes_of(memcpy(copy, body.p, body.n), body.n);
    }
    c->path = (char *)(uintptr_t)kept.p;
    enum err err = ok ? dispatch(c) : ERR_BUSY;
    if (err != ERR_OK)
        done(c, err == ERR_CLOSED ? ERR_BUSY : err, NULL);
}

static void encode(struct buf *b, struct str s)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s.n; i++) {
        unsigned char ch = (unsigned char)s.p[i];
        if ((ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') ||
            strchr("-._~:", ch) != NULL) {
            buf_putc(b, (char)ch);
        } else {
            buf_putc(b, '%');
            buf_putc(b, hex[ch >> 4]);
            buf_putc(b, hex[ch & 15]);
        }
    }
}

/* NULL when there is nothing to say, or no memory to say it: neither is worth an error. */
static const char *header_line(struct arena *a, const char *name, struct str value)
{
    size_t n = strlen(name);
    char *line = value.n != 0 ? arena_alloc(a, n + value.n + 1) : NULL;
    if (line != NULL)
        snprintf(line, n + value.n + 1, "%s%.*s", name, STR_ARG(value));
    return line;
}

/* ---- ingest ---- */

static void ingest_done(void *arg, enum err e, const struct net_http_response *r)
{
    struct call *c = arg;
    struct ledger_ingest_reply reply = {.a = answer_of(e, r, &c->arena, true)};
    if (reply.a.outcome == LEDGER_ANSWERED) {
        if (ledger_json_results(body_of(r), &c->arena, &reply.results, &reply.n_results) != ERR_OK)
            unreadable(&reply.a, true);
    } else if (e == ERR_OK &&
               ledger_json_problem_results(reply.a.details, &c->arena, &reply.results, &reply.n_results)) {
        reply.a.outcome =
            LEDGER_ANSWERED; /* refused as a whole for one reason: every unit has its result */
        reply.a.err = ERR_OK;
    }
    c->fn.ingest(c->ctx, &reply);
    call_end(c);
}

static void http_ingest(struct ledger_client *base, const struct ledger_ingest *rq, struct deadline by,
                        ledger_ingest_fn *fn, void *ctx)
{
    struct ledger_http *h = of(base);
    struct call *c = call_new(h, ctx);
    struct ledger_ingest_reply busy = {.a = {.outcome = LEDGER_REFUSED, .err = ERR_BUSY}};
    if (c == NULL) {
        fn(ctx, &busy);
        return;
    }
    c->fn.ingest = fn;
    c->corr = header_line(&c->arena, "X-Corr-ID: ", rq->corr_id);
    c->trace = header_line(&c->arena, "traceparent: ", rq->traceparent);
    struct buf b;
    char path[64];
    buf_init(&b, 2 << 20);
    ledger_json_put_units(&b, rq);
    snprintf(path, sizeof path, "/v1/ingest?balances=%d&proof=%d", rq->balances, rq->proof);
    if (b.err != ERR_OK)
        ingest_done(c, ERR_SYNTAX, NULL);
    else
        request(h, c, path, buf_bytes(&b), by, ingest_done);
    buf_fini(&b);
}

/* ---- reads ---- */

static void unit_done(void *arg, enum err e, const struct net_http_response *r)
{
    struct call *c = arg;
    struct ledger_unit_reply reply = {.a = answer_of(e, r, &c->arena, false)};
    if (reply.a.outcome == LEDGER_ANSWERED) {
        if (ledger_json_unit_result(body_of(r), &c->arena, &reply.result) == ERR_OK)
            reply.found = true;
        else
            unreadable(&reply.a, false);
    } else if (e == ERR_OK && r->status == 404) {
        ledger_remote__absent(&reply, &c->arena);
    }
    c->fn.unit(c->ctx, &reply);
    call_end(c);
}

static void http_unit(struct ledger_client *base, struct str idem_id, uint32_t wait_ms, struct deadline by,
                      ledger_unit_fn *fn, void *ctx)
{
    struct call *c = call_new(of(base), ctx);
    if (c == NULL) {
        struct ledger_unit_reply busy = {.a = {.outcome = LEDGER_REFUSED, .err = ERR_BUSY}};
        fn(ctx, &busy);
        return;
    }
    c->fn.unit = fn;
    struct buf b;
    buf_init(&b, 2048);
    buf_puts(&b, "/v1/units/");
    encode(&b, idem_id);
    buf_printf(&b, "?wait=%u", wait_ms > 5000 ? 5000 : wait_ms);
    request(of(base), c, buf_cstr(&b), bytes_of(NULL, 0), by, unit_done);
    buf_fini(&b);
}

static void account_done(void *arg, enum err e, const struct net_http_response *r)
{
    struct call *c = arg;
    struct ledger_account_reply reply = {.a = answer_of(e, r, &c->arena, false)};
    if (reply.a.outcome == LEDGER_ANSWERED && ledger_json_account(body_of(r), &c->arena, &reply) != ERR_OK)
        unreadable(&reply.a, false);
    c->fn.account(c->ctx, &reply);
    call_end(c);
}

static void http_account(struct ledger_client *base, struct str account, uint64_t min_seq,
                         struct deadline by, ledger_account_fn *fn, void *ctx)
{
    struct call *c = call_new(of(base), ctx);
    if (c == NULL) {
        struct ledger_account_reply busy = {.a = {.outcome = LEDGER_REFUSED, .err = ERR_BUSY}};
        fn(ctx, &busy);
        return;
    }
    c->fn.account = fn;
    struct buf b;
    buf_init(&b, 2048);
    buf_puts(&b, "/v1/accounts/");
    encode(&b, account);
    if (min_seq != 0)
        buf_printf(&b, "?min_seq=%llu", (unsigned long long)min_seq);
    request(of(base), c, buf_cstr(&b), bytes_of(NULL, 0), by, account_done);
    buf_fini(&b);
}

static void entries_done(void *arg, enum err e, const struct net_http_response *r)
{
    struct call *c = arg;
    struct ledger_entries_reply reply = {.a = answer_of(e, r, &c->arena, false)};
    if (reply.a.outcome == LEDGER_ANSWERED) {
        enum err bad = c->list ? ledger_json_entry_list(body_of(r), &c->arena, &reply)
                               : ledger_json_entry_one(body_of(r), &c->arena, &reply);
        if (bad != ERR_OK)
            unreadable(&reply.a, false);
    }
    c->fn.entries(c->ctx, &reply);
    call_end(c);
}

static void entries_get(struct ledger_client *base, const char *path, bool list, struct deadline by,
                        ledger_entries_fn *fn, void *ctx)
{
    struct call *c = call_new(of(base), ctx);
    if (c == NULL) {
        struct ledger_entries_reply busy = {.a = {.outcome = LEDGER_REFUSED, .err = ERR_BUSY}};
        fn(ctx, &busy);
        return;
    }
    c->fn.entries = fn;
    c->list = list;
    request(of(base), c, path, bytes_of(NULL, 0), by, entries_done);
}

static void http_entry(struct ledger_client *base, struct str id, struct deadline by, ledger_entries_fn *fn,
                       void *ctx)
{
    struct buf b;
    buf_init(&b, 2048);
    buf_puts(&b, "/v1/entries/");
    encode(&b, id);
    entries_get(base, buf_cstr(&b), false, by, fn, ctx);
    buf_fini(&b);
}

static void http_entries(struct ledger_client *base, uint64_t from, uint32_t limit, struct deadline by,
                         ledger_entries_fn *fn, void *ctx)
{
    char path[96];
    snprintf(path, sizeof path, "/v1/entries?from=%llu&limit=%u",
             (unsigned long long)(from == 0 ? 1 : from), limit == 0 ? 100 : limit);
    entries_get(base, path, true, by, fn, ctx);
}

static void roots_done(void *arg, enum err e, const struct net_http_response *r)
{
    struct call *c = arg;
    struct ledger_roots_reply reply = {.a = answer_of(e, r, &c->arena, false)};
    if (reply.a.outcome == LEDGER_ANSWERED && ledger_json_roots(body_of(r), &c->arena, &reply) != ERR_OK)
        unreadable(&reply.a, false);
    c->fn.roots(c->ctx, &reply);
    call_end(c);
}

static void http_roots(struct ledger_client *base, uint64_t since, uint32_t limit, struct deadline by,
                       ledger_roots_fn *fn, void *ctx)
{
    struct call *c = call_new(of(base), ctx);
    char path[96];
    if (c == NULL) {
        struct ledger_roots_reply busy = {.a = {.outcome = LEDGER_REFUSED, .err = ERR_BUSY}};
        fn(ctx, &busy);
        return;
    }
    c->fn.roots = fn;
    snprintf(path, sizeof path, "/v1/roots?since=%llu&limit=%u", (unsigned long long)since,
             limit == 0 ? 1000 : limit);
    request(of(base), c, path, bytes_of(NULL, 0), by, roots_done);
}

static void proof_done(void *arg, enum err e, const struct net_http_response *r)
{
    struct call *c = arg;
    struct ledger_proof_reply reply = {.a = answer_of(e, r, &c->arena, false)};
    if (reply.a.outcome == LEDGER_ANSWERED) {
        enum err bad = c->list ? ledger_json_consistency(body_of(r), &c->arena, &reply)
                               : ledger_json_inclusion(body_of(r), &c->arena, &reply);
        if (bad != ERR_OK)
            unreadable(&reply.a, false);
    }
    c->fn.proof(c->ctx, &reply);
    call_end(c);
}

static void proof_get(struct ledger_client *base, const char *path, bool consistency, struct deadline by,
                      ledger_proof_fn *fn, void *ctx)
{
    struct call *c = call_new(of(base), ctx);
    if (c == NULL) {
        struct ledger_proof_reply busy = {.a = {.outcome = LEDGER_REFUSED, .err = ERR_BUSY}};
        fn(ctx, &busy);
        return;
    }
    c->fn.proof = fn;
    c->list = consistency;
    request(of(base), c, path, bytes_of(NULL, 0), by, proof_done);
}

static void range_path(char out[128], const char *what, const char *a_name, uint64_t a, const char *b_name,
                       uint64_t b)
{
    int n = snprintf(out, 128, "/v1/proof/%s?%s=%llu", what, a_name, (unsigned long long)a);
    if (b != 0)
        snprintf(out + n, (size_t)(128 - n), "&%s=%llu", b_name, (unsigned long long)b);
}

static void http_proof(struct ledger_client *base, uint64_t seq, uint64_t size, struct deadline by,
                       ledger_proof_fn *fn, void *ctx)
{
    char path[128];
    range_path(path, "inclusion", "seq", seq, "size", size);
    proof_get(base, path, false, by, fn, ctx);
}

static void http_consistency(struct ledger_client *base, uint64_t from, uint64_t to, struct deadline by,
                             ledger_proof_fn *fn, void *ctx)
{
    char path[128];
    range_path(path, "consistency", "from", from, "to", to);
    proof_get(base, path, true, by, fn, ctx);
}

static void head_done(void *arg, enum err e, const struct net_http_response *r)
{
    struct call *c = arg;
    struct ledger_head_reply reply = {.a = answer_of(e, r, &c->arena, false)};
    /* /readyz says 503 with the same body when it is not ready: that is an answer. */
    if (e == ERR_OK && (r->status == 200 || r->status == 503)) {
        reply.a = (struct ledger_answer){.outcome = LEDGER_ANSWERED, .status = r->status};
        if (ledger_json_ready(body_of(r), &c->arena, &reply) != ERR_OK)
            unreadable(&reply.a, false);
    }
    c->fn.head(c->ctx, &reply);
    call_end(c);
}

static void http_head(struct ledger_client *base, struct deadline by, ledger_head_fn *fn, void *ctx)
{
    struct call *c = call_new(of(base), ctx);
    if (c == NULL) {
        struct ledger_head_reply busy = {.a = {.outcome = LEDGER_REFUSED, .err = ERR_BUSY}};
        fn(ctx, &busy);
        return;
    }
    c->fn.head = fn;
    request(of(base), c, "/readyz", bytes_of(NULL, 0), by, head_done);
}

/* ---- feed: server-sent events ---- */

struct ledger_feed {
    struct ledger_http *h;
    const struct ledger_feed_sink *sink;
    void *ctx;
    struct net_http_call *call;
    uint32_t target;
    struct buf text; /* not yet complete event */
    struct arena arena;
    _Atomic bool stop, done;
    enum err end;
};

static void feed_event(struct ledger_feed *f, struct str event)
{
    struct str line, data = {NULL, 0}, name = STR("message");
    while (event.n > 0) {
        struct str rest = str_cut(event, '\n', &line);
        if (str_starts(line, STR("data: ")))
            data = str_of(line.p + 6, line.n - 6);
        else if (str_starts(line, STR("event: ")))
            name = str_of(line.p + 7, line.n - 7);
        if (rest.p == NULL)
            break;
        event = rest;
    }
    struct ledger_commit_event ev;
    arena_reset(&f->arena);
    if (str_eq(name, STR("lagged")))
        f->end = ERR_LAGGED;
    else if (str_eq(name, STR("commit")) && ledger_json_event(bytes_of_str(data), &f->arena, &ev) == ERR_OK)
        f->sink->on_commit(f->ctx, &ev);
}

static bool feed_body(void *arg, struct bytes piece)
{
    struct ledger_feed *f = arg;
    if (atomic_load(&f->stop))
        return false;
    buf_put_bytes(&f->text, piece);
    if (f->text.err != ERR_OK)
        return false;
    for (;;) {
        const uint8_t *end = f->text.n == 0 ? NULL : memmem(f->text.p, f->text.n, "\n\n", 2);
        if (end == NULL)
            return true;
        size_t n = (size_t)(end - f->text.p);
        feed_event(f, str_of((const char *)f->text.p, n));
        buf_consume(&f->text, n + 2);
    }
}

static bool feed_open(void *arg, const struct net_http_response *head)
{
    struct ledger_feed *f = arg;
    if (head->status != 200) {
        f->end = ERR_UNAVAILABLE;
        return false;
    }
    if (f->sink->on_open != NULL && !atomic_load(&f->stop))
        f->sink->on_open(f->ctx);
    return true;
}

static void feed_done(void *arg, enum err e, const struct net_http_response *r)
{
    (void)r;
    struct ledger_feed *f = arg;
    if (!atomic_load(&f->stop) && f->h->to.n > 1 && f->end != ERR_LAGGED)
        ledger_targets_leave(&f->h->to, f->target);
    if (!atomic_load(&f->stop))
        f->sink->on_end(f->ctx, f->end != ERR_OK ? f->end : e != ERR_OK ? e : ERR_DISCONNECTED);
    atomic_store(&f->done, true);
}

static struct ledger_feed *http_feed(struct ledger_client *base, uint64_t since,
                                     const struct ledger_feed_sink *sink, void *ctx)
{
    struct ledger_http *h = of(base);
    struct ledger_feed *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->h = h;
    f->sink = sink;
    f->ctx = ctx;
    buf_init(&f->text, FEED_LINE_MAX);
    arena_init(&f->arena, 16 << 10, 16 << 20);
    char url[4096];
    f->target = ledger_targets_now(&h->to);
    const struct ledger_target *t = &h->targets[f->target];
    snprintf(url, sizeof url, "%s/v1/events?since=%llu", t->base_url, (unsigned long long)since);
    const char *headers[] = {ledger_bearer_line(&h->bearer), NULL};
    struct net_http_request rq = {.url = url,
                                  .uds = t->uds[0] != 0 ? t->uds : NULL,
                                  .headers = headers,
                                  .by = deadline_never(),
                                  .response_max = SIZE_MAX,
                                  .http_allowed = true,
                                  .on_head = feed_open,
                                  .on_body = feed_body};
    if (net_http_send(h->http, &rq, feed_done, f, &f->call) != ERR_OK) {
        buf_fini(&f->text);
        arena_fini(&f->arena);
        free(f);
        return NULL;
    }
    return f;
}

static void http_feed_stop(struct ledger_feed *f)
{
    atomic_store(&f->stop, true);
    net_http_call_close(f->call);
    ledger_remote__await(&f->h->remote, &f->done);
    buf_fini(&f->text);
    arena_fini(&f->arena);
    free(f);
}

/* ---- life ---- */

static enum err http_set_token(struct ledger_client *base, struct str token)
{
    return ledger_bearer_set(&of(base)->bearer, token);
}

static void http_close(struct ledger_client *base)
{
    ledger_http_fini(of(base));
    free(base);
}

const struct ledger_client_ops ledger_http_ops = {
    .ingest = http_ingest,
    .unit = http_unit,
    .account = http_account,
    .entry = http_entry,
    .entries = http_entries,
    .roots = http_roots,
    .proof = http_proof,
    .consistency = http_consistency,
    .head = http_head,
    .feed = http_feed,
    .feed_stop = http_feed_stop,
    .close = http_close,
    .set_token = http_set_token,
};

enum err ledger_http_init(struct ledger_http *h, const struct ledger_client_conf *conf)
{
    h->remote.base = (struct ledger_client){.ops = &ledger_http_ops, .transport = "http", .io = &h->remote};
    enum err err = ledger_http_targets_parse(h, conf->url);
    if (err != ERR_OK)
        return err;
    err = ledger_bearer_set(&h->bearer, str_from_c(conf->token == NULL ? "" : conf->token));
    if (err == ERR_OK)
        err = net_loop_create(NULL, &h->remote.loop);
    if (err != ERR_OK) {
        ledger_bearer_fini(&h->bearer);
        return err;
    }
    struct net_http_client_config cfg = {
        .loop = h->remote.loop,
        .max_requests = conf->inflight_max == 0 ? 256 : conf->inflight_max + 8,
        .max_per_host = conf->inflight_max == 0 ? 64 : conf->inflight_max + 8,
        .ca_file = conf->ca_file,
        .user_agent = "ron-ledger-client"};
    err = net_http_client_create(&cfg, &h->http);
    if (err != ERR_OK) {
        net_loop_destroy(h->remote.loop);
        h->remote.loop = NULL;
        ledger_bearer_fini(&h->bearer);
    }
    return err;
}

void ledger_http_fini(struct ledger_http *h)
{
    /* The owner's task has ended, or never ran: what is left is answered here. */
    net_http_client_stop(h->http);
    ledger_remote__settle(&h->remote);
    net_http_client_destroy(h->http);
    net_loop_destroy(h->remote.loop);
    ledger_bearer_fini(&h->bearer);
}

enum err ledger_client_http_open(const struct ledger_client_conf *conf, struct ledger_client **out_client)
{
    struct ledger_http *h = calloc(1, sizeof *h);
    enum err err = h == NULL ? ERR_NO_MEMORY : ledger_http_init(h, conf);
    if (err != ERR_OK) {
        free(h);
        return err;
    }
    *out_client = &h->remote.base;
    return ERR_OK;
}
