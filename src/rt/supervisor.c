/*
 * One thread watches all others. It sleeps on one word that counts what happened (a task ended, somebody asked for
 * something) and looks at everything each time it wakes:
 *
 *     reap        join threads that ended; decide: done, restart, escalate, drain
 *     restart     start what is due
 *     beats       cancel what is awake and silent
 *     drain       do what drain.h says
 *
 * Requests (drain, drill) are bits in atomics; only the supervisor's thread changes a task's fate.
 */
#include "rt/supervisor.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "rt/os.h"
#include "rt/task_internal.h"
#include "rt/word.h"

#define STOPPED_BIT 2u /* in stopped_word */

enum { SUP_MAGIC = 0x76707573, NS_PER_MS = 1000000 };

struct rt_supervisor {
    uint32_t magic;
    struct rt_supervisor_spec spec;
    struct rt_task *tasks, **tasks_end; /* fixed from start on */
    struct rt_supervisor *next_lost;
    struct rt_drain drain;
    struct rt_drain_report report;
    struct os_thread thread;
    bool started, joined;
    int64_t drain_began_ns;

    struct rt_word events;  /* count of what happened; see RT_SUPERVISOR_EVENT */
    struct rt_word stopped; /* STOPPED_BIT: the report is there */
    struct os_a32 drains;   /* how often a drain was asked for; release, pairs with sup_drain() */
    struct os_count state;  /* enum rt_drain_state, for readers */
    struct os_count
        within; /* ms a drain may take; what was set before one was asked for is seen (`drains`) */
};

const char *rt_event_kind_name(enum rt_event_kind k)
{
    static const char *const names[] = {"task_started", "task_ended",     "task_failed", "task_restarting",
                                        "task_silent",  "task_escalated", "task_healed", "task_aborted",
                                        "task_leaked",  "drain"};
    CHECK((unsigned)k < sizeof names / sizeof *names);
    return names[k];
}

const char *rt_task_state_name(enum rt_task_state s)
{
    static const char *const names[] = {"new", "running", "stuck", "backoff", "down", "done", "leaked"};
    CHECK((unsigned)s < sizeof names / sizeof *names);
    return names[s];
}

static void sup_tell(struct rt_supervisor *sup, struct rt_event ev)
{
    if (sup->spec.on_event)
        sup->spec.on_event(sup->spec.ctx, &ev);
}

static void sup_tell_task(struct rt_supervisor *sup, enum rt_event_kind kind, const struct rt_task *t)
{
    /* While its thread runs the result is the thread's; acquire pairs with the release in task_main(). */
    enum err result = os_a32_load(&t->ended, memory_order_acquire) ? t->result : ERR_OK;
    sup_tell(sup,
             (struct rt_event){.kind = kind, .task = t->name, .task_kind = t->spec.kind, .err = result});
}

static enum rt_task_state task_state(const struct rt_task *t)
{
    return (enum rt_task_state)os_count_get(&t->state);
}

static void task_set_state(struct rt_task *t, enum rt_task_state s)
{
    os_count_set(&t->state, (uint64_t)s);
}

static bool task_alive(const struct rt_task *t)
{
    return task_state(t) == RT_TASK_RUNNING || task_state(t) == RT_TASK_STUCK;
}

static void task_ask(struct rt_task *t, uint32_t flags)
{
    rt_stop_request(&t->stop, flags);
    if (t->spec.wake)
        t->spec.wake(t, t->spec.arg);
}

static void task_set_escalated(struct rt_task *t, bool escalated)
{
    t->escalated = escalated;
    os_count_set(&t->is_escalated, escalated);
}

