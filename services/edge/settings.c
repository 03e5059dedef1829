/*
 * The lists of the configuration, parsed once per snapshot: routes, mounts, networks, origins. A list item is words
 * separated by blanks; the first ones have fixed meaning, the rest are key=value.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "auth/secret_file.h"
#include "base/hex.h"
#include "base/str.h"
#include "services/edge/core/pack_id.h"
#include "services/edge/edge.h"
#include "store/file_replace.h"

enum { WORDS_MAX = 12, MANIFEST_MAX = 64 << 20, ARENA_MAX = 256 << 20, AUTH_MAX = 8192 };

static const uint64_t route_bytes_max = (uint64_t)16 << 30;

static enum err refuse(struct edge_why *why, const char *key, struct str item, const char *what)
{
    why->key = key;
    snprintf(why->text, sizeof why->text, "\"%.*s\": %s", item.n > 80 ? 80 : (int)item.n, item.p, what);
    return ERR_BAD_REQUEST;
}

static size_t split(struct str s, struct str words[WORDS_MAX])
{
    size_t n = 0;
    for (struct str rest = s, word; rest.p && n < WORDS_MAX;) {
        rest = str_cut(rest, ' ', &word);
        if (word.n)
            words[n++] = word;
    }
    return n;
}

/* ---- routes ---- */

static void manifest_free(struct edge_manifest *m)
{
    if (m)
        arena_fini(&m->arena);
    free(m);
}

static int by_name(const void *a, const void *b)
{
    return str_cmp(((const struct edge_digest_row *)a)->name, ((const struct edge_digest_row *)b)->name);
}

static enum err read_digests(const char *path, struct edge_route *r) RT_UNCHECKED
{
    struct buf text;
    struct edge_manifest *m = calloc(1, sizeof *m);
    if (!m)
        return ERR_NO_MEMORY;
    manifest_free(r->listed); /* of two files the later one counts */
    r->listed = m;
    arena_init(&m->arena, 16 << 10, ARENA_MAX);
    buf_init(&text, MANIFEST_MAX);
    enum err e = store_file_slurp(store_disk_real(), path, &text);
    size_t lines = 1;
    for (size_t i = 0; i < text.n; i++)
        lines += text.p[i] == '\n';
    m->rows = e == ERR_OK ? arena_array(&m->arena, lines, sizeof *m->rows) : NULL;
    if (e == ERR_OK && !m->rows)
        e = ERR_NO_MEMORY;
    for (struct str rest = buf_str(&text), line; e == ERR_OK && rest.p;) {
        rest = str_cut(rest, '\n', &line);
        if (line.n == 0)
            continue;
        struct edge_digest_row *row = &m->rows[m->n];
        /* sha256sum: 64 hex, a blank, a blank or '*', the name */
        if (line.n < 67 || line.p[64] != ' ' || hex_decode(str_of(line.p, 64), row->digest.b, 32) != ERR_OK)
            e = ERR_SYNTAX;
        else if (!arena_str(&m->arena, str_of(line.p + 66, line.n - 66), &row->name))
            e = ERR_NO_MEMORY;
        else
            m->n++;
    }
    if (e == ERR_OK && m->n)
        qsort(m->rows, m->n, sizeof *m->rows, by_name);
    buf_fini(&text);
    r->manifest = true;
    return e;
}

enum err edge_digest_find(struct edge *e, const struct edge_route *r, struct str name, struct sha256 *out)
{
    for (int i = 0; i >= 0 && r->manifest;) {
        struct edge_digest_row key = {.name = str_of(name.p + r->prefix.n, name.n - r->prefix.n)};
        const struct edge_digest_row *row = NULL;
        rt_lock_take(&e->routing_table);
        const struct edge_manifest *m = r->listed;
        if (m && m->n)
            row = bsearch(&key, m->rows, m->n, sizeof key, by_name);
        if (row)
            *out = row->digest;
        rt_lock_release(&e->routing_table);
        if (m)
            return row ? ERR_OK : ERR_NOT_FOUND;
        const struct edge_settings *s = edge_settings(e); /* replaced since the route was looked for */
        i = edge_route_find(s->prefixes, s->routes_n, name);
        r = i < 0 ? r : &s->routes[i];
    }
    return ERR_NOT_FOUND;
}

/* The same configuration, and the same in the files it names, but for what manifests list. */
static bool same_but_manifests(const struct edge_settings *a, const struct edge_settings *b)
{
    bool same = a->of == b->of;
    for (size_t i = 0; same && i < a->routes_n; i++) {
        const char *x = a->routes[i].authorization, *y = b->routes[i].authorization;
        same = x && y ? strcmp(x, y) == 0 : x == y;
    }
    return same;
}

