/*
 * The whole service on a disk that fails as told: power cuts (torn, lost and reordered writes), I/O errors, a full disk and
 * half writes, at a random operation of upload, seal, settlement and the rewrite of registry.log. Whatever was answered before is
 * there after a restart, the root is the one an undisturbed run has, and every recipient is paid exactly once.
 * RON_SEED and RON_ROUNDS in the environment repeat or deepen a run.
 */
#include "../../e2e/rewarder/fixture.h"

#include "base/rng.h"
#include "store/disk_faulty.h"

enum { ROWS = 600, OPERATIONS = 110 };

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 0) : otherwise;
}

/* What the service has said so far. */
struct said {
    bool stored, sealed, settled;
    char cid[80], root[80];
};

static void look(struct fixture *f, struct said *s, char state[24]) RT_BLOCKS
{
    struct answer a;
    state[0] = '\0';
    call(f, "GET", "/rewarder/epochs/e1", NULL, NULL, NULL, &a);
    if (a.status != 200) {
        buf_fini(&a.body);
        return;
    }
    json_t *o = json_of(&a);
    const json_t *c = json_object_get(json_object_get(o, "manifest"), "commitment");
    snprintf(state, 24, "%s", text(o, "state"));
    s->settled = s->settled || !strcmp(state, "settled");
    if (c) {
        if (s->sealed)
            assert_string_equal(s->root, text(c, "root"));
        s->sealed = true;
        snprintf(s->root, sizeof s->root, "%s", text(c, "root"));
    }
    json_decref(o);
}

static bool is_over(const char *state)
{
    return !strcmp(state, "settled") || !strcmp(state, "failed") || !strcmp(state, "quarantined");
}

/* One attempt at the epoch; any answer is fine as long as it is true. */
static void attempt(struct fixture *f, struct said *s) RT_BLOCKS
{
    struct buf b;
    struct answer a;
    char state[24], body[160];
    snapshot("default", "e1", ROWS, &b);
    call(f, "PUT", "/rewarder/inputs", buf_cstr(&b), "application/x-ndjson", NULL, &a);
    buf_fini(&b);
    if (a.status == 201 || a.status == 200) {
        json_t *o = json_of(&a);
        s->stored = true;
        snprintf(s->cid, sizeof s->cid, "%s", text(o, "cid"));
        json_decref(o);
    } else {
        buf_fini(&a.body);
    }
    if (!s->stored)
        return;
    snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"floored\"}", s->cid);
    call(f, "POST", "/rewarder/epochs/e1/compute", body, NULL, NULL, &a);
    buf_fini(&a.body);
    if (a.status != 202 && a.status != 200)
        return;
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    do {
        look(f, s, state);
        if (f->disk && store_disk_faulty_is_down(f->disk))
            return;
    } while (!is_over(state) && !(store_disk_faulty_fired(f->disk) && !strcmp(state, "emitting")) &&
             !deadline_passed(by));
}

static struct store_fault_plan plan_of(struct rng *g)
{
    struct store_fault_plan p = {.crash_at = 0};
    uint64_t at = 1 + rng_below(g, OPERATIONS);
    switch (rng_below(g, 5)) {
    case 0:
        p.eio_at = at;
        break;
    case 1:
        p.enospc_at = at;
        break;
    case 2:
        p.short_at = at;
        break;
    default:
        p.crash_at = at;
        p.keep = (enum store_keep)rng_below(g, 3);
        break;
    }
    return p;
}

static void expect_kept(struct fixture *f, const struct said *s) RT_BLOCKS
{
    struct answer a;
    char path[128], state[24];
    struct said now = *s;
    snprintf(path, sizeof path, "/rewarder/inputs/%s", s->cid);
    if (s->stored) {
        call(f, "GET", path, NULL, NULL, NULL, &a);
        assert_int_equal(a.status, 200);
        buf_fini(&a.body);
    }
    look(f, &now, state);
    if (s->sealed) /* also compares the root */
        assert_true(state[0] && strcmp(state, "failed") != 0);
    if (s->settled)
        assert_string_equal(state, "settled");
}

/* A sealed file that could not be read stops the run for a person to look: here the disk is fine again. */
static void release_if_quarantined(struct fixture *f) RT_BLOCKS
{
    struct said s = {.stored = false};
    char state[24];
    look(f, &s, state);
    if (!strcmp(state, "quarantined"))
        json_decref(post(f, "/rewarder/epochs/e1/release",
                         "{\"action\":\"resume\",\"reason\":\"disk is fine\"}", 202));
}

/* A log of dead lines, just below the size at which it is rewritten: the run's first line makes that happen. */
static void fill_log(struct store_disk *disk, const char *root) RT_BLOCKS
{
    struct rewarder_files files;
    char dir[STORE_PATH_MAX], line[256];
    snprintf(dir, sizeof dir, "%s/rewarder", root);
    assert_int_equal(rewarder_files_open(&files, disk, dir), ERR_OK);
    for (unsigned n = 1; files.log_end < 3600; n++) {
        int len = snprintf(line, sizeof line,
                           "{\"n\":%u,\"t\":\"default\",\"e\":\"gone\",\"op\":\"%s\",\"kind\":"
                           "\"overflow\",\"reason\":\"the scores do not fit\",\"at\":1}",
                           (n + 1) / 2, n % 2 ? "quarantined" : "discarded");
        assert_int_equal(rewarder_log_append(&files, bytes_of(line, (size_t)len)), ERR_OK);
    }
    rewarder_files_close(&files);
}

