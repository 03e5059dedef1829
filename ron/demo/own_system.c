/*
 * A system for one demo. In steps: a base port whose ten neighbours are free, a directory of its own, `ron up` as a child
 * whose first words are read until it says that it is up, the demo as a second child that looks only at that system, then
 * SIGTERM and a look at how it ended. The directory goes away whatever happened, also after Ctrl-C, which the terminal gives
 * to the children as well: they end by themselves, and we stay to tidy up.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "ron/demo/demo.h"
#include "rt/deadline.h"

enum { START_MS = 20000, PORTS = 52, PORT_FIRST = 10000, PORT_RANGE = 20000, TRIES = 100, SAID_MAX = 4096 };

static volatile sig_atomic_t told_to_stop; /* the signal */

static void on_signal(int number)
{
    told_to_stop = number;
}

/* What is set for somebody's real system (its token, its addresses, its configuration) would reach into this one, or this one into it. */
static void forget_the_other_system(void)
{
    for (char **e = environ; *e;) {
        char name[256];
        size_t n = strcspn(*e, "=");
        if (strncmp(*e, "RON_", 4) != 0 || n >= sizeof name) {
            e++;
            continue;
        }
        memcpy(name, *e, n);
        name[n] = 0;
        unsetenv(name); /* what follows moves up */
    }
}

/* Handlers, which a program that is started does not inherit. */
static void stay_to_tidy_up(void)
{
    struct sigaction a = {.sa_handler = on_signal};
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGHUP, &a, NULL);
}

struct own {
    char dir[PATH_MAX], data[PATH_MAX], port[16];
    pid_t up;
    int said_fd;
    char said[SAID_MAX];
    size_t said_n;
};

static bool port_is_free(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool free_port = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0)
        close(fd);
    return free_port;
}

/* 0: none found. */
static int free_base_port(void)
{
    for (int i = 0; i < TRIES; i++) {
        uint16_t r;
        rng_secure(&r, sizeof r);
        int base = PORT_FIRST + r % PORT_RANGE, taken = 0;
        for (int p = 0; p < PORTS && !taken; p++)
            taken = !port_is_free(base + p);
        if (!taken)
            return base;
    }
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static bool spawn(char *const argv[], int out_fd, pid_t *out_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (out_fd >= 0) {
        posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions, out_fd, STDERR_FILENO);
    }
    int e = posix_spawn(out_pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return e == 0;
}

/* Reads what `ron up` says until it is up; false: it ended or took too long. */
static bool wait_until_up(struct own *own)
{
    struct deadline by = deadline_in_ms(START_MS);
    while (own->said_n < sizeof own->said - 1) {
        struct pollfd p = {.fd = own->said_fd, .events = POLLIN};
        int64_t left = deadline_left_ms(by);
        if (left <= 0 || poll(&p, 1, (int)left) <= 0)
            return false;
        ssize_t n = read(own->said_fd, own->said + own->said_n, sizeof own->said - 1 - own->said_n);
        if (n <= 0)
            return false;
        own->said_n += (size_t)n;
        own->said[own->said_n] = 0;
        if (strstr(own->said, " is up after "))
            return true;
    }
    return false;
}

static bool start(struct own *own)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return false;
    char *argv[] = {(char[]){"ron"},
                    (char[]){"up"},
                    (char[]){"--data"},
                    own->data,
                    (char[]){"--base-port"},
                    own->port,
                    NULL};
    bool ok = spawn(argv, ends[1], &own->up);
    close(ends[1]);
    own->said_fd = ends[0];
    return ok && wait_until_up(own);
}

/* 0 when it drained and nothing was aborted. */
static int stop(struct own *own)
{
    int status = 0;
    char piece[512];
    if (own->up <= 0)
        return -1;
    kill(own->up, SIGTERM);
    /* It must be able to say goodbye. */
    while (read(own->said_fd, piece, sizeof piece) > 0)
        continue;
    while (waitpid(own->up, &status, 0) < 0 && errno == EINTR)
        continue;
    return status;
}

static int play(struct cmd_ctx *ctx, struct own *own)
{
    pid_t pid;
    int status = 0;
    char *argv[] = {(char[]){"ron"},
                    (char[]){"demo"},
                    (char[]){"--running"},
                    (char[]){"--data"},
                    own->data,
                    (char[]){"--base-port"},
                    own->port,
                    NULL,
                    NULL,
                    NULL};
    size_t n = sizeof argv / sizeof argv[0] - 3;
    char json[] = "--json", fast[] = "--fast";
    if (cmd_global(ctx)->json)
        argv[n++] = json;
    if (cmd_switch(ctx, "fast"))
        argv[n++] = fast;
    if (!spawn(argv, -1, &pid))
        return cmd_fail(ctx, CMD_FAILED, "cannot start the demo (%s)", strerror(errno));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        if (told_to_stop)
            kill(pid, SIGTERM);
    return WIFEXITED(status) ? WEXITSTATUS(status) : CMD_FAILED;
}

int demo_with_own_system(struct cmd_ctx *ctx)
{
    const char *tmp = getenv("TMPDIR");
    struct own *own = calloc(1, sizeof *own);
    int port = free_base_port(), status = CMD_FAILED;
    if (!own)
        return cmd_fail(ctx, CMD_FAILED, "no memory");
    own->said_fd = -1;
    snprintf(own->dir, sizeof own->dir, "%.4000s/ron-demo-XXXXXX", tmp ? tmp : "/tmp");
    snprintf(own->port, sizeof own->port, "%d", port);
    if (!port)
        cmd_fail(ctx, CMD_FAILED, "found no free ports on 127.0.0.1");
    else if (!mkdtemp(own->dir))
        cmd_fail(ctx, CMD_FAILED, "cannot make %s (%s)", own->dir, strerror(errno));
    else {
        snprintf(own->data, sizeof own->data, "%.4080s/data", own->dir);
        stay_to_tidy_up();
        forget_the_other_system();
        if (start(own))
            status = play(ctx, own);
        else if (!told_to_stop)
            cmd_fail(ctx, CMD_FAILED, "a system of its own did not start; it said: %s", own->said);
        int ended = stop(own);
        if (status == CMD_OK && ended != 0)
            status = cmd_fail(ctx, CMD_FAILED, "the system did not stop cleanly (status %d)", ended);
        nftw(own->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    if (own->said_fd >= 0)
        close(own->said_fd);
    free(own);
    return told_to_stop ? 128 + (int)told_to_stop : status;
}
