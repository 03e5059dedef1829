/*
 * ron top: queues, rates and tasks of every service, redrawn every second. With --once it prints one picture and ends,
 * for scripts and for people without a terminal.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "ron/client.h"
#include "ron/services.h"
#include "ron/table.h"

enum { QUEUES_MAX = 64, BAR = 20 };

/* What the last picture showed, so that the next one can show rates. */
struct seen {
    char key[96];
    long long sent;
};

struct picture {
    struct seen queues[QUEUES_MAX];
    size_t queue_count;
    double seconds;
};

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static double rate_of(struct picture *p, const char *service, const char *label, long long sent)
{
    char key[96];
    snprintf(key, sizeof key, "%s/%s", service, label);
    for (size_t i = 0; i < p->queue_count; i++)
        if (strcmp(p->queues[i].key, key) == 0) {
            double rate = p->seconds > 0 ? (double)(sent - p->queues[i].sent) / p->seconds : 0;
            p->queues[i].sent = sent;
            return rate;
        }
    if (p->queue_count < QUEUES_MAX) {
        struct seen *s = &p->queues[p->queue_count++];
        snprintf(s->key, sizeof s->key, "%s", key);
        s->sent = sent;
    }
    return 0;
}

static void fill_bar(char out[3 * BAR + 1], long long depth, long long capacity)
{
    int full = capacity > 0 ? (int)((depth * BAR + capacity - 1) / capacity) : 0;
    out[0] = 0;
    for (int i = 0; i < BAR; i++)
        strcat(out, i < full ? "█" : "·");
}

static void add_queues(struct table *t, struct picture *p, const char *service, const json_t *topology)
{
    size_t i;
    json_t *q;
    json_array_foreach(json_object_get(topology, "queues"), i, q)
    {
        char bar[3 * BAR + 1];
        const char *label = *client_str(q, "label") ? client_str(q, "label") : client_str(q, "name");
        fill_bar(bar, client_int(q, "depth"), client_int(q, "capacity"));
        table_cell(t, "%s", service);
        table_cell(t, "%s", label);
        table_cell(t, "%s", bar);
        table_cell(t, "%lld/%lld", client_int(q, "depth"), client_int(q, "capacity"));
        table_cell(t, "%.0f", rate_of(p, service, label, client_int(q, "sent")));
        table_cell(t, "%lld", client_int(q, "rejected"));
        table_cell(t, "%lld", client_int(q, "dropped"));
        table_cell(t, "%lld", client_int(q, "high_water"));
    }
}

static void add_tasks(struct table *t, const char *service, const json_t *topology)
{
    size_t i;
    json_t *task;
    long long running = 0, restarts = 0;
    char bad[128] = "";
    json_array_foreach(json_object_get(topology, "tasks"), i, task)
    {
        bool ok = strcmp(client_str(task, "state"), "running") == 0;
        running += ok;
        restarts += client_int(task, "restarts");
        if (!ok && strlen(bad) < 80)
            snprintf(bad + strlen(bad), sizeof bad - strlen(bad), "%s%s: %s", *bad ? ", " : "",
                     client_str(task, "name"), client_str(task, "state"));
    }
    table_cell(t, "%s", service);
    table_cell(t, "%lld", running);
    table_cell(t, "%lld", restarts);
    table_cell(t, "%s", bad);
}

RT_BLOCKS
static int draw(struct cmd_ctx *ctx, struct picture *p)
{
    static const char *const queue_headers[] = {"service", "queue",    "fill",     ">depth",
                                                ">per s",  ">refused", ">dropped", ">most"};
    static const char *const task_headers[] = {"service", ">tasks", ">restarts", "not running"};
    struct table queues, tasks;
    int reached = 0;
    table_init(&queues, cmd_global(ctx)->color, queue_headers, 8);
    table_init(&tasks, cmd_global(ctx)->color, task_headers, 4);
    for (size_t i = 0; i < ron_service_count; i++) {
        struct client_answer a;
        const char *name = ron_services[i]->name;
        int status = client_call(
            ctx, name, &(struct client_request){.path = "/admin/topology", .timeout_ms = 1000}, &a);
        if (status == CMD_OK) {
            reached++;
            add_queues(&queues, p, name, a.json);
            add_tasks(&tasks, name, a.json);
        }
        client_free(&a);
    }
    if (!reached)
        return cmd_fail(ctx, CMD_UNAVAILABLE, "no service answers; start them with: ron up");
    if (cmd_global(ctx)->color)
        fputs("\033[H\033[2J", stdout);
    table_print(&queues);
    putchar('\n');
    table_print(&tasks);
    fflush(stdout);
    return CMD_OK;
}

RT_BLOCKS
static int run_top(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct picture p = {.seconds = 0};
    (void)argc;
    (void)argv;
    if (cmd_switch(ctx, "once") || !cmd_global(ctx)->color)
        return draw(ctx, &p);
    struct sigaction act = {.sa_handler = interrupt};
    sigaction(SIGINT, &act, NULL);
    int status = CMD_OK;
    while (!interrupted && status == CMD_OK) {
        status = draw(ctx, &p);
        puts("\nCtrl-C ends this view.");
        p.seconds = 1;
        poll(NULL, 0, 1000);
    }
    return status;
}

static const struct cmd_flag flags[] = {
    {"once", CMD_SWITCH, NULL, "print one picture and end"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static const struct cmd commands[] = {
    {NULL, "", "live view of queues, rates and tasks", "  ron top\n  ron top --once", flags, 0, 0, run_top},
    {.run = NULL},
};

const struct cmd_group cmd_top = {"top", "live view of queues, rates and tasks", commands, NULL};
