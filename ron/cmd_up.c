/*
 * ron up: all services in one process with embedded defaults.
 *
 * Start order is that of services.def (the ledger first), drain order the reverse. Wallet and rewarder reach the
 * ledger by direct call: the client that the ledger makes is handed to them as their wiring. So when the ledger asks to be
 * opened again (a writer that another copy has replaced, replica.rejoin), they are closed before it and opened after it; the
 * others do not notice.
 */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ron/isolate.h"
#include "ron/services.h"
#include "ron/up.h"
#include "svc/host.h"
#include "svc/version.h"

enum { READY_WAIT_MS = 1000, DISK_LOW_MIB = 512 };

struct up {
    const struct cmd_global *global;
    struct svc_data *data;
    struct svc *services[SERVICES_MAX];
    struct ledger_client *clients[SERVICES_MAX]; /* in-process ledger client of that service, or NULL */
    size_t count;
    int64_t started_ns;
    bool verbose;
    struct svc_host_pause pause;
};

/* On failure a service that was opened is still there, for drain_all. */
static enum err start_one(struct up *up, size_t i)
{
    const struct svc_def *def = ron_services[i];
    struct svc_options opt = {.data = up->data,
                              .config_file = up->global->config,
                              .base_port = up->global->base_port,
                              .quiet = !up->verbose,
                              .wiring = up_wire(def, up->services[0], up->data, &up->clients[i])};
    enum err e = svc_open(def, &opt, &up->services[i]);
    if (e == ERR_OK)
        e = svc_start(up->services[i]);
    if (e == ERR_OK)
        svc_host_may_reopen(up->services[i]);
    return e;
}

static void bold(const struct up *up, const char *text)
{
    printf(up->global->color ? "\033[1m%s\033[0m" : "%s", text);
}

/* The operator's capability goes into the part of the link that browsers send to nobody. Only a person sees it: a
 * terminal, never a log. */
static void print_console_link(const struct up *up)
{
    char text[4096];
    struct buf b;
    buf_init_fixed(&b, text, sizeof text - 1);
    if (!up->global->amnesia || !isatty(STDOUT_FILENO) || svc_data_operator_token(up->data, &b) != ERR_OK)
        return;
    for (size_t i = 0; i < up->count; i++)
        if (strcmp(svc_def(up->services[i])->name, "console") == 0)
            printf("\n  open       http://127.0.0.1:%d/#token=%.*s\n", svc_port(up->services[i]), (int)b.n,
                   text);
}

/* Space that is left for the data, or -1 where nobody can say. */
static double free_mib(const struct cmd_global *g)
{
    struct statvfs fs;
    if (g->amnesia || statvfs(g->data, &fs) != 0)
        return -1;
    return (double)fs.f_bavail * (double)fs.f_frsize / 1048576;
}

/* Who cannot do his work yet, and why: nothing for a system that is well. */
static void print_not_ready(const struct up *up)
{
    bool any = false, disk = false;
    for (size_t i = 0; i < up->count; i++) {
        struct obs_health_view view;
        obs_health_read(svc_health(up->services[i]), &view);
        if (view.ready)
            continue;
        printf("%s  %-10s %s:", any ? "" : "\n", any ? "" : "not ready", svc_def(up->services[i])->name);
        for (size_t k = 0; k < view.n_missing; k++) {
            printf("%s %s", k ? "," : "", view.missing[k]);
            disk |= strcmp(view.missing[k], "disk") == 0 || strcmp(view.missing[k], "storage") == 0;
        }
        putchar('\n');
        any = true;
    }
    double left = free_mib(up->global);
    if (disk && left >= 0 && left < DISK_LOW_MIB)
        printf("             the disk with %s has %.1f MiB left: make room; what waits for it goes on by "
               "itself\n",
               up->global->data, left);
    else if (any)
        puts("             ron status tells when that has changed");
}

/* A few readings and answers between the services are still under way when the last one has started. */
static void await_ready(const struct up *up)
{
    int64_t until_ns = clock_mono_ns(clock_real()) + READY_WAIT_MS * INT64_C(1000000);
    for (size_t i = 0; i < up->count;) {
        struct obs_health_view view;
        obs_health_read(svc_health(up->services[i]), &view);
        if (view.ready) {
            i++;
            continue;
        }
        if (clock_mono_ns(clock_real()) >= until_ns)
            return;
        poll(NULL, 0, 5);
    }
}

