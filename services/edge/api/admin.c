/* /admin: packs, reload, fills, verify, purge. Loopback or Unix socket, and a capability with op admin. */
#include <stdlib.h>

#include "base/hex.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "services/edge/api/api.h"
#include "services/edge/fills.h"
#include "services/edge/reload.h"
#include "services/edge/scrub.h"
#include "svc/feed.h"

enum { RELOAD_WAIT_MS = 60000 };

static void reply(struct net_req *rq, struct buf *b)
{
    if (b->err == ERR_OK)
        net_reply_json(rq, 200, buf_bytes(b));
    else
        net_reply_problem(rq, ERR_INTERNAL, "the answer is too large");
    buf_fini(b);
}

/* ---- packs ---- */

static void put_pack(struct json_w *w, const struct edge_slot *slot)
{
    static const char *const kinds[] = {"", "pmtiles", "mbtiles", "dir"};
    static const char *const codings[] = {"unknown", "none", "gzip", "br", "zstd"};
    struct edge_pack *p = slot->pack;
    json_obj_begin(w);
    json_put_cstr(w, "name", slot->name);
    json_put_cstr(w, "kind", kinds[slot->kind]);
    json_put_cstr(w, "path", slot->path);
    json_put_cstr(w, "state", edge_slot_state_name((enum edge_slot_state)atomic_load(&slot->state)));
    json_key(w, "error");
    if (slot->error[0])
        json_cstr(w, slot->error);
    else
        json_nil(w);
    json_put_cstr(w, "mount", p ? p->mount : slot->mount);
    if (p) {
        json_put_u64(w, "bytes", p->file ? p->file->size : p->list_bytes);
        json_key(w, "digest");
        if (p->kind != EDGE_PACK_DIR && atomic_load_explicit(&p->sealed, memory_order_acquire))
            json_hash(w, &p->archive);
        else
            json_nil(w);
        json_key(w, "pack_id");
        json_hex(w, p->id.b, 32);
        json_put_u64(w, "sealed_bytes", atomic_load(&p->sealed_bytes));
        json_put_u64(w, "tiles", p->tiles);
        json_put_u64(w, "files", p->list_n);
        if (p->kind != EDGE_PACK_DIR) {
            json_put_cstr(w, "tile_type", edge_tile_ext(p->header.type));
            json_put_cstr(w, "tile_compression", codings[p->header.tiles]);
            json_put_u64(w, "minzoom", p->header.zoom_min);
            json_put_u64(w, "maxzoom", p->header.zoom_max);
        }
        json_put_time_ms(w, "since", p->mounted_ms);
    }
    json_obj_end(w);
}

void edge_admin_packs(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    struct json_w w;
    struct buf b;
    if (!svc_allow_admin(e->svc, rq))
        return;
    buf_init(&b, 1 << 20);
    json_w_init(&w, &b);
    struct edge_generation *g = edge_pin(e);
    json_obj_begin(&w);
    json_put_u64(&w, "generation", g->number);
    json_put_time_ms(&w, "published_at", g->published_ms);
    json_key(&w, "packs");
    json_arr_begin(&w);
    for (size_t i = 0; i < g->n; i++)
        put_pack(&w, &g->slots[i]);
    json_arr_end(&w);
    json_obj_end(&w);
    edge_unpin(g);
    reply(rq, &b);
}

struct reload_body {
    struct json_list packs;
    bool has_packs;
    uint64_t wait_ms;
    bool has_wait_ms;
};
static const struct json_field reload_fields[] = {
    JSON_OPT(struct reload_body, packs, JSON_KIND_STR_LIST, .max = 256),
    JSON_OPT(struct reload_body, wait_ms, JSON_KIND_U64, .max = RELOAD_WAIT_MS), JSON_END};

static bool read_body(struct net_req *rq, const struct json_field *fields, void *out)
{
    struct json_error why;
    struct bytes body = net_req_body(rq);
    if (body.n == 0 || json_read_dto(body, fields, out, net_req_arena(rq), &why) == ERR_OK)
        return true;
    net_reply_problem(rq, ERR_BAD_REQUEST, "%s: %s", json_error_place(&why), json_reason_name(why.reason));
    return false;
}

