#include "ron/up.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "services/ledger/direct.h"

/* Who calls the ledger, and so gets a client of it with a token of its own. */
static bool calls_ledger(const struct svc_def *def)
{
    return strcmp(def->name, "wallet") == 0 || strcmp(def->name, "rewarder") == 0;
}

void *up_wire(const struct svc_def *def, struct svc *ledger, struct svc_data *data,
              struct ledger_client **out_client)
{
    struct buf token;
    *out_client = NULL;
    if (!calls_ledger(def) || !ledger)
        return NULL;
    buf_init(&token, 8192);
    enum err e = svc_data_ledger_token(data, def->name, &token);
    if (e == ERR_OK)
        e = ledger_direct_open(ledger, buf_str(&token), out_client);
    if (e != ERR_OK)
        fprintf(stderr, "ron: %s will reach the ledger over its sockets (%s)\n", def->name, err_title(e));
    buf_fini(&token);
    return *out_client;
}

void up_unwire(struct ledger_client *client)
{
    if (client)
        ledger_client_close(client);
}
