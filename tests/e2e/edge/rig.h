/* One edge inside the test program, in memory, on a port of its own: for what only a test in the same program can hold still. For
 * cmocka programs. */
#ifndef RON_TESTS_E2E_EDGE_RIG_H
#define RON_TESTS_E2E_EDGE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "metric_sum.h"
#include "raw_http.h"
#include "services/edge/edge.h"

extern const struct svc_def edge_svc;

enum { RIG_FLAGS_MAX = 16, RIG_FLAG_CHARS = 200 };

struct edge_rig {
    struct svc_data *data;
    struct svc *s;
    struct edge *e;
    const char *flag[RIG_FLAGS_MAX]; /* a reload reads them again */
    char text[RIG_FLAGS_MAX][RIG_FLAG_CHARS];
};

static struct edge_rig rig;

/* For whoever holds things up longer than a slow machine takes to notice. */
#define RIG_PATIENT "request_timeout=60s", "ingress.timeout_secs=60"

static inline size_t rig_take_flags(const char *const *flags, size_t n)
{
    for (; *flags; flags++, n++) {
        assert_true(n < RIG_FLAGS_MAX && strlen(*flags) < RIG_FLAG_CHARS);
        rig.flag[n] = strcpy(rig.text[n], *flags);
    }
    return n;
}

/* `flags` ends with NULL; `config` may be NULL. Nothing runs yet. */
RT_UNCHECKED static inline void rig_open(const char *config, const char *const *flags)
{
    static const char *const always[] = {"bind=127.0.0.1:0", "uds=", NULL};
    const char *why;
    size_t n = rig_take_flags(flags, rig_take_flags(always, 0));
    assert_int_equal(svc_data_open("unused", true, SVC_DATA_WHOLE, &rig.data, &why), ERR_OK);
    if (svc_open(
            &edge_svc,
            &(struct svc_options){
                .data = rig.data, .config_file = config, .flags = rig.flag, .flag_count = n, .quiet = true},
            &rig.s) != ERR_OK)
        fail_msg("%s", svc_last_error());
    rig.e = svc_state(rig.s);
}

RT_UNCHECKED static inline void rig_start(void)
{
    if (svc_start(rig.s) != ERR_OK)
        fail_msg("%s", svc_last_error());
}

/* After the drain. */
RT_UNCHECKED static inline void rig_close(void)
{
    svc_close(rig.s);
    svc_data_close(rig.data);
}

static inline uint16_t rig_port(void)
{
    return (uint16_t)svc_port(rig.s);
}

/* Also when nobody answers /metrics. */
static inline double rig_number(const char *name, const char *labels)
{
    struct buf page;
    buf_init(&page, 4 << 20);
    obs_metrics_render(svc_metrics(rig.s), &page);
    assert_int_equal(page.err, ERR_OK);
    double v = metric_sum(buf_cstr(&page), name, labels);
    buf_fini(&page);
    return v;
}

#endif