void edge_settings_publish(struct edge *e, struct edge_settings *fresh)
{
    struct edge_settings *now = edge_settings(e);
    bool same = now && same_but_manifests(now, fresh);
    if (!same) {
        fresh->next = e->settings_list;
        e->settings_list = fresh;
        atomic_store_explicit(&e->settings, fresh, memory_order_release); /* pairs with edge_settings() */
    }
    for (size_t i = 0; now && i < now->routes_n; i++) {
        rt_lock_take(&e->routing_table);
        struct edge_manifest *old = now->routes[i].listed;
        now->routes[i].listed = same ? fresh->routes[i].listed : NULL;
        rt_lock_release(&e->routing_table);
        if (same)
            fresh->routes[i].listed = NULL;
        manifest_free(old);
    }
    if (same)
        edge_settings_free(fresh);
}

/* What goes into a header must not end it. */
static bool header_value_ok(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
            return false;
    return true;
}

/* One line that nobody else may read. */
static enum err read_auth(struct edge_settings *s, const char *path, struct edge_route *r) RT_UNCHECKED
{
    struct auth_secret text = {NULL, 0};
    struct str line, rest;
    enum err e = auth_secret_file_read(path, AUTH_MAX, true, &text);
    if (e == ERR_OK) {
        rest = str_cut(str_of(text.p, text.n), '\n', &line);
        e = line.n && !rest.n && header_value_ok(line) ? ERR_OK : ERR_SYNTAX;
    }
    if (e == ERR_OK) {
        char *whole = arena_alloc(&s->arena, line.n + 20);
        if (whole)
            snprintf(whole, line.n + 20, "Authorization: %.*s", STR_ARG(line));
        r->authorization = whole;
        e = whole ? ERR_OK : ERR_NO_MEMORY;
    }
    auth_secret_free(&text);
    return e;
}

static enum err route_option(struct edge_settings *s, struct edge_route *r, struct str word)
{
    struct str key;
    struct str value = str_cut(word, '=', &key);
    char path[STORE_PATH_MAX];
    if (!value.p || value.n >= sizeof path)
        return ERR_SYNTAX;
    snprintf(path, sizeof path, "%.*s", STR_ARG(value));
    if (str_eq_c(key, "timeout"))
        return str_parse_duration_ms(value, &r->timeout_ms) == ERR_OK && r->timeout_ms >= 1000 &&
                       r->timeout_ms <= 600000
                   ? ERR_OK
                   : ERR_RANGE;
    if (str_eq_c(key, "max_bytes"))
        return str_parse_size(value, &r->max_bytes) == ERR_OK && r->max_bytes >= 1024 &&
                       r->max_bytes <= route_bytes_max
                   ? ERR_OK
                   : ERR_RANGE;
    if (str_eq_c(key, "max_age"))
        return str_parse_duration_ms(value, &r->max_age_ms);
    if (str_eq_c(key, "query")) {
        r->keep_query = str_eq_c(value, "keep");
        return r->keep_query || str_eq_c(value, "drop") ? ERR_OK : ERR_SYNTAX;
    }
    if (str_eq_c(key, "etag")) {
        r->any_etag = str_eq_c(value, "any");
        return r->any_etag || str_eq_c(value, "strict") ? ERR_OK : ERR_SYNTAX;
    }
    if (str_eq_c(key, "digests"))
        return read_digests(path, r);
    if (str_eq_c(key, "auth_file"))
        return read_auth(s, path, r);
    return ERR_SYNTAX;
}

static enum err make_route(struct edge_settings *s, const struct edge_config *cfg, struct str item,
                           struct edge_route *r, struct edge_why *why)
{
    struct str words[WORDS_MAX];
    size_t n = split(item, words);
    *r = (struct edge_route){.timeout_ms = 5000, .max_age_ms = 86400000, .max_bytes = 64 << 20};
    if (n < 2)
        return refuse(why, "fill.routes", item, "needs a prefix and an origin");
    r->prefix = words[0];
    r->url = words[1];
    if (r->prefix.p[r->prefix.n - 1] != '/' || !edge_name_ok(str_of(r->prefix.p, r->prefix.n - 1)))
        return refuse(why, "fill.routes", item, "the prefix is not a path that ends with /");
    if (edge_origin_parse(r->url, cfg->fill_loopback_http, &r->origin) != ERR_OK)
        return refuse(why, "fill.routes", item, "the origin is not https://host[:port]/…/");
    snprintf(r->label, sizeof r->label, "%.*s", STR_ARG(r->origin.host_port));
    for (size_t i = 2; i < n; i++)
        if (route_option(s, r, words[i]) != ERR_OK)
            return refuse(why, "fill.routes", words[i],
                          "unknown option, value out of range, or a file that cannot be read (auth_file: "
                          "one line, mode 0600)");
    return ERR_OK;
}

/* ---- mounts ---- */