static void print_screen(const struct up *up)
{
    double ms = (double)(clock_mono_ns(clock_real()) - up->started_ns) / 1e6;
    char token[PATH_MAX];
    putchar('\n');
    bold(up, "RON " SVC_VERSION);
    printf(" is up after %.0f ms%s\n\n", ms, up->global->amnesia ? "; nothing is written to disk" : "");
    for (size_t i = 0; i < up->count; i++) {
        const struct svc_def *def = svc_def(up->services[i]);
        char where[64];
        int n =
            snprintf(where, sizeof where, "%s://127.0.0.1:%d",
                     *svc_common(up->services[i])->tls_cert ? "https" : "http", svc_port(up->services[i]));
        if (svc_oap_port(up->services[i]))
            snprintf(where + n, sizeof where - (size_t)n, "  OAP %d", svc_oap_port(up->services[i]));
        up_print_summary(def->summary, up_columns() - printf("  %-10s %-34s ", def->name, where));
    }
    snprintf(token, sizeof token, "%s/operator.token", up->global->data);
    if (up->global->amnesia) {
        char text[4096];
        struct buf b;
        buf_init_fixed(&b, text, sizeof text - 1);
        if (svc_data_operator_token(up->data, &b) == ERR_OK)
            printf("\n  token      %.*s\n", (int)b.n, text);
    } else
        printf("\n  data       %s\n  token      %s   (may do anything; keep it)\n", up->global->data,
               token);
    print_not_ready(up);
    print_console_link(up);
    up_print_try(up->global);
    puts("\n  Ctrl-C drains and stops. A second one stops at once.");
    fflush(stdout);
}

RT_BLOCKS
static void reload_all(struct up *up)
{
    for (size_t i = 0; i < up->count; i++) {
        struct buf diff;
        buf_init(&diff, 1 << 20);
        if (svc_host_reload(up->services[i], &diff) != ERR_OK)
            fprintf(stderr, "ron: %s keeps its configuration: %s\n", svc_def(up->services[i])->name,
                    svc_last_error());
        else if (diff.n)
            printf("ron: %s reloaded: %s", svc_def(up->services[i])->name, buf_cstr(&diff));
        buf_fini(&diff);
    }
    fflush(stdout);
}

RT_BLOCKS
static void close_one(struct up *up, size_t i)
{
    svc_close(up->services[i]);
    up_unwire(up->clients[i]);
    up->services[i] = NULL;
    up->clients[i] = NULL;
}

/* In reverse. One who never saw it up has been told why and need not hear how it went down. */
RT_BLOCKS
static int drain_all(struct up *up, bool aloud)
{
    int status = CMD_OK;
    if (aloud)
        fputs("\nron: draining", stdout);
    fflush(stdout);
    for (size_t i = up->count; i-- > 0;) {
        int64_t began = clock_mono_ns(clock_real());
        const char *name = ron_services[i]->name;
        if (up->services[i] == NULL) { /* it did not come up, or not again */
            close_one(up, i);
            continue;
        }
        int result = svc_drain(up->services[i]);
        if (aloud)
            printf(" %s%s (%.0f ms)", name, result ? " ABORTED" : "",
                   (double)(clock_mono_ns(clock_real()) - began) / 1e6);
        fflush(stdout);
        if (result)
            status = CMD_FAILED;
        close_one(up, i);
    }
    if (aloud)
        puts(status == CMD_OK ? "\nron: stopped, nothing was aborted"
                              : "\nron: stopped; something did not finish in time");
    return status;
}

/* The ledger is the one that others in the process hold on to: those with a client of it go and come with it. */
static bool goes_with(const struct up *up, size_t i, size_t which)
{
    return i == which || (which == 0 && up->clients[i] != NULL);
}