struct rt_supervisor *rt_supervisor_create(const struct rt_supervisor_spec *spec)
{
    CHECK(spec->name != NULL);
    struct rt_supervisor *sup = os_alloc(sizeof *sup);
    if (!sup)
        return NULL;
    sup->magic = SUP_MAGIC;
    sup->spec = *spec;
    struct rt_supervisor_spec *s = &sup->spec;
    if (s->backoff.cap_ms == 0)
        s->backoff = (struct rt_backoff_spec){.first_min_ms = 100, .first_max_ms = 400, .cap_ms = 5000};
    s->restarts_max = s->restarts_max ? s->restarts_max : 5;
    s->restarts_window_ms = s->restarts_window_ms ? s->restarts_window_ms : 60000;
    CHECK(s->restarts_max < RT_TASK_RESTARTS_MAX);
    sup->tasks_end = &sup->tasks;
    rt_drain_init(&sup->drain, s->drain_deadline_ms ? s->drain_deadline_ms : 5000,
                  s->abort_grace_ms ? s->abort_grace_ms : 1000);
    rt_supervisor_drain_within(sup, sup->drain.overall_ms);
    for (size_t i = 0; i < s->steps_n; i++)
        rt_drain_add(&sup->drain, &s->steps[i]);
    rt_word_init(&sup->events, 0);
    rt_word_init(&sup->stopped, 0);
    return sup;
}

/*
 * A thread that was given up may yet look at its task, and at the word it tells its end to: both stay, and stay findable,
 * so that a leak checker can tell them from memory nobody knows of.
 */
static struct os_mutex lost_lock;
static struct rt_supervisor *lost;

static void sup_keep(struct rt_supervisor *sup)
{
    os_mutex_lock(&lost_lock);
    sup->next_lost = lost;
    lost = sup;
    os_mutex_unlock(&lost_lock);
}

void rt_supervisor_destroy(struct rt_supervisor *sup)
{
    CHECK_MAGIC(sup, SUP_MAGIC);
    CHECK(!sup->started || sup->joined);
    for (struct rt_task **at = &sup->tasks, *t; (t = *at);) {
        if (task_state(t) == RT_TASK_LEAKED) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        rt_task__destroy(t);
    }
    if (sup->report.leaked > 0) {
        sup_keep(sup);
        return;
    }
    rt_word_fini(&sup->events);
    rt_word_fini(&sup->stopped);
    sup->magic = 0;
    os_free(sup);
}

enum err rt_supervisor_add(struct rt_supervisor *sup, const struct rt_task_spec *spec)
{
    CHECK_MAGIC(sup, SUP_MAGIC);
    CHECK(!sup->started);
    struct rt_task_spec one = *spec;
    one.count = spec->count ? spec->count : 1;
    rt_drain_add(&sup->drain, &(struct rt_drain_step){.step = spec->drain_step, .name = spec->name});
    for (unsigned i = 0; i < one.count; i++) {
        struct rt_task *t = rt_task__create(&one, i, &sup->events);
        if (!t)
            return ERR_NO_MEMORY;
        rt_backoff_init(&t->backoff, &sup->spec.backoff, sup->spec.seed + i);
        *sup->tasks_end = t;
        sup->tasks_end = &t->next;
    }
    return ERR_OK;
}

static enum err task_start(struct rt_supervisor *sup, struct rt_task *t)
{
    enum err e = rt_task__start(t);
    if (e != ERR_OK)
        return e;
    os_count_add(&t->spawned, 1);
    task_set_state(t, RT_TASK_RUNNING);
    sup_tell_task(sup, RT_EVENT_STARTED, t);
    return ERR_OK;
}

/* A failure within the window counts; returns how many do now. */
static unsigned task_note_failure(struct rt_task *t, int64_t now_ns, int64_t window_ns)
{
    t->failures_ns[t->failures_n++ % RT_TASK_RESTARTS_MAX] = now_ns;
    unsigned kept = t->failures_n < RT_TASK_RESTARTS_MAX ? t->failures_n : RT_TASK_RESTARTS_MAX;
    unsigned recent = 0;
    for (unsigned i = 0; i < kept; i++)
        recent += now_ns - t->failures_ns[i] < window_ns;
    return recent;
}

