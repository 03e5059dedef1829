/*
 * ron top: requests, latencies, breakers, tasks and queues of every service, redrawn every second.
 *
 * A picture is two readings of every service, a second apart: what was counted in between is a rate, and the latencies are those of
 * the requests in between. With --once, with --json and without a terminal there is one picture and it ends.
 *
 * On a terminal a picture is as high as the terminal: of the queues those are shown that are fullest, then those that are busiest.
 */
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "obs/prom_read.h"
#include "ron/client.h"
#include "ron/services.h"
#include "ron/table.h"
#include "ron/up.h"

enum { QUEUES_MAX = 32, NAME_CHARS = 32, BAR = 20, INTERVAL_MS = 1000 };

struct queue {
    char name[NAME_CHARS];
    double depth, capacity, refused, dropped;
    long long sent; /* -1: this queue does not count it */
};

struct reading {
    bool there;
    int64_t at_ns;
    struct obs_prom_histogram latency;
    struct queue queues[QUEUES_MAX];
    size_t queue_count;
    char breakers[96]; /* those that are not closed */
    size_t breaker_count;
    long long tasks, restarts;
    char not_running[96];
};

struct picture {
    struct reading last[SERVICES_MAX], now[SERVICES_MAX];
    bool asks_inside; /* there is a token to ask for tasks with; that there is none was said, once */
};

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* ---- reading ---- */

static struct queue *queue_named(struct reading *r, struct str name)
{
    for (size_t i = 0; i < r->queue_count; i++)
        if (str_eq_c(name, r->queues[i].name))
            return &r->queues[i];
    if (r->queue_count == QUEUES_MAX || name.n >= NAME_CHARS || !name.n)
        return NULL;
    struct queue *q = &r->queues[r->queue_count++];
    snprintf(q->name, sizeof q->name, "%.*s", STR_ARG(name));
    q->sent = -1;
    return q;
}

/* "x, y open": one more pair of words on a list. */
static void add_words(char *list, size_t room, struct str what, const char *state)
{
    size_t n = strlen(list);
    if (n + 2 < room)
        snprintf(list + n, room - n, "%s%.*s %s", n ? ", " : "", STR_ARG(what), state);
}

static struct str either(const struct obs_prom_sample *s, const char *name, const char *other)
{
    struct str value = obs_prom_label(s, name);
    return value.n ? value : obs_prom_label(s, other);
}

/* The member of a queue that a metric counts, or NULL. */
static double *member_of(struct queue *q, struct str metric)
{
    if (str_eq_c(metric, "queue_depth"))
        return &q->depth;
    if (str_eq_c(metric, "queue_capacity"))
        return &q->capacity;
    if (str_eq_c(metric, "queue_rejected_total"))
        return &q->refused;
    return str_eq_c(metric, "queue_dropped_total") ? &q->dropped : NULL;
}

static void read_sample(struct reading *r, const struct obs_prom_sample *s)
{
    struct queue none;
    if (member_of(&none, s->name)) {
        struct queue *q = queue_named(r, either(s, "queue", "q"));
        if (q)
            *member_of(q, s->name) += s->value;
        return;
    }
    bool counted = str_eq_c(s->name, "breaker_state"), flag = str_eq_c(s->name, "edge_breaker_open");
    if (!counted && !flag)
        return;
    r->breaker_count++;
    if (s->value > 0)
        add_words(r->breakers, sizeof r->breakers,
                  flag ? obs_prom_label(s, "origin") : either(s, "target", "svc"),
                  counted && s->value < 2 ? "half-open" : "open");
}

/* As the metrics call it; the channels of one queue that are told apart by a number are one queue here. */
static const char *queue_name(const json_t *entry)
{
    const char *label = client_str(entry, "label");
    return *label && !strspn(label, "0123456789") ? label : client_str(entry, "name");
}

static void read_topology(struct reading *r, const json_t *topology)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(topology, "queues"), i, entry)
    {
        struct queue *q = queue_named(r, str_from_c(queue_name(entry)));
        if (q)
            q->sent = (q->sent < 0 ? 0 : q->sent) + client_int(entry, "sent");
        if (q && q->capacity <= 0) {
            q->depth = (double)client_int(entry, "depth");
            q->capacity = (double)client_int(entry, "capacity");
        }
    }
    json_array_foreach(json_object_get(topology, "tasks"), i, entry)
    {
        r->tasks++;
        r->restarts += client_int(entry, "restarts");
        if (strcmp(client_str(entry, "state"), "running") != 0)
            add_words(r->not_running, sizeof r->not_running, str_from_c(client_str(entry, "name")),
                      client_str(entry, "state"));
    }
}

