/*
 * What the handlers share: who is calling, and what they may see.
 *
 * Threads     Handlers run on the event loops and never block.
 */
#ifndef RON_WALLET_API_API_H
#define RON_WALLET_API_API_H

#include "services/wallet/read.h"
#include "services/wallet/wallet.h"

/* Good token? Otherwise the 401 (or 429) has been sent. */
NODISCARD enum err wallet_api_verify(struct wallet *w, struct net_req *rq, struct auth_cap **out_cap);
/* Does it cover this? Otherwise the 403 has been sent. */
NODISCARD enum err wallet_api_allow(struct wallet *w, struct net_req *rq, const struct auth_cap *cap,
                                    struct auth_want *want);
/* verify and allow for reads; *out_cap only on ERR_OK. */
NODISCARD enum err wallet_api_reader(struct wallet *w, struct net_req *rq, struct str account,
                                     struct str asset, struct auth_cap **out_cap);
/* Whether the token covers either side of a receipt. */
bool wallet_api_sees(const struct auth_cap *cap, struct str receipt, const struct wallet_sides *sides);
/* Only these query members, each at most once; otherwise the 400 has been sent. */
NODISCARD enum err wallet_api_query(struct wallet *w, struct net_req *rq, const char *const *names,
                                    struct str *out, size_t n);
void wallet_api_bad(struct wallet *w, struct net_req *rq, const char *member, const char *reason);
/* 503 for a ledger that does not answer. */
void wallet_api_down(struct wallet *w, struct net_req *rq, enum err e);
/* Looks in memory for a txid. What is open has no receipt yet: `receipt` is then the text that its sides lie in. */
enum wallet_tx { WALLET_TX_ABSENT, WALLET_TX_OPEN, WALLET_TX_DONE };
enum wallet_tx wallet_api_find_tx(struct wallet *w, struct str txid, char receipt[WALLET_BODY_MAX],
                                  size_t *out_n, struct wallet_sides *out_sides, int64_t *out_since_ms);

/* Hooks of the frame (told.c). */
size_t wallet_request_fields(void *wallet, struct net_req *rq, struct obs_field *out);
void wallet_refusing(struct svc *s, void *wallet, struct net_req *rq, enum net_reject why,
                     struct net_problem *p);
void wallet_answered_no(struct svc *s, void *wallet, const struct net_done *d);
void wallet_refuse_draining(struct svc *s, struct net_req *rq);

void wallet_api_post(struct net_req *rq, void *wallet);
void wallet_api_simulate(struct net_req *rq, void *wallet);
void wallet_api_balance(struct net_req *rq, void *wallet);
void wallet_api_accounts(struct net_req *rq, void *wallet);
void wallet_api_nonce(struct net_req *rq, void *wallet);
void wallet_api_tx(struct net_req *rq, void *wallet);
void wallet_api_proof(struct net_req *rq, void *wallet);
void wallet_api_in_doubt(struct net_req *rq, void *wallet);
void wallet_api_audit(struct net_req *rq, void *wallet);
void wallet_api_cache_flush(struct net_req *rq, void *wallet);

#endif
