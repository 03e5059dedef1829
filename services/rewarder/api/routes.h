/* One handler per operation; routes.c is the table. */
#ifndef RON_REWARDER_API_ROUTES_H
#define RON_REWARDER_API_ROUTES_H

#include "rt/lock.h"

struct net_req;

void rewarder_api_put_inputs(struct net_req *rq, void *ctx) RT_BLOCKS;
void rewarder_api_get_inputs(struct net_req *rq, void *ctx) RT_BLOCKS;
void rewarder_api_compute(struct net_req *rq, void *ctx);
void rewarder_api_get_epoch(struct net_req *rq, void *ctx);
void rewarder_api_list_epochs(struct net_req *rq, void *ctx);
void rewarder_api_get_payout(struct net_req *rq, void *ctx);
void rewarder_api_get_csv(struct net_req *rq, void *ctx);
void rewarder_api_get_artifact(struct net_req *rq, void *ctx) RT_BLOCKS;
void rewarder_api_emit(struct net_req *rq, void *ctx);
void rewarder_api_quarantine(struct net_req *rq, void *ctx);
void rewarder_api_release(struct net_req *rq, void *ctx);
void rewarder_api_post_shadow(struct net_req *rq, void *ctx) RT_BLOCKS;
void rewarder_api_get_shadow(struct net_req *rq, void *ctx) RT_BLOCKS;
void rewarder_api_get_diff(struct net_req *rq, void *ctx) RT_BLOCKS;
void rewarder_api_policies(struct net_req *rq, void *ctx);
void rewarder_api_policy(struct net_req *rq, void *ctx);
void rewarder_api_keys(struct net_req *rq, void *ctx);
void rewarder_api_events(struct net_req *rq, void *ctx);

#endif
