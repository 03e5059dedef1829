#include "tiny.h"

#include <ctype.h>
#include <stdlib.h>

#include "obs/metrics_def.h"
#include "rt/watch.h"

struct tiny_config {
#define CONF CONF_AS_MEMBER
#include "tiny/config.def"
#undef CONF
};
SVC_CONFIG_IS_PREFIX(struct tiny_config);

#define CONF_STRUCT struct tiny_config
static const struct conf_key config_keys[] = {
#define CONF CONF_AS_KEY
#include "tiny/config.def"
#undef CONF
};

static const struct conf_table config_table = {.service = "tiny",
                                               .keys = config_keys,
                                               .keys_n = sizeof config_keys / sizeof config_keys[0],
                                               .config_bytes = sizeof(struct tiny_config)};

enum tiny_metric {
#define OBS_DEF(id) TINY_M_##id,
#include "obs/metrics_ids.h"
#include "tiny/metrics.def"
#include "obs/metrics_end.h"
    TINY_M_COUNT
};

static const struct obs_metric_def metrics[] = {
#include "obs/metrics_rows.h"
#include "tiny/metrics.def"
#include "obs/metrics_end.h"
};

static void tiny_topology(const void *config, struct rt_topology *topology)
{
    const struct tiny_config *cfg = config;
    rt_topology_init(topology, "tiny");
#include "rt/topology_rows.h"
#include "tiny/topology.def"
#include "rt/topology_rows_end.h"
}

struct tiny {
    struct svc *svc;
    struct rt_chan *work;
    struct rt_watch *gate;
    struct obs_counter *busy, *answered;
};

static void post_echo(struct net_req *rq, void *ctx)
{
    struct tiny *t = ctx;
    struct auth_cap *cap;
    struct auth_want want = {.op = STR("send"), .lacks = SVC_LACKS_ALL};
    if (svc_authorize(t->svc, rq, &want, &cap) != ERR_OK)
        return;
    auth_cap_release(cap);
    enum err e = rt_chan_try_send(t->work, rq);
    if (e == ERR_OK)
        return;
    obs_counter_inc(t->busy);
    net_reply_problem(rq, e == ERR_BUSY ? ERR_BUSY : ERR_DRAINING, "the work queue is %s",
                      e == ERR_BUSY ? "full" : "closed");
}

static void answer(struct tiny *t, struct net_req *rq)
{
    const struct tiny_config *cfg = svc_config(t->svc);
    struct bytes body = net_req_body(rq);
    uint8_t *copy = arena_alloc(net_req_arena(rq), body.n);
    for (size_t i = 0; i < body.n; i++)
        copy[i] = cfg->shout ? (uint8_t)toupper(body.p[i]) : body.p[i];
    obs_counter_inc(t->answered);
    net_reply(rq, 200, &(struct net_headers){.type = "text/plain"}, bytes_of(copy, body.n));
}

/* With the item in hand: whoever has closed the gate knows that nothing is answered any more. */
RT_BLOCKS
static void pass_gate(struct tiny *t, struct rt_task *self)
{
    uint64_t version;
    void *open = rt_watch_get(t->gate, &version);
    while (!open) {
        enum err e = rt_watch_wait(t->gate, version, deadline_in_ms(1000), &open, &version);
        if (e != ERR_OK && e != ERR_TIMEOUT)
            return; /* a soft stop opens it: what was taken is answered */
        rt_task_beat(self);
    }
}

RT_BLOCKS
static enum err run_worker(struct rt_task *self, void *arg)
{
    struct tiny *t = arg;
    void *item;
    enum err e;
    for (;;) {
        e = rt_chan_recv(t->work, deadline_in_ms(1000), &item);
        if (e == ERR_OK) {
            pass_gate(t, self);
            answer(t, item);
        } else if (e != ERR_TIMEOUT)
            return e == ERR_CLOSED || rt_task_stopping(self) ? ERR_OK : e;
        rt_task_beat(self);
    }
}

static enum err tiny_open(struct svc *s, void **out_state)
{
    struct obs_family *families[TINY_M_COUNT];
    struct tiny *t = calloc(1, sizeof *t);
    if (!t)
        return ERR_NO_MEMORY;
    *out_state = t;
    t->svc = s;
    for (size_t i = 0; i < TINY_M_COUNT; i++)
        families[i] = obs_family_find(svc_metrics(s), metrics[i].name);
    t->busy = obs_counter_nth(families[TINY_M_busy], 0);
    t->answered = obs_counter(families[TINY_M_answered]);
    t->gate = rt_watch_create(&(struct rt_watch_spec){.name = "gate", .initial = t});
    return t->gate ? svc_add_queue(s, "work", "work", &t->work) : ERR_NO_MEMORY;
}

static enum err tiny_start(struct svc *s, void *state)
{
    enum err e = svc_add_task(s, "worker", run_worker, state);
    return e == ERR_OK ? svc_add_task(s, "health", svc_health_task, s) : e;
}

static void tiny_drain_step(struct svc *s, void *state, int step)
{
    struct tiny *t = state;
    (void)s;
    if (step == 2)
        rt_chan_close(t->work);
}

static void tiny_close(struct svc *s, void *state)
{
    struct tiny *t = state;
    (void)s;
    rt_chan_destroy(t->work, NULL, NULL);
    rt_watch_destroy(t->gate);
    free(t);
}

void tiny_gate(struct svc *s, bool open)
{
    struct tiny *t = svc_state(s);
    rt_watch_publish(t->gate, open ? t : NULL);
}

static const struct net_route routes[] = {
    {.method = "POST", .pattern = "/v1/echo", .fn = post_echo, .body_max = 4096},
    {.method = NULL},
};

const struct svc_def tiny_svc = {
    .name = "tiny",
    .title = "svc-mailbox", /* an audience the operator's token names */
    .summary = "echoes what it is sent",
    .port_offset = 90,
    .config = &config_table,
    .topology = tiny_topology,
    .listener_task = "listener",
    .metrics = metrics,
    .metric_count = TINY_M_COUNT,
    .routes = routes,
    .hooks = {.open = tiny_open, .start = tiny_start, .drain_step = tiny_drain_step, .close = tiny_close},
};
