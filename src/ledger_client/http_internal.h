/* What the files of the http transport share. */
#ifndef RON_LEDGER_CLIENT_HTTP_INTERNAL_H
#define RON_LEDGER_CLIENT_HTTP_INTERNAL_H

#include <stdatomic.h>

#include "ledger_client/remote.h"
#include "net/http_client.h"

enum { LEDGER_TARGETS_MAX = 8 };

/* One address of the list. */
struct ledger_target {
    char base_url[512], uds[512];
};

struct ledger_http {
    struct ledger_remote remote;
    struct net_http_client *http;
    struct ledger_target targets[LEDGER_TARGETS_MAX];
    uint32_t n_targets;
    _Atomic uint32_t
        current; /* the one that answered last; relaxed, a wrong one is corrected by its answer */
    char authorization[9216];
};

extern const struct ledger_client_ops ledger_http_ops;
NODISCARD enum err ledger_http_init(struct ledger_http *h, const struct ledger_client_conf *conf);
void ledger_http_fini(struct ledger_http *h);

#endif
