/* What the files of the http transport share. */
#ifndef RON_LEDGER_CLIENT_HTTP_INTERNAL_H
#define RON_LEDGER_CLIENT_HTTP_INTERNAL_H

#include "ledger_client/bearer.h"
#include "ledger_client/remote.h"
#include "ledger_client/targets.h"
#include "net/http_client.h"

/* One address of the list. */
struct ledger_target {
    char base_url[512], uds[512];
};

struct ledger_http {
    struct ledger_remote remote;
    struct net_http_client *http;
    struct ledger_target targets[LEDGER_TARGETS_MAX];
    struct ledger_targets to;
    struct ledger_bearer bearer;
};

/* Addresses separated by commas, the first one is tried first. ERR_SYNTAX: none, too many, or too long. */
NODISCARD enum err ledger_http_targets_parse(struct ledger_http *h, const char *urls);
/*
 * What came back from `from`. Turns to the next address (or to the writer that the answer names) when it is no use. True: nothing
 * was done there, or the call only reads: it may be sent again.
 */
bool ledger_http_target_answered(struct ledger_http *h, uint32_t from, bool write, enum err e,
                                 const struct net_http_response *r);

extern const struct ledger_client_ops ledger_http_ops;
NODISCARD enum err ledger_http_init(struct ledger_http *h, const struct ledger_client_conf *conf);
void ledger_http_fini(struct ledger_http *h);

#endif
