/* The handlers, one file per operation, and what they share. All run on the request's loop. */
#ifndef RON_EDGE_API_H
#define RON_EDGE_API_H

#include "services/edge/edge.h"

struct edge_pack;
struct edge_generation;

/* The pack of that name, or NULL when the request was refused. */
struct edge_pack *edge_pack_for(struct edge *e, struct net_req *rq, struct edge_generation *g,
                                struct str name);

void edge_get_tile(struct net_req *rq, void *edge);
void edge_get_tilejson(struct net_req *rq, void *edge);
void edge_get_archive(struct net_req *rq, void *edge);
void edge_get_asset(struct net_req *rq, void *edge);
void edge_get_object(struct net_req *rq, void *edge);
void edge_scrape(struct svc *s, void *edge, struct net_req *rq);
void edge_options(struct net_req *rq, void *edge);

void edge_admin_packs(struct net_req *rq, void *edge);
void edge_admin_reload(struct net_req *rq, void *edge);
void edge_admin_fills(struct net_req *rq, void *edge);
void edge_admin_events(struct net_req *rq, void *edge);
void edge_admin_verify(struct net_req *rq, void *edge);
void edge_admin_purge(struct net_req *rq, void *edge);

#endif
