/*
 * One child per service, started in table order, watched with signals taken synchronously:
 *
 *   SIGCHLD            a child ended: start it again after a jittered back-off (100-400 ms, doubling to 5 s); after the
 *                      fifth restart within a minute it is left down and the exit code will say so. One that ends by itself
 *                      before all have answered once has said why (its port is taken, its files are of another version):
 *                      the others are stopped and so is this
 *   SIGTERM, SIGINT    pass it on in reverse order, wait for each to drain; a second one kills what is left
 *   SIGHUP             pass it on
 *
 * The parent makes the data directory with its keys, once, and keeps it from a `ron up` of one process.
 */
#include "ron/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "ron/client.h"
#include "ron/services.h"
#include "ron/up.h"
#include "rt/backoff.h"
#include "svc/data.h"
#include "svc/version.h"

enum { RESTARTS_MAX = 5, WINDOW_MS = 60000, UP_WAIT_MS = 60000, TICK_MS = 20 };

struct child {
    const struct svc_def *def;
    pid_t pid;    /* 0: not running */
    int ready_fd; /* while it starts for the first time: where it says that it has; else -1 */
    int64_t restart_at_ms;
    int64_t restarts[RESTARTS_MAX]; /* when, a ring */
    unsigned restart_count;
    bool given_up;
};

/* Where this program was found. One that has been replaced since is what a service is started again with (docs/ops/upgrades.md). */
static char program[PATH_MAX];

static int64_t now_ms(void)
{
    return clock_mono_ns(clock_real()) / 1000000;
}

/* In a group of its own, since Ctrl-C goes to the whole group of a terminal: who drains when is said here. */
static void child_exec(const struct child *c, const struct cmd_global *g, bool quiet, int ready_fd)
{
    char port[16], ready[32];
    char *argv[12];
    int n = 0;
    sigset_t none;
    snprintf(port, sizeof port, "%d", g->base_port);
    argv[n++] = strdup("ron");
    argv[n++] = strdup(c->def->name);
    argv[n++] = strdup("--data");
    argv[n++] = strdup(g->data);
    argv[n++] = strdup("--base-port");
    argv[n++] = port;
    if (g->config) {
        argv[n++] = strdup("--config");
        argv[n++] = strdup(g->config);
    }
    if (quiet)
        argv[n++] = strdup("--quiet");
    if (ready_fd >= 0 && fcntl(ready_fd, F_SETFD, 0) == 0) { /* the one thing it inherits */
        snprintf(ready, sizeof ready, "--ready-fd=%d", ready_fd);
        argv[n++] = ready;
    }
    argv[n] = NULL;
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* if we die, the children drain */
    execv(program, argv);
    execv("/proc/self/exe", argv); /* it was taken away: then what we are ourselves */
    fprintf(stderr, "ron: cannot start %s: %s\n", c->def->name, strerror(errno));
    _exit(127);
}

static void child_start(struct child *c, const struct cmd_global *g, bool quiet, int ready_fd)
{
    pid_t pid = fork();
    if (pid == 0)
        child_exec(c, g, quiet, ready_fd);
    if (pid < 0) {
        c->restart_at_ms = now_ms() + 1000;
        return;
    }
    c->pid = pid;
    c->restart_at_ms = 0;
}

static void first_start(struct child *c, const struct cmd_global *g, bool quiet)
{
    int ends[2];
    c->ready_fd = -1;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        ends[0] = ends[1] = -1; /* then nobody waits for it */
    child_start(c, g, quiet, ends[1]);
    c->ready_fd = ends[0];
    if (ends[1] >= 0)
        close(ends[1]);
}

/* A ring of the last restarts: when the oldest is younger than the window, there were too many. */
static void child_ended(struct child *c, int status)
{
    static const struct rt_backoff_spec backoff = {100, 400, 5000, 0};
    struct rng rng;
    int64_t now = now_ms(), *slot = &c->restarts[c->restart_count % RESTARTS_MAX];
    c->pid = 0;
    if (c->restart_count >= RESTARTS_MAX && now - *slot < WINDOW_MS) {
        c->given_up = true;
        fprintf(stderr, "ron: %s ended %d times within a minute and stays down\n", c->def->name,
                RESTARTS_MAX + 1);
        return;
    }
    *slot = now;
    rng_seed(&rng, rng_secure_u64());
    int64_t delay = rt_backoff_delay_ms(&backoff, c->restart_count++, &rng);
    c->restart_at_ms = now + delay;
    if (WIFSIGNALED(status))
        fprintf(stderr, "ron: %s was ended by signal %d; starting it again in %lld ms\n", c->def->name,
                WTERMSIG(status), (long long)delay);
    else
        fprintf(stderr, "ron: %s ended with code %d; starting it again in %lld ms\n", c->def->name,
                WEXITSTATUS(status), (long long)delay);
}

static void reap(struct child *children, size_t n)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (size_t i = 0; i < n; i++)
            if (children[i].pid == pid)
                child_ended(&children[i], status);
}

/* For as long as it takes: how long that may be is its own drain_deadline's to say. A second signal ends it and, with *io_at_once,
 * whoever comes after it. */
static int stop_one(struct child *c, bool *io_at_once)
{
    int status = 0;
    if (!c->pid)
        return CMD_OK;
    kill(c->pid, SIGTERM);
    while (!*io_at_once) {
        if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
            c->pid = 0;
            return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? CMD_OK : CMD_FAILED;
        }
        struct timespec pause = {0, 10 * 1000000L};
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        *io_at_once = sigtimedwait(&set, NULL, &pause) > 0;
    }
    kill(c->pid, SIGKILL);
    waitpid(c->pid, &status, 0);
    c->pid = 0;
    return CMD_FAILED;
}