/* Opens what is closed, in order; after a failure the next attempt goes on where this one ended. */
static enum err open_closed(void *ctx) RT_BLOCKS
{
    struct up *up = ctx;
    for (size_t i = 0; i < up->count; i++) {
        if (up->services[i] != NULL)
            continue;
        enum err e = start_one(up, i);
        if (e != ERR_OK) {
            fprintf(stderr, "ron: %s\n", svc_last_error());
            close_one(up, i);
            return e;
        }
    }
    return ERR_OK;
}

RT_BLOCKS
static enum svc_host_again reopen(struct up *up, size_t which)
{
    printf("ron: %s is opened again, and who calls it\n", ron_services[which]->name);
    fflush(stdout);
    for (size_t i = up->count; i-- > 0;) {
        if (!goes_with(up, i, which))
            continue;
        if (svc_drain(up->services[i]) != 0)
            fprintf(stderr, "ron: %s did not finish in time\n", ron_services[i]->name);
        close_one(up, i);
    }
    enum svc_host_again again = svc_host_open_again(&up->pause, open_closed, up);
    if (again == SVC_HOST_BACK)
        printf("ron: %s is back\n", ron_services[which]->name);
    fflush(stdout);
    return again;
}

/* Until a signal says that it is enough, or a service did not come up again. */
RT_BLOCKS
static int serve(struct up *up)
{
    svc_host_pause_init(&up->pause);
    for (;;) {
        enum svc_host_event event = svc_host_wait(SVC_HOST_LOOK_MS);
        if (event == SVC_HOST_DRAIN)
            return CMD_OK;
        if (event == SVC_HOST_RELOAD)
            reload_all(up);
        for (size_t i = 0; i < up->count; i++) {
            if (!svc_host_wants_reopen(up->services[i]))
                continue;
            enum svc_host_again again = reopen(up, i);
            if (again != SVC_HOST_BACK)
                return again == SVC_HOST_ENDED ? CMD_OK : CMD_FAILED;
        }
    }
}

RT_BLOCKS
static int start_serve_drain(struct cmd_ctx *ctx)
{
    struct up up = {.global = cmd_global(ctx),
                    .started_ns = clock_mono_ns(clock_real()),
                    .verbose = cmd_switch(ctx, "verbose")};
    const char *why = "";
    int status = up_check_config(ctx, up.global);
    if (status != CMD_OK)
        return status;
    if (cmd_switch(ctx, "isolate"))
        return isolate_run(ctx, !cmd_switch(ctx, "verbose"));
    svc_host_block_signals();
    svc_host_raise_limits();
    if (svc_data_open(up.global->data, up.global->amnesia, SVC_DATA_WHOLE, &up.data, &why) != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "%s", why);
    enum err e = ERR_OK;
    for (size_t i = 0; i < ron_service_count && e == ERR_OK; i++) {
        up.count++;
        e = start_one(&up, i);
    }
    if (e == ERR_OK) {
        await_ready(&up);
        print_screen(&up);
        status = serve(&up);
        svc_host_second_signal_ends();
    } else {
        status = cmd_fail(ctx, e == ERR_BAD_REQUEST ? CMD_USAGE : CMD_FAILED, "%s", svc_last_error());
    }
    int drained = drain_all(&up, e == ERR_OK);
    svc_data_close(up.data);
    return status == CMD_OK ? drained : status;
}

RT_BLOCKS
static int run_up(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    int status = start_serve_drain(ctx);
    if (fflush(stdout) != 0) /* a screen that nobody sees is no failure: the services are what it is for */
        __fpurge(stdout);
    clearerr(stdout);
    return status;
}

static const struct cmd_flag flags[] = {
    {"isolate", CMD_SWITCH, NULL, "each service in a process of its own, restarted when it dies"},
    {"verbose", CMD_SWITCH, NULL, "log everything the services log"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static const struct cmd commands[] = {
    {NULL, "", "start everything with embedded defaults",
     "  ron up\n  ron up --data /var/lib/ron --config /etc/ron.toml\n  ron up --amnesia --base-port 7500",
     flags, 0, 0, run_up},
    {.run = NULL},
};

const struct cmd_group cmd_up = {
    .noun = "up", .summary = "start everything: all services in one process", .commands = commands};
