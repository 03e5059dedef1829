/* Amnesia: files are memory, and there is so much of it. Settled runs make room, unsettled ones never do. */
#include "fixture.h"

enum { ROWS = 12000 }; /* about two MiB a run */

static int forget_everything(void **state) RT_BLOCKS
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    fixture_open(f);
    f->amnesia = true;
    f->flags[f->flag_n++] = "amnesia_max_bytes=16MiB";
    start(f);
    *state = f;
    return 0;
}

static uint64_t free_bytes(struct fixture *f) RT_BLOCKS
{
    struct rewarder *r = svc_state(f->svc);
    uint64_t n;
    assert_int_equal(store_disk_free_bytes(r->files.disk, r->files.root, &n), ERR_OK);
    return n;
}

static int status_of(struct fixture *f, const char *method, const char *path, const char *body,
                     const char *type) RT_BLOCKS
{
    struct answer a;
    call(f, method, path, body, type, NULL, &a);
    buf_fini(&a.body);
    return a.status;
}

static int put_status(struct fixture *f, const char *epoch) RT_BLOCKS
{
    struct buf b;
    snapshot("default", epoch, ROWS, &b);
    int status = status_of(f, "PUT", "/rewarder/inputs", buf_cstr(&b), "application/x-ndjson");
    buf_fini(&b);
    return status;
}

static void the_oldest_settled_runs_make_room_and_stay_claimed(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char epoch[16], cid[80];
    for (unsigned i = 0; i < 20; i++) {
        snprintf(epoch, sizeof epoch, "e%u", i);
        settle(f, epoch, ROWS, "weekly");
        assert_true(free_bytes(f) > 0);
    }
    assert_true(f->ledger->available.units == 1000000 - 20 * 1000); /* all of them were paid, once */
    struct rewarder *r = svc_state(f->svc);
    assert_true(obs_counter_value(OBS_COUNTER_OF(r->metrics[REWARDER_M_swept], "run")) > 0);
    assert_int_equal(status_of(f, "GET", "/rewarder/epochs/e19/artifacts/run.json", NULL, NULL), 200);
    assert_int_not_equal(status_of(f, "GET", "/rewarder/epochs/e0/artifacts/run.json", NULL, NULL), 200);
    json_decref(await_state(f, "e0", "settled"));
    /* its epoch is not free for other inputs */
    put_inputs(f, "e0", 7, cid);
    json_decref(compute(f, "e0", cid, "weekly", 409));
}

static void what_is_not_settled_is_kept_and_new_work_is_429_until_it_is(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct rewarder *r = svc_state(f->svc);
    char epoch[16], cid[80];
    unsigned held = 0;
    fake_ledger_set_down(f->ledger, true);
    struct deadline by = deadline_in_ms(4 * PATIENCE_MS);
    int status = 0;
    while (status != 429 && !deadline_passed(by)) {
        snprintf(epoch, sizeof epoch, "e%u", held);
        status = put_status(f, epoch);
        if (status == 429)
            break;
        assert_in_range(status, 200, 201);
        put_inputs(f, epoch, ROWS, cid);
        char path[64], body[200];
        snprintf(path, sizeof path, "/rewarder/epochs/%s/compute", epoch);
        snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"weekly\"}", cid);
        status = status_of(f, "POST", path, body, NULL);
        if (status == 429)
            break;
        assert_int_equal(status, 202);
        snprintf(path, sizeof path, "/rewarder/epochs/%s", epoch);
        json_t *o = get(f, path, 200);
        while (strcmp(text(o, "state"), "held") && strcmp(text(o, "state"), "failed")) {
            json_decref(o);
            assert_false(deadline_passed(by));
            o = get(f, path, 200);
        }
        held += !strcmp(text(o, "state"), "held");
        json_decref(o);
    }
    assert_int_equal(status, 429);
    assert_true(held >= 2);
    assert_int_equal(obs_counter_value(OBS_COUNTER_OF(r->metrics[REWARDER_M_swept], "run")), 0);
    for (unsigned i = 0; i < held; i++) {
        snprintf(epoch, sizeof epoch, "e%u", i);
        json_decref(await_state(f, epoch, "held"));
    }
    /* the ledger is back: they are settled, and there is room again */
    fake_ledger_set_down(f->ledger, false);
    for (unsigned i = 0; i < held; i++) {
        snprintf(epoch, sizeof epoch, "e%u", i);
        json_decref(await_state(f, epoch, "settled"));
    }
    by = deadline_in_ms(PATIENCE_MS);
    while ((status = put_status(f, "after")) == 429)
        assert_false(deadline_passed(by));
    settle(f, "after", ROWS, "weekly");
    assert_true(f->ledger->available.units == 1000000 - 1000 * (uint64_t)(held + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_oldest_settled_runs_make_room_and_stay_claimed,
                                        forget_everything, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_settled_is_kept_and_new_work_is_429_until_it_is,
                                        forget_everything, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
