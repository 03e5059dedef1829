/* One handler per operation; ctx is the struct ledger_service. */
#ifndef RON_LEDGER_API_ROUTES_H
#define RON_LEDGER_API_ROUTES_H

struct net_req;

void ledger_post_ingest(struct net_req *rq, void *ctx);
void ledger_get_unit(struct net_req *rq, void *ctx);
void ledger_get_account(struct net_req *rq, void *ctx);
void ledger_get_entry(struct net_req *rq, void *ctx);
void ledger_get_entries(struct net_req *rq, void *ctx);
void ledger_get_supply(struct net_req *rq, void *ctx);
void ledger_get_roots(struct net_req *rq, void *ctx);
void ledger_get_roots_stream(struct net_req *rq, void *ctx);
void ledger_get_events(struct net_req *rq, void *ctx);
void ledger_get_inclusion(struct net_req *rq, void *ctx);
void ledger_get_consistency(struct net_req *rq, void *ctx);
void ledger_get_checkpoint(struct net_req *rq, void *ctx);
void ledger_get_key(struct net_req *rq, void *ctx);
void ledger_get_tile(struct net_req *rq, void *ctx);
void ledger_admin_recovery(struct net_req *rq, void *ctx);
void ledger_admin_safe_mode(struct net_req *rq, void *ctx);
void ledger_admin_snapshot(struct net_req *rq, void *ctx);
void ledger_admin_checkpoint(struct net_req *rq, void *ctx);
void ledger_admin_providers(struct net_req *rq, void *ctx);
void ledger_admin_provider_fail(struct net_req *rq, void *ctx);
void ledger_admin_journal(struct net_req *rq, void *ctx);
void ledger_admin_take_over(struct net_req *rq, void *ctx);

#endif