static int kind_of(struct str path, struct str word)
{
    if (str_eq_c(word, "pmtiles") || (!word.n && str_ends(path, STR(".pmtiles"))))
        return EDGE_PACK_PMTILES;
    if (str_eq_c(word, "mbtiles") || (!word.n && str_ends(path, STR(".mbtiles"))))
        return EDGE_PACK_MBTILES;
    return str_eq_c(word, "dir") || !word.n ? EDGE_PACK_DIR : 0;
}

static enum err make_mount(struct edge_settings *s, struct str item, struct edge_mount *m,
                           struct edge_why *why)
{
    struct str words[WORDS_MAX], kind = STR("");
    size_t n = split(item, words);
    *m = (struct edge_mount){.mount = STR("")};
    if (n < 2 || !edge_pack_name_ok(words[0]))
        return refuse(why, "packs.mount", item, "needs a pack's name and a path");
    m->name = words[0];
    m->path = arena_strdup(&s->arena, words[1]);
    for (size_t i = 2; i < n; i++) {
        struct str key, value = str_cut(words[i], '=', &key);
        if (str_eq_c(key, "kind"))
            kind = value;
        else if (str_eq_c(key, "mount") && (value.n == 0 || value.p[value.n - 1] == '/'))
            m->mount = value;
        else if (str_eq_c(key, "sha256") && hex_decode(value, m->sha256.b, 32) == ERR_OK)
            m->pinned = true;
        else
            return refuse(why, "packs.mount", words[i], "is not kind=, mount=prefix/ or sha256=HEX");
    }
    m->kind = kind_of(words[1], kind);
    if (!m->kind || !m->path)
        return refuse(why, "packs.mount", item, "kind is pmtiles, mbtiles or dir");
    for (const struct edge_mount *o = s->mounts; o < m; o++)
        if (str_eq(o->name, m->name))
            return refuse(why, "packs.mount", item, "the name is taken");
    return ERR_OK;
}

/* ---- peers ---- */

static enum err make_peers(struct edge_settings *s, const struct edge_config *cfg, struct edge_why *why)
{
    bool here = !*cfg->peers_self;
    s->peers = arena_array(&s->arena, cfg->peers_list.n + 1, sizeof *s->peers);
    s->peer_urls = arena_array(&s->arena, cfg->peers_list.n + 1, sizeof *s->peer_urls);
    if (!s->peers || !s->peer_urls)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < cfg->peers_list.n; i++) {
        struct edge_peer *p = &s->peers[i];
        const char *text = cfg->peers_list.v[i];
        size_t n = strlen(text);
        char *url = arena_alloc(&s->arena, n + 2);
        if (!url)
            return ERR_NO_MEMORY;
        snprintf(url, n + 2, "%s%s", text, n && text[n - 1] == '/' ? "" : "/");
        *p = (struct edge_peer){.url = str_from_c(url)};
        if (edge_origin_parse(p->url, cfg->fill_loopback_http, &p->origin) != ERR_OK || n > 300)
            return refuse(why, "peers.list", p->url, "is not https://host[:port]/");
        snprintf(p->label, sizeof p->label, "%.*s", STR_ARG(p->origin.host_port));
        p->self = strcmp(text, cfg->peers_self) == 0;
        here = here || p->self;
        s->peer_urls[s->peers_n++] = p->url;
    }
    s->by_digest = (struct edge_route){.prefix = STR(""),
                                       .url = STR(""),
                                       .label = "peers",
                                       .timeout_ms = cfg->peers_timeout,
                                       .max_bytes = cfg->peers_max_bytes,
                                       .manifest = true};
    return here ? ERR_OK : refuse(why, "peers.self", str_from_c(cfg->peers_self), "is not in peers.list");
}

/* ---- networks ---- */

static enum err parse_cidrs(struct edge_settings *s, const char *key, struct conf_strs list,
                            struct net_cidr **out, struct edge_why *why)
{
    *out = arena_array(&s->arena, list.n ? list.n : 1, sizeof **out);
    if (!*out)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < list.n; i++)
        if (net_cidr_parse(str_from_c(list.v[i]), &(*out)[i]) != ERR_OK)
            return refuse(why, key, str_from_c(list.v[i]), "is not a network such as 10.0.0.0/8");
    return ERR_OK;
}

static struct str keep(struct edge_settings *s, const char *text)
{
    const char *copy = arena_strdup(&s->arena, str_from_c(text));
    return str_from_c(copy ? copy : "");
}

/* As browsers write one: scheme://host[:port] and nothing behind. Schemes of applications are none of our business. */
static bool web_origin_ok(struct str origin)
{
    struct str scheme, rest = str_cut(origin, ':', &scheme);
    if (!scheme.n || rest.n < 3 || rest.p[0] != '/' || rest.p[1] != '/')
        return false;
    for (size_t i = 2; i < rest.n; i++)
        if ((unsigned char)rest.p[i] <= 0x20 || rest.p[i] == 0x7f || strchr("/?#@*\\\",", rest.p[i]))
            return false;
    return true;
}

