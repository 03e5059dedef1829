/* ron console: the pages for a browser on their own, and the address that opens them. */
#include <stdio.h>

#include "ron/client.h"
#include "services/console/console.h"

/* The capability stands behind the #, in the part of an address that a browser sends to nobody. */
static int run_link(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct buf token;
    char base[256];
    (void)argc;
    (void)argv;
    buf_init(&token, 1 << 16);
    bool have = client_token(ctx, &token);
    if (have) {
        client_base_url(ctx, "console", base);
        printf(cmd_global(ctx)->json ? "{\"url\":\"%s/#token=%s\"}\n" : "%s/#token=%s\n", base,
               buf_cstr(&token));
    }
    buf_fini(&token);
    return have ? CMD_OK : CMD_FAILED;
}

static const struct cmd commands[] = {
    {"link", "", "the address that opens the console with the operator's capability",
     "  ron console link\n  chromium \"$(ron console link)\"\n  ron console link --token \"$narrowed\"",
     NULL, 0, 0, run_link},
    {.run = NULL},
};

const struct cmd_group cmd_console = {
    .noun = "console", .summary = "pages for a browser", .commands = commands, .service = &console_svc};
