/*
 * What the handlers share: making a call, judging the token, submitting jobs, refusing.
 *
 * Threads     All of it on the call's loop thread.
 */
#ifndef RON_MAILBOX_API_CALL_H
#define RON_MAILBOX_API_CALL_H

#include "base/json_read.h"
#include "services/mailbox/core/wire.h"
#include "services/mailbox/mailbox.h"

/* A call in the request's arena; NULL when it was refused (answered). */
struct mailbox_call *mailbox_call_http(struct mailbox *mb, struct net_req *rq, enum mailbox_op op,
                                       const char *auth_op);
struct arena *mailbox_call_arena(struct mailbox_call *c);
struct str mailbox_call_corr_id(struct mailbox_call *c);
bool mailbox_call_covers(const void *cap, struct str topic);

/* 403 unless the token covers the call's operation on this topic with a payload of that size; nothing is sent. */
NODISCARD enum err mailbox_call_allows(struct mailbox_call *c, struct str topic, uint64_t bytes);
/* The same of another operation, which the call needs beside its own. */
NODISCARD enum err mailbox_call_allows_too(struct mailbox_call *c, const char *auth_op, struct str topic);

/* svc_authorize_again() for its own op and token. */
NODISCARD enum err mailbox_call_judge_again(struct mailbox_call *c, struct str topic);
struct str mailbox_call_token(const struct mailbox_call *c);

/* The end of every call: releases what it holds and counts it. The request is gone afterwards. */
void mailbox_call_reply(struct mailbox_call *c, int status, struct bytes json);
void mailbox_call_refuse(struct mailbox_call *c, enum err e, enum mailbox_why why, const char *detail);
void mailbox_call_refuse_details(struct mailbox_call *c, enum err e, const char *detail,
                                 struct bytes details);
void mailbox_call_refuse_json(struct mailbox_call *c, enum err e, const struct json_error *why);
void mailbox_call_ended(struct mailbox_call *c, enum err e); /* for those that answer themselves */
void mailbox_call_refused(struct mailbox_call *c,
                          enum err e); /* counts and logs what one item of a batch got */
const char *mailbox_detail(enum err e, enum mailbox_why why);

/* A number of the query: true when it is absent, and *out as it was, or within its range. */
bool mailbox_query_u32(struct net_req *rq, const char *name, uint32_t least, uint32_t most, uint32_t *out);

/* Jobs: an array in the arena, one per shard touched. */
struct mailbox_job *mailbox_call_jobs(struct mailbox_call *c,
                                      size_t n); /* zeroed, wired to the call; NULL: no memory */
/* Submits all; those refused are done at once with err and why. The call is finished when the last is done. */
void mailbox_call_submit(struct mailbox_call *c, bool settling);

/* recv.c, used by stream.c and oap.c */
void mailbox_put_envelope(struct json_w *w, struct str topic, const struct mailbox_delivery *d,
                          uint16_t shard);
void mailbox_recv_free(struct mailbox_recv *rv);
/* Submits c->recv. Whoever asked may leave before it is answered: then it is answered at once, with nothing if nothing is leased yet. */
void mailbox_recv_submit(struct mailbox_call *c);
void mailbox_recv_left(struct mailbox_call *c);
/* Gives leases back that did not reach anybody; takes over nothing. Best effort: what cannot be sent expires by itself. */
void mailbox_release(struct mailbox_lane *l, const struct mailbox_delivery *got, uint32_t n);
/* send.c: checks one message and fills the item; ERR_BAD_REQUEST and friends with *out_detail. */
NODISCARD enum err mailbox_send_prepare(struct mailbox_call *c, const struct mailbox_message *m,
                                        struct mailbox_send_item *it, const char **out_detail);
/* Hashes what was prepared, distributes the items over jobs and submits them. */
void mailbox_send_submit(struct mailbox_call *c);
/* settle.c: the same for settlements; every item goes to the shard its id names. */
void mailbox_settle_submit(struct mailbox_call *c, enum mailbox_job_kind kind);

#endif
