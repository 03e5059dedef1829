/* GET /edge/tiles/{pack}.json: TileJSON 3.0, composed once per pack and base URL. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json_write.h"
#include "services/edge/api/api.h"
#include "services/edge/pack.h"
#include "services/edge/serve.h"

enum { BASE_MAX = 512 };

static void put_text(struct json_w *w, json_t *metadata, const char *name)
{
    const char *text = json_string_value(json_object_get(metadata, name));
    if (text)
        json_put_cstr(w, name, text);
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
    json_t *metadata = json_loads(p->metadata, 0, NULL);
    const char *ext = edge_tile_ext(h->type), *title = json_string_value(json_object_get(metadata, "name"));
    char url[1024];
    struct json_w w;
    snprintf(url, sizeof url, "%s/edge/tiles/%s/{z}/{x}/{y}%s%s", base, p->name, *ext ? "." : "", ext);
    json_w_init(&w, out);
    json_obj_begin(&w);
    json_put_cstr(&w, "tilejson", "3.0.0");
    json_put_cstr(&w, "name", title ? title : p->name);
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
    put_text(&w, metadata, "description");
    put_text(&w, metadata, "attribution");
    put_text(&w, metadata, "version");
    json_t *layers = json_object_get(metadata, "vector_layers");
    char *text = json_is_array(layers) ? json_dumps(layers, JSON_COMPACT) : NULL;
    json_put_raw(&w, "vector_layers", str_from_c(text ? text : "[]"));
    free(text);
    json_obj_end(&w);
    json_decref(metadata);
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
    bool kept = keep.base && keep.json && p->documents_n < EDGE_BASES_MAX && !find_document(p, base);
    if (kept)
        p->documents[p->documents_n++] = keep;
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

static void serve_json(struct edge *e, struct net_req *rq, struct edge_pack *p, const char *base)
{
    struct edge_document d;
    struct buf made;
    buf_init(&made, 12 << 20);
    if (!known_document(e, p, base, &d)) {
        compose(p, base, &made);
        d = (struct edge_document){.json = made.p, .n = made.n};
        sha256_of(made.p, made.n, &d.digest);
        if (made.err == ERR_OK)
            keep_document(e, p, base, &d);
    }
    struct edge_repr r = {.digest = d.digest,
                          .size = d.n,
                          .type = "application/json",
                          .from = EDGE_FROM_PACK,
                          .since_s = p->since_s,
                          .max_age_s = edge_config(e)->cache_tiles / 1000,
                          .age_s = -1,
                          .memory = bytes_of(d.json, d.n)};
    if (made.err == ERR_OK)
        edge_serve(e, rq, &r, false);
    else
        edge_refuse(e, rq, ERR_INTERNAL, EDGE_R_NONE, "the document is too large");
    buf_fini(&made);
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
    if (p && p->kind == EDGE_PACK_DIR)
        edge_refuse(e, rq, ERR_NOT_FOUND, EDGE_R_NONE, "a directory pack has no tiles");
    else if (p)
        serve_json(e, rq, p, base);
    edge_unpin(g);
}