RT_BLOCKS
static void read_service(struct cmd_ctx *ctx, const char *name, bool asks_inside, struct reading *out)
{
    struct client_answer metrics, topology;
    *out = (struct reading){.there = false};
    int status = client_call(
        ctx, name,
        &(struct client_request){.path = "/metrics", .no_token = true, .timeout_ms = INTERVAL_MS},
        &metrics);
    out->at_ns = clock_mono_ns(clock_real());
    if (status == CMD_OK) {
        struct str text = buf_str(&metrics.body);
        struct obs_prom_sample s;
        out->there = true;
        obs_prom_histogram_read(text, "request_latency_seconds", &out->latency);
        while (obs_prom_next(&text, &s))
            read_sample(out, &s);
        if (asks_inside) {
            if (client_call(ctx, name,
                            &(struct client_request){.path = "/admin/topology", .timeout_ms = INTERVAL_MS},
                            &topology) == CMD_OK)
                read_topology(out, topology.json);
            client_free(&topology);
        }
    }
    client_free(&metrics);
}

/* Returns how many services answer. */
RT_BLOCKS
static int read_all(struct cmd_ctx *ctx, struct picture *p)
{
    int reached = 0;
    memcpy(p->last, p->now, sizeof p->last);
    for (size_t i = 0; i < ron_service_count; i++) {
        read_service(ctx, ron_services[i]->name, p->asks_inside, &p->now[i]);
        reached += p->now[i].there;
    }
    return reached;
}

/* ---- what the two say together ---- */

struct figures {
    double seconds, per_s, p50_ms, p99_ms; /* of the last second's requests; negative: there were none */
};

static struct figures figures_of(const struct reading *last, const struct reading *now)
{
    struct obs_prom_histogram h = now->latency;
    struct figures f = {.seconds = last->there ? (double)(now->at_ns - last->at_ns) / 1e9 : 0};
    if (last->there)
        obs_prom_histogram_since(&h, &last->latency);
    f.per_s = f.seconds > 0 ? obs_prom_histogram_total(&h) / f.seconds : 0;
    f.p50_ms = obs_prom_histogram_quantile(&h, 0.5) * 1000;
    f.p99_ms = obs_prom_histogram_quantile(&h, 0.99) * 1000;
    return f;
}

static double queue_rate(const struct reading *last, const struct queue *q, double seconds)
{
    for (size_t i = 0; i < last->queue_count; i++)
        if (strcmp(last->queues[i].name, q->name) == 0)
            return q->sent < 0 || seconds <= 0 ? -1 : (double)(q->sent - last->queues[i].sent) / seconds;
    return -1;
}

/* ---- tables ---- */

static void fill_bar(char out[3 * BAR + 1], double depth, double capacity)
{
    int full = capacity > 0 ? (int)((depth * BAR + capacity - 1) / capacity) : 0;
    size_t n = 0;
    for (int i = 0; i < BAR; i++)
        n += (size_t)snprintf(out + n, 3 * BAR + 1 - n, "%s", i < full ? "█" : "·");
}

static void cell_ms(struct table *t, double ms)
{
    if (ms < 0)
        table_cell(t, "–");
    else
        table_cell(t, ms < 10 ? "%.2f ms" : "%.0f ms", ms);
}

static void add_service(struct table *t, const char *name, const struct reading *r, struct figures f)
{
    table_cell(t, "%s", name);
    table_cell(t, "%.0f", f.per_s);
    cell_ms(t, f.p50_ms);
    cell_ms(t, f.p99_ms);
    table_cell(t, "%s", r->breakers[0] ? r->breakers : r->breaker_count ? "closed" : "–");
    table_cell(t, "%lld", r->tasks);
    table_cell(t, "%lld", r->restarts);
    table_cell(t, "%s", r->not_running);
}

/* A queue that can be full, and what passed through it. */
struct row {
    const char *service;
    const struct queue *queue;
    double rate;
    bool shown;
};

