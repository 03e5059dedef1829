#include "ron/up.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

/* How somebody who stands here can call this program: by its name when that is what a shell finds, else by where it is. */
static void name_program(char out[PATH_MAX])
{
    char self[PATH_MAX], here[PATH_MAX], found[PATH_MAX], real[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    snprintf(out, PATH_MAX, "ron");
    if (n <= 0)
        return;
    self[n] = 0;
    for (const char *p = getenv("PATH"); p && *p; p += strcspn(p, ":"), p += *p == ':') {
        snprintf(found, sizeof found, "%.*s/ron", (int)strcspn(p, ":"), p);
        if (access(found, X_OK) == 0)
            if (realpath(found, real) && strcmp(real, self) == 0)
                return;
    }
    size_t above = getcwd(here, sizeof here) ? strlen(here) : 0;
    bool below = above > 1 && strncmp(self, here, above) == 0 && self[above] == '/';
    snprintf(out, PATH_MAX, "%s", below ? self + above + 1 : self);
}

void up_print_try(const struct cmd_global *g)
{
    static const struct {
        const char *verb, *what;
    } rows[] = {{"demo", "a day in the life, every claim checked"},
                {"status", "health of the services"},
                {"top", "live rates, latencies and queues"},
                {"console link", "the address for a browser, with a key in it"}};
    char program[PATH_MAX], flags[2 * PATH_MAX + 64] = "";
    size_t n = 0;
    name_program(program);
    if (g->base_port != 7400)
        n = (size_t)snprintf(flags, sizeof flags, " --base-port %d", g->base_port);
    if (!g->amnesia && strcmp(g->data, "ron-data") != 0)
        n += (size_t)snprintf(flags + n, sizeof flags - n, " --data %s", g->data);
    if (g->config && n < sizeof flags)
        snprintf(flags + n, sizeof flags - n, " --config %s", g->config);
    putchar('\n');
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] - (g->amnesia ? 1 : 0); i++) {
        int room = up_columns() - printf("  %-10s %s %s%s", i ? "" : "try", program, rows[i].verb, flags);
        int pad = (int)(sizeof "console link" - strlen(rows[i].verb));
        if (room > pad + (int)strlen(rows[i].what))
            printf("%*s %s", pad, "", rows[i].what);
        putchar('\n');
    }
}

int up_columns(void)
{
    struct winsize size;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
               ? size.ws_col
               : INT_MAX;
}

void up_print_summary(const char *summary, int room)
{
    size_t n = strlen(summary);
    while (n > 0 && (room < 0 || n > (size_t)room)) {
        for (n--; n > 0 && !strchr(",:", summary[n]);)
            n--;
    }
    printf("%.*s\n", (int)n, summary);
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