static void sup_escalate(struct rt_supervisor *sup, struct rt_task *t)
{
    if (t->escalated)
        return;
    task_set_escalated(t, true);
    sup_tell_task(sup, RT_EVENT_ESCALATED, t);
}

static void sup_schedule_restart(struct rt_supervisor *sup, struct rt_task *t, int64_t now_ns)
{
    int64_t window_ns = sup->spec.restarts_window_ms * NS_PER_MS;
    if (now_ns - t->started_ns >= window_ns)
        rt_backoff_reset(&t->backoff);
    int64_t delay_ms = rt_backoff_next_ms(&t->backoff);
    if (task_note_failure(t, now_ns, window_ns) > sup->spec.restarts_max) {
        sup_escalate(sup, t);
        delay_ms = sup->spec.backoff.cap_ms;
    }
    t->restart_at_ns = now_ns + delay_ms * NS_PER_MS;
    task_set_state(t, RT_TASK_BACKOFF);
    sup_tell(sup, (struct rt_event){.kind = RT_EVENT_RESTARTING,
                                    .task = t->name,
                                    .task_kind = t->spec.kind,
                                    .err = t->result,
                                    .delay_ms = delay_ms});
}

static void sup_begin_drain(struct rt_supervisor *sup, int64_t now_ns)
{
    if (sup->drain.state == RT_DRAIN_RUNNING) {
        sup->drain_began_ns = now_ns;
        sup->drain.overall_ms = (int64_t)os_count_get(&sup->within);
    }
    rt_drain_begin(&sup->drain, now_ns);
}

static void sup_failed(struct rt_supervisor *sup, struct rt_task *t, int64_t now_ns)
{
    sup_tell_task(sup, RT_EVENT_FAILED, t);
    if (t->finishing) { /* too late for another try: what it left is in its channel, which outlives it */
        task_set_state(t, RT_TASK_DOWN);
        return;
    }
    switch (t->spec.on_fail) {
    case RT_RESTART:
        sup_schedule_restart(sup, t, now_ns);
        return;
    case RT_ESCALATE:
        task_set_state(t, RT_TASK_DOWN);
        sup_escalate(sup, t);
        return;
    case RT_ABORT:
        task_set_state(t, RT_TASK_DOWN);
        sup_escalate(sup, t);
        sup->report.fatal = true;
        if (sup->drain.state == RT_DRAIN_RUNNING)
            sup_begin_drain(sup, now_ns);
        return;
    }
    UNREACHABLE();
}

/* While draining, a closed channel is the regular end of those who read it. */
static bool ended_well(const struct rt_supervisor *sup, const struct rt_task *t)
{
    if (t->failing && !t->finishing)
        return false;
    if (t->result == ERR_OK)
        return true;
    return sup->drain.state != RT_DRAIN_RUNNING && (t->result == ERR_CLOSED || t->result == ERR_CANCELED);
}

/* It was made to fail just before its step of the drain began: it gets the last run that a waiting one gets. */
static bool sup_runs_again(struct rt_supervisor *sup, struct rt_task *t)
{
    if (!t->failing || !t->finishing || t->spec.on_fail != RT_RESTART || sup->drain.canceled)
        return false;
    sup_tell_task(sup, RT_EVENT_FAILED, t);
    if (task_start(sup, t) != ERR_OK) /* no longer failing: once is enough */
        return false;
    task_ask(t, RT_STOP_SOFT);
    return true;
}

static void sup_reap(struct rt_supervisor *sup, int64_t now_ns)
{
    for (struct rt_task *t = sup->tasks; t; t = t->next) {
        if (!task_alive(t) || !os_a32_load(&t->ended, memory_order_acquire))
            continue;
        os_thread_join(&t->thread);
        os_count_set(&t->last_result, (uint64_t)t->result);
        if (t->result == ERR_CANCELED)
            os_count_add(&t->canceled, 1);
        if (sup_runs_again(sup, t))
            continue;
        if (ended_well(sup, t)) {
            task_set_state(t, RT_TASK_DONE);
            sup_tell_task(sup, RT_EVENT_ENDED, t);
        } else {
            sup_failed(sup, t, now_ns);
        }
    }
}

