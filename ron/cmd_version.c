#include <stdio.h>

#include "ron/cmd.h"
#include "svc/version.h"

static int run_version(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (cmd_global(ctx)->json)
        printf("{\"version\":\"%s\",\"compiler\":\"%s\"}\n", SVC_VERSION, __VERSION__);
    else
        printf("ron %s\n", SVC_VERSION);
    return CMD_OK;
}

static const struct cmd commands[] = {
    {NULL, "", "print the version", "  ron version\n  ron version --json", NULL, 0, 0, run_version},
    {.run = NULL},
};

const struct cmd_group cmd_version = {
    .noun = "version", .summary = "print the version", .commands = commands};