static bool public_url_ok(struct str url)
{
    struct edge_origin o;
    return !url.n || (edge_url_parse(url, &o) == ERR_OK && !memchr(o.path.p, '?', o.path.n));
}

static enum err make_lists(struct edge_settings *s, const struct edge_config *cfg, struct edge_why *why)
{
    enum err e = ERR_OK;
    s->routes = arena_array(&s->arena, cfg->fill_routes.n + 1, sizeof *s->routes);
    s->prefixes = arena_array(&s->arena, cfg->fill_routes.n + 1, sizeof *s->prefixes);
    s->mounts = arena_array(&s->arena, cfg->packs_mount.n + 1, sizeof *s->mounts);
    s->cors = arena_array(&s->arena, cfg->cors_origins.n + 1, sizeof *s->cors);
    if (!s->routes || !s->prefixes || !s->mounts || !s->cors)
        return ERR_NO_MEMORY;
    for (size_t i = 0; e == ERR_OK && i < cfg->fill_routes.n; i++) {
        s->routes_n++; /* what it has read by then is freed also when it is refused */
        e = make_route(s, cfg, keep(s, cfg->fill_routes.v[i]), &s->routes[i], why);
        s->prefixes[i] = s->routes[i].prefix;
    }
    for (; e == ERR_OK && s->mounts_n < cfg->packs_mount.n; s->mounts_n++)
        e = make_mount(s, keep(s, cfg->packs_mount.v[s->mounts_n]), &s->mounts[s->mounts_n], why);
    for (; e == ERR_OK && s->cors_n < cfg->cors_origins.n; s->cors_n++) {
        struct str origin = s->cors[s->cors_n] = keep(s, cfg->cors_origins.v[s->cors_n]);
        s->cors_any = s->cors_any || str_eq_c(origin, "*");
        if (!str_eq_c(origin, "*") && !web_origin_ok(origin))
            e = refuse(why, "cors.origins", origin, "is neither * nor scheme://host[:port]");
    }
    return e;
}

enum err edge_settings_make(const struct edge_config *cfg, const char *data_dir, struct edge_settings **out,
                            struct edge_why *why)
{
    struct edge_settings *s = calloc(1, sizeof *s);
    struct net_cidr *priv = NULL;
    *why = (struct edge_why){"fill.routes", ""};
    if (!s)
        return ERR_NO_MEMORY;
    s->of = cfg;
    arena_init(&s->arena, 16 << 10, ARENA_MAX);
    enum err e = make_lists(s, cfg, why);
    if (e == ERR_OK)
        e = make_peers(s, cfg, why);
    if (e == ERR_OK)
        e = parse_cidrs(s, "http.trusted_proxies", cfg->trusted_proxies, &s->proxies, why);
    if (e == ERR_OK)
        e = parse_cidrs(s, "http.metrics_cidrs", cfg->metrics_cidrs, &s->scrapers, why);
    if (e == ERR_OK)
        e = parse_cidrs(s, "fill.allow_private", cfg->fill_allow_private, &priv, why);
    s->proxies_n = cfg->trusted_proxies.n;
    s->scrapers_n = cfg->metrics_cidrs.n;
    s->allow_private_n = cfg->fill_allow_private.n;
    s->allow_private =
        e == ERR_OK ? arena_array(&s->arena, s->allow_private_n + 1, sizeof *s->allow_private) : NULL;
    for (size_t i = 0; s->allow_private && i < s->allow_private_n; i++) {
        memcpy(s->allow_private[i].addr, priv[i].addr, 16);
        s->allow_private[i].bits = priv[i].bits;
    }
    if (e == ERR_OK && !public_url_ok(str_from_c(cfg->public_url)))
        e = refuse(why, "public_url", str_from_c(cfg->public_url), "is not http(s)://host[:port][/path]");
    if (e == ERR_OK && cfg->mode == EDGE_LIVE && s->routes_n == 0)
        e = refuse(why, "mode", STR("live"), "needs at least one item in fill.routes");
    char path[STORE_PATH_MAX];
    if (data_dir && !*cfg->packs_dir)
        store_path_join(path, data_dir, "packs");
    else
        snprintf(path, sizeof path, "%s", cfg->packs_dir);
    s->packs_dir = arena_strdup(&s->arena, str_from_c(path));
    if (e != ERR_OK) {
        edge_settings_free(s);
        return e;
    }
    *out = s;
    return ERR_OK;
}

void edge_settings_free(struct edge_settings *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->routes_n; i++)
        manifest_free(s->routes[i].listed);
    arena_fini(&s->arena);
    free(s);
}