static void sup_restart(struct rt_supervisor *sup, struct rt_task *t, int64_t now_ns)
{
    if (task_start(sup, t) != ERR_OK)
        t->restart_at_ns = now_ns + sup->spec.backoff.cap_ms * NS_PER_MS; /* no threads to be had: later */
}

/* Cancels a task so that, whatever it returns, it counts as failed. */
static void sup_make_fail(struct rt_task *t)
{
    t->failing = true;
    task_set_state(t, RT_TASK_STUCK);
    task_ask(t, RT_STOP_HARD);
}

static void sup_drills(struct rt_supervisor *sup)
{
    for (struct rt_task *t = sup->tasks; t; t = t->next) {
        if (os_a32_swap(&t->drill, 0, memory_order_acquire) && task_state(t) == RT_TASK_RUNNING)
            sup_make_fail(t);
    }
}

/* Restarts what is due, heals what held, cancels what is silent; returns when to look again. */
static int64_t sup_watch(struct rt_supervisor *sup, int64_t now_ns)
{
    int64_t next_ns = INT64_MAX;
    for (struct rt_task *t = sup->tasks; t; t = t->next) {
        int64_t look_ns = INT64_MAX;
        if (task_state(t) == RT_TASK_BACKOFF && now_ns >= t->restart_at_ns)
            sup_restart(sup, t, now_ns);
        if (task_state(t) == RT_TASK_BACKOFF)
            look_ns = t->restart_at_ns;
        if (task_state(t) == RT_TASK_RUNNING && t->escalated) {
            look_ns = t->started_ns + sup->spec.restarts_window_ms * NS_PER_MS;
            if (now_ns >= look_ns) {
                task_set_escalated(t, false);
                sup_tell_task(sup, RT_EVENT_HEALED, t);
                look_ns = INT64_MAX;
            }
        }
        if (task_state(t) == RT_TASK_RUNNING && t->spec.heartbeat_ms > 0) {
            int64_t allowed_ns = t->spec.heartbeat_ms * NS_PER_MS;
            int64_t silent_ns = rt_task__silent_ns(t, now_ns);
            if (silent_ns > allowed_ns) {
                sup_tell_task(sup, RT_EVENT_SILENT, t);
                sup_make_fail(t);
            } else if (now_ns + allowed_ns - silent_ns + 1 < look_ns) {
                look_ns = now_ns + allowed_ns - silent_ns + 1;
            }
        }
        if (look_ns < next_ns)
            next_ns = look_ns;
    }
    return next_ns;
}

/* Tasks of the current step that have not ended. */
static unsigned sup_left(const struct rt_supervisor *sup)
{
    unsigned left = 0;
    if (sup->drain.state == RT_DRAIN_RUNNING || sup->drain.at == sup->drain.steps_n)
        return 0;
    for (const struct rt_task *t = sup->tasks; t; t = t->next)
        left += t->spec.drain_step == rt_drain_current(&sup->drain)->step && task_alive(t);
    return left;
}

static void sup_enter_step(struct rt_supervisor *sup, struct rt_task *t)
{
    /* One last run for what waits to be restarted: its channel may hold items. */
    if (task_state(t) == RT_TASK_BACKOFF && task_start(sup, t) != ERR_OK)
        task_set_state(t, RT_TASK_DOWN);
    t->finishing = true;
    if (task_alive(t))
        task_ask(t, RT_STOP_SOFT);
}

