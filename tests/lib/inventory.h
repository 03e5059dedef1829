/*
 * A service's declared tasks, queues, locks, time limits, defaults and numbers against what was promised: what is missing, what nobody
 * promised, and what differs. A test program defines `promised` and runs `inventory_run`. For cmocka programs.
 */
#ifndef RON_TESTS_LIB_INVENTORY_H
#define RON_TESTS_LIB_INVENTORY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "svc/svc.h"

enum { INVENTORY_MAX = 24 };

struct inventory_queue {
    const char *name, *from, *to;
    enum rt_queue_kind kind;
    uint64_t capacity;
    enum rt_policy policy;
};

struct inventory_task {
    const char *name;
    unsigned drain; /* the step it ends in */
    enum rt_on_fail on_fail;
    bool silent;          /* it may be long in one call and has no heartbeat */
    unsigned least, most; /* how many of them; 0: one at least, and no limit */
};

struct inventory_timeout {
    const char *name;
    int64_t ms;
};

/* Every list ends at its first empty place. Queues, tasks and time limits are complete; of the others there may be more. */
struct inventory {
    const struct svc_def *service;
    struct inventory_queue queues[INVENTORY_MAX];
    struct inventory_task tasks[INVENTORY_MAX];
    const char *locks_outer_first[INVENTORY_MAX];
    struct inventory_timeout timeouts[INVENTORY_MAX];
    const char *defaults[INVENTORY_MAX][2]; /* key, value as TOML writes it */
    const char *metrics[INVENTORY_MAX][2];  /* name, how its labels begin in metrics.def */
};

static const struct inventory promised;

static struct {
    struct conf *conf;
    struct rt_topology t;
} declared;

/* As the service would have it without a file, an environment or flags. */
static int inventory_load(void **state)
{
    struct conf_error why;
    (void)state;
    if (conf_load(promised.service->config, &(struct conf_sources){.file_name = NULL}, &declared.conf,
                  &why) != ERR_OK) {
        print_error("%s\n", why.text);
        return -1;
    }
    promised.service->topology(conf_values(declared.conf), &declared.t);
    return 0;
}

static int inventory_unload(void **state)
{
    (void)state;
    conf_destroy(declared.conf);
    return 0;
}

static void queues_have_their_kinds_capacities_and_policies(void **state)
{
    size_t n = 0;
    (void)state;
    for (const struct inventory_queue *want = promised.queues; want->name; want++, n++) {
        const struct rt_topology_queue *q = rt_topology_find_queue(&declared.t, want->name);
        if (!q)
            fail_msg("no queue %s", want->name);
        if (q->kind != want->kind || q->capacity != want->capacity || q->policy != want->policy)
            fail_msg("%s is another kind of queue", want->name);
        assert_string_equal(q->from, want->from);
        assert_string_equal(q->to, want->to);
        assert_true(strlen(q->on_full) > 0);
    }
    assert_int_equal(declared.t.queues_n, n);
}

static void tasks_are_there_and_drain_in_their_order(void **state)
{
    size_t n = 0;
    (void)state;
    for (const struct inventory_task *want = promised.tasks; want->name; want++, n++) {
        const struct rt_topology_task *k = rt_topology_find_task(&declared.t, want->name);
        if (!k)
            fail_msg("no task %s", want->name);
        if (k->count < (want->least ? want->least : 1) || (want->most && k->count > want->most))
            fail_msg("%u of %s", k->count, want->name);
        if (k->on_fail != want->on_fail || k->drain_step != want->drain)
            fail_msg("%s ends in another way", want->name);
        if ((k->heartbeat_ms == 0) != want->silent)
            fail_msg("%s has a heartbeat of %lld ms", want->name, (long long)k->heartbeat_ms);
    }
    assert_int_equal(declared.t.tasks_n, n);
}

static void locks_nest_in_the_promised_order(void **state)
{
    unsigned rank = 0;
    (void)state;
    for (const char *const *want = promised.locks_outer_first; *want; want++) {
        size_t at = 0;
        while (at < declared.t.locks_n && strcmp(declared.t.locks[at].name, *want) != 0)
            at++;
        if (at == declared.t.locks_n)
            fail_msg("no lock %s", *want);
        assert_true(declared.t.locks[at].rank > rank);
        rank = declared.t.locks[at].rank;
    }
}

static void every_wait_has_its_promised_limit(void **state)
{
    size_t n = 0;
    (void)state;
    for (const struct inventory_timeout *want = promised.timeouts; want->name; want++, n++) {
        size_t at = 0;
        while (at < declared.t.timeouts_n && strcmp(declared.t.timeouts[at].name, want->name) != 0)
            at++;
        if (at == declared.t.timeouts_n)
            fail_msg("no time limit %s", want->name);
        if (declared.t.timeouts[at].ms != want->ms)
            fail_msg("%s is %lld ms", want->name, (long long)declared.t.timeouts[at].ms);
    }
    assert_int_equal(declared.t.timeouts_n, n);
}

static void defaults_are_the_promised_ones(void **state)
{
    (void)state;
    for (size_t i = 0; promised.defaults[i][0]; i++) {
        struct buf text;
        buf_init(&text, 256);
        conf_format_value(declared.conf, promised.defaults[i][0], &text);
        if (strcmp(buf_cstr(&text), promised.defaults[i][1]) != 0)
            fail_msg("%s is %s", promised.defaults[i][0], buf_cstr(&text));
        buf_fini(&text);
    }
}

static void the_promised_numbers_are_declared(void **state)
{
    const struct svc_def *def = promised.service;
    (void)state;
    for (size_t i = 0; promised.metrics[i][0]; i++) {
        const char *name = promised.metrics[i][0], *labels = promised.metrics[i][1];
        const struct obs_metric_def *m = NULL;
        for (size_t k = 0; !m && k < def->metric_count; k++)
            if (strcmp(def->metrics[k].name, name) == 0)
                m = &def->metrics[k];
        if (!m)
            fail_msg("no metric %s", name);
        if (strncmp(m->labels, labels, strlen(labels)) != 0)
            fail_msg("%s has the labels %s", name, m->labels);
    }
}

static void no_cycle_no_unbounded_queue_and_an_order_to_drain_in(void **state)
{
    struct buf why;
    (void)state;
    buf_init(&why, 4096);
    if (rt_topology_check(&declared.t, &why) != ERR_OK)
        fail_msg("%s", buf_cstr(&why));
    buf_fini(&why);
}

static int inventory_run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_have_their_kinds_capacities_and_policies),
        cmocka_unit_test(tasks_are_there_and_drain_in_their_order),
        cmocka_unit_test(locks_nest_in_the_promised_order),
        cmocka_unit_test(every_wait_has_its_promised_limit),
        cmocka_unit_test(defaults_are_the_promised_ones),
        cmocka_unit_test(the_promised_numbers_are_declared),
        cmocka_unit_test(no_cycle_no_unbounded_queue_and_an_order_to_drain_in),
    };
    return cmocka_run_group_tests(tests, inventory_load, inventory_unload);
}

#endif
