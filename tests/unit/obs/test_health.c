#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "obs/health.h"

static void a_service_is_ready_when_no_hard_cause_is_missing(void **state)
{
    (void)state;
    struct clock_manual c;
    clock_manual_init(&c, 1760000000000);
    struct obs_health *h;
    assert_int_equal(obs_health_create(&c.clock, &h), ERR_OK);
    size_t config = obs_health_add(h, "config", OBS_HARD), ledger = obs_health_add(h, "ledger", OBS_SOFT);
    struct obs_health_view v;
    obs_health_read(h, &v);
    assert_false(v.ready);
    assert_int_equal(v.n_missing, 2);
    assert_true(obs_health_set(h, config, true));
    assert_false(obs_health_set(h, config, true));
    obs_health_read(h, &v);
    assert_true(v.ready && v.degraded);
    assert_string_equal(v.missing[0], "ledger");
    obs_health_set(h, ledger, true);
    obs_health_read(h, &v);
    assert_true(v.ready && !v.degraded);
    size_t found;
    assert_true(obs_health_find(h, "ledger", &found) && found == ledger);
    assert_false(obs_health_find(h, "nobody", &found));
    obs_health_destroy(h);
}

static void since_moves_only_when_the_answer_changes(void **state)
{
    (void)state;
    struct clock_manual c;
    clock_manual_init(&c, 1760000000000);
    struct obs_health *h;
    assert_int_equal(obs_health_create(&c.clock, &h), ERR_OK);
    size_t a = obs_health_add(h, "a", OBS_HARD), b = obs_health_add(h, "b", OBS_HARD);
    clock_manual_advance_ms(&c, 100);
    obs_health_set(h, a, true);
    struct obs_health_view v;
    obs_health_read(h, &v);
    assert_int_equal(v.since_ms, 1760000000000);
    clock_manual_advance_ms(&c, 100);
    obs_health_set(h, b, true);
    obs_health_read(h, &v);
    assert_int_equal(v.since_ms, 1760000000200);
    clock_manual_advance_ms(&c, 100);
    obs_health_set(h, a, false);
    clock_manual_advance_ms(&c, 100);
    obs_health_set(h, b, false);
    obs_health_read(h, &v);
    assert_int_equal(v.since_ms, 1760000000300);
    obs_health_destroy(h);
}

static void extra_member(void *ctx, struct buf *out)
{
    buf_printf(out, ",\"head_seq\":%d", *(int *)ctx);
}

static void the_answer_is_rendered_with_extra_members(void **state)
{
    (void)state;
    struct clock_manual c;
    clock_manual_init(&c, 1760000000000);
    struct obs_health *h;
    assert_int_equal(obs_health_create(&c.clock, &h), ERR_OK);
    obs_health_add(h, "ledger", OBS_HARD);
    obs_health_add(h, "store", OBS_SOFT);
    struct buf out;
    buf_init(&out, 4096);
    int seq = 12;
    obs_health_render(h, extra_member, &seq, &out);
    assert_string_equal(buf_cstr(&out),
                        "{\"ready\":false,\"degraded\":true,\"missing\":[\"ledger\",\"store\"],"
                        "\"since\":\"2025-10-09T08:53:20.000Z\",\"head_seq\":12}");
    buf_fini(&out);
    obs_health_destroy(h);
}

struct flip {
    struct obs_health *h;
    size_t cause;
};

static void *flip_often(void *arg)
{
    struct flip *f = arg;
    for (int i = 0; i < 20000; i++)
        obs_health_set(f->h, f->cause, i % 2);
    return NULL; /* the last one was true */
}

static void racing_setters_leave_the_answer_of_all_causes(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        struct obs_health *h;
        assert_int_equal(obs_health_create(clock_real(), &h), ERR_OK);
        struct flip f[3];
        pthread_t t[3];
        for (int i = 0; i < 3; i++)
            f[i] = (struct flip){h, obs_health_add(h, (const char *[]){"a", "b", "c"}[i], OBS_HARD)};
        struct obs_health_view before, v;
        obs_health_read(h, &before);
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&t[i], NULL, flip_often, &f[i]), 0);
        for (int i = 0; i < 3; i++)
            pthread_join(t[i], NULL);
        obs_health_read(h, &v);
        assert_true(v.ready && !v.degraded && v.since_ms >= before.since_ms);
        obs_health_destroy(h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_service_is_ready_when_no_hard_cause_is_missing),
        cmocka_unit_test(since_moves_only_when_the_answer_changes),
        cmocka_unit_test(the_answer_is_rendered_with_extra_members),
        cmocka_unit_test(racing_setters_leave_the_answer_of_all_causes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