static size_t collect_rows(const struct picture *p, struct row *rows)
{
    size_t n = 0;
    for (size_t i = 0; i < ron_service_count; i++) {
        const struct reading *last = &p->last[i], *now = &p->now[i];
        double seconds = figures_of(last, now).seconds;
        for (size_t k = 0; now->there && k < now->queue_count; k++)
            if (now->queues[k].capacity > 0)
                rows[n++] = (struct row){ron_services[i]->name, &now->queues[k],
                                         queue_rate(last, &now->queues[k], seconds), false};
    }
    return n;
}

/* Fuller, in steps of a twentieth so that what hardly differs does not change places; else busier. */
static bool comes_before(const struct row *a, const struct row *b)
{
    int fill_a = (int)(BAR * a->queue->depth / a->queue->capacity);
    int fill_b = (int)(BAR * b->queue->depth / b->queue->capacity);
    return fill_a != fill_b ? fill_a > fill_b : a->rate > b->rate;
}

/* Chooses as many as there is room for; they keep their order. */
static void choose_rows(struct row *rows, size_t n, size_t room)
{
    for (; room > 0; room--) {
        struct row *best = NULL;
        for (size_t i = 0; i < n; i++)
            if (!rows[i].shown && (!best || comes_before(&rows[i], best)))
                best = &rows[i];
        if (!best)
            return;
        best->shown = true;
    }
}

static void add_queue(struct table *t, const struct row *row)
{
    char bar[3 * BAR + 1];
    fill_bar(bar, row->queue->depth, row->queue->capacity);
    table_cell(t, "%s", row->service);
    table_cell(t, "%s", row->queue->name);
    table_cell(t, "%s", bar);
    table_cell(t, "%.0f/%.0f", row->queue->depth, row->queue->capacity);
    if (row->rate < 0)
        table_cell(t, "–");
    else
        table_cell(t, "%.0f", row->rate);
    table_cell(t, "%.0f", row->queue->refused);
    table_cell(t, "%.0f", row->queue->dropped);
}

static void print_tables(const struct picture *p, bool color, size_t lines)
{
    static const char *const service_headers[] = {"service",  ">requests/s", ">p50",      ">p99",
                                                  "breakers", ">tasks",      ">restarts", "not running"};
    static const char *const queue_headers[] = {"service", "queue",    "fill",    ">depth",
                                                ">per s",  ">refused", ">dropped"};
    struct row rows[SERVICES_MAX * QUEUES_MAX];
    struct table services, queues;
    size_t used = 5; /* two headers, a line between the tables, one before the last, the last */
    table_init(&services, color, service_headers, 8);
    table_init(&queues, color, queue_headers, 7);
    for (size_t i = 0; i < ron_service_count; i++)
        if (p->now[i].there) {
            add_service(&services, ron_services[i]->name, &p->now[i], figures_of(&p->last[i], &p->now[i]));
            used++;
        }
    size_t n = collect_rows(p, rows), room = lines > used + 1 ? lines - used : 1;
    choose_rows(rows, n, room);
    for (size_t i = 0; i < n; i++)
        if (rows[i].shown)
            add_queue(&queues, &rows[i]);
    table_print(&services);
    putchar('\n');
    table_print(&queues);
    if (lines == SIZE_MAX)
        return;
    if (n > room)
        printf("\nof the last second; %zu of %zu queues, the fullest and busiest; q ends", room, n);
    else
        fputs("\nof the last second; q ends", stdout);
}

/* ---- the terminal ---- */

static struct termios before;

