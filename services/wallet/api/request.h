/*
 * A POST as it was asked for: token, key, members, names. Everything before the idempotency store is consulted.
 *
 * Ownership   Lies in the request's arena; holds a reference to the capability until wallet_post_free.
 */
#ifndef RON_WALLET_API_REQUEST_H
#define RON_WALLET_API_REQUEST_H

#include "services/wallet/api/api.h"

struct wallet_post {
    struct wallet *w;
    struct net_req *rq;
    struct auth_cap *cap;
    struct wallet_op op;
    struct str tenant, key;
    struct sha256 txid_hash, idem_hash;
    struct wallet_idem_name name;                                /* from the hashes */
    char txid[WALLET_TXID_CHARS], idem_id[WALLET_IDEM_ID_CHARS]; /* once wallet_post_spell was called */
    bool named;                                                  /* the hashes are there */
    bool settles_hold;
    struct wallet_hold hold; /* known once hold.payer.p is */
    bool simulated;
    bool fresh;                        /* a moment ago nothing was known of its key */
    void (*go)(struct wallet_post *p); /* when everything above is known and allowed */
    void (*replay)(struct wallet_post *p,
                   struct str receipt); /* its key was committed with this payload; frees it */
    bool asked;                         /* whether the ledger knows its key */
    bool asking;                        /* that is being asked */
    /* The reservations made for it. */
    struct wallet_patient patient; /* waits for what was spent today */
    bool told_loading;             /* it has waited, and that was in vain */
    struct wallet_reservation daily[WALLET_RESERVATIONS_MAX];
    size_t n_daily;
    int64_t day, now_ms;
    int64_t traced_ns; /* trace.h; 0: not sampled */
};

/* Token and key: who asks, and under which name. NULL: the refusal has been sent. */
struct wallet_post *wallet_post_head(struct wallet *w, struct net_req *rq);
/* Reads the body, checks and then calls go (at once, or when the hold it settles has been read). Any refusal has been
 * sent. */
void wallet_post_body(struct wallet_post *p, void (*go)(struct wallet_post *p),
                      void (*replay)(struct wallet_post *p, struct str receipt));
/* Does the token cover p->op (and p->hold)? Otherwise the 403 has been sent. */
NODISCARD enum err wallet_post_allow(struct wallet_post *p);
void wallet_post_free(struct wallet_post *p);
/* Its names as text. Not before somebody reads them: a replay needs none. */
void wallet_post_spell(struct wallet_post *p);

/* The account whose allowance and policy count, and the amount. */
struct str wallet_post_actor(const struct wallet_post *p);
struct money wallet_post_amount(const struct wallet_post *p);
/*
 * Policy, ceilings, daily allowances (reserved unless it is simulated). REFUSED: the refusal has been sent, free it.
 * WAITS: what was spent today is still being added up, or the ledger is asked whether it knows the key; p->go runs again then, within
 * the request's deadline, unless it is answered there.
 */
enum wallet_limits { WALLET_LIMITS_OK, WALLET_LIMITS_REFUSED, WALLET_LIMITS_WAITS };
NODISCARD enum wallet_limits wallet_post_limits(struct wallet_post *p);

#endif
