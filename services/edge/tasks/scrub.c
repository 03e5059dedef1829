/*
 * scrub: reads every object again at a gentle rate and compares it with its name, and every sealed pack with its digest; the
 * objects at full speed, and first, when somebody asks for it. A wrong object goes into quarantine through cas_writer, and the
 * next request fills it again; a wrong pack is not served any more.
 */
#include <stdlib.h>

#include "services/edge/scrub.h"

enum { LAP_EVERY_MS = 10000 };

/* A pass somebody waits for goes before a lap nobody does. */
static bool nobody_waits(struct edge *e, const struct edge_scrub_report *so_far)
{
    (void)so_far;
    return !edge_verify_wanted(e);
}

RT_BLOCKS
static void lap(struct edge *e, struct edge_turns *turns)
{
    uint64_t rate = edge_config(e)->cas_scrub_rate;
    struct edge_scrub_report *r = calloc(1, sizeof *r);
    enum err err = r && rate ? edge_scrub_pass(e, turns, rate, r, nobody_waits) : ERR_OK;
    free(r);
    if (err == ERR_OK && rate)
        err = edge_scrub_packs(e, turns, rate);
    if (err != ERR_OK && err != ERR_CANCELED && err != ERR_EMPTY)
        obs_log(svc_log(e->svc), OBS_WARN, "scrub_failed", OBS_ERR(err), OBS_END);
}

enum err edge_scrub_run(struct rt_task *self, void *arg)
{
    struct edge *e = arg;
    struct edge_turns turns;
    int64_t lap_ns = edge_now_ns(e);
    enum err err = ERR_OK;
    edge_turns_begin(&turns, self, e->svc);
    while (!rt_task_stopping(self)) {
        void *item;
        edge_turns_fresh(&turns);
        edge_verify_run(e, &turns); /* also what was asked for before a restart of this task */
        if (edge_now_ns(e) >= lap_ns) {
            lap(e, &turns);
            lap_ns = edge_now_ns(e) + LAP_EVERY_MS * 1000000LL;
        }
        rt_task_beat(self);
        err = rt_chan_recv(e->scrub_ops, deadline_in_ms(1000), &item);
        if (err != ERR_OK && err != ERR_TIMEOUT)
            break;
    }
    edge_verify_run(e, &turns); /* nobody is left unanswered */
    return rt_task_stopping(self) || err == ERR_CLOSED ? ERR_OK : err == ERR_TIMEOUT ? ERR_OK : err;
}
