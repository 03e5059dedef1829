/*
 * Which route a request means: a tree over path segments. Literal segments win over {params}, those over {rest*}; a route
 * whose method fits wins over one whose method does not.
 *
 * Ownership   The router keeps pointers into the route tables; they must outlive it.
 * Threads     Immutable after creation: any number of readers.
 */
#ifndef RON_NET_HTTP_ROUTE_H
#define RON_NET_HTTP_ROUTE_H

#include "net/http_server.h"

struct net_router;

struct net_route_leaf {
    struct net_route_leaf *next; /* private */
    const struct net_route *route;
    void *ctx;
    size_t param_count;
    struct str param_names[NET_PARAMS_MAX];
    struct str method;
    struct str label;
    struct str headers;
};

struct net_match {
    const struct net_route_leaf *leaf; /* NULL: none */
    struct str allow;                  /* leaf NULL: methods the path has; p NULL: no such path */
    struct str params[NET_PARAMS_MAX]; /* raw views into the path */
};

/* ERR_SYNTAX: a bad pattern; ERR_EXISTS: method and pattern twice. */
NODISCARD enum err net_router_create(const struct net_routes *sets, size_t count,
                                     struct net_router **out_router);
void net_router_destroy(struct net_router *r);
void net_router_find(const struct net_router *r, struct str method, struct str path, struct net_match *out);

#endif
