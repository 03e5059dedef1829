/* What the files of the http transport share. */
#ifndef RON_LEDGER_CLIENT_HTTP_INTERNAL_H
#define RON_LEDGER_CLIENT_HTTP_INTERNAL_H

#include <stdatomic.h>

#include "ledger_client/remote.h"
#include "net/http_client.h"

struct ledger_http {
    struct ledger_remote remote;
    struct net_http_client *http;
    char base_url[1024], uds[512];
    char authorization[9216];
};

extern const struct ledger_client_ops ledger_http_ops;
NODISCARD enum err ledger_http_init(struct ledger_http *h, const struct ledger_client_conf *conf);
void ledger_http_fini(struct ledger_http *h);

#endif
