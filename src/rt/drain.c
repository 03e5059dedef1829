#include "rt/drain.h"

#include "base/check.h"

const char *rt_drain_state_name(enum rt_drain_state s)
{
    static const char *const names[] = {"running", "draining", "aborting", "stopped"};
    CHECK((unsigned)s < sizeof names / sizeof *names);
    return names[s];
}

void rt_drain_init(struct rt_drain *d, int64_t overall_ms, int64_t grace_ms)
{
    CHECK(overall_ms > 0 && grace_ms > 0);
    *d = (struct rt_drain){.state = RT_DRAIN_RUNNING, .overall_ms = overall_ms, .grace_ms = grace_ms};
}

void rt_drain_add(struct rt_drain *d, const struct rt_drain_step *step)
{
    CHECK(d->state == RT_DRAIN_RUNNING);
    size_t i = d->steps_n;
    while (i > 0 && d->steps[i - 1].step > step->step)
        i--;
    if (i > 0 && d->steps[i - 1].step == step->step)
        return;
    CHECK(d->steps_n < RT_DRAIN_STEPS_MAX);
    for (size_t k = d->steps_n++; k > i; k--)
        d->steps[k] = d->steps[k - 1];
    d->steps[i] = *step;
}

void rt_drain_begin(struct rt_drain *d, int64_t now_ns)
{
    if (d->state != RT_DRAIN_RUNNING) {
        rt_drain_hurry(d);
        return;
    }
    d->state = RT_DRAIN_DRAINING;
    d->overall_by_ns = now_ns + d->overall_ms * 1000000;
}

void rt_drain_hurry(struct rt_drain *d)
{
    CHECK(d->state != RT_DRAIN_RUNNING);
    d->hurry = true;
}

static void drain_enter(struct rt_drain *d, int64_t now_ns)
{
    const struct rt_drain_step *s = &d->steps[d->at];
    d->entered = true;
    d->canceled = false;
    d->step_by_ns = d->overall_by_ns;
    int64_t ms = s->deadline_for ? s->deadline_for(s->ctx) : s->deadline_ms;
    if (ms > 0 && now_ns + ms * 1000000 < d->step_by_ns)
        d->step_by_ns = now_ns + ms * 1000000;
}

enum rt_drain_action rt_drain_next(struct rt_drain *d, int64_t now_ns, unsigned left)
{
    if (d->state == RT_DRAIN_RUNNING)
        return RT_DRAIN_WAIT;
    if (d->entered && left == 0) {
        d->entered = false;
        d->at++;
    }
    if (d->at == d->steps_n) {
        d->state = RT_DRAIN_STOPPED;
        return RT_DRAIN_FINISH;
    }
    if (!d->entered) {
        drain_enter(d, now_ns);
        return RT_DRAIN_ENTER;
    }
    if (!d->canceled) {
        if (!d->hurry && now_ns < d->step_by_ns)
            return RT_DRAIN_WAIT;
        d->state = RT_DRAIN_ABORTING;
        d->canceled = true;
        d->grace_by_ns = now_ns + d->grace_ms * 1000000;
        return RT_DRAIN_CANCEL;
    }
    return now_ns < d->grace_by_ns ? RT_DRAIN_WAIT : RT_DRAIN_GIVE_UP;
}

const struct rt_drain_step *rt_drain_current(const struct rt_drain *d)
{
    CHECK(d->at < d->steps_n);
    return &d->steps[d->at];
}

int64_t rt_drain_next_ns(const struct rt_drain *d)
{
    if (d->state == RT_DRAIN_RUNNING || d->state == RT_DRAIN_STOPPED)
        return INT64_MAX;
    return d->canceled ? d->grace_by_ns : d->step_by_ns;
}