/* A child that has started says so with a byte: a port that answers could be anybody's. */
static bool is_up(struct child *c)
{
    char byte;
    if (c->ready_fd >= 0 && read(c->ready_fd, &byte, 1) == 1) {
        close(c->ready_fd);
        c->ready_fd = -1;
    }
    return c->ready_fd < 0;
}

/* The exit code of a child that refused to start, 0 when there is none. */
static int refusal(struct child *children, size_t n)
{
    int status;
    for (size_t i = 0; i < n; i++) {
        if (!children[i].pid || waitpid(children[i].pid, &status, WNOHANG) != children[i].pid)
            continue;
        if (WIFEXITED(status) && WEXITSTATUS(status)) {
            children[i].pid = 0;
            return WEXITSTATUS(status);
        }
        child_ended(&children[i], status);
    }
    return 0;
}

/* Until every service has started, one has refused to, or a signal says that it is enough. */
static int await_all(struct child *children, size_t n, const sigset_t *set, bool *out_stop)
{
    struct timespec tick = {0, TICK_MS * 1000000L};
    for (int64_t until = now_ms() + UP_WAIT_MS; now_ms() < until;) {
        size_t up = 0;
        while (up < n && is_up(&children[up]))
            up++;
        if (up == n)
            return 0;
        int got = sigtimedwait(set, NULL, &tick);
        int status = refusal(children, n);
        *out_stop = got == SIGTERM || got == SIGINT;
        if (status || *out_stop)
            return status;
    }
    return 0;
}

static void print_screen(const struct cmd_ctx *ctx, const struct child *children, size_t n,
                         int64_t since_ms)
{
    const struct cmd_global *g = cmd_global(ctx);
    char base[256];
    printf("\nRON " SVC_VERSION " is up after %lld ms, each service in a process of its own\n\n",
           (long long)(now_ms() - since_ms));
    for (size_t i = 0; i < n; i++)
        up_print_summary(children[i].def->summary,
                         up_columns() - printf("  %-10s pid %-8d %s   ", children[i].def->name,
                                               (int)children[i].pid,
                                               client_base_url(ctx, children[i].def->name, base)));
    printf("\n  data       %s\n  token      %s/operator.token   (may do anything; keep it)\n", g->data,
           g->data);
    up_print_try(g);
    puts("\n  One that dies is started again. Ctrl-C drains and stops all, a second one at once.");
    fflush(stdout);
}

/* Until a signal says that it is enough. */
static void watch(const struct cmd_global *g, bool quiet, struct child *children, size_t n,
                  const sigset_t *set)
{
    for (;;) {
        struct timespec tick = {0, 50 * 1000000L};
        int got = sigtimedwait(set, NULL, &tick);
        if (got == SIGTERM || got == SIGINT)
            return;
        for (size_t i = 0; got == SIGHUP && i < n; i++)
            if (children[i].pid)
                kill(children[i].pid, SIGHUP);
        reap(children, n);
        for (size_t i = 0; i < n; i++)
            if (!children[i].pid && !children[i].given_up && children[i].restart_at_ms &&
                now_ms() >= children[i].restart_at_ms)
                child_start(&children[i], g, quiet, -1);
    }
}

/* In reverse. One who never saw it up has been told why and need not hear how it went down. */
static int stop_all(struct child *children, size_t n, bool aloud)
{
    int status = CMD_OK;
    bool at_once = false;
    if (aloud)
        fputs("\nron: draining", stdout);
    for (size_t i = n; i-- > 0;) {
        int64_t began = now_ms();
        bool failed = children[i].given_up || stop_one(&children[i], &at_once) != CMD_OK;
        if (failed)
            status = CMD_FAILED;
        if (aloud)
            printf(" %s%s (%lld ms)", children[i].def->name, failed ? " ABORTED" : "",
                   (long long)(now_ms() - began));
        fflush(stdout);
    }
    if (aloud)
        puts(status == CMD_OK ? "\nron: stopped, nothing was aborted"
                              : "\nron: stopped; not every service ended cleanly");
    return status;
}

int isolate_run(struct cmd_ctx *ctx, bool quiet)
{
    const struct cmd_global *g = cmd_global(ctx);
    struct child children[SERVICES_MAX] = {0};
    struct svc_data *data;
    const char *why = "";
    size_t n = 0;
    sigset_t set;
    int64_t since_ms = now_ms();
    bool stop = false;
    if (g->amnesia)
        return cmd_fail(
            ctx, CMD_USAGE,
            "--isolate and --amnesia exclude each other: processes share keys through the directory");
    if (svc_data_open(g->data, false, SVC_DATA_SHARED, &data, &why) != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "%s", why);
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        program[0] = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (; n < ron_service_count && n < SERVICES_MAX; n++) {
        children[n].def = ron_services[n];
        first_start(&children[n], g, quiet);
    }
    int refused = await_all(children, n, &set, &stop);
    if (!refused && !stop) {
        print_screen(ctx, children, n, since_ms);
        watch(g, quiet, children, n, &set);
    }
    int status = stop_all(children, n, !refused && !stop);
    svc_data_close(data);
    return refused ? refused : status;
}