static void sup_cancel(struct rt_supervisor *sup, struct rt_task *t)
{
    os_count_add(&t->aborted, 1);
    sup->report.aborted++;
    sup_tell_task(sup, RT_EVENT_ABORTED, t);
    task_ask(t, RT_STOP_HARD);
}

static void sup_give_up(struct rt_supervisor *sup, struct rt_task *t)
{
    os_thread_forget(&t->thread);
    task_set_state(t, RT_TASK_LEAKED);
    os_count_add(&t->leaked, 1);
    sup->report.leaked++;
    sup_tell_task(sup, RT_EVENT_LEAKED, t);
}

static void sup_act(struct rt_supervisor *sup, enum rt_drain_action action)
{
    const struct rt_drain_step *step = rt_drain_current(&sup->drain);
    if (action == RT_DRAIN_ENTER && step->begin)
        step->begin(step->ctx);
    for (struct rt_task *t = sup->tasks; t; t = t->next) {
        if (t->spec.drain_step != step->step)
            continue;
        if (action == RT_DRAIN_ENTER)
            sup_enter_step(sup, t);
        else if (task_alive(t) && action == RT_DRAIN_CANCEL)
            sup_cancel(sup, t);
        else if (task_alive(t) && action == RT_DRAIN_GIVE_UP)
            sup_give_up(sup, t);
    }
}

/* True: stopped. */
static bool sup_drain(struct rt_supervisor *sup, uint32_t *drains_seen, int64_t now_ns)
{
    uint32_t drains = os_a32_load(&sup->drains, memory_order_acquire);
    for (; *drains_seen < drains; ++*drains_seen)
        sup_begin_drain(sup, now_ns);
    for (;;) {
        enum rt_drain_action action = rt_drain_next(&sup->drain, now_ns, sup_left(sup));
        if ((enum rt_drain_state)os_count_get(&sup->state) != sup->drain.state) {
            os_count_set(&sup->state, (uint64_t)sup->drain.state);
            sup_tell(sup, (struct rt_event){.kind = RT_EVENT_DRAIN, .drain = sup->drain.state});
        }
        if (action == RT_DRAIN_FINISH)
            return true;
        if (action == RT_DRAIN_WAIT)
            return false;
        sup_act(sup, action);
    }
}

RT_BLOCKS
static void sup_loop(struct rt_supervisor *sup)
{
    uint32_t drains_seen = 0;
    for (;;) {
        uint64_t seen =
            rt_word_load(&sup->events); /* before looking: what happens after this ends the wait */
        int64_t now_ns = os_now_ns();
        sup_reap(sup, now_ns);
        sup_drills(sup);
        int64_t next_ns = sup_watch(sup, now_ns);
        if (sup_drain(sup, &drains_seen, now_ns))
            return;
        int64_t drain_ns = rt_drain_next_ns(&sup->drain);
        enum err e = rt_word_wait(&sup->events, seen, ~(uint64_t)0,
                                  deadline_at_ns(next_ns < drain_ns ? next_ns : drain_ns), 0);
        CHECK(e == ERR_OK || e == ERR_TIMEOUT);
    }
}

RT_BLOCKS
static void sup_main(void *arg)
{
    struct rt_supervisor *sup = arg;
    sup_loop(sup);
    sup->report.took_ms = (os_now_ns() - sup->drain_began_ns) / NS_PER_MS;
    rt_word_publish(&sup->stopped, STOPPED_BIT);
}

/* Takes down what a failed start left running. */
static void sup_unwind_start(struct rt_supervisor *sup)
{
    for (struct rt_task *t = sup->tasks; t; t = t->next) {
        if (!task_alive(t))
            continue;
        task_ask(t, RT_STOP_ANY);
        os_thread_join(&t->thread);
        task_set_state(t, RT_TASK_DONE);
    }
}