static const struct store_fault_plan no_fault = {.crash_at = 0};

static struct fixture *on_faulty_disk(uint64_t seed)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    fixture_open(f);
    assert_int_equal(store_disk_faulty(seed, &no_fault, &f->disk), ERR_OK);
    return f;
}

static void end_on_faulty_disk(struct fixture *f) RT_BLOCKS
{
    char command[128];
    (void)stop(f);
    store_disk_destroy(f->disk);
    fake_ledger_fini(f->ledger);
    free(f->ledger);
    snprintf(command, sizeof command, "rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    free(f);
}

static char undisturbed[80];

static bool round_of(uint64_t seed) RT_BLOCKS
{
    struct fixture *f = on_faulty_disk(seed);
    struct said s = {.stored = false};
    struct rng g;
    rng_seed(&g, seed);
    f->flags[f->flag_n++] = "registry.compact_above=4KiB";
    fill_log(f->disk, f->root);
    start(f);
    struct store_fault_plan plan = seed ? plan_of(&g) : no_fault;
    store_disk_faulty_plan(f->disk, &plan);
    attempt(f, &s);
    bool fired = store_disk_faulty_fired(f->disk);
    (void)stop(f);
    if (!store_disk_faulty_is_down(f->disk) && rng_below(&g, 2))
        store_disk_faulty_cut(f->disk);
    if (store_disk_faulty_is_down(f->disk))
        store_disk_faulty_reboot(f->disk);
    store_disk_faulty_plan(f->disk, &no_fault);
    start(f);
    expect_kept(f, &s);
    release_if_quarantined(f);
    attempt(f, &s);
    json_decref(await_state(f, "e1", "settled"));
    assert_true(f->ledger->available.units == 1000000 - 1000);
    json_t *o = get(f, "/rewarder/epochs/e1", 200);
    const json_t *c = json_object_get(json_object_get(o, "manifest"), "commitment");
    assert_int_equal(paid_in(f->ledger), json_integer_value(json_object_get(c, "count")));
    if (!undisturbed[0])
        snprintf(undisturbed, sizeof undisturbed, "%s", text(c, "root"));
    assert_string_equal(undisturbed, text(c, "root"));
    json_decref(o);
    end_on_faulty_disk(f);
    return fired;
}

/* No room for the nth thing that a seal needs. What was said of the run is what the next start makes of it: a run that failed
 * is not there, and nobody is paid until it is asked for again. False: the seal needed less. */
static bool no_room_for(uint64_t nth, unsigned *failed) RT_BLOCKS
{
    struct fixture *f = on_faulty_disk(nth);
    struct said s = {.stored = false};
    struct answer a;
    char cid[80], state[24];
    f->flags[f->flag_n++] = "settlement.hold=true";
    start(f);
    put_inputs(f, "e1", ROWS, cid);
    store_disk_faulty_plan(f->disk, &(struct store_fault_plan){.enospc_at = nth});
    json_decref(compute(f, "e1", cid, "floored", 202));
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    do {
        assert_false(deadline_passed(by));
        look(f, &s, state);
    } while (strcmp(state, "held") != 0 && strcmp(state, "failed") != 0);
    bool fired = store_disk_faulty_fired(f->disk), was_failed = !strcmp(state, "failed");
    (void)stop(f);
    store_disk_faulty_plan(f->disk, &no_fault);
    f->flag_n--;
    start(f);
    call(f, "GET", "/rewarder/epochs/e1", NULL, NULL, NULL, &a);
    buf_fini(&a.body);
    assert_int_equal(a.status, was_failed ? 404 : 200);
    if (was_failed) {
        assert_int_equal(f->ledger->n_units, 0);
        json_decref(compute(f, "e1", cid, "floored", 202));
        ++*failed;
    }
    json_decref(await_state(f, "e1", "settled"));
    assert_true(f->ledger->available.units == 1000000 - 1000);
    end_on_faulty_disk(f);
    return fired;
}

static void
a_run_that_is_said_to_have_failed_for_want_of_room_is_not_paid_by_the_next_start(void **state) RT_BLOCKS
{
    (void)state;
    unsigned failed = 0;
    for (uint64_t nth = 1; no_room_for(nth, &failed); nth++)
        assert_true(nth < 200);
    assert_true(failed > 0);
}

static void a_disk_that_fails_anywhere_loses_nothing_that_was_answered(void **state) RT_BLOCKS
{
    (void)state;
    uint64_t rounds = from_env("RON_ROUNDS", 12), seed = from_env("RON_SEED", (uint64_t)os_now_ns() | 1);
    uint64_t fired = 0;
    (void)round_of(0);
    for (uint64_t i = 0; i < rounds; i++) {
        print_message("RON_SEED=%llu\n", (unsigned long long)(seed + i));
        fired += round_of(seed + i);
    }
    print_message("%llu of %llu faults happened\n", (unsigned long long)fired, (unsigned long long)rounds);
    assert_true(fired > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_that_fails_anywhere_loses_nothing_that_was_answered),
        cmocka_unit_test(a_run_that_is_said_to_have_failed_for_want_of_room_is_not_paid_by_the_next_start)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
