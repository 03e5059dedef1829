/* GET /metrics: judged here, rendered by the metrics task, so that no hit waits behind a page of numbers. */
#include "services/edge/api/api.h"

static bool may_scrape(const struct edge_settings *s, const struct net_peer *peer)
{
    return peer->kind == NET_PEER_UNIX || net_cidr_any(s->scrapers, s->scrapers_n, peer->addr);
}

void edge_scrape(struct svc *s, void *edge, struct net_req *rq)
{
    struct edge *e = edge;
    (void)s;
    if (!may_scrape(edge_settings(e), net_req_socket_peer(rq))) {
        net_reply_problem(rq, ERR_NOT_FOUND, "no such path");
        return;
    }
    enum err err = rt_chan_try_send(e->scrape, rq);
    if (err == ERR_OK)
        return;
    if (err == ERR_BUSY)
        edge_count_dropped(e, "scrape");
    net_reply_problem(rq, err == ERR_CLOSED ? ERR_DRAINING : ERR_BUSY,
                      err == ERR_CLOSED ? "the service is shutting down" : "scrape queue is full");
}
