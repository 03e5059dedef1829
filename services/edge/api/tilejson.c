/* GET /edge/tiles/{pack}.json: TileJSON 3.0, composed once per pack and base URL. */
#include <stdio.h>
#include <stdlib.h>

#include "services/edge/api/api.h"
#include "services/edge/pack.h"
#include "services/edge/serve.h"

enum { BASE_MAX = 512, INLINE_MAX = 64 << 10, DOCUMENTS_BYTES = 16 << 20 };

static void put_raw(struct json_w *w, const char *name, struct str json)
{
    if (json.n)
        json_put_raw(w, name, json);
}

static void put_numbers(struct json_w *w, const char *name, const double *v, size_t n)
{
    json_key(w, name);
    json_arr_begin(w);
    for (size_t i = 0; i < n; i++)
        json_f64(w, v[i]);
    json_arr_end(w);
}

static void compose(const struct edge_pack *p, const char *base, struct buf *out)
{
    const struct edge_pmtiles_header *h = &p->header;
    const char *ext = edge_tile_ext(h->type);
    char url[1024];
    struct json_w w;
    snprintf(url, sizeof url, "%s/edge/tiles/%s/{z}/{x}/{y}%s%s", base, p->name, *ext ? "." : "", ext);
    json_w_init(&w, out);
    json_obj_begin(&w);
    json_put_cstr(&w, "tilejson", "3.0.0");
    if (p->about.name.n)
        json_put_raw(&w, "name", p->about.name);
    else
        json_put_cstr(&w, "name", p->name);
    json_put_cstr(&w, "scheme", "xyz");
    json_key(&w, "tiles");
    json_arr_begin(&w);
    json_cstr(&w, url);
    json_arr_end(&w);
    json_put_u64(&w, "minzoom", h->zoom_min);
    json_put_u64(&w, "maxzoom", h->zoom_max);
    put_numbers(&w, "bounds",
                (double[]){h->west_e7 / 1e7, h->south_e7 / 1e7, h->east_e7 / 1e7, h->north_e7 / 1e7}, 4);
    put_numbers(&w, "center", (double[]){h->center_lon_e7 / 1e7, h->center_lat_e7 / 1e7, h->zoom_center},
                3);
    put_raw(&w, "description", p->about.description);
    put_raw(&w, "attribution", p->about.attribution);
    put_raw(&w, "version", p->about.version);
    json_put_raw(&w, "vector_layers", p->about.layers.n ? p->about.layers : STR("[]"));
    json_obj_end(&w);
}

static struct edge_document *find_document(struct edge_pack *p, const char *base)
{
    for (size_t i = 0; i < p->documents_n; i++)
        if (strcmp(p->documents[i].base, base) == 0)
            return &p->documents[i];
    return NULL;
}

static bool known_document(struct edge *e, struct edge_pack *p, const char *base, struct edge_document *out)
{
    rt_lock_take(&e->routing_table);
    struct edge_document *d = find_document(p, base);
    if (d)
        *out = *d;
    rt_lock_release(&e->routing_table);
    return d != NULL;
}

/* A document once kept stays as long as its pack, so that its bytes can be used outside the lock. */
static void keep_document(struct edge *e, struct edge_pack *p, const char *base,
                          const struct edge_document *made)
{
    struct edge_document keep = {
        .base = strdup(base), .json = malloc(made->n), .n = made->n, .digest = made->digest};
    if (keep.json)
        memcpy(keep.json, made->json, made->n);
    rt_lock_take(&e->routing_table);
    bool kept = keep.base && keep.json && p->documents_n < EDGE_BASES_MAX &&
                keep.n <= DOCUMENTS_BYTES - p->documents_bytes && !find_document(p, base);
    if (kept) {
        p->documents[p->documents_n++] = keep;
        p->documents_bytes += keep.n;
    }
    rt_lock_release(&e->routing_table);
    if (!kept) {
        free(keep.base);
        free(keep.json);
    }
}

