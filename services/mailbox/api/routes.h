/* The handlers, one file per operation; routes.c puts them into the table. */
#ifndef RON_MAILBOX_API_ROUTES_H
#define RON_MAILBOX_API_ROUTES_H

struct net_req;

void mailbox_post_send(struct net_req *rq, void *ctx);
void mailbox_post_recv(struct net_req *rq, void *ctx);
void mailbox_post_stream(struct net_req *rq, void *ctx);
void mailbox_post_ack(struct net_req *rq, void *ctx);
void mailbox_post_ack_batch(struct net_req *rq, void *ctx);
void mailbox_post_nack(struct net_req *rq, void *ctx);
void mailbox_post_extend(struct net_req *rq, void *ctx);
void mailbox_get_dlq(struct net_req *rq, void *ctx);
void mailbox_post_reprocess(struct net_req *rq, void *ctx);
void mailbox_get_job(struct net_req *rq, void *ctx);
void mailbox_delete_job(struct net_req *rq, void *ctx);
void mailbox_post_purge(struct net_req *rq, void *ctx);
void mailbox_get_topics(struct net_req *rq, void *ctx);
void mailbox_get_topic(struct net_req *rq, void *ctx);
void mailbox_get_chain(struct net_req *rq, void *ctx);
void mailbox_post_shard_claim(struct net_req *rq, void *ctx);
void mailbox_post_shard_release(struct net_req *rq, void *ctx);
void mailbox_get_shards(struct net_req *rq, void *ctx);
void mailbox_get_events(struct net_req *rq, void *ctx);

#endif
