#include "services/rewarder/tasks/job.h"

#include <sched.h>
#include <stdlib.h>

#include "base/check.h"
#include "rt/chan.h"
#include "rt/os.h"
#include "rt/watch.h"

enum { TOKENS = 64, PHASE_SHIFT = 48 };
#define PART_MASK (((uint64_t)1 << PHASE_SHIFT) - 1)
#define OVER      ((uint64_t)REWARDER_PHASES << PHASE_SHIFT)

struct rewarder_job {
    struct os_a32 refs;
    struct rewarder_calc *calc;
    struct rewarder_job_hooks hooks;
    struct os_a64 claim; /* phase << 48 | next part; release by the lead, acq_rel by claims */
    struct os_a64
        parts;          /* of the open phase; release after `claim` is shut, acquire before it is claimed */
    struct os_a64 done; /* parts finished; acq_rel: the lead sees what the parts wrote */
    struct os_a32 failed; /* first enum err of a part, relaxed: read after `done` */
    struct os_a32 stop;   /* relaxed: hurry up and leave parts out */
    struct rt_watch *phase;
    struct rt_chan *last; /* phase numbers (+1) whose last part a helper finished */
};

static void forget(void *item, void *arg)
{
    (void)item;
    (void)arg;
}

struct rewarder_job *rewarder_job_create(struct rewarder_calc *calc, const struct rewarder_job_hooks *hooks)
{
    struct rewarder_job *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    os_a32_store(&j->refs, 1, memory_order_relaxed);
    j->calc = calc;
    j->hooks = *hooks;
    os_a64_store(&j->claim, PART_MASK, memory_order_relaxed); /* no phase is open yet */
    j->phase = rt_watch_create(&(struct rt_watch_spec){.name = "job_phase"});
    j->last =
        rt_chan_create(&(struct rt_chan_spec){.name = "job_last", .capacity = TOKENS, .policy = RT_REJECT});
    if (!j->phase || !j->last) {
        rewarder_job_unref(j);
        return NULL;
    }
    return j;
}

struct rewarder_job *rewarder_job_ref(struct rewarder_job *j)
{
    os_a32_add(&j->refs, 1, memory_order_relaxed);
    return j;
}

void rewarder_job_unref(struct rewarder_job *j)
{
    if (!j || os_a32_add(&j->refs, (uint32_t)-1, memory_order_acq_rel) != 1)
        return;
    if (j->phase)
        rt_watch_destroy(j->phase);
    if (j->last)
        rt_chan_destroy(j->last, forget, NULL);
    free(j);
}

/* Claims and runs parts until none is left in the open phase. `lead` decides who tells whom. */
static void run_parts(struct rewarder_job *j, bool lead, struct rt_task *self)
{
    for (;;) {
        uint64_t seen = os_a64_load(&j->claim, memory_order_acquire);
        /* acquire pairs with open_phase(): whoever sees the new number finds the claim shut or reopened, and its CAS fails */
        if (seen >= OVER || (seen & PART_MASK) >= os_a64_load(&j->parts, memory_order_acquire))
            return;
        if (!os_a64_cas(&j->claim, &seen, seen + 1, memory_order_acq_rel))
            continue;
        enum rewarder_phase phase = (enum rewarder_phase)(seen >> PHASE_SHIFT);
        if (lead && j->hooks.stop(j->hooks.ctx))
            os_a32_store(&j->stop, 1, memory_order_relaxed);
        if (!os_a32_load(&j->stop, memory_order_relaxed)) {
            enum err e = rewarder_calc_part(j->calc, phase, seen & PART_MASK);
            uint32_t none = ERR_OK;
            if (e != ERR_OK)
                (void)os_a32_cas(&j->failed, &none, (uint32_t)e, memory_order_relaxed);
        }
        if (self)
            rt_task_beat(self);
        uint64_t parts = os_a64_load(&j->parts, memory_order_relaxed);
        /* Before the count: once the last part is counted the lead goes on, and what the hooks point to may be gone. */
        j->hooks.progress(j->hooks.ctx, os_a64_load(&j->done, memory_order_relaxed) + 1);
        uint64_t done = os_a64_add(&j->done, 1, memory_order_acq_rel) + 1;
        if (done == parts && !lead) {
            enum err e = rt_chan_try_send(j->last, (void *)(uintptr_t)(phase + 1));
            CHECK(e == ERR_OK); /* at most one token per phase */
        }
    }
}

