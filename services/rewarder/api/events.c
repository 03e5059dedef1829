/* GET /admin/events: what becomes of runs, while it happens. */
#include "services/rewarder/api/api.h"
#include "services/rewarder/api/routes.h"

void rewarder_api_events(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    if (svc_allow_admin(r->svc, rq) && !svc_feed_follow(r->events, rq))
        net_reply_problem(rq, ERR_BUSY, "too many listeners already");
}
