/*
 * The supervisor owns every thread of a service: it starts them, restarts those that fail, notices those that hang,
 * and brings all of them down in order. Nothing runs that it did not start, and it ends only when it has joined
 * (or given up and counted) every one.
 *
 * Restarts    Jittered exponential back-off, U[100, 400] ms doubling to 5 s; the sixth failure within a minute
 *             escalates: on_event says so (the service is then not ready) while the attempts go on every 5 s. A
 *             task that then runs for a minute is healed.
 * Heartbeat   A task awake and silent for longer than its heartbeat_ms is cancelled and counts as failed when it
 *             returns. A thread cannot be killed: one that never returns stays visible as stuck.
 * Drain       drain.h. Exit code 0 belongs to a clean report only.
 *
 * Threads     add() before start(); everything else from any thread. on_event and the steps' hooks run on the
 *             supervisor's thread, no lock held; they must not wait.
 * Memory      Everything is allocated by create() and add().
 */
#ifndef RON_RT_SUPERVISOR_H
#define RON_RT_SUPERVISOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "rt/backoff.h"
#include "rt/deadline.h"
#include "rt/drain.h"
#include "rt/lock.h"
#include "rt/task.h"

enum rt_event_kind {
    RT_EVENT_STARTED,
    RT_EVENT_ENDED,      /* returned as it should */
    RT_EVENT_FAILED,     /* returned an error, or was told to fail */
    RT_EVENT_RESTARTING, /* in delay_ms */
    RT_EVENT_SILENT,     /* missed its heartbeat; cancelled */
    RT_EVENT_ESCALATED,  /* failed too often, or must not fail at all */
    RT_EVENT_HEALED,     /* ran long enough after that */
    RT_EVENT_ABORTED,    /* did not finish in time; cancelled */
    RT_EVENT_LEAKED,     /* ignored even that */
    RT_EVENT_DRAIN,      /* the drain moved to `drain` */
};

struct rt_event {
    enum rt_event_kind kind;
    const char *task; /* instance name; NULL with RT_EVENT_DRAIN */
    const char *task_kind;
    enum err err;
    int64_t delay_ms;
    enum rt_drain_state drain;
};

const char *rt_event_kind_name(enum rt_event_kind k); /* "task_failed" …, for logs */

struct rt_supervisor_spec {
    const char *name;
    struct rt_backoff_spec backoff; /* all zero: 100, 400, 5000, 0 */
    unsigned restarts_max;          /* within restarts_window_ms; 0: 5 */
    int64_t restarts_window_ms;     /* 0: 60000 */
    uint64_t seed;                  /* of the jitter */
    int64_t drain_deadline_ms;      /* for the whole drain; 0: 5000 */
    int64_t abort_grace_ms;         /* between cancelling and giving up; 0: 1000 */
    const struct rt_drain_step *steps;
    size_t steps_n; /* steps that only tasks name have no hook and the overall deadline */
    void (*on_event)(void *ctx, const struct rt_event *ev); /* may be NULL */
    void *ctx;
};

enum rt_task_state {
    RT_TASK_NEW,
    RT_TASK_RUNNING,
    RT_TASK_STUCK,   /* cancelled after a missed heartbeat or a drill, has not returned */
    RT_TASK_BACKOFF, /* failed, to be restarted */
    RT_TASK_DOWN,    /* failed, not to be restarted */
    RT_TASK_DONE,
    RT_TASK_LEAKED,
};

const char *rt_task_state_name(enum rt_task_state s);

struct rt_task_info {
    const char *name, *kind;
    enum rt_task_state state;
    enum err last_result;
    bool escalated;
    unsigned drain_step;
    uint64_t spawned, canceled, aborted, leaked, restarts; /* since the start */
};

struct rt_drain_report {
    unsigned aborted, leaked;
    bool fatal; /* a task that must not fail did, and started the drain */
    int64_t took_ms;
};

struct rt_supervisor;

struct rt_supervisor *rt_supervisor_create(const struct rt_supervisor_spec *spec); /* NULL: no memory */
NODISCARD enum err rt_supervisor_add(struct rt_supervisor *sup, const struct rt_task_spec *spec);
NODISCARD enum err
rt_supervisor_start(struct rt_supervisor *sup); /* last step first: consumers before producers */

void rt_supervisor_drain(
    struct rt_supervisor *sup); /* the second call aborts at once. Safe in a signal's wake. */
/* Another deadline than the spec's, for a drain that has not begun; at least 1. */
void rt_supervisor_drain_within(struct rt_supervisor *sup, int64_t ms);
enum rt_drain_state rt_supervisor_state(const struct rt_supervisor *sup);
NODISCARD enum err rt_supervisor_join(struct rt_supervisor *sup, struct deadline by,
                                      struct rt_drain_report *out_report) RT_BLOCKS;
void rt_supervisor_destroy(struct rt_supervisor *sup); /* after join, or before start */

/* The drill: the named instance (or the first running one of that name) fails. ERR_NOT_FOUND. */
NODISCARD enum err rt_supervisor_fail(struct rt_supervisor *sup, const char *name);

void rt_supervisor_each(struct rt_supervisor *sup, void (*fn)(void *ctx, const struct rt_task_info *info),
                        void *ctx);
bool rt_supervisor_escalated(struct rt_supervisor *sup); /* any task is */

#endif
