/* Server-sent events: GET /v1/roots/stream and GET /v1/events. The publisher walks the group table; here is only the form. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "services/ledger/api/api.h"
#include "services/ledger/api/routes.h"
#include "services/ledger/stream.h"

struct sse {
    struct ledger_stream st;
    struct net_req *rq;
    struct svc *svc;
    struct svc_hearing hearing;
    struct buf b;
};

static struct sse *of(struct ledger_stream *st)
{
    return (struct sse *)st;
}

static void last_words(struct sse *e, struct bytes text)
{
    if (net_stream_write(e->rq, text) != ERR_OK)
        return; /* no room even for that: being cut says the same */
}

/* False: its token has ended. */
static bool goes_on(struct sse *e)
{
    static const char end[] = "event: end\ndata: {\"code\":\"unauthenticated\"}\n\n";
    bool on = svc_hearing_goes_on(e->svc, &e->hearing, "read");
    if (!on)
        last_words(e, bytes_of(end, sizeof end - 1));
    return on;
}

static enum err sse_send(struct ledger_stream *st, const struct ledger_stream_event *ev)
{
    struct sse *e = of(st);
    struct json_w w;
    if (!goes_on(e))
        return ERR_CLOSED;
    buf_reset(&e->b);
    buf_printf(&e->b, "id: %llu\nevent: %s\ndata: ", (unsigned long long)ev->seq_end,
               st->commits ? "commit" : "root");
    json_w_init(&w, &e->b);
    json_obj_begin(&w);
    if (st->commits) {
        json_put_u64(&w, "seq_start", ev->seq_start);
        json_put_u64(&w, "seq_end", ev->seq_end);
        json_put_u64(&w, "tree_size", ev->tree_size);
        json_put_hash(&w, "root", &ev->root);
        json_key(&w, "accounts");
        json_arr_begin(&w);
        for (size_t i = 0; i < ev->n_accounts; i++)
            json_str(&w, ev->accounts[i]);
        json_arr_end(&w);
    } else {
        json_put_u64(&w, "seq", ev->seq_end);
        json_put_hash(&w, "root", &ev->root);
        json_put_u64(&w, "group_no", ev->group_no);
        json_put_u64(&w, "ledger_ms", ev->ledger_ms);
    }
    json_obj_end(&w);
    buf_puts(&e->b, "\n\n");
    if (e->b.err != ERR_OK)
        return ERR_CLOSED;
    enum err err = net_stream_write(e->rq, buf_bytes(&e->b));
    return err == ERR_TOO_LARGE ? ERR_CLOSED : err;
}

static enum err sse_idle(struct ledger_stream *st)
{
    if (!goes_on(of(st)))
        return ERR_CLOSED;
    enum err err = net_stream_write(of(st)->rq, bytes_of(":\n\n", 3));
    return err == ERR_CLOSED ? ERR_CLOSED : ERR_OK;
}

static void sse_lagged(struct ledger_stream *st, uint64_t next_since)
{
    struct sse *e = of(st);
    buf_reset(&e->b);
    buf_printf(&e->b, "event: lagged\ndata: {\"next_since\":%llu}\n\n", (unsigned long long)next_since);
    last_words(e, buf_bytes(&e->b));
}

static void sse_end(struct ledger_stream *st)
{
    struct sse *e = of(st);
    net_stream_end(e->rq);
    buf_fini(&e->b);
    free(e);
}

static bool sse_gone(struct ledger_stream *st)
{
    return net_req_gone(of(st)->rq);
}

static const struct ledger_stream_ops sse_ops = {sse_send, sse_idle, sse_lagged, sse_end, sse_gone};

static void subscribe(struct ledger_service *s, struct net_req *rq, bool commits)
{
    uint64_t since = 0;
    struct auth_cap *cap;
    struct str last = net_req_header(rq, "last-event-id");
    if (!ledger_http_number(rq, "since", 0, 0, UINT64_MAX / 2, &since))
        return;
    if (last.p != NULL && str_parse_u64(last, &since) != ERR_OK) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "Last-Event-ID is not a seq");
        return;
    }
    if (!ledger_http_access(s, rq, commits ? ACCESS_READ_ALL : ACCESS_OPEN_ROOTS, &cap))
        return;
    bool known = cap != NULL;
    auth_cap_release(cap);
    struct sse *e = calloc(1, sizeof *e);
    if (e == NULL) {
        net_reply_problem(rq, ERR_BUSY, "no memory");
        return;
    }
    e->st = (struct ledger_stream){.ops = &sse_ops, .commits = commits, .since = since};
    e->rq = rq;
    e->svc = s->svc;
    if (known)
        e->hearing = svc_hearing_begin(s->svc, net_req_peer(rq), svc_bearer(rq));
    buf_init(&e->b, 1 << 20);
    if (atomic_load(&s->n_streams) >= s->l->set.max_subscribers || svc_draining(s->svc)) {
        if (!svc_draining(s->svc))
            obs_counter_inc(OBS_COUNTER_OF(s->l->m[LEDGER_M_busy_rejections], "stream"));
        net_reply_problem(rq, svc_draining(s->svc) ? ERR_DRAINING : ERR_BUSY,
                          "as many subscribers as allowed");
        buf_fini(&e->b);
        free(e);
        return;
    }
    struct net_header no_cache = {STR_INIT("Cache-Control"), STR_INIT("no-store")};
    struct net_headers hdr = {.type = "text/event-stream", .list = &no_cache, .count = 1};
    net_stream_begin(rq, 200, &hdr);
    if (net_stream_write(rq, bytes_of(":\n\n", 3)) != ERR_OK || ledger_stream_submit(s, &e->st) != ERR_OK)
        sse_end(&e->st);
}

void ledger_get_roots_stream(struct net_req *rq, void *ctx)
{
    subscribe(ctx, rq, false);
}

void ledger_get_events(struct net_req *rq, void *ctx)
{
    subscribe(ctx, rq, true);
}