static bool screen_open(void)
{
    struct termios keys;
    bool asks = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    if (asks) {
        keys = before;
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    fputs("\033[?1049h\033[?25l\033[?7l", stdout); /* another page, no cursor, lines end at the edge */
    fputs("watching for a second ...", stdout);
    fflush(stdout);
    return asks;
}

static void screen_close(bool asks)
{
    fputs("\033[?7h\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (asks)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static void screen_show(const struct picture *p, bool color)
{
    struct winsize size = {.ws_row = 0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0)
        size.ws_row = 24;
    fputs("\033[H\033[2J", stdout);
    print_tables(p, color, size.ws_row);
    fflush(stdout);
}

/* Until the next picture is due; true: somebody pressed q. */
static bool wait_for_key(bool asks)
{
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    char key = 0;
    int64_t end = clock_mono_ns(clock_real()) + (int64_t)INTERVAL_MS * 1000000;
    for (int64_t now; (now = clock_mono_ns(clock_real())) < end && !interrupted;) {
        int ready = poll(&keys, asks ? 1 : 0, (int)((end - now) / 1000000) + 1);
        if (ready > 0 && read(STDIN_FILENO, &key, 1) == 1 && (key == 'q' || key == 'Q'))
            return true;
        if (ready > 0 && (keys.revents & (POLLHUP | POLLERR)))
            return true;
    }
    return false;
}

/* ---- JSON ---- */

static json_t *real_or_null(double value)
{
    return value < 0 ? json_null() : json_real(value);
}

static json_t *queues_json(const struct reading *last, const struct reading *now, double seconds)
{
    json_t *all = json_array();
    for (size_t i = 0; i < now->queue_count; i++) {
        const struct queue *q = &now->queues[i];
        if (q->capacity <= 0)
            continue;
        json_array_append_new(all, json_pack("{s:s, s:I, s:I, s:o, s:I, s:I}", "queue", q->name, "depth",
                                             (json_int_t)q->depth, "capacity", (json_int_t)q->capacity,
                                             "per_s", real_or_null(queue_rate(last, q, seconds)), "refused",
                                             (json_int_t)q->refused, "dropped", (json_int_t)q->dropped));
    }
    return all;
}

static void print_json(const struct picture *p)
{
    json_t *all = json_object();
    for (size_t i = 0; i < ron_service_count; i++) {
        const struct reading *r = &p->now[i];
        struct figures f = figures_of(&p->last[i], r);
        json_object_set_new(
            all, ron_services[i]->name,
            !r->there ? json_null()
                      : json_pack("{s:f, s:o, s:o, s:s, s:I, s:I, s:s, s:o}", "requests_per_s", f.per_s,
                                  "p50_ms", real_or_null(f.p50_ms), "p99_ms", real_or_null(f.p99_ms),
                                  "breakers_not_closed", r->breakers, "tasks", (json_int_t)r->tasks,
                                  "restarts", (json_int_t)r->restarts, "not_running", r->not_running,
                                  "queues", queues_json(&p->last[i], r, f.seconds)));
    }
    json_dumpf(all, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(all);
}

/* Draws until somebody ends it; false: no service answers any more. */
RT_BLOCKS
static bool watch(struct cmd_ctx *ctx, struct picture *p)
{
    bool reached = true, asks = screen_open();
    while (!wait_for_key(asks) && !interrupted && (reached = read_all(ctx, p) > 0))
        screen_show(p, cmd_global(ctx)->color);
    screen_close(asks);
    return reached || interrupted;
}

RT_BLOCKS
static bool look_once(struct cmd_ctx *ctx, struct picture *p)
{
    wait_for_key(false);
    if (interrupted || read_all(ctx, p) == 0)
        return interrupted;
    if (cmd_global(ctx)->json)
        print_json(p);
    else
        print_tables(p, cmd_global(ctx)->color, SIZE_MAX);
    return true;
}

RT_BLOCKS
static int run_top(struct cmd_ctx *ctx, int argc, char **argv)
{
    bool live = isatty(STDOUT_FILENO) && !cmd_global(ctx)->json && !cmd_switch(ctx, "once");
    struct picture *p = calloc(1, sizeof *p);
    int status = CMD_OK;
    (void)argc;
    (void)argv;
    if (!p)
        return cmd_fail(ctx, CMD_FAILED, "no memory");
    struct buf token;
    buf_init(&token, 1 << 16);
    p->asks_inside = client_token(ctx, &token);
    buf_fini(&token);
    for (const int *s = (const int[]){SIGINT, SIGTERM, SIGHUP, 0}; *s; s++)
        sigaction(*s, &(struct sigaction){.sa_handler = interrupt}, NULL);
    if (read_all(ctx, p) == 0 || !(live ? watch(ctx, p) : look_once(ctx, p)))
        status = cmd_fail(ctx, CMD_UNAVAILABLE, "no service answers; start them with: ron up");
    free(p);
    return status;
}

static const struct cmd_flag flags[] = {
    {"once", CMD_SWITCH, NULL, "print one picture, of one second, and end"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static const struct cmd commands[] = {
    {NULL, "", "live view of rates, latencies, breakers, tasks and queues",
     "  ron top\n  ron top --once\n  ron top --json | jq .wallet.p99_ms", flags, 0, 0, run_top},
    {.run = NULL},
};

const struct cmd_group cmd_top = {.noun = "top",
                                  .summary = "live view of rates, latencies, breakers, tasks and queues",
                                  .commands = commands};
