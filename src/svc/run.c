/*
 * A process that hosts services: signals in, drain out.
 *
 * All signals are blocked before the first thread starts, so the main thread alone takes them, synchronously:
 *   SIGTERM, SIGINT   drain; a second one ends the process at once with code 1
 *   SIGHUP            reload configuration, keys and certificates
 *
 * A service that asked for it (svc_ask_reopen) is drained, closed and opened again in the same process.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "svc/host.h"
#include "svc/internal.h"
#include "svc/svc.h"

enum { REOPEN_FOR_MS = 60000, RELOAD_WAIT_MS = 30000, RELOAD_LOOK_MS = 10 };

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

void svc_host_raise_limits(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_cur == l.rlim_max)
        return;
    l.rlim_cur = l.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &l);
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
    if (got == SIGHUP) {
        /* Of several the lowest number comes first: reloads that follow each other would keep the end waiting for ever. */
        sigdelset(&set, SIGHUP);
        got = sigtimedwait(&set, NULL, &(struct timespec){0});
        return got == SIGTERM || got == SIGINT ? SVC_HOST_DRAIN : SVC_HOST_RELOAD;
    }
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

bool svc_ask_reopen(struct svc *s)
{
    if (!atomic_load(&s->may_reopen))
        return false;
    atomic_store(&s->reopen, true); /* pairs with svc_host_wants_reopen() */
    return true;
}

void svc_host_may_reopen(struct svc *s)
{
    atomic_store(&s->may_reopen, true);
}

bool svc_host_wants_reopen(const struct svc *s)
{
    return atomic_load(&s->reopen);
}

static enum err bring_up(const struct svc_def *def, const struct svc_options *opt,
                         struct svc **out) RT_BLOCKS
{
    struct svc *s = NULL;
    enum err e = svc_open(def, opt, &s);
    if (e == ERR_OK)
        e = svc_start(s);
    if (e != ERR_OK) {
        fprintf(stderr, "ron %s: %s\n", def->name, svc_last_error());
        svc_close(s);
        return e;
    }
    svc_host_may_reopen(s);
    *out = s;
    return ERR_OK;
}

enum err svc_host_reload(struct svc *s, struct buf *out_diff)
{
    struct deadline by = deadline_in_ms(RELOAD_WAIT_MS);
    enum err e;
    while ((e = svc_reload(s, out_diff)) == ERR_LOCKED && !deadline_passed(by))
        usleep(RELOAD_LOOK_MS * 1000);
    return e;
}

RT_BLOCKS
static void reload(struct svc *s)
{
    struct buf diff;
    buf_init(&diff, 1 << 20);
    if (svc_host_reload(s, &diff) != ERR_OK)
        obs_log(svc_log(s), OBS_ERROR, "config_reload_failed", OBS_STR("why", svc_last_error()), OBS_END);
    buf_fini(&diff);
}

/* Until a signal says that it is enough (false), or the service wants to be opened again (true). */
RT_BLOCKS
static bool serve(struct svc *s)
{
    while (!svc_host_wants_reopen(s)) {
        enum svc_host_event event = svc_host_wait(SVC_HOST_LOOK_MS);
        if (event == SVC_HOST_DRAIN)
            return false;
        if (event == SVC_HOST_RELOAD)
            reload(s);
    }
    return true;
}

void svc_host_pause_init(struct svc_host_pause *p)
{
    rt_backoff_init(&p->backoff, &(struct rt_backoff_spec){100, 400, 5000, 0}, rng_secure_u64());
    p->since_ns = clock_mono_ns(clock_real());
}

enum svc_host_again svc_host_open_again(struct svc_host_pause *p, enum err (*bring_up_fn)(void *ctx),
                                        void *ctx)
{
    const struct clock *c = clock_real();
    int64_t long_ns = INT64_C(1000000) * REOPEN_FOR_MS, began_ns = clock_mono_ns(c);
    if (began_ns - p->since_ns > long_ns)
        rt_backoff_reset(&p->backoff); /* it was well in between */
    do {
        if (svc_host_wait((int)rt_backoff_next_ms(&p->backoff)) == SVC_HOST_DRAIN)
            return SVC_HOST_ENDED;
        if (bring_up_fn(ctx) == ERR_OK) {
            p->since_ns = clock_mono_ns(c);
            return SVC_HOST_BACK;
        }
    } while (clock_mono_ns(c) - began_ns < long_ns);
    return SVC_HOST_IN_VAIN;
}

struct alone {
    const struct svc_def *def;
    const struct svc_options *opt;
    struct svc *s;
};

static enum err alone_up(void *ctx) RT_BLOCKS
{
    struct alone *a = ctx;
    return bring_up(a->def, a->opt, &a->s);
}

int svc_run(const struct svc_def *def, const struct svc_options *opt)
{
    struct alone a = {def, opt, NULL};
    struct svc_host_pause pause;
    svc_host_block_signals();
    svc_host_raise_limits();
    enum err e = alone_up(&a);
    if (e != ERR_OK)
        return e == ERR_SYNTAX || e == ERR_RANGE || e == ERR_BAD_REQUEST ? 2 : 1;
    if (opt->ready_fd > 0 && write(opt->ready_fd, "", 1) == 1)
        close(opt->ready_fd);
    svc_host_pause_init(&pause);
    while (serve(a.s)) {
        obs_log(svc_log(a.s), OBS_INFO, "reopen", OBS_END);
        if (svc_drain(a.s) != 0)
            obs_log(svc_log(a.s), OBS_WARN, "reopen_aborted_something", OBS_END);
        svc_close(a.s);
        enum svc_host_again again = svc_host_open_again(&pause, alone_up, &a);
        if (again != SVC_HOST_BACK)
            return again == SVC_HOST_ENDED ? 0 : 1;
    }
    svc_host_second_signal_ends();
    int status = svc_drain(a.s);
    svc_close(a.s);
    return status;
}
