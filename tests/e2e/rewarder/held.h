/* Holding workers still, filling queues, asking with a header: what tests of pressure and of refusals share. */
#ifndef RON_TESTS_E2E_REWARDER_HELD_H
#define RON_TESTS_E2E_REWARDER_HELD_H

#include "fixture.h"
#include "metric_sum.h"

/* ---- holding workers, emitter and writer still ---- */

struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    unsigned inside;
    bool open;
};
static struct gate gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

/* Stands in for a GET whose run had to be opened: keeps its worker until the gate opens. */
static inline void stay(struct net_req *rq, void *ctx)
{
    (void)rq;
    (void)ctx;
    pthread_mutex_lock(&gate.mutex);
    gate.inside++;
    pthread_cond_broadcast(&gate.cond);
    while (!gate.open)
        pthread_cond_wait(&gate.cond, &gate.mutex);
    gate.inside--;
    pthread_cond_broadcast(&gate.cond);
    pthread_mutex_unlock(&gate.mutex);
}

static inline struct rewarder *state_of(struct fixture *f)
{
    return svc_state(f->svc);
}

/* All workers are busy when it returns. The run must be sealed. */
static inline void hold_workers(struct fixture *f, const char *epoch)
{
    struct rewarder *r = state_of(f);
    unsigned n = rewarder_workers(rewarder_config(r));
    gate.open = false;
    for (unsigned i = 0; i < n; i++) {
        struct rewarder_item *it = rewarder_item_create(REWARDER_READ, NULL);
        it->run = rewarder_registry_find(&r->registry, STR("default"), str_from_c(epoch), false);
        it->again = stay;
        assert_int_equal(rt_chan_try_send(r->work, it), ERR_OK);
    }
    pthread_mutex_lock(&gate.mutex);
    while (gate.inside < n)
        pthread_cond_wait(&gate.cond, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

static inline void release_workers(void)
{
    pthread_mutex_lock(&gate.mutex);
    gate.open = true;
    pthread_cond_broadcast(&gate.cond);
    while (gate.inside)
        pthread_cond_wait(&gate.cond, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

/* A job that ends at once when somebody takes it: its inputs are not there. */
static inline struct rewarder_item *dud(void)
{
    struct rewarder_item *it = rewarder_item_create(REWARDER_COMPUTE, NULL);
    it->run = rewarder_run_create(STR("default"), STR("dud"), false);
    it->run->info.state = REWARDER_QUEUED;
    it->run->deadline_ns = deadline_never().at_ns;
    return it;
}

static inline uint64_t counted(struct fixture *f, enum rewarder_metric m, const char *label)
{
    struct obs_family *fam = state_of(f)->metrics[m];
    return label ? obs_counter_value(OBS_COUNTER_OF(fam, label)) : obs_counter_value(obs_counter(fam));
}

/* Counted a moment after the state is seen. */
static inline void await_counted(struct fixture *f, enum rewarder_metric m, const char *label,
                                 uint64_t n) RT_BLOCKS
{
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    while (counted(f, m, label) != n)
        if (deadline_passed(by))
            fail_msg("%s is %llu, not %llu", label, (unsigned long long)counted(f, m, label),
                     (unsigned long long)n);
}

/* What /metrics says, once it says so. */
static inline void await_published(struct fixture *f, const char *name, const char *labels,
                                   double value) RT_BLOCKS
{
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    for (;;) {
        struct answer a;
        call(f, "GET", "/metrics", NULL, NULL, NULL, &a);
        assert_int_equal(a.status, 200);
        double now = metric_sum(buf_cstr(&a.body), name, labels);
        buf_fini(&a.body);
        if (now >= value && now <= value)
            return;
        if (deadline_passed(by))
            fail_msg("%s{%s} is %f, not %f", name, labels, now, value);
    }
}

static inline bool ready(struct fixture *f) RT_BLOCKS
{
    struct answer a;
    call(f, "GET", "/readyz", NULL, NULL, NULL, &a);
    buf_fini(&a.body);
    return a.status == 200;
}

static inline void await_ready(struct fixture *f, bool wanted) RT_BLOCKS
{
    struct deadline by = deadline_in_ms(4 * PATIENCE_MS);
    while (ready(f) != wanted)
        if (deadline_passed(by))
            fail_msg("readiness did not become %d", wanted);
}

static inline void call_with(struct fixture *f, const char *method, const char *path, const char *header,
                             struct bytes body, struct answer *a) RT_BLOCKS
{
    char url[512], bearer[8300];
    snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", f->token);
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", svc_port(f->svc), path);
    const char *headers[] = {bearer, "Content-Type: application/json", header, NULL};
    memset(a, 0, sizeof *a);
    buf_init(&a->body, 64 << 20);
    struct net_http_request rq = {.method = method,
                                  .url = url,
                                  .headers = headers,
                                  .body = body,
                                  .by = deadline_in_ms(PATIENCE_MS),
                                  .response_max = 64 << 20};
    assert_int_equal(net_http_once(&rq, NULL, keep, a), ERR_OK);
}

#endif
