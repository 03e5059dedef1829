/* ron topology: every task, queue, lock and timeout of a service, from its table. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json_write.h"
#include "ron/config_file.h"
#include "ron/services.h"

enum { OUTPUT_MAX = 4 << 20 };

typedef void format_fn(const struct rt_topology *t, struct buf *out);

static int print_one(struct cmd_ctx *ctx, const struct svc_def *def, format_fn *format)
{
    struct conf *c;
    struct buf out, why;
    int status = config_file_load(ctx, def, cmd_global(ctx)->config, &c);
    if (status != CMD_OK)
        return status;
    struct rt_topology *t = calloc(1, sizeof *t);
    if (!t)
        return cmd_fail(ctx, CMD_FAILED, "no memory");
    buf_init(&out, OUTPUT_MAX);
    buf_init(&why, OUTPUT_MAX);
    def->topology(conf_values(c), t);
    format(t, &out);
    if (rt_topology_check(t, &why) != ERR_OK)
        status = cmd_fail(ctx, CMD_FAILED, "%s", buf_cstr(&why));
    else
        printf("%s\n", buf_cstr(&out));
    buf_fini(&why);
    buf_fini(&out);
    free(t);
    conf_destroy(c);
    return status;
}

static int run_topology(struct cmd_ctx *ctx, int argc, char **argv)
{
    format_fn *format = cmd_switch(ctx, "mermaid") ? rt_topology_mermaid
                        : cmd_global(ctx)->json    ? rt_topology_json
                                                   : rt_topology_markdown;
    if (argc && !ron_service_find(argv[0]))
        return cmd_fail(ctx, CMD_USAGE, "there is no service '%s': %s", argv[0], ron_service_names());
    if (argc)
        return print_one(ctx, ron_service_find(argv[0]), format);
    bool array = cmd_global(ctx)->json && !cmd_switch(ctx, "mermaid");
    int status = CMD_OK;
    for (size_t i = 0; i < ron_service_count && status == CMD_OK; i++) {
        if (array)
            fputs(i ? "," : "[", stdout);
        status = print_one(ctx, ron_services[i], format);
    }
    if (array)
        puts("]");
    return status;
}

static const struct cmd_flag flags[] = {
    {"mermaid", CMD_SWITCH, NULL, "as a Mermaid flow chart"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static const struct cmd commands[] = {
    {NULL, "[SERVICE]", "tasks, queues, locks and timeouts",
     "  ron topology ledger --mermaid\n  ron topology --json", flags, 0, 1, run_topology},
    {.run = NULL},
};

const struct cmd_group cmd_topology = {.noun = "topology",
                                       .summary = "tasks, queues, locks and timeouts of every service",
                                       .commands = commands};
