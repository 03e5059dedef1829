#include "ron/up.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "ron/services.h"
#include "services/ledger/direct.h"

int up_check_config(const struct cmd_ctx *ctx, const struct cmd_global *g)
{
    for (size_t i = 0; i < ron_service_count; i++) {
        enum err e = svc_check_config(ron_services[i], &(struct svc_options){.config_file = g->config});
        if (e != ERR_OK)
            return cmd_fail(ctx, e == ERR_BAD_REQUEST ? CMD_USAGE : CMD_FAILED, "%s", svc_last_error());
    }
    return CMD_OK;
}

void up_print_try(const struct cmd_global *g)
{
    char flags[PATH_MAX + 64] = "";
    size_t n = 0;
    if (g->base_port != 7400)
        n = (size_t)snprintf(flags, sizeof flags, " --base-port %d", g->base_port);
    if (!g->amnesia && strcmp(g->data, "ron-data") != 0)
        snprintf(flags + n, sizeof flags - n, " --data %s", g->data);
    printf("\n  try        ron demo%s      a day in the life, every claim checked\n"
           "             ron status%s    health of the services\n"
           "             ron top%s       live rates, latencies and queues\n",
           flags, flags, flags);
}

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
