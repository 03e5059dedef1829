/* The checkpointer itself, with the rest of the ledger standing still: what is complete is written, in order, or nothing behind it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rig.h"
#include "rt/supervisor.h"
#include "services/ledger/service.h"
#include "waiting.h"

struct shop {
    struct rig r;
    struct ledger_service service;
    struct rt_supervisor *sup;
    unsigned sent;
};

static void close_gen_tx(void *ctx)
{
    rt_chan_close(((struct shop *)ctx)->r.l->gen_tx);
}

static void open_it(struct shop *s) RT_BLOCKS
{
    assert_int_equal(obs_metrics_create("ledger", &s->r.metrics), ERR_OK);
    assert_int_equal(rig_open(&s->r), ERR_OK);
}

static void close_it(struct shop *s) RT_BLOCKS
{
    ledger_close(s->r.l, false);
    obs_metrics_destroy(s->r.metrics);
}

static void start(struct shop *s) RT_BLOCKS
{
    s->service.l = s->r.l;
    struct rt_drain_step step = {.step = 6, .name = "checkpointer", .begin = close_gen_tx, .ctx = s};
    s->sup =
        rt_supervisor_create(&(struct rt_supervisor_spec){.name = "sim", .steps = &step, .steps_n = 1});
    assert_non_null(s->sup);
    assert_int_equal(rt_supervisor_add(s->sup, &(struct rt_task_spec){.name = "checkpointer",
                                                                      .run = ledger_checkpointer_run,
                                                                      .arg = &s->service,
                                                                      .drain_step = 6}),
                     ERR_OK);
    assert_int_equal(rt_supervisor_start(s->sup), ERR_OK);
}

static void stop(struct shop *s) RT_BLOCKS
{
    struct rt_drain_report report;
    rt_supervisor_drain(s->sup);
    assert_int_equal(rt_supervisor_join(s->sup, deadline_in_ms(AWAIT_MS), &report), ERR_OK);
    rt_supervisor_destroy(s->sup);
}

static void found(struct shop *s) RT_BLOCKS
{
    struct store_disk *disk;
    memset(s, 0, sizeof *s);
    assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
    rig_init(&s->r, disk);
    open_it(s);
}

static void end(struct shop *s) RT_BLOCKS
{
    stop(s);
    close_it(s);
    store_disk_destroy(s->r.disk);
}

static void mint_some(struct shop *s, unsigned n) RT_BLOCKS
{
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(rig_mint(&s->r, s->sent++).verdict, VERDICT_COMMITTED);
}

/* As POST /admin/checkpoint does; then the sequencer wakes up and finds no job. */
static void ask(struct shop *s) RT_BLOCKS
{
    atomic_store(&s->r.l->want_gen, true);
    rig_round(&s->r, NULL, 0);
}

static uint64_t covered(const struct shop *s)
{
    return atomic_load(&s->r.l->checkpoint_seq);
}

/* Killed, and opened from the newest checkpoint: all is known, and the value is the same. */
static void assert_survives(struct shop *s, uint64_t checkpoint) RT_BLOCKS
{
    struct sha256 before, after;
    stop(s);
    ledger_state_digest(s->r.l->state, &before);
    close_it(s);
    open_it(s);
    start(s);
    assert_int_equal(covered(s), checkpoint);
    ledger_state_digest(s->r.l->state, &after);
    assert_true(sha256_eq(&before, &after));
    for (unsigned i = 0; i < s->sent; i++)
        assert_int_equal(rig_mint(&s->r, i).verdict, VERDICT_DUPLICATE);
}

static void a_checkpoint_of_an_idle_ledger_is_written_without_another_unit(void **state) RT_BLOCKS
{
    (void)state;
    struct shop s;
    found(&s);
    start(&s);
    ask(&s); /* nothing is there, and nothing is to be written */
    mint_some(&s, 3);
    ask(&s);
    AWAIT(covered(&s) == 3);
    ask(&s); /* again: there is nothing new */
    assert_int_equal(atomic_load(&s.r.l->frozen_gens), 0);
    assert_false(atomic_load(&s.r.l->want_gen));
    mint_some(&s, 2);
    ask(&s);
    AWAIT(covered(&s) == 5);
    assert_survives(&s, 5); /* the end has nothing to add */
    ask(&s);                /* of a ledger that was just opened */
    mint_some(&s, 1);
    ask(&s);
    AWAIT(covered(&s) == 6);
    assert_survives(&s, 6);
    end(&s);
}

/* Three generations wait and a fourth is open: it is asked for until there is room. */
static void a_checkpoint_that_has_to_wait_stays_asked_for(void **state) RT_BLOCKS
{
    (void)state;
    struct shop s;
    found(&s);
    for (unsigned i = 0; i < LEDGER_GENS_FROZEN_MAX + 1; i++) {
        mint_some(&s, 1);
        ask(&s);
    }
    assert_int_equal(atomic_load(&s.r.l->frozen_gens), LEDGER_GENS_FROZEN_MAX);
    assert_true(atomic_load(&s.r.l->want_gen));
    start(&s);
    AWAIT(atomic_load(&s.r.l->frozen_gens) == 0);
    rig_round(&s.r, NULL, 0);
    AWAIT(covered(&s) == LEDGER_GENS_FROZEN_MAX + 1);
    end(&s);
}

/* What was complete when an operator stopped the writes is written when they go on; nothing behind it before it. */
static void an_operators_safe_mode_costs_no_generation(void **state) RT_BLOCKS
{
    (void)state;
    struct shop s;
    found(&s);
    mint_some(&s, 3);
    ask(&s);
    assert_true(ledger_enter_safe_mode(s.r.l, CAUSE_OPERATOR, "test"));
    start(&s);
    AWAIT(rt_chan_depth(s.r.l->gen_tx) == 0); /* the checkpointer has it in hand */
    assert_int_equal(covered(&s), 0);
    atomic_store(&s.r.l->cause, CAUSE_NONE);
    AWAIT(covered(&s) == 3);
    mint_some(&s, 2);
    ask(&s);
    AWAIT(covered(&s) == 5);
    assert_survives(&s, 5);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_of_an_idle_ledger_is_written_without_another_unit),
        cmocka_unit_test(a_checkpoint_that_has_to_wait_stays_asked_for),
        cmocka_unit_test(an_operators_safe_mode_costs_no_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
