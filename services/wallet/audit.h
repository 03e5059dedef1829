/*
 * Audit events: what was accepted and what was refused, for whoever listens at /admin/audit. Lossy by design; the
 * ledger is the record.
 *
 * Ownership   An event is counted; the broadcast and each reader hold references.
 */
#ifndef RON_WALLET_AUDIT_H
#define RON_WALLET_AUDIT_H

#include "services/wallet/wallet.h"

struct wallet_event {
    struct os_a32 refs;
    size_t n;
    char text[]; /* one SSE event */
};

void wallet_event_ref(void *event);
void wallet_event_unref(void *event);
/* For each operation that ends. */
void wallet_audit_settled(struct wallet *w, const struct wallet_job *j);
/* For a request that was refused before there was an operation. */
void wallet_audit_refused(struct wallet *w, const char *op, enum err e, struct str corr_id);
/* GET /admin/audit: the request becomes a stream. False: too many readers. */
bool wallet_audit_subscribe(struct wallet *w, struct net_req *rq);

#endif