static bool base_url(struct edge *e, struct net_req *rq, char out[BASE_MAX])
{
    const char *fixed = edge_config(e)->public_url;
    struct str host = net_req_host(rq);
    if (*fixed) {
        size_t n = strlen(fixed);
        snprintf(out, BASE_MAX, "%.*s", (int)(fixed[n - 1] == '/' ? n - 1 : n), fixed);
        return true;
    }
    const struct edge_settings *s = edge_settings(e);
    const struct net_peer *peer = net_req_socket_peer(rq);
    bool tls = peer->kind == NET_PEER_TLS;
    struct str proto = net_req_header(rq, "x-forwarded-proto");
    if (proto.p &&
        net_cidr_any(s->proxies, s->proxies_n, peer->addr)) /* anybody else may say what he likes */
        tls = str_eq_c(proto, "https");
    snprintf(out, BASE_MAX, "%s://%.*s", tls ? "https" : "http", STR_ARG(host));
    return host.n < 256 && edge_host_ok(host);
}

static void serve_document(struct edge *e, struct net_req *rq, const struct edge_pack *p,
                           const struct edge_document *d, bool may_block)
{
    struct edge_repr r = {.digest = d->digest,
                          .size = d->n,
                          .type = "application/json",
                          .from = EDGE_FROM_PACK,
                          .since_s = p->since_s,
                          .max_age_s = edge_config(e)->cache_tiles / 1000,
                          .age_s = -1,
                          .memory = bytes_of(d->json, d->n)};
    edge_serve(e, rq, &r, may_block);
}

static void serve_new(struct edge *e, struct net_req *rq, struct edge_pack *p, const char *base,
                      bool may_block)
{
    struct buf made;
    buf_init(&made, 12 << 20);
    compose(p, base, &made);
    if (made.err == ERR_OK) {
        struct edge_document d = {.json = made.p, .n = made.n};
        sha256_of(made.p, made.n, &d.digest);
        keep_document(e, p, base, &d);
        serve_document(e, rq, p, &d, may_block);
    } else
        edge_refuse(e, rq, ERR_INTERNAL, EDGE_R_NONE, "the document is too large");
    buf_fini(&made);
}

/* One that only a reader may compose: hashing megabytes would keep every other client of the loop waiting. */
struct long_call {
    struct edge_generation *g; /* pinned */
    struct edge_pack *p;
    char base[BASE_MAX];
};

static void drop_long(void *arg)
{
    edge_unpin(((struct long_call *)arg)->g);
}

static void serve_long(struct edge *e, struct net_req *rq, void *arg, unsigned reader)
{
    struct long_call c = *(struct long_call *)arg; /* the arena goes with the answer */
    (void)reader;
    serve_new(e, rq, c.p, c.base, true);
    edge_unpin(c.g);
}

/* Takes over the pin. */
static void serve_json(struct edge *e, struct net_req *rq, struct edge_generation *g, struct edge_pack *p,
                       const char *base)
{
    struct edge_document d;
    struct long_call *later = NULL;
    bool known = known_document(e, p, base, &d);
    if (!known && edge_about_bytes(&p->about) > INLINE_MAX)
        later = arena_zalloc(net_req_arena(rq), sizeof *later);
    if (later) {
        later->g = g;
        later->p = p;
        snprintf(later->base, sizeof later->base, "%s", base);
        edge_defer(e, rq, serve_long, drop_long, later);
        return;
    }
    if (known)
        serve_document(e, rq, p, &d, false);
    else
        serve_new(e, rq, p, base, false);
    edge_unpin(g);
}

void edge_get_tilejson(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    struct str name = net_req_param_raw(rq, "file");
    char base[BASE_MAX];
    if (!str_ends(name, STR(".json"))) {
        edge_refuse(e, rq, ERR_NOT_FOUND, EDGE_R_NONE,
                    "there is only {pack}.json and {pack}/{z}/{x}/{y} here");
        return;
    }
    if (!base_url(e, rq, base)) {
        edge_refuse(e, rq, ERR_BAD_REQUEST, EDGE_R_BAD_REQUEST, "the Host header is not host[:port]");
        return;
    }
    struct edge_generation *g = edge_pin(e);
    struct edge_pack *p = edge_pack_for(e, rq, g, str_of(name.p, name.n - 5));
    if (p && p->kind != EDGE_PACK_DIR) {
        serve_json(e, rq, g, p, base);
        return;
    }
    if (p)
        edge_refuse(e, rq, ERR_NOT_FOUND, EDGE_R_NONE, "a directory pack has no tiles");
    edge_unpin(g);
}
