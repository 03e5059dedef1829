/*
 * One child per service, started in table order, watched with signals taken synchronously:
 *
 *   SIGCHLD            a child ended: start it again after a jittered back-off (100-400 ms, doubling to 5 s); after the
 *                      fifth restart within a minute it is left down and the exit code will say so
 *   SIGTERM, SIGINT    pass it on in reverse order, wait for each; a second one kills what is left
 *   SIGHUP             pass it on
 */
#include "ron/isolate.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "ron/services.h"
#include "ron/up.h"
#include "rt/backoff.h"

enum { RESTARTS_MAX = 5, WINDOW_MS = 60000, STOP_WAIT_MS = 15000 };

struct child {
    const struct svc_def *def;
    pid_t pid; /* 0: not running */
    int64_t restart_at_ms;
    int64_t restarts[RESTARTS_MAX]; /* when, a ring */
    unsigned restart_count;
    bool given_up;
};

static int64_t now_ms(void)
{
    return clock_mono_ns(clock_real()) / 1000000;
}

static void child_exec(const struct child *c, const struct cmd_global *g)
{
    char port[16], exe[] = "/proc/self/exe";
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
    argv[n] = NULL;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* if we die, the children drain */
    execv(exe, argv);
    fprintf(stderr, "ron: cannot start %s: %s\n", c->def->name, strerror(errno));
    _exit(127);
}

static void child_start(struct child *c, const struct cmd_global *g)
{
    pid_t pid = fork();
    if (pid == 0)
        child_exec(c, g);
    if (pid < 0) {
        c->restart_at_ms = now_ms() + 1000;
        return;
    }
    c->pid = pid;
    c->restart_at_ms = 0;
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

static int stop_one(struct child *c)
{
    int status = 0;
    if (!c->pid)
        return CMD_OK;
    kill(c->pid, SIGTERM);
    for (int64_t until = now_ms() + STOP_WAIT_MS; now_ms() < until;) {
        if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
            c->pid = 0;
            return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? CMD_OK : CMD_FAILED;
        }
        struct timespec pause = {0, 10 * 1000000};
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        if (sigtimedwait(&set, NULL, &pause) > 0)
            break; /* a second signal: no more patience */
    }
    kill(c->pid, SIGKILL);
    waitpid(c->pid, &status, 0);
    c->pid = 0;
    return CMD_FAILED;
}

static void print_screen(const struct cmd_global *g, const struct child *children, size_t n)
{
    puts("\nRON, each service in a process of its own:\n");
    for (size_t i = 0; i < n; i++)
        printf("  %-10s pid %-8d http://127.0.0.1:%d\n", children[i].def->name, (int)children[i].pid,
               g->base_port + children[i].def->port_offset);
    printf("\n  data       %s\n  token      %s/operator.token\n\n  Ctrl-C drains and stops.\n", g->data,
           g->data);
    fflush(stdout);
}

int isolate_run(struct cmd_ctx *ctx, bool verbose)
{
    const struct cmd_global *g = cmd_global(ctx);
    struct child children[SERVICES_MAX] = {0};
    size_t n = 0;
    sigset_t set;
    (void)verbose; /* children log to our stderr */
    if (g->amnesia)
        return cmd_fail(
            ctx, CMD_USAGE,
            "--isolate and --amnesia exclude each other: processes share keys through the directory");
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (; n < ron_service_count && n < SERVICES_MAX; n++) {
        children[n].def = ron_services[n];
        child_start(&children[n], g);
    }
    print_screen(g, children, n);
    for (;;) {
        struct timespec tick = {0, 50 * 1000000};
        int got = sigtimedwait(&set, NULL, &tick);
        if (got == SIGTERM || got == SIGINT)
            break;
        for (size_t i = 0; got == SIGHUP && i < n; i++)
            if (children[i].pid)
                kill(children[i].pid, SIGHUP);
        reap(children, n);
        for (size_t i = 0; i < n; i++)
            if (!children[i].pid && !children[i].given_up && children[i].restart_at_ms &&
                now_ms() >= children[i].restart_at_ms)
                child_start(&children[i], g);
    }
    int status = CMD_OK;
    for (size_t i = n; i-- > 0;)
        if (children[i].given_up || stop_one(&children[i]) != CMD_OK)
            status = CMD_FAILED;
    puts(status == CMD_OK ? "ron: stopped" : "ron: stopped; not every service ended cleanly");
    return status;
}