static bool names_ok(struct net_req *rq, const struct json_list *names)
{
    const struct str *list = names->items;
    for (size_t i = 0; i < names->n; i++)
        if (!edge_pack_name_ok(list[i])) {
            net_reply_problem(rq, ERR_BAD_REQUEST, "packs[%zu]: not the name of a pack", i);
            return false;
        }
    return true;
}

void edge_admin_reload(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    struct reload_body body = {0};
    if (!svc_allow_admin(e->svc, rq) || !read_body(rq, reload_fields, &body) || !names_ok(rq, &body.packs))
        return;
    struct edge_call *call = arena_zalloc(net_req_arena(rq), sizeof *call);
    if (!call) {
        net_reply_problem(rq, ERR_UNAVAILABLE, "no memory");
        return;
    }
    call->rq = rq;
    call->by_ns = edge_now_ns(e) + (int64_t)(body.has_wait_ms ? body.wait_ms : RELOAD_WAIT_MS) * 1000000;
    call->names = body.packs.items;
    call->names_n = body.packs.n;
    bool waits = !body.has_wait_ms || body.wait_ms > 0;
    enum err err = edge_request_reload(e, body.packs.items, body.packs.n, waits ? call : NULL);
    if (err != ERR_OK)
        net_reply_problem(rq, err == ERR_CLOSED ? ERR_DRAINING : ERR_BUSY, "no reload now");
    else if (!waits)
        net_reply_json(rq, 202, bytes_of("{\"done\":false}", 14));
}

/* ---- fills ---- */

static void put_active(struct json_w *w, struct edge *e)
{
    struct edge_fills *t = e->fills;
    size_t at = 0;
    void *value;
    int64_t now = edge_now_ns(e);
    rt_lock_take(&t->lock);
    while (map_next(&t->by_name, &at, NULL, &value)) {
        struct edge_fill *f = value;
        json_obj_begin(w);
        json_put_str(w, "name", f->path);
        json_put_cstr(w, "origin", f->route->label);
        json_put_cstr(w, "state", edge_fill_state_name(f->state));
        json_put_u64(w, "try", f->tries);
        json_put_u64(w, "bytes", atomic_load(&f->bytes));
        json_put_u64(w, "waiters", f->waiting);
        json_put_i64(w, "age_ms", (now - f->queued_ns) / 1000000);
        json_put_cstr(w, "corr_id", f->corr_id);
        json_obj_end(w);
    }
    rt_lock_release(&t->lock);
}

static void put_recent(struct json_w *w, struct edge_fills *t)
{
    rt_lock_take(&t->lock);
    size_t n = t->recent_n < EDGE_RECENT ? t->recent_n : EDGE_RECENT;
    for (size_t i = 0; i < n; i++) {
        const struct edge_recent *r = &t->recent[(t->recent_n - 1 - i) % EDGE_RECENT];
        json_obj_begin(w);
        json_put_cstr(w, "name", r->name);
        json_put_cstr(w, "origin", r->origin);
        json_put_cstr(w, "result", r->result);
        json_put_cstr(w, "reason", r->reason);
        json_put_u64(w, "bytes", r->bytes);
        json_put_u64(w, "tries", r->tries);
        json_put_i64(w, "ms", r->ms);
        json_put_time_ms(w, "at", r->at_ms);
        json_obj_end(w);
    }
    rt_lock_release(&t->lock);
}

static void put_breakers(struct json_w *w, struct edge *e)
{
    static const char *const states[] = {"closed", "half_open", "open"};
    rt_lock_take(&e->fills->lock);
    size_t n = e->fills->origins_n;
    rt_lock_release(&e->fills->lock);
    for (size_t i = 0; i < n; i++) {
        struct edge_origin_state *o = &e->fills->origins[i];
        json_obj_begin(w);
        json_put_cstr(w, "origin", o->label);
        json_put_cstr(w, "state", states[rt_breaker_state(&o->breaker, edge_now_ns(e))]);
        json_obj_end(w);
    }
}

