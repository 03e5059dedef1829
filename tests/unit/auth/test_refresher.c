#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>

#include "auth/cap.h"
#include "auth/mint.h"
#include "rt/supervisor.h"

#define NOW INT64_C(1780000000000)

static void the_refresher_trims_under_its_supervisor_and_ends_when_told(void **state) RT_BLOCKS;

static void the_refresher_trims_under_its_supervisor_and_ends_when_told(void **state)
{
    (void)state;
    struct clock_manual clock;
    struct auth_keyring *keys;
    struct auth *auth;
    struct auth_cap *cap;
    struct auth_stats st;
    struct buf token;
    struct str caveats[] = {STR("aud = svc-wallet"), STR("exp < 2030-01-01T00:00:00Z")};
    clock_manual_init(&clock, NOW);
    assert_int_equal(auth_keyring_generate("k1", INT64_C(4000000000000), &keys), ERR_OK);
    struct auth_config cfg = {.aud = "svc-wallet", .keyring = keys, .clock = &clock.clock};
    assert_int_equal(auth_open(&cfg, &auth, NULL), ERR_OK);
    buf_init(&token, AUTH_TOKEN_MAX);
    assert_int_equal(auth_mint(keys, STR("k1"), caveats, 2, &token, NULL), ERR_OK);
    assert_int_equal(auth_verify(auth, buf_str(&token), &cap), ERR_OK);
    auth_cap_release(cap);
    clock_manual_advance_ms(&clock, 30000);

    struct rt_supervisor *sup = rt_supervisor_create(&(struct rt_supervisor_spec){.name = "test"});
    assert_non_null(sup);
    struct rt_task_spec task = {
        .name = "cap_refresher", .run = auth_refresher_run, .arg = auth, .heartbeat_ms = 5000};
    assert_int_equal(rt_supervisor_add(sup, &task), ERR_OK);
    assert_int_equal(rt_supervisor_start(sup), ERR_OK);
    struct deadline by = deadline_in_ms(10000);
    do {
        sched_yield();
        auth_stats(auth, &st);
    } while (st.entries > 0 && !deadline_passed(by));
    assert_int_equal(st.entries, 0);
    assert_int_equal(st.expired, 1);
    struct rt_drain_report report;
    rt_supervisor_drain(sup);
    assert_int_equal(rt_supervisor_join(sup, deadline_in_ms(10000), &report), ERR_OK);
    assert_int_equal(report.aborted + report.leaked, 0);
    rt_supervisor_destroy(sup);
    auth_close(auth);
    auth_keyring_unref(keys);
    buf_fini(&token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_refresher_trims_under_its_supervisor_and_ends_when_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
