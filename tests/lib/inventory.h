/*
 * A service's declared tasks, queues, locks, time limits and numbers against the list a test has of them: what is missing, what nobody
 * promised, and what differs. For cmocka programs.
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

#define INVENTORY_N(list) (sizeof(list) / sizeof *(list))

struct inventory_queue {
    const char *name, *from, *to;
    enum rt_queue_kind kind;
    uint64_t capacity;
    enum rt_policy policy;
};

struct inventory_task {
    const char *name;
    unsigned drain_step;
};

struct inventory_timeout {
    const char *name;
    int64_t ms;
};

static struct {
    struct conf *conf;
    struct rt_topology t;
} inventory;

/* As the service would have it without a file, an environment or flags. */
static inline int inventory_load(const struct svc_def *def)
{
    struct conf_error why;
    if (conf_load(def->config, &(struct conf_sources){.file_name = NULL}, &inventory.conf, &why) !=
        ERR_OK) {
        print_error("%s\n", why.text);
        return -1;
    }
    def->topology(conf_values(inventory.conf), &inventory.t);
    return 0;
}

static inline int inventory_unload(void **state)
{
    (void)state;
    conf_destroy(inventory.conf);
    return 0;
}

static inline void inventory_queues(const struct inventory_queue *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct rt_topology_queue *q = rt_topology_find_queue(&inventory.t, list[i].name);
        if (!q)
            fail_msg("no queue %s", list[i].name);
        if (q->kind != list[i].kind || q->capacity != list[i].capacity || q->policy != list[i].policy)
            fail_msg("%s is another kind of queue", list[i].name);
        assert_string_equal(q->from, list[i].from);
        assert_string_equal(q->to, list[i].to);
        assert_true(strlen(q->on_full) > 0);
    }
    assert_int_equal(inventory.t.queues_n, n);
}

static inline void inventory_tasks(const struct inventory_task *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct rt_topology_task *k = rt_topology_find_task(&inventory.t, list[i].name);
        if (!k)
            fail_msg("no task %s", list[i].name);
        assert_true(k->count >= 1 && k->heartbeat_ms > 0);
        assert_int_equal(k->on_fail, RT_RESTART);
        assert_int_equal(k->drain_step, list[i].drain_step);
    }
    assert_int_equal(inventory.t.tasks_n, n);
}

/* In this order of rank; others may stand in between. */
static inline void inventory_locks(const char *const *outer_first, size_t n)
{
    unsigned rank = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < inventory.t.locks_n && strcmp(inventory.t.locks[at].name, outer_first[i]) != 0)
            at++;
        if (at == inventory.t.locks_n)
            fail_msg("no lock %s", outer_first[i]);
        assert_true(inventory.t.locks[at].rank > rank);
        rank = inventory.t.locks[at].rank;
    }
}

static inline void inventory_timeouts(const struct inventory_timeout *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < inventory.t.timeouts_n && strcmp(inventory.t.timeouts[at].name, list[i].name) != 0)
            at++;
        if (at == inventory.t.timeouts_n)
            fail_msg("no time limit %s", list[i].name);
        if (inventory.t.timeouts[at].ms != list[i].ms)
            fail_msg("%s is %lld ms", list[i].name, (long long)inventory.t.timeouts[at].ms);
    }
    assert_int_equal(inventory.t.timeouts_n, n);
}

/* "key", value as TOML writes it */
static inline void inventory_defaults(const char *const (*list)[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct buf text;
        buf_init(&text, 256);
        conf_format_value(inventory.conf, list[i][0], &text);
        if (strcmp(buf_cstr(&text), list[i][1]) != 0)
            fail_msg("%s is %s", list[i][0], buf_cstr(&text));
        buf_fini(&text);
    }
}

/* "name", labels as in metrics.def (only their beginning is compared) */
static inline void inventory_metrics(const struct svc_def *def, const char *const (*list)[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct obs_metric_def *m = NULL;
        for (size_t k = 0; !m && k < def->metric_count; k++)
            if (strcmp(def->metrics[k].name, list[i][0]) == 0)
                m = &def->metrics[k];
        if (!m)
            fail_msg("no metric %s", list[i][0]);
        if (strncmp(m->labels, list[i][1], strlen(list[i][1])) != 0)
            fail_msg("%s has the labels %s", m->name, m->labels);
    }
}

static inline void inventory_holds_together(void)
{
    struct buf why;
    buf_init(&why, 4096);
    if (rt_topology_check(&inventory.t, &why) != ERR_OK)
        fail_msg("%s", buf_cstr(&why));
    buf_fini(&why);
}

#endif