void edge_admin_fills(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    struct json_w w;
    struct buf b;
    if (!svc_allow_admin(e->svc, rq))
        return;
    buf_init(&b, 4 << 20);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_u64(&w, "queue_depth", rt_chan_depth(e->work));
    json_key(&w, "active");
    json_arr_begin(&w);
    put_active(&w, e);
    json_arr_end(&w);
    json_key(&w, "recent");
    json_arr_begin(&w);
    put_recent(&w, e->fills);
    json_arr_end(&w);
    json_key(&w, "breakers");
    json_arr_begin(&w);
    put_breakers(&w, e);
    json_arr_end(&w);
    json_obj_end(&w);
    reply(rq, &b);
}

void edge_admin_events(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    if (svc_allow_admin(e->svc, rq) && !svc_feed_follow(e->events, rq))
        net_reply_problem(rq, ERR_BUSY, "too many listeners already");
}

/* ---- the store ---- */

struct verify_body {
    struct sha256 digest;
    bool has_digest;
    uint64_t wait_ms;
};
static const struct json_field verify_fields[] = {
    JSON_OPT(struct verify_body, digest, JSON_KIND_HASH),
    JSON_DEF(struct verify_body, wait_ms, JSON_KIND_U64, .max = 30000), JSON_END};

/* One object is read at once; a pass over all of them is the scrub task's. */
static void verify_one(struct edge *e, struct net_req *rq, void *arg, unsigned reader) RT_UNCHECKED
{
    struct verify_body body = *(struct verify_body *)arg;
    struct edge_scrub_report *r = calloc(1, sizeof *r);
    (void)reader;
    enum err err = r ? edge_scrub_object(e, &(struct edge_turns){0}, &body.digest, 0) : ERR_NO_MEMORY;
    if (r && err == ERR_CORRUPT) {
        r->corrupt[r->corrupt_n++] = body.digest;
        err = ERR_OK;
    }
    if (err == ERR_OK) {
        r->checked = 1;
        edge_verify_reply(e, rq, 200, "done", r);
    } else
        net_reply_problem(rq, err == ERR_NOT_FOUND ? err : ERR_UNAVAILABLE, "the object cannot be read");
    free(r);
}

void edge_admin_verify(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    if (!svc_allow_admin(e->svc, rq))
        return;
    struct verify_body *body = arena_zalloc(net_req_arena(rq), sizeof *body);
    struct edge_call *call = arena_zalloc(net_req_arena(rq), sizeof *call);
    if (!body || !call) {
        net_reply_problem(rq, ERR_UNAVAILABLE, "no memory");
        return;
    }
    if (!read_body(rq, verify_fields, body))
        return;
    if (body->has_digest) {
        edge_defer(e, rq, verify_one, NULL, body);
        return;
    }
    call->rq = rq;
    call->by_ns = edge_now_ns(e) + (int64_t)body->wait_ms * 1000000;
    if (edge_verify_ask(e, body->wait_ms ? call : NULL) != ERR_OK)
        net_reply_problem(rq, ERR_DRAINING, "the service is shutting down");
    else if (!body->wait_ms)
        edge_verify_reply(e, rq, 202, "running", &(struct edge_scrub_report){0});
}

void edge_admin_purge(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    struct edge_store_op op = {.kind = EDGE_OP_PURGE, .rq = rq};
    if (!svc_allow_admin(e->svc, rq))
        return;
    if (hex_decode(net_req_param_raw(rq, "digest"), op.digest.b, 32) != ERR_OK) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "an object is named by 64 lower-case hex digits");
        return;
    }
    enum err err = edge_store_send(e, &op);
    if (err != ERR_OK)
        net_reply_problem(rq, err == ERR_CLOSED ? ERR_DRAINING : ERR_BUSY, "the store has too much to do");
}