enum err rt_supervisor_start(struct rt_supervisor *sup)
{
    CHECK_MAGIC(sup, SUP_MAGIC);
    CHECK(!sup->started);
    enum err e = ERR_OK;
    for (size_t i = sup->drain.steps_n; i-- > 0 && e == ERR_OK;) {
        for (struct rt_task *t = sup->tasks; t && e == ERR_OK; t = t->next) {
            if (t->spec.drain_step == sup->drain.steps[i].step)
                e = task_start(sup, t);
        }
    }
    if (e == ERR_OK)
        e = os_thread_start(&sup->thread, "supervisor", sup_main, sup);
    if (e == ERR_OK)
        sup->started = true;
    else
        sup_unwind_start(sup);
    return e;
}

static void sup_notify(struct rt_supervisor *sup)
{
    if (os_a64_add(&sup->events.v, RT_SUPERVISOR_EVENT, memory_order_release) & RT_WORD_WAITED)
        rt_word_wake(&sup->events, UINT64_MAX);
}

void rt_supervisor_drain(struct rt_supervisor *sup)
{
    CHECK_MAGIC(sup, SUP_MAGIC);
    os_a32_add(&sup->drains, 1, memory_order_release);
    sup_notify(sup);
}

void rt_supervisor_drain_within(struct rt_supervisor *sup, int64_t ms)
{
    CHECK_MAGIC(sup, SUP_MAGIC);
    CHECK(ms > 0);
    os_count_set(&sup->within, (uint64_t)ms);
}

enum rt_drain_state rt_supervisor_state(const struct rt_supervisor *sup)
{
    return (enum rt_drain_state)os_count_get(&sup->state);
}

enum err rt_supervisor_join(struct rt_supervisor *sup, struct deadline by,
                            struct rt_drain_report *out_report)
{
    CHECK_MAGIC(sup, SUP_MAGIC);
    CHECK(sup->started && !sup->joined);
    while (!(rt_word_load(&sup->stopped) & STOPPED_BIT)) {
        enum err e = rt_word_wait(&sup->stopped, 0, STOPPED_BIT, by, RT_STOP_HARD);
        if (e != ERR_OK)
            return e;
    }
    os_thread_join(&sup->thread);
    sup->joined = true;
    *out_report = sup->report;
    return ERR_OK;
}

enum err rt_supervisor_fail(struct rt_supervisor *sup, const char *name)
{
    CHECK_MAGIC(sup, SUP_MAGIC);
    for (struct rt_task *t = sup->tasks; t; t = t->next) {
        if ((strcmp(t->name, name) == 0 || strcmp(t->spec.name, name) == 0) &&
            task_state(t) == RT_TASK_RUNNING) {
            os_a32_store(&t->drill, 1, memory_order_release); /* pairs with the acquire in sup_drills() */
            sup_notify(sup);
            return ERR_OK;
        }
    }
    return ERR_NOT_FOUND;
}

void rt_supervisor_each(struct rt_supervisor *sup, void (*fn)(void *ctx, const struct rt_task_info *info),
                        void *ctx)
{
    CHECK_MAGIC(sup, SUP_MAGIC);
    for (const struct rt_task *t = sup->tasks; t; t = t->next) {
        uint64_t spawned = os_count_get(&t->spawned);
        struct rt_task_info info = {
            .name = t->name,
            .kind = t->spec.kind,
            .state = task_state(t),
            .last_result = (enum err)os_count_get(&t->last_result),
            .escalated = os_count_get(&t->is_escalated) != 0,
            .drain_step = t->spec.drain_step,
            .spawned = spawned,
            .canceled = os_count_get(&t->canceled),
            .aborted = os_count_get(&t->aborted),
            .leaked = os_count_get(&t->leaked),
            .restarts = spawned > 0 ? spawned - 1 : 0,
        };
        fn(ctx, &info);
    }
}

bool rt_supervisor_escalated(struct rt_supervisor *sup)
{
    for (const struct rt_task *t = sup->tasks; t; t = t->next) {
        if (os_count_get(&t->is_escalated))
            return true;
    }
    return false;
}
