#include "ron/up.h"

#include <string.h>

#include "services/ledger/direct.h"

void *up_wire(const struct svc_def *def, struct svc *ledger, struct svc_data *data,
              struct ledger_client **out_client)
{
    *out_client = NULL;
    if (ledger == NULL || (strcmp(def->name, "wallet") != 0 && strcmp(def->name, "rewarder") != 0))
        return NULL;
    struct buf token;
    struct ledger_client *client = NULL;
    buf_init(&token, 16384);
    enum err err = svc_data_ledger_token(data, def->name, &token);
    while (err == ERR_OK && token.n > 0 && token.p[token.n - 1] == '\n')
        buf_truncate(&token, token.n - 1);
    if (err == ERR_OK)
        err = ledger_direct_open(ledger, buf_str(&token), &client);
    if (token.p != NULL)
        explicit_bzero(token.p, token.n);
    buf_fini(&token);
    if (err != ERR_OK)
        return NULL; /* the service then reaches the ledger over its sockets, or says that it cannot */
    *out_client = client;
    return client;
}

void up_unwire(struct ledger_client *client)
{
    if (client != NULL)
        ledger_client_close(client);
}
