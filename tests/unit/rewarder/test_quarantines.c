/* quarantine_total: a series per epoch for the newest, one for all that were before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/rewarder/quarantines.h"

static const struct obs_metric_def table[] = {{OBS_COUNTER, "quarantine_total", "Epochs.", "epoch", NULL}};

struct fixture {
    struct rewarder_quarantines q;
    struct obs_metrics *reg;
    struct obs_family *family;
    struct buf out;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    rewarder_quarantines_init(&f->q);
    assert_int_equal(obs_metrics_create("svc-rewarder", &f->reg), ERR_OK);
    assert_int_equal(obs_metrics_add(f->reg, table, 1, &f->family), ERR_OK);
    obs_metrics_told(f->reg, f->family, rewarder_quarantines_tell, &f->q);
    buf_init(&f->out, 1 << 20);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    buf_fini(&f->out);
    obs_metrics_destroy(f->reg);
    rewarder_quarantines_fini(&f->q);
    free(f);
    return 0;
}

static void add(struct fixture *f, unsigned epoch)
{
    char name[16];
    snprintf(name, sizeof name, "e%u", epoch);
    rewarder_quarantines_add(&f->q, name);
}

/* Its value in the text; -1: no such series. */
static int shown(struct fixture *f, const char *epoch)
{
    char series[96];
    buf_reset(&f->out);
    obs_metrics_render(f->reg, &f->out);
    snprintf(series, sizeof series, "quarantine_total{service=\"svc-rewarder\",epoch=\"%s\"} ", epoch);
    const char *at = strstr(buf_cstr(&f->out), series);
    return at ? atoi(at + strlen(series)) : -1;
}

static unsigned series(struct fixture *f)
{
    unsigned n = 0;
    (void)shown(f, "");
    for (const char *at = buf_cstr(&f->out); (at = strstr(at, "epoch=\"")); at++)
        n++;
    return n;
}

static void an_epoch_counts_its_quarantines(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(series(f), 0);
    add(f, 1);
    add(f, 2);
    add(f, 1);
    assert_int_equal(shown(f, "e1"), 2);
    assert_int_equal(shown(f, "e2"), 1);
    assert_int_equal(rewarder_quarantines_of(&f->q, "e1"), 2);
    assert_int_equal(rewarder_quarantines_of(&f->q, "e3"), 0);
    assert_int_equal(series(f), 2);
}

static void the_newest_keep_their_names_and_nothing_is_uncounted(void **state)
{
    struct fixture *f = *state;
    for (unsigned i = 0; i < REWARDER_QUARANTINES_MAX; i++)
        add(f, i);
    assert_int_equal(shown(f, "_other"), -1);
    add(f, 0); /* once more: it is the newest now, and e1 the oldest */
    add(f, 1000);
    assert_int_equal(shown(f, "e0"), 2);
    assert_int_equal(shown(f, "e1"), -1);
    assert_int_equal(shown(f, "_other"), 1);
    for (unsigned i = 2000; i < 7000; i++)
        add(f, i);
    assert_int_equal(series(f), REWARDER_QUARANTINES_MAX + 1);
    assert_int_equal(shown(f, "_other"), REWARDER_QUARANTINES_MAX + 2 + 5000 - REWARDER_QUARANTINES_MAX);
    assert_int_equal(shown(f, "e6999"), 1);
    assert_int_equal(shown(f, "e6871"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_epoch_counts_its_quarantines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_newest_keep_their_names_and_nothing_is_uncounted, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