/* Every claimed part has been finished; what helpers wrote is visible afterwards. */
static enum err wait_for_helpers(struct rewarder_job *j, enum rewarder_phase phase) RT_BLOCKS
{
    while (os_a64_load(&j->done, memory_order_acquire) < os_a64_load(&j->parts, memory_order_relaxed)) {
        void *token;
        enum err e = rt_chan_recv(j->last, deadline_in_ms(1000), &token);
        if (e == ERR_OK && (uintptr_t)token == (uintptr_t)phase + 1)
            return ERR_OK;
        if (e == ERR_CANCELED) {
            /* Hurry, but still wait: helpers hold pointers into the calc. */
            os_a32_store(&j->stop, 1, memory_order_relaxed);
            sched_yield();
        }
    }
    return ERR_OK;
}

static void open_phase(struct rewarder_job *j, enum rewarder_phase phase)
{
    /* Shut the claim first: a helper that still holds the last phase's word must not measure it by the new number of parts. */
    os_a64_store(&j->claim, (uint64_t)phase << PHASE_SHIFT | PART_MASK, memory_order_relaxed);
    os_a64_store(&j->done, 0, memory_order_relaxed);
    os_a64_store(&j->parts, rewarder_calc_parts(j->calc, phase), memory_order_release);
    os_a64_store(&j->claim, (uint64_t)phase << PHASE_SHIFT, memory_order_release);
    rt_watch_publish(j->phase, (void *)(uintptr_t)(phase + 1));
}

static void close_job(struct rewarder_job *j)
{
    os_a64_store(&j->claim, OVER, memory_order_release);
    rt_watch_publish(j->phase, (void *)(uintptr_t)(REWARDER_PHASES + 1));
}

static enum err run_phase(struct rewarder_job *j, enum rewarder_phase phase) RT_BLOCKS
{
    int64_t began = os_now_ns();
    j->hooks.phase(j->hooks.ctx, phase, rewarder_calc_parts(j->calc, phase));
    open_phase(j, phase);
    run_parts(j, true, NULL);
    enum err e = wait_for_helpers(j, phase);
    if (e == ERR_OK && (os_a32_load(&j->stop, memory_order_relaxed) || j->hooks.stop(j->hooks.ctx)))
        e = ERR_CANCELED;
    if (e == ERR_OK)
        e = (enum err)os_a32_load(&j->failed, memory_order_relaxed);
    if (e == ERR_RESERVED_ACCOUNT)
        (void)!rewarder_calc_close(j->calc, phase); /* learns the role */
    if (e == ERR_OK)
        e = rewarder_calc_close(j->calc, phase);
    j->hooks.took(j->hooks.ctx, phase, os_now_ns() - began);
    return e;
}

enum err rewarder_job_lead(struct rewarder_job *j)
{
    enum err e = ERR_OK;
    for (enum rewarder_phase phase = REWARDER_SCORES; phase < REWARDER_PHASES && e == ERR_OK; phase++)
        e = run_phase(j, phase);
    close_job(j);
    return e;
}

void rewarder_job_help(struct rewarder_job *j, struct rt_task *self)
{
    uint64_t version = 0;
    for (;;) {
        void *value;
        run_parts(j, false, self);
        if (os_a64_load(&j->claim, memory_order_acquire) >= OVER)
            return;
        enum err e = rt_watch_wait(j->phase, version, deadline_in_ms(1000), &value, &version);
        if (e == ERR_CANCELED || e == ERR_CLOSED)
            return;
        if (e == ERR_OK && (uintptr_t)value == REWARDER_PHASES + 1)
            return;
    }
}
