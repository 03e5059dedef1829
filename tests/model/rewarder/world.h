/* The world around the rewarder's tasks in a model: callers that count their answers, and nothing else happens. */
#ifndef RON_TESTS_MODEL_REWARDER_WORLD_H
#define RON_TESTS_MODEL_REWARDER_WORLD_H

#include <stdarg.h>
#include <stdlib.h>

#include "base/check.h"
#include "model.h"
#include "rt/os.h"
#include "rt/task_internal.h"
#include "services/rewarder/rewarder.h"
#include "services/rewarder/tasks/job.h"
#include "services/rewarder/trace.h"

/* Stands in for a request: its address travels as a struct net_req. */
struct caller {
    struct os_a32 answers;
    int status;
};

static struct rewarder_config world_config;
static struct os_a32 world_draining;

static void world_answer(struct net_req *rq, int status)
{
    struct caller *c = (struct caller *)(void *)rq;
    if (!c)
        return;
    c->status = status;
    CHECK(os_a32_add(&c->answers, 1, memory_order_acq_rel) == 0); /* exactly one answer */
}

void net_reply_problem(struct net_req *rq, enum err e, const char *detail, ...)
{
    (void)detail;
    world_answer(rq, err_http_status(e));
}

void net_reply_problem_details(struct net_req *rq, enum err e, const char *detail, struct bytes details)
{
    (void)detail;
    (void)details;
    world_answer(rq, err_http_status(e));
}

struct str net_req_corr_id(const struct net_req *rq)
{
    (void)rq;
    return STR("model");
}

bool net_req_gone(const struct net_req *rq)
{
    (void)rq;
    return false;
}

const void *svc_config(const struct svc *s)
{
    (void)s;
    return &world_config;
}

bool svc_draining(const struct svc *s)
{
    (void)s;
    return os_a32_load(&world_draining, memory_order_acquire) != 0;
}

void rewarder_log_run(struct rewarder *r, enum obs_level level, const char *event,
                      const struct rewarder_run *run, const char *detail)
{
    (void)r;
    (void)level;
    (void)event;
    (void)run;
    (void)detail;
}

void rewarder_reply_run(struct rewarder *r, struct net_req *rq, int status, struct rewarder_run *run)
{
    (void)r;
    (void)run;
    world_answer(rq, status);
}

void rewarder_reply_conflict(struct rewarder *r, struct net_req *rq, struct rewarder_run *holder)
{
    (void)r;
    (void)holder;
    world_answer(rq, 409);
}

void rewarder_run_fail(struct rewarder *r, struct rewarder_run *run, enum err why, const char *detail,
                       const char *details)
{
    (void)why;
    (void)detail;
    (void)details;
    (void)!rewarder_run_move(&r->registry, run, REWARDER_EV_FAIL, NULL, NULL);
}

int64_t rewarder_now_ms(const struct rewarder *r)
{
    (void)r;
    return os_now_ns() / 1000000;
}

struct rewarder_policy_ref *rewarder_policy_ref(struct rewarder_policy_ref *p)
{
    return p;
}

void rewarder_policy_unref(struct rewarder_policy_ref *p)
{
    (void)p;
}

struct rewarder_view *rewarder_view_ref(struct rewarder_view *v)
{
    return v;
}

void rewarder_view_unref(struct rewarder_view *v)
{
    (void)v;
}

void rewarder_shadow_unref(struct rewarder_shadow *s)
{
    (void)s;
}

void rewarder_job_unref(struct rewarder_job *j)
{
    (void)j;
}

/* Nobody traces a model. */
void rewarder_trace_admit(struct rewarder *r, struct net_req *rq, struct rewarder_run *run,
                          struct obs_span *out)
{
    (void)r;
    (void)rq;
    (void)run;
    *out = (struct obs_span){.name = ""};
}

void rewarder_trace_begin(struct rewarder *r, const struct rewarder_run *run, const char *name,
                          struct obs_span *out)
{
    (void)r;
    (void)run;
    *out = (struct obs_span){.name = name};
}

void rewarder_trace_end(struct rewarder *r, struct obs_span *s, enum err err)
{
    (void)r;
    (void)s;
    (void)err;
}

void rewarder_trace_part(struct rewarder *r, const struct obs_span *s,
                         const struct rewarder_trace_part *part)
{
    (void)r;
    (void)s;
    (void)part;
}

void obs_traceparent_format(const struct obs_trace *t, char out[OBS_TRACEPARENT_CHARS])
{
    (void)t;
    out[0] = '\0';
}

void obs_span_u64(struct obs_span *s, const char *key, uint64_t value)
{
    (void)s;
    (void)key;
    (void)value;
}

void obs_span_text(struct obs_span *s, const char *key, struct str value)
{
    (void)s;
    (void)key;
    (void)value;
}

static struct rt_chan *world_chan(const char *name, size_t capacity, enum rt_policy policy)
{
    struct rt_chan *ch =
        rt_chan_create(&(struct rt_chan_spec){.name = name, .capacity = capacity, .policy = policy});
    CHECK(ch);
    return ch;
}

#endif
