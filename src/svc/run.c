/*
 * A process that hosts services: signals in, drain out.
 *
 * All signals are blocked before the first thread starts, so the main thread alone takes them, synchronously:
 *   SIGTERM, SIGINT   drain; a second one ends the process at once with code 1
 *   SIGHUP            reload configuration, keys and certificates
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "svc/host.h"
#include "svc/svc.h"

void svc_host_block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    signal(SIGPIPE, SIG_IGN);
}

enum svc_host_event svc_host_wait(int timeout_ms)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    struct timespec timeout = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000L};
    int got = sigtimedwait(&set, NULL, &timeout);
    if (got == SIGHUP)
        return SVC_HOST_RELOAD;
    return got == SIGTERM || got == SIGINT ? SVC_HOST_DRAIN : SVC_HOST_NOTHING;
}

static void end_now(int signal_number)
{
    (void)signal_number;
    static const char text[] = "ron: second signal, ending at once\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    _exit(1);
}

void svc_host_second_signal_ends(void)
{
    struct sigaction act = {.sa_handler = end_now};
    sigset_t set;
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
}

/* Admin routes ask for a drain the way an operator would. */
void svc_host_request_drain(void *ctx)
{
    (void)ctx;
    kill(getpid(), SIGTERM);
}

int svc_run(const struct svc_def *def, const struct svc_options *opt)
{
    struct svc *s = NULL;
    svc_host_block_signals();
    enum err e = svc_open(def, opt, &s);
    if (e == ERR_OK)
        e = svc_start(s);
    if (e != ERR_OK) {
        fprintf(stderr, "ron %s: %s\n", def->name, svc_last_error());
        svc_close(s);
        return e == ERR_SYNTAX || e == ERR_RANGE || e == ERR_BAD_REQUEST ? 2 : 1;
    }
    enum svc_host_event event;
    while ((event = svc_host_wait(1000)) != SVC_HOST_DRAIN) {
        if (event != SVC_HOST_RELOAD)
            continue;
        struct buf diff;
        buf_init(&diff, 1 << 20);
        if (svc_reload(s, &diff) != ERR_OK)
            obs_log(svc_log(s), OBS_ERROR, "config_reload_failed", OBS_STR("why", svc_last_error()),
                    OBS_END);
        buf_fini(&diff);
    }
    svc_host_second_signal_ends();
    int status = svc_drain(s);
    svc_close(s);
    return status;
}
