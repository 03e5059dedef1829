/*
 * GET /edge/assets/{path…}: directory packs in their order, then the store, then (live) a fill.
 * GET /edge/cas/{hex}: an object by its digest; filled from peers where there are any, never from an origin.
 */
#include "base/hex.h"
#include "services/edge/api/api.h"
#include "services/edge/fills.h"
#include "services/edge/pack.h"
#include "services/edge/peers.h"
#include "services/edge/serve.h"

struct member_call {
    struct edge_generation *g; /* pinned */
    struct edge_pack *p;
    struct edge_member *m;
};

static void serve_member(struct edge *e, struct net_req *rq, const struct member_call *c,
                         struct edge_file *file, bool may_block)
{
    struct edge_repr r = {.digest = c->m->digest,
                          .size = c->m->id.size,
                          .type = c->m->mime,
                          .from = EDGE_FROM_PACK,
                          .since_s = c->p->since_s,
                          .max_age_s = edge_config(e)->cache_assets / 1000,
                          .age_s = -1,
                          .file = file,
                          .read = true};
    edge_serve(e, rq, &r, may_block);
}

/* The verifier looks what is there now; files that did not change are served meanwhile. */
static void refuse_changed(struct edge *e, struct net_req *rq, const struct member_call *c)
{
    atomic_store_explicit(&c->p->outdated, true, memory_order_relaxed);
    edge_refuse(e, rq, ERR_PACK_UNAVAILABLE, EDGE_R_PACK,
                "the file is not what it was when the pack was mounted");
}

static void drop_member(void *arg)
{
    edge_unpin(((struct member_call *)arg)->g);
}

static void member_later(struct edge *e, struct net_req *rq, void *arg, unsigned reader) RT_UNCHECKED
{
    struct member_call c = *(struct member_call *)arg;
    struct edge_file *file;
    (void)reader;
    enum err err = edge_member_open(e, c.p, c.m, &file);
    if (err == ERR_OK)
        serve_member(e, rq, &c, file, true);
    else if (err == ERR_CONFLICT)
        refuse_changed(e, rq, &c);
    else
        edge_refuse(e, rq, ERR_PACK_UNAVAILABLE, EDGE_R_PACK, "the file cannot be opened");
    edge_unpin(c.g);
}

/* True: it is a directory pack's, and answered or on its way. */
static bool from_packs(struct edge *e, struct net_req *rq, struct str name, bool *out_mounted)
{
    struct member_call c = {.g = edge_pin(e)};
    for (size_t i = 0; i < c.g->n && !c.m; i++) {
        const struct edge_slot *slot = &c.g->slots[i];
        struct edge_pack *p = slot->pack;
        struct str mount = str_from_c(p ? p->mount : slot->mount);
        if (slot->kind != EDGE_PACK_DIR || !str_starts(name, mount))
            continue;
        if (!p) { /* refused, or not read yet: whether it has the name is not known */
            edge_refuse(e, rq, ERR_PACK_UNAVAILABLE, EDGE_R_PACK, slot->error);
            edge_unpin(c.g);
            return true;
        }
        *out_mounted = true;
        c.m = map_get(&p->members, bytes_of(name.p + mount.n, name.n - mount.n));
        c.p = p;
    }
    if (!c.m) {
        edge_unpin(c.g);
        return false;
    }
    struct edge_file *file = atomic_load_explicit(&c.m->open, memory_order_acquire);
    if (file) { /* an editor or cp writes into the file itself: what is read of it is judged again when it was read */
        if (edge_file_still(file))
            serve_member(e, rq, &c, edge_file_ref(file), false);
        else
            refuse_changed(e, rq, &c);
        edge_unpin(c.g);
        return true;
    }
    struct member_call *copy = arena_alloc(net_req_arena(rq), sizeof *copy);
    if (copy) {
        *copy = c;
        edge_defer(e, rq, member_later, drop_member, copy);
    } else {
        edge_unpin(c.g);
        edge_refuse(e, rq, ERR_UNAVAILABLE, EDGE_R_NONE, "no memory for this request");
    }
    return true;
}

/* What a manifest lists under that name by now is another object, however fresh the stored one is. */
static bool replaced(struct edge *e, const struct edge_route *route, struct str path,
                     const struct edge_hit *hit)
{
    struct sha256 listed;
    return route->manifest && edge_digest_find(e, route, path, &listed) == ERR_OK &&
           !sha256_eq(&listed, &hit->digest);
}

static bool fresh(struct edge *e, const struct edge_hit *hit)
{
    return hit->valid_until_ms == 0 || edge_now_ms(e) < hit->valid_until_ms;
}

