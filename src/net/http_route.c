#include "net/http_route.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/check.h"

struct node {
    struct str literal;
    struct node *next;  /* sibling literal */
    struct node *child; /* literal segments below */
    struct node *param; /* any one segment */
    struct node *rest;  /* everything left */
    struct net_route_leaf *leaves;
    struct str allow;
};

struct net_router {
    struct arena arena;
    struct node root;
};

enum { DEPTH_MAX = 32, ALLOW_MAX = 128 };

static struct node *node_new(struct net_router *r)
{
    return arena_zalloc(&r->arena, sizeof(struct node));
}

static struct node *literal_child(struct net_router *r, struct node *at, struct str segment)
{
    struct node **slot = &at->child;
    for (; *slot; slot = &(*slot)->next)
        if (str_eq((*slot)->literal, segment))
            return *slot;
    struct node *n = node_new(r);
    if (n)
        n->literal = segment;
    return *slot = n;
}

/* The node below `at` for one pattern segment; *out_name is set for params. NULL: no memory. */
static struct node *segment_node(struct net_router *r, struct node *at, struct str segment, bool last,
                                 struct str *out_name, bool *out_bad)
{
    *out_name = (struct str){NULL, 0};
    bool braces = memchr(segment.p, '{', segment.n) || memchr(segment.p, '}', segment.n);
    if (!braces)
        return literal_child(r, at, segment);
    *out_bad = segment.n < 3 || segment.p[0] != '{' || segment.p[segment.n - 1] != '}';
    if (*out_bad)
        return NULL;
    struct str name = {segment.p + 1, segment.n - 2};
    bool rest = name.p[name.n - 1] == '*';
    name.n -= rest;
    *out_bad = name.n == 0 || (rest && !last);
    *out_name = name;
    struct node **slot = rest ? &at->rest : &at->param;
    if (!*slot)
        *slot = node_new(r);
    return *slot;
}

static enum err leaf_add(struct net_router *r, struct node *at, struct net_route_leaf *leaf)
{
    struct net_route_leaf **slot = &at->leaves;
    for (; *slot; slot = &(*slot)->next)
        if (str_eq((*slot)->method, leaf->method))
            return ERR_EXISTS;
    *slot = leaf;
    char text[ALLOW_MAX];
    int n = 0;
    bool head = false;
    for (const struct net_route_leaf *l = at->leaves; l; l = l->next)
        head = head || str_eq(l->method, STR("HEAD"));
    for (const struct net_route_leaf *l = at->leaves; l; l = l->next) {
        bool implied = !head && str_eq(l->method, STR("GET"));
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%.*s%s", n ? ", " : "", STR_ARG(l->method),
                      implied ? ", HEAD" : "");
        CHECK(n < ALLOW_MAX);
    }
    return arena_str(&r->arena, (struct str){text, (size_t)n}, &at->allow) ? ERR_OK : ERR_NO_MEMORY;
}

static enum err route_add(struct net_router *r, const struct net_route *route, void *ctx)
{
    struct net_route_leaf *leaf = arena_zalloc(&r->arena, sizeof *leaf);
    if (!leaf)
        return ERR_NO_MEMORY;
    *leaf = (struct net_route_leaf){
        .route = route,
        .ctx = ctx,
        .method = str_from_c(route->method),
        .label = str_from_c(route->label ? route->label : route->pattern),
        .headers = str_from_c(route->headers),
    };
    struct str rest = str_from_c(route->pattern);
    if (rest.n == 0 || rest.p[0] != '/')
        return ERR_SYNTAX;
    struct node *at = &r->root;
    for (unsigned depth = 0; rest.n; depth++) {
        rest.p++, rest.n--;
        const char *slash = memchr(rest.p, '/', rest.n);
        struct str segment = {rest.p, slash ? (size_t)(slash - rest.p) : rest.n};
        rest.p += segment.n, rest.n -= segment.n;
        struct str name;
        bool bad = false;
        at = segment_node(r, at, segment, rest.n == 0, &name, &bad);
        if (bad || depth == DEPTH_MAX)
            return ERR_SYNTAX;
        if (!at)
            return ERR_NO_MEMORY;
        if (name.p) {
            if (leaf->param_count == NET_PARAMS_MAX)
                return ERR_SYNTAX;
            leaf->param_names[leaf->param_count++] = name;
        }
    }
    return leaf_add(r, at, leaf);
}

enum err net_router_create(const struct net_routes *sets, size_t count, struct net_router **out_router)
{
    struct net_router *r = calloc(1, sizeof *r);
    if (!r)
        return ERR_NO_MEMORY;
    arena_init(&r->arena, 4096, 16u << 20);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < sets[i].count; k++) {
            enum err e = route_add(r, &sets[i].list[k], sets[i].ctx);
            if (e != ERR_OK) {
                net_router_destroy(r);
                return e;
            }
        }
    }
    *out_router = r;
    return ERR_OK;
}

void net_router_destroy(struct net_router *r)
{
    if (!r)
        return;
    arena_fini(&r->arena);
    free(r);
}

/* Takes the leaf of `n` whose method fits; remembers the methods of the first path that exists at all. */
static bool node_take(const struct node *n, struct str method, struct net_match *m)
{
    const struct net_route_leaf *get = NULL;
    for (const struct net_route_leaf *l = n->leaves; l; l = l->next) {
        if (str_eq(l->method, method)) {
            m->leaf = l;
            return true;
        }
        if (str_eq(l->method, STR("GET")))
            get = l;
    }
    if (get && str_eq(method, STR("HEAD"))) {
        m->leaf = get;
        return true;
    }
    if (n->leaves && !m->allow.p)
        m->allow = n->allow;
    return false;
}

/* `path` begins with the slash before the next segment. */
static bool find(const struct node *n, struct str method, struct str path, size_t params,
                 struct net_match *m)
{
    if (path.n == 0)
        return node_take(n, method, m);
    struct str rest = {path.p + 1, path.n - 1};
    const char *slash = memchr(rest.p, '/', rest.n);
    struct str segment = {rest.p, slash ? (size_t)(slash - rest.p) : rest.n};
    struct str after = {rest.p + segment.n, rest.n - segment.n};
    for (const struct node *c = n->child; c; c = c->next)
        if (str_eq(c->literal, segment)) {
            if (find(c, method, after, params, m))
                return true;
            break;
        }
    if (n->param && segment.n > 0) {
        m->params[params] = segment;
        if (find(n->param, method, after, params + 1, m))
            return true;
    }
    if (n->rest && rest.n > 0) {
        m->params[params] = rest;
        return node_take(n->rest, method, m);
    }
    return false;
}

void net_router_find(const struct net_router *r, struct str method, struct str path, struct net_match *out)
{
    out->leaf = NULL;
    out->allow = (struct str){NULL, 0};
    if (path.n > 0 && path.p[0] == '/')
        find(&r->root, method, path, 0, out);
}
