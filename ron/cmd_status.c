/* ron status: is everything there, and if not, what is missing. */
#include <stdio.h>
#include <string.h>

#include "ron/client.h"
#include "ron/services.h"
#include "ron/table.h"

static void missing_text(const json_t *body, char *out, size_t n)
{
    size_t i, used = 0;
    json_t *cause;
    out[0] = 0;
    json_array_foreach(json_object_get(body, "missing"), i, cause)
    {
        int k = snprintf(out + used, n - used, "%s%s", i ? ", " : "", json_string_value(cause));
        used += k > 0 && (size_t)k < n - used ? (size_t)k : 0;
    }
}

RT_BLOCKS
static int run_status(struct cmd_ctx *ctx, int argc, char **argv)
{
    static const char *const headers[] = {"service", "state", "since", ">port", "missing"};
    struct table table;
    json_t *all = json_object();
    int down = 0;
    (void)argc;
    (void)argv;
    table_init(&table, cmd_global(ctx)->color, headers, 5);
    for (size_t i = 0; i < ron_service_count; i++) {
        const struct svc_def *def = ron_services[i];
        struct client_answer a;
        char missing[256], base[256];
        client_call(ctx, def->name,
                    &(struct client_request){.path = "/readyz", .no_token = true, .timeout_ms = 2000}, &a);
        bool answers = a.err == ERR_OK;
        bool degraded = json_is_true(json_object_get(a.json, "degraded"));
        missing_text(a.json, missing, sizeof missing);
        table_cell(&table, "%s", def->name);
        table_cell(&table, "%s",
                   !answers          ? "down"
                   : a.status != 200 ? "not ready"
                   : degraded        ? "degraded"
                                     : "ready");
        table_cell(&table, "%.19s", client_str(a.json, "since"));
        const char *port = strrchr(client_base_url(ctx, def->name, base), ':');
        table_cell(&table, "%s", port && port[1] != '/' ? port + 1 : "");
        table_cell(&table, "%s", missing);
        json_object_set_new(all, def->name, a.json ? json_deep_copy(a.json) : json_null());
        down += !answers || a.status != 200;
        client_free(&a);
    }
    if (cmd_global(ctx)->json) {
        json_dumpf(all, stdout, JSON_COMPACT);
        putchar('\n');
    } else
        table_print(&table);
    json_decref(all);
    return down ? CMD_UNAVAILABLE : CMD_OK;
}

static const struct cmd commands[] = {
    {NULL, "", "health of every service", "  ron status\n  ron status --json --base-port 7500", NULL, 0, 0,
     run_status},
    {.run = NULL},
};

const struct cmd_group cmd_status = {
    .noun = "status", .summary = "health of every service", .commands = commands};
