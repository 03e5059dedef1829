#include "services/edge/turns.h"

#include <time.h>

#include "rt/task.h"
#include "svc/background.h"
#include "svc/svc.h"

static struct edge_pace_now now(const struct edge_turns *t)
{
    struct timespec used = {0};
    struct net_server_stats http;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    net_server_stats(svc_server(t->svc), &http);
    return (struct edge_pace_now){.cpu_ns = (int64_t)used.tv_sec * 1000000000 + used.tv_nsec,
                                  .wall_ns = os_now_ns(),
                                  .served = http.requests};
}

void edge_turns_begin(struct edge_turns *t, struct rt_task *self, struct svc *svc)
{
    svc_background_cpu();
    svc_background_io(true);
    t->self = self;
    t->svc = svc;
    edge_pace_begin(&t->pace, now(t));
}

void edge_turns_fresh(struct edge_turns *t)
{
    if (t->self)
        edge_pace_fresh(&t->pace, now(t));
}

void edge_turns_end(struct edge_turns *t)
{
    t->self = NULL;
}

enum err edge_turns_next(struct edge_turns *t, uint64_t bytes, uint64_t rate)
{
    if (!t->self)
        return ERR_OK;
    rt_task_beat(t->self);
    int64_t until = edge_pace_turn(&t->pace, now(t), bytes, rate);
    if (until)
        return rt_task_sleep(t->self, deadline_at_ns(until));
    return rt_task_stopping(t->self) ? ERR_CANCELED : ERR_OK;
}

void edge_turns_rest(struct edge_turns *t, uint64_t bytes, uint64_t rate)
{
    if (edge_turns_next(t, bytes, rate) != ERR_OK)
        edge_turns_fresh(t);
}
