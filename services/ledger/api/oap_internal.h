/* What the files of the framed door share: oap.c (ingest, accounts, units, streams) and oap_reads.c (entries, roots, proofs). */
#ifndef RON_LEDGER_API_OAP_INTERNAL_H
#define RON_LEDGER_API_OAP_INTERNAL_H

#include "ron/ledger.pb-c.h"
#include "services/ledger/api/api.h"

/* One framed read on its way through read_tx; lives in the request's arena. */
struct ledger_oap_read {
    struct ledger_read read;
    struct net_oap_req *rq;
    struct auth_cap *cap;
    uint64_t a, b;
    struct str text;
    int64_t until_ns;
};

ProtobufCAllocator ledger_oap__allocator(struct arena *a);
char *ledger_oap__text(struct arena *a,
                       struct str s); /* terminated; protobuf-c wants it writable, and only reads it */
ProtobufCBinaryData ledger_oap__hash(struct arena *a, const struct sha256 *h);
Ron__Ledger__V1__Entry *ledger_oap__entry(struct arena *a, const struct core_entry *e);

/* False: it has been answered. An empty account: the operation does not name one. */
bool ledger_oap__may_read(struct ledger_service *s, struct net_oap_req *rq, struct str account,
                          struct auth_cap **out);
void ledger_oap__read(struct ledger_service *s, struct net_oap_req *rq, struct ledger_oap_read r,
                      void (*run)(struct ledger_service *, struct ledger_read *));
void ledger_oap__reply(struct net_oap_req *rq, const ProtobufCMessage *m);

void ledger_oap__entries(struct ledger_service *s, struct net_oap_req *rq);
void ledger_oap__roots(struct ledger_service *s, struct net_oap_req *rq);
void ledger_oap__inclusion(struct ledger_service *s, struct net_oap_req *rq);

#endif
