/* What the handlers share: who is asking, for which tenant, about which run. */
#ifndef RON_REWARDER_API_API_H
#define RON_REWARDER_API_API_H

#include "base/json_read.h"
#include "services/rewarder/rewarder.h"

struct api_caller {
    char tenant[REWARDER_NAME_MAX + 1];
    char kid[64];
};

/* What every account of a run can be read from: a capability for some accounts does not cover it. */
#define API_EVERY_ACCOUNT STR("*")

/* False: the problem has been sent. `want` may state account, asset and amount; what it does not state does not exist. */
bool api_allow(struct rewarder *r, struct net_req *rq, const char *op, struct auth_want *want,
               struct api_caller *out);
/* The same when either of two operations will do. */
bool api_allow_either(struct rewarder *r, struct net_req *rq, const char *op, const char *other,
                      struct auth_want *want, struct api_caller *out);

/*
 * In two steps, when what the request is about is known only after its body was read: first whether the capability is good
 * for the operation at all (release *out_cap), then whether it covers what is wanted. False: the problem has been sent.
 */
bool api_allow_op(struct rewarder *r, struct net_req *rq, const char *op, struct api_caller *out,
                  struct auth_cap **out_cap);
bool api_covers(struct rewarder *r, struct net_req *rq, const struct auth_cap *cap, const char *op,
                struct auth_want *want);

/* {id} of the path; false: 400 sent. */
bool api_epoch(struct net_req *rq, struct str *out);
bool api_is_dry(struct net_req *rq);
/* A reference to the caller's run; NULL: 404 sent. */
struct rewarder_run *api_run(struct rewarder *r, struct net_req *rq, const struct api_caller *who);
/*
 * The run's view; NULL: answered (not sealed, quarantined), or the request waits for the run to be opened and `again` runs
 * on a worker.
 */
struct rewarder_view *api_view(struct rewarder *r, struct net_req *rq, struct rewarder_run *run,
                               void (*again)(struct net_req *rq, void *ctx));
/* Into work_req; on failure 429 is sent, the item is gone and it returns false. */
bool api_enqueue(struct rewarder *r, struct rewarder_item *it, const char *endpoint);
/* An item for this request and tenant; NULL: 503 sent. */
struct rewarder_item *api_item(struct rewarder *r, struct net_req *rq, enum rewarder_kind kind,
                               const struct api_caller *who);
/* Strict JSON body into *out; false: 400 sent naming the member. An empty body is {} when `may_be_empty`. */
bool api_body(struct net_req *rq, const struct json_field *fields, void *out, bool may_be_empty);
/* The digest as an entity tag; true: the caller has these bytes already, and 304 was sent. */
bool api_not_modified(struct net_req *rq, const struct sha256 *digest);
/* 200 with a body whose digest is its entity tag. */
void api_reply_json(struct net_req *rq, const struct sha256 *digest, struct bytes body);
/* Answers with a file's bytes, which stay mapped until they are sent. The digest is its entity tag; NULL: none. What cannot
 * change any more is `immutable`. */
void api_reply_file(struct net_req *rq, const char *type, const struct sha256 *digest, bool immutable,
                    struct rewarder_file *file);

#endif