static const struct edge_route *route_of(struct edge *e, struct str path)
{
    const struct edge_settings *s = edge_settings(e);
    int i = edge_config(e)->mode == EDGE_LIVE ? edge_route_find(s->prefixes, s->routes_n, path) : -1;
    return i < 0 ? NULL : &s->routes[i];
}

static void miss(struct edge *e, struct net_req *rq, bool mounted)
{
    if (edge_config(e)->mode == EDGE_LIVE && !mounted)
        edge_refuse(e, rq, ERR_NOT_ALLOWED, EDGE_R_NOT_ALLOWED, "no pack and no route has this name");
    else
        edge_refuse(e, rq, ERR_NOT_FOUND, EDGE_R_NONE,
                    mounted || edge_config(e)->mode == EDGE_LIVE
                        ? "there is no such asset"
                        : "there is no such asset, and nothing is fetched: edge.mode is offline");
}

static void from_store(struct edge *e, struct net_req *rq, struct str name, struct str path,
                       struct str query, const struct edge_route *route, bool mounted)
{
    struct edge_hit hit;
    struct sha256 listed;
    bool found = edge_store_find(e->store, name, &hit);
    if (found && (!route || (fresh(e, &hit) && !replaced(e, route, path, &hit)))) {
        edge_serve_hit(e, rq, &hit, EDGE_FROM_CAS, false);
        return;
    }
    if (!route)
        miss(e, rq, mounted);
    else if (route->manifest && edge_digest_find(e, route, path, &listed) != ERR_OK)
        edge_refuse(e, rq, ERR_NOT_ALLOWED, EDGE_R_NOT_ALLOWED,
                    "the route's manifest does not list this name");
    else
        edge_fill_ask(e, rq, name, path, query, route, found ? &hit : NULL);
}

void edge_get_asset(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    struct str raw = net_req_param_raw(rq, "path"), name, query = {NULL, 0};
    char *room = arena_alloc(net_req_arena(rq), raw.n + 1 + EDGE_QUERY_MAX + 1);
    bool mounted = false;
    if (!room || edge_name_decode(raw, room, &name) != ERR_OK) {
        edge_refuse(e, rq, ERR_BAD_REQUEST, EDGE_R_BAD_REQUEST, "the path is not a clean relative path");
        return;
    }
    if (from_packs(e, rq, name, &mounted))
        return;
    struct str path = name;
    const struct edge_route *route = route_of(e, path);
    if (route && route->keep_query && net_req_query_raw(rq).p) {
        query = net_req_query_raw(rq);
        if (query.n > EDGE_QUERY_MAX) {
            edge_refuse(e, rq, ERR_BAD_REQUEST, EDGE_R_BAD_REQUEST, "the query is longer than 1 KiB");
            return;
        }
        room[name.n] = '?';
        memcpy(room + name.n + 1, query.p, query.n);
        name.n += 1 + query.n;
    }
    from_store(e, rq, name, path, query, route, mounted);
}

/* ---- by digest ---- */

static void object_later(struct edge *e, struct net_req *rq, void *arg, unsigned reader) RT_UNCHECKED
{
    struct sha256 digest = *(struct sha256 *)arg;
    struct edge_file *file;
    (void)reader;
    enum err err = edge_store_open(e->store, &digest, false, &file);
    if (err == ERR_OK)
        edge_serve_object(e, rq, &digest, file, EDGE_FROM_CAS, true);
    else
        edge_refuse_after(e, rq, ERR_UNAVAILABLE, EDGE_R_CAS, "the object cannot be read", 1);
}

/* A node that asks us for an object has its reasons; asking others in its place would go round in circles. */
static bool may_ask_peers(struct edge *e, struct net_req *rq)
{
    return edge_config(e)->mode == EDGE_LIVE && edge_settings(e)->peers_n > 0 &&
           !net_req_header(rq, EDGE_PEER_HEADER).p;
}

void edge_get_object(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    struct sha256 *digest = arena_alloc(net_req_arena(rq), sizeof *digest);
    struct edge_file *file;
    uint64_t size;
    if (!digest || hex_decode(net_req_param_raw(rq, "digest"), digest->b, 32) != ERR_OK)
        edge_refuse(e, rq, ERR_BAD_REQUEST, EDGE_R_BAD_REQUEST,
                    "an object is named by 64 lower-case hex digits");
    else if (!edge_store_has(e->store, digest, &size)) {
        if (may_ask_peers(e, rq))
            edge_fill_ask_object(e, rq, digest);
        else
            edge_refuse(e, rq, ERR_NOT_FOUND, EDGE_R_NONE, "there is no such object");
    } else if (edge_store_open_now(e->store, digest, &file) == ERR_OK)
        edge_serve_object(e, rq, digest, file, EDGE_FROM_CAS, false);
    else
        edge_defer(e, rq, object_later, NULL, digest);
}
